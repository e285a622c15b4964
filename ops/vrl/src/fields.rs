//! The fields of a record that a program names, each in a place of its own.
//!
//! A program that takes neither `.` nor `%` nor the metadata as a whole needs no maps of them: it finds its fields by their
//! number, and no map is built, searched and taken apart for each record.

use anabranch_record::reference::Side;
use anabranch_record::text::Str;
use anabranch_record::value::Object;
use anabranch_record::{Data, Record};
use vrl::path::{OwnedSegment, OwnedTargetPath, PathPrefix};
use vrl::value::{KeyString, ObjectMap, Value};

use crate::loads::LoadedFields;
use crate::spot::{FIELDS, Spot, TargetPart, key_of};
use crate::values::NotRepresentable;
use crate::writes::WrittenPath;

/// The fields that a program names.
#[derive(Clone, Debug, Default)]
pub(crate) struct FieldTable {
    fields: Vec<NamedField>,
    /// For each path that the program writes, the field of its place.
    written: Vec<FieldPath>,
}

/// A field of the payload, an entry of the metadata, or another part of a record.
#[derive(Clone, Debug)]
struct NamedField {
    part: TargetPart,
    /// The name of the field or entry; empty for a part without any.
    name: KeyString,
    /// The name in a record.
    key: Str,
    /// What the program reads of the field; `None` if it only sets it.
    loads: Option<LoadedFields>,
}

/// A path of a program: the field, and the number of segments that name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FieldPath {
    field: usize,
    segments: usize,
}

impl NamedField {
    /// Compares the first bytes before a call compares them all.
    #[inline]
    fn is(&self, part: TargetPart, name: &str) -> bool {
        let (own, name) = (self.name.as_bytes(), name.as_bytes());
        own.len() == name.len() && own.first() == name.first() && self.part == part && own == name
    }
}

/// The values of the fields of one record.
#[derive(Debug, Default)]
pub(crate) struct FieldValues {
    /// `None` for a field that is not there.
    values: Vec<Option<Value>>,
    /// For each field, its place in the payload of the last record.
    places: Vec<usize>,
}

impl FieldTable {
    /// Returns the table of a program that reads and writes these paths; `None` if it takes a part as a whole.
    pub(crate) fn new(reads: &[Spot], writes: &[WrittenPath]) -> Option<FieldTable> {
        let is_field = |spot: &Spot| match spot.part {
            TargetPart::Data(Side::After) | TargetPart::Metadata => !spot.names.is_empty(),
            TargetPart::Data(_) => false,
            TargetPart::Operation | TargetPart::Position => true,
        };
        let mut table = FieldTable::default();
        for spot in reads {
            if !is_field(spot) {
                return None;
            }
            let field = table.add(spot);
            let of_parent = spot.names.get(1..).unwrap_or_default();
            table.fields[field].loads.get_or_insert_default().add(of_parent);
        }
        for write in writes {
            if !is_field(&write.spot) {
                return None;
            }
            table.add(&write.spot);
        }
        for write in writes {
            let found = table.find(&write.place)?;
            table.written.push(found);
        }
        Some(table)
    }

    /// Adds the field of a spot and returns its number.
    fn add(&mut self, spot: &Spot) -> usize {
        let name = match spot.part {
            TargetPart::Data(_) | TargetPart::Metadata => spot.names.first().map_or("", Str::as_str),
            TargetPart::Operation | TargetPart::Position => "",
        };
        let known = self.fields.iter().position(|field| field.is(spot.part, name));
        known.unwrap_or_else(|| {
            let key = Str::from(name);
            let key = if spot.part == TargetPart::Metadata { key_of(&key) } else { key };
            self.fields.push(NamedField { part: spot.part, name: name.into(), key, loads: None });
            self.fields.len() - 1
        })
    }

    /// Finds the field of a path. O(fields of the program).
    #[inline]
    fn find(&self, path: &OwnedTargetPath) -> Option<FieldPath> {
        let segments = &path.path.segments[..];
        let (part, name, segments) = match (path.prefix, segments) {
            (PathPrefix::Event, [OwnedSegment::Field(name), ..]) => (TargetPart::Data(Side::After), name.as_str(), 1),
            (PathPrefix::Metadata, [OwnedSegment::Field(part), rest @ ..]) => {
                let (_, part) = *FIELDS.iter().find(|(known, _)| *known == part.as_str())?;
                match (part, rest) {
                    (TargetPart::Metadata, [OwnedSegment::Field(name), ..]) => (part, name.as_str(), 2),
                    (TargetPart::Operation | TargetPart::Position, _) => (part, "", 1),
                    _ => return None,
                }
            }
            _ => return None,
        };
        let field = self.fields.iter().position(|field| field.is(part, name))?;
        Some(FieldPath { field, segments })
    }

