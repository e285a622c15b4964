//! Encodes records as rows for PostgreSQL.

use anabranch_record::Record;

use crate::batch::EncodedRow;
use crate::row::{RowAction, row_of};
use crate::table::{EncodeError, Table};

/// The encoded rows of one call.
#[derive(Default)]
pub(super) struct EncodedBatch {
    pub(super) rows: Vec<EncodedRow>,
    pub(super) bytes: Vec<u8>,
    /// Tables whose layouts were used in this call.
    pub(super) tables: Vec<usize>,
}

impl EncodedBatch {
    /// Empties it for the next call.
    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.bytes.clear();
        self.tables.clear();
    }

    /// Returns the SQL names of the tables in use.
    pub(super) fn names(&self, tables: &[Table]) -> Vec<String> {
        self.tables.iter().map(|table| tables[*table].name.to_string()).collect()
    }

    /// Returns `true` if these are the versions of the tables in use.
    pub(super) fn holds(&self, tables: &[Table], versions: &[i64]) -> bool {
        self.tables.iter().map(|table| tables[*table].layout.version).eq(versions.iter().copied())
    }

    /// Encodes a record for a table. Tries `last_shape`, the shape of the previous row, first.
    pub(super) fn push(
        &mut self,
        index: usize,
        record: &Record,
        tables: &mut [Table],
        table: usize,
        last_shape: &mut usize,
    ) -> Result<(), EncodeError> {
        if !self.tables.contains(&table) {
            self.tables.push(table);
        }
        let mut row = row_of(record).map_err(|fault| EncodeError::Final(fault.into()))?;
        let found = &mut tables[table];
        let start = self.bytes.len();
        loop {
            let shape = found.shape_of(*last_shape, &row)?;
            *last_shape = shape;
            let encoded = found.encode(shape, &row, &mut self.bytes);
            let (key_end, old_key) = match encoded {
                Ok(ends) => ends,
                Err(fault) => {
                    self.bytes.truncate(start);
                    return Err(EncodeError::Final(fault));
                }
            };
            let (key, old) = (&self.bytes[start..key_end], &self.bytes[old_key..]);
            if row.action == RowAction::Move && key == old {
                // Two forms of one value.
                row = row.in_place();
                self.bytes.truncate(start);
                continue;
            }
            let is_exact = |key: &[u8]| found.shape(shape).is_exact(&found.layout.columns, key);
            let exact = is_exact(key) && (old.is_empty() || is_exact(old));
            let values = start..self.bytes.len();
            self.rows.push(EncodedRow { record: index, table, shape, values, key_end, old_key, exact });
            return Ok(());
        }
    }
}
