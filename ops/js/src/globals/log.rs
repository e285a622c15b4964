//! Lines that scripts write into the service log.

use anabranch_graph::text::Str;
use boa_engine::{Context, JsArgs, JsResult, JsValue};
use tracing::Level;

/// Of lines of the service: those of other targets are not kept.
const TARGET: &str = "anabranch::processor";

/// The processor that lines name.
pub(crate) struct Node(pub(crate) Str);

fn level(args: &[JsValue]) -> Level {
    match args.get_or_undefined(0).as_number() {
        Some(4.0) => Level::ERROR,
        Some(3.0) => Level::WARN,
        Some(2.0) => Level::INFO,
        Some(1.0) => Level::DEBUG,
        _ => Level::TRACE,
    }
}

/// Writes a line: level from 0 (trace) to 4 (error), text.
pub(crate) fn log(_: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let text = args.get_or_undefined(1).to_string(context)?.to_std_string_lossy();
    let node = context.get_data::<Node>().map(|node| node.0.clone()).unwrap_or_default();
    match level(args) {
        Level::ERROR => tracing::error!(target: TARGET, processor = %node, "{text}"),
        Level::WARN => tracing::warn!(target: TARGET, processor = %node, "{text}"),
        Level::INFO => tracing::info!(target: TARGET, processor = %node, "{text}"),
        Level::DEBUG => tracing::debug!(target: TARGET, processor = %node, "{text}"),
        _ => tracing::trace!(target: TARGET, processor = %node, "{text}"),
    }
    Ok(JsValue::undefined())
}

/// Whether lines of a level are kept: what is not is not formatted.
pub(crate) fn enabled(_: &JsValue, args: &[JsValue], _: &mut Context) -> JsResult<JsValue> {
    let enabled = match level(args) {
        Level::ERROR => tracing::enabled!(target: TARGET, Level::ERROR),
        Level::WARN => tracing::enabled!(target: TARGET, Level::WARN),
        Level::INFO => tracing::enabled!(target: TARGET, Level::INFO),
        Level::DEBUG => tracing::enabled!(target: TARGET, Level::DEBUG),
        _ => tracing::enabled!(target: TARGET, Level::TRACE),
    };
    Ok(enabled.into())
}
