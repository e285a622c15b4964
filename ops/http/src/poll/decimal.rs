//! Numbers of any size, compared by the text of JSON.

use std::cmp::Ordering;

/// A number: 0.DIGITS × 10^exponent.
#[derive(Debug, PartialEq, Eq)]
struct DecimalText<'t> {
    is_negative: bool,
    /// Digits before and after the decimal point, without zeros at the beginning.
    digits: [&'t str; 2],
    exponent: i64,
}

/// Compares two numbers in JSON by their values. Takes time in proportion to the texts, whatever the exponents.
pub(super) fn compare(a: &str, b: &str) -> Ordering {
    let (a, b) = (DecimalText::of(a), DecimalText::of(b));
    let size = |number: &DecimalText<'_>| (!number.is_zero(), number.exponent);
    let sizes = || size(&a).cmp(&size(&b)).then_with(|| a.all_digits().cmp(b.all_digits()));
    match (a.is_negative, b.is_negative) {
        (false, false) => sizes(),
        (true, true) => sizes().reverse(),
        (false, true) => Ordering::Greater,
        (true, false) => Ordering::Less,
    }
}

impl<'t> DecimalText<'t> {
    fn of(text: &'t str) -> DecimalText<'t> {
        let unsigned = text.trim_start_matches('-');
        let (mantissa, power) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
        // A power that does not fit is larger or smaller than any other.
        let limit = if power.starts_with('-') { i64::MIN / 2 } else { i64::MAX / 2 };
        let power = power.trim_start_matches('+').parse::<i64>().unwrap_or(limit).clamp(i64::MIN / 2, i64::MAX / 2);
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let whole = whole.trim_start_matches('0');
        let fraction = fraction.trim_end_matches('0');
        let (fraction, zeros) = match whole.is_empty() {
            false => (fraction, 0),
            true => {
                let digits = fraction.trim_start_matches('0');
                (digits, fraction.len() - digits.len())
            }
        };
        let digits = [whole, fraction];
        if digits.iter().all(|digits| digits.is_empty()) {
            return DecimalText { is_negative: false, digits, exponent: 0 };
        }
        let exponent = power + whole.len() as i64 - zeros as i64;
        DecimalText { is_negative: unsigned.len() < text.len(), digits, exponent }
    }

    fn is_zero(&self) -> bool {
        self.digits.iter().all(|digits| digits.is_empty())
    }

    /// Returns the digits without zeros at the end.
    fn all_digits(&self) -> impl Iterator<Item = u8> {
        let [whole, fraction] = self.digits;
        let whole = if fraction.is_empty() { whole.trim_end_matches('0') } else { whole };
        whole.bytes().chain(fraction.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_size_are_compared_by_value() {
        let ascending = [
            "-1e400",
            "-12345678901234567890124",
            "-12345678901234567890123",
            "-9223372036854775809",
            "-1.5",
            "-1e-7",
            "0",
            "1e-99999999999999999999",
            "0.000000000000000000000000000001",
            "0.1",
            "1",
            "1.05",
            "1.5",
            "9",
            "10",
            "18446744073709551616",
            "12345678901234567890123",
            "12345678901234567890124",
            "2e22",
            "1e99999999999999999999",
        ];
        for (i, a) in ascending.iter().enumerate() {
            for (j, b) in ascending.iter().enumerate() {
                assert_eq!(compare(a, b), i.cmp(&j), "{a} and {b}");
            }
        }
        for (a, b) in [("1", "1.0"), ("100", "1e2"), ("0.10", "1E-1"), ("0", "-0.0e5"), ("1.5e+3", "1500")] {
            assert_eq!(compare(a, b), Ordering::Equal, "{a} and {b}");
        }
    }
}
