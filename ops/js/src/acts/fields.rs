//! Accesses of a script to the values of fields and metadata entries.

use boa_engine::ast::expression::Expression;
use boa_engine::ast::expression::access::{PropertyAccess, PropertyAccessField};
use boa_engine::ast::expression::literal::LiteralKind;
use boa_engine::ast::expression::operator::Binary;
use boa_engine::ast::expression::operator::binary::{ArithmeticOp, BinaryOp, RelationalOp};
use boa_engine::ast::{Span, Spanned};
use boa_engine::interner::Sym;

use super::{Act, Inside, Reader, RecordAct};
use crate::properties::{OF_ARRAYS, OF_NUMBERS, OF_OBJECTS, OF_STRINGS, OLD_OF_STRINGS};
use crate::spot::{ExpressionMeaning, RecordObject, step, unparenthesized};

impl Reader<'_> {
    /// Returns the field or metadata entry that an expression reads, if it still is that of the input record.
    fn field(&self, expression: &Expression) -> Option<(RecordObject, String)> {
        let expression = unparenthesized(expression);
        if let Expression::Identifier(name) = expression
            && let Some((_, place, field)) = self.values.iter().find(|(known, ..)| *known == name.sym())
        {
            return Some((*place, field.clone()));
        }
        let ExpressionMeaning::Field(place, Some(name)) = self.spot(expression) else { return None };
        self.is_as_it_came(place, &name).then_some((place, name))
    }

    fn is_as_it_came(&self, place: RecordObject, name: &str) -> bool {
        let holds_values = place.is_data() || place == RecordObject::Metadata;
        holds_values && !self.replaced[place as usize] && !self.reads.may_be_made(place, name)
    }

    /// Records that a variable holds the value of a field from here on.
    pub(super) fn keep_value(&mut self, variable: Sym, place: RecordObject, name: &str) {
        if self.bindings.is_constant(variable) && self.is_as_it_came(place, name) {
            self.values.push((variable, place, name.to_owned()));
        }
    }

    /// Like `keep_value`, for `const name = value`.
    pub(super) fn keep_value_of(&mut self, variable: Sym, value: &Expression) {
        if let Some((place, name)) = self.field(value) {
            self.keep_value(variable, place, &name);
        }
    }

    fn of_value(&mut self, (place, name): (RecordObject, String), doing: RecordAct, span: Span) {
        let (start, end) = (span.start().into(), span.end().into());
        self.acts.push(Act { place, name, doing, certain: self.certain, start, end });
    }

    /// Notes that the value of a field is used as text.
    pub(super) fn printed(&mut self, expression: &Expression) {
        if let Some(field) = self.field(expression).filter(|(place, _)| place.is_data()) {
            self.of_value(field, RecordAct::Text, expression.span());
        }
    }

    /// Notes that data, or a field of it, is used as a property name.
    pub(super) fn named(&mut self, expression: &Expression) {
        if let Some(place) = self.spot(expression).object().filter(|place| place.is_data()) {
            self.act(place, "", RecordAct::Name, expression.span());
        } else if let Some(field) = self.field(expression).filter(|(place, _)| place.is_data()) {
            self.of_value(field, RecordAct::Name, expression.span());
        }
    }

    /// Notes the access to a field of a field's value.
    pub(super) fn inside_value(&mut self, access: &PropertyAccess) {
        let is_test = std::mem::take(&mut self.testing_value);
        let PropertyAccess::Simple(simple) = access else { return };
        let inner = match simple.field() {
            PropertyAccessField::Const(inner) => inner.sym(),
            PropertyAccessField::Expr(inner) => match unparenthesized(inner) {
                Expression::Literal(literal) => match literal.kind() {
                    // Characters of a text and elements of a list have numeric indices.
                    LiteralKind::String(inner) => *inner,
                    _ => return,
                },
                _ => return,
            },
        };
        let is_name = |name: &&str| !is_test && !name.starts_with(|c: char| c.is_ascii_digit() || c == '-');
        let Some(inner) = self.text(inner).filter(is_name) else { return };
        if let Some(field) = self.field(simple.target()).filter(|(place, _)| place.is_data()) {
            self.of_value(field, RecordAct::Inside(inner.to_owned(), Inside::Taken), access.span());
        }
    }

    /// Notes the call of a method of a field's value that no text, number, list or object has.
    pub(super) fn method_of_value(&mut self, function: &Expression) {
        let known = [&OF_ARRAYS[..], &OF_STRINGS, &OLD_OF_STRINGS, &OF_NUMBERS, &OF_OBJECTS];
        if let Expression::PropertyAccess(PropertyAccess::Simple(access)) = unparenthesized(function)
            && let PropertyAccessField::Const(method) = access.field()
            && let Some(method) = self.text(method.sym())
            && !known.iter().any(|known| known.contains(&method))
            && let Some(field) = self.field(access.target()).filter(|(place, _)| place.is_data())
        {
            self.of_value(field, RecordAct::Method(method.to_owned()), function.span());
        }
    }

    /// Notes that a number is appended to a metadata text.
    pub(super) fn appended(&mut self, to: &Expression, number: &Expression, span: Span) {
        if let Some(field) = self.field(to).filter(|(place, _)| *place == RecordObject::Metadata)
            && let Some(number) = number_of(number)
        {
            self.of_value(field, RecordAct::Append(number), span);
        }
    }

    /// Like `appended`, for `entry += number`.
    pub(super) fn appended_to(&mut self, access: &PropertyAccess, number: &Expression) {
        let PropertyAccess::Simple(simple) = access else { return };
        if let ExpressionMeaning::Field(RecordObject::Metadata, Some(name)) =
            step(&self.spot(simple.target()), simple.field(), self)
            && self.is_as_it_came(RecordObject::Metadata, &name)
            && let Some(number) = number_of(number)
        {
            self.of_value((RecordObject::Metadata, name), RecordAct::Append(number), access.span());
        }
    }

    /// Notes operators applied to the values of fields.
    pub(super) fn operate(&mut self, binary: &Binary) {
        let (lhs, rhs) = (binary.lhs(), binary.rhs());
        match binary.op() {
            BinaryOp::Arithmetic(ArithmeticOp::Add) => {
                if is_text(lhs) {
                    self.printed(rhs);
                }
                if is_text(rhs) {
                    self.printed(lhs);
                }
                self.appended(lhs, rhs, binary.span());
                self.appended(rhs, lhs, binary.span());
            }
            BinaryOp::Relational(op @ (RelationalOp::StrictEqual | RelationalOp::StrictNotEqual)) => {
                for (value, with) in [(lhs, rhs), (rhs, lhs)] {
                    if let Some(field) = self.field(value).filter(|(place, _)| *place == RecordObject::Metadata)
                        && let Some(number) = number_of(with)
                    {
                        let doing = RecordAct::CompareNumber(number, op == RelationalOp::StrictEqual);
                        self.of_value(field, doing, binary.span());
                    }
                }
            }
            BinaryOp::Relational(RelationalOp::In) => {
                self.named(lhs);
                let is_word = match unparenthesized(lhs) {
                    Expression::Literal(literal) => match literal.kind() {
                        LiteralKind::String(text) => {
                            self.text(*text).is_some_and(|text| text.parse::<f64>().is_err() && text != "length")
                        }
                        _ => false,
                    },
                    _ => false,
                };
                if let Some(field) = self.field(rhs).filter(|(place, _)| is_word && place.is_data()) {
                    self.of_value(field, RecordAct::Has, binary.span());
                }
            }
            _ => {}
        }
    }
}

/// Returns `true` if the expression is a text for every record.
fn is_text(expression: &Expression) -> bool {
    match unparenthesized(expression) {
        Expression::Literal(literal) => matches!(literal.kind(), LiteralKind::String(_)),
        Expression::TemplateLiteral(_) => true,
        Expression::Binary(binary) => {
            binary.op() == BinaryOp::Arithmetic(ArithmeticOp::Add) && (is_text(binary.lhs()) || is_text(binary.rhs()))
        }
        _ => false,
    }
}

fn number_of(expression: &Expression) -> Option<String> {
    match unparenthesized(expression) {
        Expression::Literal(literal) => match literal.kind() {
            LiteralKind::Int(number) => Some(number.to_string()),
            LiteralKind::Num(number) => Some(number.to_string()),
            _ => None,
        },
        _ => None,
    }
}
