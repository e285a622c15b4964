//! Decimal numbers: an integer and its scale, as text with all digits.

use num_bigint::BigInt;

/// Maximum number of bytes and of digits after the point; above that, the data counts as damaged. Converting bytes to
/// digits takes quadratic time, and the text of a number is at least as long as its scale.
pub(super) const LONGEST: usize = 4096;

/// Formats `unscaled · 10^-scale`; the scale must be at most [`LONGEST`].
pub(super) fn text(unscaled: &[u8], scale: usize) -> String {
    let digits = BigInt::from_signed_bytes_be(unscaled).to_string();
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", digits.as_str()),
    };
    if scale == 0 {
        return format!("{sign}{digits}");
    }
    let digits = format!("{digits:0>width$}", width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    format!("{sign}{whole}.{fraction}")
}

/// Parses a number into its digits without the point and its scale. Returns `None` if the text is not a number.
pub(super) fn parse(text: &str) -> Option<(BigInt, i64)> {
    if text.len() > LONGEST {
        return None;
    }
    let (number, exponent) = match text.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let (sign, whole) = match whole.strip_prefix(['-', '+']) {
        Some(rest) => (whole.starts_with('-'), rest),
        None => (false, whole),
    };
    if (whole.is_empty() && fraction.is_empty()) || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
        return None;
    }
    let digits: BigInt = format!("{whole}{fraction}").parse().ok()?;
    Some((if sign { -digits } else { digits }, fraction.len() as i64 - i64::from(exponent)))
}

/// Returns the integer for this scale. Returns `None` if digits would be lost, or there are more than `precision`.
pub(super) fn scaled(text: &str, scale: usize, precision: usize) -> Option<BigInt> {
    let (digits, have) = parse(text)?;
    let shift = i64::try_from(scale).ok()? - have;
    let power = |n: u64| u32::try_from(n).ok().filter(|n| *n as usize <= LONGEST).map(|n| BigInt::from(10).pow(n));
    let integer = if shift >= 0 {
        digits * power(shift.unsigned_abs())?
    } else {
        let power = power(shift.unsigned_abs())?;
        let whole = &digits / &power;
        (&whole * power == digits).then_some(whole)?
    };
    let digits = integer.magnitude().to_string().len();
    (digits <= precision).then_some(integer)
}
