use anabranch_record::access::Access;
use anabranch_record::metadata::Metadata;
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Record};

use super::{render, render_over};
use crate::template::{MissingKey, Template, TemplateError};

fn parse_error(text: &str) -> TemplateError {
    Template::parse(text, MissingKey::NoValue).unwrap_err()
}

fn place(text: &str) -> String {
    let error = parse_error(text);
    text[error.offset..error.offset + error.len].to_owned()
}

fn record() -> Record {
    let mut record = Record::default();
    let object: Object =
        [("city", Value::from("Brno")), ("n", Value::Int(9_007_199_254_740_993))].into_iter().collect();
    record.payload.after = Data::from(object);
    record.metadata = [("recfmt.collection", "orders")].into_iter().collect();
    record
}

#[test]
fn parse_errors_name_the_place() {
    assert_eq!(place("a {{ nosuch 1 }}"), "nosuch");
    assert_eq!(place("a {{ $x }}"), "$x");
    assert_eq!(place("a {{ .Key"), "{{ .Key");
    assert_eq!(place("{{ if .Key }}x"), "if");
    assert_eq!(place("{{ end }}"), "end");
    assert_eq!(place("{{ (eq 1 2 }}"), "(");
    assert_eq!(place("{{ \"a\\q\" }}"), "\\q");
    assert_eq!(place("{{ \"\\¡\" }}"), "\\¡");
    assert_eq!(place("{{ 0x }}"), "0x");
    assert_eq!(place("{{ 12a }}"), "12a");
    assert_eq!(place("{{ .a..b }}"), ".");
    assert_eq!(place("{{ if 1 }}{{ else }}{{ else }}{{ end }}"), "else");
    assert_eq!(place("{{ define \"a\" }}1{{ end }}{{ define \"a\" }}2{{ end }}"), "\"a\"");
    assert_eq!(place("{{ 1 | 2 }}"), "2");
    assert_eq!(place("{{ 3i }}"), "3i");
    assert_eq!(place("{{ 99999999999999999999 }}"), "99999999999999999999");
    assert_eq!(place("{{ /* c }}"), "/");
    assert_eq!(place("{{/* c }}"), "{{/* c }}");
}

#[test]
fn parse_errors_say_what_to_do() {
    assert_eq!(parse_error("{{ printff 1 }}").hint.as_deref(), Some("did you mean `printf`?"));
    assert_eq!(parse_error("{{ $abc := 1 }}{{ $abd }}").hint.as_deref(), Some("did you mean `$abc`?"));
    let refused = parse_error("{{ env \"HOME\" }}");
    assert_eq!(refused.message, "function \"env\" is not available");
    assert!(refused.hint.unwrap().contains("${NAME}"));
    assert!(parse_error("{{ .Metadata.a-b }}").hint.unwrap().contains("index"));
    assert!(parse_error("{{ Key }}").hint.unwrap().contains(".Key"));
}

#[test]
fn evaluation_errors_name_the_place() {
    let text = "ab {{ len .Key.id }}";
    let error = render(text).unwrap_err();
    assert_eq!(&text[error.offset..error.offset + 4], ".Key");
    assert_eq!(error.message, "can't read field \"id\": the data is absent");
}

#[test]
fn a_failed_rendering_leaves_the_output_alone() {
    let mut out = "kept".to_owned();
    let template = Template::parse("more {{ len 1 }}", MissingKey::NoValue).unwrap();
    assert!(template.render(&Record::default(), &mut out).is_err());
    assert_eq!(out, "kept");
}

#[test]
fn integers_of_the_record_stay_integers() {
    let text =
        r#"{{ .Payload.After.n }} {{ printf "%d" .Payload.After.n }} {{ eq .Payload.After.n 9007199254740993 }}"#;
    assert_eq!(render_over(text, &record()).unwrap(), "9007199254740993 9007199254740993 true");
}

#[test]
fn integers_of_the_record_compare_with_floats() {
    for (comparison, verdict) in [
        ("eq .Payload.After.n 9007199254740993.0", "false"),
        ("gt .Payload.After.n 9007199254740992.0", "true"),
        ("lt .Payload.After.n 1e300", "true"),
        ("ge 0.5 .Payload.After.n", "false"),
    ] {
        assert_eq!(render_over(&format!("{{{{ {comparison} }}}}"), &record()).unwrap(), verdict, "{comparison}");
    }
    assert!(render("{{ eq 1 1.0 }}").is_err());
}

#[test]
fn a_missing_key_is_an_error_on_demand() {
    let strict = Template::parse("{{ .Payload.After.town }}", MissingKey::Error).unwrap();
    assert!(strict.render(&record(), &mut String::new()).unwrap_err().message.contains("\"town\""));
    assert_eq!(render_over("{{ .Payload.After.town }}", &record()).unwrap(), "<no value>");
}

#[test]
fn metadata_have_getters() {
    assert_eq!(render_over("{{ .Metadata.GetCollection }}", &record()).unwrap(), "orders");
    assert!(render("{{ .Metadata.GetCollection }}").unwrap_err().message.contains("recfmt.collection"));
    let mut dated = Record::default();
    dated.metadata = Metadata::from_iter([("recfmt.readAt", "1500000000")]);
    assert_eq!(render_over("{{ .Metadata.GetReadAt }}", &dated).unwrap(), "1970-01-01 00:00:01.5 +0000 UTC");
}

