//! Infers the Avro schema of fields without one.
//!
//! The top-level fields are a record named `record`, in name order. Maps below it are Avro maps and lists are arrays,
//! of the union of `null` and the types in them. The members of a union have a fixed order, so that equal shapes give
//! equal text whatever the order of their values.
//!
//! | value | schema |
//! |---|---|
//! | null | `["string","null"]` |
//! | bool, integer, float | `boolean`, `long`, `double` |
//! | text, bytes | `string`, `bytes` |
//! | time | `long`, `timestamp-micros` |
//! | list | array of a union; of `null` and `string` if it is empty |
//! | map | map of a union; of `null` and `string` if it is empty |

use crate::text::Str;
use crate::value::{Object, Value};

/// Reason why a schema cannot be inferred.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InferError {
    /// The field name is not valid in Avro.
    #[error(
        "the field {0:?} cannot be in an Avro record: names contain only letters, digits and _, and do not start \
         with a digit; rename it with field.rename"
    )]
    Name(Str),
    /// Avro has no type for this integer.
    #[error("the field {0:?} contains an integer above 9223372036854775807, which no Avro type can represent")]
    UnsignedInteger(Str),
    /// Both types are `long` in Avro.
    #[error("the field {0:?} contains both times and integers, which no Avro union distinguishes")]
    TimesAndIntegers(Str),
    /// The field is nested too deeply.
    #[error("the field {0:?} is nested too deeply")]
    Depth(Str),
}

const DEPTH: usize = 60;

/// Types of the items in a list or a map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Union {
    boolean: bool,
    long: bool,
    double: bool,
    text: bool,
    bytes: bool,
    time: bool,
    array: Option<Box<Union>>,
    map: Option<Box<Union>>,
}

/// Appends the text of the schema of these fields. On an error, `out` may contain a part of it.
///
/// # Errors
/// Fails if a schema cannot be inferred.
pub fn infer(fields: &Object, out: &mut String) -> Result<(), InferError> {
    out.push_str("{\"name\":\"record\",\"type\":\"record\",\"fields\":[");
    for (index, (name, value)) in fields.iter().enumerate() {
        if !is_name(name) {
            return Err(InferError::Name(name.clone()));
        }
        if index > 0 {
            out.push(',');
        }
        out.push_str("{\"name\":\"");
        out.push_str(name);
        out.push_str("\",\"type\":");
        write(name, value, out)?;
        out.push('}');
    }
    out.push_str("]}");
    Ok(())
}

fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn write(name: &Str, value: &Value, out: &mut String) -> Result<(), InferError> {
    let text = match value {
        Value::Null => "[\"string\",\"null\"]",
        Value::Bool(_) => "\"boolean\"",
        Value::Int(_) => "\"long\"",
        Value::UInt(_) => return Err(InferError::UnsignedInteger(name.clone())),
        Value::Float(_) => "\"double\"",
        Value::Text(_) => "\"string\"",
        Value::Bytes(_) => "\"bytes\"",
        Value::Time(_) => TIME,
        Value::List(_) | Value::Map(_) => {
            let mut union = Union::default();
            union.add(name, value, DEPTH)?;
            match (&union.array, &union.map) {
                (Some(items), _) => write_array(items, out),
                (None, Some(values)) => write_map(values, out),
                (None, None) => {}
            }
            return Ok(());
        }
    };
    out.push_str(text);
    Ok(())
}

const TIME: &str = "{\"type\":\"long\",\"logicalType\":\"timestamp-micros\"}";

fn write_array(items: &Union, out: &mut String) {
    out.push_str("{\"type\":\"array\",\"items\":");
    items.write(out);
    out.push('}');
}

fn write_map(values: &Union, out: &mut String) {
    out.push_str("{\"type\":\"map\",\"values\":");
    values.write(out);
    out.push('}');
}

