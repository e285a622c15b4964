//! Encodes values to bytes.

use anabranch_record::text::Str;
use anabranch_record::value::{Object, Timestamp, Value, timestamp_text};
use chrono::{DateTime, NaiveDate, Utc};

use super::{Codec, CodecError, Field, Node, Sized, Unit, decimal};

fn misfit(what: impl Into<String>) -> CodecError {
    CodecError::Misfit { path: Vec::new(), what: what.into() }
}

/// Adds the field to the path of an error.
fn within(error: CodecError, key: &Str) -> CodecError {
    match error {
        CodecError::Misfit { mut path, what } => {
            path.push(key.clone());
            CodecError::Misfit { path, what }
        }
        other => other,
    }
}

#[inline]
fn long(number: i64, out: &mut Vec<u8>) {
    let mut rest = ((number << 1) ^ (number >> 63)) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn counted(bytes: &[u8], out: &mut Vec<u8>) {
    long(bytes.len() as i64, out);
    out.extend_from_slice(bytes);
}

pub(super) fn record(
    codec: &Codec,
    fields: &[Field],
    object: &Object,
    out: &mut Vec<u8>,
    depth: usize,
) -> Result<(), CodecError> {
    // Most schemas have their fields in name order, as objects do.
    let mut entries = object.iter().peekable();
    let mut found = 0;
    for field in fields {
        let next = entries.next_if(|(key, _)| **key == *field.name);
        let given = next.map(|(_, given)| given).or_else(|| object.get(&field.name));
        found += usize::from(given.is_some());
        match given.or(field.default.as_ref()) {
            Some(given) => value(codec, &field.node, given, out, depth).map_err(|error| within(error, &field.name))?,
            None if takes_null(codec, &field.node) => value(codec, &field.node, &Value::Null, out, depth)?,
            None => return Err(within(misfit("missing, and the schema has no default"), &field.name)),
        }
    }
    if found < object.len() {
        let unknown = object.iter().find(|(key, _)| !fields.iter().any(|field| field.name == **key));
        let key = unknown.map(|(key, _)| key.clone()).unwrap_or_default();
        return Err(within(misfit("the schema has no such field"), &key));
    }
    Ok(())
}

pub(super) fn takes_null(codec: &Codec, node: &Node) -> bool {
    match codec.resolve(node) {
        Node::Null => true,
        Node::Union(variants) => variants.iter().any(|variant| matches!(variant, Node::Null)),
        _ => false,
    }
}

pub(super) fn map(
    codec: &Codec,
    values: &Node,
    object: &Object,
    out: &mut Vec<u8>,
    depth: usize,
) -> Result<(), CodecError> {
    if !object.is_empty() {
        long(object.len() as i64, out);
        for (key, item) in object.iter() {
            counted(key.as_bytes(), out);
            value(codec, values, item, out, depth).map_err(|error| within(error, key))?;
        }
    }
    long(0, out);
    Ok(())
}

/// Returns how well a value fits a type, without its content; `None` = not at all.
fn suits(codec: &Codec, node: &Node, value: &Value) -> Option<u8> {
    let rank = match (codec.resolve(node), value) {
        (Node::Null, Value::Null)
        | (Node::Boolean, Value::Bool(_))
        | (Node::Long, Value::Int(_))
        | (Node::Double, Value::Float(_))
        | (Node::Text, Value::Text(_))
        | (Node::Bytes, Value::Bytes(_))
        | (Node::Array(_), Value::List(_))
        | (Node::Timestamp(_), Value::Time(_))
        | (Node::Record(_), Value::Map(_)) => 0,
        (Node::Int, Value::Int(_))
        | (Node::Float, Value::Float(_))
        | (Node::Fixed(_), Value::Bytes(_))
        | (Node::Enum(_) | Node::UuidText | Node::Uuid(_), Value::Text(_))
        | (Node::Date, Value::Time(_))
        | (Node::Map(_) | Node::Duration, Value::Map(_)) => 1,
        (Node::Double | Node::Decimal(..) | Node::BigDecimal, Value::Int(_) | Value::UInt(_))
        | (Node::Decimal(..) | Node::BigDecimal | Node::Timestamp(_) | Node::Date, Value::Text(_)) => 2,
        (Node::Float | Node::TimeMillis | Node::TimeMicros | Node::Date | Node::Timestamp(_), Value::Int(_))
        | (Node::Int | Node::Long | Node::Decimal(..) | Node::BigDecimal, Value::Float(_))
        | (Node::Text, Value::Time(_)) => 3,
        (Node::Union(variants), value) => return variants.iter().filter_map(|node| suits(codec, node, value)).min(),
        _ => return None,
    };
    Some(rank)
}

pub(super) fn value(
    codec: &Codec,
    node: &Node,
    value: &Value,
    out: &mut Vec<u8>,
    depth: usize,
) -> Result<(), CodecError> {
    let Some(depth) = depth.checked_sub(1) else { return Err(misfit("values are nested too deeply")) };
    let node = codec.resolve(node);
    let wrong = || misfit(format!("a value of type {} cannot be written as {}", value.type_name(), node.name()));
    let range = || misfit(format!("the number does not fit into {}", node.name()));
    match (node, value) {
        (Node::Null, Value::Null) => {}
        (Node::Boolean, Value::Bool(v)) => out.push((*v).into()),
        (Node::Int | Node::TimeMillis, _) => {
            let number = integer(value).ok_or_else(wrong)?;
            long(i32::try_from(number).map_err(|_| range())?.into(), out);
        }
        (Node::Long | Node::TimeMicros, _) => {
            let number = integer(value).ok_or_else(wrong)?;
            long(i64::try_from(number).map_err(|_| range())?, out);
        }
        (Node::Float, _) => {
            let number = float(value, 1 << 24).ok_or_else(wrong)?;
            let short = number as f32;
            if short.is_infinite() && number.is_finite() {
                return Err(range());
            }
            out.extend_from_slice(&short.to_le_bytes());
        }
        (Node::Double, _) => out.extend_from_slice(&float(value, 1 << 53).ok_or_else(wrong)?.to_le_bytes()),
        (Node::Bytes, Value::Bytes(bytes)) => counted(bytes, out),
        (Node::Fixed(size), Value::Bytes(bytes)) if bytes.len() == *size => out.extend_from_slice(bytes),
        (Node::Fixed(size), Value::Bytes(bytes)) => {
            return Err(misfit(format!("{} bytes do not fit into a fixed of {size} bytes", bytes.len())));
        }
        (Node::Text, Value::Text(text)) => counted(text.as_bytes(), out),
        (Node::Text, Value::Time(time)) => counted(timestamp_text(time).as_bytes(), out),
        (Node::Enum(symbols), Value::Text(text)) => {
            let number = symbols.iter().position(|symbol| symbol == text);
            long(number.ok_or_else(|| misfit(format!("the enum has no symbol {text:?}")))? as i64, out);
        }
        (Node::Array(items), Value::List(list)) => {
            if !list.is_empty() {
                long(list.len() as i64, out);
                for (index, item) in list.iter().enumerate() {
                    let placed = |error| within(error, &Str::from(index.to_string()));
                    self::value(codec, items, item, out, depth).map_err(placed)?;
                }
            }
            long(0, out);
        }
        (Node::Map(values), Value::Map(object)) => map(codec, values, object, out, depth)?,
        (Node::Record(fields), Value::Map(object)) => record(codec, fields, object, out, depth)?,
        (Node::Union(variants), _) => union(codec, variants, value, out, depth)?,
        (Node::Decimal(precision, scale, size), _) => {
            let digits = number_text(value).ok_or_else(wrong)?;
            let unscaled = decimal::scaled(&digits, *scale, *precision).ok_or_else(|| {
                misfit(format!(
                    "{digits:?} is not a number with at most {precision} digits, {scale} of them after the decimal \
                     point"
                ))
            })?;
            let bytes = unscaled.to_signed_bytes_be();
            match size {
                None => counted(&bytes, out),
                Some(size) => {
                    let padding = size.checked_sub(bytes.len()).ok_or_else(range)?;
                    let sign = if bytes.first().is_some_and(|byte| byte & 0x80 != 0) { 0xff } else { 0 };
                    out.resize(out.len() + padding, sign);
                    out.extend_from_slice(&bytes);
                }
            }
        }
        (Node::BigDecimal, _) => {
            let digits = number_text(value).ok_or_else(wrong)?;
            let (unscaled, scale) =
                decimal::parse(&digits).ok_or_else(|| misfit(format!("{digits:?} is not a decimal number")))?;
            let mut inner = Vec::new();
            counted(&unscaled.to_signed_bytes_be(), &mut inner);
            long(scale, &mut inner);
            counted(&inner, out);
        }
        (Node::UuidText, Value::Text(text)) if uuid(text).is_some() => counted(text.as_bytes(), out),
        (Node::Uuid(sized), Value::Text(text)) => {
            let bytes = uuid(text).ok_or_else(|| misfit(format!("{text:?} is not a uuid")))?;
            match sized {
                Sized::Fixed => out.extend_from_slice(&bytes),
                Sized::Bytes => counted(&bytes, out),
            }
        }
        (Node::Date, _) => {
            let days = match value {
                Value::Time(time) => time.date_naive().to_epoch_days(),
                Value::Text(text) => {
                    let date = text.parse::<NaiveDate>().ok().or_else(|| Some(moment(text)?.date_naive()));
                    date.ok_or_else(|| misfit(format!("{text:?} is not a date")))?.to_epoch_days()
                }
                other => i32::try_from(integer(other).ok_or_else(wrong)?).map_err(|_| range())?,
            };
            long(days.into(), out);
        }
        (Node::Timestamp(unit), _) => {
            let in_unit = |time: &Timestamp| match unit {
                Unit::Millis => Some(time.timestamp_millis()),
                Unit::Micros => Some(time.timestamp_micros()),
                Unit::Nanos => time.timestamp_nanos_opt(),
            };
            let number = match value {
                Value::Time(time) => in_unit(time).ok_or_else(range)?,
                Value::Text(text) => {
                    let time = moment(text).ok_or_else(|| misfit(format!("{text:?} is not an RFC 3339 time")))?;
                    in_unit(&time).ok_or_else(range)?
                }
                other => i64::try_from(integer(other).ok_or_else(wrong)?).map_err(|_| range())?,
            };
            long(number, out);
        }
        (Node::Duration, Value::Map(object)) => {
            for part in ["months", "days", "millis"] {
                let number = object.get(part).map_or(Some(0), integer);
                let number = number.and_then(|number| u32::try_from(number).ok());
                out.extend_from_slice(&number.ok_or_else(|| within(range(), &part.into()))?.to_le_bytes());
            }
            let known = |key: &str| ["months", "days", "millis"].contains(&key);
            if let Some((key, _)) = object.iter().find(|(key, _)| !known(key)) {
                return Err(within(misfit("a duration has only months, days and millis"), key));
            }
        }
        _ => return Err(wrong()),
    }
    Ok(())
}

/// Writes the best of the types that fit the value; of equally good ones, the first.
fn union(codec: &Codec, variants: &[Node], value: &Value, out: &mut Vec<u8>, depth: usize) -> Result<(), CodecError> {
    let start = out.len();
    let mut first_error = None;
    for rank in 0..=3 {
        for (number, variant) in variants.iter().enumerate() {
            if suits(codec, variant, value) != Some(rank) {
                continue;
            }
            long(number as i64, out);
            match self::value(codec, variant, value, out, depth) {
                Ok(()) => return Ok(()),
                Err(error) => {
                    first_error.get_or_insert(error);
                    out.truncate(start);
                }
            }
        }
    }
    Err(first_error.unwrap_or_else(|| {
        let names: Vec<_> = variants.iter().map(|variant| codec.resolve(variant).name()).collect();
        misfit(format!("a value of type {} fits none of {}", value.type_name(), names.join(", ")))
    }))
}

fn integer(value: &Value) -> Option<i128> {
    match value {
        Value::Int(v) => Some((*v).into()),
        Value::UInt(v) => Some((*v).into()),
        // Beyond 2^53, integers have gaps as floats, but the written number is the exact value.
        Value::Float(v) if v.fract() == 0.0 && v.abs() < 1e19 => Some(*v as i128),
        _ => None,
    }
}

/// Converts a value to a float. Integers up to `exact` have exact floats.
fn float(value: &Value, exact: i64) -> Option<f64> {
    match value {
        Value::Float(v) => Some(*v),
        Value::Int(v) if v.unsigned_abs() <= exact.unsigned_abs() => Some(*v as f64),
        _ => None,
    }
}

fn number_text(value: &Value) -> Option<String> {
    match value {
        Value::Text(text) => Some(text.as_str().to_owned()),
        Value::Int(v) => Some(v.to_string()),
        Value::UInt(v) => Some(v.to_string()),
        Value::Float(v) if v.is_finite() => Some(v.to_string()),
        _ => None,
    }
}

fn moment(text: &str) -> Option<DateTime<Utc>> {
    DateTime::parse_from_rfc3339(text).ok().map(|time| time.to_utc())
}

fn uuid(text: &str) -> Option<[u8; 16]> {
    let shaped =
        text.len() == 36 && text.bytes().enumerate().all(|(i, b)| (b == b'-') == matches!(i, 8 | 13 | 18 | 23));
    let digits: Vec<u8> = text.bytes().filter(|b| *b != b'-').collect();
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |d: u8| char::from(d).to_digit(16).and_then(|d| u8::try_from(d).ok());
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    shaped.then_some(bytes)
}
