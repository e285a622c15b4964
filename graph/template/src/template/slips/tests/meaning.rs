//! Corrections that are made without asking mean what was written: each is evaluated on records for which the meaning is
//! known.

use anabranch_record::json::parse_value;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Position, Record};

use crate::condition::CompiledCondition;
use crate::template::{MissingKey, Template};

/// Records, and what the mistaken text means for each.
type Verdicts = &'static [(&'static str, bool)];

const BY_EMAIL: Verdicts = &[(r#"{"x": "a@b"}"#, true), (r#"{"x": "b"}"#, false)];
const BY_START: Verdicts = &[(r#"{"x": "ab"}"#, true), (r#"{"x": "ba"}"#, false), (r#"{"x": "a"}"#, true)];
const BY_NAME: Verdicts = &[(r#"{"x": "a"}"#, true), (r#"{"x": "b"}"#, false)];
const NOT_BY_NAME: Verdicts = &[(r#"{"x": "a"}"#, false), (r#"{"x": "b"}"#, true)];
const AT_LEAST_2: Verdicts = &[(r#"{"x": 10}"#, true), (r#"{"x": 2}"#, true), (r#"{"x": 1}"#, false)];
const EITHER: Verdicts =
    &[(r#"{"x": "a", "y": 1}"#, true), (r#"{"x": "b", "y": 2}"#, true), (r#"{"x": "b", "y": 1}"#, false)];

/// Mistakes that are corrected.
const CORRECTED: &[(&str, Verdicts)] = &[
    ("contains(.Payload.After.x, \"@\")", BY_EMAIL),
    ("contains(\"@\", .Payload.After.x)", BY_EMAIL),
    ("contains (.Payload.After.x, \"@\")", BY_EMAIL),
    ("contains .Payload.After.x, \"@\"", BY_EMAIL),
    (".Payload.After.x contains \"@\"", BY_EMAIL),
    ("hasPrefix(.Payload.After.x, 'a')", BY_START),
    ("startsWith(.Payload.After.x, \"a\")", BY_START),
    ("x startsWith 'a'", BY_START),
    ("regexMatch(.Payload.After.x, \"^a\")", BY_START),
    (".Payload.After.x =~ \"^a\"", BY_START),
    (".Payload.After.x.startsWith(\"a\")", BY_START),
    ("eq(trimPrefix(.Payload.After.x, \"z\"), \"a\")", BY_NAME),
    ("replaceAll(.Payload.After.x, \"z\", \"a\") == \"a\"", BY_NAME),
    ("replace(.Payload.After.x, \"z\", \"a\") == \"a\"", BY_NAME),
    ("default(.Payload.After.x, \"none\") == 'a'", BY_NAME),
    (".Payload.After.x == \"a\"", BY_NAME),
    (".Payload.After[\"x\"] == \"a\"", BY_NAME),
    ("this.x == \"a\"", BY_NAME),
    ("rec.Payload.After.x === 'a'", BY_NAME),
    ("and(eq .Payload.After.x \"a\", true)", BY_NAME),
    ("and (eq .Payload.After.x \"a\", true)", BY_NAME),
    ("and(eq(.Payload.After.x, \"a\"), true)", BY_NAME),
    ("or(false, eq .Payload.After.x \"a\")", BY_NAME),
    ("not .Payload.After.x == \"a\"", NOT_BY_NAME),
    ("not (.Payload.After.x == \"a\")", NOT_BY_NAME),
    ("not .Payload.After.x != 'a' and true", BY_NAME),
    ("NOT .Payload.After.x = \"a\"", NOT_BY_NAME),
    (".Payload.After.x != \"a\"", NOT_BY_NAME),
    (".Payload.After.x > 2.0", &[(r#"{"x": 10.0}"#, true), (r#"{"x": 3.5}"#, true), (r#"{"x": 1.5}"#, false)]),
    (".Payload.After.x >= 2", AT_LEAST_2),
    ("gte .Payload.After.x 2", AT_LEAST_2),
    ("len(.Payload.After.x) > 1", BY_START_LONG),
    (".Payload.After.x == \"a\" || .Payload.After.y == 2", EITHER),
    (".Payload.After.x.toLowerCase().startsWith(\"a\")", BY_START),
    ("this.x.endsWith(\"@b\")", BY_EMAIL),
    ("isset .Payload.After.x", &[(r#"{"x": 1}"#, true), (r#"{"y": 1}"#, false)]),
    (".Payload.After.x is defined", &[(r#"{"x": 1}"#, true), (r#"{"y": 1}"#, false)]),
    (".Payload.After.x % 2 == 0", &[(r#"{"x": 4}"#, true), (r#"{"x": 3}"#, false)]),
];
const BY_START_LONG: Verdicts = &[(r#"{"x": "ab"}"#, true), (r#"{"x": "a"}"#, false)];

/// Mistakes that may be meant in more than one way, with what the message says of them.
const ASKED: &[(&str, &str)] = &[
    (".Payload.After.x == a", "eq .Payload.After.x \"a\""),
    (".Payload.After.x[0:1] == \"a\"", "substr 0 1 .Payload.After.x"),
    (".Payload.After.x[2:] == \"a\"", "substr 2 -1 .Payload.After.x"),
    (".Payload.After[kind] == \"a\"", "index .Payload.After \"kind\""),
    ("contains(.Payload.After.x, .Payload.After.y)", "contains .Payload.After.y .Payload.After.x"),
    ("startsWith \"a\" .Payload.After.x", "hasPrefix \"a\" .Payload.After.x"),
    ("\"a\" in .Payload.After.x", "has \"a\" .Payload.After.x"),
    ("!.Payload.After.x == \"a\"", "not (eq .Payload.After.x \"a\")"),
    (".Payload.After.x * 2 > 10", "gt (mul .Payload.After.x 2) 10"),
    (".Payload.After.x / 2 > 10", "gt (div .Payload.After.x 2) 10"),
    (".Payload.After.x.includes(\"@\")", "contains \"@\" .Payload.After.x"),
    ("substr(.Payload.After.x, 1, 2) == \"a\"", "substr 1 2 .Payload.After.x"),
    ("replace(\"a\", .Payload.After.x, \"b\") == \"a\"", "replace"),
];

/// The text with its correction, and what that did not correct at once.
fn corrected(text: &str) -> Option<String> {
    let mut text = format!("{{{{ {text} }}}}");
    for _ in 0..8 {
        let Err(error) = Template::parse(&text, MissingKey::NoValue) else {
            // A template that compiles is checked by the traversal, which suggests the call.
            let inner = text.trim_start_matches("{{").trim_end_matches("}}").trim();
            let meant = super::super::command(inner).filter(|_| inner.starts_with('.'));
            return Some(meant.map_or_else(|| text.clone(), |meant| format!("{{{{ {meant} }}}}")));
        };
        let (at, becomes) = error.correction?;
        text.replace_range(at, &becomes);
    }
    None
}

fn record(after: &str) -> Record {
    let Value::Map(after) = parse_value(after.as_bytes()).unwrap() else { panic!("{after}") };
    Record::create(Position::copy_from(b"p"), Data::from(Object::new()), Data::from((*after).clone()))
}

#[test]
fn a_correction_means_what_was_written() {
    for (text, verdicts) in CORRECTED {
        let Some(template) = corrected(text) else { panic!("{text}: {:?}", super::super::rewritten(text)) };
        let condition = CompiledCondition::compile(&template).unwrap_or_else(|error| panic!("{template}: {error:?}"));
        assert!(verdicts.iter().any(|(_, holds)| *holds), "{text}: no record that it holds for");
        for (after, holds) in *verdicts {
            let found = condition.evaluate(&record(after));
            assert_eq!(found.as_ref().ok(), Some(holds), "{text} became {template}, which gives {found:?} for {after}");
        }
    }
}

#[test]
fn what_may_be_meant_in_several_ways_is_not_corrected() {
    for (text, hint) in ASKED {
        assert_eq!(corrected(text), None, "{text}");
        let error = Template::parse(&format!("{{{{ {text} }}}}"), MissingKey::NoValue).unwrap_err();
        assert!(error.hint.as_ref().is_some_and(|found| found.contains(hint)), "{text}: {:?}", error.hint);
    }
}
