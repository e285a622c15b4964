//! Reading JSON into values and records.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::metadata::Metadata;
use crate::record::{Change, Data, Operation, Position, Record};
use crate::text::Str;
use crate::value::{Object, Value};

/// Error: the text is not JSON, or not the JSON form of a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid JSON at byte {offset}: {message}")]
pub struct JsonError {
    /// Offset in bytes where reading stopped: at the error, or directly after it.
    pub offset: usize,
    /// The problem. The only parts of the text that it quotes are names of fields and operations.
    pub message: String,
}

impl JsonError {
    fn new(error: &serde_json::Error, text: &[u8]) -> Self {
        // Lines and columns count from 1; a column counts the bytes read of its line.
        let line_start = match error.line() {
            0 | 1 => 0,
            line => memchr::memchr_iter(b'\n', text).nth(line - 2).map_or(text.len(), |i| i + 1),
        };
        let offset = if error.is_eof() { text.len() } else { line_start + error.column().saturating_sub(1) };
        let offset = offset.min(text.len());
        let mut message = error.to_string();
        if let Some(end) = message.rfind(" at line ") {
            message.truncate(end);
        }
        if let Some(what) = something_else(text) {
            message.push_str("; ");
            message.push_str(what);
        }
        JsonError { offset, message }
    }
}

/// Recognises another format by the first bytes of a text that is not JSON.
fn something_else(text: &[u8]) -> Option<&'static str> {
    Some(match text {
        [0xef, 0xbb, 0xbf, ..] => "it begins with a byte order mark: remove its first 3 bytes",
        [0x1f, 0x8b, ..] => "it looks like gzip: decompress it first",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "it looks like zstd: decompress it first",
        [b'P', b'K', 3, 4, ..] => "it looks like a zip archive",
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "it looks like UTF-16: convert it to UTF-8",
        [b'O', b'b', b'j', 1, ..] => "it looks like an Avro file",
        [0, _, _, _, _, _, ..] => "it looks like data of a schema registry, which `avro.decode` reads",
        [b'<', ..] => "it looks like XML or HTML",
        [b'{' | b'[', ..] => return None,
        _ => {
            let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
            let is_text = std::str::from_utf8(line).is_ok() && !line.iter().any(|byte| matches!(byte, b'{' | b'}'));
            let separated = line.iter().any(|byte| matches!(byte, b',' | b';' | b'\t'));
            if !is_text || !separated {
                return None;
            }
            "it looks like CSV: a script can split it into fields, for example with `line.split(\",\")`"
        }
    })
}

/// Reads one JSON value; only white space may follow it.
///
/// Integers are exact from `i64::MIN` to `u64::MAX`; other numbers become the nearest float. Of equal keys
/// the last wins. Nesting is limited to 127 levels, so that hostile texts cannot exhaust the stack.
///
/// # Errors
/// The problem and its place: invalid syntax, invalid UTF-8, a lone surrogate, a number beyond the range of
/// floats, nesting that is too deep.
pub fn parse_value(text: &[u8]) -> Result<Value, JsonError> {
    parse(text, ValueSeed)
}

/// Reads a record. Unknown fields are skipped; all fields but `operation` are optional.
///
/// # Errors
/// The errors of [`parse_value`], and any deviation from the JSON form of a record.
pub fn parse_record(text: &[u8]) -> Result<Record, JsonError> {
    parse(text, RecordSeed)
}

/// Reads JSON into what `seed` makes of it, with the rules of [`parse_value`] for numbers, texts and nesting; only white
/// space may follow it.
///
/// # Errors
/// The errors of [`parse_value`], and those of `seed`.
pub fn parse<'de, S: DeserializeSeed<'de>>(text: &'de [u8], seed: S) -> Result<S::Value, JsonError> {
    let mut json = serde_json::Deserializer::from_slice(text);
    seed.deserialize(&mut json).and_then(|value| json.end().map(|()| value)).map_err(|e| JsonError::new(&e, text))
}

struct TextSeed;

impl<'de> DeserializeSeed<'de> for TextSeed {
    type Value = Str;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Str, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for TextSeed {
    type Value = Str;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }
    fn visit_str<E>(self, text: &str) -> Result<Str, E> {
        Ok(text.into())
    }
}

