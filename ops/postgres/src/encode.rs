//! Encodes values in PostgreSQL's binary format, as `COPY` and bound parameters use it: four bytes of length, then the
//! value; a length of -1 is `NULL`.
//!
//! Every conversion keeps the value or fails. The exceptions are those of PostgreSQL: `real` has 24 bits, `timestamp`
//! has microseconds, and a column with a precision rounds to it.

mod calendar;
mod hstore;
mod literal;
mod numeric;
mod time;
mod values;

use anabranch_record::json;
use anabranch_record::phrase::{counted, with_article};
use anabranch_record::value::{Value, timestamp_text};

use crate::column::ColumnEncoding;

pub(crate) use self::values::{EncodedValue, EncodedValues};

/// Reason why a value does not fit a column: the end of a sentence that begins with the column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mismatch(pub(crate) String);

type Encoded = Result<(), Mismatch>;

/// Maximum number of dimensions of an array.
const DIMENSIONS: usize = 6;

/// Appends a value. On an error, `out` may contain a part of it.
pub(crate) fn encode(kind: &ColumnEncoding, value: &Value, out: &mut Vec<u8>) -> Encoded {
    if matches!(value, Value::Null) {
        out.extend_from_slice(&(-1i32).to_be_bytes());
        return Ok(());
    }
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    encode_body(kind, value, out)?;
    let length = i32::try_from(out.len() - at - 4).map_err(|_| Mismatch("the value is larger than 2 GiB".into()))?;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

fn encode_body(kind: &ColumnEncoding, value: &Value, out: &mut Vec<u8>) -> Encoded {
    match kind {
        ColumnEncoding::Bool => out.push(u8::from(boolean(value)?)),
        ColumnEncoding::Int2 => out.extend_from_slice(&integer::<i16>(value, "smallint")?.to_be_bytes()),
        ColumnEncoding::Int4 => out.extend_from_slice(&integer::<i32>(value, "integer")?.to_be_bytes()),
        ColumnEncoding::Int8 => out.extend_from_slice(&integer::<i64>(value, "bigint")?.to_be_bytes()),
        ColumnEncoding::Float4 => out.extend_from_slice(&single(value)?.to_be_bytes()),
        ColumnEncoding::Float8 => out.extend_from_slice(&float(value)?.to_be_bytes()),
        ColumnEncoding::Numeric => numeric::encode(value, out)?,
        ColumnEncoding::Text => text(value, out)?,
        ColumnEncoding::Bytea => bytes(value, out)?,
        ColumnEncoding::Uuid => out.extend_from_slice(&uuid(value)?),
        ColumnEncoding::Json => json_text(value, out)?,
        ColumnEncoding::Jsonb => {
            // Version of the format.
            out.push(1);
            json_text(value, out)?;
        }
        ColumnEncoding::Date => out.extend_from_slice(&time::days(value)?.to_be_bytes()),
        ColumnEncoding::Timestamp | ColumnEncoding::TimestampTz => {
            out.extend_from_slice(&time::micros(value)?.to_be_bytes());
        }
        ColumnEncoding::Vector => vector(value, out)?,
        ColumnEncoding::Hstore => hstore::encode(value, out)?,
        ColumnEncoding::Array(element, oid) => array(element, *oid, value, out)?,
        ColumnEncoding::Parsed { array } => parsed(value, *array, out)?,
    }
    Ok(())
}

/// Describes a value for messages: its type and the beginning of its text.
pub(crate) fn shown(value: &Value) -> String {
    let text = match value {
        Value::Text(text) => format!("{:?}", text.as_str()),
        Value::Bytes(bytes) => return counted(bytes.len(), "byte"),
        Value::Float(v) => format!("{v:?}"),
        Value::Time(time) => timestamp_text(time),
        other => {
            let mut out = Vec::new();
            if json::write_value(other, &mut out).is_err() {
                return with_article(value.type_name()).into_owned();
            }
            String::from_utf8_lossy(&out).into_owned()
        }
    };
    const MOST: usize = 48;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("the {} {}…", value.type_name(), &text[..end]),
        None => format!("the {} {text}", value.type_name()),
    }
}

