//! The row that a record becomes: its action, its key and its fields.

use std::sync::Arc;

use anabranch_record::fault::Fault;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Operation, Record, json};

use crate::codes;
use crate::table::RowAction;

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
pub(crate) fn parts(record: &Record) -> Result<(RowAction, Key<'_>, &Object), Fault> {
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
        Operation::Delete => RowAction::Delete,
        _ if key.is_empty() && payload.is_empty() => {
            return Err(Fault::record(codes::NOTHING_TO_WRITE, "the record has no key and no fields"));
        }
        _ if key.is_empty() => RowAction::Insert,
        Operation::Update => RowAction::Update,
        _ => RowAction::Upsert,
    };
    Ok((action, key, payload))
}
