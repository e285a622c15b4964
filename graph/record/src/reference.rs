//! References to parts of a record: `.Payload.After.name`, `.Metadata["a.b"]`.
//!
//! A reference starts with one of the five parts of a record (or is `.`, the whole record); each further
//! part names a key: `.name`, or `["any text"]` if the key is not a plain name. Metadata has one level;
//! references cannot index lists.
//!
//! Reading and deleting never create anything. Setting creates the missing maps on the path, but only after all checks
//! have passed: a failed write leaves the record unchanged.

mod parse;
mod slips;
mod write;

use std::sync::Arc;

use crate::access::Access;
use crate::codes;
use crate::fault::Fault;
use crate::metadata::{Metadata, own_key};
use crate::record::{Change, Data, Operation, Position, Record};
use crate::text::Str;
use crate::value::{Object, Value};

pub use parse::ReferenceError;
pub use parse::push_part;

/// A parsed reference. Cloning is O(1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    text: Str,
    target: Target,
}

/// The part of a record that a reference points at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `.`: the whole record; can only be read.
    Record,
    /// `.Position`; can only be read.
    Position,
    /// `.Operation`.
    Operation,
    /// `.Metadata`: all entries.
    Metadata,
    /// `.Metadata.x`: one entry.
    Entry(Str),
    /// `.Payload`: both sides; can be read and deleted.
    Payload,
    /// `.Key`, `.Payload.Before` or `.Payload.After` as a whole.
    Data(Side),
    /// A field of structured data.
    Field(Side, Path),
}

/// The keys that lead to a field: at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    parents: Arc<[Str]>,
    last: Str,
}

impl Path {
    /// The keys of the maps that contain the field, from the outside in.
    pub fn parents(&self) -> &[Str] {
        &self.parents
    }

    /// The key of the field in the innermost map.
    pub fn last(&self) -> &Str {
        &self.last
    }
}

/// One of the three places that hold data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The key.
    Key,
    /// The payload before the change.
    Before,
    /// The payload after the change.
    After,
}

impl Side {
    /// Returns the reference to this place: `.Key`, `.Payload.Before`, `.Payload.After`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Side::Key => ".Key",
            Side::Before => ".Payload.Before",
            Side::After => ".Payload.After",
        }
    }

    /// Returns the data in this place of a record.
    #[inline]
    pub fn of(self, record: &Record) -> &Data {
        match self {
            Side::Key => &record.key,
            Side::Before => &record.payload.before,
            Side::After => &record.payload.after,
        }
    }

    /// Returns the data in this place of a record, for changes.
    #[inline]
    pub fn of_mut(self, record: &mut Record) -> &mut Data {
        match self {
            Side::Key => &mut record.key,
            Side::Before => &mut record.payload.before,
            Side::After => &mut record.payload.after,
        }
    }

    /// Returns the names that lead to it from the record: `["Payload", "After"]`.
    pub const fn parts(self) -> &'static [Str] {
        const KEY: &[Str] = &[Str::from_static("Key")];
        const BEFORE: &[Str] = &[Str::from_static("Payload"), Str::from_static("Before")];
        const AFTER: &[Str] = &[Str::from_static("Payload"), Str::from_static("After")];
        match self {
            Side::Key => KEY,
            Side::Before => BEFORE,
            Side::After => AFTER,
        }
    }
}