impl Union {
    fn add(&mut self, name: &Str, value: &Value, depth: usize) -> Result<(), InferError> {
        let depth = depth.checked_sub(1).ok_or_else(|| InferError::Depth(name.clone()))?;
        match value {
            Value::Null => {}
            Value::Bool(_) => self.boolean = true,
            Value::Int(_) => self.long = true,
            Value::UInt(_) => return Err(InferError::UnsignedInteger(name.clone())),
            Value::Float(_) => self.double = true,
            Value::Text(_) => self.text = true,
            Value::Bytes(_) => self.bytes = true,
            Value::Time(_) => self.time = true,
            Value::List(list) => {
                let items = self.array.get_or_insert_default();
                list.iter().try_for_each(|item| items.add(name, item, depth))?;
            }
            Value::Map(map) => {
                let values = self.map.get_or_insert_default();
                map.iter().try_for_each(|(_, item)| values.add(name, item, depth))?;
            }
        }
        if self.long && self.time {
            return Err(InferError::TimesAndIntegers(name.clone()));
        }
        Ok(())
    }

    fn write(&self, out: &mut String) {
        out.push_str("[\"null\"");
        let simple = [
            (self.boolean, "\"boolean\""),
            (self.long, "\"long\""),
            (self.double, "\"double\""),
            (self.text || *self == Union::default(), "\"string\""),
            (self.bytes, "\"bytes\""),
            (self.time, TIME),
        ];
        for (_, text) in simple.iter().filter(|(there, _)| *there) {
            out.push(',');
            out.push_str(text);
        }
        if let Some(items) = &self.array {
            out.push(',');
            write_array(items, out);
        }
        if let Some(values) = &self.map {
            out.push(',');
            write_map(values, out);
        }
        out.push(']');
    }
}

#[cfg(test)]
mod tests {
    use crate::json::parse_value;

    use super::*;

    fn inferred(json: &str) -> Result<String, InferError> {
        let Value::Map(fields) = parse_value(json.as_bytes()).unwrap() else { panic!("{json}") };
        let mut text = String::new();
        infer(&fields, &mut text).map(|()| text)
    }

    #[test]
    fn fields_are_in_the_order_of_their_names() {
        assert_eq!(
            inferred(r#"{"name":"x","id":1}"#).unwrap(),
            r#"{"name":"record","type":"record","fields":[{"name":"id","type":"long"},{"name":"name","type":"string"}]}"#
        );
    }

    #[test]
    fn equal_shapes_give_equal_text() {
        let text = inferred(r#"{"l":[1,"a",{"k":[]}],"n":null,"m":{"b":true,"a":1.5},"e":{}}"#).unwrap();
        assert_eq!(inferred(r#"{"l":[{"z":[]},"a",null,2],"n":null,"m":{"b":2.5,"a":false},"e":{}}"#).unwrap(), text);
        assert_eq!(
            text,
            "{\"name\":\"record\",\"type\":\"record\",\"fields\":[\
             {\"name\":\"e\",\"type\":{\"type\":\"map\",\"values\":[\"null\",\"string\"]}},\
             {\"name\":\"l\",\"type\":{\"type\":\"array\",\"items\":[\"null\",\"long\",\"string\",\
             {\"type\":\"map\",\"values\":[\"null\",{\"type\":\"array\",\"items\":[\"null\",\"string\"]}]}]}},\
             {\"name\":\"m\",\"type\":{\"type\":\"map\",\"values\":[\"null\",\"boolean\",\"double\"]}},\
             {\"name\":\"n\",\"type\":[\"string\",\"null\"]}]}"
        );
    }

    #[test]
    fn what_avro_cannot_hold_is_named() {
        for (json, field) in [(r#"{"a-b":1}"#, "a-b"), (r#"{"n":18446744073709551615}"#, "n"), (r#"{"1":1}"#, "1")] {
            let error = inferred(json).unwrap_err().to_string();
            assert!(error.contains(&format!("{field:?}")), "{error}");
        }
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(100), "]".repeat(100));
        assert_eq!(inferred(&deep), Err(InferError::Depth("a".into())));
    }
}
