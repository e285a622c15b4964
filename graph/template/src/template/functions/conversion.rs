//! Implicit conversions of function arguments, which are probably not intended. All checks use this table.

use super::cast::{is_number, plain_integer};
use crate::template::format;
use crate::template::val::{List, Map, Val};

/// Properties of a function that converts values of any type to numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numeric {
    /// True for integer functions.
    pub whole: bool,
    /// The corresponding function for fractions, if there is one.
    pub fractions: Option<&'static str>,
    /// Index of the first argument that is converted.
    pub from: usize,
    /// Index after the last argument that is converted.
    pub to: usize,
}

const WHOLE: Numeric = Numeric { whole: true, fractions: None, from: 0, to: usize::MAX };
const FLOAT: Numeric = Numeric { whole: false, ..WHOLE };

/// Returns how a function converts its arguments to numbers; `None` if it does not.
pub fn numeric(function: &str) -> Option<Numeric> {
    let with = |fractions| Numeric { fractions: Some(fractions), ..WHOLE };
    Some(match function {
        "add" => with("addf"),
        "add1" => with("add1f"),
        "sub" => with("subf"),
        "mul" => with("mulf"),
        "div" | "mod" => with("divf"),
        "max" | "biggest" => with("maxf"),
        "min" => with("minf"),
        "int" | "int64" | "atoi" | "toDecimal" | "duration" | "durationRound" => WHOLE,
        "slice" | "mustSlice" => Numeric { from: 1, ..WHOLE },
        // Only the first argument is rounded.
        "round" => Numeric { to: 1, ..FLOAT },
        "float64" | "add1f" | "addf" | "subf" | "mulf" | "divf" | "maxf" | "minf" | "floor" | "ceil" => FLOAT,
        _ => return None,
    })
}

/// Returns `true` if the function converts the value to the number that it contains; otherwise it counts as 0.
pub(crate) fn stands_for_number(function: &str, val: &Val) -> bool {
    match (function, val) {
        // Parses the text of its argument as octal digits.
        ("toDecimal", val) => {
            format::to_text(val).is_ok_and(|text| text.as_str().is_some_and(|text| plain_integer(text, 8).is_ok()))
        }
        ("duration" | "atoi", Val::Text(text)) => text.as_str().is_some_and(|text| plain_integer(text, 10).is_ok()),
        ("duration", val) => matches!(val, Val::Int64(_)),
        ("durationRound", val) => matches!(val, Val::Text(_) | Val::Int64(_) | Val::Duration(_) | Val::Time(_)),
        (_, Val::Text(text)) => is_number(&text.lossy(), numeric(function).is_none_or(|numeric| numeric.whole)),
        (_, Val::Float(_) | Val::Bool(_)) => true,
        (_, val) => val.as_int().is_some() || val.as_uint().is_some(),
    }
}

/// The notation in which a function writes values of any type as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notation {
    /// Go's notation: a map as `map[name:value]`, bytes as a list of numbers.
    Go,
    /// Go's notation, with bytes as text.
    Text,
    /// JSON, with bytes in base64.
    Json,
}

/// Returns the notation in which a function writes values of any type as text; `None` if it does not.
pub fn notation(function: &str) -> Option<Notation> {
    Some(match function {
        "print" | "println" | "printf" | "html" | "js" | "urlquery" | "join" => Notation::Go,
        "toString" | "quote" | "squote" | "cat" => Notation::Text,
        "toJson" | "mustToJson" | "toPrettyJson" | "mustToPrettyJson" | "toRawJson" | "mustToRawJson" => Notation::Json,
        _ => return None,
    })
}

/// Returns `true` for functions that return an element of a list: for a text or raw data, that is the number of a byte.
pub fn gives_element(function: &str) -> bool {
    matches!(function, "index" | "first" | "mustFirst" | "last" | "mustLast")
}

/// Returns the elements that a function joins; it writes each of them as text.
pub(crate) fn joined(function: &str, values: &[Val]) -> Option<List> {
    match (function, values) {
        ("join", [_, Val::List(list)]) => Some(list.clone()),
        _ => None,
    }
}

