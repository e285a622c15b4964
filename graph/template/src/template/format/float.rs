//! Floats in the notation of Go's `strconv`.

use super::Printer;
use crate::template::functions::CallError;
use crate::template::val::Val;

/// Form of a float.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notation {
    /// `1.5e+03`.
    Exponent,
    /// `1500`.
    Plain,
    /// The exponent form below 1e-4 and from 1e6 (or the precision) on, otherwise the plain one.
    General,
    /// `0x1.8p+10`.
    Hex,
    /// `6755399441055744p-42`.
    Binary,
}

/// Maximum number of decimal places of a float, which the smallest float has: requested places beyond them are zeros.
/// `format!` accepts at most 65,535.
const PLACES: usize = 1074;

/// Formats a float in the given notation; without a precision with as many digits as are needed to read it back.
pub(crate) fn format_float(f: f64, notation: Notation, precision: Option<usize>) -> String {
    if f.is_nan() {
        return "NaN".to_owned();
    }
    if f.is_infinite() {
        return if f > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    match (notation, precision) {
        (Notation::Exponent, None) => go_exponent(&format!("{f:e}")),
        (Notation::Exponent, Some(precision)) => {
            let text = go_exponent(&format!("{f:.0$e}", precision.min(PLACES)));
            match text.split_once('e') {
                Some((digits, exponent)) => format!("{digits}{}e{exponent}", zeros_beyond(precision)),
                None => text,
            }
        }
        (Notation::Plain, None) => format!("{f}"),
        (Notation::Plain, Some(precision)) => {
            format!("{f:.0$}{1}", precision.min(PLACES), zeros_beyond(precision))
        }
        (Notation::General, precision) => general(f, precision),
        (Notation::Hex, precision) => hex(f, precision),
        (Notation::Binary, _) => {
            let (mantissa, exponent) = parts(f);
            let sign = if f.is_sign_negative() { "-" } else { "" };
            format!("{sign}{mantissa}p{exponent:+}")
        }
    }
}

fn zeros_beyond(precision: usize) -> String {
    "0".repeat(precision.saturating_sub(PLACES))
}

/// Converts Rust's `1.5e3` to Go's `1.5e+03`.
fn go_exponent(text: &str) -> String {
    let (digits, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.unsigned_abs())
}

fn general(f: f64, precision: Option<usize>) -> String {
    // Most floats of records: no exponent, as many digits as needed.
    if precision.is_none() && (f == 0.0 || (1e-4..1e6).contains(&f.abs())) {
        return f.to_string();
    }
    let wanted = precision.map(|p| p.max(1));
    let scientific = match wanted {
        None => format!("{f:e}"),
        Some(p) => format!("{f:.0$e}", (p - 1).min(PLACES)),
    };
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    // Removes the zeros that `%g` does not print.
    let digits = if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits };
    let significant = digits.bytes().filter(u8::is_ascii_digit).count();
    let threshold = match wanted {
        None => 6,
        Some(p) if p > significant && i32::try_from(significant).is_ok_and(|n| n > exponent) => significant,
        Some(p) => p,
    };
    if exponent < -4 || exponent >= i32::try_from(threshold.max(1)).unwrap_or(i32::MAX) {
        return go_exponent(&format!("{digits}e{exponent}"));
    }
    let places = usize::try_from(i64::try_from(significant).unwrap_or(0) - 1 - i64::from(exponent)).unwrap_or(0);
    let exact: f64 = format!("{digits}e{exponent}").parse().unwrap_or(f);
    format!("{exact:.places$}")
}

/// Returns the mantissa and power of two of a finite float, as Go's `%b` shows them.
fn parts(f: f64) -> (u64, i64) {
    let bits = f.to_bits();
    let fraction = bits & ((1 << 52) - 1);
    match (bits >> 52) & 0x7ff {
        0 => (fraction, -1074),
        exponent => (fraction | 1 << 52, i64::try_from(exponent).unwrap_or(0) - 1075),
    }
}

