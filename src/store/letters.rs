//! Dead letters in the state store.
//!
//! The store treats the content of a dead letter as bytes: it knows the number, the name, the time of the first failure
//! and the number of attempts. So it can apply limits and replace dead letters without decoding records.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anabranch_plugin::letter::{FullQueue, KeptLetters, LetterBounds, WhenFull};
use anabranch_plugin::state::StoreError;
use anabranch_record::text::Str;
use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::{Found, Read, Store, Write, Written};

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
    pub(super) const HEAD: usize = 8 + 4 + 32;

    /// Returns the number of bytes of the stored form.
    pub(super) fn encoded_len(&self) -> usize {
        Self::HEAD + self.content.len()
    }

    /// Encodes the numbers with the most significant byte first, the key, then the content.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.encoded_len());
        bytes.extend_from_slice(&self.first.to_be_bytes());
        bytes.extend_from_slice(&self.attempts.to_be_bytes());
        bytes.extend_from_slice(&self.key);
        bytes.extend_from_slice(&self.content);
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<StoredLetter, StoreError> {
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
    pub(super) fn succeed(&mut self, first: u64, attempts: u32) {
        self.first = first;
        self.attempts = self.attempts.max(attempts);
    }
}

/// Returns the bytes that a dead letter counts towards the limit.
pub(super) fn weight(stored: usize) -> u64 {
    stored as u64 + 64
}

/// Returns nanoseconds since 1970.
pub fn nanos(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// A dead letter that was replayed, with the result.
#[derive(Clone, Debug)]
pub struct Settled {
    /// Its number.
    pub number: u64,
    /// The copies that failed again. If there are none, the dead letter is removed. The first replaces it, others are
    /// added.
    pub copies: Vec<StoredLetter>,
}

/// Selection of dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// All dead letters of the pipeline.
    All,
    /// Dead letters with these numbers; missing ones are ignored.
    Numbers(Vec<u64>),
    /// Dead letters that first failed before this time, in nanoseconds since 1970.
    Before(u64),
}

/// A change of the dead letters of a pipeline.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// Removes dead letters older than `oldest`, then stores dead letters as far as the limits allow.
    Keep { letters: Vec<StoredLetter>, bounds: LetterBounds, oldest: u64 },
    /// Applies the result of a replay.
    Settle(Vec<Settled>),
    /// Removes dead letters.
    Remove(Which),
}

impl Change {
    /// Returns the approximate number of bytes written.
    pub(super) fn weight(&self) -> usize {
        let of = |letters: &[StoredLetter]| letters.iter().map(StoredLetter::encoded_len).sum::<usize>();
        match self {
            Change::Keep { letters, .. } => of(letters),
            Change::Settle(settled) => settled.iter().map(|one| of(&one.copies)).sum(),
            Change::Remove(_) => 0,
        }
    }
}

/// The outcome of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Changed {
    /// Number of the given dead letters that were stored.
    pub(super) kept: usize,
    /// Why the others were refused.
    pub(super) full: Option<FullQueue>,
    /// Number of dead letters that were removed.
    pub(super) removed: u64,
}

/// Returns why a queue of this size refuses a dead letter of this weight; `None` if it accepts the dead letter.
pub(super) fn refused(bounds: &LetterBounds, count: u64, bytes: u64, weight: u64) -> Option<FullQueue> {
    if bounds.full == WhenFull::DropOldest {
        return None;
    }
    let bound = bounds.exceeded(count + 1, bytes.saturating_add(weight))?;
    Some(FullQueue { bound, count, bytes })
}

/// A query of the dead letters of a pipeline.
#[derive(Clone, Debug)]
pub(super) enum Question {
    /// The newest dead letters below a number, newest first.
    Below { number: u64, most: usize },
    /// The existing dead letters with these numbers, in this order.
    Numbers(Vec<u64>),
    /// The totals.
    Totals,
}

/// Maximum bytes of dead letters in one answer: after this, no dead letter is added.
pub(super) const ANSWER_BYTES: usize = 8 << 20;

#[derive(Clone, Debug)]
pub(super) enum Answer {
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

impl Store {
    /// Stores dead letters; a dead letter replaces an existing one with the same name. Logs evictions at most once a
    /// minute per pipeline.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn put_letters(
        &self,
        pipeline: &Str,
        letters: Vec<StoredLetter>,
        bounds: &LetterBounds,
    ) -> Result<KeptLetters, StoreError> {
        let oldest = bounds.age.map_or(0, |age| nanos(SystemTime::now().checked_sub(age).unwrap_or(UNIX_EPOCH)));
        let changed = self.change_letters(pipeline, Change::Keep { letters, bounds: *bounds, oldest }).await?;
        let Changed { kept, full, removed: evicted } = changed;
        if let Some(evicted) = self.evictions.to_log(pipeline, evicted, Instant::now()) {
            let LetterBounds { count, bytes, age, full: _ } = *bounds;
            tracing::warn!(
                pipeline = %pipeline, evicted, max_count = count, max_bytes = bytes,
                max_age = ?age.unwrap_or(Duration::ZERO),
                "the bounds of the dead-letter queue removed dead letters; they are lost"
            );
        }
        Ok(KeptLetters { kept, evicted, full })
    }

