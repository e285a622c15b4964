//! Comparisons with the same result for every record, and calls that do not have the intended effect.

use std::ops::Range;

use anabranch_record::code::Code;
use anabranch_record::near::did_you_mean;
use anabranch_record::text::Str;
use anabranch_template::tree::{Literal, Operand, Term};

use super::Walk;
use super::call::Call;
use super::expression::{ValueProperties, bytes};
use super::order::reads_record;
use crate::codes;

pub(super) const CODE: Code = codes::FLOW_NEVER_TRUE;

/// The text of bytes in Go's notation, as known values name it: `[97 98]`.
const PRINTED_BYTES: &str = "[97 98]";

/// Words in the names of fields whose values contain slashes, such as paths.
const WITH_SLASHES: [&str; 17] = [
    "path", "url", "uri", "file", "folder", "dir", "key", "href", "link", "route", "endpoint", "refer", "location",
    "topic", "page", "request", "resource",
];

/// All kinds that `kindOf` names, including those that template values never have here.
const KINDS: [&str; 22] = [
    "string",
    "int64",
    "float64",
    "bool",
    "slice",
    "map",
    "invalid",
    "struct",
    "int",
    "uint64",
    "uint8",
    "ptr",
    "array",
    "int8",
    "int16",
    "int32",
    "uint",
    "uint16",
    "uint32",
    "float32",
    "func",
    "interface",
];

