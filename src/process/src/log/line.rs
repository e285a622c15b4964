//! Formatting of log lines.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use anabranch_plugin::host::{LogLevel, LogLine};
use anabranch_record::phrase::shortened;
use anabranch_record::text::Str;
use tracing::field::{Field, Visit};

use super::LogFormat;
use crate::terminal::{is_unsafe, json_text, shown};

/// Maximum bytes of all texts of a line, so that no line is too large for the queue of lines, however many of its
/// characters are escaped.
const TEXT_BYTES: usize = 64 << 10;
/// Bytes that each text of a line may have, whatever the length of those before it.
const FEWEST_BYTES: usize = 1 << 10;

/// The format of log lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    pub(super) format: LogFormat,
    pub(super) color: bool,
    /// True if the output is a terminal. Escapes that JSON allows to leave out are then applied, so that records cannot
    /// control the terminal.
    pub(super) terminal: bool,
}

impl Style {
    /// Returns the JSON of a record, escaped for a terminal if necessary.
    pub(super) fn record(self, record: &[u8]) -> Cow<'_, [u8]> {
        if !self.terminal {
            return Cow::Borrowed(record);
        }
        match String::from_utf8_lossy(record) {
            Cow::Borrowed(text) => match json_text(text) {
                Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
                Cow::Owned(text) => Cow::Owned(text.into_bytes()),
            },
            Cow::Owned(text) => Cow::Owned(json_text(&text).into_owned().into_bytes()),
        }
    }
}

const DIM: &str = "\x1b[2m";
const RESET: &str = "\x1b[0m";

fn now() -> String {
    chrono::DateTime::<chrono::Utc>::from(std::time::SystemTime::now())
        .to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
}

/// Returns timestamp and level, the start of every line in the text format.
fn opening(level: LogLevel, color: bool) -> String {
    let (short, paint) = match level {
        LogLevel::Trace => ("TRC", "\x1b[35m"),
        LogLevel::Debug => ("DBG", "\x1b[34m"),
        LogLevel::Info => ("INF", "\x1b[32m"),
        LogLevel::Warn => ("WRN", "\x1b[33m"),
        LogLevel::Error => ("ERR", "\x1b[31m"),
    };
    if color { format!("{DIM}{}{RESET} {paint}{short}{RESET}", now()) } else { format!("{} {short}", now()) }
}

/// Returns the text before and after each record of a batch.
pub(super) fn around_record(line: &LogLine<'_>, style: Style) -> (String, &'static str) {
    match style.format {
        LogFormat::Cli => {
            let mut text = opening(line.level, style.color);
            if !line.message.is_empty() {
                text.push(' ');
                one_line(&mut text, line.message);
            }
            let pairs = [
                ("pipeline", line.pipeline),
                ("component", line.component),
                ("connector_id", line.connector),
                ("plugin_name", line.plugin),
            ];
            for (name, value) in pairs {
                pair(&mut text, name, value, style.color);
            }
            let _ = if style.color { write!(text, " {DIM}record={RESET}") } else { write!(text, " record=") };
            (text, "\n")
        }
        LogFormat::Json => {
            let mut text = json_opening(line.level);
            if !line.message.is_empty() {
                json_pair(&mut text, "message", line.message);
            }
            json_pair(&mut text, "pipeline", line.pipeline);
            json_pair(&mut text, "component", line.component);
            json_pair(&mut text, "connector_id", line.connector);
            json_pair(&mut text, "plugin_name", line.plugin);
            text.push_str(",\"record\":");
            (text, "}\n")
        }
    }
}

/// Returns the line of an event of the service.
pub(super) fn event(level: LogLevel, fields: &Fields, style: Style) -> String {
    match style.format {
        LogFormat::Cli => {
            let mut text = opening(level, style.color);
            text.push(' ');
            one_line(&mut text, &fields.message);
            for (name, value) in &fields.others {
                pair(&mut text, name, value, style.color);
            }
            text.push('\n');
            text
        }
        LogFormat::Json => {
            let mut text = json_opening(level);
            json_pair(&mut text, "message", &fields.message);
            for (name, value) in &fields.others {
                // A masked value is a string.
                if fields.bare.contains(name) && is_bare(value) {
                    let _ = write!(text, ",\"{name}\":{value}");
                } else {
                    json_pair(&mut text, name, value);
                }
            }
            text.push_str("}\n");
            if style.terminal { json_text(&text).into_owned() } else { text }
        }
    }
}

