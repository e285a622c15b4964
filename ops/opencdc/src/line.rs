//! Log lines of plugins: one JSON object per line, or text.

use serde_json::{Map, Value};

/// Severity of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Most detailed messages.
    Trace,
    /// Messages for debugging.
    Debug,
    /// Normal events.
    Info,
    /// Possible problems.
    Warn,
    /// Errors.
    Error,
}

/// A parsed line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Level of the line; `None` if it has none.
    pub level: Option<Level>,
    /// Message of the line, followed by its other fields.
    pub text: String,
}

/// Parses a line of a processor: an object with `level` and `message`, or any text. Replaces invalid UTF-8. Returns
/// `None` for a blank line.
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
