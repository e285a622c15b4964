//! Findings about values that a record cannot hold at the place where the program stores them.

use anabranch_plugin::flow::{Flow, RecordShape};
use anabranch_record::Operation;
use anabranch_record::near::did_you_mean;
use anabranch_record::reference::Side;
use vrl::value::Kind;

use super::{Findings, TypesAfter, kind_at};
use crate::codes;
use crate::kinds;
use crate::program::PayloadForm;
use crate::source::ProgramFlaw;
use crate::spot::{Spot, TargetPart};

/// Returns the remedy for a value that is no operation.
fn operations() -> String {
    format!("set it to one of {}", Operation::ALL.map(|operation| format!("{:?}", operation.as_str())).join(", "))
}

/// A value that no record can hold at its place.
pub(super) struct UnfitValue {
    flaw: ProgramFlaw,
    /// True if every record with a payload of this form fails.
    certain: bool,
}

impl Findings<'_> {
    /// Returns the values that no record can hold, after a program for payloads of one form.
    pub(super) fn unfit_values(&self, types: &TypesAfter) -> Vec<UnfitValue> {
        let mut found = self.unfit_operations();
        for spot in self.program.writes.iter().map(|write| &write.spot) {
            if self.may_differ(spot) {
                continue;
            }
            let kind = kind_at(types, spot);
            let unfit = match spot.part {
                TargetPart::Data(side) if spot.names.is_empty() => unfit_data(side, &kind),
                TargetPart::Metadata => unfit_metadata(spot, &kind),
                TargetPart::Operation if !kind.contains_bytes() => Some((
                    format!("%operation becomes a value of type {}, and it can only be an operation", named(&kind)),
                    operations(),
                    true,
                )),
                _ => None,
            };
            let Some((message, hint, all)) = unfit else { continue };
            let write = self.program.facts.writes.iter().find(|write| Spot::of(&write.path).as_ref() == Ok(spot));
            let certain = all && write.is_some_and(|write| !self.program.is_guarded(&write.place));
            let place = write.map(|write| write.place.clone());
            let flaw = ProgramFlaw { code: codes::VRL_MISTAKE, place, ..ProgramFlaw::at(0..0, message, Some(hint)) };
            found.push(UnfitValue { flaw, certain });
        }
        found
    }

    /// Returns the literal strings that are no operations.
    fn unfit_operations(&self) -> Vec<UnfitValue> {
        let writes = || {
            let writes = self.program.facts.writes.iter();
            writes.filter(|write| Spot::of(&write.path).is_ok_and(|spot| spot.part == TargetPart::Operation))
        };
        let is_only = writes().count() == 1;
        let strings = writes().flat_map(|write| &write.strings);
        let unfit = strings.filter(|(text, _)| text.parse::<Operation>().is_err()).map(|(text, place)| {
            let hint = match did_you_mean(text, Operation::ALL.map(Operation::as_str)) {
                Some(near) => format!("did you mean {near:?}?"),
                None => operations(),
            };
            let message = format!("%operation becomes {text:?}, which is not an operation");
            let flaw = ProgramFlaw { code: codes::VRL_MISTAKE, ..ProgramFlaw::at(place.clone(), message, Some(hint)) };
            UnfitValue { flaw, certain: is_only && !self.program.is_guarded(place) }
        });
        unfit.collect()
    }

    /// Reports values that no record can hold, found for each form of payloads: as an error if all forms have them.
    pub(super) fn report_unfit(&self, flow: &mut Flow, found: &[Vec<UnfitValue>]) {
        let mut reported: Vec<&ProgramFlaw> = Vec::new();
        for UnfitValue { flaw, .. } in found.iter().flatten() {
            if reported.contains(&flaw) {
                continue;
            }
            reported.push(flaw);
            let fails = found.iter().all(|of_form| of_form.iter().any(|other| other.certain && other.flaw == *flaw));
            self.report(flow, fails, flaw, None);
        }
    }

    /// Reports fields of the key or of the payload before the change that are set although that data is not structured.
    pub(super) fn report_misplaced(&self, flow: &mut Flow, before: &RecordShape) {
        for side in [Side::Key, Side::Before] {
            let shape = before.side(side);
            if shape.structured.is_some() {
                continue;
            }
            let writes = || {
                let of_side = |spot: Spot| (spot.part == TargetPart::Data(side)).then_some(spot);
                let writes = self.program.facts.writes.iter();
                writes.filter_map(move |write| Some((of_side(Spot::of(&write.path).ok()?)?, write)))
            };
            let replaced = writes().filter(|(spot, _)| spot.names.is_empty()).map(|(_, write)| write.place.start).min();
            let misplaced = writes().find(|(spot, write)| {
                let is_certain = !write.removed && !self.program.is_guarded(&write.place);
                is_certain && !spot.names.is_empty() && replaced.is_none_or(|replaced| write.place.start < replaced)
            });
            let Some((spot, write)) = misplaced else { continue };
            let form = if shape.raw { PayloadForm::Raw } else { PayloadForm::Absent };
            let whole = spot.shortened(0).path();
            let message =
                format!("every record fails here: {whole} is {}, so it has no field {}", form.text(), write.path);
            let hint = match form {
                PayloadForm::Raw => format!("decode it first: {whole} = parse_json!({whole})"),
                _ => format!("set it as a whole: {whole} = {{ … }}"),
            };
            let flaw = ProgramFlaw::at(write.place.clone(), message, Some(hint));
            let flaw = ProgramFlaw { code: codes::VRL_MISTAKE, ..flaw };
            self.report(flow, true, &flaw, Some((shape.since, form)));
        }
    }
}

