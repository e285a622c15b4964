//! Parses the log output of plugins: JSON lines of hclog, and plain text.

use std::io::{ErrorKind, Read};

use anabranch_plugin::host::LogLevel;
use serde_json::Value;

/// Maximum length of a line; longer ones are split.
const LONGEST: usize = 64 << 10;

/// A parsed line of a plugin.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ParsedLine {
    pub(crate) level: LogLevel,
    pub(crate) text: String,
}

/// Parser of a stream of lines. After the start of a panic, all lines have the same level.
#[derive(Debug, Default)]
pub(crate) struct LineParser {
    panicking: bool,
}

impl LineParser {
    /// Parses a line; returns `None` if it is blank.
    pub(crate) fn hear(&mut self, line: &str) -> Option<ParsedLine> {
        let line = line.trim_end();
        if line.trim_start().is_empty() {
            return None;
        }
        let object = match line.starts_with('{') && !self.panicking {
            true => serde_json::from_str::<Value>(line).ok(),
            false => None,
        };
        if let Some(Value::Object(fields)) = object {
            return Some(structured(fields));
        }
        self.panicking |= line.starts_with("panic: ") || line.starts_with("fatal error: ");
        let level = match self.panicking {
            true => LogLevel::Error,
            false => prefixed(line).unwrap_or(LogLevel::Debug),
        };
        Some(ParsedLine { level, text: line.to_owned() })
    }
}

fn structured(mut fields: serde_json::Map<String, Value>) -> ParsedLine {
    let plain = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    let level = fields.remove("@level").map(plain).and_then(|word| level(&word)).unwrap_or(LogLevel::Debug);
    let mut text = fields.remove("@message").map(plain).unwrap_or_default();
    for ours in ["@timestamp", "@module", "@caller"] {
        fields.remove(ours);
    }
    for (name, value) in fields {
        text.push_str(if text.is_empty() { "" } else { " " });
        text.push_str(&name);
        text.push('=');
        text.push_str(&plain(value));
    }
    ParsedLine { level, text }
}

fn level(word: &str) -> Option<LogLevel> {
    Some(match word.to_ascii_lowercase().as_str() {
        "trace" => LogLevel::Trace,
        "debug" => LogLevel::Debug,
        "info" => LogLevel::Info,
        "warn" | "warning" => LogLevel::Warn,
        "error" | "fatal" | "panic" => LogLevel::Error,
        _ => return None,
    })
}

/// Returns the level of a line such as `[WARN] text`.
fn prefixed(line: &str) -> Option<LogLevel> {
    let (word, _) = line.strip_prefix('[')?.split_once(']')?;
    level(word)
}

/// Writes a line of a plugin to the service log.
pub(crate) fn write(heard: &ParsedLine, connector: &str, plugin: &str) {
    let ParsedLine { level, text } = heard;
    match level {
        LogLevel::Trace => tracing::trace!(connector, plugin, "{text}"),
        LogLevel::Debug => tracing::debug!(connector, plugin, "{text}"),
        LogLevel::Info => tracing::info!(connector, plugin, "{text}"),
        LogLevel::Warn => tracing::warn!(connector, plugin, "{text}"),
        LogLevel::Error => tracing::error!(connector, plugin, "{text}"),
    }
}

/// Splits a byte stream into lines.
#[derive(Debug, Default)]
pub(crate) struct LineSplitter {
    rest: Vec<u8>,
}

impl LineSplitter {
    /// Adds bytes and passes the completed lines to `each`.
    pub(crate) fn push(&mut self, mut piece: &[u8], mut each: impl FnMut(&str)) {
        while !piece.is_empty() {
            let room = LONGEST - self.rest.len();
            let end = piece.iter().take(room).position(|byte| *byte == b'\n');
            let (line, after, whole) = match end {
                Some(end) => (&piece[..end], &piece[end + 1..], true),
                None => {
                    let (line, after) = piece.split_at(piece.len().min(room));
                    (line, after, line.len() == room)
                }
            };
            self.rest.extend_from_slice(line);
            piece = after;
            if whole {
                self.finish(&mut each);
            }
        }
    }

    /// Passes the rest without a newline to `each`.
    pub(crate) fn finish(&mut self, mut each: impl FnMut(&str)) {
        if !self.rest.is_empty() {
            each(&String::from_utf8_lossy(&self.rest));
            self.rest.clear();
        }
    }
}

/// Reads a stream to its end, line by line.
pub(crate) fn drain(mut from: impl Read, mut each: impl FnMut(&str)) {
    let mut lines = LineSplitter::default();
    let mut piece = vec![0; 8 << 10];
    loop {
        match from.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => lines.push(&piece[..read], &mut each),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    lines.finish(&mut each);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hear(line: &str) -> (LogLevel, String) {
        let heard = LineParser::default().hear(line).unwrap();
        (heard.level, heard.text)
    }

    #[test]
    fn lines_have_levels_and_fields() {
        let line = r#"{"@level":"info","@message":"opened","@timestamp":"x","component":"plugin","n":3,"e":{"a":1}}"#;
        assert_eq!(hear(line), (LogLevel::Info, "opened component=plugin e={\"a\":1} n=3".to_owned()));
        assert_eq!(hear("{\"@level\":\"shout\"}").0, LogLevel::Debug);
        assert_eq!(hear("[WARN] careful"), (LogLevel::Warn, "[WARN] careful".to_owned()));
        assert_eq!(hear("{not json").0, LogLevel::Debug);
        assert_eq!(LineParser::default().hear("  \r\n"), None);
    }

    #[test]
    fn a_panic_is_an_error_to_its_end() {
        let mut voice = LineParser::default();
        let levels: Vec<LogLevel> = ["fine", "panic: boom", "goroutine 1 [running]:", "{\"@level\":\"info\"}"]
            .into_iter()
            .map(|line| voice.hear(line).unwrap().level)
            .collect();
        assert_eq!(levels, [LogLevel::Debug, LogLevel::Error, LogLevel::Error, LogLevel::Error]);
    }

    #[test]
    fn pieces_are_joined_to_lines_and_long_lines_cut() {
        let mut lines = LineSplitter::default();
        let mut heard = Vec::new();
        for piece in ["on", "e\ntwo\n\nthr", "ee"] {
            lines.push(piece.as_bytes(), |line| heard.push(line.to_owned()));
        }
        lines.finish(|line| heard.push(line.to_owned()));
        assert_eq!(heard, ["one", "two", "three"]);
        let mut longest = Vec::new();
        drain("x".repeat(2 * LONGEST + 5).as_bytes(), |line| longest.push(line.len()));
        assert_eq!(longest, [LONGEST, LONGEST, 5]);
    }
}
