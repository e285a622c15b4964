//! Encodes `numeric`: digits in base 10000, as `numeric_recv` reads them.

use anabranch_record::value::Value;

use super::{Encoded, Mismatch, non_finite, not_a};

/// Larger exponents are out of range in any case.
const LARGEST_EXPONENT: i64 = 200_000;
/// Maximum number of digits after the point.
const LARGEST_SCALE: i64 = 16_383;
/// Maximum number of digits before the point.
const LARGEST_PRECISION: i64 = 131_072;

const NEGATIVE: u16 = 0x4000;
const NOT_A_NUMBER: u16 = 0xC000;
const PLUS_INFINITY: u16 = 0xD000;
const MINUS_INFINITY: u16 = 0xF000;

pub(super) fn encode(value: &Value, out: &mut Vec<u8>) -> Encoded {
    let text = match value {
        Value::Int(v) => v.to_string(),
        Value::UInt(v) => v.to_string(),
        Value::Float(v) if !v.is_finite() => non_finite(*v).to_owned(),
        Value::Float(v) => v.to_string(),
        Value::Text(text) => text.trim().to_owned(),
        _ => return Err(not_a(value, "a number")),
    };
    let special = match text.to_ascii_lowercase().as_str() {
        "nan" => Some(NOT_A_NUMBER),
        "infinity" | "+infinity" | "inf" | "+inf" => Some(PLUS_INFINITY),
        "-infinity" | "-inf" => Some(MINUS_INFINITY),
        _ => None,
    };
    if let Some(sign) = special {
        push(out, &[], 0, sign, 0);
        return Ok(());
    }
    let decimal = Decimal::parse(&text).ok_or_else(|| not_a(value, "a number"))?;
    let out_of_range = || Mismatch(format!("{} is out of range for numeric", super::shown(value)));
    if decimal.point > LARGEST_PRECISION || decimal.scale > LARGEST_SCALE {
        return Err(out_of_range());
    }
    decimal.write(out);
    Ok(())
}

/// The number `±0.digits × 10^point`.
struct Decimal {
    negative: bool,
    digits: Vec<u8>,
    point: i64,
    scale: i64,
}

impl Decimal {
    fn parse(text: &str) -> Option<Decimal> {
        let (negative, text) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let (mantissa, exponent) = match text.find(['e', 'E']) {
            Some(at) => (&text[..at], text[at + 1..].parse::<i64>().ok()?),
            None => (text, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) || exponent.abs() > LARGEST_EXPONENT {
            return None;
        }
        let scale = (fraction.len() as i64 - exponent).max(0);
        let zeros = digits.iter().take_while(|c| **c == b'0').count();
        let point = whole.len() as i64 + exponent - zeros as i64;
        let digits: Vec<u8> = digits[zeros..].iter().map(|c| c - b'0').collect();
        let point = if digits.is_empty() { 0 } else { point };
        Some(Decimal { negative: negative && !digits.is_empty(), digits, point, scale })
    }

    fn write(&self, out: &mut Vec<u8>) {
        // Add leading zeros so that the point is between two groups of four digits.
        let front = (4 - self.point.rem_euclid(4)) % 4;
        let mut digits = vec![0u8; front as usize];
        digits.extend_from_slice(&self.digits);
        digits.resize(digits.len().next_multiple_of(4), 0);
        let mut groups: Vec<i16> =
            digits.chunks(4).map(|group| group.iter().fold(0i16, |n, digit| n * 10 + i16::from(*digit))).collect();
        while groups.last() == Some(&0) {
            groups.pop();
        }
        let weight = if groups.is_empty() { 0 } else { (self.point + front) / 4 - 1 };
        let sign = if self.negative { NEGATIVE } else { 0 };
        push(out, &groups, weight as i16, sign, self.scale as u16);
    }
}

fn push(out: &mut Vec<u8>, groups: &[i16], weight: i16, sign: u16, scale: u16) {
    out.extend_from_slice(&(groups.len() as u16).to_be_bytes());
    out.extend_from_slice(&weight.to_be_bytes());
    out.extend_from_slice(&sign.to_be_bytes());
    out.extend_from_slice(&scale.to_be_bytes());
    for group in groups {
        out.extend_from_slice(&group.to_be_bytes());
    }
}
