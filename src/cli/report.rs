//! The result of a command, as text or as JSON, and its exit code.

use std::borrow::Cow;
use std::io::ErrorKind;

use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics, Files};
use anabranch_process::files::output::Unwritable;
use anabranch_process::files::system;
use anabranch_process::terminal::{self, Stream};
use anabranch_record::code::Code;

pub(super) use anabranch_record::phrase::counted;
use serde_json::{Value, json};

use crate::client::ClientError;
use crate::codes;
use crate::renamed;

/// Exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// Done, or cancelled by the user.
    Ok = 0,
    /// Failed at run time.
    Failed = 1,
    /// The input is not valid.
    Invalid = 2,
    /// The environment prevents it: a resource is in use, out of reach or not permitted, or draining took too long.
    Environment = 3,
    /// The running service differs from the files, and nothing was changed.
    Drift = 4,
    /// `run --once`: nothing was read, because the sources had nothing to read.
    NothingRead = 5,
    /// `run --once`: a limit of a dead-letter queue removed dead letters.
    LettersDropped = 6,
    /// `run --once`: it was stopped before everything was read, or a source left something for a later run.
    Interrupted = 7,
}

/// The result of a command.
#[derive(Debug)]
pub struct Report {
    command: &'static str,
    exit: Exit,
    /// For standard output, in text mode.
    text: String,
    /// For standard error, in text mode.
    notes: String,
    summary: Value,
    result: Value,
    streamed: bool,
    error: Option<Error>,
}

/// The reason why a command failed.
#[derive(Debug)]
struct Error {
    code: Cow<'static, str>,
    message: String,
    suggestion: Option<String>,
    /// Place of the error in the input, as a JSON pointer.
    path: Option<String>,
}

impl Report {
    /// Creates the report of a command that succeeded.
    pub fn new(command: &'static str) -> Self {
        Report {
            command,
            exit: Exit::Ok,
            text: String::new(),
            notes: String::new(),
            summary: json!({}),
            result: Value::Null,
            streamed: false,
            error: None,
        }
    }

