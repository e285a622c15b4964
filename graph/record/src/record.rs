//! The unit of data: one change, with its position, metadata, key and payload.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;

use crate::metadata::Metadata;
use crate::text::Str;
use crate::value::{Object, Value};

/// Opaque resume token chosen by the source; only the source may interpret or compare it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Position(pub Bytes);

impl Position {
    /// From bytes; copies them, so that a position never pins a read buffer.
    pub fn copy_from(bytes: &[u8]) -> Self {
        Position(Bytes::copy_from_slice(bytes))
    }
}

/// What happened to the data in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum Operation {
    /// It was created.
    #[default]
    Create = 1,
    /// It was changed.
    Update,
    /// It was deleted.
    Delete,
    /// It existed before the source was watched.
    Snapshot,
}

impl Operation {
    /// All operations, in the order of their numbers 1 to 4.
    pub const ALL: [Operation; 4] = [Operation::Create, Operation::Update, Operation::Delete, Operation::Snapshot];

    /// The operation that a text means that is none: in upper case, or by another system's name.
    pub fn meant_by(text: &str) -> Option<Operation> {
        match text.trim().to_ascii_lowercase().as_str() {
            "create" | "created" | "insert" | "inserted" | "c" => Some(Operation::Create),
            "update" | "updated" | "u" => Some(Operation::Update),
            "delete" | "deleted" | "remove" | "removed" | "d" => Some(Operation::Delete),
            "snapshot" | "read" | "r" => Some(Operation::Snapshot),
            _ => None,
        }
    }

    /// The name, as records print it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Operation::Create => "create",
            Operation::Update => "update",
            Operation::Delete => "delete",
            Operation::Snapshot => "snapshot",
        }
    }

    /// From the number 1 to 4.
    pub fn from_number(n: i64) -> Option<Self> {
        usize::try_from(n).ok().and_then(|n| Self::ALL.get(n.wrapping_sub(1)).copied())
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A text that names no operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown operation {0:?}, expected one of create, update, delete, snapshot")]
pub struct UnknownOperation(pub String);

impl FromStr for Operation {
    type Err = UnknownOperation;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|o| o.as_str() == text).ok_or_else(|| UnknownOperation(text.to_owned()))
    }
}

/// Content of a key or of one side of a payload. Cloning is O(1).
#[derive(Clone, Debug, PartialEq, Default)]
pub enum Data {
    /// Not there; `null` in JSON.
    #[default]
    Absent,
    /// Bytes as the source delivered them: often a slice of its read buffer.
    Raw(Bytes),
    /// Decoded fields, copied on write when shared between branches.
    Structured(Arc<Object>),
}

impl Data {
    /// Raw data from text.
    pub fn text(text: impl Into<String>) -> Self {
        Data::Raw(Bytes::from(text.into()))
    }

    /// Unique access to the fields, copying them only if another record still shares them.
    pub fn fields_mut(&mut self) -> Option<&mut Object> {
        match self {
            Data::Structured(map) => Some(Arc::make_mut(map)),
            Data::Raw(_) | Data::Absent => None,
        }
    }

    /// The fields, where the data is structured.
    pub fn fields(&self) -> Option<&Object> {
        match self {
            Data::Structured(map) => Some(map),
            Data::Raw(_) | Data::Absent => None,
        }
    }

    /// `absent`, `raw` or `structured`, as messages print it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Data::Absent => "absent",
            Data::Raw(_) => "raw",
            Data::Structured(_) => "structured",
        }
    }

    /// Copies raw bytes out of the buffer they are a slice of. Call it before parking a record.
    pub fn compact(&mut self) {
        if let Data::Raw(bytes) = self {
            *bytes = Bytes::copy_from_slice(bytes);
        }
    }
}

impl From<Object> for Data {
    fn from(object: Object) -> Self {
        Data::Structured(Arc::new(object))
    }
}

/// The data before and after the change.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Change {
    /// What it was; absent for `create` and where the source does not know.
    pub before: Data,
    /// What it is; absent for `delete`.
    pub after: Data,
}

/// One change of the source's data. Cloning is O(1) and shares all content.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Record {
    position: Position,
    /// What happened.
    pub operation: Operation,
    /// Text about the record.
    pub metadata: Metadata,
    /// Identifies the record.
    pub key: Data,
    /// The user's data.
    pub payload: Change,
}

impl Record {
    /// A record at `position`, otherwise empty.
    pub fn at(position: Position) -> Self {
        Record { position, ..Record::default() }
    }

    /// A created record with a payload.
    pub fn create(position: Position, key: Data, after: Data) -> Self {
        Record { position, key, payload: Change { before: Data::Absent, after }, ..Record::default() }
    }

    /// Where the record is in its source. Nothing after the source may change it.
    pub fn position(&self) -> &Position {
        &self.position
    }

    /// A copy of everything except that the position is `position`: dead letters, tests.
    #[must_use]
    pub fn with_position(mut self, position: Position) -> Self {
        self.position = position;
        self
    }

    /// The collection, where the metadata has one.
    pub fn collection(&self) -> Option<&Str> {
        self.metadata.get(crate::metadata::key::COLLECTION.as_str())
    }

    /// Rough number of bytes this record holds in memory, with its position and metadata; what queues are bounded by.
    /// O(fields).
    pub fn weight(&self) -> usize {
        /// Of what a value refers to.
        fn of_value(value: &Value) -> usize {
            match value {
                Value::Text(t) => t.len(),
                Value::Bytes(b) => b.len(),
                Value::List(l) => l.iter().map(|value| size_of::<Value>() + of_value(value)).sum(),
                Value::Map(m) => of_object(m),
                _ => 0,
            }
        }
        // Records are weighed whenever processors may have changed them.
        fn of_object(object: &Object) -> usize {
            let entries = object.entries();
            let mut weight = size_of_val(entries);
            for (key, value) in entries {
                weight += key.len() + of_value(value);
            }
            weight
        }
        let of_data = |data: &Data| match data {
            Data::Absent => 0,
            Data::Raw(b) => b.len(),
            Data::Structured(o) => of_object(o),
        };
        size_of::<Record>()
            + self.position.0.len()
            + self.metadata.weight()
            + of_data(&self.key)
            + of_data(&self.payload.before)
            + of_data(&self.payload.after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_a_record_holds_weighs() {
        let long = "x".repeat(100_000);
        let base = Record::default().weight();
        let mut metadata = Record::default();
        metadata.metadata.insert("key", long.clone());
        for record in [
            Record::at(Position::copy_from(long.as_bytes())),
            Record::create(Position::default(), Data::text(long.clone()), Data::Absent),
            Record::create(Position::default(), Data::Absent, Data::text(long.clone())),
            metadata,
        ] {
            let weight = record.weight() - base;
            assert!((100_000..100_100).contains(&weight), "{weight}");
        }
    }

    #[test]
    fn operations_have_names_and_numbers() {
        for (i, o) in Operation::ALL.into_iter().enumerate() {
            assert_eq!(o.as_str().parse(), Ok(o));
            assert_eq!(Operation::from_number(i as i64 + 1), Some(o));
        }
        assert_eq!(Operation::from_number(0), None);
        assert_eq!(Operation::from_number(5), None);
        assert!("Create".parse::<Operation>().is_err());
    }
}
