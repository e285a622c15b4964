//! Records that a script created, encoded as differences from the input record.
//!
//! Values that the script left unchanged have the same address in the worker and are not sent back. They stay as they
//! are in the service's record. So the worker need not have them.

use std::sync::Arc;

use anabranch_record::metadata::Metadata;
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Operation, Record};
use bytes::Bytes;

use super::read::Reader;
use super::write::{TooDeep, data, write_bytes, write_data, write_number, write_value};
use super::{Malformed, Want, Wants};

/// Changed parts of a record, one bit each.
mod part {
    pub(super) const OPERATION: u8 = 1;
    pub(super) const METADATA: u8 = 2;
    pub(super) const KEY: u8 = 4;
    pub(super) const BEFORE: u8 = 8;
    pub(super) const AFTER: u8 = 16;
}

/// Origin of an entry of metadata that is sent as a whole.
mod entry {
    /// An unchanged entry of the old map.
    pub(super) const OLD: u8 = 0;
    /// An entry whose name comes from the old map; its new value follows.
    pub(super) const OLD_NAME: u8 = 1;
    pub(super) const NEW: u8 = 2;
}

/// Change of a field.
mod change {
    /// End of the list.
    pub(super) const END: u8 = 0;
    /// Sets a value; the name is given by its number among the known ones.
    pub(super) const SET: u8 = 1;
    /// Sets a value; the name follows.
    pub(super) const NEW: u8 = 2;
    /// Removes a field; the name is given by its number among the known ones.
    pub(super) const GONE: u8 = 3;
}

/// Writes a record as differences from its input record. It has the same position; of the input, the worker knew the
/// parts in `wants`.
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

/// Writes the changed fields. Both objects are sorted.
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

/// Begins the new value of a field. `number` is that of its name, if both sides know the name.
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

/// Writes all entries, because the script determines their order.
fn write_entries(out: &mut Vec<u8>, made: &Metadata, of: &Metadata) {
    let old: Vec<(&Str, &Str)> = of.iter().collect();
    write_number(out, made.len() as u64);
    // Unchanged entries keep their order, so most are found at the next place.
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

/// Decoded changes that are not applied yet, so that a malformed message changes nothing.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    operation: Option<Operation>,
    metadata: Option<Metadata>,
    /// Changes of the key, the payload before and the payload after.
    sides: [Side; 3],
}

#[derive(Debug, Default)]
enum Side {
    #[default]
    Same,
    New(Data),
    Fields(Vec<(Str, Option<Value>)>),
}

/// The last created metadata and its origin, so that records that shared metadata share it again.
#[derive(Debug, Default)]
pub(crate) struct LastMetadata {
    made: Option<(Metadata, Bytes, Metadata)>,
}

impl Changes {
    /// Reads the changes written by [`write_made`] to the service's record.
    pub(crate) fn read(
        reader: &mut Reader<'_>,
        of: &Record,
        wants: &Wants,
        remembered: &mut LastMetadata,
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

    /// Applies the changes to the record.
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

/// Sets fields, and removes those without a value. The fields are sorted.
fn set(object: &mut Object, fields: Vec<(Str, Option<Value>)>) {
    /// Number of fields from which they are merged, because each insertion moves the fields behind it.
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

/// Returns a name that both sides know.
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
    remembered: &mut LastMetadata,
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
