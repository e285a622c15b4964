//! Dead letters of a store.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anabranch_plugin::letter::{KeptLetters, LetterBounds};
use anabranch_plugin::state::{Epoch, StoreError};
use anabranch_record::text::Str;

use super::Store;
use crate::letters::{
    LetterAnswer, LetterChange, LetterChangeResult, LetterQuery, LetterSelection, LetterTotals, ReplayedLetter,
    StoredLetter, nanos,
};
use crate::request::{Read, ReadResult, Write, WriteResult};

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
        self.keep_stored(pipeline, None, letters, bounds).await
    }

    /// Stores dead letters, of a run if `epoch` is given.
    pub(super) async fn keep_stored(
        &self,
        pipeline: &Str,
        epoch: Option<&Epoch>,
        letters: Vec<StoredLetter>,
        bounds: &LetterBounds,
    ) -> Result<KeptLetters, StoreError> {
        let oldest = bounds.age.map_or(0, |age| nanos(SystemTime::now().checked_sub(age).unwrap_or(UNIX_EPOCH)));
        let change = LetterChange::Keep { letters, bounds: *bounds, oldest };
        let changed = self.change_letters(pipeline, epoch, change).await?;
        let LetterChangeResult { kept, full, removed: evicted } = changed;
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
    pub async fn settle_letters(&self, pipeline: &Str, settled: Vec<ReplayedLetter>) -> Result<(), StoreError> {
        self.change_letters(pipeline, None, LetterChange::Settle(settled)).await.map(drop)
    }

    /// Removes dead letters. Returns their number.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn remove_letters(&self, pipeline: &Str, which: LetterSelection) -> Result<u64, StoreError> {
        Ok(self.change_letters(pipeline, None, LetterChange::Remove(which)).await?.removed)
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
        self.letters(pipeline, LetterQuery::Below { number, most }).await
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
        self.letters(pipeline, LetterQuery::Numbers(numbers)).await
    }

    /// Returns the totals of the dead letters of a pipeline.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn letter_totals(&self, pipeline: &Str) -> Result<LetterTotals, StoreError> {
        match self.ask_letters(pipeline, LetterQuery::Totals).await? {
            LetterAnswer::Totals(totals) => Ok(totals),
            LetterAnswer::Letters(_) => Ok(LetterTotals::default()),
        }
    }

    async fn letters(&self, pipeline: &Str, question: LetterQuery) -> Result<Vec<(u64, StoredLetter)>, StoreError> {
        match self.ask_letters(pipeline, question).await? {
            LetterAnswer::Letters(letters) => Ok(letters),
            LetterAnswer::Totals(_) => Ok(Vec::new()),
        }
    }

    async fn ask_letters(&self, pipeline: &Str, question: LetterQuery) -> Result<LetterAnswer, StoreError> {
        match self.read(Read::Letters { pipeline: pipeline.clone(), question }).await? {
            ReadResult::Letters(answer) => Ok(answer),
            _ => Err(StoreError::Damaged("the response does not match the request".to_owned())),
        }
    }

    async fn change_letters(
        &self,
        pipeline: &Str,
        epoch: Option<&Epoch>,
        change: LetterChange,
    ) -> Result<LetterChangeResult, StoreError> {
        match self.write(Write::Letters { pipeline: pipeline.clone(), epoch: epoch.cloned(), change }).await? {
            WriteResult::Letters(changed) => Ok(changed),
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
}
