//! Cutting, wrapping and indentation of lines.

/// Shortens a text to `width` bytes, with `...` for omitted text at the end, and at the front if `offset` is beyond the
/// fourth byte. If `width` is too small for that, the result is empty.
pub(super) fn abbreviated(text: &[u8], offset: i64, width: i64) -> Vec<u8> {
    const MARK: &[u8] = b"...";
    let Some(width) = usize::try_from(width).ok().filter(|width| *width >= 4) else { return Vec::new() };
    if text.len() <= width {
        return text.to_vec();
    }
    let room = width - MARK.len();
    let offset = usize::try_from(offset).unwrap_or(0).min(text.len()).min(text.len() - room);
    if offset <= 4 {
        return [&text[..room], MARK].concat();
    }
    if width < 7 {
        return Vec::new();
    }
    if text.len() - offset > room {
        return [MARK, &abbreviated(&text[offset..], 0, i64::try_from(room).unwrap_or(i64::MAX))].concat();
    }
    [MARK, &text[text.len() - room..]].concat()
}

/// Breaks a line at spaces so that no part is longer than `width` bytes; a longer word stays whole, or is cut if
/// `cut_words`. O(n).
pub(super) fn wrapped(text: &[u8], width: i64, line_break: &[u8], cut_words: bool) -> Vec<u8> {
    let width = usize::try_from(width).unwrap_or(0).max(1);
    let line_break = if line_break.is_empty() { b"\n" } else { line_break };
    let mut out = Vec::with_capacity(text.len() + text.len() / 16);
    let mut rest = text;
    while rest.len() > width {
        if rest[0] == b' ' {
            rest = &rest[1..];
            continue;
        }
        if let Some(space) = memchr::memrchr(b' ', &rest[..=width]) {
            out.extend_from_slice(&rest[..space]);
            rest = &rest[space + 1..];
        } else if cut_words {
            out.extend_from_slice(&rest[..width]);
            rest = &rest[width..];
        } else if let Some(space) = memchr::memchr(b' ', &rest[width..]) {
            out.extend_from_slice(&rest[..width + space]);
            rest = &rest[width + space + 1..];
        } else {
            break;
        }
        out.extend_from_slice(line_break);
    }
    out.extend_from_slice(rest);
    out
}
