//! Values of expressions that are the same in every call.

use std::collections::HashMap;

use boa_engine::ast::Spanned;
use boa_engine::ast::expression::Expression;
use boa_engine::ast::expression::literal::{LiteralKind, PropertyDefinition};
use boa_engine::ast::expression::operator::binary::{ArithmeticOp, BinaryOp};
use boa_engine::ast::expression::operator::unary::UnaryOp;
use boa_engine::ast::expression::operator::{Binary, Unary};
use boa_engine::interner::Sym;

use super::kinds::{Kinds, ScriptValueKind};
use super::{end, start};
use crate::position::Position;
use crate::properties::{OF_ARRAYS, OF_MAPS, OF_NUMBERS, OF_PATTERNS, OF_SETS, OF_STRINGS};
use crate::spot::unparenthesized;

/// The kind of a value, with the number if it is certain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    Undefined,
    Null,
    Truth,
    Number(Option<f64>),
    Big,
    Text,
    List,
    Set,
    Map,
    /// A regular expression.
    Pattern,
    /// The object of a literal.
    Object,
    Unknown,
}

impl Value {
    /// Returns the name of a value without fields.
    pub(super) fn nothing(self) -> Option<&'static str> {
        matches!(self, Value::Undefined | Value::Null).then(|| self.named())
    }

    /// Returns `true` if the value is known not to be an object.
    pub(super) fn is_primitive(self) -> bool {
        !self.is_object() && self != Value::Unknown
    }

    /// Returns `true` if the value is known to be an object.
    pub(super) fn is_object(self) -> bool {
        matches!(self, Value::List | Value::Set | Value::Map | Value::Pattern | Value::Object)
    }

    pub(super) fn is_iterable(self) -> bool {
        matches!(self, Value::List | Value::Set | Value::Map | Value::Text | Value::Unknown)
    }

    /// Returns `true` for values that neither a key nor a payload side can hold.
    pub(super) fn is_no_data(self) -> bool {
        matches!(
            self,
            Value::Truth | Value::Number(_) | Value::Big | Value::List | Value::Set | Value::Map | Value::Pattern
        )
    }

    /// Returns the methods of such a value, in addition to those of every object; `None` if they are unknown.
    pub(super) fn methods(self) -> Option<&'static [&'static str]> {
        match self {
            Value::List => Some(&OF_ARRAYS),
            Value::Text => Some(&OF_STRINGS),
            Value::Number(_) => Some(&OF_NUMBERS),
            Value::Set => Some(&OF_SETS),
            Value::Map => Some(&OF_MAPS),
            Value::Pattern => Some(&OF_PATTERNS),
            Value::Object => Some(&[]),
            _ => None,
        }
    }

    pub(super) fn named(self) -> &'static str {
        match self {
            Value::Undefined => "undefined",
            Value::Null => "null",
            Value::Truth => "true or false",
            Value::Number(_) => "a number",
            Value::Big => "a BigInt",
            Value::Text => "a text",
            Value::List => "a list",
            Value::Set => "a Set",
            Value::Map => "a Map",
            Value::Pattern => "a regular expression",
            Value::Object => "an object",
            Value::Unknown => "a value",
        }
    }

    /// Returns the name of a number that no record can hold.
    fn infinite(self) -> Option<&'static str> {
        match self {
            Value::Number(Some(number)) if number.is_nan() => Some("NaN"),
            Value::Number(Some(number)) if number.is_infinite() => Some("infinite"),
            _ => None,
        }
    }

    /// Converts the value to a number as arithmetic does.
    fn number(self) -> Option<f64> {
        match self {
            Value::Undefined => Some(f64::NAN),
            Value::Null => Some(0.0),
            Value::Number(number) => number,
            _ => None,
        }
    }
}