/// Returns the message and remedy if a value is not data, and whether no value of its type is.
fn unfit_data(side: Side, kind: &Kind) -> Option<(String, String, bool)> {
    let hint = || "put the value into a field: . = { \"value\": … }".to_owned();
    let elements = kind.as_array().filter(|_| side == Side::After);
    let Some(elements) = elements else {
        let message = || {
            format!(
                "{} becomes a value of type {}, and it can only be an object, a string or null",
                side.as_str(),
                named(kind)
            )
        };
        return kinds::shape_of(kind).is_none().then(|| (message(), hint(), true));
    };
    // Each element becomes a record. A list of unknown elements may be empty.
    let is_list = kind.is_array();
    let known = elements.known().values().find(|kind| !kind.contains_undefined() && kinds::shape_of(kind).is_none());
    let (element, all) = match known {
        Some(element) => (element.clone(), is_list),
        None => (elements.reduced_kind().without_undefined(), false),
    };
    if !is_list || element.is_never() || kinds::shape_of(&element).is_some() {
        return None;
    }
    let message = format!(
        "each element of the array becomes a record, whose {} is a value of type {}; it can only be an object, a string or \
         null",
        side.as_str(),
        named(&element)
    );
    Some((message, hint(), all))
}

/// Returns the message and remedy if a value is not metadata, or an entry is not a text.
fn unfit_metadata(spot: &Spot, kind: &Kind) -> Option<(String, String, bool)> {
    let is_unfit = |kind: &Kind| {
        let fits = kind.contains_bytes()
            || kind.contains_integer()
            || kind.contains_float()
            || kind.contains_boolean()
            || kind.contains_timestamp()
            || kind.contains_null()
            || kind.contains_undefined();
        !fits && !kind.is_never()
    };
    let of_entry = |name: &str, kind: &Kind| {
        (
            format!("the metadata {name:?} becomes a value of type {}, and it can only be a text", named(kind)),
            "convert it, for example with encode_json".to_owned(),
            true,
        )
    };
    if let Some(name) = spot.names.first() {
        return is_unfit(kind).then(|| of_entry(name, kind));
    }
    match kind.as_object() {
        None => Some((
            format!("%metadata becomes a value of type {}, and it can only be an object of strings", named(kind)),
            "set it to an object; {} removes all entries".to_owned(),
            true,
        )),
        Some(fields) if kind.is_object() => {
            let unfit = fields.known().iter().find(|(_, kind)| is_unfit(kind));
            unfit.map(|(name, kind)| of_entry(name.as_str(), kind))
        }
        Some(_) => None,
    }
}

/// Returns the name of a type, without the types of elements and fields.
fn named(kind: &Kind) -> String {
    match () {
        () if kind.is_array() => "array".to_owned(),
        () if kind.is_object() => "object".to_owned(),
        () => kind.to_string(),
    }
}
