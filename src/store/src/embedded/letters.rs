//! Dead letters in the file: by pipeline and number, with an index by name.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use anabranch_plugin::letter::WhenFull;
use anabranch_plugin::state::StoreError;
use anabranch_record::text::Str;
use redb::{
    ReadOnlyTable, ReadTransaction, ReadableTable as _, Table, TableDefinition, TableError, Value, WriteTransaction,
};

use super::contents::each;
use crate::contents::{LetterCounter, NumberedLetters};
use crate::letters::{
    ANSWER_BYTES, LetterAnswer, LetterChange, LetterChangeResult, LetterQuery, LetterSelection, LetterTotals,
    StoredLetter, refused, weight,
};
use crate::request::unavailable;
use crate::tables::WriteFailure;

/// (Pipeline, number) -> dead letter.
const LETTERS: TableDefinition<'_, (&str, u64), &[u8]> = TableDefinition::new("letters");
/// (Pipeline, key of the name) -> number.
const NAMES: TableDefinition<'_, (&str, &[u8]), u64> = TableDefinition::new("letter_names");
/// (Pipeline, time of the first failure, number): dead letters by age.
const AGES: TableDefinition<'_, (&str, u64, u64), ()> = TableDefinition::new("letter_ages");
/// Pipeline -> next number, number of dead letters, their bytes, number of evicted dead letters.
const TOTALS: TableDefinition<'_, &str, (u64, u64, u64, u64)> = TableDefinition::new("letter_totals");

/// Changes the dead letters of a pipeline. O(dead letters concerned × log all).
pub(super) fn change(
    transaction: &WriteTransaction,
    pipeline: &str,
    change: LetterChange,
) -> Result<LetterChangeResult, WriteFailure> {
    let mut tables = LetterTables::open(transaction, pipeline)?;
    let mut changed = LetterChangeResult::default();
    match change {
        LetterChange::Keep { letters, bounds, oldest } => {
            changed.removed = tables.remove_before(oldest)?;
            for letter in letters {
                if tables.names.get((pipeline, &letter.key[..]))?.is_none() {
                    changed.full = refused(&bounds, tables.count, tables.bytes, weight(letter.encoded_len()));
                }
                if changed.full.is_some() {
                    break;
                }
                tables.put(None, letter)?;
                changed.kept += 1;
            }
            if bounds.full == WhenFull::DropOldest {
                while bounds.exceeded(tables.count, tables.bytes).is_some()
                    && let Some(oldest) = tables.oldest()?
                {
                    tables.remove(oldest)?;
                    changed.removed += 1;
                }
            }
            tables.evicted += changed.removed;
        }
        LetterChange::Settle(settled) => {
            for one in settled {
                let mut copies = one.copies.into_iter();
                match copies.next() {
                    Some(first) => tables.put(Some(one.number), first)?,
                    None => drop(tables.remove(one.number)?),
                }
                for copy in copies {
                    tables.put(None, copy)?;
                }
            }
        }
        LetterChange::Remove(LetterSelection::Numbers(numbers)) => {
            for number in numbers {
                changed.removed += u64::from(tables.remove(number)?);
            }
        }
        LetterChange::Remove(LetterSelection::All) => {
            while let Some(oldest) = tables.oldest()? {
                tables.remove(oldest)?;
                changed.removed += 1;
            }
        }
        LetterChange::Remove(LetterSelection::Before(first)) => changed.removed = tables.remove_before(first)?,
    }
    tables.close()?;
    Ok(changed)
}

/// The dead letters of one pipeline during a change.
struct LetterTables<'t> {
    pipeline: &'t str,
    letters: Table<'t, (&'static str, u64), &'static [u8]>,
    names: Table<'t, (&'static str, &'static [u8]), u64>,
    ages: Table<'t, (&'static str, u64, u64), ()>,
    totals: Table<'t, &'static str, (u64, u64, u64, u64)>,
    next: u64,
    count: u64,
    bytes: u64,
    evicted: u64,
}

impl<'t> LetterTables<'t> {
    fn open(transaction: &'t WriteTransaction, pipeline: &'t str) -> Result<Self, WriteFailure> {
        let totals = transaction.open_table(TOTALS)?;
        let (next, count, bytes, evicted) = totals.get(pipeline)?.map_or((1, 0, 0, 0), |totals| totals.value());
        let letters = transaction.open_table(LETTERS)?;
        let names = transaction.open_table(NAMES)?;
        let ages = transaction.open_table(AGES)?;
        let mut tables = LetterTables { pipeline, letters, names, ages, totals, next, count, bytes, evicted };
        tables.index_ages()?;
        Ok(tables)
    }

