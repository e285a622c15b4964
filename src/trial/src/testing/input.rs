//! Reads the input records of a test.

use std::path::Path;

use anabranch_config::yaml::{Entry, Node, Value};
use anabranch_plugin::diagnostic::{Diagnostics, Spanned};
use anabranch_process::files::read_text;
use anabranch_record::json::parse_value;
use anabranch_record::metadata::Metadata;
use anabranch_record::text::Str;
use anabranch_record::value::Value as Field;
use anabranch_record::{Change, Data, Operation, Position, Record};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use super::fields::{Fields, invalid, json, map, text, typed, wrong};

/// Maximum size of a file of records, in bytes.
const MAX_FILE: u64 = 64 << 20;

/// Records of a source, grouped into reads. Records without a position get one.
pub(super) type Reads = Vec<Vec<Record>>;

/// Fields of a record.
const RECORD: &[&str] = &["operation", "metadata", "key", "before", "after", "payload", "position"];

/// Directory of the files that a test names; `None` if it must not name files.
pub(super) type Base<'a> = Option<&'a Path>;

/// Reads the records of one source. Consecutive records in the list form one read; a nested list is a read of its own.
pub(super) fn reads(node: &Node, base: Base<'_>, findings: &mut Diagnostics) -> Option<Reads> {
    let items = super::fields::items(node, "the input of a source", findings)?;
    let before = findings.0.len();
    let (mut reads, mut beside) = (Reads::new(), Vec::new());
    for item in items {
        if let Value::List(own) = &item.value {
            reads.extend((!beside.is_empty()).then(|| std::mem::take(&mut beside)));
            let mut read = Vec::new();
            own.iter().for_each(|item| add(item, base, &mut read, findings));
            reads.extend((!read.is_empty()).then_some(read));
        } else {
            add(item, base, &mut beside, findings);
        }
    }
    reads.extend((!beside.is_empty()).then_some(beside));
    (findings.0.len() == before).then_some(reads)
}

/// Adds the records of an item.
fn add(node: &Node, base: Base<'_>, records: &mut Vec<Record>, findings: &mut Diagnostics) {
    match &node.value {
        Value::Scalar(scalar) => records.push(Record::create(Position::default(), Data::Absent, raw(&scalar.text))),
        Value::Map(_) => {
            let Some(mut fields) = Fields::of(node, "a record", findings) else { return };
            if let Some(entry) = fields.take("file") {
                fields.finish(&["file"], findings);
                lines(entry, base, findings, |line, findings, at| match Record::from_json(line.as_bytes()) {
                    Ok(record) => records.push(record),
                    Err(error) => {
                        findings.push(invalid(entry.value_span(), format!("line {at} is not a record: {error}")));
                    }
                });
            } else if let Some(entry) = fields.take("lines") {
                fields.finish(&["lines"], findings);
                lines(entry, base, findings, |line, _, _| {
                    records.push(Record::create(Position::default(), Data::Absent, raw(line)));
                });
            } else {
                records.extend(record(fields, findings));
            }
        }
        Value::Null | Value::List(_) | Value::Broken => {
            findings.push(
                wrong(node, "a record", "a map of fields or a text").with_hint(
                    "`- after: { name: x }` is a record with a payload, `- a text` is a record with raw data",
                ),
            );
        }
    }
}

fn record(mut fields: Fields<'_>, findings: &mut Diagnostics) -> Option<Record> {
    let before = findings.0.len();
    let operation = match fields.take("operation") {
        Some(entry) => text(entry, findings).and_then(|name| parse_operation(&name, findings)),
        None => Some(Operation::Create),
    };
    let metadata = fields.take("metadata").map(|entry| metadata(&entry.value, findings));
    let position = fields.take("position").and_then(|entry| text(entry, findings));
    let mut side = |name: &str, findings: &mut Diagnostics| match fields.take_null(name) {
        Some(entry) => data(&entry.value, findings),
        None => Some(Data::Absent),
    };
    let (key, earlier, later) = (side("key", findings), side("before", findings), side("after", findings));
    let mut payload = Change { before: earlier.unwrap_or_default(), after: later.unwrap_or_default() };
    if let Some(entry) = fields.take("payload")
        && let Some(mut sides) = Fields::of(&entry.value, "a payload", findings)
    {
        for (name, side) in [("before", &mut payload.before), ("after", &mut payload.after)] {
            let given = sides.take_null(name).and_then(|entry| data(&entry.value, findings));
            *side = given.unwrap_or_else(|| side.clone());
        }
        sides.finish(&["before", "after"], findings);
    }
    fields.finish(RECORD, findings);
    if findings.0.len() > before {
        return None;
    }
    let mut record = Record::at(Position::copy_from(position.map(|p| p.value).unwrap_or_default().as_bytes()));
    (record.operation, record.key, record.payload) = (operation?, key?, payload);
    record.metadata = metadata.unwrap_or_default();
    Some(record)
}

