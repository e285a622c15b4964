//! Records in protobuf.

use super::read::{Field, Malformed, Reader, text};
use super::refill;
use super::write::Writer;
use crate::metadata::{self, Metadata};
use crate::record::{Data, Operation, Record};
use crate::text::same;
use crate::value::{Map, Value, base64};

/// Maximum nesting depth of structured data: enough for any data, and few enough for the stack of a module.
const MOST_LEVELS: usize = 200;

impl Record {
    /// Reads the record from the message; reuses the memory of the old content.
    pub(super) fn read(&mut self, whole: Reader<'_>) -> Result<(), Malformed> {
        let (mut position, mut operation): (&[u8], _) = (&[], Operation::default());
        let (mut key, mut before, mut after) = (None, None, None);
        // True while the entries have the same keys as the old ones.
        let (mut places, mut alike) = (self.metadata.iter_mut(), true);
        let mut from = whole;
        while let Some((number, field)) = from.next()? {
            match number {
                1 => position = field.bytes()?,
                2 => operation = Operation::from_number(field.varint()?).unwrap_or_default(),
                3 if alike => {
                    let (key, value) = field.message()?.entry()?;
                    match places.next().filter(|(place, _)| metadata::is_ours(place, key)) {
                        Some((_, place)) => refill::text(place, value.map_or(Ok(""), Field::text)?),
                        None => alike = false,
                    }
                }
                4 => key = Some(field.message()?),
                5 => {
                    let mut sides = field.message()?;
                    (before, after) = (None, None);
                    while let Some((number, field)) = sides.next()? {
                        match number {
                            1 => before = Some(field.message()?),
                            2 => after = Some(field.message()?),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        if !alike || places.next().is_some() {
            self.metadata = read_metadata(whole)?;
        }
        refill::bytes(&mut self.position, position);
        self.operation = operation;
        self.key.read(key)?;
        self.payload.before.read(before)?;
        self.payload.after.read(after)
    }

    pub(super) fn write(&self, to: &mut Writer) {
        to.bytes(1, &self.position);
        to.number(2, self.operation.number());
        for (key, value) in &self.metadata {
            // If two names are the same key, the processor's name takes precedence.
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

/// Reads the metadata of a record. A map that is built from all entries at once compares far fewer keys than one that
/// grows.
fn read_metadata(mut from: Reader<'_>) -> Result<Metadata, Malformed> {
    let (mut renamed, mut kept) = (Vec::new(), Vec::new());
    while let Some((number, field)) = from.next()? {
        if number != 3 {
            continue;
        }
        let (key, value) = field.message()?.entry()?;
        let value = value.map_or(Ok(""), Field::text)?.to_owned();
        match metadata::ours(text(key)?) {
            std::borrow::Cow::Owned(ours) => renamed.push((ours, value)),
            std::borrow::Cow::Borrowed(key) => kept.push((key.to_owned(), value)),
        }
    }
    // Of equal keys the last one stays: the service has set the one with this crate's name.
    renamed.append(&mut kept);
    Ok(renamed.into_iter().collect())
}

impl Data {
    /// Reads the data from the message, reusing the memory of the old content; absent if there is none.
    fn read(&mut self, from: Option<Reader<'_>>) -> Result<(), Malformed> {
        let mut data = None;
        if let Some(mut from) = from {
            while let Some((number, field)) = from.next()? {
                if let 1 | 2 = number {
                    data = Some((number, field));
                }
            }
        }
        match (data, &mut *self) {
            (None, _) => *self = Data::Absent,
            (Some((1, field)), Data::Raw(place)) => refill::bytes(place, field.bytes()?),
            (Some((1, field)), _) => *self = Data::Raw(field.bytes()?.to_vec()),
            (Some((_, field)), Data::Structured(place)) => read_map(field.message()?, place, MOST_LEVELS)?,
            (Some((_, field)), _) => {
                let mut map = Map::new();
                read_map(field.message()?, &mut map, MOST_LEVELS)?;
                *self = Data::Structured(map);
            }
        }
        Ok(())
    }

    fn write(&self, field: u32, to: &mut Writer) {
        match self {
            Data::Absent => {}
            Data::Raw(bytes) => to.message(field, |to| to.always_bytes(1, bytes)),
            Data::Structured(map) => to.message(field, |to| to.message(2, |to| write_map(map, to))),
        }
    }
}

/// Reads a map from the message. If it has the same keys, reuses its memory.
fn read_map(whole: Reader<'_>, place: &mut Map, levels: usize) -> Result<(), Malformed> {
    let mut places = place.iter_mut();
    let mut from = whole;
    let alike = loop {
        let Some((number, field)) = from.next()? else { break places.next().is_none() };
        if number == 1 {
            let (key, field) = field.message()?.entry()?;
            match places.next() {
                Some((place, value)) if same(place.as_bytes(), key) => entry_value(field, value, levels)?,
                _ => break false,
            }
        }
    };
    if alike {
        return Ok(());
    }
    let mut map = Map::new();
    let mut from = whole;
    while let Some((number, field)) = from.next()? {
        if number == 1 {
            let (key, field) = field.message()?.entry()?;
            let mut value = Value::Null;
            entry_value(field, &mut value, levels)?;
            map.insert(text(key)?.to_owned(), value);
        }
    }
    *place = map;
    Ok(())
}

fn entry_value(field: Option<Field<'_>>, place: &mut Value, levels: usize) -> Result<(), Malformed> {
    match field {
        Some(field) => read_value(field.message()?, place, levels),
        None => {
            *place = Value::Null;
            Ok(())
        }
    }
}

/// Reads a value from the message.
fn read_value(mut from: Reader<'_>, place: &mut Value, levels: usize) -> Result<(), Malformed> {
    let below = levels.checked_sub(1).ok_or(Malformed::Depth)?;
    let mut read = false;
    while let Some((number, field)) = from.next()? {
        match number {
            1 => *place = Value::Null,
            2 => *place = Value::Float(field.double()?),
            3 => refill::text_value(place, field.text()?),
            4 => *place = Value::Bool(field.varint()? != 0),
            5 => {
                let mut map = match std::mem::take(place) {
                    Value::Map(map) => map,
                    _ => Map::new(),
                };
                read_map(field.message()?, &mut map, below)?;
                *place = Value::Map(map);
            }
            6 => {
                let mut elements = field.message()?;
                let mut list = Vec::new();
                while let Some((number, field)) = elements.next()? {
                    if number == 1 {
                        let mut element = Value::Null;
                        read_value(field.message()?, &mut element, below)?;
                        list.push(element);
                    }
                }
                *place = Value::List(list);
            }
            _ => continue,
        }
        read = true;
    }
    if !read {
        *place = Value::Null;
    }
    Ok(())
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
