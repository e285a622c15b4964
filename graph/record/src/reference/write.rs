//! Setting, deleting and renaming the target of a reference.

use std::sync::Arc;

use bytes::Bytes;

use super::{Path, Reference, Side, Target};
use crate::codes;
use crate::fault::Fault;
use crate::metadata::Metadata;
use crate::record::{Change, Data, Operation, Record};
use crate::text::Str;
use crate::value::{Object, Value};

impl Reference {
    /// Sets the target to a value and creates the missing maps on the path.
    ///
    /// | Target | Accepted values |
    /// | --- | --- |
    /// | `.Operation` | the name of an operation, or its number 1 to 4 |
    /// | `.Metadata` | a map of texts; null empties it |
    /// | a metadata entry | text; null deletes it |
    /// | `.Key`, `.Payload.Before`, `.Payload.After` | text and bytes (become raw data), a map (becomes structured data), null (absent) |
    /// | a field | any value |
    ///
    /// # Errors
    /// `reference_read_only`, `reference_type` (the target does not accept such a value) and
    /// `reference_unresolved` (a parent is not a map). The record is then unchanged.
    pub fn set(&self, record: &mut Record, value: impl Into<Value>) -> Result<(), Fault> {
        self.set_value(record, value.into())
    }

    fn set_value(&self, record: &mut Record, value: Value) -> Result<(), Fault> {
        match &self.target {
            Target::Record | Target::Position | Target::Payload => return Err(self.read_only("set")),
            Target::Operation => record.operation = self.operation(&value)?,
            Target::Metadata => record.metadata = self.metadata(&value)?,
            Target::Entry(key) => match value {
                Value::Text(text) => {
                    record.metadata.insert(key.clone(), text);
                }
                Value::Null => {
                    record.metadata.remove(key);
                }
                other => return Err(self.refused(other.type_name(), "only text or null")),
            },
            Target::Data(side) => {
                *side.of_mut(record) = match value {
                    Value::Text(text) => Data::Raw(Bytes::copy_from_slice(text.as_bytes())),
                    Value::Bytes(bytes) => Data::Raw(Bytes::from_owner(bytes)),
                    Value::Map(object) => Data::Structured(object),
                    Value::Null => Data::Absent,
                    other => return Err(self.refused(other.type_name(), "only text, bytes, a map or null")),
                };
            }
            Target::Field(side, path) => self.set_field(*side, path, record, value)?,
        }
        Ok(())
    }

    /// Sets the target to a text, like [`Reference::set`], and copies the text once.
    ///
    /// # Errors
    /// The errors of [`Reference::set`].
    pub fn set_text(&self, record: &mut Record, text: &str) -> Result<(), Fault> {
        match &self.target {
            Target::Data(side) => {
                *side.of_mut(record) = Data::text(text);
                Ok(())
            }
            Target::Field(side, path) => self.set_field(*side, path, record, Value::from(text)),
            _ => self.set(record, text),
        }
    }

    /// Sets the target to data, like [`Reference::set`]: in a field, raw data becomes bytes, structured data
    /// a map and absent data null. Copies raw bytes only if the target is a field.
    ///
    /// # Errors
    /// The errors of [`Reference::set`].
    pub fn set_data(&self, record: &mut Record, data: Data) -> Result<(), Fault> {
        match (&self.target, data) {
            (Target::Data(side), data) => {
                *side.of_mut(record) = data;
                Ok(())
            }
            (_, Data::Absent) => self.set(record, Value::Null),
            (_, Data::Raw(bytes)) => self.set(record, Value::Bytes(Arc::from(bytes.as_ref()))),
            (_, Data::Structured(object)) => self.set(record, Value::Map(object)),
        }
    }

    /// Removes the target and returns `true` if it existed: a field or entry is removed, data becomes absent, metadata
    /// becomes empty, both sides of a payload become absent. If the target is missing, this does nothing.
    ///
    /// # Errors
    /// `reference_read_only`, `reference_unresolved`. The record is then unchanged.
    pub fn delete(&self, record: &mut Record) -> Result<bool, Fault> {
        match &self.target {
            Target::Record | Target::Position | Target::Operation => Err(self.read_only("deleted")),
            Target::Metadata => Ok(!std::mem::take(&mut record.metadata).is_empty()),
            Target::Entry(key) => Ok(record.metadata.remove(key).is_some()),
            Target::Payload => Ok(std::mem::take(&mut record.payload) != Change::default()),
            Target::Data(side) => Ok(std::mem::take(side.of_mut(record)) != Data::Absent),
            Target::Field(side, path) => {
                if self.parent(*side, path, record)?.is_none_or(|object| object.get(&path.last).is_none()) {
                    return Ok(false);
                }
                let parent = existing_parent(side.of_mut(record), path);
                Ok(parent.is_some_and(|object| object.remove(&path.last).is_some()))
            }
        }
    }