fn not_a(value: &Value, what: &str) -> Mismatch {
    Mismatch(format!("{} is not {what}", shown(value)))
}

fn boolean(value: &Value) -> Result<bool, Mismatch> {
    let read = match value {
        Value::Bool(v) => Some(*v),
        Value::Text(text) => match text.trim().to_ascii_lowercase().as_str() {
            "true" | "t" | "yes" | "y" | "on" | "1" => Some(true),
            "false" | "f" | "no" | "n" | "off" | "0" => Some(false),
            _ => None,
        },
        _ => None,
    };
    read.ok_or_else(|| not_a(value, "a boolean"))
}

fn integer<T: TryFrom<i128>>(value: &Value, name: &str) -> Result<T, Mismatch> {
    let wide: Option<i128> = match value {
        Value::Int(v) => Some(i128::from(*v)),
        Value::UInt(v) => Some(i128::from(*v)),
        // Beyond 2^53, a float does not identify a single integer.
        Value::Float(v) if v.fract() == 0.0 && v.abs() <= 9_007_199_254_740_992.0 => Some(*v as i128),
        Value::Text(text) => text.trim().parse().ok(),
        _ => None,
    };
    let wide = wide.ok_or_else(|| not_a(value, "an integer"))?;
    T::try_from(wide).map_err(|_| Mismatch(format!("{} is out of range for {name}", shown(value))))
}

fn float(value: &Value) -> Result<f64, Mismatch> {
    let read = match value {
        Value::Float(v) => Some(*v),
        Value::Int(v) if (*v as f64) as i128 == i128::from(*v) => Some(*v as f64),
        Value::UInt(v) if (*v as f64) as u128 == u128::from(*v) => Some(*v as f64),
        Value::Int(_) | Value::UInt(_) => {
            return Err(Mismatch(format!("{} cannot be represented exactly in double precision", shown(value))));
        }
        Value::Text(text) => text.trim().parse().ok(),
        _ => None,
    };
    read.ok_or_else(|| not_a(value, "a number"))
}

fn single(value: &Value) -> Result<f32, Mismatch> {
    let wide = float(value)?;
    let narrow = wide as f32;
    if wide.is_finite() && (narrow.is_infinite() || (narrow == 0.0 && wide != 0.0)) {
        return Err(Mismatch(format!("{} is out of range for real", shown(value))));
    }
    Ok(narrow)
}

fn push_text(value: &Value, text: &str, out: &mut Vec<u8>) -> Encoded {
    if memchr_nul(text) {
        return Err(Mismatch(format!(
            "{} contains a NUL character, which PostgreSQL text cannot contain",
            shown(value)
        )));
    }
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

fn memchr_nul(text: &str) -> bool {
    text.as_bytes().contains(&0)
}

fn text(value: &Value, out: &mut Vec<u8>) -> Encoded {
    match value {
        Value::Text(text) => push_text(value, text, out),
        Value::Bytes(_) => {
            Err(Mismatch(format!("{} are not text: decode them first, or make the column bytea", shown(value))))
        }
        _ => printed(value, out),
    }
}

/// Appends the text of a value that is neither text nor bytes.
fn printed(value: &Value, out: &mut Vec<u8>) -> Encoded {
    match value {
        Value::Time(time) => out.extend_from_slice(timestamp_text(time).as_bytes()),
        Value::Float(v) if !v.is_finite() => out.extend_from_slice(non_finite(*v).as_bytes()),
        _ => write_json(value, out)?,
    }
    Ok(())
}

fn non_finite(v: f64) -> &'static str {
    match v {
        _ if v.is_nan() => "NaN",
        _ if v > 0.0 => "Infinity",
        _ => "-Infinity",
    }
}

fn write_json(value: &Value, out: &mut Vec<u8>) -> Encoded {
    json::write_value(value, out)
        .map_err(|fault| Mismatch(format!("it cannot be written as JSON: {}", fault.message())))
}

