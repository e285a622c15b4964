//! Positions in a file, and recognition of a file that was read before.

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anabranch_record::Position;
use anabranch_record::fault::Fault;

use crate::codes;

/// Bytes at the start of a file that identify it.
pub(super) const HEAD: usize = 1024;

/// Progress of a reader in a file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FilePosition {
    /// Start of the first line that was not delivered completely.
    pub(super) offset: u64,
    /// Number of lines before `offset`.
    pub(super) line: u64,
    /// Bytes after `offset` that were delivered as an unterminated line.
    pub(super) tail: u64,
    /// Shortened hash of the device and inode number.
    pub(super) identity: u32,
    /// Creation time of the file, see [`born`].
    pub(super) born: u64,
    /// Checksum of the path at which the file is read.
    pub(super) path: PathSum,
    /// Checksum of the first [`HEAD`] delivered bytes.
    head: StartChecksum,
    /// Checksum of the last delivered line.
    trail: LastLineChecksum,
}

/// Checksum of the path in the settings of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PathSum(u16);

impl PathSum {
    /// Computes the checksum of a path as it is written.
    pub(super) fn of(path: &Path) -> Self {
        PathSum(StartChecksum::of(path.as_os_str().as_bytes()).short() as u16)
    }
}

/// Versions of the position format. The first has no checksum of the last line, the second no creation time, the third
/// no path.
const FIRST_VERSION: u8 = 1;
const SECOND_VERSION: u8 = 2;
const THIRD_VERSION: u8 = 3;
const VERSION: u8 = 4;

/// Mask of the line number's bits.
const LINE: u64 = (1 << 48) - 1;

/// Bytes of a position with a delivered tail.
pub(super) const LONGEST: usize = 41;
/// Bytes of a position without a tail.
const USUAL: usize = 33;

impl FilePosition {
    /// Returns the start of a file.
    pub(super) fn start(identity: u32, born: u64) -> Self {
        FilePosition { identity, born, ..FilePosition::default() }
    }

    /// Returns the start of the same file.
    pub(super) fn restarted(&self) -> Self {
        FilePosition { path: self.path, ..FilePosition::start(self.identity, self.born) }
    }

    /// Encodes the place at the start of `room` and returns the number of bytes. The same place in the same file always
    /// has the same encoding, because destinations derive names from it.
    pub(super) fn encode(&self, room: &mut [u8]) -> usize {
        // The offset (256 TiB) and the line number take 48 bits each. Destinations store positions with records, so
        // every byte counts.
        room[..8].copy_from_slice(&(self.offset << 8 | u64::from(VERSION)).to_le_bytes());
        room[7..15].copy_from_slice(&(self.line & LINE | u64::from(self.path.0) << 48).to_le_bytes());
        room[15..19].copy_from_slice(&self.identity.to_le_bytes());
        room[19..23].copy_from_slice(&self.head.short().to_le_bytes());
        room[23..27].copy_from_slice(&self.trail.short().to_le_bytes());
        room[27..USUAL].copy_from_slice(&self.born.to_le_bytes()[..6]);
        if self.tail == 0 {
            return USUAL;
        }
        room[USUAL..LONGEST].copy_from_slice(&self.tail.to_le_bytes());
        LONGEST
    }

    /// Moves past a line: the last `len` bytes of `seen`, including its line feed. The bytes before them precede it in
    /// the file.
    #[inline]
    pub(super) fn advance(&mut self, seen: &[u8], len: usize) {
        self.offset += len as u64;
        self.line += 1;
        self.tail = 0;
        self.head.feed(&seen[seen.len() - len..]);
        self.trail.feed(seen, len);
    }

    /// Prepares for a new `seen` buffer after all bytes of this one were passed.
    pub(super) fn turn(&mut self, seen: &[u8]) {
        self.trail.turn(seen);
    }

    /// Returns the place after an unterminated line that is delivered.
    pub(super) fn with_tail(mut self, tail: &[u8]) -> Self {
        self.tail = tail.len() as u64;
        self.head.feed(tail);
        self.trail.feed(tail, tail.len());
        self
    }
}

