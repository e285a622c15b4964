//! Durations as text: `1h30m`, `-1.5s`.

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// Parses nanoseconds from text such as `-1.5h` or `1h30m`; `None` if it is not a duration or out of range. O(n).
pub(super) fn parse(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (part, after) = part(rest)?;
        total = total.checked_add(part).filter(|&sum| sum <= 1 << 63)?;
        rest = after;
    }
    if negative { 0i64.checked_sub_unsigned(total) } else { i64::try_from(total).ok() }
}

/// Parses one number with its unit.
fn part(text: &str) -> Option<(u64, &str)> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let whole_len = digits(text);
    let (whole, mut rest) = text.split_at(whole_len);
    let mut fraction = "";
    if let Some(after) = rest.strip_prefix('.') {
        (fraction, rest) = after.split_at(digits(after));
    }
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let unit_len = rest.bytes().take_while(|b| *b != b'.' && !b.is_ascii_digit()).count();
    let (unit, rest) = rest.split_at(unit_len);
    let unit = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => SECOND,
        "m" => MINUTE,
        "h" => HOUR,
        _ => return None,
    };
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut value = whole.checked_mul(unit)?;
    // Digits beyond the precision of 63 bits are below a nanosecond.
    let (mut numerator, mut scale) = (0u64, 1f64);
    for digit in fraction.bytes() {
        let Some(next) = numerator
            .checked_mul(10)
            .and_then(|n| n.checked_add(u64::from(digit - b'0')))
            .filter(|&n| n <= i64::MAX as u64)
        else {
            break;
        };
        numerator = next;
        scale *= 10.0;
    }
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a fraction of a unit, below 3.6e12"
    )]
    if numerator > 0 {
        value = value.checked_add((numerator as f64 * (unit as f64 / scale)) as u64)?;
    }
    (value <= 1 << 63).then_some((value, rest))
}

/// Formats a duration in the largest unit that it exceeds, from years of 365 days down to seconds.
pub(super) fn rounded(nanoseconds: i64) -> String {
    const UNITS: [(u64, &str); 6] =
        [(365 * 24 * HOUR, "y"), (30 * 24 * HOUR, "mo"), (24 * HOUR, "d"), (HOUR, "h"), (MINUTE, "m"), (SECOND, "s")];
    let length = nanoseconds.unsigned_abs();
    UNITS
        .iter()
        .find(|(unit, _)| length > *unit)
        .map_or_else(|| "0s".to_owned(), |(unit, name)| format!("{}{name}", length / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        for (given, wanted) in [
            ("0", Some(0)),
            ("1h30m", Some(5_400_000_000_000)),
            ("-1.5h", Some(-5_400_000_000_000)),
            ("+.5s", Some(500_000_000)),
            ("1us2ns", Some(1_002)),
            ("3µs", Some(3_000)),
            ("9223372036854775807ns", Some(i64::MAX)),
            ("-9223372036854775808ns", Some(i64::MIN)),
            ("9223372036854775808ns", None),
            ("99999999999h", None),
            ("1", None),
            ("s", None),
            (".s", None),
            ("", None),
            ("-", None),
            ("1h é", None),
        ] {
            assert_eq!(parse(given), wanted, "{given}");
        }
    }

    #[test]
    fn a_unit_must_fit_more_than_once() {
        assert_eq!(rounded(3_600_000_000_000), "60m");
        assert_eq!(rounded(3_600_000_000_001), "1h");
        assert_eq!(rounded(i64::MIN), "292y");
        assert_eq!(rounded(1_000_000_000), "0s");
    }
}
