//! What is hardly meant in an output, and is told to a caller who asks.

use std::collections::BTreeSet;

use crate::record::{Data, Record};
use crate::template::{DoubtKind, MissingKey, Template};
use crate::value::{Object, Value};

fn record() -> Record {
    let mut record = Record::default();
    let inner: Object = [("city", Value::from("Brno"))].into_iter().collect();
    let fields = [
        ("name", Value::from("tea")),
        ("first-name", Value::from("x")),
        ("price", Value::Float(4.5)),
        ("count", Value::Int(4)),
        ("when", Value::from("2020-01-31")),
        ("nothing", Value::Null),
        ("place", Value::Map(inner.into())),
        ("bytes", Value::Bytes(b"ab"[..].into())),
        ("sign", Value::from("%!d(<nil>) map[")),
    ];
    record.payload.after = Data::from(fields.into_iter().collect::<Object>());
    record.key = Data::Raw(b"12"[..].into());
    record.metadata = [("recfmt.collection", "orders"), ("file.name", "a")].into_iter().collect();
    record
}

/// The doubts: kind, the part of the template, message and hint.
fn doubts(text: &str) -> Vec<(DoubtKind, String, String)> {
    let template = Template::parse(text, MissingKey::NoValue).unwrap();
    let told = template.doubts(&record());
    told.into_iter()
        .map(|doubt| {
            let hint = doubt.hint.unwrap_or_default();
            (doubt.kind, text[doubt.at].to_owned(), format!("{}; {hint}", doubt.message))
        })
        .collect()
}

#[test]
fn what_is_hardly_meant_is_told_with_its_place() {
    use DoubtKind::*;
    for (text, kind, place, said) in [
        ("a {{ .Payload.After.Name }}", NoValue, ".Payload.After.Name", "did you mean .Payload.After.name?"),
        ("{{ .Payload.After.Name | default nil }}", NoValue, ".Payload.After.Name | default nil", "`<no value>`"),
        (
            "{{ .Payload.After.first_name }}",
            NoValue,
            ".Payload.After.first_name",
            "(index .Payload.After \"first-name\")",
        ),
        (
            "{{ .Payload.After.place.City }}",
            NoValue,
            ".Payload.After.place.City",
            "did you mean .Payload.After.place.city?",
        ),
        ("{{ .Payload.After.nix }}", NoValue, ".Payload.After.nix", "there are: bytes, count, first-name"),
        ("{{ .Payload.After.nothing -}} ", NoValue, ".Payload.After.nothing", "has no value"),
        ("{{ .Metadata.nix }}", NoValue, ".Metadata.nix", "there are: file.name, recfmt.collection"),
        ("{{ .Payload.Before }}", NoValue, ".Payload.Before", "`<nil>`"),
        ("{{ print .Payload.After.Name }}", NoValue, ".Payload.After.Name", "did you mean .Payload.After.name?"),
        ("{{ printf \"%v\" .Payload.After.Name }}", NoValue, ".Payload.After.Name", "`<nil>`"),
        ("{{ add .Payload.After.Price 1 }}", NoValue, ".Payload.After.Price", "add takes it for 0; did you mean"),
        (
            "{{ date \"2006\" .Payload.After.When }}",
            NoValue,
            ".Payload.After.When",
            "date takes it for now; did you mean",
        ),
        ("{{ printf \"%.2f\" .Payload.After.count }}", Format, "\"%.2f\"", "`%!f(int64…)`"),
        ("{{ printf \"%s %s\" .Payload.After.name }}", Format, "\"%s %s\"", "`%!s(MISSING…)`"),
        ("{{ printf \"%d\" .Payload.After.name }}", Format, "\"%d\"", "`%!d(string…)`"),
        (
            "{{ date \"2006\" .Payload.After.when }}",
            NotATime,
            ".Payload.After.when",
            "date of a text gives the time now",
        ),
        ("{{ .Payload.After.when | date \"2006\" }}", NotATime, "date", "date of a text gives the time now"),
        ("{{ toDate \"2006\" .Payload.After.when }}", NotATime, ".Payload.After.when", "toDate gives the year 1"),
        ("{{ b64dec .Payload.After.when }}", NotEncoded, ".Payload.After.when", "b64dec gives an error message"),
        ("{{ add .Payload.After.price 1 }}", Fraction, ".Payload.After.price", "write addf"),
        ("{{ .Payload.After.price | mul 2 }}", Fraction, "mul", "write mulf"),
        ("{{ int .Payload.After.name }}", NotANumber, ".Payload.After.name", "not a whole number"),
        ("{{ float64 .Payload.After.name }}", NotANumber, ".Payload.After.name", "not a number"),
        (
            "{{ regexMatch (print \"[\" .Payload.After.name) \"x\" }}",
            Pattern,
            "(print \"[\" .Payload.After.name)",
            "never matches",
        ),
        ("{{ .Payload.After.place }}", Map, ".Payload.After.place", "write toJson .Payload.After.place"),
        ("{{ . }}", Map, ".", "write toJson ."),
        ("{{ print .Payload.After.place }}", Map, ".Payload.After.place", "write toJson"),
        ("{{ .Key }}", Bytes, ".Key", "write printf \"%s\" .Key"),
        ("{{ printf \"%v\" .Payload.After.bytes }}", Bytes, ".Payload.After.bytes", "list of numbers"),
    ] {
        let told = doubts(text);
        let [(found, at, words)] = &told[..] else { panic!("{text}: {told:?}") };
        assert_eq!((*found, at.as_str()), (kind, place), "{text}");
        assert!(words.contains(said), "{text}: {words}");
    }
}

