//! Flow types: the shapes of records, derived from a plan before any record is read.
//!
//! The compiler propagates a [`RecordShape`] along each edge of a plan. A source declares the shape of its records, a
//! processor changes it, a destination declares its requirements. All of them use a [`Flow`], whose methods mirror
//! those of [`Reference`] and also report problems.
//!
//! A shape is conservative: it allows every record that is possible at run time. So an operation that fails for all
//! records of a shape fails for every record. A node that cannot determine its output calls
//! [`Flow::forget`], which disables all findings after it.

mod assembled;
mod change;
mod content;
mod display;
mod look;
mod observed;
mod record;
mod remark;
mod shape;
mod template;
mod texts;
mod uses;
mod walk;

use anabranch_record::code::Code;
use anabranch_record::near::did_you_mean;
use anabranch_record::reference::{Reference, Side, Target};
use anabranch_record::text::Str;

use crate::codes;
use crate::diagnostic::Severity;

pub use assembled::may_be_json;
pub use content::OWN_KEY;
pub use look::{LookedUpField, TrialCheck};
pub use record::{Keys, Operations, RecordShape, SplitRecords};
pub use remark::{Part, Place, Remark};
pub use shape::{Content, Field, Fields, Form, Kinds, Shape, ShapeOrigin, Type};
pub use texts::Texts;
pub use uses::Uses;
use walk::{Access, Resolution, walk};

/// The record shape at one node, with the findings of the node.
#[derive(Debug)]
pub struct Flow {
    /// The shape of the records; every method updates it.
    pub record: RecordShape,
    remarks: Vec<Remark>,
    may_fail: bool,
    fails: bool,
    /// Checks for real records, if the caller requests them.
    looks: Option<Vec<(Place, TrialCheck)>>,
    /// True if the shape is that of observed records.
    observed: bool,
    /// True if a part of the node's configuration contains values of variables: it may differ in another environment.
    pub substituted: bool,
    /// True if the node is not applied to every record: it has a condition, or is in a branch.
    pub guarded: bool,
}

/// The possible values of a reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PossibleValues {
    /// The type of the value if it exists; without kinds if it never exists.
    pub ty: Type,
    /// True if it may be missing or absent.
    pub missing: bool,
}

impl PossibleValues {
    /// Returns `true` if it never exists.
    pub fn is_missing(&self) -> bool {
        self.ty.kinds == Kinds::NONE
    }

    /// Returns the kinds of the value, as messages print them.
    pub fn names(&self) -> String {
        match self.ty.kinds {
            Kinds::NONE => "missing".to_owned(),
            kinds => kinds.names().collect::<Vec<_>>().join(" or "),
        }
    }
}

impl Flow {
    /// Creates a flow with the given record shape.
    pub fn new(record: RecordShape) -> Flow {
        Flow {
            record,
            remarks: Vec::new(),
            may_fail: false,
            fails: false,
            looks: None,
            observed: false,
            substituted: false,
            guarded: false,
        }
    }

    /// Declares that the output of the node is unknown.
    pub fn forget(&mut self) {
        self.record = RecordShape::unknown();
        self.may_fail = true;
    }

    /// Declares that records may fail for reasons that are independent of their shape.
    pub fn may_fail(&mut self) {
        self.may_fail = true;
    }

    /// Returns `true` if no record can fail or be dropped here.
    pub fn is_safe(&self) -> bool {
        !self.may_fail && !self.fails
    }

    /// Returns `true` if every record fails here.
    pub fn fails(&self) -> bool {
        self.fails
    }

    /// Returns the resulting shape and the findings.
    pub fn into_parts(self) -> (RecordShape, Vec<Remark>) {
        (self.record, self.remarks)
    }

