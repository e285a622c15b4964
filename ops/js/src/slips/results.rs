//! Values that `process` returns and that are not records.

use std::collections::HashMap;
use std::ops::ControlFlow::{self, Continue};

use boa_engine::ast::declaration::{Binding, Variable};
use boa_engine::ast::expression::access::PropertyAccess;
use boa_engine::ast::expression::literal::{LiteralKind, PropertyDefinition};
use boa_engine::ast::expression::operator::Assign;
use boa_engine::ast::expression::operator::assign::AssignTarget;
use boa_engine::ast::expression::operator::binary::{BinaryOp, LogicalOp};
use boa_engine::ast::expression::operator::unary::UnaryOp;
use boa_engine::ast::expression::{Call, Expression};
use boa_engine::ast::property::PropertyName;
use boa_engine::ast::statement::Return;
use boa_engine::ast::{Script, Spanned};
use boa_engine::interner::{Interner, Sym};

use super::{ScriptSlip, ScriptText, start};
use crate::inner::visit_inner_functions;
use crate::position::Position;
use crate::process::{Bindings, Process};
use crate::properties::RECORD;
use crate::spot::{ExpressionMeaning, NameScope, RecordObject, spot, unparenthesized};
use crate::visitor::{VisitWith, Visitor};

const KEEP_OR_DROP: &str = "return rec to keep the record and null to drop it: return CONDITION ? rec : null";
const RETURN_RECORD: &str = "change the record and return it: return rec";
/// Built-in methods that return a boolean.
pub(super) const TESTS: [&str; 8] =
    ["includes", "startsWith", "endsWith", "test", "some", "every", "hasOwnProperty", "isArray"];

/// Finds the returns of `process` that fail a record.
pub(super) fn of(
    script: &Script,
    process: &Process<'_>,
    reached: &[Position],
    text: ScriptText<'_>,
) -> Vec<ScriptSlip> {
    let Some(record) = process.record() else { return Vec::new() };
    let mut bindings = Bindings::default();
    let _ = process.body.visit_with(&mut bindings);
    if bindings.is_bound(record) {
        return Vec::new();
    }
    let mut methods = Methods { text, names: Vec::new() };
    let _ = script.visit_with(&mut methods);
    let mut returns = Returns {
        text,
        record,
        reached,
        bindings,
        own: methods.names,
        values: HashMap::new(),
        positions: Vec::new(),
        slips: Vec::new(),
    };
    let mut positions = Positions { text, names: Vec::new() };
    let _ = process.body.visit_with(&mut positions);
    returns.positions = positions.names;
    let _ = process.body.visit_with(&mut returns);
    returns.slips
}

/// Description of a value, and a remedy.
struct WrongResult {
    what: String,
    hint: String,
}

struct Returns<'a> {
    text: ScriptText<'a>,
    record: Sym,
    reached: &'a [Position],
    bindings: Bindings,
    /// Methods that the script defines itself.
    own: Vec<&'a str>,
    /// Variables and their only values.
    values: HashMap<Sym, &'a Expression>,
    /// Variables whose field `Position` is used.
    positions: Vec<Sym>,
    slips: Vec<ScriptSlip>,
}

impl NameScope for Returns<'_> {
    fn interner(&self) -> &Interner {
        self.text.interner
    }

    fn place(&self, name: Sym) -> Option<RecordObject> {
        (name == self.record).then_some(RecordObject::Record)
    }
}

impl<'a> Returns<'a> {
    fn outside<N>(&mut self, _: &N) -> ControlFlow<()> {
        Continue(())
    }

    fn returned(&mut self, value: &Expression, certain: bool) {
        match unparenthesized(value) {
            Expression::Conditional(conditional) => {
                self.returned(conditional.if_true(), false);
                self.returned(conditional.if_false(), false);
            }
            Expression::Binary(binary) if binary.op() == BinaryOp::Logical(LogicalOp::And) => {
                self.returned(binary.rhs(), false);
                if self.is_truth(binary.lhs()) {
                    let hint = "write CONDITION ? rec : null".to_owned();
                    self.say(value, false, "process returns false if the condition is false", hint);
                }
            }
            _ => {
                if let Some(WrongResult { what, hint }) = self.wrong(value, true) {
                    self.say(value, certain, &format!("process returns {what}, which is not a record"), hint);
                }
            }
        }
    }

