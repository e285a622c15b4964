//! Variables outside of `process` that are null or undefined until `process` assigns them. Code before the first
//! assignment sees this value in every call if it fails there: such a call never reaches the assignment.

use std::collections::HashMap;
use std::ops::ControlFlow::{self, Continue};

use boa_engine::ast::declaration::{Binding, Declaration, LexicalDeclaration, Variable};
use boa_engine::ast::expression::Expression;
use boa_engine::ast::expression::Identifier;
use boa_engine::ast::expression::literal::LiteralKind;
use boa_engine::ast::expression::operator::assign::AssignTarget;
use boa_engine::ast::expression::operator::{Assign, Update};
use boa_engine::ast::operations::bound_names;
use boa_engine::ast::statement::Statement;
use boa_engine::ast::statement::iteration::IterableLoopInitializer;
use boa_engine::ast::{Script, Spanned, StatementListItem};
use boa_engine::interner::Sym;

use super::kinds::Kinds;
use crate::inner::visit_inner_functions;
use crate::position::Position;
use crate::process::Process;
use crate::spot::unparenthesized;
use crate::visitor::{VisitWith, Visitor};

/// Returns these variables, each with the name of its value and the place of the first assignment.
pub(super) fn of(script: &Script, process: &Process<'_>, kinds: &Kinds<'_>) -> HashMap<Sym, (&'static str, Position)> {
    // A field of the global object may be the variable.
    if ["this.", "this["].iter().any(|this| kinds.text.text.contains(this)) {
        return HashMap::new();
    }
    let declared = script.statements().iter().flat_map(lets).filter_map(|variable| nothing(variable, kinds));
    let mut found = HashMap::new();
    for (name, nothing) in declared {
        let mut mentions = Mentions { name, count: 0 };
        let _ = script.visit_with(&mut mentions);
        let mut uses = MentionCounter { name, count: 0, first: None };
        let _ = process.body.visit_with(&mut uses);
        // The declaration is the only mention outside of the body, so that no other code can assign the variable.
        if let Some(first) = uses.first
            && kinds.is_declared_once(name)
            && mentions.count == uses.count + 1
        {
            found.insert(name, (nothing, first));
        }
    }
    found
}

fn lets(item: &StatementListItem) -> &[Variable] {
    match item {
        StatementListItem::Declaration(declaration) => match &**declaration {
            Declaration::Lexical(LexicalDeclaration::Let(variables)) => variables.as_ref(),
            _ => &[],
        },
        StatementListItem::Statement(statement) => match &**statement {
            Statement::Var(declared) => declared.0.as_ref(),
            _ => &[],
        },
    }
}

fn nothing(variable: &Variable, kinds: &Kinds<'_>) -> Option<(Sym, &'static str)> {
    let Binding::Identifier(name) = variable.binding() else { return None };
    let nothing = match variable.init().map(unparenthesized) {
        None => "undefined",
        Some(Expression::Literal(literal)) if matches!(literal.kind(), LiteralKind::Null) => "null",
        Some(value) if kinds.global(value) == Some("undefined") => "undefined",
        Some(_) => return None,
    };
    Some((name.sym(), nothing))
}

/// Counts the mentions of a name.
struct Mentions {
    name: Sym,
    count: usize,
}

impl<'ast> Visitor<'ast> for Mentions {
    type BreakTy = ();

    fn visit_identifier(&mut self, name: &'ast Identifier) -> ControlFlow<()> {
        self.count += usize::from(name.sym() == self.name);
        Continue(())
    }
}

/// Counts the mentions of a name in a function without those in its inner functions, and finds the first assignment.
struct MentionCounter {
    name: Sym,
    count: usize,
    first: Option<Position>,
}

impl MentionCounter {
    fn outside<N>(&mut self, _: &N) -> ControlFlow<()> {
        Continue(())
    }

    fn assigned(&mut self, at: Position) {
        self.first = Some(self.first.map_or(at, |first| first.min(at)));
    }
}

impl<'ast> Visitor<'ast> for MentionCounter {
    type BreakTy = ();

    visit_inner_functions!(ControlFlow<()>, outside);

    fn visit_identifier(&mut self, name: &'ast Identifier) -> ControlFlow<()> {
        self.count += usize::from(name.sym() == self.name);
        Continue(())
    }

    fn visit_assign(&mut self, assign: &'ast Assign) -> ControlFlow<()> {
        let is_target = match assign.lhs() {
            AssignTarget::Identifier(name) => name.sym() == self.name,
            AssignTarget::Pattern(pattern) => bound_names(pattern).contains(&self.name),
            AssignTarget::Access(_) => false,
        };
        if is_target {
            self.assigned(assign.span().start().into());
        }
        assign.visit_with(self)
    }

    fn visit_update(&mut self, update: &'ast Update) -> ControlFlow<()> {
        self.assigned(update.span().start().into());
        update.visit_with(self)
    }

    fn visit_iterable_loop_initializer(&mut self, initializer: &'ast IterableLoopInitializer) -> ControlFlow<()> {
        let count = self.count;
        initializer.visit_with(self)?;
        // The loop assigns the variable.
        if self.count > count {
            self.assigned(Position { line: 0, column: 0 });
        }
        Continue(())
    }
}
