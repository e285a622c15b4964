//! What is hardly meant in an output, and is told to a caller who asks.

use std::collections::BTreeSet;

use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Record};

use crate::template::{DoubtKind, MissingKey, Template};

/// A record with a value of each kind.
pub(super) fn record() -> Record {
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
        ("tags", Value::List(vec![Value::from("a"), Value::from("b")].into())),
        (
            "items",
            Value::List(vec![Value::Map([("sku", Value::from("x"))].into_iter().collect::<Object>().into())].into()),
        ),
        ("at", Value::Time(chrono::DateTime::UNIX_EPOCH)),
        ("on", Value::Bool(true)),
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
        ("{{ .Payload.After.nix }}", NoValue, ".Payload.After.nix", "the names are: at, bytes, count, first-name"),
        ("{{ .Payload.After.nothing -}} ", NoValue, ".Payload.After.nothing", "has no value"),
        ("{{ .Metadata.nix }}", NoValue, ".Metadata.nix", "the names are: file.name, recfmt.collection"),
        ("{{ .Payload.Before }}", NoValue, ".Payload.Before", "`<nil>`"),
        ("{{ print .Payload.After.Name }}", NoValue, ".Payload.After.Name", "did you mean .Payload.After.name?"),
        ("{{ printf \"%v\" .Payload.After.Name }}", NoValue, ".Payload.After.Name", "`<nil>`"),
        ("{{ add .Payload.After.Price 1 }}", NoValue, ".Payload.After.Price", "add treats it as 0; did you mean"),
        (
            "{{ date \"2006\" .Payload.After.When }}",
            NoValue,
            ".Payload.After.When",
            "date treats it as the current time; did you mean",
        ),
        ("{{ printf \"%.2f\" .Payload.After.count }}", Format, "\"%.2f\"", "`%!f(int64…)`"),
        ("{{ printf \"%s %s\" .Payload.After.name }}", Format, "\"%s %s\"", "`%!s(MISSING…)`"),
        ("{{ printf \"%d\" .Payload.After.name }}", Format, "\"%d\"", "`%!d(string…)`"),
        (
            "{{ date \"2006\" .Payload.After.when }}",
            NotATime,
            ".Payload.After.when",
            "date of a text returns the current time",
        ),
        ("{{ .Payload.After.when | date \"2006\" }}", NotATime, "date", "date of a text returns the current time"),
        (
            "{{ date \"2006\" (toDate \"2006\" .Payload.After.when) }}",
            NotATime,
            ".Payload.After.when",
            "toDate returns the year 1",
        ),
        ("{{ b64dec .Payload.After.when }}", NotEncoded, ".Payload.After.when", "b64dec returns an error message"),
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
        ("{{ urlquery .Key }}", Bytes, ".Key", "write printf \"%s\" .Key"),
        ("{{ js .Key }}", Bytes, ".Key", "write printf \"%s\" .Key"),
        ("{{ join \",\" .Key }}", Bytes, ".Key", "write printf \"%s\" .Key"),
        ("{{ quote .Payload.After.place }}", Map, ".Payload.After.place", "write toJson"),
        ("{{ .Payload.After.tags }}", List, ".Payload.After.tags", "[a b], which is not JSON; write toJson .Payload"),
        ("m/{{ .Payload.After.items }}/x", List, ".Payload.After.items", "write toJson .Payload.After.items"),
        ("{{ printf \"a %v\" .Payload.After.tags }}", List, ".Payload.After.tags", "write toJson"),
        ("{{ .Payload.After.tags | toString }}", List, "toString", "write toJson VALUE"),
        ("{{ urlquery .Payload.After.tags }}", List, ".Payload.After.tags", "write toJson"),
        ("{{ join \", \" .Payload.After.items }}", Map, ".Payload.After.items", "write toJson"),
        ("{{ .Payload.After.at }}", Time, ".Payload.After.at", "write date \"2006-01-02T15:04:05Z07:00\" .Payload"),
        ("{{ quote .Payload.After.at }}", Time, ".Payload.After.at", "+0000 UTC"),
        ("{{ now }}", Time, "now", "write date \"2006-01-02T15:04:05Z07:00\" now"),
        ("{{ splitList \"e\" .Payload.After.name }}", List, "splitList \"e\" .Payload.After.name", "toJson (splitList"),
        ("{{ toJson .Key }}", Base64, ".Key", "toJson writes raw data as base64; write printf \"%s\" .Key"),
        ("{{ .Key | toPrettyJson }}", Base64, "toPrettyJson", "write printf \"%s\" VALUE"),
        ("{{ toRawJson (dict \"k\" (list .Key)) }}", Base64, "(dict \"k\" (list .Key))", "as base64"),
        ("{{ index .Payload.After.name 0 }}", Byte, ".Payload.After.name", "substr 0 1 .Payload.After.name"),
        ("{{ index .Payload.After.tags 0 0 }}", Byte, ".Payload.After.tags", "the number of a byte"),
        (
            "{{ first .Key }}",
            Byte,
            ".Key",
            "first of raw data returns the number of a byte, for example 97; write printf \"%s\" .Key",
        ),
        ("{{ int .Key }}", NotANumber, ".Key", "int treats raw data as 0; write (printf \"%s\" .Key)"),
        ("{{ add 1 .Key }}", NotANumber, ".Key", "add treats raw data as 0"),
        ("{{ .Payload.After.tags | mul 2 }}", NotANumber, "mul", "mul treats a list as 0"),
        ("{{ float64 .Payload.After.place }}", NotANumber, ".Payload.After.place", "float64 treats a map as 0"),
        ("{{ int .Payload.After.at }}", NotANumber, ".Payload.After.at", "(int64 (unixEpoch .Payload.After.at))"),
        ("{{ toDecimal .Payload.After.on }}", NotANumber, ".Payload.After.on", "toDecimal treats a bool as 0"),
        ("{{ duration (int .Payload.After.count) }}", NotANumber, "(int .Payload.After.count)", "write (int64"),
        ("{{ atoi \"0x10\" }}", NotANumber, "\"0x10\"", "atoi treats a text that is not a"),
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
        "{{ toString .Key }} {{ quote .Key }} {{ toJson (printf \"%s\" .Key) }} {{ toJson .Payload.After.bytes }}",
        "{{ toJson .Payload.After.tags }} {{ join \", \" .Payload.After.tags }} {{ index .Payload.After.tags 0 }}",
        "{{ range .Payload.After.tags }}{{ . }}{{ end }} {{ len .Payload.After.tags }} {{ first .Payload.After.tags }}",
        "{{ contains \"a\" (toString .Payload.After.tags) }} {{ if eq (print .Payload.After.tags) \"[a b]\" }}y{{ end }}",
        "{{ date \"2006\" .Payload.After.at }} {{ .Payload.After.at.Year }} {{ toJson .Payload.After.at }}",
        "{{ int .Payload.After.on }} {{ add .Payload.After.count .Payload.After.on }} {{ index .Payload.After.bytes 0 }}",
        "{{ duration \"95\" }} {{ duration .Payload.After.count }} {{ toDecimal \"0644\" }} {{ round .Payload.After.price 1 }}",
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
    let all =
        [NoValue, Format, NotATime, NotEncoded, Fraction, NotANumber, Pattern, Map, Bytes, List, Time, Base64, Byte];
    assert_eq!(all.map(DoubtKind::code).into_iter().collect::<BTreeSet<_>>().len(), all.len());
}
