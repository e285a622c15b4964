//! Translation of expressions in the syntax of other languages to templates.

use std::ops::Range;

use anabranch_record::near::slip;

use super::names;
use super::split::{self, ForeignSyntax, Split, Token};
use crate::template::functions;

/// Maximum nesting of parentheses.
const MOST_DEPTH: usize = 40;

/// An expression translated to template syntax.
#[derive(Debug)]
pub(super) struct Rewritten {
    /// The translated expression.
    pub(super) text: String,
    /// The first part of the original that is not template syntax.
    pub(super) foreign: ForeignSyntax,
    /// An alternative translation, if the meaning is ambiguous: a word without quotes may be a text or a field.
    pub(super) or: Option<String>,
    /// Reason for doubt, worded as a continuation of the suggestion. If it is set, no correction is applied.
    pub(super) doubt: Option<String>,
    /// True if only names of fields are foreign.
    pub(super) only_names: bool,
}

impl Rewritten {
    /// Returns `true` if the translation is unambiguous.
    pub(super) fn is_sure(&self) -> bool {
        self.or.is_none() && self.doubt.is_none()
    }
}

/// A part of an expression. An argument that is a call needs parentheses.
struct ExpressionPart {
    text: String,
    call: bool,
    /// The name, if the part is a single name that could also be a text without quotes.
    word: Option<(String, Range<usize>)>,
}

impl ExpressionPart {
    fn value(text: impl Into<String>) -> ExpressionPart {
        ExpressionPart { text: text.into(), call: false, word: None }
    }

    fn call(text: impl Into<String>) -> ExpressionPart {
        ExpressionPart { text: text.into(), call: true, word: None }
    }

    fn argument(self) -> String {
        if self.call { format!("({})", self.text) } else { self.text }
    }

    fn is_text(&self) -> bool {
        self.text.starts_with(['"', '`'])
    }

    fn is_decimal(&self) -> bool {
        self.text.contains('.') && self.text.parse::<f64>().is_ok()
    }
}

/// A parser of expressions in the syntax of other languages.
struct Reader {
    tokens: Vec<(Token, Range<usize>)>,
    next: usize,
    depth: usize,
    foreign: Option<ForeignSyntax>,
    /// The first name of a field without its dot.
    name: Option<ForeignSyntax>,
    or: Option<String>,
    doubt: Option<String>,
    /// True inside the arguments of a call, where a comma is a separator.
    in_call: bool,
    /// True if the calls in the arguments of `and` or `or` follow each other without parentheses.
    in_joined: bool,
}

/// Translates an expression to template syntax. `None` if nothing in it is foreign, or if it cannot be parsed.
pub(super) fn rewritten(text: &str) -> Option<Rewritten> {
    let Split { tokens, foreign, doubt } = split::tokens(text)?;
    let mut reader =
        Reader { tokens, next: 0, depth: 0, foreign, name: None, or: None, doubt, in_call: false, in_joined: false };
    let part = reader.piped()?;
    (reader.next == reader.tokens.len()).then_some(())?;
    let only_names = reader.foreign.is_none();
    let foreign = reader.foreign.or(reader.name)?;
    Some(Rewritten { text: part.text, foreign, or: reader.or, doubt: reader.doubt, only_names })
}

/// Reorders the arguments of a call that follows the order of other languages: `substr .a 0 1`.
pub(super) fn in_order(call: &str) -> Option<String> {
    let Split { tokens, foreign: None, doubt } = split::tokens(call)? else { return None };
    let mut reader = Reader {
        tokens,
        next: 1,
        depth: 0,
        foreign: None,
        name: None,
        or: None,
        doubt,
        in_call: false,
        in_joined: false,
    };
    let Some((Token::Name(name), _)) = reader.tokens.first().cloned() else { return None };
    let function = functions::find(&name)?;
    let before = reader.arguments(function.name)?;
    (reader.next == reader.tokens.len()).then_some(())?;
    let mut arguments = before.clone();
    names::ordered(function.name, names::ArgumentOrder::Same, &mut arguments, names::arity(function.name));
    (arguments != before).then(|| names::ArgumentOrder::Same.call(function.name, arguments)).flatten()
}

impl Reader {
    fn note(&mut self, at: Range<usize>, message: impl Into<String>) {
        if self.foreign.as_ref().is_none_or(|first| first.at.start > at.start) {
            self.foreign = Some(ForeignSyntax { at, message: message.into() });
        }
    }

    fn doubt(&mut self, why: impl Into<String>) {
        self.doubt.get_or_insert_with(|| why.into());
    }

