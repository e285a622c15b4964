//! Splitting an expression of another language into its tokens.

use std::ops::Range;

use super::names;

/// A part of an expression that is not template syntax.
#[derive(Clone, Debug)]
pub(super) struct ForeignSyntax {
    pub(super) at: Range<usize>,
    pub(super) message: String,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A value, translated to template syntax.
    Value(String),
    /// A name that could be a function or a field.
    Name(String),
    /// An operator.
    Operator(&'static str),
    /// A parenthesis. `call` is true if it directly follows a name and so begins the arguments of a call.
    Open {
        call: bool,
    },
    Close,
    Comma,
}

/// The tokens of an expression, and the first part that is not template syntax.
pub(super) struct Split {
    pub(super) tokens: Vec<(Token, Range<usize>)>,
    pub(super) foreign: Option<ForeignSyntax>,
    /// Reason why a part of the expression is ambiguous.
    pub(super) doubt: Option<String>,
}

/// Longer operators come before their prefixes.
const OPERATORS: [&str; 25] = [
    "===", "!==", "==", "!=", "<=", ">=", "<>", "=~", "&&", "||", "≠", "≤", "≥", "<", ">", "!", "=", "|", "?", ":",
    "+", "-", "*", "/", "%",
];

/// Quotes, including typographic ones, with their closing quotes.
const QUOTES: [(char, &[char]); 6] =
    [('"', &['"']), ('`', &['`']), ('\'', &['\'']), ('“', &['”', '“']), ('„', &['“', '”']), ('‘', &['’', '‘'])];

/// Splits an expression. `None` if a part of it cannot be translated.
pub(super) fn tokens(text: &str) -> Option<Split> {
    let mut splitting = Splitting { text, tokens: Vec::new(), foreign: None, doubt: None };
    let mut at = 0;
    while at < text.len() {
        at = splitting.token(at)?;
    }
    Some(Split { tokens: splitting.tokens, foreign: splitting.foreign, doubt: splitting.doubt })
}

struct Splitting<'t> {
    text: &'t str,
    tokens: Vec<(Token, Range<usize>)>,
    foreign: Option<ForeignSyntax>,
    doubt: Option<String>,
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

impl Splitting<'_> {
    fn note(&mut self, at: Range<usize>, message: impl Into<String>) {
        if self.foreign.as_ref().is_none_or(|first| first.at.start > at.start) {
            self.foreign = Some(ForeignSyntax { at, message: message.into() });
        }
    }

    /// Reads the token at a byte offset; returns the offset after it.
    fn token(&mut self, start: usize) -> Option<usize> {
        let rest = &self.text[start..];
        let c = rest.chars().next()?;
        if c.is_whitespace() {
            if !c.is_ascii() {
                self.note(start..start + c.len_utf8(), "this is not a plain space: write a space");
            }
            return Some(start + c.len_utf8());
        }
        if let Some((_, closing)) = QUOTES.into_iter().find(|(open, _)| *open == c) {
            return self.quoted(start, c, closing);
        }
        if matches!(c, '0'..='9' | '-' | '+') && !self.is_calculated(start, c) {
            let digits = rest[1..].find(|c: char| !is_word(c) && c != '.').unwrap_or(rest.len() - 1);
            let end = start + 1 + digits;
            rest[..1 + digits].parse::<f64>().ok()?;
            self.tokens.push((Token::Value(rest[..1 + digits].to_owned()), start..end));
            return Some(end);
        }
        // A bare name with a dash could be one field, or the difference of two.
        let in_name = |(token, at): &(Token, Range<usize>)| matches!(token, Token::Name(_)) && at.end == start;
        if c == '-' && rest[1..].starts_with(is_word) && self.tokens.last().is_some_and(in_name) {
            return None;
        }
        if let Some(operator) = OPERATORS.into_iter().find(|operator| rest.starts_with(operator)) {
            let end = start + operator.len();
            self.tokens.push((Token::Operator(operator), start..end));
            return Some(end);
        }
        let (token, len) = match c {
            '(' => {
                let behind_name = start > 0 && self.text[..start].ends_with(is_word);
                let call = behind_name && matches!(self.tokens.last(), Some((Token::Name(_), _)));
                (Token::Open { call }, 1)
            }
            ')' => (Token::Close, 1),
            ',' => (Token::Comma, 1),
            '.' | '$' => {
                let (value, len) = self.path(rest, start)?;
                (Token::Value(value), len)
            }
            c if is_word(c) => self.name(rest, start)?,
            _ => return None,
        };
        self.tokens.push((token, start..start + len));
        Some(start + len)
    }

    /// Returns `true` if a sign is an infix operator and not the sign of a number.
    fn is_calculated(&self, start: usize, sign: char) -> bool {
        let behind = &self.text[start + 1..];
        match self.tokens.last() {
            _ if sign.is_ascii_digit() => false,
            Some((Token::Value(_) | Token::Name(_) | Token::Close, at)) => {
                at.end == start || behind.starts_with(char::is_whitespace)
            }
            _ => false,
        }
    }