    /// Removes replayed dead letters, or replaces them with the copies that failed again. Applied entirely or not at
    /// all.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn settle_letters(&self, pipeline: &Str, settled: Vec<Settled>) -> Result<(), StoreError> {
        self.change_letters(pipeline, Change::Settle(settled)).await.map(drop)
    }

    /// Removes dead letters. Returns their number.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn remove_letters(&self, pipeline: &Str, which: Which) -> Result<u64, StoreError> {
        Ok(self.change_letters(pipeline, Change::Remove(which)).await?.removed)
    }

    /// Returns the newest dead letters below a number, newest first: at most `most`, or fewer if they are large.
    ///
    /// # Errors
    /// The store cannot be read or is damaged.
    pub async fn letters_below(
        &self,
        pipeline: &Str,
        number: u64,
        most: usize,
    ) -> Result<Vec<(u64, StoredLetter)>, StoreError> {
        self.letters(pipeline, Question::Below { number, most }).await
    }

    /// Returns the existing dead letters with these numbers, in this order; if they are large, only the first of them.
    ///
    /// # Errors
    /// The store cannot be read or is damaged.
    pub async fn letters_numbered(
        &self,
        pipeline: &Str,
        numbers: Vec<u64>,
    ) -> Result<Vec<(u64, StoredLetter)>, StoreError> {
        self.letters(pipeline, Question::Numbers(numbers)).await
    }

    /// Returns the totals of the dead letters of a pipeline.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn letter_totals(&self, pipeline: &Str) -> Result<LetterTotals, StoreError> {
        match self.ask_letters(pipeline, Question::Totals).await? {
            Answer::Totals(totals) => Ok(totals),
            Answer::Letters(_) => Ok(LetterTotals::default()),
        }
    }

    async fn letters(&self, pipeline: &Str, question: Question) -> Result<Vec<(u64, StoredLetter)>, StoreError> {
        match self.ask_letters(pipeline, question).await? {
            Answer::Letters(letters) => Ok(letters),
            Answer::Totals(_) => Ok(Vec::new()),
        }
    }

    async fn ask_letters(&self, pipeline: &Str, question: Question) -> Result<Answer, StoreError> {
        match self.read(Read::Letters { pipeline: pipeline.clone(), question }).await? {
            Found::Letters(answer) => Ok(answer),
            _ => Err(StoreError::Damaged("the response does not match the request".to_owned())),
        }
    }

    async fn change_letters(&self, pipeline: &Str, change: Change) -> Result<Changed, StoreError> {
        match self.write(Write::Letters { pipeline: pipeline.clone(), change }).await? {
            Written::Letters(changed) => Ok(changed),
            _ => Err(StoreError::Damaged("the response does not match the request".to_owned())),
        }
    }
}

/// Minimum time between two log lines about evicted dead letters of a pipeline.
const LINE_EVERY: Duration = Duration::from_secs(60);

/// Evicted dead letters that were not logged yet, by pipeline; clones share them.
#[derive(Clone, Default)]
pub(super) struct Evictions {
    pipelines: Arc<Mutex<BTreeMap<Str, (Instant, u64)>>>,
}

impl Evictions {
    /// Counts evicted dead letters. Returns the number to log if a log line is due.
    fn to_log(&self, pipeline: &Str, evicted: u64, now: Instant) -> Option<u64> {
        if evicted == 0 {
            return None;
        }
        // A panic elsewhere leaves the number and the time usable.
        let mut pipelines = self.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
        match pipelines.get_mut(pipeline) {
            Some((logged, waiting)) if now.saturating_duration_since(*logged) < LINE_EVERY => {
                *waiting += evicted;
                None
            }
            Some((logged, waiting)) => {
                *logged = now;
                Some(std::mem::take(waiting) + evicted)
            }
            None => {
                pipelines.insert(pipeline.clone(), (now, 0));
                Some(evicted)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evictions_are_logged_once_a_minute_for_each_pipeline() {
        let evictions = Evictions::default();
        let start = Instant::now();
        let at = |pipeline: &'static str, evicted, seconds| {
            evictions.clone().to_log(&pipeline.into(), evicted, start + Duration::from_secs(seconds))
        };
        assert_eq!(at("a", 0, 0), None);
        assert_eq!(at("a", 3, 0), Some(3));
        assert_eq!((at("a", 5, 1), at("a", 6, 59)), (None, None));
        assert_eq!(at("b", 1, 59), Some(1));
        assert_eq!(at("a", 7, 60), Some(18), "with those that were not logged");
        assert_eq!(at("a", 0, 200), None);
    }

    #[test]
    fn letters_keep_their_bytes_and_short_ones_are_refused() {
        let letter = StoredLetter { first: 7, attempts: 3, key: key("name"), content: Bytes::from_static(b"\0x") };
        let bytes = letter.encode();
        assert_eq!(StoredLetter::decode(&bytes).unwrap(), letter);
        assert!(StoredLetter::decode(&bytes[..StoredLetter::HEAD - 1]).is_err());
    }
}
