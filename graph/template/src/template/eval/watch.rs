//! Collection of doubtful results, if the caller requests it.

use std::borrow::Cow;

use anabranch_record::near::did_you_mean;
use anabranch_record::reference::push_part;
use chrono::Datelike as _;

use super::Evaluator;
use crate::template::doubt::{DoubtKind, Doubts, MissingName};
use crate::template::format;
use crate::template::functions;
use crate::template::functions::conversion::{
    Notation, Numeric, gives_element, holds_raw_text, joined, notation, numeric, stands_for_number,
};
use crate::template::functions::{CallError, Function, Param, invalid_pattern};
use crate::template::tree::{Offsets, Operand, Pipeline, Term};
use crate::template::val::{List, Map, Val};

/// Functions whose result is explained by the values that they compare.
const COMPARE: [&str; 12] =
    ["eq", "ne", "lt", "le", "gt", "ge", "contains", "hasPrefix", "hasSuffix", "regexMatch", "mustRegexMatch", "has"];
/// Maximum depth of the search for raw data in values that a template creates.
const MOST_LEVELS: usize = 8;
/// Maximum number of elements of a joined list that are checked.
const MOST_JOINED: usize = 100;

impl<'a> Evaluator<'a> {
    /// Records that a name is missing in a map.
    #[cold]
    pub(super) fn missed(&mut self, map: &Map, name: &str, at: &Offsets) {
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
            None if names.is_empty() => "there are no fields".to_owned(),
            None => {
                let more = if names.len() > MOST { ", …" } else { "" };
                let names = names.into_iter().take(MOST).collect::<Vec<_>>().join(", ");
                format!("the names are: {names}{more}")
            }
        };
        doubts.missed = Some(MissingName { at: at.clone(), hint });
    }

    /// Checks a value before it is printed.
    #[cold]
    pub(super) fn printed(&mut self, pipeline: &'a Pipeline, val: &Val) {
        let at = self.trimmed(&pipeline.at);
        match val {
            Val::Missing | Val::Nil => self.nothing(&at, "it prints as `<no value>`"),
            Val::NoData => self.nothing(&at, "it prints as `<nil>`"),
            Val::Map(_) | Val::Record(_) | Val::Payload(_) => self.map(&at),
            Val::Bytes(_) | Val::Raw(_) => self.bytes(&at),
            Val::List(list) => self.list(list, &at, None),
            Val::Time(_) => self.time(&at, None),
            _ => {}
        }
    }

    /// Calls a function and checks its arguments and result.
    #[cold]
    pub(super) fn watched_call(
        &mut self,
        function: &'static Function,
        is_method: bool,
        values: &[Val],
        args: &'a [Operand],
        at: &Offsets,
    ) -> Result<Val, CallError> {
        self.context.take_time()?;
        let result = (function.call)(&mut self.context, values)?;
        if !is_method && self.context.doubts().is_some() {
            let place = |i: usize| args.get(i).map_or_else(|| at.clone(), |arg| arg.at.clone());
            self.numbers(function.name, values, &place);
            self.texts(function, values, &result, &place);
            self.times(function, values, &result, &place);
            if let (true, Val::Byte(_), Some(of)) = (gives_element(function.name), &result, values.first()) {
                self.byte(function.name, of, &place(0));
            }
            if COMPARE.contains(&function.name) {
                self.compared(values, args);
            }
        }
        Ok(result)
    }

    /// Describes a comparison: the names and values of record fields, and the values they are compared with.
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
            read.push(format!("{} is {shown}", written.unwrap_or("the piped value")));
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

    /// Checks arithmetic: a value that is not a number counts as 0, and integer functions drop fractions.
    fn numbers(&mut self, name: &str, values: &[Val], place: &impl Fn(usize) -> Offsets) {
        let Some(Numeric { whole, fractions, from, to }) = numeric(name) else { return };
        for (i, val) in values.iter().enumerate().take(to).skip(from) {
            if val.is_nil() {
                self.nothing(&place(i), &format!("{name} treats it as 0"));
                continue;
            }
            if !stands_for_number(name, val) {
                let at = place(i);
                let number = if whole { "whole number" } else { "number" };
                let (message, hint) = match val {
                    Val::Text(_) => (
                        format!("{name} treats a text that is not a {number} as 0"),
                        "check the field, or test it with `if`".to_owned(),
                    ),
                    _ => (format!("{name} treats {} as 0", val.in_words()), self.number_of(val, name, &at)),
                };
                self.doubt(&at, DoubtKind::NotANumber, message, &hint);
                continue;
            }
            let cut = match val {
                Val::Float(f) => f.fract() != 0.0,
                Val::Text(text) => text.lossy().parse::<f64>().is_ok_and(|f| f.fract() != 0.0),
                _ => false,
            };
            if let (true, Some(fractions)) = (cut, fractions) {
                let message =
                    format!("{name} works with whole numbers: the digits after the decimal point are cut off");
                self.doubt(&place(i), DoubtKind::Fraction, message, &format!("write {fractions}"));
            }
        }
    }

    /// Returns a hint how to get a number from a value.
    fn number_of(&self, val: &Val, name: &str, at: &Offsets) -> String {
        let written = self.named(at);
        match val {
            Val::Raw(_) | Val::Bytes(_) => format!("write (printf \"%s\" {written}) for its text"),
            Val::Time(_) => format!("write (int64 (unixEpoch {written})), the seconds since 1970"),
            Val::List(_) => format!("write (len {written}) for the number of its elements, or name one of them"),
            Val::Map(_) | Val::Record(_) | Val::Payload(_) => "name one of its fields".to_owned(),
            Val::Int(_) | Val::Uint64(_) | Val::Byte(_) | Val::Float(_) if name.starts_with("duration") => {
                format!("write (int64 {written})")
            }
            _ => "check the field, or test it with `if`".to_owned(),
        }
    }

    /// Checks text functions for the text that they write for a value.
    fn texts(&mut self, function: &Function, values: &[Val], result: &Val, place: &impl Fn(usize) -> Offsets) {
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
                let message = format!("the text is not base{}: {name} returns an error message for it", &name[1..3]);
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
            let message = format!("printf writes `{shown}` instead of a value: the verb does not fit the value");
            self.doubt(&place(0), DoubtKind::Format, message, "write %v, which prints any value");
        }
        let takes = |i: usize| function.params.get(i).copied().or(function.rest);
        for (i, val) in values.iter().enumerate() {
            match val {
                // The output shows whether the value was printed; a value that is only tested is not.
                val if val.is_nil() && takes(i) == Some(Param::Any) && (written("<nil>") || written("<no value>")) => {
                    self.nothing(&place(i), "it prints as `<nil>`");
                }
                _ => self.notation(function, val, &output, &place(i)),
            }
        }
        for val in joined(name, values).iter().flat_map(List::iter).take(MOST_JOINED) {
            self.notation(function, &val, &output, &place(values.len() - 1));
        }
    }

    /// Checks for values that a function writes in a notation that is probably not intended.
    fn notation(&mut self, function: &Function, val: &Val, output: &str, at: &Offsets) {
        let Some(notation) = notation(function.name) else { return };
        if notation == Notation::Json {
            if holds_raw_text(val, MOST_LEVELS) {
                let message = format!("{} writes raw data as base64", function.name);
                let hint = format!("write printf \"%s\" {} for its text, or decode it first", self.named(at));
                self.doubt(at, DoubtKind::Base64, message, &hint);
            }
            return;
        }
        match val {
            Val::Bytes(bytes) | Val::Raw(bytes) if bytes.is_empty() || notation == Notation::Text => return,
            // Its elements are numbers, joined with the separator.
            Val::Bytes(_) | Val::Raw(_) if function.name == "join" => return self.bytes(at),
            Val::Bytes(_)
            | Val::Raw(_)
            | Val::Map(_)
            | Val::Record(_)
            | Val::Payload(_)
            | Val::List(_)
            | Val::Time(_) => {}
            _ => return,
        }
        let Ok(mut shown) = format::to_text(val) else { return };
        // These functions escape this notation too.
        if matches!(function.name, "html" | "js" | "urlquery" | "quote")
            && let Ok(Val::Text(escaped)) = (function.call)(&mut self.context, &[Val::Text(shown.clone())])
        {
            shown = escaped;
        }
        let shown = shown.lossy();
        let shown = shown.trim_matches('"');
        if !output.contains(shown) {
            return;
        }
        match val {
            Val::List(list) => self.list(list, at, Some(shown.to_owned())),
            Val::Time(_) => self.time(at, Some(shown.to_owned())),
            Val::Bytes(_) | Val::Raw(_) => self.bytes(at),
            _ => self.map(at),
        }
    }

    /// Checks time functions for values that stand for the current time or for the year 1.
    fn times(&mut self, function: &Function, values: &[Val], result: &Val, place: &impl Fn(usize) -> Offsets) {
        let at = match function.name {
            "date" | "dateInZone" | "date_in_zone" => 1,
            "htmlDate" | "htmlDateInZone" | "ago" => 0,
            "toDate" if matches!(result, Val::Time(time) if time.at.year() == 1) => {
                let message = "the text does not have the layout: toDate returns the year 1".to_owned();
                return self.doubt(
                    &place(1),
                    DoubtKind::NotATime,
                    message,
                    "write the layout in Go's notation, for example \"2006-01-02 15:04:05\"",
                );
            }
            _ => return,
        };
        let (name, Some(val)) = (function.name, values.get(at)) else { return };
        let what = match val {
            Val::Time(_) | Val::Int(_) | Val::Int64(_) => return,
            val if val.is_nil() => return self.nothing(&place(at), &format!("{name} treats it as the current time")),
            Val::Text(_) => "text",
            _ => "value that is not a time",
        };
        let hint = "parse the text first: (toDate \"2006-01-02\" …); for seconds since 1970, write (int64 …)";
        let message = format!("{name} of a {what} returns the current time");
        self.doubt(&place(at), DoubtKind::NotATime, message, hint);
    }

    fn nothing(&mut self, at: &Offsets, how: &str) {
        let message = format!("{} has no value: {how}", self.written(at));
        let Some(doubts) = self.context.doubts() else { return };
        let hint = match doubts.missed_in(at) {
            Some(hint) => hint.to_owned(),
            None => "test it with `if`, or set another value with `default`".to_owned(),
        };
        doubts.add(at, DoubtKind::NoValue, message, Some(hint));
    }

    fn map(&mut self, at: &Offsets) {
        let hint = format!("write toJson {}", self.named(at));
        self.doubt(at, DoubtKind::Map, "a map prints as map[name:value], which is not JSON".to_owned(), &hint);
    }

    fn bytes(&mut self, at: &Offsets) {
        let hint = format!("write printf \"%s\" {}", self.named(at));
        self.doubt(at, DoubtKind::Bytes, "bytes print as a list of numbers, for example [97 98]".to_owned(), &hint);
    }

    fn list(&mut self, list: &List, at: &Offsets, text: Option<String>) {
        let written = self.named(at);
        let plain = !list.iter().take(MOST_JOINED).any(|val| matches!(val, Val::Map(_) | Val::List(_) | Val::Time(_)));
        let hint = match plain {
            true => format!("write toJson {written}, or join \", \" {written}"),
            false => format!("write toJson {written}"),
        };
        let message = "a list prints as [a b], which is not JSON".to_owned();
        self.doubt_if_printed(at, DoubtKind::List, message, hint, text);
    }

    fn time(&mut self, at: &Offsets, text: Option<String>) {
        let hint = format!("write date \"2006-01-02T15:04:05Z07:00\" {}", self.named(at));
        let message = "a time prints as 2006-01-02 15:04:05 +0000 UTC, which few programs can read".to_owned();
        self.doubt_if_printed(at, DoubtKind::Time, message, hint, text);
    }

    /// Reports the access to an element of a value that is not a list. For bytes in a field, numbers are expected.
    fn byte(&mut self, name: &str, of: &Val, at: &Offsets) {
        let written = self.named(at);
        let (what, hint) = match of {
            Val::Bytes(_) => return,
            Val::Text(_) => {
                ("a text", format!("write {written} for the whole text, or substr 0 1 {written} for its first letter"))
            }
            Val::List(_) | Val::Map(_) => ("a text", "check which of the values is a list".to_owned()),
            _ => ("raw data", format!("write printf \"%s\" {written} for the text")),
        };
        let message = format!("{name} of {what} returns the number of a byte, for example 97");
        self.doubt(at, DoubtKind::Byte, message, &hint);
    }

    fn doubt_if_printed(&mut self, at: &Offsets, kind: DoubtKind, message: String, hint: String, text: Option<String>) {
        let Some(doubts) = self.context.doubts() else { return };
        match text {
            Some(text) => doubts.add_if_printed(at, kind, message, Some(hint), text),
            None => doubts.add(at, kind, message, Some(hint)),
        }
    }

    fn doubt(&mut self, at: &Offsets, kind: DoubtKind, message: String, hint: &str) {
        if let Some(doubts) = self.context.doubts() {
            doubts.add(at, kind, message, Some(hint.to_owned()));
        }
    }

    /// Returns the text of the template at a place.
    fn written(&self, at: &Offsets) -> &'a str {
        self.tree.source.get(at.start as usize..at.end as usize).unwrap_or_default()
    }

    /// Returns the text at a place as an argument for suggestions. A value that is piped into a function has no text of
    /// its own, so a placeholder stands for it.
    fn named(&self, at: &Offsets) -> Cow<'a, str> {
        let written = self.written(at);
        if functions::find(written).is_some_and(|function| !function.params.is_empty() || function.rest.is_some()) {
            return "VALUE".into();
        }
        let is_one = written.starts_with(['(', '"', '`']) || !written.contains(char::is_whitespace);
        if is_one { written.into() } else { format!("({written})").into() }
    }

    /// Returns the place of a pipeline without trailing white space and trim marker.
    fn trimmed(&self, at: &Offsets) -> Offsets {
        let text = self.written(at);
        at.start..at.end - (text.len() - text.trim_end_matches(['-', ' ', '\n', '\t', '\r']).len()) as u32
    }
}