/// Reads a key without allocating: returns the name from this list that it equals, or the empty text.
struct NameSeed(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for NameSeed {
    type Value = &'static str;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<&'static str, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for NameSeed {
    type Value = &'static str;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }
    fn visit_str<E>(self, text: &str) -> Result<&'static str, E> {
        Ok(self.0.iter().find(|name| **name == text).copied().unwrap_or_default())
    }
}

struct ValueSeed;

impl<'de> DeserializeSeed<'de> for ValueSeed {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed {
    type Value = Value;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(value))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.into()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(ValueSeed)? {
            items.push(item);
        }
        Ok(Value::from(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Value, A::Error> {
        object(map).map(Value::from)
    }
}

fn object<'de, A: MapAccess<'de>>(mut map: A) -> Result<Object, A::Error> {
    let mut entries = Vec::new();
    while let Some(key) = map.next_key_seed(TextSeed)? {
        entries.push((key, map.next_value_seed(ValueSeed)?));
    }
    Ok(Object::from_entries(entries))
}

struct RecordSeed;

impl<'de> DeserializeSeed<'de> for RecordSeed {
    type Value = Record;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Record, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for RecordSeed {
    type Value = Record;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a record: an object with operation, position, metadata, key and payload")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Record, A::Error> {
        let mut record = Record::default();
        let mut operation = None;
        while let Some(field) = map.next_key_seed(NameSeed(&["position", "operation", "metadata", "key", "payload"]))? {
            match field {
                "position" => record = record.with_position(Position(map.next_value_seed(Base64Seed)?)),
                "operation" => operation = Some(map.next_value_seed(OperationSeed)?),
                "metadata" => record.metadata = map.next_value_seed(MetadataSeed)?,
                "key" => record.key = map.next_value_seed(DataSeed)?,
                "payload" => record.payload = map.next_value_seed(ChangeSeed)?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        record.operation = operation.ok_or_else(|| A::Error::custom("the record has no operation"))?;
        Ok(record)
    }
}

struct Base64Seed;

impl<'de> DeserializeSeed<'de> for Base64Seed {
    type Value = Bytes;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Bytes, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for Base64Seed {
    type Value = Bytes;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("base64 text or null")
    }
    fn visit_unit<E>(self) -> Result<Bytes, E> {
        Ok(Bytes::new())
    }
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Bytes, E> {
        STANDARD.decode(text).map(Bytes::from).map_err(|e| E::custom(format_args!("the text is not base64: {e}")))
    }
}

struct OperationSeed;

impl<'de> DeserializeSeed<'de> for OperationSeed {
    type Value = Operation;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Operation, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for OperationSeed {
    type Value = Operation;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an operation: create, update, delete or snapshot")
    }
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Operation, E> {
        text.parse().map_err(E::custom)
    }
}

struct MetadataSeed;

impl<'de> DeserializeSeed<'de> for MetadataSeed {
    type Value = Metadata;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Metadata, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for MetadataSeed {
    type Value = Metadata;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("metadata: an object of texts, or null")
    }
    fn visit_unit<E>(self) -> Result<Metadata, E> {
        Ok(Metadata::new())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Metadata, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key_seed(TextSeed)? {
            entries.push((key, map.next_value_seed(TextSeed)?));
        }
        Ok(Metadata::from_entries(entries))
    }
}

struct DataSeed;

impl<'de> DeserializeSeed<'de> for DataSeed {
    type Value = Data;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Data, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for DataSeed {
    type Value = Data;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("data: an object, base64 text or null")
    }
    fn visit_unit<E>(self) -> Result<Data, E> {
        Ok(Data::Absent)
    }
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Data, E> {
        Base64Seed.visit_str(text).map(Data::Raw)
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Data, A::Error> {
        object(map).map(Data::from)
    }
}

struct ChangeSeed;

impl<'de> DeserializeSeed<'de> for ChangeSeed {
    type Value = Change;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Change, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ChangeSeed {
    type Value = Change;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a payload: an object with before and after, or null")
    }
    fn visit_unit<E>(self) -> Result<Change, E> {
        Ok(Change::default())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Change, A::Error> {
        let mut change = Change::default();
        while let Some(field) = map.next_key_seed(NameSeed(&["before", "after"]))? {
            match field {
                "before" => change.before = map.next_value_seed(DataSeed)?,
                "after" => change.after = map.next_value_seed(DataSeed)?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(change)
    }
}
