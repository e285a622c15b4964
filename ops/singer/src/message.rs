//! Messages of the Singer protocol: one JSON object per line.

use std::borrow::Cow;

use anabranch_record::text::Str;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Number, Value};

/// A message of a tap.
#[derive(Debug)]
pub(crate) enum TapMessage<'a> {
    Record(RecordMessage<'a>),
    Schema(SchemaMessage),
    State(&'a RawValue),
    ActivateVersion { stream: Cow<'a, str>, version: Option<Number> },
}

/// A RECORD message.
#[derive(Debug)]
pub(crate) struct RecordMessage<'a> {
    pub(crate) stream: Cow<'a, str>,
    /// `None` if the message lacks it, or if it is null.
    pub(crate) record: Option<&'a RawValue>,
    pub(crate) version: Option<Number>,
    pub(crate) time_extracted: Option<Cow<'a, str>>,
}

/// A SCHEMA message.
#[derive(Debug)]
pub(crate) struct SchemaMessage {
    pub(crate) stream: Str,
    pub(crate) schema: Value,
    /// Properties that identify a record of the stream.
    pub(crate) key: Vec<Str>,
}

/// Reason why a line is not a message. Does not quote the line, which may contain data.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MessageError {
    #[error("it is not a JSON object with a `type` (error at byte {0})")]
    NotAMessage(usize),
    #[error("the {0} message lacks `{1}`")]
    Incomplete(&'static str, &'static str),
    #[error("the source does not support messages of the type {0:?}")]
    Unsupported(String),
}

/// All members of all messages, as far as this source reads them.
#[derive(Deserialize)]
struct Members<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    stream: Option<Text<'a>>,
    #[serde(borrow, default)]
    record: Option<&'a RawValue>,
    /// May be null, which is a value.
    #[serde(borrow, default, deserialize_with = "raw")]
    value: Option<&'a RawValue>,
    #[serde(borrow, default)]
    schema: Option<&'a RawValue>,
    #[serde(borrow, default)]
    key_properties: Option<&'a RawValue>,
    #[serde(default)]
    version: Option<Number>,
    #[serde(borrow, default)]
    time_extracted: Option<Text<'a>>,
}

/// A text that is not copied if it has no escapes, also in an option.
#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

fn raw<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Parses a line.
pub(crate) fn parse(line: &[u8]) -> Result<TapMessage<'_>, MessageError> {
    // A list is a form of the structure, too.
    if line.trim_ascii_start().first() != Some(&b'{') {
        return Err(MessageError::NotAMessage(1));
    }
    let members: Members<'_> =
        serde_json::from_slice(line).map_err(|error| MessageError::NotAMessage(error.column()))?;
    let lacks = |kind, member| MessageError::Incomplete(kind, member);
    match &*members.kind {
        "RECORD" => Ok(TapMessage::Record(RecordMessage {
            stream: members.stream.ok_or(lacks("RECORD", "stream"))?.0,
            record: members.record,
            version: members.version,
            time_extracted: members.time_extracted.map(|text| text.0),
        })),
        "STATE" => members.value.map(TapMessage::State).ok_or(lacks("STATE", "value")),
        "SCHEMA" => {
            let schema = members.schema.ok_or(lacks("SCHEMA", "schema"))?;
            let key = members.key_properties.map_or("[]", RawValue::get);
            Ok(TapMessage::Schema(SchemaMessage {
                stream: members.stream.ok_or(lacks("SCHEMA", "stream"))?.0.as_ref().into(),
                schema: serde_json::from_str(schema.get()).map_err(|_| lacks("SCHEMA", "schema"))?,
                key: serde_json::from_str(key).map_err(|_| lacks("SCHEMA", "key_properties"))?,
            }))
        }
        "ACTIVATE_VERSION" => Ok(TapMessage::ActivateVersion {
            stream: members.stream.ok_or(lacks("ACTIVATE_VERSION", "stream"))?.0,
            version: members.version,
        }),
        other => Err(MessageError::Unsupported(other.chars().take(40).collect())),
    }
}

/// Returns `true` if a line that is not complete begins as a RECORD message does.
pub(crate) fn begins_record(head: &[u8]) -> bool {
    let text = String::from_utf8_lossy(head);
    let Some((_, rest)) = text.split_once("\"type\"") else { return false };
    rest.trim_start().strip_prefix(':').is_some_and(|rest| rest.trim_start().starts_with("\"RECORD\""))
}

