//! Noting doubtful results, for a caller who asks for them.

use chrono::Datelike as _;

use super::Evaluator;
use crate::diagnostic::did_you_mean;
use crate::reference::push_part;
use crate::template::doubt::{DoubtKind, Doubts, Missed};
use crate::template::format;
use crate::template::functions::{CallError, Function, Param, invalid_pattern, is_number};
use crate::template::tree::{Operand, Pipeline, Place, Term};
use crate::template::val::{Map, Val};

/// Functions that take whole numbers, with those that take fractions.
const WHOLE: [(&str, &str); 9] = [
    ("add", "addf"),
    ("add1", "add1f"),
    ("sub", "subf"),
    ("mul", "mulf"),
    ("div", "divf"),
    ("max", "maxf"),
    ("biggest", "maxf"),
    ("min", "minf"),
    ("mod", "divf"),
];
/// Other functions that take any value for a number: with `true`, for a whole one.
const NUMBERS: [(&str, bool); 14] = [
    ("int", true),
    ("int64", true),
    ("atoi", true),
    ("float64", false),
    ("add1f", false),
    ("addf", false),
    ("subf", false),
    ("mulf", false),
    ("divf", false),
    ("maxf", false),
    ("minf", false),
    ("floor", false),
    ("ceil", false),
    ("round", false),
];
/// Functions whose verdict is explained by the values that they compare.
const COMPARE: [&str; 12] =
    ["eq", "ne", "lt", "le", "gt", "ge", "contains", "hasPrefix", "hasSuffix", "regexMatch", "mustRegexMatch", "has"];
const PRINTS: [&str; 4] = ["print", "println", "printf", "toString"];

impl<'a> Evaluator<'a> {
    /// Notes that a map does not have a name.
    #[cold]
    pub(super) fn missed(&mut self, map: &Map, name: &str, at: &Place) {
        const MOST: usize = 8;
        let written = self.written(at);
        let Some(doubts) = self.context.doubts() else { return };
        let entries = map.entries();
        let names: Vec<&str> = entries.iter().map(|(key, _)| key.as_str()).collect();
        let hint = match did_you_mean(name, names.iter().copied()) {
            Some(near) => {
                let end = format!(".{name}");
                let start = written.split_once(end.as_str()).map_or(written, |(start, _)| start);
                let mut meant = start.to_owned();
                push_part(near, &mut meant);
                match meant.ends_with(']') {
                    false => format!("did you mean {meant}?"),
                    true => format!("did you mean (index {} {near:?})?", if start.is_empty() { "." } else { start }),
                }
            }
            None if names.is_empty() => "there are no fields at all".to_owned(),
            None => {
                let more = if names.len() > MOST { ", …" } else { "" };
                let names = names.into_iter().take(MOST).collect::<Vec<_>>().join(", ");
                format!("there are: {names}{more}")
            }
        };
        doubts.missed = Some(Missed { at: at.clone(), hint });
    }

    /// Looks at a value before it is printed.
    #[cold]
    pub(super) fn printed(&mut self, pipeline: &'a Pipeline, val: &Val) {
        let at = self.trimmed(&pipeline.at);
        match val {
            Val::Missing | Val::Nil => self.nothing(&at, "it prints as `<no value>`"),
            Val::NoData => self.nothing(&at, "it prints as `<nil>`"),
            Val::Map(_) | Val::Record(_) | Val::Payload(_) => self.map(&at),
            Val::Bytes(_) | Val::Raw(_) => self.bytes(&at),
            _ => {}
        }
    }

    /// Calls a function, and looks at what it takes and gives.
    #[cold]
    pub(super) fn watched_call(
        &mut self,
        function: &'static Function,
        is_method: bool,
        values: &[Val],
        args: &'a [Operand],
        at: &Place,
    ) -> Result<Val, CallError> {
        self.context.take_time()?;
        let result = (function.call)(&mut self.context, values)?;
        if !is_method && self.context.doubts().is_some() {
            let place = |i: usize| args.get(i).map_or_else(|| at.clone(), |arg| arg.at.clone());
            self.numbers(function.name, values, &place);
            self.texts(function, values, &result, &place);
            self.times(function, values, &result, &place);
            if COMPARE.contains(&function.name) {
                self.compared(values, args);
            }
        }
        Ok(result)
    }

