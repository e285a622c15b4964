//! Flow types: what can be told of records before there are any.
//!
//! The compiler walks a plan with a [`RecordShape`] on each edge. A source says what its records are like,
//! every step says what it makes of them, a destination says what it needs; each does so in terms of a
//! [`Flow`], whose methods mirror those of [`Reference`] and also find what is wrong.
//!
//! A shape is never too small: whatever a record may be at run time, its shape allows. So what fails on
//! everything that a shape allows fails on every record, and whoever knows nothing says
//! [`Flow::forget`] and silences all findings after it.

mod content;
mod display;
mod look;
mod observed;
mod record;
mod shape;
mod template;
mod texts;
mod walk;

use std::ops::Range;

use anabranch_record::near::did_you_mean;
use anabranch_record::reference::{Reference, Side, Target};
use anabranch_record::text::Str;

use crate::diagnostic::{Severity, Span};

pub use content::{KEY_CONSTANT, KEY_SHARED, OWN_KEY};
pub use look::{Look, Named};
pub use record::{Keys, Operations, Pieces, RecordShape};
pub use shape::{Content, Field, Fields, Form, Kinds, Shape, Since, Type};
pub use texts::Texts;
use walk::{Access, Outcome, walk};

/// Code of the findings about fields that no record has.
pub const NO_FIELD: &str = "flow.no_field";
/// Code of the findings about metadata that no record has.
pub const NO_METADATA: &str = "flow.no_metadata";
/// Code of the findings about parts that no record has.
pub const NO_PART: &str = "flow.no_part";

/// A record shape on its way through one node.
#[derive(Debug)]
pub struct Flow {
    /// What is known of the records; every method keeps it true.
    pub record: RecordShape,
    remarks: Vec<Remark>,
    may_fail: bool,
    fails: bool,
    /// What real records can be held against, where somebody asks for it.
    looks: Option<Vec<(Place, Look)>>,
    /// Whether the records are some that came.
    observed: bool,
    /// Whether a part of the node's configuration comes out of variables: it may be something else elsewhere.
    pub substituted: bool,
}

/// Where in a node's configuration a remark belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The part of the configuration.
    pub part: Part,
    /// Bytes of it; `None` = all of it.
    pub range: Option<Range<usize>>,
}

/// A part of a node's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The node as a whole.
    Node,
    /// The value of the setting of this name.
    Setting(Str),
    /// The condition.
    Condition,
}

impl Place {
    /// The node as a whole: the name of its plugin.
    pub const NODE: Place = Place { part: Part::Node, range: None };

    /// Some bytes of a setting's value.
    pub fn within(setting: impl Into<Str>, range: Range<usize>) -> Place {
        Place { part: Part::Setting(setting.into()), range: Some(range) }
    }

    /// The whole condition.
    pub const CONDITION: Place = Place { part: Part::Condition, range: None };

    /// Some bytes inside of the place.
    pub fn at(&self, range: Range<usize>) -> Place {
        let start = self.range.as_ref().map_or(0, |outer| outer.start);
        Place { part: self.part.clone(), range: Some(start + range.start..start + range.end) }
    }
}

impl From<&'static str> for Place {
    /// The whole value of a setting.
    fn from(setting: &'static str) -> Place {
        Place { part: Part::Setting(Str::from_static(setting)), range: None }
    }
}

/// What a node's flow found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// An error where every record fails, if the node is applied to every record.
    pub severity: Severity,
    /// Stable code, dotted.
    pub code: &'static str,
    /// What is wrong, in one line.
    pub message: String,
    /// Where.
    pub place: Place,
    /// What explains it.
    pub related: Option<(Span, String)>,
    /// Remedy.
    pub hint: Option<String>,
    /// The replacement text, if there is only one.
    pub correction: Option<(Place, String)>,
}

impl Remark {
    fn is_of_nothing_in(&self, place: &Place) -> bool {
        let within = |inner: &Range<usize>, outer: &Range<usize>| outer.start <= inner.start && inner.end <= outer.end;
        matches!(self.code, NO_FIELD | NO_METADATA)
            && self.place.part == place.part
            && self.place.range.as_ref().zip(place.range.as_ref()).is_some_and(|(inner, outer)| within(inner, outer))
    }
}

