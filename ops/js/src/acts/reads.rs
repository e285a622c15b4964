//! Fields that a script reads and does not create.

use boa_engine::ast::expression::Expression;
use boa_engine::ast::expression::access::PropertyAccess;
use boa_engine::ast::{Span, Spanned};

use super::{Flow, Reader, RecordAct};
use crate::position::Position;
use crate::spot::{ExpressionMeaning, RecordObject, step};

/// A data field or metadata entry that the script reads from the input record.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldRead {
    /// The object that has the field.
    pub(crate) place: RecordObject,
    /// Name of the field.
    pub(crate) name: String,
    /// True if every call reads the field and relies on its value. A field that is only tested may be missing.
    pub(crate) needed: bool,
    /// True if the script reads a field of its value, or calls it.
    pub(crate) below: bool,
    /// Place in the source text.
    pub(crate) start: Position,
    pub(crate) end: Position,
}

/// Reads found so far.
#[derive(Default)]
pub(super) struct Reads {
    found: Vec<FieldRead>,
    /// Fields that the script creates.
    made: Vec<(RecordObject, String)>,
    /// Objects that are passed on, so that any field may be created in them.
    given: [bool; RecordObject::COUNT],
    /// True if the next field is only tested.
    testing: bool,
}

impl Reads {
    /// Notes that the script creates a field.
    pub(super) fn make(&mut self, place: RecordObject, name: &str) {
        self.made.push((place, name.to_owned()));
    }

    /// Notes that any field may be created in an object.
    pub(super) fn give(&mut self, place: RecordObject) {
        self.given[place as usize] = true;
    }

    /// Returns `true` if the script may create the field.
    pub(super) fn may_be_made(&self, place: RecordObject, name: &str) -> bool {
        self.given[place as usize] || self.made.iter().any(|(of, made)| *of == place && made == name)
    }

    /// Returns the fields that must come from the input record. This includes fields that every call reads before the
    /// script creates them.
    pub(super) fn finish(mut self) -> Vec<FieldRead> {
        let found = std::mem::take(&mut self.found);
        found.into_iter().filter(|read| read.needed || !self.may_be_made(read.place, &read.name)).collect()
    }
}

impl Reader<'_> {
    /// Notes a read of a field of the record. If the access takes its value for granted, the field is needed.
    pub(super) fn read_field(&mut self, place: RecordObject, name: &str, doing: Option<&RecordAct>, span: Span) {
        let needed = doing.is_some() && self.certain && !std::mem::take(&mut self.reads.testing);
        let has_fields = place.is_data() || place == RecordObject::Metadata;
        if has_fields && !self.replaced[place as usize] && !self.reads.may_be_made(place, name) {
            let (start, end) = (span.start().into(), span.end().into());
            let below = doing == Some(&RecordAct::Below);
            self.reads.found.push(FieldRead { place, name: name.to_owned(), needed, below, start, end });
        }
    }

    /// Notes a field of the record that may be missing.
    pub(super) fn test_field(&mut self, spot: &ExpressionMeaning, span: Span) {
        if let ExpressionMeaning::Field(place, Some(name)) = spot
            && place.child(name).is_none()
        {
            self.read_field(*place, name, None, span);
        }
    }

    /// Notes a field whose value is changed. This reads the old value, which may be missing only if it is tested.
    pub(super) fn changed(&mut self, access: &PropertyAccess, tested: bool) {
        let PropertyAccess::Simple(simple) = access else { return };
        if let ExpressionMeaning::Field(place, Some(name)) = step(&self.spot(simple.target()), simple.field(), self)
            && place.child(&name).is_none()
        {
            self.read_field(place, &name, (!tested).then_some(&RecordAct::Read), access.span());
        }
    }

    /// Analyzes an expression that is only tested for existence, if it is a field of the record.
    pub(super) fn testing(&mut self, expression: &Expression, read: impl FnOnce(&mut Self) -> Flow) -> Flow {
        let of_record = matches!(self.spot(expression), ExpressionMeaning::Field(place, Some(name)) if place.child(&name).is_none());
        self.reads.testing = of_record;
        let flow = read(self);
        self.reads.testing = false;
        flow
    }
}
