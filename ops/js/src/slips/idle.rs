//! Statements without effect, conditions that assign, and locales, which scripts do not support.

use std::ops::ControlFlow::{self, Break};

use boa_engine::ast::expression::literal::LiteralKind;
use boa_engine::ast::expression::operator::assign::AssignOp;
use boa_engine::ast::expression::operator::binary::{BinaryOp, RelationalOp};
use boa_engine::ast::expression::operator::unary::UnaryOp;
use boa_engine::ast::expression::operator::{Assign, Binary, Conditional, Unary, Update};
use boa_engine::ast::expression::{Call, Expression, New};
use boa_engine::ast::statement::{DoWhileLoop, ForLoop, If, Statement, WhileLoop};
use boa_engine::ast::{Script, StatementListItem};

use super::results::Methods;
use super::{ScriptSlip, ScriptText, end, start};
use crate::spot::unparenthesized;
use crate::visitor::{VisitWith, Visitor};

/// Methods of texts, arrays, numbers and dates without side effects.
pub(super) const PURE: [&str; 33] = [
    "at",
    "charAt",
    "charCodeAt",
    "codePointAt",
    "concat",
    "endsWith",
    "includes",
    "indexOf",
    "join",
    "lastIndexOf",
    "normalize",
    "padEnd",
    "padStart",
    "repeat",
    "replace",
    "replaceAll",
    "slice",
    "split",
    "startsWith",
    "substr",
    "substring",
    "toFixed",
    "toISOString",
    "toLowerCase",
    "toReversed",
    "toSorted",
    "toString",
    "toUpperCase",
    "trim",
    "trimEnd",
    "trimStart",
    "filter",
    "flatMap",
];
/// Methods of lists without side effects if the callback has none.
pub(super) const OF_LISTS: [&str; 9] =
    ["map", "flat", "find", "findIndex", "some", "every", "reduce", "toSpliced", "with"];
/// Methods that take a locale, with the number of arguments before it.
const LOCAL: [(&str, usize); 6] = [
    ("toLocaleDateString", 0),
    ("toLocaleTimeString", 0),
    ("toLocaleString", 0),
    ("toLocaleUpperCase", 0),
    ("toLocaleLowerCase", 0),
    ("localeCompare", 1),
];

pub(super) fn of(script: &Script, text: ScriptText<'_>) -> Vec<ScriptSlip> {
    let mut methods = Methods { text, names: Vec::new() };
    let _ = script.visit_with(&mut methods);
    let mut idle = Idle { text, own: methods.names, slips: Vec::new() };
    let _ = script.visit_with(&mut idle);
    idle.slips
}

struct Idle<'a> {
    text: ScriptText<'a>,
    /// Methods that the script defines itself.
    own: Vec<&'a str>,
    slips: Vec<ScriptSlip>,
}

