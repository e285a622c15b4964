//! The effect of a program on the shape of records, and findings about it.

mod unfit;

use std::ops::Range;

use anabranch_plugin::flow::{Field, Flow, Form, Keys, Operations, Place, RecordShape, Shape, ShapeOrigin, Type};
use anabranch_record::access::Access;
use anabranch_record::near::did_you_mean;
use anabranch_record::reference::Side;
use anabranch_record::text::Str;
use vrl::path::{OwnedSegment, OwnedTargetPath, OwnedValuePath, PathPrefix};
use vrl::value::Kind;
use vrl::value::kind::Collection;

use crate::codes;
use crate::kinds;
use crate::program::{CheckedProgram, PayloadForm, kind_of_any_data};
use crate::source::ProgramFlaw;
use crate::spot::{FIELDS, Spot, TargetPart, key_of};
use unfit::UnfitValue;

/// Number of the library's finding that an argument never has a type that the function accepts.
const NEVER_ACCEPTED: usize = 110;

/// Types of `.` and `%` after the program.
struct TypesAfter {
    event: Kind,
    rest: Kind,
}

/// A program in a node.
pub(crate) struct Findings<'a> {
    pub(crate) program: &'a CheckedProgram,
    /// The setting that holds the program, or its file.
    pub(crate) setting: &'static str,
    /// True if the program is in the pipeline file.
    pub(crate) inline: bool,
    /// True if a record is kept as it was when the program ends with `abort`.
    pub(crate) keeps_aborted: bool,
}

