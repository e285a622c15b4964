//! Lookups of objects instead of their content: as property names, and in sets and maps.

use std::ops::ControlFlow::{self, Continue};

use boa_engine::ast::Script;
use boa_engine::ast::declaration::{Binding, Variable};
use boa_engine::ast::expression::access::PropertyAccessField;
use boa_engine::ast::expression::literal::{PropertyDefinition, TemplateElement};
use boa_engine::ast::expression::operator::Binary;
use boa_engine::ast::expression::operator::binary::{ArithmeticOp, BinaryOp, RelationalOp};
use boa_engine::ast::expression::{Call, Expression, literal::LiteralKind};
use boa_engine::ast::property::PropertyName;
use boa_engine::interner::{Interner, Sym};

use super::scopes::{Scope, Scoped, Scopes, visit_scopes};
use super::{ScriptSlip, ScriptText, end, start};
use crate::process::{Bindings, Process};
use crate::spot::{NameScope, RecordObject, spot, unparenthesized};
use crate::visitor::{VisitWith, Visitor};

/// Finds lookups that find nothing, or everything.
pub(super) fn of(script: &Script, process: Option<&Process<'_>>, text: ScriptText<'_>) -> Vec<ScriptSlip> {
    let mut bindings = Bindings::default();
    let _ = script.visit_with(&mut bindings);
    // An object with its own `toString` is a valid name.
    let has_texts = text.text.contains("toString") || text.text.contains("toPrimitive") || text.text.contains("class ");
    let record = process.and_then(Process::record).filter(|record| bindings.is_constant(*record));
    let mut fresh = Fresh {
        text,
        bindings,
        record,
        has_texts,
        scopes: Scopes::default(),
        known: Vec::new(),
        collections: Vec::new(),
        added: Vec::new(),
        slips: Vec::new(),
    };
    // A collection may be declared below the function that uses it.
    let mut collections = Collections { text, bindings: &fresh.bindings, found: Vec::new() };
    let _ = script.visit_with(&mut collections);
    fresh.collections = collections.found;
    let _ = script.visit_with(&mut fresh);
    fresh.slips
}

/// A variable that holds an object or a list.
struct Known {
    name: Sym,
    is_list: bool,
    declared: Vec<Scope>,
    /// True if its use as text was reported already.
    said: bool,
}

struct Fresh<'a> {
    text: ScriptText<'a>,
    bindings: Bindings,
    record: Option<Sym>,
    has_texts: bool,
    scopes: Scopes,
    known: Vec<Known>,
    /// Variables that hold a `Set` or a `Map`.
    collections: Vec<(Sym, &'static str)>,
    /// Variables added to a collection so far, with the collection.
    added: Vec<(Sym, Sym)>,
    slips: Vec<ScriptSlip>,
}

impl NameScope for Fresh<'_> {
    fn interner(&self) -> &Interner {
        self.text.interner
    }

    fn place(&self, name: Sym) -> Option<RecordObject> {
        (Some(name) == self.record).then_some(RecordObject::Record)
    }
}

impl Fresh<'_> {
    fn say(&mut self, at: &Expression, message: String, hint: String) {
        self.slips.push(ScriptSlip { fails: false, start: start(at), end: end(at), message, hint });
    }

    /// Reports an object that is used as text or as a property name: its text is that of any object.
    fn texted(&mut self, value: &Expression, what: &str) {
        if self.has_texts {
            return;
        }
        match unparenthesized(value) {
            Expression::ObjectLiteral(_) => {}
            Expression::Identifier(name) => {
                let known = self.known.iter_mut().find(|known| known.name == name.sym() && !known.is_list);
                if known.is_none_or(|known| std::mem::replace(&mut known.said, true)) {
                    return;
                }
            }
            _ => return,
        }
        let shown = self.text.identifier(value).unwrap_or("…");
        let message = format!("this is {what} \"[object Object]\", regardless of the content of the object");
        self.say(value, message, format!("convert its content to text: JSON.stringify({shown})"));
    }

    /// Returns the variable that holds the value (if any), if the value is an object that is new each time.
    fn is_new(&self, value: &Expression, at: &[Scope]) -> Option<Option<Sym>> {
        match unparenthesized(value) {
            Expression::ObjectLiteral(_) | Expression::ArrayLiteral(_) => Some(None),
            Expression::Identifier(name) => {
                let known = self.known.iter().find(|known| known.name == name.sym())?;
                (known.declared == at).then_some(Some(known.name))
            }
            other => spot(other, self).object().filter(|place| place.is_data()).map(|_| None),
        }
    }

    fn looked_up(&mut self, call: &Call) {
        let Some((target, method)) = self.text.field(call.function()) else { return };
        let (Expression::Identifier(target), [value, ..]) = (unparenthesized(target), call.args()) else { return };
        let target = target.sym();
        let Some((_, kind)) = self.collections.iter().find(|(name, _)| *name == target) else { return };
        let here = self.scopes.here();
        if let ("add" | "set", Expression::Identifier(name)) = (method, unparenthesized(value)) {
            self.added.push((target, name.sym()));
        }
        let always = match method {
            "has" => "false",
            "get" => "undefined",
            _ => return,
        };
        let Some(variable) = self.is_new(value, &here).filter(|_| !here.is_empty()) else { return };
        if variable.is_some_and(|variable| self.added.contains(&(target, variable))) {
            return;
        }
        let shown = self.text.slice(start(value), end(value)).filter(|_| variable.is_some()).unwrap_or("…");
        let message =
            format!("this is always {always}: a {kind} finds only the same object, and this object is new each time");
        let hint = format!("store texts in it, and search for texts: JSON.stringify({shown})");
        self.say(value, message, hint);
    }
}

