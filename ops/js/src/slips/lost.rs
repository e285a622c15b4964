//! Unused results of callbacks, and lookups that find nothing.

use std::ops::ControlFlow::{self, Continue};

use boa_engine::ast::declaration::{Binding, Variable};
use boa_engine::ast::expression::access::{PropertyAccess, PropertyAccessField};
use boa_engine::ast::expression::literal::LiteralKind;
use boa_engine::ast::expression::operator::Assign;
use boa_engine::ast::expression::operator::Update;
use boa_engine::ast::expression::operator::assign::AssignTarget;
use boa_engine::ast::expression::operator::unary::UnaryOp;
use boa_engine::ast::expression::operator::update::UpdateTarget;
use boa_engine::ast::expression::{Call, Expression, Identifier};
use boa_engine::ast::function::FunctionBody;
use boa_engine::ast::statement::iteration::IterableLoopInitializer;
use boa_engine::ast::statement::{ForInLoop, Return, Statement};
use boa_engine::ast::{Script, Spanned, StatementListItem};
use boa_engine::interner::Sym;

use super::kinds::Kinds;
use super::scopes::{Scope, Scoped, Scopes, function, visit_scopes};
use super::{ScriptSlip, end, start};
use crate::inner::visit_inner_functions;
use crate::position::Position;
use crate::process::{Bindings, Process};
use crate::properties::{OF_OBJECTS, OF_STRINGS};
use crate::spot::unparenthesized;
use crate::visitor::{VisitWith, Visitor};

pub(super) fn of(script: &Script, process: Option<&Process<'_>>, kinds: &Kinds<'_>) -> Vec<ScriptSlip> {
    let mut bindings = Bindings::default();
    let _ = script.visit_with(&mut bindings);
    let record = process.and_then(Process::record).filter(|record| bindings.is_constant(*record));
    let mut lost = Lost { kinds, bindings: &bindings, record, unused: Vec::new(), negative: false, slips: Vec::new() };
    let _ = script.visit_with(&mut lost);
    let Lost { negative, mut slips, .. } = lost;
    // A script that assigns negative indices may read them.
    slips.retain(|(is_index, _)| !(negative && *is_index));
    let mut slips: Vec<ScriptSlip> = slips.into_iter().map(|(_, slip)| slip).collect();
    let mut empty =
        Empty { kinds, bindings: &bindings, scopes: Scopes::default(), open: Vec::new(), slips: Vec::new() };
    let _ = script.visit_with(&mut empty);
    slips.extend(empty.slips.into_iter().flatten());
    slips
}

struct Lost<'k, 'a> {
    kinds: &'k Kinds<'a>,
    bindings: &'k Bindings,
    record: Option<Sym>,
    /// Calls whose results are unused.
    unused: Vec<Position>,
    /// True if the script assigns to a negative index.
    negative: bool,
    /// Findings, each with whether it is about a negative index.
    slips: Vec<(bool, ScriptSlip)>,
}

impl Lost<'_, '_> {
    fn say(&mut self, start: Position, end: Position, message: String, hint: String) {
        self.slips.push((false, ScriptSlip { fails: false, start, end, message, hint }));
    }

    fn negative(&self, access: &PropertyAccess) -> Option<i32> {
        let PropertyAccess::Simple(access) = access else { return None };
        let PropertyAccessField::Expr(index) = access.field() else { return None };
        match unparenthesized(index) {
            Expression::Unary(unary) if unary.op() == UnaryOp::Minus => {
                self.kinds.number(index).filter(|index| *index < 0)
            }
            _ => None,
        }
    }

    /// Checks what a callback returns to a method that ignores the result, or whose result is unused.
    fn callback(&mut self, call: &Call) {
        let Some((_, method, [first, ..])) = self.kinds.called(call) else { return };
        let body = match unparenthesized(first) {
            Expression::ArrowFunction(function) => function.body(),
            Expression::FunctionExpression(function) => function.body(),
            _ => return,
        };
        let mut returns = Returns { found: Vec::new(), count: 0 };
        let _ = body.visit_with(&mut returns);
        match method {
            "forEach" => {
                for value in returns.found {
                    let is_lost = match unparenthesized(value) {
                        Expression::Literal(literal) => {
                            matches!(literal.kind(), LiteralKind::Null | LiteralKind::Bool(false))
                        }
                        Expression::Identifier(name) => Some(name.sym()) == self.record,
                        _ => false,
                    };
                    if is_lost {
                        let message = "this value is lost: forEach neither stops when its function returns nor \
                                       returns its results";
                        let hint = "write for (const element of list) { … }, in which return leaves process; to \
                                    continue with the next element, write return alone";
                        self.say(start(value), end(value), message.to_owned(), hint.to_owned());
                    }
                }
            }
            "map" | "filter" | "find" | "findIndex" | "some" | "every" | "flatMap" | "reduce"
                if returns.count == 0 && !self.unused.contains(&call.span().start().into()) =>
            {
                let Some(last) = last(body).filter(|last| self.is_value(last)) else { return };
                let message = format!("the function returns undefined to `{method}`: its braces contain no return");
                let hint = match self.kinds.text.slice(start(last), end(last)) {
                    Some(shown) => format!("write return {shown}"),
                    None => "write return before the value".to_owned(),
                };
                self.say(start(last), end(last), message, hint);
            }
            _ => {}
        }
    }

