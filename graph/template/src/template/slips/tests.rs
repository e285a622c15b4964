//! What is meant, by example.

mod meaning;

use super::*;
use crate::template::{MissingKey, Template};

#[test]
fn expressions_of_other_languages_are_written_as_templates() {
    for (text, meant) in [
        ("price == 10", "eq .Payload.After.price 10"),
        (".a != \"x\"", "ne .a \"x\""),
        (".a >= 1 && .b < 2 || !.c", "or (and (ge .a 1) (lt .b 2)) (not .c)"),
        ("gt .a 10.0 && eq .b \"x\"", "and (gt .a 10.0) (eq .b \"x\")"),
        ("gt(.a, 10)", "gt .a 10"),
        ("contains .a 'x'", "contains .a \"x\""),
        ("startsWith(.a, \"x\")", "hasPrefix \"x\" .a"),
        ("gte .a 1", "ge .a 1"),
        ("eq .a[\"b c\"] 1", "eq (index .a \"b c\") 1"),
        ("eq .a.b-c 1", "eq (index .a \"b-c\") 1"),
        ("(.a == 1) and (.b == 2)", "and (eq .a 1) (eq .b 2)"),
        (".a = True", "eq .a true"),
        ("not .a == null", "not (eq .a nil)"),
        ("len(.a) > 3", "gt (len .a) 3"),
        ("count == 3", "eq .Payload.After.count 3"),
        ("count(.a) == 3", "eq (len .a) 3"),
        ("rec.Payload.After.id > 1", "gt .Payload.After.id 1"),
        ("record.payload.after.id > 1", "gt .Payload.After.id 1"),
        ("rec.Payload.After[\"a b\"] > 1", "gt (index .Payload.After \"a b\") 1"),
        ("eq name \"x\"", "eq .Payload.After.name \"x\""),
        ("upper name", "upper .Payload.After.name"),
        (".id eq 1", "eq .id 1"),
        (".a eq 1 and .b gt 2", "and (eq .a 1) (gt .b 2)"),
        ("len .a eq 3", "eq (len .a) 3"),
        ("and .ok, gt .id 1", "and .ok (gt .id 1)"),
        ("gt .id, 1", "gt .id 1"),
        ("isset .a", "ne .a nil"),
        ("isNull .a", "eq .a nil"),
        (".a is absent", "eq .a nil"),
        (".a is not null", "ne .a nil"),
        (".a is not absent", "ne .a nil"),
        (".a is defined", "ne .a nil"),
        (".Payload.Before is absent", "not .Payload.Before"),
        (".a is empty", "empty .a"),
        (".a is \"x\"", "eq .a \"x\""),
        ("sha256 .a", "sha256sum .a"),
        ("matches .a \"^x\"", "regexMatch \"^x\" .a"),
        (".a =~ \"^x\"", "regexMatch \"^x\" .a"),
        (".a contains \"x\"", "contains \"x\" .a"),
        ("\"x\" in .list", "has \"x\" .list"),
        ("replaceAll(.a, \"x\", \"y\")", "replace \"x\" \"y\" .a"),
        (".a ? \"x\" : \"y\"", "ternary \"x\" \"y\" .a"),
        (".a > 1 ? .b : .c", "ternary .b .c (gt .a 1)"),
        (".id + 1", "add .id 1"),
        (".id - 1 > 2", "gt (sub .id 1) 2"),
        (".a * 1.5", "mulf .a 1.5"),
        (".a + 2 * .b", "add .a (mul 2 .b)"),
        ("\"x\" + .a", "printf \"%v%v\" \"x\" .a"),
        (".tags.0", "(index .tags 0)"),
        ("eq .a “x”", "eq .a \"x\""),
        ("eq .a ‘x’", "eq .a \"x\""),
        ("toLowerCase .a | trim", "lower .a | trim"),
        (".a ≥ 1", "ge .a 1"),
        (".a <> 1", "ne .a 1"),
        ("gt\u{a0}.a 1", "gt .a 1"),
        ("eq .a \"x\" or eq .b \"y\"", "or (eq .a \"x\") (eq .b \"y\")"),
        ("or eq .a \"x\" eq .b 2", "or (eq .a \"x\") (eq .b 2)"),
        (".a.startsWith(\"x\")", "hasPrefix \"x\" .a"),
    ] {
        assert_eq!(rewritten(text).map(|found| found.text).as_deref(), Some(meant), "{text}");
    }
    for text in [
        "gt .a 1",
        "eq .a \"x && y\"",
        ".a .b == 1",
        "a b c",
        "(((",
        "",
        "x ~ y",
        "'a\"b' == 1",
        ".a -1",
        "first-name == 1",
        "uper .a",
        "eq .a uper",
    ] {
        assert_eq!(rewritten(text).map(|found| found.text), None, "{text}");
    }
    for sign in ["(", "!", "-", ".a ? ", "a.", "f(", ".a["] {
        assert!(rewritten(&sign.repeat(5000)).is_none(), "{sign}");
    }
    // Each part is read once, however deeply it is negated.
    assert_eq!(rewritten(&format!("{}a!", "!".repeat(39))).map(|found| found.text), None);
    let negated = rewritten(&format!("{}a + 1 > 2", "!".repeat(39))).map(|found| found.text);
    assert_eq!(negated, Some(format!("{}gt (add .Payload.After.a 1) 2{}", "not (".repeat(39), ")".repeat(39))));
}

