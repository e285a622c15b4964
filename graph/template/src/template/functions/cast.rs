//! Conversion of any value to a number for arithmetic in templates: other values count as 0.

use crate::template::val::Val;

/// Converts a value to an integer. Fractions are cut off; text is parsed by [`integer`]; out of range,
/// `int64` wraps like Go's conversions.
pub(super) fn to_int64(value: &Val) -> i64 {
    match value {
        Val::Float(f) => truncate(*f),
        Val::Bool(b) => i64::from(*b),
        Val::Text(text) => text.as_str().and_then(|text| integer(whole_part(text))).unwrap_or(0),
        #[expect(clippy::cast_possible_wrap, reason = "Go converts uint64 to int64 by reinterpreting it")]
        other => other.as_int().or_else(|| other.as_uint().map(|n| n as i64)).unwrap_or(0),
    }
}

/// Converts a value to a float; text is parsed by [`float`].
#[expect(clippy::cast_precision_loss, reason = "the nearest float is meant")]
pub(super) fn to_float64(value: &Val) -> f64 {
    match value {
        Val::Float(f) => *f,
        Val::Bool(b) => f64::from(u8::from(*b)),
        Val::Text(text) => text.as_str().and_then(float).unwrap_or(0.0),
        other => other.as_int().map(|n| n as f64).or_else(|| other.as_uint().map(|n| n as f64)).unwrap_or(0.0),
    }
}

/// Returns `true` if a text is a number and so does not count as 0; with `whole`, if integer arithmetic accepts it.
pub(super) fn is_number(text: &str, whole: bool) -> bool {
    if whole { integer(whole_part(text)).is_some() } else { float(text).is_some() }
}

/// Returns the integer part of a float; out of range it is the smallest integer, as on amd64.
#[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
fn truncate(f: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&f) { f as i64 } else { i64::MIN }
}

/// Returns the text before the point of a plain decimal number; other text unchanged.
fn whole_part(text: &str) -> &str {
    let Some((whole, fraction)) = text.split_once('.') else { return text };
    let digits = whole.strip_prefix(['+', '-']).unwrap_or(whole);
    if !digits.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
        return text;
    }
    if digits.is_empty() { "0" } else { whole }
}

/// Parses an integer in the syntax of Go source: `0x`, `0b`, `0o` and `0` prefixes, underscores between digits.
pub(super) fn integer(text: &str) -> Option<i64> {
    let (negative, rest) = sign(text);
    if rest.contains('_') && !underscores_separate_digits(rest) {
        return None;
    }
    let (digits, radix) = match rest.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&rest[2..], 16),
        [b'0', b'b' | b'B', ..] => (&rest[2..], 2),
        [b'0', b'o' | b'O', ..] => (&rest[2..], 8),
        [b'0', _, ..] => (&rest[1..], 8),
        _ => (rest, 10),
    };
    in_radix(negative, digits.bytes().filter(|b| *b != b'_'), radix).ok()
}

/// Reason why a text is not an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoInteger {
    /// The text contains characters other than digits.
    Syntax,
    /// The number is out of range; the nearest integer in range.
    Range(i64),
}

/// Parses digits in the given radix, with an optional sign.
///
/// # Errors
/// The text has another form, or the number is out of range.
pub(super) fn plain_integer(text: &str, radix: u32) -> Result<i64, NoInteger> {
    let (negative, digits) = sign(text);
    in_radix(negative, digits.bytes(), radix)
}

fn sign(text: &str) -> (bool, &str) {
    match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    }
}

fn in_radix(negative: bool, digits: impl Iterator<Item = u8>, radix: u32) -> Result<i64, NoInteger> {
    let (mut value, mut count) = (0i64, 0usize);
    let mut overflow = false;
    for digit in digits {
        let digit = char::from(digit).to_digit(radix).ok_or(NoInteger::Syntax)?;
        count += 1;
        // Counting downwards covers the smallest integer too.
        match value.checked_mul(radix.into()).and_then(|v| v.checked_sub(digit.into())) {
            Some(next) => value = next,
            None => overflow = true,
        }
    }
    let limit = if negative { i64::MIN } else { i64::MAX };
    match (count, overflow) {
        (0, _) => Err(NoInteger::Syntax),
        (_, true) => Err(NoInteger::Range(limit)),
        _ if negative => Ok(value),
        _ => value.checked_neg().ok_or(NoInteger::Range(limit)),
    }
}

