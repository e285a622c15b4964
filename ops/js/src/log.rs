//! Log lines that scripts write to the service log.

use anabranch_record::text::Str;
use tracing::Level;

/// Log target of the lines; lines of other targets are not kept.
const TARGET: &str = "anabranch::processor";

/// Receiver of a script's log lines.
pub(crate) trait LineReceiver {
    /// Returns `true` if lines of this level are kept. Other lines are not formatted.
    fn enabled(&self, level: Level) -> bool;

    /// Writes a line.
    fn write(&self, level: Level, text: &str);
}

/// Log of this process; the field is the name of the processor.
pub(crate) struct ServiceLog(pub(crate) Str);

impl LineReceiver for ServiceLog {
    fn enabled(&self, level: Level) -> bool {
        match level {
            Level::ERROR => tracing::enabled!(target: TARGET, Level::ERROR),
            Level::WARN => tracing::enabled!(target: TARGET, Level::WARN),
            Level::INFO => tracing::enabled!(target: TARGET, Level::INFO),
            Level::DEBUG => tracing::enabled!(target: TARGET, Level::DEBUG),
            _ => tracing::enabled!(target: TARGET, Level::TRACE),
        }
    }

    fn write(&self, level: Level, text: &str) {
        let ServiceLog(node) = self;
        match level {
            Level::ERROR => tracing::error!(target: TARGET, processor = %node, "{text}"),
            Level::WARN => tracing::warn!(target: TARGET, processor = %node, "{text}"),
            Level::INFO => tracing::info!(target: TARGET, processor = %node, "{text}"),
            Level::DEBUG => tracing::debug!(target: TARGET, processor = %node, "{text}"),
            _ => tracing::trace!(target: TARGET, processor = %node, "{text}"),
        }
    }
}

/// Log levels by number, from trace (0) to error (4).
pub(crate) const LEVELS: [Level; 5] = [Level::TRACE, Level::DEBUG, Level::INFO, Level::WARN, Level::ERROR];
