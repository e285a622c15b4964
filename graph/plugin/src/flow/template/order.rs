//! Arguments in the order of other languages: the data before the text to search for.

use anabranch_record::code::Code;
use anabranch_template::tree::{Literal, Operand, Pipeline, Term};

use super::Walk;
use super::call::Call;
use super::expression::{ValueProperties, bytes};
use crate::codes;

const CODE: Code = codes::FLOW_REVERSED;

/// Functions, with the index of the argument for the data, and the form of a call.
const DATA: [(&str, usize, &str); 21] = [
    ("contains", 1, "contains PART TEXT"),
    ("hasPrefix", 1, "hasPrefix START TEXT"),
    ("hasSuffix", 1, "hasSuffix END TEXT"),
    ("regexMatch", 1, "regexMatch PATTERN TEXT"),
    ("mustRegexMatch", 1, "mustRegexMatch PATTERN TEXT"),
    ("regexFind", 1, "regexFind PATTERN TEXT"),
    ("mustRegexFind", 1, "mustRegexFind PATTERN TEXT"),
    ("trimPrefix", 1, "trimPrefix START TEXT"),
    ("trimSuffix", 1, "trimSuffix END TEXT"),
    ("trimAll", 1, "trimAll CHARACTERS TEXT"),
    ("split", 1, "split SEPARATOR TEXT"),
    ("splitList", 1, "splitList SEPARATOR TEXT"),
    ("join", 1, "join SEPARATOR LIST"),
    ("has", 1, "has VALUE LIST"),
    ("default", 1, "default OTHER VALUE"),
    ("toDate", 1, "toDate LAYOUT TEXT"),
    ("date", 1, "date LAYOUT TIME"),
    ("replace", 2, "replace OLD NEW TEXT"),
    ("regexReplaceAll", 1, "regexReplaceAll PATTERN TEXT REPLACEMENT"),
    ("mustRegexReplaceAll", 1, "mustRegexReplaceAll PATTERN TEXT REPLACEMENT"),
    ("regexReplaceAllLiteral", 1, "regexReplaceAllLiteral PATTERN TEXT REPLACEMENT"),
];

