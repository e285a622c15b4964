//! Go's quoted strings, and runes of strings that may be invalid UTF-8.

/// Returns the first character and its length in bytes; the inner `None` is a byte that does not start a character.
pub(super) fn decode_rune(text: &[u8]) -> Option<(Option<char>, usize)> {
    let first = text.first()?;
    if first.is_ascii() {
        return Some((Some(char::from(*first)), 1));
    }
    let head = &text[..text.len().min(4)];
    let valid = match std::str::from_utf8(head) {
        Ok(valid) => valid,
        Err(error) => std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default(),
    };
    Some(valid.chars().next().map_or((None, 1), |c| (Some(c), c.len_utf8())))
}

/// Returns the number of characters; each byte that is not part of a character counts as one.
pub(super) fn count_runes(text: &[u8]) -> usize {
    match std::str::from_utf8(text) {
        Ok(text) => text.chars().count(),
        Err(_) => runes(text).count(),
    }
}

/// Returns the offset of the end of the first `count` characters.
pub(super) fn rune_offset(text: &[u8], count: usize) -> usize {
    runes(text).take(count).map(|(piece, _)| piece.len()).sum()
}

/// Returns the characters with their bytes; a byte that is not part of a character is returned alone.
pub(crate) fn runes(mut text: &[u8]) -> impl Iterator<Item = (&[u8], Option<char>)> {
    std::iter::from_fn(move || {
        let (rune, size) = decode_rune(text)?;
        let (piece, rest) = text.split_at(size);
        text = rest;
        Some((piece, rune))
    })
}

/// Returns `true` if Go considers the character printable: letters, marks, numbers, punctuation, symbols, the space.
pub(crate) fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return (' '..='~').contains(&c);
    }
    // After another character, `escape_debug` leaves exactly the printable ones unchanged.
    let mut buffer = [b'a'; 5];
    c.encode_utf8(&mut buffer[1..]);
    let pair = std::str::from_utf8(&buffer[..=c.len_utf8()]).unwrap_or_default();
    pair.escape_debug().count() == 2
}

/// Returns `true` if the text can be written unchanged between backquotes.
pub(super) fn can_backquote(text: &[u8]) -> bool {
    std::str::from_utf8(text)
        .is_ok_and(|text| text.chars().all(|c| c != '`' && c != '\u{feff}' && c != '\u{7f}' && (c >= ' ' || c == '\t')))
}

/// Returns the text between `mark`s with Go's escapes; with `ascii`, all characters outside ASCII are escaped.
pub(crate) fn quote(text: &[u8], mark: char, ascii: bool) -> String {
    use std::fmt::Write as _;
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push(mark);
    let mut rest = text;
    while let Some((rune, size)) = decode_rune(rest) {
        let byte = rest[0];
        rest = &rest[size..];
        let simple = match rune {
            None => {
                // Writing to a String cannot fail.
                let _ = write!(quoted, "\\x{byte:02x}");
                continue;
            }
            Some('\x07') => 'a',
            Some('\x08') => 'b',
            Some('\x0c') => 'f',
            Some('\n') => 'n',
            Some('\r') => 'r',
            Some('\t') => 't',
            Some('\x0b') => 'v',
            Some(c) if c == mark || c == '\\' => c,
            Some(c) if is_printable(c) && (c.is_ascii() || !ascii) => {
                quoted.push(c);
                continue;
            }
            Some(c) => {
                let code = u32::from(c);
                let _ = match code {
                    0..0x20 | 0x7f => write!(quoted, "\\x{code:02x}"),
                    0..0x10000 => write!(quoted, "\\u{code:04x}"),
                    _ => write!(quoted, "\\U{code:08x}"),
                };
                continue;
            }
        };
        quoted.push('\\');
        quoted.push(simple);
    }
    quoted.push(mark);
    quoted
}
