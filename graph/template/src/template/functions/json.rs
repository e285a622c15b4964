//! JSON in Go's notation.

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
        Err(read::ParseProblem::Json { .. }) => Ok(Val::Nil),
        Err(read::ParseProblem::Call(error)) => Err(error),
    }),
    function!("mustFromJson", |cx| (text: Text) => try read::read(cx, &text.lossy()).map_err(CallError::from)),
];

fn strict(cx: &mut Context, value: &Val, style: Style) -> Result<Text, CallError> {
    write::text(cx, value, style).map_err(CallError::from)
}

/// Encodes a value; the empty text for values that JSON cannot represent: infinities, NaN.
fn lenient(cx: &mut Context, value: &Val, style: Style) -> Result<Text, CallError> {
    match write::text(cx, value, style) {
        Err(write::EncodeProblem::Unsupported(_)) => Ok("".into()),
        other => other.map_err(CallError::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nesting_is_bounded_both_ways() {
        let mut cx = Context::new();
        let text = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(read::read(&mut cx, &text(anabranch_record::json::MAX_DEPTH)).is_ok());
        assert!(read::read(&mut cx, &text(100_000)).is_err());
        let deep = (0..1_000).fold(Val::Nil, |inner, _| crate::template::val::List::new(vec![inner]).into());
        assert!(lenient(&mut cx, &deep, Style { pretty: false, escape_html: true }).is_err());
    }

    #[test]
    fn half_a_pair_of_surrogates_is_replaced() {
        for (json, text) in [
            (r"\ud83d\ude00", "😀"),
            (r"\ud83d", "\u{fffd}"),
            (r"\ude00x", "\u{fffd}x"),
            (r"\ud83d\ud83d\ude00", "\u{fffd}😀"),
            (r"\uD83D\u0041", "\u{fffd}A"),
            (r"\\ud83d", r"\ud83d"),
            (r"\\\ud83d", "\\\u{fffd}"),
        ] {
            let read = read::read(&mut Context::new(), &format!("\"{json}\"")).unwrap();
            assert_eq!(read.as_text(), Some(&Text::from(text)), "{json}");
        }
        // A replacement does not move the place of an error behind it.
        let error = read::read(&mut Context::new(), r#"["\ud83d",]"#).map_err(CallError::from).unwrap_err();
        assert_eq!(error.to_string(), "the text is not JSON: byte 10 is wrong or missing");
    }

    #[test]
    fn integers_stay_integers() {
        let mut cx = Context::new();
        let mut kind = |text: &str| read::read(&mut cx, text).map(|value| value.kind_name()).unwrap();
        assert_eq!(kind("9223372036854775807"), "int64");
        assert_eq!(kind("9223372036854775808"), "uint64");
        assert_eq!(kind("18446744073709551616"), "float64");
        assert_eq!(kind("1.0"), "float64");
        assert_eq!(kind("-0"), "float64");
    }
}