impl Findings<'_> {
    /// Applies the program to the shape of records and reports its errors.
    pub(crate) fn apply(&self, flow: &mut Flow) {
        flow.observe();
        flow.may_fail();
        for warning in &self.program.warnings {
            self.report(flow, false, warning, None);
        }
        self.missing_fields(flow);
        let before = flow.record.clone();
        let forms = kinds::forms(&before.after);
        let rest = kinds::of_rest(&before);
        self.report_misplaced(flow, &before);
        let mut after: Option<RecordShape> = None;
        let mut unfit: Vec<Vec<UnfitValue>> = Vec::new();
        for form in &forms {
            let Some(types) = self.types_after(flow, &before, *form, &forms, &rest) else { continue };
            unfit.push(self.unfit_values(&types));
            let shape = self.shape_after(&self.of_form(&before, *form), &types);
            after = Some(match after {
                Some(joined) => joined.join(&shape),
                None => shape,
            });
        }
        self.report_unfit(flow, &unfit);
        let mut after = after.unwrap_or_else(|| before.clone());
        if self.keeps_aborted && self.program.aborts() {
            after = after.join(&before);
        }
        for write in &self.program.writes {
            after.uses.forget(&write.spot.access());
        }
        flow.record = after;
    }

    /// Returns the shape of records whose payload has one form.
    fn of_form(&self, record: &RecordShape, form: PayloadForm) -> RecordShape {
        let after = &record.after;
        let after = match form {
            PayloadForm::Structured => Shape { absent: false, raw: false, usually: None, ..after.clone() },
            PayloadForm::Raw => Shape { absent: false, structured: None, usually: None, ..after.clone() },
            PayloadForm::Absent => Shape { since: after.since, ..Shape::ABSENT },
        };
        RecordShape { after, ..record.clone() }
    }

    /// Returns the types after the program for records whose payload has one form; `None` if they all fail.
    fn types_after(
        &self,
        flow: &mut Flow,
        before: &RecordShape,
        form: PayloadForm,
        forms: &[PayloadForm],
        rest: &Kind,
    ) -> Option<TypesAfter> {
        let only = forms.len() == 1;
        let usual = only
            || form == PayloadForm::Structured && before.after.form() == Some(Form::Structured)
            || form == PayloadForm::Raw && before.after.form() == Some(Form::Raw);
        if let Err(flaw) = self.program.of_form(form) {
            if usual {
                let hint = (form == PayloadForm::Raw)
                    .then(|| "decode it first, with json.decode or `. = parse_json!(.)`".to_owned())
                    .or_else(|| flaw.hint.clone());
                let flaw = ProgramFlaw {
                    code: codes::VRL_MISTAKE,
                    message: format!(
                        "the payload is {}, for which the program does not compile: {}",
                        form.text(),
                        flaw.message
                    ),
                    hint,
                    ..flaw.clone()
                };
                self.report(flow, only, &flaw, Some((before.after.since, form)));
            }
            return None;
        }
        if let (true, Some((flaw, sets))) = (usual, self.misplaced(form)) {
            self.report(flow, only && sets, &flaw, Some((before.after.since, form)));
            if only && sets {
                return None;
            }
        }
        let event = self.overwritable(kinds::of_form(&before.after, form));
        match self.program.typed(event, rest.clone()) {
            Ok(program) => {
                let after = program.final_type_info().state.external;
                Some(TypesAfter { event: after.target_kind().clone(), rest: after.metadata_kind().clone() })
            }
            Err(flaws) => {
                let mut fails = false;
                for flaw in flaws.iter().filter(|flaw| flaw.number == NEVER_ACCEPTED && usual) {
                    let certain = only && flaw.place.as_ref().is_some_and(|place| !self.program.is_guarded(place));
                    fails |= certain;
                    let flaw = ProgramFlaw { code: codes::VRL_MISTAKE, ..flaw.clone() };
                    self.report(flow, certain, &flaw, None);
                }
                (!fails).then(|| self.unknown_after(before, form, rest))
            }
        }
    }

    /// Returns the type with an object wherever the program sets a field in one. Without the object, the library refuses
    /// the assignment, although it creates the object. It also looks for the parents of fields of `%` in `.`.
    fn overwritable(&self, mut event: Kind) -> Kind {
        let sets_rest = self.program.facts.writes.iter().any(|write| write.path.prefix == PathPrefix::Metadata);
        match (event.contains_object(), sets_rest) {
            (true, _) => {}
            (false, true) => return event.or_object(Collection::any()),
            (false, false) => return event,
        }
        for write in &self.program.facts.writes {
            for length in 1..write.path.path.segments.len() {
                let parent = OwnedValuePath { segments: write.path.path.segments[..length].to_vec() };
                if let Some(OwnedSegment::Field(_)) = write.path.path.segments.get(length) {
                    let kind = event.at_path(&parent).or_object(Collection::any());
                    event.insert(&parent, kind);
                }
            }
        }
        event
    }

    /// Returns the types after a program of which nothing but its assignments is known.
    fn unknown_after(&self, before: &RecordShape, form: PayloadForm, rest: &Kind) -> TypesAfter {
        let mut types = TypesAfter { event: kinds::of_form(&before.after, form), rest: rest.clone() };
        for write in &self.program.writes {
            widen(&mut types, &write.spot);
        }
        types
    }

    /// Returns the flaw of a program that sets or reads a field of `.` before it replaces `.`, which has no fields. The second
    /// value is `true` if the program sets the field, so that the record fails.
    fn misplaced(&self, form: PayloadForm) -> Option<(ProgramFlaw, bool)> {
        if form == PayloadForm::Structured {
            return None;
        }
        let facts = &self.program.facts;
        let replaced = facts.writes.iter().filter(|write| write.path == OwnedTargetPath::event_root());
        let replaced = replaced.map(|write| write.place.start).min();
        let is_field = |path: &OwnedTargetPath| path.prefix == PathPrefix::Event && !path.path.is_root();
        let is_certain = |place: &Range<usize>| {
            !self.program.is_guarded(place) && replaced.is_none_or(|replaced| place.start < replaced)
        };
        let mut writes = facts.writes.iter().filter(|write| !write.removed);
        let mut reads = facts.reads.iter().filter(|read| !read.tested && form == PayloadForm::Raw);
        let (path, place, sets) = match writes.find(|write| is_field(&write.path) && is_certain(&write.place)) {
            Some(write) => (&write.path, &write.place, true),
            None => {
                let read = reads.find(|read| is_field(&read.path) && is_certain(&read.place))?;
                (&read.path, &read.place, false)
            }
        };
        let effect = if sets { "every record fails here" } else { "this is null" };
        let message = format!("{effect}: the payload is {}, so it has no field {path}", form.text());
        let hint = match form {
            PayloadForm::Raw => "decode it first, with json.decode or `. = parse_json!(.)`",
            _ => "give the processor a condition, such as `{{ ne .Operation \"delete\" }}`",
        };
        let flaw =
            ProgramFlaw { code: codes::VRL_MISTAKE, ..ProgramFlaw::at(place.clone(), message, Some(hint.to_owned())) };
        Some((flaw, sets))
    }

    /// Returns `true` if the library does not follow the type of a place: a closure changes it, or the program may end
    /// before it is changed.
    fn may_differ(&self, spot: &Spot) -> bool {
        let facts = &self.program.facts;
        facts.returns
            || facts.writes.iter().any(|write| {
                write.in_closure
                    && Spot::of(&write.path).is_ok_and(|other| other.contains(spot) || spot.contains(&other))
            })
    }

    fn shape_after(&self, before: &RecordShape, types: &TypesAfter) -> RecordShape {
        let mut after = before.clone();
        // A place that changes in parts is replaced up to the first name.
        let mut spots: Vec<Spot> = Vec::new();
        for write in &self.program.writes {
            let spot = write.spot.shortened(1);
            if !spots.iter().any(|known| known.contains(&spot)) {
                spots.retain(|known| !spot.contains(known));
                spots.push(spot);
            }
        }
        for spot in spots {
            let differs = self.may_differ(&spot);
            let kind = match self.program.writes.iter().any(|write| write.changes_part_of(&spot)) {
                // The types of the library assume that a map which is changed in a part was there before.
                true => without_fields(&kind_at(types, &spot)),
                false => kind_at(types, &spot),
            };
            match spot.part {
                TargetPart::Data(side) => set_data(&mut after, side, &spot.names, &kind, differs),
                TargetPart::Metadata => set_entry(&mut after.metadata, spot.names.first(), &kind, differs),
                TargetPart::Operation => after.operations = Operations::ALL,
                TargetPart::Position => {}
            }
        }
        after
    }

    /// Warns about fields that the program reads and that no record has.
    fn missing_fields(&self, flow: &mut Flow) {
        for read in &self.program.facts.reads {
            let Ok(spot) = Spot::of(&read.path) else { continue };
            let Some(name) = spot.names.first() else { continue };
            let is_set = self.program.facts.writes.iter().any(|write| {
                Spot::of(&write.path)
                    .is_ok_and(|set| set.contains(&spot.shortened(1)) || spot.shortened(1).contains(&set))
            });
            if is_set || read.tested {
                continue;
            }
            let place = self.place(Some(&read.place));
            let message = |message: String| self.program.source.placed(read.place.start, &message);
            match spot.part {
                TargetPart::Data(side) => {
                    let shape = flow.record.side(side);
                    let Some(fields) = shape.structured.as_ref().filter(|_| !shape.raw) else { continue };
                    if fields.is_open() || fields.get(name).is_some() {
                        continue;
                    }
                    let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
                    let hint = match did_you_mean(name, names.iter().copied()) {
                        Some(near) => format!("did you mean {near}?"),
                        None if names.is_empty() => "it has no fields".to_owned(),
                        None => format!("it has: {}", listed(&names)),
                    };
                    let text = message(format!("this is null: {} has no {name:?}", side.as_str()));
                    flow.warn(
                        codes::FLOW_NO_FIELD,
                        place,
                        text,
                        Some((shape.since, "its fields are known since here".to_owned())),
                        Some(hint),
                    );
                }
                TargetPart::Metadata if !flow.record.metadata.may_have(&key_of(name)) => {
                    let near = did_you_mean(name, flow.record.metadata.named().map(Str::as_str));
                    let hint = near.map_or_else(
                        || "check the name, or set it earlier".to_owned(),
                        |near| format!("did you mean {near:?}?"),
                    );
                    let text = message(format!("this is null: no record has the metadata {name:?} here"));
                    flow.warn(codes::FLOW_NO_METADATA, place, text, None, Some(hint));
                }
                TargetPart::Metadata | TargetPart::Operation | TargetPart::Position => {}
            }
        }
    }

    fn place(&self, range: Option<&Range<usize>>) -> Place {
        match range {
            Some(range) if self.inline => Place::within(self.setting, range.clone()),
            _ => Place::from(self.setting),
        }
    }

    /// Reports a flaw: as an error if every record fails.
    fn report(&self, flow: &mut Flow, fails: bool, flaw: &ProgramFlaw, since: Option<(ShapeOrigin, PayloadForm)>) {
        let message = match &flaw.place {
            Some(place) => self.program.source.placed(place.start, &flaw.message),
            None => flaw.message.clone(),
        };
        let place = self.place(flaw.place.as_ref());
        let since = since.map(|(since, form)| (since, format!("{} since here", form.text())));
        match fails {
            true => flow.fail(flaw.code, place, message, since, flaw.hint.clone()),
            false => flow.warn(codes::VRL_MISTAKE, place, message, since, flaw.hint.clone()),
        }
    }
}

