//! The operands of predicates, read without a copy.

use std::cmp::Ordering;

use anabranch_record::text::Str;
use anabranch_record::value::Value;
use anabranch_record::{Data, Record};

use super::verdict;
use crate::template::builtins::with_float;
use crate::template::format::{Notation, format_float};
use crate::template::tree::RecordPart;

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
    Data(RecordPart),
    /// A field of a key or payload side. The names from `indexed` on are arguments of `index`.
    Field {
        part: RecordPart,
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
pub(crate) enum BorrowedValue<'r> {
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
    pub(super) fn read<'r>(&'r self, record: &'r Record) -> Option<BorrowedValue<'r>> {
        Some(match self {
            Source::Nil => BorrowedValue::Nil,
            Source::Bool(b) => BorrowedValue::Bool(*b),
            Source::Int(n) => BorrowedValue::Int(*n),
            Source::Float(f) => BorrowedValue::Float(*f),
            Source::Text(text) => BorrowedValue::Text(text),
            Source::Operation => BorrowedValue::Operation(record.operation.as_str(), record.operation as i64),
            Source::OperationName => BorrowedValue::Text(record.operation.as_str()),
            Source::Metadata { key, indexed } => match record.metadata.get(key) {
                Some(text) => BorrowedValue::Text(text),
                None if *indexed => BorrowedValue::Text(""),
                None => BorrowedValue::Nil,
            },
            Source::Data(part) => match data(record, *part)? {
                Data::Absent => BorrowedValue::Nil,
                Data::Raw(bytes) => BorrowedValue::Sized(bytes.len()),
                Data::Structured(object) => BorrowedValue::Sized(object.len()),
            },
            Source::Field { part, names, indexed } => return field(data(record, *part)?, names, *indexed),
            Source::Len(inner) => match inner.read(record)? {
                BorrowedValue::Text(text) => BorrowedValue::Int(i64::try_from(text.len()).ok()?),
                BorrowedValue::Sized(len) => BorrowedValue::Int(i64::try_from(len).ok()?),
                _ => return None,
            },
            Source::Truncated(inner) => match inner.read(record)? {
                BorrowedValue::Int(n) => BorrowedValue::Int(n),
                BorrowedValue::Long(n) => BorrowedValue::Int(i64::try_from(n).ok()?),
                // Exact below 2^53; larger values are rare and left to the template.
                BorrowedValue::Float(f) if f.abs() < 9_007_199_254_740_992.0 => BorrowedValue::Int(f as i64),
                _ => return None,
            },
        })
    }
}

fn data(record: &Record, part: RecordPart) -> Option<&Data> {
    match part {
        RecordPart::Metadata => None,
        RecordPart::Key => Some(&record.key),
        RecordPart::Before => Some(&record.payload.before),
        RecordPart::After => Some(&record.payload.after),
    }
}

#[inline]
fn field<'r>(data: &'r Data, names: &[Str], indexed: usize) -> Option<BorrowedValue<'r>> {
    let Data::Structured(object) = data else { return None };
    let (last, path) = names.split_last()?;
    let mut object = object;
    for (i, name) in path.iter().enumerate() {
        match object.get(name) {
            Some(Value::Map(inner)) => object = inner,
            // A field of absent data is absent; an index into it is an error, like an index into a scalar.
            None if i < indexed && indexed >= names.len() => return Some(BorrowedValue::Nil),
            _ => return None,
        }
    }
    Some(match object.get(last) {
        None | Some(Value::Null) => BorrowedValue::Nil,
        Some(Value::Bool(b)) => BorrowedValue::Bool(*b),
        Some(Value::Int(n)) => BorrowedValue::Long((*n).into()),
        Some(Value::UInt(n)) => BorrowedValue::Long((*n).into()),
        Some(Value::Float(f)) => BorrowedValue::Float(*f),
        Some(Value::Text(text)) => BorrowedValue::Text(text),
        Some(Value::Bytes(bytes)) => BorrowedValue::Sized(bytes.len()),
        Some(Value::List(list)) => BorrowedValue::Sized(list.len()),
        Some(Value::Map(map)) => BorrowedValue::Sized(map.len()),
        Some(Value::Time(_)) => BorrowedValue::Other,
    })
}

