//! Patterns for expected values, and their comparison with actual values.

mod read;

use std::fmt;

use anabranch_plugin::diagnostic::Span;
use anabranch_record::text::Str;
use regex::Regex;
use serde_json::{Map, Value as Json};

/// An expected value, with its place in the test file.
#[derive(Clone, Debug)]
pub struct Expected {
    /// Place in the file.
    pub span: Span,
    pattern: Pattern,
}

#[derive(Clone, Debug)]
enum Pattern {
    /// This null, boolean, number or text.
    Is(Json),
    /// These items, in this order.
    List(Vec<Expected>),
    /// These items, in any order.
    Unordered(Vec<Expected>),
    /// A map with these fields; `open` allows others.
    Map {
        fields: Vec<(Str, Expected)>,
        open: bool,
    },
    /// Any value.
    Any,
    /// No value.
    Absent,
    /// Any value or none.
    Whatever,
    Text,
    Bool,
    Uuid,
    Time,
    /// A number in this range, inclusive.
    Number {
        min: f64,
        max: f64,
    },
    Matches(Regex),
    Contains(String),
    /// The number of characters of a text, items of a list, or fields of a map.
    Length(usize),
    /// A text with JSON that matches this.
    Json(Box<Expected>),
}

/// Words that are patterns by themselves.
const WORDS: &[&str] = &["$any", "$absent", "$text", "$number", "$bool", "$uuid", "$time"];
/// Names of maps that are patterns.
const DIRECTIVES: &[&str] =
    &["$regex", "$contains", "$min", "$max", "$length", "$unordered", "$fields", "$exactly", "$json", "$is", "$base64"];

/// A place in which a value differs.
#[derive(Clone, Debug)]
pub struct Mismatch {
    /// Path within the value: `.after.items[2].sku`.
    pub path: String,
    /// Place of the expectation.
    pub span: Span,
    /// Description of the expectation.
    pub expected: String,
    /// The actual value; `None` if there is none.
    pub got: Option<Json>,
    /// `true` if the expectation is a single value that the actual one can replace.
    pub literal: bool,
}

impl Expected {
    /// Expects exactly this value.
    pub(super) fn exactly(value: &Json, span: Span) -> Expected {
        let pattern = match value {
            Json::Array(items) => Pattern::List(items.iter().map(|item| Self::exactly(item, span)).collect()),
            Json::Object(fields) => {
                let field = |(name, value): (&String, &Json)| (Str::from(name.as_str()), Self::exactly(value, span));
                Pattern::Map { fields: fields.iter().map(field).collect(), open: false }
            }
            other => Pattern::Is(other.clone()),
        };
        Expected { span, pattern }
    }

    /// Expects a map with these fields.
    pub(super) fn fields(fields: Vec<(Str, Expected)>, open: bool, span: Span) -> Expected {
        Expected { span, pattern: Pattern::Map { fields, open } }
    }

    /// Expects any value or none.
    pub(super) fn whatever(span: Span) -> Expected {
        Expected { span, pattern: Pattern::Whatever }
    }

    /// Expects a text that contains this one.
    pub(super) fn contains(text: &str, span: Span) -> Expected {
        Expected { span, pattern: Pattern::Contains(text.to_owned()) }
    }

    /// Returns the text if the expectation is exactly one text.
    pub(super) fn as_text(&self) -> Option<&str> {
        match &self.pattern {
            Pattern::Is(Json::String(text)) => Some(text),
            _ => None,
        }
    }

    /// Returns `true` if it is a map or list, like the JSON of a body.
    pub(super) fn is_compound(&self) -> bool {
        matches!(self.pattern, Pattern::Map { .. } | Pattern::List(_) | Pattern::Unordered(_))
    }

    /// Returns `true` if a value meets the expectation.
    pub fn matches(&self, got: Option<&Json>) -> bool {
        let mut found = Vec::new();
        self.compare(got, String::new(), &mut found);
        found.is_empty()
    }

    /// Returns the places in which a value does not meet the expectation.
    pub fn mismatches(&self, got: Option<&Json>) -> Vec<Mismatch> {
        let mut found = Vec::new();
        self.compare(got, String::new(), &mut found);
        found
    }

