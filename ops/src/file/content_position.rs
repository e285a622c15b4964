//! Positions in the content of a file, which may be compressed and has records of any framing.

use anabranch_record::Position;
use anabranch_record::fault::Fault;

use super::position::{HEAD, LastLineChecksum, StartChecksum};
use crate::codes;

/// Number of bytes before a place that are compared when reading resumes there.
pub(super) const TRAIL: usize = LastLineChecksum::LEAST;

/// Version of the format. Earlier numbers are those of [`FilePosition`](super::position::FilePosition).
const VERSION: u8 = 5;

/// Bytes of a position, and of one with a delivered rest.
const USUAL: usize = 32;
pub(super) const LONGEST: usize = 40;

/// Bits of the flags.
const HAS_REST: u8 = 1;
const IN_ARRAY: u8 = 4;

/// Progress in the content of a file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ContentPosition {
    /// Start of the first record that was not delivered completely, in bytes of the decompressed content.
    pub(super) offset: u64,
    /// Number of records before `offset`.
    pub(super) record: u64,
    /// The delivered part of the content after `offset`.
    pub(super) after: After,
    /// True if the last record was an element of a JSON array that has not ended.
    pub(super) in_array: bool,
    /// Shortened hash of the device and inode number of the file.
    pub(super) identity: u32,
    /// Creation time of the file, see [`born`](super::position::born).
    pub(super) born: u64,
    head: StartChecksum,
    trail: u32,
}

/// The delivered part of the content after the last complete record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum After {
    #[default]
    Nothing,
    /// All of it, this many bytes, as a record without an end.
    Rest(u64),
}

/// Returns the checksum of the last bytes of `seen`. Before the start of a file are zeros.
fn trail(seen: &[u8]) -> u32 {
    let mut last = [0; TRAIL];
    let seen = &seen[seen.len().saturating_sub(TRAIL)..];
    last[TRAIL - seen.len()..].copy_from_slice(seen);
    (LastLineChecksum::sum(&last) >> 32) as u32
}

impl ContentPosition {
    /// Returns the start of a file.
    pub(super) fn start(identity: u32, born: u64) -> Self {
        ContentPosition { identity, born, trail: trail(&[]), ..ContentPosition::default() }
    }

    /// Returns the place before the first row of a table of `len` bytes, of which `start` are the first bytes, as many as
    /// there are or at least [`HEAD`], and `end` the last ones, as many as there are or at least [`TRAIL`]. Every place in a
    /// table is at the end of its bytes: only the number of records differs.
    pub(super) fn of_table((identity, born): (u32, u64), len: u64, start: &[u8], end: &[u8]) -> Self {
        let mut place = ContentPosition { offset: len, ..ContentPosition::start(identity, born) };
        place.head.feed(&start[..start.len().min(HEAD)]);
        place.trail = trail(end);
        place
    }

    /// Moves past a piece of content: the last `len` bytes of `seen`, before which at least [`TRAIL`] bytes or the start
    /// of the file are in `seen`.
    #[inline]
    pub(super) fn advance(&mut self, seen: &[u8], len: usize, is_record: bool) {
        self.offset += len as u64;
        self.record += u64::from(is_record);
        self.after = After::Nothing;
        self.head.feed(&seen[seen.len() - len..]);
        self.trail = trail(seen);
    }

    /// Returns the place after the rest of the content: the last `len` bytes of `seen`.
    pub(super) fn with_rest(mut self, seen: &[u8], len: usize) -> Self {
        self.after = After::Rest(len as u64);
        self.head.feed(&seen[seen.len() - len..]);
        self.trail = trail(seen);
        self
    }

    /// Encodes the place at the start of `room` and returns the number of bytes.
    pub(super) fn encode(&self, room: &mut [u8]) -> usize {
        let (flag, extra) = match self.after {
            After::Nothing => (0, None),
            After::Rest(bytes) => (HAS_REST, Some(bytes)),
        };
        room[0] = VERSION;
        room[1..7].copy_from_slice(&self.offset.to_le_bytes()[..6]);
        room[7..13].copy_from_slice(&self.record.to_le_bytes()[..6]);
        room[13..17].copy_from_slice(&self.identity.to_le_bytes());
        room[17..21].copy_from_slice(&self.head.short().to_le_bytes());
        room[21..25].copy_from_slice(&self.trail.to_le_bytes());
        room[25..31].copy_from_slice(&self.born.to_le_bytes()[..6]);
        room[31] = flag | if self.in_array { IN_ARRAY } else { 0 };
        let Some(extra) = extra else { return USUAL };
        room[USUAL..LONGEST].copy_from_slice(&extra.to_le_bytes());
        LONGEST
    }

    /// Returns the encoded place.
    pub(super) fn position(&self) -> Position {
        let mut room = [0; LONGEST];
        let len = self.encode(&mut room);
        Position::copy_from(&room[..len])
    }
}

/// A place decoded from a position. Of the content, only checksums remain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ContentResume {
    pub(super) offset: u64,
    pub(super) record: u64,
    pub(super) after: After,
    pub(super) in_array: bool,
    pub(super) identity: u32,
    pub(super) born: u64,
    head: u32,
    trail: u32,
}

