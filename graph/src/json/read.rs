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

/// A text that is not JSON, or not the JSON of a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid JSON at byte {offset}: {message}")]
pub struct JsonError {
    /// Offset in bytes of the place where reading stopped: at what is wrong, or just behind it.
    pub offset: usize,
    /// What is wrong there; holds nothing of the text but the names of fields and operations.
    pub message: String,
}

impl JsonError {
    fn new(error: &serde_json::Error, text: &[u8]) -> Self {
        // Lines and columns are counted from 1; a column counts the bytes read of its line.
        let line_start = match error.line() {
            0 | 1 => 0,
            line => memchr::memchr_iter(b'\n', text).nth(line - 2).map_or(text.len(), |i| i + 1),
        };
        let offset = (line_start + error.column().saturating_sub(1)).min(text.len());
        let mut message = error.to_string();
        if let Some(end) = message.rfind(" at line ") {
            message.truncate(end);
        }
        JsonError { offset, message }
    }
}

/// Reads one JSON value; only white space may follow it.
///
/// Integers are exact from `i64::MIN` to `u64::MAX`; other numbers become the nearest float. Of equal keys
/// the last wins. Nesting is limited to 127 levels, so hostile texts cannot exhaust the stack.
///
/// # Errors
/// What is wrong, and where: bad syntax, invalid UTF-8, a lone surrogate, a number beyond the range of
/// floats, nesting that is too deep.
pub fn parse_value(text: &[u8]) -> Result<Value, JsonError> {
    Parser::default().parse_value(text)
}

/// Reads a record. Unknown fields are skipped; all but `operation` may be missing.
///
/// # Errors
/// As [`parse_value`], and whatever is not as the JSON form of a record demands.
pub fn parse_record(text: &[u8]) -> Result<Record, JsonError> {
    Parser::default().parse_record(text)
}

/// Reads many texts of similar shape: remembers the keys it meets, so that records share them.
///
/// Memory is bounded: [`Parser::new`] keeps at most 64 keys of at most 32 bytes.
#[derive(Debug, Default)]
pub struct Parser {
    keys: Keys,
}

impl Parser {
    /// A parser that remembers keys.
    pub fn new() -> Self {
        Parser { keys: Keys { slots: vec![None; Keys::SLOTS] } }
    }

    /// As [`parse_value`].
    ///
    /// # Errors
    /// As [`parse_value`].
    pub fn parse_value(&mut self, text: &[u8]) -> Result<Value, JsonError> {
        self.parse(text, |keys| ValueSeed { keys })
    }

    /// As [`parse_record`].
    ///
    /// # Errors
    /// As [`parse_record`].
    pub fn parse_record(&mut self, text: &[u8]) -> Result<Record, JsonError> {
        self.parse(text, |keys| RecordSeed { keys })
    }

    fn parse<'a, S, T>(&'a mut self, text: &[u8], seed: impl FnOnce(&'a mut Keys) -> S) -> Result<T, JsonError>
    where
        S: for<'de> DeserializeSeed<'de, Value = T>,
    {
        let mut json = serde_json::Deserializer::from_slice(text);
        seed(&mut self.keys)
            .deserialize(&mut json)
            .and_then(|value| json.end().map(|()| value))
            .map_err(|e| JsonError::new(&e, text))
    }
}

/// The keys met last, one per slot. Without slots nothing is remembered.
#[derive(Debug, Default)]
struct Keys {
    slots: Vec<Option<Str>>,
}

impl Keys {
    const SLOTS: usize = 64;
    const LONGEST: usize = 32;

    fn get(&mut self, key: &str) -> Str {
        let (&[first, .., last], 2..=Self::LONGEST) = (key.as_bytes(), key.len()) else { return key.into() };
        let middle = key.as_bytes()[key.len() / 2];
        let hash = key.len() + 7 * usize::from(first) + 31 * usize::from(last) + 13 * usize::from(middle);
        match self.slots.get_mut(hash % Self::SLOTS) {
            Some(Some(known)) if *known == *key => known.clone(),
            Some(slot) => slot.insert(key.into()).clone(),
            None => key.into(),
        }
    }
}

struct KeySeed<'p> {
    keys: &'p mut Keys,
}

