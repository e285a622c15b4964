//! Names that neither the script declares nor the engine defines.

use std::collections::HashSet;
use std::ops::ControlFlow::{self, Continue};

use anabranch_record::near::did_you_mean;
use boa_engine::ast::declaration::Binding;
use boa_engine::ast::expression::access::{PropertyAccess, PropertyAccessField};
use boa_engine::ast::expression::operator::assign::AssignTarget;
use boa_engine::ast::expression::operator::binary::BinaryOp;
use boa_engine::ast::expression::operator::unary::UnaryOp;
use boa_engine::ast::expression::operator::{Assign, Binary, Conditional, Unary};
use boa_engine::ast::expression::{Call, Expression, Identifier, Optional};
use boa_engine::ast::function::{
    ArrowFunction, AsyncArrowFunction, AsyncFunctionDeclaration, AsyncFunctionExpression, AsyncGeneratorDeclaration,
    AsyncGeneratorExpression, ClassDeclaration, ClassExpression, FunctionDeclaration, FunctionExpression,
    GeneratorDeclaration, GeneratorExpression,
};
use boa_engine::ast::operations::bound_names;
use boa_engine::ast::statement::iteration::IterableLoopInitializer;
use boa_engine::ast::statement::{If, With};
use boa_engine::ast::{Script, Spanned};
use boa_engine::interner::Sym;

use super::known::{FUNCTIONS, MEMBERS, OF_FUNCTIONS, OF_LANGUAGE, OF_NODE, OF_RECORDS, OF_SERVICE, advice};
use super::{ScriptSlip, ScriptText};
use crate::inner::visit_inner_functions;
use crate::position::Position;
use crate::process::{Bindings, Process};
use crate::properties::OF_OBJECTS;
use crate::spot::unparenthesized;
use crate::visitor::{VisitWith, Visitor};

/// Finds uses of undefined names, and of parameters that are never passed.
pub(super) fn of(
    script: &Script,
    process: Option<&Process<'_>>,
    reached: &[Position],
    text: ScriptText<'_>,
) -> Vec<ScriptSlip> {
    let mut declared =
        Declared { text, names: HashSet::new(), guarded: HashSet::new(), extended: HashSet::new(), dynamic: false };
    let _ = script.visit_with(&mut declared);
    if declared.dynamic {
        return Vec::new();
    }
    let parameter = process.and_then(|process| {
        let [_, second, ..] = process.parameters.as_ref() else { return None };
        match second.variable().binding() {
            Binding::Identifier(name) if !second.is_rest_param() && second.init().is_none() => Some(name.sym()),
            _ => None,
        }
    });
    let mut uses = UndefinedNames {
        text,
        declared: &declared,
        reached,
        record: process.and_then(Process::record).map(|name| text.name(name)),
        is_process: process.is_some(),
        at_start: true,
        slips: Vec::new(),
    };
    let _ = script.visit_with(&mut uses);
    let mut slips = uses.slips;
    if let (Some(process), Some(name)) = (process, parameter) {
        let mut bindings = Bindings::default();
        let _ = process.body.visit_with(&mut bindings);
        if !bindings.is_bound(name) && !declared.guarded.contains(&name) {
            let mut second = Second { text, name, reached, slips: Vec::new() };
            let _ = process.body.visit_with(&mut second);
            slips.extend(second.slips);
        }
    }
    slips
}

/// Names that a script declares anywhere.
struct Declared<'i> {
    text: ScriptText<'i>,
    names: HashSet<Sym>,
    /// Names whose existence the script tests.
    guarded: HashSet<Sym>,
    /// Objects that the script may extend, or whose members it tests.
    extended: HashSet<Sym>,
    /// True if names may be created dynamically.
    dynamic: bool,
}

impl Declared<'_> {
    fn guard(&mut self, expression: &Expression) {
        match unparenthesized(expression) {
            Expression::Identifier(name) => _ = self.guarded.insert(name.sym()),
            Expression::PropertyAccess(PropertyAccess::Simple(access)) => self.extend(access.target()),
            _ => {}
        }
    }

    fn extend(&mut self, object: &Expression) {
        if let Expression::Identifier(name) = unparenthesized(object) {
            self.extended.insert(name.sym());
        }
    }

    fn guard_condition(&mut self, condition: &Expression) {
        self.guard(condition);
        match unparenthesized(condition) {
            Expression::Unary(unary) => self.guard(unary.target()),
            Expression::Binary(binary) => {
                self.guard_condition(binary.lhs());
                self.guard_condition(binary.rhs());
            }
            _ => {}
        }
    }
}

macro_rules! named {
    ($($visit:ident: $node:ty),* $(,)?) => {
        $(fn $visit(&mut self, node: &'ast $node) -> ControlFlow<()> {
            self.names.insert(node.name().sym());
            node.visit_with(self)
        })*
    };
}

