//! Converts records to and from `opencdc.v1.Record`.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use super::read::{DEPTH, DecodeError, Field, Reader};
use super::same::keep_types;
use super::write::{self, FIXED64, VARINT};
use crate::metadata::{FOREIGN_PREFIXES, Metadata, own_key};
use crate::record::{Data, Operation, Position, Record};
use crate::text::{Str, same};
use crate::value::{Object, Value, timestamp_text};

/// Appends the message of a record without a length prefix, with the plugins' names for metadata.
///
/// Numbers become doubles (integers beyond 2⁵³ lose digits, see [`crate::keep_types`]), bytes inside fields become
/// base64 text, and times RFC 3339 text. Absent data is left out; empty raw data is not.
pub fn encode_record(record: &Record, out: &mut Vec<u8>) {
    if !record.position().0.is_empty() {
        write::bytes(out, 1, &record.position().0);
    }
    write::tag(out, 2, VARINT);
    write::varint(out, record.operation as u64);
    for (key, value) in record.metadata.iter() {
        metadata_entry(out, record, key, value);
    }
    data(out, 4, &record.key);
    let size = weight(&record.payload.before) + weight(&record.payload.after);
    write::message(out, 5, size, |out| {
        data(out, 1, &record.payload.before);
        data(out, 2, &record.payload.after);
    });
}

/// Decodes the message of a record. Raw data is a slice of `bytes`. Skips unknown fields.
///
/// # Errors
/// Fails if the message is not a record.
pub fn decode_record(bytes: &Bytes) -> Result<Record, DecodeError> {
    let mut record = Record::default();
    decode_into(&mut record, Reader::new(bytes))?;
    let position = Position::copy_from(&record.position().0);
    Ok(record.with_position(position))
}

