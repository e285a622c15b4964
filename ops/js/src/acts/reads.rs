//! Fields that a script reads and does not make.

use boa_engine::ast::expression::Expression;
use boa_engine::ast::expression::access::PropertyAccess;
use boa_engine::ast::{Span, Spanned};

use super::{Doing, Flow, Reader};
use crate::position::Position;
use crate::spot::{Place, Spot, step};

/// A field of data, or an entry of metadata, that the script reads as the record has it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldRead {
    /// The object.
    pub(crate) place: Place,
    /// The field.
    pub(crate) name: String,
    /// Whether every call reads it, and takes its value for granted. One that is only tested may be missing.
    pub(crate) needed: bool,
    /// Whether the script takes a field of its value, or calls it.
    pub(crate) below: bool,
    /// Where it is written.
    pub(crate) start: Position,
    pub(crate) end: Position,
}

/// What was come across.
#[derive(Default)]
pub(super) struct Reads {
    found: Vec<FieldRead>,
    /// Fields that the script puts there.
    made: Vec<(Place, String)>,
    /// Objects that go where any field may be put into them.
    given: [bool; Place::COUNT],
    /// Whether the next field is only tested.
    testing: bool,
}

impl Reads {
    /// The script puts a field there.
    pub(super) fn make(&mut self, place: Place, name: &str) {
        self.made.push((place, name.to_owned()));
    }

    /// Any field may be put there.
    pub(super) fn give(&mut self, place: Place) {
        self.given[place as usize] = true;
    }

    /// Whether the field may be one that the script puts there.
    pub(super) fn may_be_made(&self, place: Place, name: &str) -> bool {
        self.given[place as usize] || self.made.iter().any(|(of, made)| *of == place && made == name)
    }

    /// The fields that only the record can have. One that every call reads before the script makes it is the record's.
    pub(super) fn finish(mut self) -> Vec<FieldRead> {
        let found = std::mem::take(&mut self.found);
        found.into_iter().filter(|read| read.needed || !self.may_be_made(read.place, &read.name)).collect()
    }
}

impl Reader<'_> {
    /// Notes that a field of the record is read. `needed` says whether the script takes its value for granted.
    pub(super) fn read_field(&mut self, place: Place, name: &str, doing: Option<&Doing>, span: Span) {
        let needed = doing.is_some() && self.certain && !std::mem::take(&mut self.reads.testing);
        let has_fields = place.is_data() || place == Place::Metadata;
        if has_fields && !self.replaced[place as usize] && !self.reads.may_be_made(place, name) {
            let (start, end) = (span.start().into(), span.end().into());
            let below = doing == Some(&Doing::Below);
            self.reads.found.push(FieldRead { place, name: name.to_owned(), needed, below, start, end });
        }
    }

    /// Notes a field of the record that may be missing.
    pub(super) fn test_field(&mut self, spot: &Spot, span: Span) {
        if let Spot::Field(place, Some(name)) = spot
            && place.child(name).is_none()
        {
            self.read_field(*place, name, None, span);
        }
    }

    /// Notes a field whose value is changed: what is missing is read all the same, unless that is tested.
    pub(super) fn changed(&mut self, access: &PropertyAccess, tested: bool) {
        let PropertyAccess::Simple(simple) = access else { return };
        if let Spot::Field(place, Some(name)) = step(&self.spot(simple.target()), simple.field(), self)
            && place.child(&name).is_none()
        {
            self.read_field(place, &name, (!tested).then_some(&Doing::Read), access.span());
        }
    }

    /// Reads an expression of which only matters whether it is there, if it is a field of the record.
    pub(super) fn testing(&mut self, expression: &Expression, read: impl FnOnce(&mut Self) -> Flow) -> Flow {
        let of_record = matches!(self.spot(expression), Spot::Field(place, Some(name)) if place.child(&name).is_none());
        self.reads.testing = of_record;
        let flow = read(self);
        self.reads.testing = false;
        flow
    }
}
