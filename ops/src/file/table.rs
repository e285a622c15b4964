//! Tables in files: Parquet, if this build contains it.

#[cfg(feature = "parquet")]
pub(super) use anabranch_ops_parquet::table_reader::{MAGIC, SHORTEST_END, TableError, TableReader};

#[cfg(not(feature = "parquet"))]
pub(super) use absent::{MAGIC, SHORTEST_END, TableError, TableReader};

/// The finding text and its remedy if a setting asks for Parquet, and this build does not contain it.
#[cfg(not(feature = "parquet"))]
pub(super) const LEFT_OUT: (&str, &str) =
    ("this build does not contain Parquet", "build anabranch with the feature parquet: cargo build --features parquet");

/// The same declarations without a decoder. The settings of a source refuse the framing before anything is opened.
#[cfg(not(feature = "parquet"))]
mod absent {
    use std::fs::File;

    use anabranch_record::value::Object;

    pub(in crate::file) const MAGIC: [u8; 4] = *b"PAR1";
    pub(in crate::file) const SHORTEST_END: u64 = 8;

    #[derive(Debug, thiserror::Error)]
    #[expect(dead_code, reason = "only a decoder has these errors")]
    pub(in crate::file) enum TableError {
        #[error(transparent)]
        Io(std::io::Error),
        #[error("{0}")]
        Corrupt(String),
        #[error("{0}")]
        Unsupported(String),
    }

    pub(in crate::file) enum TableReader {}

    impl TableReader {
        pub(in crate::file) fn open(_: File, _: u64) -> Result<Self, TableError> {
            Err(TableError::Unsupported(super::LEFT_OUT.0.to_owned()))
        }

        pub(in crate::file) fn rows(&self) -> u64 {
            match *self {}
        }

        pub(in crate::file) fn next_rows(&mut self) -> Result<Vec<Object>, TableError> {
            match *self {}
        }
    }
}