impl Idle<'_> {
    fn say(&mut self, at: &Expression, message: String, hint: String) {
        self.slips.push(ScriptSlip { fails: false, start: start(at), end: end(at), message, hint });
    }

    fn statement(&mut self, whole: &Expression) {
        match unparenthesized(whole) {
            Expression::Call(call) => {
                let Some((target, name)) = self.text.field(call.function()) else { return };
                let is_pure = (PURE.contains(&name) || OF_LISTS.contains(&name))
                    && !self.own.contains(&name)
                    && call.args().iter().all(has_no_effect);
                if !is_pure {
                    return;
                }
                let hint =
                    match (self.text.slice(start(target), end(target)), self.text.slice(start(whole), end(whole))) {
                        (Some(target_text), Some(call)) if is_variable(target) && call.ends_with(')') => {
                            format!("the call changes nothing: write {target_text} = {call}")
                        }
                        _ => "the call changes nothing: assign its result".to_owned(),
                    };
                self.say(whole, format!("the result of `{name}` is not used"), hint);
            }
            Expression::Binary(binary) => match binary.op() {
                BinaryOp::Relational(RelationalOp::Equal | RelationalOp::StrictEqual) => {
                    let message = "the result of this comparison is not used".to_owned();
                    self.say(whole, message, "to assign, write = instead of ==".to_owned());
                }
                BinaryOp::Relational(_) | BinaryOp::Arithmetic(_) if has_no_effect(whole) => {
                    let message = "the result of this operator is not used".to_owned();
                    self.say(whole, message, "assign it, or remove it".to_owned());
                }
                _ => {}
            },
            _ => {}
        }
    }

    /// Checks for a text in place of a pattern, which is searched for literally.
    fn pattern(&mut self, call: &Call) {
        let Some((_, name @ ("replace" | "replaceAll" | "split"))) = self.text.field(call.function()) else { return };
        let Some(first) = call.args().first().map(unparenthesized) else { return };
        let Expression::Literal(literal) = first else { return };
        let LiteralKind::String(text) = literal.kind() else { return };
        let text = self.text.name(*text);
        if self.own.contains(&name) || !is_pattern(text) {
            return;
        }
        let is_written = text.starts_with('/');
        let flags = if name == "replaceAll" { "g" } else { "" };
        let becomes = if is_written { text.to_owned() } else { format!("/{}/{flags}", text.replace('/', "\\/")) };
        let message = format!("`{name}` searches for exactly this text, not for matches of a pattern");
        self.say(first, message, format!("write a pattern between slashes: {becomes}"));
    }

    /// Checks for a condition that assigns a constant.
    fn condition(&mut self, condition: &Expression) {
        match unparenthesized(condition) {
            Expression::Assign(assign) if assign.op() == AssignOp::Assign => {
                let truth = match unparenthesized(assign.rhs()) {
                    Expression::Literal(literal) => match literal.kind() {
                        LiteralKind::String(text) => !self.text.name(*text).is_empty(),
                        LiteralKind::Num(number) => *number != 0.0,
                        LiteralKind::Int(number) => *number != 0,
                        LiteralKind::Bool(truth) => *truth,
                        LiteralKind::BigInt(_) => return,
                        LiteralKind::Null | LiteralKind::Undefined => false,
                    },
                    Expression::ArrayLiteral(_) | Expression::ObjectLiteral(_) => true,
                    // For example `a = "x" && b`, which assigns `b` to `a`.
                    Expression::Binary(binary)
                        if matches!(binary.op(), BinaryOp::Logical(_)) && begins_with_constant(binary.lhs()) =>
                    {
                        let message = "this assigns everything after it, and compares nothing".to_owned();
                        self.say(condition, message, "to compare, write === instead of =".to_owned());
                        return;
                    }
                    _ => return,
                };
                let message = format!("this assigns, and the condition is always {truth}");
                self.say(condition, message, "to compare, write === instead of =".to_owned());
            }
            Expression::Binary(binary) if matches!(binary.op(), BinaryOp::Logical(_)) => {
                self.condition(binary.lhs());
                self.condition(binary.rhs());
            }
            Expression::Unary(unary) if unary.op() == UnaryOp::Not => self.condition(unary.target()),
            _ => {}
        }
    }
}

/// Returns `true` if a text looks like a pattern and is unlikely in data.
fn is_pattern(text: &str) -> bool {
    let inner = text.strip_prefix('/').and_then(|rest| rest.rsplit_once('/'));
    let is_written = inner.is_some_and(|(inner, flags)| {
        !inner.is_empty()
            && !flags.is_empty()
            && flags.chars().all(|flag| "gimsuy".contains(flag))
            && !inner.contains('/')
    });
    let parts =
        [".*", ".+", "[^", "\\d", "\\w", "\\s", "\\b", "\\.", "[a-z", "[A-Z", "[0-9", "]+", "]*", "(?:", "(?i)"];
    is_written || parts.iter().any(|part| text.contains(part))
}

/// Returns `true` if the first operand is a constant.
fn begins_with_constant(value: &Expression) -> bool {
    match value {
        Expression::Literal(_) => true,
        Expression::Binary(binary) if matches!(binary.op(), BinaryOp::Logical(_)) => begins_with_constant(binary.lhs()),
        _ => false,
    }
}

/// Returns the value of `element => value`.
fn given(function: &Expression) -> Option<&Expression> {
    let Expression::ArrowFunction(function) = unparenthesized(function) else { return None };
    let [StatementListItem::Statement(only)] = function.body().statements() else { return None };
    match &**only {
        Statement::Return(only) => only.target(),
        _ => None,
    }
}

/// Returns `true` if the expression can be assigned to.
fn is_variable(expression: &Expression) -> bool {
    matches!(unparenthesized(expression), Expression::Identifier(_) | Expression::PropertyAccess(_))
}

/// Returns `true` if evaluating the expression, or calling it if it is a function, has no side effects.
fn has_no_effect(expression: &Expression) -> bool {
    match unparenthesized(expression) {
        // The variable may hold a function.
        Expression::Identifier(_) => false,
        other => other.visit_with(&mut Effects).is_continue(),
    }
}

struct Effects;