impl Walk<'_> {
    /// Checks a call whose result is constant or independent of its input.
    pub(super) fn never(&mut self, call: &Call<'_>) {
        let Call { name, args, values, .. } = *call;
        if name.trim_start_matches("must").to_ascii_lowercase().starts_with("regex")
            && name != "regexQuoteMeta"
            && let Some(ValueProperties::Literal(Literal::Text(pattern))) = values.first()
        {
            let searched = args.get(1).map(|arg| self.text(&bytes(arg)).to_lowercase()).unwrap_or_default();
            self.slashes(pattern, &searched, call.place(0));
        }
        self.impossible(call);
        match name {
            "eq" | "ne" => {
                self.same_twice(call);
                for value in values {
                    let function = match value {
                        ValueProperties::Made(function) => function,
                        ValueProperties::Shown(shown) if shown.is_whole_bytes() => PRINTED_BYTES,
                        _ => continue,
                    };
                    for (j, other) in values.iter().enumerate() {
                        if let ValueProperties::Literal(Literal::Text(text)) = other {
                            self.never_gives(function, text, call.place(j), name == "ne");
                        }
                    }
                }
            }
            "lt" | "le" | "gt" | "ge" => self.same_twice(call),
            "contains" | "hasPrefix" | "hasSuffix" => {
                if let [
                    ValueProperties::Literal(Literal::Text(text)),
                    ValueProperties::Made(function @ ("upper" | "lower")),
                ] = values
                {
                    self.never_gives(function, text, call.place(0), false);
                }
            }
            "kindIs" => {
                if let Some(ValueProperties::Literal(Literal::Text(text))) = values.first() {
                    self.never_gives("kindOf", text, call.place(0), false);
                }
            }
            "regexReplaceAll" | "mustRegexReplaceAll" => {
                if let [
                    ValueProperties::Literal(Literal::Text(pattern)),
                    _,
                    ValueProperties::Literal(Literal::Text(text)),
                ] = values
                {
                    self.group(pattern, text, call.place(2));
                }
            }
            _ => {}
        }
    }

    /// Reports a comparison of equal operands: `eq .x .x`.
    fn same_twice(&mut self, call: &Call<'_>) {
        let Call { name, args, at, .. } = *call;
        let [a, b] = args else { return };
        let text = self.text(&bytes(a));
        let random = ["now", "rand", "uuid", "shuffle"].iter().any(|name| text.contains(name));
        if text != self.text(&bytes(b)) || random || !reads_record(a) {
            return;
        }
        let verdict = matches!(name, "eq" | "le" | "ge");
        let message = format!("both sides are {text}: the comparison is {verdict} for every record");
        let place = self.at(at.clone());
        self.flow.warn(CODE, place, message, None, Some("compare it with another value".to_owned()));
    }

    /// Reports a text that a function never returns.
    fn never_gives(&mut self, function: &str, text: &Str, at: Range<usize>, not: bool) {
        let lower = |c: char| c.is_ascii_lowercase();
        let upper = |c: char| c.is_ascii_uppercase();
        let (why, meant, hint) = match function {
            "upper" if text.contains(lower) => {
                ("upper returns no lower-case letters".to_owned(), Some(text.to_ascii_uppercase()), None)
            }
            "lower" if text.contains(upper) => {
                ("lower returns no upper-case letters".to_owned(), Some(text.to_ascii_lowercase()), None)
            }
            "trim" if text.trim() != text.as_str() => {
                ("trim removes the white space at both ends".to_owned(), Some(text.trim().to_owned()), None)
            }
            "quote" if !text.is_empty() && !text.starts_with('"') => {
                ("quote returns a text in quotes".to_owned(), None, Some("compare the value itself, without quote"))
            }
            "squote" if !text.is_empty() && !text.starts_with('\'') => (
                "squote returns a text in single quotes".to_owned(),
                None,
                Some("compare the value itself, without squote"),
            ),
            "toJson" | "toRawJson" | "toPrettyJson" if serde_json::from_str::<serde_json::Value>(text).is_err() => {
                let why = format!("{function} puts quotes around a text, and this is not JSON");
                (why, None, Some("compare the value itself, without toJson"))
            }
            PRINTED_BYTES if !text.starts_with('[') => {
                let why = "bytes print as a list of numbers, for example [97 98]".to_owned();
                (why, None, Some("write printf \"%s\" for the text"))
            }
            "kindOf" if !KINDS.contains(&text.as_str()) => {
                let near = match text.as_str() {
                    "str" | "text" => Some("string"),
                    "number" | "double" | "float" => Some("float64"),
                    "integer" | "long" => Some("int64"),
                    "boolean" => Some("bool"),
                    "list" | "array" => Some("slice"),
                    "object" | "dict" => Some("map"),
                    "null" | "nil" | "none" => Some("invalid"),
                    other => did_you_mean(other, KINDS),
                };
                (format!("{:?} is not a kind", text.as_str()), near.map(str::to_owned), None)
            }
            _ => return,
        };
        let so = if not { "it is always another text" } else { "this is never true" };
        let hint = match (&meant, hint) {
            (Some(meant), _) => format!("write {meant:?}"),
            (None, Some(hint)) => hint.to_owned(),
            (None, None) => "the kinds are string, int64, float64, bool, slice, map, struct and invalid".to_owned(),
        };
        let place = self.at(at.clone());
        self.flow.warn(CODE, place, format!("{why}: {so}"), None, Some(hint));
        if let Some(meant) = meant {
            self.correct(at, format!("{meant:?}"));
        }
    }

    /// Reports a pattern between slashes, optionally with flags, in the syntax of other languages.
    fn slashes(&mut self, pattern: &Str, searched: &str, at: Range<usize>) {
        let flags = |text: &str| text.chars().all(|c| matches!(c, 'g' | 'i' | 'm' | 's' | 'u' | 'y' | 'x'));
        let inner = pattern.strip_prefix('/').and_then(|rest| rest.rsplit_once('/')).filter(|(_, end)| flags(end));
        let multiline = pattern.contains("(?") && pattern.contains('m');
        let has_slashes = WITH_SLASHES.iter().any(|word| searched.contains(word));
        let (body, end, sure) = match inner {
            // Slashes may be intended, as in a path, but not before `^` or after `$`.
            Some((body, end)) if body.starts_with('^') || body.ends_with('$') || end.len() > 1 => (body, end, true),
            Some((body, _)) if body.is_empty() || has_slashes || body.replace("\\/", "").contains(['/', '|']) => return,
            Some((body, end)) => (body, end, false),
            None => match pattern.rsplit_once('$') {
                Some((body, end)) if !end.is_empty() && flags(end) && !body.ends_with('\\') => {
                    (&pattern[..=body.len()], end, true)
                }
                _ => return,
            },
        };
        if sure && (multiline || body.contains(['[', '|']) && !body.starts_with('^')) {
            return;
        }
        let end: String = end.chars().filter(|c| matches!(c, 'i' | 'm' | 's')).collect();
        let meant = if end.is_empty() { body.to_owned() } else { format!("(?{end}){body}") };
        let (message, hint) = match sure {
            true => (
                "this never matches: a pattern has no slashes around it, and its flags come first",
                format!("write {meant:?}"),
            ),
            false => (
                "this matches only a text that contains these slashes: a pattern has no slashes around it",
                format!("write {meant:?}, or [/] to match a slash"),
            ),
        };
        let place = self.at(at.clone());
        self.flow.warn(CODE, place, message, None, Some(hint));
        if sure && self.text(&at) == format!("{:?}", pattern.as_str()) {
            self.correct(at, format!("{meant:?}"));
        }
    }

    /// Reports a replacement such as `$1_`, which refers to a group named `1_`.
    fn group(&mut self, pattern: &Str, text: &Str, at: Range<usize>) {
        for (start, _) in text.match_indices('$') {
            let name = &text[start + 1..];
            let len = name.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(name.len());
            let (name, digits) = (&name[..len], name.find(|c: char| !c.is_ascii_digit()).unwrap_or(len));
            let escaped = text[..start].chars().rev().take_while(|c| *c == '$').count() % 2 == 1;
            if escaped || digits == 0 || digits >= len || pattern.contains(&format!("<{name}>")) {
                continue;
            }
            let (number, more) = name.split_at(digits);
            let message =
                format!("${name} refers to a group with the name {name:?}, which is empty, and not to group {number}");
            // The pipeline file would substitute `${1}` too.
            let hint = format!("write $${{{number}}}{more}, which reaches the template as ${{{number}}}{more}");
            let place = self.at(at.clone());
            self.flow.warn(codes::FLOW_SUSPECT, place, message, None, Some(hint));
            return;
        }
    }

    /// Reports limits of one value that contradict each other, if they are too complex for the native predicate:
    /// `and (gt (float64 .x) 10.0) (lt (float64 .x) 5.0)`.
    pub(super) fn bounds(&mut self, args: &[Operand]) {
        let mut seen: Vec<(&str, f64, f64)> = Vec::new();
        for arg in args {
            let Some((text, low, high)) = self.bound(arg) else { continue };
            let known = match seen.iter_mut().find(|(other, ..)| *other == text) {
                Some(known) => known,
                None => {
                    seen.push((text, f64::NEG_INFINITY, f64::INFINITY));
                    let Some(last) = seen.last_mut() else { continue };
                    last
                }
            };
            known.1 = known.1.max(low);
            known.2 = known.2.min(high);
            if known.1 > known.2 {
                let message = format!("the parts contradict each other: {text} never satisfies both");
                let (Some(first), Some(last)) = (args.first(), args.last()) else { return };
                let place = self.at(bytes(first).start..bytes(last).end);
                let hint = "join them with `or`, or correct one of them".to_owned();
                return self.flow.warn(CODE, place, message, None, Some(hint));
            }
        }
    }

    /// Returns the limits that a comparison sets for a value, with the text of the value.
    fn bound(&self, arg: &Operand) -> Option<(&str, f64, f64)> {
        let Term::Pipeline(pipeline) = &arg.term else { return None };
        let [command] = &*pipeline.commands else { return None };
        let (Term::Function(function), [a, b]) = (&command.head.term, &*command.args) else { return None };
        let number = |operand: &Operand| match &operand.term {
            Term::Literal(Literal::Number(number)) => Some(number.float),
            _ => None,
        };
        let (of, number, turned) = match (number(a), number(b)) {
            (None, Some(number)) => (a, number, false),
            (Some(number), None) => (b, number, true),
            _ => return None,
        };
        let text = self.text(&bytes(of));
        if !reads_record(of) || ["now", "rand", "uuid", "shuffle"].iter().any(|name| text.contains(name)) {
            return None;
        }
        let (low, high) = match (function.name, turned) {
            ("eq", _) => (number, number),
            ("gt" | "ge", false) | ("lt" | "le", true) => (number, f64::INFINITY),
            ("lt" | "le", false) | ("gt" | "ge", true) => (f64::NEG_INFINITY, number),
            _ => return None,
        };
        Some((text, low, high))
    }
}