    /// Indexes dead letters that an earlier version without this index stored. O(dead letters), once.
    fn index_ages(&mut self) -> Result<(), WriteFailure> {
        if self.count == 0 || self.ages.range(of(self.pipeline))?.next().is_some() {
            return Ok(());
        }
        for entry in self.letters.range((self.pipeline, 0)..=(self.pipeline, u64::MAX))? {
            let (key, value) = entry?;
            let letter = StoredLetter::decode(value.value()).map_err(WriteFailure::Alone)?;
            self.ages.insert((self.pipeline, letter.first, key.value().1), ())?;
        }
        Ok(())
    }

    fn close(mut self) -> Result<(), WriteFailure> {
        self.totals.insert(self.pipeline, (self.next, self.count, self.bytes, self.evicted))?;
        Ok(())
    }

    /// Stores a dead letter: replaces the one with its name, otherwise the one with number `at`, otherwise appends it.
    fn put(&mut self, at: Option<u64>, mut letter: StoredLetter) -> Result<(), WriteFailure> {
        let named = self.names.get((self.pipeline, &letter.key[..]))?.map(|number| number.value());
        let number = match (named, at) {
            (Some(named), _) => {
                if at != Some(named)
                    && let Some(before) = self.letter(named)?
                {
                    letter.succeed(before.first, before.attempts);
                }
                named
            }
            (None, Some(at)) if self.letters.get((self.pipeline, at))?.is_some() => at,
            (None, _) => self.next,
        };
        self.next = self.next.max(number + 1);
        self.remove(number)?;
        let encoded = letter.encode();
        self.letters.insert((self.pipeline, number), &encoded[..])?;
        self.names.insert((self.pipeline, &letter.key[..]), number)?;
        self.ages.insert((self.pipeline, letter.first, number), ())?;
        self.count += 1;
        self.bytes += weight(encoded.len());
        Ok(())
    }

    fn letter(&self, number: u64) -> Result<Option<StoredLetter>, WriteFailure> {
        let found = self.letters.get((self.pipeline, number))?;
        found.map(|found| StoredLetter::decode(found.value()).map_err(WriteFailure::Alone)).transpose()
    }

    /// Removes a dead letter. Returns `true` if it existed.
    fn remove(&mut self, number: u64) -> Result<bool, WriteFailure> {
        let Some(removed) = self.letters.remove((self.pipeline, number))?.map(|found| found.value().to_vec()) else {
            return Ok(false);
        };
        let letter = StoredLetter::decode(&removed).map_err(WriteFailure::Alone)?;
        self.names.remove((self.pipeline, &letter.key[..]))?;
        self.ages.remove((self.pipeline, letter.first, number))?;
        self.count = self.count.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(weight(removed.len()));
        Ok(true)
    }

    /// Returns the lowest number.
    fn oldest(&self) -> Result<Option<u64>, WriteFailure> {
        let mut all = self.letters.range((self.pipeline, 0)..=(self.pipeline, u64::MAX))?;
        Ok(all.next().transpose()?.map(|(key, _)| key.value().1))
    }

    /// Removes dead letters that first failed before `first`. Returns their number.
    fn remove_before(&mut self, first: u64) -> Result<u64, WriteFailure> {
        let mut numbers = Vec::new();
        for entry in self.ages.range((self.pipeline, 0, 0)..(self.pipeline, first, 0))? {
            numbers.push(entry?.0.value().2);
        }
        let mut removed = 0;
        for number in numbers {
            removed += u64::from(self.remove(number)?);
        }
        Ok(removed)
    }
}

/// Returns the range of all ages of the dead letters of a pipeline.
fn of(pipeline: &str) -> RangeInclusive<(&str, u64, u64)> {
    (pipeline, 0, 0)..=(pipeline, u64::MAX, u64::MAX)
}

