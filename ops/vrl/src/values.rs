//! Values of records as values of programs, and back.
//!
//! A program has one type of strings and one of 64-bit integers. A value that a program leaves as it is keeps its own
//! type: [`leave`] compares it with the value that was there before.

use anabranch_record::json::MAX_DEPTH;
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use bytes::Bytes;
use vrl::compiler::prelude::NotNan;
use vrl::value::{KeyString, ObjectMap, Value as ProgramValue};

/// A value that a program cannot represent exactly.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum NotRepresentable {
    /// An integer beyond 64 bits with sign.
    #[error("the integer {0} is above 2^63 - 1")]
    Integer(u64),
    /// The result of an invalid calculation, which is not equal to itself.
    #[error("a float is NaN")]
    NotANumber,
}

/// A value of a program that is nested deeper than records can be.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("the value is nested deeper than {MAX_DEPTH} levels")]
pub(crate) struct TooDeep;

/// The bytes of a text, shared with the record: a program copies its strings often.
struct SharedText(Str);

impl AsRef<[u8]> for SharedText {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// Converts a value for a program. O(parts of the value).
///
/// # Errors
/// The value, or one in it, has no exact counterpart.
pub(crate) fn enter(value: &Value) -> Result<ProgramValue, NotRepresentable> {
    Ok(match value {
        Value::Null => ProgramValue::Null,
        Value::Bool(value) => ProgramValue::Boolean(*value),
        Value::Int(number) => ProgramValue::Integer(*number),
        Value::UInt(number) => return Err(NotRepresentable::Integer(*number)),
        Value::Float(number) => match NotNan::new(*number) {
            Ok(number) => ProgramValue::Float(number),
            Err(_) => return Err(NotRepresentable::NotANumber),
        },
        Value::Text(text) => ProgramValue::Bytes(Bytes::from_owner(SharedText(text.clone()))),
        Value::Bytes(bytes) => ProgramValue::Bytes(Bytes::from_owner(bytes.clone())),
        Value::Time(time) => ProgramValue::Timestamp(*time),
        Value::List(list) => ProgramValue::Array(list.iter().map(enter).collect::<Result<_, _>>()?),
        Value::Map(object) => ProgramValue::Object(enter_object(object)?),
    })
}

/// Converts a map for a program.
pub(crate) fn enter_object(object: &Object) -> Result<ObjectMap, NotRepresentable> {
    object.iter().map(|(name, value)| Ok((KeyString::from(name.as_str()), enter(value)?))).collect()
}

/// Converts a value of a program for a record. A string that `before` has as well keeps its type and its memory.
/// `before` is only asked for if the value may have such a string. O(parts of the value).
///
/// # Errors
/// The value is nested too deeply.
pub(crate) fn leave<'b>(value: &ProgramValue, before: impl FnOnce() -> Option<&'b Value>) -> Result<Value, TooDeep> {
    let has_strings = matches!(
        value,
        ProgramValue::Bytes(_) | ProgramValue::String(_) | ProgramValue::Array(_) | ProgramValue::Object(_)
    );
    leave_at(value, if has_strings { before() } else { None }, 0)
}

/// Converts an object of a program for a record.
pub(crate) fn leave_object(object: &ObjectMap, before: Option<&Object>) -> Result<Object, TooDeep> {
    object_at(object, before, 0)
}

fn object_at(object: &ObjectMap, before: Option<&Object>, depth: usize) -> Result<Object, TooDeep> {
    // Both are in the order of their keys.
    let mut rest = before.into_iter().flat_map(Object::iter).peekable();
    let entry = |(name, value): (&KeyString, &ProgramValue)| {
        while rest.next_if(|(known, _)| known.as_str() < name.as_str()).is_some() {}
        let known = rest.next_if(|(known, _)| known.as_str() == name.as_str());
        let key = known.map_or_else(|| Str::from(name.as_str()), |(key, _)| key.clone());
        Ok((key, leave_at(value, known.map(|(_, value)| value), depth)?))
    };
    Ok(Object::from_entries(object.iter().map(entry).collect::<Result<_, _>>()?))
}

