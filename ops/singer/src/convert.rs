//! Values of RECORD messages, by the types that the SCHEMA message declares.
//!
//! A value of a declared decimal type is a text with its digits, and a number that no 64-bit type holds exactly is a text,
//! too. A declared date-time with an offset is a time. All other values are those of their JSON.

use std::fmt;

use anabranch_record::json::{JsonError, parse, parse_value};
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use chrono::{DateTime, Utc};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::declared::{DeclaredType, NumberType, Properties, TextType};

/// The properties of a record.
#[derive(Debug)]
pub(crate) struct Converted {
    pub(crate) fields: Object,
    /// True if the schema declares every property.
    pub(crate) is_declared: bool,
}

/// Converts the object of a RECORD message.
///
/// # Errors
/// It is not an object, or a value is not valid. The message does not quote values.
pub(crate) fn record(raw: &RawValue, properties: &Properties) -> Result<Converted, JsonError> {
    parse(raw.get().as_bytes(), ObjectSeed(properties))
}

struct ObjectSeed<'p>(&'p Properties);

impl<'de> DeserializeSeed<'de> for ObjectSeed<'_> {
    type Value = Converted;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Converted, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ObjectSeed<'_> {
    type Value = Converted;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Converted, A::Error> {
        let mut fields = Vec::with_capacity(self.0.iter().len());
        let mut is_declared = true;
        while let Some((name, declared)) = map.next_key_seed(PropertySeed(self.0))? {
            let raw: &RawValue = map.next_value()?;
            is_declared &= declared.is_some();
            let value = value(raw, declared).map_err(|error| A::Error::custom(error.message))?;
            fields.push((name, value));
        }
        Ok(Converted { fields: Object::from_entries(fields), is_declared })
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

/// Converts a value.
fn value(raw: &RawValue, declared: Option<&DeclaredType>) -> Result<Value, JsonError> {
    let text = raw.get();
    let plain = || parse_value(text.as_bytes());
    let Some(declared) = declared.filter(|declared| !declared.is_plain()) else { return plain() };
    match text.as_bytes().first() {
        Some(b'-' | b'0'..=b'9') if declared.number == Some(NumberType::Decimal) => Ok(Value::from(text)),
        Some(b'-' | b'0'..=b'9') if declared.number.is_some() || declared.integer.is_some() => exact(text),
        Some(b'"') if declared.text == Some(TextType::DateTime) => plain().map(time),
        Some(b'{') => match &declared.object {
            Some(properties) => Ok(Value::from(record(raw, properties)?.fields)),
            None => plain(),
        },
        Some(b'[') => match &declared.list {
            Some(items) => parse(text.as_bytes(), ListSeed(items)),
            None => plain(),
        },
        _ => plain(),
    }
}

struct ListSeed<'p>(&'p DeclaredType);

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
            items.push(value(raw, Some(self.0)).map_err(|error| A::Error::custom(error.message))?);
        }
        Ok(Value::from(items))
    }
}

/// Returns a time if the text is one with an offset; otherwise the text.
fn time(value: Value) -> Value {
    let parsed = value.as_str().and_then(|text| DateTime::parse_from_rfc3339(text).ok());
    parsed.map_or(value, |time| Value::Time(time.with_timezone(&Utc)))
}

/// Returns a number, or its text if no number of 64 bits equals it.
fn exact(text: &str) -> Result<Value, JsonError> {
    match parse_value(text.as_bytes()) {
        Ok(Value::Float(number)) if !equals(text, number) => Ok(Value::from(text)),
        Ok(number) => Ok(number),
        // The number is beyond the range of floats. The syntax was checked before.
        Err(_) => Ok(Value::from(text)),
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