#[test]
fn a_word_without_quotes_may_be_a_text_or_a_field() {
    for (text, meant, or) in [
        ("eq .a tea", "eq .a \"tea\"", ".Payload.After.tea"),
        ("kind == tea", "eq .Payload.After.kind \"tea\"", ".Payload.After.tea"),
    ] {
        let found = rewritten(text).unwrap();
        assert_eq!((found.text.as_str(), found.or.as_deref()), (meant, Some(or)), "{text}");
    }
    let error = Template::parse("{{ eq .a tea }}", MissingKey::NoValue).unwrap_err();
    assert_eq!(error.correction, None, "which of the two is meant is not known");
    assert_eq!(
        bare("kind == tea"),
        Some(Suggestion { text: "{{ eq .Payload.After.kind \"tea\" }}".into(), sure: false })
    );
}

#[test]
fn names_that_are_none_here_are_not_mistaken_for_short_ones() {
    for (text, hint) in [
        ("{{ in .a 1 }}", "`contains \"a\" .text` searches a text, `has \"a\" .list` a list"),
        ("{{ between .a 1 2 }}", "write and (ge .a 1) (le .a 10)"),
        ("{{ .a ~ .b }}", "write print and the values after it: print joins texts"),
        ("{{# a comment }}", "write {{/* a comment */}}"),
        ("{{#if .a}}", "write {{ if … }} … {{ end }}, {{ range … }} … {{ end }}"),
        ("{{ [a] }}", "name the field, for example .Payload.After.name"),
        ("{{ md5 .a }}", "checksums are sha256sum, sha1sum, sha512sum and adler32sum"),
    ] {
        let error = Template::parse(text, MissingKey::NoValue).unwrap_err();
        assert_eq!(error.hint.as_deref(), Some(hint), "{text}: {}", error.message);
        assert_eq!(error.correction, None, "{text}");
    }
    for text in ["{{ foo .a }}", "{{ nam .a }}"] {
        let error = Template::parse(text, MissingKey::NoValue).unwrap_err();
        assert_eq!((error.hint, error.correction), (None, None), "{text}");
    }
}

#[test]
fn every_correction_compiles() {
    for (text, becomes) in [
        ("{{ .a == 10 }}", "{{ eq .a 10 }}"),
        ("{{ if .a > 1 }}true{{ else }}false{{ end }}", "{{ if gt .a 1 }}true{{ else }}false{{ end }}"),
        ("{{ eq .a \"x }}", "{{ eq .a \"x\" }}"),
        ("{{ gt .a 1 }", "{{ gt .a 1 }}"),
        ("{{ gt .a 1", "{{ gt .a 1 }}"),
        ("{{ gt .a 1) }}", "{{ gt .a 1 }}"),
        ("{{ .a | }}", "{{ .a }}"),
        ("{{ if .a }}true{{ else }}false", "{{ if .a }}true{{ else }}false{{ end }}"),
        (
            "{{ if .a }}true{{ elif .b }}true{{ else }}false{{ end }}",
            "{{ if .a }}true{{ else if .b }}true{{ else }}false{{ end }}",
        ),
        ("{{ gte .a 1 }}", "{{ ge .a 1 }}"),
        ("{{ eq .a null }}", "{{ eq .a nil }}"),
    ] {
        let error = Template::parse(text, MissingKey::NoValue).unwrap_err();
        let (at, with) = error.correction.unwrap_or_else(|| panic!("{text}: {}", error.message));
        let corrected = format!("{}{with}{}", &text[..at.start], &text[at.end..]);
        assert_eq!(corrected, becomes);
        assert!(Template::parse(&corrected, MissingKey::NoValue).is_ok(), "{corrected}");
    }
}

#[test]
fn conditions_without_braces_get_them() {
    assert_eq!(bare("price == 10").map(|meant| meant.text).as_deref(), Some("{{ eq .Payload.After.price 10 }}"));
    assert_eq!(bare("{ gt .a 1 }}").map(|meant| meant.text).as_deref(), Some("{{ gt .a 1 }}"));
    assert_eq!(bare("gt .a 1").map(|meant| meant.text).as_deref(), Some("{{ gt .a 1 }}"));
    assert_eq!(bare("yes"), None);
    assert_eq!(bare("on weekdays"), None);
}

proptest::proptest! {
    #[test]
    fn nothing_panics(text in "[a-z.$(){}\"'`|&=<>! ,0-9é\\[\\]-]{0,40}") {
        let _ = Template::parse(&text, MissingKey::NoValue);
        let _ = Template::parse(&format!("{{{{ {text}"), MissingKey::NoValue);
        let _ = bare(&text);
    }
}