impl<'ast> Visitor<'ast> for Effects {
    type BreakTy = ();

    fn visit_assign(&mut self, _: &'ast Assign) -> ControlFlow<()> {
        Break(())
    }

    fn visit_update(&mut self, _: &'ast Update) -> ControlFlow<()> {
        Break(())
    }

    fn visit_call(&mut self, _: &'ast Call) -> ControlFlow<()> {
        Break(())
    }

    fn visit_new(&mut self, _: &'ast New) -> ControlFlow<()> {
        Break(())
    }

    fn visit_unary(&mut self, unary: &'ast Unary) -> ControlFlow<()> {
        if unary.op() == UnaryOp::Delete { Break(()) } else { unary.visit_with(self) }
    }

    fn visit_statement(&mut self, statement: &'ast Statement) -> ControlFlow<()> {
        match statement {
            Statement::Throw(_) => Break(()),
            other => other.visit_with(self),
        }
    }
}

impl<'ast> Visitor<'ast> for Idle<'_> {
    type BreakTy = ();

    fn visit_statement(&mut self, statement: &'ast Statement) -> ControlFlow<()> {
        if let Statement::Expression(whole) = statement {
            self.statement(whole);
        }
        statement.visit_with(self)
    }

    fn visit_if(&mut self, choice: &'ast If) -> ControlFlow<()> {
        self.condition(choice.cond());
        choice.visit_with(self)
    }

    fn visit_while_loop(&mut self, repeat: &'ast WhileLoop) -> ControlFlow<()> {
        self.condition(repeat.condition());
        repeat.visit_with(self)
    }

    fn visit_do_while_loop(&mut self, repeat: &'ast DoWhileLoop) -> ControlFlow<()> {
        self.condition(repeat.cond());
        repeat.visit_with(self)
    }

    fn visit_for_loop(&mut self, repeat: &'ast ForLoop) -> ControlFlow<()> {
        if let Some(condition) = repeat.condition() {
            self.condition(condition);
        }
        repeat.visit_with(self)
    }

    fn visit_conditional(&mut self, conditional: &'ast Conditional) -> ControlFlow<()> {
        self.condition(conditional.condition());
        conditional.visit_with(self)
    }

    fn visit_binary(&mut self, binary: &'ast Binary) -> ControlFlow<()> {
        let (word, list) = (unparenthesized(binary.lhs()), unparenthesized(binary.rhs()));
        let is_index = |word: &Expression| match word {
            Expression::Literal(literal) => !matches!(literal.kind(), LiteralKind::String(_)),
            _ => false,
        };
        if binary.op() == BinaryOp::Relational(RelationalOp::In)
            && matches!(list, Expression::ArrayLiteral(_))
            && !is_index(word)
        {
            let hint = match (self.text.slice(start(list), end(list)), self.text.slice(start(word), end(word))) {
                (Some(list), Some(word)) => format!("write {list}.includes({word})"),
                _ => "write list.includes(element)".to_owned(),
            };
            let message = "`in` searches for an index of the list, not for an element".to_owned();
            self.slips.push(ScriptSlip { fails: false, start: start(word), end: end(list), message, hint });
        }
        binary.visit_with(self)
    }

    fn visit_call(&mut self, call: &'ast Call) -> ControlFlow<()> {
        self.pattern(call);
        if let Some((_, "every" | "some" | "filter" | "find" | "findIndex")) = self.text.field(call.function())
            && let Some(given) = call.args().first().and_then(given)
        {
            self.condition(given);
        }
        if let Some((_, name)) = self.text.field(call.function())
            && let Some((_, before)) = LOCAL.iter().find(|(known, _)| *known == name)
            && !self.own.contains(&name)
        {
            let is_day = matches!(name, "toLocaleDateString" | "toLocaleTimeString");
            if call.args().len() > *before || is_day {
                let hint = match name {
                    "localeCompare" => "it compares by character codes",
                    "toLocaleUpperCase" | "toLocaleLowerCase" => "write toUpperCase() or toLowerCase()",
                    _ => {
                        "build the text: for a date, for example with date.toISOString().slice(0, 10); for a \
                         number, with number.toFixed(2)"
                    }
                };
                let message = format!("`{name}` does not support locales: it returns the same text for all of them");
                let start = start(call.function());
                self.slips.push(ScriptSlip {
                    fails: false,
                    start,
                    end: end(call.function()),
                    message,
                    hint: hint.to_owned(),
                });
            }
        }
        call.visit_with(self)
    }
}
