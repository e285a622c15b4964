//! Analysis of how a function ends: with a value, without one, or not at all.

use std::ops::ControlFlow::{self, Break, Continue};

use boa_engine::ast::StatementListItem;
use boa_engine::ast::expression::Expression;
use boa_engine::ast::expression::literal::LiteralKind;
use boa_engine::ast::expression::operator::unary::UnaryOp;
use boa_engine::ast::function::FunctionBody;
use boa_engine::ast::statement::{Break as Leaves, Continue as Continues, Return, Statement, Throw};
use boa_engine::interner::Sym;

use crate::inner::visit_inner_functions;
use crate::spot::unparenthesized;
use crate::visitor::{VisitWith, Visitor};

/// Returns `true` if no call of the function returns a value, so that it drops every record. `undefined` is the symbol
/// of that name, if the script uses it.
pub(crate) fn gives_nothing(body: &FunctionBody, undefined: Option<Sym>) -> bool {
    let mut exits = Exits { undefined, value: true, ..Exits::default() };
    let returns = body.visit_with(&mut exits).is_break();
    !returns && !body.statements().iter().any(stays)
}

/// Returns `true` if control may leave the function, loop or block before its end.
pub(crate) fn may_leave(part: &impl VisitWith) -> bool {
    part.visit_with(&mut Exits { undefined: None, value: true, nothing: true, throw: true, leave: true }).is_break()
}

/// Returns `true` if the statement never completes and returns nothing: it throws or never ends.
fn stays(item: &StatementListItem) -> bool {
    match item {
        StatementListItem::Statement(statement) => never_ends(statement),
        StatementListItem::Declaration(_) => false,
    }
}

fn never_ends(statement: &Statement) -> bool {
    let always = |condition: &Expression| match unparenthesized(condition) {
        Expression::Literal(literal) => match literal.kind() {
            LiteralKind::Bool(truth) => *truth,
            LiteralKind::Int(number) => *number != 0,
            _ => false,
        },
        _ => false,
    };
    let leaves = |body: &Statement| {
        body.visit_with(&mut Exits { value: true, nothing: true, leave: true, ..Exits::default() }).is_break()
    };
    match statement {
        Statement::Throw(_) => true,
        Statement::Block(block) => block.statement_list().iter().any(stays),
        Statement::If(choice) => never_ends(choice.body()) && choice.else_node().is_some_and(never_ends),
        Statement::WhileLoop(repeat) => always(repeat.condition()) && !leaves(repeat.body()),
        Statement::DoWhileLoop(repeat) => {
            (always(repeat.cond()) && !leaves(repeat.body())) || never_ends(repeat.body())
        }
        Statement::ForLoop(repeat) => repeat.condition().is_none_or(always) && !leaves(repeat.body()),
        Statement::Try(attempt) => {
            let handler = attempt.catch().is_none_or(|catch| catch.block().statement_list().iter().any(stays));
            attempt.block().statement_list().iter().any(stays) && handler
        }
        _ => false,
    }
}

/// Searches for exits of a function, without those of inner functions.
#[derive(Default)]
struct Exits {
    undefined: Option<Sym>,
    /// Counts returns with a value.
    value: bool,
    /// Counts returns without a value.
    nothing: bool,
    /// Counts throws.
    throw: bool,
    /// Counts exits from a loop, and `await` and `yield`.
    leave: bool,
}

impl Exits {
    /// Inner functions have their own exits.
    fn outside<N>(&mut self, _: &N) -> ControlFlow<()> {
        Continue(())
    }
}

impl<'ast> Visitor<'ast> for Exits {
    type BreakTy = ();

    visit_inner_functions!(ControlFlow<()>, outside);

    fn visit_return(&mut self, returned: &'ast Return) -> ControlFlow<()> {
        let is_nothing = returned.target().is_none_or(|target| match unparenthesized(target) {
            Expression::Literal(literal) => *literal.kind() == LiteralKind::Undefined,
            Expression::Unary(unary) => unary.op() == UnaryOp::Void,
            Expression::Identifier(name) => Some(name.sym()) == self.undefined,
            _ => false,
        });
        if if is_nothing { self.nothing } else { self.value } { Break(()) } else { Continue(()) }
    }

    fn visit_throw(&mut self, _: &'ast Throw) -> ControlFlow<()> {
        if self.throw { Break(()) } else { Continue(()) }
    }

    fn visit_break(&mut self, _: &'ast Leaves) -> ControlFlow<()> {
        if self.leave { Break(()) } else { Continue(()) }
    }

    fn visit_continue(&mut self, _: &'ast Continues) -> ControlFlow<()> {
        if self.leave { Break(()) } else { Continue(()) }
    }
}