    fn quoted(&mut self, start: usize, open: char, closing: &[char]) -> Option<usize> {
        let inner = &self.text[start + open.len_utf8()..];
        let end = inner.find(closing)?;
        let close = inner[end..].chars().next()?;
        let behind = start + open.len_utf8() + end + close.len_utf8();
        let inner = &inner[..end];
        let value = match open {
            '"' | '`' => self.text[start..behind].to_owned(),
            _ if inner.contains('"') => return None,
            '\'' => {
                self.note(start..behind, "text must be in double quotes here");
                format!("\"{inner}\"")
            }
            _ => {
                self.note(start..behind, "text must be in straight double quotes here");
                format!("\"{inner}\"")
            }
        };
        self.tokens.push((Token::Value(value), start..behind));
        Some(behind)
    }

    /// Parses a path such as `.a.b-c["d"].0`; also returns its length in bytes.
    fn path(&mut self, rest: &str, start: usize) -> Option<(String, usize)> {
        let mut plain = String::new();
        let mut keys: Vec<String> = Vec::new();
        let mut at = 0;
        if let Some(after) = rest.strip_prefix('$') {
            plain.push('$');
            at = 1;
            let name = after.find(|c: char| !is_word(c)).unwrap_or(after.len());
            plain.push_str(&after[..name]);
            at += name;
        }
        loop {
            let tail = &rest[at..];
            if let Some(name) = tail.strip_prefix('.') {
                let mut len = name.find(|c: char| !is_word(c) && c != '-').unwrap_or(name.len());
                // A name does not end with a dash.
                len = name[..len].trim_end_matches('-').len();
                let part = &name[..len];
                let is_number = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
                if is_number {
                    (at > 0).then_some(())?;
                    self.note(start..start + at + 1 + len, "use `index` to read an element of a list");
                    keys.push(part.to_owned());
                } else if part.contains('-') || !keys.is_empty() {
                    if part.contains('-') {
                        self.note(start..start + at + 1 + len, "use `index` to read a name with a dash");
                    }
                    keys.push(format!("\"{part}\""));
                } else {
                    plain.push('.');
                    plain.push_str(part);
                }
                at += 1 + len;
            } else if let Some(inner) = tail.strip_prefix('[') {
                let end = inner.find(']')?;
                let key = inner[..end].trim();
                let quoted = key.trim_matches(['"', '\'']);
                if quoted.contains(['"', '\'', '\\']) {
                    return None;
                }
                if let Some((from, to)) = quoted.split_once(':').filter(|_| quoted == key) {
                    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
                    (keys.is_empty() && !plain.is_empty() && is_number(from) && is_number(to)).then_some(())?;
                    self.note(start..start + at + end + 2, "brackets do not select a slice");
                    let from = if from.is_empty() { "0" } else { from };
                    self.doubt = Some(format!("or slice {plain} {from} {to} for a list").replace("  ", " "));
                    let to = if to.is_empty() { "-1" } else { to };
                    // A part of a text has no fields or elements.
                    return Some((format!("(substr {from} {to} {plain})"), at + end + 2));
                }
                // A name may be a field, or a key without quotes.
                if quoted == key && key.starts_with(|c: char| c.is_alphabetic() || c == '_') {
                    self.doubt = Some("if the key is a text".to_owned());
                }
                let is_index = !quoted.is_empty() && quoted.bytes().all(|b| b.is_ascii_digit()) && quoted == key;
                keys.push(if is_index { key.to_owned() } else { format!("\"{quoted}\"") });
                self.note(start..start + at + end + 2, "use `index` to read a key in brackets");
                at += end + 2;
            } else {
                break;
            }
        }
        let base = if plain.is_empty() { "." } else { &plain };
        let value = if keys.is_empty() { base.to_owned() } else { format!("(index {base} {})", keys.join(" ")) };
        Some((value, at))
    }

    /// Parses a name, which may have several parts; also returns its length in bytes.
    fn name(&mut self, rest: &str, start: usize) -> Option<(Token, usize)> {
        let len = rest.find(|c: char| !is_word(c) && c != '.').unwrap_or(rest.len());
        let name = &rest[..len];
        let at = start..start + len;
        Some(match name {
            "null" | "None" | "undefined" | "NULL" | "none" => {
                self.note(at, format!("write `nil` instead of `{name}` here"));
                (Token::Value("nil".to_owned()), len)
            }
            "True" | "TRUE" | "False" | "FALSE" => {
                self.note(at, format!("write `{name}` in lower case here"));
                (Token::Value(name.to_lowercase()), len)
            }
            "true" | "false" | "nil" => (Token::Value(name.to_owned()), len),
            _ if rest[len..].starts_with(['[', '-']) && names::own_path(name).is_some() => {
                self.note(at, "a field begins with a dot");
                let path = format!("{}{}", names::own_path(name)?, &rest[len..]);
                let (value, taken) = self.path(&path, start)?;
                (Token::Value(value), len + taken.checked_sub(path.len() - (rest.len() - len))?)
            }
            _ => (Token::Name(name.to_owned()), len),
        })
    }
}
