//! The operands of predicates, read without a copy.

use std::cmp::Ordering;

use anabranch_record::text::Str;
use anabranch_record::value::Value;
use anabranch_record::{Data, Record};

use super::verdict;
use crate::template::builtins::with_float;
use crate::template::format::{Notation, format_float};
use crate::template::tree::Part;

/// The origin of an operand.
#[derive(Debug, PartialEq)]
pub(crate) enum Source {
    Nil,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Str),
    /// `.Operation`, as its number.
    Operation,
    /// `.Operation.String`.
    OperationName,
    /// `.Metadata.key`, or with `index`, where an absent entry is the empty text.
    Metadata {
        key: Str,
        indexed: bool,
    },
    /// A key or payload side as a whole.
    Data(Part),
    /// A field of a key or payload side. The names from `indexed` on are arguments of `index`.
    Field {
        part: Part,
        names: Box<[Str]>,
        indexed: usize,
    },
    /// `len` of the operand.
    Len(Box<Source>),
    /// `int` of the operand, if it is a number.
    Truncated(Box<Source>),
}

/// A borrowed value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Seen<'r> {
    /// No value: an absent entry, a null, absent data.
    Nil,
    Bool(bool),
    /// A literal or a length.
    Int(i64),
    /// An integer of the record, which also compares with floats.
    Long(i128),
    Float(f64),
    Text(&'r str),
    /// The operation's number; prints as its name.
    Operation(&'static str, i64),
    /// A list, map or bytes of this length.
    Sized(usize),
    /// A value that requires the template.
    Other,
}

impl Source {
    /// Reads the operand; `None` if the template must evaluate it, for example because it fails.
    #[inline]
    pub(super) fn read<'r>(&'r self, record: &'r Record) -> Option<Seen<'r>> {
        Some(match self {
            Source::Nil => Seen::Nil,
            Source::Bool(b) => Seen::Bool(*b),
            Source::Int(n) => Seen::Int(*n),
            Source::Float(f) => Seen::Float(*f),
            Source::Text(text) => Seen::Text(text),
            Source::Operation => Seen::Operation(record.operation.as_str(), record.operation as i64),
            Source::OperationName => Seen::Text(record.operation.as_str()),
            Source::Metadata { key, indexed } => match record.metadata.get(key) {
                Some(text) => Seen::Text(text),
                None if *indexed => Seen::Text(""),
                None => Seen::Nil,
            },
            Source::Data(part) => match data(record, *part)? {
                Data::Absent => Seen::Nil,
                Data::Raw(bytes) => Seen::Sized(bytes.len()),
                Data::Structured(object) => Seen::Sized(object.len()),
            },
            Source::Field { part, names, indexed } => return field(data(record, *part)?, names, *indexed),
            Source::Len(inner) => match inner.read(record)? {
                Seen::Text(text) => Seen::Int(i64::try_from(text.len()).ok()?),
                Seen::Sized(len) => Seen::Int(i64::try_from(len).ok()?),
                _ => return None,
            },
            Source::Truncated(inner) => match inner.read(record)? {
                Seen::Int(n) => Seen::Int(n),
                Seen::Long(n) => Seen::Int(i64::try_from(n).ok()?),
                // Exact below 2^53; larger values are rare and left to the template.
                Seen::Float(f) if f.abs() < 9_007_199_254_740_992.0 => Seen::Int(f as i64),
                _ => return None,
            },
        })
    }
}

fn data(record: &Record, part: Part) -> Option<&Data> {
    match part {
        Part::Metadata => None,
        Part::Key => Some(&record.key),
        Part::Before => Some(&record.payload.before),
        Part::After => Some(&record.payload.after),
    }
}

#[inline]
fn field<'r>(data: &'r Data, names: &[Str], indexed: usize) -> Option<Seen<'r>> {
    let Data::Structured(object) = data else { return None };
    let (last, path) = names.split_last()?;
    let mut object = object;
    for (i, name) in path.iter().enumerate() {
        match object.get(name) {
            Some(Value::Map(inner)) => object = inner,
            // A field of absent data is absent; an index into it is an error, like an index into a scalar.
            None if i < indexed && indexed >= names.len() => return Some(Seen::Nil),
            _ => return None,
        }
    }
    Some(match object.get(last) {
        None | Some(Value::Null) => Seen::Nil,
        Some(Value::Bool(b)) => Seen::Bool(*b),
        Some(Value::Int(n)) => Seen::Long((*n).into()),
        Some(Value::UInt(n)) => Seen::Long((*n).into()),
        Some(Value::Float(f)) => Seen::Float(*f),
        Some(Value::Text(text)) => Seen::Text(text),
        Some(Value::Bytes(bytes)) => Seen::Sized(bytes.len()),
        Some(Value::List(list)) => Seen::Sized(list.len()),
        Some(Value::Map(map)) => Seen::Sized(map.len()),
        Some(Value::Time(_)) => Seen::Other,
    })
}

