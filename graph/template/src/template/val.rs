//! The values of template evaluation: Go's kinds, sharing the record's data.
//!
//! Cloning is O(1). Values live for one rendering on one thread, so parts that a template creates are counted without
//! atomics.

use std::rc::Rc;

use bytes::Bytes;

use anabranch_record::text::Str;
use anabranch_record::value::Value;
use anabranch_record::{Change, Data, Operation, Position, Record};

mod collection;
mod string;
mod time;

pub(crate) use collection::{Dict, Elements, List, Map};
pub(crate) use string::Text;
pub(crate) use time::{Time, duration_text};

/// A value during evaluation.
#[derive(Clone, Debug)]
pub(crate) enum Val {
    /// A missing value: an absent map key, a pipeline whose result is nil. Prints `<no value>`.
    ///
    /// Functions see it only in parameters of type [`Param::Reflect`](super::functions::Param); elsewhere
    /// the evaluator hands them `Nil`.
    Missing,
    /// A nil in a container or literal: an element or entry that is null, the literal `nil`. Prints `<nil>`.
    Nil,
    /// An absent key or payload side. Prints `<nil>` and has no fields. Functions receive `Nil`.
    NoData,
    /// `bool`.
    Bool(bool),
    /// `int`: literals, lengths, indexes.
    Int(i64),
    /// `int64`: integers of records, results of integer arithmetic.
    Int64(i64),
    /// `uint64`: integers of records above `i64::MAX`.
    Uint64(u64),
    /// `uint8`: an element of bytes or text.
    Byte(u8),
    /// `float64`.
    Float(f64),
    /// `string`; any bytes, as in Go.
    Text(Text),
    /// `[]byte` in a field or from a method.
    Bytes(Bytes),
    /// Raw data of a key or payload side: `[]byte` with a name. Prints as a list of numbers.
    Raw(Bytes),
    /// The position: bytes that print as text.
    Position(Position),
    /// The operation: a number that prints as its name.
    Operation(Operation),
    /// A list.
    List(List),
    /// A map with text keys.
    Map(Map),
    /// The record itself: `.`.
    Record(Rc<Record>),
    /// `.Payload`.
    Payload(Rc<Change>),
    /// `time.Time`.
    Time(Rc<Time>),
    /// `time.Duration`, nanoseconds.
    Duration(i64),
    /// A parsed semantic version.
    Version(Rc<Version>),
}

/// A semantic version with the text it was parsed from.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// The version.
    pub(crate) version: semver::Version,
    /// The original text.
    pub(crate) original: Str,
}

/// Go's kind of a value, as `kindOf` and comparisons use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No value.
    Invalid,
    /// Bool.
    Bool,
    /// A signed integer.
    Int,
    /// An unsigned integer.
    Uint,
    /// A float.
    Float,
    /// A string.
    String,
    /// Bytes, lists.
    Slice,
    /// A map.
    Map,
    /// A struct.
    Struct,
    /// A pointer.
    Pointer,
}

impl Val {
    /// Creates text.
    pub(crate) fn text(text: impl Into<Text>) -> Val {
        Val::Text(text.into())
    }

    /// Creates a value from the data of a key or payload side.
    pub(crate) fn data(data: &Data) -> Val {
        match data {
            Data::Absent => Val::NoData,
            Data::Raw(bytes) => Val::Raw(bytes.clone()),
            Data::Structured(object) => Val::Map(Map::Structured(object.clone())),
        }
    }

