//! Processors that take a record out of the envelope another system has put it in.

pub mod debezium;
pub mod kafkaconnect;
pub mod opencdc;

use std::sync::Arc;

use anabranch_plugin::flow::{Flow, Kinds};
use anabranch_plugin::specification::{Parameter, ParameterKind, Validation};
use anabranch_record::access::Access;
use anabranch_record::fault::Fault;
use anabranch_record::json::{parse_value, write_value};
use anabranch_record::reference::{Part, Reference};
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Record};
use bytes::Bytes;

fn field_parameter(description: &'static str, roots: &[&'static str]) -> Parameter {
    Parameter::new("field", ParameterKind::Reference, description)
        .default_value(".Payload.After")
        .validate(Validation::Within(roots.iter().map(|root| Str::from_static(root)).collect()))
}

/// Finds fields that never hold an envelope: one has one of these fields.
fn flow(flow: &mut Flow, field: &Reference, needs: &[&str]) {
    let wanted = (Kinds::MAP | Kinds::TEXT | Kinds::BYTES, "an envelope");
    let found = flow.need("flow.no_envelope", "field", field, wanted, false);
    let fields = &found.ty.fields;
    if found.ty.kinds == Kinds::MAP && !flow.fails() && needs.iter().all(|name| fields.get(name).is_none()) {
        let message =
            format!("every record fails here: {field} has no {:?}, so it is no envelope", needs.join("\", \""));
        let since = Some((found.ty.since, "its fields are known since here".to_owned()));
        flow.fail("flow.no_envelope", "field", message, since, None);
    }
    flow.may_fail();
}

/// Whole parts of a record.
fn parts(names: &[&'static str]) -> Access {
    Access::These(names.iter().map(|name| vec![Str::from_static(name)]).collect())
}

/// What is read besides the field: the key, which has an envelope of its own.
fn with_key(field: &Reference) -> Access {
    match (field.access(), parts(&["Key"])) {
        (Access::These(field), Access::These(key)) => Access::These([field, key].concat()),
        _ => Access::Everything,
    }
}

/// A fault of the record: `what` is wrong with the envelope.
#[cold]
fn invalid(field: &Reference, what: &str) -> Fault {
    Fault::record("unwrap_failed", format!("cannot unwrap {field}: {what}"))
}

/// The envelope in a field: structured data or JSON text.
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

/// Takes an object out of an envelope.
fn take_map(field: &Reference, envelope: &mut Object, name: &str) -> Result<Object, Fault> {
    match envelope.remove(name) {
        Some(Value::Map(map)) => Ok(Arc::unwrap_or_clone(map)),
        None => Err(invalid(field, &format!("no {name}"))),
        Some(other) => Err(invalid(field, &format!("{name} is {}, not an object", other.type_name()))),
    }
}

/// Takes a text out of an envelope.
fn take_text(field: &Reference, envelope: &mut Object, name: &str) -> Result<Str, Fault> {
    match envelope.remove(name) {
        Some(Value::Text(text)) => Ok(text),
        None => Err(invalid(field, &format!("no {name}"))),
        Some(other) => Err(invalid(field, &format!("{name} is {}, not a text", other.type_name()))),
    }
}

/// What a key becomes whose envelope has a field `payload`; `None` where it has no envelope.
fn key_in_envelope(key: &Data) -> Result<Option<Data>, Fault> {
    let payload = match key {
        Data::Absent => None,
        Data::Structured(object) => object.get("payload").cloned(),
        // Only an object is worth parsing.
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
