//! Detects and escapes characters that could control a terminal or change the order of a line.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Returns `true` if a character is a control character, changes the direction of text, or is invisible. Line feeds and
/// tabs count too; callers that lay out text keep them.
pub fn is_unsafe(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_control();
    }
    matches!(c,
        // C1 controls, the Arabic letter mark, the Mongolian vowel separator.
        '\u{80}'..='\u{9f}' | '\u{61c}' | '\u{180e}'
        // Zero-width spaces and joiners, direction marks; line separators; embeddings and overrides.
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        // Invisible operators, isolates, deprecated format characters.
        | '\u{2060}'..='\u{206f}'
        // The byte order mark, annotations, tags.
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Appends text with unsafe characters escaped as `\u{1b}`; line feeds and tabs stay.
pub(super) fn escape_into(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '\n' | '\t' => out.push(c),
            c if is_unsafe(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
}

/// Returns a text for one line: unsafe characters are escaped, including line feeds and tabs.
pub fn shown(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if is_unsafe(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Escapes unsafe characters in JSON as JSON escapes, which keeps its value. Line feeds and tabs between values stay.
pub fn json_text(json: &str) -> Cow<'_, str> {
    let is_odd = |c: char| is_unsafe(c) && !matches!(c, '\n' | '\t' | '\r');
    if !json.contains(is_odd) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 8);
    for c in json.chars() {
        if is_odd(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clears the screen, in seven and in eight bits; turns the direction; hides.
    const ORDERS: &str = "a\x1b[2J\u{9b}2J\x7f\u{202e}b\u{200b}\u{2066}\u{feff}\u{e0041}c";

    #[test]
    fn nothing_from_outside_gives_orders() {
        let expected = "a\\u{1b}[2J\\u{9b}2J\\u{7f}\\u{202e}b\\u{200b}\\u{2066}\\u{feff}\\u{e0041}c";
        assert_eq!(shown(ORDERS), expected);
        assert_eq!(shown("x\ny\r\t"), "x\\ny\\r\\t");
        assert!(matches!(shown("grün ✓ 日本"), Cow::Borrowed(_)));
        let mut out = String::new();
        escape_into(&mut out, &format!("{ORDERS}\n\t\r"));
        assert_eq!(out, format!("{expected}\n\t\\u{{d}}"));
    }

    #[test]
    fn json_stays_the_same_value() {
        let json = serde_json::to_string(ORDERS).unwrap();
        let safe = json_text(&json);
        assert!(!safe.contains(is_unsafe), "{safe}");
        assert_eq!(serde_json::from_str::<String>(&safe).unwrap(), ORDERS);
    }
}
