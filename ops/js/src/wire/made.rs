//! Records that a script made, as what differs from the record that it was called with.
//!
//! What the script left alone is the same value in the worker, by its address, and does not travel back: it stays what
//! it is in the record that the service has. So a worker need not know it.

use std::sync::Arc;

use anabranch_record::metadata::Metadata;
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Operation, Record};
use bytes::Bytes;

use super::read::Reader;
use super::write::{TooDeep, data, write_bytes, write_data, write_number, write_value};
use super::{Malformed, Want, Wants};

/// Parts of a record that changed: one bit each.
mod part {
    pub(super) const OPERATION: u8 = 1;
    pub(super) const METADATA: u8 = 2;
    pub(super) const KEY: u8 = 4;
    pub(super) const BEFORE: u8 = 8;
    pub(super) const AFTER: u8 = 16;
}

/// Where an entry of metadata that was sent whole comes from.
mod entry {
    /// From the old map, whole.
    pub(super) const OLD: u8 = 0;
    /// The following bytes are the name of an existing value.
    pub(super) const OLD_NAME: u8 = 1;
    pub(super) const NEW: u8 = 2;
}

/// What became of a field.
mod change {
    /// There are no more.
    pub(super) const END: u8 = 0;
    /// It has this value. Its name is one of those that are known, by number.
    pub(super) const SET: u8 = 1;
    /// It has this value and this name.
    pub(super) const NEW: u8 = 2;
    /// It is not there any more. Its name is one of those that are known.
    pub(super) const GONE: u8 = 3;
}

/// A record, beside the one that it was made of, whose position it has and of which no more was known than was wanted.
pub(crate) fn write_made(out: &mut Vec<u8>, made: &Record, of: &Record, wants: &Wants) -> Result<(), TooDeep> {
    let at = out.len();
    out.push(0);
    let mut parts = 0;
    if made.operation != of.operation {
        parts |= part::OPERATION;
        out.push(made.operation as u8);
    }
    if !made.metadata.shares(&of.metadata) {
        parts |= part::METADATA;
        write_metadata(out, &made.metadata, &of.metadata, &wants.metadata);
    }
    let sides = [
        (part::KEY, &made.key, &of.key, &wants.key),
        (part::BEFORE, &made.payload.before, &of.payload.before, &wants.before),
        (part::AFTER, &made.payload.after, &of.payload.after, &wants.after),
    ];
    for (bit, made, of, want) in sides {
        if same_data(made, of) {
            continue;
        }
        parts |= bit;
        match (made, of) {
            (Data::Structured(made), Data::Structured(of)) => {
                out.push(data::CHANGED);
                write_fields(out, made, of, want)?;
            }
            _ => write_data(out, made)?,
        }
    }
    out[at] = parts;
    Ok(())
}

/// Both are sorted.
fn write_fields(out: &mut Vec<u8>, made: &Object, of: &Object, want: &Want) -> Result<(), TooDeep> {
    let mut old = of.iter().enumerate().peekable();
    let number = |was: Option<usize>, name: &Str| match want {
        Want::Fields(names) => names.binary_search(name).ok(),
        Want::Nothing | Want::Whole => was,
    };
    let gone = |out: &mut Vec<u8>, at, name| {
        if let Some(at) = number(Some(at), name) {
            out.push(change::GONE);
            write_number(out, at as u64);
        }
    };
    for (name, value) in made.iter() {
        while let Some((at, (before, _))) = old.next_if(|(_, (before, _))| !same_text(before, name) && *before < name) {
            gone(out, at, before);
        }
        let was = old.next_if(|(_, (before, _))| same_text(before, name) || *before == name);
        if was.is_some_and(|(_, (_, was))| same_value(value, was)) {
            continue;
        }
        write_name(out, number(was.map(|(at, _)| at), name), name);
        write_value(out, value, 0)?;
    }
    for (at, (before, _)) in old {
        gone(out, at, before);
    }
    out.push(change::END);
    Ok(())
}

/// Begins what a field is set to. `number`: of its name, if that is one that both sides know.
fn write_name(out: &mut Vec<u8>, number: Option<usize>, name: &Str) {
    match number {
        Some(at) => {
            out.push(change::SET);
            write_number(out, at as u64);
        }
        None => {
            out.push(change::NEW);
            write_bytes(out, name.as_bytes());
        }
    }
}