/// A place decoded from a position. Of the content, only short checksums remain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resume {
    pub(super) offset: u64,
    pub(super) line: u64,
    pub(super) tail: u64,
    pub(super) identity: u32,
    /// Creation time of the file; 0 if unknown.
    pub(super) born: u64,
    head: u32,
    trail: Option<u32>,
    /// Path at which the file was read; unknown in positions of earlier versions.
    path: Option<PathSum>,
}

impl Resume {
    /// Decodes a position.
    ///
    /// # Errors
    /// Fatal if the position does not come from a file source.
    pub(super) fn decode(position: &Position) -> Result<Self, Fault> {
        Resume::read(&position.0).ok_or_else(|| {
            Fault::fatal(
                codes::POSITION_UNKNOWN,
                "the position is not that of a file source; run `anabranch positions reset` to read from the beginning",
            )
        })
    }

    fn read(mut bytes: &[u8]) -> Option<Self> {
        fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
            let (taken, rest) = bytes.split_first_chunk::<N>()?;
            *bytes = rest;
            Some(*taken)
        }
        fn number<const N: usize>(bytes: &mut &[u8]) -> Option<u64> {
            let mut number = [0; 8];
            number[..N].copy_from_slice(&take::<N>(bytes)?);
            Some(u64::from_le_bytes(number))
        }
        let bytes = &mut bytes;
        let [version] = take(bytes)?;
        let (offset, line) = match version {
            FIRST_VERSION => (number::<8>(bytes)?, number::<8>(bytes)?),
            SECOND_VERSION | THIRD_VERSION => (number::<7>(bytes)?, number::<7>(bytes)?),
            VERSION => (number::<6>(bytes)?, number::<6>(bytes)?),
            _ => return None,
        };
        let path = if version == VERSION { Some(PathSum(u16::from_le_bytes(take(bytes)?))) } else { None };
        let resume = Resume {
            offset,
            line,
            identity: u32::from_le_bytes(take(bytes)?),
            head: u32::from_le_bytes(take(bytes)?),
            trail: if version == FIRST_VERSION { None } else { Some(u32::from_le_bytes(take(bytes)?)) },
            born: if version >= THIRD_VERSION { number::<6>(bytes)? } else { 0 },
            path,
            tail: if bytes.is_empty() { 0 } else { number::<8>(bytes)? },
        };
        bytes.is_empty().then_some(resume)
    }

    /// Returns `true` if the identity and creation time match the file that was read. The identity is not enough,
    /// because file systems reuse inode numbers.
    pub(super) fn is_of(&self, identity: u32, born: u64) -> bool {
        identity == self.identity && (self.born == 0 || born == 0 || born == self.born)
    }

    /// Returns `true` if no file was there when the source began.
    pub(super) fn is_of_no_file(&self) -> bool {
        self.identity == 0 && self.delivered() == 0
    }

    /// Returns `true` if the file was certainly read at another path.
    pub(super) fn is_of_other_path(&self, path: PathSum) -> bool {
        self.path.is_some_and(|was| was != path)
    }

    /// Returns the number of bytes that were delivered.
    pub(super) fn delivered(&self) -> u64 {
        self.offset.saturating_add(self.tail)
    }

    /// Returns the place in `file` if its content matches the checksums of the delivered bytes.
    pub(super) fn matches(&self, file: &File) -> io::Result<Option<FilePosition>> {
        let delivered = self.delivered();
        let metadata = file.metadata()?;
        if metadata.len() < delivered {
            return Ok(None);
        }
        // Every file begins like nothing, so only the file itself matches then.
        if delivered == 0 && !self.is_of(self::identity(&metadata), self::born(&metadata)) {
            return Ok(None);
        }
        let mut start = vec![0; delivered.min(HEAD as u64) as usize];
        file.read_exact_at(&mut start, 0)?;
        if StartChecksum::of(&start).short() != self.head {
            return Ok(None);
        }
        if let Some(trail) = self.trail
            && LastLineChecksum::read(file, delivered, self.tail)?.short() != trail
        {
            return Ok(None);
        }
        let mut before = [b'\n'];
        if self.offset > 0 {
            file.read_exact_at(&mut before, self.offset - 1)?;
        }
        if before != [b'\n'] {
            return Ok(None);
        }
        start.truncate(self.offset.min(HEAD as u64) as usize);
        let (head, trail) = (StartChecksum::of(&start), LastLineChecksum::read(file, self.offset, 0)?);
        let Resume { offset, line, tail, .. } = *self;
        let path = self.path.unwrap_or_default();
        Ok(Some(FilePosition {
            offset,
            line,
            tail,
            identity: identity(&metadata),
            born: born(&metadata),
            path,
            head,
            trail,
        }))
    }
}

