//! Codes of errors and findings of this crate.

pub(crate) use anabranch_plugin::codes::CONFIG_TYPE;

anabranch_record::codes! {
    /// A template or a part of a name follows ` #`, which starts a comment: it is not part of the value.
    CONFIG_COMMENT: "config.comment", "Quote the whole text.";

    /// The condition of a processor is blank, which means no condition.
    CONFIG_CONDITION_BLANK: "config.condition_blank", "Remove it, or write a condition.";

    /// A field is set both next to `plugin` and inside `settings`.
    CONFIG_FIELD_DUPLICATE: "config.field_duplicate", "Remove one of the two.";

    /// A field was introduced after the version of the document.
    CONFIG_FIELD_INTRODUCED: "config.field_introduced", "Raise `version`.";

    /// The field does not allow this value.
    CONFIG_FIELD_INVALID: "config.field_invalid", "The message lists the allowed values.";

    /// A field has no meaning at this place and belongs to another part of the file.
    CONFIG_FIELD_MISPLACED: "config.field_misplaced", "Move the field to the place in the message.";

    /// The name of a field differs in one or two letters from the intended one, or belongs to another tool.
    CONFIG_FIELD_MISSPELT: "config.field_misspelt",
        "Use the name in the message. `pipelines validate --fix` corrects unambiguous names.";

    /// A field was renamed. The old name still works.
    CONFIG_FIELD_RENAMED: "config.field_renamed", "Rename the field, or run `pipelines validate --fix`.";

    /// A required field is missing.
    CONFIG_FIELD_REQUIRED: "config.field_required", "Add the field.";

    /// A text is too long for the field.
    CONFIG_FIELD_TOO_LONG: "config.field_too_long", "Shorten the text.";

    /// Unknown field.
    CONFIG_FIELD_UNKNOWN: "config.field_unknown", "Correct the name, or remove the field.";

    /// A pipeline file exceeds the size limit.
    CONFIG_FILE_TOO_LARGE: "config.file_too_large", "Split it into several files.";

    /// Two items of a list have the same id.
    CONFIG_ID_DUPLICATE: "config.id_duplicate", "Change one of the ids.";

    /// A map contains a key twice.
    CONFIG_KEY_DUPLICATE: "config.key_duplicate", "Remove one of them.";

    /// A condition, template, reference or script uses a metadata key of another service. The service maps it to its
    /// own key.
    CONFIG_METADATA_RENAMED: "config.metadata_renamed",
        "No action is needed. `pipelines validate --fix` replaces texts that are certainly keys.";

    /// Two pipelines have the same name.
    CONFIG_NAME_DUPLICATE: "config.name_duplicate", "Change one of the names.";

    /// A pipeline has no destination.
    CONFIG_NO_DESTINATION: "config.no_destination", "Add a connector of type destination.";

    /// A field has no effect, because of the value of another field or because of its own value.
    CONFIG_NO_EFFECT: "config.no_effect", "Remove the field, or change the other one; the message has the details.";

    /// A pipeline has no source.
    CONFIG_NO_SOURCE: "config.no_source", "Add a connector of type source.";

    /// The version of the document does not define the order of processors.
    CONFIG_ORDER_UNDEFINED: "config.order_undefined", "Raise `version`.";

    /// The file is not valid YAML.
    CONFIG_PARSE_ERROR: "config.parse_error", "Correct it at the place in the message, and save it as UTF-8.";

    /// A setting of a plugin is a list or a map.
    CONFIG_SETTING_NESTED: "config.setting_nested", "Write a single value; names with dots address nested settings.";

    /// A YAML tag has no meaning here.
    CONFIG_TAG_IGNORED: "config.tag_ignored", "Remove the tag.";

    /// There are more findings than are shown.
    CONFIG_TOO_MANY: "config.too_many", "Correct the ones that are shown, and check again.";

    /// The alias refers to an anchor that is not defined above it.
    CONFIG_UNKNOWN_ANCHOR: "config.unknown_anchor", "Define the anchor first.";

    /// The file that a value refers to cannot be read.
    CONFIG_VARIABLE_FILE: "config.variable_file", "Check its path and permissions.";

    /// The environment replaces a `${NAME}` in a template literal of an inline script before the script runs.
    CONFIG_VARIABLE_IN_SCRIPT: "config.variable_in_script",
        "Write `$${NAME}` for an expression of the script, or run `pipelines validate --fix`.";

    /// A `${…}` is not complete.
    CONFIG_VARIABLE_INVALID: "config.variable_invalid", "Close the brace, or write `$${` for a literal `${`.";

    /// An environment variable is not set.
    CONFIG_VARIABLE_UNSET: "config.variable_unset", "Set the variable, or add a default: `${NAME:-default}`.";

    /// A document has no version.
    CONFIG_VERSION_MISSING: "config.version_missing", "Add `version: \"2.2\"`.";

    /// The version is unknown. The nearest known version is used.
    CONFIG_VERSION_UNKNOWN: "config.version_unknown", "Write a known version.";

    /// The version is not supported.
    CONFIG_VERSION_UNSUPPORTED: "config.version_unsupported", "Write a supported version.";

    /// Several pipelines have the same id. None of them is used.
    PROVISIONING_PIPELINE_ID_DUPLICATE: "provisioning.pipeline_id_duplicate", "Give each pipeline its own id.";
}