impl Walk<'_> {
    /// Reports a call with exchanged arguments: a literal in the place of the data. Returns `true` if it is one.
    pub(super) fn reversed(&mut self, call: &Call<'_>) -> bool {
        let Call { name, args, values, at, certain } = *call;
        if name == "has" && self.has_of_list(call) {
            return true;
        }
        let Some((_, data, form)) = DATA.iter().find(|(function, ..)| *function == name) else { return false };
        let is_text = |value: &ValueProperties| matches!(value, ValueProperties::Literal(Literal::Text(_)));
        let Some(ValueProperties::Literal(Literal::Text(literal))) = values.get(*data) else { return false };
        // A test whether a word is in a list of words.
        if name == "contains" && literal.contains([',', ';', '|', ' ', '/']) {
            return false;
        }
        let mut others = (0..values.len()).filter(|i| !is_text(&values[*i]));
        let (Some(read), None) = (others.next(), others.next()) else { return false };
        let piped = args.len() < values.len();
        let written = match args.get(read) {
            Some(arg) if reads_record(arg) => self.text(&bytes(arg)).to_owned(),
            Some(_) => return false,
            None => "VALUE".to_owned(),
        };
        let literals = args.iter().enumerate().filter(|(i, _)| *i != read);
        let mut meant: Vec<String> = literals.map(|(_, arg)| self.text(&bytes(arg)).to_owned()).collect();
        if *data > meant.len() {
            return false;
        }
        meant.insert(*data, written.clone());
        let meant = meant.join(" ");
        let what = match read < args.len() {
            true => written,
            false => "the piped value".to_owned(),
        };
        let hint = format!("write {name} {meant}: the order is {form}");
        match name {
            "has" => {
                let message = format!(
                    "every record fails here: has looks for {what} in the text {:?}, which is not a list",
                    &**literal
                );
                self.fails(codes::FLOW_WRONG_ARGUMENT, at.clone(), message, hint, certain);
            }
            "default" => {
                let message = match literal.is_empty() {
                    true => {
                        format!("this always returns {what}: the value that may be empty must be the last argument")
                    }
                    false => {
                        format!(
                            "this returns {:?} for every record: the value that may be empty must be the last argument",
                            &**literal
                        )
                    }
                };
                let place = self.at(at.clone());
                self.flow.warn(CODE, place, message, None, Some(hint));
            }
            _ => {
                let message = format!(
                    "the arguments are in the wrong order: {name} processes the text {:?} here, not {what}",
                    &**literal
                );
                let place = self.at(at.clone());
                self.flow.warn(CODE, place, message, None, Some(hint));
            }
        }
        if let (false, Some(first), Some(last)) = (piped, args.first(), args.last()) {
            self.correct(bytes(first).start..bytes(last).end, meant);
        }
        true
    }

    /// Reports `has (list "DE" "FR") .Payload.After.country`: a list of constants in the place of the value.
    fn has_of_list(&mut self, call: &Call<'_>) -> bool {
        let Call { args, values, at, .. } = *call;
        let [listed, others @ ..] = args else { return false };
        let Term::Pipeline(pipeline) = &listed.term else { return false };
        let [command] = &*pipeline.commands else { return false };
        let is_list =
            matches!(&command.head.term, Term::Function(function) if matches!(function.name, "list" | "tuple"));
        let is_constant = command.args.iter().all(|arg| matches!(arg.term, Term::Literal(_)));
        let [_, ValueProperties::Way(_) | ValueProperties::Entry { .. }] = values else { return false };
        if !is_list || !is_constant {
            return false;
        }
        let list = self.text(&bytes(listed)).to_owned();
        let value = others.first().map_or("VALUE", |other| self.text(&bytes(other))).to_owned();
        let message = format!("has looks for the list {list} in {value}: the list must be the last argument");
        let place = self.at(at.clone());
        self.flow.warn(
            CODE,
            place,
            message,
            None,
            Some(format!("write has {value} {list}: the order is has VALUE LIST")),
        );
        if let Some(last) = others.last() {
            self.correct(bytes(listed).start..bytes(last).end, format!("{value} {list}"));
        }
        true
    }

    /// Reports `.Payload.After.amount | gt 10.0`, which tests whether 10 is greater, and `.Payload.After.amount | divf
    /// 100.0`, which computes 100 divided by the amount.
    pub(super) fn piped_order(&mut self, call: &Call<'_>) {
        let Call { name, args, values, at, .. } = *call;
        let ([literal], [ValueProperties::Literal(Literal::Number(number)), piped]) = (args, values) else { return };
        let says = match name {
            "gt" => "tests whether {} is greater than",
            "ge" => "tests whether {} is greater than, or equal to,",
            "lt" => "tests whether {} is less than",
            "le" => "tests whether {} is less than, or equal to,",
            "mod" => "computes the remainder of {} divided by",
            // 1 divided by a value may be intended, as may 100 minus a value.
            "div" | "divf" if number.float != 1.0 => "computes {} divided by",
            "sub" | "subf" if number.float == 1.0 => "computes {} minus",
            _ => return,
        };
        if matches!(piped, ValueProperties::Literal(_)) {
            return;
        }
        let before = self.tree.source.get(..at.start).unwrap_or_default().trim_end();
        let before = before.strip_suffix('|').unwrap_or(before).trim_end();
        let start =
            before.rfind(|c: char| c.is_whitespace() || matches!(c, '(' | ')' | '{' | '|')).map_or(0, |i| i + 1);
        let value = before.get(start..).filter(|value| value.starts_with(['.', '$'])).unwrap_or("VALUE").to_owned();
        let number = self.text(&bytes(literal)).to_owned();
        let says = says.replacen("{}", &number, 1);
        let message = format!("this {says} {value}: the piped value is the last argument");
        let place = self.at(at.clone());
        self.flow.warn(CODE, place, message, None, Some(format!("write {name} {value} {number} for the other order")));
    }
}

/// Returns `true` if a value depends on the record, judged by the syntax of the template.
pub(super) fn reads_record(operand: &Operand) -> bool {
    fn of(pipeline: &Pipeline) -> bool {
        pipeline.commands.iter().any(|command| reads_record(&command.head) || command.args.iter().any(reads_record))
    }
    match &operand.term {
        Term::Dot | Term::Field(_) | Term::Variable { .. } => true,
        Term::Nil | Term::Literal(_) | Term::Function(_) => false,
        Term::Pipeline(pipeline) => of(pipeline),
        Term::Chain { base, .. } => reads_record(base),
    }
}