/// What a reference leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What it is where it is there; no kinds at all where it never is.
    pub ty: Type,
    /// Whether it may be missing or absent.
    pub missing: bool,
}

impl Found {
    /// Whether it never is there.
    pub fn is_missing(&self) -> bool {
        self.ty.kinds == Kinds::NONE
    }

    /// What it is, as messages print it.
    pub fn names(&self) -> String {
        match self.ty.kinds {
            Kinds::NONE => "missing".to_owned(),
            kinds => kinds.names().collect::<Vec<_>>().join(" or "),
        }
    }
}

impl Flow {
    /// A flow that starts with these records.
    pub fn new(record: RecordShape) -> Flow {
        Flow {
            record,
            remarks: Vec::new(),
            may_fail: false,
            fails: false,
            looks: None,
            observed: false,
            substituted: false,
        }
    }

    /// Whatever comes out may be anything: nothing is known of the step.
    pub fn forget(&mut self) {
        self.record = RecordShape::unknown();
        self.may_fail = true;
    }

    /// Some records may fail for reasons that shapes do not show.
    pub fn may_fail(&mut self) {
        self.may_fail = true;
    }

    /// Whether a record may fail or be left out here.
    pub fn is_safe(&self) -> bool {
        !self.may_fail && !self.fails
    }

    /// Whether it was found that every record fails here.
    pub fn fails(&self) -> bool {
        self.fails
    }

    /// Whether it was found that something here is wrong in the same way.
    pub fn says(&self, other: &Remark) -> bool {
        self.remarks.iter().any(|remark| remark.code == other.code && remark.place == other.place)
    }

    /// What was found, in words.
    pub fn messages(&self) -> impl Iterator<Item = &str> {
        self.remarks.iter().map(|remark| remark.message.as_str())
    }

    /// What was found.
    pub fn into_parts(self) -> (RecordShape, Vec<Remark>) {
        (self.record, self.remarks)
    }

    /// Every record fails here: `message` says why, `since` where that was decided.
    pub fn fail(
        &mut self,
        code: &'static str,
        place: impl Into<Place>,
        message: impl Into<String>,
        since: Option<(Since, String)>,
        hint: Option<String>,
    ) {
        self.fails = true;
        self.remark(Severity::Error, code, place.into(), message.into(), since, hint);
    }

    /// Something is probably not what was meant.
    pub fn warn(
        &mut self,
        code: &'static str,
        place: impl Into<Place>,
        message: impl Into<String>,
        since: Option<(Since, String)>,
        hint: Option<String>,
    ) {
        self.remark(Severity::Warning, code, place.into(), message.into(), since, hint);
    }

    fn remark(
        &mut self,
        severity: Severity,
        code: &'static str,
        place: Place,
        message: String,
        since: Option<(Since, String)>,
        hint: Option<String>,
    ) {
        let related = since.and_then(|(since, text)| Some((since.span()?, text)));
        let remark = Remark { severity, code, message, place, related, hint, correction: None };
        if !self.remarks.contains(&remark) {
            self.remarks.push(remark);
        }
    }

    /// Fails records whose data in this place are never structured. Absent data count as good with `or_absent`.
    pub fn need_fields(&mut self, place: impl Into<Place>, side: Side, or_absent: bool) {
        let shape = self.record.side(side);
        self.may_fail |= shape.raw || (shape.absent && !or_absent);
        if shape.raw && !shape.is_raw() && shape.form() == Some(Form::Raw) {
            let since = Some((shape.since, "raw data since here".to_owned()));
            let message = format!("nearly every record fails here: {} is raw data, not structured data", side.as_str());
            let hint = "decode it before, with json.decode or the like".to_owned();
            return self.warn("flow.needs_fields", place, message, since, Some(hint));
        }
        if shape.has_no_fields() && shape.raw && shape.absent && or_absent {
            let since = Some((shape.since, "raw data since here".to_owned()));
            let message = format!(
                "every record with {side} fails here: it is raw data, not structured data",
                side = side.as_str()
            );
            let hint = "decode it before, with json.decode or the like".to_owned();
            return self.remark(Severity::Error, "flow.needs_fields", place.into(), message, since, Some(hint));
        }
        if !shape.has_no_fields() || (shape.absent && or_absent) {
            return;
        }
        let what = if shape.is_absent() { "absent" } else { "raw data" };
        let since = Some((shape.since, format!("{what} since here")));
        let message = format!("every record fails here: {} is {what}, not structured data", side.as_str());
        let hint = shape.raw.then(|| "decode it before, with json.decode or the like".to_owned());
        self.fail("flow.needs_fields", place, message, since, hint);
    }

