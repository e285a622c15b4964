//! Accesses to whole data: as text, as an object, or in place of another kind of value.

use std::ops::ControlFlow::{self, Continue};

use boa_engine::ast::Spanned;
use boa_engine::ast::expression::access::{PropertyAccess, PropertyAccessField};
use boa_engine::ast::expression::literal::LiteralKind;
use boa_engine::ast::expression::operator::Assign;
use boa_engine::ast::expression::operator::assign::AssignOp;
use boa_engine::ast::expression::operator::binary::{BinaryOp, LogicalOp};
use boa_engine::ast::expression::{Call, Expression};

use super::{AmbiguousSource, Inside, Reader, RecordAct, flow};
use crate::properties::{OF_OBJECTS, OF_STRINGS};
use crate::spot::{ExpressionMeaning, RecordObject, step, unparenthesized};
use crate::visitor::Visitor;

/// Functions that convert their arguments to text.
const OF_TEXT: [&str; 13] = [
    "String",
    "Number",
    "BigInt",
    "parseInt",
    "parseFloat",
    "isNaN",
    "isFinite",
    "encodeURI",
    "encodeURIComponent",
    "decodeURI",
    "decodeURIComponent",
    "btoa",
    "atob",
];
/// Functions of objects that read the fields of their argument.
const OF_FIELDS: [(&str, &str); 4] =
    [("JSON", "stringify"), ("Object", "keys"), ("Object", "values"), ("Object", "entries")];

