//! Values of RECORD messages, by the types that the SCHEMA message declares.
//!
//! A value of a declared decimal type is a text with its digits, and a number that no 64-bit type holds exactly is a text,
//! too, with or without a declaration. A declared date-time with an offset is a time. All other values are those of their
//! JSON. A value that is not null and does not have its declared type is noted.

use std::fmt;

use anabranch_record::json::{JsonError, parse, parse_value};
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use chrono::{DateTime, Utc};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::declared::{DeclaredType, NumberType, Properties, TextType};
use crate::message::end_of_text;

/// The properties of a record.
#[derive(Debug)]
pub(crate) struct Converted {
    pub(crate) fields: Object,
    /// True if the schema declares every property.
    pub(crate) is_declared: bool,
    /// The first value that does not have its declared type.
    pub(crate) mismatch: Option<TypeMismatch>,
}

/// A value that does not have its declared type.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the property {path:?} is {found}, and the schema of the stream declares {declared}")]
pub(crate) struct TypeMismatch {
    path: String,
    found: &'static str,
    declared: String,
}

/// Where a value stands in its object or list.
#[derive(Clone, Copy)]
enum ValuePlace<'a> {
    Property(&'a str),
    Item(usize),
}

impl ValuePlace<'_> {
    /// Returns the place of a part of the value.
    fn path(self, inner: &str) -> String {
        let separator = if inner.is_empty() || inner.starts_with('[') { "" } else { "." };
        match self {
            ValuePlace::Property(name) => format!("{name}{separator}{inner}"),
            ValuePlace::Item(index) => format!("[{index}]{separator}{inner}"),
        }
    }
}

/// Converts the object of a RECORD message. A value that does not have its declared type is that of its JSON.
///
/// # Errors
/// It is not an object, or a value is not valid. The message does not quote values.
pub(crate) fn record(raw: &RawValue, properties: &Properties) -> Result<Converted, JsonError> {
    let mut mismatch = None;
    let seed = ObjectSeed { properties, mismatch: &mut mismatch };
    let (fields, is_declared) = parse(raw.get().as_bytes(), seed)?;
    Ok(Converted { fields, is_declared, mismatch })
}

struct ObjectSeed<'p> {
    properties: &'p Properties,
    mismatch: &'p mut Option<TypeMismatch>,
}

impl<'de> DeserializeSeed<'de> for ObjectSeed<'_> {
    type Value = (Object, bool);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ObjectSeed<'_> {
    type Value = (Object, bool);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let ObjectSeed { properties, mismatch } = self;
        let mut fields = Vec::with_capacity(properties.iter().len());
        let mut is_declared = true;
        while let Some((name, declared)) = map.next_key_seed(PropertySeed(properties))? {
            let raw: &RawValue = map.next_value()?;
            is_declared &= declared.is_some();
            let value = match declared {
                Some(declared) => typed(raw, declared, ValuePlace::Property(&name), mismatch),
                None => untyped(raw.get()),
            };
            fields.push((name, value.map_err(|error| A::Error::custom(error.message))?));
        }
        Ok((Object::from_entries(fields), is_declared))
    }
}

/// Reads the name of a property. A declared name is not copied.
struct PropertySeed<'p>(&'p Properties);

impl<'de, 'p> DeserializeSeed<'de> for PropertySeed<'p> {
    type Value = (Str, Option<&'p DeclaredType>);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'p> Visitor<'_> for PropertySeed<'p> {
    type Value = (Str, Option<&'p DeclaredType>);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(match self.0.get(name) {
            Some((name, declared)) => (name.clone(), Some(declared)),
            None => (name.into(), None),
        })
    }
}