    fn compare(&self, got: Option<&Json>, path: String, found: &mut Vec<Mismatch>) {
        let holds = match (&self.pattern, got) {
            (Pattern::Whatever, _) | (Pattern::Absent, None) => true,
            (Pattern::Absent, Some(value)) => value.is_null(),
            (_, None) => false,
            (Pattern::Any, Some(_)) => true,
            (Pattern::Is(wanted), Some(got)) => same(wanted, got),
            (Pattern::Text, Some(got)) => got.is_string(),
            (Pattern::Bool, Some(got)) => got.is_boolean(),
            (Pattern::Uuid, Some(got)) => got.as_str().is_some_and(is_uuid),
            (Pattern::Time, Some(got)) => got.as_str().is_some_and(is_time),
            (Pattern::Number { min, max }, Some(got)) => got.as_f64().is_some_and(|n| *min <= n && n <= *max),
            (Pattern::Matches(regex), Some(got)) => got.as_str().is_some_and(|text| regex.is_match(text)),
            (Pattern::Contains(part), Some(got)) => got.as_str().is_some_and(|text| text.contains(part)),
            (Pattern::Length(wanted), Some(got)) => length(got) == Some(*wanted),
            (Pattern::Json(inner), Some(Json::String(text))) => match serde_json::from_str(text) {
                Ok(value) => return inner.compare(Some(&value), path, found),
                Err(_) => false,
            },
            (Pattern::List(items), Some(Json::Array(got))) if items.len() == got.len() => {
                for (index, (item, got)) in items.iter().zip(got).enumerate() {
                    item.compare(Some(got), format!("{path}[{index}]"), found);
                }
                return;
            }
            (Pattern::Unordered(items), Some(Json::Array(got))) if items.len() == got.len() => {
                pairs(items, got).iter().all(Option::is_some)
            }
            (Pattern::Map { fields, open }, Some(Json::Object(got))) => {
                for (name, field) in fields {
                    field.compare(got.get(name.as_str()), child(&path, name), found);
                }
                let named = |name: &str| fields.iter().any(|(field, _)| *field == *name);
                for (name, value) in got.iter().filter(|(name, _)| !open && !named(name)) {
                    found.push(Mismatch {
                        path: child(&path, name),
                        span: self.span,
                        expected: "nothing".to_owned(),
                        got: Some(value.clone()),
                        literal: false,
                    });
                }
                return;
            }
            _ => false,
        };
        if !holds {
            let literal =
                matches!(&self.pattern, Pattern::Is(_)) && got.is_some_and(|got| !got.is_object() && !got.is_array());
            found.push(Mismatch { path, span: self.span, expected: self.to_string(), got: got.cloned(), literal });
        }
    }

    /// Returns the expectation as a value for display next to the actual one. Parts that match, and parts without an
    /// expectation, are shown as in the actual value.
    pub fn beside(&self, got: Option<&Json>) -> Option<Json> {
        match (&self.pattern, got) {
            (Pattern::Map { fields, open }, Some(Json::Object(got))) => {
                let mut shown = Map::new();
                for (name, field) in fields {
                    if let Some(value) = field.beside(got.get(name.as_str())) {
                        shown.insert(name.to_string(), value);
                    }
                }
                let named = |name: &str| fields.iter().any(|(field, _)| *field == name);
                let others = got.iter().filter(|(name, _)| *open && !named(name));
                shown.extend(others.map(|(name, value)| (name.clone(), value.clone())));
                Some(Json::Object(shown))
            }
            (Pattern::List(items), Some(Json::Array(got))) => {
                Some(items.iter().enumerate().filter_map(|(i, item)| item.beside(got.get(i))).collect())
            }
            (Pattern::Json(inner), Some(Json::String(text))) if !self.matches(got) => {
                match serde_json::from_str(text) {
                    Ok(value) => inner.beside(Some(&value)).map(|value| Json::String(value.to_string())),
                    Err(_) => Some(self.written()),
                }
            }
            _ if self.matches(got) => got.cloned(),
            (Pattern::Absent, _) => None,
            _ => Some(self.written()),
        }
    }