fn listed(names: &[&str]) -> String {
    const MOST: usize = 8;
    let mut text = names.iter().take(MOST).copied().collect::<Vec<_>>().join(", ");
    if names.len() > MOST {
        text.push_str(", …");
    }
    text
}

/// Returns the type at a place.
fn kind_at(types: &TypesAfter, spot: &Spot) -> Kind {
    let path = spot.path();
    match spot.part {
        TargetPart::Data(Side::After) => types.event.at_path(&path.path),
        _ => types.rest.at_path(&path.path),
    }
}

/// Forgets the type at a place.
fn widen(types: &mut TypesAfter, spot: &Spot) {
    let spot = spot.shortened(1);
    let path = spot.path().path;
    let kind = match spot.part {
        TargetPart::Data(_) if spot.names.is_empty() => kind_of_any_data().or_array(Collection::any()),
        _ => Kind::any(),
    };
    match spot.part {
        TargetPart::Data(Side::After) => types.event.insert(&path, kind),
        _ => types.rest.insert(&path, kind),
    }
}

/// Applies the type of data, or of a field of it. With `differs`, the value may also be any other, or the one before.
fn set_data(record: &mut RecordShape, side: Side, names: &[Str], kind: &Kind, differs: bool) {
    let [name] = names else {
        let shape = match (differs, kinds::shape_of(&of_elements(kind))) {
            (false, Some(shape)) => shape,
            _ => Shape::unknown(),
        };
        *record.side_mut(side) = shape;
        return;
    };
    // A field is set in structured data only: otherwise the record fails, or nothing is removed.
    let Some(fields) = &mut record.side_mut(side).structured else { return };
    let exists = kind.without_undefined();
    if differs {
        fields.insert(name.clone(), Field::optional(Type::any()));
    } else if exists.is_never() {
        fields.remove(name);
    } else {
        let ty = kinds::type_of(&exists);
        let field = if kind.contains_undefined() { Field::optional(ty) } else { Field::present(ty) };
        fields.insert(name.clone(), field);
    }
}

