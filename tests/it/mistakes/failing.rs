//! Templates, URLs and names that constants in them make wrong for every record, and those that some data make right.

use super::flows::{DECODE, DROP, FILE, found};

fn set(field: &str, value: &str) -> String {
    format!("plugin: field.set, settings: {{ field: {field}, value: '{value}' }}")
}

/// Returns the findings of each value of a setting, unless it is one finding with the text.
fn wrong(rows: &[(&str, &str)], step: impl Fn(&str) -> String) -> Vec<String> {
    let one = |(value, says): &(&str, &str)| {
        let found = found(FILE, &[DECODE, &step(value)], DROP);
        let is_said = matches!(&found[..], [one] if one.contains(says));
        (!is_said).then(|| format!("{value}: {found:?}, not {says}"))
    };
    rows.iter().filter_map(one).collect()
}

/// Returns the findings of values of a setting that are right for some data.
fn reported(values: &[&str], step: impl Fn(&str) -> String) -> Vec<String> {
    let one = |value: &&str| {
        let found = found(FILE, &[DECODE, &step(value)], DROP);
        (!found.is_empty()).then(|| format!("{value}: {found:?}"))
    };
    values.iter().filter_map(one).collect()
}

#[test]
fn calls_that_a_constant_makes_fail_are_errors() {
    let metadata = |value: &str| set(".Metadata.x", value);
    let rows = [
        ("{{ divf .Payload.After.a 0 }}", "error flow.wrong_argument: every record fails here: "),
        ("{{ divf .Payload.After.a 0.0 }}", "division by zero"),
        ("{{ div .Payload.After.a 0 }}", "div by zero"),
        ("{{ div .Payload.After.a (sub 1 1) }}", "division by zero"),
        ("{{ mod .Payload.After.a \"x\" }}", "division by zero"),
        ("{{ index .Payload.After.a -1 }}", "every record fails here: an index below 0 does not count from the end"),
        ("{{ (index .Payload.After.a -1).sku }}", "(last .Payload.After.a)"),
        ("{{ index .Payload.After \"a\" -1 }}", "an index below 0"),
        ("{{ index (splitList \",\" .Payload.After.a) -1 }}", "an index below 0"),
        ("{{ substr -4 -1 .Payload.After.a }}", "every record fails here: error calling substr: "),
        ("{{ substr 5 2 .Payload.After.a }}", "error calling substr"),
        ("{{ .Payload.After.a | substr 5 2 }}", "error calling substr"),
        ("{{ repeat -1 .Payload.After.a }}", "error calling repeat: the count is negative"),
        ("{{ if .Payload.After.b }}{{ repeat -1 .Payload.After.a }}{{ end }}", "warning flow.wrong_argument: "),
        ("{{ dig \"a\" .Payload.After }}", "dig accepts at least 3 arguments, not 2"),
        ("{{ .Payload.After | dig \"a\" }}", "dig accepts at least 3 arguments, not 2"),
        ("{{ dig .Payload.After }}", "dig accepts at least 3 arguments, not 1"),
        ("{{ semverCompare .Payload.After.a \">= 1.2\" }}", "is not a semantic version"),
        ("{{ semverCompare \"1.x.y.z\" .Payload.After.a }}", "error calling semverCompare: "),
        (
            "{{ range $i := .Payload.After.items }}{{ $.sku }},{{ end }}",
            "warning flow.no_part: every record that has an element fails here: a record has no \"sku\"",
        ),
        (
            "{{ .Metadata.GetCollection }}",
            "error flow.no_metadata: every record fails here: no record has the metadata",
        ),
    ];
    let right = [
        "{{ divf .Payload.After.a 100 }}",
        "{{ divf 0 .Payload.After.a }}",
        "{{ div .Payload.After.a .Payload.After.b }}",
        "{{ mod 10 .Payload.After.a }}",
        "{{ index .Payload.After.items 0 }}",
        "{{ (index .Payload.After.items 12).sku }}",
        "{{ substr 0 5 .Payload.After.a }}",
        "{{ substr 5 -1 .Payload.After.a }}",
        "{{ substr -1 5 .Payload.After.a }}",
        "{{ substr 9000 9500 .Payload.After.a }}",
        "{{ substr 900000 950000 .Payload.After.a }}",
        "{{ substr 3 (int .Payload.After.n) .Payload.After.a }}",
        "{{ substr (int .Payload.After.n) 3 .Payload.After.a }}",
        "{{ repeat 0 .Payload.After.a }}",
        "{{ repeat (int .Payload.After.n) \"-\" }}",
        "{{ indent 4 .Payload.After.a }}",
        "{{ dig \"a\" \"b\" \"none\" .Payload.After }}",
        "{{ .Payload.After | dig \"a\" \"none\" }}",
        "{{ semverCompare \">=1.2.0\" .Payload.After.a }}",
        "{{ semverCompare .Payload.After.a \"1.2.3\" }}",
        "{{ .Payload.After.a | semverCompare \"^1.x || ~2.1\" }}",
        "{{ .Metadata.GetFileName }}",
    ];
    let failures = [wrong(&rows, metadata), reported(&right, metadata)].concat();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn templates_that_never_print_an_operation_are_errors() {
    let operation = |value: &str| set(".Operation", value);
    let never = "error flow.no_operation: every record fails here: ";
    let rows = [
        ("{{ upper .Payload.After.a }}", "upper returns capital letters, which is not an operation"),
        ("{{ .Payload.After.a | title }}", never),
        ("{{ camelcase .Payload.After.a }}", never),
        ("{{ trunc 1 .Payload.After.a }}", "trunc returns at most 1 bytes"),
        ("{{ quote .Payload.After.a }}", never),
        ("{{ toJson .Payload.After.a }}", never),
        ("{{ .Payload.After.a }}d", "the result has the form \"…d\""),
        ("op {{ .Payload.After.a }}", never),
        ("{{ ternary \"insert\" \"upsert\" (eq .Payload.After.a \"x\") }}", "ternary returns \"insert\" or \"upsert\""),
    ];
    let right = [
        "{{ .Payload.After.a }}",
        "{{ lower .Payload.After.a }}",
        "{{ trunc 6 .Payload.After.a }}",
        " {{ .Payload.After.a }} ",
        "{{ .Payload.After.a }}ate",
        "{{ .Payload.After.a }}e",
        "{{ .Payload.After.a }}d{{ .Payload.After.b }}",
        "up{{ .Payload.After.a }}te",
        "{{ ternary \"delete\" \"update\" (eq .Payload.After.a \"x\") }}",
        "{{ if .Payload.After.gone }}delete{{ else }}{{ .Operation }}{{ end }}",
    ];
    let failures = [wrong(&rows, operation), reported(&right, operation)].concat();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn urls_with_a_wrong_origin_are_errors() {
    let webhook = |url: &str| format!("plugin: webhook.http, settings: {{ request.url: '{url}' }}");
    let says = "error settings.invalid";
    let rows = [
        "http://127.0.0.1:99999/{{ .Payload.After.a }}",
        "http://h:abc/{{ .Payload.After.a }}",
        "http://:8080/{{ .Payload.After.a }}",
        "http://my host/{{ .Payload.After.a }}",
        "http://[::1/{{ .Payload.After.a }}",
        "http://999.1.1.1/{{ .Payload.After.a }}",
        "http://a%zz/{{ .Payload.After.a }}",
        "https//h/{{ .Payload.After.a }}",
        "/v1/{{ .Payload.After.a }}",
        "ftp://h/{{ .Payload.After.a }}",
        "\"http://h/{{ .Payload.After.a }}\"",
        "<http://h/{{ .Payload.After.a }}>",
    ]
    .map(|url| (url, says));
    let right = [
        "http://h/{{ .Payload.After.a }}",
        " https://h:8080/v1/{{ .Payload.After.a }}/{{ .Payload.After.b }}?x={{ urlquery .Payload.After.c }}",
        "http://h?{{ .Payload.After.a }}",
        "http://{{ .Payload.After.a }}/b",
        "http://h:{{ .Payload.After.a }}/b",
        "http://a.{{ .Payload.After.a }}",
        "{{ .Payload.After.a }}/b",
        "{{ .Payload.After.a }}://h/b",
        "http{{ if .Payload.After.a }}s{{ end }}://h/b",
    ];
    let failures = [wrong(&rows, webhook), reported(&right, webhook)].concat();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_queue_that_reads_metadata_which_no_dead_letter_has_is_an_error() {
    let queue = |options: &str| {
        let destination = format!(
            "{DROP} }}\n    dead-letter-queue: {{ plugin: file, window-size: 0, settings: {{ path: d.txt, sdk.record.format: template, \
             sdk.record.format.options: '{options}' }}"
        );
        found(FILE, &[DECODE], &destination)
    };
    for method in ["GetCollection", "GetPayloadSchemaSubject"] {
        let found = queue(&format!("{{{{ .Metadata.{method} }}}}"));
        assert!(matches!(&found[..], [one] if one.contains("flow.no_metadata: every record fails here")), "{found:?}");
    }
    assert_eq!(queue("{{ .Metadata.GetDLQNackError }}"), [] as [String; 0]);
}
