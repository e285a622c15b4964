//! Write intents, stored next to the file. After a crash they distinguish a torn line of this destination from foreign
//! data.
//!
//! Before each write, the bytes and their place are stored in `.<name>.anabranch`. If a process is killed during a
//! write, the file ends with a part of these bytes. If the end of the file matches such a part byte by byte, the torn
//! line is cut. All other data stays. Intents are not synced: they outlive the process, and after a power failure they
//! are only as new as the file system makes them.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes of the header before the data.
pub(super) const HEADER: usize = 48;

/// Size in bytes above which an intent is removed from disk after its write.
const LARGE: usize = 4 << 20;

const MAGIC: &[u8; 8] = b"anabr\x00\x00\x01";

/// The file that holds the intents.
#[derive(Debug)]
pub(super) struct Intents {
    path: PathBuf,
    file: File,
}

/// An intended write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Intent {
    /// Device and inode number of the file.
    pub(super) identity: (u64, u64),
    /// Length of the file before the write.
    pub(super) start: u64,
    /// Number of bytes to write.
    pub(super) len: u64,
    /// Number of bytes between the header and the data.
    pub(super) skip: u8,
    /// True if a record may contain line feeds. Then only the start of the write is certainly a record boundary.
    pub(super) many_lines: bool,
}

impl Intent {
    fn encode(&self) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        let (device, number) = self.identity;
        let parts =
            [*MAGIC, device.to_le_bytes(), number.to_le_bytes(), self.start.to_le_bytes(), self.len.to_le_bytes()];
        header[..40].copy_from_slice(parts.as_flattened());
        (header[40], header[41]) = (self.skip, u8::from(self.many_lines));
        header
    }

    fn decode(header: &[u8; HEADER]) -> Option<Self> {
        let mut parts = [[0; 8]; 5];
        parts.as_flattened_mut().copy_from_slice(&header[..40]);
        let [magic, device, number, start, len] = parts;
        (magic == *MAGIC).then_some(Intent {
            identity: (u64::from_le_bytes(device), u64::from_le_bytes(number)),
            start: u64::from_le_bytes(start),
            len: u64::from_le_bytes(len),
            skip: header[40],
            many_lines: header[41] != 0,
        })
    }
}

impl Intents {
    /// Returns the path of the intents of a file.
    pub(super) fn path_for(file: &Path) -> Option<PathBuf> {
        let mut name = std::ffi::OsString::from(".");
        name.push(file.file_name()?);
        name.push(".anabranch");
        Some(file.with_file_name(name))
    }

    /// Returns `true` if a file of this name holds intents.
    pub(super) fn is_named(name: &str) -> bool {
        name.starts_with('.') && name.ends_with(".anabranch")
    }

    /// Opens or creates the file. It holds data, so other users cannot read it.
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let refused = || io::Error::new(io::ErrorKind::AlreadyExists, "another file has that name");
        match fs::symlink_metadata(&path) {
            Ok(found) if !found.is_file() => return Err(refused()),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path)?;
        // Guards against a link that was put there between the check and the opening.
        let (ours, named) = (file.metadata()?, fs::symlink_metadata(&path)?);
        if (ours.dev(), ours.ino()) != (named.dev(), named.ino()) {
            return Err(refused());
        }
        Ok(Intents { path, file })
    }

    /// Stores an intent. `frame` holds room for the header, then the data.
    pub(super) fn store(&mut self, intent: &Intent, frame: &mut [u8]) -> io::Result<()> {
        if self.file.metadata()?.nlink() == 0 {
            // Another writer of the same file closed it and removed the intents.
            *self = Intents::open(self.path.clone())?;
        }
        frame[..HEADER].copy_from_slice(&intent.encode());
        let stored = self.file.write_all_at(frame, 0);
        if stored.is_err() {
            // A partial intent must not occupy space on a full disk.
            let _ = self.file.set_len(0);
        }
        stored
    }

    /// Marks the write as complete.
    pub(super) fn done(&self, frame: &[u8]) {
        if frame.len() > LARGE {
            // Truncating may fail: the intent then only wastes space.
            let _ = self.file.set_len(0);
        }
    }

    /// Returns the length to which `target` must be cut to remove an unfinished write of this destination, or `None`.
    pub(super) fn torn(&self, target: &File) -> io::Result<Option<u64>> {
        let mut header = [0; HEADER];
        match self.file.read_exact_at(&mut header, 0) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(e) => return Err(e),
        }
        let Some(intent) = Intent::decode(&header) else { return Ok(None) };
        let metadata = target.metadata()?;
        let Some(written) = metadata.len().checked_sub(intent.start).filter(|n| (1..intent.len).contains(n)) else {
            return Ok(None);
        };
        if intent.identity != (metadata.dev(), metadata.ino()) {
            return Ok(None);
        }
        let (mut found, mut meant) = (vec![0; 64 << 10], vec![0; 64 << 10]);
        let (mut at, mut keep) = (0, 0);
        while at < written {
            let n = (written - at).min(found.len() as u64) as usize;
            target.read_exact_at(&mut found[..n], intent.start + at)?;
            match self.file.read_exact_at(&mut meant[..n], HEADER as u64 + u64::from(intent.skip) + at) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                Err(e) => return Err(e),
            }
            if found[..n] != meant[..n] {
                return Ok(None);
            }
            if let Some(line_end) = memchr::memrchr(b'\n', &found[..n]) {
                keep = at + line_end as u64 + 1;
            }
            at += n as u64;
        }
        if intent.many_lines {
            keep = 0;
        }
        Ok((keep < written).then_some(intent.start + keep))
    }

    /// Deletes the file of intents.
    pub(super) fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }
}
