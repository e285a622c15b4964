//! Records in readable form.

use std::collections::BTreeMap;

use anabranch_record::json::write_data;
use anabranch_record::{Data, Record};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::Value;

use anabranch_process::terminal::is_unsafe;

/// A record with its fields in the usual order.
#[derive(Serialize)]
struct DisplayedRecord<'a> {
    operation: &'a str,
    metadata: BTreeMap<&'a str, &'a str>,
    key: Value,
    payload: ShownPayload,
}

#[derive(Serialize)]
struct ShownPayload {
    before: Value,
    after: Value,
}

/// Formats a record as JSON over several lines, without its position. Raw data that is printable text is shown as text.
pub(super) fn pretty(record: &Record) -> String {
    let shown = DisplayedRecord {
        operation: record.operation.as_str(),
        metadata: record.metadata.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect(),
        key: data(&record.key),
        payload: ShownPayload { before: data(&record.payload.before), after: data(&record.payload.after) },
    };
    let mut text = serde_json::to_string_pretty(&shown).unwrap_or_default();
    text.push('\n');
    text
}

fn data(data: &Data) -> Value {
    match data {
        Data::Absent => Value::Null,
        Data::Raw(bytes) => Value::String(readable(bytes)),
        Data::Structured(_) => {
            let mut text = Vec::new();
            match write_data(data, &mut text) {
                Ok(()) => serde_json::from_slice(&text).unwrap_or(Value::Null),
                Err(fault) => Value::String(format!("(cannot be shown: {})", fault.message())),
            }
        }
    }
}

/// Returns bytes as text if they are text that is safe to print on a terminal, otherwise as base64.
pub(super) fn readable(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains(|c: char| is_unsafe(c) && !matches!(c, '\n' | '\r' | '\t')) => text.to_owned(),
        _ => STANDARD.encode(bytes),
    }
}