    /// Fails records whose data on this side is never structured. With `or_absent`, absent data is accepted.
    pub fn need_fields(&mut self, place: impl Into<Place>, side: Side, or_absent: bool) {
        let shape = self.record.side(side);
        self.may_fail |= shape.raw || (shape.absent && !or_absent);
        if shape.raw && !shape.is_raw() && shape.form() == Some(Form::Raw) {
            let since = Some((shape.since, "raw data since here".to_owned()));
            let message = format!("nearly every record fails here: {} is raw data, not structured data", side.as_str());
            let hint = "decode it first, for example with json.decode".to_owned();
            return self.warn(codes::FLOW_NEEDS_FIELDS, place, message, since, Some(hint));
        }
        if shape.has_no_fields() && shape.raw && shape.absent && or_absent {
            let since = Some((shape.since, "raw data since here".to_owned()));
            let message = format!(
                "every record with {side} fails here: it is raw data, not structured data",
                side = side.as_str()
            );
            let hint = "decode it first, for example with json.decode".to_owned();
            return self.remark(Severity::Error, codes::FLOW_NEEDS_FIELDS, place.into(), message, since, Some(hint));
        }
        if !shape.has_no_fields() || (shape.absent && or_absent) {
            return;
        }
        let what = if shape.is_absent() { "absent" } else { "raw data" };
        let since = Some((shape.since, format!("{what} since here")));
        let message = format!("every record fails here: {} is {what}, not structured data", side.as_str());
        let hint = shape.raw.then(|| "decode it first, for example with json.decode".to_owned());
        self.fail(codes::FLOW_NEEDS_FIELDS, place, message, since, hint);
    }

    /// Returns the possible results of [`Reference::get`].
    pub fn get(&mut self, place: impl Into<Place>, reference: &Reference) -> PossibleValues {
        let place = place.into();
        match reference.target() {
            Target::Data(side) => {
                let shape = self.record.side(*side);
                let mut ty = Type::of(Kinds::NONE);
                ty.since = shape.since;
                ty.content = shape.content;
                if shape.raw {
                    ty.kinds = ty.kinds | Kinds::BYTES;
                }
                if let Some(fields) = &shape.structured {
                    ty.kinds = ty.kinds | Kinds::MAP;
                    ty.fields = fields.clone();
                }
                PossibleValues { ty, missing: shape.absent }
            }
            Target::Field(side, path) => {
                let names: Vec<&Str> = path.parents().iter().chain([path.last()]).collect();
                let outcome = walk(self.record.side(*side), *side, &names, &[Access::Reference]);
                self.judge(&place, &outcome, true);
                self.judge_usual(&place, &outcome, *side, &names, &[Access::Reference]);
                self.use_parents(&place, *side, path.parents());
                PossibleValues { ty: outcome.ty, missing: outcome.missing }
            }
            Target::Entry(key) => {
                self.entry(&place, key);
                let missing = !self.record.metadata.has(key);
                let kinds = if self.record.metadata.may_have(key) { Kinds::TEXT } else { Kinds::NONE };
                PossibleValues { ty: Type::of(kinds), missing }
            }
            Target::Record | Target::Position | Target::Operation | Target::Metadata | Target::Payload => {
                PossibleValues { ty: Type::any(), missing: false }
            }
        }
    }

    /// Returns the possible values of a reference without reporting findings.
    pub fn peek(&self, reference: &Reference) -> PossibleValues {
        Flow::new(self.record.clone()).get(Place::NODE, reference)
    }

    /// Declares that a value may exist at a reference, if its parent exists.
    pub fn allow(&mut self, reference: &Reference, ty: &Type) {
        match reference.target() {
            Target::Entry(key) => self.record.metadata.allow(key.clone()),
            Target::Field(side, path) => {
                let names: Vec<&Str> = path.parents().iter().chain([path.last()]).collect();
                if let Some(fields) = &mut self.record.side_mut(*side).structured {
                    walk::allow(fields, &names, ty);
                }
            }
            _ => self.forget(),
        }
    }

