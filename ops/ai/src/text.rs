//! Text of a part of a record.

use std::borrow::Cow;

use anabranch_record::fault::Fault;
use anabranch_record::json::{write_data, write_value};
use anabranch_record::reference::{Part, Reference};
use anabranch_record::value::Value;
use anabranch_record::{Data, Record};

use crate::codes;

/// Returns the text at a reference; JSON text for values that are neither text nor bytes.
///
/// # Errors
/// `field_missing` if the part is missing; `text_not_utf8` if its bytes are not text.
pub(crate) fn text_at<'r>(record: &'r Record, place: &Reference) -> Result<Cow<'r, str>, Fault> {
    let missing = || Fault::record(codes::FIELD_MISSING, format!("there is no text at {place}"));
    match place.get(record)?.ok_or_else(missing)? {
        Part::Data(Data::Absent) => Err(missing()),
        Part::Data(Data::Raw(bytes)) => utf8(bytes, place),
        Part::Data(data) => json(place, |out| write_data(data, out)),
        Part::Value(value) => text_of(value, place),
        Part::Entry(text) => Ok(Cow::Borrowed(text)),
        other => Err(Fault::record(codes::TEXT_TYPE, format!("{place} is {}, not text", other.type_name()))),
    }
}

/// Returns the text of a value at a reference; JSON text for values that are neither text nor bytes.
///
/// # Errors
/// As [`text_at`].
pub(crate) fn text_of<'r>(value: &'r Value, place: &Reference) -> Result<Cow<'r, str>, Fault> {
    match value {
        Value::Null => Err(Fault::record(codes::FIELD_MISSING, format!("there is no text at {place}"))),
        Value::Text(text) => Ok(Cow::Borrowed(text)),
        Value::Bytes(bytes) => utf8(bytes, place),
        other => json(place, |out| write_value(other, out)),
    }
}

fn utf8<'r>(bytes: &'r [u8], place: &Reference) -> Result<Cow<'r, str>, Fault> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(Cow::Borrowed(text)),
        Err(error) => Err(not_utf8(place, error.valid_up_to())),
    }
}

fn not_utf8(place: &Reference, at: usize) -> Fault {
    Fault::record(codes::TEXT_NOT_UTF8, format!("{place} is not text: byte {at} is not UTF-8"))
}

fn json(place: &Reference, write: impl FnOnce(&mut Vec<u8>) -> Result<(), Fault>) -> Result<Cow<'static, str>, Fault> {
    let mut out = Vec::new();
    write(&mut out)?;
    String::from_utf8(out).map(Cow::Owned).map_err(|error| not_utf8(place, error.utf8_error().valid_up_to()))
}
