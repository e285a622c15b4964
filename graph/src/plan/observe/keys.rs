//! Records that replace each other in a destination because they share a key.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::PoisonError;

use anabranch_plugin::flow::{OWN_KEY, Place};
use anabranch_plugin::secret::mask;
use anabranch_record::access::Access;
use anabranch_record::code::Code;
use anabranch_record::metadata::key;
use anabranch_record::text::Str;
use anabranch_record::value::Value;
use anabranch_record::{Data, Operation, Record};
use bytes::Bytes;

use super::{ObservedNode, ObservedProblems, Observer, ProbableMistake, plugin};
use crate::codes;
use crate::plan::flow::{located, says};
use crate::plan::stage::StageId;

/// Minimum number of records before a common key is reported.
const ENOUGH: u64 = 3;

/// Records that reached a destination that keeps one record per identity.
#[derive(Default)]
pub(super) struct Keyed {
    records: u64,
    /// Pieces by the connector and position of the source record.
    made_of: BTreeMap<(Str, Bytes), SourcePieces>,
    /// Identity and key of the first record.
    first: Option<(String, Data)>,
    /// True if a record has another identity than the first.
    several: bool,
    /// True if every record also holds the values of its key outside the key.
    named: bool,
    payloads: BTreeSet<String>,
}

/// Pieces of one source record.
struct SourcePieces {
    count: u64,
    identity: String,
    operation: Operation,
    payload: String,
    /// True if all pieces have this identity and this operation.
    alike: bool,
    /// True if a payload differs from the first.
    differ: bool,
}

impl Observer {
    /// Notes the identity of a record that enters a destination. Records without a key replace nothing and are ignored.
    pub(super) fn note_identity(&self, stage: StageId, step: usize, identity: &Access, record: &Record) {
        let Access::These(paths) = identity else { return };
        let has_none = match &record.key {
            Data::Absent => true,
            Data::Structured(fields) => fields.is_empty(),
            Data::Raw(bytes) => matches!(bytes.trim_ascii(), b"" | b"{}"),
        };
        if has_none {
            return;
        }
        let identity: String = paths.iter().fold(String::new(), |mut text, path| {
            part(record, path, &mut text);
            text.push('\n');
            text
        });
        let payload = format!("{:?}", record.payload);
        let connector = record.metadata.get(&key::SOURCE_CONNECTOR_ID).cloned().unwrap_or_default();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let keyed = seen.keyed.entry((stage, step)).or_insert_with(|| Keyed { named: true, ..Keyed::default() });
        keyed.records += 1;
        keyed.named = keyed.named && is_named(record);
        match &keyed.first {
            Some((first, _)) => keyed.several |= *first != identity,
            None => keyed.first = Some((identity.clone(), record.key.clone())),
        }
        keyed.payloads.insert(payload.clone());
        let pieces = keyed.made_of.entry((connector, record.position().0.clone())).or_insert_with(|| SourcePieces {
            count: 0,
            identity: identity.clone(),
            operation: record.operation,
            payload: payload.clone(),
            alike: true,
            differ: false,
        });
        pieces.count += 1;
        pieces.alike &= pieces.identity == identity && pieces.operation == record.operation;
        pieces.differ |= pieces.payload != payload;
    }

    /// Returns destinations where all sets of pieces have one key per source record, although payloads differ. If only
    /// some sets share a key, the last state of each key may be intended. For trials, which read each record once; a
    /// test reads some records several times.
    pub(super) fn shared_keys(&self, seen: &ObservedProblems) -> Vec<ProbableMistake> {
        let mut found = Vec::new();
        for (&(stage, step), keyed) in &seen.keyed {
            let several = || keyed.made_of.values().filter(|pieces| pieces.count > 1);
            let lost: u64 = several().filter(|pieces| pieces.differ).map(|pieces| pieces.count).sum();
            if lost == 0 || !several().all(|pieces| pieces.alike) {
                continue;
            }
            let message = "records that were created from one record have the same key: each overwrites the previous \
                           one, and only the last remains";
            let hint = "add a value that differs to the key, for example the number of the piece or one of its fields";
            found.extend(self.of_keys((stage, step), codes::FLOW_KEY_SHARED, message, hint, (lost, keyed.records)));
        }
        found
    }

    /// Returns destinations with at least three different records that all have the same key, where the key is not
    /// derived from other parts of the record. For trials, which read few records; the records of a test may be alike
    /// on purpose.
    pub(super) fn constant_keys(&self, seen: &ObservedProblems) -> Vec<ProbableMistake> {
        let mut found = Vec::new();
        for (&(stage, step), keyed) in &seen.keyed {
            let of = keyed.records;
            let enough = of >= ENOUGH && keyed.made_of.len() as u64 == of && keyed.payloads.len() as u64 == of;
            let Some((_, key)) = keyed.first.as_ref().filter(|_| enough && !keyed.several && !keyed.named) else {
                continue;
            };
            let message = format!(
                "all {of} records have the same key, {}: each overwrites the previous one, and only the last remains",
                shown(key)
            );
            found.extend(self.of_keys((stage, step), codes::FLOW_KEY_CONSTANT, &message, OWN_KEY, (of, of)));
        }
        found
    }

