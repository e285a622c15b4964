//! References to parts of a record: `.Payload.After.name`, `.Metadata["a.b"]`.

mod parse;

use std::borrow::Cow;
use std::fmt;

use crate::error::Error;
use crate::metadata::Metadata;
use crate::record::{Change, Data, Operation, Record};
use crate::value::{Map, Value};

pub use parse::ReferenceError;

/// A reference to a part of a record, usable as the type of a parameter.
///
/// It starts with `.Position`, `.Operation`, `.Metadata`, `.Key`, `.Payload.Before` or `.Payload.After`. Each further
/// part names a key, as `.name` or `["any text"]`. Metadata has one level, and lists cannot be indexed. Metadata keys
/// may also have their names in the protocol, so that settings written for other hosts have the same meaning.
///
/// Reading and deleting never create anything. A failed operation leaves the record unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    text: String,
    target: Target,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Position,
    Operation,
    Metadata,
    Entry(String),
    Payload,
    Data(Side),
    /// Never without keys.
    Field(Side, Vec<String>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Key,
    Before,
    After,
}

impl Side {
    fn of(self, record: &Record) -> &Data {
        match self {
            Side::Key => &record.key,
            Side::Before => &record.payload.before,
            Side::After => &record.payload.after,
        }
    }

    fn of_mut(self, record: &mut Record) -> &mut Data {
        match self {
            Side::Key => &mut record.key,
            Side::Before => &mut record.payload.before,
            Side::After => &mut record.payload.after,
        }
    }
}

impl Reference {
    /// Parses a reference.
    ///
    /// # Errors
    /// Fails if the text is not a reference.
    pub fn parse(text: &str) -> Result<Self, ReferenceError> {
        parse::target(text).map(|target| Reference { text: text.to_owned(), target })
    }