/// A part of a record, borrowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part<'r> {
    /// The whole record.
    Record(&'r Record),
    /// The position.
    Position(&'r Position),
    /// The operation.
    Operation(Operation),
    /// All metadata.
    Metadata(&'r Metadata),
    /// A metadata entry.
    Entry(&'r Str),
    /// Both sides of the payload.
    Payload(&'r Change),
    /// The key or one side of the payload; may be absent.
    Data(&'r Data),
    /// A field; may be null.
    Value(&'r Value),
}

impl Part<'_> {
    /// Returns the value, if the part is a field.
    pub fn value(&self) -> Option<&Value> {
        match self {
            Part::Value(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the text, if the part is a field with text, a metadata entry or the operation.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Part::Value(value) => value.as_str(),
            Part::Entry(text) => Some(text),
            Part::Operation(operation) => Some(operation.as_str()),
            _ => None,
        }
    }

    /// Returns the name of the type with its article, as messages print it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Part::Record(_) => "a record",
            Part::Position(_) => "a position",
            Part::Operation(_) => "an operation",
            Part::Metadata(_) => "metadata",
            Part::Entry(_) => "text",
            Part::Payload(_) => "a payload",
            Part::Data(Data::Absent) => "absent",
            Part::Data(Data::Raw(_)) => "raw data",
            Part::Data(Data::Structured(_)) => "structured data",
            Part::Value(value) => value.type_name(),
        }
    }
}

impl Reference {
    /// Parses a reference. Lower-case names of the record's own parts are accepted (`.payload.after.x`).
    ///
    /// # Errors
    /// An error that says what is wrong with the text and often contains a suggestion.
    pub fn parse(text: &str) -> Result<Self, ReferenceError> {
        let target = parse::explained(text)?;
        Ok(Reference { text: parse::canonical(&target), target })
    }

    /// Returns the canonical text, which parses to an equal reference.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the part of a record that the reference points at.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Returns the parts of the record that a read or write through this reference accesses, for the compiler.
    pub fn access(&self) -> Access {
        let path = match &self.target {
            Target::Record => return Access::Everything,
            Target::Position => vec![Str::from_static("Position")],
            Target::Operation => vec![Str::from_static("Operation")],
            Target::Metadata => vec![Str::from_static("Metadata")],
            Target::Entry(key) => vec![Str::from_static("Metadata"), key.clone()],
            Target::Payload => vec![Str::from_static("Payload")],
            Target::Data(side) => side.parts().to_vec(),
            Target::Field(side, path) => {
                side.parts().iter().chain(path.parents()).chain([path.last()]).cloned().collect()
            }
        };
        Access::These(vec![path])
    }

    /// Returns the part of the record, borrowed; `None` if the metadata entry or field does not exist, because its
    /// key or a parent is missing, null or absent. O(parts · log fields).
    ///
    /// # Errors
    /// `reference_unresolved`: a parent is not a map (raw data, text, a list).
    #[inline]
    pub fn get<'r>(&self, record: &'r Record) -> Result<Option<Part<'r>>, Fault> {
        Ok(Some(match &self.target {
            Target::Record => Part::Record(record),
            Target::Position => Part::Position(record.position()),
            Target::Operation => Part::Operation(record.operation),
            Target::Metadata => Part::Metadata(&record.metadata),
            Target::Entry(key) => return Ok(record.metadata.get(key).map(Part::Entry)),
            Target::Payload => Part::Payload(&record.payload),
            Target::Data(side) => Part::Data(side.of(record)),
            Target::Field(side, path) => {
                let parent = self.parent(*side, path, record)?;
                return Ok(parent.and_then(|object| object.get(&path.last)).map(Part::Value));
            }
        }))
    }

    /// Returns a reference to another key of the same map; `None` if the target is not a field or metadata entry.
    pub fn sibling(&self, key: &Str) -> Option<Reference> {
        let target = match &self.target {
            Target::Entry(_) => Target::Entry(own_key(key).unwrap_or_else(|| key.clone())),
            Target::Field(side, path) => {
                Target::Field(*side, Path { parents: path.parents.clone(), last: key.clone() })
            }
            _ => return None,
        };
        Some(Reference { text: parse::canonical(&target), target })
    }

    /// Returns `true` if the parent map of the field exists. Always `true` for targets that are not fields.
    ///
    /// # Errors
    /// `reference_unresolved`, as [`Reference::get`].
    pub fn has_parent(&self, record: &Record) -> Result<bool, Fault> {
        match &self.target {
            Target::Field(side, path) => Ok(self.parent(*side, path, record)?.is_some()),
            _ => Ok(true),
        }
    }

    /// Returns the parent map of the field; `None` if it is missing, null or absent.
    #[inline]
    fn parent<'r>(&self, side: Side, path: &Path, record: &'r Record) -> Result<Option<&'r Object>, Fault> {
        let mut object: &Object = match side.of(record) {
            Data::Structured(object) => object,
            Data::Absent => return Ok(None),
            Data::Raw(_) => return Err(self.unresolved(side, &[], "raw data")),
        };
        for (i, key) in path.parents.iter().enumerate() {
            object = match object.get(key) {
                Some(Value::Map(map)) => map,
                None | Some(Value::Null) => return Ok(None),
                Some(other) => return Err(self.unresolved(side, &path.parents[..=i], other.type_name())),
            };
        }
        Ok(Some(object))
    }

    #[cold]
    fn unresolved(&self, side: Side, way: &[Str], found: &str) -> Fault {
        let mut place = String::from(side.as_str());
        way.iter().for_each(|key| push_part(key, &mut place));
        Fault::record(
            codes::REFERENCE_UNRESOLVED,
            format!("cannot resolve reference {}: {place} is {found}, not a map", self.text),
        )
    }
}

impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.text)
    }
}

impl std::str::FromStr for Reference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        Reference::parse(text)
    }
}

#[cfg(test)]
mod tests;
