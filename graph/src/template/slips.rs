//! What is meant by templates that do not compile: operators between values, calls with commas, names of functions
//! elsewhere, a brace or quote that is missing.
//!
//! Each suggestion is tried: it is made only if the template compiles with it, or fails further on.

use std::ops::Range;

use super::{TemplateError, functions, parse};

/// How deep parentheses may nest.
const MOST_DEPTH: usize = 40;

/// The error with what is meant, where that can be told.
pub(super) fn explain(source: &str, error: TemplateError) -> TemplateError {
    if source.len() > 64 << 10 {
        return error;
    }
    let explained = quote(source, &error)
        .or_else(|| brace(source, &error))
        .or_else(|| expression(source, &error))
        .or_else(|| word(source, &error))
        .or_else(|| ending(source, &error));
    explained.unwrap_or(error)
}

/// What is meant by a condition without braces, as `price == 10` or `{ gt .a 1 }}`: the whole of it.
pub(crate) fn bare(text: &str) -> Option<String> {
    let inner = text.trim().trim_start_matches('{').trim_end_matches('}').trim();
    let rewritten = Reader::rewritten(inner).map(|(text, _)| text);
    let inner = match rewritten {
        Some(rewritten) => rewritten,
        // A single brace around what is an expression already.
        None if text.contains(['{', '}']) || inner.split_whitespace().next().and_then(functions::find).is_some() => {
            inner.to_owned()
        }
        None => return None,
    };
    let whole = format!("{{{{ {inner} }}}}");
    (whole.len() < 4096 && parse::unexplained(&whole).is_ok_and(|tree| tree.templates.len() == 1)).then_some(whole)
}

/// Whether a correction gets the parser further than it got.
fn helps(source: &str, error: &TemplateError, at: &Range<usize>, becomes: &str) -> bool {
    let mut corrected = String::with_capacity(source.len() + becomes.len());
    corrected.extend([&source[..at.start], becomes, &source[at.end..]]);
    match parse::unexplained(&corrected) {
        Ok(_) => true,
        Err(next) => next.offset > error.offset.max(at.start + becomes.len()),
    }
}

fn correction(
    source: &str,
    error: &TemplateError,
    place: Range<usize>,
    (at, becomes): (Range<usize>, String),
    message: String,
    hint: String,
) -> Option<TemplateError> {
    helps(source, error, &at, &becomes).then(|| TemplateError {
        offset: place.start,
        len: place.len(),
        message,
        hint: Some(hint),
        correction: Some((at, becomes)),
    })
}

/// The action that the error is in: behind its `{{`, up to its `}}` or the end of the line.
fn action(source: &str, at: usize) -> Option<Range<usize>> {
    let before = source.get(..(at + 2).min(source.len())).unwrap_or(&source[..at]);
    let start = before.rfind("{{")? + 2;
    let rest = &source[start..];
    let end = rest.find("}}").or_else(|| rest.find('\n')).unwrap_or(rest.len());
    Some(start..start + end)
}

/// `"x }}`: the quote is closed behind the word.
fn quote(source: &str, error: &TemplateError) -> Option<TemplateError> {
    let mark = source[error.offset..].chars().next().filter(|c| matches!(c, '"' | '`' | '\''))?;
    error.message.starts_with("unterminated").then_some(())?;
    let line = source[error.offset..].lines().next()?;
    let end = line.find("}}").unwrap_or(line.len());
    let inside = line[..end].trim_end_matches(['-', ' ', '}', ')']);
    let end = error.offset + inside.len();
    let mut becomes = mark.to_string();
    if !source[end..].contains("}}") {
        becomes.push_str(" }}");
    }
    correction(
        source,
        error,
        error.offset..end,
        (end..end, becomes),
        format!("the quote that is opened here is not closed: {inside}"),
        format!("write {inside}{mark}"),
    )
}

