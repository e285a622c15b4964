//! Records that are appended to a file in one write.

use std::io;

use super::compression::Codec;
use super::intent::HEADER;

/// Bytes of a frame before its records: the header of the intent and one line feed.
const RESERVED: usize = HEADER + 1;

/// Weight in bytes from which a record counts as large.
const LARGE: usize = 256 << 10;

/// Maximum capacity in bytes that a frame keeps between batches.
const KEPT: usize = 4 << 20;

/// Records that are appended in one write, each with a delimiter after it.
#[derive(Debug)]
pub(super) struct Frame {
    bytes: Vec<u8>,
    delimiter: Vec<u8>,
    /// True if a line feed does not always end a record.
    indivisible: bool,
    is_compressed: bool,
}

impl Frame {
    /// Creates a frame of records with a delimiter after each.
    pub(super) fn new(delimiter: &[u8]) -> Self {
        let delimiter = delimiter.to_vec();
        Frame { bytes: Vec::new(), delimiter, indivisible: false, is_compressed: false }
    }

    /// Removes all records, and frees the memory if it is above [`KEPT`].
    pub(super) fn clear(&mut self) {
        if self.bytes.capacity() > KEPT {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
        self.bytes.resize(RESERVED, 0);
        self.bytes[HEADER] = b'\n';
        (self.indivisible, self.is_compressed) = (self.delimiter != b"\n", false);
    }

    /// Reserves memory for a record of this weight if the record is large. Growing a frame copies it, which takes the
    /// memory twice for a moment.
    pub(super) fn reserve(&mut self, weight: usize) {
        if weight > LARGE {
            // Bytes are written as base64, which takes 4/3 of their size.
            self.bytes.reserve_exact(weight / 3 * 4 + LARGE);
        }
    }

    /// Adds a record: the bytes that `encode` appends, and the delimiter. If `encode` fails, adds nothing.
    #[inline]
    pub(super) fn line<E>(&mut self, encode: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
        let start = self.bytes.len();
        if let Err(e) = encode(&mut self.bytes) {
            self.bytes.truncate(start);
            return Err(e);
        }
        self.indivisible = self.indivisible || memchr::memchr(b'\n', &self.bytes[start..]).is_some();
        self.bytes.extend_from_slice(&self.delimiter);
        Ok(())
    }

    /// Puts bytes before the records. They are not divided after a crash if a line feed is within them.
    pub(super) fn begin_with(&mut self, bytes: &[u8]) {
        let inner = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        self.indivisible = self.indivisible || memchr::memchr(b'\n', inner).is_some();
        self.bytes.splice(RESERVED..RESERVED, bytes.iter().copied());
    }

    /// Replaces the records with one compressed member that holds them.
    ///
    /// # Errors
    /// The compressor has no memory.
    pub(super) fn compress(&mut self, codec: Codec) -> io::Result<()> {
        let member = codec.compress(self.lines())?;
        self.bytes.truncate(RESERVED);
        self.bytes.extend_from_slice(&member);
        (self.indivisible, self.is_compressed) = (true, true);
        Ok(())
    }

    /// Returns `true` if the frame has no records.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.len() <= RESERVED
    }

    /// Returns `true` if the records are lines, which do not begin in the middle of another one.
    pub(super) fn has_lines(&self) -> bool {
        !self.is_compressed && self.delimiter == b"\n"
    }

    /// Returns `true` if only the start of the frame is certainly the boundary of a record.
    pub(super) fn is_indivisible(&self) -> bool {
        self.indivisible
    }

    /// Returns the records.
    pub(super) fn lines(&self) -> &[u8] {
        &self.bytes[RESERVED..]
    }

    /// Returns room for the header of an intent, a line feed and the records.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the same for changes of the header.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_line_does_not_grow_the_frame() {
        let mut frame = Frame::new(b"\n");
        frame.clear();
        frame.reserve(3_000_000);
        let room = frame.bytes.capacity();
        frame
            .line(|bytes| {
                bytes.resize(bytes.len() + 4_000_000, b'x');
                bytes.push(b'"');
                Ok::<(), ()>(())
            })
            .unwrap();
        assert_eq!(frame.bytes.capacity(), room);
        assert!(room < 4_500_000, "{room}");
    }

    #[test]
    fn only_plain_lines_are_divided_after_a_crash() {
        let frame = |delimiter: &[u8], record: &[u8]| {
            let mut frame = Frame::new(delimiter);
            frame.clear();
            let add = |bytes: &mut Vec<u8>| {
                bytes.extend_from_slice(record);
                Ok::<(), ()>(())
            };
            frame.line(add).unwrap();
            frame
        };
        let mut lines = frame(b"\n", b"a");
        assert!(!lines.is_indivisible() && lines.has_lines() && lines.lines() == b"a\n");
        assert!(frame(b"\n", b"a\nb").is_indivisible());
        assert!(frame(b"", b"a").is_indivisible() && !frame(b"", b"a").has_lines());
        lines.compress(Codec::Gzip).unwrap();
        assert!(lines.is_indivisible() && !lines.has_lines());
        assert_eq!(Codec::of_start(lines.lines()), Some(Codec::Gzip));
    }
}
