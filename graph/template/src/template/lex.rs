//! Splitting a template into tokens.

use std::ops::Range;

use super::TemplateError;

/// Kind of a token. The text of a token is derived from its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenClass {
    /// Text outside of actions, without the white space that trim markers remove.
    Text,
    /// `{{`.
    Open,
    /// `}}`.
    Close,
    /// White space inside an action.
    Space,
    /// `=`.
    Assign,
    /// `:=`.
    Declare,
    /// `|`.
    Pipe,
    /// `"…"`.
    Quoted,
    /// `` `…` ``.
    Raw,
    /// `'…'`.
    Char,
    /// A number.
    Number,
    /// `$`, `$name`.
    Variable,
    /// `.name`.
    Field,
    /// `.`.
    Dot,
    /// A name.
    Name,
    /// `true`, `false`.
    Bool,
    /// `nil`.
    Nil,
    /// `if` and the other words that begin or end a block.
    Keyword,
    /// `(`.
    ParenOpen,
    /// `)`.
    ParenClose,
    /// Any other printable character.
    Other,
    /// The end of the template.
    End,
}

/// A token and its place in the template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: TokenClass,
    pub(super) at: Range<usize>,
}

/// The tokens up to the end or to the first error. The parser reports that error only when it reaches
/// it: earlier syntax errors are more useful.
pub(super) struct Tokens {
    pub(super) tokens: Vec<Token>,
    pub(super) error: Option<TemplateError>,
}

const OPEN: &str = "{{";
const CLOSE: &str = "}}";
const COMMENT_OPEN: &str = "/*";
const COMMENT_CLOSE: &str = "*/";
/// Length of a trim marker: a dash and the white space that separates it from the action.
const MARKER: usize = 2;

