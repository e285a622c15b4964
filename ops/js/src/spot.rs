//! Resolves paths in a script to the objects of a record.

use boa_engine::ast::expression::access::{PropertyAccess, PropertyAccessField};
use boa_engine::ast::expression::literal::LiteralKind;
use boa_engine::ast::expression::{Expression, OptionalOperationKind};
use boa_engine::interner::{Interner, Sym};

/// An object of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordObject {
    Record,
    Payload,
    Metadata,
    Key,
    Before,
    After,
}

impl RecordObject {
    pub(crate) const COUNT: usize = 6;
    pub(crate) const ALL: [RecordObject; RecordObject::COUNT] = [
        RecordObject::Record,
        RecordObject::Payload,
        RecordObject::Metadata,
        RecordObject::Key,
        RecordObject::Before,
        RecordObject::After,
    ];

    /// Returns `true` for the key and the payload sides: data, which may be raw, structured or absent.
    pub(crate) fn is_data(self) -> bool {
        matches!(self, RecordObject::Key | RecordObject::Before | RecordObject::After)
    }

    /// Returns the object in a field, if the field holds one.
    pub(crate) fn child(self, field: &str) -> Option<RecordObject> {
        match (self, field) {
            (RecordObject::Record, "Payload") => Some(RecordObject::Payload),
            (RecordObject::Record, "Metadata") => Some(RecordObject::Metadata),
            (RecordObject::Record, "Key") => Some(RecordObject::Key),
            (RecordObject::Payload, "Before") => Some(RecordObject::Before),
            (RecordObject::Payload, "After") => Some(RecordObject::After),
            _ => None,
        }
    }
}

/// Returns the expression without the parentheses around it.
pub(crate) fn unparenthesized(expression: &Expression) -> &Expression {
    match expression {
        Expression::Parenthesized(inner) => unparenthesized(inner.expression()),
        other => other,
    }
}

/// Meaning of an expression.
pub(crate) enum ExpressionMeaning {
    /// An object, under one of its names.
    Object(RecordObject),
    /// A field of the object; `None` for a computed name.
    Field(RecordObject, Option<String>),
    Other,
}

impl ExpressionMeaning {
    /// Returns the object, if it is one.
    pub(crate) fn object(&self) -> Option<RecordObject> {
        match self {
            ExpressionMeaning::Object(place) => Some(*place),
            ExpressionMeaning::Field(place, Some(name)) => place.child(name),
            _ => None,
        }
    }
}

/// Names known in a function.
pub(crate) trait NameScope {
    /// Returns the interner of the names.
    fn interner(&self) -> &Interner;

    /// Returns the object that a variable holds.
    fn place(&self, name: Sym) -> Option<RecordObject>;

    /// Called if an expression leads to this object or through it.
    fn came_across(&self, _: RecordObject) {}
}

/// Resolves an expression, including variables that hold an object.
pub(crate) fn spot(expression: &Expression, names: &dyn NameScope) -> ExpressionMeaning {
    match expression {
        Expression::Parenthesized(inner) => spot(inner.expression(), names),
        Expression::Identifier(name) => {
            names.place(name.sym()).map_or(ExpressionMeaning::Other, ExpressionMeaning::Object)
        }
        Expression::PropertyAccess(PropertyAccess::Simple(access)) => {
            step(&spot(access.target(), names), access.field(), names)
        }
        Expression::Optional(optional) => {
            let first = spot(optional.target(), names);
            optional.chain().iter().fold(first, |at, operation| match operation.kind() {
                OptionalOperationKind::SimplePropertyAccess { field } => step(&at, field, names),
                _ => ExpressionMeaning::Other,
            })
        }
        _ => ExpressionMeaning::Other,
    }
}

/// Resolves a field of `base`.
pub(crate) fn step(base: &ExpressionMeaning, field: &PropertyAccessField, names: &dyn NameScope) -> ExpressionMeaning {
    let Some(place) = base.object() else { return ExpressionMeaning::Other };
    let name = match field {
        PropertyAccessField::Const(name) => Some(name.sym()),
        PropertyAccessField::Expr(expression) => match &**expression {
            Expression::Literal(literal) => match literal.kind() {
                LiteralKind::String(name) => Some(*name),
                _ => None,
            },
            _ => None,
        },
    };
    let name = name.and_then(|name| names.interner().resolve(name)).and_then(|name| name.utf8());
    if let Some(child) = name.and_then(|name| place.child(name)) {
        names.came_across(child);
    }
    ExpressionMeaning::Field(place, name.map(str::to_owned))
}