    /// Notes what is compared: the values of the record by name, and what they are compared with.
    fn compared(&mut self, values: &[Val], args: &'a [Operand]) {
        const MOST: usize = 60;
        let full = |doubts: &mut Doubts| doubts.compared.len() >= Doubts::MOST_COMPARED;
        if self.context.doubts().is_none_or(full) {
            return;
        }
        let (mut read, mut with) = (Vec::new(), Vec::new());
        for (i, val) in values.iter().enumerate() {
            let written = args.get(i).map(|arg| self.written(&arg.at));
            if args.get(i).is_some_and(|arg| matches!(arg.term, Term::Literal(_) | Term::Nil)) {
                with.push(written.unwrap_or_default().to_owned());
                continue;
            }
            let shown = match val {
                val if val.is_nil() => "not there".to_owned(),
                Val::Text(text) => {
                    let text = text.lossy();
                    let start: String = text.chars().take(MOST).collect();
                    let more = if start.len() < text.len() { "…" } else { "" };
                    format!("{start:?}{more}")
                }
                Val::Raw(_) | Val::Bytes(_) | Val::Position(_) => "bytes".to_owned(),
                Val::Map(_) => "a map".to_owned(),
                val => match format::to_text(val) {
                    Ok(text) => text.lossy().chars().take(MOST).collect(),
                    Err(_) => "a value".to_owned(),
                },
            };
            read.push(format!("{} is {shown}", written.unwrap_or("what is piped in")));
        }
        if read.is_empty() {
            return;
        }
        let mut text = read.join(" and ");
        if !with.is_empty() {
            text.push_str(", compared with ");
            text.push_str(&with.join(" and "));
        }
        if let Some(doubts) = self.context.doubts()
            && !doubts.compared.contains(&text)
        {
            doubts.compared.push(text);
        }
    }

    /// Arithmetic: what is not a number counts as 0, and whole numbers have no fraction.
    fn numbers(&mut self, name: &str, values: &[Val], place: &impl Fn(usize) -> Place) {
        let fractions = WHOLE.iter().find(|(whole, _)| *whole == name).map(|(_, fractions)| *fractions);
        let whole = NUMBERS.iter().find(|(other, _)| *other == name).map(|(_, whole)| *whole);
        let Some(whole) = whole.or(fractions.map(|_| true)) else { return };
        // What follows the number that is rounded says how.
        let count = if name == "round" { 1 } else { values.len() };
        for (i, val) in values.iter().take(count).enumerate() {
            let cut = match val {
                Val::Float(f) => f.fract() != 0.0,
                Val::Text(text) => {
                    let text = text.lossy();
                    if !is_number(&text, whole) {
                        let message = format!("{name} takes a text for 0 that is not a {}", number(whole));
                        self.doubt(&place(i), DoubtKind::NotANumber, message, "check the field, or test it with `if`");
                        continue;
                    }
                    is_number(&text, false) && text.parse::<f64>().is_ok_and(|f| f.fract() != 0.0)
                }
                val if val.is_nil() => {
                    self.nothing(&place(i), &format!("{name} takes it for 0"));
                    continue;
                }
                _ => false,
            };
            if let (true, Some(fractions)) = (cut, fractions) {
                let message = format!("{name} works with whole numbers: what is behind the point is cut off");
                self.doubt(&place(i), DoubtKind::Fraction, message, &format!("write {fractions}"));
            }
        }
    }

