//! What guests print: lines for the log, with the level they were printed at.

use anabranch_graph::text::Str;
use serde_json::{Map, Value};

/// Longer lines are cut into several.
const LONGEST: usize = 64 << 10;

/// Splits what a guest writes to standard output and error into lines.
pub(crate) struct Output {
    node: Str,
    rest: [Vec<u8>; 2],
}

impl Output {
    pub(crate) fn new(node: Str) -> Self {
        Output { node, rest: [Vec::new(), Vec::new()] }
    }

    /// Takes a piece of a stream: 0 is standard output, 1 standard error.
    pub(crate) fn write(&mut self, stream: usize, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            for part in piece.chunks(LONGEST) {
                let rest = &mut self.rest[stream];
                rest.extend_from_slice(part);
                if rest.ends_with(b"\n") || rest.len() >= LONGEST {
                    let line = std::mem::take(rest);
                    self.line(&line);
                }
            }
        }
    }

    /// Writes what no line break ended.
    pub(crate) fn flush(&mut self) {
        for stream in 0..self.rest.len() {
            let line = std::mem::take(&mut self.rest[stream]);
            self.line(&line);
        }
    }

    fn line(&self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        let text = text.trim_end();
        if text.is_empty() {
            return;
        }
        let (level, text) = match serde_json::from_str::<Map<String, Value>>(text) {
            Ok(mut fields) => {
                fields.remove("time");
                let level = fields.remove("level");
                let message = fields.remove("message");
                let mut said = message.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
                if !fields.is_empty() {
                    said = format!("{said} {}", Value::Object(fields));
                }
                (level.as_ref().and_then(Value::as_str).unwrap_or("info").to_owned(), said)
            }
            Err(_) => ("info".to_owned(), text.to_owned()),
        };
        let (node, text) = (&self.node, text.trim());
        match level.as_str() {
            "trace" => tracing::trace!(target: "processor", processor = %node, "{text}"),
            "debug" => tracing::debug!(target: "processor", processor = %node, "{text}"),
            "warn" => tracing::warn!(target: "processor", processor = %node, "{text}"),
            "error" | "fatal" | "panic" => tracing::error!(target: "processor", processor = %node, "{text}"),
            _ => tracing::info!(target: "processor", processor = %node, "{text}"),
        }
    }
}

/// The level of the log, in the guests' words.
pub(crate) fn level() -> &'static str {
    use tracing::Level;
    if tracing::enabled!(target: "processor", Level::TRACE) {
        "trace"
    } else if tracing::enabled!(target: "processor", Level::DEBUG) {
        "debug"
    } else if tracing::enabled!(target: "processor", Level::INFO) {
        "info"
    } else if tracing::enabled!(target: "processor", Level::WARN) {
        "warn"
    } else {
        "error"
    }
}
