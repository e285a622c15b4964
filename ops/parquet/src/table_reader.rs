//! Reads the rows of a Parquet file.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use anabranch_record::value::Object;
use arrow_schema::ArrowError;
use bytes::Bytes;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use crate::{nesting, values};

/// The bytes at the start and the end of every Parquet file.
pub const MAGIC: [u8; 4] = *b"PAR1";

/// Size of the shortest end of a file: the length of the metadata, and the magic bytes.
pub const SHORTEST_END: u64 = 8;

/// Maximum number of rows that are decoded at a time, and their approximate size in bytes.
const MOST_ROWS: u64 = 1024;
const BATCH_BYTES: u64 = 1 << 20;

/// Maximum size of the metadata at the end of a file.
const MOST_METADATA: u32 = 64 << 20;

/// A Parquet file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The input cannot be read.
    #[error(transparent)]
    Io(std::io::Error),
    /// The bytes are not a Parquet file, or it is damaged.
    #[error("{0}")]
    Corrupt(String),
    /// The file uses a part of the format that is not supported.
    #[error("{0}")]
    Unsupported(String),
}

impl TableError {
    pub(crate) fn unsupported(what: String) -> Self {
        TableError::Unsupported(what)
    }

    /// Adds the name of the column.
    pub(crate) fn within(self, column: &str) -> Self {
        match self {
            TableError::Unsupported(what) => TableError::Unsupported(format!("column {column:?}: {what}")),
            other => other,
        }
    }
}

impl From<ParquetError> for TableError {
    fn from(error: ParquetError) -> Self {
        match error {
            ParquetError::External(error) => match error.downcast::<std::io::Error>() {
                Ok(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                    TableError::Corrupt(error.to_string())
                }
                Ok(error) => TableError::Io(*error),
                Err(error) => TableError::Corrupt(error.to_string()),
            },
            ParquetError::NYI(what) => TableError::Unsupported(what),
            // The crate reports a codec that is not compiled in as a general error.
            ParquetError::General(what) if what.contains("Disabled feature") => TableError::Unsupported(what),
            error => TableError::Corrupt(error.to_string()),
        }
    }
}

impl From<ArrowError> for TableError {
    fn from(error: ArrowError) -> Self {
        match error {
            ArrowError::ExternalError(error) => match error.downcast::<ParquetError>() {
                Ok(error) => TableError::from(*error),
                Err(error) => TableError::Corrupt(error.to_string()),
            },
            ArrowError::ParquetError(what) if what.contains("Disabled feature") => TableError::Unsupported(what),
            ArrowError::NotYetImplemented(what) => TableError::Unsupported(what),
            ArrowError::IoError(_, error) => TableError::Io(error),
            error => TableError::Corrupt(error.to_string()),
        }
    }
}

/// An input that the readers of several row groups share.
struct SharedInput<R>(Arc<R>);

impl<R: Length> Length for SharedInput<R> {
    fn len(&self) -> u64 {
        self.0.len()
    }
}

impl<R: ChunkReader> ChunkReader for SharedInput<R> {
    type T = R::T;

    fn get_read(&self, start: u64) -> parquet::errors::Result<R::T> {
        self.0.get_read(start)
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        self.0.get_bytes(start, length)
    }
}

/// Opens a row group at a row.
type OpenGroup = Box<dyn FnMut(usize, usize) -> parquet::errors::Result<ParquetRecordBatchReader> + Send>;

/// Reads the rows of a Parquet file in their order. Has about 1 MiB of decoded rows in memory, and a page of each column.
pub struct TableReader {
    open_group: OpenGroup,
    /// The row groups that are not open yet, each with the row to begin at.
    groups: VecDeque<(usize, usize)>,
    /// The row group that is read.
    group: Option<ParquetRecordBatchReader>,
    rows: u64,
}

