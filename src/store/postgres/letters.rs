//! Dead letters in a table of their own, which is made when the first is kept.

use std::collections::BTreeMap;

use anabranch_graph::letter::LetterBounds;
use anabranch_graph::state::StoreError;

use super::session::{Client, Failure as Error, Transaction};
use super::table::Table;
use crate::store::letters::{ANSWER_BYTES, Answer, Change, LetterTotals, Question, StoredLetter, Which, weight};
use crate::store::{Found, Written};

/// Kind of the rows that hold the next number of a pipeline's letters, and how many were dropped.
const COUNTER: &str = "letters";

type Outcome<T> = Result<Result<T, StoreError>, Error>;

/// A change, or an end of the function with what the store holds that cannot be understood.
macro_rules! understood {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(error) => return Ok(Err(error)),
        }
    };
}

impl Table {
    /// Changes the letters of a pipeline; says how many were dropped or removed.
    pub(super) async fn change_letters(
        &self,
        transaction: &Transaction<'_>,
        pipeline: &str,
        change: &Change,
    ) -> Outcome<Written> {
        self.make_letters(transaction).await?;
        let letters = &self.letters;
        let (mut next, dropped) = self.lock_letters(transaction, pipeline).await?;
        let mut lost = 0;
        let gone = match change {
            Change::Keep { letters, bounds, oldest } => {
                for letter in letters {
                    next = understood!(self.put_letter(transaction, pipeline, next, None, letter).await?);
                }
                lost = self.bound_letters(transaction, pipeline, bounds, *oldest).await?;
                lost
            }
            Change::Settle(settled) => {
                for one in settled {
                    let (first, others) = match one.copies.split_first() {
                        Some((first, others)) => (Some(first), others),
                        None => (None, &[][..]),
                    };
                    match first {
                        None => {
                            let sql = format!("DELETE FROM {letters} WHERE pipeline = $1 AND number = $2");
                            transaction.execute(&sql, &[&pipeline, &signed(one.number)]).await?;
                        }
                        Some(first) => {
                            let at = Some(one.number);
                            next = understood!(self.put_letter(transaction, pipeline, next, at, first).await?);
                        }
                    }
                    for copy in others {
                        next = understood!(self.put_letter(transaction, pipeline, next, None, copy).await?);
                    }
                }
                0
            }
            Change::Remove(Which::All) => {
                let sql = format!("DELETE FROM {letters} WHERE pipeline = $1");
                transaction.execute(&sql, &[&pipeline]).await?
            }
            Change::Remove(Which::Numbers(numbers)) => {
                let sql = format!("DELETE FROM {letters} WHERE pipeline = $1 AND number = ANY($2)");
                let numbers: Vec<i64> = numbers.iter().map(|number| signed(*number)).collect();
                transaction.execute(&sql, &[&pipeline, &numbers]).await?
            }
            Change::Remove(Which::Before(first)) => {
                let sql = format!("DELETE FROM {letters} WHERE pipeline = $1 AND first < $2");
                transaction.execute(&sql, &[&pipeline, &signed(*first)]).await?
            }
        };
        let sql =
            format!("UPDATE {} SET number = $2, value = $3 WHERE kind = '{COUNTER}' AND pipeline = $1", self.state);
        let dropped = (dropped + lost).to_be_bytes();
        transaction.execute(&sql, &[&pipeline, &signed(next), &&dropped[..]]).await?;
        Ok(Ok(Written::Letters(gone)))
    }

