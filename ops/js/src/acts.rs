//! Static analysis of the accesses of `process` to the parts of a record, as far as the source text is unambiguous.
//!
//! Each act is an access by name: `rec.Payload.After.price`, also through a variable that always holds the same object
//! of the record. An act is certain if every call reaches it. Accesses to data that the script replaces, or may have
//! replaced, are left out, because that is not the input data.

use std::ops::ControlFlow::{self, Break, Continue};

use boa_engine::ast::expression::Expression;
use boa_engine::ast::expression::access::PropertyAccess;
use boa_engine::ast::expression::literal::LiteralKind;
use boa_engine::ast::expression::operator::binary::{BinaryOp, LogicalOp};
use boa_engine::ast::expression::operator::unary::UnaryOp;
use boa_engine::ast::pattern::{ObjectPattern, ObjectPatternElement};
use boa_engine::ast::property::PropertyName;
use boa_engine::ast::{Span, Spanned};
use boa_engine::interner::{Interner, Sym};

use crate::ending;
use crate::position::Position;
use crate::process::{Bindings, Process};
use crate::spot::{ExpressionMeaning, NameScope, RecordObject, spot, step, unparenthesized};
use crate::visitor::{VisitWith, Visitor};

mod fields;
mod reads;
mod visit;
mod whole;

pub(crate) use reads::FieldRead;
use reads::Reads;

/// An access of a script to a field of an object of the record.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Act {
    /// The accessed object.
    pub(crate) place: RecordObject,
    /// Name of the field; empty for the object itself.
    pub(crate) name: String,
    pub(crate) doing: RecordAct,
    /// True if every call reaches the access.
    pub(crate) certain: bool,
    /// Place in the source text.
    pub(crate) start: Position,
    pub(crate) end: Position,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RecordAct {
    /// Reads the value.
    Read,
    /// Reads a field of the value, which fails if there is no value.
    Below,
    /// Assigns a value.
    Write,
    /// Assigns this text.
    Assign(String),
    /// Compares the value with this text.
    Compare(String),
    /// Parses the value as JSON.
    Parse,
    /// Calls the method of this name.
    Call,
    /// Searches the value for a text with the method of this name.
    Search,
    /// Uses the whole object, or the value of a field, as text.
    Text,
    /// Uses it as a property name.
    Name,
    /// Searches its property names for a word (`in`).
    Has,
    /// Appends this number to a text.
    Append(String),
    /// Compares a text with this number; true for `===`, false for `!==`.
    CompareNumber(String, bool),
    /// Spreads the object as a map of fields.
    Spread,
    /// Iterates over the whole object.
    Iterate,
    /// Assigns the whole object to a metadata entry.
    ToMetadata,
    /// Reads or assigns the field of this name of its value.
    Inside(String, Inside),
    /// Calls a method of the field's value that no text, number, list or object has.
    Method(String),
    /// Assigns a value of an unsupported kind, which the text names.
    Unfit(&'static str),
}

/// Kind of use of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Inside {
    Taken,
    Put,
}

/// Results of the analysis of a function.
#[derive(Debug, Default)]
pub(crate) struct Read {
    /// Accesses, in source order.
    pub(crate) acts: Vec<Act>,
    /// Fields that the function reads and does not create.
    pub(crate) fields: Vec<FieldRead>,
    /// Positions of names and returned values that every call reaches.
    pub(crate) reached: Vec<Position>,
}

impl Process<'_> {
    /// Returns the accesses to the record, in source order. Returns nothing if the text is ambiguous.
    pub(crate) fn read(&self, interner: &Interner) -> Read {
        let mut bindings = Bindings::default();
        let _ = self.body.visit_with(&mut bindings);
        let Some(record) = self.record().filter(|record| !bindings.is_bound(*record)) else { return Read::default() };
        let mut reader = Reader {
            interner,
            bindings,
            names: vec![(record, RecordObject::Record)],
            values: Vec::new(),
            testing_value: false,
            acts: Vec::new(),
            reads: Reads::default(),
            reached: Vec::new(),
            written: [0; RecordObject::COUNT],
            certain: true,
            replaced: [false; RecordObject::COUNT],
            examined: [false; RecordObject::COUNT],
        };
        if reader.visit_function_body(self.body).is_break() {
            return Read::default();
        }
        let Reader { acts, reads, reached, written, replaced, examined, .. } = reader;
        // A branch may handle data that the script created, or data of the other kind.
        let doubtful = |act: &Act| match act.doing {
            // The script may assign a valid value before the call ends.
            RecordAct::Unfit(_) => written[act.place as usize] > 1,
            _ => !act.certain && (replaced[act.place as usize] || examined[act.place as usize]),
        };
        Read { acts: acts.into_iter().filter(|act| !doubtful(act)).collect(), fields: reads.finish(), reached }
    }
}

/// The source text is ambiguous.
struct AmbiguousSource;

type Flow = ControlFlow<AmbiguousSource>;

