//! The current file: it grows, or is truncated or rewritten in place.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};

use super::StepResult;
use crate::file::position::{CheckedContent, EndBytes};

/// Bytes per read, unless a line is longer.
pub(super) const CHUNK: usize = 256 << 10;

/// Resolution of change times. Some file systems store only even seconds, so changes closer together may have the same
/// time.
const TICK: Duration = Duration::from_secs(2);

/// The file that is being read.
#[derive(Debug)]
pub(super) struct Current {
    pub(super) file: File,
    pub(super) identity: u32,
    /// First and last bytes that were read.
    pub(super) ends: EndBytes,
    /// Content at the last check, read or not.
    pub(super) seen: CheckedContent,
    compared: Option<Compared>,
    /// Time since which the path leads to another file and this one did not grow.
    pub(super) replaced: Option<Instant>,
    /// True if the file was moved away from the path before it was opened.
    pub(super) was_moved: bool,
    /// Since when files after it are known that cannot be read.
    pub(super) gap: Option<Instant>,
    /// True if the system reports all files that come after it.
    pub(super) is_told: bool,
}

/// Change time of the file when its content was compared with the bytes that were read.
#[derive(Debug)]
struct Compared {
    changed: (i64, i64),
    /// Time at which this change was found.
    found: Instant,
    /// True if any later change is certain to have another change time.
    settled: bool,
}

impl Current {
    /// Creates the state of a file of which `read` bytes were read.
    pub(super) fn new(file: File, identity: u32, read: u64, was_moved: bool, is_told: bool) -> io::Result<Current> {
        let ends = EndBytes::read(&file, read)?;
        let seen = CheckedContent::default();
        Ok(Current { file, identity, ends, seen, compared: None, replaced: None, gap: None, was_moved, is_told })
    }

    /// Checks the file. If it was truncated or rewritten before all its seen content was read, returns that content's
    /// description.
    pub(super) fn look(&mut self) -> io::Result<Option<CheckedContent>> {
        Ok(self.seen.look(&self.file)?.filter(|lost| lost.ends.len > self.ends.len))
    }

    /// Continues in a copy that holds everything that was read, and more. Returns the old file and its identity.
    pub(super) fn go_on_in(&mut self, copy: File, identity: u32) -> (File, u32) {
        (self.compared, self.replaced, self.seen) = (None, None, CheckedContent::default());
        self.was_moved = true;
        (std::mem::replace(&mut self.file, copy), std::mem::replace(&mut self.identity, identity))
    }

    /// Reads the next bytes of a file that is `size` bytes long.
    pub(super) fn grow(&mut self, buffer: &mut Vec<u8>, size: u64, most: usize) -> io::Result<StepResult> {
        let before = buffer.len();
        let left = usize::try_from(size - self.ends.len).unwrap_or(usize::MAX);
        let line = if before < CHUNK { Some(left.min(CHUNK)) } else { self.to_line_end(left.min(most))? };
        match line {
            Some(want) => buffer.reserve_exact(want),
            // A long line may grow on a little at a time.
            None => buffer.reserve(left.min(most)),
        }
        self.read(buffer, line.unwrap_or(left.min(most)))?;
        // Check after the read, so that bytes of a file rewritten just before it are not used.
        match self.is_rewritten() {
            Ok(false) => {}
            other => {
                buffer.truncate(before);
                return other.map(|_| self.restart());
            }
        }
        self.ends.feed(&buffer[before..]);
        Ok(if buffer.len() == before { StepResult::AtEnd } else { StepResult::Grown })
    }

    /// Returns the distance to the end of the line if it is within `most` bytes. So the buffer for a long line gets
    /// exactly its size, at the cost of reading the line twice.
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

    /// Reads up to `want` bytes into the buffer.
    fn read(&self, buffer: &mut Vec<u8>, want: usize) -> io::Result<()> {
        let before = buffer.len();
        buffer.resize(before + want, 0);
        let got = self.read_at(&mut buffer[before..], 0);
        buffer.truncate(before + *got.as_ref().unwrap_or(&0));
        got.map(drop)
    }

    /// Fills `bytes` from `after` bytes behind the end of what was read. Returns how many bytes were available.
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

    /// Returns `true` if the content may have changed since it was last compared, so that it must be compared again.
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

    /// Restarts at the beginning of the same open file, even if the path is being replaced.
    pub(super) fn restart(&mut self) -> StepResult {
        // All of the old content was read.
        if self.seen.ends.len <= self.ends.len {
            self.seen = CheckedContent::default();
        }
        self.ends = EndBytes::default();
        StepResult::Truncated
    }
}