    /// Fails every record if the value of a reference is of none of these kinds; raw data counts as bytes. With
    /// `or_nothing`, missing and null values are accepted.
    pub fn need(
        &mut self,
        code: Code,
        place: impl Into<Place>,
        reference: &Reference,
        wanted: (Kinds, &str),
        or_nothing: bool,
    ) -> PossibleValues {
        let place = place.into();
        let found = self.get(place.clone(), reference);
        let (kinds, name) = wanted;
        let kinds = if or_nothing { kinds | Kinds::NULL } else { kinds };
        self.may_fail |= !found.ty.kinds.within(kinds) || (found.missing && !or_nothing);
        let nothing = or_nothing && found.missing;
        if !self.fails && !nothing && !found.ty.kinds.overlaps(kinds) {
            let what = match reference.target() {
                Target::Data(side) if self.record.side(*side).is_raw() => "raw data".to_owned(),
                Target::Data(_) if !found.is_missing() => "structured data".to_owned(),
                _ => found.names(),
            };
            let message = format!("every record fails here: {reference} is {what}, not {name}");
            self.fail(code, place, message, Some((found.ty.since, format!("{what} since here"))), None);
        } else if let Target::Data(side) = reference.target()
            && let Some(form) = self.record.side(*side).form()
        {
            let (of, what) = match form {
                Form::Raw => (Kinds::BYTES, "raw data"),
                Form::Structured => (Kinds::MAP, "structured data"),
            };
            if !self.fails && !of.overlaps(kinds) {
                let message = format!("nearly every record fails here: {reference} is {what}, not {name}");
                self.warn(code, place, message, Some((found.ty.since, format!("{what} since here"))), None);
            }
        } else if let Target::Field(side, path) = reference.target() {
            let names: Vec<Str> = path.parents().iter().chain([path.last()]).cloned().collect();
            self.use_as(code, &place, *side, &names, kinds);
        }
        found
    }

    /// Reads a metadata entry; warns if no plugin or processor may have set it.
    fn entry(&mut self, place: &Place, key: &Str) {
        if self.record.metadata.may_have(key) {
            return;
        }
        let near = did_you_mean(key, self.record.metadata.named().map(Str::as_str)).map(str::to_owned);
        let hint = near.map_or_else(
            || "check the name, or set it in an earlier processor".to_owned(),
            |near| format!("did you mean {near:?}?"),
        );
        let message = format!("no record has the metadata {:?} here: no earlier plugin sets it", key.as_str());
        self.warn(codes::FLOW_NO_METADATA, place.clone(), message, None, Some(hint));
    }

    /// Reports the problem of a path to a field; `certain` if every record follows the path.
    fn judge(&mut self, place: &Place, outcome: &Resolution, certain: bool) {
        self.may_fail |= outcome.blocked.is_some();
        if let (true, Some(blocked)) = (outcome.always_fails(), &outcome.blocked) {
            let since = Some((blocked.since, format!("{} since here", blocked.what)));
            let hint = blocked.hint.as_deref().map(str::to_owned);
            let code = if blocked.missing { codes::FLOW_NO_FIELD } else { codes::FLOW_NOT_A_MAP };
            match certain {
                true => self.fail(code, place.clone(), blocked.message(), since, hint),
                false => self.warn(code, place.clone(), blocked.message(), since, hint),
            }
        } else if let (true, Some(lacking)) = (outcome.ty.kinds == Kinds::NONE, &outcome.lacking) {
            let since = if lacking.removed { "removed here" } else { "its fields are known since here" };
            let since = Some((lacking.since, since.to_owned()));
            self.warn(codes::FLOW_NO_FIELD, place.clone(), lacking.message(), since, Some(lacking.hint()));
        } else if let (true, Some(blocked)) = (outcome.fails_if_there(), &outcome.blocked) {
            self.warn_of_way(place, blocked, blocked.message_if_there());
        }
    }

    /// Warns that a part of a path to a field is not a map.
    fn warn_of_way(&mut self, place: &Place, blocked: &walk::Blocked, message: String) {
        let since = Some((blocked.since, format!("{} since here", blocked.what)));
        self.warn(codes::FLOW_NOT_A_MAP, place.clone(), message, since, blocked.hint.as_deref().map(str::to_owned));
    }

    /// Reports that typical records fail on a path to a field, if that is not reported for all records.
    fn judge_usual(&mut self, place: &Place, outcome: &Resolution, side: Side, names: &[&Str], accesses: &[Access]) {
        if outcome.always_fails() {
            return;
        }
        let Some(usual) = self.record.side(side).of_usual() else { return };
        let outcome = walk(&usual, side, names, accesses);
        if let (true, Some(blocked)) = (outcome.always_fails(), &outcome.blocked) {
            let message = blocked.message().replacen("every record", "nearly every record", 1);
            self.warn_of_way(place, blocked, message);
        } else if let (true, Some(blocked)) = (outcome.fails_if_there(), &outcome.blocked) {
            self.warn_of_way(place, blocked, blocked.message_if_there());
        }
    }
}