/// Splits `text` into tokens.
pub(super) fn tokens(text: &str) -> Tokens {
    let mut lexer = Lexer { text, at: 0, tokens: Vec::new() };
    let error = lexer.template().err();
    lexer.push(TokenClass::End, text.len()..text.len());
    Tokens { tokens: lexer.tokens, error }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

fn is_name(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

struct Lexer<'t> {
    text: &'t str,
    at: usize,
    tokens: Vec<Token>,
}

impl<'t> Lexer<'t> {
    fn push(&mut self, kind: TokenClass, at: Range<usize>) {
        self.tokens.push(Token { kind, at });
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn skip_while(&mut self, accept: impl Fn(char) -> bool) {
        let rest = self.rest();
        self.at += rest.find(|c| !accept(c)).unwrap_or(rest.len());
    }

    fn template(&mut self) -> Result<(), TemplateError> {
        // Start of the current text, after the white space that a closing trim marker removes.
        let mut start = 0;
        while let Some(open) = memchr::memmem::find(self.rest().as_bytes(), OPEN.as_bytes()) {
            let open = self.at + open;
            self.at = open + OPEN.len();
            let trim = matches!(self.rest().as_bytes(), [b'-', space, ..] if is_space(*space));
            let piece = &self.text[start..open];
            let kept = if trim { piece.trim_end_matches([' ', '\t', '\r', '\n']) } else { piece };
            if !kept.is_empty() {
                self.push(TokenClass::Text, start..start + kept.len());
            }
            self.at += if trim { MARKER } else { 0 };
            if self.rest().starts_with(COMMENT_OPEN) {
                self.comment(open)?;
            } else {
                self.push(TokenClass::Open, open..open + OPEN.len());
                self.action(open)?;
            }
            start = self.at;
        }
        if start < self.text.len() {
            self.push(TokenClass::Text, start..self.text.len());
        }
        self.at = self.text.len();
        Ok(())
    }

    /// Returns `None` if the action does not end here; otherwise `true` if it ends with a trim marker.
    fn at_close(&self) -> Option<bool> {
        match self.rest().as_bytes() {
            [space, b'-', rest @ ..] if is_space(*space) && rest.starts_with(CLOSE.as_bytes()) => Some(true),
            rest => rest.starts_with(CLOSE.as_bytes()).then_some(false),
        }
    }

    fn close(&mut self, trim: bool) -> Range<usize> {
        let start = self.at + if trim { MARKER } else { 0 };
        self.at = start + CLOSE.len();
        if trim {
            self.skip_while(|c| c.is_ascii() && is_space(c as u8));
        }
        start..start + CLOSE.len()
    }

    fn comment(&mut self, open: usize) -> Result<(), TemplateError> {
        let Some(end) = self.rest().find(COMMENT_CLOSE) else {
            return Err(error(open..self.text.len(), "unclosed comment").hint("end it with `*/}}`"));
        };
        self.at += end + COMMENT_CLOSE.len();
        let Some(trim) = self.at_close() else {
            return Err(error(open..self.at, "comment ends before closing delimiter")
                .hint("write a comment as a separate action: `{{/* … */}}`"));
        };
        self.close(trim);
        Ok(())
    }

    fn action(&mut self, open: usize) -> Result<(), TemplateError> {
        let mut parens: Vec<usize> = Vec::new();
        loop {
            if let Some(trim) = self.at_close() {
                if let Some(paren) = parens.pop() {
                    return Err(error(paren..paren + 1, "unclosed left paren")
                        .hint("close it with `)` after its last argument"));
                }
                let at = self.close(trim);
                self.push(TokenClass::Close, at);
                return Ok(());
            }
            let start = self.at;
            let Some(c) = self.peek() else {
                return Err(error(open..self.text.len(), "unclosed action").hint("end it with `}}`"));
            };
            self.at += c.len_utf8();
            let kind = match c {
                ' ' | '\t' | '\r' | '\n' => {
                    // The white space before a closing trim marker belongs to the marker.
                    while self.at_close() != Some(true)
                        && self.peek().is_some_and(|c| c.is_ascii() && is_space(c as u8))
                    {
                        self.at += 1;
                    }
                    TokenClass::Space
                }
                '=' => TokenClass::Assign,
                ':' => {
                    if self.peek() != Some('=') {
                        return Err(error(start..self.at, "expected :="));
                    }
                    self.at += 1;
                    TokenClass::Declare
                }
                '|' => TokenClass::Pipe,
                '"' => self.quoted(start, '"', "unterminated quoted string", TokenClass::Quoted)?,
                '\'' => self.quoted(start, '\'', "unterminated character constant", TokenClass::Char)?,
                '`' => {
                    let Some(end) = self.rest().find('`') else {
                        return Err(error(start..self.text.len(), "unterminated raw quoted string"));
                    };
                    self.at += end + 1;
                    TokenClass::Raw
                }
                '$' => {
                    self.name_tail(start)?;
                    TokenClass::Variable
                }
                '.' if !self.peek().is_some_and(|c| c.is_ascii_digit()) => {
                    self.name_tail(start)?;
                    if self.at == start + 1 { TokenClass::Dot } else { TokenClass::Field }
                }
                '.' | '+' | '-' | '0'..='9' => {
                    self.at = start;
                    self.number()?;
                    TokenClass::Number
                }
                c if is_name(c) => {
                    self.name_tail(start)?;
                    match &self.text[start..self.at] {
                        "true" | "false" => TokenClass::Bool,
                        "nil" => TokenClass::Nil,
                        "block" | "break" | "continue" | "define" | "else" | "end" | "if" | "range" | "template"
                        | "with" => TokenClass::Keyword,
                        _ => TokenClass::Name,
                    }
                }
                '(' => {
                    parens.push(start);
                    TokenClass::ParenOpen
                }
                ')' => {
                    if parens.pop().is_none() {
                        return Err(error(start..self.at, "unexpected right paren"));
                    }
                    TokenClass::ParenClose
                }
                '!'..='~' => TokenClass::Other,
                c => {
                    return Err(error(start..self.at, format!("unrecognized character in action: {c:?}")));
                }
            };
            self.push(kind, start..self.at);
        }
    }

    fn quoted(
        &mut self,
        start: usize,
        mark: char,
        message: &str,
        kind: TokenClass,
    ) -> Result<TokenClass, TemplateError> {
        while let Some(c) = self.peek() {
            self.at += c.len_utf8();
            match c {
                '\\' if self.peek().is_some_and(|c| c != '\n') => {
                    self.at += self.peek().map_or(0, char::len_utf8);
                }
                '\\' | '\n' => break,
                c if c == mark => return Ok(kind),
                _ => {}
            }
        }
        Err(error(start..self.at, message)
            .hint("close it on the same line, or put text of several lines between backquotes"))
    }

    /// Reads the rest of a name and checks the character after it.
    fn name_tail(&mut self, start: usize) -> Result<(), TemplateError> {
        self.skip_while(is_name);
        match self.peek() {
            None | Some(' ' | '\t' | '\r' | '\n' | '.' | ',' | '|' | ':' | ')' | '(') => Ok(()),
            Some(_) if self.rest().starts_with(CLOSE) => Ok(()),
            Some('=') if self.text[start..].starts_with('$') => Ok(()),
            Some(c) => {
                let name = &self.text[start..self.at];
                let hint = (c == '-' && name.len() > 1).then(|| {
                    format!(
                        "read a name with characters other than letters, digits and `_` with `index`: `index \
                             .Metadata \"{}-…\"`",
                        name.trim_start_matches('.')
                    )
                });
                let mut found = error(self.at..self.at + c.len_utf8(), format!("bad character {c:?} after {name:?}"));
                found.hint = hint;
                Err(found)
            }
        }
    }

    fn accept(&mut self, set: &str) -> bool {
        let found = self.peek().is_some_and(|c| set.contains(c));
        self.at += usize::from(found);
        found
    }

    fn number(&mut self) -> Result<(), TemplateError> {
        let start = self.at;
        self.accept("+-");
        let mut digits = "0123456789_";
        if self.accept("0") {
            if self.accept("xX") {
                digits = "0123456789abcdefABCDEF_";
            } else if self.accept("oO") {
                digits = "01234567_";
            } else if self.accept("bB") {
                digits = "01_";
            }
        }
        self.skip_while(|c| digits.contains(c));
        if self.accept(".") {
            self.skip_while(|c| digits.contains(c));
        }
        let exponent = match digits.len() {
            11 => self.accept("eE"),
            23 => self.accept("pP"),
            _ => false,
        };
        if exponent {
            self.accept("+-");
            self.skip_while(|c| "0123456789_".contains(c));
        }
        self.accept("i");
        match self.peek() {
            Some(c) if is_name(c) => {
                self.skip_while(is_name);
                let number = &self.text[start..self.at];
                Err(error(start..self.at, format!("bad number syntax: {number:?}")))
            }
            _ => Ok(()),
        }
    }
}

/// Creates an error at a place.
pub(super) fn error(at: Range<usize>, message: impl Into<String>) -> TemplateError {
    TemplateError { offset: at.start, len: at.end - at.start, message: message.into(), hint: None, correction: None }
}

impl TemplateError {
    /// Adds a hint.
    pub(super) fn hint(mut self, hint: impl Into<String>) -> TemplateError {
        self.hint = Some(hint.into());
        self
    }
}