    /// Gives a field or metadata entry another key in the same map and returns `true` if it existed. If it is missing
    /// or already has this key, this does nothing.
    ///
    /// # Errors
    /// `reference_read_only` (other targets have no key), `reference_exists` (the map already contains the new
    /// key), `reference_unresolved`. The record is then unchanged.
    pub fn rename(&self, record: &mut Record, name: &Str) -> Result<bool, Fault> {
        if !self.can_rename(record, name)? {
            return Ok(false);
        }
        match &self.target {
            Target::Entry(key) if key != name => {
                if let Some(value) = record.metadata.remove(key) {
                    record.metadata.insert(name.clone(), value);
                }
            }
            Target::Field(side, path) if path.last != *name => {
                if let Some(object) = existing_parent(side.of_mut(record), path)
                    && let Some(value) = object.remove(&path.last)
                {
                    object.insert(name.clone(), value);
                }
            }
            _ => {}
        }
        Ok(true)
    }

    /// Returns the result of [`Reference::rename`] without changing the record.
    ///
    /// # Errors
    /// The errors of [`Reference::rename`].
    pub fn can_rename(&self, record: &Record, name: &Str) -> Result<bool, Fault> {
        let (there, taken) = match &self.target {
            Target::Entry(key) => {
                (record.metadata.get(key).is_some(), key != name && record.metadata.get(name).is_some())
            }
            Target::Field(side, path) => {
                let Some(parent) = self.parent(*side, path, record)? else { return Ok(false) };
                (parent.get(&path.last).is_some(), path.last != *name && parent.get(name).is_some())
            }
            _ => return Err(self.read_only("renamed")),
        };
        if there && taken { Err(self.exists(name)) } else { Ok(there) }
    }

    fn set_field(&self, side: Side, path: &Path, record: &mut Record, value: Value) -> Result<(), Fault> {
        // Ensures that every parent is a map, null or missing before anything is written.
        self.parent(side, path, record)?;
        let data = side.of_mut(record);
        if matches!(data, Data::Absent) {
            *data = Data::from(Object::new());
        }
        let Some(mut object) = data.fields_mut() else { return Err(self.unresolved(side, &[], "raw data")) };
        for (i, key) in path.parents.iter().enumerate() {
            if matches!(object.get(key), None | Some(Value::Null)) {
                object.insert(key.clone(), Value::from(Object::new()));
            }
            object = match object.get_mut(key) {
                Some(Value::Map(map)) => Arc::make_mut(map),
                _ => return Err(self.unresolved(side, &path.parents[..=i], "a value")),
            };
        }
        match object.get_mut(&path.last) {
            Some(slot) => *slot = value,
            None => {
                object.insert(path.last.clone(), value);
            }
        }
        Ok(())
    }

    fn operation(&self, value: &Value) -> Result<Operation, Fault> {
        const TAKES: &str = "only create, update, delete, snapshot or their numbers 1 to 4";
        match value {
            Value::Text(name) => name.parse().map_err(|e| Fault::record(codes::REFERENCE_TYPE, e)),
            Value::Int(number) => {
                Operation::from_number(*number).ok_or_else(|| self.refused(&format!("the integer {number}"), TAKES))
            }
            other => Err(self.refused(other.type_name(), TAKES)),
        }
    }

    fn metadata(&self, value: &Value) -> Result<Metadata, Fault> {
        let object = match value {
            Value::Null => return Ok(Metadata::new()),
            Value::Map(object) => object,
            other => return Err(self.refused(other.type_name(), "only a map of texts or null")),
        };
        let text = |(key, value): (&Str, &Value)| match value {
            Value::Text(text) => Ok((key.clone(), text.clone())),
            other => {
                Err(self.refused(&format!("a map that contains {}", other.type_name()), "only a map of texts or null"))
            }
        };
        object.iter().map(text).collect::<Result<Vec<_>, _>>().map(Metadata::from_entries)
    }

    #[cold]
    fn read_only(&self, what: &str) -> Fault {
        Fault::record(codes::REFERENCE_READ_ONLY, format!("{} cannot be {what}", self.text))
    }

    #[cold]
    fn refused(&self, found: &str, takes: &str) -> Fault {
        Fault::record(codes::REFERENCE_TYPE, format!("cannot set {} to {found}: it accepts {takes}", self.text))
    }

    #[cold]
    fn exists(&self, name: &Str) -> Fault {
        Fault::record(codes::REFERENCE_EXISTS, format!("cannot rename {} to {name:?}: field already exists", self.text))
    }
}

/// Returns the parent map of the field if it exists; copies it if it is shared.
fn existing_parent<'r>(data: &'r mut Data, path: &Path) -> Option<&'r mut Object> {
    path.parents.iter().try_fold(data.fields_mut()?, |object, key| match object.get_mut(key) {
        Some(Value::Map(map)) => Some(Arc::make_mut(map)),
        _ => None,
    })
}
