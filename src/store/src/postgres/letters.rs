//! Dead letters in a separate table, which is created when the first one is stored.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anabranch_plugin::letter::{LetterBounds, WhenFull};
use anabranch_plugin::state::StoreError;

use super::session::{Client, Failure as Error, Parameter, Transaction};
use super::table::{KEY, Table, unsigned};
use crate::contents::{LetterCounter, NumberedLetters};
use crate::letters::{
    ANSWER_BYTES, LetterAnswer, LetterChange, LetterChangeResult, LetterKey, LetterQuery, LetterSelection,
    LetterTotals, StoredLetter, refused, weight,
};
use crate::request::{ReadResult, WriteResult};

/// Kind of the rows with the next dead letter number of a pipeline, the number of evicted dead letters, and the totals.
pub(super) const COUNTER: &str = "letters";

/// A reply of the database: the outer error is its own, the inner one concerns the stored data.
type Reply<T> = Result<Result<T, StoreError>, Error>;

/// Returns the value, or ends the function with the error of a damaged store.
macro_rules! understood {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(error) => return Ok(Err(error)),
        }
    };
}

impl Table {
    /// Changes the dead letters of a pipeline. The number of statements does not depend on the number of dead letters.
    pub(super) async fn change_letters(
        &self,
        transaction: &Transaction<'_>,
        pipeline: &str,
        change: &LetterChange,
    ) -> Reply<WriteResult> {
        self.make_letters(transaction).await?;
        let mut changes = LetterChanges::lock(self, transaction, pipeline).await?;
        let mut changed = LetterChangeResult::default();
        match change {
            LetterChange::Keep { letters, bounds, oldest } => {
                if *oldest > 0 {
                    changed.removed = changes.remove_where(transaction, "first < $2", &signed(*oldest)).await?;
                }
                understood!(changes.look_up(transaction, letters, &[]).await?);
                for letter in letters {
                    if !changes.names.contains_key(&letter.key) {
                        changed.full = refused(bounds, changes.count, changes.bytes, weight(letter.encoded_len()));
                    }
                    if changed.full.is_some() {
                        break;
                    }
                    changes.put(None, letter);
                    changed.kept += 1;
                }
                changes.flush(transaction).await?;
                if bounds.full == WhenFull::DropOldest {
                    changed.removed += changes.drop_oldest(transaction, bounds).await?;
                }
                changes.evicted += changed.removed;
            }
            LetterChange::Settle(settled) => {
                let copies: Vec<StoredLetter> = settled.iter().flat_map(|one| one.copies.iter().cloned()).collect();
                let numbers: Vec<u64> = settled.iter().map(|one| one.number).collect();
                understood!(changes.look_up(transaction, &copies, &numbers).await?);
                for one in settled {
                    match one.copies.split_first() {
                        None => changes.remove(one.number),
                        Some((first, others)) => {
                            changes.put(Some(one.number), first);
                            others.iter().for_each(|copy| changes.put(None, copy));
                        }
                    }
                }
                changes.flush(transaction).await?;
            }
            LetterChange::Remove(LetterSelection::All) => {
                changed.removed = changes.remove_where(transaction, "number >= $2", &0i64).await?;
            }
            LetterChange::Remove(LetterSelection::Numbers(numbers)) => {
                let numbers: Vec<i64> = numbers.iter().map(|number| signed(*number)).collect();
                changed.removed = changes.remove_where(transaction, "number = ANY($2)", &numbers).await?;
            }
            LetterChange::Remove(LetterSelection::Before(first)) => {
                changed.removed = changes.remove_where(transaction, "first < $2", &signed(*first)).await?;
            }
        }
        changes.close(transaction).await?;
        Ok(Ok(WriteResult::Letters(changed)))
    }