    /// Returns the expectation as a value that describes it.
    fn written(&self) -> Json {
        match &self.pattern {
            Pattern::Is(value) => value.clone(),
            Pattern::List(items) | Pattern::Unordered(items) => items.iter().map(Expected::written).collect(),
            Pattern::Map { fields, .. } => {
                fields.iter().map(|(name, field)| (name.to_string(), field.written())).collect()
            }
            Pattern::Json(inner) => Json::String(inner.written().to_string()),
            other => Json::String(format!("<{other}>")),
        }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pattern.fmt(f)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pattern::Is(value) => write!(f, "{value}"),
            Pattern::List(items) => write!(f, "a list of {}", items.len()),
            Pattern::Unordered(items) => write!(f, "a list of these {} in any order", items.len()),
            Pattern::Map { fields, .. } => {
                let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
                write!(f, "a map of {}", if names.is_empty() { "nothing".to_owned() } else { names.join(", ") })
            }
            Pattern::Any => f.write_str("anything"),
            Pattern::Absent => f.write_str("nothing"),
            Pattern::Whatever => f.write_str("anything or nothing"),
            Pattern::Text => f.write_str("a text"),
            Pattern::Bool => f.write_str("true or false"),
            Pattern::Uuid => f.write_str("a UUID"),
            Pattern::Time => f.write_str("a time (RFC 3339)"),
            Pattern::Number { min, max } => match (min.is_finite(), max.is_finite()) {
                (false, false) => f.write_str("a number"),
                (true, false) => write!(f, "a number of at least {min}"),
                (false, true) => write!(f, "a number of at most {max}"),
                (true, true) => write!(f, "a number from {min} to {max}"),
            },
            Pattern::Matches(regex) => write!(f, "a text that matches {:?}", regex.as_str()),
            Pattern::Contains(part) => write!(f, "a text that contains {part:?}"),
            Pattern::Length(length) => write!(f, "{length} characters, items or fields"),
            Pattern::Json(inner) => write!(f, "JSON text of {inner}"),
        }
    }
}

/// Returns for each item the value that it is paired with, each value at most once, with the maximum number of pairs.
pub(super) fn pairs(items: &[Expected], got: &[Json]) -> Vec<Option<usize>> {
    let fits: Vec<Vec<usize>> =
        items.iter().map(|item| (0..got.len()).filter(|at| item.matches(Some(&got[*at]))).collect()).collect();
    let mut taken_by: Vec<Option<usize>> = vec![None; got.len()];
    for item in 0..items.len() {
        place(item, &fits, &mut taken_by, &mut vec![false; got.len()]);
    }
    let mut paired = vec![None; items.len()];
    for (value, item) in taken_by.iter().enumerate() {
        if let Some(item) = item {
            paired[*item] = Some(value);
        }
    }
    paired
}

/// Finds a value for an item, and other values for the items that it displaces.
fn place(item: usize, fits: &[Vec<usize>], taken_by: &mut [Option<usize>], seen: &mut [bool]) -> bool {
    for &value in &fits[item] {
        if !std::mem::replace(&mut seen[value], true)
            && taken_by[value].is_none_or(|other| place(other, fits, taken_by, seen))
        {
            taken_by[value] = Some(item);
            return true;
        }
    }
    false
}

/// Compares two values. Numbers are equal if their values are: `1.0` and `1` may be decoded to different types.
fn same(wanted: &Json, got: &Json) -> bool {
    match (wanted, got) {
        (Json::Number(a), Json::Number(b)) => a == b || (a.is_f64() != b.is_f64() && a.as_f64() == b.as_f64()),
        (a, b) => a == b,
    }
}

fn length(value: &Json) -> Option<usize> {
    match value {
        Json::String(text) => Some(text.chars().count()),
        Json::Array(items) => Some(items.len()),
        Json::Object(fields) => Some(fields.len()),
        Json::Null | Json::Bool(_) | Json::Number(_) => None,
    }
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, b)| match at {
            8 | 13 | 18 | 23 => b == b'-',
            _ => b.is_ascii_hexdigit(),
        })
}

fn is_time(text: &str) -> bool {
    chrono::DateTime::parse_from_rfc3339(text).is_ok()
}

fn child(path: &str, name: &str) -> String {
    let plain = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-');
    if plain { format!("{path}.{name}") } else { format!("{path}[{name:?}]") }
}

#[cfg(test)]
mod tests {
    use anabranch_config::yaml;
    use anabranch_plugin::diagnostic::{Diagnostics, FileId};
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Result<Expected, Diagnostics> {
        let mut findings = Diagnostics::new();
        let documents = yaml::parse(FileId(0), text, &mut findings);
        let root = documents.into_iter().next().and_then(|document| document.root).unwrap();
        Expected::read(&root, false, &mut findings).ok_or(findings)
    }

