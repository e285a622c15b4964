//! Operands of operators: values, names of fields, calls with their arguments, and methods.

use std::ops::Range;

use anabranch_record::near::slip;

use super::{ExpressionPart, Reader, names};
use crate::template::functions;
use crate::template::slips::split::Token;

impl Reader {
    /// Parses a value, or a function with its arguments.
    pub(super) fn sequence(&mut self) -> Option<ExpressionPart> {
        if self.at_sign("!") {
            let at = self.tokens[self.next].1.clone();
            self.note(at, "there is no operator `!`: write the function `not` before the value");
            self.next += 1;
            return self.negated("or use `ne` to compare with the other value");
        }
        if let Some(part) = self.methods() {
            return part;
        }
        let Some(Token::Name(name)) = self.peek().cloned() else {
            let first = self.atom()?;
            // A value cannot be called.
            return (!self.at_atom() || self.at_infix()).then_some(first);
        };
        let at = self.tokens[self.next].1.clone();
        // The negation covers the whole comparison after it.
        if matches!(name.as_str(), "not" | "NOT") && !self.at_infix_behind() {
            let behind = self.tokens.get(self.next + 1).map(|(token, _)| token.clone());
            let call = matches!(behind, Some(Token::Open { call: true }));
            if name == "NOT" || call {
                self.note(at, format!("there is no operator `{name}`: write the function `not` before the value"));
            }
            if behind.is_some_and(|token| matches!(token, Token::Value(_) | Token::Name(_) | Token::Open { .. })) {
                self.next += 1;
                return self.negated(if call { "or compare the result of `not`" } else { "" });
            }
            return None;
        }
        // A single name is a field, such as `count`.
        let is_called = !self.at_infix_behind()
            && matches!(
                self.tokens.get(self.next + 1).map(|(token, _)| token),
                Some(Token::Value(_) | Token::Open { .. } | Token::Name(_))
            );
        let (function, shape) = match functions::find(&name) {
            Some(function) => (function.name, names::ArgumentOrder::Same),
            None if is_called => match names::elsewhere(&name) {
                Some((function, shape)) => {
                    self.note(at.clone(), format!("there is no function {name:?}"));
                    (function, shape)
                }
                None => return None,
            },
            None => {
                self.next += 1;
                let field = self.field(&name, at)?;
                return (!self.at_atom() || self.at_infix()).then_some(field);
            }
        };
        let start = self.next;
        self.next += 1;
        let is_call = matches!(self.peek(), Some(Token::Open { call: true })) || self.at_list();
        let mut arguments = self.arguments(function)?;
        let has_commas = self.tokens[start..self.next].iter().any(|(token, _)| matches!(token, Token::Comma));
        if is_call || has_commas || shape != names::ArgumentOrder::Same {
            let wanted = names::arity(function);
            let order = names::ordered(function, shape, &mut arguments, wanted);
            if let Some(doubt) = order {
                self.doubt(doubt);
            }
        }
        Some(ExpressionPart::call(shape.call(function, arguments)?))
    }

    /// Parses a call such as `.a.startsWith("x")`, and chained ones; the inner `None` is a call that cannot be
    /// translated.
    pub(super) fn methods(&mut self) -> Option<Option<ExpressionPart>> {
        let (Token::Value(path) | Token::Name(path), at) = self.tokens.get(self.next)?.clone() else { return None };
        let (subject, method) = path.rsplit_once('.')?;
        (self.opens_behind(self.next) && !subject.is_empty() && functions::find(&path).is_none()).then_some(())?;
        self.note(at.clone(), format!("values have no methods like {method}: pass the value to a function"));
        let subject = match path.starts_with(['.', '$', '(']) {
            true => ExpressionPart::value(subject),
            false => match self.field(subject, at) {
                Some(field) => field,
                None => return Some(None),
            },
        };
        let mut part = self.method(subject, method);
        while let (Some(found), Some((Token::Value(next), _))) = (&part, self.tokens.get(self.next).cloned()) {
            let Some(method) = next.strip_prefix('.').filter(|_| self.opens_behind(self.next)) else { break };
            part = self.method(ExpressionPart::value(format!("({})", found.text)), method);
        }
        Some(part)
    }

