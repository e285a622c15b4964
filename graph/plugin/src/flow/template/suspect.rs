//! Template code that works, but probably not as intended.

use anabranch_record::code::Code;
use anabranch_record::phrase::counted;
use anabranch_template::functions::conversion::numeric;
use anabranch_template::functions::invalid_pattern;
use anabranch_template::tree::Literal;

use super::Walk;
use super::call::Call;
use super::classes::Classes;
use super::expression::ValueProperties;
use crate::codes;
use crate::diagnostic::Severity;
use crate::flow::Form;

const CODE: Code = codes::FLOW_SUSPECT;

/// Maximum number of bytes of text that a template may build.
const MOST_BYTES: i64 = 256 << 20;

impl Walk<'_> {
    /// Returns the classes of a value in typical records.
    pub(super) fn usual_classes(&self, value: &ValueProperties) -> Option<Classes> {
        match value {
            ValueProperties::Way(way) if way.names.is_empty() => {
                Some(match self.flow.record.side(way.side).form()? {
                    Form::Raw => Classes::RAW,
                    Form::Structured => Classes::MAP,
                })
            }
            other => self.classes(other),
        }
    }

    /// Reports calls with a result that is probably not intended. `args` are those written after the function's name.
    pub(super) fn suspect(&mut self, call: &Call<'_>) {
        let Call { name, args, values, at, certain } = *call;
        if let Some(fractions) = numeric(name).and_then(|numeric| numeric.fractions) {
            let cut = values.iter().position(|value| match value {
                ValueProperties::Literal(Literal::Number(number)) => number.is_float && number.float.fract() != 0.0,
                value => self.classes(value) == Some(Classes::FLOAT),
            });
            if let Some(cut) = cut {
                let message =
                    format!("{name} works with whole numbers: the digits after the decimal point are cut off");
                let place = self.at(call.place(cut));
                self.flow.warn(CODE, place, message, None, Some(format!("write {fractions}")));
                let head = at.start..at.start + name.len();
                if self.text(&head) == name {
                    self.correct(head, fractions.to_owned());
                }
            }
        }
        self.layout(call);
        self.zone(call);
        self.length_of_time(call);
        match name {
            "repeat" if matches!(values.first(), Some(ValueProperties::Literal(Literal::Number(number))) if number.int > Some(MOST_BYTES)) =>
            {
                let message = "every record fails here: a template builds at most 256 MiB of text".to_owned();
                self.fails(
                    codes::FLOW_WRONG_ARGUMENT,
                    call.place(0),
                    message,
                    "write a smaller number".to_owned(),
                    certain,
                );
            }
            "div" | "mod" if matches!(values.last(), Some(ValueProperties::Literal(Literal::Number(number))) if number.int == Some(0)) =>
            {
                let message = format!("every record fails here: {name} by zero");
                self.fails(
                    codes::FLOW_WRONG_ARGUMENT,
                    at.clone(),
                    message,
                    "divide by another number".to_owned(),
                    certain,
                );
            }
            "date" | "dateInZone" | "date_in_zone" | "htmlDate" | "htmlDateInZone" | "ago" => {
                let i = usize::from(name.starts_with("date"));
                if values.get(i).is_some_and(|value| self.is_of_json(value)) {
                    let at = call.place(i);
                    let message =
                        format!("JSON has no times: {name} of a text returns the current time, whatever the text is");
                    let written = if i < args.len() { self.text(&at) } else { "VALUE" };
                    let hint = format!(
                        "write (toDate \"2006-01-02T15:04:05Z07:00\" {written}), with the layout of the text; for seconds \
                         since 1970, (int64 {written})"
                    );
                    let place = self.at(at);
                    return self.flow.warn(CODE, place, message, None, Some(hint));
                }
                if values.get(i).and_then(|value| self.classes(value)) == Some(Classes::TEXT) {
                    let message = format!("{name} of a text returns the current time, whatever the text is");
                    let hint = "parse the text first: (toDate \"2006-01-02\" …)".to_owned();
                    let place = self.at(call.place(i));
                    self.flow.warn(CODE, place, message, None, Some(hint));
                }
            }
            "printf" => self.format_fits(call),
            "concat" => {
                let text = values.iter().position(|value| self.classes(value) == Some(Classes::TEXT));
                if let Some(i) = text {
                    let message = "every record fails here: concat joins lists, not texts".to_owned();
                    let hint = "write print instead of concat".to_owned();
                    self.fails(codes::FLOW_WRONG_ARGUMENT, call.place(i), message, hint, certain);
                }
            }
            _ if name.trim_start_matches("must").to_ascii_lowercase().starts_with("regex")
                && name != "regexQuoteMeta" =>
            {
                let Some(ValueProperties::Literal(Literal::Text(pattern))) = values.first() else { return };
                let Some(why) = invalid_pattern(pattern) else { return };
                let hint = "correct the pattern; in double quotes, write a literal bracket as \\\\[".to_owned();
                match name {
                    "regexMatch" => {
                        let message = format!("this never matches: {why}");
                        let severity = if certain { Severity::Error } else { Severity::Warning };
                        let place = self.at(call.place(0));
                        self.flow.remark(severity, codes::FLOW_WRONG_ARGUMENT, place, message, None, Some(hint));
                    }
                    _ => self.fails(
                        codes::FLOW_WRONG_ARGUMENT,
                        call.place(0),
                        format!("every record fails here: {why}"),
                        hint,
                        certain,
                    ),
                }
            }
            _ => {}
        }
    }

    /// Checks whether a format has one verb per value, each suitable for its value.
    fn format_fits(&mut self, call: &Call<'_>) {
        let Call { values, .. } = *call;
        let Some((ValueProperties::Literal(Literal::Text(format)), values)) = values.split_first() else { return };
        let Some(verbs) = verbs(format) else { return };
        if verbs.len() != values.len() {
            let message = format!(
                "the format has {} for {}: the text then contains an error instead of a value",
                counted(verbs.len(), "verb"),
                counted(values.len(), "value")
            );
            let hint = "write one verb for each value, for example %v, and %% for a percent sign".to_owned();
            let place = self.at(call.place(0));
            return self.flow.warn(CODE, place, message, None, Some(hint));
        }
        let whole = Classes::INT | Classes::LONG | Classes::OPERATION;
        for (i, (verb, value)) in verbs.iter().zip(values).enumerate() {
            // A literal number has the type of its notation: `1` is an integer, `1.0` a float.
            let Some(classes) = self.classes(value) else { continue };
            let bad = match verb {
                'd' => Classes::TEXT | Classes::FLOAT | Classes::BOOL,
                'f' | 'F' | 'e' | 'E' | 'g' | 'G' => Classes::TEXT | Classes::BOOL | whole,
                's' => Classes::INT | Classes::LONG | Classes::FLOAT | Classes::BOOL,
                't' => Classes::TEXT | whole | Classes::FLOAT,
                _ => Classes::NONE,
            };
            if classes.is_empty() || !classes.within(bad) {
                continue;
            }
            let message = format!("%{verb} does not print {}: the text becomes %!{verb}(…)", classes.names());
            let place = self.at(call.place(i + 1));
            self.flow.warn(CODE, place, message, None, Some("write %v, which prints any value".to_owned()));
        }
    }
}

/// Returns the verbs of a format, each of which takes one value; `None` if arguments are numbered or widths are
/// arguments.
pub(super) fn verbs(format: &str) -> Option<Vec<char>> {
    let mut verbs = Vec::new();
    let mut rest = format.chars();
    while let Some(c) = rest.next() {
        if c != '%' {
            continue;
        }
        let verb = rest.by_ref().find(|c| !matches!(c, '+' | '-' | '#' | ' ' | '.' | '0'..='9'))?;
        match verb {
            '%' => {}
            '*' | '[' => return None,
            verb => verbs.push(verb),
        }
    }
    Some(verbs)
}