    /// What reading a reference gives, as [`Reference::get`] does.
    pub fn get(&mut self, place: impl Into<Place>, reference: &Reference) -> Found {
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
                Found { ty, missing: shape.absent }
            }
            Target::Field(side, path) => {
                let names: Vec<&Str> = path.parents().iter().chain([path.last()]).collect();
                let outcome = walk(self.record.side(*side), *side, &names, &[Access::Reference]);
                self.judge(&place, &outcome, true);
                self.judge_usual(&place, &outcome, *side, &names, &[Access::Reference]);
                Found { ty: outcome.ty, missing: outcome.missing }
            }
            Target::Entry(key) => {
                self.entry(&place, key);
                let missing = !self.record.metadata.has(key);
                let kinds = if self.record.metadata.may_have(key) { Kinds::TEXT } else { Kinds::NONE };
                Found { ty: Type::of(kinds), missing }
            }
            Target::Record | Target::Position | Target::Operation | Target::Metadata | Target::Payload => {
                Found { ty: Type::any(), missing: false }
            }
        }
    }

    /// What is where a reference points, without a word about it.
    pub fn peek(&self, reference: &Reference) -> Found {
        Flow::new(self.record.clone()).get(Place::NODE, reference)
    }

    /// There may be a value there from now on, if what it is in is there.
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

    /// Fails every record if what a reference leads to is of none of these kinds; raw data count as bytes.
    /// What is missing or null counts as good with `or_nothing`.
    pub fn need(
        &mut self,
        code: &'static str,
        place: impl Into<Place>,
        reference: &Reference,
        wanted: (Kinds, &str),
        or_nothing: bool,
    ) -> Found {
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
        }
        found
    }

    /// The last finding says this instead of that.
    fn amend_last(&mut self, was: &str, becomes: &str) {
        if let Some(remark) = self.remarks.last_mut() {
            remark.message = remark.message.replacen(was, becomes, 1);
        }
    }

    /// The last finding is mended by this text in that place.
    fn correct(&mut self, place: Place, becomes: String) {
        if let Some(remark) = self.remarks.last_mut() {
            remark.correction = Some((place, becomes));
        }
    }

    /// Whether a finding is about a part of this place, or about all of it.
    fn is_remarked(&self, place: &Place) -> bool {
        let overlap = |a: &Range<usize>, b: &Range<usize>| a.start < b.end && b.start < a.end;
        self.remarks.iter().any(|remark| {
            remark.place.part == place.part
                && remark.place.range.as_ref().zip(place.range.as_ref()).is_none_or(|(a, b)| overlap(a, b))
        })
    }

    /// Whether a finding says of a part of this place that nothing is there.
    fn is_said_of(&self, place: &Place) -> bool {
        self.remarks.iter().any(|remark| remark.is_of_nothing_in(place))
    }

    /// Turns findings about missing values at this place into findings that concern every record.
    fn always(&mut self, place: &Place) {
        for remark in self.remarks.iter_mut().filter(|remark| remark.is_of_nothing_in(place)) {
            self.fails = true;
            if remark.severity == Severity::Warning {
                remark.severity = Severity::Error;
                remark.message.insert_str(0, "every record fails here: ");
            }
        }
    }

    /// Reads a metadata entry: nobody may have written it.
    fn entry(&mut self, place: &Place, key: &Str) {
        if self.record.metadata.may_have(key) {
            return;
        }
        let near = did_you_mean(key, self.record.metadata.named().map(Str::as_str)).map(str::to_owned);
        let hint = near
            .map_or_else(|| "check the name, or set it before".to_owned(), |near| format!("did you mean {near:?}?"));
        let message = format!("no record has the metadata {:?} here: nothing before writes it", key.as_str());
        self.warn(NO_METADATA, place.clone(), message, None, Some(hint));
    }

    /// Says what is wrong with a way to a field; `certain` if every record goes it.
    fn judge(&mut self, place: &Place, outcome: &Outcome, certain: bool) {
        self.may_fail |= outcome.blocked.is_some();
        if let (true, Some(blocked)) = (outcome.always_fails(), &outcome.blocked) {
            let since = Some((blocked.since, format!("{} since here", blocked.what)));
            let hint = blocked.hint.as_deref().map(str::to_owned);
            let code = if blocked.missing { NO_FIELD } else { "flow.not_a_map" };
            match certain {
                true => self.fail(code, place.clone(), blocked.message(), since, hint),
                false => self.warn(code, place.clone(), blocked.message(), since, hint),
            }
        } else if let (true, Some(lacking)) = (outcome.ty.kinds == Kinds::NONE, &outcome.lacking) {
            let since = if lacking.removed { "it is removed here" } else { "its fields are known since here" };
            let since = Some((lacking.since, since.to_owned()));
            self.warn(NO_FIELD, place.clone(), lacking.message(), since, Some(lacking.hint()));
        } else if let (true, Some(blocked)) = (outcome.fails_if_there(), &outcome.blocked) {
            self.warn_of_way(place, blocked, blocked.message_if_there());
        }
    }

    /// Warns that a parent of a field is not a map.
    fn warn_of_way(&mut self, place: &Place, blocked: &walk::Blocked, message: String) {
        let since = Some((blocked.since, format!("{} since here", blocked.what)));
        self.warn("flow.not_a_map", place.clone(), message, since, blocked.hint.as_deref().map(str::to_owned));
    }

    /// Says that the usual records fail on a way to a field, where that is not said of all.
    fn judge_usual(&mut self, place: &Place, outcome: &Outcome, side: Side, names: &[&Str], accesses: &[Access]) {
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

    /// A step that does nothing, as nothing is there or what is there is what it makes.
    pub fn needless(&mut self, place: impl Into<Place>, message: impl Into<String>, hint: impl Into<String>) {
        self.warn("flow.needless", place, message, None, Some(hint.into()));
    }

    /// Puts a value there, as [`Reference::set`] does.
    pub fn set(&mut self, place: impl Into<Place>, reference: &Reference, ty: Type) {
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
                let place = place.into();
                let names: Vec<&Str> = path.parents().iter().chain([path.last()]).collect();
                let mut outcome = walk(self.record.side(*side), *side, &names, &[Access::Reference]);
                // A field that is new is what a step that sets one is for.
                outcome.lacking = None;
                let is_plain_key = *side == Side::Key && self.record.key.plain && !self.is_remarked(&place);
                if let (true, [name], Some(blocked)) = (is_plain_key, &names[..], &mut outcome.blocked) {
                    // There is nothing to decode.
                    let becomes = format!("set the key as a whole, with field: .Key and value: '{{\"{name}\": …}}'");
                    blocked.hint = Some(becomes.into());
                }
                self.judge(&place, &outcome, true);
                self.judge_usual(&place, &outcome, *side, &names, &[Access::Reference]);
                let shape = self.record.side_mut(*side);
                if shape.has_no_fields() {
                    shape.since = Since::default();
                }
                // What is raw fails, what is absent becomes a map without fields.
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

    /// Puts data there, as [`Reference::set_data`] does at a key or side of the payload.
    pub fn set_side(&mut self, side: Side, shape: Shape) {
        *self.record.side_mut(side) = shape;
    }

    /// Removes what is there, as [`Reference::delete`] does.
    pub fn delete(&mut self, place: impl Into<Place>, reference: &Reference) {
        let place = place.into();
        self.look_for(&place, reference);
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

    /// Gives a field or metadata entry another name, as [`Reference::rename`] does.
    pub fn rename(&mut self, place: impl Into<Place>, reference: &Reference, name: &Str) {
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

    /// Makes a field or side what `ty` says, where it is there and not null; elsewhere it stays. For steps that
    /// read a field and put what they make of it in its place.
    pub fn replace(&mut self, place: impl Into<Place>, reference: &Reference, ty: Type) {
        let place = place.into();
        self.look_for(&place, reference);
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