pub(super) fn answer(
    transaction: &ReadTransaction,
    pipeline: &str,
    question: &LetterQuery,
) -> Result<LetterAnswer, StoreError> {
    let Some(table) = table(transaction, LETTERS)? else {
        return Ok(match question {
            LetterQuery::Totals => LetterAnswer::Totals(LetterTotals::default()),
            LetterQuery::Below { .. } | LetterQuery::Numbers(_) => LetterAnswer::Letters(Vec::new()),
        });
    };
    let mut found = Vec::new();
    let mut bytes = 0;
    let mut take = |number: u64, value: &[u8]| -> Result<bool, StoreError> {
        found.push((number, StoredLetter::decode(value)?));
        bytes += value.len();
        Ok(bytes < ANSWER_BYTES)
    };
    match question {
        LetterQuery::Below { number, most } => {
            let all = table.range((pipeline, 0)..(pipeline, *number)).map_err(unavailable)?;
            for entry in all.rev().take(*most) {
                let (key, value) = entry.map_err(unavailable)?;
                if !take(key.value().1, value.value())? {
                    break;
                }
            }
        }
        LetterQuery::Numbers(numbers) => {
            for number in numbers {
                let value = table.get((pipeline, *number)).map_err(unavailable)?;
                if let Some(value) = value
                    && !take(*number, value.value())?
                {
                    break;
                }
            }
        }
        LetterQuery::Totals => {
            let mut totals = LetterTotals::default();
            if let Some(all) = self::table(transaction, TOTALS)?
                && let Some(known) = all.get(pipeline).map_err(unavailable)?
            {
                (_, totals.count, totals.bytes, totals.evicted) = known.value();
            }
            if let Some(ages) = self::table(transaction, AGES)? {
                let oldest = ages.range(of(pipeline)).map_err(unavailable)?.next();
                totals.oldest = oldest.transpose().map_err(unavailable)?.map(|(key, _)| key.value().1);
            }
            // An earlier version without the index of ages stored these dead letters.
            if totals.oldest.is_none() && totals.count > 0 {
                for entry in table.range((pipeline, 0)..=(pipeline, u64::MAX)).map_err(unavailable)? {
                    let (_, value) = entry.map_err(unavailable)?;
                    let first = StoredLetter::decode(value.value())?.first;
                    totals.oldest = Some(totals.oldest.map_or(first, |oldest| oldest.min(first)));
                }
            }
            return Ok(LetterAnswer::Totals(totals));
        }
    }
    Ok(LetterAnswer::Letters(found))
}

/// Returns the numbers of the queues of all pipelines.
pub(super) fn counters(transaction: &ReadTransaction) -> Result<BTreeMap<Str, LetterCounter>, StoreError> {
    let mut counters = BTreeMap::new();
    each(transaction, TOTALS, |pipeline, (next, count, bytes, evicted)| {
        counters.insert(pipeline.into(), LetterCounter { next, count, bytes, evicted });
        Ok(())
    })?;
    Ok(counters)
}

/// Sets the numbers of queues.
pub(super) fn put_counters(
    transaction: &WriteTransaction,
    counters: &BTreeMap<Str, LetterCounter>,
) -> Result<(), WriteFailure> {
    let mut totals = transaction.open_table(TOTALS)?;
    for (pipeline, LetterCounter { next, count, bytes, evicted }) in counters {
        totals.insert(pipeline.as_str(), (*next, *count, *bytes, *evicted))?;
    }
    Ok(())
}

/// Adds dead letters that were copied, with their numbers. Does not count them.
pub(super) fn put_copies(
    transaction: &WriteTransaction,
    pipeline: &str,
    copies: &NumberedLetters,
) -> Result<(), WriteFailure> {
    let mut letters = transaction.open_table(LETTERS)?;
    let mut names = transaction.open_table(NAMES)?;
    let mut ages = transaction.open_table(AGES)?;
    for (number, letter) in copies {
        letters.insert((pipeline, *number), &letter.encode()[..])?;
        names.insert((pipeline, &letter.key[..]), number)?;
        ages.insert((pipeline, letter.first, *number), ())?;
    }
    Ok(())
}

pub(super) fn table<K: redb::Key + 'static, V: Value + 'static>(
    transaction: &ReadTransaction,
    definition: TableDefinition<'_, K, V>,
) -> Result<Option<ReadOnlyTable<K, V>>, StoreError> {
    match transaction.open_table(definition) {
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        other => other.map(Some).map_err(unavailable),
    }
}