fn pair(text: &mut String, name: &str, value: &str, color: bool) {
    let _ = if color { write!(text, " {DIM}{name}={RESET}") } else { write!(text, " {name}=") };
    let plain = !value.is_empty() && !value.contains(|c: char| c.is_whitespace() || is_unsafe(c) || c == '"');
    let _ = if plain { write!(text, "{value}") } else { write!(text, "{}", shown(&format!("{value:?}"))) };
}

/// Appends a message with escapes, so that it cannot look like a second line.
fn one_line(text: &mut String, message: &str) {
    for c in message.chars() {
        match c {
            '\n' => text.push_str("\\n"),
            c if is_unsafe(c) && c != '\t' => text.extend(c.escape_default()),
            c => text.push(c),
        }
    }
}

fn json_opening(level: LogLevel) -> String {
    format!("{{\"time\":\"{}\",\"level\":\"{}\"", now(), level.as_str())
}

fn json_pair(text: &mut String, name: &str, value: &str) {
    // Writing two strings as JSON cannot fail.
    let quoted = |s: &str| serde_json::to_string(s).unwrap_or_default();
    let _ = write!(text, ",{}:{}", quoted(name), quoted(value));
}

/// Returns `true` if the text is a JSON value without quotes: a finite number, true or false.
fn is_bare(value: &str) -> bool {
    value.parse().is_ok_and(f64::is_finite) || value.parse::<bool>().is_ok()
}

/// Message and fields of an event.
#[derive(Debug, Default)]
pub(super) struct Fields {
    message: String,
    others: Vec<(&'static str, String)>,
    /// Names of fields that are numbers or booleans: in JSON they have no quotes.
    bare: Vec<&'static str>,
}

impl Fields {
    /// Creates the fields of a line from a message and the result of [`Fields::about`].
    pub(super) fn of(message: String, about: Vec<(&'static str, String)>) -> Self {
        Fields { message, others: about, bare: Vec::new() }
    }

    /// Returns the message.
    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// Returns the fields with one of these names.
    pub(super) fn about(&self, names: &[&str]) -> Vec<(&'static str, String)> {
        self.others.iter().filter(|(name, _)| names.contains(name)).cloned().collect()
    }

    /// Adds the pipeline that the thread works for, unless the line names one.
    pub(super) fn complete(&mut self, pipeline: impl FnOnce() -> Option<Str>) {
        if self.others.iter().all(|(name, _)| *name != "pipeline")
            && let Some(pipeline) = pipeline()
        {
            self.others.insert(0, ("pipeline", pipeline.to_string()));
        }
    }

    /// Applies a change to every text except the pipeline and node, which come from the pipeline file: a secret with
    /// the same text as a name must not hide the name.
    pub(super) fn each(&mut self, change: impl Fn(String) -> String) {
        self.message = change(std::mem::take(&mut self.message));
        for (_, value) in self.others.iter_mut().filter(|(name, _)| !matches!(*name, "pipeline" | "node")) {
            *value = change(std::mem::take(value));
        }
    }
}

impl Fields {
    /// Shortens the message and the fields to [`TEXT_BYTES`] in all.
    pub(super) fn shorten(&mut self) {
        let mut left = TEXT_BYTES;
        for text in std::iter::once(&mut self.message).chain(self.others.iter_mut().map(|(_, value)| value)) {
            *text = shortened(std::mem::take(text), left.max(FEWEST_BYTES));
            left = left.saturating_sub(text.len());
        }
    }

    fn bare(&mut self, field: &Field, value: &dyn fmt::Display) {
        self.bare.push(field.name());
        self.record_debug(field, &format_args!("{value}"));
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            self.others.push((field.name(), format!("{value:?}")));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.bare(field, &value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.bare(field, &value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.bare(field, &value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.bare(field, &value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.record_debug(field, &format_args!("{value}"));
    }
}
