//! Codes of errors and findings of this crate.

pub(crate) use anabranch_plugin::codes::{FLOW_NOT_A_TEXT, FORMAT_FAILED, RECORD_TOO_LARGE};

anabranch_record::codes! {
    /// The bytes are not a Parquet file, or the file is damaged.
    PARQUET_INVALID: "parquet_invalid", "Check the object or file that the record was made of.";

    /// The value to decode is neither text nor bytes.
    PARQUET_UNEXPECTED_TYPE: "parquet_unexpected_type", "Use a field with the bytes of a Parquet file.";

    /// A record has values that one Parquet column cannot hold.
    PARQUET_UNFIT: "parquet_unfit", "Convert the field before the destination, for example with field.convert.";

    /// A Parquet file uses an encoding, a compression or a type that this program does not read.
    PARQUET_UNSUPPORTED: "parquet_unsupported", "Write the file with the compression snappy or zstd, and with common types.";
}
