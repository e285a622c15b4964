//! Codes of errors and findings of this crate.

pub(crate) use anabranch_plugin::codes::{
    FLOW_NOT_A_MAP, FLOW_NOT_A_TEXT, FLOW_NOT_ENCODED, FORMAT_FAILED, PLAN_BROKEN, POSITION_UNKNOWN, SETTINGS_INVALID,
    SETTINGS_INVALID_REFERENCE, SETTINGS_REQUIRED, TEMPLATE_FAILED,
};

anabranch_record::codes! {
    /// The text is not base64.
    BASE64_INVALID: "base64_invalid", "Use another field, or add a condition.";

    /// The decoded bytes are not text.
    BASE64_NOT_TEXT: "base64_not_text", "Decode into a field that accepts bytes.";

    /// The field contains neither text nor bytes.
    BASE64_UNEXPECTED_TYPE: "base64_unexpected_type", "Use another field.";

    /// The value cannot be converted to the type.
    CONVERT_FAILED: "convert_failed", "Check the value in the dead letter.";

    /// The field to convert does not exist.
    CONVERT_MISSING: "convert_missing", "Add a condition that tests for the field.";

    /// The text is not a row of CSV with the columns.
    CSV_INVALID: "csv_invalid", "Check the record in the dead letter, and the setting columns.";

    /// The value to encode as CSV is not a map, or a field in it is not in UTF-8.
    CSV_NOT_ENCODED: "csv_not_encoded", "Use a field with a map, and name fields with texts and numbers in columns.";

    /// The directory does not exist.
    DIRECTORY_MISSING: "directory_missing", "Create the directory.";

    /// The disk is full. The service retries.
    DISK_FULL: "disk_full", "Free disk space.";

    /// A record reached the processor `error`.
    ERROR_TRIGGERED: "error_triggered", "This is intended: check the condition of the processor.";

    /// The compressed data of a file, or a Parquet file, is damaged.
    FILE_CORRUPT: "file_corrupt", "Replace the file with a good copy: the source then reads it from the damage on.";

    /// A compressed file ends in the middle of a member, or a Parquet file before its end, and it does not grow any more.
    FILE_TRUNCATED: "file_truncated", "Replace the file with a complete copy: the source then reads the rest of it.";

    /// A file cannot be read.
    FILE_UNREADABLE: "file_unreadable", "Check its path and permissions.";

    /// A file uses a compression or a type that this program does not read.
    FILE_UNSUPPORTED: "file_unsupported", "Write Parquet files with the compression snappy or zstd, and with common types.";

    /// A file cannot be written.
    FILE_UNWRITABLE: "file_unwritable", "Check its path and permissions.";

    /// Two fields of a map would have the same name when it is flat.
    FLATTEN_NAME_TAKEN: "flatten_name_taken", "Set another separator.";

    /// The value to flatten is not a map.
    FLATTEN_UNEXPECTED_TYPE: "flatten_unexpected_type", "Use a field with a map.";

    /// The new name of a field is the name of another field.
    FLOW_NAME_TAKEN: "flow.name_taken", "Remove the other field first, or choose another name.";

    /// The data to unwrap is not an envelope.
    FLOW_NO_ENVELOPE: "flow.no_envelope", "Check which field contains the envelope.";

    /// The value to split is not a list.
    FLOW_NOT_A_LIST: "flow.not_a_list", "Name a field with a list.";

    /// The value cannot be converted to the type.
    FLOW_NOT_CONVERTIBLE: "flow.not_convertible", "Choose another type.";

    /// The search for a grok pattern took too many steps.
    GROK_TOO_LONG: "grok_too_long", "Correct the pattern: begin it with ^, and use fewer parts that fit the same text.";

    /// The field to hash contains a list or a map.
    HASH_UNEXPECTED_TYPE: "hash_unexpected_type", "Use a field with a single value.";

    /// The text is not JSON.
    JSON_INVALID: "json_invalid", "Check the record in the dead letter.";

    /// The field has a value that cannot be decoded.
    JSON_UNEXPECTED_TYPE: "json_unexpected_type", "Use a field with text or bytes.";

    /// The text is not a list of keys with values.
    KEYVALUE_INVALID: "keyvalue_invalid", "Check the record in the dead letter, and the delimiters.";

    /// A line or another record of a file exceeds the size limit.
    LINE_TOO_LONG: "line_too_long", "Raise maxLineBytes.";

    /// The log cannot be written.
    LOG_UNWRITABLE: "log_unwritable", "Check the output of the log.";

    /// The field to mask contains a list or a map.
    MASK_UNEXPECTED_TYPE: "mask_unexpected_type", "Use a field with a single value.";

    /// The path of a record is not that of a file below the directory of the template.
    PATH_REFUSED: "path_refused", "Check the record in the dead letter, and replace slashes and dots in the template.";

    /// The reader of the pipe has closed it.
    READER_GONE: "reader_gone", "Start the reader, then the pipeline.";

    /// The path of an output file is a pattern, or a path is an address, a directory, or the name of a stream or of a
    /// compressed file. It is used as the name of one file with plain lines.
    SETTINGS_NOT_A_PATH: "settings.not_a_path", "Write the path of the file.";

    /// The field to split is not a list.
    SPLIT_NOT_A_LIST: "split_not_a_list", "Add a condition that tests for a list.";

    /// The text does not match the regular expression.
    TEXT_NO_MATCH: "text_no_match", "Check the record in the dead letter, correct the expression, or set onMismatch: keep.";

    /// The field to parse does not contain a text.
    TEXT_UNEXPECTED_TYPE: "text_unexpected_type", "Use a field with text.";

    /// More records came than the setting rate allows.
    THROTTLE_EXCEEDED: "throttle_exceeded", "Raise rate, or set onExcess: drop.";

    /// The text is not a time of the layout, or the value is not a time.
    TIME_INVALID: "time_invalid", "Check the record in the dead letter, and the settings layout and zone.";

    /// The envelope does not have the expected form.
    UNWRAP_FAILED: "unwrap_failed", "Check the record in the dead letter.";
}