    /// Returns the parsed text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the value, or `None` if it is missing. Fields are borrowed, everything else is copied: the position and
    /// raw data as bytes, an operation as its name, structured data and metadata as maps.
    ///
    /// # Errors
    /// Fails if a part of the path is not a map.
    pub fn get<'r>(&self, record: &'r Record) -> Result<Option<Cow<'r, Value>>, Error> {
        let owned = |value: Value| Ok(Some(Cow::Owned(value)));
        match &self.target {
            Target::Position => owned(record.position.clone().into()),
            Target::Operation => owned(record.operation.as_str().into()),
            Target::Metadata => {
                let mut map = Map::new();
                for (key, text) in &record.metadata {
                    map.insert(key.clone(), text.clone().into());
                }
                owned(map.into())
            }
            Target::Entry(key) => Ok(record.metadata.get(key).map(|text| Cow::Owned(text.clone().into()))),
            Target::Payload => {
                let mut map = Map::new();
                map.insert("before".to_owned(), data_value(&record.payload.before));
                map.insert("after".to_owned(), data_value(&record.payload.after));
                owned(map.into())
            }
            Target::Data(side) => match side.of(record) {
                Data::Absent => Ok(None),
                data => owned(data_value(data)),
            },
            Target::Field(side, keys) => {
                let mut map = match side.of(record) {
                    Data::Absent => return Ok(None),
                    Data::Structured(map) => map,
                    Data::Raw(_) => return Err(self.unresolved("raw data")),
                };
                let Some((last, parents)) = keys.split_last() else { return Ok(None) };
                for key in parents {
                    map = match map.get(key) {
                        Some(Value::Map(map)) => map,
                        None | Some(Value::Null) => return Ok(None),
                        Some(other) => return Err(self.unresolved(other.type_name())),
                    };
                }
                Ok(map.get(last).map(Cow::Borrowed))
            }
        }
    }

    /// Sets the value, and creates missing maps of the path. Null deletes a metadata entry and makes data absent. Text
    /// and bytes become raw data, a map becomes structured data.
    ///
    /// # Errors
    /// Fails if the part is read-only (`.Position`, `.Payload`) or does not accept this value, or if a part of the path
    /// is not a map.
    pub fn set(&self, record: &mut Record, value: impl Into<Value>) -> Result<(), Error> {
        let value = value.into();
        match &self.target {
            Target::Position | Target::Payload => return Err(self.refused("be set")),
            Target::Operation => {
                let operation = match &value {
                    Value::Text(name) => Operation::from_name(name),
                    other => other.as_i64().and_then(|n| u64::try_from(n).ok()).and_then(Operation::from_number),
                };
                record.operation = operation
                    .ok_or_else(|| self.refused("be set to a value other than create, update, delete, snapshot"))?;
            }
            Target::Metadata => {
                let entries = match value {
                    Value::Null => Map::new(),
                    Value::Map(map) => map,
                    other => return Err(self.untaken(&other)),
                };
                let mut metadata = Metadata::new();
                for (key, value) in entries {
                    match value {
                        Value::Text(text) => metadata.insert(crate::metadata::ours(&key).into_owned(), text),
                        other => return Err(self.untaken(&other)),
                    };
                }
                record.metadata = metadata;
            }
            Target::Entry(key) => match value {
                Value::Null => drop(record.metadata.remove(key)),
                Value::Text(text) => drop(record.metadata.insert(key.clone(), text)),
                other => return Err(self.untaken(&other)),
            },
            Target::Data(side) => {
                *side.of_mut(record) = match value {
                    Value::Null => Data::Absent,
                    Value::Text(text) => Data::Raw(text.into_bytes()),
                    Value::Bytes(bytes) => Data::Raw(bytes),
                    Value::Map(map) => Data::Structured(map),
                    other => return Err(self.untaken(&other)),
                };
            }
            Target::Field(side, keys) => {
                // This is the only step that can fail.
                self.get(record)?;
                let data = side.of_mut(record);
                if let Data::Absent = data {
                    *data = Data::Structured(Map::new());
                }
                let (Data::Structured(map), Some((last, parents))) = (data, keys.split_last()) else { return Ok(()) };
                let mut map = map;
                for key in parents {
                    let next = map.entry(key.clone()).or_insert(Value::Null);
                    if let Value::Null = next {
                        *next = Value::Map(Map::new());
                    }
                    let Value::Map(next) = next else { return Ok(()) };
                    map = next;
                }
                match map.get_mut(last) {
                    Some(place) => *place = value,
                    None => drop(map.insert(last.clone(), value)),
                }
            }
        }
        Ok(())
    }

    /// Deletes the value; returns whether it existed.
    ///
    /// # Errors
    /// Fails if the part cannot be deleted (`.Position`, `.Operation`), or if a part of the path is not a map.
    pub fn delete(&self, record: &mut Record) -> Result<bool, Error> {
        match &self.target {
            Target::Position | Target::Operation => Err(self.refused("be deleted")),
            Target::Metadata => Ok(!std::mem::take(&mut record.metadata).is_empty()),
            Target::Entry(key) => Ok(record.metadata.remove(key).is_some()),
            Target::Payload => Ok(std::mem::take(&mut record.payload) != Change::default()),
            Target::Data(side) => Ok(std::mem::take(side.of_mut(record)) != Data::Absent),
            Target::Field(side, keys) => {
                self.get(record)?;
                Ok(parent(side.of_mut(record), keys).is_some_and(|(map, last)| map.remove(last).is_some()))
            }
        }
    }

    /// Renames a field or metadata entry within its map; returns whether it existed.
    ///
    /// # Errors
    /// Fails if the part cannot be renamed, the new name exists already, or a part of the path is not a map.
    pub fn rename(&self, record: &mut Record, name: &str) -> Result<bool, Error> {
        match &self.target {
            Target::Entry(key) => {
                let name = crate::metadata::ours(name);
                if !record.metadata.contains_key(key) || *key == *name {
                    return Ok(record.metadata.contains_key(key));
                }
                if record.metadata.contains_key(&*name) {
                    return Err(self.taken(&name));
                }
                if let Some(text) = record.metadata.remove(key) {
                    record.metadata.insert(name.into_owned(), text);
                }
                Ok(true)
            }
            Target::Field(side, keys) => {
                if self.get(record)?.is_none() {
                    return Ok(false);
                }
                let Some((map, last)) = parent(side.of_mut(record), keys) else { return Ok(false) };
                if last == name {
                    return Ok(true);
                }
                if map.contains_key(name) {
                    return Err(self.taken(name));
                }
                if let Some(value) = map.remove(last) {
                    map.insert(name.to_owned(), value);
                }
                Ok(true)
            }
            _ => Err(self.refused("be renamed")),
        }
    }

    fn unresolved(&self, found: &str) -> Error {
        Error::new(format!("cannot resolve reference {self}: {found} on the path is not a map"))
    }

    fn refused(&self, what: &str) -> Error {
        Error::new(format!("{self} cannot {what}"))
    }

    fn untaken(&self, value: &Value) -> Error {
        Error::new(format!("{self} cannot be set to {}", value.type_name()))
    }

    fn taken(&self, name: &str) -> Error {
        Error::new(format!("{self} cannot be renamed: {name:?} exists already"))
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl std::str::FromStr for Reference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        Reference::parse(text)
    }
}

fn data_value(data: &Data) -> Value {
    match data {
        Data::Absent => Value::Null,
        Data::Raw(bytes) => Value::Bytes(bytes.clone()),
        Data::Structured(map) => Value::Map(map.clone()),
    }
}

/// Returns the map that contains the field, if it exists, and the key in it.
fn parent<'r, 'k>(data: &'r mut Data, keys: &'k [String]) -> Option<(&'r mut Map, &'k str)> {
    let mut map = data.as_structured_mut()?;
    let (last, parents) = keys.split_last()?;
    for key in parents {
        map = map.get_mut(key)?.as_map_mut()?;
    }
    Some((map, last))
}

#[cfg(test)]
mod tests;
