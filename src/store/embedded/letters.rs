//! Dead letters in the file: by pipeline and number, with an index by name.

use anabranch_graph::letter::LetterBounds;
use anabranch_graph::state::StoreError;
use redb::{
    ReadOnlyTable, ReadTransaction, ReadableTable as _, Table, TableDefinition, TableError, Value, WriteTransaction,
};

use super::Failed;
use crate::store::letters::{ANSWER_BYTES, Answer, Change, LetterTotals, Question, StoredLetter, Which, weight};
use crate::store::unavailable;

/// (Pipeline, number) -> letter.
const LETTERS: TableDefinition<'_, (&str, u64), &[u8]> = TableDefinition::new("letters");
/// (Pipeline, key of the name) -> number.
const NAMES: TableDefinition<'_, (&str, &[u8]), u64> = TableDefinition::new("letter_names");
/// Pipeline -> next number, letters, their bytes, letters that were dropped.
const TOTALS: TableDefinition<'_, &str, (u64, u64, u64, u64)> = TableDefinition::new("letter_totals");

/// Changes the letters of a pipeline; says how many were dropped or removed. O(letters concerned × log all).
pub(super) fn change(transaction: &WriteTransaction, pipeline: &str, change: Change) -> Result<u64, Failed> {
    let mut shelf = Shelf::open(transaction, pipeline)?;
    let gone = match change {
        Change::Keep { letters, bounds, oldest } => {
            for letter in letters {
                shelf.put(None, letter)?;
            }
            let dropped = shelf.bound(&bounds, oldest)?;
            shelf.dropped += dropped;
            dropped
        }
        Change::Settle(settled) => {
            for one in settled {
                let mut copies = one.copies.into_iter();
                match copies.next() {
                    Some(first) => shelf.put(Some(one.number), first)?,
                    None => drop(shelf.remove(one.number)?),
                }
                for copy in copies {
                    shelf.put(None, copy)?;
                }
            }
            0
        }
        Change::Remove(which) => {
            let numbers = match which {
                Which::Numbers(numbers) => numbers,
                Which::All => shelf.numbers(|_| true)?,
                Which::Before(first) => shelf.numbers(|letter| letter.first < first)?,
            };
            let mut removed = 0;
            for number in numbers {
                removed += u64::from(shelf.remove(number)?.is_some());
            }
            removed
        }
    };
    shelf.close()?;
    Ok(gone)
}

/// The letters of one pipeline, while they are changed.
struct Shelf<'t> {
    pipeline: &'t str,
    letters: Table<'t, (&'static str, u64), &'static [u8]>,
    names: Table<'t, (&'static str, &'static [u8]), u64>,
    totals: Table<'t, &'static str, (u64, u64, u64, u64)>,
    next: u64,
    count: u64,
    bytes: u64,
    dropped: u64,
}

impl<'t> Shelf<'t> {
    fn open(transaction: &'t WriteTransaction, pipeline: &'t str) -> Result<Self, Failed> {
        let totals = transaction.open_table(TOTALS)?;
        let (next, count, bytes, dropped) = totals.get(pipeline)?.map_or((1, 0, 0, 0), |totals| totals.value());
        let letters = transaction.open_table(LETTERS)?;
        let names = transaction.open_table(NAMES)?;
        Ok(Shelf { pipeline, letters, names, totals, next, count, bytes, dropped })
    }

    fn close(mut self) -> Result<(), Failed> {
        self.totals.insert(self.pipeline, (self.next, self.count, self.bytes, self.dropped))?;
        Ok(())
    }

