//! Log lines that scripts write to the service log.

use std::rc::Rc;

use anabranch_record::text::Str;
use boa_engine::{Context, JsArgs, JsResult, JsValue};
use tracing::Level;

/// Log target of the lines; lines of other targets are not kept.
const TARGET: &str = "anabranch::processor";

/// Receiver of a script's log lines.
pub(crate) trait Lines {
    /// Returns `true` if lines of this level are kept. Other lines are not formatted.
    fn enabled(&self, level: Level) -> bool;

    /// Writes a line.
    fn write(&self, level: Level, text: &str);
}

/// Log of this process; the field is the name of the processor.
pub(crate) struct ServiceLog(pub(crate) Str);

impl Lines for ServiceLog {
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

/// Receiver of the lines that the functions below write.
pub(super) struct Node(pub(super) Rc<dyn Lines>);

fn level(args: &[JsValue]) -> Level {
    let number = args.get_or_undefined(0).as_number().unwrap_or_default();
    LEVELS.get(number as usize).copied().unwrap_or(Level::TRACE)
}

/// Writes a line. Arguments: level from 0 (trace) to 4 (error), text.
pub(super) fn log(_: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let text = args.get_or_undefined(1).to_string(context)?.to_std_string_lossy();
    if let Some(Node(lines)) = context.get_data::<Node>() {
        lines.write(level(args), &text);
    }
    Ok(JsValue::undefined())
}

/// Returns whether lines of a level are kept.
pub(super) fn enabled(_: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let enabled = context.get_data::<Node>().is_some_and(|Node(lines)| lines.enabled(level(args)));
    Ok(enabled.into())
}