fn write_metadata(out: &mut Vec<u8>, made: &Metadata, of: &Metadata, want: &Want) {
    let names: &[Str] = match want {
        Want::Whole => return write_entries(out, made, of),
        Want::Nothing => &[],
        Want::Fields(names) => names,
    };
    for (before, _) in of.iter().filter(|(before, _)| made.get(before).is_none()) {
        if let Ok(at) = names.binary_search(before) {
            out.push(change::GONE);
            write_number(out, at as u64);
        }
    }
    for (name, value) in made.iter() {
        if !of.get(name).is_some_and(|was| same_text(value, was)) {
            write_name(out, names.binary_search(name).ok(), name);
            write_bytes(out, value.as_bytes());
        }
    }
    out.push(change::END);
}

/// All of them: their order is that of the script.
fn write_entries(out: &mut Vec<u8>, made: &Metadata, of: &Metadata) {
    let old: Vec<(&Str, &Str)> = of.iter().collect();
    write_number(out, made.len() as u64);
    // Entries that stay are in their old order, so that nearly all are found at once.
    let mut next = 0;
    for (name, value) in made.iter() {
        match old[next..].iter().position(|(old, _)| same_text(name, old)) {
            Some(ahead) => {
                let at = next + ahead;
                next = at + 1;
                let is_old = same_text(value, old[at].1);
                out.push(if is_old { entry::OLD } else { entry::OLD_NAME });
                write_number(out, at as u64);
                if !is_old {
                    write_bytes(out, value.as_bytes());
                }
            }
            None => {
                out.push(entry::NEW);
                write_bytes(out, name.as_bytes());
                write_bytes(out, value.as_bytes());
            }
        }
    }
}

/// What a script made of a record, read and not applied yet: a message that is broken changes nothing.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    operation: Option<Operation>,
    metadata: Option<Metadata>,
    /// Of key, before and after.
    sides: [Side; 3],
}

#[derive(Debug, Default)]
enum Side {
    #[default]
    Same,
    New(Data),
    Fields(Vec<(Str, Option<Value>)>),
}

/// The metadata that was made last, and of what: records that shared theirs share it again.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    made: Option<(Metadata, Bytes, Metadata)>,
}

impl Changes {
    /// What [`write_made`] wrote, beside the record that the service has.
    pub(crate) fn read(
        reader: &mut Reader<'_>,
        of: &Record,
        wants: &Wants,
        remembered: &mut Remembered,
    ) -> Result<Changes, Malformed> {
        reader.begin();
        let parts = reader.byte()?;
        let operation = if parts & part::OPERATION != 0 { Some(reader.operation()?) } else { None };
        let metadata = match parts & part::METADATA {
            0 => None,
            _ => Some(read_metadata(reader, &of.metadata, &wants.metadata, remembered)?),
        };
        let mut changes = Changes { operation, metadata, ..Changes::default() };
        let sides = [
            (part::KEY, &of.key, &wants.key),
            (part::BEFORE, &of.payload.before, &wants.before),
            (part::AFTER, &of.payload.after, &wants.after),
        ];
        for (side, (bit, of, want)) in changes.sides.iter_mut().zip(sides) {
            if parts & bit != 0 {
                *side = match reader.byte()? {
                    data::CHANGED => Side::Fields(read_fields(reader, of.fields().ok_or(Malformed)?, want)?),
                    tag => Side::New(reader.data_of(tag)?),
                };
            }
        }
        Ok(changes)
    }

    /// Makes the record of it.
    pub(crate) fn apply(self, record: &mut Record) {
        let Changes { operation, metadata, sides } = self;
        if let Some(operation) = operation {
            record.operation = operation;
        }
        if let Some(metadata) = metadata {
            record.metadata = metadata;
        }
        let parts = [&mut record.key, &mut record.payload.before, &mut record.payload.after];
        for (part, side) in parts.into_iter().zip(sides) {
            match side {
                Side::Same => {}
                Side::New(data) => *part = data,
                Side::Fields(fields) => {
                    if let Some(object) = part.fields_mut() {
                        set(object, fields);
                    }
                }
            }
        }
    }
}

