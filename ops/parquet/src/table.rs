//! Tables: records that are written to one file, and the file.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use anabranch_plugin::format::parquet::{ParquetColumns, ParquetCompression, ParquetLayout};
use anabranch_plugin::naming::BatchHash;
use anabranch_record::fault::Fault;
use anabranch_record::metadata::Metadata;
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Record};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use crate::arrays;
use crate::codes;
use crate::column::{ColumnConflict, ColumnFields, ColumnType};
use crate::declared::{DeclaredSchemas, DeclaredTypes};

/// Number of rows that are converted at a time.
const CHUNK_ROWS: usize = 1024;

/// The tables of a write: one or more for each place, such as a path or a folder.
///
/// The records of a table have types that fit each other. A record whose types conflict with those of a table belongs to
/// the next one of the same place.
#[derive(Debug)]
pub struct TableSet {
    columns: ParquetColumns,
    /// Maximum weight of the records of a table.
    most_bytes: usize,
    places: BTreeMap<String, Vec<Table>>,
}

/// The rows of a file.
#[derive(Debug)]
pub struct Table {
    /// Identifies the records.
    identity: BatchHash,
    declared: DeclaredTypes,
    column: ColumnType,
    rows: Vec<Arc<Object>>,
    bytes: usize,
}

impl TableSet {
    /// Creates a set without tables. The records of a table have at most `most_bytes`, unless one alone has more.
    pub fn new(columns: ParquetColumns, most_bytes: usize) -> Self {
        TableSet { columns, most_bytes, places: BTreeMap::new() }
    }

    /// Adds a record to a table of a place. Costs O(tables of the place) if its types conflict with theirs.
    ///
    /// # Errors
    /// A record fault if the record cannot be a row of any table. Then nothing changes.
    pub fn add(&mut self, place: &str, record: &Record, schemas: &DeclaredSchemas) -> Result<(), Fault> {
        let row = row(self.columns, record)?;
        let declared = schemas.of(record)?;
        let (weight, value) = (record.weight(), Value::Map(row.clone()));
        let tables = match self.places.get_mut(place) {
            Some(tables) => tables,
            None => self.places.entry(place.to_owned()).or_default(),
        };
        let most = self.most_bytes;
        let fits = tables.iter_mut().position(|table| {
            table.declared.is_same(&declared)
                && table.bytes.saturating_add(weight) <= most
                && table.widen(&value).is_ok()
        });
        let table = match fits {
            Some(table) => &mut tables[table],
            None => {
                let mut table = Table::new(self.columns, declared);
                table.widen(&value).or_else(|_| table.infer(self.columns, &value)).map_err(unfit)?;
                tables.push(table);
                let last = tables.len() - 1;
                &mut tables[last]
            }
        };
        table.identity.add(record);
        table.rows.push(row);
        table.bytes = table.bytes.saturating_add(weight);
        Ok(())
    }

    /// Returns the tables with their places, in the order of the places.
    pub fn into_tables(self) -> impl Iterator<Item = (String, Table)> {
        self.places.into_iter().flat_map(|(place, tables)| tables.into_iter().map(move |table| (place.clone(), table)))
    }
}

fn unfit(conflict: ColumnConflict) -> Fault {
    Fault::record(codes::PARQUET_UNFIT, conflict)
}

impl Table {
    fn new(columns: ParquetColumns, declared: DeclaredTypes) -> Self {
        let column = column_of(columns, &declared);
        Table { identity: BatchHash::new(), declared, column, rows: Vec::new(), bytes: 0 }
    }

    /// Widens the types of the columns for a row. On an error, nothing changes.
    fn widen(&mut self, row: &Value) -> Result<(), ColumnConflict> {
        if self.column.holds(row) {
            return Ok(());
        }
        let mut wider = self.column.clone();
        wider.widen(row)?;
        match wider.is_too_wide() {
            Some(conflict) => Err(conflict),
            None => {
                self.column = wider;
                Ok(())
            }
        }
    }

    /// Infers the types of the columns from the first row, because it does not fit its schema.
    fn infer(&mut self, columns: ParquetColumns, row: &Value) -> Result<(), ColumnConflict> {
        self.column = column_of(columns, &DeclaredTypes::default());
        self.widen(row)
    }