/// Replaces a record by the one in a message, like [`decode_record`]; the position is a slice of the message, too. Keys
/// and texts that are the same as before keep their memory, unless another record shares it: most records of a stream
/// have the keys of the previous one.
///
/// # Errors
/// Fails if the message is not a record. The record is then a mixture of both.
pub fn decode_into(record: &mut Record, message: Reader<'_>) -> Result<(), DecodeError> {
    let (mut position, mut change) = (Position::default(), Operation::default());
    let (mut key, mut before, mut after) = (None, None, None);
    let mut places = record.metadata.refill();
    // True while the entries have the same keys as those of the record.
    let mut alike = true;
    let mut from = message;
    while let Some((number, field)) = from.next()? {
        match (number, field) {
            (1, Field::Len(bytes)) => position = Position(bytes.bytes()),
            (2, Field::Varint(number)) => change = operation(number)?,
            (3, Field::Len(entry)) if alike => {
                let (key, value) = text_entry(entry)?;
                alike = places.as_mut().is_some_and(|places| places.next(|own| is_name_of(own, key), value));
            }
            (4, Field::Len(message)) => key = Some(message),
            (5, Field::Len(mut sides)) => {
                while let Some((number, field)) = sides.next()? {
                    match (number, field) {
                        (1, Field::Len(message)) => before = Some(message),
                        (2, Field::Len(message)) => after = Some(message),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    let complete = match places {
        Some(places) => places.is_complete(),
        None => record.metadata.is_empty(),
    };
    if !alike || !complete {
        record.metadata = read_metadata(message)?;
    }
    record.set_position(position);
    record.operation = change;
    fill_data(&mut record.key, key)?;
    fill_data(&mut record.payload.before, before)?;
    fill_data(&mut record.payload.after, after)
}

/// Returns `true` if a plugin's name of metadata is that of the key `own`.
fn is_name_of(own: &str, name: &str) -> bool {
    for (foreign, prefix) in FOREIGN_PREFIXES {
        if let Some(rest) = name.strip_prefix(foreign) {
            return own.strip_prefix(prefix).is_some_and(|own| same(own.as_bytes(), rest.as_bytes()));
        }
    }
    same(own.as_bytes(), name.as_bytes())
}

/// Reads the metadata of a record. If it has two names for a key, this service's name wins.
fn read_metadata(mut from: Reader<'_>) -> Result<Metadata, DecodeError> {
    let mut metadata = Metadata::new();
    while let Some(field) = from.next()? {
        if let (3, Field::Len(entry)) = field {
            let (key, value) = text_entry(entry)?;
            match own_key(key) {
                Some(own) if metadata.contains_key(&own) => {}
                Some(own) => drop(metadata.insert(own, value)),
                None => drop(metadata.insert(key, value)),
            }
        }
    }
    Ok(metadata)
}

/// Decodes a plugin's output for `before`, which was sent as `sent`. Works like [`decode_record`] and [`keep_types`],
/// but parts (metadata, key, payload before and after) that came back unchanged are shared with `before` instead of
/// decoded. Keeps the position of `before`.
///
/// # Errors
/// As [`decode_record`].
pub fn decode_answer(bytes: &Bytes, sent: &Bytes, before: &Record) -> Result<Record, DecodeError> {
    // If names of metadata change on the way back, they must be decoded.
    let named = before.metadata.iter().all(|(key, _)| own_key(key).is_none());
    if named && bytes == sent {
        return Ok(before.clone());
    }
    let parts = Parts::of(sent)?;
    let mut record = Record::default();
    let mut reader = Reader::new(bytes);
    let (mut sent_entries, mut same_entries) = (entries(sent), named);
    while let Some(field) = reader.next()? {
        match field {
            (2, Field::Varint(number)) => record.operation = operation(number)?,
            (3, Field::Len(entry)) => {
                same_entries = same_entries && sent_entries.next().is_some_and(|sent| sent.slice() == entry.slice());
            }
            (4, Field::Len(message)) => record.key = data_or(message, parts.key, &before.key)?,
            (5, Field::Len(mut message)) => {
                let (was, now) = (&before.payload, &mut record.payload);
                while let Some(field) = message.next()? {
                    match field {
                        (1, Field::Len(message)) => now.before = data_or(message, parts.before, &was.before)?,
                        (2, Field::Len(message)) => now.after = data_or(message, parts.after, &was.after)?,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    if same_entries && sent_entries.next().is_none() {
        record.metadata = before.metadata.clone();
    } else {
        record.metadata = read_metadata(Reader::new(bytes))?;
    }
    let mut record = record.with_position(before.position().clone());
    keep_types(before, &mut record);
    Ok(record)
}

/// Returns the metadata entries in the message of a record, up to the first malformed field.
fn entries(message: &Bytes) -> impl Iterator<Item = Reader<'_>> {
    let mut reader = Reader::new(message);
    std::iter::from_fn(move || {
        loop {
            match reader.next() {
                Ok(Some((3, Field::Len(entry)))) => return Some(entry),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return None,
            }
        }
    })
}

/// The data of a record as slices of its message.
struct Parts<'a> {
    key: Option<&'a [u8]>,
    before: Option<&'a [u8]>,
    after: Option<&'a [u8]>,
}

impl<'a> Parts<'a> {
    fn of(sent: &'a Bytes) -> Result<Self, DecodeError> {
        let mut parts = Parts { key: None, before: None, after: None };
        let mut reader = Reader::new(sent);
        while let Some(field) = reader.next()? {
            match field {
                (4, Field::Len(message)) => parts.key = Some(message.slice()),
                (5, Field::Len(mut message)) => {
                    while let Some(field) = message.next()? {
                        match field {
                            (1, Field::Len(message)) => parts.before = Some(message.slice()),
                            (2, Field::Len(message)) => parts.after = Some(message.slice()),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(parts)
    }
}

/// Decodes the data of a message, or returns `was` if the message equals the sent one.
fn data_or(message: Reader<'_>, sent: Option<&[u8]>, was: &Data) -> Result<Data, DecodeError> {
    if sent == Some(message.slice()) { Ok(was.clone()) } else { read_data(message) }
}

fn operation(number: u64) -> Result<Operation, DecodeError> {
    if number == 0 {
        return Ok(Operation::default());
    }
    let known = i64::try_from(number).ok().and_then(Operation::from_number);
    known.ok_or(DecodeError::UnknownOperation(number))
}

fn metadata_entry(out: &mut Vec<u8>, record: &Record, key: &Str, value: &Str) {
    let (prefix, rest) = if let Some(rest) = key.strip_prefix("recfmt.") {
        ("opencdc.", rest)
    } else if let Some(rest) = key.strip_prefix("svc.") {
        ("conduit.", rest)
    } else if own_key(key).is_some_and(|own| record.metadata.get(&own).is_some()) {
        // The record has both names: this service's name is sent.
        return;
    } else {
        ("", key.as_str())
    };
    write::message(out, 3, prefix.len() + rest.len() + value.len() + 4, |out| {
        write::tag(out, 1, write::LEN);
        write::varint(out, (prefix.len() + rest.len()) as u64);
        out.extend_from_slice(prefix.as_bytes());
        out.extend_from_slice(rest.as_bytes());
        write::bytes(out, 2, value.as_bytes());
    });
}

fn weight(data: &Data) -> usize {
    match data {
        Data::Absent => 0,
        Data::Raw(bytes) => bytes.len() + 8,
        Data::Structured(object) => object.len() * 32,
    }
}

fn data(out: &mut Vec<u8>, field: u32, data: &Data) {
    match data {
        Data::Absent => {}
        Data::Raw(bytes) => write::message(out, field, bytes.len() + 4, |out| write::bytes(out, 1, bytes)),
        Data::Structured(object) => {
            let size = object.len() * 32;
            write::message(out, field, size, |out| {
                write::message(out, 2, size, |out| structure(out, object));
            });
        }
    }
}

fn structure(out: &mut Vec<u8>, object: &Object) {
    for (key, item) in object.iter() {
        write::message(out, 1, key.len() + 16, |out| {
            write::bytes(out, 1, key.as_bytes());
            write::message(out, 2, 9, |out| value(out, item));
        });
    }
}

fn value(out: &mut Vec<u8>, value_: &Value) {
    let number = |out: &mut Vec<u8>, number: f64| {
        write::tag(out, 2, FIXED64);
        out.extend_from_slice(&number.to_le_bytes());
    };
    match value_ {
        Value::Null => {
            write::tag(out, 1, VARINT);
            out.push(0);
        }
        Value::Bool(v) => {
            write::tag(out, 4, VARINT);
            out.push(u8::from(*v));
        }
        Value::Int(v) => number(out, *v as f64),
        Value::UInt(v) => number(out, *v as f64),
        Value::Float(v) => number(out, *v),
        Value::Text(text) => write::bytes(out, 3, text.as_bytes()),
        Value::Bytes(bytes) => write::bytes(out, 3, STANDARD.encode(bytes).as_bytes()),
        Value::Time(time) => write::bytes(out, 3, timestamp_text(time).as_bytes()),
        Value::Map(object) => write::message(out, 5, object.len() * 32, |out| structure(out, object)),
        Value::List(items) => write::message(out, 6, items.len() * 11, |out| {
            for item in items.iter() {
                write::message(out, 1, 9, |out| value(out, item));
            }
        }),
    }
}

fn text_entry(mut entry: Reader<'_>) -> Result<(&str, &str), DecodeError> {
    let (mut key, mut value) = ("", "");
    while let Some(field) = entry.next()? {
        match field {
            (1, Field::Len(text)) => key = text.text()?,
            (2, Field::Len(text)) => value = text.text()?,
            _ => {}
        }
    }
    Ok((key, value))
}

fn read_data(message: Reader<'_>) -> Result<Data, DecodeError> {
    let mut data = Data::Absent;
    fill_data(&mut data, Some(message))?;
    Ok(data)
}

/// Replaces data by that of a message; absent if there is none.
fn fill_data(place: &mut Data, from: Option<Reader<'_>>) -> Result<(), DecodeError> {
    let mut found = None;
    if let Some(mut from) = from {
        while let Some(field) = from.next()? {
            match field {
                (1, Field::Len(bytes)) => found = Some((true, bytes)),
                (2, Field::Len(message)) => found = Some((false, message)),
                _ => {}
            }
        }
    }
    match found {
        None => *place = Data::Absent,
        Some((true, bytes)) => *place = Data::Raw(bytes.bytes()),
        Some((false, message)) => {
            if let Data::Structured(object) = place
                && let Some(object) = Arc::get_mut(object)
            {
                return fill_object(object, message, 0);
            }
            let mut object = Object::new();
            fill_object(&mut object, message, 0)?;
            *place = Data::from(object);
        }
    }
    Ok(())
}

/// Replaces fields by those of a message. If they have the same keys in the same order, keeps the keys.
fn fill_object(object: &mut Object, message: Reader<'_>, depth: usize) -> Result<(), DecodeError> {
    if depth > DEPTH {
        return Err(DecodeError::TooDeep);
    }
    if refilled(object, message, depth)? {
        return Ok(());
    }
    let mut entries = Vec::new();
    let mut from = message;
    while let Some(field) = from.next()? {
        if let (1, Field::Len(entry)) = field {
            let (key, item) = entry_of_map(entry)?;
            let mut value = Value::Null;
            fill_value(&mut value, item, depth + 1)?;
            entries.push((Str::from(key.text()?), value));
        }
    }
    *object = Object::from_entries(entries);
    Ok(())
}

/// Replaces the values of fields. Returns `false` if the message has other keys, or in another order; some values are then
/// replaced.
fn refilled(object: &mut Object, mut from: Reader<'_>, depth: usize) -> Result<bool, DecodeError> {
    let mut places = object.iter_mut();
    while let Some(field) = from.next()? {
        if let (1, Field::Len(entry)) = field {
            let (key, item) = entry_of_map(entry)?;
            match places.next() {
                Some((place, value)) if same(place.as_bytes(), key.slice()) => fill_value(value, item, depth + 1)?,
                _ => return Ok(false),
            }
        }
    }
    Ok(places.next().is_none())
}

/// Reads the key and the value of an entry.
fn entry_of_map(mut entry: Reader<'_>) -> Result<(Reader<'_>, Option<Reader<'_>>), DecodeError> {
    let (mut key, mut item) = (entry.end(), None);
    while let Some(field) = entry.next()? {
        match field {
            (1, Field::Len(text)) => key = text,
            (2, Field::Len(message)) => item = Some(message),
            _ => {}
        }
    }
    Ok((key, item))
}

/// Replaces a value by that of a message; null if there is none.
fn fill_value(place: &mut Value, message: Option<Reader<'_>>, depth: usize) -> Result<(), DecodeError> {
    let mut found = false;
    if let Some(mut message) = message {
        while let Some(field) = message.next()? {
            match field {
                (1, Field::Varint(_)) => *place = Value::Null,
                (2, Field::Double(number)) => *place = number_value(number),
                (3, Field::Len(text)) => place.set_text(text.text()?),
                (4, Field::Varint(flag)) => *place = Value::Bool(flag != 0),
                (5, Field::Len(message)) => fill_map(place, message, depth)?,
                (6, Field::Len(message)) => *place = read_list(message, depth)?,
                _ => continue,
            }
            found = true;
        }
    }
    if !found {
        *place = Value::Null;
    }
    Ok(())
}

fn fill_map(place: &mut Value, message: Reader<'_>, depth: usize) -> Result<(), DecodeError> {
    if let Value::Map(object) = place
        && let Some(object) = Arc::get_mut(object)
    {
        return fill_object(object, message, depth);
    }
    let mut object = Object::new();
    fill_object(&mut object, message, depth)?;
    *place = Value::from(object);
    Ok(())
}

fn read_list(mut message: Reader<'_>, depth: usize) -> Result<Value, DecodeError> {
    if depth > DEPTH {
        return Err(DecodeError::TooDeep);
    }
    let mut items = Vec::new();
    while let Some(field) = message.next()? {
        if let (1, Field::Len(message)) = field {
            let mut item = Value::Null;
            fill_value(&mut item, Some(message), depth + 1)?;
            items.push(item);
        }
    }
    Ok(Value::from(items))
}

/// Converts a number of a plugin, which has only doubles. An exact whole number becomes an integer, which it mostly
/// was.
fn number_value(number: f64) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match number.fract() == 0.0 && number.abs() <= EXACT && !(number == 0.0 && number.is_sign_negative()) {
        true => Value::Int(number as i64),
        false => Value::Float(number),
    }
}