    /// Returns `true` if the expression is only useful for its value.
    fn is_value(&self, value: &Expression) -> bool {
        match unparenthesized(value) {
            Expression::Call(_) => self.kinds.kind(value).is_some(),
            Expression::PropertyAccess(_) | Expression::TemplateLiteral(_) | Expression::Binary(_) => true,
            _ => false,
        }
    }

    fn sought(&mut self, call: &Call) {
        let Some((_, method @ ("includes" | "indexOf" | "lastIndexOf"), [value, ..])) = self.kinds.called(call) else {
            return;
        };
        if !matches!(unparenthesized(value), Expression::ObjectLiteral(_) | Expression::ArrayLiteral(_)) {
            return;
        }
        let always = if method == "includes" { "false" } else { "-1" };
        let message = format!("this is always {always}: `{method}` finds only the same object, and this object is new");
        let hint = "compare the contents of the elements: list.some(element => element.name === value)".to_owned();
        self.say(start(value), end(value), message, hint);
    }
}

/// Returns the last statement of a function, if it is an expression.
fn last(body: &FunctionBody) -> Option<&Expression> {
    let StatementListItem::Statement(last) = body.statements().last()? else { return None };
    match &**last {
        Statement::Expression(value) => Some(value),
        _ => None,
    }
}

impl<'ast> Visitor<'ast> for Lost<'_, '_> {
    type BreakTy = ();

    fn visit_statement(&mut self, statement: &'ast Statement) -> ControlFlow<()> {
        if let Statement::Expression(whole) = statement
            && let Expression::Call(call) = unparenthesized(whole)
        {
            self.unused.push(call.span().start().into());
        }
        statement.visit_with(self)
    }

    fn visit_call(&mut self, call: &'ast Call) -> ControlFlow<()> {
        self.callback(call);
        self.sought(call);
        call.visit_with(self)
    }

    fn visit_assign(&mut self, assign: &'ast Assign) -> ControlFlow<()> {
        if let AssignTarget::Access(access) = assign.lhs() {
            self.negative |= self.negative(access).is_some();
        }
        assign.visit_with(self)
    }

    fn visit_update(&mut self, update: &'ast Update) -> ControlFlow<()> {
        if let UpdateTarget::PropertyAccess(access) = update.target() {
            self.negative |= self.negative(access).is_some();
        }
        update.visit_with(self)
    }

    fn visit_property_access(&mut self, access: &'ast PropertyAccess) -> ControlFlow<()> {
        let has_names = self.kinds.text.text.contains("\"-") || self.kinds.text.text.contains("'-");
        if let Some(index) = self.negative(access).filter(|_| !has_names) {
            let PropertyAccess::Simple(simple) = access else { return access.visit_with(self) };
            let target = simple.target();
            let shown = self.kinds.text.slice(start(target), end(target)).unwrap_or("list");
            let message = "this is always undefined: a list has no negative indices".to_owned();
            let hint = format!("to count from its end, write {shown}.at({index})");
            let (start, end) = (start(target), access.span().end().into());
            self.slips.push((true, ScriptSlip { fails: false, start, end, message, hint }));
        }
        access.visit_with(self)
    }

    fn visit_for_in_loop(&mut self, repeat: &'ast ForInLoop) -> ControlFlow<()> {
        if let IterableLoopInitializer::Let(Binding::Identifier(name))
        | IterableLoopInitializer::Const(Binding::Identifier(name)) = repeat.initializer()
            && self.bindings.is_constant(name.sym())
        {
            let mut fields = OfNames { kinds: self.kinds, name: name.sym(), found: None };
            let _ = repeat.body().visit_with(&mut fields);
            if let Some((start, end, field)) = fields.found {
                let name = self.kinds.text.name(name.sym());
                let message = format!(
                    "this is undefined: `in` returns the names of fields and indices, which are texts without \
                     {field:?}"
                );
                self.say(start, end, message, format!("for the elements of a list, write for (const {name} of …)"));
            }
        }
        repeat.visit_with(self)
    }
}