fn bytes(value: &Value, out: &mut Vec<u8>) -> Encoded {
    match value {
        Value::Bytes(bytes) => out.extend_from_slice(bytes),
        Value::Text(text) => match text.strip_prefix("\\x").map(hex) {
            Some(Some(bytes)) => out.extend_from_slice(&bytes),
            Some(None) => return Err(not_a(value, "bytes: pairs of hexadecimal digits must follow \\x")),
            None => out.extend_from_slice(text.as_bytes()),
        },
        _ => return Err(not_a(value, "bytes")),
    }
    Ok(())
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let digit = |c: u8| char::from(c).to_digit(16);
    digits
        .len()
        .is_multiple_of(2)
        .then(|| digits.chunks(2).map(|pair| Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8)).collect())?
}

fn uuid(value: &Value) -> Result<[u8; 16], Mismatch> {
    let read = match value {
        Value::Bytes(bytes) => <[u8; 16]>::try_from(&bytes[..]).ok(),
        Value::Text(text) => uuid_of(text.trim()),
        _ => None,
    };
    read.ok_or_else(|| not_a(value, "a UUID"))
}

fn uuid_of(text: &str) -> Option<[u8; 16]> {
    let inner = text.strip_prefix('{').map_or(Some(text), |rest| rest.strip_suffix('}'))?;
    let (mut id, mut digits) = ([0u8; 16], 0);
    for (i, c) in inner.bytes().enumerate() {
        if c == b'-' && matches!(i, 8 | 13 | 18 | 23) && inner.len() == 36 {
            continue;
        }
        let digit = char::from(c).to_digit(16)? as u8;
        let byte = id.get_mut(digits / 2)?;
        *byte = *byte << 4 | digit;
        digits += 1;
    }
    (digits == 32).then_some(id)
}

fn json_text(value: &Value, out: &mut Vec<u8>) -> Encoded {
    match value {
        Value::Text(text) => push_text(value, text, out),
        _ => write_json(value, out),
    }
}

/// Appends a pgvector: `int16` dimensions, `int16` unused, then a `float4` each (`vector_recv`).
fn vector(value: &Value, out: &mut Vec<u8>) -> Encoded {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    let mut count = 0usize;
    let mut push = |number: f32, out: &mut Vec<u8>| {
        out.extend_from_slice(&number.to_be_bytes());
        count += 1;
    };
    match value {
        Value::List(items) => {
            for (i, item) in items.iter().enumerate() {
                let number = match item {
                    Value::Float(v) => *v as f32,
                    _ => single(item).map_err(|Mismatch(why)| Mismatch(format!("element {i} of the vector: {why}")))?,
                };
                push(number, out);
            }
        }
        Value::Text(text) => {
            let inner = text.trim().strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
            let inner = inner.ok_or_else(|| not_a(value, "a vector, for example [0.1,0.2]"))?;
            for (i, part) in inner.split(',').enumerate() {
                let number = part.trim().parse();
                push(
                    number.map_err(|_| Mismatch(format!("element {i} of the vector is not a number: {part:?}")))?,
                    out,
                );
            }
        }
        _ => return Err(not_a(value, "a vector: a list of numbers, or its JSON text")),
    }
    let count = i16::try_from(count).map_err(|_| Mismatch(format!("a vector of {count} dimensions is too long")))?;
    out[at..at + 2].copy_from_slice(&count.to_be_bytes());
    Ok(())
}

