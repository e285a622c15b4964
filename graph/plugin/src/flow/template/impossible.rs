//! Comparisons of a call with a value that the call never returns, given its known arguments.

use std::ops::Range;

use anabranch_record::text::Str;
use anabranch_template::tree::{Command, Literal, Operand, Term};

use super::Walk;
use super::call::Call;
use super::expression::{ValueProperties, bytes};
use super::never::CODE;
use super::order::reads_record;

/// Go kinds that no field of a record has, each with the intended one.
const OF_NO_FIELD: [(&str, &str); 9] = [
    ("int", "int64"),
    ("int8", "int64"),
    ("int16", "int64"),
    ("int32", "int64"),
    ("uint", "int64"),
    ("uint16", "int64"),
    ("uint32", "int64"),
    ("float32", "float64"),
    ("array", "slice"),
];

impl Walk<'_> {
    /// Reports a comparison if the call on one side never returns the value on the other side.
    pub(super) fn impossible(&mut self, whole: &Call<'_>) {
        let Call { name, args, values, at, .. } = *whole;
        match (name, args) {
            ("eq" | "ne", [first, others @ ..]) => {
                let found = others.iter().find_map(|other| {
                    let why = match (call(first), call(other)) {
                        (Some(call), None) => never(call, other),
                        (None, Some(call)) if others.len() == 1 => never(call, first),
                        _ => None,
                    };
                    why.map(|why| (why, if call(first).is_some() { bytes(other) } else { bytes(first) }))
                });
                if let Some((why, place)) = found {
                    self.told(&why, name == "ne", place);
                }
            }
            ("lt" | "le" | "gt" | "ge", [left, right]) => {
                let decided = match (call(left), call(right)) {
                    (Some(call), None) => bounded(call, name, right),
                    (None, Some(call)) => bounded(call, turned(name), left),
                    _ => None,
                };
                if let Some((why, verdict)) = decided {
                    self.told(&why, verdict, at.clone());
                }
            }
            ("contains", [text, of]) => {
                let gone = call(of).and_then(removed);
                if let (Some(gone), Some(text)) = (gone, literal(text))
                    && text.contains(gone)
                {
                    self.told(&format!("replace removes every {gone:?}"), false, at.clone());
                }
            }
            ("kindIs" | "typeIs", [word, _]) => {
                if let (Some(word), Some(ValueProperties::Way(way))) = (literal(word), values.get(1))
                    && !way.names.is_empty()
                    && let Some(kind) = of_no_field(word)
                {
                    self.told(&kind, false, bytes(&args[0]));
                }
            }
            _ => {}
        }
    }

    /// Reports opposite comparisons such as `or (eq .x "a") (ne .x "a")`.
    pub(super) fn opposites(&mut self, or: bool, args: &[Operand]) {
        let compared = |arg: &Operand, name: &str| {
            let command = call(arg).filter(|command| function(command) == Some(name))?;
            let [left, right] = &*command.args else { return None };
            let both = (self.text(&bytes(left)).to_owned(), self.text(&bytes(right)).to_owned());
            let changes =
                ["now", "rand", "uuid", "shuffle"].iter().any(|word| both.0.contains(word) || both.1.contains(word));
            (!changes && (reads_record(left) || reads_record(right))).then_some(both)
        };
        let equal: Vec<_> = args.iter().filter_map(|arg| compared(arg, "eq")).collect();
        let found = args.iter().filter_map(|arg| compared(arg, "ne")).any(|other| equal.contains(&other));
        if let (true, Some(first), Some(last)) = (found, args.first(), args.last()) {
            self.told("a value either equals another value or not", or, bytes(first).start..bytes(last).end);
        }
    }

    fn told(&mut self, why: &str, verdict: bool, at: Range<usize>) {
        let place = self.at(at);
        let message = format!("{why}: the comparison is {verdict} for every record");
        let hint = "compare it with a possible value, or remove the comparison".to_owned();
        self.flow.warn(CODE, place, message, None, Some(hint));
    }
}