macro_rules! perhaps_named {
    ($($visit:ident: $node:ty),* $(,)?) => {
        $(fn $visit(&mut self, node: &'ast $node) -> ControlFlow<()> {
            self.names.extend(node.name().map(|name| name.sym()));
            node.visit_with(self)
        })*
    };
}

impl<'ast> Visitor<'ast> for Declared<'_> {
    type BreakTy = ();

    named! {
        visit_function_declaration: FunctionDeclaration,
        visit_generator_declaration: GeneratorDeclaration,
        visit_async_function_declaration: AsyncFunctionDeclaration,
        visit_async_generator_declaration: AsyncGeneratorDeclaration,
        visit_class_declaration: ClassDeclaration,
    }

    perhaps_named! {
        visit_function_expression: FunctionExpression,
        visit_generator_expression: GeneratorExpression,
        visit_async_function_expression: AsyncFunctionExpression,
        visit_async_generator_expression: AsyncGeneratorExpression,
        visit_class_expression: ClassExpression,
        // Anonymous functions get the name of their property.
        visit_arrow_function: ArrowFunction,
        visit_async_arrow_function: AsyncArrowFunction,
    }

    fn visit_binding(&mut self, binding: &'ast Binding) -> ControlFlow<()> {
        match binding {
            Binding::Identifier(name) => _ = self.names.insert(name.sym()),
            Binding::Pattern(pattern) => self.names.extend(bound_names(pattern)),
        }
        binding.visit_with(self)
    }

    fn visit_iterable_loop_initializer(&mut self, initializer: &'ast IterableLoopInitializer) -> ControlFlow<()> {
        match initializer {
            IterableLoopInitializer::Identifier(name) => _ = self.names.insert(name.sym()),
            IterableLoopInitializer::Pattern(pattern) => self.names.extend(bound_names(pattern)),
            _ => {}
        }
        initializer.visit_with(self)
    }

    fn visit_assign(&mut self, assign: &'ast Assign) -> ControlFlow<()> {
        match assign.lhs() {
            AssignTarget::Identifier(name) => _ = self.names.insert(name.sym()),
            AssignTarget::Pattern(pattern) => self.names.extend(bound_names(pattern)),
            // `globalThis.name = …` or `this.name = …`.
            AssignTarget::Access(PropertyAccess::Simple(access)) => {
                self.extend(access.target());
                let is_global = match access.target() {
                    Expression::This(_) => true,
                    target => self.text.identifier(target) == Some("globalThis"),
                };
                if is_global {
                    match access.field() {
                        PropertyAccessField::Const(name) => {
                            self.names.insert(name.sym());
                        }
                        PropertyAccessField::Expr(_) => self.dynamic = true,
                    }
                }
            }
            AssignTarget::Access(_) => {}
        }
        assign.visit_with(self)
    }

    fn visit_unary(&mut self, unary: &'ast Unary) -> ControlFlow<()> {
        if unary.op() == UnaryOp::TypeOf {
            self.guard(unary.target());
        }
        unary.visit_with(self)
    }

    fn visit_if(&mut self, choice: &'ast If) -> ControlFlow<()> {
        self.guard_condition(choice.cond());
        choice.visit_with(self)
    }

    fn visit_conditional(&mut self, conditional: &'ast Conditional) -> ControlFlow<()> {
        self.guard_condition(conditional.condition());
        conditional.visit_with(self)
    }

    fn visit_binary(&mut self, binary: &'ast Binary) -> ControlFlow<()> {
        if matches!(binary.op(), BinaryOp::Logical(_)) {
            self.guard_condition(binary.lhs());
        }
        binary.visit_with(self)
    }

    fn visit_optional(&mut self, optional: &'ast Optional) -> ControlFlow<()> {
        self.guard(optional.target());
        optional.visit_with(self)
    }

    /// The call may create global names.
    fn visit_call(&mut self, call: &'ast Call) -> ControlFlow<()> {
        let passes = call.args().iter().any(|argument| match argument {
            Expression::This(_) => true,
            argument => self.text.identifier(argument) == Some("globalThis"),
        });
        self.dynamic |= passes;
        call.args().iter().for_each(|argument| self.extend(argument));
        call.visit_with(self)
    }

    fn visit_with(&mut self, with: &'ast With) -> ControlFlow<()> {
        self.dynamic = true;
        with.visit_with(self)
    }

    fn visit_identifier(&mut self, name: &'ast Identifier) -> ControlFlow<()> {
        self.dynamic |= matches!(self.text.name(name.sym()), "eval" | "Function");
        Continue(())
    }
}

