//! The text of a field with a single value.

use std::borrow::Cow;

use anabranch_record::code::Code;
use anabranch_record::fault::Fault;
use anabranch_record::phrase::with_article;
use anabranch_record::reference::{Part, Reference};
use anabranch_record::value::Value;
use anabranch_record::{Data, Record};

use crate::scalar::push_scalar;

/// Returns the bytes of a text, or the text of a number, boolean or time; `None` if the field is missing or null.
///
/// # Errors
/// The field has a list, a map or structured data: a fault with this code that says what cannot be done (`verb`).
pub(crate) fn scalar_text<'a>(
    field: &Reference,
    record: &'a Record,
    (verb, code): (&str, Code),
) -> Result<Option<Cow<'a, [u8]>>, Fault> {
    let refused = |what: &str| {
        let what = with_article(what);
        Err(Fault::record(code, format!("cannot {verb} {field}: it is {what}, not a text or a number")))
    };
    match field.get(record)? {
        None | Some(Part::Data(Data::Absent) | Part::Value(Value::Null)) => Ok(None),
        Some(Part::Data(Data::Raw(bytes))) => Ok(Some(Cow::Borrowed(&bytes[..]))),
        Some(Part::Value(Value::Text(text))) => Ok(Some(Cow::Borrowed(text.as_bytes()))),
        Some(Part::Value(Value::Bytes(bytes))) => Ok(Some(Cow::Borrowed(&bytes[..]))),
        Some(Part::Value(value)) => {
            let mut text = String::new();
            match push_scalar(value, &mut text) {
                true => Ok(Some(Cow::Owned(text.into_bytes()))),
                false => refused(value.type_name()),
            }
        }
        Some(other) => refused(other.type_name()),
    }
}
