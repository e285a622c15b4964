//! History of the rows that a destination's tables have accepted.
//!
//! If a table is dropped or altered during a run, every later record fails, which is not the fault of the records. The
//! columns of accepted rows distinguish such a table from a record that never fitted. The history ends with the plan,
//! so that a pipeline that is applied or restarted accepts its tables as they are.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anabranch_record::text::Str;

use crate::column::Column;
use crate::table::{MissingPart, RowShape, Table};

/// Maximum number of tables in the history.
const MOST_TABLES: usize = 1024;

/// History shared by the writers of all runs of a plan.
#[derive(Default)]
pub(crate) struct TableHistory {
    opened: AtomicBool,
    tables: Mutex<HashMap<String, AcceptedRows>>,
}

/// Columns of the accepted rows of a table.
#[derive(Default)]
struct AcceptedRows {
    /// Columns by name, with their last type.
    columns: HashMap<String, (u32, i32)>,
    /// Key columns by which rows were found, in order.
    keys: Vec<Vec<String>>,
    /// Columns that every row had to contain.
    required: HashSet<String>,
}

impl TableHistory {
    /// Records that the destination was opened.
    pub(crate) fn note_opened(&self) {
        self.opened.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if the destination was opened before.
    pub(crate) fn was_opened(&self) -> bool {
        self.opened.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, AcceptedRows>> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that rows of a shape were written to a table.
    pub(crate) fn note_written(&self, table: &Table, shape: &RowShape) {
        let mut known = self.lock();
        let name = table.name.to_string();
        if known.len() >= MOST_TABLES && !known.contains_key(&name) {
            known.clear();
        }
        let accepted = known.entry(name).or_default();
        for column in shape.columns.iter().map(|column| table.column(*column)) {
            accepted.columns.insert(column.name.clone(), column.type_of);
        }
        let required = table.layout.columns.iter().filter(|column| column.required);
        accepted.required.extend(required.map(|column| column.name.clone()));
        let key: Vec<String> = shape.key_columns().iter().map(|column| table.column(*column).name.clone()).collect();
        if !key.is_empty() && !accepted.keys.contains(&key) {
            accepted.keys.push(key);
        }
    }

    /// Records that this destination has altered a table itself, so that a row that it rejects later is at fault.
    pub(crate) fn note_altered(&self, table: &Table) {
        if let Some(accepted) = self.lock().get_mut(&table.name.to_string()) {
            for column in &table.layout.columns {
                if let Some(was) = accepted.columns.get_mut(&column.name) {
                    *was = column.type_of;
                }
            }
        }
    }

    /// Returns `true` if a table had the part that rows lack. `now` is the current table.
    pub(crate) fn had(&self, name: &str, missing: &MissingPart, now: Option<&Table>) -> bool {
        let known = self.lock();
        let Some(accepted) = known.get(name) else { return false };
        let is_now = |column: &Str| {
            let columns = now.map(|table| table.layout.columns.as_slice()).unwrap_or_default();
            columns.iter().find(|now| *now.name == **column).map(|now| now.type_of)
        };
        match missing {
            MissingPart::Table => true,
            MissingPart::Column(column) => accepted.columns.contains_key(column.as_str()),
            MissingPart::Type(column) => {
                accepted.columns.get(column.as_str()).is_some_and(|was| Some(*was) != is_now(column))
            }
            MissingPart::Key(key) => {
                accepted.keys.iter().any(|of| of.iter().map(String::as_str).eq(key.iter().map(Str::as_str)))
            }
        }
    }

    /// Returns `true` if a table accepted rows with the columns of a shape and was altered since so that it may reject
    /// all of them: a column has another type, or a required column was added.
    pub(crate) fn refuses_since(&self, table: &Table, shape: &RowShape) -> bool {
        let known = self.lock();
        let Some(accepted) = known.get(&table.name.to_string()) else { return false };
        let mut used = shape.columns.iter().map(|column| table.column(*column));
        let missing = |(at, column): (usize, &Column)| {
            column.required && !shape.columns.contains(&at) && !accepted.required.contains(&column.name)
        };
        used.any(|now| accepted.columns.get(&now.name).is_some_and(|was| *was != now.type_of))
            || table.layout.columns.iter().enumerate().any(missing)
    }
}
