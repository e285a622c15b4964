//! Path and problem of a value that does not fit into a record.

use std::fmt;

use boa_engine::builtins::array_buffer::ArrayBuffer;
use boa_engine::builtins::date::Date;
use boa_engine::builtins::error::Error;
use boa_engine::builtins::map::ordered_map::OrderedMap;
use boa_engine::builtins::promise::Promise;
use boa_engine::builtins::proxy::Proxy;
use boa_engine::builtins::regexp::RegExp;
use boa_engine::builtins::set::ordered_set::OrderedSet;
use boa_engine::builtins::typed_array::TypedArray;
use boa_engine::value::JsVariant;
use boa_engine::{JsError, JsObject, JsValue};

/// Length above which paths are shown without their middle.
const LONGEST: usize = 160;

/// Reason why a value cannot become part of a record.
#[derive(Debug)]
pub(crate) enum Unfit {
    /// Records cannot hold the value.
    Value {
        /// Path of the value, from the record on.
        path: String,
        /// The problem and the remedy.
        what: String,
    },
    /// Reading the value ran script code, which threw.
    Threw(JsError),
}

impl From<JsError> for Unfit {
    fn from(error: JsError) -> Self {
        Unfit::Threw(error)
    }
}

pub(super) type Result<T> = std::result::Result<T, Unfit>;

/// Path of a value, for messages.
#[derive(Clone, Copy)]
pub(crate) struct Path<'a> {
    above: Option<&'a Path<'a>>,
    step: PathPart<'a>,
}

#[derive(Clone, Copy)]
enum PathPart<'a> {
    Field(&'a str),
    Item(u64),
}

impl<'a> Path<'a> {
    /// Creates a path that begins with this word.
    pub(crate) fn new(root: &'a str) -> Self {
        Path { above: None, step: PathPart::Field(root) }
    }

    pub(super) fn field<'b>(&'b self, name: &'b str) -> Path<'b> {
        Path { above: Some(self), step: PathPart::Field(name) }
    }

    pub(crate) fn item(&self, index: u64) -> Path<'_> {
        Path { above: Some(self), step: PathPart::Item(index) }
    }

    pub(super) fn depth(&self) -> usize {
        std::iter::successors(Some(self), |path| path.above).count()
    }

    #[cold]
    pub(super) fn unfit<T>(&self, what: impl Into<String>) -> Result<T> {
        let mut path = self.to_string();
        if path.len() > LONGEST {
            let keep = |at: usize| (0..=at).rev().find(|at| path.is_char_boundary(*at)).unwrap_or_default();
            let (head, tail) = (keep(LONGEST / 2), keep(path.len() - LONGEST / 4));
            path.replace_range(head..tail, " … ");
        }
        Err(Unfit::Value { path, what: what.into() })
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(above) = self.above {
            above.fmt(f)?;
        }
        let plain = |name: &str| {
            let mut bytes = name.bytes();
            bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
                && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
        };
        match (self.step, self.above) {
            (PathPart::Field(name), None) => f.write_str(name),
            (PathPart::Field(name), Some(_)) if plain(name) => write!(f, ".{name}"),
            (PathPart::Field(name), Some(_)) => write!(f, "[{name:?}]"),
            (PathPart::Item(index), _) => write!(f, "[{index}]"),
        }
    }
}

/// Describes an object that records cannot hold, for messages.
pub(super) fn unfit_kind(object: &JsObject) -> &'static str {
    match () {
        () if object.is_callable() => "is a function: records hold data",
        () if object.is_array() => "is an array: assign an object that contains it",
        () if object.is::<Date>() => "is a Date: assign an object that contains it",
        () if object.is::<TypedArray>() => "is a typed array: assign an object that contains it",
        () if object.is::<ArrayBuffer>() => "is an ArrayBuffer: assign an object that contains it",
        () if object.is::<OrderedMap<JsValue>>() => "is a Map: use Object.fromEntries(map)",
        () if object.is::<OrderedSet>() => "is a Set: use Array.from(set)",
        () if object.is::<Promise>() => "is a promise: await it in an async function",
        () if object.is::<Error>() => "is an Error: use String(error)",
        () if object.is::<RegExp>() => "is a regular expression: use its source",
        () if object.is::<Proxy>() => "is a Proxy of the script: use {...proxy}",
        () => "is an object of a kind that records cannot hold: assign plain objects and arrays",
    }
}

/// Describes a value, for messages.
pub(crate) fn described(value: &JsValue) -> &'static str {
    match value.variant() {
        JsVariant::Undefined => "undefined",
        JsVariant::Null => "null",
        JsVariant::Boolean(_) => "a boolean",
        JsVariant::String(_) => "a string",
        JsVariant::Float64(_) | JsVariant::Integer32(_) => "a number",
        JsVariant::BigInt(_) => "a BigInt",
        JsVariant::Symbol(_) => "a symbol",
        JsVariant::Object(object) if object.is_callable() => "a function",
        JsVariant::Object(object) if object.is_array() => "an array",
        JsVariant::Object(_) => "an object",
    }
}
