//! Parts of a node's configuration that a trial checks against real records.

use std::sync::Arc;

use anabranch_record::access::Access;
use anabranch_record::reference::{Reference, Side, Target};
use anabranch_record::text::Str;
use anabranch_template::Template;

use super::{Flow, Place, RecordShape};

/// A part of a node's configuration that a trial checks against real records.
#[derive(Clone, Debug)]
pub enum TrialCheck {
    /// A template whose output is used.
    Template(Template),
    /// A template whose output should be JSON.
    Json(Template),
    /// A field that is removed, renamed or rewritten: for a record without it, the node does nothing.
    Field(Reference),
    /// A field that a template looks up, without an error if it is missing.
    Named(LookedUpField),
    /// The node as a whole: its flow finds more problems with a shape of observed records.
    Step,
    /// The identity by which a destination overwrites earlier records.
    Identity(Access),
}

/// A field that a template looks up.
#[derive(Clone, Debug)]
pub struct LookedUpField {
    /// The data that contains the field.
    pub side: Side,
    /// The names that lead to it, at least one.
    pub names: Vec<Str>,
    /// True if the template has no effect without the field. Otherwise the field may be missing on purpose.
    pub sure: bool,
    /// The source of the template. Other names in it are not reported as typing errors: they may be looked up in other
    /// records.
    pub source: Arc<str>,
}

impl Flow {
    /// Creates a flow of unknown records that collects the checks for real records.
    pub fn gathering() -> Flow {
        Flow { looks: Some(Vec::new()), ..Flow::new(RecordShape::unknown()) }
    }

    /// Creates a flow of observed records: `record` is their common shape.
    pub fn observed(record: RecordShape) -> Flow {
        Flow { observed: true, ..Flow::new(record) }
    }

    /// Returns `true` if the shape is that of observed records; later ones may be different.
    pub fn is_observed(&self) -> bool {
        self.observed
    }

    /// Lets a trial repeat this flow with the shape of the real records of the node. For nodes whose own flow detects
    /// problems in real records.
    pub fn observe(&mut self) {
        self.look(&Place::NODE, || TrialCheck::Step);
    }

    /// Lets a trial check whether a template that assembles JSON by hand produces valid JSON. If `is_json` is set, the
    /// output must be JSON; otherwise the template is checked only if it begins like an object with names.
    pub fn json_template(&mut self, place: impl Into<Place>, template: &Template, is_json: bool) {
        let text = template.source().trim_start();
        let begins_with = |open: &str| text.strip_prefix(open).map(str::trim_start);
        let is_object = begins_with("{").is_some_and(|rest| match is_json {
            true => !rest.starts_with('{'),
            false => rest.starts_with('"') && rest.contains("\":"),
        });
        if template.literal().is_none() && (is_object || (is_json && begins_with("[").is_some())) {
            self.look(&place.into(), || TrialCheck::Json(template.clone()));
        }
    }

    /// Returns the collected checks.
    pub fn into_looks(self) -> Vec<(Place, TrialCheck)> {
        self.looks.unwrap_or_default()
    }

    /// Adds a check, if they are collected.
    pub(super) fn look(&mut self, place: &Place, look: impl FnOnce() -> TrialCheck) {
        if let Some(looks) = &mut self.looks {
            looks.push((place.clone(), look()));
        }
    }

    /// Adds a check for a field or metadata entry without which the node does nothing.
    pub(super) fn look_for(&mut self, place: &Place, reference: &Reference) {
        if matches!(reference.target(), Target::Field(..) | Target::Entry(_)) {
            self.look(place, || TrialCheck::Field(reference.clone()));
        }
    }
}