/// Parses the name of an operation.
pub(super) fn parse_operation(name: &Spanned<Str>, findings: &mut Diagnostics) -> Option<Operation> {
    name.value
        .parse()
        .map_err(|error: anabranch_record::UnknownOperation| {
            findings.push(invalid(name.span, error.to_string()));
        })
        .ok()
}

fn metadata(node: &Node, findings: &mut Diagnostics) -> Metadata {
    let Some(map) = map(node) else {
        findings.push(wrong(node, "metadata", "a map of texts"));
        return Metadata::new();
    };
    let entries = map.entries.iter().filter_map(|entry| Some((entry.key.clone(), text(entry, findings)?.value)));
    Metadata::from_entries(entries.collect())
}

/// Reads a key or payload: a map is structured data, a text is raw data.
fn data(node: &Node, findings: &mut Diagnostics) -> Option<Data> {
    match &node.value {
        Value::Null => Some(Data::Absent),
        Value::Scalar(scalar) => Some(raw(&scalar.text)),
        Value::Map(_) => {
            let Some(map) = map(node) else {
                findings.push(wrong(node, "data", "a map, a text or null"));
                return None;
            };
            match map.entries.as_slice() {
                [entry] if &*entry.key == "$json" => Some(raw(&json(&entry.value).to_string())),
                [entry] if &*entry.key == "$base64" => {
                    let text = text(entry, findings)?;
                    match STANDARD.decode(text.value.as_bytes()) {
                        Ok(bytes) => Some(Data::Raw(Bytes::from(bytes))),
                        Err(error) => {
                            findings.push(invalid(text.span, format!("the text is not base64: {error}")));
                            None
                        }
                    }
                }
                _ => match parse_value(json(node).to_string().as_bytes()) {
                    Ok(Field::Map(fields)) => Some(Data::Structured(fields)),
                    Ok(_) | Err(_) => {
                        findings.push(invalid(node.span, "this value cannot be the data of a record"));
                        None
                    }
                },
            }
        }
        Value::List(_) | Value::Broken => {
            findings.push(wrong(node, "data", "a map, a text or null"));
            None
        }
    }
}

fn raw(text: &str) -> Data {
    Data::Raw(Bytes::copy_from_slice(text.as_bytes()))
}

/// Visits the lines of a file that are not blank.
pub(super) fn lines(
    entry: &Entry,
    base: Base<'_>,
    findings: &mut Diagnostics,
    mut visit: impl FnMut(&str, &mut Diagnostics, usize),
) {
    let Some(name) = text(entry, findings) else { return };
    let Some(base) = base else {
        findings.push(invalid(name.span, "files are not allowed here").with_hint("write the records into the test"));
        return;
    };
    match read_text(&base.join(name.value.as_str()), MAX_FILE) {
        Ok(text) => {
            for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
                visit(line, findings, at + 1);
            }
        }
        Err(error) => {
            let message = format!("cannot read {}: {error}", name.value);
            findings.push(invalid(name.span, message).with_hint("the path is relative to the test file"));
        }
    }
}

/// Returns a scalar of any type as text.
pub(super) fn scalar_text(node: &Node) -> Option<String> {
    match &node.value {
        Value::Scalar(scalar) => match typed(scalar) {
            serde_json::Value::String(text) => Some(text),
            _ => Some(scalar.text.to_string()),
        },
        _ => None,
    }
}
