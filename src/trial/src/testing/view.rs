//! Records in the form that tests show and compare. Raw data is text if it is valid text.
//!
//! ```text
//! { "operation": "create", "metadata": {…}, "key": D, "before": D, "after": D }
//! ```
//!
//! `D` is an object, a text, null, or `{ "$base64": "…" }` for bytes that are not text.

use anabranch_record::metadata::key;
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value, timestamp_text};
use anabranch_record::{Data, Record};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value as Json, json};

/// Metadata keys that the engine adds to every record.
pub(super) const STAMPS: [Str; 2] = [key::READ_AT, key::SOURCE_CONNECTOR_ID];

/// Converts a record.
pub(super) fn record(record: &Record) -> Json {
    let metadata: Map<String, Json> =
        record.metadata.iter().map(|(key, value)| (key.to_string(), Json::from(value.as_str()))).collect();
    json!({
        "operation": record.operation.as_str(),
        "metadata": metadata,
        "key": data(&record.key),
        "before": data(&record.payload.before),
        "after": data(&record.payload.after),
    })
}

fn data(data: &Data) -> Json {
    match data {
        Data::Absent => Json::Null,
        Data::Raw(raw) => bytes(raw),
        Data::Structured(fields) => object(fields),
    }
}

fn object(fields: &Object) -> Json {
    fields.iter().map(|(name, field)| (name.to_string(), value(field))).collect()
}

/// Converts a value.
pub(super) fn value(of: &Value) -> Json {
    match of {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Int(value) => Json::from(*value),
        Value::UInt(value) => Json::from(*value),
        Value::Float(value) => Number::from_f64(*value).map_or_else(|| Json::String(value.to_string()), Json::Number),
        Value::Text(text) => Json::String(text.to_string()),
        Value::Bytes(raw) => bytes(raw),
        Value::Time(time) => Json::String(timestamp_text(time)),
        Value::List(items) => items.iter().map(value).collect(),
        Value::Map(fields) => object(fields),
    }
}

/// Converts bytes; to text, if they are text.
pub(super) fn bytes(raw: &[u8]) -> Json {
    match std::str::from_utf8(raw) {
        Ok(text) if !text.contains(|c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t')) => Json::from(text),
        _ => json!({ "$base64": STANDARD.encode(raw) }),
    }
}