    /// Reads the fields of a record into memory for reuse.
    ///
    /// # Errors
    /// The program reads a value that it cannot hold.
    fn load(&self, record: &Record, memory: &mut FieldValues) -> Result<(), NotRepresentable> {
        memory.values.clear();
        memory.places.resize(self.fields.len(), 0);
        let object: Option<&Object> = record.payload.after.fields();
        for (field, place) in self.fields.iter().zip(&mut memory.places) {
            memory.values.push(match (&field.loads, field.part) {
                (None, _) => None,
                (Some(loads), TargetPart::Data(_)) => {
                    let value = object.and_then(|object| object.get_near(&field.key, place));
                    value.map(|value| loads.value(value)).transpose()?
                }
                (Some(_), TargetPart::Metadata) => {
                    record.metadata.get(&field.key).map(|text| Value::from(text.as_str()))
                }
                (Some(_), TargetPart::Operation) => Some(Value::from(record.operation.as_str())),
                (Some(_), TargetPart::Position) => Some(Value::Bytes(record.position().0.clone())),
            });
        }
        Ok(())
    }
}

/// The fields of a record, while a program runs.
#[derive(Debug)]
pub(crate) struct Fields<'p> {
    table: &'p FieldTable,
    memory: FieldValues,
    /// True if the payload is structured.
    has_fields: bool,
}

/// What a program without `.` gets for `.`: the library asks for it before a program begins.
static NOTHING: Value = Value::Null;

impl<'p> Fields<'p> {
    /// Reads the fields of a record. `memory` is for reuse.
    ///
    /// # Errors
    /// The program reads a value that it cannot hold.
    pub(crate) fn of(
        table: &'p FieldTable,
        record: &Record,
        mut memory: FieldValues,
    ) -> Result<Fields<'p>, NotRepresentable> {
        table.load(record, &mut memory)?;
        Ok(Fields { table, memory, has_fields: matches!(record.payload.after, Data::Structured(_)) })
    }

    pub(crate) fn into_memory(self) -> FieldValues {
        self.memory
    }

    /// Returns `true` if the path is a field of a payload that has no fields.
    pub(crate) fn is_misplaced(&self, path: &OwnedTargetPath) -> bool {
        !self.has_fields && path.prefix == PathPrefix::Event
    }

    pub(crate) fn get(&self, path: &OwnedTargetPath) -> Option<&Value> {
        match self.table.find(path) {
            Some(found) => self.value(found, path),
            None if path.path.segments.is_empty() => Some(&NOTHING),
            None => None,
        }
    }

    /// Returns the value of the place that the write with this number changes.
    pub(crate) fn written(&self, write: usize, place: &OwnedTargetPath) -> Option<&Value> {
        self.value(self.table.written[write], place)
    }

    fn value(&self, found: FieldPath, path: &OwnedTargetPath) -> Option<&Value> {
        let value = self.memory.values[found.field].as_ref()?;
        match &path.path.segments[found.segments..] {
            [] => Some(value),
            rest => value.get(rest),
        }
    }

    pub(crate) fn get_mut(&mut self, path: &OwnedTargetPath) -> Option<&mut Value> {
        let found = self.table.find(path)?;
        self.memory.values[found.field].as_mut()?.get_mut(&path.path.segments[found.segments..])
    }

    pub(crate) fn insert(&mut self, path: &OwnedTargetPath, value: Value) {
        let Some(found) = self.table.find(path) else { return };
        let field = &mut self.memory.values[found.field];
        match &path.path.segments[found.segments..] {
            [] => *field = Some(value),
            rest => drop(field.get_or_insert(Value::Null).insert(rest, value)),
        }
    }

    pub(crate) fn remove(&mut self, path: &OwnedTargetPath, compact: bool) -> Option<Value> {
        let found = self.table.find(path)?;
        let field = &mut self.memory.values[found.field];
        let from = found.segments.checked_sub(1)?;
        match &path.path.segments[from..] {
            [] | [_] => field.take(),
            segments @ [OwnedSegment::Field(name), ..] if self.table.fields[found.field].name == *name => {
                // The library removes the field too if nothing is left in it.
                let mut parent = Value::Object(ObjectMap::from([(name.clone(), field.take()?)]));
                let removed = parent.remove(segments, compact);
                *field = parent.as_object_mut().and_then(|parent| parent.remove(name.as_str()));
                removed
            }
            // A part of the operation, which is a text.
            _ => None,
        }
    }
}