/// Returns the call of an operand in parentheses whose arguments are all written after the function's name.
fn call(operand: &Operand) -> Option<&Command> {
    let Term::Pipeline(pipeline) = &operand.term else { return None };
    match &*pipeline.commands {
        [command] if function(command).is_some() && pipeline.variable.is_none() => Some(command),
        _ => None,
    }
}

fn function(command: &Command) -> Option<&'static str> {
    match &command.head.term {
        Term::Function(function) => Some(function.name),
        _ => None,
    }
}

fn literal(operand: &Operand) -> Option<&str> {
    match &operand.term {
        Term::Literal(Literal::Text(text)) => Some(text.as_str()),
        _ => None,
    }
}

fn number(operand: &Operand) -> Option<i64> {
    match &operand.term {
        Term::Literal(Literal::Number(number)) if !number.is_float => number.int,
        _ => None,
    }
}

/// Returns the reason why a call never returns a value.
fn never(command: &Command, value: &Operand) -> Option<String> {
    let name = function(command)?;
    let args = &*command.args;
    if let Some(value) = number(value) {
        return match (name, args) {
            ("mod", [_, by]) => {
                let by = number(by).filter(|by| *by != 0 && value.unsigned_abs() >= by.unsigned_abs())?;
                Some(format!("mod by {by} returns only values below {}", by.unsigned_abs()))
            }
            ("len", [_]) if value < 0 => Some("len returns 0 or more".to_owned()),
            _ => None,
        };
    }
    let text = literal(value)?;
    let characters = text.chars().count();
    let longer = |most: usize| (characters > most).then(|| format!("{name} returns at most {most} characters here"));
    match (name, args) {
        ("substr", [from, to, _]) => match (number(from)?, number(to)?) {
            (from, to) if from >= 0 && to >= from => longer(usize::try_from(to - from).ok()?),
            _ => None,
        },
        ("trunc", [most, _]) => longer(usize::try_from(number(most)?.unsigned_abs()).ok()?),
        ("printf", [format, _]) => printed(literal(format)?, text),
        ("title", [_]) if text.starts_with(|c: char| c.is_ascii_lowercase()) => {
            Some("title returns a text that starts with a capital letter".to_owned())
        }
        ("nospace", [_]) if text.contains(' ') => Some("nospace removes all spaces".to_owned()),
        ("replace", [..]) => {
            let gone = removed(command).filter(|gone| text.contains(gone))?;
            Some(format!("replace removes every {gone:?}"))
        }
        ("base", [_]) if text.contains('/') && text != "/" => Some("base returns a text without slashes".to_owned()),
        ("dir", [_]) if text.len() > 1 && text.ends_with('/') => {
            Some("dir returns a path without a slash at the end".to_owned())
        }
        ("ext", [_]) if !text.is_empty() && !text.starts_with('.') => {
            Some("ext returns a text that starts with a dot".to_owned())
        }
        ("sha1sum" | "sha256sum" | "sha512sum", [_]) => {
            let digits = match name {
                "sha1sum" => 40,
                "sha256sum" => 64,
                _ => 128,
            };
            let fits = characters == digits && text.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
            (!fits).then(|| format!("{name} returns {digits} hexadecimal digits in lower case"))
        }
        ("date", [layout, _]) => {
            let wide = match literal(layout)? {
                "2006" => 4,
                "01" | "02" | "15" | "03" | "04" | "05" | "06" => 2,
                _ => return None,
            };
            (characters != wide).then(|| format!("this layout produces {wide} digits"))
        }
        ("ternary", [yes, no, _]) => {
            let (yes, no) = (literal(yes)?, literal(no)?);
            (text != yes && text != no).then(|| format!("this returns {yes:?} or {no:?}"))
        }
        ("toString", [of]) if is_field(of, &["Operation"]) => {
            let is_one = ["create", "update", "delete", "snapshot"].contains(&text);
            // Unknown operations have a number in their name.
            (!is_one && text.chars().all(|c| c.is_ascii_alphabetic()))
                .then(|| "the operations are create, update, delete and snapshot".to_owned())
        }
        ("kindOf", [of]) if is_of_data(of) => of_no_field(text),
        ("index", [list, index]) if number(index).is_some() => {
            let command = call(list).filter(|command| function(command) == Some("splitList"))?;
            let between = command.args.first().and_then(literal)?;
            (!between.is_empty() && text.contains(between))
                .then(|| format!("no element of the result of splitList contains {between:?}"))
        }
        _ => None,
    }
}

