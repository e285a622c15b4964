//! The stored form of the tables whose rows are read beside the changes.

use anabranch_record::Position;
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::codes;

/// Version of the form.
const VERSION: u32 = 1;

/// The tables, in the order in which they are read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct StoredBackfills {
    /// Version of the form. No other position of the source has this field.
    backfills: u32,
    /// The last number of a lane.
    attempt: u32,
    pub(in super::super) tables: Vec<TableBackfill>,
}

/// The values of a key, as texts of the server.
pub(in super::super) type KeyTexts = Vec<String>;

/// What a chunk has read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Part {
    /// The next rows, up to this key.
    Until(KeyTexts),
    /// The last rows.
    Rest,
    /// Rows with these keys, again.
    Again(Vec<KeyTexts>),
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct TableBackfill {
    /// Object id.
    pub(in super::super) oid: u32,
    /// Schema and name, for the lane.
    pub(in super::super) title: Str,
    /// Number of the lane.
    pub(in super::super) attempt: u32,
    /// The columns in whose order its rows are read.
    pub(in super::super) key: Vec<Str>,
    /// The key of the last row that is read, as texts; `None` if there is none.
    #[serde(default)]
    pub(in super::super) after: Option<KeyTexts>,
    /// True if all rows are read.
    #[serde(default)]
    pub(in super::super) is_read: bool,
    /// Keys of rows that are read again: the stream has a change of each without the values that it did not change.
    #[serde(default)]
    pub(in super::super) again: Vec<KeyTexts>,
    /// Number of rows that are read.
    pub(in super::super) rows: u64,
    /// Estimated number of rows.
    pub(in super::super) total: u64,
}

impl StoredBackfills {
    /// Creates it without a table. Lanes have higher numbers than `attempt`.
    pub(in super::super) fn after(attempt: u32) -> StoredBackfills {
        StoredBackfills { backfills: VERSION, attempt, tables: Vec::new() }
    }

    /// Reads the position of the lane.
    ///
    /// # Errors
    /// It is not one of this source.
    pub(in super::super) fn decode(position: &Position) -> Result<StoredBackfills, Fault> {
        match serde_json::from_slice::<StoredBackfills>(&position.0) {
            Ok(stored) if stored.backfills == VERSION => Ok(stored),
            _ => {
                let text = "the stored list of tables to read is not one of this source";
                Err(Fault::fatal(codes::POSITION_UNKNOWN, text))
            }
        }
    }

    /// Encodes it, as the position of its lane.
    pub(in super::super) fn encode(&self) -> Position {
        Position(Bytes::from(serde_json::to_vec(self).unwrap_or_default()))
    }

    /// Adds a table, whose rows are read from the first on. If it is being read, it begins again.
    pub(super) fn add(&mut self, table: TableBackfill) {
        self.attempt += 1;
        let table = TableBackfill { attempt: self.attempt, ..table };
        match self.tables.iter_mut().find(|known| known.oid == table.oid) {
            Some(known) => *known = table,
            None => self.tables.push(table),
        }
    }

    /// Keeps the tables that `exists` knows, gives each a new lane, and returns the titles of the others.
    pub(super) fn keep(&mut self, exists: impl Fn(u32) -> bool) -> Vec<Str> {
        let (kept, gone) = std::mem::take(&mut self.tables).into_iter().partition(|table| exists(table.oid));
        self.tables = kept;
        for table in &mut self.tables {
            self.attempt += 1;
            table.attempt = self.attempt;
        }
        let gone: Vec<TableBackfill> = gone;
        gone.into_iter().map(|table| table.title).collect()
    }

    /// Notes that a part with so many rows is delivered, of which rows with the keys `again` are to be read again. Returns
    /// `true` if the table is complete.
    pub(super) fn note(&mut self, read: &TableBackfill, part: Part, rows: u64, again: Vec<KeyTexts>) -> bool {
        let is_read = |table: &TableBackfill| (table.oid, table.attempt) == (read.oid, read.attempt);
        let Some(at) = self.tables.iter().position(is_read) else { return false };
        let table = &mut self.tables[at];
        match part {
            Part::Until(key) => (table.after, table.rows) = (Some(key), table.rows + rows),
            Part::Rest => (table.is_read, table.rows) = (true, table.rows + rows),
            Part::Again(keys) => table.again.retain(|key| !keys.contains(key)),
        }
        table.read_again(again);
        let is_complete = table.is_read && table.again.is_empty();
        if is_complete {
            self.tables.remove(at);
        }
        is_complete
    }

