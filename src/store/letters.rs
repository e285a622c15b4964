//! Dead letters in the state store.
//!
//! What is stored of a letter is bytes to the store: it knows the number, the name, when the record failed first and how
//! often. So bounds are kept, and letters replaced, without looking into records.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anabranch_plugin::letter::{FullQueue, KeptLetters, LetterBounds, WhenFull};
use anabranch_plugin::state::StoreError;
use anabranch_record::text::Str;
use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::{Found, Read, Store, Write, Written};

/// SHA-256 of the name of a letter: names hold metadata of records, which may be long.
pub type LetterKey = [u8; 32];

/// The key of a name.
pub fn key(name: &str) -> LetterKey {
    Sha256::digest(name.as_bytes()).into()
}

/// A letter as the store sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredLetter {
    /// When the record failed first, in nanoseconds since 1970.
    pub first: u64,
    /// How often it failed.
    pub attempts: u32,
    /// Of its name.
    pub key: LetterKey,
    /// The letter.
    pub content: Bytes,
}

impl StoredLetter {
    /// Bytes before the content.
    pub(super) const HEAD: usize = 8 + 4 + 32;

    /// Bytes of its stored form.
    pub(super) fn encoded_len(&self) -> usize {
        Self::HEAD + self.content.len()
    }

    /// Numbers with the most significant byte first, the key, then the content.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.encoded_len());
        bytes.extend_from_slice(&self.first.to_be_bytes());
        bytes.extend_from_slice(&self.attempts.to_be_bytes());
        bytes.extend_from_slice(&self.key);
        bytes.extend_from_slice(&self.content);
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<StoredLetter, StoreError> {
        let cut_off = || StoreError::Damaged("a dead letter is cut off".to_owned());
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

    /// What stays of the letter that this one replaces because it has its name: the row was read again.
    pub(super) fn succeed(&mut self, first: u64, attempts: u32) {
        self.first = first;
        self.attempts = self.attempts.max(attempts);
    }
}

/// Bytes that a letter counts of the bound.
pub(super) fn weight(stored: usize) -> u64 {
    stored as u64 + 64
}

/// Nanoseconds since 1970.
pub fn nanos(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// A letter that was replayed, and what became of it.
#[derive(Clone, Debug)]
pub struct Settled {
    /// Its number.
    pub number: u64,
    /// The copies that failed again. None: the letter goes. The first takes its place, others are new letters.
    pub copies: Vec<StoredLetter>,
}

/// Which letters are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// All of the pipeline.
    All,
    /// Those with these numbers; others are not missed.
    Numbers(Vec<u64>),
    /// Those whose record failed first before this, in nanoseconds since 1970.
    Before(u64),
}

/// What is written about the letters of a pipeline.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// Removes letters older than `oldest`, then keeps letters as far as the bounds allow.
    Keep { letters: Vec<StoredLetter>, bounds: LetterBounds, oldest: u64 },
    /// After a replay.
    Settle(Vec<Settled>),
    /// Removes letters.
    Remove(Which),
}

impl Change {
    /// Bytes that it writes, roughly.
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
    /// So many of the given letters are kept.
    pub(super) kept: usize,
    /// Why the others are not.
    pub(super) full: Option<FullQueue>,
    /// Letters that were removed.
    pub(super) removed: u64,
}

/// Why a queue with so many letters and bytes takes no further letter of this weight; `None` if it takes it.
pub(super) fn refused(bounds: &LetterBounds, count: u64, bytes: u64, weight: u64) -> Option<FullQueue> {
    if bounds.full == WhenFull::DropOldest {
        return None;
    }
    let bound = bounds.exceeded(count + 1, bytes.saturating_add(weight))?;
    Some(FullQueue { bound, count, bytes })
}

/// What is asked about the letters of a pipeline.
#[derive(Clone, Debug)]
pub(super) enum Question {
    /// The newest below a number, newest first.
    Below { number: u64, most: usize },
    /// Those of these numbers that there are, in this order.
    Numbers(Vec<u64>),
    /// How many there are.
    Totals,
}

/// Bytes of letters in one answer, beyond which no further one is added.
pub(super) const ANSWER_BYTES: usize = 8 << 20;

#[derive(Clone, Debug)]
pub(super) enum Answer {
    Letters(Vec<(u64, StoredLetter)>),
    Totals(LetterTotals),
}

/// How many letters of a pipeline there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LetterTotals {
    /// Letters.
    pub count: u64,
    /// Their bytes, as they count for the bound.
    pub bytes: u64,
    /// Letters that were removed because there were too many, or they were too old, since the pipeline was created.
    pub evicted: u64,
    /// When the record of the oldest failed first, in nanoseconds since 1970.
    pub oldest: Option<u64>,
}

impl Store {
    /// Keeps letters; those with a name that is there replace that letter. Logs evictions, at most once a minute for each
    /// pipeline.
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
                "dead letters were removed because of the bounds of the queue; they are lost"
            );
        }
        Ok(KeptLetters { kept, evicted, full })
    }

    /// Takes replayed letters away, or puts what failed again in their place; all or nothing.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn settle_letters(&self, pipeline: &Str, settled: Vec<Settled>) -> Result<(), StoreError> {
        self.change_letters(pipeline, Change::Settle(settled)).await.map(drop)
    }

    /// Removes letters; says how many.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn remove_letters(&self, pipeline: &Str, which: Which) -> Result<u64, StoreError> {
        Ok(self.change_letters(pipeline, Change::Remove(which)).await?.removed)
    }

    /// The newest letters below a number, newest first: `most` of them, or fewer where they are large.
    ///
    /// # Errors
    /// The store cannot be read, or what it holds cannot be understood.
    pub async fn letters_below(
        &self,
        pipeline: &Str,
        number: u64,
        most: usize,
    ) -> Result<Vec<(u64, StoredLetter)>, StoreError> {
        self.letters(pipeline, Question::Below { number, most }).await
    }

    /// The letters that there are of these numbers, in this order; where they are large, the first of them.
    ///
    /// # Errors
    /// The store cannot be read, or what it holds cannot be understood.
    pub async fn letters_numbered(
        &self,
        pipeline: &Str,
        numbers: Vec<u64>,
    ) -> Result<Vec<(u64, StoredLetter)>, StoreError> {
        self.letters(pipeline, Question::Numbers(numbers)).await
    }

    /// How many letters of a pipeline there are.
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
            _ => Err(StoreError::Damaged("it answered something else than it was asked".to_owned())),
        }
    }

    async fn change_letters(&self, pipeline: &Str, change: Change) -> Result<Changed, StoreError> {
        match self.write(Write::Letters { pipeline: pipeline.clone(), change }).await? {
            Written::Letters(changed) => Ok(changed),
            _ => Err(StoreError::Damaged("it answered something else than it was asked".to_owned())),
        }
    }
}

/// Shortest time between two lines of the log about evicted letters of a pipeline.
const LINE_EVERY: Duration = Duration::from_secs(60);

/// Letters that were evicted since the log last said so, by pipeline; clones share it.
#[derive(Clone, Default)]
pub(super) struct Evictions {
    pipelines: Arc<Mutex<BTreeMap<Str, (Instant, u64)>>>,
}

impl Evictions {
    /// Counts evicted letters; gives the number to log, where a line is due.
    fn to_log(&self, pipeline: &Str, evicted: u64, now: Instant) -> Option<u64> {
        if evicted == 0 {
            return None;
        }
        // A number and a time: a panic elsewhere leaves them usable.
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
