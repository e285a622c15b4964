//! Compression of objects.

use std::io::{Result, Write};

use anabranch_plugin::parameters::Choice;

/// The default level of zstd.
const ZSTD_LEVEL: i32 = 3;

/// Compression of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Choice for Compression {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("none", Compression::None), ("gzip", Compression::Gzip), ("zstd", Compression::Zstd)];
}

impl Compression {
    /// Returns the suffix of the key.
    pub(super) fn ending(self) -> &'static str {
        match self {
            Compression::None => "",
            Compression::Gzip => ".gz",
            Compression::Zstd => ".zst",
        }
    }

    /// Compresses bytes deterministically. Takes milliseconds per megabyte: do not call it on an async thread.
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
