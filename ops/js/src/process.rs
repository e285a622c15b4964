//! Finds the function `process` in a script.

use std::ops::ControlFlow;

use boa_engine::ast::declaration::{Binding, Declaration, LexicalDeclaration, VariableList};
use boa_engine::ast::expression::operator::assign::AssignTarget;
use boa_engine::ast::expression::operator::update::UpdateTarget;
use boa_engine::ast::expression::operator::{Assign, Update};
use boa_engine::ast::expression::{Expression, Identifier};
use boa_engine::ast::function::{FormalParameterList, FunctionBody, FunctionDeclaration};
use boa_engine::ast::operations::bound_names;
use boa_engine::ast::statement::Statement;
use boa_engine::ast::{Script, StatementListItem};
use boa_engine::interner::Sym;

use crate::spot::unparenthesized;
use crate::visitor::{VisitWith, Visitor};

/// The function `process` of a script.
pub(crate) struct Process<'a> {
    pub(crate) name: Identifier,
    pub(crate) parameters: &'a FormalParameterList,
    pub(crate) body: &'a FunctionBody,
    /// True if calling it returns an iterator.
    pub(crate) generates: bool,
}

impl<'a> Process<'a> {
    /// Returns the function that the script declares, or `None` if it is ambiguous.
    pub(crate) fn of(script: &'a Script, process: Sym) -> Option<Process<'a>> {
        let mut found = None;
        let mut count = 0;
        let mut take = |candidate: Option<Process<'a>>| {
            count += 1;
            found = candidate;
        };
        for item in script.statements().iter() {
            let lists: Option<&'a VariableList> = match item {
                StatementListItem::Declaration(declaration) => match &**declaration {
                    Declaration::FunctionDeclaration(f) if f.name().sym() == process => {
                        let name = f.name();
                        take(Some(Process { name, parameters: f.parameters(), body: f.body(), generates: false }));
                        None
                    }
                    Declaration::AsyncFunctionDeclaration(f) if f.name().sym() == process => {
                        let name = f.name();
                        take(Some(Process { name, parameters: f.parameters(), body: f.body(), generates: false }));
                        None
                    }
                    Declaration::GeneratorDeclaration(f) if f.name().sym() == process => {
                        let name = f.name();
                        take(Some(Process { name, parameters: f.parameters(), body: f.body(), generates: true }));
                        None
                    }
                    Declaration::Lexical(LexicalDeclaration::Const(list) | LexicalDeclaration::Let(list)) => Some(list),
                    _ => None,
                },
                StatementListItem::Statement(statement) => match &**statement {
                    Statement::Var(var) => Some(&var.0),
                    _ => None,
                },
            };
            for variable in lists.into_iter().flat_map(AsRef::as_ref) {
                if let Binding::Identifier(name) = variable.binding()
                    && name.sym() == process
                {
                    take(variable.init().and_then(|init| Process::value(*name, init)));
                }
            }
        }
        let mut others = Bindings::default();
        let _ = script.visit_with(&mut others);
        found.filter(|_| count == 1 && !others.assigned.contains(&process))
    }

    /// Returns the parameter that holds the record; `None` if it is destructured.
    pub(crate) fn record(&self) -> Option<Sym> {
        match self.parameters.as_ref().first()? {
            first if first.is_rest_param() => None,
            first => match first.variable().binding() {
                Binding::Identifier(record) => Some(record.sym()),
                Binding::Pattern(_) => None,
            },
        }
    }

    fn value(name: Identifier, init: &'a Expression) -> Option<Process<'a>> {
        let (parameters, body) = match unparenthesized(init) {
            Expression::FunctionExpression(f) => (f.parameters(), f.body()),
            Expression::ArrowFunction(f) => (f.parameters(), f.body()),
            Expression::AsyncFunctionExpression(f) => (f.parameters(), f.body()),
            Expression::AsyncArrowFunction(f) => (f.parameters(), f.body()),
            _ => return None,
        };
        Some(Process { name, parameters, body, generates: false })
    }
}

/// Names that a text declares and assigns.
#[derive(Default)]
pub(crate) struct Bindings {
    bound: Vec<Sym>,
    assigned: Vec<Sym>,
}

impl Bindings {
    /// Returns `true` if the name is declared or assigned.
    pub(crate) fn is_bound(&self, name: Sym) -> bool {
        self.bound.contains(&name) || self.assigned.contains(&name)
    }

    /// Returns `true` if the name is declared once, so that all its uses refer to the same variable.
    pub(crate) fn is_declared_once(&self, name: Sym) -> bool {
        self.bound.iter().filter(|bound| **bound == name).count() == 1
    }

    /// Returns `true` if the variable always has its declared value.
    pub(crate) fn is_constant(&self, name: Sym) -> bool {
        self.is_declared_once(name) && !self.assigned.contains(&name)
    }
}

impl<'ast> Visitor<'ast> for Bindings {
    type BreakTy = ();

    fn visit_binding(&mut self, binding: &'ast Binding) -> ControlFlow<()> {
        match binding {
            Binding::Identifier(name) => self.bound.push(name.sym()),
            Binding::Pattern(pattern) => self.bound.extend(bound_names(pattern)),
        }
        binding.visit_with(self)
    }

    fn visit_function_declaration(&mut self, function: &'ast FunctionDeclaration) -> ControlFlow<()> {
        self.bound.push(function.name().sym());
        function.visit_with(self)
    }

    fn visit_assign(&mut self, assign: &'ast Assign) -> ControlFlow<()> {
        match assign.lhs() {
            AssignTarget::Identifier(name) => self.assigned.push(name.sym()),
            AssignTarget::Pattern(pattern) => self.assigned.extend(bound_names(pattern)),
            AssignTarget::Access(_) => {}
        }
        assign.visit_with(self)
    }

    fn visit_update(&mut self, update: &'ast Update) -> ControlFlow<()> {
        if let UpdateTarget::Identifier(name) = update.target() {
            self.assigned.push(name.sym());
        }
        update.visit_with(self)
    }
}