    /// Answers; where there is no table yet, there is no letter.
    pub(super) async fn answer_letters(&self, client: &Client, pipeline: &str, question: &Question) -> Outcome<Found> {
        let there = client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&self.letters]).await?.get::<_, bool>(0);
        let letters = &self.letters;
        if let Question::Totals = question {
            let sql = format!("SELECT value FROM {} WHERE kind = '{COUNTER}' AND pipeline = $1", self.state);
            let counter = client.query_opt(&sql, &[&pipeline]).await?;
            let dropped = counter.map_or(0, |row| number(row.get(0)));
            let mut totals = LetterTotals { dropped, ..LetterTotals::default() };
            if there {
                let sql = format!(
                    "SELECT count(*), coalesce(sum(octet_length(value) + 64), 0)::bigint, min(first) FROM {letters} \
                     WHERE pipeline = $1"
                );
                let row = client.query_one(&sql, &[&pipeline]).await?;
                (totals.count, totals.bytes) = (unsigned(row.get(0)), unsigned(row.get(1)));
                totals.oldest = row.get::<_, Option<i64>>(2).map(unsigned);
            }
            return Ok(Ok(Found::Letters(Answer::Totals(totals))));
        }
        let mut found = Vec::new();
        if !there {
            return Ok(Ok(Found::Letters(Answer::Letters(found))));
        }
        // Numbers first: letters may be large, and only so many bytes are wanted.
        let (numbers, sizes): (Vec<i64>, Vec<i32>) = match question {
            Question::Totals => (Vec::new(), Vec::new()),
            Question::Below { number, most } => {
                let sql = format!(
                    "SELECT number, octet_length(value) FROM {letters} WHERE pipeline = $1 AND number < $2 \
                     ORDER BY number DESC LIMIT $3"
                );
                let most = i64::try_from(*most).unwrap_or(i64::MAX);
                let rows = client.query(&sql, &[&pipeline, &signed(*number), &most]).await?;
                rows.iter().map(|row| (row.get::<_, i64>(0), row.get::<_, i32>(1))).unzip()
            }
            Question::Numbers(numbers) => {
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
        Ok(Ok(Found::Letters(Answer::Letters(found))))
    }

    async fn make_letters(&self, transaction: &Transaction<'_>) -> Result<(), Error> {
        let there = "SELECT to_regclass($1) IS NOT NULL";
        if transaction.query_one(there, &[&self.letters]).await?.get::<_, bool>(0) {
            return Ok(());
        }
        // Of two processes that come at the same time, one makes it.
        transaction.execute("SELECT pg_advisory_xact_lock(hashtext($1))", &[&self.letters]).await?;
        let make = format!(
            "CREATE TABLE IF NOT EXISTS {} (pipeline text NOT NULL, number bigint NOT NULL, name bytea NOT NULL, \
             first bigint NOT NULL, value bytea NOT NULL, PRIMARY KEY (pipeline, number), UNIQUE (pipeline, name))",
            self.letters
        );
        transaction.batch_execute(&make).await
    }

    /// The next number and how many were dropped; nobody else changes letters of the pipeline until the transaction ends.
    async fn lock_letters(&self, transaction: &Transaction<'_>, pipeline: &str) -> Result<(u64, u64), Error> {
        let sql = format!(
            "INSERT INTO {0} AS t VALUES ('{COUNTER}', $1, '', '', 1, '') \
             ON CONFLICT (kind, pipeline, connector, partition) DO UPDATE SET number = t.number RETURNING number, value",
            self.state
        );
        let row = transaction.query_one(&sql, &[&pipeline]).await?;
        Ok((unsigned(row.get(0)), number(row.get(1))))
    }

    /// Puts a letter where the one with its name is, else at the number if there is a letter, else behind all. Gives the
    /// next number.
    async fn put_letter(
        &self,
        transaction: &Transaction<'_>,
        pipeline: &str,
        next: u64,
        at: Option<u64>,
        letter: &StoredLetter,
    ) -> Outcome<u64> {
        let letters = &self.letters;
        let sql = format!(
            "SELECT number, value, name = $2 FROM {letters} WHERE pipeline = $1 AND (name = $2 OR number = $3) \
             ORDER BY name = $2 DESC LIMIT 1"
        );
        let before = transaction.query_opt(&sql, &[&pipeline, &&letter.key[..], &at.map(signed)]).await?;
        let mut letter = letter.clone();
        let place = match &before {
            Some(row) => {
                let place = unsigned(row.get(0));
                if row.get::<_, bool>(2) && at != Some(place) {
                    letter.succeed(&understood!(StoredLetter::decode(row.get(1))));
                }
                place
            }
            None => next,
        };
        let sql = format!(
            "INSERT INTO {letters} VALUES ($1, $2, $3, $4, $5) ON CONFLICT (pipeline, number) DO UPDATE SET \
             name = EXCLUDED.name, first = EXCLUDED.first, value = EXCLUDED.value"
        );
        let value = letter.encode();
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
            [&pipeline, &signed(place), &&letter.key[..], &signed(letter.first), &value];
        transaction.execute(&sql, &parameters).await?;
        Ok(Ok(next.max(place + 1)))
    }

    /// Lets the oldest go; the newest stays whatever its size. O(letters of the pipeline), none of which is read.
    async fn bound_letters(
        &self,
        transaction: &Transaction<'_>,
        pipeline: &str,
        bounds: &LetterBounds,
        oldest: u64,
    ) -> Result<u64, Error> {
        let letters = &self.letters;
        let head = weight(0);
        let sql = format!(
            "DELETE FROM {letters} l USING (SELECT number, first, row_number() OVER newest AS nth, \
             sum(octet_length(value) + {head}) OVER newest AS bytes FROM {letters} WHERE pipeline = $1 \
             WINDOW newest AS (ORDER BY number DESC)) AS aged \
             WHERE l.pipeline = $1 AND l.number = aged.number \
             AND (aged.first < $4 OR (aged.nth > 1 AND (aged.nth > $2 OR aged.bytes > $3)))"
        );
        transaction.execute(&sql, &[&pipeline, &signed(bounds.count), &signed(bounds.bytes), &signed(oldest)]).await
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Eight bytes, the most significant first; none are 0.
fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_be_bytes)
}
