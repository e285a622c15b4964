//! Kinds of values that expressions have, independent of the data.

use std::collections::HashMap;
use std::ops::ControlFlow::{self, Continue};

use boa_engine::ast::Script;
use boa_engine::ast::declaration::{Binding, Variable};
use boa_engine::ast::expression::literal::LiteralKind;
use boa_engine::ast::expression::operator::binary::{ArithmeticOp, BinaryOp};
use boa_engine::ast::expression::operator::unary::UnaryOp;
use boa_engine::ast::expression::{Call, Expression, Identifier};
use boa_engine::ast::operations::bound_names;
use boa_engine::ast::statement::iteration::IterableLoopInitializer;
use boa_engine::interner::Sym;

use super::ScriptText;
use super::results::{Methods, TESTS};
use crate::process::Bindings;
use crate::spot::unparenthesized;
use crate::visitor::{VisitWith, Visitor};

/// Methods that return texts.
const TEXTS: [&str; 18] = [
    "charAt",
    "join",
    "normalize",
    "padEnd",
    "padStart",
    "repeat",
    "replace",
    "replaceAll",
    "substr",
    "substring",
    "toFixed",
    "toISOString",
    "toLowerCase",
    "toPrecision",
    "toUpperCase",
    "trim",
    "trimEnd",
    "trimStart",
];
/// Methods that return numbers.
const NUMBERS: [&str; 5] = ["findIndex", "getFullYear", "getTime", "indexOf", "lastIndexOf"];
/// Methods that return lists.
const LISTS: [&str; 6] = ["filter", "flatMap", "map", "split", "toReversed", "toSorted"];

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ScriptValueKind {
    Text,
    /// A number or a big integer.
    Number,
    Truth,
    Undefined,
    Null,
    /// A list without other references to it.
    List,
    /// Another object without other references to it.
    Object,
}

impl ScriptValueKind {
    /// Returns `true` for a new object, which equals no other value and is truthy.
    pub(super) fn is_new(self) -> bool {
        matches!(self, ScriptValueKind::List | ScriptValueKind::Object)
    }

    pub(super) fn is_nothing(self) -> bool {
        matches!(self, ScriptValueKind::Undefined | ScriptValueKind::Null)
    }

    pub(super) fn named(self) -> &'static str {
        match self {
            ScriptValueKind::Text => "a text",
            ScriptValueKind::Number => "a number",
            ScriptValueKind::Truth => "true or false",
            ScriptValueKind::Undefined => "undefined",
            ScriptValueKind::Null => "null",
            ScriptValueKind::List => "a list",
            ScriptValueKind::Object => "an object",
        }
    }
}

/// Values of a script that follow from its text.
pub(super) struct Kinds<'a> {
    pub(super) text: ScriptText<'a>,
    bindings: Bindings,
    /// Methods that the script defines itself.
    own: Vec<&'a str>,
    /// Variables and their only values.
    values: HashMap<Sym, &'a Expression>,
}

