//! Paths from the record to a field or metadata entry.

use std::ops::Range;

use anabranch_record::metadata::own_key;
use anabranch_record::reference::{Reference, Side, push_part};
use anabranch_record::text::Str;
use anabranch_template::tree::{Operand, Term};
use anabranch_template::{entry_of_method, is_method_of_data, is_method_of_metadata, slips};

use super::Walk;
use super::classes::Classes;
use super::expression::{ValueProperties, bytes};
use crate::codes;
use crate::flow::RecordShape;
use crate::flow::walk::{Access, Resolution, walk};

/// A path from a side of the record to a field; without names, to the data.
#[derive(Clone, Debug)]
pub(super) struct ReadPath {
    pub(super) side: Side,
    pub(super) names: Vec<Str>,
    pub(super) accesses: Vec<Access>,
    /// True if the value was assigned or passed on, and may have been null.
    pub(super) settled: bool,
}

impl ReadPath {
    /// Resolves the path in a record shape; it must have names.
    pub(super) fn walk(&self, record: &RecordShape) -> Resolution {
        let names: Vec<&Str> = self.names.iter().collect();
        walk(record.side(self.side), self.side, &names, &self.accesses)
    }

    fn add(&mut self, name: &Str, access: Access) {
        self.names.push(name.clone());
        self.accesses.push(access);
    }
}

