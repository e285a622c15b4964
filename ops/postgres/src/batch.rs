//! Plans the statements that write a batch of records.

use std::collections::HashMap;
use std::ops::Range;

use crate::row::RowAction;
use crate::table::Table;

/// A record with encoded values.
#[derive(Clone, Debug)]
pub(crate) struct EncodedRow {
    /// Index of the record in the call.
    pub(crate) record: usize,
    /// Index of the table.
    pub(crate) table: usize,
    /// Index of the shape in the table.
    pub(crate) shape: usize,
    /// Byte range of its values.
    pub(crate) values: Range<usize>,
    /// End of the key's values.
    pub(crate) key_end: usize,
    /// Start of the values of the key that it moves from, up to the end of the values; the end if it does not move.
    pub(crate) old_key: usize,
    /// True if PostgreSQL finds its keys equal only to keys with the same bytes.
    pub(crate) exact: bool,
}

/// Rows that one statement can write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StatementRows {
    pub(crate) table: usize,
    /// Index of the shape; for a deletion, any shape with the same key.
    pub(crate) shape: usize,
    pub(crate) action: RowAction,
    /// Byte ranges of the values; for a deletion, only of the keys.
    pub(crate) rows: Vec<Range<usize>>,
}

/// Final state of one key: earlier rows of the key do not matter.
struct KeyState {
    /// True if the existing row is deleted first, with all its columns.
    deleted: bool,
    /// The row to write afterwards.
    row: Option<usize>,
    /// Any row of the key.
    any: usize,
}

/// Plans steps that leave the tables as if the rows were written one by one.
///
/// Rows of one table with the same key are compacted: the last one wins. A new series begins with a partial row whose
/// key already has a partial row with other columns, with a row that moves from or to a key that the series has, and
/// whenever the columns of the key change; rows without a key are such a change too. So every series has each key once,
/// and one kind of key.
///
/// PostgreSQL may find keys with different bytes equal, for example text with a case-insensitive collation. Only
/// PostgreSQL can decide that, so rows with such keys share a series only with rows of the same shape. These form one
/// statement, in which PostgreSQL refuses to write a row twice. The rows are then written one after the other.
pub(crate) fn plan(rows: &[EncodedRow], tables: &[Table], bytes: &[u8]) -> Vec<StatementRows> {
    let mut series: Vec<Series<'_>> = Vec::new();
    // Tables in order of appearance, each with its open series.
    let mut order: Vec<usize> = Vec::new();
    let mut steps_of: HashMap<usize, Vec<StatementRows>> = HashMap::new();
    let mut open: HashMap<usize, usize> = HashMap::new();
    for (index, row) in rows.iter().enumerate() {
        if tables[row.table].shape(row.shape).action == RowAction::Truncate {
            // Whatever was written before does not matter.
            if let Some(at) = open.get(&row.table) {
                series[*at] = Series::new(row.table);
            }
            let step = StatementRows {
                table: row.table,
                shape: row.shape,
                action: RowAction::Truncate,
                rows: vec![row.values.clone()],
            };
            if steps_of.insert(row.table, vec![step]).is_none() && !open.contains_key(&row.table) {
                order.push(row.table);
            }
            continue;
        }
        let at = *open.entry(row.table).or_insert_with(|| {
            if !steps_of.contains_key(&row.table) {
                order.push(row.table);
            }
            series.push(Series::new(row.table));
            series.len() - 1
        });
        let current = &mut series[at];
        if !current.take(index, row, rows, tables, bytes) {
            current.close(rows, tables, steps_of.entry(row.table).or_default());
            current.take(index, row, rows, tables, bytes);
        }
    }
    let mut steps = Vec::new();
    for table in order {
        let mut of_table = steps_of.remove(&table).unwrap_or_default();
        if let Some(at) = open.get(&table) {
            series[*at].close(rows, tables, &mut of_table);
        }
        steps.append(&mut of_table);
    }
    steps
}

