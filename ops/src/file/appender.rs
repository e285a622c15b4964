//! Appends whole batches of lines to a file, or to a pipe or device at the path. Everything here blocks.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt, FileTypeExt as _, MetadataExt, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use super::STORE_MAGIC;
use super::file_rotation::FileRotation;
use super::frame::Frame;
use super::intent::{HEADER, Intent, Intents};

/// The path of standard output.
pub(super) const STANDARD_OUTPUT: &str = "/dev/stdout";

/// A file that is open for appending.
#[derive(Debug)]
pub(super) struct Appender {
    path: PathBuf,
    file: Arc<File>,
    sync: bool,
    regular: Option<Regular>,
    /// True if this process has written to the pipe or device.
    is_begun: bool,
    /// Warnings for the user since the last call of [`Appender::warnings`].
    warnings: Vec<String>,
}

/// State of a regular file; pipes and devices have none.
#[derive(Debug)]
struct Regular {
    identity: (u64, u64),
    /// Length after the last write of this process. Bytes after it come from another writer.
    end: Option<u64>,
    intents: Option<Intents>,
    /// True if a write failed and could not be undone.
    torn: bool,
}

/// Time without a reader after which a pipe is reported in the log, and the interval between two attempts to open it.
const UNREAD: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(50);

fn is_pipe(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo())
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