    /// Returns `true` if a parenthesis directly follows a token.
    pub(super) fn opens_behind(&self, token: usize) -> bool {
        match self.tokens.get(token..token + 2) {
            Some([(_, at), (Token::Open { .. }, open)]) => at.end == open.start,
            _ => false,
        }
    }

    /// Parses a method call, from its name on.
    pub(super) fn method(&mut self, subject: ExpressionPart, method: &str) -> Option<ExpressionPart> {
        let (function, shape) = names::method(method)?;
        self.next += 2;
        let mut arguments = vec![subject.argument()];
        arguments.extend(self.enclosed()?);
        if let ("includes" | "contains", [list, item]) = (method, &arguments[..]) {
            let other = format!("or has {item} {list} for a list");
            self.doubt(other);
        }
        let wanted = names::arity(function);
        (arguments.len() == wanted).then_some(())?;
        names::ordered(function, shape, &mut arguments, wanted);
        Some(ExpressionPart::call(shape.call(function, arguments)?))
    }

    /// Parses arguments in parentheses, after the opening one.
    pub(super) fn enclosed(&mut self) -> Option<Vec<String>> {
        let in_call = std::mem::replace(&mut self.in_call, true);
        let mut arguments = Vec::new();
        while !matches!(self.peek(), Some(Token::Close)) {
            arguments.push(self.nested(Reader::chosen)?.argument());
            if matches!(self.peek(), Some(Token::Comma)) {
                self.next += 1;
            }
        }
        self.in_call = in_call;
        self.next += 1;
        Some(arguments)
    }

    /// Parses a negated expression, up to the end of a comparison. `doubt` is the reason why only a part of it may be
    /// meant.
    pub(super) fn negated(&mut self, doubt: &'static str) -> Option<ExpressionPart> {
        let mut part = self.nested(Reader::sequence)?;
        if self.at_comparison() {
            if !doubt.is_empty() {
                self.doubt(doubt);
            }
            part = self.compared_from(part)?;
        }
        Some(ExpressionPart::call(format!("not {}", part.argument())))
    }

    pub(super) fn at_comparison(&self) -> bool {
        match self.peek() {
            Some(Token::Operator(sign)) => !matches!(*sign, "&&" | "||" | "|" | "?" | ":"),
            _ => self.at_infix(),
        }
    }

    /// Parses the arguments of a function, after its name.
    pub(super) fn arguments(&mut self, function: &str) -> Option<Vec<String>> {
        let compares = matches!(function, "eq" | "ne" | "lt" | "le" | "gt" | "ge");
        if matches!(self.peek(), Some(Token::Open { call: true })) || self.at_list() {
            let at = self.tokens[self.next].1.clone();
            self.note(at, format!("write the arguments of {function} after its name, without parentheses and commas"));
            self.next += 1;
            let arguments = self.enclosed()?;
            return (!self.at_atom() || self.at_infix()).then_some(arguments);
        }
        let mut arguments: Vec<String> = Vec::new();
        let joins = matches!(function, "and" | "or");
        let mut only_calls = joins;
        while self.at_atom() && (arguments.is_empty() || only_calls || !self.at_infix()) {
            let is_call = self.at_function();
            // In `or eq .a 1 eq .b 2`, each call ends where the next one begins.
            if is_call && self.in_joined && !joins && !arguments.is_empty() {
                break;
            }
            if is_call && joins {
                let at = self.tokens[self.next].1.clone();
                self.note(at, format!("an argument of {function} that is a call needs parentheses"));
                let outer = std::mem::replace(&mut self.in_joined, true);
                let part = self.nested(Reader::sequence);
                self.in_joined = outer;
                arguments.push(part?.argument());
                continue;
            }
            only_calls = false;
            let argument = self.atom()?;
            let argument = if compares && !arguments.is_empty() { self.quoted(argument) } else { argument };
            arguments.push(argument.argument());
            while let (Some((Token::Comma, at)), false) = (self.tokens.get(self.next).cloned(), self.in_call) {
                self.note(at, "separate arguments with spaces here");
                self.next += 1;
                // After a comma, a function has its own arguments.
                let calls = matches!(self.peek(), Some(Token::Name(name)) if functions::find(name).is_some_and(
                    |function| !function.params.is_empty() || function.rest.is_some()));
                if calls {
                    arguments.push(self.nested(Reader::sequence)?.argument());
                }
            }
        }
        Some(arguments)
    }