/// Returns the value of an expression. `values` are those of variables that do not change.
pub(super) fn value(expression: &Expression, kinds: &Kinds<'_>, values: &HashMap<Sym, Value>) -> Value {
    let expression = unparenthesized(expression);
    let known = |expression: &Expression| value(expression, kinds, values);
    match expression {
        Expression::Literal(literal) => match literal.kind() {
            LiteralKind::String(_) => Value::Text,
            LiteralKind::Int(number) => Value::Number(Some((*number).into())),
            LiteralKind::Num(number) => Value::Number(Some(*number)),
            LiteralKind::BigInt(_) => Value::Big,
            LiteralKind::Bool(_) => Value::Truth,
            LiteralKind::Null => Value::Null,
            LiteralKind::Undefined => Value::Undefined,
        },
        Expression::TemplateLiteral(_) => Value::Text,
        Expression::ArrayLiteral(_) => Value::List,
        Expression::ObjectLiteral(_) => Value::Object,
        Expression::Identifier(name) => match kinds.global(expression) {
            Some("undefined") => Value::Undefined,
            Some("NaN") => Value::Number(Some(f64::NAN)),
            Some("Infinity") => Value::Number(Some(f64::INFINITY)),
            Some(_) => Value::Unknown,
            None => values.get(&name.sym()).copied().unwrap_or(Value::Unknown),
        },
        Expression::PropertyAccess(_) => match kinds.text.field(expression) {
            Some((target, name)) if kinds.global(target) == Some("Number") => match name {
                "NaN" => Value::Number(Some(f64::NAN)),
                "POSITIVE_INFINITY" => Value::Number(Some(f64::INFINITY)),
                "NEGATIVE_INFINITY" => Value::Number(Some(f64::NEG_INFINITY)),
                _ => Value::Unknown,
            },
            _ => Value::Unknown,
        },
        Expression::RegExpLiteral(_) => Value::Pattern,
        Expression::New(new) => match kinds.global(new.constructor()) {
            Some("Array") => Value::List,
            Some("Set") => Value::Set,
            Some("Map") => Value::Map,
            Some("RegExp") => Value::Pattern,
            _ => Value::Unknown,
        },
        Expression::Unary(unary) => of_unary(unary, known(unary.target())),
        Expression::Binary(binary) => of_binary(binary, known(binary.lhs()), known(binary.rhs())),
        Expression::Call(_) => of_call(expression, kinds),
        _ => Value::Unknown,
    }
}

fn of_unary(unary: &Unary, target: Value) -> Value {
    match (unary.op(), target) {
        (UnaryOp::TypeOf, _) => Value::Text,
        (UnaryOp::Not | UnaryOp::Delete, _) => Value::Truth,
        (UnaryOp::Void, _) => Value::Undefined,
        (UnaryOp::Plus, _) => Value::Number(target.number()),
        (UnaryOp::Minus, Value::Big) => Value::Big,
        (UnaryOp::Minus, Value::Number(_) | Value::Undefined | Value::Null) => {
            Value::Number(target.number().map(|number| -number))
        }
        _ => Value::Unknown,
    }
}

fn of_binary(binary: &Binary, lhs: Value, rhs: Value) -> Value {
    let op = match binary.op() {
        BinaryOp::Relational(_) => return Value::Truth,
        BinaryOp::Comma => return rhs,
        BinaryOp::Arithmetic(op) => op,
        BinaryOp::Bitwise(_) | BinaryOp::Logical(_) => return Value::Unknown,
    };
    if op == ArithmeticOp::Add && [lhs, rhs].contains(&Value::Text) {
        return Value::Text;
    }
    if lhs == Value::Big && rhs == Value::Big {
        return Value::Big;
    }
    let (Some(left), Some(right)) = (lhs.number(), rhs.number()) else { return Value::Unknown };
    Value::Number(match op {
        ArithmeticOp::Add => Some(left + right),
        ArithmeticOp::Sub => Some(left - right),
        ArithmeticOp::Mul => Some(left * right),
        ArithmeticOp::Div => Some(left / right),
        ArithmeticOp::Mod => Some(left % right),
        ArithmeticOp::Exp => None,
    })
}