/// Sets fields, and removes those without a value; they are sorted.
fn set(object: &mut Object, fields: Vec<(Str, Option<Value>)>) {
    /// From so many on they are merged: each insertion moves the fields behind it.
    const MANY: usize = 32;
    if fields.len() < MANY {
        for (name, value) in fields {
            match value {
                Some(value) => drop(object.insert(name, value)),
                None => drop(object.remove(&name)),
            }
        }
        return;
    }
    let stays = |name: &Str| fields.binary_search_by(|(changed, _)| changed.cmp(name)).is_err();
    let kept = object.iter().filter(|(name, _)| stays(name)).map(|(name, value)| (name.clone(), value.clone()));
    let mut entries: Vec<(Str, Value)> = kept.collect();
    entries.extend(fields.into_iter().filter_map(|(name, value)| Some((name, value?))));
    *object = Object::from_entries(entries);
}

/// A name that both sides know.
fn known<'a>(number: u64, names: impl FnOnce(usize) -> Option<&'a Str>) -> Result<Str, Malformed> {
    usize::try_from(number).ok().and_then(names).cloned().ok_or(Malformed)
}

fn read_fields(reader: &mut Reader<'_>, of: &Object, want: &Want) -> Result<Vec<(Str, Option<Value>)>, Malformed> {
    let mut fields = Vec::new();
    let old: Vec<&Str> = match want {
        Want::Fields(names) => names.iter().collect(),
        Want::Nothing | Want::Whole => of.iter().map(|(name, _)| name).collect(),
    };
    let name = |number| known(number, |at| old.get(at).copied());
    loop {
        fields.push(match reader.byte()? {
            change::END => return Ok(fields),
            change::SET => (name(reader.number()?)?, Some(reader.value(0)?)),
            change::NEW => (reader.name()?, Some(reader.value(0)?)),
            change::GONE => (name(reader.number()?)?, None),
            _ => return Err(Malformed),
        });
    }
}

fn read_metadata(
    reader: &mut Reader<'_>,
    of: &Metadata,
    want: &Want,
    remembered: &mut Remembered,
) -> Result<Metadata, Malformed> {
    if let Some((before, bytes, made)) = &remembered.made
        && before.shares(of)
        && reader.skip(bytes)
    {
        return Ok(made.clone());
    }
    let start = reader.place();
    let mut made = of.clone();
    let names: &[Str] = match want {
        Want::Fields(names) => names,
        Want::Nothing | Want::Whole => &[],
    };
    if *want == Want::Whole {
        made = Metadata::from_entries(read_entries(reader, of)?);
    } else {
        loop {
            match reader.byte()? {
                change::END => break,
                change::SET => drop(made.insert(known(reader.number()?, |at| names.get(at))?, reader.text()?)),
                change::NEW => drop(made.insert(reader.name()?, reader.text()?)),
                change::GONE => drop(made.remove(&known(reader.number()?, |at| names.get(at))?)),
                _ => return Err(Malformed),
            }
        }
    }
    remembered.made = Some((of.clone(), reader.since(start), made.clone()));
    Ok(made)
}

fn read_entries(reader: &mut Reader<'_>, of: &Metadata) -> Result<Vec<(Str, Str)>, Malformed> {
    let old: Vec<(&Str, &Str)> = of.iter().collect();
    let count = reader.count()?;
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        let tag = reader.byte()?;
        let before = match tag {
            entry::OLD | entry::OLD_NAME => {
                let at = usize::try_from(reader.number()?).map_err(|_| Malformed)?;
                Some(*old.get(at).ok_or(Malformed)?)
            }
            entry::NEW => None,
            _ => return Err(Malformed),
        };
        entries.push(match before {
            Some((name, value)) if tag == entry::OLD => (name.clone(), value.clone()),
            Some((name, _)) => (name.clone(), reader.text()?),
            None => (reader.name()?, reader.text()?),
        });
    }
    Ok(entries)
}

fn same_text(a: &Str, b: &Str) -> bool {
    std::ptr::eq(a.as_str(), b.as_str())
}

fn same_data(a: &Data, b: &Data) -> bool {
    match (a, b) {
        (Data::Absent, Data::Absent) => true,
        (Data::Raw(a), Data::Raw(b)) => std::ptr::eq(&**a, &**b),
        (Data::Structured(a), Data::Structured(b)) => Arc::ptr_eq(a, b),
        _ => false,
    }
}

fn same_value(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Text(a), Value::Text(b)) => same_text(a, b),
        (Value::Bytes(a), Value::Bytes(b)) => Arc::ptr_eq(a, b),
        (Value::List(a), Value::List(b)) => Arc::ptr_eq(a, b),
        (Value::Map(a), Value::Map(b)) => Arc::ptr_eq(a, b),
        (Value::Float(a), Value::Float(b)) => a.to_bits() == b.to_bits(),
        _ => a == b,
    }
}
