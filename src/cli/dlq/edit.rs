//! An edited record: from a file, from standard input, or from an editor.

use std::io::{IsTerminal as _, Read as _, Write as _};
use std::path::Path;
use std::process::Command;

use anabranch_graph::record::Record;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::cli::{Exit, Report};
use crate::files::system;

/// A record that was given.
pub(super) struct Edited {
    /// Its JSON form.
    pub(super) json: Value,
    /// It.
    pub(super) record: Record,
}

/// The record in a file, or on standard input where the name is `-`.
pub(super) fn read(command: &'static str, name: &str) -> Result<Edited, Box<Report>> {
    let mut text = Vec::new();
    let read = match name {
        "-" => std::io::stdin().lock().read_to_end(&mut text),
        path => std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut text)),
    };
    let shown = if name == "-" { "standard input" } else { name };
    read.map_err(|error| {
        let message = format!("cannot read {shown}: {}", system(&error));
        Box::new(Report::new(command).fail(Exit::Environment, "dlq.unreadable", message))
    })?;
    understood(command, shown, &text)
}

/// Lets the user edit a record; `None` where nothing was changed.
pub(super) fn edit(command: &'static str, record: &Value) -> Result<Option<Edited>, Box<Report>> {
    let failed = |exit, message: String| Box::new(Report::new(command).fail(exit, "dlq.no_editor", message));
    let editor = ["VISUAL", "EDITOR"].iter().find_map(|name| std::env::var(name).ok().filter(|text| !text.is_empty()));
    let Some(editor) = editor.filter(|_| std::io::stdin().is_terminal()) else {
        let report =
            Report::new(command).fail(Exit::Invalid, "dlq.no_editor", "there is no editor to edit the record with");
        return Err(Box::new(report.suggest("set EDITOR on a terminal, or give the record: --edit FILE, --edit -")));
    };
    let system = |error: &std::io::Error| failed(Exit::Environment, format!("cannot edit: {}", system(error)));
    let before = format!("{}\n", serde_json::to_string_pretty(record).unwrap_or_default());
    let mut file =
        tempfile::Builder::new().prefix("letter-").suffix(".json").tempfile().map_err(|error| system(&error))?;
    file.write_all(before.as_bytes()).and_then(|()| file.flush()).map_err(|error| system(&error))?;
    let path: &Path = file.path();
    // The variable may hold arguments, as the shell would take them.
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
        // What somebody wrote is not thrown away for a comma.
        Err(report) => Err(match file.keep() {
            Ok((_, kept)) => Box::new(report.suggest(format!("correct it and give it: --edit {}", kept.display()))),
            Err(_) => report,
        }),
    }
}

/// What `dlq show --json` prints, as far as it matters here.
#[derive(Deserialize)]
struct Shown<'a> {
    #[serde(borrow)]
    result: ShownLetter<'a>,
}

#[derive(Deserialize)]
struct ShownLetter<'a> {
    #[serde(borrow)]
    record: &'a RawValue,
}

/// The record of a text, which is that alone or all that `dlq show --json` prints, and where in the text it begins.
fn record_of(text: &[u8]) -> (&[u8], usize) {
    match serde_json::from_slice::<Shown<'_>>(text) {
        Ok(shown) => {
            let record = shown.result.record.get().as_bytes();
            (record, record.as_ptr().addr().saturating_sub(text.as_ptr().addr()))
        }
        Err(_) => (text, 0),
    }
}

fn understood(command: &'static str, shown: &str, text: &[u8]) -> Result<Edited, Box<Report>> {
    let (written, begin) = record_of(text);
    let record = Record::from_json(written).map_err(|error| {
        let (line, column) = place(text, begin + error.offset);
        let message = format!("{shown}:{line}:{column}: this is not a record in JSON: {}", error.message);
        let report = Report::new(command).fail(Exit::Invalid, "dlq.invalid_record", message);
        Box::new(report.suggest("`anabranch dlq show` shows the form"))
    })?;
    let json = serde_json::from_slice(written).map_err(|error| {
        let report = Report::new(command).fail(Exit::Invalid, "dlq.invalid_record", format!("{shown}: {error}"));
        Box::new(report.suggest("`anabranch dlq show` shows the form"))
    })?;
    Ok(Edited { json, record })
}

/// Line and column, from 1.
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
}