/// Returns `true` if each underscore has a digit, or the prefix of a radix, before it and a digit after it.
fn underscores_separate_digits(text: &str) -> bool {
    let (hex, body) = match text.as_bytes() {
        [b'0', b'x' | b'X', rest @ ..] => (true, rest),
        [b'0', b'b' | b'B' | b'o' | b'O', rest @ ..] => (false, rest),
        all => (false, all),
    };
    let prefixed = body.len() < text.len();
    let is_digit = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_digit() || hex && b.is_ascii_hexdigit());
    body.iter().enumerate().filter(|(_, b)| **b == b'_').all(|(i, _)| {
        let before = if i == 0 { prefixed } else { is_digit(body.get(i - 1)) };
        before && is_digit(body.get(i + 1))
    })
}

/// Parses a float like Go: decimal or hexadecimal, underscores between digits, `inf` and `nan`; `None` if the text
/// is not a float or the number is too large.
pub(super) fn float(text: &str) -> Option<f64> {
    let (negative, rest) = sign(text);
    let signed = |f: f64| if negative { -f } else { f };
    let lower = rest.to_ascii_lowercase();
    match lower.as_str() {
        "inf" | "infinity" => return Some(signed(f64::INFINITY)),
        "nan" => return (rest.len() == text.len()).then_some(f64::NAN),
        _ => {}
    }
    if !lower.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    if lower.contains('_') && !underscores_separate_digits(&lower) {
        return None;
    }
    let plain: String = lower.chars().filter(|c| *c != '_').collect();
    let value = match plain.strip_prefix("0x") {
        Some(hex) => hex_float(hex)?,
        None => plain.parse::<f64>().ok()?,
    };
    value.is_finite().then(|| signed(value))
}

/// Parses hexadecimal digits with a power of two, such as `1.8p3`.
#[expect(clippy::cast_precision_loss, reason = "the nearest float is meant")]
fn hex_float(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.split_once('p')?;
    let mut exponent: i32 = plain_integer(exponent, 10).ok()?.clamp(-100_000, 100_000).try_into().ok()?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut value = 0u64;
    let digits = whole.chars().map(|c| (c, false)).chain(fraction.chars().map(|c| (c, true)));
    for (digit, below_point) in digits {
        let digit = digit.to_digit(16)?;
        if value >> 60 == 0 {
            value = value << 4 | u64::from(digit);
            exponent = exponent.saturating_sub(if below_point { 4 } else { 0 });
        } else {
            // Beyond the precision of 64 bits; a single sticky bit keeps the rounding correct.
            value |= u64::from(digit != 0);
            exponent = exponent.saturating_add(if below_point { 0 } else { 4 });
        }
    }
    // In two steps, because the power alone may be out of range even if the product is not.
    let half = exponent / 2;
    Some(value as f64 * 2f64.powi(half) * 2f64.powi(exponent - half))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_an_integer_as_in_go_source() {
        for (text, wanted) in [
            ("1.9", 1),
            ("-1.9", -1),
            ("0x10", 16),
            ("010", 8),
            ("08", 0),
            ("0b11", 3),
            ("1_000", 1000),
            ("_1", 0),
            ("0x_1f", 31),
            ("1__0", 0),
            ("1e3", 0),
            (" 5", 0),
            ("5.", 5),
            ("-.5", 0),
            ("1.2.3", 0),
            ("-9223372036854775808", i64::MIN),
            ("9223372036854775808", 0),
            ("", 0),
            ("0", 0),
            ("é", 0),
        ] {
            assert_eq!(to_int64(&Val::from(text)), wanted, "{text}");
        }
        assert_eq!(to_int64(&Val::Float(1e30)), i64::MIN);
        assert_eq!(to_int64(&Val::Float(f64::NAN)), i64::MIN);
        assert_eq!(to_int64(&Val::Uint64(u64::MAX)), -1);
    }

    #[test]
    fn text_is_a_float() {
        for (text, wanted) in [
            ("0x1p4", 16.0),
            ("0x.8p1", 1.0),
            ("-0x_1p-2", -0.25),
            ("1_0", 10.0),
            ("-Infinity", f64::NEG_INFINITY),
            ("1e400", 0.0),
            ("0x1", 0.0),
            ("0x1p5000", 0.0),
            ("5.", 5.0),
            (".5", 0.5),
            ("+inf", f64::INFINITY),
            ("-nan", 0.0),
            ("infinit", 0.0),
        ] {
            assert_eq!(to_float64(&Val::from(text)), wanted, "{text}");
        }
        assert!(to_float64(&Val::from("NaN")).is_nan());
    }
}
