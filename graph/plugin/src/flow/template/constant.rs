//! Comparisons with a value that an earlier processor sets to a constant: the result is known.

use std::ops::Range;

use anabranch_template::tree::{Literal, Operand};

use super::Walk;
use super::call::Call;
use super::classes::Classes;
use super::expression::{ValueProperties, bytes};
use super::never::CODE;
use super::results::result;
use crate::flow::{Kinds, Texts};

/// Functions that convert a text to a number.
const TO_NUMBER: [&str; 3] = ["int", "int64", "atoi"];

impl Walk<'_> {
    /// Returns the known properties of a function's result. A number that is parsed from an ordinal has its limits.
    pub(super) fn result_of(&self, name: &'static str, values: &[ValueProperties]) -> ValueProperties {
        if let [of @ ValueProperties::Entry { .. }] = values
            && TO_NUMBER.contains(&name)
            && let Some((Texts::UpTo(most), _)) = self.texts(of)
        {
            return ValueProperties::UpTo(most, if name == "int64" { Classes::LONG } else { Classes::INT });
        }
        result(name)
    }

    /// Checks a comparison of a value that has few possible texts.
    pub(super) fn constants(&mut self, call: &Call<'_>) {
        let Call { name, args, values, at, .. } = *call;
        let [left, right] = values else { return };
        if self.flow.substituted {
            return;
        }
        match (left, right) {
            (ValueProperties::UpTo(most, _), ValueProperties::Literal(Literal::Number(number))) if !number.is_float => {
                self.ordinal(name, *most, number.int, args, at);
            }
            (value, ValueProperties::Literal(Literal::Text(text))) => {
                self.constant(name, value, text, args.first(), at);
            }
            (ValueProperties::Literal(Literal::Text(text)), value) => self.constant(name, value, text, args.get(1), at),
            _ => {}
        }
    }

    /// Returns the possible texts of a value, and whether it is always present and a text.
    fn texts(&self, value: &ValueProperties) -> Option<(Texts, bool)> {
        let (texts, sure) = match value {
            ValueProperties::Entry { key, .. } => {
                (self.flow.record.metadata.texts(key), self.flow.record.metadata.has(key))
            }
            ValueProperties::Way(way) if !way.names.is_empty() => {
                let outcome = way.walk(&self.flow.record);
                let is_text = outcome.ty.kinds == Kinds::TEXT && !outcome.missing && outcome.blocked.is_none();
                if !outcome.ty.kinds.overlaps(Kinds::TEXT) {
                    return None;
                }
                (outcome.ty.texts, is_text)
            }
            _ => return None,
        };
        (texts != Texts::Any).then_some((texts, sure))
    }

    fn constant(
        &mut self,
        name: &str,
        value: &ValueProperties,
        text: &str,
        operand: Option<&Operand>,
        at: &Range<usize>,
    ) {
        let Some((texts, sure)) = self.texts(value) else { return };
        // A missing value is an empty text.
        if text.is_empty() && !sure {
            return;
        }
        // A branch for records of other pipelines is harmless.
        let is_ordinal = matches!(texts, Texts::UpTo(_));
        if self.branching && !is_ordinal {
            return;
        }
        let verdict = match name {
            "eq" | "ne" if !texts.may_be(text) => name == "ne",
            "eq" | "ne" if sure && texts.is_only(text) => name == "eq",
            _ => return,
        };
        let Some(words) = texts.words() else { return };
        let what = operand.map_or_else(|| "the value".to_owned(), |operand| self.text(&bytes(operand)).to_owned());
        self.decided(verdict, &format!("{what} is {words} here"), at);
    }

    /// Checks a comparison of a number from 0 to `most` with another number.
    fn ordinal(&mut self, name: &str, most: u64, number: Option<i64>, args: &[Operand], at: &Range<usize>) {
        let Some(number) = number.map(i128::from) else { return };
        let (least, most) = (0_i128, i128::from(most));
        let verdict = match name {
            "eq" if number < least || number > most => false,
            "ne" if number < least || number > most => true,
            "lt" if most < number => true,
            "lt" if least >= number => false,
            "le" if most <= number => true,
            "le" if least > number => false,
            "gt" if least > number => true,
            "gt" if most <= number => false,
            "ge" if least >= number => true,
            "ge" if most < number => false,
            _ => return,
        };
        let what = args.first().map_or_else(|| "the value".to_owned(), |arg| self.text(&bytes(arg)).to_owned());
        let bound = if most == i128::from(u64::MAX) { "0 or more".to_owned() } else { format!("0 to {most}") };
        self.decided(verdict, &format!("{what} is {bound} here"), at);
    }

    fn decided(&mut self, verdict: bool, why: &str, at: &Range<usize>) {
        let message = format!("{why}: the comparison is {verdict} for every record");
        let hint = "compare it with a possible value, or remove the comparison".to_owned();
        let place = self.at(at.clone());
        self.flow.warn(CODE, place, message, None, Some(hint));
    }
}
