//! The bytes of a part of a record, for keys.

use std::borrow::Cow;

use anabranch_record::fault::Fault;
use anabranch_record::json::{write_data, write_value};
use anabranch_record::reference::{Part, Reference};
use anabranch_record::value::Value;
use anabranch_record::{Data, Record};

use crate::scalar::push_scalar;

/// Returns bytes that are the same for equal values: texts as they are, numbers as texts, lists and maps as JSON. A value
/// that is missing or null has none.
///
/// # Errors
/// The reference cannot be resolved in the record, or its value cannot be JSON.
pub(crate) fn part_bytes<'r>(reference: &Reference, record: &'r Record) -> Result<Cow<'r, [u8]>, Fault> {
    let json = |write: &dyn Fn(&mut Vec<u8>) -> Result<(), Fault>| {
        let mut out = Vec::new();
        write(&mut out).map(|()| Cow::Owned(out))
    };
    match reference.get(record)? {
        None | Some(Part::Data(Data::Absent) | Part::Value(Value::Null)) => Ok(Cow::Borrowed(&[])),
        Some(Part::Position(position)) => Ok(Cow::Borrowed(&position.0)),
        Some(Part::Operation(operation)) => Ok(Cow::Borrowed(operation.as_str().as_bytes())),
        Some(Part::Entry(text)) => Ok(Cow::Borrowed(text.as_bytes())),
        Some(Part::Data(Data::Raw(bytes))) => Ok(Cow::Borrowed(&bytes[..])),
        Some(Part::Data(data)) => json(&|out| write_data(data, out)),
        Some(Part::Value(Value::Text(text))) => Ok(Cow::Borrowed(text.as_bytes())),
        Some(Part::Value(Value::Bytes(bytes))) => Ok(Cow::Borrowed(&bytes[..])),
        Some(Part::Value(value)) => {
            let mut text = String::new();
            match push_scalar(value, &mut text) {
                true => Ok(Cow::Owned(text.into_bytes())),
                false => json(&|out| write_value(value, out)),
            }
        }
        // Settings do not accept other parts.
        Some(Part::Record(_) | Part::Metadata(_) | Part::Payload(_)) => Ok(Cow::Borrowed(&[])),
    }
}