    /// Takes the identity of the records.
    pub fn take_identity(&mut self) -> BatchHash {
        std::mem::take(&mut self.identity)
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns `true` if the table has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Writes the table as a complete Parquet file. In addition to the rows, one row group is in memory. Blocks.
    ///
    /// # Errors
    /// The output cannot be written, or the values of a column exceed 2 GiB.
    pub fn write<W: Write + Send>(&self, layout: &ParquetLayout, output: W) -> Result<W, TableWriteError> {
        let none = ColumnFields::default();
        let fields = match &self.column {
            ColumnType::Fields(fields) => fields,
            _ => &none,
        };
        let schema = Arc::new(arrays::schema(fields));
        let mut writer = ArrowWriter::try_new(output, schema.clone(), Some(properties(layout)))?;
        for rows in self.rows.chunks(CHUNK_ROWS) {
            writer.write(&arrays::batch(&schema, fields, rows).map_err(ParquetError::from)?)?;
        }
        Ok(writer.into_inner()?)
    }
}

/// A table cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum TableWriteError {
    /// The output cannot be written.
    #[error(transparent)]
    Io(std::io::Error),
    /// The file cannot be encoded.
    #[error("cannot encode the Parquet file: {0}")]
    Encode(String),
}

impl From<ParquetError> for TableWriteError {
    fn from(error: ParquetError) -> Self {
        match error {
            ParquetError::External(error) => match error.downcast::<std::io::Error>() {
                Ok(error) => TableWriteError::Io(*error),
                Err(error) => TableWriteError::Encode(error.to_string()),
            },
            error => TableWriteError::Encode(error.to_string()),
        }
    }
}

fn properties(layout: &ParquetLayout) -> WriterProperties {
    let compression = match layout.compression {
        ParquetCompression::None => Compression::UNCOMPRESSED,
        ParquetCompression::Snappy => Compression::SNAPPY,
        ParquetCompression::Zstd => Compression::ZSTD(ZstdLevel::default()),
    };
    WriterProperties::builder()
        .set_compression(compression)
        .set_max_row_group_row_count(Some(layout.group_rows.max(1)))
        .set_max_row_group_bytes(Some(layout.group_bytes.max(1)))
        .set_created_by(concat!("anabranch version ", env!("CARGO_PKG_VERSION")).to_owned())
        .build()
}

const POSITION: Str = Str::from_static("position");
const OPERATION: Str = Str::from_static("operation");
const METADATA: Str = Str::from_static("metadata");
const KEY: Str = Str::from_static("key");
const PAYLOAD: Str = Str::from_static("payload");
const BEFORE: Str = Str::from_static("before");
const AFTER: Str = Str::from_static("after");

/// Returns the types of the columns that are known before the first record.
fn column_of(columns: ParquetColumns, declared: &DeclaredTypes) -> ColumnType {
    let of = |column: &Option<Arc<ColumnType>>| column.as_deref().cloned().unwrap_or(ColumnType::Unknown);
    let payload = of(&declared.payload);
    match columns {
        ParquetColumns::Payload => match payload {
            fields @ ColumnType::Fields(_) => fields,
            _ => ColumnType::Fields(ColumnFields::default()),
        },
        ParquetColumns::Record => {
            let sides = [(BEFORE, payload.clone()), (AFTER, payload)];
            ColumnType::Fields(ColumnFields::declared([
                (POSITION, ColumnType::Bytes),
                (OPERATION, ColumnType::Text),
                (METADATA, ColumnType::Map(Box::new(ColumnType::Text))),
                (KEY, of(&declared.key)),
                (PAYLOAD, ColumnType::Fields(ColumnFields::declared(sides))),
            ]))
        }
    }
}

/// Returns the row of a record.
fn row(columns: ParquetColumns, record: &Record) -> Result<Arc<Object>, Fault> {
    match columns {
        ParquetColumns::Record => Ok(Arc::new(Object::from_entries(vec![
            (KEY, value(&record.key)),
            (METADATA, metadata(&record.metadata)),
            (OPERATION, Value::Text(Str::from_static(record.operation.as_str()))),
            (
                PAYLOAD,
                Value::from(Object::from_entries(vec![
                    (AFTER, value(&record.payload.after)),
                    (BEFORE, value(&record.payload.before)),
                ])),
            ),
            (POSITION, Value::Bytes(record.position().0.as_ref().into())),
        ]))),
        ParquetColumns::Payload => match &record.payload.after {
            Data::Structured(fields) if fields.is_empty() => {
                let what = "the fields of .Payload.After are the columns of the file, and it has none";
                Err(Fault::record(codes::FORMAT_FAILED, what))
            }
            Data::Structured(fields) => Ok(fields.clone()),
            Data::Raw(_) | Data::Absent => {
                let refused = columns.refuses(record);
                Err(refused.unwrap_or_else(|| Fault::record(codes::FORMAT_FAILED, ".Payload.After has no fields")))
            }
        },
    }
}

fn value(data: &Data) -> Value {
    match data {
        Data::Absent => Value::Null,
        Data::Raw(bytes) => Value::Bytes(bytes.as_ref().into()),
        Data::Structured(fields) => Value::Map(fields.clone()),
    }
}

fn metadata(metadata: &Metadata) -> Value {
    let entries = metadata.iter().map(|(key, text)| (key.clone(), Value::Text(text.clone())));
    Value::from(Object::from_entries(entries.collect()))
}
