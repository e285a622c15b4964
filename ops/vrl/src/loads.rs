//! The parts of a record that a program reads, and their conversion.

use anabranch_record::reference::Side;
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Record};
use vrl::value::{KeyString, ObjectMap, Value as ProgramValue};

use crate::spot::{FIELDS, Spot, TargetPart, key_of};
use crate::values::{NotRepresentable, enter, enter_object};
use crate::whole::Whole;

/// The parts of a record that a program reads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Loads {
    after: LoadedFields,
    before: LoadedFields,
    key: LoadedFields,
    metadata: LoadedFields,
    operation: bool,
    position: bool,
}

/// The fields of a map that a program reads.
#[derive(Clone, Debug)]
pub(crate) enum LoadedFields {
    /// All, with everything in them.
    All,
    /// Some, in the order of their names; none if the program does not read the map.
    Some(Vec<LoadedField>),
}

impl Default for LoadedFields {
    fn default() -> Self {
        LoadedFields::Some(Vec::new())
    }
}

#[derive(Clone, Debug)]
pub(crate) struct LoadedField {
    name: Str,
    key: KeyString,
    fields: LoadedFields,
}

impl LoadedFields {
    /// Adds the value under these names.
    pub(crate) fn add(&mut self, names: &[Str]) {
        let LoadedFields::Some(fields) = self else { return };
        let Some((name, rest)) = names.split_first() else {
            *self = LoadedFields::All;
            return;
        };
        let at = fields.binary_search_by(|field| field.name.cmp(name)).unwrap_or_else(|at| {
            let key = KeyString::from(name.as_str());
            fields.insert(at, LoadedField { name: name.clone(), key, fields: LoadedFields::default() });
            at
        });
        fields[at].fields.add(rest);
    }

    fn is_none(&self) -> bool {
        matches!(self, LoadedFields::Some(fields) if fields.is_empty())
    }

    fn object(&self, object: &Object) -> Result<ObjectMap, NotRepresentable> {
        match self {
            LoadedFields::All => enter_object(object),
            LoadedFields::Some(fields) => {
                let loaded = fields.iter().filter_map(|field| {
                    let value = object.get(&field.name)?;
                    Some(field.fields.value(value).map(|value| (field.key.clone(), value)))
                });
                loaded.collect()
            }
        }
    }

    /// Converts a value, or the fields of it that the program reads.
    pub(crate) fn value(&self, value: &Value) -> Result<ProgramValue, NotRepresentable> {
        match value {
            Value::Map(object) => Ok(ProgramValue::Object(self.object(object)?)),
            other => enter(other),
        }
    }

    fn data(&self, data: &Data) -> Result<ProgramValue, NotRepresentable> {
        Ok(match data {
            Data::Absent => ProgramValue::Null,
            Data::Raw(bytes) => ProgramValue::Bytes(bytes.clone()),
            Data::Structured(object) => ProgramValue::Object(self.object(object)?),
        })
    }
}

impl Loads {
    /// Adds the part at a spot.
    pub(crate) fn add(&mut self, spot: &Spot) {
        match spot.part {
            TargetPart::Data(side) => self.side_mut(side).add(&spot.names),
            TargetPart::Metadata => self.metadata.add(&spot.names[..spot.names.len().min(1)]),
            TargetPart::Operation => self.operation = true,
            TargetPart::Position => self.position = true,
        }
    }

    /// Adds all fields of `%`.
    pub(crate) fn add_all_fields(&mut self) {
        for (_, part) in FIELDS {
            self.add(&Spot { part, names: Vec::new() });
        }
    }

    fn side(&self, side: Side) -> &LoadedFields {
        match side {
            Side::After => &self.after,
            Side::Before => &self.before,
            Side::Key => &self.key,
        }
    }

    fn side_mut(&mut self, side: Side) -> &mut LoadedFields {
        match side {
            Side::After => &mut self.after,
            Side::Before => &mut self.before,
            Side::Key => &mut self.key,
        }
    }

    /// Returns `.` and `%` for a program.
    ///
    /// # Errors
    /// The program reads a value that it cannot hold.
    pub(crate) fn whole(&self, record: &Record, sets: &[Side]) -> Result<Whole, NotRepresentable> {
        Ok(Whole { event: self.event(record)?, rest: self.rest(record, sets)? })
    }

    fn event(&self, record: &Record) -> Result<ProgramValue, NotRepresentable> {
        self.after.data(&record.payload.after)
    }

    /// Returns `%` for a program. The key and the payload before the change are there even if no field of them is read,
    /// so that the program can set fields of them.
    fn rest(&self, record: &Record, sets: &[Side]) -> Result<ProgramValue, NotRepresentable> {
        let mut rest = ObjectMap::new();
        for (name, part) in FIELDS {
            let value = match part {
                TargetPart::Data(side) if self.side(side).is_none() && !sets.contains(&side) => continue,
                TargetPart::Data(side) => self.side(side).data(side.of(record))?,
                TargetPart::Metadata => match &self.metadata {
                    LoadedFields::All => {
                        let entry = |(key, text): (&Str, &Str)| {
                            (KeyString::from(key.as_str()), ProgramValue::from(text.as_str()))
                        };
                        ProgramValue::Object(record.metadata.iter().map(entry).collect())
                    }
                    LoadedFields::Some(entries) if entries.is_empty() => continue,
                    LoadedFields::Some(entries) => {
                        let entry = |field: &LoadedField| {
                            let text = record.metadata.get(&key_of(&field.name))?;
                            Some((field.key.clone(), ProgramValue::from(text.as_str())))
                        };
                        ProgramValue::Object(entries.iter().filter_map(entry).collect())
                    }
                },
                TargetPart::Operation if self.operation => ProgramValue::from(record.operation.as_str()),
                TargetPart::Position if self.position => ProgramValue::Bytes(record.position().0.clone()),
                TargetPart::Operation | TargetPart::Position => continue,
            };
            rest.insert(name.into(), value);
        }
        Ok(ProgramValue::Object(rest))
    }
}