/// Searches for undefined names.
struct UndefinedNames<'a> {
    text: ScriptText<'a>,
    declared: &'a Declared<'a>,
    reached: &'a [Position],
    /// The variable that holds the record.
    record: Option<&'a str>,
    /// True if the function `process` is known.
    is_process: bool,
    /// True outside of functions and of code that runs conditionally.
    at_start: bool,
    slips: Vec<ScriptSlip>,
}

impl UndefinedNames<'_> {
    fn say(&mut self, at: Position, end: Position, name: &str, hint: String) {
        let fails = self.at_start || self.reached.contains(&at);
        if self.slips.iter().any(|slip| slip.start == at) {
            return;
        }
        self.slips.push(ScriptSlip { fails, start: at, end, message: format!("scripts have no `{name}`"), hint });
    }

    /// Reports a call of a function that a global object does not have: `Math.Round(…)`.
    fn function(&mut self, call: &Call) {
        let Expression::PropertyAccess(access) = unparenthesized(call.function()) else { return };
        let Some((target, member)) = self.text.member(access) else { return };
        let Expression::Identifier(name) = unparenthesized(target) else { return };
        let object = self.text.name(name.sym());
        let Some((_, functions)) = FUNCTIONS.iter().find(|(known, _)| *known == object) else { return };
        let is_own = self.declared.names.contains(&name.sym()) || self.declared.extended.contains(&name.sym());
        if is_own || functions.contains(&member) || OF_FUNCTIONS.contains(&member) || OF_OBJECTS.contains(&member) {
            return;
        }
        let hint = match did_you_mean(member, functions.iter().copied()) {
            Some(near) => format!("did you mean {object}.{near}?"),
            None => format!("declare a function in the script, and call it in place of {object}.{member}"),
        };
        let at = target.span().start().into();
        self.say(at, access.span().end().into(), &format!("{object}.{member}"), hint);
    }

    /// Reports a member of a global name that scripts do not have: `globalThis.Buffer.from`.
    fn global(&mut self, target: &Expression) {
        let Expression::PropertyAccess(access) = unparenthesized(target) else { return };
        let Some((global, member)) = self.text.member(access) else { return };
        let Expression::Identifier(name) = unparenthesized(global) else { return };
        let is_known = OF_LANGUAGE.contains(&member)
            || OF_SERVICE.contains(&member)
            || OF_OBJECTS.contains(&member)
            || self.declared.names.iter().any(|name| self.text.name(*name) == member);
        if self.text.name(name.sym()) == "globalThis" && !is_known && !self.declared.extended.contains(&name.sym()) {
            let hint = self.hint(member);
            self.say(global.span().start().into(), access.span().end().into(), &format!("globalThis.{member}"), hint);
        }
    }

    fn perhaps(&mut self, node: &impl VisitWith) -> ControlFlow<()> {
        let at_start = std::mem::replace(&mut self.at_start, false);
        let _ = node.visit_with(self);
        self.at_start = at_start;
        Continue(())
    }

    fn hint(&self, name: &str) -> String {
        if let Some(advice) = advice(name) {
            return advice.to_owned();
        }
        let declared = self.declared.names.iter().map(|name| self.text.name(*name));
        let near = did_you_mean(name, declared.chain(OF_SERVICE).chain(OF_LANGUAGE));
        match (near, self.record) {
            (Some(near), _) => format!("did you mean {near}?"),
            (None, Some(record)) if OF_RECORDS.contains(&name) => {
                format!("the record is in the parameter of process: {record}")
            }
            (None, _) => format!("declare it: const {name} = …"),
        }
    }
}

macro_rules! uncertain {
    ($($visit:ident: $node:ident),* $(,)?) => {
        $(fn $visit(&mut self, node: &'ast boa_engine::ast::statement::$node) -> ControlFlow<()> {
            self.perhaps(node)
        })*
    };
}