/// Returns the type with unknown fields.
fn without_fields(kind: &Kind) -> Kind {
    match kind.contains_object() {
        true => kind.without_object().or_object(Collection::any()),
        false => kind.clone(),
    }
}

/// Returns the type of each record that `.` becomes: of the elements, if it is an array.
fn of_elements(kind: &Kind) -> Kind {
    match kind.as_array() {
        Some(elements) => kind.without_array().union(elements.reduced_kind().without_undefined()),
        None => kind.clone(),
    }
}

fn set_entry(metadata: &mut Keys, name: Option<&Str>, kind: &Kind, differs: bool) {
    let Some(name) = name else {
        *metadata = Keys::any();
        return;
    };
    let key = key_of(name);
    let is_absent = kind.contains_null() || kind.contains_undefined();
    match (differs || is_absent, kind.without_undefined().is_never() || kind.is_null()) {
        (false, _) => metadata.insert(key),
        (true, true) if !differs => metadata.remove(&key),
        (true, _) => {
            metadata.remove(&key);
            metadata.allow(key);
        }
    }
}

/// Returns the parts that a program reads.
pub(crate) fn reads(program: &CheckedProgram) -> Access {
    let all_fields =
        program.reads_all_fields.then(|| FIELDS.map(|(_, part)| Spot { part, names: Vec::new() }.access()));
    Access::union(program.reads.iter().map(Spot::access).chain(all_fields.into_iter().flatten()))
}

/// Returns the parts that a program writes. A field of a value that is not a map replaces that value, so the first name
/// counts.
pub(crate) fn writes(program: &CheckedProgram) -> Access {
    Access::union(program.writes.iter().map(|write| write.spot.shortened(1).access()))
}
