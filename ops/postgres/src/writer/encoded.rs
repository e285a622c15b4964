//! Encodes records as rows for PostgreSQL.

use anabranch_record::Record;
use anabranch_record::value::Object;

use crate::batch::EncodedRow;
use crate::row::parts;
use crate::table::{EncodeError, RowAction, Table};

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
        let (action, key, payload) = parts(record).map_err(|fault| EncodeError::Final(fault.into()))?;
        let found = &mut tables[table];
        let shape = found.shape_of(*last_shape, action, &key, payload)?;
        *last_shape = shape;
        let start = self.bytes.len();
        let nothing = Object::new();
        let payload = if action == RowAction::Delete { &nothing } else { payload };
        match found.encode(shape, &key, payload, &mut self.bytes) {
            Ok(key_end) => {
                let exact = found.shape(shape).is_exact(&found.layout.columns, &self.bytes[start..key_end]);
                self.rows.push(EncodedRow {
                    record: index,
                    table,
                    shape,
                    values: start..self.bytes.len(),
                    key_end,
                    exact,
                });
                Ok(())
            }
            Err(fault) => {
                self.bytes.truncate(start);
                Err(EncodeError::Final(fault))
            }
        }
    }
}