/// Returns `true` if a value that a template created contains raw data, as in `dict "key" .Key`. Searches `depth`
/// levels.
pub(crate) fn holds_raw_text(val: &Val, depth: usize) -> bool {
    match val {
        Val::Raw(bytes) => !bytes.is_empty() && std::str::from_utf8(bytes).is_ok(),
        Val::Map(Map::Dict(dict)) if depth > 0 => {
            dict.entries().iter().any(|(_, inner)| holds_raw_text(inner, depth - 1))
        }
        Val::List(list) if depth > 0 && list.is_made() => list.iter().any(|inner| holds_raw_text(&inner, depth - 1)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::rc::Rc;

    use bytes::Bytes;

    use super::super::strings::to_text;
    use super::super::{Context, Function, Param, TABLES};
    use super::*;
    use crate::template::val::{Dict, Kind, Time};

    /// Result of a function with `probe` at a place and the same filling everywhere else.
    fn given(function: &Function, at: usize, count: usize, probe: &Val, filling: &Val) -> Option<(Kind, String)> {
        let values: Vec<Val> = (0..count)
            .map(|i| match function.params.get(i).copied().or(function.rest) {
                _ if i == at => probe.clone(),
                Some(Param::Text) => Val::from("%v"),
                Some(Param::Bool) => Val::Bool(true),
                Some(Param::Int) => Val::Int(1),
                Some(Param::Float) => Val::Float(0.5),
                Some(Param::Time) => Val::Time(Rc::new(Time::utc(chrono::DateTime::UNIX_EPOCH))),
                Some(Param::Map) => Val::Map(Map::Nil),
                _ => filling.clone(),
            })
            .collect();
        let result = (function.call)(&mut Context::new(), &values).ok()?;
        Some((result.kind(), to_text(&result).ok()?.lossy().into_owned()))
    }

    /// Each function is called with each kind of value that it may not be meant for. Whatever loses the value must be
    /// in the tables above.
    #[test]
    fn every_function_that_loses_a_value_is_in_a_table() {
        let time = Val::Time(Rc::new(Time::utc(chrono::DateTime::from_timestamp(1_000_000_000, 0).unwrap())));
        let probes = [
            Val::Raw(Bytes::from_static(b"12")),
            Val::from(List::new(vec![Val::from("x"), Val::from("y")])),
            Val::from(Dict::from_entries([("x".into(), Val::Int(7))])),
            time,
        ];
        let numbers = Val::from(List::new((1..20).map(Val::Int).collect()));
        let (mut zeros, mut written) = (BTreeSet::new(), BTreeSet::new());
        for function in TABLES.iter().flat_map(|table| table.iter()) {
            let fixed = function.params.len();
            for count in fixed..=fixed + if function.rest.is_some() { 2 } else { 0 } {
                for (at, probe, filling) in (0..count).flat_map(|at| {
                    probes.iter().flat_map(move |probe| [(at, probe, Val::Int64(3)), (at, probe, Val::Nil)])
                }) {
                    let param = function.params.get(at).copied().or(function.rest);
                    if !matches!(param, Some(Param::Any | Param::Reflect)) {
                        continue;
                    }
                    let filling = if filling.is_nil() { &numbers } else { &filling };
                    let with = |val: &Val| given(function, at, count, val, filling);
                    let Some((kind, text)) = with(probe) else { continue };
                    let notation_of_go = Val::Text(format::to_text(probe).unwrap());
                    let same = with(&notation_of_go).is_some_and(|(_, other)| other == text);
                    let as_go = same && with(&Val::from("zzz")).is_some_and(|(_, other)| other != text);
                    if kind == Kind::String && (as_go || text.contains("MTI=")) {
                        assert!(notation(function.name).is_some(), "{} gives {text}", function.name);
                        written.insert(function.name);
                    }
                    let (zero, twelve) = (with(&Val::Int64(0)), with(&Val::Int64(12)));
                    if zero != twelve && zero == Some((kind, text)) {
                        let numeric = numeric(function.name);
                        let counted = numeric.is_some_and(|numeric| numeric.from <= at && at < numeric.to);
                        assert!(counted, "{} counts {probe:?} as 0", function.name);
                        assert!(!stands_for_number(function.name, probe), "{}: {probe:?}", function.name);
                        zeros.insert(function.name);
                    }
                }
            }
        }
        assert!(zeros.len() > 20 && written.len() > 12, "{zeros:?} {written:?}");
    }
}
