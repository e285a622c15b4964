//! Conditions that are always true, and statements that a condition does not control.

use std::ops::ControlFlow;

use boa_engine::ast::Script;
use boa_engine::ast::expression::Expression;
use boa_engine::ast::expression::literal::LiteralKind;
use boa_engine::ast::expression::operator::binary::{BinaryOp, LogicalOp};
use boa_engine::ast::expression::operator::unary::UnaryOp;
use boa_engine::ast::expression::operator::{Binary, Conditional, Unary};
use boa_engine::ast::statement::{If, Statement};

use super::kinds::{Kinds, ScriptValueKind};
use super::{ScriptSlip, end, start};
use crate::spot::unparenthesized;
use crate::visitor::{VisitWith, Visitor};

pub(super) fn of(script: &Script, kinds: &Kinds<'_>) -> Vec<ScriptSlip> {
    let mut conditions = Conditions { kinds, slips: Vec::new() };
    let _ = script.visit_with(&mut conditions);
    conditions.slips
}

struct Conditions<'k, 'a> {
    kinds: &'k Kinds<'a>,
    slips: Vec<ScriptSlip>,
}

impl Conditions<'_, '_> {
    fn say(&mut self, at: &Expression, message: String, hint: String) {
        let (start, end) = (start(at), end(at));
        // An operand of `!` within a condition is visited twice.
        if !self.slips.iter().any(|slip| slip.start == start) {
            self.slips.push(ScriptSlip { fails: false, start, end, message, hint });
        }
    }

    fn is_text(&self, expression: &Expression) -> bool {
        match unparenthesized(expression) {
            Expression::Literal(literal) => match literal.kind() {
                LiteralKind::String(text) => !self.kinds.text.name(*text).is_empty(),
                _ => false,
            },
            _ => false,
        }
    }

    fn condition(&mut self, condition: &Expression) {
        let condition = unparenthesized(condition);
        match condition {
            Expression::Binary(binary) if matches!(binary.op(), BinaryOp::Logical(LogicalOp::And | LogicalOp::Or)) => {
                self.condition(binary.lhs());
                self.condition(binary.rhs());
            }
            _ if self.is_text(condition) => {
                let hint = "a text alone is not a comparison: write value === text for each text".to_owned();
                self.say(condition, "this text is always true as a condition".to_owned(), hint);
            }
            _ => {
                let hint = match self.kinds.kind(condition) {
                    Some(ScriptValueKind::List) => {
                        "a list is true even if it is empty: compare its length with 0".to_owned()
                    }
                    Some(ScriptValueKind::Object) => match condition {
                        Expression::New(new) if self.kinds.global(new.constructor()) == Some("Boolean") => {
                            "remove new: write Boolean(…)".to_owned()
                        }
                        _ => "an object is true regardless of its content".to_owned(),
                    },
                    _ => return,
                };
                self.say(condition, "this is always true as a condition".to_owned(), hint);
            }
        }
    }
}

impl<'ast> Visitor<'ast> for Conditions<'_, '_> {
    type BreakTy = ();

    fn visit_if(&mut self, choice: &'ast If) -> ControlFlow<()> {
        self.condition(choice.cond());
        if matches!(choice.body(), Statement::Empty) && choice.else_node().is_none() {
            let message = "this `if` has no effect: the semicolon after its condition ends it".to_owned();
            self.say(choice.cond(), message, "remove the semicolon".to_owned());
        }
        choice.visit_with(self)
    }

    fn visit_conditional(&mut self, conditional: &'ast Conditional) -> ControlFlow<()> {
        self.condition(conditional.condition());
        conditional.visit_with(self)
    }

    fn visit_unary(&mut self, unary: &'ast Unary) -> ControlFlow<()> {
        if unary.op() == UnaryOp::Not {
            self.condition(unary.target());
        }
        unary.visit_with(self)
    }

    fn visit_binary(&mut self, binary: &'ast Binary) -> ControlFlow<()> {
        // For example `value === ("a" || "b")` and `case "a" || "b":`.
        if let BinaryOp::Logical(op @ (LogicalOp::And | LogicalOp::Or)) = binary.op()
            && self.is_text(binary.lhs())
        {
            let side = if op == LogicalOp::Or { "first" } else { "last" };
            let message = format!("this is always the {side} of the two values");
            let hint = "compare with each of them, or write [first, second].includes(value)".to_owned();
            self.say(binary.lhs(), message, hint);
        }
        binary.visit_with(self)
    }
}