    /// Returns the kind. `NoData` is `Invalid`, as in comparisons.
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Val::Missing | Val::Nil | Val::NoData => Kind::Invalid,
            Val::Bool(_) => Kind::Bool,
            Val::Int(_) | Val::Int64(_) | Val::Operation(_) | Val::Duration(_) => Kind::Int,
            Val::Uint64(_) | Val::Byte(_) => Kind::Uint,
            Val::Float(_) => Kind::Float,
            Val::Text(_) => Kind::String,
            Val::Bytes(_) | Val::Raw(_) | Val::Position(_) | Val::List(_) => Kind::Slice,
            Val::Map(_) => Kind::Map,
            Val::Record(_) | Val::Payload(_) | Val::Time(_) => Kind::Struct,
            Val::Version(_) => Kind::Pointer,
        }
    }

    /// Returns the exact name of the kind: `int64`, `slice`, `invalid`.
    pub(crate) fn kind_name(&self) -> &'static str {
        match self {
            Val::Int(_) | Val::Operation(_) => "int",
            Val::Int64(_) | Val::Duration(_) => "int64",
            Val::Uint64(_) => "uint64",
            Val::Byte(_) => "uint8",
            other => match other.kind() {
                Kind::Invalid => "invalid",
                Kind::Bool => "bool",
                Kind::Int => "int",
                Kind::Uint => "uint",
                Kind::Float => "float64",
                Kind::String => "string",
                Kind::Slice => "slice",
                Kind::Map => "map",
                Kind::Struct => "struct",
                Kind::Pointer => "ptr",
            },
        }
    }

    /// Returns the name of the type: `string`, `[]interface {}`, `time.Time`.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Val::Missing | Val::Nil | Val::NoData => "<nil>",
            Val::Bool(_) => "bool",
            Val::Int(_) => "int",
            Val::Int64(_) => "int64",
            Val::Uint64(_) => "uint64",
            Val::Byte(_) => "uint8",
            Val::Float(_) => "float64",
            Val::Text(_) => "string",
            Val::Bytes(_) => "[]uint8",
            Val::Raw(_) => "RawData",
            Val::Position(_) => "Position",
            Val::Operation(_) => "Operation",
            Val::List(list) => list.type_name(),
            Val::Map(map) => map.type_name(),
            Val::Record(_) => "Record",
            Val::Payload(_) => "Change",
            Val::Time(_) => "time.Time",
            Val::Duration(_) => "time.Duration",
            Val::Version(_) => "*semver.Version",
        }
    }

    /// Returns the type with its article in plain words, for messages: `a text`, `raw data`.
    pub(crate) fn in_words(&self) -> &'static str {
        match self {
            Val::Missing | Val::Nil => "a missing or null value",
            Val::NoData => "absent data",
            Val::Bool(_) => "a bool",
            Val::Int(_) | Val::Int64(_) | Val::Uint64(_) | Val::Byte(_) => "a whole number",
            Val::Float(_) => "a float",
            Val::Text(_) => "a text",
            Val::Bytes(_) => "bytes",
            Val::Raw(_) => "raw data",
            Val::Position(_) => "a position",
            Val::Operation(_) => "an operation",
            Val::List(_) => "a list",
            Val::Map(_) => "a map",
            Val::Record(_) => "a record",
            Val::Payload(_) => "a payload",
            Val::Time(_) => "a time",
            Val::Duration(_) => "a duration",
            Val::Version(_) => "a version",
        }
    }

    /// Returns `true` for each of the three nils.
    pub(crate) fn is_nil(&self) -> bool {
        matches!(self, Val::Missing | Val::Nil | Val::NoData)
    }

    /// Returns `true` if `if` treats the value as true: not zero, not empty, not nil. Structs are always true.
    pub(crate) fn is_true(&self) -> bool {
        match self {
            Val::Missing | Val::Nil | Val::NoData => false,
            Val::Bool(b) => *b,
            Val::Int(n) | Val::Int64(n) | Val::Duration(n) => *n != 0,
            Val::Uint64(n) => *n != 0,
            Val::Byte(n) => *n != 0,
            Val::Float(f) => *f != 0.0,
            Val::Text(text) => !text.as_bytes().is_empty(),
            Val::Bytes(b) | Val::Raw(b) => !b.is_empty(),
            Val::Position(p) => !p.0.is_empty(),
            Val::List(list) => list.len() > 0,
            Val::Map(map) => map.len() > 0,
            Val::Operation(_) | Val::Record(_) | Val::Payload(_) | Val::Time(_) | Val::Version(_) => true,
        }
    }

    /// Returns the number, if the value has a signed integer type.
    pub(crate) fn as_int(&self) -> Option<i64> {
        match self {
            Val::Int(n) | Val::Int64(n) | Val::Duration(n) => Some(*n),
            Val::Operation(o) => Some(*o as i64),
            _ => None,
        }
    }

    /// Returns the number, if the value has an unsigned integer type.
    pub(crate) fn as_uint(&self) -> Option<u64> {
        match self {
            Val::Uint64(n) => Some(*n),
            Val::Byte(n) => Some(u64::from(*n)),
            _ => None,
        }
    }

    /// Returns the text, if the value is text.
    pub(crate) fn as_text(&self) -> Option<&Text> {
        match self {
            Val::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the bytes, if the value is a byte slice: a field, raw data, a position.
    pub(crate) fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Val::Bytes(b) | Val::Raw(b) => Some(b),
            Val::Position(p) => Some(&p.0),
            _ => None,
        }
    }

    /// Returns the map, if the value is one.
    pub(crate) fn as_map(&self) -> Option<&Map> {
        match self {
            Val::Map(map) => Some(map),
            _ => None,
        }
    }

    /// Returns the elements, if the value is a list or bytes. O(n) for bytes, O(1) for lists.
    pub(crate) fn as_list(&self) -> Option<List> {
        match self {
            Val::List(list) => Some(list.clone()),
            other => other.as_bytes().map(|b| List::new(b.iter().map(|b| Val::Byte(*b)).collect())),
        }
    }
}

impl From<&Value> for Val {
    fn from(value: &Value) -> Val {
        match value {
            Value::Null => Val::Nil,
            Value::Bool(b) => Val::Bool(*b),
            Value::Int(n) => Val::Int64(*n),
            Value::UInt(n) => Val::Uint64(*n),
            Value::Float(f) => Val::Float(*f),
            Value::Text(text) => Val::Text(text.clone().into()),
            Value::Bytes(bytes) => Val::Bytes(Bytes::from_owner(bytes.clone())),
            Value::Time(time) => Val::Time(Rc::new(Time::utc(*time))),
            Value::List(list) => Val::List(List::record(list.clone())),
            Value::Map(map) => Val::Map(Map::Object(map.clone())),
        }
    }
}

impl From<bool> for Val {
    fn from(v: bool) -> Val {
        Val::Bool(v)
    }
}

impl From<f64> for Val {
    fn from(v: f64) -> Val {
        Val::Float(v)
    }
}

impl From<Text> for Val {
    fn from(v: Text) -> Val {
        Val::Text(v)
    }
}

impl From<String> for Val {
    fn from(v: String) -> Val {
        Val::Text(v.into())
    }
}

impl From<&str> for Val {
    fn from(v: &str) -> Val {
        Val::Text(v.into())
    }
}

impl From<List> for Val {
    fn from(v: List) -> Val {
        Val::List(v)
    }
}

impl From<Dict> for Val {
    fn from(v: Dict) -> Val {
        Val::Map(Map::Dict(v))
    }
}
