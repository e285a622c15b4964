//! Parses the log output of plugins: JSON lines of hclog, and plain text.

use anabranch_ops_program::log::{ParsedLine, level};
use anabranch_plugin::host::LogLevel;
use serde_json::Value;

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

/// Returns the level of a line such as `[WARN] text`.
fn prefixed(line: &str) -> Option<LogLevel> {
    let (word, _) = line.strip_prefix('[')?.split_once(']')?;
    level(word)
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
}
