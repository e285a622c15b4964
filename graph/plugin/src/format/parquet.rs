//! Settings of Parquet files, for destinations that can write them. The crate `ops/parquet` writes the files.

use anabranch_record::fault::Fault;
use anabranch_record::{Data, Record};

use super::{FORMAT, FormatSettings, RecordFormat};
use crate::codes;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::flow::Flow;
use crate::parameters::{Argument, ByteSize, Choice, Parameters};

/// The parameters of Parquet files.
#[derive(Clone, Debug, Parameters)]
pub struct ParquetSettings {
    /// Compression of the pages of Parquet files: zstd, snappy or none.
    #[parameter(default = "zstd")]
    compression: Argument<ParquetCompression>,
    /// The row groups of Parquet files.
    #[parameter(nested)]
    row_group: RowGroupSettings,
}

#[derive(Clone, Debug, Parameters)]
struct RowGroupSettings {
    /// Maximum number of records in a row group of a Parquet file.
    #[parameter(default = 131_072, greater_than = 0)]
    rows: Argument<usize>,
    /// Maximum size of a row group of a Parquet file, encoded and before compression. A row group is in memory until it
    /// is complete.
    #[parameter(default = "32MiB", greater_than = 0)]
    bytes: Argument<ByteSize>,
}

/// Compression of the pages of Parquet files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParquetCompression {
    /// None.
    None,
    /// Snappy: fast, and read by every implementation.
    Snappy,
    /// Zstandard.
    Zstd,
}

impl Choice for ParquetCompression {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("zstd", ParquetCompression::Zstd),
        ("snappy", ParquetCompression::Snappy),
        ("none", ParquetCompression::None),
    ];
}

/// The columns of a Parquet file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParquetColumns {
    /// The whole record: position, operation, metadata, key and payload.
    Record,
    /// The fields of the payload after the change.
    Payload,
}

/// The layout of Parquet files.
#[derive(Clone, Copy, Debug)]
pub struct ParquetLayout {
    /// The columns.
    pub columns: ParquetColumns,
    /// Compression of the pages.
    pub compression: ParquetCompression,
    /// Maximum number of rows of a row group, at least 1.
    pub group_rows: usize,
    /// Maximum number of encoded bytes of a row group, at least 1.
    pub group_bytes: usize,
}

impl ParquetSettings {
    /// Returns the layout that the settings select.
    ///
    /// # Errors
    /// The record format is text.
    pub fn layout(&self, format: &FormatSettings) -> Result<ParquetLayout, Diagnostics> {
        let columns = match RecordFormat::new(format)? {
            RecordFormat::Json => ParquetColumns::Record,
            RecordFormat::Raw => ParquetColumns::Payload,
            RecordFormat::Debezium(_) | RecordFormat::Template(_) => {
                let finding = format.format.invalid("Parquet files do not have this format");
                return Err(finding.with_hint("use recfmt/json (the whole record) or recfmt/raw (the payload)").into());
            }
        };
        Ok(ParquetLayout {
            columns,
            compression: *self.compression,
            group_rows: *self.row_group.rows,
            group_bytes: self.row_group.bytes.to_usize(),
        })
    }

    /// Returns a finding if a setting is given that has no effect, because the files are not Parquet files.
    pub fn unused(&self) -> Option<Diagnostic> {
        let unused = |finding: Diagnostic| finding.with_hint("add format: parquet, or remove it");
        let what = "it is used only with the format parquet";
        if self.compression.is_given() {
            return Some(unused(self.compression.invalid(what)));
        }
        if self.row_group.rows.is_given() {
            return Some(unused(self.row_group.rows.invalid(what)));
        }
        self.row_group.bytes.is_given().then(|| unused(self.row_group.bytes.invalid(what)))
    }
}

impl ParquetColumns {
    /// Declares the requirements on records.
    pub fn flow(self, flow: &mut Flow) {
        flow.may_fail();
        if self == ParquetColumns::Record {
            return;
        }
        let after = &flow.record.after;
        let since = after.since;
        if after.is_absent() {
            let message = "every record fails here: recfmt/raw writes .Payload.After, which is absent";
            let hint = "use another format, or keep .Payload.After".to_owned();
            flow.fail(codes::FLOW_NO_DATA, FORMAT, message, Some((since, "absent since here".to_owned())), Some(hint));
        } else if after.is_raw() {
            let message = "every record fails here: the fields of .Payload.After are the columns, and it is raw data";
            let hint = "decode it first, for example with json.decode".to_owned();
            flow.fail(
                codes::FLOW_NEEDS_FIELDS,
                FORMAT,
                message,
                Some((since, "raw since here".to_owned())),
                Some(hint),
            );
        }
    }

    /// Returns why the record cannot be a row, if that is certain without the other records of its file.
    pub fn refuses(self, record: &Record) -> Option<Fault> {
        let what = match (self, &record.payload.after) {
            (ParquetColumns::Record, _) | (ParquetColumns::Payload, Data::Structured(_)) => return None,
            (ParquetColumns::Payload, Data::Absent) => {
                "recfmt/raw writes .Payload.After, which the record does not have"
            }
            (ParquetColumns::Payload, Data::Raw(_)) => {
                "the fields of .Payload.After are the columns of the file, and it is raw data: decode it first"
            }
        };
        Some(Fault::record(codes::FORMAT_FAILED, what))
    }
}
