//! Codes of errors and findings of this crate.

pub(crate) use anabranch_config::codes::{CONFIG_VARIABLE_FILE, CONFIG_VARIABLE_INVALID, CONFIG_VARIABLE_UNSET};

anabranch_record::codes! {
    /// A setting is set twice in the file.
    SERVICE_DUPLICATE_KEY: "service.duplicate_key", "Remove one of them.";

    /// A setting has a value that is not allowed.
    SERVICE_INVALID_VALUE: "service.invalid_value", "The message lists the allowed values.";

    /// A setting has no effect because of other settings.
    SERVICE_NO_EFFECT: "service.no_effect", "Remove it, or set the one that it depends on.";

    /// The configuration file is not valid YAML.
    SERVICE_PARSE_ERROR: "service.parse_error", "Correct it at the place in the message.";

    /// Unknown setting.
    SERVICE_UNKNOWN_KEY: "service.unknown_key", "Correct its name.";

    /// A variable ANABRANCH_… does not match any setting.
    SERVICE_UNKNOWN_VARIABLE: "service.unknown_variable", "Correct its name, or remove it.";

    /// The configuration file cannot be read.
    SERVICE_UNREADABLE: "service.unreadable", "Check its path and permissions.";

    /// The value of a setting has the wrong type.
    SERVICE_WRONG_TYPE: "service.wrong_type", "Change the value as the message says.";
}