    /// Returns `true` if the next token is a function that takes arguments.
    pub(super) fn at_function(&self) -> bool {
        let of = |name: &str| functions::find(name).is_some_and(|it| !it.params.is_empty() || it.rest.is_some());
        matches!(self.peek(), Some(Token::Name(name)) if of(name))
    }

    /// Returns `true` if the next token is a parenthesis with a comma of its own: `and (.a, .b)`.
    pub(super) fn at_list(&self) -> bool {
        let mut depth = 0;
        for (token, _) in &self.tokens[self.next.min(self.tokens.len())..] {
            match token {
                Token::Open { .. } => depth += 1,
                Token::Close if depth == 1 => return false,
                Token::Close => depth -= 1,
                Token::Comma if depth == 1 => return true,
                _ if depth == 0 => return false,
                _ => {}
            }
        }
        false
    }

    /// Parses a single name as a field.
    pub(super) fn field(&mut self, name: &str, at: Range<usize>) -> Option<ExpressionPart> {
        let own = names::own_path(name);
        let is_plain = !name.contains('.');
        let is_keyword = matches!(
            name,
            "if" | "else"
                | "end"
                | "with"
                | "range"
                | "define"
                | "template"
                | "block"
                | "break"
                | "continue"
                | "elif"
                | "elseif"
                | "elsif"
        );
        if is_keyword || name.split('.').any(str::is_empty) {
            return None;
        }
        // A name that differs from a function by one letter is not a field.
        if own.is_none() && slip(name, functions::names()).is_some() {
            return None;
        }
        if let Some(function) = names::alone(name).filter(|_| self.tokens.len() == 1) {
            self.doubt(function);
        }
        let text = own.unwrap_or_else(|| format!(".Payload.After.{name}"));
        self.note_name(at.clone(), format!("a field begins with a dot: {text}"));
        Some(ExpressionPart { word: is_plain.then(|| (name.to_owned(), at)), ..ExpressionPart::value(text) })
    }

    pub(super) fn at_atom(&self) -> bool {
        match self.peek() {
            Some(Token::Value(_) | Token::Open { .. }) => true,
            Some(Token::Name(name)) => !matches!(name.as_str(), "and" | "or" | "AND" | "OR"),
            _ => false,
        }
    }

    /// Returns `true` if the next token is an infix word.
    pub(super) fn at_infix(&self) -> bool {
        matches!(self.peek(), Some(Token::Name(name)) if is_infix(name))
    }

    /// Returns `true` if the token after the next one is an infix word.
    pub(super) fn at_infix_behind(&self) -> bool {
        matches!(self.tokens.get(self.next + 1), Some((Token::Name(name), _)) if is_infix(name))
    }

    pub(super) fn atom(&mut self) -> Option<ExpressionPart> {
        let (token, at) = self.tokens.get(self.next)?.clone();
        self.next += 1;
        match token {
            Token::Value(text) => Some(ExpressionPart::value(text)),
            Token::Name(name) if functions::find(&name).is_some() => Some(ExpressionPart::value(name)),
            Token::Name(name) => self.field(&name, at),
            Token::Open { .. } => {
                let in_call = std::mem::replace(&mut self.in_call, false);
                let inner = self.nested(Reader::piped);
                self.in_call = in_call;
                let inner = inner?;
                matches!(self.peek(), Some(Token::Close)).then_some(())?;
                self.next += 1;
                Some(ExpressionPart::value(inner.argument()))
            }
            _ => None,
        }
    }
}

/// Returns `true` for a word that other languages use as an infix operator.
fn is_infix(name: &str) -> bool {
    matches!(name, "is" | "eq" | "ne" | "lt" | "le" | "gt" | "ge")
        || names::SEARCHES.iter().any(|(word, _)| *word == name)
}
