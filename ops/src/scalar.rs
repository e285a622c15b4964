//! Scalars as text, as Go prints them: what `field.convert` and `base64.encode` go through.

use std::fmt::Write as _;

use anabranch_graph::value::{Timestamp, timestamp_text};

/// A number without exponent, with as many digits as tell it from its neighbours: `1`, `0.5`, `NaN`, `+Inf`.
pub(crate) fn float_text(number: f64, out: &mut String) {
    if number.is_infinite() {
        out.push_str(if number > 0.0 { "+Inf" } else { "-Inf" });
    } else {
        // Writing to a text cannot fail.
        let _ = write!(out, "{number}");
    }
}

/// RFC 3339 with as many digits of the fraction as are needed: `2026-11-21T06:00:00.5Z`.
pub(crate) fn time_text(time: &Timestamp) -> String {
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
            float_text(number, &mut out);
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