/// `{{ … }`, `{{ …`: the braces that end an action.
fn brace(source: &str, error: &TemplateError) -> Option<TemplateError> {
    let start = source.get(..(error.offset + 2).min(source.len()))?.rfind("{{")?;
    let rest = &source[start + 2..];
    let line = rest.find(['\n', '{']).map_or(rest, |end| &rest[..end]);
    if line.contains("}}") {
        return None;
    }
    let (place, at, becomes) = match line.rfind('}') {
        Some(brace) => {
            let brace = start + 2 + brace;
            (brace..brace + 1, brace + 1..brace + 1, "}".to_owned())
        }
        None => {
            let end = start + 2 + line.trim_end().len();
            (start..end, end..end, " }}".to_owned())
        }
    };
    let message = match place.len() {
        1 if source[place.clone()] == *"}" => "the action that `{{` opens ends with a single `}`",
        _ => "the action that `{{` opens is not closed",
    };
    correction(source, error, place, (at, becomes), message.to_owned(), "end it with `}}`".to_owned())
}

/// Operators between values, and the like.
fn expression(source: &str, error: &TemplateError) -> Option<TemplateError> {
    let action = action(source, error.offset)?;
    let (start, end) = (action.start, action.end);
    let mut inner = source[start..end].trim_start_matches('-');
    for keyword in ["else if ", "if ", "with "] {
        if let Some(rest) = inner.trim_start().strip_prefix(keyword) {
            inner = rest;
            break;
        }
    }
    let inner = inner.trim_start();
    let from = end - inner.len();
    let inner = inner.strip_suffix('-').unwrap_or(inner).trim_end();
    let (becomes, what) = Reader::rewritten(inner)?;
    let at = from..from + inner.len();
    let place = what.at.start + from..what.at.end + from;
    correction(source, error, place, (at, becomes.clone()), what.message, format!("write {becomes}"))
}

/// Words of other languages.
fn word(source: &str, error: &TemplateError) -> Option<TemplateError> {
    let text = source.get(error.offset..error.offset + error.len)?;
    let at = error.offset..error.offset + error.len;
    if matches!(text, "elif" | "elseif" | "elsif") {
        let becomes = "else if".to_owned();
        let rest = source[at.end..].trim_start();
        // Without a condition it is the last branch.
        let becomes = if rest.starts_with("}}") { "else".to_owned() } else { becomes };
        let hint = format!("write `{becomes}`");
        return correction(source, error, at.clone(), (at, becomes), format!("there is no `{text}`"), hint);
    }
    if text == "|" {
        let hint = "remove it, or name a function behind it";
        let blank = source[..at.start].len() - source[..at.start].trim_end().len();
        let edit = (at.start - blank..at.end, String::new());
        return correction(source, error, at, edit, error.message.clone(), hint.to_owned());
    }
    if text == ")" {
        let edit = (at.clone(), String::new());
        let message = "this parenthesis closes none".to_owned();
        return correction(source, error, at, edit, message, "remove it".to_owned());
    }
    None
}

/// An `{{ end }}` that is missing, at what it would end.
fn ending(source: &str, error: &TemplateError) -> Option<TemplateError> {
    (error.offset == source.len() && error.message == "unexpected EOF").then_some(())?;
    let mut open: Vec<(&str, Range<usize>)> = Vec::new();
    for (start, _) in source.match_indices("{{") {
        let inner = source[start + 2..].trim_start_matches(['-', ' ']);
        let at = source.len() - inner.len();
        match inner.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default() {
            word @ ("if" | "with" | "range" | "define" | "block") => open.push((word, at..at + word.len())),
            "end" => drop(open.pop()),
            _ => {}
        }
    }
    let (word, place) = open.pop()?;
    let end = source.trim_end().len();
    correction(
        source,
        error,
        place,
        (end..end, "{{ end }}".to_owned()),
        format!("this `{word}` has no `{{{{ end }}}}`"),
        "write {{ end }} where it ends".to_owned(),
    )
}