    /// Texts: what is written in place of a value.
    fn texts(&mut self, function: &Function, values: &[Val], result: &Val, place: &impl Fn(usize) -> Place) {
        let name = function.name;
        if let ("regexMatch", Some(Val::Text(pattern))) = (name, values.first()) {
            if let Some(why) = invalid_pattern(&pattern.lossy()) {
                let message = format!("regexMatch never matches: {}", why.rsplit(": ").next().unwrap_or(&why));
                self.doubt(&place(0), DoubtKind::Pattern, message, "write a regular expression that compiles");
            }
            return;
        }
        let Val::Text(output) = result else { return };
        let output = output.lossy();
        if matches!(name, "b64dec" | "b32dec") {
            if output.starts_with("illegal base") && output.contains(" data at input byte ") {
                let message = format!("the text is not base{}: {name} gives an error message for it", &name[1..3]);
                self.doubt(&place(0), DoubtKind::NotEncoded, message, "check which field is encoded, and how");
            }
            return;
        }
        let given = |what: &str| values.iter().any(|val| val.as_text().is_some_and(|text| text.lossy().contains(what)));
        let written = |what: &str| output.contains(what) && !given(what);
        if name == "printf" && output.contains("%!") && !given("%!") {
            let bad = output.split_once("%!").map_or("", |(_, bad)| bad);
            let bad = &bad[..bad.find(['=', ')']).unwrap_or(0)];
            let shown = if bad.contains('(') { format!("%!{bad}…)") } else { "%!…".to_owned() };
            let message = format!("printf writes `{shown}` in place of a value: the verb does not fit it");
            self.doubt(&place(0), DoubtKind::Format, message, "write %v, which prints any value");
        }
        let takes = |i: usize| function.params.get(i).copied().or(function.rest);
        for (i, val) in values.iter().enumerate() {
            match val {
                // Whether it printed is in the output; a value that is only looked at is not.
                val if val.is_nil() && takes(i) == Some(Param::Any) && (written("<nil>") || written("<no value>")) => {
                    self.nothing(&place(i), "it prints as `<nil>`");
                }
                Val::Map(_) if PRINTS.contains(&name) && written("map[") => self.map(&place(i)),
                Val::Bytes(_) | Val::Raw(_) if PRINTS.contains(&name) => {
                    let numbers = format::to_text(val).ok();
                    if numbers.is_some_and(|numbers| output.contains(&*numbers.lossy())) {
                        self.bytes(&place(i));
                    }
                }
                _ => {}
            }
        }
    }

    /// Times: what stands for now or for the year 1.
    fn times(&mut self, function: &Function, values: &[Val], result: &Val, place: &impl Fn(usize) -> Place) {
        let at = match function.name {
            "date" | "dateInZone" | "date_in_zone" => 1,
            "htmlDate" | "htmlDateInZone" | "ago" => 0,
            "toDate" if matches!(result, Val::Time(time) if time.at.year() == 1) => {
                let message = "the text is not in the layout: toDate gives the year 1".to_owned();
                return self.doubt(
                    &place(1),
                    DoubtKind::NotATime,
                    message,
                    "write the layout as Go writes it, \
                     as \"2006-01-02 15:04:05\"",
                );
            }
            _ => return,
        };
        let (name, Some(val)) = (function.name, values.get(at)) else { return };
        let what = match val {
            Val::Time(_) | Val::Int(_) | Val::Int64(_) => return,
            val if val.is_nil() => return self.nothing(&place(at), &format!("{name} takes it for now")),
            Val::Text(_) => "text",
            _ => "value that is not a time",
        };
        let hint = "read the text first, as (toDate \"2006-01-02\" …); a number is seconds since 1970, as (int64 …)";
        let message = format!("{name} of a {what} gives the time now");
        self.doubt(&place(at), DoubtKind::NotATime, message, hint);
    }

    fn nothing(&mut self, at: &Place, how: &str) {
        let message = format!("{} has no value: {how}", self.written(at));
        let Some(doubts) = self.context.doubts() else { return };
        let hint = match doubts.missed_in(at) {
            Some(hint) => hint.to_owned(),
            None => "test it with `if`, or give another value with `default`".to_owned(),
        };
        doubts.add(at, DoubtKind::NoValue, message, Some(hint));
    }

    fn map(&mut self, at: &Place) {
        let hint = format!("write toJson {}", self.written(at));
        self.doubt(at, DoubtKind::Map, "a map prints as map[name:value], which is no JSON".to_owned(), &hint);
    }

    fn bytes(&mut self, at: &Place) {
        let hint = format!("write printf \"%s\" {}", self.written(at));
        self.doubt(at, DoubtKind::Bytes, "bytes print as a list of numbers, as [97 98]".to_owned(), &hint);
    }

    fn doubt(&mut self, at: &Place, kind: DoubtKind, message: String, hint: &str) {
        if let Some(doubts) = self.context.doubts() {
            doubts.add(at, kind, message, Some(hint.to_owned()));
        }
    }

    /// The text of the template at a place.
    fn written(&self, at: &Place) -> &'a str {
        self.tree.source.get(at.start as usize..at.end as usize).unwrap_or_default()
    }

    /// A pipeline without the blanks behind it.
    fn trimmed(&self, at: &Place) -> Place {
        let text = self.written(at);
        at.start..at.end - (text.len() - text.trim_end_matches(['-', ' ', '\n', '\t', '\r']).len()) as u32
    }
}

const fn number(whole: bool) -> &'static str {
    if whole { "whole number" } else { "number" }
}
