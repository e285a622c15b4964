//! An edited record: from a file, from standard input, or from an editor.

use std::io::{IsTerminal as _, Read as _, Write as _};
use std::path::Path;
use std::process::Command;

use anabranch_graph::json::JsonError;
use anabranch_graph::record::Record;
use serde_json::Value;

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

fn understood(command: &'static str, shown: &str, text: &[u8]) -> Result<Edited, Box<Report>> {
    let record = Record::from_json(text).map_err(|error| {
        let (line, column) = place(text, &error);
        let message = format!("{shown}:{line}:{column}: this is not a record in JSON: {}", error.message);
        let report = Report::new(command).fail(Exit::Invalid, "dlq.invalid_record", message);
        Box::new(report.suggest("`anabranch dlq show` shows the form"))
    })?;
    Ok(Edited { json: serde_json::from_slice(text).unwrap_or_default(), record })
}

/// Line and column, from 1.
fn place(text: &[u8], error: &JsonError) -> (usize, usize) {
    let before = &text[..error.offset.min(text.len())];
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
        assert_eq!(place(text, &error).0, 2);
        assert_eq!(place(b"x", &JsonError { offset: 0, message: String::new() }), (1, 1));
    }
}