/// A part of an expression that is not template syntax.
#[derive(Clone, Debug)]
struct Foreign {
    at: Range<usize>,
    message: String,
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    /// A value or a name, as it is written here.
    Value(String),
    /// A name that could be a function.
    Name(String),
    Operator(&'static str),
    Open {
        call: bool,
    },
    Close,
    Comma,
}

/// Reads an expression as other languages write it.
struct Reader {
    tokens: Vec<(Token, Range<usize>)>,
    next: usize,
    depth: usize,
    foreign: Option<Foreign>,
}

/// An expression as it is written here, and whether it needs parentheses as an argument.
struct Part {
    text: String,
    call: bool,
}

impl Part {
    fn argument(self) -> String {
        if self.call { format!("({})", self.text) } else { self.text }
    }
}

impl Reader {
    /// The expression as templates have it, and the first thing in it that they have not.
    fn rewritten(text: &str) -> Option<(String, Foreign)> {
        let mut reader = Reader { tokens: Vec::new(), next: 0, depth: 0, foreign: None };
        reader.split(text)?;
        let part = reader.either()?;
        (reader.next == reader.tokens.len()).then_some(())?;
        Some((part.text, reader.foreign?))
    }

    fn note(&mut self, at: Range<usize>, message: impl Into<String>) {
        if self.foreign.as_ref().is_none_or(|first| first.at.start > at.start) {
            self.foreign = Some(Foreign { at, message: message.into() });
        }
    }

    fn split(&mut self, text: &str) -> Option<()> {
        const OPERATORS: [&str; 10] = ["==", "!=", "<=", ">=", "&&", "||", "<", ">", "!", "="];
        let is_word = |c: char| c == '_' || c.is_alphanumeric();
        let mut at = 0;
        while let Some(c) = text[at..].chars().next() {
            let rest = &text[at..];
            let start = at;
            if c.is_whitespace() {
                at += c.len_utf8();
                continue;
            }
            let token = if let Some(operator) = OPERATORS.into_iter().find(|operator| rest.starts_with(operator)) {
                at += operator.len();
                Token::Operator(operator)
            } else {
                match c {
                    '(' => {
                        at += 1;
                        let call = start > 0
                            && text[..start].ends_with(is_word)
                            && matches!(self.tokens.last(), Some((Token::Name(_), _)));
                        Token::Open { call }
                    }
                    ')' => {
                        at += 1;
                        Token::Close
                    }
                    ',' => {
                        at += 1;
                        Token::Comma
                    }
                    '"' | '`' | '\'' => {
                        let inner = &rest[1..];
                        let end = inner.find(c)?;
                        at += end + 2;
                        match c {
                            '\'' if inner[..end].contains('"') => return None,
                            '\'' => {
                                self.note(start..at, "text stands in double quotes here");
                                Token::Value(format!("\"{}\"", &inner[..end]))
                            }
                            _ => Token::Value(rest[..end + 2].to_owned()),
                        }
                    }
                    '0'..='9' | '-' | '+' => {
                        let digits = rest[1..].find(|c: char| !is_word(c) && c != '.').unwrap_or(rest.len() - 1);
                        at += 1 + digits;
                        rest[..1 + digits].parse::<f64>().ok()?;
                        Token::Value(rest[..1 + digits].to_owned())
                    }
                    '.' | '$' => {
                        let (value, len) = self.path(rest, start)?;
                        at += len;
                        Token::Value(value)
                    }
                    c if is_word(c) => {
                        let len = rest.find(|c: char| !is_word(c) && c != '.').unwrap_or(rest.len());
                        at += len;
                        self.name(&rest[..len], start..start + len)
                    }
                    _ => return None,
                }
            };
            self.tokens.push((token, start..at));
        }
        Some(())
    }