impl Walk<'_> {
    /// Resolves names in a value.
    pub(super) fn extend(
        &mut self,
        base: ValueProperties,
        names: &[Str],
        operand: &Operand,
        certain: bool,
    ) -> ValueProperties {
        let mut known = base;
        let mut rest = names;
        let at = bytes(operand);
        while let Some((name, after)) = rest.split_first() {
            known = match known {
                ValueProperties::Record => match name.as_str() {
                    "Position" => ValueProperties::Position,
                    "Operation" => ValueProperties::Operation,
                    "Metadata" => ValueProperties::Metadata,
                    "Key" => ValueProperties::Way(ReadPath::of(Side::Key)),
                    "Payload" => ValueProperties::Payload,
                    "Bytes" => ValueProperties::Of(Classes::BYTES),
                    _ => return self.no_part(&[], rest, operand, certain),
                },
                ValueProperties::Payload => match name.as_str() {
                    "Before" => ValueProperties::Way(ReadPath::of(Side::Before)),
                    "After" => ValueProperties::Way(ReadPath::of(Side::After)),
                    _ => return self.no_part(&["Payload"], rest, operand, certain),
                },
                ValueProperties::Operation if name == "String" => ValueProperties::OperationName,
                ValueProperties::Position if name == "String" => ValueProperties::Of(Classes::TEXT),
                ValueProperties::Position => return self.no_part(&["Position"], rest, operand, certain),
                ValueProperties::Operation => return self.no_part(&["Operation"], rest, operand, certain),
                ValueProperties::Metadata if is_method_of_metadata(name) => {
                    self.no_entry(name, at, certain);
                    return ValueProperties::Anything;
                }
                ValueProperties::Metadata if after.is_empty() => {
                    let key = own_key(name).unwrap_or_else(|| name.clone());
                    return self.judged(ValueProperties::Entry { key, indexed: false }, at, certain);
                }
                ValueProperties::Metadata => return self.one_level(rest, operand, certain),
                ValueProperties::Way(way) if way.settled => return ValueProperties::Anything,
                ValueProperties::Way(mut way) => {
                    let access = if self.strict { Access::Strict } else { Access::Chain };
                    if way.names.is_empty() && is_method_of_data(name) {
                        return ValueProperties::Anything;
                    }
                    rest.iter().for_each(|name| way.add(name, access));
                    return self.judged(ValueProperties::Way(way), at, certain);
                }
                base => {
                    self.no_fields(&base, name, at, certain);
                    return ValueProperties::Anything;
                }
            };
            rest = after;
        }
        known
    }

    /// Returns the result of `index` for a value and a literal text.
    pub(super) fn indexed(&self, known: ValueProperties, key: &Str) -> ValueProperties {
        match known {
            ValueProperties::Metadata => {
                ValueProperties::Entry { key: own_key(key).unwrap_or_else(|| key.clone()), indexed: true }
            }
            ValueProperties::Way(way) if way.settled => ValueProperties::Anything,
            ValueProperties::Way(mut way) => {
                way.add(key, Access::Index);
                ValueProperties::Way(way)
            }
            _ => ValueProperties::Anything,
        }
    }

    /// Reports `.Payload.After.x` inside `with` or `range`, where `.` is not the record. Returns `true` if it is one.
    pub(super) fn of_record(&mut self, names: &[Str], operand: &Operand) -> bool {
        let [payload, side, ..] = names else { return false };
        if payload != "Payload" || !matches!(side.as_str(), "After" | "Before") {
            return false;
        }
        let at = bytes(operand);
        let written = format!("${}", self.text(&at));
        let message = "inside `with` and `range`, `.` is their value, not the record".to_owned();
        let place = self.at(at.clone());
        self.flow.warn(codes::FLOW_SUSPECT, place, message, None, Some(format!("write {written}")));
        self.correct(at, written);
        true
    }

    /// Reports problems of the path to a field or entry, and returns the value.
    pub(super) fn judged(&mut self, known: ValueProperties, at: Range<usize>, certain: bool) -> ValueProperties {
        let place = self.at(at.clone());
        match known {
            ValueProperties::Entry { key, indexed } => {
                if self.strict && certain && !indexed && !self.flow.record.metadata.may_have(&key) {
                    let message = format!("every record fails here: no record has the metadata {:?}", key.as_str());
                    self.flow.fail(
                        codes::FLOW_NO_METADATA,
                        place,
                        message,
                        None,
                        Some("set it in an earlier processor".to_owned()),
                    );
                } else {
                    self.flow.entry(&place, &key);
                }
                ValueProperties::Entry { key, indexed }
            }
            ValueProperties::Way(way) if !way.names.is_empty() => {
                let outcome = way.walk(&self.flow.record);
                self.flow.judge(&place, &outcome, certain);
                if certain {
                    let names: Vec<&Str> = way.names.iter().collect();
                    self.flow.judge_usual(&place, &outcome, way.side, &names, &way.accesses);
                }
                if outcome.ty.kinds == crate::flow::Kinds::NONE
                    && let Some(lacking) = &outcome.lacking
                    && let Some((from, to)) = lacking.slip()
                {
                    self.correct_name(&at, &from, &to);
                }
                self.used_way(&way, &at, certain);
                if outcome.always_fails() { ValueProperties::Anything } else { ValueProperties::Way(way) }
            }
            known => known,
        }
    }

    /// Reports a method that reads metadata which no record has.
    fn no_entry(&mut self, method: &str, at: Range<usize>, certain: bool) {
        let Some(key) = entry_of_method(method).filter(|key| !self.flow.record.metadata.may_have(key)) else { return };
        let message = format!("every record fails here: no record has the metadata {:?}", key.as_str());
        let hint = format!("set it in an earlier processor, or write (index .Metadata {:?})", key.as_str());
        self.fails(codes::FLOW_NO_METADATA, at, message, hint, certain);
    }

    /// Corrects a name if it occurs exactly once.
    fn correct_name(&mut self, at: &Range<usize>, from: &str, to: &str) {
        let text = self.text(at);
        let mut places = text.match_indices(from);
        if let (Some((start, _)), None) = (places.next(), places.next()) {
            let start = at.start + start;
            self.correct(start..start + from.len(), to.to_owned());
        }
    }

    /// Reports a part that records do not have.
    fn no_part(&mut self, parents: &[&str], names: &[Str], operand: &Operand, certain: bool) -> ValueProperties {
        let at = bytes(operand);
        let mut written = String::new();
        parents.iter().copied().chain(names.iter().map(Str::as_str)).for_each(|name| push_part(name, &mut written));
        let parsed = Reference::parse(&written);
        let name = names[0].as_str();
        let message = match parents {
            ["Payload"] => format!("every record fails here: a payload has no {name:?}, only Before and After"),
            [part] => format!("every record fails here: .{part} has no parts"),
            _ => format!(
                "every record fails here: a record has no {name:?}, only Position, Operation, Metadata, Key and Payload"
            ),
        };
        let after = &self.flow.record.after;
        let is_field = after.structured.as_ref().is_some_and(|fields| fields.iter().any(|(field, _)| *field == *name));
        let in_record = slips::path_in_record(&written);
        // The intended reference, and whether it is unambiguous.
        let (meant, sure) = match &parsed {
            _ if matches!(parents, ["Position" | "Operation"]) => (None, false),
            Err(_) if parents.is_empty() && names.len() > 1 && in_record.is_some() => (in_record, false),
            // Lower-case names of the record's parts.
            Ok(reference) => (Some(reference.as_str().to_owned()), true),
            Err(error) => {
                let hinted = error.hint().and_then(|hint| hint.strip_prefix("did you mean ")?.strip_suffix('?'));
                let side = matches!(name, "After" | "Before" | "after" | "before");
                (hinted.map(str::to_owned), error.meant().is_some() || side || is_field)
            }
        };
        let starts_at_record = match &operand.term {
            Term::Field(_) => parents.is_empty() || self.text(&at).starts_with(&format!(".{}", parents[0])),
            Term::Variable { slot: 0, .. } => true,
            _ => false,
        };
        let plain = meant.filter(|meant| !meant.contains('['));
        let hint = match &plain {
            Some(meant) => format!("did you mean {meant}?"),
            None if parents == ["Operation"] => "write .Operation.String for its name".to_owned(),
            None => "write a field of the data as .Payload.After.name".to_owned(),
        };
        self.fails(codes::FLOW_NO_PART, at.clone(), message, hint, certain);
        if let Some(meant) = plain.filter(|_| sure && starts_at_record) {
            let dollar = if self.text(&at).starts_with('$') { "$" } else { "" };
            self.correct(at, format!("{dollar}{meant}"));
        }
        ValueProperties::Anything
    }

    /// Reports nested names in metadata, which has one level.
    fn one_level(&mut self, names: &[Str], operand: &Operand, certain: bool) -> ValueProperties {
        let at = bytes(operand);
        let joined: Str = names.iter().map(Str::as_str).collect::<Vec<_>>().join(".").into();
        let key = own_key(&joined).unwrap_or(joined);
        let becomes = format!("(index .Metadata {:?})", key.as_str());
        let message = "metadata has one level: this never returns a value".to_owned();
        let hint = format!("write {becomes}");
        let place = self.at(at.clone());
        match self.strict && certain {
            true => self.flow.fail(codes::FLOW_NO_METADATA, place, message, None, Some(hint)),
            false => self.flow.warn(codes::FLOW_NO_METADATA, place, message, None, Some(hint)),
        }
        if matches!(&operand.term, Term::Field(_)) && self.text(&at).starts_with(".Metadata.") {
            self.correct(at, becomes);
        }
        ValueProperties::Of(Classes::NIL)
    }
}
