//! Strings, characters and numbers in Go syntax.

use super::{Parsed, Parser};
use crate::template::lex::{Token, TokenClass, error};
use crate::template::tree::{Literal, Number};
use crate::template::val::Text;

impl Parser<'_> {
    pub(super) fn literal(&self, token: &Token) -> Parsed<Literal> {
        let text = self.text(token);
        Ok(match token.kind {
            TokenClass::Bool => Literal::Bool(text == "true"),
            TokenClass::Char => {
                let inner = &text[1..text.len() - 1];
                let mut rest = inner;
                let code = match unescape(&mut rest, '\'') {
                    Some(LiteralPiece::Char(c)) if rest.is_empty() => u32::from(c),
                    Some(LiteralPiece::Byte(byte)) if rest.is_empty() => u32::from(byte),
                    _ => return Err(error(token.at.clone(), format!("malformed character constant: {text}"))),
                };
                Literal::Number(Number { int: Some(i64::from(code)), float: f64::from(code), is_float: false })
            }
            TokenClass::Number => match number(text) {
                Ok(number) => Literal::Number(number),
                Err(message) => return Err(error(token.at.clone(), message)),
            },
            _ => {
                let string = self.string(token)?;
                match string.as_str() {
                    Some(_) => Literal::Text(string.to_key()),
                    None => Literal::Bytes(string.as_bytes().into()),
                }
            }
        })
    }

    pub(super) fn string(&self, token: &Token) -> Parsed<Text> {
        let text = self.text(token);
        let inner = &text[1..text.len() - 1];
        if token.kind == TokenClass::Raw {
            return Ok(inner.replace('\r', "").into());
        }
        if !inner.contains('\\') {
            return Ok(inner.into());
        }
        let mut bytes = Vec::with_capacity(inner.len());
        let mut rest = inner;
        while !rest.is_empty() {
            match unescape(&mut rest, '"') {
                Some(LiteralPiece::Char(c)) => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
                Some(LiteralPiece::Byte(byte)) => bytes.push(byte),
                None => {
                    let start = token.at.end - 1 - rest.len();
                    let escape = rest.chars().take(2).map(char::len_utf8).sum::<usize>();
                    return Err(error(start..start + escape, "invalid escape in string")
                        .hint("write a backslash as `\\\\`, or put the text between backquotes"));
                }
            }
        }
        Ok(bytes.into())
    }
}

enum LiteralPiece {
    Char(char),
    Byte(u8),
}

/// Takes one character or escape from the front of `rest`, which is unchanged if it is invalid.
fn unescape(rest: &mut &str, mark: char) -> Option<LiteralPiece> {
    let mut chars = rest.chars();
    let first = chars.next()?;
    if first != '\\' {
        *rest = chars.as_str();
        return Some(LiteralPiece::Char(first));
    }
    let kind = chars.next()?;
    let tail = chars.as_str();
    let numeric = |digits: usize, radix: u32, from: &str| {
        let text = from.get(..digits)?;
        text.chars().all(|c| c.is_digit(radix)).then(|| u32::from_str_radix(text, radix).ok()).flatten()
    };
    let (piece, after) = match kind {
        'a' => (LiteralPiece::Char('\x07'), tail),
        'b' => (LiteralPiece::Char('\x08'), tail),
        'f' => (LiteralPiece::Char('\x0c'), tail),
        'n' => (LiteralPiece::Char('\n'), tail),
        'r' => (LiteralPiece::Char('\r'), tail),
        't' => (LiteralPiece::Char('\t'), tail),
        'v' => (LiteralPiece::Char('\x0b'), tail),
        '\\' => (LiteralPiece::Char('\\'), tail),
        c if c == mark => (LiteralPiece::Char(c), tail),
        'x' => (LiteralPiece::Byte(u8::try_from(numeric(2, 16, tail)?).ok()?), &tail[2..]),
        'u' => (LiteralPiece::Char(char::from_u32(numeric(4, 16, tail)?)?), &tail[4..]),
        'U' => (LiteralPiece::Char(char::from_u32(numeric(8, 16, tail)?)?), &tail[8..]),
        '0'..='7' => {
            let all = &rest[1..];
            (LiteralPiece::Byte(u8::try_from(numeric(3, 8, all)?).ok()?), &all[3..])
        }
        _ => return None,
    };
    *rest = after;
    Some(piece)
}

fn number(text: &str) -> Result<Number, String> {
    if text.ends_with('i') {
        return Err(format!("complex numbers are not supported: {text:?}"));
    }
    let illegal = || format!("illegal number syntax: {text:?}");
    if let Some(int) = integer(text) {
        let int = int.map_err(|()| format!("integer overflow: {text:?}"))?;
        return Ok(Number { int: Some(int), float: int as f64, is_float: false });
    }
    let lower = text.to_ascii_lowercase();
    let float = if lower.trim_start_matches(['+', '-']).starts_with("0x") {
        hex_float(&lower).ok_or_else(illegal)?
    } else {
        if !underscores_are_fine(text) || !text.contains(|c: char| c.is_ascii_digit()) {
            return Err(illegal());
        }
        text.replace('_', "").parse::<f64>().map_err(|_| illegal())?
    };
    if !float.is_finite() {
        return Err(format!("the number is too large: {text:?}"));
    }
    let int = (float as i64) as f64 == float && float.abs() < 9.3e18;
    Ok(Number { int: int.then_some(float as i64), float, is_float: true })
}

/// Parses an integer: `None` for other text, an error if it is out of range.
fn integer(text: &str) -> Option<Result<i64, ()>> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, body) = if let Some(body) = lower.strip_prefix("0x") {
        (16, body)
    } else if let Some(body) = lower.strip_prefix("0o") {
        (8, body)
    } else if let Some(body) = lower.strip_prefix("0b") {
        (2, body)
    } else if lower.len() > 1 && lower.starts_with('0') {
        (8, &lower[1..])
    } else {
        (10, &lower[..])
    };
    let plain = body.replace('_', "");
    if plain.is_empty() || !plain.chars().all(|c| c.is_digit(radix)) || !underscores_are_fine(digits) {
        return None;
    }
    let parsed = i128::from_str_radix(&plain, radix).map_err(|_| ());
    Some(parsed.and_then(|n| i64::try_from(if negative { -n } else { n }).map_err(|_| ())))
}

/// Returns `true` if underscores are only between digits, or between the prefix and a digit.
fn underscores_are_fine(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.iter().enumerate().all(|(i, byte)| {
        let digit = |b: Option<&u8>| b.is_some_and(u8::is_ascii_hexdigit);
        let before = i > 0 && (digit(bytes.get(i - 1)) || matches!(bytes[i - 1], b'x' | b'X' | b'o' | b'O'));
        *byte != b'_' || (before && digit(bytes.get(i + 1)))
    })
}

/// Parses a hexadecimal float such as `0x1.8p-2`.
fn hex_float(lower: &str) -> Option<f64> {
    let negative = lower.starts_with('-');
    let body = lower.trim_start_matches(['+', '-']).strip_prefix("0x")?;
    let (mantissa, exponent) = body.split_once('p')?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = [whole, fraction].concat().replace('_', "");
    if digits.is_empty() || digits.len() > 15 {
        return None;
    }
    let value = u64::from_str_radix(&digits, 16).ok()? as f64;
    let exponent: i32 = exponent.parse().ok()?;
    let scale = exponent.checked_sub(4 * i32::try_from(fraction.len()).ok()?)?;
    let value = value * 2f64.powi(scale);
    Some(if negative { -value } else { value })
}