impl TableReader {
    /// Opens a file, at a row. Rows before it in the same row group are decoded and discarded. Blocks.
    ///
    /// # Errors
    /// The input is not a Parquet file, or cannot be read.
    pub fn open(input: impl ChunkReader + 'static, row: u64) -> Result<Self, TableError> {
        check_end(&input)?;
        caught(|| {
            // The schema of Arrow that some writers add has types of which records know nothing, such as dictionaries.
            let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
            let metadata = ArrowReaderMetadata::load(&input, options)?;
            let (mut rows, mut bytes, mut groups) = (0u64, 0u64, VecDeque::new());
            for (number, group) in metadata.metadata().row_groups().iter().enumerate() {
                let of_group = u64::try_from(group.num_rows())
                    .map_err(|_| TableError::Corrupt("a row group has a negative number of rows".to_owned()))?;
                let before = rows;
                rows = rows.saturating_add(of_group);
                bytes = bytes.saturating_add(u64::try_from(group.total_byte_size()).unwrap_or(0));
                if rows > row {
                    groups.push_back((number, usize::try_from(row.saturating_sub(before)).unwrap_or(usize::MAX)));
                }
            }
            let average = (bytes / rows.max(1)).max(1);
            let size = usize::try_from((BATCH_BYTES / average).clamp(1, MOST_ROWS)).unwrap_or(1);
            let input = Arc::new(input);
            let open_group: OpenGroup = Box::new(move |group, row| {
                let input = SharedInput(input.clone());
                let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(input, metadata.clone());
                let builder = builder.with_batch_size(size).with_row_groups(vec![group]);
                if row > 0 { builder.with_offset(row) } else { builder }.build()
            });
            Ok(TableReader { open_group, groups, group: None, rows })
        })
    }

    /// Returns the number of rows of the file.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the next rows, all of one row group; none at the end. Blocks.
    ///
    /// # Errors
    /// The file is damaged, or cannot be read. The rows of the row groups before the damage were returned.
    pub fn next_rows(&mut self) -> Result<Vec<Object>, TableError> {
        caught(|| {
            loop {
                let Some(group) = &mut self.group else {
                    let Some((number, row)) = self.groups.pop_front() else { return Ok(Vec::new()) };
                    self.group = Some((self.open_group)(number, row)?);
                    continue;
                };
                match group.next() {
                    None => self.group = None,
                    Some(batch) => {
                        let rows = values::rows(&batch?)?;
                        if !rows.is_empty() {
                            return Ok(rows);
                        }
                    }
                }
            }
        })
    }
}

/// Checks the end of a file, so that a wrong length of the metadata allocates nothing and deep nesting ends nothing.
fn check_end(input: &impl ChunkReader) -> Result<(), TableError> {
    let length = input.len();
    let not_a_file = || TableError::Corrupt("not a Parquet file: it does not end with PAR1".to_owned());
    let start = length.checked_sub(SHORTEST_END).ok_or_else(not_a_file)?;
    let end = input.get_bytes(start, 8)?;
    let Some((size, magic)) = end.first_chunk::<4>().zip(end.last_chunk::<4>()) else { return Err(not_a_file()) };
    if *magic == *b"PARE" {
        return Err(TableError::unsupported("the file is encrypted".to_owned()));
    }
    if *magic != MAGIC {
        return Err(not_a_file());
    }
    let size = u32::from_le_bytes(*size);
    if u64::from(size) > start || size > MOST_METADATA {
        return Err(TableError::Corrupt(format!("the metadata at the end of the file have {size} bytes")));
    }
    let metadata = input.get_bytes(start - u64::from(size), usize::try_from(size).unwrap_or(usize::MAX))?;
    if !nesting::is_shallow(&metadata) {
        return Err(TableError::Corrupt("the schema is damaged, or nested too deeply".to_owned()));
    }
    Ok(())
}

/// Runs the decoder. It checks most of the file, but a part that it believes may make it panic: then the file is damaged.
fn caught<T>(decode: impl FnOnce() -> Result<T, TableError>) -> Result<T, TableError> {
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|panic| Err(TableError::Corrupt(reason(&*panic))))
}

fn reason(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    format!("the decoder failed: {}", text.unwrap_or("no reason is known"))
}