    /// Answers a query; if the table does not exist, there are no dead letters.
    pub(super) async fn answer_letters(
        &self,
        client: &Client,
        pipeline: &str,
        question: &LetterQuery,
    ) -> Reply<ReadResult> {
        let there = client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&self.letters]).await?.get::<_, bool>(0);
        let letters = &self.letters;
        if let LetterQuery::Totals = question {
            let sql = format!("SELECT value FROM {} WHERE kind = '{COUNTER}' AND pipeline = $1", self.state);
            let counter = client.query_opt(&sql, &[&pipeline]).await?;
            let counter = counter.map(|row| Counter::decode(row.get(0))).unwrap_or_default();
            let mut totals = LetterTotals { evicted: counter.evicted, ..LetterTotals::default() };
            if there {
                let sql = format!(
                    "SELECT count(*), coalesce(sum(octet_length(value) + 64), 0)::bigint, min(first) FROM {letters} \
                     WHERE pipeline = $1"
                );
                let row = client.query_one(&sql, &[&pipeline]).await?;
                (totals.count, totals.bytes) = (unsigned(row.get(0)), unsigned(row.get(1)));
                totals.oldest = row.get::<_, Option<i64>>(2).map(unsigned);
            }
            return Ok(Ok(ReadResult::Letters(LetterAnswer::Totals(totals))));
        }
        let mut found = Vec::new();
        if !there {
            return Ok(Ok(ReadResult::Letters(LetterAnswer::Letters(found))));
        }
        // Queries the sizes first: dead letters may be large, and the answer is limited in bytes.
        let (numbers, sizes): (Vec<i64>, Vec<i32>) = match question {
            LetterQuery::Totals => (Vec::new(), Vec::new()),
            LetterQuery::Below { number, most } => {
                let sql = format!(
                    "SELECT number, octet_length(value) FROM {letters} WHERE pipeline = $1 AND number < $2 \
                     ORDER BY number DESC LIMIT $3"
                );
                let most = i64::try_from(*most).unwrap_or(i64::MAX);
                let rows = client.query(&sql, &[&pipeline, &signed(*number), &most]).await?;
                rows.iter().map(|row| (row.get::<_, i64>(0), row.get::<_, i32>(1))).unzip()
            }
            LetterQuery::Numbers(numbers) => {
                let sql = format!(
                    "SELECT number, octet_length(value) FROM {letters} WHERE pipeline = $1 AND number = ANY($2)"
                );
                let wanted: Vec<i64> = numbers.iter().map(|number| signed(*number)).collect();
                let rows = client.query(&sql, &[&pipeline, &wanted]).await?;
                let sizes: BTreeMap<i64, i32> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
                wanted.into_iter().filter_map(|number| Some((number, *sizes.get(&number)?))).unzip()
            }
        };
        let mut bytes = 0;
        let fits = sizes.iter().take_while(|size| {
            let fits = bytes < ANSWER_BYTES;
            bytes += usize::try_from(**size).unwrap_or(0);
            fits
        });
        let numbers = &numbers[..fits.count()];
        let sql = format!("SELECT number, value FROM {letters} WHERE pipeline = $1 AND number = ANY($2)");
        let rows = client.query(&sql, &[&pipeline, &numbers]).await?;
        let values: BTreeMap<i64, &[u8]> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        for number in numbers {
            if let Some(value) = values.get(number) {
                found.push((unsigned(*number), understood!(StoredLetter::decode(value))));
            }
        }
        Ok(Ok(ReadResult::Letters(LetterAnswer::Letters(found))))
    }

    /// Adds dead letters that were copied, with their numbers. Does not count them.
    pub(super) async fn put_copies(
        &self,
        transaction: &Transaction<'_>,
        pipeline: &str,
        copies: &NumberedLetters,
    ) -> Result<(), Error> {
        self.make_letters(transaction).await?;
        let letters = copies.iter().map(|(number, letter)| (*number, letter));
        // If the answer to the commit is lost, the rows are written again.
        self.insert_letters(transaction, pipeline, letters, " ON CONFLICT DO NOTHING").await
    }

    async fn insert_letters(
        &self,
        transaction: &Transaction<'_>,
        pipeline: &str,
        letters: impl Iterator<Item = (u64, &StoredLetter)>,
        on_conflict: &str,
    ) -> Result<(), Error> {
        let sql = format!(
            "INSERT INTO {} SELECT $1, number, name, first, value \
             FROM unnest($2::bigint[], $3::bytea[], $4::bigint[], $5::bytea[]) AS put (number, name, first, value){on_conflict}",
            self.letters
        );
        let mut puts = letters.peekable();
        while puts.peek().is_some() {
            let (mut numbers, mut names, mut firsts, mut values) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
            let mut bytes = 0;
            while bytes < STATEMENT_BYTES
                && let Some((number, letter)) = puts.next()
            {
                let value = letter.encode();
                bytes += value.len();
                numbers.push(signed(number));
                names.push(letter.key.to_vec());
                firsts.push(signed(letter.first));
                values.push(value);
            }
            transaction.execute(&sql, &[&pipeline, &numbers, &names, &firsts, &values]).await?;
        }
        Ok(())
    }

    async fn make_letters(&self, transaction: &Transaction<'_>) -> Result<(), Error> {
        let there = "SELECT to_regclass($1) IS NOT NULL";
        if transaction.query_one(there, &[&self.letters]).await?.get::<_, bool>(0) {
            return Ok(());
        }
        // If two processes arrive at the same time, one of them creates the table.
        transaction.execute("SELECT pg_advisory_xact_lock(hashtext($1))", &[&self.letters]).await?;
        if transaction.query_one(there, &[&self.letters]).await?.get::<_, bool>(0) {
            return Ok(());
        }
        let make = format!(
            "CREATE TABLE {0} (pipeline text NOT NULL, number bigint NOT NULL, name bytea NOT NULL, \
             first bigint NOT NULL, value bytea NOT NULL, PRIMARY KEY (pipeline, number), UNIQUE (pipeline, name));\
             CREATE INDEX ON {0} (pipeline, first)",
            self.letters
        );
        transaction.batch_execute(&make).await
    }
}

