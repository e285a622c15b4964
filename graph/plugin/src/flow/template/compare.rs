//! Analysis of comparisons.

use std::ops::Range;

use anabranch_template::tree::{Literal, Operand, Term};

use super::Walk;
use super::call::Call;
use super::classes::Classes;
use super::expression::{ValueProperties, bytes};
use crate::codes;
use crate::flow::{Kinds, ShapeOrigin, Texts};

/// Classes of literal numbers and of function results.
const NUMBERS: Classes = Classes::INT.with(Classes::FLOAT).with(Classes::LONG);

impl Walk<'_> {
    /// Reports a text that a metadata entry never has.
    fn entries(&mut self, call: &Call<'_>) {
        let Call { values, .. } = *call;
        let [a, b] = values else { return };
        for (entry, literal, i) in [(a, b, 1), (b, a, 0)] {
            let (ValueProperties::Entry { key, .. }, ValueProperties::Literal(Literal::Text(text))) = (entry, literal)
            else {
                continue;
            };
            // A missing entry is an empty text.
            let Texts::Listed { texts, hint } = self.flow.record.metadata.texts(key) else { continue };
            if text.is_empty() || texts.contains(text) {
                continue;
            }
            let message =
                format!("no record has the metadata {:?} with the text {:?} here", key.as_str(), text.as_str());
            let place = self.at(call.place(i));
            self.flow.warn(codes::FLOW_NEVER_TRUE, place, message, None, Some(hint.to_owned()));
        }
    }

    /// Checks whether the first argument is comparable with the others.
    pub(super) fn comparison(&mut self, call: &Call<'_>) {
        let Call { name, args, values, at, certain } = *call;
        let Some((first, others)) = values.split_first() else { return };
        if matches!(name, "eq" | "ne") {
            self.operations(name == "eq", call);
        }
        if name == "eq" && !self.branching {
            self.entries(call);
        }
        for (i, other) in others.iter().enumerate() {
            // The first equal argument ends the comparison.
            let certain = certain && i == 0;
            let (ours, theirs) = match (self.classes(first), self.classes(other)) {
                (Some(ours), Some(theirs)) => (ours, theirs),
                // A value that cannot be ordered at all.
                (Some(known), None) | (None, Some(known))
                    if !matches!(name, "eq" | "ne") && known != Classes::NIL && !known.may_order(Classes::ALL) =>
                {
                    (known, known)
                }
                _ => continue,
            };
            let fits = match name {
                "eq" | "ne" => ours.may_equal(theirs),
                _ => ours.may_order(theirs),
            };
            if ours.is_empty() || theirs.is_empty() {
                continue;
            }
            if fits {
                self.comparable_if_missing(name, [first, other], [args.first(), args.get(i + 1)], at);
                continue;
            }
            let sides = [(first, args.first(), ours, theirs), (other, args.get(i + 1), theirs, ours)];
            if let Some((_, side, ..)) = sides.iter().find(|(.., ours, _)| *ours == Classes::NIL) {
                self.nothing(name, side.map_or_else(|| at.clone(), bytes), certain);
            } else {
                self.incomparable(name, &sides, at, certain);
            }
        }
    }

    /// Reports a comparison of the order of durations, which functions return as texts: "9h0m0s" is above "24h0m0s".
    pub(super) fn durations_as_texts(&mut self, call: &Call<'_>) {
        let Call { name, values, at, .. } = *call;
        let duration = values.iter().find_map(|value| match value {
            ValueProperties::Made(function @ ("ago" | "duration" | "durationRound")) => Some(*function),
            _ => None,
        });
        let (Some(function), "lt" | "le" | "gt" | "ge") = (duration, name) else { return };
        if values.iter().any(|value| self.classes(value) != Some(Classes::TEXT)) {
            return;
        }
        let message = format!(
            "{function} returns a text, and {name} compares texts letter by letter: \"9h0m0s\" is greater than \"24h0m0s\""
        );
        let hint =
            "compare times: (toDate \"2006-01-02T15:04:05Z07:00\" …).Before (dateModify \"-24h\" now)".to_owned();
        let place = self.at(at.clone());
        self.flow.warn(codes::FLOW_SUSPECT, place, message, None, Some(hint));
    }

    /// Reports `eq` with a value that may be missing and otherwise has another kind: it succeeds only for records
    /// without the value.
    fn comparable_if_missing(
        &mut self,
        name: &str,
        of: [&ValueProperties; 2],
        args: [Option<&Operand>; 2],
        at: &Range<usize>,
    ) {
        // A key or a payload may be absent on purpose.
        if of.iter().any(|known| matches!(known, ValueProperties::Way(way) if way.names.is_empty())) {
            return;
        }
        let [Some(ours), Some(theirs)] = of.map(|known| self.classes(known)) else { return };
        let there = [ours.without(Classes::NIL), theirs.without(Classes::NIL)];
        let may_miss = ours.overlaps(Classes::NIL) != theirs.overlaps(Classes::NIL);
        if !may_miss || there.iter().any(|classes| classes.is_empty()) || there[0].may_equal(there[1]) {
            return;
        }
        let sides = [(of[0], args[0], there[0], there[1]), (of[1], args[1], there[1], there[0])];
        self.incomparable(name, &sides, at, false);
        self.flow.amend_last("on every record", "on every record that has the value");
    }

    /// Reports the comparison of a missing value, unless the missing value is reported already.
    fn nothing(&mut self, name: &str, at: Range<usize>, certain: bool) {
        let place = self.at(at.clone());
        if !self.flow.is_said_of(&place) {
            let message = format!("every record fails here: {name} needs two values, and one of them does not exist");
            let hint = "check the name, or test with `if` first".to_owned();
            self.fails(codes::FLOW_NEVER_COMPARABLE, at, message, hint, certain);
        } else if certain {
            self.flow.always(&place);
        }
    }

    fn incomparable(
        &mut self,
        name: &str,
        sides: &[(&ValueProperties, Option<&Operand>, Classes, Classes); 2],
        at: &Range<usize>,
        certain: bool,
    ) {
        let [(_, _, ours, _), (_, _, theirs, _)] = *sides;
        let message = match name {
            "eq" | "ne" => format!(
                "this comparison fails on every record: {} cannot be compared with {}",
                ours.names(),
                theirs.names()
            ),
            _ if ours == theirs => {
                format!("this comparison fails on every record: {} has no order", ours.names())
            }
            _ => {
                format!(
                    "this comparison fails on every record: {} cannot be ordered with {}",
                    ours.names(),
                    theirs.names()
                )
            }
        };
        let correction = sides.iter().find_map(|(known, operand, ours, theirs)| {
            let operand = (*operand)?;
            Some((bytes(operand), self.becomes(known, operand, *ours, *theirs)?))
        });
        // As texts, numbers would be compared character by character: "10" is less than "2".
        let has_order = !matches!(name, "eq" | "ne");
        let number = |known: &ValueProperties| matches!(known, ValueProperties::Literal(Literal::Number(_)));
        let text = sides.iter().find(|(.., ours, theirs)| *ours == Classes::TEXT && theirs.within(NUMBERS));
        let as_number = text.filter(|_| has_order && sides.iter().any(|(known, ..)| number(known)));
        let correction = correction.filter(|_| as_number.is_none());
        let of_float = |a: Classes, b: Classes| a == Classes::INT && b == Classes::FLOAT;
        let hint = match &correction {
            _ if as_number.is_some() => {
                let (function, kind) = match (ours | theirs).overlaps(Classes::FLOAT) {
                    true => ("float64", "float"),
                    false => ("int", "int"),
                };
                let operand = as_number.and_then(|(_, operand, ..)| *operand).map(|operand| {
                    let text = self.text(&bytes(operand));
                    format!("write ({function} {text})")
                });
                let operand = operand.unwrap_or_else(|| format!("convert the text with `{function}`"));
                format!("{operand}, or make the field a number with field.convert (type: {kind})")
            }
            Some((_, becomes)) if of_float(ours, theirs) || of_float(theirs, ours) => match becomes.contains('.') {
                true => format!("write the number with a decimal point: {becomes}"),
                false => format!("the other side is a whole number: write {becomes}"),
            },
            Some((_, becomes)) => format!("write {becomes}"),
            None if of_float(ours, theirs) || of_float(theirs, ours) => {
                let whole = sides.iter().find(|(.., ours, _)| *ours == Classes::INT);
                match whole.and_then(|(_, operand, ..)| *operand) {
                    Some(operand) => format!("convert both to a float: write (float64 {})", self.text(&bytes(operand))),
                    None => "convert both to a float with `float64`".to_owned(),
                }
            }
            None if (ours | theirs).overlaps(Classes::TIME) => {
                "compare the seconds of both: (unixEpoch …) for a time, (unixEpoch (toDate \"2006-01-02\" …)) for a \
                 text"
                    .to_owned()
            }
            None if (ours | theirs).overlaps(Classes::OPERATION) => {
                "write .Operation.String to compare its name".to_owned()
            }
            None if (ours | theirs).overlaps(Classes::TEXT) => {
                "compare values of the same type: write a text in quotes, a number or a boolean without quotes"
                    .to_owned()
            }
            None => "compare values of the same type".to_owned(),
        };
        let since = sides.iter().find_map(|(known, .., ours, _)| {
            let since = self.since(known)?;
            since.span().map(|_| (since, format!("{} since here", ours.names())))
        });
        let place = self.at(at.clone());
        match certain {
            true => self.flow.fail(codes::FLOW_NEVER_COMPARABLE, place, message, since, Some(hint)),
            false => self.flow.warn(codes::FLOW_NEVER_COMPARABLE, place, message, since, Some(hint)),
        }
        if let Some((at, becomes)) = correction {
            self.correct(at, becomes);
        }
    }

    /// Returns the replacement for one side that makes it comparable with the other, if it is unambiguous.
    fn becomes(&self, known: &ValueProperties, operand: &Operand, ours: Classes, theirs: Classes) -> Option<String> {
        let written = self.text(&bytes(operand));
        match known {
            ValueProperties::Literal(Literal::Text(text))
                if theirs.within(Classes::LONG | Classes::FLOAT | Classes::INT) =>
            {
                let number = text.trim();
                let whole = number.parse::<i64>().is_ok();
                if !whole && number.parse::<f64>().ok().is_none_or(|number| !number.is_finite()) {
                    return None;
                }
                let point = whole && theirs == Classes::FLOAT;
                Some(if point { format!("{number}.0") } else { number.to_owned() })
            }
            ValueProperties::Literal(Literal::Text(text)) if theirs == Classes::BOOL => {
                matches!(text.as_str(), "true" | "false").then(|| text.to_string())
            }
            // A character in single quotes is a number.
            ValueProperties::Literal(Literal::Number(_) | Literal::Bool(_)) if theirs == Classes::TEXT => {
                let plain = written.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')).unwrap_or(written);
                Some(format!("\"{plain}\""))
            }
            ValueProperties::Literal(Literal::Number(_)) if theirs == Classes::FLOAT && ours == Classes::INT => {
                written.parse::<i64>().is_ok().then(|| format!("{written}.0"))
            }
            // A length, or a result of `int`.
            ValueProperties::Literal(Literal::Number(number)) if theirs == Classes::INT && ours == Classes::FLOAT => {
                let whole = number.float.fract() == 0.0 && number.float.abs() < 1e15;
                whole.then(|| format!("{:.0}", number.float))
            }
            ValueProperties::Operation if theirs == Classes::TEXT => Some(format!("{written}.String")),
            ValueProperties::Way(_) | ValueProperties::Position
                if theirs == Classes::TEXT
                    && ours.within(Classes::RAW | Classes::BYTES | Classes::POSITION)
                    && matches!(operand.term, Term::Field(_) | Term::Variable { .. }) =>
            {
                Some(format!("(printf \"%s\" {written})"))
            }
            _ => None,
        }
    }

    fn since(&self, known: &ValueProperties) -> Option<ShapeOrigin> {
        let ValueProperties::Way(way) = known else { return None };
        if way.names.is_empty() {
            return Some(self.flow.record.since(way.side));
        }
        let outcome = way.walk(&self.flow.record);
        (outcome.ty.kinds != Kinds::NONE).then_some(outcome.ty.since)
    }
}
