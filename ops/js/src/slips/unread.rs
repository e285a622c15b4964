//! Assignments to variables that are never read.

use std::ops::ControlFlow::{self, Break, Continue};

use boa_engine::ast::declaration::{Binding, Variable};
use boa_engine::ast::expression::literal::{LiteralKind, PropertyDefinition};
use boa_engine::ast::expression::operator::assign::{AssignOp, AssignTarget};
use boa_engine::ast::expression::operator::{Assign, Update};
use boa_engine::ast::expression::{Call, Expression, Identifier, New};
use boa_engine::ast::operations::bound_names;
use boa_engine::ast::statement::iteration::IterableLoopInitializer;
use boa_engine::ast::statement::{Statement, With};
use boa_engine::ast::{Script, Spanned};
use boa_engine::interner::Sym;

use super::idle::{OF_LISTS, PURE};
use super::results::Methods;
use super::scopes::{Scope, Scoped, Scopes, function, outer_loop, visit_scopes};
use super::{ScriptSlip, ScriptText, end};
use crate::position::Position;
use crate::process::Bindings;
use crate::spot::unparenthesized;
use crate::visitor::{VisitWith, Visitor};

/// Functions without side effects.
const COMPUTE: [&str; 5] = ["String", "Number", "parseInt", "parseFloat", "Boolean"];
/// Methods that return a changed text.
const CHANGE: [&str; 9] =
    ["padEnd", "padStart", "replace", "replaceAll", "toLowerCase", "toUpperCase", "trim", "trimEnd", "trimStart"];

/// Finds statements like `name = name.trim()` after which `name` is never read.
pub(super) fn of(script: &Script, text: ScriptText<'_>) -> Vec<ScriptSlip> {
    // Names may be read there without being written.
    if ["eval", "arguments"].iter().any(|word| text.text.contains(word)) {
        return Vec::new();
    }
    let mut bindings = Bindings::default();
    let _ = script.visit_with(&mut bindings);
    let mut own = Methods { text, names: Vec::new() };
    let _ = script.visit_with(&mut own);
    let mut unread = Unread { text, own: own.names, scopes: Scopes::default(), count: 0, events: Vec::new() };
    if script.visit_with(&mut unread).is_break() {
        return Vec::new();
    }
    let mut slips: Vec<ScriptSlip> = Vec::new();
    let mut told: Vec<Sym> = Vec::new();
    for held in &unread.events {
        let VariableAct::Holds(start, end) = held.doing else { continue };
        let is_used = |event: &&Event| {
            event.name == held.name && !matches!(event.doing, VariableAct::Declares | VariableAct::Holds(..))
        };
        if function(&held.place).is_none()
            || !bindings.is_declared_once(held.name)
            || unread.events.iter().any(|event| is_used(&event))
        {
            continue;
        }
        let name = text.name(held.name);
        slips.push(ScriptSlip {
            fails: false,
            start,
            end,
            message: format!("nothing reads `{name}`: the value that is computed here is lost"),
            hint: format!("store it in the record, for example rec.Payload.After.name = {name}, or remove it"),
        });
    }
    for set in &unread.events {
        let VariableAct::Sets(start, end) = set.doing else { continue };
        if told.contains(&set.name) || !bindings.is_declared_once(set.name) || unread.is_read_after(set) {
            continue;
        }
        told.push(set.name);
        let name = text.name(set.name);
        slips.push(ScriptSlip {
            fails: false,
            start,
            end,
            message: format!("nothing reads the new value of `{name}`: the record and its lists keep their values"),
            hint: format!(
                "store it in the record, for example rec.Payload.After.name = {name}; to change the elements of a \
                 list, write list = list.map(element => …)"
            ),
        });
    }
    slips
}

#[derive(Clone, Copy, PartialEq)]
enum VariableAct {
    /// The variable is declared with a value from the data.
    Declares,
    Reads,
    /// The variable is set to a value computed from its own.
    Sets(Position, Position),
    /// The variable is declared with a value computed from others.
    Holds(Position, Position),
}

struct Event {
    name: Sym,
    doing: VariableAct,
    /// Number of the event, in source order.
    number: usize,
    place: Vec<Scope>,
}

struct Unread<'a> {
    text: ScriptText<'a>,
    /// Methods that the script defines itself.
    own: Vec<&'a str>,
    scopes: Scopes,
    count: usize,
    events: Vec<Event>,
}

impl Unread<'_> {
    fn note(&mut self, name: Sym, doing: VariableAct) {
        self.count += 1;
        self.events.push(Event { name, doing, number: self.count, place: self.scopes.here() });
    }

    /// Returns `true` if the value set there may be read.
    fn is_read_after(&self, set: &Event) -> bool {
        let of_name = || self.events.iter().filter(|event| event.name == set.name);
        let Some(declared) = of_name().find(|event| event.doing == VariableAct::Declares) else { return true };
        let inside = function(&set.place);
        if inside.is_none() || function(&declared.place) != inside {
            return true;
        }
        let again = outer_loop(&set.place, &declared.place);
        of_name().filter(|event| event.doing == VariableAct::Reads).any(|read| {
            function(&read.place) != inside
                || read.number > set.number
                || again.is_some_and(|again| read.place.contains(&again))
        })
    }

    /// Returns `true` if the value is a changed copy of data.
    fn is_changed(&self, value: &Expression) -> bool {
        match unparenthesized(value) {
            Expression::ObjectLiteral(object) => {
                let is_spread = |property: &PropertyDefinition| matches!(property, PropertyDefinition::SpreadObject(_));
                let is_plain = |property: &PropertyDefinition| {
                    matches!(property, PropertyDefinition::Property(..) | PropertyDefinition::IdentifierReference(_))
                };
                object.properties().iter().any(is_spread)
                    && object.properties().iter().any(is_plain)
                    && object.properties().iter().all(|property| is_spread(property) || is_plain(property))
            }
            Expression::Call(call) => self
                .text
                .field(call.function())
                .is_some_and(|(_, name)| CHANGE.contains(&name) && !self.own.contains(&name)),
            _ => false,
        }
    }

    /// Matches `name = f(name)`, where `f` has no side effects.
    fn is_own(&self, whole: &Expression) -> Option<Sym> {
        let Expression::Assign(assign) = unparenthesized(whole) else { return None };
        let AssignTarget::Identifier(name) = assign.lhs() else { return None };
        let mut value = Computed { unread: self, name: name.sym(), reads: false };
        let pure = value.visit_expression(assign.rhs()).is_continue();
        (assign.op() == AssignOp::Assign && pure && value.reads).then_some(name.sym())
    }
}

