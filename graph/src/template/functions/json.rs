//! JSON, as Go writes and reads it.

use super::signature::function;
use super::{CallError, Context, Function};
use crate::template::val::{Text, Val};

mod read;
mod write;

use write::Style;

/// The table.
pub(super) static TABLE: &[Function] = &[
    function!("toJson", |cx| (value: Any) => try lenient(cx, value, Style { pretty: false, escape_html: true })),
    function!("mustToJson", |cx| (value: Any) => try strict(cx, value, Style { pretty: false, escape_html: true })),
    function!("toPrettyJson", |cx| (value: Any) => try lenient(cx, value, Style { pretty: true, escape_html: true })),
    function!("mustToPrettyJson", |cx| (value: Any) => try {
        strict(cx, value, Style { pretty: true, escape_html: true })
    }),
    function!("toRawJson", |cx| (value: Any) => try strict(cx, value, Style { pretty: false, escape_html: false })),
    function!("mustToRawJson", |cx| (value: Any) => try strict(cx, value, Style { pretty: false, escape_html: false })),
    function!("fromJson", |cx| (text: Text) => try match read::read(cx, &text.lossy()) {
        Ok(value) => Ok(value),
        Err(read::Problem::Json { .. }) => Ok(Val::Nil),
        Err(read::Problem::Call(error)) => Err(error),
    }),
    function!("mustFromJson", |cx| (text: Text) => try read::read(cx, &text.lossy()).map_err(CallError::from)),
];

fn strict(cx: &mut Context, value: &Val, style: Style) -> Result<Text, CallError> {
    write::text(cx, value, style).map_err(CallError::from)
}

/// The empty text for what JSON does not have: infinities, NaN.
fn lenient(cx: &mut Context, value: &Val, style: Style) -> Result<Text, CallError> {
    match write::text(cx, value, style) {
        Err(write::Problem::Unsupported(_)) => Ok("".into()),
        other => other.map_err(CallError::from),
    }
}
