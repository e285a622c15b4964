//! Copies that a script changes but does not use.

use std::ops::ControlFlow::{self, Continue};

use boa_engine::ast::Spanned;
use boa_engine::ast::declaration::{Binding, Variable};
use boa_engine::ast::expression::access::{PropertyAccess, PropertyAccessField};
use boa_engine::ast::expression::literal::PropertyDefinition;
use boa_engine::ast::expression::operator::Assign;
use boa_engine::ast::expression::operator::assign::{AssignOp, AssignTarget};
use boa_engine::ast::expression::operator::unary::UnaryOp;
use boa_engine::ast::expression::operator::update::UpdateTarget;
use boa_engine::ast::expression::{Call, Expression, Identifier};
use boa_engine::ast::function::FunctionBody;
use boa_engine::ast::statement::Statement;
use boa_engine::interner::Sym;

use super::idle::PURE;
use super::{ScriptSlip, ScriptText, end, start};
use crate::process::Bindings;
use crate::spot::unparenthesized;
use crate::visitor::{VisitWith, Visitor};

/// Finds variables of a function that hold a new object whose fields are set and that is not used otherwise.
pub(super) fn of(body: &FunctionBody, text: ScriptText<'_>) -> Vec<ScriptSlip> {
    let mut bindings = Bindings::default();
    let _ = body.visit_with(&mut bindings);
    let mut copies = Copies { text, bindings, found: Vec::new() };
    let _ = body.visit_with(&mut copies);
    let mut slips = Vec::new();
    for (name, at, of) in copies.found {
        let mut uses = UseCounter { text, name, writes: 0, others: 0 };
        let _ = body.visit_with(&mut uses);
        // The declaration is not a use.
        if uses.writes > 0 && uses.others == 0 {
            let name_text = text.name(name);
            slips.push(ScriptSlip {
                fails: false,
                start: at.span().start().into(),
                end: at.span().end().into(),
                message: format!("`{name_text}` is changed and never used: the record stays unchanged"),
                hint: match of {
                    Some(of) => format!("write it back: {of} = {name_text}"),
                    None => "store it in the record, or remove it".to_owned(),
                },
            });
        }
    }
    slips
}

struct Copies<'a> {
    text: ScriptText<'a>,
    bindings: Bindings,
    /// Each variable, its place, and the text of the copied expression.
    found: Vec<(Sym, Identifier, Option<&'a str>)>,
}

