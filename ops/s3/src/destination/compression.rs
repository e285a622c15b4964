//! Compressing objects.

use std::io::{Result, Write};

/// zstd's own default.
const ZSTD_LEVEL: i32 = 3;

/// How objects are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    /// What the key ends in.
    pub(super) fn ending(self) -> &'static str {
        match self {
            Compression::None => "",
            Compression::Gzip => ".gz",
            Compression::Zstd => ".zst",
        }
    }

    /// The same bytes give the same bytes. Takes milliseconds per megabyte: not for an async thread.
    pub(super) fn compress(self, bytes: &[u8]) -> Result<Vec<u8>> {
        match self {
            Compression::None => Ok(bytes.to_vec()),
            Compression::Gzip => {
                let room = Vec::with_capacity(bytes.len() / 4);
                let mut encoder = flate2::write::GzEncoder::new(room, flate2::Compression::default());
                encoder.write_all(bytes)?;
                encoder.finish()
            }
            Compression::Zstd => zstd::bulk::compress(bytes, ZSTD_LEVEL),
        }
    }
}