    /// `.a.b-c["d"]`, and how many bytes it takes.
    fn path(&mut self, rest: &str, start: usize) -> Option<(String, usize)> {
        let mut plain = String::new();
        let mut keys: Vec<String> = Vec::new();
        let mut at = 0;
        if let Some(after) = rest.strip_prefix('$') {
            plain.push('$');
            at = 1;
            let name = after.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(after.len());
            plain.push_str(&after[..name]);
            at += name;
        }
        loop {
            let tail = &rest[at..];
            if let Some(name) = tail.strip_prefix('.') {
                let is_name = |c: char| c == '_' || c.is_alphanumeric();
                let mut len = name.find(|c: char| !is_name(c) && c != '-').unwrap_or(name.len());
                // A dash ends no name.
                len = name[..len].trim_end_matches('-').len();
                let part = &name[..len];
                if part.contains('-') {
                    self.note(start..start + at + 1 + len, "a name with a dash is read with `index`");
                }
                if part.contains('-') || !keys.is_empty() {
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
                let is_index = !quoted.is_empty() && quoted.bytes().all(|b| b.is_ascii_digit()) && quoted == key;
                keys.push(if is_index { key.to_owned() } else { format!("\"{quoted}\"") });
                self.note(start..start + at + end + 2, "a key in brackets is read with `index`");
                at += end + 2;
            } else {
                break;
            }
        }
        let base = if plain.is_empty() { "." } else { &plain };
        let value = if keys.is_empty() { base.to_owned() } else { format!("(index {base} {})", keys.join(" ")) };
        Some((value, at))
    }

    fn name(&mut self, name: &str, at: Range<usize>) -> Token {
        match name {
            "null" | "None" | "undefined" | "NULL" | "none" => {
                self.note(at, format!("`{name}` is written `nil` here"));
                Token::Value("nil".to_owned())
            }
            "True" | "TRUE" | "False" | "FALSE" => {
                self.note(at, format!("`{name}` is written in lower case here"));
                Token::Value(name.to_lowercase())
            }
            "true" | "false" | "nil" => Token::Value(name.to_owned()),
            _ => Token::Name(name.to_owned()),
        }
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|(token, _)| token)
    }

    /// Takes one of these operators, words or signs.
    fn operator(&mut self, operators: &[(&'static str, &'static str)]) -> Option<&'static str> {
        let (token, at) = self.tokens.get(self.next)?;
        let written = match token {
            Token::Operator(operator) => *operator,
            Token::Name(name) => name.as_str(),
            _ => return None,
        };
        let (sign, function) = *operators.iter().find(|(sign, _)| *sign == written)?;
        let (at, message) = match sign {
            "=" => (at.clone(), "`=` compares nothing: `eq` does, and stands before the values".to_owned()),
            _ => (
                at.clone(),
                format!("there is no operator `{sign}`: the function `{function}` stands before the values"),
            ),
        };
        self.note(at, message);
        self.next += 1;
        Some(function)
    }

    fn either(&mut self) -> Option<Part> {
        self.joined(&[("||", "or"), ("or", "or")], Reader::both)
    }

    fn both(&mut self) -> Option<Part> {
        self.joined(&[("&&", "and"), ("and", "and")], Reader::compared)
    }

    fn joined(
        &mut self,
        operators: &[(&'static str, &'static str)],
        inner: fn(&mut Reader) -> Option<Part>,
    ) -> Option<Part> {
        let mut parts = vec![inner(self)?];
        let mut function = "";
        while let Some(found) = self.operator(operators) {
            function = found;
            parts.push(inner(self)?);
        }
        if parts.len() == 1 {
            return parts.pop();
        }
        let arguments: Vec<String> = parts.into_iter().map(Part::argument).collect();
        Some(Part { text: format!("{function} {}", arguments.join(" ")), call: true })
    }

    fn compared(&mut self) -> Option<Part> {
        const OPERATORS: [(&str, &str); 7] =
            [("==", "eq"), ("!=", "ne"), ("<=", "le"), (">=", "ge"), ("<", "lt"), (">", "gt"), ("=", "eq")];
        let left = self.sequence()?;
        match self.operator(&OPERATORS) {
            Some(function) => {
                let right = self.sequence()?;
                Some(Part { text: format!("{function} {} {}", left.argument(), right.argument()), call: true })
            }
            None => Some(left),
        }
    }

