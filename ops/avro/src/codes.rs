//! Codes of errors and findings of this crate.

pub(crate) use anabranch_plugin::codes::{
    FLOW_NOT_A_TEXT, FLOW_NOT_ENCODED, SCHEMA_REGISTRY_UNAVAILABLE, SETTINGS_UNUSED,
};

anabranch_record::codes! {
    /// The bytes do not match the schema.
    AVRO_INVALID: "avro_invalid", "Check which program wrote the record, and with which schema.";

    /// The record does not fit the schema.
    AVRO_MISFIT: "avro_misfit", "Change the schema, or change the record before this processor.";

    /// There is no schema for the record.
    AVRO_NO_SCHEMA: "avro_no_schema", "Choose a strategy that names or infers one.";

    /// The field has a value that cannot be encoded.
    AVRO_UNEXPECTED_TYPE: "avro_unexpected_type", "Use a field with structured data or JSON text.";

    /// The metadata of the record identifies its schema only in part.
    SCHEMA_METADATA_INCOMPLETE: "schema_metadata_incomplete",
        "This is a defect of the source: report it to its author.";

    /// The address of the registry cannot be used.
    SCHEMA_REGISTRY_ADDRESS: "schema_registry_address", "Correct schema-registry.confluent.connection-string.";

    /// The version of the schema in the metadata is not a number.
    SCHEMA_VERSION_INVALID: "schema_version_invalid", "Check the program that wrote the record.";

    /// A setting that another setting needs is missing.
    SETTINGS_MISSING: "settings.missing", "Add the setting.";
}
