//! Nesting depth of a script, computed before parsing. The parser is recursive, and a short text can make the recursion
//! deep.
//!
//! There are two bounds. [`stack`] is an upper bound of the stack that parsing takes, whatever the text means: it
//! counts everything, including strings and comments, as nested. The parser's thread gets that much stack, so it cannot
//! overflow. [`check`] rejects unreasonably deep nesting and reports its place. It ignores brackets in strings,
//! comments and regular expressions, as far as they can be recognized without parsing.

use crate::position::Position;

/// Maximum nesting depth of brackets.
pub(crate) const MOST_BRACKETS: usize = 200;

/// Base stack of the parser's thread in bytes, in addition to the stack for nesting.
const BASE: usize = 2 << 20;

/// Upper bounds in bytes of the stack for the parser and the passes over its tree. `BRACKET` is for a bracket or
/// template, which may contain any expression; `TOKEN` for another token that may be followed by a nested part; `BYTE`
/// for any other byte, of which a chain such as `1+1+1` may consist. Each is at least twice the measured value with Boa
/// 0.22 for all forms of `tests::FORMS`. In release builds these are 38 KB for `class{a=`, 31 for one or two brackets,
/// 3.4 for `await`, 2.3 for `!`, 0.2 for a byte of a chain. Unoptimised code takes five times as much.
const BRACKET: usize = if cfg!(debug_assertions) { 400 << 10 } else { 80 << 10 };
const TOKEN: usize = if cfg!(debug_assertions) { 64 << 10 } else { 6 << 10 };
const BYTE: usize = if cfg!(debug_assertions) { 2 << 10 } else { 256 };

/// Keywords that may be followed by a nested part.
const WORDS: [&str; 22] = [
    "async", "await", "case", "class", "delete", "do", "else", "extends", "finally", "for", "function", "get", "if",
    "new", "set", "static", "switch", "typeof", "void", "while", "with", "yield",
];

/// Returns an upper bound in bytes of the stack that parsing a text takes. O(n).
pub(crate) fn stack(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut stack = BASE + bytes.len() * BYTE;
    let mut word = 0;
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'(' | b'[' | b'{' | b'`' => stack += BRACKET,
            b'!' | b'~' | b'+' | b'-' | b'?' | b':' | b'=' | b'>' | b'*' => stack += TOKEN,
            _ => {}
        }
        if !is_of_word(*byte) {
            word = at + 1;
        } else if !bytes.get(at + 1).is_some_and(|next| is_of_word(*next)) {
            // Escapes may spell keywords, but the parser does not accept those as keywords.
            stack += if WORDS.contains(&&text[word..=at]) { TOKEN } else { 0 };
        }
    }
    stack
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || !byte.is_ascii()
}

/// Checks the nesting depth. The error is the place of the first bracket that is nested deeper than [`MOST_BRACKETS`].
/// O(n).
pub(crate) fn check(text: &str) -> Result<(), Position> {
    let mut scan = Scan { bytes: text.as_bytes(), at: 0, open: Vec::new(), operand: false };
    match scan.run() {
        Ok(()) => Ok(()),
        Err(at) => Err(place(text, at)),
    }
}

fn place(text: &str, offset: usize) -> Position {
    let before = &text[..(0..=offset).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default()];
    let line = before.matches('\n').count() + 1;
    Position { line, column: before.rsplit('\n').next().unwrap_or_default().chars().count() + 1 }
}

struct Scan<'t> {
    bytes: &'t [u8],
    at: usize,
    /// Open brackets; a template counts as `` ` ``.
    open: Vec<u8>,
    /// True if a value precedes, so that `/` is a division.
    operand: bool,
}

impl Scan<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or_default()
    }

    fn run(&mut self) -> Result<(), usize> {
        while self.at < self.bytes.len() {
            let byte = self.peek(0);
            match byte {
                b'\'' | b'"' => self.string(byte),
                b'/' if self.peek(1) == b'/' => self.skip_to(b"\n"),
                b'/' if self.peek(1) == b'*' => self.skip_to(b"*/"),
                b'/' if !self.operand => self.regular_expression(),
                b'`' => {
                    self.at += 1;
                    self.template()?;
                }
                b'(' | b'[' | b'{' => {
                    self.enter(byte)?;
                    self.operand = false;
                    self.at += 1;
                }
                b'}' if self.open.last() == Some(&b'`') => {
                    self.open.pop();
                    self.at += 1;
                    self.template()?;
                }
                b')' | b']' | b'}' => {
                    self.open.pop();
                    self.operand = byte != b'}';
                    self.at += 1;
                }
                _ if byte.is_ascii_whitespace() => self.at += 1,
                _ if is_of_word(byte) => self.word(),
                _ => {
                    self.operand = false;
                    self.at += 1;
                }
            }
        }
        Ok(())
    }

    fn enter(&mut self, bracket: u8) -> Result<(), usize> {
        if self.open.len() == MOST_BRACKETS {
            return Err(self.at);
        }
        self.open.push(bracket);
        Ok(())
    }

    fn word(&mut self) {
        let rest = &self.bytes[self.at..];
        let length = rest.iter().take_while(|byte| is_of_word(**byte)).count();
        let word = &rest[..length];
        self.operand = !matches!(
            word,
            b"return" | b"typeof" | b"case" | b"in" | b"of" | b"delete" | b"void" | b"throw" | b"new" | b"do" | b"else"
        );
        self.at += length;
    }

    fn string(&mut self, quote: u8) {
        self.at += 1;
        while self.at < self.bytes.len() {
            match self.peek(0) {
                b'\\' => self.at += 1,
                b'\n' => break,
                byte if byte == quote => break,
                _ => {}
            }
            self.at += 1;
        }
        self.at += 1;
        self.operand = true;
    }

    fn regular_expression(&mut self) {
        let (mut class, mut ahead) = (false, 1);
        loop {
            match self.peek(ahead) {
                // The line ends first, so it is a division.
                b'\n' | 0 => {
                    ahead = 0;
                    break;
                }
                b'\\' => ahead += 1,
                b'[' => class = true,
                b']' => class = false,
                b'/' if !class => break,
                _ => {}
            }
            ahead += 1;
        }
        self.at += ahead + 1;
        self.operand = ahead > 0;
    }

    fn skip_to(&mut self, end: &[u8]) {
        let rest = &self.bytes[self.at + 2..];
        let found = rest.windows(end.len()).position(|window| window == end);
        self.at += 2 + found.map_or(rest.len(), |found| found + end.len());
    }

    /// Skips the text of a template up to its end or the next `${`.
    fn template(&mut self) -> Result<(), usize> {
        while self.at < self.bytes.len() {
            match self.peek(0) {
                b'\\' => self.at += 1,
                b'`' => {
                    self.at += 1;
                    self.operand = true;
                    return Ok(());
                }
                b'$' if self.peek(1) == b'{' => {
                    self.at += 1;
                    self.enter(b'`')?;
                    self.at += 1;
                    self.operand = false;
                    return Ok(());
                }
                _ => {}
            }
            self.at += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