fn of_call(expression: &Expression, kinds: &Kinds<'_>) -> Value {
    let Expression::Call(call) = expression else { return Value::Unknown };
    let Some((target, name, args)) = kinds.called(call) else {
        return match (kinds.global(call.function()), call.args()) {
            (Some("BigInt"), _) => Value::Big,
            (Some("Number"), [text]) => Value::Number(kinds.constant(text).and_then(number)),
            (Some("parseInt" | "parseFloat"), [text]) => {
                Value::Number(kinds.constant(text).filter(|text| is_no_number(text)).map(|_| f64::NAN))
            }
            (Some("Number" | "parseInt" | "parseFloat"), _) => Value::Number(None),
            (Some("String"), _) => Value::Text,
            (Some("Boolean" | "isNaN" | "isFinite"), _) => Value::Truth,
            (Some("RegExp"), _) => Value::Pattern,
            _ => Value::Unknown,
        };
    };
    match (kinds.global(target), name, args) {
        (Some("Math"), "max", []) => Value::Number(Some(f64::NEG_INFINITY)),
        (Some("Math"), "min", []) => Value::Number(Some(f64::INFINITY)),
        (Some("Date"), "now", _) => Value::Number(None),
        (Some("Array"), "from" | "of", _) | (Some("Object"), "keys" | "values" | "entries", _) => Value::List,
        (Some(_), ..) => Value::Unknown,
        (None, "split", _) => Value::List,
        (None, "forEach", _) => Value::Undefined,
        (None, "pop" | "shift" | "at" | "find" | "findLast", _) if is_empty(target) => Value::Undefined,
        (None, ..) => match kinds.kind(expression) {
            Some(ScriptValueKind::Text) => Value::Text,
            Some(ScriptValueKind::Truth) => Value::Truth,
            Some(ScriptValueKind::Number) => Value::Number(None),
            _ => Value::Unknown,
        },
    }
}

/// Returns `true` for a list without elements, as it is written.
fn is_empty(list: &Expression) -> bool {
    matches!(unparenthesized(list), Expression::ArrayLiteral(list) if list.as_ref().is_empty())
}

/// Returns the number that `Number(text)` returns, if the text is simple.
fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    let is_number = text.starts_with(|c: char| c.is_ascii_digit()) && text.parse::<f64>().is_ok();
    match text.parse() {
        Ok(number) if is_number => Some(number),
        _ => (is_no_number(text) || text.contains(',')).then_some(f64::NAN),
    }
}

/// Returns `true` for a word, which `parseInt` and `parseFloat` do not read as a number.
fn is_no_number(text: &str) -> bool {
    text.trim_start().starts_with(|c: char| c.is_ascii_alphabetic() && c != 'I')
}

/// Returns the place of the first part of an expression that no record can hold, with a description.
pub(super) fn unfit(
    expression: &Expression,
    kinds: &Kinds<'_>,
    values: &HashMap<Sym, Value>,
) -> Option<(Position, Position, &'static str)> {
    let here = |what| (start(expression), end(expression), what);
    match unparenthesized(expression) {
        Expression::ObjectLiteral(object) => {
            let mut found = None;
            for property in object.properties() {
                match property {
                    PropertyDefinition::Property(_, value) => found = found.or_else(|| unfit(value, kinds, values)),
                    PropertyDefinition::IdentifierReference(name) => {
                        let what = values.get(&name.sym()).and_then(|value| value.infinite());
                        let (start, end) = (name.span().start().into(), name.span().end().into());
                        found = found.or_else(|| what.map(|what| (start, end, what)));
                    }
                    // It may replace the fields before it.
                    _ => found = None,
                }
            }
            found
        }
        Expression::ArrayLiteral(list) => list.as_ref().iter().flatten().find_map(|value| unfit(value, kinds, values)),
        Expression::New(new) if kinds.global(new.constructor()) == Some("Date") => match new.arguments() {
            [text] if kinds.constant(text).is_some_and(is_no_date) => Some(here("an invalid Date")),
            _ => None,
        },
        _ => value(expression, kinds, values).infinite().map(here),
    }
}

/// Returns `true` for texts that `new Date(text)` does not read: without a digit, or with a month above 12.
fn is_no_date(text: &str) -> bool {
    let parts: Option<Vec<u32>> = text.split('/').map(|part| part.parse().ok()).collect();
    let is_day_first = matches!(parts.as_deref(), Some([day, _, _]) if (13..=31).contains(day));
    !text.contains(|c: char| c.is_ascii_digit()) || is_day_first
}
