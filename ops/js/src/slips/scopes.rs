//! Functions and loops around a place in a script.

use std::ops::ControlFlow;

use boa_engine::ast::statement::iteration::IterableLoopInitializer;
use boa_engine::ast::{Expression, Statement};

use crate::visitor::{VisitWith, Visitor};

/// A function or loop: code that runs repeatedly, or not at all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scope {
    number: usize,
    is_loop: bool,
}

/// Functions and loops around the visited node.
#[derive(Clone, Debug, Default)]
pub(super) struct Scopes {
    around: Vec<Scope>,
    count: usize,
}

impl Scopes {
    pub(super) fn enter(&mut self, is_loop: bool) {
        self.count += 1;
        self.around.push(Scope { number: self.count, is_loop });
    }

    pub(super) fn leave(&mut self) {
        self.around.pop();
    }

    /// Returns the scopes around the visited node, outermost first.
    pub(super) fn here(&self) -> Vec<Scope> {
        self.around.clone()
    }
}

/// A visitor that tracks its scopes.
pub(super) trait Scoped<'ast>: Visitor<'ast, BreakTy = ()> {
    fn scopes(&mut self) -> &mut Scopes;

    /// Visits a function.
    fn inside<N: VisitWith>(&mut self, function: &'ast N) -> ControlFlow<()>
    where
        Self: Sized,
    {
        self.scopes().enter(false);
        let flow = function.visit_with(self);
        self.scopes().leave();
        flow
    }

    /// Visits a loop all of whose parts run repeatedly.
    fn repeated<N: VisitWith>(&mut self, repeat: &'ast N) -> ControlFlow<()>
    where
        Self: Sized,
    {
        self.scopes().enter(true);
        let flow = repeat.visit_with(self);
        self.scopes().leave();
        flow
    }

    /// Visits a loop over the elements of an expression, which is evaluated once.
    fn over_elements(
        &mut self,
        elements: &'ast Expression,
        variable: &'ast IterableLoopInitializer,
        body: &'ast Statement,
    ) -> ControlFlow<()> {
        self.visit_expression(elements)?;
        self.scopes().enter(true);
        self.visit_iterable_loop_initializer(variable)?;
        self.visit_statement(body)?;
        self.scopes().leave();
        ControlFlow::Continue(())
    }
}

/// Returns the innermost function around a place; `None` at the top level.
pub(super) fn function(place: &[Scope]) -> Option<Scope> {
    place.iter().rev().find(|scope| !scope.is_loop).copied()
}

/// Returns the outermost loop around a place that is not in `but_not`.
pub(super) fn outer_loop(place: &[Scope], but_not: &[Scope]) -> Option<Scope> {
    place.iter().find(|scope| scope.is_loop && !but_not.contains(scope)).copied()
}

/// Defines the methods of a [`Visitor`] that is [`Scoped`] and has a field `scopes`.
macro_rules! visit_scopes {
    () => {
        crate::inner::visit_inner_functions!(ControlFlow<()>, inside);

        fn visit_for_loop(&mut self, repeat: &'ast boa_engine::ast::statement::ForLoop) -> ControlFlow<()> {
            // Its variables are declared once.
            if let Some(init) = repeat.init() {
                self.visit_for_loop_initializer(init)?;
            }
            self.scopes.enter(true);
            if let Some(condition) = repeat.condition() {
                self.visit_expression(condition)?;
            }
            self.visit_statement(repeat.body())?;
            if let Some(last) = repeat.final_expr() {
                self.visit_expression(last)?;
            }
            self.scopes.leave();
            Continue(())
        }

        fn visit_for_in_loop(&mut self, repeat: &'ast boa_engine::ast::statement::ForInLoop) -> ControlFlow<()> {
            self.over_elements(repeat.target(), repeat.initializer(), repeat.body())
        }

        fn visit_for_of_loop(&mut self, repeat: &'ast boa_engine::ast::statement::ForOfLoop) -> ControlFlow<()> {
            self.over_elements(repeat.iterable(), repeat.initializer(), repeat.body())
        }

        fn visit_while_loop(&mut self, repeat: &'ast boa_engine::ast::statement::WhileLoop) -> ControlFlow<()> {
            self.repeated(repeat)
        }

        fn visit_do_while_loop(&mut self, repeat: &'ast boa_engine::ast::statement::DoWhileLoop) -> ControlFlow<()> {
            self.repeated(repeat)
        }
    };
}

pub(super) use visit_scopes;
