//! Parsing of JSON text. Integers stay integers; an unpaired surrogate escape becomes U+FFFD.

use anabranch_record::text::Str;

use crate::template::functions::{CallError, Context};
use crate::template::val::{Dict, List, Text, Val};

/// Reason why parsing fails.
#[derive(Debug)]
pub(super) enum ParseProblem {
    /// The text is not JSON.
    Json {
        /// Byte offset of the error.
        at: usize,
    },
    /// The allowance is exhausted.
    Call(CallError),
}

impl From<CallError> for ParseProblem {
    fn from(error: CallError) -> ParseProblem {
        ParseProblem::Call(error)
    }
}

impl From<ParseProblem> for CallError {
    fn from(problem: ParseProblem) -> CallError {
        match problem {
            ParseProblem::Json { at } => format!("the text is not JSON: byte {at} is wrong or missing").into(),
            ParseProblem::Call(error) => error,
        }
    }
}

/// Parses a complete text. O(n); each list element and map entry is a step.
pub(super) fn read(cx: &mut Context, text: &str) -> Result<Val, ParseProblem> {
    let mut reader = Reader { cx, text, at: 0 };
    let value = reader.value(0)?;
    reader.skip_spaces();
    if reader.at < text.len() { Err(reader.wrong()) } else { Ok(value) }
}

struct Reader<'a> {
    cx: &'a mut Context,
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn wrong(&self) -> ParseProblem {
        ParseProblem::Json { at: self.at }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_spaces(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn expect(&mut self, byte: u8) -> Result<(), ParseProblem> {
        if self.take(byte) { Ok(()) } else { Err(self.wrong()) }
    }

    fn value(&mut self, depth: usize) -> Result<Val, ParseProblem> {
        if depth > Context::MAX_DEPTH {
            return Err(self.wrong());
        }
        self.skip_spaces();
        match self.peek() {
            Some(b'{') => self.map(depth),
            Some(b'[') => self.list(depth),
            Some(b'"') => self.string().map(Val::Text),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Val::Bool(true)),
            Some(b'f') => self.word("false", Val::Bool(false)),
            Some(b'n') => self.word("null", Val::Nil),
            _ => Err(self.wrong()),
        }
    }

    fn word(&mut self, word: &str, value: Val) -> Result<Val, ParseProblem> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.wrong());
        }
        self.at += word.len();
        Ok(value)
    }

    fn list(&mut self, depth: usize) -> Result<Val, ParseProblem> {
        self.at += 1;
        let mut items = Vec::new();
        self.skip_spaces();
        if !self.take(b']') {
            loop {
                self.cx.take_steps(1)?;
                items.push(self.value(depth + 1)?);
                self.skip_spaces();
                if self.take(b']') {
                    break;
                }
                self.expect(b',')?;
            }
        }
        Ok(List::new(items).into())
    }

    fn map(&mut self, depth: usize) -> Result<Val, ParseProblem> {
        self.at += 1;
        let mut entries: Vec<(Str, Val)> = Vec::new();
        self.skip_spaces();
        if !self.take(b'}') {
            loop {
                self.cx.take_steps(1)?;
                self.skip_spaces();
                if self.peek() != Some(b'"') {
                    return Err(self.wrong());
                }
                let key = self.string()?.to_key();
                self.skip_spaces();
                self.expect(b':')?;
                entries.push((key, self.value(depth + 1)?));
                self.skip_spaces();
                if self.take(b'}') {
                    break;
                }
                self.expect(b',')?;
            }
        }
        Ok(Dict::from_entries(entries).into())
    }

    fn digits(&mut self) -> Result<(), ParseProblem> {
        if !self.peek().is_some_and(|b| b.is_ascii_digit()) {
            return Err(self.wrong());
        }
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> Result<Val, ParseProblem> {
        let from = self.at;
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        let whole = self.at;
        if self.take(b'.') {
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        let text = &self.text[from..self.at];
        if self.at == whole && text != "-0" {
            if let Ok(n) = text.parse() {
                return Ok(Val::Int64(n));
            }
            if let Ok(n) = text.parse() {
                return Ok(Val::Uint64(n));
            }
        }
        match text.parse::<f64>() {
            Ok(f) if f.is_finite() => Ok(Val::Float(f)),
            _ => Err(ParseProblem::Json { at: from }),
        }
    }

    fn string(&mut self) -> Result<Text, ParseProblem> {
        self.at += 1;
        let start = self.at;
        let mut decoded: Option<String> = None;
        let mut from = start;
        loop {
            match self.peek() {
                Some(b'"') => {
                    let last = &self.text[from..self.at];
                    self.at += 1;
                    return Ok(match decoded {
                        None => last.into(),
                        Some(mut text) => {
                            text.push_str(last);
                            text.into()
                        }
                    });
                }
                Some(b'\\') => {
                    let text = decoded.get_or_insert_default();
                    text.push_str(&self.text[from..self.at]);
                    self.at += 1;
                    let c = self.escape()?;
                    decoded.get_or_insert_default().push(c);
                    from = self.at;
                }
                None | Some(0..=0x1f) => return Err(self.wrong()),
                Some(_) => self.at += 1,
            }
        }
    }

    fn escape(&mut self) -> Result<char, ParseProblem> {
        let c = match self.peek() {
            Some(c @ (b'"' | b'\\' | b'/')) => char::from(c),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                return self.code_point();
            }
            _ => return Err(self.wrong()),
        };
        self.at += 1;
        Ok(c)
    }

    fn code_point(&mut self) -> Result<char, ParseProblem> {
        let first = self.code_unit()?;
        if !(0xd800..0xdc00).contains(&first) {
            return Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        let before_second = self.at;
        if self.text[self.at..].starts_with("\\u") {
            self.at += 2;
            let second = self.code_unit()?;
            if (0xdc00..0xe000).contains(&second) {
                let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = before_second;
        }
        Ok(char::REPLACEMENT_CHARACTER)
    }

    fn code_unit(&mut self) -> Result<u32, ParseProblem> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4).ok_or_else(|| self.wrong())?;
        let mut code = 0;
        for digit in digits {
            code = code << 4 | char::from(*digit).to_digit(16).ok_or_else(|| self.wrong())?;
        }
        self.at += 4;
        Ok(code)
    }
}