/// Checksum of the start of a file (FNV-1a).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StartChecksum {
    hash: u64,
    len: usize,
}

impl Default for StartChecksum {
    fn default() -> Self {
        StartChecksum { hash: 0xcbf2_9ce4_8422_2325, len: 0 }
    }
}

impl StartChecksum {
    /// Computes the checksum of `bytes`.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut head = StartChecksum::default();
        head.feed(bytes);
        head
    }

    /// Adds the next bytes of the file. Ignores those after the first [`HEAD`].
    #[inline]
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        if self.len < HEAD {
            let bytes = &bytes[..bytes.len().min(HEAD - self.len)];
            self.len += bytes.len();
            self.hash = bytes.iter().fold(self.hash, |hash, b| (hash ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
        }
    }

    pub(super) fn short(self) -> u32 {
        (self.hash ^ (self.hash >> 32)) as u32
    }
}

/// Checksum of the last line before a place. Covers at most the last [`LastLineChecksum::MOST`] bytes of the line, and
/// at least the last [`LastLineChecksum::LEAST`] bytes of the file. Computed for every record, so it takes only
/// nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LastLineChecksum {
    sum: u64,
    /// Bytes before the current buffer; zeros before the start of the file.
    before: [u8; LastLineChecksum::LEAST],
}

impl Default for LastLineChecksum {
    fn default() -> Self {
        LastLineChecksum {
            sum: LastLineChecksum::sum(&[0; LastLineChecksum::LEAST]),
            before: [0; LastLineChecksum::LEAST],
        }
    }
}

impl LastLineChecksum {
    pub(super) const LEAST: usize = 64;
    const MOST: usize = 256;
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

    /// Sets the checksum to that of the next line, or the available part of it: the last `len` bytes of `seen`.
    #[inline]
    fn feed(&mut self, seen: &[u8], len: usize) {
        let len = len.clamp(LastLineChecksum::LEAST, LastLineChecksum::MOST);
        self.sum = match seen.len().checked_sub(len) {
            Some(start) => LastLineChecksum::sum(&seen[start..]),
            None => LastLineChecksum::sum(&self.last(seen)),
        };
    }

    fn turn(&mut self, seen: &[u8]) {
        self.before = self.last(seen);
    }

    fn last(&self, seen: &[u8]) -> [u8; LastLineChecksum::LEAST] {
        let mut last = self.before;
        match seen.last_chunk() {
            Some(all) => last = *all,
            None => {
                last.copy_within(seen.len().., 0);
                last[LastLineChecksum::LEAST - seen.len()..].copy_from_slice(seen);
            }
        }
        last
    }

    /// Reads the checksum at `place` from a file. The last line is the last `tail` bytes or, if `tail` is 0, ends with
    /// a line feed.
    fn read(file: &File, place: u64, tail: u64) -> io::Result<Self> {
        let mut bytes = [0; LastLineChecksum::MOST];
        let seen = &mut bytes[LastLineChecksum::MOST - place.min(LastLineChecksum::MOST as u64) as usize..];
        file.read_exact_at(seen, place - seen.len() as u64)?;
        let len = match (tail, seen.split_last()) {
            (0, Some((_, line))) => line.len() - memchr::memrchr(b'\n', line).map_or(0, |end| end + 1) + 1,
            _ => tail.min(LastLineChecksum::MOST as u64) as usize,
        };
        let mut trail = LastLineChecksum::default();
        trail.feed(&bytes, len);
        trail.turn(&bytes);
        Ok(trail)
    }

