//! Lines of the standard output of a tap.

use std::io;
use std::os::fd::OwnedFd;
use std::process::ChildStdout;

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;

/// Number of bytes to read at once.
const READ: usize = 64 << 10;
/// Number of bytes that are kept of a line that is too long.
const HEAD: usize = 4 << 10;

/// The output of a tap. A tap that writes faster than the pipeline reads waits.
pub(crate) struct TapOutput {
    pipe: Receiver,
    lines: LineBuffer,
}

impl TapOutput {
    /// Takes the output. Must be called in a runtime.
    ///
    /// # Errors
    /// It is not a pipe.
    pub(crate) fn new(stdout: ChildStdout, limit: usize) -> io::Result<TapOutput> {
        Ok(TapOutput { pipe: Receiver::from_owned_fd(OwnedFd::from(stdout))?, lines: LineBuffer::new(limit) })
    }

    /// Waits for more output. Returns `false` at its end. Cancel-safe.
    pub(crate) async fn fill(&mut self) -> io::Result<bool> {
        self.lines.compact();
        self.lines.bytes.reserve(READ);
        Ok(self.pipe.read_buf(&mut self.lines.bytes).await? > 0)
    }

    /// Returns the next line that is complete.
    pub(crate) fn line(&mut self) -> Option<OutputLine<'_>> {
        self.lines.line()
    }

    /// Returns the text after the last line end.
    pub(crate) fn rest(&mut self) -> Option<OutputLine<'_>> {
        self.lines.rest()
    }

    /// Returns the number of lines so far.
    pub(crate) fn count(&self) -> u64 {
        self.lines.count
    }

    /// Reads and discards the output to its end. Cancel-safe.
    pub(crate) async fn discard(&mut self) {
        while self.fill().await.is_ok_and(|more| more) {
            self.lines = LineBuffer::new(self.lines.limit);
        }
    }

    /// Reads everything. Fails with `FileTooLarge` beyond the limit.
    pub(crate) async fn whole(mut self) -> io::Result<Vec<u8>> {
        while self.fill().await? {
            if self.lines.bytes.len() > self.lines.limit {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
        }
        Ok(self.lines.bytes)
    }
}

/// A line without its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum OutputLine<'a> {
    Whole(&'a [u8]),
    /// The line is longer than the limit. Only its beginning is known.
    TooLong {
        head: &'a [u8],
        bytes: u64,
    },
}

/// Bytes that are not split into lines yet.
pub(crate) struct LineBuffer {
    bytes: Vec<u8>,
    /// Start of the next line.
    start: usize,
    /// The bytes between `start` and here contain no line end.
    scanned: usize,
    limit: usize,
    /// Length of the dropped part of a line that is too long.
    dropped: u64,
    count: u64,
}

impl LineBuffer {
    pub(crate) fn new(limit: usize) -> LineBuffer {
        LineBuffer { bytes: Vec::new(), start: 0, scanned: 0, limit, dropped: 0, count: 0 }
    }

    /// Adds bytes. For parsers of bytes that are in memory.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.compact();
        self.bytes.extend_from_slice(bytes);
    }

    /// Removes the lines that were returned, and all but the beginning of a line that is too long.
    fn compact(&mut self) {
        self.bytes.drain(..self.start);
        self.scanned -= self.start;
        self.start = 0;
        let is_too_long = self.scanned == self.bytes.len() && self.bytes.len() > self.limit.max(HEAD);
        if is_too_long || (self.dropped > 0 && self.bytes.len() > HEAD && self.scanned == self.bytes.len()) {
            self.dropped += (self.bytes.len() - HEAD) as u64;
            self.bytes.truncate(HEAD);
            self.scanned = HEAD;
        }
    }

    pub(crate) fn line(&mut self) -> Option<OutputLine<'_>> {
        let Some(end) = memchr::memchr(b'\n', &self.bytes[self.scanned..]).map(|at| self.scanned + at) else {
            self.scanned = self.bytes.len();
            return None;
        };
        self.scanned = end + 1;
        Some(self.take(end, end + 1))
    }

    pub(crate) fn rest(&mut self) -> Option<OutputLine<'_>> {
        let end = self.bytes.len();
        self.scanned = end;
        (self.start < end).then(|| self.take(end, end))
    }

    fn take(&mut self, end: usize, next: usize) -> OutputLine<'_> {
        let line = self.start..end;
        let bytes = line.len() as u64 + std::mem::take(&mut self.dropped);
        self.start = next;
        self.count += 1;
        let line = &self.bytes[line];
        match bytes > self.limit as u64 {
            true => OutputLine::TooLong { head: &line[..line.len().min(HEAD)], bytes },
            false => OutputLine::Whole(line),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Splits a text into pieces and returns what becomes of the lines.
    fn lines(text: &[u8], piece: usize, limit: usize) -> Vec<String> {
        let mut buffer = LineBuffer::new(limit);
        let mut found = Vec::new();
        let show = |line: OutputLine<'_>| match line {
            OutputLine::Whole(line) => String::from_utf8_lossy(line).into_owned(),
            OutputLine::TooLong { head, bytes } => format!("{bytes} bytes, {} known", head.len()),
        };
        for piece in text.chunks(piece) {
            buffer.push(piece);
            while let Some(line) = buffer.line() {
                found.push(show(line));
            }
        }
        found.extend(buffer.rest().map(show));
        assert_eq!(buffer.count, found.len() as u64);
        found
    }

    #[test]
    fn lines_are_the_same_however_they_arrive() {
        let long = "x".repeat(20_000);
        let text = format!("one\n\ntwo\n{long}\nthree\n{long}\nend");
        for piece in [1, 2, 7, 4096, 100_000] {
            let found = lines(text.as_bytes(), piece, 10_000);
            let cut = "20000 bytes, 4096 known";
            assert_eq!(found, ["one", "", "two", cut, "three", cut, "end"], "{piece}");
        }
        assert_eq!(lines(b"", 1, 5), [] as [&str; 0]);
        assert_eq!(lines(b"12345\n123456\n12", 3, 5), ["12345", "6 bytes, 6 known", "12"]);
    }

    #[test]
    fn a_line_without_end_takes_no_memory() {
        let mut buffer = LineBuffer::new(10_000);
        for _ in 0..1000 {
            buffer.push(&[b'x'; 8000]);
            assert_eq!(buffer.line(), None);
            assert!(buffer.bytes.len() <= 18_000, "{}", buffer.bytes.len());
        }
        assert!(matches!(buffer.rest(), Some(OutputLine::TooLong { bytes: 8_000_000, .. })));
    }
}