#[test]
fn variables_live_in_their_block() {
    assert_eq!(render("{{ $x := 1 }}{{ if true }}{{ $x := 2 }}{{ $x }}{{ end }}{{ $x }}").unwrap(), "21");
    assert_eq!(
        render("{{ $x := 1 }}{{ range $i, $x := list 7 8 }}{{ $i }}{{ $x }}{{ end }}{{ $x }}").unwrap(),
        "07181"
    );
    let text = "{{ $i := 0 }}{{ $x := 1 }}{{ range $i, $x = list 7 8 }}{{ end }}{{ $i }}{{ $x }}";
    assert_eq!(render(text).unwrap(), "18");
    assert_eq!(parse_error("{{ if $x := 1 }}{{ end }}{{ $x }}").message, "undefined variable \"$x\"");
    assert_eq!(parse_error("{{ $x := $x }}").message, "undefined variable \"$x\"");
    assert_eq!(parse_error("{{ $x = 1 }}").message, "undefined variable \"$x\"");
    assert_eq!(parse_error("{{ $x := 1 }}{{ define \"t\" }}{{ $x }}{{ end }}").message, "undefined variable \"$x\"");
}

#[test]
fn templates_call_each_other() {
    let text = r#"{{ define "a" }}[{{ template "b" .Payload }}]{{ end }}{{ define "b" }}{{ .After.city }}{{ $.After.n }}{{ end }}{{ template "a" . }}"#;
    assert_eq!(render_over(text, &record()).unwrap(), "[Brno9007199254740993]");
    assert_eq!(render("{{ block \"x\" 3 }}<{{ . }}>{{ end }}{{ template \"x\" }}").unwrap(), "<3><<no value>>");
}

#[test]
fn markers_trim_and_comments_vanish() {
    assert_eq!(render("a {{- /* c */ -}} b {{- 1 }} c").unwrap(), "ab1 c");
    assert_eq!(render("a {{/* c }} */}} b").unwrap(), "a  b");
    assert_eq!(render("{{\n1\n|\nprint\n}}").unwrap(), "1");
}

#[test]
fn numbers_are_read_as_go_reads_them() {
    for (text, shown) in [
        ("0b101", "5"),
        ("0o17", "15"),
        ("017", "15"),
        ("0xff", "255"),
        ("1_000", "1000"),
        ("-0", "0"),
        ("+3", "3"),
        (".5", "0.5"),
        ("1e6", "1e+06"),
        ("0x1p4", "16"),
        ("'\\n'", "10"),
        ("'é'", "233"),
    ] {
        assert_eq!(render(&format!("{{{{ {text} }}}}")).unwrap(), shown, "{text}");
    }
}

#[test]
fn cut_characters_may_be_joined_again_but_not_printed() {
    assert_eq!(render(r#"{{ print "\xc5" "\xbe" }}"#).unwrap(), "ž");
    assert_eq!(render(r#"{{ "\xc5" }}{{ "\xbe" }}"#).unwrap(), "ž");
    assert_eq!(render(r#"{{ printf "%q %x" "\xc5" "\xc5" }}"#).unwrap(), r#""\xc5" c5"#);
    assert_eq!(render(r#"a{{ "\xc5" }}"#).unwrap_err().message, "the output is not valid UTF-8");
}

#[test]
fn literal_text_is_known() {
    let parse = |text| Template::parse(text, MissingKey::NoValue).unwrap();
    assert_eq!(parse("plain").literal(), Some("plain"));
    assert_eq!(parse("").literal(), Some(""));
    assert_eq!(parse("a{{/* c */}}").literal(), None);
    assert_eq!(parse("{{ 1 }}").literal(), None);
}

#[test]
fn reads_are_found() {
    let reads = |text| Template::parse(text, MissingKey::NoValue).unwrap().reads();
    let these = |paths: &[&[&str]]| {
        Access::These(paths.iter().map(|path| path.iter().map(|name| Str::from(*name)).collect()).collect())
    };
    assert_eq!(reads("x"), Access::NOTHING);
    assert_eq!(reads("{{ . }}"), Access::Everything);
    assert_eq!(reads("{{ template \"x\" $ }}"), Access::Everything);
    assert_eq!(reads("{{ .Operation.String }}{{ .Operation }}"), these(&[&["Operation"]]));
    assert_eq!(reads("{{ index .Metadata \"a.b\" }}"), these(&[&["Metadata", "a.b"]]));
    assert_eq!(reads("{{ index .Metadata .Key.k }}"), these(&[&["Metadata"], &["Key", "k"]]));
    assert_eq!(reads("{{ .Key.Bytes }}"), these(&[&["Key"]]));
    assert_eq!(
        reads("{{ with .Payload.After.a.b }}{{ .c }}{{ $.Payload.Before }}{{ else }}{{ .Metadata.m }}{{ end }}"),
        these(&[&["Payload", "After", "a", "b"], &["Payload", "Before"], &["Metadata", "m"]])
    );
    assert_eq!(
        reads("{{ range $k, $v := index .Payload.After \"list\" }}{{ .x }}{{ $v }}{{ end }}"),
        these(&[&["Payload", "After", "list"]])
    );
}