    /// A value, or a function with its arguments.
    fn sequence(&mut self) -> Option<Part> {
        if matches!(self.peek(), Some(Token::Operator("!"))) {
            let at = self.tokens[self.next].1.clone();
            self.note(at, "there is no operator `!`: the function `not` stands before the value");
            self.next += 1;
            let inner = self.sequence()?;
            return Some(Part { text: format!("not {}", inner.argument()), call: true });
        }
        let Some(Token::Name(name)) = self.peek().cloned() else {
            let first = self.atom()?;
            // A value is no function.
            return (!self.at_atom()).then_some(first);
        };
        let at = self.tokens[self.next].1.clone();
        // By itself it is the name of a field, as `count`.
        let is_called = matches!(
            self.tokens.get(self.next + 1).map(|(token, _)| token),
            Some(Token::Value(_) | Token::Open { .. } | Token::Name(_))
        );
        let function = functions::find(&name).map(|function| function.name).or_else(|| {
            let function = functions::elsewhere(&name).filter(|_| is_called)?;
            self.note(at.clone(), format!("there is no function {name:?}"));
            Some(function)
        });
        let Some(function) = function else {
            self.next += 1;
            // A name by itself is a field.
            let field = match name.split('.').next() {
                Some("Payload" | "Metadata" | "Key" | "Operation" | "Position") => format!(".{name}"),
                _ => format!(".Payload.After.{name}"),
            };
            return (!self.at_atom()).then_some(Part { text: field, call: false });
        };
        self.next += 1;
        let mut arguments = Vec::new();
        if matches!(self.peek(), Some(Token::Open { call: true })) {
            let at = self.tokens[self.next].1.clone();
            self.note(at, format!("arguments of {function} stand behind its name, without parentheses and commas"));
            self.next += 1;
            while !matches!(self.peek(), Some(Token::Close)) {
                arguments.push(self.nested(Reader::either)?.argument());
                if matches!(self.peek(), Some(Token::Comma)) {
                    self.next += 1;
                }
            }
            self.next += 1;
        }
        while self.at_atom() {
            arguments.push(self.atom()?.argument());
            if let Some((Token::Comma, at)) = self.tokens.get(self.next).cloned() {
                self.note(at, "arguments are separated by blanks here");
                self.next += 1;
            }
        }
        // Elsewhere the text comes first, and what is looked for second.
        if function != name && matches!(function, "hasPrefix" | "hasSuffix" | "contains") {
            arguments.reverse();
        }
        let text = std::iter::once(function.to_owned()).chain(arguments).collect::<Vec<_>>().join(" ");
        Some(Part { text, call: true })
    }

    fn at_atom(&self) -> bool {
        match self.peek() {
            Some(Token::Value(_) | Token::Open { .. }) => true,
            Some(Token::Name(name)) => !matches!(name.as_str(), "and" | "or"),
            _ => false,
        }
    }

    fn atom(&mut self) -> Option<Part> {
        let (token, _) = self.tokens.get(self.next)?.clone();
        self.next += 1;
        match token {
            Token::Value(text) => Some(Part { text, call: false }),
            Token::Name(name) if functions::find(&name).is_some() => Some(Part { text: name, call: false }),
            Token::Name(name) => Some(Part { text: format!(".Payload.After.{name}"), call: false }),
            Token::Open { .. } => {
                let inner = self.nested(Reader::either)?;
                matches!(self.peek(), Some(Token::Close)).then_some(())?;
                self.next += 1;
                Some(Part { text: inner.argument(), call: false })
            }
            _ => None,
        }
    }