impl ContentResume {
    /// Decodes a position.
    ///
    /// # Errors
    /// Fatal if the position does not come from a file source with these settings.
    pub(super) fn decode(position: &Position) -> Result<Self, Fault> {
        ContentResume::read(&position.0).ok_or_else(|| {
            Fault::fatal(
                codes::POSITION_UNKNOWN,
                "the position is not that of a file source with this framing and path; run `anabranch positions reset` \
                 to read from the beginning",
            )
        })
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        fn number(bytes: &[u8]) -> u64 {
            let mut number = [0; 8];
            number[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(number)
        }
        let (usual, extra) = bytes.split_first_chunk::<USUAL>()?;
        if usual[0] != VERSION {
            return None;
        }
        let after = match (usual[31] & !IN_ARRAY, extra.len()) {
            (0, 0) => After::Nothing,
            (HAS_REST, 8) => After::Rest(number(extra)),
            _ => return None,
        };
        Some(ContentResume {
            offset: number(&usual[1..7]),
            record: number(&usual[7..13]),
            after,
            in_array: usual[31] & IN_ARRAY != 0,
            identity: number(&usual[13..17]) as u32,
            head: number(&usual[17..21]) as u32,
            trail: number(&usual[21..25]) as u32,
            born: number(&usual[25..31]),
        })
    }

    /// Returns the number of bytes of the content that were delivered.
    pub(super) fn delivered(&self) -> u64 {
        match self.after {
            After::Rest(rest) => self.offset.saturating_add(rest),
            After::Nothing => self.offset,
        }
    }

    /// Returns `true` if no file was there when the source began.
    pub(super) fn is_of_no_file(&self) -> bool {
        self.identity == 0 && self.is_at_start()
    }

    /// Returns `true` if nothing of the file was delivered.
    pub(super) fn is_at_start(&self) -> bool {
        self.offset == 0 && self.after == After::Nothing
    }

    /// Returns `true` if the identity and creation time match the file that was read. The identity is not enough,
    /// because file systems reuse inode numbers.
    pub(super) fn is_of(&self, identity: u32, born: u64) -> bool {
        identity == self.identity && (self.born == 0 || born == 0 || born == self.born)
    }

    /// Returns the place in a file whose content begins with `start`, at least [`HEAD`] bytes or all that were
    /// delivered, and in which `seen` are the last delivered bytes, at least [`TRAIL`] or all of them. `None` if these
    /// are not the bytes that were delivered. `file` has the identity and creation time of the file.
    pub(super) fn matches(&self, start: &[u8], seen: &[u8], file: (u32, u64)) -> Option<ContentPosition> {
        let of_start = |len: u64| StartChecksum::of(&start[..len.min(HEAD as u64) as usize]);
        if of_start(self.delivered()).short() != self.head || trail(seen) != self.trail {
            return None;
        }
        let (identity, born) = file;
        Some(ContentPosition {
            offset: self.offset,
            record: self.record,
            after: self.after,
            in_array: self.in_array,
            identity,
            born,
            // The rest is delivered again as part of its whole record.
            head: of_start(self.offset),
            trail: self.trail,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_come_back_and_fit_only_the_content_that_was_read() {
        let content: Vec<u8> = (0..3000u32).flat_map(|n| format!("{n},").into_bytes()).collect();
        for (offset, rest) in [(0, 0), (5, 0), (5, 30), (900, 200), (2000, 0), (7000, 10)] {
            let mut place = ContentPosition::start(7, 9 << 40);
            for end in 1..=offset {
                place.advance(&content[..end], 1, end % 5 == 0);
            }
            if rest > 0 {
                place = place.with_rest(&content[..offset + rest], rest);
            }
            place.in_array = offset == 900;
            let resume = ContentResume::decode(&place.position()).unwrap();
            assert_eq!((resume.offset, resume.delivered()), (offset as u64, (offset + rest) as u64));
            let seen = &content[..offset + rest];
            let found = resume.matches(&content, seen, (7, 9 << 40)).unwrap();
            assert_eq!((found.offset, found.record, found.after), (place.offset, place.record, place.after));
            assert!(rest > 0 || found.position() == place.position());
            assert!(resume.is_of(7, 9 << 40) && !resume.is_of(7, 1) && !resume.is_of(8, 0));
            if offset > 0 {
                let mut other = content.clone();
                other[0] ^= 1;
                assert!(resume.matches(&other, seen, (7, 0)).is_none());
                let mut other = seen.to_vec();
                *other.last_mut().unwrap() ^= 1;
                assert!(resume.matches(&content, &other, (7, 0)).is_none());
            }
        }
        let mut place = ContentPosition::start(1, 0);
        assert!(ContentResume::decode(&place.position()).unwrap().is_at_start());
        place.after = After::Rest(1 << 40);
        assert_eq!(ContentResume::decode(&place.position()).unwrap().after, After::Rest(1 << 40));
        for cut in [0, 1, USUAL - 1, USUAL, LONGEST - 1] {
            assert!(ContentResume::decode(&Position::copy_from(&place.position().0[..cut])).is_err());
        }
    }
}
