//! Values in an unsuitable notation: Go's for maps, lists, times and bytes, base64 for raw data in JSON.

use std::ops::Range;

use anabranch_record::code::Code;
use anabranch_template::functions::conversion::{Notation, notation};
use anabranch_template::tree::{Literal, Operand, Pipeline};

use super::Walk;
use super::call::Call;
use super::classes::Classes;
use super::expression::{ValueProperties, bytes};
use super::suspect::verbs;
use crate::codes;

const CODE: Code = codes::FLOW_SUSPECT;

const BYTES: Classes = Classes::RAW.with(Classes::BYTES);

/// A text that a function creates from a value in Go's notation.
#[derive(Clone, Debug)]
pub(super) struct GoNotation {
    /// The classes of the value.
    classes: Classes,
    /// The place of the value.
    at: Range<usize>,
    /// The text of the value in corrections.
    value: String,
    /// True if the text consists of the value alone.
    whole: bool,
}

impl GoNotation {
    /// Returns `true` if the text consists of bytes as a list of numbers alone.
    pub(super) fn is_whole_bytes(&self) -> bool {
        self.whole && self.classes.within(BYTES)
    }
}

/// Describes the problem of a printed value, with the function that prints it as intended.
fn bad(classes: Classes) -> Option<(&'static str, &'static str)> {
    let there = classes.without(Classes::NIL);
    Some(match classes {
        _ if there.is_empty() => return None,
        classes if classes.within(BYTES) => ("bytes print as a list of numbers, for example [97 98]", "printf \"%s\""),
        Classes::POSITION => ("a position consists of bytes: a record fails here if they are not UTF-8", "toJson"),
        Classes::MAP => ("a map prints as map[name:value], which is not JSON", "toJson"),
        Classes::STRUCT => ("a record prints as a list of its parts, which is not JSON", "toJson"),
        _ if there == Classes::LIST => ("a list prints as [a b], which is not JSON", "toJson"),
        _ if there == Classes::TIME => (
            "a time prints as 2006-01-02 15:04:05 +0000 UTC, which few programs can read",
            "date \"2006-01-02T15:04:05Z07:00\"",
        ),
        _ => return None,
    })
}

/// Returns `true` if the function from [`bad`] is the only possible intention.
fn is_sure(classes: Classes) -> bool {
    !classes.overlaps(Classes::LIST | Classes::TIME)
}

impl Walk<'_> {
    /// Reports a value that prints in a notation that is probably not intended.
    pub(super) fn printed_value(&mut self, pipeline: &Pipeline, value: &ValueProperties) {
        if let ValueProperties::Way(way) = value
            && way.names.is_empty()
            && self.flow.record.side(way.side).is_absent()
        {
            let at = self.trimmed(pipeline);
            let message = format!("no record has {} here: it prints as <nil>", way.side.as_str());
            let place = self.at(at);
            return self.flow.warn(CODE, place, message, None, Some("print another part of the record".to_owned()));
        }
        if let ValueProperties::Shown(shown) = value {
            let Some((what, function)) = bad(shown.classes) else { return };
            let hint = format!("write {function} {}", shown.value);
            let place = self.at(shown.at.clone());
            return self.flow.warn(CODE, place, what, None, Some(hint));
        }
        let Some(classes) = self.usual_classes(value) else { return };
        let Some((what, function)) = bad(classes) else { return };
        let at = self.trimmed(pipeline);
        let text = self.text(&at).to_owned();
        let plain = pipeline.commands.len() == 1 && pipeline.commands.iter().all(|command| command.args.is_empty());
        let becomes = if plain { format!("{function} {text}") } else { format!("{text} | {function}") };
        let place = self.at(at.clone());
        let hint = match classes.overlaps(Classes::LIST) {
            true => format!("write {becomes}, or {text} | join \", \""),
            false => format!("write {becomes}"),
        };
        self.flow.warn(CODE, place, what, None, Some(hint));
        if is_sure(classes) {
            self.correct(at, becomes);
        }
    }

    /// Returns the place of a pipeline without trailing white space.
    fn trimmed(&self, pipeline: &Pipeline) -> Range<usize> {
        let start = pipeline.at.start as usize;
        let text = self.text(&(start..pipeline.at.end as usize));
        start..start + text.trim_end_matches(['-', ' ', '\n', '\t', '\r']).len()
    }

    /// Returns the text of an argument for corrections; a piped value is represented by a placeholder.
    fn named(&self, args: &[Operand], i: usize) -> String {
        args.get(i).map_or_else(|| "VALUE".to_owned(), |arg| self.text(&bytes(arg)).to_owned())
    }

    /// Returns the text that a function creates from its arguments, if one of them is in a notation that is probably
    /// not intended.
    pub(super) fn shown(&self, call: &Call<'_>) -> Option<GoNotation> {
        let Call { name, args, values, .. } = *call;
        let notation = notation(name).filter(|notation| *notation != Notation::Json)?;
        let format = match (name, values.first()) {
            ("printf", Some(ValueProperties::Literal(Literal::Text(format)))) => Some(verbs(format)?),
            ("printf", _) => return None,
            _ => None,
        };
        let first = usize::from(matches!(name, "printf" | "join"));
        values.iter().enumerate().skip(first).find_map(|(i, value)| {
            if let ValueProperties::Shown(shown) = value {
                return Some(GoNotation { whole: false, ..shown.clone() });
            }
            let classes = self.usual_classes(value).filter(|classes| bad(*classes).is_some())?;
            let is_bytes = classes.within(BYTES);
            let goes = match &format {
                Some(verbs) => match verbs.get(i - 1)? {
                    'v' => true,
                    's' => !is_bytes,
                    _ => false,
                },
                None if is_bytes => notation == Notation::Go,
                None => name != "join" || !classes.overlaps(Classes::LIST),
            };
            // A position prints as its text.
            if !goes || classes == Classes::POSITION {
                return None;
            }
            let whole = match (name, values) {
                ("print", [_]) => true,
                ("printf", [ValueProperties::Literal(Literal::Text(format)), _]) => format == "%v",
                _ => false,
            };
            let place = call.place(i);
            Some(GoNotation { classes, at: place, value: self.named(args, i), whole })
        })
    }

    /// Reports `toJson` of raw data.
    pub(super) fn raw_as_json(&mut self, call: &Call<'_>) {
        let Call { name, args, values, .. } = *call;
        if notation(name) != Some(Notation::Json) {
            return;
        }
        for (i, value) in values.iter().enumerate() {
            let raw = self.usual_classes(value).map(|classes| classes.without(Classes::NIL));
            if raw != Some(Classes::RAW) {
                continue;
            }
            let value = self.named(args, i);
            let message = format!("{name} writes raw data as base64");
            let hint = format!(
                "write printf \"%s\" {value} for its text, or {name} (printf \"%s\" {value}) for a text in quotes; to \
                 use its fields, decode it first, for example with json.decode"
            );
            let place = self.at(call.place(i));
            self.flow.warn(CODE, place, message, None, Some(hint));
        }
    }
}
