//! The file behind a path over its life: waited for, grown, rotated, truncated. Everything here blocks.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::position::{HEAD, Resume, identity};
use super::rotation::{siblings, successor};

/// Bytes of one read, unless a line is longer.
pub(super) const CHUNK: usize = 256 << 10;

/// A file that was renamed is left only when nothing was added to it for so long: its writer may go on with it
/// until it is told.
const GRACE: Duration = Duration::from_secs(1);

/// What a look at the file brought.
#[derive(Debug)]
pub(super) enum Step {
    /// There is no file of that name.
    Missing,
    /// A file was opened; read from here on.
    Opened(Opened),
    /// Bytes were appended to the buffer.
    Grown,
    /// There is nothing more now.
    AtEnd,
    /// The file was replaced by another, and its writer gets a moment to add to it before it is left.
    Leaving,
    /// The file was replaced by another, and all of it was read. The next look opens the other one.
    Replaced,
    /// The file holds other content than what was read. The next look reads it from its start.
    Truncated,
}

/// Where reading starts in a file.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) offset: u64,
    pub(super) line: u64,
    /// Bytes after the offset that were delivered already, as an unterminated line.
    pub(super) tail: u64,
    pub(super) identity: u32,
    /// The first bytes of the file, as far as the offset and [`HEAD`].
    pub(super) head: Vec<u8>,
    /// Something the user should know.
    pub(super) warning: Option<String>,
}

/// Reads the file behind a path, whichever it is.
#[derive(Debug)]
pub(super) struct Follower {
    path: PathBuf,
    resume: Option<Resume>,
    current: Option<Current>,
    /// The file that was rotated away after the one that was left.
    next: Option<File>,
}

#[derive(Debug)]
struct Current {
    file: File,
    identity: u32,
    /// Next byte to read.
    offset: u64,
    /// First bytes that were read.
    head: Vec<u8>,
    /// Whether the head must be compared before more is read: the file was left alone for a while.
    suspect: bool,
    /// Since when the path is another file's and nothing was added to this one.
    replaced: Option<Instant>,
}

impl Follower {
    pub(super) fn new(path: PathBuf, resume: Option<Resume>) -> Self {
        Follower { path, resume, current: None, next: None }
    }

