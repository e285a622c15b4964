//! Translation of expressions in the syntax of other languages to templates.

mod operands;

use std::ops::Range;

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
