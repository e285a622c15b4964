//! Dead letters in the state store.
//!
//! The store treats the content of a dead letter as bytes: it knows the number, the name, the time of the first failure
//! and the number of attempts. So it can apply limits and replace dead letters without decoding records.

use std::time::{SystemTime, UNIX_EPOCH};

use anabranch_plugin::letter::{FullQueue, LetterBounds, WhenFull};
use anabranch_plugin::state::StoreError;
use bytes::Bytes;
use sha2::{Digest as _, Sha256};

/// SHA-256 of the name of a letter: names contain metadata of records, which may be long.
pub type LetterKey = [u8; 32];

/// Returns the key of a name.
pub fn key(name: &str) -> LetterKey {
    Sha256::digest(name.as_bytes()).into()
}

/// A dead letter in its stored form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredLetter {
    /// Time of the first failure, in nanoseconds since 1970.
    pub first: u64,
    /// Number of failures.
    pub attempts: u32,
    /// Key of its name.
    pub key: LetterKey,
    /// The encoded dead letter.
    pub content: Bytes,
}

impl StoredLetter {
    /// Number of bytes before the content.
    pub(crate) const HEAD: usize = 8 + 4 + 32;

    /// Returns the number of bytes of the stored form.
    pub(crate) fn encoded_len(&self) -> usize {
        Self::HEAD + self.content.len()
    }

    /// Encodes the numbers with the most significant byte first, the key, then the content.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.encoded_len());
        bytes.extend_from_slice(&self.first.to_be_bytes());
        bytes.extend_from_slice(&self.attempts.to_be_bytes());
        bytes.extend_from_slice(&self.key);
        bytes.extend_from_slice(&self.content);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<StoredLetter, StoreError> {
        let cut_off = || StoreError::Damaged("a dead letter is truncated".to_owned());
        let (first, rest) = bytes.split_first_chunk().ok_or_else(cut_off)?;
        let (attempts, rest) = rest.split_first_chunk().ok_or_else(cut_off)?;
        let (key, content) = rest.split_first_chunk().ok_or_else(cut_off)?;
        Ok(StoredLetter {
            first: u64::from_be_bytes(*first),
            attempts: u32::from_be_bytes(*attempts),
            key: *key,
            content: Bytes::copy_from_slice(content),
        })
    }

    /// Takes over the values of the dead letter that this one replaces because it has the same name: the record was
    /// read again.
    pub(crate) fn succeed(&mut self, first: u64, attempts: u32) {
        self.first = first;
        self.attempts = self.attempts.max(attempts);
    }
}

/// Returns the bytes that a dead letter counts towards the limit.
pub(crate) fn weight(stored: usize) -> u64 {
    stored as u64 + 64
}

/// Returns nanoseconds since 1970.
pub fn nanos(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// A dead letter that was replayed, with the result.
#[derive(Clone, Debug)]
pub struct ReplayedLetter {
    /// Its number.
    pub number: u64,
    /// The copies that failed again. If there are none, the dead letter is removed. The first replaces it, others are
    /// added.
    pub copies: Vec<StoredLetter>,
}

/// Selection of dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LetterSelection {
    /// All dead letters of the pipeline.
    All,
    /// Dead letters with these numbers; missing ones are ignored.
    Numbers(Vec<u64>),
    /// Dead letters that first failed before this time, in nanoseconds since 1970.
    Before(u64),
}

/// A change of the dead letters of a pipeline.
#[derive(Clone, Debug)]
pub(crate) enum LetterChange {
    /// Removes dead letters older than `oldest`, then stores dead letters as far as the limits allow.
    Keep { letters: Vec<StoredLetter>, bounds: LetterBounds, oldest: u64 },
    /// Applies the result of a replay.
    Settle(Vec<ReplayedLetter>),
    /// Removes dead letters.
    Remove(LetterSelection),
}

impl LetterChange {
    /// Returns the approximate number of bytes written.
    pub(crate) fn weight(&self) -> usize {
        let of = |letters: &[StoredLetter]| letters.iter().map(StoredLetter::encoded_len).sum::<usize>();
        match self {
            LetterChange::Keep { letters, .. } => of(letters),
            LetterChange::Settle(settled) => settled.iter().map(|one| of(&one.copies)).sum(),
            LetterChange::Remove(_) => 0,
        }
    }
}

/// The outcome of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LetterChangeResult {
    /// Number of the given dead letters that were stored.
    pub(crate) kept: usize,
    /// Why the others were refused.
    pub(crate) full: Option<FullQueue>,
    /// Number of dead letters that were removed.
    pub(crate) removed: u64,
}

/// Returns why a queue of this size refuses a dead letter of this weight; `None` if it accepts the dead letter.
pub(crate) fn refused(bounds: &LetterBounds, count: u64, bytes: u64, weight: u64) -> Option<FullQueue> {
    if bounds.full == WhenFull::DropOldest {
        return None;
    }
    let bound = bounds.exceeded(count + 1, bytes.saturating_add(weight))?;
    Some(FullQueue { bound, count, bytes })
}

/// A query of the dead letters of a pipeline.
#[derive(Clone, Debug)]
pub(crate) enum LetterQuery {
    /// The newest dead letters below a number, newest first.
    Below { number: u64, most: usize },
    /// The existing dead letters with these numbers, in this order.
    Numbers(Vec<u64>),
    /// The totals.
    Totals,
}

/// Maximum bytes of dead letters in one answer: after this, no dead letter is added.
pub(crate) const ANSWER_BYTES: usize = 8 << 20;

#[derive(Clone, Debug)]
pub(crate) enum LetterAnswer {
    Letters(Vec<(u64, StoredLetter)>),
    Totals(LetterTotals),
}

/// Totals of the dead letters of a pipeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LetterTotals {
    /// Number of dead letters.
    pub count: u64,
    /// Their bytes, as they count towards the limit.
    pub bytes: u64,
    /// Dead letters that were evicted because of their number, size or age since the pipeline was created.
    pub evicted: u64,
    /// Time of the first failure of the oldest dead letter, in nanoseconds since 1970.
    pub oldest: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_keep_their_bytes_and_short_ones_are_refused() {
        let letter = StoredLetter { first: 7, attempts: 3, key: key("name"), content: Bytes::from_static(b"\0x") };
        let bytes = letter.encode();
        assert_eq!(StoredLetter::decode(&bytes).unwrap(), letter);
        assert!(StoredLetter::decode(&bytes[..StoredLetter::HEAD - 1]).is_err());
    }
}