/// Returns the reason why `printf` with a single verb never prints a number with this text.
fn printed(format: &str, text: &str) -> Option<String> {
    text.parse::<f64>().ok().filter(|number| number.is_finite())?;
    let verb = format.strip_prefix('%')?;
    if let Some(digits) = verb.strip_prefix('.').and_then(|rest| rest.strip_suffix('f')) {
        let digits: usize = digits.parse().ok()?;
        let written = text.split_once('.').map_or(0, |(_, behind)| behind.len());
        return (written != digits).then(|| format!("{format} prints {digits} digits after the decimal point"));
    }
    let wide: usize = verb.strip_prefix('0')?.strip_suffix('d')?.parse().ok()?;
    (text.len() < wide).then(|| format!("{format} prints at least {wide} digits"))
}

/// Returns the character that a call of `replace` removes completely.
fn removed(command: &Command) -> Option<&str> {
    if function(command) != Some("replace") {
        return None;
    }
    let [old, new, _] = &*command.args else { return None };
    let (old, new) = (literal(old)?, literal(new)?);
    (old.chars().count() == 1 && !new.contains(old)).then_some(old)
}

/// Returns the result of a comparison that the limits of a call's results decide, with the reason.
fn bounded(command: &Command, comparison: &str, value: &Operand) -> Option<(String, bool)> {
    let value = number(value)?;
    let literals = || command.args.iter().filter_map(number);
    let (least, most, why) = match function(command)? {
        "len" => (Some(0), None, "len returns 0 or more".to_owned()),
        "min" => {
            let most = literals().min()?;
            (None, Some(most), format!("min returns at most {most} here"))
        }
        "max" => {
            let least = literals().max()?;
            (Some(least), None, format!("max returns at least {least} here"))
        }
        _ => return None,
    };
    let above = |bound: i64| least.is_some_and(|least| least >= bound);
    let below = |bound: i64| most.is_some_and(|most| most <= bound);
    let verdict = match comparison {
        "lt" if above(value) => false,
        "lt" if value > i64::MIN && below(value - 1) => true,
        "ge" if above(value) => true,
        "ge" if value > i64::MIN && below(value - 1) => false,
        "gt" if below(value) => false,
        "gt" if value < i64::MAX && above(value + 1) => true,
        "le" if below(value) => true,
        "le" if value < i64::MAX && above(value + 1) => false,
        _ => return None,
    };
    Some((why, verdict))
}

/// Returns the comparison for exchanged sides.
fn turned(comparison: &str) -> &str {
    match comparison {
        "lt" => "gt",
        "gt" => "lt",
        "le" => "ge",
        "ge" => "le",
        other => other,
    }
}

fn of_no_field(kind: &str) -> Option<String> {
    let (kind, meant) = OF_NO_FIELD.iter().find(|(word, _)| *word == kind)?;
    Some(format!("no field has the kind {kind}, only {meant}"))
}

fn is_field(operand: &Operand, names: &[&str]) -> bool {
    matches!(&operand.term, Term::Field(fields) if fields.names.iter().map(Str::as_str).eq(names.iter().copied()))
}

/// Returns `true` if the operand is a field of the data, not the data itself or the result of a method.
fn is_of_data(operand: &Operand) -> bool {
    matches!(&operand.term, Term::Field(fields)
        if fields.part.is_some_and(|part| part != anabranch_template::tree::RecordPart::Metadata))
}