    #[track_caller]
    fn check(pattern: &str, good: &[Json], bad: &[Json]) {
        let expected = read(pattern).unwrap();
        for value in good {
            assert!(expected.matches(Some(value)), "{pattern} must match {value}");
        }
        for value in bad {
            assert!(!expected.matches(Some(value)), "{pattern} must not match {value}");
        }
    }

    #[test]
    fn patterns_match_what_they_say() {
        check("1", &[json!(1), json!(1.0)], &[json!("1"), json!(2), json!(null)]);
        check("$any", &[json!(null), json!([])], &[]);
        check("$uuid", &[json!("01234567-89ab-cdef-0123-456789ABCDEF")], &[json!("01234567"), json!(1)]);
        check("$time", &[json!("2024-01-01T00:00:00Z")], &[json!("yesterday")]);
        check("{ $min: 1, $max: 2 }", &[json!(1), json!(1.5), json!(2)], &[json!(0.9), json!("1")]);
        check("{ $regex: '^a+$' }", &[json!("aa")], &[json!("ab"), json!(1)]);
        check("{ $length: 2 }", &[json!("žž"), json!([1, 2]), json!({ "a": 1, "b": 2 })], &[json!(2)]);
        check("{ $json: { a: 1 } }", &[json!("{\"a\": 1}")], &[json!("{\"a\": 2}"), json!("x"), json!({ "a": 1 })]);
        check("{ $unordered: [1, $number] }", &[json!([1, 2]), json!([2, 1])], &[json!([2, 3]), json!([1])]);
        check("{ a: 1 }", &[json!({ "a": 1 })], &[json!({ "a": 1, "b": 2 }), json!({})]);
        check("{ $fields: { a: { b: 1 } } }", &[json!({ "a": { "b": 1, "c": 2 }, "d": 3 })], &[json!({ "a": {} })]);
        check("{ a: $absent }", &[json!({}), json!({ "a": null })], &[json!({ "a": 1 })]);
        check("'$any'", &[json!("$any")], &[json!(1)]);
        check("$5", &[json!("$5")], &[]);
        check("{ $is: { $any: 1 } }", &[json!({ "$any": 1 })], &[json!(1)]);
    }

    #[test]
    fn what_differs_is_named() {
        let expected = read("{ a: [1, { b: x }], c: 2 }").unwrap();
        let got = json!({ "a": [1, { "b": "y" }], "d": 3 });
        let found: Vec<_> = expected.mismatches(Some(&got)).into_iter().map(|m| (m.path, m.expected)).collect();
        let found: Vec<_> = found.iter().map(|(path, expected)| (path.as_str(), expected.as_str())).collect();
        assert_eq!(found, [(".a[1].b", "\"x\""), (".c", "2"), (".d", "nothing")]);
    }

    #[test]
    fn what_matches_is_shown_as_it_came() {
        let expected = read("{ id: $uuid, n: { $min: 5 }, x: 1 }").unwrap();
        let got = json!({ "id": "01234567-89ab-cdef-0123-456789abcdef", "n": 3, "x": 1 });
        let shown = expected.beside(Some(&got)).unwrap();
        assert_eq!(
            shown,
            json!({ "id": "01234567-89ab-cdef-0123-456789abcdef", "n": "<a number of at least 5>", "x": 1 })
        );
    }

    #[test]
    fn unknown_patterns_are_refused() {
        for (text, hint) in [("$uid", "did you mean $uuid?"), ("{ $regx: a }", "did you mean $regex?")] {
            let findings = read(text).unwrap_err();
            assert_eq!(findings.0[0].hint.as_deref(), Some(hint), "{text}");
        }
        assert!(read("{ $regex: '(' }").is_err());
        assert!(read("{ $min: 1, $regex: a }").is_err());
    }

    #[test]
    fn an_order_is_found_where_there_is_one() {
        let items: Vec<Expected> = ["$any", "1"].iter().map(|text| read(text).unwrap()).collect();
        assert_eq!(pairs(&items, &[json!(1), json!(2)]), [Some(1), Some(0)]);
    }
}
