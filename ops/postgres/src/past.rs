//! Memory of the rows that the tables of a destination accepted.
//!
//! A table that is dropped or altered in mid-run fails every record that comes after: that is no fault of the records.
//! What rows were written with tells such a table from a record that never fitted. The memory ends with the plan, so that
//! a pipeline that is applied or restarted takes its tables as they are.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anabranch_record::text::Str;

use crate::column::Column;
use crate::table::{Lack, Shape, Table};

/// Most tables that are remembered.
const MOST_TABLES: usize = 1024;

/// Shared by the writers of all runs of a plan.
#[derive(Default)]
pub(crate) struct Past {
    opened: AtomicBool,
    tables: Mutex<HashMap<String, Taken>>,
}

/// What rows of a table were written with.
#[derive(Default)]
struct Taken {
    /// Columns by name, with the type that they had last.
    columns: HashMap<String, (u32, i32)>,
    /// Columns of keys that rows were found by, in order.
    keys: Vec<Vec<String>>,
    /// Columns that a row had to have.
    required: HashSet<String>,
}

impl Past {
    /// Notes that the destination was opened.
    pub(crate) fn note_opened(&self) {
        self.opened.store(true, Ordering::Relaxed);
    }

    /// Whether it was opened before.
    pub(crate) fn was_opened(&self) -> bool {
        self.opened.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Taken>> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that rows of a shape were written to a table.
    pub(crate) fn note_written(&self, table: &Table, shape: &Shape) {
        let mut known = self.lock();
        let name = table.name.to_string();
        if known.len() >= MOST_TABLES && !known.contains_key(&name) {
            known.clear();
        }
        let taken = known.entry(name).or_default();
        for column in shape.columns.iter().map(|column| table.column(*column)) {
            taken.columns.insert(column.name.clone(), column.type_of);
        }
        let required = table.layout.columns.iter().filter(|column| column.required);
        taken.required.extend(required.map(|column| column.name.clone()));
        let key: Vec<String> = shape.key_columns().iter().map(|column| table.column(*column).name.clone()).collect();
        if !key.is_empty() && !taken.keys.contains(&key) {
            taken.keys.push(key);
        }
    }

    /// Whether a table had what rows lack; `now`: as it is.
    pub(crate) fn had(&self, name: &str, lack: &Lack, now: Option<&Table>) -> bool {
        let known = self.lock();
        let Some(past) = known.get(name) else { return false };
        let is_now = |column: &Str| {
            let columns = now.map(|table| table.layout.columns.as_slice()).unwrap_or_default();
            columns.iter().find(|now| *now.name == **column).map(|now| now.type_of)
        };
        match lack {
            Lack::Table => true,
            Lack::Column(column) => past.columns.contains_key(column.as_str()),
            Lack::Type(column) => past.columns.get(column.as_str()).is_some_and(|was| Some(*was) != is_now(column)),
            Lack::Key(key) => past.keys.iter().any(|of| of.iter().map(String::as_str).eq(key.iter().map(Str::as_str))),
        }
    }

    /// Whether a table took rows with the columns of a shape, and was altered so that it may refuse every row of it: a
    /// column has another type, or one was added that a row must have.
    pub(crate) fn refuses_since(&self, table: &Table, shape: &Shape) -> bool {
        let known = self.lock();
        let Some(past) = known.get(&table.name.to_string()) else { return false };
        let mut used = shape.columns.iter().map(|column| table.column(*column));
        let missing = |(at, column): (usize, &Column)| {
            column.required && !shape.columns.contains(&at) && !past.required.contains(&column.name)
        };
        used.any(|now| past.columns.get(&now.name).is_some_and(|was| *was != now.type_of))
            || table.layout.columns.iter().enumerate().any(missing)
    }
}
