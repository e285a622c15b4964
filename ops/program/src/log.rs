//! Lines of programs in the log of the service.

use anabranch_plugin::host::LogLevel;

/// A line of a program with its level.
#[derive(Debug, PartialEq, Eq)]
pub struct ParsedLine {
    /// The level.
    pub level: LogLevel,
    /// The text.
    pub text: String,
}

/// Returns the level that a word names, in any case.
pub fn level(word: &str) -> Option<LogLevel> {
    Some(match word.to_ascii_lowercase().as_str() {
        "trace" => LogLevel::Trace,
        "debug" => LogLevel::Debug,
        "info" => LogLevel::Info,
        "warn" | "warning" => LogLevel::Warn,
        "error" | "fatal" | "panic" | "critical" => LogLevel::Error,
        _ => return None,
    })
}

/// Writes a line of a program to the service log. `origin` is the connector, as `pipeline:connector`, or another user of the
/// program.
pub fn write(heard: &ParsedLine, origin: &str, plugin: &str) {
    let ParsedLine { level, text } = heard;
    let (pipeline, connector) = match origin.split_once(':') {
        Some((pipeline, connector)) => (Some(pipeline), connector),
        None => (None, origin),
    };
    match level {
        LogLevel::Trace => tracing::trace!(pipeline, connector, plugin, "{text}"),
        LogLevel::Debug => tracing::debug!(pipeline, connector, plugin, "{text}"),
        LogLevel::Info => tracing::info!(pipeline, connector, plugin, "{text}"),
        LogLevel::Warn => tracing::warn!(pipeline, connector, plugin, "{text}"),
        LogLevel::Error => tracing::error!(pipeline, connector, plugin, "{text}"),
    }
}
