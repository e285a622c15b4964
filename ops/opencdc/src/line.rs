//! Lines that plugins print for the log: one JSON object per line, or text.

use serde_json::{Map, Value};

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Everything.
    Trace,
    /// For who looks for a fault.
    Debug,
    /// The course of things.
    Info,
    /// Something to look at.
    Warn,
    /// Something is broken.
    Error,
}

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its level; `None` = the line says none.
    pub level: Option<Level>,
    /// Its message, with what else is in the line after it.
    pub text: String,
}

/// Reads a line of a processor: an object with `level` and `message`, or any text. Bytes that are no UTF-8 are
/// replaced. A line of white space is `None`.
pub fn read_line(line: &[u8]) -> Option<Line> {
    let text = String::from_utf8_lossy(line);
    let text = text.trim();
    if text.is_empty() {
        return None;
    }
    let Ok(mut fields) = serde_json::from_str::<Map<String, Value>>(text) else {
        return Some(Line { level: None, text: text.to_owned() });
    };
    fields.remove("time");
    let level = match fields.remove("level").as_ref().and_then(Value::as_str) {
        Some("trace") => Some(Level::Trace),
        Some("debug") => Some(Level::Debug),
        Some("info") => Some(Level::Info),
        Some("warn") => Some(Level::Warn),
        Some("error" | "fatal" | "panic") => Some(Level::Error),
        _ => None,
    };
    let mut text = match fields.remove("message") {
        Some(Value::String(message)) => message.trim().to_owned(),
        Some(other) => other.to_string(),
        None => String::new(),
    };
    if !fields.is_empty() {
        text.push_str(if text.is_empty() { "" } else { " " });
        text.push_str(&Value::Object(fields).to_string());
    }
    Some(Line { level, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Option<Level>, String) {
        let line = read_line(text.as_bytes()).unwrap();
        (line.level, line.text)
    }

    #[test]
    fn objects_have_a_level_and_a_message() {
        let object = r#"{"level":"warn","time":"2026-01-01T00:00:00Z","error":"no","message":"it failed","n":1}"#;
        assert_eq!(read(object), (Some(Level::Warn), r#"it failed {"error":"no","n":1}"#.to_owned()));
        assert_eq!(read(r#"{"level":"panic","message":5}"#), (Some(Level::Error), "5".to_owned()));
        assert_eq!(read(r#"{"level":"loud"}"#), (None, String::new()));
    }

    #[test]
    fn anything_else_is_text() {
        assert_eq!(read("panic: index out of range \n"), (None, "panic: index out of range".to_owned()));
        assert_eq!(read("[1]"), (None, "[1]".to_owned()));
        assert_eq!(read_line(b" \t\r\n"), None);
        assert!(read_line(b"\xff\xfe").is_some());
    }
}