fn leave_at(value: &ProgramValue, before: Option<&Value>, depth: usize) -> Result<Value, TooDeep> {
    if depth >= MAX_DEPTH {
        return Err(TooDeep);
    }
    Ok(match value {
        ProgramValue::Null => Value::Null,
        ProgramValue::Boolean(value) => Value::Bool(*value),
        ProgramValue::Integer(number) => Value::Int(*number),
        ProgramValue::Float(number) => Value::Float(number.into_inner()),
        ProgramValue::Timestamp(time) => Value::Time(*time),
        ProgramValue::Bytes(bytes) => leave_bytes(bytes, before),
        ProgramValue::String(text) => leave_bytes(text.as_bytes(), before),
        ProgramValue::Regex(regex) => Value::from(regex.as_str()),
        ProgramValue::Array(list) => {
            let before = before.and_then(Value::as_list).unwrap_or_default();
            let items = list.iter().enumerate().map(|(at, item)| leave_at(item, before.get(at), depth + 1));
            Value::from(items.collect::<Result<Vec<_>, _>>()?)
        }
        ProgramValue::Object(object) => Value::from(object_at(object, before.and_then(Value::as_map), depth + 1)?),
    })
}

fn leave_bytes(bytes: &[u8], before: Option<&Value>) -> Value {
    match before {
        Some(same @ Value::Text(text)) if text.as_bytes() == bytes => same.clone(),
        Some(same @ Value::Bytes(old)) if old[..] == *bytes => same.clone(),
        _ => match std::str::from_utf8(bytes) {
            Ok(text) => Value::from(text),
            Err(_) => Value::Bytes(bytes.into()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_stay_keep_their_types_and_memory() {
        let text = Str::from("a".to_owned());
        let before = Value::from(Object::from_iter([
            ("binary", Value::Bytes(b"plain"[..].into())),
            ("list", Value::from(vec![Value::Bytes(b"x"[..].into())])),
            ("text", Value::Text(text.clone())),
        ]));
        let ProgramValue::Object(mut object) = enter(&before).unwrap() else { panic!("an object") };
        object.insert("new".into(), ProgramValue::from("text"));
        let Value::Map(after) = leave(&ProgramValue::Object(object), || Some(&before)).unwrap() else {
            panic!("a map")
        };
        assert_eq!(after.get("binary"), before.as_map().unwrap().get("binary"));
        assert_eq!(after.get("list"), before.as_map().unwrap().get("list"));
        assert_eq!(after.get("text").unwrap().as_str().unwrap().as_ptr(), text.as_ptr());
        assert_eq!(after.get("new"), Some(&Value::from("text")));
    }

    #[test]
    fn values_without_an_exact_counterpart_are_refused() {
        assert_eq!(enter(&Value::UInt(u64::MAX)), Err(NotRepresentable::Integer(u64::MAX)));
        assert_eq!(enter(&Value::Float(f64::NAN)), Err(NotRepresentable::NotANumber));
        assert_eq!(enter(&Value::from(vec![Value::Float(f64::NAN)])), Err(NotRepresentable::NotANumber));
        assert_eq!(enter(&Value::Int(i64::MIN)), Ok(ProgramValue::Integer(i64::MIN)));
    }

    #[test]
    fn bytes_that_are_not_text_stay_bytes() {
        let bytes = ProgramValue::from(&[0xff, 0x00][..]);
        assert_eq!(leave(&bytes, || None), Ok(Value::Bytes([0xff, 0x00][..].into())));
    }

    #[test]
    fn values_deeper_than_records_are_refused() {
        let nested = |levels| (0..levels).fold(ProgramValue::Null, |value, _| ProgramValue::Array(vec![value]));
        assert!(leave(&nested(MAX_DEPTH - 1), || None).is_ok());
        assert_eq!(leave(&nested(MAX_DEPTH), || None), Err(TooDeep));
    }
}