impl<'r> Seen<'r> {
    /// Returns the result of `eq`; `None` if the template must decide.
    #[inline]
    pub(super) fn equals(self, other: Seen<'_>) -> Option<bool> {
        match (self, other) {
            (Seen::Nil, Seen::Nil) => Some(true),
            (Seen::Text(a), Seen::Text(b)) => Some(a == b),
            (Seen::Bool(a), Seen::Bool(b)) => Some(a == b),
            (Seen::Float(a), Seen::Float(b)) => Some(a == b),
            (Seen::Other, _) | (_, Seen::Other) => None,
            (Seen::Nil, _) | (_, Seen::Nil) => Some(false),
            (Seen::Long(n), Seen::Float(f)) | (Seen::Float(f), Seen::Long(n)) => {
                Some(with_float(n, f) == Some(Ordering::Equal))
            }
            (a, b) => Some(a.integer()? == b.integer()?),
        }
    }

    /// Compares two values; the inner `None` is the result for NaN. `None` if the template must decide.
    #[inline]
    pub(super) fn compare(self, other: Seen<'_>) -> Option<Option<Ordering>> {
        match (self, other) {
            (Seen::Text(a), Seen::Text(b)) => Some(Some(a.cmp(b))),
            (Seen::Float(a), Seen::Float(b)) => Some(a.partial_cmp(&b)),
            (Seen::Long(n), Seen::Float(f)) => Some(with_float(n, f)),
            (Seen::Float(f), Seen::Long(n)) => Some(with_float(n, f).map(Ordering::reverse)),
            (a, b) => Some(Some(a.integer()?.cmp(&b.integer()?))),
        }
    }

    fn integer(self) -> Option<i128> {
        match self {
            Seen::Int(n) | Seen::Operation(_, n) => Some(n.into()),
            Seen::Long(n) => Some(n),
            _ => None,
        }
    }

    pub(super) fn text(self) -> Option<&'r str> {
        match self {
            Seen::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn is_true(self) -> bool {
        match self {
            Seen::Nil => false,
            Seen::Bool(b) => b,
            Seen::Int(n) => n != 0,
            Seen::Long(n) => n != 0,
            Seen::Float(f) => f != 0.0,
            Seen::Text(text) => !text.is_empty(),
            Seen::Sized(len) => len > 0,
            Seen::Operation(..) | Seen::Other => true,
        }
    }

    /// Returns the result of the condition if it prints this value; `None` if the output is not a boolean.
    pub(super) fn printed(self) -> Option<bool> {
        match self {
            Seen::Bool(b) => Some(b),
            Seen::Int(0) | Seen::Long(0) => Some(false),
            Seen::Int(1) | Seen::Long(1) => Some(true),
            Seen::Text(text) => verdict(text),
            _ => None,
        }
    }
}

/// A text that is compared with a printed value, in all forms that avoid printing.
#[derive(Debug)]
pub(crate) struct Shown {
    text: Str,
    /// The number that prints as this text, if there is one.
    int: Option<i128>,
    /// The bits of the float that prints as this text, if there is one.
    float: Option<u64>,
    /// True for `%s`, where only text prints unchanged.
    only_text: bool,
}

impl Shown {
    pub(super) fn new(text: Str, only_text: bool) -> Shown {
        let int = text.parse::<i128>().ok().filter(|n| n.to_string() == *text);
        let float = text
            .parse::<f64>()
            .ok()
            .filter(|f| !f.is_nan() && format_float(*f, Notation::General, None) == *text)
            .map(f64::to_bits);
        Shown { text, int, float, only_text }
    }

    /// Returns `true` if the value prints as the text; `None` if the template must decide.
    pub(super) fn is_of(&self, seen: Seen<'_>) -> Option<bool> {
        match seen {
            Seen::Text(text) => Some(text == &*self.text),
            Seen::Operation(name, _) => Some(name == &*self.text),
            _ if self.only_text => None,
            Seen::Nil => Some(&*self.text == "<nil>"),
            Seen::Bool(b) => Some(&*self.text == if b { "true" } else { "false" }),
            Seen::Int(n) => Some(self.int == Some(n.into())),
            Seen::Long(n) => Some(self.int == Some(n)),
            Seen::Float(f) if !f.is_nan() => Some(self.float == Some(f.to_bits())),
            Seen::Float(_) | Seen::Sized(_) | Seen::Other => None,
        }
    }
}