fn array(element: &ColumnEncoding, oid: u32, value: &Value, out: &mut Vec<u8>) -> Encoded {
    // A nested list is another dimension, unless it is an element itself.
    let mut nests = !matches!(element, ColumnEncoding::Json | ColumnEncoding::Jsonb | ColumnEncoding::Vector);
    let decoded;
    let mut bounds = Vec::new();
    let value = match value {
        Value::Text(text) => {
            let list = text.trim_start().starts_with('[').then(|| json::parse_value(text.as_bytes()).ok()).flatten();
            decoded = match list {
                Some(list) => list,
                None => {
                    let literal = literal::parse(text).ok_or_else(|| {
                        not_a(value, "a list: text must be a JSON list or an array literal, for example {1,2}")
                    })?;
                    (nests, bounds) = (true, literal.bounds);
                    literal.list
                }
            };
            &decoded
        }
        other => other,
    };
    let Value::List(items) = value else {
        return Err(not_a(value, "a list"));
    };
    let mut lengths = Vec::new();
    let mut level = items;
    while !level.is_empty() {
        lengths.push(level.len());
        match level.first() {
            Some(Value::List(inner)) if nests => level = inner,
            _ => break,
        }
    }
    if lengths.len() > DIMENSIONS {
        return Err(Mismatch(format!(
            "an array of {} dimensions is too deep; at most {DIMENSIONS} are allowed",
            lengths.len()
        )));
    }
    let header = |n: usize| i32::try_from(n).map_err(|_| Mismatch("the list is too long".to_owned()));
    out.extend_from_slice(&header(lengths.len())?.to_be_bytes());
    let nulls_at = out.len();
    out.extend_from_slice(&0i32.to_be_bytes());
    out.extend_from_slice(&oid.to_be_bytes());
    if !bounds.is_empty() && !bounds.iter().map(literal::Bounds::len).eq(lengths.iter().map(|length| Some(*length))) {
        return Err(Mismatch("the bounds of the array literal do not match its elements".to_owned()));
    }
    let lower = bounds.iter().map(|bounds| bounds.lower).chain(std::iter::repeat(1));
    for (length, lower) in lengths.iter().zip(lower) {
        out.extend_from_slice(&header(*length)?.to_be_bytes());
        out.extend_from_slice(&lower.to_be_bytes());
    }
    if lengths.is_empty() {
        return Ok(());
    }
    let mut nulls = false;
    elements(element, items, &lengths, &mut nulls, out)?;
    out[nulls_at..nulls_at + 4].copy_from_slice(&i32::from(nulls).to_be_bytes());
    Ok(())
}

fn elements(
    element: &ColumnEncoding,
    items: &[Value],
    lengths: &[usize],
    nulls: &mut bool,
    out: &mut Vec<u8>,
) -> Encoded {
    let ragged =
        || Mismatch("inner lists differ in length: in an array, all inner lists have the same length".to_owned());
    let (length, inner) = lengths.split_first().ok_or_else(ragged)?;
    if items.len() != *length {
        return Err(ragged());
    }
    for (i, item) in items.iter().enumerate() {
        if inner.is_empty() {
            *nulls |= matches!(item, Value::Null);
            encode(element, item, out).map_err(|Mismatch(why)| Mismatch(format!("element {i} of the list: {why}")))?;
        } else {
            let Value::List(items) = item else { return Err(ragged()) };
            elements(element, items, inner, nulls, out)?;
        }
    }
    Ok(())
}

/// Appends text that PostgreSQL parses as the type. A list is converted to an array literal if its elements have a
/// delimiter.
fn parsed(value: &Value, delimiter: Option<char>, out: &mut Vec<u8>) -> Encoded {
    match (value, delimiter) {
        (Value::Text(text), _) => push_text(value, text, out),
        (Value::Bytes(_), _) => Err(not_a(value, "text")),
        (Value::List(items), Some(delimiter)) => {
            let mut literal = String::new();
            array_literal(items, delimiter, 1, &mut literal)?;
            push_text(value, &literal, out)
        }
        _ => printed(value, out),
    }
}

fn array_literal(items: &[Value], delimiter: char, depth: usize, out: &mut String) -> Encoded {
    if depth > DIMENSIONS {
        return Err(Mismatch(format!("an array of more than {DIMENSIONS} dimensions is too deep")));
    }
    out.push('{');
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.push(delimiter);
        }
        match item {
            Value::Null => out.push_str("NULL"),
            Value::List(inner) => array_literal(inner, delimiter, depth + 1, out)?,
            _ => {
                let mut element = Vec::new();
                parsed(item, None, &mut element)?;
                push_quoted(&String::from_utf8_lossy(&element), out);
            }
        }
    }
    out.push('}');
    Ok(())
}

/// Appends text in double quotes, as in the text of arrays and `hstore`.
fn push_quoted(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        if matches!(c, '"' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
}
