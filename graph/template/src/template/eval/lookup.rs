//! Access to the parts of the record.

use anabranch_record::text::Str;
use anabranch_record::value::Value;
use anabranch_record::{Data, Record};

use crate::template::format::{self, Notation};
use crate::template::out::Out;
use crate::template::tree::{Fields, RecordPart};
use crate::template::val::{Map, Val};

/// A borrowed field or metadata entry.
#[derive(Clone, Copy)]
pub(in crate::template) enum BorrowedEntry<'r> {
    Text(&'r Str),
    Value(&'r Value),
}

impl BorrowedEntry<'_> {
    /// Prints a value that needs no formatting. Returns `false` for other values.
    #[inline]
    pub(super) fn write(self, out: &mut Out) -> bool {
        match self {
            BorrowedEntry::Text(text) | BorrowedEntry::Value(Value::Text(text)) => out.push_str(text),
            BorrowedEntry::Value(Value::Int(n)) => out.push_str(itoa::Buffer::new().format(*n)),
            BorrowedEntry::Value(Value::UInt(n)) => out.push_str(itoa::Buffer::new().format(*n)),
            BorrowedEntry::Value(Value::Bool(b)) => out.push_str(if *b { "true" } else { "false" }),
            BorrowedEntry::Value(Value::Float(f)) => out.push_str(&format::format_float(*f, Notation::General, None)),
            BorrowedEntry::Value(_) => return false,
        }
        true
    }
}

impl From<BorrowedEntry<'_>> for Val {
    fn from(found: BorrowedEntry<'_>) -> Val {
        match found {
            BorrowedEntry::Text(text) => Val::text(text.clone()),
            BorrowedEntry::Value(value) => Val::from(value),
        }
    }
}

/// Follows names that start at the record, without a copy. `None` if a name is missing or the path needs
/// special treatment: the evaluator then follows it name by name and reports errors.
#[inline]
pub(in crate::template) fn find<'r>(record: &'r Record, fields: &Fields) -> Option<BorrowedEntry<'r>> {
    let part = fields.part?;
    let names = fields.names.get(part.depth()..)?;
    let data = match part {
        RecordPart::Metadata => {
            let [name] = names else { return None };
            return record.metadata.get(name).map(BorrowedEntry::Text);
        }
        RecordPart::Key => &record.key,
        RecordPart::Before => &record.payload.before,
        RecordPart::After => &record.payload.after,
    };
    let Data::Structured(object) = data else { return None };
    let (last, path) = names.split_last()?;
    let mut object = object;
    for name in path {
        let Value::Map(inner) = object.get(name)? else { return None };
        object = inner;
    }
    object.get(last).map(BorrowedEntry::Value)
}

/// Returns a field of the record by its name.
pub(super) fn part(record: &Record, name: &str) -> Option<Val> {
    Some(match name {
        "Position" => Val::Position(record.position().clone()),
        "Operation" => Val::Operation(record.operation),
        "Metadata" => Val::Map(Map::Metadata(record.metadata.clone())),
        "Key" => Val::data(&record.key),
        "Payload" => Val::Payload(record.payload.clone().into()),
        _ => return None,
    })
}

/// Returns a field of a struct by its name.
pub(super) fn member(val: &Val, name: &str) -> Option<Val> {
    match val {
        Val::Record(record) => part(record, name),
        Val::Payload(change) => match name {
            "Before" => Some(Val::data(&change.before)),
            "After" => Some(Val::data(&change.after)),
            _ => None,
        },
        _ => None,
    }
}
