//! The file that is read: it grows, or is truncated or rewritten in place.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};

use super::Step;
use crate::file::position::{Ends, Seen};

/// Bytes of one read, unless a line is longer.
pub(super) const CHUNK: usize = 256 << 10;

/// Changes that are less apart may have the same time: some file systems keep no more than even seconds.
const TICK: Duration = Duration::from_secs(2);

/// The file that is read.
#[derive(Debug)]
pub(super) struct Current {
    pub(super) file: File,
    pub(super) identity: u32,
    /// What was read.
    pub(super) ends: Ends,
    /// What it holds, read or not.
    pub(super) seen: Seen,
    compared: Option<Compared>,
    /// Since when the path is another file's and nothing was added to this one.
    pub(super) replaced: Option<Instant>,
    /// It was moved away from the path before it was opened.
    pub(super) was_moved: bool,
    /// Since when files after it are known that cannot be read.
    pub(super) gap: Option<Instant>,
    /// The system tells of all files that come after it.
    pub(super) is_told: bool,
}

/// The file's last change as it was when its content was compared with what was read.
#[derive(Debug)]
struct Compared {
    changed: (i64, i64),
    /// When this change was found.
    found: Instant,
    /// A later change has another time for sure.
    settled: bool,
}

impl Current {
    /// Of a file of which so much was read.
    pub(super) fn new(file: File, identity: u32, read: u64, was_moved: bool, is_told: bool) -> io::Result<Current> {
        let ends = Ends::read(&file, read)?;
        let seen = Seen::default();
        Ok(Current { file, identity, ends, seen, compared: None, replaced: None, gap: None, was_moved, is_told })
    }

    /// Looks at it. What it held, if it was truncated or rewritten before all of that was read.
    pub(super) fn look(&mut self) -> io::Result<Option<Seen>> {
        Ok(self.seen.look(&self.file)?.filter(|lost| lost.ends.len > self.ends.len))
    }

    /// Goes on in a copy of it, which holds what was read and more. Gives the file back.
    pub(super) fn go_on_in(&mut self, copy: File, identity: u32) -> (File, u32) {
        (self.compared, self.replaced, self.seen) = (None, None, Seen::default());
        self.was_moved = true;
        (std::mem::replace(&mut self.file, copy), std::mem::replace(&mut self.identity, identity))
    }

    /// Appends what comes next in a file of so many bytes.
    pub(super) fn grow(&mut self, buffer: &mut Vec<u8>, size: u64, most: usize) -> io::Result<Step> {
        let before = buffer.len();
        let left = usize::try_from(size - self.ends.len).unwrap_or(usize::MAX);
        let line = if before < CHUNK { Some(left.min(CHUNK)) } else { self.to_line_end(left.min(most))? };
        match line {
            Some(want) => buffer.reserve_exact(want),
            // It may go on growing, a little each time.
            None => buffer.reserve(left.min(most)),
        }
        self.read(buffer, line.unwrap_or(left.min(most)))?;
        // After the read, so that nothing is read of a file that was rewritten just before.
        match self.is_rewritten() {
            Ok(false) => {}
            other => {
                buffer.truncate(before);
                return other.map(|_| self.restart());
            }
        }
        self.ends.feed(&buffer[before..]);
        Ok(if buffer.len() == before { Step::AtEnd } else { Step::Grown })
    }

    /// How far it is to the end of the line, if it ends within `most` bytes: a long line is read into memory of its own
    /// size, at the cost of reading it twice.
    fn to_line_end(&self, most: usize) -> io::Result<Option<usize>> {
        let mut piece = vec![0; CHUNK];
        let mut passed = 0;
        while passed < most {
            let want = (most - passed).min(CHUNK);
            let got = self.read_at(&mut piece[..want], passed as u64)?;
            if let Some(end) = memchr::memchr(b'\n', &piece[..got]) {
                return Ok(Some(passed + end + 1));
            }
            if got < want {
                break;
            }
            passed += got;
        }
        Ok(None)
    }

    /// Appends up to `want` bytes to the buffer.
    fn read(&self, buffer: &mut Vec<u8>, want: usize) -> io::Result<()> {
        let before = buffer.len();
        buffer.resize(before + want, 0);
        let got = self.read_at(&mut buffer[before..], 0);
        buffer.truncate(before + *got.as_ref().unwrap_or(&0));
        got.map(drop)
    }

    /// As many bytes as there are, from so far after what was read.
    fn read_at(&self, bytes: &mut [u8], after: u64) -> io::Result<usize> {
        let mut got = 0;
        while got < bytes.len() {
            match self.file.read_at(&mut bytes[got..], self.ends.len + after + got as u64) {
                Ok(0) => break,
                Ok(n) => got += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(got)
    }

    /// Whether it was changed since its content was last compared, or may have been; it is to be compared then.
    pub(super) fn is_changed(&mut self, metadata: &Metadata) -> bool {
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        match &mut self.compared {
            Some(compared) if compared.changed == changed => {
                let was_settled = compared.settled;
                compared.settled |= compared.found.elapsed() > TICK;
                !was_settled
            }
            compared => {
                *compared = Some(Compared { changed, found: Instant::now(), settled: false });
                true
            }
        }
    }

    pub(super) fn is_rewritten(&self) -> io::Result<bool> {
        Ok(!self.ends.are_in(&self.file)?)
    }

    /// From the start of the same file, even if it is being replaced: it is kept open.
    pub(super) fn restart(&mut self) -> Step {
        // All that it held was read.
        if self.seen.ends.len <= self.ends.len {
            self.seen = Seen::default();
        }
        self.ends = Ends::default();
        Step::Truncated
    }
}
