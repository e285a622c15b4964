//! Appends whole batches of lines to a file, or to whatever else a path leads to. Everything here blocks.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, FileTypeExt as _, MetadataExt, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use super::STORE_MAGIC;
use super::intent::{HEADER, Intent, Intents};

/// Bytes of a frame before its lines: room for the header of the intent and for one line feed.
const RESERVED: usize = HEADER + 1;

/// Lines to be appended in one piece.
#[derive(Debug)]
pub(super) struct Frame {
    bytes: Vec<u8>,
    many_lines: bool,
}

/// From here on a record is large.
const LARGE: usize = 256 << 10;

/// Memory that a frame may keep from one batch to the next.
const KEPT: usize = 4 << 20;

impl Frame {
    pub(super) fn new() -> Self {
        Frame { bytes: Vec::new(), many_lines: false }
    }

    /// Makes it empty.
    pub(super) fn clear(&mut self) {
        if self.bytes.capacity() > KEPT {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
        self.bytes.resize(RESERVED, 0);
        self.bytes[HEADER] = b'\n';
        self.many_lines = false;
    }

    /// Makes room for a record that takes so much memory, where that is much: a frame that grows is there twice.
    pub(super) fn reserve(&mut self, weight: usize) {
        if weight > LARGE {
            // Bytes are written as base64.
            self.bytes.reserve_exact(weight / 3 * 4 + LARGE);
        }
    }

    /// Adds a line: what `encode` appends, and a line feed. On an error nothing is added.
    #[inline]
    pub(super) fn line<E>(&mut self, encode: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
        let start = self.bytes.len();
        if let Err(e) = encode(&mut self.bytes) {
            self.bytes.truncate(start);
            return Err(e);
        }
        self.many_lines |= memchr::memchr(b'\n', &self.bytes[start..]).is_some();
        self.bytes.push(b'\n');
        Ok(())
    }

    /// Whether it has no lines.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.len() <= RESERVED
    }

    fn lines(&self) -> &[u8] {
        &self.bytes[RESERVED..]
    }
}

/// An open file to append to.
#[derive(Debug)]
pub(super) struct Appender {
    path: PathBuf,
    file: Arc<File>,
    sync: bool,
    regular: Option<Regular>,
    /// What the user should know, since it was last asked for.
    warnings: Vec<String>,
}

/// What is known of a regular file, and not of a pipe or a device.
#[derive(Debug)]
struct Regular {
    identity: (u64, u64),
    /// Its length after our last write: what comes after it is not ours.
    end: Option<u64>,
    intents: Option<Intents>,
    /// A failed write could not be taken back.
    torn: bool,
}

/// How long a pipe may have no reader before the log says so, and the time between two looks at it.
const UNREAD: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(50);

fn is_pipe(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo())
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

