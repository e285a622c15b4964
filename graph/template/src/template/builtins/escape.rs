//! Escaping for other languages.

use super::joined;
use crate::template::format::{is_printable, runes};
use crate::template::functions::{CallError, Context};
use crate::template::out::Out;
use crate::template::val::Val;

/// Escapes a text for HTML text and attributes.
pub(super) fn html(_: &mut Context, args: &[Val]) -> Result<Val, CallError> {
    let text = joined(args)?;
    let mut escaped = Vec::with_capacity(text.as_bytes().len());
    for byte in text.as_bytes() {
        let piece: &[u8] = match byte {
            0 => "\u{fffd}".as_bytes(),
            b'"' => b"&#34;",
            b'\'' => b"&#39;",
            b'&' => b"&amp;",
            b'<' => b"&lt;",
            b'>' => b"&gt;",
            other => std::slice::from_ref(other),
        };
        escaped.extend_from_slice(piece);
    }
    Ok(Val::text(escaped))
}

/// Escapes a text for a JavaScript string.
pub(super) fn js(_: &mut Context, args: &[Val]) -> Result<Val, CallError> {
    let text = joined(args)?;
    let mut escaped = Out::default();
    for (piece, rune) in runes(text.as_bytes()) {
        match rune {
            Some(c @ ('\\' | '\'' | '"')) => {
                escaped.push('\\');
                escaped.push(c);
            }
            Some(c) if matches!(c, '<' | '>' | '&' | '=' | '\0'..'\x20') || !(c.is_ascii() || is_printable(c)) => {
                escaped.push_str(&format!("\\u{:04X}", u32::from(c)));
            }
            _ => escaped.push_bytes(piece),
        }
    }
    Ok(Val::Text(escaped.into_text()))
}

/// Escapes a text for the query of a URL: a space becomes `+`.
pub(super) fn url_query(_: &mut Context, args: &[Val]) -> Result<Val, CallError> {
    use std::fmt::Write as _;
    let text = joined(args)?;
    let mut escaped = String::with_capacity(text.as_bytes().len());
    for byte in text.as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => escaped.push(char::from(*byte)),
            b' ' => escaped.push('+'),
            other => {
                // Writing to a String cannot fail.
                let _ = write!(escaped, "%{other:02X}");
            }
        }
    }
    Ok(Val::text(escaped))
}
