//! `parquet.decode`: one record per row of a Parquet file.

use std::sync::Arc;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::flow::{Content, Flow, Kinds, Shape, Texts};
use anabranch_plugin::kind;
use anabranch_plugin::operator::{
    Decision, Fan, InlineOperator, OperatorContext, OperatorKind, Pieces, Rows, Signature,
};
use anabranch_plugin::parameters::{Argument, ByteSize, Parameters, shared};
use anabranch_plugin::specification::Specification;
use anabranch_record::access::Access;
use anabranch_record::fault::Fault;
use anabranch_record::metadata::key;
use anabranch_record::reference::{Part, Reference, Side, Target};
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Position, Record};
use bytes::Bytes;

use crate::codes;
use crate::table_reader::{TableError, TableReader};

/// Returns the `parquet.decode` processor for the registry.
pub(crate) fn kind() -> Arc<dyn OperatorKind> {
    kind::inline::<ParquetDecode>()
}

#[derive(Parameters)]
struct Settings {
    /// The field with the bytes of the file: a side of the payload, or a field within it.
    #[parameter(default = ".Payload.After", within = [".Payload"])]
    field: Argument<Reference>,
    /// Maximum size of the rows of a file in memory. A file with more fails the record.
    #[parameter(default = "256MiB", greater_than = 0)]
    max_bytes: ByteSize,
}

#[derive(Clone)]
struct ParquetDecode {
    field: Reference,
    /// The side of the payload that the rows replace.
    side: Side,
    most_bytes: usize,
}

impl InlineOperator for ParquetDecode {
    type Parameters = Settings;

    fn specification() -> Specification {
        Specification::builtin("parquet.decode", "Splits a Parquet file into one record per row.")
            .describe(
                "Replaces a record whose field is a Parquet file, such as an object of the `s3` source, with one record \
                 per row. The row is the side of the payload that has the field; the rest is a copy of the original, \
                 with the number of the row, from 0, in the metadata `split.index`. A file without rows drops the \
                 record. The source gets an acknowledgement when all records are acknowledged. All rows are in memory \
                 at the same time.\n\n\
                 Integers, floats, text, bytes, dates and timestamps become the values of the same kind, decimals become \
                 text with all digits of their scale, times of day and durations become integers in their unit. \
                 Pages may be compressed with Snappy or Zstandard.\n\n\
                 Needs `--preview.pipeline-arch-v2`.",
            )
            .with_all(shared::processor())
    }

    fn configure(Settings { field, max_bytes }: Settings) -> Result<Self, Diagnostics> {
        let field = field.one_side()?;
        let side = match field.target() {
            Target::Data(side) | Target::Field(side, ..) => *side,
            _ => Side::After,
        };
        Ok(ParquetDecode { field, side, most_bytes: max_bytes.to_usize() })
    }

    fn signature(&self) -> Signature {
        let payload = vec![Str::from_static("Payload")];
        let writes = Access::These(vec![payload, vec![Str::from_static("Metadata"), key::SPLIT_INDEX]]);
        Signature::new().fan(Fan::Many).reads(self.field.access()).writes(writes).needs_arch_v2(true)
    }

    fn flow(&self, flow: &mut Flow) {
        // A file without rows drops the record.
        flow.may_fail();
        let what = "a Parquet file";
        flow.need_other(codes::FLOW_NOT_A_TEXT, "field", &self.field, &[Content::Base64], what);
        flow.need(codes::FLOW_NOT_A_TEXT, "field", &self.field, (Kinds::TEXT | Kinds::BYTES, what), false);
        flow.set_side(self.side, Shape::structured(anabranch_plugin::flow::Fields::any()));
        flow.record.metadata.insert_one_of(key::SPLIT_INDEX, Texts::UpTo(u64::MAX));
    }

    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        rows.for_each(|record| self.split(record));
    }
}

impl ParquetDecode {
    fn split(&self, record: &Record) -> Result<Decision, Fault> {
        let bytes = match self.field.get(record)? {
            Some(Part::Data(Data::Raw(bytes))) => bytes.clone(),
            Some(Part::Value(Value::Bytes(bytes))) => Bytes::copy_from_slice(bytes),
            found => {
                let found = found.map_or("missing", |part| part.type_name());
                let what = format!("the field {} has no bytes of a Parquet file, it is {found}", self.field);
                return Err(Fault::record(codes::PARQUET_UNEXPECTED_TYPE, what));
            }
        };
        let fields = self.rows(bytes)?;
        if fields.is_empty() {
            return Ok(Decision::Filter);
        }
        let mut rest = record.clone();
        *self.side.of_mut(&mut rest) = Data::Absent;
        let side = self.side;
        Ok(Decision::Pieces(Pieces::new(fields.len(), move |row| {
            let mut piece = rest.clone();
            *side.of_mut(&mut piece) = Data::Structured(fields[row].clone());
            piece.metadata.insert(key::SPLIT_INDEX, Str::from(row.to_string()));
            piece
        })))
    }

    fn rows(&self, bytes: Bytes) -> Result<Vec<Arc<Object>>, Fault> {
        let failed = |error: TableError| {
            let code = match error {
                TableError::Io(_) | TableError::Corrupt(_) => codes::PARQUET_INVALID,
                TableError::Unsupported(_) => codes::PARQUET_UNSUPPORTED,
            };
            Fault::record(code, format!("cannot decode {}: {error}", self.field))
        };
        let mut reader = TableReader::open(bytes, 0).map_err(failed)?;
        let (mut fields, mut size) = (Vec::new(), 0usize);
        loop {
            let rows = reader.next_rows().map_err(failed)?;
            if rows.is_empty() {
                return Ok(fields);
            }
            for row in rows {
                let row = Arc::new(row);
                let record = Record::create(Position::default(), Data::Absent, Data::Structured(row.clone()));
                size = size.saturating_add(record.weight());
                fields.push(row);
            }
            if size > self.most_bytes {
                let what = format!(
                    "the rows of the file in {} take more than {} bytes; raise maxBytes to decode it",
                    self.field, self.most_bytes
                );
                return Err(Fault::record(codes::RECORD_TOO_LARGE, what));
            }
        }
    }
}
