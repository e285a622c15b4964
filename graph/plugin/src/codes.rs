//! Codes of errors and findings of this crate.

anabranch_record::codes! {
    /// The value has the wrong type for the field.
    CONFIG_TYPE: "config.type", "Change the value as the message says.";

    /// The server refuses the credentials.
    CREDENTIALS_REFUSED: "credentials_refused",
        "Correct the credentials. The pipeline retries for `pipelines.error-recovery.login-patience`.";

    /// Another run took over the pipeline.
    FENCED: "fenced", "Make sure that only one service runs the pipeline.";

    /// Every record has the same key, so the destination keeps only the last record.
    FLOW_KEY_CONSTANT: "flow.key_constant",
        "Set `.Key` to a value that identifies the record, or remove it with field.exclude to insert every record.";

    /// A processor returns several records for one, all with the same key, so the destination keeps only the last.
    FLOW_KEY_SHARED: "flow.key_shared",
        "Set `.Key` after that processor to a value that differs, such as the number in the metadata.";

    /// A processor does nothing, or repeats what was done already.
    FLOW_NEEDLESS: "flow.needless", "Remove the processor, or name the intended field.";

    /// A processor needs fields, but the data is raw bytes at this point.
    FLOW_NEEDS_FIELDS: "flow.needs_fields", "Decode the data first, with json.decode or avro.decode.";

    /// A comparison uses two types that cannot be compared: every record that reaches it fails.
    FLOW_NEVER_COMPARABLE: "flow.never_comparable", "Compare values of one type, as the message says.";

    /// A comparison has the same result for every record.
    FLOW_NEVER_TRUE: "flow.never_true", "Apply the change that the finding proposes.";

    /// A destination writes data that no record has.
    FLOW_NO_DATA: "flow.no_data", "Keep the data, or choose another format.";

    /// The field does not exist at this point of the pipeline.
    FLOW_NO_FIELD: "flow.no_field", "Correct the reference; `pipelines plan` shows the fields of records.";

    /// Nothing sets this metadata earlier in the pipeline.
    FLOW_NO_METADATA: "flow.no_metadata", "Correct the key, or set the metadata first.";

    /// The operation is compared with a text that is not an operation, or with one that no record has here.
    FLOW_NO_OPERATION: "flow.no_operation", "Write create, update, delete or snapshot.";

    /// A template reads a part of the record that does not exist.
    FLOW_NO_PART: "flow.no_part", "Use Position, Operation, Metadata, Key, Payload.Before or Payload.After.";

    /// A template calls another template that is not defined.
    FLOW_NO_TEMPLATE: "flow.no_template", "Define that template before the call.";

    /// A reference goes through a value that has no fields.
    FLOW_NOT_A_MAP: "flow.not_a_map", "Correct the reference.";

    /// A processor needs text or bytes, but the value has another type.
    FLOW_NOT_A_TEXT: "flow.not_a_text", "Convert the value first, or name another field.";

    /// A condition returns a value other than true or false, always or for some records.
    FLOW_NOT_A_VERDICT: "flow.not_a_verdict", "Compare values, and add an `else` to each `if`.";

    /// A processor decodes or encodes data that an earlier processor has put into another encoding.
    FLOW_NOT_ENCODED: "flow.not_encoded", "Undo encodings in the reverse order.";

    /// The arguments of a function are swapped: it gets a text of the template as its data, and the data as that text.
    FLOW_REVERSED: "flow.reversed", "Write the arguments in the order in the finding.";

    /// A template probably returns an unintended text, such as a map in Go's notation or a truncated number.
    FLOW_SUSPECT: "flow.suspect", "Apply the change that the finding proposes.";

    /// A function of a template gets too few, too many or wrong arguments: every record that reaches it fails.
    FLOW_WRONG_ARGUMENT: "flow.wrong_argument",
        "Convert the value, or pass the number of arguments that the function takes.";

    /// The record cannot be written in this format.
    FORMAT_FAILED: "format_failed", "Check the setting of the format; the message has the details.";

    /// A transactional destination does not have the positions that this run stored: it lost them, for example in a
    /// failover, or another run wrote to it.
    MARKS_MOVED: "marks_moved", "The pipeline restarts by itself. Make sure that only one service runs it.";

    /// A processor panicked with this record.
    OPERATOR_PANICKED: "operator_panicked", "This is a defect of the processor: report it with the record.";

    /// A source returned a partition that it does not have.
    PARTITION_UNEXPECTED: "partition_unexpected", "This is a defect of the source: report it to its author.";

    /// The plan cannot be executed.
    PLAN_BROKEN: "plan_broken", "This is a defect: report it with the pipeline file.";

    /// The stored position is not valid for this source.
    POSITION_UNKNOWN: "position_unknown", "Reset the position, or give the connector another id.";

    /// The record exceeds the size limit of the plugin.
    RECORD_TOO_LARGE: "record_too_large", "Make the record smaller before the connector.";

    /// The source does not support a request, such as a backfill.
    REQUEST_UNSUPPORTED: "request_unsupported", "Use a source that supports it: `anabranch connectors describe`.";

    /// The registry rejects the schema: it is not compatible with earlier versions.
    SCHEMA_INCOMPATIBLE: "schema_incompatible", "Change the schema, or the compatibility of the subject.";

    /// The schema is not valid.
    SCHEMA_INVALID: "schema_invalid", "Correct the schema.";

    /// The schema does not exist.
    SCHEMA_NOT_FOUND: "schema_not_found", "Check that the registry is the one that the records were written with.";

    /// The registry refuses the credentials.
    SCHEMA_REGISTRY_DENIED: "schema_registry_denied",
        "Correct the credentials. The pipeline retries for `pipelines.error-recovery.login-patience`.";

    /// The registry cannot be reached. The service retries.
    SCHEMA_REGISTRY_UNAVAILABLE: "schema_registry_unavailable", "Check its address and the network.";

    /// The registry cannot be used, or its response is too large.
    SCHEMA_REGISTRY_UNUSABLE: "schema_registry_unusable", "Correct schema-registry.confluent.connection-string.";

    /// The subject does not exist.
    SCHEMA_SUBJECT_NOT_FOUND: "schema_subject_not_found", "Correct the name, or register a schema.";

    /// The subject does not have this version.
    SCHEMA_VERSION_NOT_FOUND: "schema_version_not_found", "Check the program that wrote the record.";

    /// A script uses a field, a name or an operation that does not exist, treats raw data as text, returns something
    /// that is not a record, or has a statement without effect.
    SCRIPT_MISTAKE: "script.mistake", "Correct it at the place in the message.";

    /// The script fails when it is loaded.
    SCRIPT_FAILED: "script_failed", "Correct the script; the message comes from it.";

    /// The script declares no function named process.
    SCRIPT_NO_PROCESS: "script_no_process", "Declare the function.";

    /// A setting of a plugin is set under two names.
    SETTINGS_DUPLICATE: "settings.duplicate", "Remove one of them.";

    /// A setting of a plugin has a value that is not allowed.
    SETTINGS_INVALID: "settings.invalid", "The message lists the allowed values.";

    /// A value is not a reference to a part of the record.
    SETTINGS_INVALID_REFERENCE: "settings.invalid_reference", "Write a reference such as `.Payload.After.name`.";

    /// A value is not a valid template.
    SETTINGS_INVALID_TEMPLATE: "settings.invalid_template", "Test it with `template eval`.";

    /// A required setting is missing.
    SETTINGS_REQUIRED: "settings.required", "Add the setting.";

    /// The plugin does not have this setting.
    SETTINGS_UNKNOWN: "settings.unknown", "`connectors describe` and `processors describe` list the settings.";

    /// A setting has no effect because of other settings.
    SETTINGS_UNUSED: "settings.unused", "Remove the setting.";

    /// The state store cannot be written. The service retries.
    STORE_UNAVAILABLE: "store_unavailable", "Check its disk or database.";

    /// A template failed for this record.
    TEMPLATE_FAILED: "template_failed", "Test for the field before the template uses it.";

    /// A destination did not report a result for every record.
    VERDICT_COUNT: "verdict_count", "This is a defect of the destination: report it to its author.";
}