impl Reader<'_> {
    /// Returns `true` if the expression is a key or payload side, possibly with a fallback such as `rec.Key ?? {}`.
    pub(super) fn is_data(&self, expression: &Expression) -> bool {
        self.data(expression).is_some()
    }

    fn data(&self, expression: &Expression) -> Option<RecordObject> {
        match unparenthesized(expression) {
            Expression::Binary(binary)
                if matches!(binary.op(), BinaryOp::Logical(LogicalOp::Or | LogicalOp::Coalesce)) =>
            {
                self.data(binary.lhs())
            }
            other => self.spot(other).object().filter(|place| place.is_data()),
        }
    }

    /// Notes an access to whole data; returns `false` for other expressions.
    pub(super) fn take(&mut self, expression: &Expression, doing: RecordAct) -> bool {
        let Some(place) = self.data(expression) else { return false };
        self.act(place, "", doing, expression.span());
        true
    }

    /// Handles a call of a method of the record or its data, or of a function that converts them to text. Returns the
    /// arguments that are not analyzed yet, or `None` for any other call.
    pub(super) fn call_as_text<'ast>(
        &mut self,
        call: &'ast Call,
    ) -> ControlFlow<AmbiguousSource, Option<&'ast [Expression]>> {
        let args = call.args();
        let function = unparenthesized(call.function());
        let access = match function {
            Expression::Identifier(name) => {
                let of_text = self.text(name.sym()).is_some_and(|name| OF_TEXT.contains(&name));
                return Continue(match args {
                    [first, rest @ ..] if of_text && self.take(first, RecordAct::Text) => Some(rest),
                    _ => None,
                });
            }
            Expression::PropertyAccess(access @ PropertyAccess::Simple(_)) => access,
            _ => return Continue(None),
        };
        let PropertyAccess::Simple(simple) = access else { return Continue(None) };
        if let (Some(called), [first, rest @ ..]) = (self.called(call), args) {
            let doing = match called {
                (Some(object), name) if OF_FIELDS.contains(&(object, name)) => Some(RecordAct::Spread),
                (None, "test" | "exec") if matches!(unparenthesized(simple.target()), Expression::RegExpLiteral(_)) => {
                    Some(RecordAct::Text)
                }
                _ => None,
            };
            if let Some(doing) = doing
                && self.take(first, doing)
            {
                return Continue(Some(rest));
            }
        }
        let ExpressionMeaning::Field(place, Some(name)) = step(&self.spot(simple.target()), simple.field(), self)
        else {
            return Continue(None);
        };
        if place.child(&name).is_some() {
            return Continue(None);
        }
        let is_text = args.first().is_some_and(|first| match unparenthesized(first) {
            Expression::Literal(literal) => matches!(literal.kind(), LiteralKind::String(_)),
            other => matches!(other, Expression::TemplateLiteral(_)),
        });
        let doing = match name.as_str() {
            "toString" | "toLocaleString" if place.is_data() => {
                self.act(place, "", RecordAct::Text, call.function().span());
                return Continue(Some(args));
            }
            "includes" | "indexOf" | "lastIndexOf" if place.is_data() && is_text => RecordAct::Search,
            _ => RecordAct::Call,
        };
        Continue(flow(self.touch_access(access, doing))?.then_some(args))
    }

    /// Returns the name of the called function, and that of its object if it has one.
    fn called(&self, call: &Call) -> Option<(Option<&str>, &str)> {
        let Expression::PropertyAccess(PropertyAccess::Simple(access)) = unparenthesized(call.function()) else {
            return None;
        };
        let PropertyAccessField::Const(name) = access.field() else { return None };
        let object = match unparenthesized(access.target()) {
            Expression::Identifier(name) => self.text(name.sym()),
            _ => None,
        };
        Some((object, self.text(name.sym())?))
    }

    /// Handles an assignment to a part of the record; returns `true` if it is completely analyzed.
    pub(super) fn assign_as_text(
        &mut self,
        assign: &Assign,
        access: &PropertyAccess,
    ) -> ControlFlow<AmbiguousSource, bool> {
        let PropertyAccess::Simple(simple) = access else { return Continue(false) };
        let spot = step(&self.spot(simple.target()), simple.field(), self);
        let is_plain = assign.op() == AssignOp::Assign;
        if let Some(place) = spot.object().filter(|place| place.is_data()) {
            if assign.op() == AssignOp::Add {
                self.act(place, "", RecordAct::Text, access.span());
            }
            if let Some(what) = unfit(assign.rhs(), |name| self.text(name)).filter(|_| is_plain) {
                self.act(place, "", RecordAct::Unfit(what), access.span());
            }
        }
        match &spot {
            ExpressionMeaning::Field(RecordObject::Metadata, _) if is_plain => {
                let data = self.spot(assign.rhs()).object().filter(|place| place.is_data());
                if let Some(place) = data {
                    self.act(place, "", RecordAct::ToMetadata, assign.rhs().span());
                }
            }
            ExpressionMeaning::Field(RecordObject::Record, Some(name))
                if name == "Position" && is_plain && self.is_new(assign.rhs()) =>
            {
                self.act(RecordObject::Record, name, RecordAct::Unfit("another value"), access.span());
            }
            _ => {}
        }
        let inside = self.inside(access, Inside::Put);
        if inside {
            self.visit_property_access_field(simple.field())?;
        }
        Continue(inside)
    }

    /// Notes a field of a metadata text that no text has; returns `false` for other accesses.
    pub(super) fn inside(&mut self, access: &PropertyAccess, used: Inside) -> bool {
        let PropertyAccess::Simple(simple) = access else { return false };
        let ExpressionMeaning::Field(RecordObject::Metadata, Some(name)) = self.spot(simple.target()) else {
            return false;
        };
        let PropertyAccessField::Const(field) = simple.field() else { return false };
        let field = self.text(field.sym()).unwrap_or_default();
        let known = OF_STRINGS.contains(&field) || OF_OBJECTS.contains(&field);
        if known && used == Inside::Taken {
            return false;
        }
        self.act(RecordObject::Metadata, &name, RecordAct::Inside(field.to_owned(), used), access.span());
        true
    }

    /// Returns `true` if the script creates the value without using the record.
    fn is_new(&self, value: &Expression) -> bool {
        match unparenthesized(value) {
            Expression::Literal(literal) => !matches!(literal.kind(), LiteralKind::Null | LiteralKind::Undefined),
            Expression::Call(call) => {
                matches!(self.called(call), Some((Some("crypto" | "Date" | "JSON" | "Math"), _)))
            }
            Expression::TemplateLiteral(_) | Expression::ArrayLiteral(_) | Expression::ObjectLiteral(_) => true,
            _ => false,
        }
    }
}

/// Describes the value if it is of a kind that neither a key nor a payload side can hold.
fn unfit<'i>(value: &Expression, text: impl Fn(boa_engine::interner::Sym) -> Option<&'i str>) -> Option<&'static str> {
    match unparenthesized(value) {
        Expression::ArrayLiteral(_) => Some("an array"),
        Expression::ArrowFunction(_) | Expression::FunctionExpression(_) => Some("a function"),
        Expression::Literal(literal) => match literal.kind() {
            LiteralKind::Int(_) | LiteralKind::Num(_) | LiteralKind::BigInt(_) => Some("a number"),
            LiteralKind::Bool(_) => Some("a boolean"),
            _ => None,
        },
        Expression::New(new) => match unparenthesized(new.constructor()) {
            Expression::Identifier(name) => match text(name.sym())? {
                "Map" => Some("a Map"),
                "Set" => Some("a Set"),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}
