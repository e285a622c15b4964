//! Formats numbers, booleans and times as Go does.

use std::fmt::Write as _;

use anabranch_record::value::{Timestamp, Value, timestamp_text};

/// Appends a number, boolean or time. Returns `false` and appends nothing for other values.
pub(crate) fn push_scalar(value: &Value, out: &mut String) -> bool {
    match value {
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Int(number) => out.push_str(itoa::Buffer::new().format(*number)),
        Value::UInt(number) => out.push_str(itoa::Buffer::new().format(*number)),
        Value::Float(number) => push_float(*number, out),
        Value::Time(time) => out.push_str(&time_text(time)),
        Value::Null | Value::Text(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_) => return false,
    }
    true
}

/// Appends a number without exponent, with the shortest digits that identify it: `1`, `0.5`, `NaN`, `+Inf`.
fn push_float(number: f64, out: &mut String) {
    if number.is_infinite() {
        out.push_str(if number > 0.0 { "+Inf" } else { "-Inf" });
    } else {
        // Writing to a string cannot fail.
        let _ = write!(out, "{number}");
    }
}

/// Returns RFC 3339 text with only the needed fraction digits: `2026-11-21T06:00:00.5Z`.
fn time_text(time: &Timestamp) -> String {
    let mut text = timestamp_text(time);
    if text.contains('.') && text.ends_with('Z') {
        text.truncate(text[..text.len() - 1].trim_end_matches('0').len());
        text.push('Z');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_have_no_exponent() {
        for (number, text) in [
            (1.0, "1"),
            (-0.5, "-0.5"),
            (1e21, "1000000000000000000000"),
            (1e-7, "0.0000001"),
            (0.1 + 0.2, "0.30000000000000004"),
            (-0.0, "-0"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
        ] {
            let mut out = String::from(">");
            push_float(number, &mut out);
            assert_eq!(out, format!(">{text}"));
        }
    }

    #[test]
    fn times_have_no_idle_digits() {
        for text in [
            "2026-11-21T06:00:00Z",
            "2026-11-21T06:00:00.5Z",
            "1969-12-31T23:59:59.99999999Z",
            "0001-01-01T00:00:00.000000001Z",
        ] {
            assert_eq!(time_text(&text.parse().unwrap()), text);
        }
    }
}
