//! Reasons why a Parquet file cannot be read.

use arrow_schema::ArrowError;
use parquet::errors::ParquetError;

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
