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
    /// Creates a position from a copy of `bytes`, so that a position never keeps a read buffer alive.
    pub fn copy_from(bytes: &[u8]) -> Self {
        Position(Bytes::copy_from_slice(bytes))
    }
}

/// The kind of change that a record describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum Operation {
    /// The data was created.
    #[default]
    Create = 1,
    /// The data was changed.
    Update,
    /// The data was deleted.
    Delete,
    /// The data existed before the source began to observe changes.
    Snapshot,
}

impl Operation {
    /// All operations, in the order of their numbers 1 to 4.
    pub const ALL: [Operation; 4] = [Operation::Create, Operation::Update, Operation::Delete, Operation::Snapshot];

    /// Guesses the operation that an invalid text means: a name in upper case, or another system's name.
    pub fn meant_by(text: &str) -> Option<Operation> {
        match text.trim().to_ascii_lowercase().as_str() {
            "create" | "created" | "insert" | "inserted" | "c" => Some(Operation::Create),
            "update" | "updated" | "u" => Some(Operation::Update),
            "delete" | "deleted" | "remove" | "removed" | "d" => Some(Operation::Delete),
            "snapshot" | "read" | "r" => Some(Operation::Snapshot),
            _ => None,
        }
    }

    /// Returns the name as records print it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Operation::Create => "create",
            Operation::Update => "update",
            Operation::Delete => "delete",
            Operation::Snapshot => "snapshot",
        }
    }

    /// Returns the operation with a number from 1 to 4.
    pub fn from_number(n: i64) -> Option<Self> {
        usize::try_from(n).ok().and_then(|n| Self::ALL.get(n.wrapping_sub(1)).copied())
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Error: the text is not the name of an operation.
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
    /// No data; `null` in JSON.
    #[default]
    Absent,
    /// Bytes as the source delivered them, often a slice of its read buffer.
    Raw(Bytes),
    /// Decoded fields, copied on write when shared between branches.
    Structured(Arc<Object>),
}

impl Data {
    /// Creates raw data from text.
    pub fn text(text: impl Into<String>) -> Self {
        Data::Raw(Bytes::from(text.into()))
    }

    /// Returns the fields for changes. Copies them only if another record shares them.
    pub fn fields_mut(&mut self) -> Option<&mut Object> {
        match self {
            Data::Structured(map) => Some(Arc::make_mut(map)),
            Data::Raw(_) | Data::Absent => None,
        }
    }

    /// Returns the fields, if the data is structured.
    pub fn fields(&self) -> Option<&Object> {
        match self {
            Data::Structured(map) => Some(map),
            Data::Raw(_) | Data::Absent => None,
        }
    }

    /// Returns the bytes, if the data is raw.
    pub fn raw(&self) -> Option<&Bytes> {
        match self {
            Data::Raw(bytes) => Some(bytes),
            Data::Structured(_) | Data::Absent => None,
        }
    }

    /// Returns `absent`, `raw` or `structured`, as messages print it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Data::Absent => "absent",
            Data::Raw(_) => "raw",
            Data::Structured(_) => "structured",
        }
    }

    /// Copies raw bytes out of the buffer they are a slice of. Call it before keeping a record for long.
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

impl From<Bytes> for Data {
    fn from(bytes: Bytes) -> Self {
        Data::Raw(bytes)
    }
}

impl From<Vec<u8>> for Data {
    fn from(bytes: Vec<u8>) -> Self {
        Data::Raw(bytes.into())
    }
}

impl From<&str> for Data {
    fn from(text: &str) -> Self {
        Data::text(text)
    }
}

impl From<String> for Data {
    fn from(text: String) -> Self {
        Data::text(text)
    }
}

impl<K: Into<Str>, V: Into<Value>, const N: usize> From<[(K, V); N]> for Data {
    fn from(fields: [(K, V); N]) -> Self {
        Data::from(Object::from_iter(fields))
    }
}

/// The data before and after the change.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Change {
    /// Data before the change; absent for `create` and if the source does not know it.
    pub before: Data,
    /// Data after the change; absent for `delete`.
    pub after: Data,
}

/// One change of the source's data. Cloning is O(1) and shares all content.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Record {
    position: Position,
    /// The kind of change.
    pub operation: Operation,
    /// Text entries about the record.
    pub metadata: Metadata,
    /// The key that identifies the record.
    pub key: Data,
    /// The user's data.
    pub payload: Change,
}

impl Record {
    /// Creates a record with the operation `create` and a payload, without position, metadata and key: for tests, and for
    /// processors that create records.
    pub fn new(after: impl Into<Data>) -> Self {
        Record::create(Position::default(), Data::Absent, after.into())
    }

    /// Creates an empty record at `position`.
    pub fn at(position: Position) -> Self {
        Record { position, ..Record::default() }
    }

    /// Creates a record with the operation `create` and a payload.
    pub fn create(position: Position, key: Data, after: Data) -> Self {
        Record { position, key, payload: Change { before: Data::Absent, after }, ..Record::default() }
    }

    /// Returns the record's position in its source. Only the source may set it.
    pub fn position(&self) -> &Position {
        &self.position
    }

    /// Returns the record with another position, for dead letters and tests.
    #[must_use]
    pub fn with_position(mut self, position: Position) -> Self {
        self.position = position;
        self
    }

    pub(crate) fn set_position(&mut self, position: Position) {
        self.position = position;
    }

    /// Returns the collection, if the metadata contains one.
    pub fn collection(&self) -> Option<&Str> {
        self.metadata.get(crate::metadata::key::COLLECTION.as_str())
    }

    /// Sets the collection.
    pub fn set_collection(&mut self, collection: impl Into<Str>) {
        self.metadata.insert(crate::metadata::key::COLLECTION, collection);
    }

    /// Returns the approximate number of bytes that this record holds in memory, with its position and metadata. Queues
    /// are limited by this number. O(fields).
    pub fn weight(&self) -> usize {
        /// Weight of the memory that a value refers to.
        fn of_value(value: &Value) -> usize {
            match value {
                Value::Text(t) => t.len(),
                Value::Bytes(b) => b.len(),
                Value::List(l) => l.iter().map(|value| size_of::<Value>() + of_value(value)).sum(),
                Value::Map(m) => of_object(m),
                _ => 0,
            }
        }
        // Called often: records are weighed after each stage that may have changed them.
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