impl<'a> Kinds<'a> {
    /// Analyzes a script. Returns `None` if it may change the results of methods.
    pub(super) fn of(script: &'a Script, text: ScriptText<'a>) -> Option<Kinds<'a>> {
        if ["prototype", "eval", "with ("].iter().any(|word| text.text.contains(word)) {
            return None;
        }
        let mut bindings = Bindings::default();
        let _ = script.visit_with(&mut bindings);
        let mut own = Methods { text, names: Vec::new() };
        let _ = script.visit_with(&mut own);
        let mut constants = Constants { bindings: &bindings, values: HashMap::new(), others: Vec::new() };
        let _ = script.visit_with(&mut constants);
        let Constants { values, others, .. } = constants;
        let values = values.into_iter().filter(|(name, _)| !others.contains(name));
        let values = values.map(|(name, (value, _))| (name, value)).collect();
        Some(Kinds { text, bindings, own: own.names, values })
    }

    /// Returns the expression, or the only value of the variable that it names.
    pub(super) fn value<'e>(&self, expression: &'e Expression) -> &'e Expression
    where
        'a: 'e,
    {
        match unparenthesized(expression) {
            Expression::Identifier(name) => {
                self.values.get(&name.sym()).map_or(expression, |value| unparenthesized(value))
            }
            other => other,
        }
    }

    /// Returns the name if the expression is a global that the script does not declare.
    pub(super) fn global(&self, expression: &Expression) -> Option<&'a str> {
        match unparenthesized(expression) {
            Expression::Identifier(name) if !self.bindings.is_bound(name.sym()) => Some(self.text.name(name.sym())),
            _ => None,
        }
    }

    /// Returns `true` if the variable is declared once and never assigned.
    pub(super) fn is_constant(&self, name: Sym) -> bool {
        self.bindings.is_constant(name)
    }

    /// Returns `true` if the name is declared once, so that all its uses refer to the same variable.
    pub(super) fn is_declared_once(&self, name: Sym) -> bool {
        self.bindings.is_declared_once(name)
    }

    /// Returns the object, the method and the arguments of a call of a built-in method.
    pub(super) fn method<'e>(&self, expression: &'e Expression) -> Option<(&'e Expression, &'a str, &'e [Expression])> {
        let Expression::Call(call) = unparenthesized(expression) else { return None };
        self.called(call)
    }

    pub(super) fn called<'e>(&self, call: &'e Call) -> Option<(&'e Expression, &'a str, &'e [Expression])> {
        let (target, name) = self.text.field(call.function())?;
        (!self.own.contains(&name)).then_some((target, name, call.args()))
    }

    /// Returns the constant text of an expression.
    pub(super) fn constant(&self, expression: &Expression) -> Option<&'a str> {
        match self.value(expression) {
            Expression::Literal(literal) => match literal.kind() {
                LiteralKind::String(text) => Some(self.text.name(*text)),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the constant integer of an expression.
    pub(super) fn number(&self, expression: &Expression) -> Option<i32> {
        match self.value(expression) {
            Expression::Literal(literal) => match literal.kind() {
                LiteralKind::Int(number) => Some(*number),
                _ => None,
            },
            Expression::Unary(unary) if unary.op() == UnaryOp::Minus => self.number(unary.target())?.checked_neg(),
            _ => None,
        }
    }

    pub(super) fn is_nan(&self, expression: &Expression) -> bool {
        match self.text.field(expression) {
            Some((target, "NaN")) => self.global(target) == Some("Number"),
            Some(_) => false,
            None => self.global(expression) == Some("NaN"),
        }
    }

    /// Returns the kind of the value of an expression.
    pub(super) fn kind(&self, expression: &Expression) -> Option<ScriptValueKind> {
        if self.global(expression) == Some("undefined") {
            return Some(ScriptValueKind::Undefined);
        }
        let value = self.value(expression);
        let kind = self.written(value)?;
        // The value of a variable is not new at every use.
        let is_variable = matches!(unparenthesized(expression), Expression::Identifier(_));
        (!is_variable || !kind.is_new()).then_some(kind)
    }

    fn written(&self, value: &Expression) -> Option<ScriptValueKind> {
        match value {
            Expression::Literal(literal) => Some(match literal.kind() {
                LiteralKind::String(_) => ScriptValueKind::Text,
                LiteralKind::Int(_) | LiteralKind::Num(_) | LiteralKind::BigInt(_) => ScriptValueKind::Number,
                LiteralKind::Bool(_) => ScriptValueKind::Truth,
                LiteralKind::Null => ScriptValueKind::Null,
                LiteralKind::Undefined => ScriptValueKind::Undefined,
            }),
            Expression::TemplateLiteral(_) => Some(ScriptValueKind::Text),
            Expression::ArrayLiteral(_) => Some(ScriptValueKind::List),
            Expression::ObjectLiteral(_) | Expression::RegExpLiteral(_) => Some(ScriptValueKind::Object),
            Expression::New(new) => {
                let known = ["Array", "Boolean", "Date", "Map", "Number", "RegExp", "Set", "String"];
                self.global(new.constructor()).filter(|name| known.contains(name)).map(|_| ScriptValueKind::Object)
            }
            Expression::Unary(unary) => match unary.op() {
                UnaryOp::TypeOf => Some(ScriptValueKind::Text),
                UnaryOp::Not => Some(ScriptValueKind::Truth),
                UnaryOp::Plus | UnaryOp::Minus => Some(ScriptValueKind::Number),
                UnaryOp::Void => Some(ScriptValueKind::Undefined),
                _ => None,
            },
            Expression::Binary(binary) => match binary.op() {
                BinaryOp::Relational(_) => Some(ScriptValueKind::Truth),
                BinaryOp::Arithmetic(ArithmeticOp::Add) => {
                    let sides = [self.kind(binary.lhs()), self.kind(binary.rhs())];
                    sides.contains(&Some(ScriptValueKind::Text)).then_some(ScriptValueKind::Text)
                }
                BinaryOp::Arithmetic(_) | BinaryOp::Bitwise(_) => Some(ScriptValueKind::Number),
                _ => None,
            },
            Expression::Call(call) => self.result(call),
            _ => None,
        }
    }

    fn result(&self, call: &Call) -> Option<ScriptValueKind> {
        if let Some(name) = self.global(call.function()) {
            return match name {
                "Number" | "parseFloat" | "parseInt" => Some(ScriptValueKind::Number),
                "String" => Some(ScriptValueKind::Text),
                "Boolean" | "isFinite" | "isNaN" => Some(ScriptValueKind::Truth),
                _ => None,
            };
        }
        let (target, name, _) = self.called(call)?;
        match self.global(target) {
            Some("Math") => return Some(ScriptValueKind::Number),
            Some("Object") if matches!(name, "keys" | "values" | "entries") => return Some(ScriptValueKind::List),
            Some("JSON") => return None,
            _ => {}
        }
        match name {
            _ if TEXTS.contains(&name) => Some(ScriptValueKind::Text),
            _ if NUMBERS.contains(&name) => Some(ScriptValueKind::Number),
            _ if TESTS.contains(&name) => Some(ScriptValueKind::Truth),
            _ if LISTS.contains(&name) => Some(ScriptValueKind::List),
            _ => None,
        }
    }
}

/// Maximum number of variables that are followed in a chain.
const FOLLOWED: usize = 2;

/// Finds variables that keep their declared value. A value refers only to variables above it, and through few of them,
/// so that following them ends soon.
struct Constants<'a, 'b> {
    bindings: &'b Bindings,
    /// Values, with the number of variables that each is reached through.
    values: HashMap<Sym, (&'a Expression, usize)>,
    /// Variables of loops over elements, and variables used in a value above their declaration.
    others: Vec<Sym>,
}

impl<'a> Visitor<'a> for Constants<'a, '_> {
    type BreakTy = ();

    fn visit_variable(&mut self, variable: &'a Variable) -> ControlFlow<()> {
        if let (Binding::Identifier(name), Some(value)) = (variable.binding(), variable.init())
            && self.bindings.is_constant(name.sym())
            && is_plain(unparenthesized(value))
        {
            let mut mentions = Mentions(Vec::new());
            let _ = value.visit_with(&mut mentions);
            let through = |name: &Sym| self.values.get(name).map(|(_, through)| through + 1);
            let most = mentions.0.iter().filter_map(through).max().unwrap_or(0);
            self.others.extend(mentions.0.iter().filter(|name| !self.values.contains_key(name)));
            if most < FOLLOWED {
                self.values.insert(name.sym(), (value, most));
            }
        }
        variable.visit_with(self)
    }

    fn visit_iterable_loop_initializer(&mut self, initializer: &'a IterableLoopInitializer) -> ControlFlow<()> {
        match initializer {
            IterableLoopInitializer::Identifier(name) => self.others.push(name.sym()),
            IterableLoopInitializer::Pattern(pattern) => self.others.extend(bound_names(pattern)),
            _ => {}
        }
        Continue(())
    }
}

/// Returns `true` if the value is neither a function nor an object, so that its kind is the same at every use.
fn is_plain(value: &Expression) -> bool {
    matches!(
        value,
        Expression::Literal(_)
            | Expression::TemplateLiteral(_)
            | Expression::Unary(_)
            | Expression::Binary(_)
            | Expression::Call(_)
            | Expression::PropertyAccess(_)
    )
}

/// Collects the names in an expression.
struct Mentions(Vec<Sym>);

impl<'a> Visitor<'a> for Mentions {
    type BreakTy = ();

    fn visit_identifier(&mut self, name: &'a Identifier) -> ControlFlow<()> {
        self.0.push(name.sym());
        Continue(())
    }
}
