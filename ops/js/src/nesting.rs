//! How deep a script nests, found out before it is parsed: the parser calls itself for everything that stands in
//! something else, and a text of a hundred bytes can make it call itself often.
//!
//! Two bounds. [`stack`] is how much stack parsing may take, whatever the text means: all of it is counted as nested,
//! strings and comments too. It is what the parser's thread gets, so it cannot overflow. [`check`] refuses what no person
//! nests, at its place; there brackets in strings, comments and regular expressions do not count, as far as that can be
//! told without parsing.

use crate::position::Position;

/// Brackets in brackets that a script may have.
pub(crate) const MOST_BRACKETS: usize = 200;

/// Stack of the parser's thread in bytes, in addition to the stack that nesting takes.
const BASE: usize = 2 << 20;

/// Bytes of stack that the parser, and what goes through its tree, take at most: for a bracket or template, which may
/// hold any expression; for another token that may be followed by what it holds; for any other byte, of which a chain may
/// consist, as `1+1+1`. At least twice what was measured with Boa 0.22 for all forms of `tests::FORMS`: in release builds
/// 38 KB for `class{a=`, 31 for a bracket or two, 3.4 for `await`, 2.3 for `!`, 0.2 for a byte of a chain. Code that is not
/// optimised takes five times as much.
const BRACKET: usize = if cfg!(debug_assertions) { 400 << 10 } else { 80 << 10 };
const TOKEN: usize = if cfg!(debug_assertions) { 64 << 10 } else { 6 << 10 };
const BYTE: usize = if cfg!(debug_assertions) { 2 << 10 } else { 256 };

/// Words that hold what follows them.
const WORDS: [&str; 22] = [
    "async", "await", "case", "class", "delete", "do", "else", "extends", "finally", "for", "function", "get", "if",
    "new", "set", "static", "switch", "typeof", "void", "while", "with", "yield",
];

/// Bytes of stack that parsing a text takes at most. O(n).
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
            // Escapes may spell words, but none that mean something to the parser.
            stack += if WORDS.contains(&&text[word..=at]) { TOKEN } else { 0 };
        }
    }
    stack
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || !byte.is_ascii()
}

/// The place of the first bracket that is nested deeper than [`MOST_BRACKETS`]. O(n).
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
    /// The brackets that are open; a template's is `` ` ``.
    open: Vec<u8>,
    /// Whether what was before is a value: then `/` divides it.
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
                // None ends on this line: it is a division after all.
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

    /// The text of a template, up to its end or to the next `${`.
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