    /// Multiplies blocks of 16 bytes independently of each other, so that the processor can overlap the work.
    #[inline]
    pub(super) fn sum(bytes: &[u8]) -> u64 {
        let step = |sum: u64, word: &[u8; 16]| {
            let word = u128::from_le_bytes(*word);
            let product = u128::from(word as u64 ^ LastLineChecksum::ODD)
                * u128::from((word >> 64) as u64 ^ !LastLineChecksum::ODD);
            sum.rotate_left(23).wrapping_add(product as u64 ^ (product >> 64) as u64)
        };
        let (words, _) = bytes.as_chunks();
        let sum = words.iter().fold(bytes.len() as u64, step);
        bytes.last_chunk().map_or(sum, |last| step(sum, last)).wrapping_mul(LastLineChecksum::ODD)
    }

    fn short(self) -> u32 {
        (self.sum >> 32) as u32
    }
}

/// First and last bytes that were read from a file, for comparison with its later content.
#[derive(Clone, Debug, Default)]
pub(super) struct EndBytes {
    /// Number of bytes that were read.
    pub(super) len: u64,
    first: Vec<u8>,
    last: Vec<u8>,
}

impl EndBytes {
    /// Reads them for the first `len` bytes of a file.
    pub(super) fn read(file: &File, len: u64) -> io::Result<Self> {
        let size = len.min(HEAD as u64) as usize;
        let (mut first, mut last) = (vec![0; size], vec![0; size]);
        file.read_exact_at(&mut first, 0)?;
        file.read_exact_at(&mut last, len - size as u64)?;
        Ok(EndBytes { len, first, last })
    }

