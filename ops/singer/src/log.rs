//! Parses the log output of taps: the formats of Python's logging in the common libraries of taps, and plain text.

use anabranch_ops_program::log::{ParsedLine, level};
use anabranch_plugin::host::LogLevel;

/// Parser of the lines of a tap.
#[derive(Debug)]
pub(crate) struct TapLog {
    /// Level of lines without a level, which continue the line before.
    last: LogLevel,
}

impl Default for TapLog {
    fn default() -> Self {
        TapLog { last: LogLevel::Info }
    }
}

impl TapLog {
    /// Parses a line; returns `None` if it is blank.
    pub(crate) fn parse(&mut self, line: &str) -> Option<ParsedLine> {
        let line = line.trim_end();
        if line.trim_start().is_empty() {
            return None;
        }
        if line.starts_with("Traceback ") {
            self.last = LogLevel::Error;
        } else if let Some(level) = level_of(line) {
            self.last = level;
        }
        Some(ParsedLine { level: self.last, text: line.to_owned() })
    }
}

/// Returns the level of `INFO text`, `2024-01-01 00:00:00,000 | INFO | tap | text` and `time=… level=INFO message=…`.
fn level_of(line: &str) -> Option<LogLevel> {
    let first = line.split([' ', ':']).next().unwrap_or_default();
    // A word at the start of a sentence is not a level.
    if first.chars().all(|c| c.is_ascii_uppercase())
        && let Some(level) = level(first)
    {
        return Some(level);
    }
    let separated = line.split(" | ").nth(1).and_then(|word| level(word.trim()));
    let named = || line.split_once("level=").and_then(|(_, rest)| level(rest.split(' ').next()?));
    separated.or_else(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_the_levels_of_their_loggers() {
        let mut log = TapLog::default();
        let mut level = |line: &str| log.parse(line).map(|line| line.level);
        assert_eq!(level("starting"), Some(LogLevel::Info));
        assert_eq!(level("WARNING no bookmark"), Some(LogLevel::Warn));
        assert_eq!(level("Error words are not levels"), Some(LogLevel::Warn));
        assert_eq!(level("2024-01-01 10:00:00,123 | INFO     | tap-x | Beginning sync"), Some(LogLevel::Info));
        assert_eq!(level("time=2024-01-01 10:00:00 name=tap_mysql level=CRITICAL message=boom"), Some(LogLevel::Error));
        assert_eq!(level("DEBUG x"), Some(LogLevel::Debug));
        assert_eq!(level("Traceback (most recent call last):"), Some(LogLevel::Error));
        assert_eq!(level("  File \"tap.py\", line 1"), Some(LogLevel::Error));
        assert_eq!(level("   "), None);
    }
}