    fn note_name(&mut self, at: Range<usize>, message: String) {
        if self.name.is_none() {
            self.name = Some(ForeignSyntax { at, message });
        }
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|(token, _)| token)
    }

    fn at_sign(&self, sign: &str) -> bool {
        matches!(self.peek(), Some(Token::Operator(operator)) if *operator == sign)
    }

    /// Takes one of these operators, which may be words or signs.
    fn operator(&mut self, operators: &[(&'static str, &'static str)]) -> Option<&'static str> {
        let (token, at) = self.tokens.get(self.next)?;
        let written = match token {
            Token::Operator(operator) => *operator,
            Token::Name(name) => name.as_str(),
            _ => return None,
        };
        let (sign, function) = *operators.iter().find(|(sign, _)| *sign == written)?;
        let (at, message) = match sign {
            "=" => (at.clone(), "`=` does not compare values: write `eq` before the values".to_owned()),
            _ => (
                at.clone(),
                format!("there is no operator `{sign}`: write the function `{function}` before the values"),
            ),
        };
        self.note(at, message);
        self.next += 1;
        Some(function)
    }

    /// Parses `a | b`.
    fn piped(&mut self) -> Option<ExpressionPart> {
        let mut part = self.chosen()?;
        while self.at_sign("|") {
            self.next += 1;
            let stage = self.chosen()?;
            part = ExpressionPart::call(format!("{} | {}", part.text, stage.text));
        }
        Some(part)
    }

    /// Parses `a ? b : c`.
    fn chosen(&mut self) -> Option<ExpressionPart> {
        let choice = self.either()?;
        if !self.at_sign("?") {
            return Some(choice);
        }
        self.operator(&[("?", "ternary")])?;
        let yes = self.nested(Reader::chosen)?.argument();
        self.at_sign(":").then_some(())?;
        self.next += 1;
        let no = self.nested(Reader::chosen)?.argument();
        Some(ExpressionPart::call(format!("ternary {yes} {no} {}", choice.argument())))
    }

    fn either(&mut self) -> Option<ExpressionPart> {
        self.joined(&[("||", "or"), ("or", "or"), ("OR", "or")], Reader::both)
    }

    fn both(&mut self) -> Option<ExpressionPart> {
        self.joined(&[("&&", "and"), ("and", "and"), ("AND", "and")], Reader::compared)
    }

    fn joined(
        &mut self,
        operators: &[(&'static str, &'static str)],
        inner: fn(&mut Reader) -> Option<ExpressionPart>,
    ) -> Option<ExpressionPart> {
        let mut parts = vec![inner(self)?];
        let mut function = "";
        while let Some(found) = self.operator(operators) {
            function = found;
            parts.push(inner(self)?);
        }
        if parts.len() == 1 {
            return parts.pop();
        }
        let arguments: Vec<String> = parts.into_iter().map(ExpressionPart::argument).collect();
        Some(ExpressionPart::call(format!("{function} {}", arguments.join(" "))))
    }

    fn compared(&mut self) -> Option<ExpressionPart> {
        let first = self.sequence()?;
        self.compared_from(first)
    }

    /// Parses a comparison, from the first value of its left side on.
    fn compared_from(&mut self, first: ExpressionPart) -> Option<ExpressionPart> {
        const OPERATORS: [(&str, &str); 18] = [
            ("==", "eq"),
            ("===", "eq"),
            ("!=", "ne"),
            ("!==", "ne"),
            ("<>", "ne"),
            ("≠", "ne"),
            ("<=", "le"),
            ("≤", "le"),
            (">=", "ge"),
            ("≥", "ge"),
            ("<", "lt"),
            (">", "gt"),
            ("=", "eq"),
            ("eq", "eq"),
            ("ne", "ne"),
            ("lt", "lt"),
            ("le", "le"),
            ("gt", "gt"),
        ];
        let left = self.sum_from(first)?;
        if self.operator(&[("is", "eq")]).is_some() {
            return self.is(left);
        }
        if let Some(function) = self.operator(&OPERATORS).or_else(|| self.operator(&[("ge", "ge")])) {
            let right = self.sum()?;
            let right = self.quoted(right);
            return Some(ExpressionPart::call(format!("{function} {} {}", left.argument(), right.argument())));
        }
        // In templates, the text to search for is the first argument.
        let word = match self.peek() {
            Some(Token::Name(name)) => name.clone(),
            _ => String::new(),
        };
        if let Some(function) = self.operator(names::SEARCHES) {
            let right = self.sum()?;
            match function {
                "has" if left.is_text() => {
                    let other = format!("contains {} {}", left.text, right.text);
                    self.doubt(format!("or {other} if it is a text"));
                }
                "contains" if word == "includes" => {
                    self.doubt(format!("or has {} {} for a list", right.text, left.text));
                }
                _ => {}
            }
            return Some(ExpressionPart::call(match function {
                "has" => format!("has {} {}", left.argument(), right.argument()),
                _ => format!("{function} {} {}", right.argument(), left.argument()),
            }));
        }
        Some(left)
    }

    /// Parses `a is b` and `a is not b`, from the word after `is` on.
    fn is(&mut self, left: ExpressionPart) -> Option<ExpressionPart> {
        let not = matches!(self.peek(), Some(Token::Name(name)) if name == "not");
        self.next += usize::from(not);
        let (token, _) = self.tokens.get(self.next)?.clone();
        self.next += 1;
        let whole = matches!(left.text.as_str(), ".Key" | ".Payload.Before" | ".Payload.After");
        let left = left.argument();
        let (word, not) = match &token {
            Token::Name(name) | Token::Value(name) => match name.as_str() {
                "defined" | "present" | "set" => ("nil", !not),
                "absent" | "missing" | "unset" => ("nil", not),
                other => (other, not),
            },
            _ => return None,
        };
        Some(ExpressionPart::call(match (word, not) {
            ("nil", false) if whole => format!("not {left}"),
            ("nil", true) if whole => format!("not (not {left})"),
            ("empty", false) => format!("empty {left}"),
            ("empty", true) => format!("not (empty {left})"),
            (_, _) if word != "nil" && matches!(token, Token::Name(_)) => return None,
            (_, false) => format!("eq {left} {word}"),
            (_, true) => format!("ne {left} {word}"),
        }))
    }

    /// Converts the right side of a comparison: a word is more likely a text without quotes than a field.
    fn quoted(&mut self, part: ExpressionPart) -> ExpressionPart {
        let Some((word, at)) = part.word else { return part };
        // The word was first parsed as a field.
        if self.name.as_ref().is_some_and(|first| first.at == at) {
            self.name = None;
        }
        self.note_name(at, format!("{word} is neither a function nor quoted: write a text in double quotes"));
        self.or.get_or_insert(part.text);
        ExpressionPart::value(format!("{word:?}"))
    }

    fn sum(&mut self) -> Option<ExpressionPart> {
        let first = self.sequence()?;
        self.sum_from(first)
    }

    fn sum_from(&mut self, first: ExpressionPart) -> Option<ExpressionPart> {
        let left = self.product_from(first)?;
        self.calculated(left, &[("+", "add"), ("-", "sub")], Reader::product)
    }

    fn product(&mut self) -> Option<ExpressionPart> {
        let first = self.sequence()?;
        self.product_from(first)
    }

    fn product_from(&mut self, first: ExpressionPart) -> Option<ExpressionPart> {
        self.calculated(first, &[("*", "mul"), ("/", "div"), ("%", "mod")], Reader::sequence)
    }

    fn calculated(
        &mut self,
        mut left: ExpressionPart,
        operators: &[(&'static str, &'static str)],
        inner: fn(&mut Reader) -> Option<ExpressionPart>,
    ) -> Option<ExpressionPart> {
        while let Some(function) = self.operator(operators) {
            let right = inner(self)?;
            let decimal = left.is_decimal() || right.is_decimal();
            let literal = |part: &ExpressionPart| part.text.parse::<f64>().is_ok();
            let text = left.is_text() || right.is_text();
            let literals = literal(&left) && literal(&right);
            if !(decimal || text || literals || function == "mod") {
                self.doubt(names::CALCULATES);
            }
            let function = match function {
                "add" if left.is_text() || right.is_text() => "printf \"%v%v\"",
                "add" if decimal => "addf",
                "sub" if decimal => "subf",
                "mul" if decimal => "mulf",
                "div" if decimal => "divf",
                other => other,
            };
            left = ExpressionPart::call(format!("{function} {} {}", left.argument(), right.argument()));
        }
        Some(left)
    }

    /// Parses a value, or a function with its arguments.
    fn sequence(&mut self) -> Option<ExpressionPart> {
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
    fn methods(&mut self) -> Option<Option<ExpressionPart>> {
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
    fn opens_behind(&self, token: usize) -> bool {
        match self.tokens.get(token..token + 2) {
            Some([(_, at), (Token::Open { .. }, open)]) => at.end == open.start,
            _ => false,
        }
    }

    /// Parses a method call, from its name on.
    fn method(&mut self, subject: ExpressionPart, method: &str) -> Option<ExpressionPart> {
        let (function, shape) = names::method(method)?;
        self.next += 2;
        let in_call = std::mem::replace(&mut self.in_call, true);
        let mut arguments = vec![subject.argument()];
        while !matches!(self.peek(), Some(Token::Close)) {
            arguments.push(self.nested(Reader::chosen)?.argument());
            if matches!(self.peek(), Some(Token::Comma)) {
                self.next += 1;
            }
        }
        self.in_call = in_call;
        self.next += 1;
        if let ("includes" | "contains", [list, item]) = (method, &arguments[..]) {
            let other = format!("or has {item} {list} for a list");
            self.doubt(other);
        }
        let wanted = names::arity(function);
        (arguments.len() == wanted).then_some(())?;
        names::ordered(function, shape, &mut arguments, wanted);
        Some(ExpressionPart::call(shape.call(function, arguments)?))
    }

    /// Parses a negated expression, up to the end of a comparison. `doubt` is the reason why only a part of it may be
    /// meant.
    fn negated(&mut self, doubt: &'static str) -> Option<ExpressionPart> {
        let mut part = self.nested(Reader::sequence)?;
        if self.at_comparison() {
            if !doubt.is_empty() {
                self.doubt(doubt);
            }
            part = self.compared_from(part)?;
        }
        Some(ExpressionPart::call(format!("not {}", part.argument())))
    }

    fn at_comparison(&self) -> bool {
        match self.peek() {
            Some(Token::Operator(sign)) => !matches!(*sign, "&&" | "||" | "|" | "?" | ":"),
            _ => self.at_infix(),
        }
    }

    /// Parses the arguments of a function, after its name.
    fn arguments(&mut self, function: &str) -> Option<Vec<String>> {
        let compares = matches!(function, "eq" | "ne" | "lt" | "le" | "gt" | "ge");
        let mut arguments: Vec<String> = Vec::new();
        if matches!(self.peek(), Some(Token::Open { call: true })) || self.at_list() {
            let at = self.tokens[self.next].1.clone();
            self.note(at, format!("write the arguments of {function} after its name, without parentheses and commas"));
            self.next += 1;
            let in_call = std::mem::replace(&mut self.in_call, true);
            while !matches!(self.peek(), Some(Token::Close)) {
                arguments.push(self.nested(Reader::chosen)?.argument());
                if matches!(self.peek(), Some(Token::Comma)) {
                    self.next += 1;
                }
            }
            self.in_call = in_call;
            self.next += 1;
            return (!self.at_atom() || self.at_infix()).then_some(arguments);
        }
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
    fn at_function(&self) -> bool {
        let of = |name: &str| functions::find(name).is_some_and(|it| !it.params.is_empty() || it.rest.is_some());
        matches!(self.peek(), Some(Token::Name(name)) if of(name))
    }

    /// Returns `true` if the next token is a parenthesis with a comma of its own: `and (.a, .b)`.
    fn at_list(&self) -> bool {
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
    fn field(&mut self, name: &str, at: Range<usize>) -> Option<ExpressionPart> {
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

    fn at_atom(&self) -> bool {
        match self.peek() {
            Some(Token::Value(_) | Token::Open { .. }) => true,
            Some(Token::Name(name)) => !matches!(name.as_str(), "and" | "or" | "AND" | "OR"),
            _ => false,
        }
    }

    /// Returns `true` if the next token is an infix word.
    fn at_infix(&self) -> bool {
        matches!(self.peek(), Some(Token::Name(name)) if is_infix(name))
    }

    /// Returns `true` if the token after the next one is an infix word.
    fn at_infix_behind(&self) -> bool {
        matches!(self.tokens.get(self.next + 1), Some((Token::Name(name), _)) if is_infix(name))
    }

    fn atom(&mut self) -> Option<ExpressionPart> {
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

    fn nested(&mut self, read: fn(&mut Reader) -> Option<ExpressionPart>) -> Option<ExpressionPart> {
        if self.depth == MOST_DEPTH {
            return None;
        }
        self.depth += 1;
        let part = read(self);
        self.depth -= 1;
        part
    }
}

/// Returns `true` for a word that other languages use as an infix operator.
fn is_infix(name: &str) -> bool {
    matches!(name, "is" | "eq" | "ne" | "lt" | "le" | "gt" | "ge")
        || names::SEARCHES.iter().any(|(word, _)| *word == name)
}
