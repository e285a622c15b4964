//! Encodes records as rows for PostgreSQL.

use std::sync::Arc;

use anabranch_record::fault::Fault;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Operation, Record, json};

use crate::batch::Row;
use crate::codes;
use crate::table::{Action, Misfit, Table};

/// The encoded rows of one call.
#[derive(Default)]
pub(super) struct Encoded {
    pub(super) rows: Vec<Row>,
    pub(super) bytes: Vec<u8>,
    /// Tables whose layouts were used in this call.
    pub(super) tables: Vec<usize>,
}

impl Encoded {
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
    ) -> Result<(), Misfit> {
        if !self.tables.contains(&table) {
            self.tables.push(table);
        }
        let (action, key, payload) = parts(record).map_err(|fault| Misfit::Final(fault.into()))?;
        let found = &mut tables[table];
        let shape = found.shape_of(*last_shape, action, &key, payload)?;
        *last_shape = shape;
        let start = self.bytes.len();
        let nothing = Object::new();
        let payload = if action == Action::Delete { &nothing } else { payload };
        match found.encode(shape, &key, payload, &mut self.bytes) {
            Ok(key_end) => {
                let exact = found.shape(shape).is_exact(&found.layout.columns, &self.bytes[start..key_end]);
                self.rows.push(Row { record: index, table, shape, values: start..self.bytes.len(), key_end, exact });
                Ok(())
            }
            Err(fault) => {
                self.bytes.truncate(start);
                Err(Misfit::Final(fault))
            }
        }
    }
}

/// A key that is borrowed from the record, or parsed from its bytes.
pub(crate) enum Key<'a> {
    Borrowed(&'a Object),
    Read(Arc<Object>),
}

impl std::ops::Deref for Key<'_> {
    type Target = Object;

    fn deref(&self) -> &Object {
        match self {
            Key::Borrowed(object) => object,
            Key::Read(object) => object,
        }
    }
}

static NOTHING: Object = Object::new();

/// Returns the action, the key and the fields of a record.
pub(crate) fn parts(record: &Record) -> Result<(Action, Key<'_>, &Object), Fault> {
    let key = match &record.key {
        Data::Absent => Key::Borrowed(&NOTHING),
        Data::Structured(object) => Key::Borrowed(object),
        Data::Raw(bytes) if bytes.is_empty() => Key::Borrowed(&NOTHING),
        Data::Raw(bytes) => match json::parse_value(bytes) {
            Ok(Value::Map(object)) => Key::Read(object),
            _ => {
                let text = "the key is raw data and not a JSON object with the key's columns: set .Key to such an \
                            object, for example {\"id\": 1}, or to {} for rows without a key";
                return Err(Fault::record(codes::KEY_RAW, text));
            }
        },
    };
    let payload = match (&record.payload.after, record.operation) {
        (Data::Structured(object), _) => object,
        (_, Operation::Delete) | (Data::Absent, _) => &NOTHING,
        (Data::Raw(bytes), _) if bytes.is_empty() => &NOTHING,
        (Data::Raw(_), _) => {
            let text = "the payload is raw data, not fields: decode it earlier, for example with json.decode";
            return Err(Fault::record(codes::PAYLOAD_RAW, text));
        }
    };
    let action = match record.operation {
        Operation::Delete | Operation::Update if key.is_empty() => {
            let text = format!("a record of the operation {} needs a key that identifies the row", record.operation);
            return Err(Fault::record(codes::KEY_MISSING, text));
        }
        Operation::Delete => Action::Delete,
        _ if key.is_empty() && payload.is_empty() => {
            return Err(Fault::record(codes::NOTHING_TO_WRITE, "the record has no key and no fields"));
        }
        _ if key.is_empty() => Action::Insert,
        Operation::Update => Action::Update,
        _ => Action::Upsert,
    };
    Ok((action, key, payload))
}
