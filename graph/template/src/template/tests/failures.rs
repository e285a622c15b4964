//! Why a template fails, in words that people know.

use super::doubts::record;
use crate::template::functions;
use crate::template::{EvalError, MissingKey, Reason, Template};

fn error(text: &str) -> Option<EvalError> {
    let template = Template::parse(text, MissingKey::NoValue).unwrap();
    template.render(&record(), &mut String::new()).err()
}

fn failure(text: &str) -> Option<String> {
    error(text).map(|error| error.message)
}

#[test]
fn a_failure_tells_whether_other_data_could_avoid_it() {
    for (text, reason) in [
        ("{{ first .Payload.After.name }}", Reason::Kind),
        ("{{ upper .Payload.After.tags }}", Reason::Kind),
        ("{{ .Payload.After.name.city }}", Reason::Kind),
        ("{{ eq .Payload.After.name 1 }}", Reason::Kind),
        ("{{ index .Payload.After.tags \"a\" }}", Reason::Kind),
        ("{{ range .Payload.After.name }}{{ end }}", Reason::Kind),
        ("{{ upper .Payload.After.nowhere }}", Reason::Lacking),
        ("{{ first .Payload.After.nowhere }}", Reason::Lacking),
        ("{{ index .Payload.After.nowhere 0 }}", Reason::Lacking),
        ("{{ .Payload.After.nothing.city }}", Reason::Lacking),
        ("{{ index .Payload.After.tags 99 }}", Reason::Content),
        ("{{ mustFromJson .Payload.After.name }}", Reason::Content),
        ("{{ substr 90 99 .Payload.After.name }}", Reason::Content),
        ("{{ fail \"no\" }}", Reason::Purpose),
    ] {
        assert_eq!(error(text).map(|error| error.reason), Some(reason), "{text}");
    }
}

#[test]
fn messages_name_values_as_people_do() {
    for (text, said) in [
        ("{{ .Payload.After.bytes.city }}", "can't read field \"city\" of bytes"),
        ("{{ .Payload.After.name.city }}", "can't read field \"city\" of a text"),
        ("{{ first .Payload.After.name }}", "error calling first: it accepts a list, not a text"),
        ("{{ concat .Payload.After.tags 1 }}", "it accepts lists, not a whole number"),
        ("{{ upper .Payload.After.tags }}", "expected a text; got a list"),
        ("{{ upper .Key }}", "expected a text; got raw data: write (printf \"%s\" …)"),
        ("{{ substr 0 .Payload.After.count \"abc\" }}", "expected a whole number as `int` returns it"),
        ("{{ upper nil }}", "expected a text; found nil"),
        ("{{ upper 1 }}", "expected a text; found 1"),
        ("{{ eq .Payload.After.name 1 }}", "incompatible types for comparison: a text and a whole number"),
        ("{{ lt .Payload.After.tags 1 }}", "a list has no order"),
        ("{{ lt .Payload.After.absent 1 }}", "a missing or null value has no order"),
        ("{{ lt .Payload.Before 1 }}", "absent data has no order"),
        ("{{ range .Payload.After.name }}{{ end }}", "range can't iterate over a text"),
        ("{{ len .Payload.After.count }}", "a whole number has no length"),
        ("{{ index .Payload.After.tags \"a\" }}", "the index of a list element is a number, not a text"),
        ("{{ index .Payload.After 1 }}", "the keys of a map are texts, not a whole number"),
        ("{{ hasKey .Metadata \"x\" }}", "expected a map of any values; got a map of texts"),
        ("{{ unixEpoch .Payload.After.name }}", "expected a time; got a text"),
    ] {
        let message = failure(text).unwrap_or_default();
        assert!(message.contains(said), "{text}: {message}");
    }
}

/// Every function with every kind of value in every place.
#[test]
fn no_message_names_a_type_of_go() {
    const GO: [&str; 12] = [
        "[]uint8",
        "interface",
        "map[string]",
        "RawData",
        "StructuredData",
        "type string",
        "type slice",
        "type int",
        "time.Time",
        "struct",
        "not string",
        "be string",
    ];
    let mut failed = 0;
    for name in functions::names() {
        let function = functions::find(name).unwrap();
        let count = function.params.len() + usize::from(function.rest.is_some()) * 2;
        for value in ["name", "tags", "items", "count", "price", "at", "on", "bytes", "place", "nothing"] {
            for base in [format!(".Payload.After.{value}"), ".Key".to_owned(), ".Metadata".to_owned(), ".".to_owned()] {
                let args = vec![base.as_str(); count].join(" ");
                let Some(message) = failure(&format!("{{{{ {name} {args} }}}}")) else { continue };
                failed += 1;
                assert!(!GO.iter().any(|word| message.contains(word)), "{name} {args}: {message}");
            }
        }
    }
    assert!(failed > 1000, "{failed}");
}