impl<'r> BorrowedValue<'r> {
    /// Returns the result of `eq`; `None` if the template must decide.
    #[inline]
    pub(super) fn equals(self, other: BorrowedValue<'_>) -> Option<bool> {
        match (self, other) {
            (BorrowedValue::Nil, BorrowedValue::Nil) => Some(true),
            (BorrowedValue::Text(a), BorrowedValue::Text(b)) => Some(a == b),
            (BorrowedValue::Bool(a), BorrowedValue::Bool(b)) => Some(a == b),
            (BorrowedValue::Float(a), BorrowedValue::Float(b)) => Some(a == b),
            (BorrowedValue::Other, _) | (_, BorrowedValue::Other) => None,
            (BorrowedValue::Nil, _) | (_, BorrowedValue::Nil) => Some(false),
            (BorrowedValue::Long(n), BorrowedValue::Float(f)) | (BorrowedValue::Float(f), BorrowedValue::Long(n)) => {
                Some(with_float(n, f) == Some(Ordering::Equal))
            }
            (a, b) => Some(a.integer()? == b.integer()?),
        }
    }

    /// Compares two values; the inner `None` is the result for NaN. `None` if the template must decide.
    #[inline]
    pub(super) fn compare(self, other: BorrowedValue<'_>) -> Option<Option<Ordering>> {
        match (self, other) {
            (BorrowedValue::Text(a), BorrowedValue::Text(b)) => Some(Some(a.cmp(b))),
            (BorrowedValue::Float(a), BorrowedValue::Float(b)) => Some(a.partial_cmp(&b)),
            (BorrowedValue::Long(n), BorrowedValue::Float(f)) => Some(with_float(n, f)),
            (BorrowedValue::Float(f), BorrowedValue::Long(n)) => Some(with_float(n, f).map(Ordering::reverse)),
            (a, b) => Some(Some(a.integer()?.cmp(&b.integer()?))),
        }
    }

    fn integer(self) -> Option<i128> {
        match self {
            BorrowedValue::Int(n) | BorrowedValue::Operation(_, n) => Some(n.into()),
            BorrowedValue::Long(n) => Some(n),
            _ => None,
        }
    }

    pub(super) fn text(self) -> Option<&'r str> {
        match self {
            BorrowedValue::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn is_true(self) -> bool {
        match self {
            BorrowedValue::Nil => false,
            BorrowedValue::Bool(b) => b,
            BorrowedValue::Int(n) => n != 0,
            BorrowedValue::Long(n) => n != 0,
            BorrowedValue::Float(f) => f != 0.0,
            BorrowedValue::Text(text) => !text.is_empty(),
            BorrowedValue::Sized(len) => len > 0,
            BorrowedValue::Operation(..) | BorrowedValue::Other => true,
        }
    }

    /// Returns the result of the condition if it prints this value; `None` if the output is not a boolean.
    pub(super) fn printed(self) -> Option<bool> {
        match self {
            BorrowedValue::Bool(b) => Some(b),
            BorrowedValue::Int(0) | BorrowedValue::Long(0) => Some(false),
            BorrowedValue::Int(1) | BorrowedValue::Long(1) => Some(true),
            BorrowedValue::Text(text) => verdict(text),
            _ => None,
        }
    }
}

/// A text that is compared with a printed value, in all forms that avoid printing.
#[derive(Debug)]
pub(crate) struct PrintedForms {
    text: Str,
    /// The number that prints as this text, if there is one.
    int: Option<i128>,
    /// The bits of the float that prints as this text, if there is one.
    float: Option<u64>,
    /// True for `%s`, where only text prints unchanged.
    only_text: bool,
}

impl PrintedForms {
    pub(super) fn new(text: Str, only_text: bool) -> PrintedForms {
        let int = text.parse::<i128>().ok().filter(|n| n.to_string() == *text);
        let float = text
            .parse::<f64>()
            .ok()
            .filter(|f| !f.is_nan() && format_float(*f, Notation::General, None) == *text)
            .map(f64::to_bits);
        PrintedForms { text, int, float, only_text }
    }

    /// Returns `true` if the value prints as the text; `None` if the template must decide.
    pub(super) fn is_of(&self, seen: BorrowedValue<'_>) -> Option<bool> {
        match seen {
            BorrowedValue::Text(text) => Some(text == &*self.text),
            BorrowedValue::Operation(name, _) => Some(name == &*self.text),
            _ if self.only_text => None,
            BorrowedValue::Nil => Some(&*self.text == "<nil>"),
            BorrowedValue::Bool(b) => Some(&*self.text == if b { "true" } else { "false" }),
            BorrowedValue::Int(n) => Some(self.int == Some(n.into())),
            BorrowedValue::Long(n) => Some(self.int == Some(n)),
            BorrowedValue::Float(f) if !f.is_nan() => Some(self.float == Some(f.to_bits())),
            BorrowedValue::Float(_) | BorrowedValue::Sized(_) | BorrowedValue::Other => None,
        }
    }
}
