//! What of a node's configuration real records can be held against.

use std::sync::Arc;

use anabranch_record::access::Access;
use anabranch_record::reference::{Reference, Side, Target};
use anabranch_record::text::Str;
use anabranch_template::Template;

use super::{Flow, Place, RecordShape};

/// A part of a node's configuration that real records can be held against.
#[derive(Clone, Debug)]
pub enum Look {
    /// A template whose output is used.
    Template(Template),
    /// A template whose output is meant to be JSON.
    Json(Template),
    /// A field that is taken away, renamed or rewritten: the step has nothing to work on in a record without it.
    Field(Reference),
    /// A field that a template looks up, and takes no notice of where it is missing.
    Named(Named),
    /// The step as a whole: its flow finds more where it knows what the records are.
    Step,
    /// Parts by which what a destination writes later takes the place of what it wrote before.
    Identity(Access),
}

/// A field that a template looks up.
#[derive(Clone, Debug)]
pub struct Named {
    /// Where it is looked up.
    pub side: Side,
    /// The names that lead to it, at least one.
    pub names: Vec<Str>,
    /// Whether a record without the field is a mistake: the template has no effect on it. If not, the template may have
    /// been written for records without the field.
    pub sure: bool,
    /// The template. A name that occurs elsewhere in it is not a misspelling: it is looked up in other records.
    pub source: Arc<str>,
}

impl Flow {
    /// A flow of records of which nothing is known, that gathers what real records can be held against.
    pub fn gathering() -> Flow {
        Flow { looks: Some(Vec::new()), ..Flow::new(RecordShape::unknown()) }
    }

    /// A flow of records that came: `record` is what they have in common.
    pub fn observed(record: RecordShape) -> Flow {
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

    /// A template that puts JSON together by hand: a trial reads what it makes. `is_json`: nothing else is meant. Otherwise
    /// only what begins as an object with names is.
    pub fn json_template(&mut self, place: impl Into<Place>, template: &Template, is_json: bool) {
        let text = template.source().trim_start();
        let begins_with = |open: &str| text.strip_prefix(open).map(str::trim_start);
        let is_object = begins_with("{").is_some_and(|rest| match is_json {
            true => !rest.starts_with('{'),
            false => rest.starts_with('"') && rest.contains("\":"),
        });
        if template.literal().is_none() && (is_object || (is_json && begins_with("[").is_some())) {
            self.look(&place.into(), || Look::Json(template.clone()));
        }
    }

    /// What was gathered.
    pub fn into_looks(self) -> Vec<(Place, Look)> {
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