impl Appender {
    /// Opens or creates the file; `sync`: a created file shall survive a power failure. At a pipe that nobody reads it
    /// waits for a reader, or for something else to take the place of the pipe, and the log says so.
    pub(super) fn open(path: &Path, sync: bool) -> io::Result<Self> {
        let begun = Instant::now();
        let mut is_told = false;
        loop {
            match Appender::open_now(path, sync) {
                Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) && is_pipe(path) => {}
                opened => return opened,
            }
            if !is_told && begun.elapsed() >= UNREAD {
                tracing::warn!(path = %path.display(), "nobody reads this pipe: waiting for a reader, or for a file in its place");
                is_told = true;
            }
            std::thread::sleep(LOOK);
        }
    }

    fn open_now(path: &Path, sync: bool) -> io::Result<Self> {
        let found = match fs::metadata(path) {
            Ok(found) => Some(found),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(e),
        };
        let (path, mut warnings) = (path.to_owned(), Vec::new());
        if found.as_ref().is_some_and(|found| !found.is_file()) {
            // A directory says so itself, and so does a pipe that nobody reads.
            let flags = OFlags::NONBLOCK.bits().cast_signed();
            let file = OpenOptions::new().write(true).custom_flags(flags).open(&path)?;
            // Writes wait for the reader.
            fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
            return Ok(Appender { path, file: Arc::new(file), sync, regular: None, warnings });
        }
        let file = OpenOptions::new().read(true).append(true).create(true).open(&path)?;
        let mut first = [0; STORE_MAGIC.len()];
        if found.is_some() && file.read_exact_at(&mut first, 0).is_ok() && first == STORE_MAGIC {
            // Its lock is held by the service that has it open: do not wait for that.
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a state store: give another path"));
        }
        // The name behind links, as /dev/stdout is one.
        let real = fs::canonicalize(&path)?;
        if found.is_none() && sync {
            File::open(real.parent().unwrap_or(Path::new("/")))?.sync_all()?;
        }
        let intents = match Intents::path_for(&real).map(Intents::open) {
            Some(Ok(intents)) => Some(intents),
            Some(Err(e)) => {
                warnings.push(format!(
                    "cannot keep a file beside {} ({e}): a line torn by a crash would stay",
                    real.display()
                ));
                None
            }
            None => None,
        };
        let regular = Regular { identity: identity(&file.metadata()?), end: None, intents, torn: false };
        let mut appender = Appender { path, file: Arc::new(file), sync, regular: Some(regular), warnings };
        let locked = Locked::take(&appender.file)?;
        appender.cut_torn()?;
        drop(locked);
        Ok(appender)
    }

    /// What the user should know.
    pub(super) fn warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// Appends all lines or none, unless the error says that it could not be undone: that is tried again by the
    /// next call.
    pub(super) fn append(&mut self, frame: &mut Frame) -> io::Result<()> {
        if self.is_replaced() {
            if self.sync {
                self.file.sync_data()?;
            }
            let mut fresh = Appender::open(&self.path, self.sync)?;
            fresh.warnings.insert(0, format!("{} was moved away: going on in a new file", self.path.display()));
            fresh.warnings.splice(0..0, self.warnings());
            *self = fresh;
        }
        if self.regular.is_none() {
            return write_all(&mut &*self.file, frame.lines()).map_err(|(e, _)| e);
        }
        let lock = Locked::take(&self.file)?;
        self.cut_torn()?;
        let appended = self.append_locked(frame);
        drop(lock);
        appended
    }

    fn append_locked(&mut self, frame: &mut Frame) -> io::Result<()> {
        let Some(regular) = &mut self.regular else { return Ok(()) };
        let start = self.file.metadata()?.len();
        let mut skip = 1;
        if start > 0 && regular.end != Some(start) {
            let mut last = [0];
            self.file.read_exact_at(&mut last, start - 1)?;
            if last != *b"\n" {
                // Somebody's unfinished line: ours begins a new one.
                skip = 0;
            }
        }
        let from = HEADER + usize::from(skip);
        let intent = Intent {
            identity: regular.identity,
            start,
            len: (frame.bytes.len() - from) as u64,
            skip,
            many_lines: frame.many_lines,
        };
        if let Some(intents) = &mut regular.intents {
            intents.store(&intent, &mut frame.bytes)?;
        }
        if let Err((error, written)) = write_all(&mut &*self.file, &frame.bytes[from..]) {
            regular.end = None;
            // What somebody else wrote after it must not be cut with it.
            let alone = self.file.metadata().is_ok_and(|m| m.len() == start + written);
            regular.torn = written > 0 && (!alone || self.file.set_len(start).is_err());
            return Err(error);
        }
        regular.end = Some(start + intent.len);
        if let Some(intents) = &regular.intents {
            intents.done(&frame.bytes);
        }
        Ok(())
    }

    /// Makes everything appended survive a power failure.
    pub(super) fn sync(&self) -> io::Result<()> {
        if self.regular.is_some() { self.file.sync_data() } else { Ok(()) }
    }

    /// Whether the path leads to another file by now, or to none.
    fn is_replaced(&self) -> bool {
        let Some(regular) = &self.regular else { return false };
        match fs::metadata(&self.path) {
            Ok(metadata) => identity(&metadata) != regular.identity,
            Err(e) => e.kind() == io::ErrorKind::NotFound,
        }
    }

    /// Cuts what an unfinished write left, of this process or of one that was killed.
    fn cut_torn(&mut self) -> io::Result<()> {
        let Some(regular) = &mut self.regular else { return Ok(()) };
        if !regular.torn && regular.end == Some(self.file.metadata()?.len()) {
            return Ok(());
        }
        if let Some(intents) = &regular.intents
            && let Some(len) = intents.torn(&self.file)?
        {
            let torn = self.file.metadata()?.len() - len;
            self.file.set_len(len)?;
            self.warnings.push(format!(
                "{}: cut {torn} bytes of a write that was not finished; its records come again",
                self.path.display()
            ));
        }
        regular.torn = false;
        Ok(())
    }
}

impl Drop for Appender {
    fn drop(&mut self) {
        let Some(Regular { intents: Some(intents), torn: false, .. }) = &self.regular else { return };
        if let Ok(_lock) = Locked::take(&self.file) {
            intents.remove();
        }
    }
}

/// All of `bytes`, or the error and how many were written.
fn write_all(to: &mut impl Write, bytes: &[u8]) -> Result<(), (io::Error, u64)> {
    let mut written = 0;
    while written < bytes.len() {
        match to.write(&bytes[written..]) {
            Ok(0) => return Err((io::ErrorKind::WriteZero.into(), written as u64)),
            Ok(n) => written += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err((e, written as u64)),
        }
    }
    Ok(())
}

/// The file, locked against other writers of this kind: of this process or another.
struct Locked(Arc<File>);

impl Locked {
    fn take(file: &Arc<File>) -> io::Result<Self> {
        match file.lock() {
            // Where there are no locks, there is the old order: whole writes, one after the other.
            Err(e) if e.kind() != io::ErrorKind::Unsupported => Err(e),
            _ => Ok(Locked(file.clone())),
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests;
