//! Records that a script made, as what differs from the record that it was called with.
//!
//! What the script left alone is the same value in the worker, by its address, and does not travel back: the service
//! takes it from the record that it has.

use std::sync::Arc;

use anabranch_graph::metadata::Metadata;
use anabranch_graph::record::{Data, Record};
use anabranch_graph::text::Str;
use anabranch_graph::value::{Object, Value};

use super::Malformed;
use super::read::Reader;
use super::write::{TooDeep, data, write_bytes, write_data, write_number, write_value};

/// Parts of a record that changed: one bit each.
mod part {
    pub(super) const OPERATION: u8 = 1;
    pub(super) const METADATA: u8 = 2;
    pub(super) const KEY: u8 = 4;
    pub(super) const BEFORE: u8 = 8;
    pub(super) const AFTER: u8 = 16;
}

/// Where an entry of a map comes from.
mod entry {
    /// From the old map, whole.
    pub(super) const OLD: u8 = 0;
    /// The following bytes are the name of an existing value.
    pub(super) const OLD_NAME: u8 = 1;
    pub(super) const NEW: u8 = 2;
}

/// A record, beside the one that it was made of, whose position it has.
pub(crate) fn write_made(out: &mut Vec<u8>, made: &Record, of: &Record) -> Result<(), TooDeep> {
    let at = out.len();
    out.push(0);
    let mut parts = 0;
    if made.operation != of.operation {
        parts |= part::OPERATION;
        out.push(made.operation as u8);
    }
    if !made.metadata.shares(&of.metadata) {
        parts |= part::METADATA;
        let old: Vec<(&Str, &Str)> = of.metadata.iter().collect();
        write_entries(out, made.metadata.iter(), &old, same_text, |out, value| {
            write_bytes(out, value.as_bytes());
            Ok(())
        })?;
    }
    let sides = [
        (part::KEY, &made.key, &of.key),
        (part::BEFORE, &made.payload.before, &of.payload.before),
        (part::AFTER, &made.payload.after, &of.payload.after),
    ];
    for (bit, made, of) in sides {
        if same_data(made, of) {
            continue;
        }
        parts |= bit;
        match (made, of) {
            (Data::Structured(made), Data::Structured(of)) => {
                out.push(data::CHANGED);
                let old: Vec<(&Str, &Value)> = of.iter().collect();
                write_entries(out, made.iter(), &old, same_value, |out, value| write_value(out, value, 0))?;
            }
            _ => write_data(out, made)?,
        }
    }
    out[at] = parts;
    Ok(())
}

/// The record that [`write_made`] wrote.
pub(crate) fn read_made(reader: &mut Reader<'_>, of: &Record) -> Result<Record, Malformed> {
    reader.begin();
    let parts = reader.byte()?;
    let mut made = of.clone();
    if parts & part::OPERATION != 0 {
        made.operation = reader.operation()?;
    }
    if parts & part::METADATA != 0 {
        let old: Vec<(&Str, &Str)> = of.metadata.iter().collect();
        // The method alone is of one lifetime.
        #[allow(clippy::redundant_closure_for_method_calls)]
        let entries = read_entries(reader, &old, |reader| reader.text())?;
        made.metadata = Metadata::from_entries(entries);
    }
    let sides = [
        (part::KEY, &mut made.key, &of.key),
        (part::BEFORE, &mut made.payload.before, &of.payload.before),
        (part::AFTER, &mut made.payload.after, &of.payload.after),
    ];
    for (bit, made, of) in sides {
        if parts & bit == 0 {
            continue;
        }
        *made = match reader.byte()? {
            data::CHANGED => {
                let old: Vec<(&Str, &Value)> = of.fields().ok_or(Malformed)?.iter().collect();
                Data::from(Object::from_entries(read_entries(reader, &old, |reader| reader.value(0))?))
            }
            tag => reader.data_of(tag)?,
        };
    }
    Ok(made)
}

fn write_entries<'a, V: 'a>(
    out: &mut Vec<u8>,
    made: impl ExactSizeIterator<Item = (&'a Str, &'a V)>,
    old: &[(&Str, &V)],
    same: impl Fn(&V, &V) -> bool,
    write: impl Fn(&mut Vec<u8>, &V) -> Result<(), TooDeep>,
) -> Result<(), TooDeep> {
    write_number(out, made.len() as u64);
    // Entries that stay are in their old order, so that nearly all are found at once.
    let mut next = 0;
    for (name, value) in made {
        match old[next..].iter().position(|(old, _)| same_text(name, old)) {
            Some(ahead) => {
                let at = next + ahead;
                next = at + 1;
                let is_old = same(value, old[at].1);
                out.push(if is_old { entry::OLD } else { entry::OLD_NAME });
                write_number(out, at as u64);
                if !is_old {
                    write(out, value)?;
                }
            }
            None => {
                out.push(entry::NEW);
                write_bytes(out, name.as_bytes());
                write(out, value)?;
            }
        }
    }
    Ok(())
}

fn read_entries<V: Clone>(
    reader: &mut Reader<'_>,
    old: &[(&Str, &V)],
    read: impl Fn(&mut Reader<'_>) -> Result<V, Malformed>,
) -> Result<Vec<(Str, V)>, Malformed> {
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
            Some((name, _)) => (name.clone(), read(reader)?),
            None => (reader.name()?, read(reader)?),
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