/// Converts a value with a declaration. Notes the first value that does not have its declared type.
fn typed(
    raw: &RawValue,
    declared: &DeclaredType,
    place: ValuePlace<'_>,
    mismatch: &mut Option<TypeMismatch>,
) -> Result<Value, JsonError> {
    let text = raw.get();
    if declared.is_unknown() {
        return untyped(text);
    }
    let mut inner = None;
    let (found, is_of_type, value) = match text.as_bytes().first() {
        Some(b'-' | b'0'..=b'9') => {
            let is_integer =
                declared.integer.is_some() && DecimalDigits::of(text).is_some_and(|digits| digits.is_whole());
            let found = if declared.integer.is_some() { "a number that is not an integer" } else { "a number" };
            (found, is_integer || declared.number.is_some(), number(text, declared, is_integer)?)
        }
        Some(b'"') => {
            let value = untyped(text)?;
            let value = if declared.text == Some(TextType::DateTime) { time(value) } else { value };
            ("a text", declared.text.is_some(), value)
        }
        Some(b'{') => {
            let value = match &declared.object {
                Some(properties) if properties.iter().len() > 0 => {
                    let seed = ObjectSeed { properties, mismatch: &mut inner };
                    Value::from(parse(text.as_bytes(), seed)?.0)
                }
                _ => untyped(text)?,
            };
            ("an object", declared.object.is_some(), value)
        }
        Some(b'[') => {
            let value = match &declared.list {
                Some(items) if !items.is_unknown() => parse(text.as_bytes(), ListSeed { items, mismatch: &mut inner })?,
                _ => untyped(text)?,
            };
            ("a list", declared.list.is_some(), value)
        }
        Some(b't' | b'f') => ("a boolean", declared.boolean, untyped(text)?),
        // All properties may be null, because all fields of the schemas may be.
        _ => ("null", true, untyped(text)?),
    };
    if mismatch.is_none() {
        *mismatch = match inner {
            _ if !is_of_type => Some(TypeMismatch { path: place.path(""), found, declared: declared.to_string() }),
            inner => inner.map(|inner| TypeMismatch { path: place.path(&inner.path), ..inner }),
        };
    }
    Ok(value)
}

struct ListSeed<'p> {
    items: &'p DeclaredType,
    mismatch: &'p mut Option<TypeMismatch>,
}

impl<'de> DeserializeSeed<'de> for ListSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ListSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(raw) = list.next_element::<&RawValue>()? {
            let value = typed(raw, self.items, ValuePlace::Item(items.len()), self.mismatch);
            items.push(value.map_err(|error| A::Error::custom(error.message))?);
        }
        Ok(Value::from(items))
    }
}

/// Returns a time if the text is one with an offset; otherwise the text.
fn time(value: Value) -> Value {
    let parsed = value.as_str().and_then(|text| DateTime::parse_from_rfc3339(text).ok());
    parsed.map_or(value, |time| Value::Time(time.with_timezone(&Utc)))
}

/// Returns a number of its declared type: an integer also if it is written as `5.0`.
fn number(text: &str, declared: &DeclaredType, is_integer: bool) -> Result<Value, JsonError> {
    match declared.number {
        Some(NumberType::Decimal) => Ok(Value::from(text)),
        None if is_integer && text.contains(['.', 'e', 'E']) => {
            let whole = DecimalDigits::of(text).and_then(|digits| digits.whole());
            whole.map_or_else(|| Ok(Value::from(text)), |whole| untyped(&whole))
        }
        _ => untyped(text),
    }
}

/// Converts a value without a declaration. A number that no number of 64 bits equals is its text.
fn untyped(text: &str) -> Result<Value, JsonError> {
    match with_quoted_numbers(text) {
        Some(quoted) => parse_value(quoted.as_bytes()),
        None => parse_value(text.as_bytes()),
    }
}

/// Returns the JSON with quotes around each number that no number of 64 bits equals; `None` if there is none. O(length).
fn with_quoted_numbers(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut out = String::new();
    let (mut kept, mut at) = (0, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at = end_of_text(bytes, at),
            b'-' | b'0'..=b'9' => {
                let is_of_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
                let end = at + bytes[at..].iter().take_while(|byte| is_of_number(byte)).count();
                let number = &text[at..end];
                if !is_exact(number) {
                    out.extend([&text[kept..at], "\"", number, "\""]);
                    kept = end;
                }
                at = end;
            }
            _ => at += 1,
        }
    }
    (kept > 0).then(|| out + &text[kept..])
}

/// Returns `true` if a number of 64 bits equals the number.
fn is_exact(number: &str) -> bool {
    // Floats hold all numbers of 15 digits.
    if number.len() <= 15 && !number.contains(['e', 'E']) {
        return true;
    }
    match parse_value(number.as_bytes()) {
        Ok(Value::Float(float)) => equals(number, float),
        Ok(_) => true,
        // The number is beyond the range of floats. The syntax was checked before.
        Err(_) => false,
    }
}

/// Returns `true` if a number is exactly the shortest decimal form of a float.
fn equals(text: &str, number: f64) -> bool {
    DecimalDigits::of(text) == DecimalDigits::of(&format!("{number:e}"))
}