struct Reader<'i> {
    interner: &'i Interner,
    bindings: Bindings,
    /// Variables that hold an object of the record, the parameter first.
    names: Vec<(Sym, RecordObject)>,
    /// Variables that hold the value of a field of the input record.
    values: Vec<(Sym, RecordObject, String)>,
    /// True if the next field of a value is only tested for existence.
    testing_value: bool,
    acts: Vec<Act>,
    reads: Reads,
    reached: Vec<Position>,
    certain: bool,
    /// Number of assignments to each object.
    written: [usize; RecordObject::COUNT],
    /// Objects that the script has replaced.
    replaced: [bool; RecordObject::COUNT],
    /// Objects used as a whole, so that the script may find out their kind.
    examined: [bool; RecordObject::COUNT],
}

impl NameScope for Reader<'_> {
    fn interner(&self) -> &Interner {
        self.interner
    }

    fn place(&self, name: Sym) -> Option<RecordObject> {
        self.names.iter().find(|(known, _)| *known == name).map(|(_, place)| *place)
    }
}

impl<'i> Reader<'i> {
    fn text(&self, name: Sym) -> Option<&'i str> {
        self.interner.resolve(name)?.utf8()
    }

    fn spot(&self, expression: &Expression) -> ExpressionMeaning {
        spot(expression, self)
    }

    fn act(&mut self, place: RecordObject, name: &str, doing: RecordAct, span: Span) {
        match doing {
            RecordAct::Write | RecordAct::Assign(_) => self.reads.make(place, name),
            RecordAct::Read | RecordAct::Below if !name.is_empty() => self.read_field(place, name, Some(&doing), span),
            _ => {}
        }
        if !self.replaced[place as usize] {
            let (start, end) = (span.start().into(), span.end().into());
            self.acts.push(Act { place, name: name.to_owned(), doing, certain: self.certain, start, end });
        }
    }

    /// Notes that the object is passed on to code that may do anything with it.
    fn examine(&mut self, place: RecordObject) {
        self.examined[place as usize] = true;
        self.reads.give(place);
        if matches!(place, RecordObject::Record | RecordObject::Payload) {
            // That code may replace the parts of the object.
            self.replace(place);
        }
    }

    /// Notes that another object may have taken its place.
    fn replace(&mut self, place: RecordObject) {
        self.written[place as usize] += 1;
        let parts: &[RecordObject] = match place {
            RecordObject::Record => &RecordObject::ALL,
            RecordObject::Payload => &[RecordObject::Payload, RecordObject::Before, RecordObject::After],
            _ => std::slice::from_ref(&place),
        };
        parts.iter().for_each(|part| self.replaced[*part as usize] = true);
    }

    /// Analyzes a path into the record; returns `false` if the expression is not one.
    fn touch(&mut self, expression: &Expression, doing: RecordAct) -> Result<bool, AmbiguousSource> {
        match unparenthesized(expression) {
            Expression::Identifier(name) => match self.place(name.sym()) {
                Some(place) => {
                    if doing != RecordAct::Below {
                        self.examine(place);
                    }
                    Ok(true)
                }
                None => Ok(false),
            },
            Expression::PropertyAccess(access) => self.touch_access(access, doing),
            _ => Ok(false),
        }
    }

    fn touch_access(&mut self, access: &PropertyAccess, doing: RecordAct) -> Result<bool, AmbiguousSource> {
        let PropertyAccess::Simple(simple) = access else { return Ok(false) };
        let base = self.spot(simple.target());
        let ExpressionMeaning::Field(place, name) = step(&base, simple.field(), self) else { return Ok(false) };
        self.touch(simple.target(), RecordAct::Below)?;
        let Some(name) = name else {
            // A computed name may be any name.
            self.reads.give(place);
            if !matches!(place, RecordObject::Metadata) {
                self.examine(place);
            }
            return match self.visit_property_access_field(simple.field()) {
                Continue(()) => Ok(true),
                Break(doubt) => Err(doubt),
            };
        };
        match (place.child(&name), &doing) {
            (Some(_), RecordAct::Below) => {}
            (Some(child), RecordAct::Write | RecordAct::Assign(_)) => self.replace(child),
            (Some(child), _) => self.examine(child),
            (None, _) => self.act(place, &name, doing, access.span()),
        }
        Ok(true)
    }

    /// Analyzes an expression that is only tested for existence or for its kind.
    fn tested(&mut self, expression: &Expression) -> Flow {
        match self.spot(expression) {
            ExpressionMeaning::Object(_) => Continue(()),
            ExpressionMeaning::Field(place, name)
                if name.as_deref().is_some_and(|name| place.child(name).is_some()) =>
            {
                Continue(())
            }
            spot @ ExpressionMeaning::Field(place, _) => {
                self.test_field(&spot, expression.span());
                self.examined[place as usize] = true;
                Continue(())
            }
            ExpressionMeaning::Other => match unparenthesized(expression) {
                Expression::Unary(unary) if unary.op() == UnaryOp::Not => self.tested(unary.target()),
                other => self.testing_value(other, |reader| reader.visit_expression(other)),
            },
        }
    }

    /// Analyzes an expression that is only tested for existence, if it is a field of a value.
    fn testing_value(&mut self, expression: &Expression, read: impl FnOnce(&mut Self) -> Flow) -> Flow {
        self.testing_value = matches!(unparenthesized(expression), Expression::PropertyAccess(_));
        let flow = read(self);
        self.testing_value = false;
        flow
    }

    /// Analyzes a condition: objects may be tested in it, and values of fields matter.
    fn condition(&mut self, expression: &Expression) -> Flow {
        match unparenthesized(expression) {
            Expression::Unary(unary) if unary.op() == UnaryOp::Not => self.condition(unary.target()),
            Expression::Binary(binary) if matches!(binary.op(), BinaryOp::Logical(LogicalOp::And | LogicalOp::Or)) => {
                self.condition(binary.lhs())?;
                self.perhaps(|reader| reader.condition(binary.rhs()))
            }
            other if self.spot(other).object().is_some() => Continue(()),
            other => self.testing(other, |reader| reader.testing_value(other, |reader| reader.visit_expression(other))),
        }
    }

    /// Analyzes code that not every call reaches.
    fn perhaps(&mut self, read: impl FnOnce(&mut Self) -> Flow) -> Flow {
        let certain = std::mem::replace(&mut self.certain, false);
        let flow = read(self);
        self.certain = certain;
        flow
    }

    /// Like [`Self::perhaps`], for code that may end the call.
    fn perhaps_to_the_end(&mut self, part: &impl VisitWith, read: impl FnOnce(&mut Self) -> Flow) -> Flow {
        self.perhaps(read)?;
        self.certain &= !ending::may_leave(part);
        Continue(())
    }

    /// Notes a text that the operation or data is compared with.
    fn compared(&mut self, with: &Expression, text: &Expression) {
        let Some(literal) = self.literal(text) else { return };
        match self.spot(with) {
            ExpressionMeaning::Field(RecordObject::Record, Some(name)) if name == "Operation" => {
                self.act(RecordObject::Record, "Operation", RecordAct::Compare(literal), text.span());
            }
            spot => {
                if let Some(place) = spot.object().filter(|place| place.is_data()) {
                    self.act(place, "", RecordAct::Compare(literal), with.span());
                }
            }
        }
    }

    fn literal(&self, expression: &Expression) -> Option<String> {
        match unparenthesized(expression) {
            Expression::Literal(literal) => match literal.kind() {
                LiteralKind::String(text) => self.text(*text).map(str::to_owned),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the object whose text is used: `rec.Payload.After`, `rec.Payload.After.toString()`,
    /// `String(rec.Payload.After)`.
    fn as_text(&self, expression: &Expression) -> Option<RecordObject> {
        let side = |spot: ExpressionMeaning| spot.object().filter(|place| place.is_data());
        match unparenthesized(expression) {
            Expression::Call(call) => match (unparenthesized(call.function()), call.args()) {
                (Expression::Identifier(name), [only]) if self.text(name.sym()) == Some("String") => {
                    side(self.spot(only))
                }
                (Expression::PropertyAccess(PropertyAccess::Simple(access)), []) => {
                    match step(&self.spot(access.target()), access.field(), self) {
                        ExpressionMeaning::Field(place, Some(name)) if name == "toString" && place.is_data() => {
                            Some(place)
                        }
                        _ => None,
                    }
                }
                _ => None,
            },
            other => side(self.spot(other)),
        }
    }

    fn is_json_parse(&self, function: &Expression) -> bool {
        let Expression::PropertyAccess(PropertyAccess::Simple(access)) = unparenthesized(function) else {
            return false;
        };
        let Expression::Identifier(json) = unparenthesized(access.target()) else { return false };
        let field = match access.field() {
            boa_engine::ast::expression::access::PropertyAccessField::Const(name) => self.text(name.sym()),
            boa_engine::ast::expression::access::PropertyAccessField::Expr(_) => None,
        };
        self.text(json.sym()) == Some("JSON") && field == Some("parse")
    }

    /// Analyzes a pattern whose variables hold fields of an object.
    fn unpack(&mut self, pattern: &ObjectPattern, place: RecordObject) -> Flow {
        for element in pattern.bindings() {
            match element {
                ObjectPatternElement::SingleName { name: PropertyName::Literal(name), ident, default_init } => {
                    let text = self.text(name.sym()).unwrap_or_default();
                    match place.child(text) {
                        Some(child) => self.examine(child),
                        None if default_init.is_some() => {
                            self.read_field(place, text, None, name.span());
                            self.examined[place as usize] = true;
                        }
                        None => {
                            self.keep_value(ident.sym(), place, text);
                            self.act(place, text, RecordAct::Read, name.span());
                        }
                    }
                    if let Some(default) = default_init {
                        self.perhaps(|reader| reader.visit_expression(default))?;
                    }
                }
                other => {
                    self.examine(place);
                    self.visit_object_pattern_element(other)?;
                }
            }
        }
        Continue(())
    }
}

/// Converts the result of an analysis to the control flow of a visitor.
fn flow(touched: Result<bool, AmbiguousSource>) -> ControlFlow<AmbiguousSource, bool> {
    match touched {
        Ok(known) => Continue(known),
        Err(doubt) => Break(doubt),
    }
}

#[cfg(test)]
mod tests;