impl<'a> Copies<'a> {
    /// Returns the text of the expression that a value copies; `None` if the value is not a new object.
    fn copied(&self, value: &Expression) -> Option<Option<&'a str>> {
        let text = |of: &Expression| match unparenthesized(of) {
            Expression::PropertyAccess(_) => self.text.slice(start(of), end(of)),
            _ => None,
        };
        match unparenthesized(value) {
            Expression::ObjectLiteral(object) => {
                let spread = |property: &PropertyDefinition| match property {
                    PropertyDefinition::SpreadObject(of) => Some(text(of)),
                    _ => None,
                };
                let has_methods = object
                    .properties()
                    .iter()
                    .any(|property| matches!(property, PropertyDefinition::MethodDefinition(_)));
                if has_methods { None } else { object.properties().iter().find_map(spread) }
            }
            Expression::Call(call) => {
                let (object, name) = self.text.field(call.function())?;
                match (self.text.identifier(object)?, name, call.args()) {
                    ("Object", "assign", [Expression::ObjectLiteral(first), of, ..])
                        if first.properties().is_empty() =>
                    {
                        Some(text(of))
                    }
                    ("JSON", "parse", [Expression::Call(inner)]) => {
                        let (object, name) = self.text.field(inner.function())?;
                        match (self.text.identifier(object)?, name, inner.args()) {
                            ("JSON", "stringify", [of]) => Some(text(of)),
                            _ => None,
                        }
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

impl<'ast> Visitor<'ast> for Copies<'_> {
    type BreakTy = ();

    fn visit_variable(&mut self, variable: &'ast Variable) -> ControlFlow<()> {
        if let (Binding::Identifier(name), Some(value)) = (variable.binding(), variable.init())
            && self.bindings.is_constant(name.sym())
            && let Some(of) = self.copied(value)
        {
            self.found.push((name.sym(), *name, of));
        }
        variable.visit_with(self)
    }
}

/// Counts the uses of a variable.
struct UseCounter<'a> {
    text: ScriptText<'a>,
    name: Sym,
    /// Fields that are set or deleted.
    writes: usize,
    /// All other uses.
    others: usize,
}

impl UseCounter<'_> {
    /// Returns `true` if the access is a field of the variable with a literal name.
    fn is_field(&self, access: &PropertyAccess) -> bool {
        let PropertyAccess::Simple(simple) = access else { return false };
        let is_named = match simple.field() {
            PropertyAccessField::Const(_) => true,
            PropertyAccessField::Expr(name) => matches!(**name, Expression::Literal(_)),
        };
        is_named && matches!(unparenthesized(simple.target()), Expression::Identifier(name) if name.sym() == self.name)
    }

    /// Returns `true` if the statement changes a field of the variable; visits the assigned value.
    fn is_write(&mut self, statement: &Expression) -> bool {
        match unparenthesized(statement) {
            Expression::Assign(assign) => {
                let AssignTarget::Access(access) = assign.lhs() else { return false };
                let is_known = !matches!(assign.op(), AssignOp::BoolAnd | AssignOp::BoolOr | AssignOp::Coalesce);
                if !is_known || !self.is_field(access) {
                    return false;
                }
                // Reading fields of the variable itself is allowed there.
                let mut own = AssignmentVisitor { uses: self, kept: 0 };
                let _ = own.visit_expression(assign.rhs());
                let kept = own.kept;
                self.others += kept;
                true
            }
            Expression::Update(update) => {
                matches!(update.target(), UpdateTarget::PropertyAccess(access) if self.is_field(access))
            }
            Expression::Unary(unary) if unary.op() == UnaryOp::Delete => {
                matches!(unparenthesized(unary.target()), Expression::PropertyAccess(access) if self.is_field(access))
            }
            _ => false,
        }
    }
}

impl<'ast> Visitor<'ast> for UseCounter<'_> {
    type BreakTy = ();

    fn visit_statement(&mut self, statement: &'ast Statement) -> ControlFlow<()> {
        if let Statement::Expression(whole) = statement
            && self.is_write(whole)
        {
            self.writes += 1;
            return Continue(());
        }
        statement.visit_with(self)
    }

    fn visit_identifier(&mut self, name: &'ast Identifier) -> ControlFlow<()> {
        self.others += usize::from(name.sym() == self.name);
        Continue(())
    }

    fn visit_binding(&mut self, binding: &'ast Binding) -> ControlFlow<()> {
        match binding {
            Binding::Identifier(_) => Continue(()),
            Binding::Pattern(_) => binding.visit_with(self),
        }
    }
}

/// Visits the value that is assigned to a field of the variable.
struct AssignmentVisitor<'u, 'a> {
    uses: &'u mut UseCounter<'a>,
    /// Number of uses that may keep the variable, or an object in it, elsewhere or change it.
    kept: usize,
}

impl<'ast> Visitor<'ast> for AssignmentVisitor<'_, '_> {
    type BreakTy = ();

    fn visit_property_access(&mut self, access: &'ast PropertyAccess) -> ControlFlow<()> {
        if self.uses.is_field(access) { Continue(()) } else { access.visit_with(self) }
    }

    fn visit_call(&mut self, call: &'ast Call) -> ControlFlow<()> {
        let pure = self.uses.text.field(call.function()).filter(|(_, name)| PURE.contains(name));
        match pure {
            Some((target, _)) => {
                self.visit_expression(target)?;
                call.args().iter().try_for_each(|argument| self.visit_expression(argument))
            }
            None => self.whole(call),
        }
    }

    fn visit_assign(&mut self, assign: &'ast Assign) -> ControlFlow<()> {
        self.whole(assign)
    }

    fn visit_identifier(&mut self, name: &'ast Identifier) -> ControlFlow<()> {
        self.kept += usize::from(name.sym() == self.uses.name);
        Continue(())
    }
}

impl AssignmentVisitor<'_, '_> {
    /// Counts any use of the variable in the node.
    fn whole(&mut self, node: &impl VisitWith) -> ControlFlow<()> {
        let mut inside = UseCounter { text: self.uses.text, name: self.uses.name, writes: 0, others: 0 };
        let _ = node.visit_with(&mut inside);
        self.kept += inside.others + inside.writes;
        Continue(())
    }
}
