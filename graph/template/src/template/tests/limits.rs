use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Position, Record};
use proptest::prelude::*;

use super::render;
use crate::template::{Allowance, MissingKey, Template};

fn parses(text: &str) -> bool {
    Template::parse(text, MissingKey::NoValue).is_ok()
}

#[test]
fn hostile_nesting_is_refused_by_the_parser() {
    assert!(parses(&format!("{{{{ {}1{} }}}}", "(".repeat(99), ")".repeat(99))));
    assert!(!parses(&format!("{{{{ {}1{} }}}}", "(".repeat(100_000), ")".repeat(100_000))));
    assert!(!parses(&"{{ ( ".repeat(100_000)));
    assert!(!parses(&format!("{}{}", "{{ if 1 }}".repeat(50_000), "{{ end }}".repeat(50_000))));
    assert!(parses(&format!("{{{{ if 0 }}}}{}{{{{ end }}}}", "{{ else if 0 }}".repeat(50_000))));
    assert!(!parses(&"x".repeat(2 << 20)));
    assert!(parses(&"{{ if 1 }}{{ $x := 1 }}{{ end }}".repeat(2000)));
    assert!(!parses(&"{{ $x := 1 }}".repeat(2000)));
}

#[test]
fn endless_recursion_is_an_error() {
    let text = "{{ define \"a\" }}{{ if true }}{{ with 1 }}{{ template \"a\" (print (print .)) }}{{ end }}{{ end }}{{ end }}{{ template \"a\" }}";
    assert!(render(text).unwrap_err().message.contains("too deeply"));
    assert!(render("{{ template \"\" . }}").unwrap_err().message.contains("too deeply"));
}

#[test]
fn endless_loops_are_an_error() {
    assert!(render("{{ range 1000000000 }}{{ end }}").unwrap_err().message.contains("steps"));
}

#[test]
fn output_has_a_bound() {
    let error = render("{{ range 1000000 }}{{ printf \"%1000000d\" 1 }}{{ end }}").unwrap_err();
    assert!(error.message.contains("256 MiB"), "{error}");
}

#[test]
fn a_smaller_allowance_is_spent_sooner() {
    let within = |text: &str, bytes, steps| {
        let template = Template::parse(text, MissingKey::NoValue).unwrap();
        let mut out = String::from("before");
        let result = template.render_within(&Record::default(), &mut out, Allowance { bytes, steps });
        (result.map_err(|error| error.message.contains("the template")), out)
    };
    assert_eq!(within("{{ range 3 }}x{{ end }}", 0, 10), (Ok(()), "beforexxx".to_owned()));
    assert_eq!(within("{{ range 30 }}x{{ end }}", 0, 10), (Err(true), "before".to_owned()));
    assert_eq!(within("{{ printf \"%9d\" 1 }}", 9, 10).0, Ok(()));
    assert_eq!(within("{{ printf \"%9d\" 1 }}", 8, 10), (Err(true), "before".to_owned()));
}

/// Go takes a million, `format!` 65,535. The texts are Go's.
#[test]
fn every_precision_that_go_takes_is_taken() {
    let long = |verb: &str, value: &str| render(&format!("{{{{ printf \"%{verb}\" {value} }}}}")).unwrap();
    let zeros = |n: usize| "0".repeat(n);
    assert_eq!(long(".70000U", "10"), format!("U+{}A", zeros(69_999)));
    assert_eq!(long("#.70000U", "0x263a"), format!("U+{}263A '\u{263a}'", zeros(69_996)));
    assert_eq!(long("70010.70000U", "10"), format!("        U+{}A", zeros(69_999)));
    assert_eq!(long(".70000d", "10"), format!("{}10", zeros(69_998)));
    assert_eq!(long(".70000f", "0.5"), format!("0.5{}", zeros(69_999)));
    assert_eq!(long(".70000e", "0.5"), format!("5.{}e-01", zeros(70_000)));
    assert_eq!(long(".70000x", "0.5"), format!("0x1.{}p-01", zeros(70_000)));
    assert_eq!(long(".70000g", "0.5"), "0.5");
}

#[test]
fn deep_values_are_freed_and_not_printed() {
    let text = "{{ $l := list }}{{ range 200000 }}{{ $l = list $l }}{{ end }}";
    assert_eq!(render(text).unwrap(), "");
    let text = "{{ $l := dict }}{{ range 20000 }}{{ $l = dict \"a\" $l }}{{ end }}{{ $l }}";
    assert!(render(text).unwrap_err().message.contains("too deep"));
    assert!(render("{{ $d := dict }}{{ $_ := set $d \"a\" (list $d) }}").unwrap_err().message.contains("itself"));
}

fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        proptest::sample::select(&[
            "{{",
            "}}",
            "{{- ",
            " -}}",
            "(",
            ")",
            "|",
            ".",
            ",",
            ":=",
            "=",
            "$",
            "$x",
            "$i, $e",
            "\"a\"",
            "`b`",
            "'c'",
            "1",
            "-2.5",
            "0x1F",
            "nil",
            "true",
            ".Payload",
            ".After",
            ".Key.id",
            ".Metadata",
            "$.Key",
            "{{ if ",
            "{{ range ",
            "{{ with ",
            "{{ else }}",
            "{{ else if ",
            "{{ end }}",
            "{{ end }}",
            "{{ template \"t\" . }}",
            "{{ define \"t\" }}",
            "{{ block \"u\" . }}",
            "{{ break }}",
            "{{ continue }}",
            "/*",
            "*/",
            "printf",
            "index",
            "len",
            "eq",
            "and",
            "or",
            "not",
            "print",
            "slice",
            "html",
            "call",
            "list",
            "dict",
            "set",
            " ",
            "\n",
            "é",
        ])
        .prop_map(str::to_owned),
        ".{0,6}",
    ]
}

/// Templates that are likely to parse.
fn action() -> impl Strategy<Value = String> {
    let operand = prop_oneof![
        proptest::sample::select(&[
            ".",
            "$",
            ".Key",
            ".Key.id",
            ".Metadata",
            ".Metadata.m",
            ".Position",
            ".Operation",
            ".Payload",
            ".Payload.Before",
            ".Payload.After",
            ".Payload.After.list",
            ".Payload.After.map",
            ".Payload.After.text",
            "nil",
            "true",
            "0",
            "3",
            "-1",
            "2.5",
            "\"%v\"",
            "\"%5.2q|%d\"",
            "\"m\"",
            "\"\\xff\"",
        ])
        .prop_map(str::to_owned)
    ];
    let pipeline = operand.prop_recursive(3, 12, 3, |inner| {
        let function = proptest::sample::select(&[
            "printf", "print", "println", "index", "len", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not",
            "slice", "html", "js", "urlquery", "call", "list", "dict",
        ]);
        prop_oneof![
            (function.clone(), proptest::collection::vec(inner.clone(), 0..4))
                .prop_map(|(f, args)| format!("({f} {})", args.join(" "))),
            (inner.clone(), function, inner.clone()).prop_map(|(a, f, b)| format!("({a} | {f} {b})")),
            inner.prop_map(|a| format!("({a}).x")),
        ]
    });
    pipeline.prop_map(|p| format!("{{{{ {p} }}}}")).prop_recursive(3, 10, 3, |inner| {
        let inside = proptest::sample::select(&[
            ".",
            "$",
            ".Key",
            ".Payload.After.list",
            ".Payload.After.map",
            ".Metadata",
            "3",
            "(printf \"%T\" .)",
        ]);
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a} {b}")),
            (inside.clone(), inner.clone(), inner.clone()).prop_map(|(p, a, b)| format!(
                "{{{{ range $k, $v := {p} }}}}{a}{{{{ $k }}}}{{{{ else }}}}{b}{{{{ end }}}}"
            )),
            (inside.clone(), inner.clone())
                .prop_map(|(p, a)| format!("{{{{ range {p} }}}}{a}{{{{ break }}}}{{{{ end }}}}")),
            (inside.clone(), inner.clone(), inner.clone())
                .prop_map(|(p, a, b)| format!("{{{{ with $x := {p} }}}}{a}{{{{ $x }}}}{{{{ else }}}}{b}{{{{ end }}}}")),
            (inside, inner.clone()).prop_map(|(p, a)| format!("{{{{ if {p} }}}}{a}{{{{ end }}}}")),
            inner.prop_map(|a| format!("{{{{ block \"b\" . }}}}{a}{{{{ end }}}}")),
        ]
    })
}

fn some_record() -> Record {
    let map: Object = [("m", Value::Null), ("x", Value::Float(0.5))].into_iter().collect();
    let after: Object = [
        ("list", Value::from(vec![Value::Int(1), Value::Bool(false), Value::Null])),
        ("map", Value::Map(map.into())),
        ("text", Value::from("žluť")),
        ("bytes", Value::Bytes([0, 255].as_slice().into())),
        ("time", Value::Time(chrono::DateTime::UNIX_EPOCH)),
    ]
    .into_iter()
    .collect();
    let mut record = Record::create(Position::copy_from(b"p"), Data::text("key"), Data::from(after));
    record.metadata = [("m", "1")].into_iter().collect();
    record
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_parsed_or_refused_at_a_place_in_it(pieces in proptest::collection::vec(piece(), 0..20)) {
        let text = pieces.concat();
        match Template::parse(&text, MissingKey::NoValue) {
            Ok(template) => {
                let _ = template.render(&some_record(), &mut String::new());
                let _ = template.render(&Record::default(), &mut String::new());
                template.reads();
            }
            Err(error) => {
                prop_assert!(text.get(error.offset..error.offset + error.len).is_some(), "{:?}", error);
            }
        }
    }

    #[test]
    fn whatever_parses_renders_or_fails_and_says_where(text in action()) {
        if let Ok(template) = Template::parse(&text, MissingKey::NoValue) {
            for record in [some_record(), Record::default()] {
                let mut out = String::from("x");
                if let Err(error) = template.render(&record, &mut out) {
                    prop_assert_eq!(&out, "x");
                    prop_assert!(text.get(error.offset..).is_some());
                }
            }
        }
    }
}