struct Series<'a> {
    table: usize,
    /// Key columns; `None` for a new series, empty for rows without a key.
    keys: Option<Vec<usize>>,
    slots: Vec<KeyState>,
    by_key: HashMap<&'a [u8], usize>,
    /// Shape of the first row.
    shape: usize,
    /// True if there are rows of other shapes.
    mixed: bool,
    /// True if all keys are exact.
    exact: bool,
}

impl<'a> Series<'a> {
    fn new(table: usize) -> Self {
        let (slots, by_key) = (Vec::new(), HashMap::new());
        Series { table, keys: None, slots, by_key, shape: 0, mixed: false, exact: true }
    }

    /// Adds a row; returns `false` if it needs a new series.
    fn take(&mut self, index: usize, row: &EncodedRow, rows: &[EncodedRow], tables: &[Table], bytes: &'a [u8]) -> bool {
        let shape = tables[self.table].shape(row.shape);
        match &self.keys {
            None => {
                self.keys = Some(shape.key_columns().to_vec());
                (self.shape, self.mixed, self.exact) = (row.shape, false, true);
            }
            Some(keys) if keys.as_slice() != shape.key_columns() => return false,
            Some(_) => {}
        }
        let (mixed, exact) = (self.mixed || row.shape != self.shape, self.exact && row.exact);
        // PostgreSQL does not report two updates of one row in a statement: one of them is lost.
        let updates = matches!(shape.action, RowAction::Update | RowAction::Move);
        if !exact && (mixed || (updates && !self.slots.is_empty())) {
            return false;
        }
        (self.mixed, self.exact) = (mixed, exact);
        if shape.action == RowAction::Insert {
            self.slots.push(KeyState { deleted: false, row: Some(index), any: index });
            return true;
        }
        let key = &bytes[row.values.start..row.key_end];
        let is_move = |slot: &KeyState| tables[self.table].shape(rows[slot.any].shape).action == RowAction::Move;
        if shape.action == RowAction::Move {
            let keys = [key, &bytes[row.old_key..row.values.end]];
            if keys.iter().any(|key| self.by_key.contains_key(key)) {
                return false;
            }
            self.by_key.extend(keys.map(|key| (key, self.slots.len())));
            self.slots.push(KeyState { deleted: false, row: Some(index), any: index });
            return true;
        }
        if self.by_key.get(key).is_some_and(|at| is_move(&self.slots[*at])) {
            return false;
        }
        let slot = match self.by_key.get(key) {
            Some(at) => &mut self.slots[*at],
            None => {
                self.by_key.insert(key, self.slots.len());
                self.slots.push(KeyState { deleted: false, row: None, any: index });
                let last = self.slots.len() - 1;
                &mut self.slots[last]
            }
        };
        match shape.action {
            RowAction::Delete => {
                slot.deleted = true;
                slot.row = None;
            }
            _ => {
                if slot.row.is_some_and(|earlier| rows[earlier].shape != row.shape) {
                    return false;
                }
                slot.row = Some(index);
            }
        }
        true
    }

    /// Appends the steps of the series, deletions first, then rows by shape, and starts a new series.
    fn close(&mut self, rows: &[EncodedRow], tables: &[Table], steps: &mut Vec<StatementRows>) {
        let table = self.table;
        let mut deletion: Option<StatementRows> = None;
        for slot in self.slots.iter().filter(|slot| slot.deleted) {
            let row = &rows[slot.any];
            deletion
                .get_or_insert_with(|| StatementRows {
                    table,
                    shape: row.shape,
                    action: RowAction::Delete,
                    rows: Vec::new(),
                })
                .rows
                .push(row.values.start..row.key_end);
        }
        steps.extend(deletion);
        let first = steps.len();
        for row in self.slots.iter().filter_map(|slot| slot.row).map(|at| &rows[at]) {
            let shape = tables[table].shape(row.shape);
            let step = match steps[first..].iter_mut().position(|step| step.shape == row.shape) {
                Some(at) => &mut steps[first + at],
                None => {
                    steps.push(StatementRows { table, shape: row.shape, action: shape.action, rows: Vec::new() });
                    let last = steps.len() - 1;
                    &mut steps[last]
                }
            };
            step.rows.push(row.values.clone());
        }
        self.keys = None;
        self.slots.clear();
        self.by_key.clear();
    }
}
