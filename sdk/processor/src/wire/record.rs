//! Records.

use super::read::{Field, Malformed, Reader};
use super::write::Writer;
use crate::metadata::{self, Metadata};
use crate::record::{Change, Data, Operation, Record};
use crate::value::{Map, Value, base64};

/// Levels of structured data; enough for any data, and few enough for the stack of a module.
const MOST_LEVELS: usize = 200;

impl Record {
    pub(super) fn read(mut from: Reader<'_>) -> Result<Self, Malformed> {
        let mut record = Record::default();
        let mut metadata = Entries::default();
        while let Some((number, field)) = from.next()? {
            match number {
                1 => record.position = field.bytes()?.to_vec(),
                2 => record.operation = Operation::from_number(field.varint()?).unwrap_or_default(),
                3 => metadata.read(field)?,
                4 => record.key = Data::read(field.message()?)?,
                5 => {
                    let mut sides = field.message()?;
                    let mut change = Change::default();
                    while let Some((number, field)) = sides.next()? {
                        match number {
                            1 => change.before = Data::read(field.message()?)?,
                            2 => change.after = Data::read(field.message()?)?,
                            _ => {}
                        }
                    }
                    record.payload = change;
                }
                _ => {}
            }
        }
        record.metadata = metadata.into();
        Ok(record)
    }

    pub(super) fn write(&self, to: &mut Writer) {
        to.bytes(1, &self.position);
        to.number(2, self.operation.number());
        for (key, value) in &self.metadata {
            // Under two names that are one on the wire, ours wins.
            if let std::borrow::Cow::Owned(ours) = metadata::ours(key)
                && self.metadata.contains_key(&ours)
            {
                continue;
            }
            to.message(3, |entry| {
                let (prefix, rest) = metadata::wire(key);
                entry.joined(1, [prefix, rest]);
                entry.bytes(2, value.as_bytes());
            });
        }
        self.key.write(4, to);
        to.message(5, |to| {
            self.payload.before.write(1, to);
            self.payload.after.write(2, to);
        });
    }
}

/// Metadata as they come. A map that is made of all of them at once compares far fewer keys than one that grows.
#[derive(Default)]
struct Entries {
    renamed: Vec<(String, String)>,
    kept: Vec<(String, String)>,
}

impl Entries {
    fn read(&mut self, field: Field<'_>) -> Result<(), Malformed> {
        let (key, value) = field.message()?.entry()?;
        let value = value.map_or(Ok(""), Field::text)?.to_owned();
        match metadata::ours(key) {
            std::borrow::Cow::Owned(ours) => self.renamed.push((ours, value)),
            std::borrow::Cow::Borrowed(key) => self.kept.push((key.to_owned(), value)),
        }
        Ok(())
    }
}

impl From<Entries> for Metadata {
    fn from(mut entries: Entries) -> Self {
        // Of equal keys the last one stays: a record that carries both names was given ours by us.
        entries.renamed.append(&mut entries.kept);
        entries.renamed.into_iter().collect()
    }
}

impl Data {
    fn read(mut from: Reader<'_>) -> Result<Self, Malformed> {
        let mut data = Data::Absent;
        while let Some((number, field)) = from.next()? {
            match number {
                1 => data = Data::Raw(field.bytes()?.to_vec()),
                2 => data = Data::Structured(map(field.message()?, MOST_LEVELS)?),
                _ => {}
            }
        }
        Ok(data)
    }

    fn write(&self, field: u32, to: &mut Writer) {
        match self {
            Data::Absent => {}
            Data::Raw(bytes) => to.message(field, |to| to.always_bytes(1, bytes)),
            Data::Structured(map) => to.message(field, |to| to.message(2, |to| write_map(map, to))),
        }
    }
}

fn map(mut from: Reader<'_>, levels: usize) -> Result<Map, Malformed> {
    let mut map = Map::new();
    while let Some((number, field)) = from.next()? {
        if number == 1 {
            let (key, field) = field.message()?.entry()?;
            let value = field.map_or(Ok(Value::Null), |field| value(field.message()?, levels))?;
            map.insert(key.to_owned(), value);
        }
    }
    Ok(map)
}

fn value(mut from: Reader<'_>, levels: usize) -> Result<Value, Malformed> {
    let below = levels.checked_sub(1).ok_or(Malformed::Depth)?;
    let mut read = Value::Null;
    while let Some((number, field)) = from.next()? {
        read = match number {
            1 => Value::Null,
            2 => Value::Float(field.double()?),
            3 => Value::Text(field.text()?.to_owned()),
            4 => Value::Bool(field.varint()? != 0),
            5 => Value::Map(map(field.message()?, below)?),
            6 => {
                let mut elements = field.message()?;
                let mut list = Vec::new();
                while let Some((number, field)) = elements.next()? {
                    if number == 1 {
                        list.push(value(field.message()?, below)?);
                    }
                }
                Value::List(list)
            }
            _ => continue,
        };
    }
    Ok(read)
}

fn write_map(map: &Map, to: &mut Writer) {
    for (key, value) in map {
        to.message(1, |to| {
            to.bytes(1, key.as_bytes());
            to.message(2, |to| write_value(value, to));
        });
    }
}

fn write_value(value: &Value, to: &mut Writer) {
    match value {
        Value::Null => to.always_number(1, 0),
        Value::Int(number) => to.double(2, *number as f64),
        Value::Float(number) => to.double(2, *number),
        Value::Text(text) => to.always_bytes(3, text.as_bytes()),
        Value::Bytes(bytes) => to.always_bytes(3, base64(bytes).as_bytes()),
        Value::Bool(value) => to.always_number(4, u64::from(*value)),
        Value::Map(map) => to.message(5, |to| write_map(map, to)),
        Value::List(list) => to.message(6, |to| {
            for element in list {
                to.message(1, |to| write_value(element, to));
            }
        }),
    }
}