    fn say(&mut self, value: &Expression, fails: bool, message: &str, hint: String) {
        let (start, end) = (start(value), super::end(value));
        self.slips.push(ScriptSlip { fails, start, end, message: message.to_owned(), hint });
    }

    fn is_truth(&self, value: &Expression) -> bool {
        match unparenthesized(value) {
            Expression::Binary(binary) => matches!(binary.op(), BinaryOp::Relational(_)),
            Expression::Unary(unary) => unary.op() == UnaryOp::Not,
            Expression::Literal(literal) => matches!(literal.kind(), LiteralKind::Bool(_)),
            Expression::Call(call) => self
                .text
                .field(call.function())
                .is_some_and(|(_, name)| TESTS.contains(&name) && !self.own.contains(&name)),
            _ => false,
        }
    }

    /// Returns why a value is never a record. With `follow`, replaces variables by their values.
    fn wrong(&self, value: &Expression, follow: bool) -> Option<WrongResult> {
        let wrong = |what: &str, hint: &str| Some(WrongResult { what: what.to_owned(), hint: hint.to_owned() });
        if self.is_truth(value) {
            return wrong("true or false", KEEP_OR_DROP);
        }
        match spot(value, self) {
            ExpressionMeaning::Object(RecordObject::Record) => return None,
            ExpressionMeaning::Field(RecordObject::Record | RecordObject::Payload, Some(name))
                if RECORD.contains(&name.as_str()) || name == "After" || name == "Before" =>
            {
                return wrong("a part of the record", RETURN_RECORD);
            }
            _ => {}
        }
        match unparenthesized(value) {
            Expression::Literal(literal) => match literal.kind() {
                LiteralKind::String(_) => wrong("text", RETURN_RECORD),
                LiteralKind::Int(_) | LiteralKind::Num(_) | LiteralKind::BigInt(_) => wrong("a number", RETURN_RECORD),
                _ => None,
            },
            Expression::TemplateLiteral(_) => wrong("text", RETURN_RECORD),
            Expression::ArrowFunction(_)
            | Expression::FunctionExpression(_)
            | Expression::AsyncArrowFunction(_)
            | Expression::AsyncFunctionExpression(_)
            | Expression::ClassExpression(_) => wrong("a function", "call it and return its result"),
            Expression::ArrayLiteral(list) if follow => {
                let mut elements = list.as_ref().iter().flatten();
                let WrongResult { what, hint } =
                    elements.find_map(|element| self.nothing(element).or_else(|| self.wrong(element, true)))?;
                Some(WrongResult {
                    what: format!("a list with {what}"),
                    hint: hint.replace("return rec", "return [rec]"),
                })
            }
            Expression::ObjectLiteral(object) if follow => {
                let mut names = Vec::new();
                for property in object.properties() {
                    match property {
                        PropertyDefinition::Property(PropertyName::Literal(name), _) => {
                            names.push(self.text.name(name.sym()));
                        }
                        PropertyDefinition::IdentifierReference(name) => names.push(self.text.name(name.sym())),
                        _ => return None,
                    }
                }
                if names.is_empty() {
                    return wrong("an empty object", "to drop the record, write return null; to keep it, return rec");
                }
                let stranger = names.into_iter().find(|name| !RECORD.contains(name))?;
                wrong(
                    &format!("an object with a field {stranger:?}"),
                    "put fields into the record and return it: rec.Payload.After = { … }; return rec",
                )
            }
            Expression::Call(call) => match self.called(call)? {
                (Some("JSON"), "parse") => {
                    let [Expression::Call(inner), ..] = call.args() else { return None };
                    let [copied, ..] = inner.args() else { return None };
                    let is_copy = self.called(inner) == Some((Some("JSON"), "stringify"))
                        && matches!(spot(copied, self), ExpressionMeaning::Object(RecordObject::Record));
                    is_copy.then(|| WrongResult {
                        what: "a copy made with JSON, whose Position no longer contains bytes".to_owned(),
                        hint: "change rec itself, or copy its data: rec.Payload.After = \
                               JSON.parse(JSON.stringify(rec.Payload.After)); return rec"
                            .to_owned(),
                    })
                }
                (Some("JSON"), "stringify") | (None, "String") => wrong("text", RETURN_RECORD),
                (None, "Boolean") => wrong("true or false", KEEP_OR_DROP),
                (None, "Number") => wrong("a number", RETURN_RECORD),
                _ => None,
            },
            Expression::Identifier(name) if follow && !self.positions.contains(&name.sym()) => {
                self.values.get(&name.sym()).and_then(|value| self.wrong(value, false))
            }
            _ => None,
        }
    }