/// A decimal number: `0.digits × 10^exponent`, without zeros at both ends of the digits.
#[derive(PartialEq, Eq)]
struct DecimalDigits {
    is_negative: bool,
    digits: String,
    exponent: i64,
}

impl DecimalDigits {
    /// Reads a number in the syntax of JSON. `None` if the exponent is beyond 64 bits.
    fn of(text: &str) -> Option<DecimalDigits> {
        let (is_negative, text) = text.strip_prefix('-').map_or((false, text), |text| (true, text));
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = [whole, fraction].concat();
        let digits = all.trim_start_matches('0');
        let leading = i64::try_from(all.len() - digits.len()).ok()?;
        let digits = digits.trim_end_matches('0').to_owned();
        let exponent: i64 = exponent.strip_prefix('+').unwrap_or(exponent).parse().ok()?;
        let whole = i64::try_from(whole.len()).ok()?;
        let exponent = if digits.is_empty() { 0 } else { exponent.checked_add(whole)?.checked_sub(leading)? };
        Some(DecimalDigits { is_negative, digits, exponent })
    }

    /// Returns `true` if the number is an integer.
    fn is_whole(&self) -> bool {
        i64::try_from(self.digits.len()).is_ok_and(|len| self.exponent >= len)
    }

    /// Returns the digits of an integer; `None` if it is not one, or has more digits than 64 bits hold.
    fn whole(&self) -> Option<String> {
        const MOST: usize = 20;
        let len = usize::try_from(self.exponent).ok().filter(|len| self.is_whole() && *len <= MOST)?;
        let sign = if self.is_negative && len > 0 { "-" } else { "" };
        Some(match len {
            0 => "0".to_owned(),
            _ => format!("{sign}{:0<len$}", self.digits),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn converted(schema: &serde_json::Value, record: &str) -> Converted {
        let raw = RawValue::from_string(record.to_owned()).unwrap();
        super::record(&raw, &Properties::of(&json!({"type": "object", "properties": schema}))).unwrap()
    }

    fn one(schema: &serde_json::Value, text: &str) -> Value {
        converted(&json!({"a": schema}), &format!(r#"{{"a": {text}}}"#)).fields.get("a").unwrap().clone()
    }

    #[test]
    fn no_digit_of_a_number_is_lost() {
        let decimal = json!({"type": ["null", "number"], "multipleOf": 0.01});
        for text in ["12.50", "-0.00", "99999999999999999999.99", "1E+2", "7"] {
            assert_eq!(one(&decimal, text), Value::from(text));
        }
        assert_eq!(one(&decimal, "null"), Value::Null);
        let number = json!({"type": "number"});
        for (text, float) in
            [("1.5", 1.5), ("1.50", 1.5), ("-0.1", -0.1), ("1e3", 1000.0), ("0.1e-1", 0.01), ("1e23", 1e23)]
        {
            assert_eq!(one(&number, text), Value::Float(float), "{text}");
        }
        for text in
            ["1234567890123456.78", "0.12345678901234567890", "1e400", "-1e-400", "123456789012345678901234567890"]
        {
            assert_eq!(one(&number, text), Value::from(text));
        }
        assert_eq!(one(&number, "5"), Value::Int(5));
        assert_eq!(one(&json!({"type": "integer"}), "18446744073709551615"), Value::UInt(u64::MAX));
        assert_eq!(one(&json!({"type": "integer"}), "18446744073709551616"), Value::from("18446744073709551616"));
    }

    #[test]
    fn no_digit_of_an_undeclared_number_is_lost() {
        let long = "12345678901234567890123";
        for schema in [json!({}), json!({"type": "object"}), json!({"type": "object", "properties": {"y": {}}})] {
            let text = format!(r#"{{"x": [{long}, "a\" {long}", 1.50], "y": 9007199254740993.0, "z": 1e400}}"#);
            let found = one(&schema, &text);
            let found = found.as_map().unwrap();
            let list = found.get("x").unwrap().as_list().unwrap();
            assert_eq!(list[..2], [Value::from(long), Value::from(format!("a\" {long}"))]);
            assert_eq!(list[2], Value::Float(1.5));
            assert_eq!(found.get("y"), Some(&Value::from("9007199254740993.0")));
            assert_eq!(found.get("z"), Some(&Value::from("1e400")));
        }
        let found = converted(&json!({}), "{\"a\": 0.12345678901234567890123, \"b\": 18446744073709551615}").fields;
        assert_eq!(found.get("a"), Some(&Value::from("0.12345678901234567890123")));
        assert_eq!(found.get("b"), Some(&Value::UInt(u64::MAX)));
    }

    #[test]
    fn a_value_without_its_declared_type_is_named() {
        let schema = json!({
            "id": {"type": "integer"}, "d": {"type": ["null", "number"]}, "free": {},
            "a": {"type": "object", "properties": {"b": {"type": "array", "items": {"type": "string"}}}},
            "either": {"anyOf": [{"type": "boolean"}, {"type": "string"}]}
        });
        for (record, error) in [
            (r#"{"id": "notint"}"#, r#"the property "id" is a text, and the schema of the stream declares an integer"#),
            (
                r#"{"id": 1.5}"#,
                r#"the property "id" is a number that is not an integer, and the schema of the stream declares an integer"#,
            ),
            (
                r#"{"id": 1, "d": "abc"}"#,
                r#"the property "d" is a text, and the schema of the stream declares a number"#,
            ),
            (
                r#"{"a": {"b": ["x", 7]}}"#,
                r#"the property "a.b[1]" is a number, and the schema of the stream declares a text"#,
            ),
            (
                r#"{"a": [], "id": {}}"#,
                r#"the property "a" is a list, and the schema of the stream declares an object"#,
            ),
            (
                r#"{"either": 1}"#,
                r#"the property "either" is a number, and the schema of the stream declares a boolean or a text"#,
            ),
        ] {
            let found = converted(&schema, record).mismatch.map(|mismatch| mismatch.to_string());
            assert_eq!(found.as_deref(), Some(error), "{record}");
        }
        for valid in [
            r#"{"id": null, "d": null, "a": null, "either": null}"#,
            r#"{"id": 5.0, "d": 5, "a": {"b": [null]}, "free": [], "other": {}, "either": "x"}"#,
            r#"{"id": 123456789012345678901234567890, "d": 1e400}"#,
        ] {
            assert_eq!(converted(&schema, valid).mismatch, None, "{valid}");
        }
        for (text, value) in [("5.0", Value::Int(5)), ("-1.20e2", Value::Int(-120)), ("0.0", Value::Int(0))] {
            assert_eq!(one(&json!({"type": "integer"}), text), value);
        }
        assert_eq!(one(&json!({"type": "integer"}), "1e300"), Value::from("1e300"));
    }

    #[test]
    fn date_times_with_an_offset_are_times() {
        let schema = json!({"type": ["null", "string"], "format": "date-time"});
        let time = one(&schema, "\"2024-02-03T04:05:06.789+02:00\"");
        let Value::Time(time) = time else { panic!("{time:?}") };
        assert_eq!(time.to_rfc3339(), "2024-02-03T02:05:06.789+00:00");
        for text in ["2024-02-03T04:05:06", "soon", ""] {
            assert_eq!(one(&schema, &format!("{text:?}")), Value::from(text));
        }
        assert_eq!(one(&json!({"type": "string"}), "\"2024-02-03T04:05:06Z\""), Value::from("2024-02-03T04:05:06Z"));
    }

    #[test]
    fn nested_values_have_their_declared_types() {
        let schema = json!({"rows": {"type": "array", "items": {"type": "object", "properties": {
            "sum": {"type": "number", "multipleOf": 0.01}, "at": {"type": "string", "format": "date-time"}}}}});
        let found =
            converted(&schema, r#"{"rows": [{"sum": 1.10, "at": "2024-01-01T00:00:00Z", "more": 2.0}], "x": 1}"#);
        assert!(!found.is_declared, "x is not in the schema");
        let rows = found.fields.get("rows").unwrap().as_list().unwrap();
        let row = rows[0].as_map().unwrap();
        assert_eq!(row.get("sum"), Some(&Value::from("1.10")));
        assert!(matches!(row.get("at"), Some(Value::Time(_))));
        assert_eq!(row.get("more"), Some(&Value::Float(2.0)));
    }

    #[test]
    fn errors_do_not_quote_values() {
        let raw = RawValue::from_string(r#"{"a": 1, "secret": {"b": "\ud800"}}"#.to_owned()).unwrap();
        let error = super::record(&raw, &Properties::default()).unwrap_err();
        assert!(!error.to_string().contains("ud800"), "{error}");
        let raw = RawValue::from_string("[\"hunter22\"]".to_owned()).unwrap();
        let error = super::record(&raw, &Properties::default()).unwrap_err();
        assert!(!error.to_string().contains("hunter22"), "{error}");
    }
}