    /// Sets the text for standard output.
    #[must_use]
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.text = text.into();
        self
    }

    /// Sets the text for standard error.
    #[must_use]
    pub fn notes(mut self, text: impl Into<String>) -> Self {
        self.notes = text.into();
        self
    }

    /// Sets the counts in the JSON output.
    #[must_use]
    pub fn summary(mut self, summary: Value) -> Self {
        self.summary = summary;
        self
    }

    /// Sets the result in the JSON output.
    #[must_use]
    pub fn result(mut self, result: Value) -> Self {
        self.result = result;
        self
    }

    /// Marks that the command worked and found problems: `ok` is false, and there is no error.
    #[must_use]
    pub fn found(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// Marks the command as failed.
    #[must_use]
    pub fn fail(self, exit: Exit, code: Code, message: impl Into<String>) -> Self {
        self.relayed(exit, code.name(), message)
    }

    /// Marks the command as failed with a code that a service sent.
    #[must_use]
    pub fn relayed(mut self, exit: Exit, code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        self.exit = exit;
        self.error = Some(Error { code: code.into(), message: message.into(), suggestion: None, path: None });
        self
    }

    /// Marks the command as failed because of a service call.
    #[must_use]
    pub fn refused(self, error: &ClientError) -> Self {
        let (exit, path) = match error {
            ClientError::Refused(refusal) => (
                match refusal.status.as_u16() {
                    // Missing rights, too many requests, or a service that stops or cannot reach its store.
                    401 | 403 | 408 | 429 | 503 | 504 => Exit::Environment,
                    400..=499 => Exit::Invalid,
                    _ => Exit::Failed,
                },
                refusal.path.clone(),
            ),
            ClientError::Token(_) | ClientError::Tls(_) => (Exit::Invalid, None),
            ClientError::Broken { .. } | ClientError::NotHttp { .. } => (Exit::Failed, None),
            _ => (Exit::Environment, None),
        };
        let mut report = self.relayed(exit, error.code().to_owned(), error.to_string());
        if let Some(failed) = &mut report.error {
            failed.suggestion = error.suggestion().map(str::to_owned);
            failed.path = path;
        }
        report
    }

    /// Marks that the result is on standard output already, in its own format, so that no JSON object follows.
    #[must_use]
    pub fn streamed(mut self) -> Self {
        self.streamed = true;
        self
    }

    /// Returns `true` if the input is not valid.
    pub fn is_invalid(&self) -> bool {
        self.exit == Exit::Invalid
    }

    /// The command failed: it cannot write a file that the user named. `system`: the code where the system refuses.
    #[must_use]
    pub fn unwritable(self, system: Code, error: &Unwritable) -> Self {
        let (exit, code) = match error {
            Unwritable::Directory(_) | Unwritable::Taken { .. } => (Exit::Invalid, codes::CLI_OUTPUT_TAKEN),
            Unwritable::System { .. } => (Exit::Environment, system),
        };
        let report = self.fail(exit, code, error.to_string());
        match error.remedy() {
            Some(remedy) => report.suggest(remedy),
            None => report,
        }
    }

    /// Sets the remedy for the failure.
    #[must_use]
    pub fn suggest(mut self, suggestion: impl Into<String>) -> Self {
        if let Some(error) = &mut self.error {
            error.suggestion = Some(suggestion.into());
        }
        self
    }

    /// Returns the JSON output.
    pub fn envelope(&self) -> Value {
        let error = self.error.as_ref().map(|error| {
            let mut shown = json!({ "code": error.code, "message": error.message });
            let more = [("suggestion", &error.suggestion), ("configPath", &error.path)];
            for (name, text) in more.into_iter().filter_map(|(name, text)| Some((name, text.as_deref()?))) {
                shown[name] = text.into();
            }
            if let Some(old) = renamed::old_code(self.command, &error.code) {
                shown["oldCode"] = old.into();
            }
            shown
        });
        json!({
            "command": self.command,
            "ok": self.exit == Exit::Ok,
            "summary": self.summary,
            "result": self.result,
            "error": error,
        })
    }

    /// Replaces a text in all of the JSON output.
    #[must_use]
    pub(super) fn replaced(mut self, text: &str, by: &str) -> Self {
        fn replace(value: &mut Value, text: &str, by: &str) {
            match value {
                Value::String(found) if found.contains(text) => *found = found.replace(text, by),
                Value::Array(items) => items.iter_mut().for_each(|item| replace(item, text, by)),
                Value::Object(members) => members.values_mut().for_each(|member| replace(member, text, by)),
                _ => {}
            }
        }
        replace(&mut self.result, text, by);
        if let Some(error) = &mut self.error {
            error.message = error.message.replace(text, by);
            error.suggestion = error.suggestion.take().map(|suggestion| suggestion.replace(text, by));
        }
        self
    }

    /// Prints the report. A reader that closed the pipe is not an error; a full disk is.
    pub fn print(self, as_json: bool) -> Exit {
        let printed = if as_json && !self.streamed {
            terminal::print_json(Stream::Out, &format!("{}\n", self.envelope()))
        } else {
            let mut notes = self.notes;
            if let Some(Error { message, suggestion, .. }) = self.error {
                notes.push_str(&format!("error: {message}\n"));
                if let Some(suggestion) = suggestion {
                    notes.push_str(&format!("  {suggestion}\n"));
                }
            }
            let _ = terminal::print(Stream::Err, &notes);
            terminal::print(Stream::Out, &self.text)
        };
        ended(printed, self.exit)
    }
}

/// Returns the exit code of a command after printing. A reader that closed the pipe is not an error.
pub(super) fn ended(printed: std::io::Result<()>, exit: Exit) -> Exit {
    match printed {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            let message = format!("error: cannot write to standard output: {}\n", system(&error));
            let _ = terminal::print(Stream::Err, &message);
            exit.max(Exit::Environment)
        }
        _ => exit,
    }
}

/// Converts findings to JSON.
pub(super) fn findings(findings: &Diagnostics, files: &Files) -> Vec<Value> {
    findings.iter().map(|finding| one(finding, files)).collect()
}

/// Converts a finding to JSON.
pub(super) fn one(finding: &Diagnostic, files: &Files) -> Value {
    let place = finding.label.as_ref().and_then(|label| files.locate(label.span));
    let fix = finding
        .fix
        .as_ref()
        .map(|fix| json!({ "configPath": finding.path, "op": "replace", "was": fix.was, "value": fix.becomes }));
    json!({
        "severity": finding.severity,
        "code": finding.code.name(),
        "message": finding.message,
        "configPath": finding.path,
        "suggestion": finding.hint,
        "fix": fix,
        "file": place.as_ref().map(|p| p.file.as_str()),
        "line": place.as_ref().map(|p| p.line),
        "column": place.as_ref().map(|p| p.column),
    })
}
