//! The row that a record becomes: its action, its key and its fields.

use std::sync::Arc;

use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Operation, Record, json};

use crate::codes;

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

/// Action on a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RowAction {
    /// Insert, or update the row with the same key.
    Upsert,
    /// Update the row with this key. There are too few columns for an insert, unless triggers add them.
    Update,
    /// Update the row with the old key, and give it this one. If there is no such row, update or insert the row with this
    /// key.
    Move,
    /// Delete the row with this key.
    Delete,
    /// Delete all rows. There are no columns.
    Truncate,
    /// Insert a row without a key.
    Insert,
}

/// Metadata with the names of columns that an update does not change and that the record lacks: PostgreSQL does not
/// repeat large values in its log.
pub(crate) const UNCHANGED: Str = Str::from_static("postgres.unchanged");

/// Metadata of a deletion without a key that removes all rows of its table: `true`.
pub(crate) const TRUNCATE: Str = Str::from_static("postgres.truncate");

/// The change that a record makes to a table.
pub(crate) struct Row<'a> {
    /// Action on the row.
    pub(crate) action: RowAction,
    /// The key of the row after the change.
    pub(crate) key: Key<'a>,
    /// The fields of the row after the change.
    pub(crate) payload: &'a Object,
    /// The fields before the change, for [`RowAction::Move`]; otherwise empty.
    pub(crate) before: &'a Object,
    /// True if the record lacks values that the row has and keeps.
    pub(crate) is_partial: bool,
}

impl Row<'_> {
    /// Returns the values of the key before the change, in the order of the key.
    pub(crate) fn old_key(&self) -> impl Iterator<Item = (&Str, &Value)> {
        self.key.iter().map(|(field, value)| (field, self.before.get(field).unwrap_or(value)))
    }

    /// Returns the row as an update in place.
    pub(crate) fn in_place(self) -> Self {
        Row { action: RowAction::Update, before: &NOTHING, ..self }
    }
}

static NOTHING: Object = Object::new();

/// Returns `true` if an update gives its row another key. The payload must confirm the new one: otherwise, a field before
/// the change need not be the column of the key.
fn moves(key: &Object, before: &Object, after: &Object) -> bool {
    key.iter().any(|(field, value)| {
        let was = before.get(field).filter(|was| !matches!(was, Value::Null));
        was.is_some_and(|was| was != value) && after.contains_key(field)
    })
}

/// Returns the row that a record becomes.
pub(crate) fn row_of(record: &Record) -> Result<Row<'_>, Fault> {
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
    let before: &Object = match &record.payload.before {
        Data::Structured(before) if record.operation == Operation::Update && moves(&key, before, payload) => before,
        _ => &NOTHING,
    };
    let truncates = || record.metadata.get(TRUNCATE.as_str()).is_some_and(|truncates| truncates.as_str() == "true");
    let action = match record.operation {
        Operation::Delete if key.is_empty() && truncates() => RowAction::Truncate,
        Operation::Delete | Operation::Update if key.is_empty() => {
            let text = format!("a record of the operation {} needs a key that identifies the row", record.operation);
            return Err(Fault::record(codes::KEY_MISSING, text));
        }
        Operation::Delete => RowAction::Delete,
        _ if key.is_empty() && payload.is_empty() => {
            return Err(Fault::record(codes::NOTHING_TO_WRITE, "the record has no key and no fields"));
        }
        _ if key.is_empty() => RowAction::Insert,
        Operation::Update if !before.is_empty() => RowAction::Move,
        Operation::Update => RowAction::Update,
        _ => RowAction::Upsert,
    };
    let is_partial = record.operation == Operation::Update
        && record.metadata.get(UNCHANGED.as_str()).is_some_and(|columns| !columns.is_empty());
    Ok(Row { action, key, payload, before, is_partial })
}