impl Appender {
    /// Opens or creates the file. With `sync`, a created file survives a power failure. If the path is a pipe without a
    /// reader, waits until it has one or is replaced, and logs that.
    pub(super) fn open(path: &Path, sync: bool) -> io::Result<Self> {
        let begun = Instant::now();
        let mut is_told = false;
        loop {
            match Appender::open_now(path, sync) {
                Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) && is_pipe(path) => {}
                opened => return opened,
            }
            if !is_told && begun.elapsed() >= UNREAD {
                tracing::warn!(
                    path = %path.display(),
                    "no process reads this pipe: waiting for a reader, or for a file in its place"
                );
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
        if path == Path::new(STANDARD_OUTPUT) {
            // If a file is opened again, the records are written from its start, over the output of others.
            let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
            return Ok(Appender { path, file: Arc::new(file), sync, regular: None, is_begun: false, warnings });
        }
        if found.as_ref().is_some_and(|found| !found.is_file()) {
            // Opening a directory fails here, and so does opening a pipe without a reader.
            let flags = OFlags::NONBLOCK.bits().cast_signed();
            let file = OpenOptions::new().write(true).custom_flags(flags).open(&path)?;
            // Writes to a pipe block until the reader takes the bytes.
            fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
            return Ok(Appender { path, file: Arc::new(file), sync, regular: None, is_begun: false, warnings });
        }
        let file = OpenOptions::new().read(true).append(true).create(true).open(&path)?;
        let mut first = [0; STORE_MAGIC.len()];
        if found.is_some() && file.read_exact_at(&mut first, 0).is_ok() && first == STORE_MAGIC {
            // The running service holds a lock on its state store: fail here instead of waiting for it.
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a state store: set another path"));
        }
        // Resolves links.
        let real = fs::canonicalize(&path)?;
        if found.is_none() && sync {
            File::open(real.parent().unwrap_or(Path::new("/")))?.sync_all()?;
        }
        let intents = match Intents::path_for(&real).map(Intents::open) {
            Some(Ok(intents)) => Some(intents),
            Some(Err(e)) => {
                warnings.push(format!(
                    "cannot write the file that records unfinished writes beside {} ({e}): after a crash, an \
                     unfinished line would remain",
                    real.display()
                ));
                None
            }
            None => None,
        };
        let regular = Regular { identity: identity(&file.metadata()?), end: None, intents, torn: false };
        let mut appender =
            Appender { path, file: Arc::new(file), sync, regular: Some(regular), is_begun: false, warnings };
        let locked = Locked::take(&appender.file)?;
        appender.cut_torn()?;
        drop(locked);
        Ok(appender)
    }

    /// Moves the file away if it is due, so that the next records go to a new file.
    ///
    /// # Errors
    /// The file cannot be synced or renamed; it stays where it is.
    pub(super) fn rotate_if_due(&mut self, rotation: &FileRotation) -> io::Result<()> {
        if self.regular.is_none() || self.is_replaced() {
            return Ok(());
        }
        let metadata = self.file.metadata()?;
        if !rotation.is_due(&metadata) {
            return Ok(());
        }
        if self.sync {
            self.file.sync_data()?;
        }
        // Resolves links: the file is renamed, not a link to it.
        rotation.move_away(&fs::canonicalize(&self.path)?)?;
        let warnings = self.warnings();
        *self = Appender::open(&self.path, self.sync)?;
        self.warnings.splice(0..0, warnings);
        Ok(())
    }

    /// Returns the warnings since the last call and removes them.
    pub(super) fn warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// Returns `true` if the next write begins the file, or is the first one to a pipe or device.
    ///
    /// # Errors
    /// The file cannot be opened again or examined.
    pub(super) fn is_at_start(&mut self) -> io::Result<bool> {
        self.renew()?;
        if self.regular.is_none() {
            return Ok(!self.is_begun);
        }
        let lock = Locked::take(&self.file)?;
        self.cut_torn()?;
        let is_empty = self.file.metadata()?.len() == 0;
        drop(lock);
        Ok(is_empty)
    }

    /// Opens the path again if the file was moved away.
    fn renew(&mut self) -> io::Result<()> {
        if self.is_replaced() {
            if self.sync {
                self.file.sync_data()?;
            }
            let mut fresh = Appender::open(&self.path, self.sync)?;
            fresh.warnings.insert(0, format!("{} was moved away: continuing in a new file", self.path.display()));
            fresh.warnings.splice(0..0, self.warnings());
            *self = fresh;
        }
        Ok(())
    }

    /// Appends all lines or none. If undoing a failed write fails, the error says so, and the next call tries again.
    pub(super) fn append(&mut self, frame: &mut Frame) -> io::Result<()> {
        self.renew()?;
        if self.regular.is_none() {
            self.is_begun = true;
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
        if frame.has_lines() && start > 0 && regular.end != Some(start) {
            let mut last = [0];
            self.file.read_exact_at(&mut last, start - 1)?;
            if last != *b"\n" {
                // The file ends with an unfinished line of another writer: begin a new line.
                skip = 0;
            }
        }
        let from = HEADER + usize::from(skip);
        let intent = Intent {
            identity: regular.identity,
            start,
            len: (frame.bytes().len() - from) as u64,
            skip,
            many_lines: frame.is_indivisible(),
        };
        if let Some(intents) = &mut regular.intents {
            intents.store(&intent, frame.bytes_mut())?;
        }
        if let Err((error, written)) = write_all(&mut &*self.file, &frame.bytes()[from..]) {
            regular.end = None;
            // Do not cut bytes that another writer appended after them.
            let alone = self.file.metadata().is_ok_and(|m| m.len() == start + written);
            regular.torn = written > 0 && (!alone || self.file.set_len(start).is_err());
            return Err(error);
        }
        regular.end = Some(start + intent.len);
        if let Some(intents) = &regular.intents {
            intents.done(frame.bytes());
        }
        Ok(())
    }

    /// Makes all appended lines survive a power failure.
    pub(super) fn sync(&self) -> io::Result<()> {
        if self.regular.is_some() { self.file.sync_data() } else { Ok(()) }
    }

    /// Returns `true` if the path leads to another file, or to none.
    fn is_replaced(&self) -> bool {
        let Some(regular) = &self.regular else { return false };
        match fs::metadata(&self.path) {
            Ok(metadata) => identity(&metadata) != regular.identity,
            Err(e) => e.kind() == io::ErrorKind::NotFound,
        }
    }

    /// Cuts the remains of an unfinished write of this process or of one that was killed.
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
                "{}: removed {torn} bytes of an unfinished write; its records are delivered again",
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

/// Writes all `bytes`. On an error, also returns how many were written.
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

/// A file locked against other writers of this kind, in this process or another.
struct Locked(Arc<File>);

impl Locked {
    fn take(file: &Arc<File>) -> io::Result<Self> {
        match file.lock() {
            // The file system has no locks: continue without one. Writes are still whole and in order.
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