    fn nested(&mut self, read: fn(&mut Reader) -> Option<Part>) -> Option<Part> {
        if self.depth == MOST_DEPTH {
            return None;
        }
        self.depth += 1;
        let part = read(self);
        self.depth -= 1;
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::{MissingKey, Template};

    #[test]
    fn expressions_of_other_languages_are_written_as_templates() {
        for (text, meant) in [
            ("price == 10", "eq .Payload.After.price 10"),
            (".a != \"x\"", "ne .a \"x\""),
            (".a >= 1 && .b < 2 || !.c", "or (and (ge .a 1) (lt .b 2)) (not .c)"),
            ("gt .a 10.0 && eq .b \"x\"", "and (gt .a 10.0) (eq .b \"x\")"),
            ("gt(.a, 10)", "gt .a 10"),
            ("contains .a 'x'", "contains .a \"x\""),
            ("startsWith(.a, \"x\")", "hasPrefix \"x\" .a"),
            ("gte .a 1", "ge .a 1"),
            ("eq .a[\"b c\"] 1", "eq (index .a \"b c\") 1"),
            ("eq .a.b-c 1", "eq (index .a \"b-c\") 1"),
            ("(.a == 1) and (.b == 2)", "and (eq .a 1) (eq .b 2)"),
            (".a = True", "eq .a true"),
            ("not .a == null", "eq (not .a) nil"),
            ("len(.a) > 3", "gt (len .a) 3"),
            ("count == 3", "eq .Payload.After.count 3"),
            ("count(.a) == 3", "eq (len .a) 3"),
        ] {
            assert_eq!(Reader::rewritten(text).map(|(text, _)| text).as_deref(), Some(meant), "{text}");
        }
        for text in ["gt .a 1", "eq .a \"x && y\"", ".a .b == 1", "a b c", "(((", "", "x ~ y", "'a\"b' == 1"] {
            assert_eq!(Reader::rewritten(text).map(|(text, _)| text), None, "{text}");
        }
        assert!(Reader::rewritten(&"(".repeat(5000)).is_none());
    }

    #[test]
    fn every_correction_compiles() {
        for (text, becomes) in [
            ("{{ .a == 10 }}", "{{ eq .a 10 }}"),
            ("{{ if .a > 1 }}true{{ else }}false{{ end }}", "{{ if gt .a 1 }}true{{ else }}false{{ end }}"),
            ("{{ eq .a \"x }}", "{{ eq .a \"x\" }}"),
            ("{{ gt .a 1 }", "{{ gt .a 1 }}"),
            ("{{ gt .a 1", "{{ gt .a 1 }}"),
            ("{{ gt .a 1) }}", "{{ gt .a 1 }}"),
            ("{{ .a | }}", "{{ .a }}"),
            ("{{ if .a }}true{{ else }}false", "{{ if .a }}true{{ else }}false{{ end }}"),
            (
                "{{ if .a }}true{{ elif .b }}true{{ else }}false{{ end }}",
                "{{ if .a }}true{{ else if .b }}true{{ else }}false{{ end }}",
            ),
            ("{{ gte .a 1 }}", "{{ ge .a 1 }}"),
            ("{{ eq .a null }}", "{{ eq .a nil }}"),
        ] {
            let error = Template::parse(text, MissingKey::NoValue).unwrap_err();
            let (at, with) = error.correction.unwrap_or_else(|| panic!("{text}: {}", error.message));
            let corrected = format!("{}{with}{}", &text[..at.start], &text[at.end..]);
            assert_eq!(corrected, becomes);
            assert!(Template::parse(&corrected, MissingKey::NoValue).is_ok(), "{corrected}");
        }
    }

    #[test]
    fn conditions_without_braces_get_them() {
        assert_eq!(bare("price == 10").as_deref(), Some("{{ eq .Payload.After.price 10 }}"));
        assert_eq!(bare("{ gt .a 1 }}").as_deref(), Some("{{ gt .a 1 }}"));
        assert_eq!(bare("gt .a 1").as_deref(), Some("{{ gt .a 1 }}"));
        assert_eq!(bare("yes"), None);
        assert_eq!(bare("on weekdays"), None);
    }

    proptest::proptest! {
        #[test]
        fn nothing_panics(text in "[a-z.$(){}\"'`|&=<>! ,0-9é\\[\\]-]{0,40}") {
            let _ = Template::parse(&text, MissingKey::NoValue);
            let _ = Template::parse(&format!("{{{{ {text}"), MissingKey::NoValue);
            let _ = bare(&text);
        }
    }
}