impl<'ast> Scoped<'ast> for Fresh<'_> {
    fn scopes(&mut self) -> &mut Scopes {
        &mut self.scopes
    }
}

impl<'ast> Visitor<'ast> for Fresh<'_> {
    type BreakTy = ();

    visit_scopes!();

    fn visit_variable(&mut self, variable: &'ast Variable) -> ControlFlow<()> {
        if let (Binding::Identifier(name), Some(value)) = (variable.binding(), variable.init())
            && self.bindings.is_constant(name.sym())
        {
            let is_list = match unparenthesized(value) {
                Expression::ObjectLiteral(_) => Some(false),
                Expression::ArrayLiteral(_) => Some(true),
                _ => None,
            };
            if let Some(is_list) = is_list {
                let declared = self.scopes.here();
                self.known.push(Known { name: name.sym(), is_list, declared, said: false });
            }
        }
        variable.visit_with(self)
    }

    fn visit_property_access_field(&mut self, field: &'ast PropertyAccessField) -> ControlFlow<()> {
        if let PropertyAccessField::Expr(name) = field {
            self.texted(name, "the name");
        }
        field.visit_with(self)
    }

    fn visit_property_definition(&mut self, property: &'ast PropertyDefinition) -> ControlFlow<()> {
        if let PropertyDefinition::Property(PropertyName::Computed(name), _) = property {
            self.texted(name, "the name");
        }
        property.visit_with(self)
    }

    fn visit_template_element(&mut self, element: &'ast TemplateElement) -> ControlFlow<()> {
        if let TemplateElement::Expr(part) = element {
            self.texted(part, "the text");
        }
        element.visit_with(self)
    }

    fn visit_binary(&mut self, binary: &'ast Binary) -> ControlFlow<()> {
        let is_text = |side: &Expression| match unparenthesized(side) {
            Expression::Literal(literal) => matches!(literal.kind(), LiteralKind::String(_)),
            Expression::TemplateLiteral(_) => true,
            _ => false,
        };
        match binary.op() {
            BinaryOp::Relational(RelationalOp::In) => self.texted(binary.lhs(), "the name"),
            BinaryOp::Arithmetic(ArithmeticOp::Add) if is_text(binary.lhs()) => self.texted(binary.rhs(), "the text"),
            BinaryOp::Arithmetic(ArithmeticOp::Add) if is_text(binary.rhs()) => self.texted(binary.lhs(), "the text"),
            _ => {}
        }
        binary.visit_with(self)
    }

    fn visit_call(&mut self, call: &'ast Call) -> ControlFlow<()> {
        if let (Some((_, "hasOwnProperty")), [name]) = (self.text.field(call.function()), call.args()) {
            self.texted(name, "the name");
        }
        self.looked_up(call);
        call.visit_with(self)
    }
}

/// Finds variables that hold a set or a map.
struct Collections<'a> {
    text: ScriptText<'a>,
    bindings: &'a Bindings,
    found: Vec<(Sym, &'static str)>,
}

impl<'ast> Visitor<'ast> for Collections<'_> {
    type BreakTy = ();

    fn visit_variable(&mut self, variable: &'ast Variable) -> ControlFlow<()> {
        if let (Binding::Identifier(name), Some(Expression::New(new))) =
            (variable.binding(), variable.init().map(unparenthesized))
            && self.bindings.is_constant(name.sym())
        {
            let kind = match self.text.identifier(new.constructor()) {
                Some("Set") => Some("Set"),
                Some("Map") => Some("Map"),
                Some("WeakSet") => Some("WeakSet"),
                Some("WeakMap") => Some("WeakMap"),
                _ => None,
            };
            self.found.extend(kind.map(|kind| (name.sym(), kind)));
        }
        variable.visit_with(self)
    }
}
