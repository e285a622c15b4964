//! Writes records to a message.

use anabranch_record::metadata::Metadata;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Record};

use super::{MOST_DEPTH, Want, Wants};

/// First byte of a value.
pub(super) mod value {
    pub(in super::super) const NULL: u8 = 0;
    pub(in super::super) const FALSE: u8 = 1;
    pub(in super::super) const TRUE: u8 = 2;
    pub(in super::super) const INT: u8 = 3;
    pub(in super::super) const UINT: u8 = 4;
    pub(in super::super) const FLOAT: u8 = 5;
    pub(in super::super) const TEXT: u8 = 6;
    pub(in super::super) const BYTES: u8 = 7;
    pub(in super::super) const TIME: u8 = 8;
    pub(in super::super) const LIST: u8 = 9;
    pub(in super::super) const MAP: u8 = 10;
    /// The field does not exist.
    pub(in super::super) const MISSING: u8 = 11;
}

/// First byte of a key or payload side.
pub(super) mod data {
    pub(in super::super) const ABSENT: u8 = 0;
    pub(in super::super) const RAW: u8 = 1;
    pub(in super::super) const STRUCTURED: u8 = 2;
    /// The fields of a map, some of which are taken from the input record.
    pub(in super::super) const CHANGED: u8 = 3;
}

/// Error for a record with more than [`MOST_DEPTH`] nested lists and maps.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("lists and maps are nested deeper than {MOST_DEPTH} levels")]
pub(crate) struct TooDeep;

/// Writes a number in groups of seven bits.
pub(crate) fn write_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Writes a signed number; those near zero are short.
fn write_signed(out: &mut Vec<u8>, number: i64) {
    write_number(out, (number << 1 ^ number >> 63).cast_unsigned());
}

/// Writes bytes, or the bytes of a text, with their length.
pub(crate) fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    write_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Flag in the byte of the operation: the metadata equals that of the previous record.
pub(super) const SAME_METADATA: u8 = 0x80;

/// Writes the wanted parts of a record; `before` is the previous record in the message.
pub(crate) fn write_record(
    out: &mut Vec<u8>,
    record: &Record,
    before: Option<&Record>,
    wants: &Wants,
) -> Result<(), TooDeep> {
    let is_same = before.is_some_and(|before| before.metadata.shares(&record.metadata));
    out.push(record.operation as u8 | if is_same { SAME_METADATA } else { 0 });
    if wants.position {
        write_bytes(out, &record.position().0);
    }
    if !is_same {
        write_metadata(out, &record.metadata, &wants.metadata);
    }
    write_wanted(out, &record.key, &wants.key)?;
    write_wanted(out, &record.payload.before, &wants.before)?;
    write_wanted(out, &record.payload.after, &wants.after)
}

fn write_metadata(out: &mut Vec<u8>, metadata: &Metadata, want: &Want) {
    match want {
        Want::Nothing => {}
        Want::Fields(names) => {
            for name in names {
                match metadata.get(name) {
                    None => out.push(0),
                    Some(value) => {
                        out.push(1);
                        write_bytes(out, value.as_bytes());
                    }
                }
            }
        }
        Want::Whole => {
            write_number(out, metadata.len() as u64);
            for (name, value) in metadata.iter() {
                write_bytes(out, name.as_bytes());
                write_bytes(out, value.as_bytes());
            }
        }
    }
}

fn write_wanted(out: &mut Vec<u8>, data: &Data, want: &Want) -> Result<(), TooDeep> {
    match (want, data) {
        (Want::Nothing, _) => Ok(()),
        (Want::Fields(names), Data::Structured(fields)) => {
            out.push(data::STRUCTURED);
            names.iter().try_for_each(|name| match fields.get(name) {
                None => {
                    out.push(value::MISSING);
                    Ok(())
                }
                Some(value) => write_value(out, value, 0),
            })
        }
        (Want::Fields(_) | Want::Whole, data) => write_data(out, data),
    }
}

pub(super) fn write_data(out: &mut Vec<u8>, data: &Data) -> Result<(), TooDeep> {
    match data {
        Data::Absent => out.push(data::ABSENT),
        Data::Raw(raw) => {
            out.push(data::RAW);
            write_bytes(out, raw);
        }
        Data::Structured(fields) => {
            out.push(data::STRUCTURED);
            write_fields(out, fields, 0)?;
        }
    }
    Ok(())
}

fn write_fields(out: &mut Vec<u8>, fields: &Object, depth: usize) -> Result<(), TooDeep> {
    write_number(out, fields.len() as u64);
    for (name, value) in fields.iter() {
        write_bytes(out, name.as_bytes());
        write_value(out, value, depth)?;
    }
    Ok(())
}

pub(super) fn write_value(out: &mut Vec<u8>, value: &Value, depth: usize) -> Result<(), TooDeep> {
    match value {
        Value::Null => out.push(value::NULL),
        Value::Bool(false) => out.push(value::FALSE),
        Value::Bool(true) => out.push(value::TRUE),
        Value::Int(number) => {
            out.push(value::INT);
            write_signed(out, *number);
        }
        Value::UInt(number) => {
            out.push(value::UINT);
            write_number(out, *number);
        }
        Value::Float(number) => {
            out.push(value::FLOAT);
            out.extend(number.to_bits().to_le_bytes());
        }
        Value::Text(text) => {
            out.push(value::TEXT);
            write_bytes(out, text.as_bytes());
        }
        Value::Bytes(bytes) => {
            out.push(value::BYTES);
            write_bytes(out, bytes);
        }
        Value::Time(time) => {
            out.push(value::TIME);
            write_signed(out, time.timestamp());
            write_number(out, time.timestamp_subsec_nanos().into());
        }
        Value::List(_) | Value::Map(_) if depth == MOST_DEPTH => return Err(TooDeep),
        Value::List(items) => {
            out.push(value::LIST);
            write_number(out, items.len() as u64);
            items.iter().try_for_each(|item| write_value(out, item, depth + 1))?;
        }
        Value::Map(fields) => {
            out.push(value::MAP);
            write_fields(out, fields, depth + 1)?;
        }
    }
    Ok(())
}