    fn of_keys(
        &self,
        (stage, step): (StageId, usize),
        code: Code,
        message: &str,
        hint: &str,
        (records, of): (u64, u64),
    ) -> Option<ProbableMistake> {
        let ObservedNode { node, known, .. } = self.step(stage, step)?;
        if known.as_ref().is_some_and(|known| {
            [codes::FLOW_KEY_SHARED, codes::FLOW_KEY_CONSTANT].iter().any(|code| says(node, known, *code))
        }) {
            return None;
        }
        let (span, path) = located(node, None, &Place::NODE);
        let message = mask(message, &self.secrets);
        let plugin = plugin(node);
        Some(ProbableMistake {
            node: node.id.clone(),
            plugin,
            path,
            span,
            code,
            message,
            hint: Some(hint.to_owned()),
            records,
            of,
        })
    }
}

/// Writes a part of a record so that different parts have different texts.
fn part(record: &Record, path: &[Str], text: &mut String) {
    let names: Vec<&str> = path.iter().map(Str::as_str).collect();
    // Writing to a string cannot fail.
    let _ = match &names[..] {
        ["Key", rest @ ..] => field(&record.key, rest, text),
        ["Payload", "Before", rest @ ..] => field(&record.payload.before, rest, text),
        ["Payload", "After", rest @ ..] => field(&record.payload.after, rest, text),
        ["Payload"] => write!(text, "{:?}", record.payload),
        ["Metadata", name] => write!(text, "{:?}", path.last().and_then(|_| record.metadata.get(name))),
        ["Operation"] => write!(text, "{:?}", record.operation),
        _ => write!(text, "{record:?}"),
    };
}

fn field(data: &Data, names: &[&str], text: &mut String) -> std::fmt::Result {
    let (Data::Structured(object), [first, rest @ ..]) = (data, names) else { return write!(text, "{data:?}") };
    let mut value = object.get(first);
    for name in rest {
        value = match value {
            Some(Value::Map(inner)) => inner.get(name),
            other => return write!(text, "{other:?}"),
        };
    }
    write!(text, "{value:?}")
}

/// Returns `true` if the values of the key also occur elsewhere in the record, so that the key is derived from it.
fn is_named(record: &Record) -> bool {
    let (mut of_key, mut others) = (Vec::new(), Vec::new());
    scalars(&record.key, &mut of_key);
    scalars(&record.payload.before, &mut others);
    scalars(&record.payload.after, &mut others);
    others.extend(record.metadata.iter().map(|(_, text)| text.to_string()));
    !of_key.is_empty() && of_key.iter().all(|value| others.contains(value))
}

fn scalars(data: &Data, texts: &mut Vec<String>) {
    match data {
        Data::Absent => {}
        Data::Structured(object) => object.iter().for_each(|(_, value)| of_value(value, texts)),
        Data::Raw(bytes) => match serde_json::from_slice(bytes) {
            Ok(json) => of_json(&json, texts),
            Err(_) => texts.push(String::from_utf8_lossy(bytes).into_owned()),
        },
    }
}

fn of_value(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::Null => {}
        Value::Bool(truth) => texts.push(truth.to_string()),
        Value::Int(number) => texts.push(number.to_string()),
        Value::UInt(number) => texts.push(number.to_string()),
        Value::Float(number) => texts.push(number.to_string()),
        Value::Text(text) => texts.push(text.to_string()),
        Value::Bytes(_) | Value::Time(_) => texts.push(format!("{value:?}")),
        Value::List(list) => list.iter().for_each(|value| of_value(value, texts)),
        Value::Map(object) => object.iter().for_each(|(_, value)| of_value(value, texts)),
    }
}

fn of_json(value: &serde_json::Value, texts: &mut Vec<String>) {
    match value {
        serde_json::Value::Null => {}
        serde_json::Value::Bool(truth) => texts.push(truth.to_string()),
        serde_json::Value::Number(number) => texts.push(number.to_string()),
        serde_json::Value::String(text) => texts.push(text.clone()),
        serde_json::Value::Array(list) => list.iter().for_each(|value| of_json(value, texts)),
        serde_json::Value::Object(object) => object.values().for_each(|value| of_json(value, texts)),
    }
}

/// Formats a key for a message: fields as `id=7`.
fn shown(key: &Data) -> String {
    const MOST: usize = 80;
    let mut text = match key {
        Data::Structured(object) => {
            let field = |(name, value): (&Str, &Value)| {
                let mut texts = Vec::new();
                of_value(value, &mut texts);
                format!("{name}={}", texts.join("/"))
            };
            object.iter().map(field).collect::<Vec<_>>().join(" ")
        }
        Data::Raw(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Data::Absent => String::new(),
    };
    if let Some((end, _)) = text.char_indices().nth(MOST) {
        text.truncate(end);
        text.push('…');
    }
    text
}