impl<'ast> Visitor<'ast> for UndefinedNames<'_> {
    type BreakTy = ();

    visit_inner_functions!(ControlFlow<()>, perhaps);

    uncertain! {
        visit_if: If,
        visit_switch: Switch,
        visit_do_while_loop: DoWhileLoop,
        visit_while_loop: WhileLoop,
        visit_for_loop: ForLoop,
        visit_for_in_loop: ForInLoop,
        visit_for_of_loop: ForOfLoop,
        visit_try: Try,
    }

    fn visit_conditional(&mut self, conditional: &'ast Conditional) -> ControlFlow<()> {
        self.perhaps(conditional)
    }

    fn visit_binary(&mut self, binary: &'ast Binary) -> ControlFlow<()> {
        self.perhaps(binary)
    }

    fn visit_optional(&mut self, optional: &'ast Optional) -> ControlFlow<()> {
        self.perhaps(optional)
    }

    fn visit_identifier(&mut self, name: &'ast Identifier) -> ControlFlow<()> {
        let text = self.text.name(name.sym());
        let known = self.declared.names.contains(&name.sym())
            || self.declared.guarded.contains(&name.sym())
            || OF_LANGUAGE.contains(&text)
            || OF_SERVICE.contains(&text);
        if !known && !text.is_empty() {
            let (start, end) = (name.span().start().into(), name.span().end().into());
            self.say(start, end, text, self.hint(text));
        }
        Continue(())
    }

    fn visit_call(&mut self, call: &'ast Call) -> ControlFlow<()> {
        self.function(call);
        call.visit_with(self)
    }

    fn visit_property_access(&mut self, access: &'ast PropertyAccess) -> ControlFlow<()> {
        if let PropertyAccess::Simple(simple) = access {
            self.global(simple.target());
        }
        if let Some((target, member)) = self.text.member(access)
            && let Some(object) = self.text.identifier(target)
            && let Expression::Identifier(name) = unparenthesized(target)
        {
            let at = target.span().start().into();
            let end = access.span().end().into();
            let members = MEMBERS.iter().find(|(known, _)| *known == object);
            if let Some((_, members)) = members.filter(|_| !self.declared.names.contains(&name.sym())) {
                if !members.contains(&member) && !OF_OBJECTS.contains(&member) {
                    let hint = format!("{object} has {}", members.join(", "));
                    self.say(at, end, &format!("{object}.{member}"), hint);
                }
            } else if object == "process" && self.is_process && OF_NODE.contains(&member) {
                let hint = match member {
                    "env" => {
                        "process is the function of the script: in a script of the pipeline file, ${NAME} in quotes \
                         is replaced with an environment variable"
                    }
                    _ => "process is the function of the script",
                };
                self.say(at, end, &format!("process.{member}"), hint.to_owned());
            }
        }
        access.visit_with(self)
    }
}

/// Searches for uses of a parameter that is never passed.
struct Second<'a> {
    text: ScriptText<'a>,
    name: Sym,
    reached: &'a [Position],
    slips: Vec<ScriptSlip>,
}

impl Second<'_> {
    fn used(&mut self, expression: &Expression) {
        if let Expression::Identifier(name) = unparenthesized(expression)
            && name.sym() == self.name
            && self.slips.is_empty()
        {
            let start: Position = name.span().start().into();
            let text = self.text.name(self.name);
            self.slips.push(ScriptSlip {
                fails: self.reached.contains(&start),
                start,
                end: name.span().end().into(),
                message: format!("`{text}` is undefined: process is called only with the record"),
                hint: "write logger or console for the log, and keep state in a variable outside of process".to_owned(),
            });
        }
    }
}

impl<'ast> Visitor<'ast> for Second<'_> {
    type BreakTy = ();

    fn visit_property_access(&mut self, access: &'ast PropertyAccess) -> ControlFlow<()> {
        if let PropertyAccess::Simple(simple) = access {
            self.used(simple.target());
        }
        access.visit_with(self)
    }

    fn visit_call(&mut self, call: &'ast Call) -> ControlFlow<()> {
        self.used(call.function());
        call.visit_with(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Worker;

    #[test]
    fn the_functions_of_global_objects_are_those_of_the_engine() {
        for (object, functions) in FUNCTIONS {
            let script = format!(
                "function process(rec) {{ rec.Payload.After = {{ all: Object.getOwnPropertyNames({object})\
                 .filter(name => typeof {object}[name] === 'function').sort().join(' ') }}; return rec }}"
            );
            let record = r#"{"position":"cA==","operation":"create","metadata":{},"key":null,"payload":{"before":null,"after":{}}}"#;
            let found = Worker::new(&script).json(record).unwrap();
            let mut known = functions.to_vec();
            known.sort_unstable();
            assert!(found.contains(&format!("\"all\":\"{}\"", known.join(" "))), "{object}: {found}");
        }
    }

    #[test]
    fn the_global_names_are_those_of_the_engine() {
        let script = "function process(rec) { \
                      rec.Payload.After = { all: Object.getOwnPropertyNames(globalThis) }; return rec }";
        let record =
            r#"{"position":"cA==","operation":"create","metadata":{},"key":null,"payload":{"before":null,"after":{}}}"#;
        let found = Worker::new(script).json(record).unwrap();
        let list = found.split_once("\"all\":[").and_then(|(_, rest)| rest.split_once(']')).unwrap().0;
        let mut found: Vec<&str> = list.split(',').map(|name| name.trim_matches('"')).collect();
        let own = ["process", "arguments"];
        found.retain(|name| !own.contains(name));
        let mut known: Vec<&str> =
            OF_LANGUAGE.into_iter().chain(OF_SERVICE).filter(|name| !own.contains(name)).collect();
        found.sort_unstable();
        known.sort_unstable();
        assert_eq!(found, known);
    }
}