/// Finds a number that JSON lacks, as Python writes it: NaN, Infinity or -Infinity. Returns it with the line in which all
/// such numbers are texts. O(length).
pub(crate) fn without_unreal_numbers(line: &[u8]) -> Option<(&'static str, Vec<u8>)> {
    const UNREAL: [&str; 3] = ["NaN", "-Infinity", "Infinity"];
    let mut out = Vec::new();
    let (mut first, mut kept, mut at) = (None, 0, 0);
    while at < line.len() {
        match UNREAL.into_iter().find(|word| line[at..].starts_with(word.as_bytes())) {
            _ if line[at] == b'"' => at = end_of_text(line, at),
            Some(word) => {
                first = first.or(Some(word));
                out.extend_from_slice(&line[kept..at]);
                out.push(b'"');
                out.extend_from_slice(word.as_bytes());
                out.push(b'"');
                at += word.len();
                kept = at;
            }
            None => at += 1,
        }
    }
    out.extend_from_slice(&line[kept..]);
    first.map(|first| (first, out))
}

/// Returns the offset after a text in JSON that begins at `start`.
pub(crate) fn end_of_text(json: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(found) = json.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += found;
        match json[at] {
            b'"' => return at + 1,
            _ => at += 2,
        }
    }
    json.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_json_lacks_become_texts() {
        let line = br#"{"a": NaN, "NaN": "Infinity \" NaN", "b": [-Infinity, Infinity]}"#;
        let (first, text) = without_unreal_numbers(line).unwrap();
        assert_eq!(first, "NaN");
        let expected = r#"{"a": "NaN", "NaN": "Infinity \" NaN", "b": ["-Infinity", "Infinity"]}"#;
        assert_eq!(String::from_utf8(text).unwrap(), expected);
        for other in [&br#"{"a": "NaN"}"#[..], b"", b"\"NaN", b"\"\\"] {
            assert_eq!(without_unreal_numbers(other), None);
        }
    }

    #[test]
    fn messages_have_their_members() {
        let line = br#"{"type": "RECORD", "stream": "a\u0062", "record": {"id": 1.50}, "version": 1700000000000,
            "time_extracted": "2024-01-02T03:04:05Z", "other": []}"#;
        let Ok(TapMessage::Record(record)) = parse(line) else { panic!() };
        assert_eq!((&*record.stream, record.record.map(RawValue::get)), ("ab", Some(r#"{"id": 1.50}"#)));
        assert_eq!(record.version, Some(1_700_000_000_000u64.into()));
        assert_eq!(record.time_extracted.as_deref(), Some("2024-01-02T03:04:05Z"));
        let Ok(TapMessage::Schema(schema)) =
            parse(br#"{"type":"SCHEMA","stream":"a","schema":{"type":"object"},"key_properties":["id"]}"#)
        else {
            panic!()
        };
        assert_eq!(schema.key, ["id"]);
        assert!(matches!(parse(br#"{"type":"STATE","value":{"a":1}}"#), Ok(TapMessage::State(_))));
        assert!(matches!(
            parse(br#"{"type":"ACTIVATE_VERSION","stream":"a","version":3}"#),
            Ok(TapMessage::ActivateVersion { .. })
        ));
    }

    #[test]
    fn other_lines_are_errors_without_their_content() {
        for (line, error) in [
            ("Connecting to secret", MessageError::NotAMessage(1)),
            ("[\"STATE\", null, null, {}]", MessageError::NotAMessage(1)),
            ("7", MessageError::NotAMessage(1)),
            (r#"{"stream": "a"}"#, MessageError::NotAMessage(15)),
            (r#"{"type": "RECORD"}"#, MessageError::Incomplete("RECORD", "stream")),
            (r#"{"type": "STATE"}"#, MessageError::Incomplete("STATE", "value")),
            (r#"{"type": "BATCH", "stream": "a"}"#, MessageError::Unsupported("BATCH".to_owned())),
        ] {
            assert_eq!(parse(line.as_bytes()).unwrap_err(), error, "{line}");
        }
        assert!(parse(b"{\"type\": \"RECORD\", \"stream\": \"\xff\", \"record\": {}}").is_err());
    }

    #[test]
    fn the_beginning_of_a_record_is_known() {
        assert!(begins_record(br#"{"type": "RECORD", "stream": "a", "record": {"#));
        assert!(begins_record(br#"{"stream":"a","type":"RECORD""#));
        assert!(!begins_record(br#"{"type": "STATE", "value": {"#));
        assert!(!begins_record(br#"{"value": {"#));
    }
}
