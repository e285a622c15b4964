//! Codes of errors and findings of this crate.

pub(crate) use anabranch_plugin::codes::{POSITION_UNKNOWN, RECORD_TOO_LARGE};

anabranch_record::codes! {
    /// The settings do not fit the catalogue of a tap: they name a stream, a method or a key that the tap does not have.
    TAP_CATALOG: "tap_catalog", "Compare the settings with the output of `anabranch connectors discover`.";

    /// The catalogue of a tap cannot be read, or is not valid.
    TAP_CATALOG_INVALID: "tap_catalog_invalid",
        "Run the tap with `--config FILE --discover` and check its output, or set catalog to a catalogue.";

    /// The program of a tap ended with an error. The service starts it again.
    TAP_FAILED: "tap_failed", "The message ends with the last output of the tap; the rest is in the log.";

    /// A tap wrote a line that is not a message of the Singer protocol.
    TAP_GARBAGE: "tap_garbage", "This is a defect of the tap: it must write other texts to standard error.";

    /// A record lacks a property of its key, or has null there.
    TAP_KEY_MISSING: "tap_key_missing", "Check the record in the dead letter, and the key of the stream in the catalogue.";

    /// A tap does not end. The service killed it.
    TAP_LATE: "tap_late", "Check the output of the tap in the log.";

    /// A tap wrote a message that is longer than the limit and is not a record.
    TAP_MESSAGE_TOO_LARGE: "tap_message_too_large", "Raise maxMessageBytes.";

    /// The record of a tap is not valid.
    TAP_RECORD_INVALID: "tap_record_invalid", "This is a defect of the tap: report it to its author.";

    /// A tap wrote a record of a stream before the schema of the stream.
    TAP_SCHEMA_MISSING: "tap_schema_missing", "This is a defect of the tap: report it to its author.";

    /// The program of a tap cannot be started.
    TAP_START_FAILED: "tap_start_failed", "Check the settings command and directory.";

    /// A value in a record of a tap does not have the type that the schema of the stream declares.
    TAP_TYPE_MISMATCH: "tap_type_mismatch",
        "This is a defect of the tap, or the catalogue is old: compare the value in the dead letter with the schema.";

    /// A tap wrote a message that the source does not support, or that a setting refuses.
    TAP_UNSUPPORTED: "tap_unsupported", "The message names the setting, or the part of the configuration of the tap.";
}
