//! Records.

use crate::metadata::{self, Metadata};
use crate::value::{Map, Value};

/// A record on its way through a pipeline.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// Where the source read it; opaque.
    pub position: Vec<u8>,
    /// What happened to the data.
    pub operation: Operation,
    /// Facts about the record; the keys of general meaning are in [`metadata`](crate::metadata).
    pub metadata: Metadata,
    /// What identifies the data.
    pub key: Data,
    /// The data before and after the change.
    pub payload: Change,
}

impl Record {
    /// A record of the operation `create` with this data, for tests and for records that a processor makes.
    pub fn create(after: impl Into<Data>) -> Self {
        Record { payload: Change { before: Data::Absent, after: after.into() }, ..Record::default() }
    }

    /// The collection that the record belongs to.
    pub fn collection(&self) -> Option<&str> {
        self.metadata.get(metadata::COLLECTION).map(String::as_str)
    }

    /// Puts the record into a collection.
    pub fn set_collection(&mut self, collection: impl Into<String>) {
        self.metadata.insert(metadata::COLLECTION.to_owned(), collection.into());
    }
}

/// What happened to the data of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Operation {
    /// The data are new.
    #[default]
    Create,
    /// The data were changed.
    Update,
    /// The data were deleted.
    Delete,
    /// The data were there when the source began.
    Snapshot,
}

impl Operation {
    /// Its name, as in JSON.
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

    /// The number on the wire.
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
    /// The data before; absent for new data.
    pub before: Data,
    /// The data after; absent for deleted data.
    pub after: Data,
}

/// Data of a record: the key, or one side of the payload.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Data {
    /// No data; not the same as no bytes.
    #[default]
    Absent,
    /// Bytes of a format that the pipeline does not know.
    Raw(Vec<u8>),
    /// Named fields.
    Structured(Map),
}

impl Data {
    /// The bytes, if the data are raw.
    pub fn as_raw(&self) -> Option<&[u8]> {
        match self {
            Data::Raw(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The fields, if the data are structured.
    pub fn as_structured(&self) -> Option<&Map> {
        match self {
            Data::Structured(map) => Some(map),
            _ => None,
        }
    }

    /// The fields to be changed, if the data are structured.
    pub fn as_structured_mut(&mut self) -> Option<&mut Map> {
        match self {
            Data::Structured(map) => Some(map),
            _ => None,
        }
    }

    /// Name of the kind, as messages print it.
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