/// Content of the counter row, without the next number.
#[derive(Clone, Copy, Default)]
struct Counter {
    evicted: u64,
    /// Number of dead letters and their bytes; `None` if an earlier version wrote the row, which did not count them.
    held: Option<(u64, u64)>,
}

impl Counter {
    /// Decodes eight bytes per number, the most significant first: evicted, dead letters, bytes.
    fn decode(bytes: &[u8]) -> Counter {
        let mut numbers = bytes.chunks_exact(8).filter_map(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes);
        let evicted = numbers.next().unwrap_or(0);
        Counter { evicted, held: numbers.next().zip(numbers.next()) }
    }

    fn encode(evicted: u64, count: u64, bytes: u64) -> Vec<u8> {
        [evicted, count, bytes].iter().flat_map(|number| number.to_be_bytes()).collect()
    }
}

/// Decodes the row of a counter. A row of an earlier version does not count the dead letters.
pub(super) fn counter(next: i64, value: &[u8]) -> LetterCounter {
    let Counter { evicted, held } = Counter::decode(value);
    let (count, bytes) = held.unwrap_or_default();
    LetterCounter { next: unsigned(next), count, bytes, evicted }
}

/// Returns the value of the row of a counter.
pub(super) fn counter_value(counter: &LetterCounter) -> Vec<u8> {
    Counter::encode(counter.evicted, counter.count, counter.bytes)
}

/// The fields of a stored dead letter without its content.
struct Head {
    key: LetterKey,
    first: u64,
    attempts: u32,
    weight: u64,
}