    /// Puts a letter where the one with its name is, else at the number if there is a letter, else behind all.
    fn put(&mut self, at: Option<u64>, mut letter: StoredLetter) -> Result<(), Failed> {
        let named = self.names.get((self.pipeline, &letter.key[..]))?.map(|number| number.value());
        let number = match (named, at) {
            (Some(named), _) => {
                if at != Some(named)
                    && let Some(before) = self.letter(named)?
                {
                    letter.succeed(&before);
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
        self.count += 1;
        self.bytes += weight(encoded.len());
        Ok(())
    }

    fn letter(&self, number: u64) -> Result<Option<StoredLetter>, Failed> {
        let found = self.letters.get((self.pipeline, number))?;
        found.map(|found| StoredLetter::decode(found.value()).map_err(Failed::Alone)).transpose()
    }

    /// Removes a letter; gives its bytes.
    fn remove(&mut self, number: u64) -> Result<Option<usize>, Failed> {
        let Some(removed) = self.letters.remove((self.pipeline, number))?.map(|found| found.value().to_vec()) else {
            return Ok(None);
        };
        let letter = StoredLetter::decode(&removed).map_err(Failed::Alone)?;
        self.names.remove((self.pipeline, &letter.key[..]))?;
        self.count = self.count.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(weight(removed.len()));
        Ok(Some(removed.len()))
    }

    fn oldest(&self) -> Result<Option<(u64, u64)>, Failed> {
        let mut all = self.letters.range((self.pipeline, 0)..=(self.pipeline, u64::MAX))?;
        let Some(entry) = all.next() else { return Ok(None) };
        let (key, value) = entry?;
        let letter = StoredLetter::decode(value.value()).map_err(Failed::Alone)?;
        Ok(Some((key.value().1, letter.first)))
    }

    /// Lets the oldest go; the newest stays whatever its size.
    fn bound(&mut self, bounds: &LetterBounds, oldest: u64) -> Result<u64, Failed> {
        let mut dropped = 0;
        while let Some((number, first)) = self.oldest()? {
            let too_many = self.count > 1 && (self.count > bounds.count || self.bytes > bounds.bytes);
            if !too_many && first >= oldest {
                break;
            }
            self.remove(number)?;
            dropped += 1;
        }
        Ok(dropped)
    }

    fn numbers(&self, wanted: impl Fn(&StoredLetter) -> bool) -> Result<Vec<u64>, Failed> {
        let mut numbers = Vec::new();
        for entry in self.letters.range((self.pipeline, 0)..=(self.pipeline, u64::MAX))? {
            let (key, value) = entry?;
            if wanted(&StoredLetter::decode(value.value()).map_err(Failed::Alone)?) {
                numbers.push(key.value().1);
            }
        }
        Ok(numbers)
    }
}

pub(super) fn answer(transaction: &ReadTransaction, pipeline: &str, question: &Question) -> Result<Answer, StoreError> {
    let Some(table) = table(transaction, LETTERS)? else {
        return Ok(match question {
            Question::Totals => Answer::Totals(LetterTotals::default()),
            Question::Below { .. } | Question::Numbers(_) => Answer::Letters(Vec::new()),
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
        Question::Below { number, most } => {
            let all = table.range((pipeline, 0)..(pipeline, *number)).map_err(unavailable)?;
            for entry in all.rev().take(*most) {
                let (key, value) = entry.map_err(unavailable)?;
                if !take(key.value().1, value.value())? {
                    break;
                }
            }
        }
        Question::Numbers(numbers) => {
            for number in numbers {
                let value = table.get((pipeline, *number)).map_err(unavailable)?;
                if let Some(value) = value
                    && !take(*number, value.value())?
                {
                    break;
                }
            }
        }
        Question::Totals => {
            let mut totals = LetterTotals::default();
            if let Some(all) = self::table(transaction, TOTALS)?
                && let Some(known) = all.get(pipeline).map_err(unavailable)?
            {
                (_, totals.count, totals.bytes, totals.dropped) = known.value();
            }
            let mut all = table.range((pipeline, 0)..=(pipeline, u64::MAX)).map_err(unavailable)?;
            if let Some(entry) = all.next() {
                let (_, value) = entry.map_err(unavailable)?;
                totals.oldest = Some(StoredLetter::decode(value.value())?.first);
            }
            return Ok(Answer::Totals(totals));
        }
    }
    Ok(Answer::Letters(found))
}

fn table<K: redb::Key + 'static, V: Value + 'static>(
    transaction: &ReadTransaction,
    definition: TableDefinition<'_, K, V>,
) -> Result<Option<ReadOnlyTable<K, V>>, StoreError> {
    match transaction.open_table(definition) {
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        other => other.map(Some).map_err(unavailable),
    }
}