fn hex(f: f64, precision: Option<usize>) -> String {
    let sign = if f.is_sign_negative() { "-" } else { "" };
    let (mut mantissa, mut exponent) = parts(f);
    if mantissa == 0 {
        let zeros = precision.filter(|p| *p > 0).map(|p| format!(".{}", "0".repeat(p))).unwrap_or_default();
        return format!("{sign}0x0{zeros}p+00");
    }
    // One hexadecimal digit before the point: bit 52 set.
    let shift = mantissa.leading_zeros() - 11;
    mantissa <<= shift;
    exponent += 52 - i64::from(shift);
    if let Some(precision) = precision.filter(|p| *p < 13) {
        let drop = 52 - 4 * precision as u32;
        let half = 1u64 << (drop - 1);
        let rest = mantissa & ((1 << drop) - 1);
        mantissa >>= drop;
        if rest > half || (rest == half && mantissa & 1 == 1) {
            mantissa += 1;
        }
        mantissa <<= drop;
        if mantissa >> 53 != 0 {
            mantissa >>= 1;
            exponent += 1;
        }
    }
    let mut fraction = format!("{:013x}", mantissa & ((1 << 52) - 1));
    match precision {
        None => fraction.truncate(fraction.trim_end_matches('0').len()),
        Some(p) if p <= 13 => fraction.truncate(p),
        Some(p) => fraction.push_str(&"0".repeat(p - 13)),
    }
    let point = if fraction.is_empty() { "" } else { "." };
    let exponent_sign = if exponent < 0 { '-' } else { '+' };
    format!("{sign}0x{}{point}{fraction}p{exponent_sign}{:02}", mantissa >> 52, exponent.unsigned_abs())
}

impl Printer<'_> {
    pub(super) fn float(&mut self, f: f64, verb: char, val: &Val) -> Result<(), CallError> {
        let (notation, default) = match verb {
            'v' | 'g' | 'G' => (Notation::General, None),
            'x' | 'X' => (Notation::Hex, None),
            'b' => (Notation::Binary, None),
            'f' | 'F' => (Notation::Plain, Some(6)),
            'e' | 'E' => (Notation::Exponent, Some(6)),
            _ => return self.bad_verb(verb, Some(val)),
        };
        let precision = self.flags.precision.or(default);
        let mut number = format_float(f, notation, precision);
        if verb.is_uppercase() && verb != 'F' && f.is_finite() {
            number.make_ascii_uppercase();
        }
        // A sign is always present while padding is computed.
        if !number.starts_with(['+', '-']) {
            number.insert(0, if self.flags.space && !self.flags.plus { ' ' } else { '+' });
        }
        if !f.is_finite() {
            // Go always shows the sign of an infinity, and that of NaN only on request.
            let from = usize::from(f.is_nan() && !self.flags.space && !self.flags.plus);
            self.pad_with_spaces(&number.as_bytes()[from..]);
            return Ok(());
        }
        if self.flags.sharp && verb != 'b' {
            number = with_point(&number, verb, precision);
        }
        if self.flags.plus || !number.starts_with('+') {
            let width = self.flags.width.unwrap_or(0);
            if self.flags.zero && !self.flags.minus && width > number.len() {
                self.out.push_str(&number[..1]);
                self.padding(width - number.len());
                self.out.push_str(&number[1..]);
            } else {
                self.pad(number.as_bytes());
            }
        } else {
            self.pad(&number.as_bytes()[1..]);
        }
        Ok(())
    }
}

/// Adds a decimal point and the zeros that the general form drops, for `%#g`.
fn with_point(number: &str, verb: char, precision: Option<usize>) -> String {
    let mut missing = match verb {
        'v' | 'g' | 'G' | 'x' => precision.unwrap_or(6),
        _ => 0,
    };
    let exponent = if matches!(verb, 'x' | 'X') { &['p', 'P'][..] } else { &['e', 'E', 'p', 'P'][..] };
    let (digits, tail) = number.split_at(number.find(exponent).unwrap_or(number.len()));
    let significant = digits[1..].bytes().filter(|b| *b != b'.').skip_while(|b| *b == b'0').count();
    missing = missing.saturating_sub(significant);
    let mut text = digits.to_owned();
    if !digits.contains('.') {
        if &digits[1..] == "0" {
            missing = missing.saturating_sub(1);
        }
        text.push('.');
    }
    text.push_str(&"0".repeat(missing));
    text.push_str(tail);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_that_no_float_has_are_zeros() {
        let plain = format_float(5e-324, Notation::Plain, Some(70_000));
        assert_eq!(plain.len(), 70_002);
        assert!(plain.trim_end_matches('0').ends_with("533447265625"), "the last digits of 2^-1074");
        let exponent = format_float(-1.5, Notation::Exponent, Some(70_000));
        assert_eq!((exponent.len(), &exponent[..5], &exponent[70_000..]), (70_007, "-1.50", "000e+00"));
        assert_eq!(format_float(1.5e9, Notation::General, Some(70_000)), "1500000000");
        assert_eq!(format_float(0.1, Notation::General, Some(70_000)).len(), 57);
        assert_eq!(format_float(2.5, Notation::Plain, Some(0)), "2");
        assert_eq!(format_float(2.5, Notation::Exponent, Some(0)), "2e+00");
    }
}
