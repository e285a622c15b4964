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
mod content;
mod display;
mod look;
mod observed;
mod record;
mod shape;
mod template;
mod texts;
mod uses;
mod walk;

use std::ops::Range;

use anabranch_record::access::Access as Writes;
use anabranch_record::code::Code;
use anabranch_record::near::did_you_mean;
use anabranch_record::reference::{Reference, Side, Target};
use anabranch_record::text::Str;

use crate::codes;
use crate::diagnostic::{Severity, Span};

pub use assembled::may_be_json;
pub use content::OWN_KEY;
pub use look::{LookedUpField, TrialCheck};
pub use record::{Keys, Operations, RecordShape, SplitRecords};
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
    looks: Option<Vec<(ConfigLocation, TrialCheck)>>,
    /// True if the shape is that of observed records.
    observed: bool,
    /// True if a part of the node's configuration contains values of variables: it may differ in another environment.
    pub substituted: bool,
    /// True if the node is not applied to every record: it has a condition, or is in a branch.
    pub guarded: bool,
}

/// The place of a remark in a node's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigLocation {
    /// The part of the configuration.
    pub part: ConfigPart,
    /// A range of bytes in the part; `None` means the whole part.
    pub range: Option<Range<usize>>,
}

/// A part of a node's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigPart {
    /// The node as a whole.
    Node,
    /// The value of the setting with this name.
    Setting(Str),
    /// The condition.
    Condition,
}

impl ConfigLocation {
    /// The node as a whole: the name of its plugin.
    pub const NODE: ConfigLocation = ConfigLocation { part: ConfigPart::Node, range: None };

    /// A range of bytes of a setting's value.
    pub fn within(setting: impl Into<Str>, range: Range<usize>) -> ConfigLocation {
        ConfigLocation { part: ConfigPart::Setting(setting.into()), range: Some(range) }
    }

    /// The whole condition.
    pub const CONDITION: ConfigLocation = ConfigLocation { part: ConfigPart::Condition, range: None };

    /// Returns a range of bytes inside the place.
    pub fn at(&self, range: Range<usize>) -> ConfigLocation {
        let start = self.range.as_ref().map_or(0, |outer| outer.start);
        ConfigLocation { part: self.part.clone(), range: Some(start + range.start..start + range.end) }
    }
}

impl From<&'static str> for ConfigLocation {
    /// The whole value of a setting.
    fn from(setting: &'static str) -> ConfigLocation {
        ConfigLocation { part: ConfigPart::Setting(Str::from_static(setting)), range: None }
    }
}

/// A finding about a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// An error if every record fails, provided that the node is applied to every record.
    pub severity: Severity,
    /// Stable code, dotted.
    pub code: Code,
    /// The message, in one line.
    pub message: String,
    /// The place.
    pub place: ConfigLocation,
    /// A place that explains the finding.
    pub related: Option<(Span, String)>,
    /// Remedy.
    pub hint: Option<String>,
    /// The replacement text, if there is only one.
    pub correction: Option<(ConfigLocation, String)>,
}

impl Remark {
    fn is_of_nothing_in(&self, place: &ConfigLocation) -> bool {
        let within = |inner: &Range<usize>, outer: &Range<usize>| outer.start <= inner.start && inner.end <= outer.end;
        matches!(self.code, codes::FLOW_NO_FIELD | codes::FLOW_NO_METADATA)
            && self.place.part == place.part
            && self.place.range.as_ref().zip(place.range.as_ref()).is_some_and(|(inner, outer)| within(inner, outer))
    }
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

    /// Returns `true` if a remark is about this part of the configuration, or about a range in it.
    pub fn has_remark(&self, place: impl Into<ConfigLocation>) -> bool {
        let part = place.into().part;
        self.remarks.iter().any(|remark| remark.place.part == part)
    }

    /// Returns `true` if there is a finding with the same code at the same place.
    pub fn says(&self, other: &Remark) -> bool {
        self.remarks.iter().any(|remark| remark.code == other.code && remark.place == other.place)
    }

