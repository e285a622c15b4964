//! Conversion of values to the types of parameters, by Go's rules of assignment.

use super::literal_value;
use crate::template::Reason;
use crate::template::functions::Param;
use crate::template::tree::Literal;
use crate::template::val::{Map, Val};

impl Param {
    /// Returns the accepted type in plain words, for messages.
    pub(super) fn in_words(self) -> &'static str {
        match self {
            Param::Any | Param::Reflect => "a value",
            Param::Text => "a text",
            Param::Bool => "true or false",
            Param::Int => "a whole number",
            Param::Float => "a float",
            Param::Map => "a map",
            Param::Time => "a time",
        }
    }
}

/// Converts a value to the type of a parameter. Fails with the reason and the message.
pub(super) fn convert(val: Val, param: Param) -> Result<Val, (Reason, String)> {
    match (param, &val) {
        (Param::Reflect, _)
        | (Param::Text, Val::Text(_))
        | (Param::Bool, Val::Bool(_))
        | (Param::Int, Val::Int(_))
        | (Param::Float, Val::Float(_))
        | (Param::Time, Val::Time(_)) => Ok(val),
        // An integer of the record is accepted as a float: the source may deliver `12` for `12.0`.
        (Param::Float, Val::Int64(n)) => Ok(Val::Float(*n as f64)),
        (Param::Float, Val::Uint64(n)) => Ok(Val::Float(*n as f64)),
        (Param::Any, _) => Ok(if val.is_nil() { Val::Nil } else { val }),
        (Param::Map, Val::Map(map)) if !map.is_text() => Ok(val),
        (Param::Map, Val::Missing) => Ok(Val::Map(Map::Nil)),
        (_, Val::Missing) => Err((Reason::Lacking, format!("there is no value; expected {}", param.in_words()))),
        _ if val.is_nil() => Err((Reason::Lacking, mismatch(&val, param))),
        _ => Err((Reason::Kind, mismatch(&val, param))),
    }
}

/// Describes why a parameter does not accept a value, and how to convert it.
fn mismatch(val: &Val, param: Param) -> String {
    let (expected, got) = (param.in_words(), val.in_words());
    match (param, val) {
        (Param::Int, Val::Int64(_) | Val::Uint64(_) | Val::Byte(_) | Val::Float(_)) => {
            format!(
                "wrong type for value; expected {expected} as `int` returns it; got {got} of another type: write (int \
                 …)"
            )
        }
        (Param::Float, Val::Int(_)) => {
            format!("wrong type for value; expected {expected}; got {got}: write (float64 …)")
        }
        (Param::Map, Val::Map(_)) => {
            "wrong type for value; expected a map of any values; got a map of texts".to_owned()
        }
        (Param::Text, Val::Raw(_) | Val::Bytes(_)) => {
            format!("wrong type for value; expected {expected}; got {got}: write (printf \"%s\" …)")
        }
        _ => format!("wrong type for value; expected {expected}; got {got}"),
    }
}

/// Converts a literal to the type of a parameter. The parameter determines the type of a number: `7` is a float for a
/// float parameter.
pub(super) fn literal(literal: &Literal, param: Param) -> Result<Val, ()> {
    match (param, literal) {
        (Param::Any | Param::Reflect, _)
        | (Param::Text, Literal::Text(_) | Literal::Bytes(_))
        | (Param::Bool, Literal::Bool(_)) => Ok(literal_value(literal)),
        (Param::Int, Literal::Number(number)) => number.int.map(Val::Int).ok_or(()),
        (Param::Float, Literal::Number(number)) => Ok(Val::Float(number.float)),
        _ => Err(()),
    }
}
