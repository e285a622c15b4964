//! Processors that parse texts in formats other than JSON and CSV.

mod extraction;
pub mod grok;
pub mod keyvalue;
pub mod regex;

use anabranch_record::fault::Fault;
use anabranch_record::phrase::with_article;
use anabranch_record::reference::{Part, Reference};
use anabranch_record::value::Value;
use anabranch_record::{Data, Record};

use crate::codes;

/// Returns the text of a field; `None` if the field is missing or null.
///
/// # Errors
/// The field has no text.
pub(crate) fn text_of<'a>(field: &Reference, record: &'a Record) -> Result<Option<&'a str>, Fault> {
    let unexpected =
        |what: &str| Fault::record(codes::TEXT_UNEXPECTED_TYPE, format!("cannot parse {field}: it is {what}"));
    let bytes = match field.get(record)? {
        Some(Part::Data(Data::Raw(bytes))) => &bytes[..],
        Some(Part::Value(Value::Bytes(bytes))) => &bytes[..],
        Some(Part::Value(Value::Text(text)) | Part::Entry(text)) => return Ok(Some(text)),
        None | Some(Part::Data(Data::Absent) | Part::Value(Value::Null)) => return Ok(None),
        Some(other) => return Err(unexpected(&format!("{}, not a text", with_article(other.type_name())))),
    };
    std::str::from_utf8(bytes).map(Some).map_err(|_| unexpected("not in UTF-8"))
}
