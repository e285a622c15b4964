//! Records.

use crate::metadata::{self, Metadata};
use crate::value::{Map, Value};

/// A record in a pipeline.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// Position in the source; opaque.
    pub position: Vec<u8>,
    /// Kind of change.
    pub operation: Operation,
    /// Facts about the record. Common keys are in [`metadata`](crate::metadata).
    pub metadata: Metadata,
    /// Identity of the data.
    pub key: Data,
    /// The data before and after the change.
    pub payload: Change,
}

impl Record {
    /// Creates a record with the operation `create`, for tests and for records that a processor creates.
    pub fn create(after: impl Into<Data>) -> Self {
        Record { payload: Change { before: Data::Absent, after: after.into() }, ..Record::default() }
    }

    /// Returns the collection of the record.
    pub fn collection(&self) -> Option<&str> {
        self.metadata.get(metadata::COLLECTION).map(String::as_str)
    }

    /// Sets the collection of the record.
    pub fn set_collection(&mut self, collection: impl Into<String>) {
        self.metadata.insert(metadata::COLLECTION.to_owned(), collection.into());
    }
}

/// Kind of change of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Operation {
    /// The data is new.
    #[default]
    Create,
    /// The data was changed.
    Update,
    /// The data was deleted.
    Delete,
    /// The data already existed when the source started.
    Snapshot,
}

impl Operation {
    /// Returns the name, as in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Operation::Create => "create",
            Operation::Update => "update",
            Operation::Delete => "delete",
            Operation::Snapshot => "snapshot",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        [Operation::Create, Operation::Update, Operation::Delete, Operation::Snapshot]
            .into_iter()
            .find(|operation| operation.as_str() == name)
    }

    /// Returns the number in the protocol.
    pub(crate) const fn number(self) -> u64 {
        match self {
            Operation::Create => 1,
            Operation::Update => 2,
            Operation::Delete => 3,
            Operation::Snapshot => 4,
        }
    }

    pub(crate) const fn from_number(number: u64) -> Option<Self> {
        Some(match number {
            1 => Operation::Create,
            2 => Operation::Update,
            3 => Operation::Delete,
            4 => Operation::Snapshot,
            _ => return None,
        })
    }
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// The data before and after a change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// Data before the change; absent for new data.
    pub before: Data,
    /// Data after the change; absent for deleted data.
    pub after: Data,
}

/// Data of a record: the key, or one side of the payload.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Data {
    /// No data, which differs from empty data.
    #[default]
    Absent,
    /// Bytes in a format unknown to the pipeline.
    Raw(Vec<u8>),
    /// Named fields.
    Structured(Map),
}

impl Data {
    /// Returns the bytes of raw data.
    pub fn as_raw(&self) -> Option<&[u8]> {
        match self {
            Data::Raw(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Returns the fields of structured data.
    pub fn as_structured(&self) -> Option<&Map> {
        match self {
            Data::Structured(map) => Some(map),
            _ => None,
        }
    }

    /// Returns the fields of structured data for changes.
    pub fn as_structured_mut(&mut self) -> Option<&mut Map> {
        match self {
            Data::Structured(map) => Some(map),
            _ => None,
        }
    }

    /// Returns the name of the kind, for messages.
    pub fn type_name(&self) -> &'static str {
        match self {
            Data::Absent => "absent",
            Data::Raw(_) => "raw data",
            Data::Structured(_) => "structured data",
        }
    }
}

impl From<Vec<u8>> for Data {
    fn from(bytes: Vec<u8>) -> Self {
        Data::Raw(bytes)
    }
}

impl From<&str> for Data {
    fn from(text: &str) -> Self {
        Data::Raw(text.as_bytes().to_vec())
    }
}

impl From<String> for Data {
    fn from(text: String) -> Self {
        Data::Raw(text.into_bytes())
    }
}

impl From<Map> for Data {
    fn from(map: Map) -> Self {
        Data::Structured(map)
    }
}

impl<K: Into<String>, V: Into<Value>, const N: usize> From<[(K, V); N]> for Data {
    fn from(fields: [(K, V); N]) -> Self {
        Data::Structured(fields.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }
}
