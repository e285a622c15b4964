//! Base64 and base32. If decoding fails, the result is the error message instead of the data, as in sprig.

use super::Function;
use super::signature::function;
use crate::template::val::Text;

/// The table.
pub(super) static TABLE: &[Function] = &[
    function!("b64enc", (text: Text) => encoded(text.as_bytes(), &BASE64)),
    function!("b64dec", (text: Text) => decoded(text.as_bytes(), &BASE64)),
    function!("b32enc", (text: Text) => encoded(text.as_bytes(), &BASE32)),
    function!("b32dec", (text: Text) => decoded(text.as_bytes(), &BASE32)),
];

/// An alphabet of 2^n digits and their grouping.
struct Alphabet {
    name: &'static str,
    digits: &'static [u8],
    /// Bits per digit.
    bits: u32,
    /// Digits per group: as many as represent whole bytes.
    group: usize,
}

const BASE64: Alphabet = Alphabet {
    name: "base64",
    digits: b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
    bits: 6,
    group: 4,
};
const BASE32: Alphabet = Alphabet { name: "base32", digits: b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", bits: 5, group: 8 };

fn encoded(bytes: &[u8], alphabet: &Alphabet) -> String {
    if alphabet.bits == BASE64.bits {
        use base64::Engine as _;
        return base64::engine::general_purpose::STANDARD.encode(bytes);
    }
    let bytes_of_group = alphabet.group * 5 / 8;
    let mut out = String::with_capacity(bytes.len().div_ceil(bytes_of_group) * alphabet.group);
    for group in bytes.chunks(bytes_of_group) {
        let mut value = [0u8; 8];
        value[3..3 + group.len()].copy_from_slice(group);
        let value = u64::from_be_bytes(value);
        let digits = (group.len() * 8).div_ceil(5);
        for at in 0..alphabet.group {
            let digit = (value >> (35 - 5 * at) & 31) as usize;
            out.push(if at < digits { char::from(alphabet.digits[digit]) } else { '=' });
        }
    }
    out
}

fn decoded(text: &[u8], alphabet: &Alphabet) -> Text {
    match decode(text, alphabet) {
        Ok(bytes) => bytes.into(),
        Err(at) => format!("illegal {} data at input byte {at}", alphabet.name).into(),
    }
}

/// Decodes a text. An error is the offset of the first invalid byte. Line breaks are skipped. O(n).
fn decode(text: &[u8], alphabet: &Alphabet) -> Result<Vec<u8>, usize> {
    if alphabet.bits == BASE64.bits { decode_base64(text) } else { decode_base32(text) }
}

fn digit(byte: u8, alphabet: &Alphabet) -> Option<u32> {
    let value = match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' if alphabet.bits == 6 => byte - b'a' + 26,
        b'0'..=b'9' if alphabet.bits == 6 => byte - b'0' + 52,
        b'+' if alphabet.bits == 6 => 62,
        b'/' if alphabet.bits == 6 => 63,
        b'2'..=b'7' => byte - b'2' + 26,
        _ => return None,
    };
    Some(value.into())
}

fn decode_base64(text: &[u8]) -> Result<Vec<u8>, usize> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let mut input = text.iter().copied().enumerate().filter(|(_, b)| !matches!(b, b'\r' | b'\n'));
    loop {
        let (mut value, mut count) = (0u32, 0usize);
        while count < 4 {
            let Some((at, byte)) = input.next() else {
                return match count {
                    0 => Ok(out),
                    // The group began `count` digits before the end.
                    _ => Err(text.len() - count),
                };
            };
            if let Some(digit) = digit(byte, &BASE64) {
                value = value << 6 | digit;
                count += 1;
                continue;
            }
            if byte != b'=' || count < 2 {
                return Err(at);
            }
            if count == 2 {
                match input.next() {
                    Some((_, b'=')) => {}
                    Some((at, _)) => return Err(at - 1),
                    None => return Err(text.len()),
                }
            }
            if let Some((at, _)) = input.next() {
                return Err(at);
            }
            value <<= 6 * (4 - count);
            out.extend_from_slice(&value.to_be_bytes()[1..count]);
            return Ok(out);
        }
        out.extend_from_slice(&value.to_be_bytes()[1..]);
    }
}

fn decode_base32(text: &[u8]) -> Result<Vec<u8>, usize> {
    let text: Vec<u8> = text.iter().copied().filter(|b| !matches!(b, b'\r' | b'\n')).collect();
    let mut out = Vec::with_capacity(text.len() / 8 * 5);
    for (start, group) in (0..).step_by(8).zip(text.chunks(8)) {
        let mut value = 0u64;
        for (i, byte) in group.iter().enumerate() {
            if let Some(digit) = digit(*byte, &BASE32) {
                value = value << 5 | u64::from(digit);
                continue;
            }
            if *byte != b'=' || i < 2 || text.len() - (start + i + 1) >= 8 {
                return Err(start + i);
            }
            return ending(group, start, i, value, out);
        }
        if group.len() < 8 {
            return Err(text.len() - group.len());
        }
        out.extend_from_slice(&value.to_be_bytes()[3..]);
    }
    Ok(out)
}

/// Decodes the last group, which is padded from digit `digits` on.
fn ending(group: &[u8], start: usize, digits: usize, value: u64, mut out: Vec<u8>) -> Result<Vec<u8>, usize> {
    if group.len() < 8 {
        return Err(start + group.len());
    }
    if let Some(at) = group[digits..].iter().position(|b| *b != b'=') {
        return Err(start + digits + at - 1);
    }
    // 2, 4, 5 and 7 digits represent whole bytes.
    if matches!(digits, 1 | 3 | 6) {
        return Err(start + digits);
    }
    let value = value << (5 * (8 - digits));
    out.extend_from_slice(&value.to_be_bytes()[3..3 + digits * 5 / 8]);
    Ok(out)
}
