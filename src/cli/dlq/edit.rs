//! Edited records: read from a file, from standard input, or from an editor.

use std::io::{IsTerminal as _, Read as _, Write as _};
use std::path::Path;
use std::process::Command;

use anabranch_process::files::system;
use anabranch_record::Record;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::show::text_of;
use crate::cli::{Exit, Report};
use crate::codes;

/// A record that the user wrote.
pub(super) struct Edited {
    /// Its JSON form.
    pub(super) json: Value,
    /// The record.
    pub(super) record: Record,
}

/// Reads a record from a file, or from standard input if the name is `-`.
pub(super) fn read(command: &'static str, name: &str) -> Result<Edited, Box<Report>> {
    let mut text = Vec::new();
    let read = match name {
        "-" => std::io::stdin().lock().read_to_end(&mut text),
        path => std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut text)),
    };
    let shown = if name == "-" { "standard input" } else { name };
    read.map_err(|error| {
        let message = format!("cannot read {shown}: {}", system(&error));
        Box::new(Report::new(command).fail(Exit::Environment, codes::DLQ_UNREADABLE, message))
    })?;
    understood(command, shown, &text)
}

/// Opens a record in the user's editor; returns `None` if the record was not changed.
pub(super) fn edit(command: &'static str, record: &Value) -> Result<Option<Edited>, Box<Report>> {
    let failed = |exit, message: String| Box::new(Report::new(command).fail(exit, codes::DLQ_NO_EDITOR, message));
    let editor = ["VISUAL", "EDITOR"].iter().find_map(|name| std::env::var(name).ok().filter(|text| !text.is_empty()));
    let Some(editor) = editor.filter(|_| std::io::stdin().is_terminal()) else {
        let report =
            Report::new(command).fail(Exit::Invalid, codes::DLQ_NO_EDITOR, "there is no editor for the record");
        return Err(Box::new(report.suggest(
            "set EDITOR and run the command in a terminal, or give the record with --edit FILE or --edit -",
        )));
    };
    let system = |error: &std::io::Error| failed(Exit::Environment, format!("cannot edit: {}", system(error)));
    let before = format!("{}\n", serde_json::to_string_pretty(&readable(record)).unwrap_or_default());
    let mut file =
        tempfile::Builder::new().prefix("letter-").suffix(".json").tempfile().map_err(|error| system(&error))?;
    file.write_all(before.as_bytes()).and_then(|()| file.flush()).map_err(|error| system(&error))?;
    let path: &Path = file.path();
    // The variable can contain arguments, so a shell splits it.
    let status = Command::new("sh").arg("-c").arg(format!("{editor} \"$1\"")).arg("editor").arg(path).status();
    let status = status.map_err(|error| system(&error))?;
    if !status.success() {
        return Err(failed(Exit::Failed, format!("{editor} ended with {status}: nothing was replayed")));
    }
    let after = std::fs::read(path).map_err(|error| system(&error))?;
    if after == before.as_bytes() {
        return Ok(None);
    }
    match understood(command, "the edited record", &after) {
        Ok(edited) => Ok(Some(edited)),
        // The edited text is kept, so that the user can correct it.
        Err(report) => Err(match file.keep() {
            Ok((_, kept)) => Box::new(report.suggest(format!("correct the text, then add --edit {}", kept.display()))),
            Err(_) => report,
        }),
    }
}

/// The part of the output of `dlq show --json` that is used here.
#[derive(Deserialize)]
struct ShowOutput<'a> {
    #[serde(borrow)]
    result: ShownLetter<'a>,
}

#[derive(Deserialize)]
struct ShownLetter<'a> {
    #[serde(borrow)]
    record: &'a RawValue,
}

/// Returns the JSON of the record in a text, and its offset. The text is the record itself or the output of `dlq show
/// --json`.
fn record_of(text: &[u8]) -> (&[u8], usize) {
    match serde_json::from_slice::<ShowOutput<'_>>(text) {
        Ok(shown) => {
            let record = shown.result.record.get().as_bytes();
            (record, record.as_ptr().addr().saturating_sub(text.as_ptr().addr()))
        }
        Err(_) => (text, 0),
    }
}

/// Raw data as text, as an edited record can contain it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawText {
    #[serde(rename = "$text")]
    text: String,
}

/// The parts of a record that can be raw data.
const PARTS: [&str; 3] = ["/key", "/payload/before", "/payload/after"];

/// Returns the record with raw data as text, if it is printable text, for editing.
fn readable(record: &Value) -> Value {
    let mut record = record.clone();
    for part in PARTS {
        if let Some(data) = record.pointer_mut(part)
            && let Some(text) = data.as_str().and_then(text_of)
        {
            *data = json!({ "$text": text });
        }
    }
    record
}

#[derive(Deserialize)]
struct RawParts<'a> {
    #[serde(borrow, default)]
    key: Option<&'a RawValue>,
    #[serde(borrow, default)]
    payload: Option<RawPayload<'a>>,
}