/// The dead letters of one pipeline during a change: the dead letters concerned are read together, changed in memory
/// and written together.
struct LetterChanges<'t> {
    table: &'t Table,
    pipeline: &'t str,
    next: u64,
    count: u64,
    bytes: u64,
    evicted: u64,
    /// Dead letters that were read or are to be written, by number and by name.
    known: BTreeMap<u64, Head>,
    names: HashMap<LetterKey, u64>,
    puts: BTreeMap<u64, StoredLetter>,
    /// Numbers of rows to delete, including rows that are written again.
    gone: BTreeSet<u64>,
}

/// Number of rows that are read together to find the oldest ones to evict.
const OLDEST: i64 = 1000;
/// Maximum bytes of dead letters in one statement: after this, no dead letter is added.
const STATEMENT_BYTES: usize = 8 << 20;

impl<'t> LetterChanges<'t> {
    /// Locks the dead letters of the pipeline until the transaction ends.
    async fn lock(
        table: &'t Table,
        transaction: &Transaction<'_>,
        pipeline: &'t str,
    ) -> Result<LetterChanges<'t>, Error> {
        let sql = format!(
            "INSERT INTO {0} AS t VALUES ('{COUNTER}', $1, '', '', 1, '') \
             ON CONFLICT ({KEY}) DO UPDATE SET number = t.number RETURNING number, value",
            table.state
        );
        let row = transaction.query_one(&sql, &[&pipeline]).await?;
        let (next, counter) = (unsigned(row.get(0)), Counter::decode(row.get(1)));
        let (count, bytes) = match counter.held {
            Some(held) => held,
            None => {
                let head = signed(weight(0));
                let sql = format!(
                    "SELECT count(*), coalesce(sum(octet_length(value) + {head}), 0)::bigint FROM {} \
                     WHERE pipeline = $1",
                    table.letters
                );
                let row = transaction.query_one(&sql, &[&pipeline]).await?;
                (unsigned(row.get(0)), unsigned(row.get(1)))
            }
        };
        Ok(LetterChanges {
            table,
            pipeline,
            next,
            count,
            bytes,
            evicted: counter.evicted,
            known: BTreeMap::new(),
            names: HashMap::new(),
            puts: BTreeMap::new(),
            gone: BTreeSet::new(),
        })
    }

    /// Reads the dead letters with the names of `named` and those with the given numbers.
    async fn look_up(&mut self, transaction: &Transaction<'_>, named: &[StoredLetter], numbers: &[u64]) -> Reply<()> {
        if named.is_empty() && numbers.is_empty() {
            return Ok(Ok(()));
        }
        let sql = format!(
            "SELECT number, substring(value FROM 1 FOR {}), octet_length(value) FROM {} \
             WHERE pipeline = $1 AND (name = ANY($2) OR number = ANY($3))",
            StoredLetter::HEAD,
            self.table.letters
        );
        let names: Vec<&[u8]> = named.iter().map(|letter| &letter.key[..]).collect();
        let numbers: Vec<i64> = numbers.iter().map(|number| signed(*number)).collect();
        for row in transaction.query(&sql, &[&self.pipeline, &names, &numbers]).await? {
            let number = unsigned(row.get(0));
            let StoredLetter { first, attempts, key, .. } = understood!(StoredLetter::decode(row.get(1)));
            let weight = weight(usize::try_from(row.get::<_, i32>(2)).unwrap_or(0));
            self.names.insert(key, number);
            self.known.insert(number, Head { key, first, attempts, weight });
        }
        Ok(Ok(()))
    }

    /// Stores a dead letter: replaces the one with its name, otherwise the one with number `at`, otherwise appends it.
    fn put(&mut self, at: Option<u64>, letter: &StoredLetter) {
        let mut letter = letter.clone();
        let number = match (self.names.get(&letter.key).copied(), at) {
            (Some(named), _) => {
                if let Some(before) = self.known.get(&named).filter(|_| at != Some(named)) {
                    letter.succeed(before.first, before.attempts);
                }
                named
            }
            (None, Some(at)) if self.known.contains_key(&at) => at,
            (None, _) => self.next,
        };
        self.next = self.next.max(number + 1);
        self.remove(number);
        let StoredLetter { first, attempts, key, .. } = letter;
        let weight = weight(letter.encoded_len());
        self.names.insert(key, number);
        self.known.insert(number, Head { key, first, attempts, weight });
        self.count += 1;
        self.bytes += weight;
        self.puts.insert(number, letter);
    }

    fn remove(&mut self, number: u64) {
        let Some(head) = self.known.remove(&number) else { return };
        self.names.remove(&head.key);
        self.count = self.count.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(head.weight);
        if self.puts.remove(&number).is_none() {
            self.gone.insert(number);
        }
    }

    /// Writes all pending changes.
    async fn flush(&mut self, transaction: &Transaction<'_>) -> Result<(), Error> {
        if !self.gone.is_empty() {
            let gone: Vec<i64> = std::mem::take(&mut self.gone).into_iter().map(signed).collect();
            let sql = format!("DELETE FROM {} WHERE pipeline = $1 AND number = ANY($2)", self.table.letters);
            transaction.execute(&sql, &[&self.pipeline, &gone]).await?;
        }
        let puts = std::mem::take(&mut self.puts);
        let puts = puts.iter().map(|(number, letter)| (*number, letter));
        self.table.insert_letters(transaction, self.pipeline, puts, "").await
    }

    /// Removes the oldest dead letters beyond the limits. Returns their number.
    async fn drop_oldest(&mut self, transaction: &Transaction<'_>, bounds: &LetterBounds) -> Result<u64, Error> {
        let letters = &self.table.letters;
        let mut dropped = 0;
        while bounds.exceeded(self.count, self.bytes).is_some() {
            let sql = format!(
                "SELECT number, octet_length(value) FROM {letters} WHERE pipeline = $1 ORDER BY number LIMIT {OLDEST}"
            );
            let rows = transaction.query(&sql, &[&self.pipeline]).await?;
            let (mut count, mut bytes, mut numbers) = (self.count, self.bytes, Vec::new());
            for row in &rows {
                if bounds.exceeded(count, bytes).is_none() {
                    break;
                }
                numbers.push(row.get::<_, i64>(0));
                count = count.saturating_sub(1);
                bytes = bytes.saturating_sub(weight(usize::try_from(row.get::<_, i32>(1)).unwrap_or(0)));
            }
            let removed = self.remove_where(transaction, "number = ANY($2)", &numbers).await?;
            if removed == 0 {
                break;
            }
            dropped += removed;
        }
        Ok(dropped)
    }

    /// Removes the dead letters that match a condition on `$2`. Returns their number.
    async fn remove_where(
        &mut self,
        transaction: &Transaction<'_>,
        condition: &str,
        value: &dyn Parameter,
    ) -> Result<u64, Error> {
        let sql = format!(
            "WITH gone AS (DELETE FROM {} WHERE pipeline = $1 AND {condition} RETURNING octet_length(value) AS size) \
             SELECT count(*), coalesce(sum(size + {}), 0)::bigint FROM gone",
            self.table.letters,
            weight(0)
        );
        let row = transaction.query_one(&sql, &[&self.pipeline, value]).await?;
        let removed = unsigned(row.get(0));
        self.count = self.count.saturating_sub(removed);
        self.bytes = self.bytes.saturating_sub(unsigned(row.get(1)));
        Ok(removed)
    }

    async fn close(self, transaction: &Transaction<'_>) -> Result<(), Error> {
        let sql = format!(
            "UPDATE {} SET number = $2, value = $3 WHERE kind = '{COUNTER}' AND pipeline = $1",
            self.table.state
        );
        let counter = Counter::encode(self.evicted, self.count, self.bytes);
        transaction.execute(&sql, &[&self.pipeline, &signed(self.next), &counter]).await?;
        Ok(())
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
