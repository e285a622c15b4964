//! Escape sequences in settings that stand for bytes.

/// Returns the bytes that a text with escape sequences stands for.
///
/// # Errors
/// The reason why the text is invalid: it is empty, or an escape sequence is unknown.
pub(super) fn unescaped(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (byte, len) = match (first, rest.as_bytes().get(1)) {
            ('\\', Some(b'n')) => (b'\n', 2),
            ('\\', Some(b'r')) => (b'\r', 2),
            ('\\', Some(b't')) => (b'\t', 2),
            ('\\', Some(b'0')) => (0, 2),
            ('\\', Some(b'\\')) => (b'\\', 2),
            ('\\', Some(b'x')) => {
                let digits = rest.get(2..4).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
                let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                (byte.ok_or_else(|| format!("{rest:?} needs two hexadecimal digits after \\x"))?, 4)
            }
            ('\\', _) => {
                return Err(format!("{rest:?} begins with an unknown escape sequence; write \\\\ for a backslash"));
            }
            (first, _) => {
                bytes.extend_from_slice(&rest.as_bytes()[..first.len_utf8()]);
                rest = &rest[first.len_utf8()..];
                continue;
            }
        };
        bytes.push(byte);
        rest = &rest[len..];
    }
    if bytes.is_empty() { Err("it is empty".to_owned()) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_stand_for_bytes() {
        assert_eq!(unescaped(r"a\0\xfF\n\\ü").unwrap(), b"a\0\xff\n\\\xc3\xbc");
        for wrong in ["", r"\", r"\q", r"\x1", r"\x+1"] {
            assert!(unescaped(wrong).is_err(), "{wrong}");
        }
    }
}