/// Finds the first field of a variable that no text has.
struct OfNames<'k, 'a> {
    kinds: &'k Kinds<'a>,
    name: Sym,
    found: Option<(Position, Position, &'a str)>,
}

impl<'ast> Visitor<'ast> for OfNames<'_, '_> {
    type BreakTy = ();

    fn visit_property_access(&mut self, access: &'ast PropertyAccess) -> ControlFlow<()> {
        if let Some((target, field)) = self.kinds.text.member(access)
            && matches!(unparenthesized(target), Expression::Identifier(name) if name.sym() == self.name)
            && !OF_STRINGS.contains(&field)
            && !OF_OBJECTS.contains(&field)
            && self.found.is_none()
        {
            self.found = Some((start(target), access.span().end().into(), field));
        }
        access.visit_with(self)
    }
}

/// Collects the values that a function itself returns.
struct Returns<'e> {
    found: Vec<&'e Expression>,
    /// Number of its returns and throws.
    count: usize,
}

impl Returns<'_> {
    fn outside<N>(&mut self, _: &N) -> ControlFlow<()> {
        Continue(())
    }
}

impl<'ast> Visitor<'ast> for Returns<'ast> {
    type BreakTy = ();

    visit_inner_functions!(ControlFlow<()>, outside);

    fn visit_return(&mut self, returned: &'ast Return) -> ControlFlow<()> {
        self.count += 1;
        self.found.extend(returned.target());
        Continue(())
    }

    fn visit_throw(&mut self, _: &'ast boa_engine::ast::statement::Throw) -> ControlFlow<()> {
        self.count += 1;
        Continue(())
    }
}

/// An empty set or map of a function, until it is used otherwise than for lookups.
struct Open {
    name: Sym,
    kind: &'static str,
    declared: Vec<Scope>,
    /// True if it was used otherwise; the other field is the index of its finding.
    used: bool,
    slip: Option<usize>,
}

/// Finds sets and maps that are created in each call of a function and searched while still empty.
struct Empty<'k, 'a> {
    kinds: &'k Kinds<'a>,
    bindings: &'k Bindings,
    scopes: Scopes,
    open: Vec<Open>,
    slips: Vec<Option<ScriptSlip>>,
}

impl<'ast> Scoped<'ast> for Empty<'_, '_> {
    fn scopes(&mut self) -> &mut Scopes {
        &mut self.scopes
    }
}

impl<'ast> Visitor<'ast> for Empty<'_, '_> {
    type BreakTy = ();

    visit_scopes!();

    fn visit_variable(&mut self, variable: &'ast Variable) -> ControlFlow<()> {
        let declared = self.scopes.here();
        if let (Binding::Identifier(name), Some(Expression::New(new))) = (variable.binding(), variable.init())
            && new.arguments().is_empty()
            && let Some(kind) = match self.kinds.global(new.constructor()) {
                Some("Set") => Some("Set"),
                Some("Map") => Some("Map"),
                _ => None,
            }
            && self.bindings.is_constant(name.sym())
            && function(&declared).is_some()
        {
            self.open.push(Open { name: name.sym(), kind, declared, used: false, slip: None });
            return Continue(());
        }
        variable.visit_with(self)
    }

    fn visit_call(&mut self, call: &'ast Call) -> ControlFlow<()> {
        let here = self.scopes.here();
        if let Some((target, method @ ("has" | "get"), _)) = self.kinds.called(call)
            && let Expression::Identifier(name) = unparenthesized(target)
            && let Some(open) = self.open.iter_mut().find(|open| open.name == name.sym())
            && !open.used
            && open.declared == here
        {
            open.used = true;
            open.slip = Some(self.slips.len());
            let (name, always) = (self.kinds.text.name(open.name), if method == "has" { "false" } else { "undefined" });
            self.slips.push(Some(ScriptSlip {
                fails: false,
                start: start(target),
                end: call.span().end().into(),
                message: format!("this is always {always}: each call of the function creates an empty `{name}`"),
                hint: format!(
                    "to keep it from record to record, declare it outside: const {name} = new {}()",
                    open.kind
                ),
            }));
            return call.args().iter().try_for_each(|argument| self.visit_expression(argument));
        }
        call.visit_with(self)
    }

    fn visit_identifier(&mut self, name: &'ast Identifier) -> ControlFlow<()> {
        let here = self.scopes.here();
        if let Some(open) = self.open.iter_mut().find(|open| open.name == name.sym()) {
            open.used = true;
            // A function may be called before its place in the text.
            if function(&here) != function(&open.declared)
                && let Some(slip) = open.slip
            {
                self.slips[slip] = None;
            }
        }
        Continue(())
    }
}
