//! Structured values.

use std::collections::BTreeMap;

/// The fields of structured data, in name order.
pub type Map = BTreeMap<String, Value>;

/// A value in structured data.
///
/// Between processors, values are encoded like JSON: a [`Value::Int`] becomes a 64-bit float (exact up to 2⁵³) and
/// [`Value::Bytes`] become base64 text. Data with a schema is encoded with it and keeps both types.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    /// No value.
    #[default]
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer. Numbers of data without a schema arrive as [`Value::Float`].
    Int(i64),
    /// A 64-bit floating-point number.
    Float(f64),
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A list.
    List(Vec<Value>),
    /// A map.
    Map(Map),
}

impl Value {
    /// Returns the text, if the value is text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the number, if the value is one.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Value::Int(number) => Some(number as f64),
            Value::Float(number) => Some(number),
            _ => None,
        }
    }

    /// Returns the integer, if the value is one; also a float without fraction in the range of exact integers (±2⁵³).
    pub fn as_i64(&self) -> Option<i64> {
        const EXACT: f64 = 9_007_199_254_740_992.0;
        match *self {
            Value::Int(number) => Some(number),
            Value::Float(number) if number.fract() == 0.0 && number.abs() <= EXACT => Some(number as i64),
            _ => None,
        }
    }

    /// Returns the boolean, if the value is one.
    pub fn as_bool(&self) -> Option<bool> {
        match *self {
            Value::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the elements, if the value is a list.
    pub fn as_list(&self) -> Option<&[Value]> {
        match self {
            Value::List(list) => Some(list),
            _ => None,
        }
    }

    /// Returns the fields, if the value is a map.
    pub fn as_map(&self) -> Option<&Map> {
        match self {
            Value::Map(map) => Some(map),
            _ => None,
        }
    }

    /// Returns the fields for changes, if the value is a map.
    pub fn as_map_mut(&mut self) -> Option<&mut Map> {
        match self {
            Value::Map(map) => Some(map),
            _ => None,
        }
    }

    /// Returns the name of the type, for messages.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Int(_) | Value::Float(_) => "a number",
            Value::Text(_) => "text",
            Value::Bytes(_) => "bytes",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }
}

macro_rules! from {
    ($($source:ty => $variant:ident),* $(,)?) => {$(
        impl From<$source> for Value {
            fn from(value: $source) -> Self {
                Value::$variant(value.into())
            }
        }
    )*};
}

from!(bool => Bool, i32 => Int, i64 => Int, u32 => Int, f32 => Float, f64 => Float, &str => Text, String => Text,
    Vec<u8> => Bytes, Vec<Value> => List, Map => Map);

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}

impl From<serde_json::Value> for Value {
    fn from(value: serde_json::Value) -> Self {
        match value {
            serde_json::Value::Null => Value::Null,
            serde_json::Value::Bool(value) => Value::Bool(value),
            serde_json::Value::Number(number) => match number.as_i64() {
                Some(number) => Value::Int(number),
                None => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            serde_json::Value::String(text) => Value::Text(text),
            serde_json::Value::Array(list) => Value::List(list.into_iter().map(Value::from).collect()),
            serde_json::Value::Object(map) => Value::Map(map.into_iter().map(|(k, v)| (k, v.into())).collect()),
        }
    }
}

impl From<Value> for serde_json::Value {
    /// Converts to JSON: bytes become base64 text, and numbers that JSON lacks (NaN, infinities) become null.
    fn from(value: Value) -> Self {
        match value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => value.into(),
            Value::Int(number) => number.into(),
            Value::Float(number) => number.into(),
            Value::Text(text) => text.into(),
            Value::Bytes(bytes) => base64(&bytes).into(),
            Value::List(list) => list.into_iter().map(serde_json::Value::from).collect(),
            Value::Map(map) => serde_json::Value::Object(map.into_iter().map(|(k, v)| (k, v.into())).collect()),
        }
    }
}

/// Encodes base64 in the standard alphabet with padding (RFC 4648 § 4).
pub(crate) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0u32, |group, &byte| group << 8 | u32::from(byte)) << (8 * (3 - chunk.len()));
        for i in 0..4 {
            let sextet = (group >> (18 - 6 * i)) as usize & 63;
            text.push(if i <= chunk.len() { ALPHABET[sextet] as char } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_follows_the_test_vectors_of_the_rfc() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn whole_floats_are_whole_numbers_within_the_exact_range() {
        assert_eq!(Value::Float(-3.0).as_i64(), Some(-3));
        assert_eq!(Value::Float(1e18).as_i64(), None);
        assert_eq!(Value::Float(0.5).as_i64(), None);
        assert_eq!(Value::Float(f64::NAN).as_i64(), None);
    }
}