#[test]
fn what_is_meant_is_not_doubted() {
    for text in [
        "{{ .Payload.After.name }} {{ .Payload.After.count }} {{ .Payload.After.price }}",
        "{{ .Payload.After.Name | default \"x\" }}",
        "{{ if .Payload.After.Name }}{{ .Payload.After.Name }}{{ end }}",
        "{{ with .Payload.After.nothing }}{{ . }}{{ end }}",
        "{{ toJson .Payload.After }} {{ printf \"%s\" .Key }} {{ .Position }}",
        "{{ print .Payload.After.sign }}{{ printf \"%s\" .Payload.After.sign }}",
        "{{ printf \"%.2f\" .Payload.After.price }} {{ add .Payload.After.count 1 }} {{ addf .Payload.After.price 1 }}",
        "{{ date \"2006\" now }} {{ date \"2006\" (toDate \"2006-01-02\" .Payload.After.when) }}",
        "{{ b64dec \"YQ==\" }} {{ int \"12\" }} {{ int .Payload.After.price }} {{ float64 \"1e3\" }}",
        "{{ eq .Payload.After.name \"x\" }} {{ empty .Payload.After.Name }} {{ ternary 1 2 (empty .Payload.After.Name) }}",
        "{{ regexMatch \"[a]\" .Payload.After.name }}",
        "{{ .Operation }}",
    ] {
        assert_eq!(doubts(text), [], "{text}");
    }
}

#[test]
fn a_doubt_is_told_once_and_never_of_a_record_that_fails() {
    assert_eq!(doubts("{{ range until 1000 }}{{ $.Payload.After.Name }}{{ end }}").len(), 1);
    assert_eq!(doubts("{{ .Payload.After.Name }}{{ fail \"no\" }}"), []);
    let many: String = (0..100).map(|n| format!("{{{{ .Payload.After.x{n} }}}}")).collect();
    assert_eq!(doubts(&many).len(), 32);
}

#[test]
fn every_kind_has_a_code_of_its_own() {
    use DoubtKind::*;
    let all = [NoValue, Format, NotATime, NotEncoded, Fraction, NotANumber, Pattern, Map, Bytes];
    assert_eq!(all.map(DoubtKind::code).into_iter().collect::<BTreeSet<_>>().len(), all.len());
}