    /// Returns why an element of a list is never a record, if it is null or undefined.
    fn nothing(&self, element: &Expression) -> Option<WrongResult> {
        let what = match unparenthesized(element) {
            Expression::Literal(literal) => match literal.kind() {
                LiteralKind::Null => "null",
                LiteralKind::Undefined => "undefined",
                _ => return None,
            },
            other => self.text.identifier(other).filter(|name| *name == "undefined")?,
        };
        let hint = "put only records into the list; to drop the record, write return null";
        Some(WrongResult { what: what.to_owned(), hint: hint.to_owned() })
    }

    /// Returns the name of the called function, and that of its object if it has one.
    fn called(&self, call: &Call) -> Option<(Option<&'a str>, &'a str)> {
        match self.text.field(call.function()) {
            Some((object, name)) => Some((Some(self.text.identifier(object)?), name)),
            None => Some((None, self.text.identifier(call.function())?)),
        }
    }
}

impl<'ast: 'a, 'a> Visitor<'ast> for Returns<'a> {
    type BreakTy = ();

    visit_inner_functions!(ControlFlow<()>, outside);

    fn visit_variable(&mut self, variable: &'ast Variable) -> ControlFlow<()> {
        if let (Binding::Identifier(name), Some(value)) = (variable.binding(), variable.init())
            && self.bindings.is_constant(name.sym())
        {
            self.values.insert(name.sym(), value);
        }
        variable.visit_with(self)
    }

    fn visit_return(&mut self, returned: &'ast Return) -> ControlFlow<()> {
        if let Some(target) = returned.target() {
            let certain = self.reached.contains(&target.span().start().into());
            self.returned(target, certain);
        }
        Continue(())
    }
}

/// Collects variables whose field `Position` is named.
struct Positions<'a> {
    text: ScriptText<'a>,
    names: Vec<Sym>,
}

impl<'ast> Visitor<'ast> for Positions<'_> {
    type BreakTy = ();

    fn visit_property_access(&mut self, access: &'ast PropertyAccess) -> ControlFlow<()> {
        if let Some((target, "Position")) = self.text.member(access)
            && let Expression::Identifier(name) = unparenthesized(target)
        {
            self.names.push(name.sym());
        }
        access.visit_with(self)
    }
}

/// Collects the methods that a script defines itself.
pub(super) struct Methods<'a> {
    pub(super) text: ScriptText<'a>,
    pub(super) names: Vec<&'a str>,
}

impl<'ast> Visitor<'ast> for Methods<'_> {
    type BreakTy = ();

    fn visit_property_name(&mut self, name: &'ast PropertyName) -> ControlFlow<()> {
        if let PropertyName::Literal(name) = name {
            self.names.push(self.text.name(name.sym()));
        }
        name.visit_with(self)
    }

    fn visit_property_definition(&mut self, property: &'ast PropertyDefinition) -> ControlFlow<()> {
        if let PropertyDefinition::IdentifierReference(name) = property {
            self.names.push(self.text.name(name.sym()));
        }
        property.visit_with(self)
    }

    fn visit_assign(&mut self, assign: &'ast Assign) -> ControlFlow<()> {
        if let AssignTarget::Access(access) = assign.lhs() {
            self.names.extend(self.text.member(access).map(|(_, name)| name));
        }
        assign.visit_with(self)
    }
}