    /// Adds the next bytes that were read.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.len += bytes.len() as u64;
        self.first.extend_from_slice(&bytes[..bytes.len().min(HEAD - self.first.len())]);
        let new = &bytes[bytes.len().saturating_sub(HEAD)..];
        self.last.drain(..(self.last.len() + new.len()).saturating_sub(HEAD));
        self.last.extend_from_slice(new);
    }

    /// Returns `true` if the file still contains them at the same places.
    pub(super) fn are_in(&self, file: &File) -> io::Result<bool> {
        let mut room = [0; HEAD];
        for (bytes, at) in [(&self.first, 0), (&self.last, self.len - self.last.len() as u64)] {
            let found = &mut room[..bytes.len()];
            match file.read_exact_at(found, at) {
                Ok(()) if found == bytes.as_slice() => {}
                Ok(()) => return Ok(false),
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }
}

/// Content of a file at the last check.
#[derive(Clone, Debug, Default)]
pub(super) struct CheckedContent {
    pub(super) ends: EndBytes,
    /// Time of the last write; `None` before the first check.
    pub(super) written: Option<SystemTime>,
    changed: (i64, i64),
}

impl CheckedContent {
    /// Checks the file. If its previous content is gone because the file was truncated or rewritten, returns that
    /// content's description.
    pub(super) fn look(&mut self, file: &File) -> io::Result<Option<CheckedContent>> {
        let metadata = file.metadata()?;
        let (len, changed) = (metadata.len(), (metadata.ctime(), metadata.ctime_nsec()));
        if self.written.is_some() && len == self.ends.len && changed == self.changed {
            return Ok(None);
        }
        let is_there = len >= self.ends.len && self.ends.are_in(file)?;
        let ends = match EndBytes::read(file, len) {
            Ok(ends) => ends,
            // The file is being truncated: the next check finds it.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(e) => return Err(e),
        };
        let seen = std::mem::replace(self, CheckedContent { ends, written: metadata.modified().ok(), changed });
        Ok((!is_there).then_some(seen))
    }
}

/// Hash of the device and inode number, which distinguishes files that exist at the same time.
pub(super) fn identity(metadata: &std::fs::Metadata) -> u32 {
    StartChecksum::of(&[metadata.dev().to_le_bytes(), metadata.ino().to_le_bytes()].concat()).short()
}

/// Returns the creation time of a file in milliseconds since 1970 (48 bits), or 0 if the file system does not store it.
pub(super) fn born(metadata: &std::fs::Metadata) -> u64 {
    let since = metadata.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |since| since.as_millis() as u64 & 0xffff_ffff_ffff)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn resume(place: &FilePosition) -> Resume {
        let mut room = [0xff; LONGEST];
        let len = place.encode(&mut room);
        assert_eq!(len, if place.tail == 0 { USUAL } else { LONGEST });
        for cut in 0..len {
            assert!(Resume::decode(&Position::copy_from(&room[..cut])).is_err() || cut == USUAL);
        }
        Resume::decode(&Position::copy_from(&room[..len])).unwrap()
    }

    #[test]
    fn positions_come_back() {
        let path = PathSum(0xf00d);
        let mut place = FilePosition { path, ..FilePosition::start(5, 7 << 40) };
        place.advance(b"before\nabc\n", 4);
        (place.offset, place.line) = (1 << 47, 1 << 46);
        let (head, trail) = (StartChecksum::of(b"abc\n").short(), Some(place.trail.short()));
        let expected = Resume {
            offset: 1 << 47,
            line: 1 << 46,
            tail: 0,
            identity: 5,
            born: 7 << 40,
            head,
            trail,
            path: Some(path),
        };
        assert_eq!(resume(&place), expected);
        let place = place.with_tail(b"def");
        let (head, trail) = (StartChecksum::of(b"abc\ndef").short(), Some(place.trail.short()));
        assert_eq!(resume(&place), Resume { tail: 3, head, trail, ..expected });
        assert!(Resume::decode(&Position::copy_from(b"12")).is_err());
    }

    proptest! {
        /// However a file is cut into reads, a position in it is the same, and is found again until its last line
        /// changes.
        #[test]
        fn a_place_is_found_again(
            lines in proptest::collection::vec(prop_oneof![6 => 0usize..30, 3 => 0usize..200, 1 => 0usize..2000], 1..30),
            cuts in proptest::collection::vec(1usize..9, 1..9),
            tail in 0usize..700,
            changed in any::<proptest::sample::Index>(),
        ) {
            let letters = (0u64..).map(|n| b'a' + (n.wrapping_mul(LastLineChecksum::ODD) >> 60) as u8);
            let mut bytes: Vec<u8> = letters.take(lines.iter().map(|line| line + 1).sum::<usize>() + tail).collect();
            let file = tempfile::tempfile().unwrap();
            let metadata = file.metadata().unwrap();
            let mut end = 0;
            for line in &lines {
                end += line + 1;
                bytes[end - 1] = b'\n';
            }
            file.write_all_at(&bytes, 0).unwrap();
            let (mut place, mut seen, mut at) = (FilePosition::start(identity(&metadata), born(&metadata)), 0, 0);
            let (mut cuts, mut left) = (cuts.iter().cycle(), 1);
            let is_found = |place: &FilePosition, at: usize| match resume(place).matches(&file).unwrap() {
                Some(found) if place.tail > 0 => resume(&found.with_tail(&bytes[at..])) == resume(place),
                Some(found) => resume(&found) == resume(place),
                None => false,
            };
            for line in &lines {
                left -= 1;
                if left == 0 {
                    place.turn(&bytes[seen..at]);
                    (seen, left) = (at, *cuts.next().unwrap());
                }
                at += line + 1;
                place.advance(&bytes[seen..at], line + 1);
                prop_assert!(is_found(&place, at), "{at}");
            }
            place.turn(&bytes[seen..at]);
            let with_tail = place.with_tail(&bytes[at..]);
            prop_assert!(tail == 0 || is_found(&with_tail, at));
            let ends = [(place, lines[lines.len() - 1] + 1), (with_tail, tail)];
            for (place, last) in ends.into_iter().filter(|(_, last)| *last > 0) {
                let end = (place.offset + place.tail) as usize;
                let changed = end - 1 - changed.index(last.clamp(LastLineChecksum::LEAST, LastLineChecksum::MOST).min(end));
                file.write_all_at(&[bytes[changed] ^ 1], changed as u64).unwrap();
                prop_assert!(resume(&place).matches(&file).unwrap().is_none(), "{changed} of {end}");
                file.write_all_at(&bytes[changed..=changed], changed as u64).unwrap();
            }
        }
    }
}