    /// Returns the messages of the findings.
    pub fn messages(&self) -> impl Iterator<Item = &str> {
        self.remarks.iter().map(|remark| remark.message.as_str())
    }

    /// Returns the resulting shape and the findings.
    pub fn into_parts(self) -> (RecordShape, Vec<Remark>) {
        (self.record, self.remarks)
    }

    /// Reports that every record fails here: `message` is the reason, `since` the place that causes it.
    pub fn fail(
        &mut self,
        code: Code,
        place: impl Into<ConfigLocation>,
        message: impl Into<String>,
        since: Option<(ShapeOrigin, String)>,
        hint: Option<String>,
    ) {
        self.fails = true;
        self.remark(Severity::Error, code, place.into(), message.into(), since, hint);
    }

    /// Reports that something is probably not intended.
    pub fn warn(
        &mut self,
        code: Code,
        place: impl Into<ConfigLocation>,
        message: impl Into<String>,
        since: Option<(ShapeOrigin, String)>,
        hint: Option<String>,
    ) {
        self.remark(Severity::Warning, code, place.into(), message.into(), since, hint);
    }

    fn remark(
        &mut self,
        severity: Severity,
        code: Code,
        place: ConfigLocation,
        message: String,
        since: Option<(ShapeOrigin, String)>,
        hint: Option<String>,
    ) {
        let related = since.and_then(|(since, text)| Some((since.span()?, text)));
        let remark = Remark { severity, code, message, place, related, hint, correction: None };
        if !self.remarks.contains(&remark) {
            self.remarks.push(remark);
        }
    }

