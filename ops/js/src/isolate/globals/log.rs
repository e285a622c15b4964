//! The functions with which scripts write log lines.

use std::rc::Rc;

use boa_engine::{Context, JsArgs, JsResult, JsValue};
use tracing::Level;

use crate::log::{LEVELS, LineReceiver};

/// Receiver of the lines that the functions below write.
pub(super) struct Node(pub(super) Rc<dyn LineReceiver>);

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

/// Returns `true` if lines of a level are written to the log.
pub(super) fn enabled(_: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let enabled = context.get_data::<Node>().is_some_and(|Node(lines)| lines.enabled(level(args)));
    Ok(enabled.into())
}
