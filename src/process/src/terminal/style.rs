//! Styles of text for people.

use std::collections::hash_map::RandomState;
use std::fmt::Write as _;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::OnceLock;

use super::escape::escape_into;

/// A text style on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style(&'static str);

/// Delimiters of a mark, which contains a style and the number of the process. They are noncharacters, so no valid text
/// contains them.
const OPEN: char = '\u{fdd0}';
const CLOSE: char = '\u{fdd1}';
/// Maximum length of a mark's content: the number, and a code such as `38;5;12`.
const LONGEST: usize = 16 + 12;

impl Style {
    /// No style.
    pub const PLAIN: Style = Style("");
    /// Bold.
    pub const BOLD: Style = Style("1");
    /// Dim.
    pub const DIM: Style = Style("2");
    /// Red.
    pub const RED: Style = Style("31");
    /// Green.
    pub const GREEN: Style = Style("32");
    /// Yellow.
    pub const YELLOW: Style = Style("33");

    /// Returns the text in this style, or unchanged without colours.
    pub fn paint(self, text: &str, color: bool) -> String {
        match color && self != Style::PLAIN && !text.is_empty() {
            true => format!("{}{text}{}", mark(self.0), mark("0")),
            false => text.to_owned(),
        }
    }
}

/// Returns the random number of this process.
fn number() -> &'static str {
    static NUMBER: OnceLock<String> = OnceLock::new();
    NUMBER.get_or_init(|| format!("{:016x}", RandomState::new().build_hasher().finish()))
}

fn mark(code: &str) -> String {
    format!("{OPEN}{}{code}{CLOSE}", number())
}

/// Takes over a text that the printers of findings and plans have coloured. They escape the content of files. Their
/// colours become marks; everything else that is unsafe is escaped when the text is printed.
pub fn adopt(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("\x1b[") {
        out.push_str(&rest[..at]);
        rest = &rest[at + 2..];
        let code = rest.find(|c: char| !c.is_ascii_digit() && c != ';').unwrap_or(rest.len());
        match rest[code..].starts_with('m') && code <= LONGEST - 16 {
            true => {
                out.push_str(&mark(&rest[..code]));
                rest = &rest[code + 1..];
            }
            false => out.push_str("\x1b["),
        }
    }
    out.push_str(rest);
    out
}

/// Returns the text for a terminal: marks of this process become escape sequences, everything else is escaped.
pub(super) fn rendered(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(OPEN) {
        escape_into(&mut out, &rest[..at]);
        rest = &rest[at + OPEN.len_utf8()..];
        let code = rest.find(CLOSE).filter(|end| *end <= LONGEST).and_then(|end| rest[..end].strip_prefix(number()));
        match code {
            Some(code) if code.bytes().all(|b| b.is_ascii_digit() || b == b';') => {
                let _ = write!(out, "\x1b[{code}m");
                rest = &rest[16 + code.len() + CLOSE.len_utf8()..];
            }
            _ => out.extend(OPEN.escape_unicode()),
        }
    }
    escape_into(&mut out, rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_styles_of_ours_become_escape_sequences() {
        assert_eq!(rendered(&Style::RED.paint("a\x1b[32mb", true)), "\x1b[31ma\\u{1b}[32mb\x1b[0m");
        assert_eq!(Style::RED.paint("a", false), "a");
        assert_eq!(
            rendered(&adopt("\x1b[1;31mx\x1b[0m\x1b[2J\x1b]0;t\x07")),
            "\x1b[1;31mx\x1b[0m\\u{1b}[2J\\u{1b}]0;t\\u{7}"
        );
        // A mark with another number is not valid.
        let foreign = format!("{OPEN}000000000000000031{CLOSE}x{OPEN}");
        assert!(!rendered(&foreign).contains('\x1b'), "{}", rendered(&foreign));
    }
}
