//! Fitting values to the types of parameters, by Go's rules of assignment.

use super::literal_value;
use crate::template::functions::Param;
use crate::template::tree::Literal;
use crate::template::val::{Map, Val};

impl Param {
    /// Go's name of the type.
    pub(super) fn type_name(self) -> &'static str {
        match self {
            Param::Any => "interface {}",
            Param::Reflect => "reflect.Value",
            Param::Text => "string",
            Param::Bool => "bool",
            Param::Int => "int",
            Param::Float => "float64",
            Param::Map => "map[string]interface {}",
            Param::Time => "time.Time",
        }
    }
}

/// A value as a parameter takes it.
pub(super) fn convert(val: Val, param: Param) -> Result<Val, String> {
    match (param, &val) {
        (Param::Reflect, _)
        | (Param::Text, Val::Text(_))
        | (Param::Bool, Val::Bool(_))
        | (Param::Int, Val::Int(_))
        | (Param::Float, Val::Float(_))
        | (Param::Time, Val::Time(_)) => Ok(val),
        // An integer of the record serves as a float: the source may deliver `12` for `12.0`.
        (Param::Float, Val::Int64(n)) => Ok(Val::Float(*n as f64)),
        (Param::Float, Val::Uint64(n)) => Ok(Val::Float(*n as f64)),
        (Param::Any, _) => Ok(if val.is_nil() { Val::Nil } else { val }),
        (Param::Map, Val::Map(map)) if !map.is_text() => Ok(val),
        (Param::Map, Val::Missing) => Ok(Val::Map(Map::Nil)),
        (_, Val::Missing) => Err(format!("there is no value; expected {}", param.type_name())),
        _ => Err(format!("wrong type for value; expected {}; got {}", param.type_name(), val.type_name())),
    }
}

/// A literal as a parameter takes it. A number is what is asked for: `7` is a float to a float.
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
