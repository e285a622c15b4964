//! Processors that extract a record from the envelope of another system.

pub mod debezium;
pub mod kafkaconnect;
pub mod opencdc;

use std::sync::Arc;

use anabranch_plugin::flow::{Flow, Kinds};
use anabranch_record::access::Access;
use anabranch_record::fault::Fault;
use anabranch_record::json::{parse_value, write_value};
use anabranch_record::reference::{Part, Reference};
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Record};
use bytes::Bytes;

use crate::codes;

/// Reports a field that can never hold an envelope, because it has none of the fields `needs`.
fn flow(flow: &mut Flow, field: &Reference, needs: &[&str]) {
    let wanted = (Kinds::MAP | Kinds::TEXT | Kinds::BYTES, "an envelope");
    let found = flow.need(codes::FLOW_NO_ENVELOPE, "field", field, wanted, false);
    let fields = &found.ty.fields;
    if found.ty.kinds == Kinds::MAP && !flow.fails() && needs.iter().all(|name| fields.get(name).is_none()) {
        let message =
            format!("every record fails here: {field} has no {:?}, so it is not an envelope", needs.join("\", \""));
        let since = Some((found.ty.since, "its fields are known since here".to_owned()));
        flow.fail(codes::FLOW_NO_ENVELOPE, "field", message, since, None);
    }
    flow.may_fail();
}

/// Returns access to whole parts of a record.
fn parts(names: &[&'static str]) -> Access {
    Access::These(names.iter().map(|name| vec![Str::from_static(name)]).collect())
}

/// Returns access to the field and to the key, which has its own envelope.
fn with_key(field: &Reference) -> Access {
    match (field.access(), parts(&["Key"])) {
        (Access::These(field), Access::These(key)) => Access::These([field, key].concat()),
        _ => Access::Everything,
    }
}

/// Returns a record fault; `what` describes the problem with the envelope.
#[cold]
fn invalid(field: &Reference, what: &str) -> Fault {
    Fault::record(codes::UNWRAP_FAILED, format!("cannot unwrap {field}: {what}"))
}

/// Reads the envelope in a field: structured data or JSON text.
fn envelope(field: &Reference, record: &Record) -> Result<Arc<Object>, Fault> {
    let text = match field.get(record)? {
        Some(Part::Data(Data::Structured(object)) | Part::Value(Value::Map(object))) => return Ok(object.clone()),
        Some(Part::Data(Data::Raw(bytes))) => bytes.as_ref(),
        Some(Part::Value(Value::Text(text))) => text.as_bytes(),
        Some(Part::Value(Value::Bytes(bytes))) => bytes.as_ref(),
        Some(Part::Data(Data::Absent)) | None => return Err(invalid(field, "the record has no such data")),
        Some(other) => return Err(invalid(field, &format!("unexpected data type {}", other.type_name()))),
    };
    match parse_value(text).map_err(|e| invalid(field, &e.to_string()))? {
        Value::Map(object) => Ok(object),
        other => Err(invalid(field, &format!("the JSON text is {}, not an object", other.type_name()))),
    }
}

/// Removes an object from an envelope and returns it.
fn take_map(field: &Reference, envelope: &mut Object, name: &str) -> Result<Object, Fault> {
    match envelope.remove(name) {
        Some(Value::Map(map)) => Ok(Arc::unwrap_or_clone(map)),
        None => Err(invalid(field, &format!("no {name}"))),
        Some(other) => Err(invalid(field, &format!("{name} is {}, not an object", other.type_name()))),
    }
}

/// Removes a text from an envelope and returns it.
fn take_text(field: &Reference, envelope: &mut Object, name: &str) -> Result<Str, Fault> {
    match envelope.remove(name) {
        Some(Value::Text(text)) => Ok(text),
        None => Err(invalid(field, &format!("no {name}"))),
        Some(other) => Err(invalid(field, &format!("{name} is {}, not a text", other.type_name()))),
    }
}

/// Returns the `payload` of a key with an envelope, or `None` if the key has no envelope.
fn key_in_envelope(key: &Data) -> Result<Option<Data>, Fault> {
    let payload = match key {
        Data::Absent => None,
        Data::Structured(object) => object.get("payload").cloned(),
        // Only an object can be an envelope, so other texts are not parsed.
        Data::Raw(bytes) if bytes.trim_ascii_start().first() == Some(&b'{') => match parse_value(bytes) {
            Ok(Value::Map(object)) => Arc::unwrap_or_clone(object).remove("payload"),
            _ => None,
        },
        Data::Raw(_) => None,
    };
    Ok(match payload {
        None => None,
        Some(Value::Null) => Some(Data::Absent),
        Some(Value::Map(map)) => Some(Data::Structured(map)),
        Some(Value::Text(text)) => Some(Data::Raw(Bytes::copy_from_slice(text.as_bytes()))),
        Some(other) => {
            let mut text = Vec::new();
            write_value(&other, &mut text)?;
            Some(Data::Raw(text.into()))
        }
    })
}