    /// Has rows of a table that is being read be read again.
    pub(super) fn read_again(&mut self, title: &str, keys: Vec<KeyTexts>) {
        if let Some(table) = self.tables.iter_mut().find(|table| table.title == title) {
            table.read_again(keys);
        }
    }

    /// Removes a table that does not exist any more.
    pub(super) fn remove(&mut self, oid: u32) {
        self.tables.retain(|table| table.oid != oid);
    }

    /// Returns the estimated number of rows that are left.
    pub(super) fn rows_left(&self) -> u64 {
        self.tables.iter().map(|table| table.total.saturating_sub(table.rows)).sum()
    }
}

impl TableBackfill {
    /// Creates one whose rows are read from the first on.
    pub(in super::super) fn new(oid: u32, title: Str, key: Vec<Str>, total: u64) -> TableBackfill {
        TableBackfill { oid, title, attempt: 0, key, after: None, is_read: false, again: Vec::new(), rows: 0, total }
    }

    fn read_again(&mut self, keys: Vec<KeyTexts>) {
        for key in keys {
            if !self.again.contains(&key) {
                self.again.push(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(oid: u32) -> TableBackfill {
        TableBackfill::new(oid, format!("public.t{oid}").into(), vec!["id".into()], 100)
    }

    fn key(id: &str) -> KeyTexts {
        vec![id.to_owned()]
    }

    #[test]
    fn tables_are_read_in_order_and_survive() {
        let mut stored = StoredBackfills::after(7);
        stored.add(table(1));
        stored.add(table(2));
        let first = stored.tables[0].clone();
        assert_eq!((first.attempt, stored.rows_left()), (8, 200));
        assert!(!stored.note(&first, Part::Until(key("40")), 40, Vec::new()));
        assert_eq!(stored.rows_left(), 160);
        let mut resumed = StoredBackfills::decode(&stored.encode()).unwrap();
        assert_eq!(resumed, stored);
        assert_eq!(resumed.keep(|oid| oid == 1), ["public.t2"]);
        assert_eq!((resumed.tables[0].attempt, resumed.tables[0].after.as_deref()), (10, Some(&["40".into()][..])));
        // A table that was added again begins at its first row, whatever an earlier chunk says.
        resumed.add(table(1));
        assert!(!resumed.note(&first, Part::Rest, 0, Vec::new()));
        assert_eq!((resumed.tables[0].attempt, &resumed.tables[0].after), (11, &None));
        let again = resumed.tables[0].clone();
        assert!(resumed.note(&again, Part::Rest, 0, Vec::new()));
        assert_eq!(resumed.tables, []);
        assert!(StoredBackfills::decode(&Position::copy_from(b"{}")).is_err());
    }

    #[test]
    fn a_table_is_complete_when_no_row_is_to_be_read_again() {
        let mut stored = StoredBackfills::after(0);
        stored.add(table(1));
        let first = stored.tables[0].clone();
        stored.read_again("public.t1", vec![key("1"), key("2")]);
        stored.read_again("public.t2", vec![key("7")]);
        assert!(!stored.note(&first, Part::Rest, 10, vec![key("2"), key("3")]));
        assert_eq!(stored.tables[0].again, [key("1"), key("2"), key("3")]);
        assert!(!stored.note(&first, Part::Again(vec![key("1"), key("2")]), 2, vec![key("1")]));
        assert_eq!(StoredBackfills::decode(&stored.encode()).unwrap().tables[0].again, [key("3"), key("1")]);
        assert!(stored.note(&first, Part::Again(vec![key("3"), key("1")]), 2, Vec::new()));
    }
}
