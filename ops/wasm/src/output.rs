//! Output of guests: log lines with their level.

use anabranch_ops_opencdc::line::{Level, read_line};
use anabranch_record::text::Str;

/// Maximum length of a line; longer ones are split.
const LONGEST: usize = 64 << 10;
/// Maximum number of characters of a line that are kept to explain the end of a guest.
const SAID: usize = 500;
/// Log target of these lines.
const TARGET: &str = "anabranch::processor";

/// Output streams of a guest.
#[derive(Clone, Copy)]
pub(crate) enum Stream {
    Output,
    Error,
}

/// Splits standard output and error of a guest into lines.
pub(crate) struct Output {
    node: Str,
    rest: [Vec<u8>; 2],
    said: Option<String>,
}

impl Output {
    pub(crate) fn new(node: Str) -> Self {
        Output { node, rest: [Vec::new(), Vec::new()], said: None }
    }

    /// Adds bytes to a stream.
    pub(crate) fn write(&mut self, stream: Stream, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            for part in piece.chunks(LONGEST) {
                let rest = &mut self.rest[stream as usize];
                rest.extend_from_slice(part);
                if rest.ends_with(b"\n") || rest.len() >= LONGEST {
                    let line = std::mem::take(rest);
                    self.line(stream, &line);
                }
            }
        }
    }

    /// Writes the rest without a line break.
    pub(crate) fn flush(&mut self) {
        for stream in [Stream::Output, Stream::Error] {
            let line = std::mem::take(&mut self.rest[stream as usize]);
            self.line(stream, &line);
        }
    }

    /// Returns the first error that was printed since the last reset.
    pub(crate) fn said(&self) -> Option<&str> {
        self.said.as_deref()
    }

    pub(crate) fn forget(&mut self) {
        self.said = None;
    }

    fn line(&mut self, stream: Stream, line: &[u8]) {
        let Some(line) = read_line(line) else { return };
        let (node, text) = (&self.node, &line.text);
        // Text without a level on standard error usually comes from a crashing runtime.
        let level = line.level.unwrap_or(match stream {
            Stream::Output => Level::Info,
            Stream::Error => Level::Warn,
        });
        let grave = level == Level::Error || matches!((stream, line.level), (Stream::Error, None));
        match &mut self.said {
            said @ None if grave => *said = Some(text.chars().take(SAID).collect()),
            // The message follows `panicked at FILE:LINE:COLUMN:` on the next line.
            Some(said) if said.ends_with(':') && said.len() < SAID => {
                said.push(' ');
                said.extend(text.chars().take(SAID));
            }
            _ => {}
        }
        match level {
            Level::Trace => tracing::trace!(target: TARGET, processor = %node, "{text}"),
            Level::Debug => tracing::debug!(target: TARGET, processor = %node, "{text}"),
            Level::Info => tracing::info!(target: TARGET, processor = %node, "{text}"),
            Level::Warn => tracing::warn!(target: TARGET, processor = %node, "{text}"),
            Level::Error => tracing::error!(target: TARGET, processor = %node, "{text}"),
        }
    }
}

/// Returns the log level by its name for guests.
pub(crate) fn level() -> &'static str {
    use tracing::Level;
    if tracing::enabled!(target: TARGET, Level::TRACE) {
        "trace"
    } else if tracing::enabled!(target: TARGET, Level::DEBUG) {
        "debug"
    } else if tracing::enabled!(target: TARGET, Level::INFO) {
        "info"
    } else if tracing::enabled!(target: TARGET, Level::WARN) {
        "warn"
    } else {
        "error"
    }
}