impl<'de> DeserializeSeed<'de> for KeySeed<'_> {
    type Value = Str;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Str, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed<'_> {
    type Value = Str;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }
    fn visit_str<E>(self, key: &str) -> Result<Str, E> {
        Ok(self.keys.get(key))
    }
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

struct ValueSeed<'p> {
    keys: &'p mut Keys,
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
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
        while let Some(item) = seq.next_element_seed(ValueSeed { keys: self.keys })? {
            items.push(item);
        }
        Ok(Value::from(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Value, A::Error> {
        object(map, self.keys).map(Value::from)
    }
}

fn object<'de, A: MapAccess<'de>>(mut map: A, keys: &mut Keys) -> Result<Object, A::Error> {
    let mut entries = Vec::new();
    while let Some(key) = map.next_key_seed(KeySeed { keys })? {
        if entries.is_empty() {
            entries.reserve(8);
        }
        entries.push((key, map.next_value_seed(ValueSeed { keys })?));
    }
    Ok(Object::from_entries(entries))
}

struct RecordSeed<'p> {
    keys: &'p mut Keys,
}

impl<'de> DeserializeSeed<'de> for RecordSeed<'_> {
    type Value = Record;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Record, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for RecordSeed<'_> {
    type Value = Record;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a record: an object with operation, position, metadata, key and payload")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Record, A::Error> {
        let keys = self.keys;
        let mut record = Record::default();
        let mut operation = None;
        while let Some(field) = map.next_key_seed(KeySeed { keys })? {
            match field.as_str() {
                "position" => record = record.with_position(Position(map.next_value_seed(Base64Seed)?)),
                "operation" => operation = Some(map.next_value_seed(OperationSeed)?),
                "metadata" => record.metadata = map.next_value_seed(MetadataSeed { keys })?,
                "key" => record.key = map.next_value_seed(DataSeed { keys })?,
                "payload" => record.payload = map.next_value_seed(ChangeSeed { keys })?,
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

struct MetadataSeed<'p> {
    keys: &'p mut Keys,
}

impl<'de> DeserializeSeed<'de> for MetadataSeed<'_> {
    type Value = Metadata;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Metadata, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for MetadataSeed<'_> {
    type Value = Metadata;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("metadata: an object of texts, or null")
    }
    fn visit_unit<E>(self) -> Result<Metadata, E> {
        Ok(Metadata::new())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Metadata, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key_seed(KeySeed { keys: self.keys })? {
            entries.push((key, map.next_value_seed(TextSeed)?));
        }
        Ok(Metadata::from_entries(entries))
    }
}

struct DataSeed<'p> {
    keys: &'p mut Keys,
}

impl<'de> DeserializeSeed<'de> for DataSeed<'_> {
    type Value = Data;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Data, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for DataSeed<'_> {
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
        object(map, self.keys).map(Data::from)
    }
}

struct ChangeSeed<'p> {
    keys: &'p mut Keys,
}

impl<'de> DeserializeSeed<'de> for ChangeSeed<'_> {
    type Value = Change;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Change, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ChangeSeed<'_> {
    type Value = Change;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a payload: an object with before and after, or null")
    }
    fn visit_unit<E>(self) -> Result<Change, E> {
        Ok(Change::default())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Change, A::Error> {
        let keys = self.keys;
        let mut change = Change::default();
        while let Some(field) = map.next_key_seed(KeySeed { keys })? {
            match field.as_str() {
                "before" => change.before = map.next_value_seed(DataSeed { keys })?,
                "after" => change.after = map.next_value_seed(DataSeed { keys })?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(change)
    }
}
