//! Positions in a file, and how a file is recognised again.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};

use anabranch_graph::fault::Fault;
use anabranch_graph::record::Position;

/// How much of a file's start tells it from another.
pub(super) const HEAD: usize = 1024;

/// What the reader of a file has delivered. As a position it takes 25 bytes, 33 with a delivered tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Place {
    /// Start of the first line that was not delivered as a whole line.
    pub(super) offset: u64,
    /// Number of lines before it.
    pub(super) line: u64,
    /// Bytes of an unterminated line after `offset` that were delivered.
    pub(super) tail: u64,
    /// Number of the file in its file system, shortened.
    pub(super) identity: u32,
    /// Of the first [`HEAD`] bytes of what was delivered.
    pub(super) head: Head,
}

const VERSION: u8 = 1;

impl Place {
    /// As bytes.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.line.to_le_bytes());
        out.extend_from_slice(&self.identity.to_le_bytes());
        out.extend_from_slice(&self.head.short().to_le_bytes());
        if self.tail > 0 {
            out.extend_from_slice(&self.tail.to_le_bytes());
        }
    }
}

/// A place read back from a position: of the head only the short form is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resume {
    pub(super) offset: u64,
    pub(super) line: u64,
    pub(super) tail: u64,
    pub(super) identity: u32,
    head: u32,
}

impl Resume {
    /// From a position of ours.
    ///
    /// # Errors
    /// Fatal: it is not one.
    pub(super) fn decode(position: &Position) -> Result<Self, Fault> {
        fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
            let (taken, rest) = bytes.split_first_chunk::<N>()?;
            *bytes = rest;
            Some(*taken)
        }
        let read = |bytes: &mut &[u8]| {
            let [VERSION] = take(bytes)? else { return None };
            let resume = Resume {
                offset: u64::from_le_bytes(take(bytes)?),
                line: u64::from_le_bytes(take(bytes)?),
                identity: u32::from_le_bytes(take(bytes)?),
                head: u32::from_le_bytes(take(bytes)?),
                tail: if bytes.is_empty() { 0 } else { u64::from_le_bytes(take(bytes)?) },
            };
            bytes.is_empty().then_some(resume)
        };
        read(&mut &position.0[..]).ok_or_else(|| {
            Fault::fatal(
                "position_unknown",
                "the stored position is not one of a file source; give the connector another id to start anew",
            )
        })
    }

    /// If `file` holds what was delivered up to here: its first bytes, as far as [`HEAD`].
    pub(super) fn matches(&self, file: &File) -> std::io::Result<Option<Vec<u8>>> {
        let delivered = self.offset.saturating_add(self.tail);
        if file.metadata()?.len() < delivered {
            return Ok(None);
        }
        let mut start = vec![0; delivered.min(HEAD as u64) as usize];
        file.read_exact_at(&mut start, 0)?;
        if Head::of(&start).short() != self.head {
            return Ok(None);
        }
        let mut before = [b'\n'];
        if self.offset > 0 {
            file.read_exact_at(&mut before, self.offset - 1)?;
        }
        start.truncate(self.offset.min(HEAD as u64) as usize);
        Ok((before == [b'\n']).then_some(start))
    }
}

/// Checksum of the start of a file (FNV-1a).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    hash: u64,
    len: usize,
}

impl Default for Head {
    fn default() -> Self {
        Head { hash: 0xcbf2_9ce4_8422_2325, len: 0 }
    }
}

impl Head {
    /// Of these bytes.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut head = Head::default();
        head.feed(bytes);
        head
    }

    /// The next bytes of the file; those after [`HEAD`] change nothing.
    #[inline]
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        if self.len < HEAD {
            let bytes = &bytes[..bytes.len().min(HEAD - self.len)];
            self.len += bytes.len();
            self.hash = bytes.iter().fold(self.hash, |hash, b| (hash ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
        }
    }

    fn short(self) -> u32 {
        (self.hash ^ (self.hash >> 32)) as u32
    }
}

/// What tells files of one moment apart: device and number.
pub(super) fn identity(metadata: &std::fs::Metadata) -> u32 {
    Head::of(&[metadata.dev().to_le_bytes(), metadata.ino().to_le_bytes()].concat()).short()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_come_back() {
        let mut head = Head::of(b"ab");
        head.feed(b"c\n");
        assert_eq!(head, Head::of(b"abc\n"));
        for tail in [0, 3] {
            let place = Place { offset: 1 << 40, line: 77, tail, identity: 5, head };
            let mut bytes = Vec::new();
            place.encode(&mut bytes);
            assert_eq!(bytes.len(), if tail == 0 { 25 } else { 33 });
            let resume = Resume::decode(&Position::copy_from(&bytes)).unwrap();
            assert_eq!((resume.offset, resume.line, resume.tail, resume.identity), (1 << 40, 77, tail, 5));
            assert_eq!(resume.head, head.short());
            for cut in 0..bytes.len() {
                let short = Resume::decode(&Position::copy_from(&bytes[..cut]));
                assert!(short.is_err() || cut == 25);
            }
        }
        assert!(Resume::decode(&Position::copy_from(b"12")).is_err());
    }
}