#[derive(Deserialize)]
struct RawPayload<'a> {
    #[serde(borrow, default)]
    before: Option<&'a RawValue>,
    #[serde(borrow, default)]
    after: Option<&'a RawValue>,
}

/// Returns the record in its usual JSON form, with raw data as base64, and the places where its length changed: up to
/// which byte, and by how much. Everything else stays as written.
fn exact(written: &[u8]) -> (Vec<u8>, Vec<(usize, isize)>) {
    let mut exact = Vec::with_capacity(written.len());
    let mut moved = Vec::new();
    let parts = serde_json::from_slice::<RawParts<'_>>(written).ok();
    let parts = parts.into_iter().flat_map(|parts| {
        let sides = parts.payload.map(|sides| [sides.before, sides.after]);
        [parts.key].into_iter().chain(sides.into_iter().flatten()).flatten()
    });
    let mut texts: Vec<(usize, usize, String)> = parts
        .filter_map(|part| {
            let RawText { text } = serde_json::from_str(part.get()).ok()?;
            let begin = part.get().as_ptr().addr() - written.as_ptr().addr();
            Some((begin, begin + part.get().len(), text))
        })
        .collect();
    texts.sort_unstable();
    let mut done = 0;
    for (begin, end, text) in texts {
        exact.extend_from_slice(&written[done..begin]);
        exact.extend_from_slice(format!("\"{}\"", STANDARD.encode(text)).as_bytes());
        done = end;
        moved.push((exact.len(), done as isize - exact.len() as isize));
    }
    exact.extend_from_slice(&written[done..]);
    (exact, moved)
}

fn understood(command: &'static str, shown: &str, text: &[u8]) -> Result<Edited, Box<Report>> {
    let (written, begin) = record_of(text);
    let (exact, moved) = exact(written);
    let record = Record::from_json(&exact).map_err(|error| {
        let moved = moved.iter().rfind(|(from, _)| *from <= error.offset).map_or(0, |(_, by)| *by);
        let (line, column) = place(text, begin + error.offset.saturating_add_signed(moved));
        let message = format!("{shown}:{line}:{column}: not a record in JSON: {}", error.message);
        let report = Report::new(command).fail(Exit::Invalid, codes::DEAD_LETTER_INVALID_RECORD, message);
        Box::new(report.suggest("`anabranch dlq show PIPELINE NUMBER --json` prints one"))
    })?;
    let json = serde_json::from_slice(&exact).map_err(|error| {
        let report =
            Report::new(command).fail(Exit::Invalid, codes::DEAD_LETTER_INVALID_RECORD, format!("{shown}: {error}"));
        Box::new(report.suggest("`anabranch dlq show PIPELINE NUMBER --json` shows the format"))
    })?;
    Ok(Edited { json, record })
}

/// Returns line and column, counted from 1.
fn place(text: &[u8], offset: usize) -> (usize, usize) {
    let before = &text[..offset.min(text.len())];
    let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    (line, String::from_utf8_lossy(&before[line_start..]).chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_is_shown_with_its_place() {
        let text = b"{\n  \"operation\": \"creat\"\n}";
        let error = Record::from_json(text).unwrap_err();
        assert_eq!(place(text, error.offset).0, 2);
        assert_eq!(place(b"x", 0), (1, 1));
    }

    #[test]
    fn the_record_is_found_in_what_show_prints() {
        let bare = br#"{"operation":"create"}"#;
        assert_eq!(record_of(bare), (&bare[..], 0));
        let whole = br#"{"ok":true,"result":{"number":1,"record": {"n":1e400} },"summary":{}}"#;
        assert_eq!(record_of(whole), (&br#"{"n":1e400}"#[..], 42));
        for other in [&b"{"[..], br#"{"result":null}"#, br#"{"result":{}}"#, b"[]", b"\xff"] {
            assert_eq!(record_of(other), (other, 0));
        }
    }

    #[test]
    fn raw_data_are_edited_as_text() {
        let record = serde_json::json!({
            "position": "MQ==", "operation": "create", "metadata": {}, "key": "OA==",
            "payload": { "before": "/w==", "after": "bGluZSAiNyIK" },
        });
        let shown = readable(&record);
        assert_eq!(shown["payload"], serde_json::json!({ "before": "/w==", "after": { "$text": "line \"7\"\n" } }));
        let text = serde_json::to_string_pretty(&shown).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&exact(text.as_bytes()).0).unwrap(), record);
        // Such a field among other fields is an ordinary field, and numbers keep their notation.
        let fields = br#"{"payload":{"after":{"$text":"x","n":1e400}}}"#;
        assert_eq!(exact(fields).0, fields);
        // A mistake behind text has its place in what was written.
        let wrong = b"{\"key\":{\"$text\":\"long enough\"},\n\"operation\":\"creat\"}";
        let Err(report) = understood("c", "f", wrong) else { panic!("it is wrong") };
        let envelope = report.envelope().to_string();
        assert!(envelope.contains("f:2:"), "{envelope}");
    }
}