    /// Fails records whose data on this side is never structured. With `or_absent`, absent data is accepted.
    pub fn need_fields(&mut self, place: impl Into<ConfigLocation>, side: Side, or_absent: bool) {
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
    pub fn get(&mut self, place: impl Into<ConfigLocation>, reference: &Reference) -> PossibleValues {
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
        Flow::new(self.record.clone()).get(ConfigLocation::NODE, reference)
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
        place: impl Into<ConfigLocation>,
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

    /// Replaces a text in the message of the last finding.
    fn amend_last(&mut self, was: &str, becomes: &str) {
        if let Some(remark) = self.remarks.last_mut() {
            remark.message = remark.message.replacen(was, becomes, 1);
        }
    }

    /// Adds a correction to the last finding.
    fn correct(&mut self, place: ConfigLocation, becomes: String) {
        if let Some(remark) = self.remarks.last_mut() {
            remark.correction = Some((place, becomes));
        }
    }

    /// Returns `true` if a finding concerns a part of this place, or all of it.
    fn is_remarked(&self, place: &ConfigLocation) -> bool {
        let overlap = |a: &Range<usize>, b: &Range<usize>| a.start < b.end && b.start < a.end;
        self.remarks.iter().any(|remark| {
            remark.place.part == place.part
                && remark.place.range.as_ref().zip(place.range.as_ref()).is_none_or(|(a, b)| overlap(a, b))
        })
    }

    /// Returns `true` if there is a finding about a missing value in this place.
    fn is_said_of(&self, place: &ConfigLocation) -> bool {
        self.remarks.iter().any(|remark| remark.is_of_nothing_in(place))
    }

    /// Converts findings about missing values at this place to findings that concern every record.
    fn always(&mut self, place: &ConfigLocation) {
        for remark in self.remarks.iter_mut().filter(|remark| remark.is_of_nothing_in(place)) {
            self.fails = true;
            if remark.severity == Severity::Warning {
                remark.severity = Severity::Error;
                remark.message.insert_str(0, "every record fails here: ");
            }
        }
    }

    /// Reads a metadata entry; warns if no plugin or processor may have set it.
    fn entry(&mut self, place: &ConfigLocation, key: &Str) {
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
    fn judge(&mut self, place: &ConfigLocation, outcome: &Resolution, certain: bool) {
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
    fn warn_of_way(&mut self, place: &ConfigLocation, blocked: &walk::Blocked, message: String) {
        let since = Some((blocked.since, format!("{} since here", blocked.what)));
        self.warn(codes::FLOW_NOT_A_MAP, place.clone(), message, since, blocked.hint.as_deref().map(str::to_owned));
    }

    /// Reports that typical records fail on a path to a field, if that is not reported for all records.
    fn judge_usual(
        &mut self,
        place: &ConfigLocation,
        outcome: &Resolution,
        side: Side,
        names: &[&Str],
        accesses: &[Access],
    ) {
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

    /// Reports a processor that does nothing, because its input is missing or already has the result.
    pub fn needless(&mut self, place: impl Into<ConfigLocation>, message: impl Into<String>, hint: impl Into<String>) {
        self.warn(codes::FLOW_NEEDLESS, place, message, None, Some(hint.into()));
    }

    /// Applies [`Reference::set`].
    pub fn set(&mut self, place: impl Into<ConfigLocation>, reference: &Reference, ty: Type) {
        let place = place.into();
        if let Target::Field(side, path) = reference.target() {
            self.use_parents(&place, *side, path.parents());
        }
        self.record.uses.forget(&reference.access());
        match reference.target() {
            Target::Record | Target::Position | Target::Payload => self.may_fail = true,
            Target::Operation => self.record.operations = Operations::ALL,
            Target::Metadata => {
                self.record.metadata = Keys::any();
                self.may_fail = true;
            }
            Target::Entry(key) => {
                self.may_fail |= !ty.kinds.within(Kinds::TEXT | Kinds::NULL);
                match (ty.kinds.overlaps(Kinds::TEXT), ty.kinds.overlaps(Kinds::NULL)) {
                    (true, false) => self.record.metadata.insert_one_of(key.clone(), ty.texts),
                    (true, true) => {
                        self.record.metadata.remove(key);
                        self.record.metadata.allow(key.clone());
                    }
                    (false, _) => self.record.metadata.remove(key),
                }
            }
            Target::Data(side) => {
                let taken = Kinds::TEXT | Kinds::BYTES | Kinds::MAP | Kinds::NULL;
                self.may_fail |= !ty.kinds.within(taken);
                *self.record.side_mut(*side) = Shape {
                    absent: ty.kinds.overlaps(Kinds::NULL),
                    raw: ty.kinds.overlaps(Kinds::TEXT | Kinds::BYTES),
                    structured: ty.kinds.overlaps(Kinds::MAP).then_some(ty.fields),
                    content: ty.content,
                    since: ty.since,
                    ..Shape::ABSENT
                };
            }
            Target::Field(side, path) => {
                let names: Vec<&Str> = path.parents().iter().chain([path.last()]).collect();
                let mut outcome = walk(self.record.side(*side), *side, &names, &[Access::Reference]);
                // Setting a new field is the purpose of such a processor.
                outcome.lacking = None;
                let is_plain_key = *side == Side::Key && self.record.key.plain && !self.is_remarked(&place);
                if let (true, [name], Some(blocked)) = (is_plain_key, &names[..], &mut outcome.blocked) {
                    // The key cannot be decoded.
                    let becomes = format!("set the whole key, with field: .Key and value: '{{\"{name}\": …}}'");
                    blocked.hint = Some(becomes.into());
                }
                self.judge(&place, &outcome, true);
                self.judge_usual(&place, &outcome, *side, &names, &[Access::Reference]);
                let shape = self.record.side_mut(*side);
                if shape.has_no_fields() {
                    shape.since = ShapeOrigin::default();
                }
                // Raw data fails, absent data becomes a map without fields.
                let fields = shape.structured.get_or_insert_with(|| Fields::closed([]));
                if shape.absent {
                    *fields = fields.join(&Fields::closed([]));
                }
                shape.raw = false;
                shape.absent = false;
                walk::insert(fields, &names, ty);
            }
        }
    }

    /// Applies [`Reference::set_data`] to the key or a side of the payload.
    pub fn set_side(&mut self, side: Side, shape: Shape) {
        self.record.uses.forget(&Writes::These(vec![side.parts().to_vec()]));
        *self.record.side_mut(side) = shape;
    }

    /// Applies [`Reference::delete`].
    pub fn delete(&mut self, place: impl Into<ConfigLocation>, reference: &Reference) {
        let place = place.into();
        self.look_for(&place, reference);
        self.record.uses.forget(&reference.access());
        match reference.target() {
            Target::Record | Target::Position | Target::Operation => self.may_fail = true,
            Target::Metadata => self.record.metadata = Keys::none(),
            Target::Entry(key) => {
                self.entry(&place, key);
                self.record.metadata.remove(key);
            }
            Target::Payload => {
                self.record.before = Shape::ABSENT;
                self.record.after = Shape::ABSENT;
            }
            Target::Data(side) => *self.record.side_mut(*side) = Shape::ABSENT,
            Target::Field(side, path) => {
                self.get(place, reference);
                let names: Vec<&Str> = path.parents().iter().chain([path.last()]).collect();
                let shape = self.record.side_mut(*side);
                shape.raw = false;
                if let Some(fields) = &mut shape.structured {
                    walk::remove(fields, &names);
                }
            }
        }
    }

    /// Applies [`Reference::rename`].
    pub fn rename(&mut self, place: impl Into<ConfigLocation>, reference: &Reference, name: &Str) {
        let place = place.into();
        self.look_for(&place, reference);
        match reference.target() {
            Target::Entry(key) if key != name => {
                self.entry(&place, key);
                let metadata = &mut self.record.metadata;
                self.may_fail |= metadata.may_have(name) && metadata.may_have(key);
                let (sure, maybe) = (metadata.has(key), metadata.may_have(key));
                metadata.remove(key);
                match (sure, maybe) {
                    (true, _) => metadata.insert(name.clone()),
                    (false, true) => metadata.allow(name.clone()),
                    (false, false) => {}
                }
            }
            Target::Field(side, path) if path.last() != name => {
                let found = self.get(place, reference);
                self.record.uses.forget(&reference.access());
                let names: Vec<&Str> = path.parents().iter().chain([path.last()]).collect();
                let renamed: Vec<&Str> = path.parents().iter().chain([name]).collect();
                let new = walk(self.record.side(*side), *side, &renamed, &[Access::Reference]);
                self.may_fail |= new.ty.kinds != Kinds::NONE;
                let shape = self.record.side_mut(*side);
                shape.raw = false;
                if let Some(fields) = &mut shape.structured {
                    walk::remove(fields, &names);
                    if found.ty.kinds == Kinds::NONE {
                    } else if found.missing {
                        walk::allow(fields, &renamed, &found.ty);
                    } else {
                        walk::insert(fields, &renamed, found.ty);
                    }
                }
            }
            Target::Entry(_) | Target::Field(..) => {
                self.get(place, reference);
            }
            _ => self.may_fail = true,
        }
    }

    /// Sets a field or side to `ty` if it exists and is not null; otherwise it is unchanged. For processors that
    /// replace a field with a value derived from it.
    pub fn replace(&mut self, place: impl Into<ConfigLocation>, reference: &Reference, ty: Type) {
        let place = place.into();
        self.look_for(&place, reference);
        self.record.uses.forget(&reference.access());
        match reference.target() {
            Target::Data(side) => {
                let shape = self.record.side_mut(*side);
                if shape.is_absent() {
                    return;
                }
                let absent = shape.absent || ty.kinds.overlaps(Kinds::NULL);
                *shape = Shape {
                    absent,
                    raw: ty.kinds.overlaps(Kinds::TEXT | Kinds::BYTES),
                    structured: ty.kinds.overlaps(Kinds::MAP).then_some(ty.fields),
                    content: ty.content,
                    since: ty.since,
                    ..Shape::ABSENT
                };
            }
            Target::Field(side, path) => {
                let names: Vec<&Str> = path.parents().iter().chain([path.last()]).collect();
                let shape = self.record.side_mut(*side);
                shape.raw = false;
                if let Some(fields) = &mut shape.structured {
                    walk::replace(fields, &names, &ty);
                }
            }
            _ => self.set(place, reference, ty),
        }
    }
}
