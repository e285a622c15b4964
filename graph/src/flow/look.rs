//! What of a node's configuration real records can be held against.

use super::{Flow, Place, RecordShape};
use crate::operator::Access;
use crate::reference::{Reference, Target};
use crate::template::Template;

/// A part of a node's configuration that real records can be held against.
#[derive(Clone, Debug)]
pub(crate) enum Look {
    /// A template whose output is used.
    Template(Template),
    /// A field that is taken away, renamed or rewritten: the step has nothing to work on in a record without it.
    Field(Reference),
    /// The step as a whole: its flow finds more where it knows what the records are.
    Step,
    /// Parts by which what a destination writes later takes the place of what it wrote before.
    Identity(Access),
}

impl Flow {
    /// A flow of records of which nothing is known, that gathers what real records can be held against.
    pub(crate) fn gathering() -> Flow {
        Flow { looks: Some(Vec::new()), ..Flow::new(RecordShape::unknown()) }
    }

    /// A flow of records that came: `record` is what they have in common.
    pub(crate) fn observed(record: RecordShape) -> Flow {
        Flow { observed: true, ..Flow::new(record) }
    }

    /// Whether the records are some that came, and others may be different.
    pub fn is_observed(&self) -> bool {
        self.observed
    }

    /// A trial walks this flow again with the records that come to the step. For steps that find out by themselves what
    /// is wrong with what they do to a record.
    pub fn observe(&mut self) {
        self.look(&Place::NODE, || Look::Step);
    }

    /// What was gathered.
    pub(crate) fn into_looks(self) -> Vec<(Place, Look)> {
        self.looks.unwrap_or_default()
    }

    /// Gathers a part, where somebody asks for it.
    pub(super) fn look(&mut self, place: &Place, look: impl FnOnce() -> Look) {
        if let Some(looks) = &mut self.looks {
            looks.push((place.clone(), look()));
        }
    }

    /// A field or metadata entry that must be there for the step to do anything.
    pub(super) fn look_for(&mut self, place: &Place, reference: &Reference) {
        if matches!(reference.target(), Target::Field(..) | Target::Entry(_)) {
            self.look(place, || Look::Field(reference.clone()));
        }
    }
}
