//! Reads small files that a running service reads repeatedly: tokens, certificates, keys.
//!
//! Reading always ends, whatever is at the path: it does not wait for the writer of a pipe, does not read devices, and
//! reads only up to a limit.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a regular file for reading. Does not wait for the writer of a pipe, and does not open devices.
///
/// # Errors
/// [`ErrorKind::IsADirectory`] or [`ErrorKind::InvalidInput`] if the path is not a regular file, and errors of the
/// system.
pub fn open_regular(path: &Path) -> io::Result<File> {
    // Also check before opening: opening a device may have side effects.
    check(&fs::metadata(path)?)?;
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    check(&file.metadata()?)?;
    Ok(file)
}

fn check(metadata: &fs::Metadata) -> io::Result<()> {
    match () {
        () if metadata.is_file() => Ok(()),
        () if metadata.is_dir() => Err(io::Error::new(ErrorKind::IsADirectory, "it is a directory")),
        () => Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

/// Returns the content of a regular file of at most `limit` bytes. Blocks only for the file system.
///
/// # Errors
/// The errors of [`open_regular`], and [`ErrorKind::FileTooLarge`].
pub fn read_regular(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    let most = if limit >= 1 << 20 { format!("{} MiB", limit >> 20) } else { format!("{} KiB", limit >> 10) };
    let too_large = || io::Error::new(ErrorKind::FileTooLarge, format!("it is larger than {most}"));
    let length = file.metadata()?.len();
    if length > limit {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
    // The file may grow meanwhile, and some special files report a length of zero.
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit { Err(too_large()) } else { Ok(bytes) }
}

/// Returns the content of a text file, like [`read_regular`].
///
/// # Errors
/// The errors of [`read_regular`], and [`ErrorKind::InvalidData`].
pub fn read_regular_text(path: &Path, limit: u64) -> io::Result<String> {
    String::from_utf8(read_regular(path, limit)?)
        .map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is not text in UTF-8"))
}