impl<'ast> Scoped<'ast> for Unread<'_> {
    fn scopes(&mut self) -> &mut Scopes {
        &mut self.scopes
    }
}

impl<'ast> Visitor<'ast> for Unread<'_> {
    type BreakTy = ();

    visit_scopes!();

    /// In a `with` statement, a variable name may refer to a field.
    fn visit_with(&mut self, _: &'ast With) -> ControlFlow<()> {
        Break(())
    }

    fn visit_statement(&mut self, statement: &'ast Statement) -> ControlFlow<()> {
        if let Statement::Expression(whole) = statement
            && let Some(name) = self.is_own(whole)
            && let Expression::Assign(assign) = unparenthesized(whole)
        {
            // The value reads other variables; reading the variable itself does not count.
            let before = self.events.len();
            self.visit_expression(assign.rhs())?;
            let mut at = 0;
            self.events.retain(|event| {
                at += 1;
                at <= before || event.name != name
            });
            let span = whole.span();
            self.note(name, VariableAct::Sets(span.start().into(), span.end().into()));
            return Continue(());
        }
        statement.visit_with(self)
    }

    fn visit_variable(&mut self, variable: &'ast Variable) -> ControlFlow<()> {
        match variable.binding() {
            Binding::Identifier(name) => {
                // A variable that begins with a number is a counter, and its last increment may be unread.
                let is_data = match variable.init().map(unparenthesized) {
                    Some(Expression::Literal(literal)) => matches!(literal.kind(), LiteralKind::Undefined),
                    _ => true,
                };
                if is_data {
                    self.note(name.sym(), VariableAct::Declares);
                }
                if let Some(value) = variable.init().filter(|value| self.is_changed(value)) {
                    self.note(name.sym(), VariableAct::Holds(name.span().start().into(), end(value)));
                }
                variable.init().map_or(Continue(()), |value| self.visit_expression(value))
            }
            Binding::Pattern(pattern) => {
                bound_names(pattern).into_iter().for_each(|name| self.note(name, VariableAct::Declares));
                // The pattern reads names only in its defaults.
                let before = self.events.len();
                let flow = variable.visit_with(self);
                let bound = bound_names(pattern);
                let mut at = 0;
                self.events.retain(|event| {
                    at += 1;
                    at <= before || event.doing != VariableAct::Reads || !bound.contains(&event.name)
                });
                flow
            }
        }
    }

    fn visit_iterable_loop_initializer(&mut self, initializer: &'ast IterableLoopInitializer) -> ControlFlow<()> {
        match initializer {
            IterableLoopInitializer::Let(binding) => {
                match binding {
                    Binding::Identifier(name) => self.note(name.sym(), VariableAct::Declares),
                    Binding::Pattern(pattern) => {
                        bound_names(pattern).into_iter().for_each(|name| self.note(name, VariableAct::Declares));
                    }
                }
                Continue(())
            }
            other => other.visit_with(self),
        }
    }

    fn visit_identifier(&mut self, name: &'ast Identifier) -> ControlFlow<()> {
        self.note(name.sym(), VariableAct::Reads);
        Continue(())
    }
}

/// Checks that computing a value has no side effects, and whether it reads a variable.
struct Computed<'u, 'a> {
    unread: &'u Unread<'a>,
    name: Sym,
    reads: bool,
}

impl<'ast> Visitor<'ast> for Computed<'_, '_> {
    type BreakTy = ();

    fn visit_identifier(&mut self, name: &'ast Identifier) -> ControlFlow<()> {
        self.reads |= name.sym() == self.name;
        Continue(())
    }

    fn visit_assign(&mut self, _: &'ast Assign) -> ControlFlow<()> {
        Break(())
    }

    fn visit_update(&mut self, _: &'ast Update) -> ControlFlow<()> {
        Break(())
    }

    fn visit_new(&mut self, _: &'ast New) -> ControlFlow<()> {
        Break(())
    }

    fn visit_call(&mut self, call: &'ast Call) -> ControlFlow<()> {
        let Unread { text, own, .. } = self.unread;
        let known = match text.field(call.function()) {
            Some((target, name)) => {
                let is_known = PURE.contains(&name) || OF_LISTS.contains(&name) || name == "slice";
                (is_known && !own.contains(&name)) || text.identifier(target) == Some("Math")
            }
            None => text.identifier(call.function()).is_some_and(|name| COMPUTE.contains(&name)),
        };
        if known { call.visit_with(self) } else { Break(()) }
    }
}