    /// The path that is followed.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Looks at the file: appends at most `most` bytes to `buffer`.
    pub(super) fn step(&mut self, buffer: &mut Vec<u8>, most: usize) -> io::Result<Step> {
        let Some(current) = &mut self.current else { return self.open() };
        let size = current.file.metadata()?.len();
        if size < current.offset || (size > current.offset && current.suspect && current.is_rewritten()?) {
            // Kept open, so that the same file is read again even if it is being replaced.
            (current.offset, current.suspect) = (0, false);
            current.head.clear();
            return Ok(Step::Truncated);
        }
        if size > current.offset {
            current.suspect = false;
            current.replaced = None;
            let want = usize::try_from(size - current.offset).unwrap_or(most).min(most);
            return Ok(if current.fill(buffer, want)? == 0 { Step::AtEnd } else { Step::Grown });
        }
        current.suspect = true;
        let (replaced, next) = match fs::metadata(&self.path) {
            Ok(metadata) => (identity(&metadata) != current.identity, None),
            // Its successor was moved away too, and the next one is not there yet.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let next = successor(&self.path, &current.file)?;
                (next.is_some(), next)
            }
            Err(e) => return Err(e),
        };
        if !replaced {
            return Ok(Step::AtEnd);
        }
        if current.replaced.get_or_insert_with(Instant::now).elapsed() < GRACE {
            return Ok(Step::Leaving);
        }
        self.next = if next.is_some() { next } else { successor(&self.path, &current.file)? };
        self.current = None;
        Ok(Step::Replaced)
    }

    fn open(&mut self) -> io::Result<Step> {
        if let Some(file) = self.next.take() {
            return Ok(Step::Opened(self.start(file, Vec::new(), None)?));
        }
        let file = match open_regular(&self.path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound && self.path.parent().is_some_and(Path::exists) => {
                match self.rotated_away()? {
                    Some((file, start)) => return Ok(Step::Opened(self.start(file, start, None)?)),
                    None => return Ok(Step::Missing),
                }
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Step::Missing),
            Err(e) => return Err(e),
        };
        let Some(resume) = self.resume else { return Ok(Step::Opened(self.start(file, Vec::new(), None)?)) };
        let same = identity(&file.metadata()?) == resume.identity;
        if !same && let Some((old, start)) = self.rotated_away()? {
            let warning = format!("{} was replaced; its old content is read to the end first", self.path.display());
            return Ok(Step::Opened(self.start(old, start, Some(warning))?));
        }
        if let Some(start) = resume.matches(&file)? {
            return Ok(Step::Opened(self.start(file, start, None)?));
        }
        self.resume = None;
        let what = if same { "was truncated or rewritten" } else { "was replaced" };
        let warning = format!(
            "{} {what} since it was read: reading it from its start; what the old content held after byte {} is lost",
            self.path.display(),
            resume.offset
        );
        Ok(Step::Opened(self.start(file, Vec::new(), Some(warning))?))
    }

    /// The file that was read last under another name in the same directory, and its start. The name must hold the
    /// stem of ours (`app.log.1`, `app-2.log`, `old-app.log`): a path that was changed to that of another file is no
    /// rotation.
    fn rotated_away(&self) -> io::Result<Option<(File, Vec<u8>)>> {
        let Some(resume) = self.resume else { return Ok(None) };
        for sibling in siblings(&self.path)?.into_iter().filter(|sibling| sibling.identity == resume.identity) {
            let Ok(file) = File::open(&sibling.path) else { continue };
            if let Some(start) = resume.matches(&file)? {
                return Ok(Some((file, start)));
            }
        }
        Ok(None)
    }

    /// Reads from where `resume` says, or from the start; `head` is what is known of the file.
    fn start(&mut self, file: File, head: Vec<u8>, warning: Option<String>) -> io::Result<Opened> {
        let identity = identity(&file.metadata()?);
        let (offset, line, tail) = self.resume.take().map_or((0, 0, 0), |r| (r.offset, r.line, r.tail));
        self.current = Some(Current { file, identity, offset, head: head.clone(), suspect: false, replaced: None });
        Ok(Opened { offset, line, tail, identity, head, warning })
    }
}

impl Current {
    /// Appends up to `want` bytes to the buffer.
    fn fill(&mut self, buffer: &mut Vec<u8>, want: usize) -> io::Result<usize> {
        let before = buffer.len();
        buffer.reserve_exact(want);
        buffer.resize(before + want, 0);
        let mut got = 0;
        while got < want {
            match self.file.read_at(&mut buffer[before + got..], self.offset + got as u64) {
                Ok(0) => break,
                Ok(n) => got += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    buffer.truncate(before);
                    return Err(e);
                }
            }
        }
        buffer.truncate(before + got);
        if self.head.len() < HEAD {
            let missing = HEAD - self.head.len();
            self.head.extend_from_slice(&buffer[before..][..got.min(missing)]);
        }
        self.offset += got as u64;
        Ok(got)
    }

    fn is_rewritten(&self) -> io::Result<bool> {
        let mut head = vec![0; self.head.len()];
        match self.file.read_exact_at(&mut head, 0) {
            Ok(()) => Ok(head != self.head),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(true),
            Err(e) => Err(e),
        }
    }
}

/// Opens a file that can be read again from any place. Never blocks on a pipe without a writer.
fn open_regular(path: &Path) -> io::Result<File> {
    let metadata = fs::metadata(path)?;
    if metadata.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory"));
    }
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file: it cannot be read twice"));
    }
    File::open(path)
}
