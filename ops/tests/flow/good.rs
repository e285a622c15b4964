//! Pipelines as people write them: nothing is wrong with them, and nothing is said.

use anabranch_plugin::operator::{Configured, Decision};
use anabranch_plugin::registry::Registry;
use anabranch_plugin::testing::{add_operator, inline};

use super::ends::{compiled, registry, yaml};

/// The built-in plugins, and stand-ins for those that nobody can see into.
fn with_opaque_steps() -> Registry {
    let mut registry = registry();
    let opaque: Configured = inline(|_| Ok(Decision::Keep));
    for name in ["custom.javascript", "webhook.http"] {
        add_operator(&mut registry, name, &opaque);
    }
    registry
}

#[track_caller]
fn is_silent(text: &str) {
    let (files, plan, findings) = compiled(text, &with_opaque_steps());
    assert!(plan.is_some() && findings.is_empty(), "{}\n{text}", findings.render(&files, Default::default()));
}

#[track_caller]
fn steps_are_silent(sources: &[&str], processors: &[&str], destination: &str) {
    is_silent(&yaml(sources, &processors.iter().map(|&p| p.to_owned()).collect::<Vec<_>>(), destination));
}

const TO_FILE: &str = "plugin: file, settings: { path: out }";

/// Fields of the pipelines that are measured.
const MEASURED: &str = "plugin: generator, settings: { format.type: structured, format.options.id: int, \
    format.options.name: string, format.options.active: bool, format.options.score: int, format.options.city: string, \
    operations: create, recordCount: \"${N}\" }";

#[test]
fn documents_to_vectors() {
    steps_are_silent(
        &["anything"],
        &[
            "plugin: base64.encode, settings: { field: .Payload.After }",
            "plugin: webhook.http",
            "plugin: json.decode, settings: { field: .Payload.After }",
            "plugin: webhook.http",
            "plugin: json.decode, settings: { field: .Payload.After.embeddings }",
            "plugin: custom.javascript",
            "plugin: custom.javascript",
            "plugin: split, settings: { field: .Payload.After.items }",
            "plugin: custom.javascript",
            "plugin: clone, condition: '{{ eq (index .Metadata \"split.index\") \"0\" }}', settings: { count: 3 }",
            "plugin: custom.javascript, condition: '{{ eq (index .Metadata \"clone.index\") \"0\" }}'",
            "plugin: custom.javascript, condition: '{{ eq (index .Metadata \"clone.index\") \"1\" }}'",
            "plugin: custom.javascript, condition: '{{ eq (index .Metadata \"clone.index\") \"2\" }}'",
        ],
        "plugin: table",
    );
}

/// The same from a file, without scripts: all that can be known is.
#[test]
fn documents_without_scripts() {
    steps_are_silent(
        &["lines"],
        &[
            "plugin: json.decode, settings: { field: .Payload.After }",
            "plugin: split, settings: { field: .Payload.After.items }",
            "plugin: field.set, settings: { field: '.Metadata[\"recfmt.collection\"]', value: file_items }",
            "plugin: clone, condition: '{{ eq (index .Metadata \"split.index\") \"0\" }}', settings: { count: 3 }",
            "plugin: field.set, condition: '{{ eq (index .Metadata \"clone.index\") \"0\" }}', \
             settings: { field: '.Metadata[\"recfmt.collection\"]', value: files }",
            "plugin: field.set, condition: '{{ eq (index .Metadata \"clone.index\") \"1\" }}', \
             settings: { field: '.Metadata[\"recfmt.collection\"]', value: '{{ index .Metadata \"file.path\" }}' }",
            "plugin: filter, condition: '{{ eq .Metadata.GetCollection \"nothing\" }}'",
        ],
        "plugin: table",
    );
}

#[test]
fn the_readme() {
    let readme = include_str!("../../../README.md");
    let pipeline = readme.split("<<'PIPELINE'\n").nth(1).unwrap().split("PIPELINE\n").next().unwrap();
    is_silent(pipeline);
}

#[test]
fn the_demo() {
    is_silent(include_str!("../../../src/cli/templates/demo-pipeline.yaml"));
}

#[test]
fn the_measured_ones() {
    steps_are_silent(&[MEASURED], &[], TO_FILE);
    steps_are_silent(&[MEASURED], &[], "plugin: log, settings: { level: warn }");
    steps_are_silent(
        &[MEASURED],
        &[
            "plugin: field.set, settings: { field: .Payload.After.tag, value: 'x-{{ .Payload.After.city }}' }",
            "plugin: field.rename, settings: { mapping: '.Payload.After.name:fullname' }",
            "plugin: base64.encode, settings: { field: .Payload.After.city }",
        ],
        TO_FILE,
    );
    steps_are_silent(
        &[MEASURED],
        &[
            "plugin: json.encode, settings: { field: .Payload.After }",
            "plugin: json.decode, settings: { field: .Payload.After }",
            "plugin: field.set, settings: { field: .Payload.After.tag, value: 'x-{{ .Payload.After.city }}' }",
        ],
        TO_FILE,
    );
    steps_are_silent(
        &[MEASURED],
        &["plugin: field.set, condition: '{{ eq (printf \"%v\" (index .Payload.After \"active\")) \"true\" }}', \
           settings: { field: .Payload.After.tag, value: hit }"],
        TO_FILE,
    );
    steps_are_silent(&[MEASURED], &["plugin: custom.javascript"], TO_FILE);
    steps_are_silent(&[MEASURED], &["plugin: webhook.http"], TO_FILE);
    steps_are_silent(
        &[MEASURED],
        &["plugin: field.set, settings: { field: .Key, value: '{\"k\":\"{{ printf \"%s\" .Position }}\"}' }"],
        "plugin: table",
    );
    steps_are_silent(&["lines"], &[], TO_FILE);
    steps_are_silent(
        &["lines"],
        &[
            "plugin: json.decode, settings: { field: .Payload.After }",
            "plugin: split, settings: { field: .Payload.After.list }",
            "plugin: clone, condition: '{{ eq (index .Metadata \"split.index\") \"0\" }}', settings: { count: \"3\" }",
            "plugin: custom.javascript",
        ],
        TO_FILE,
    );
}

/// Similar pipelines that are right for some record.
#[test]
fn what_may_be_right() {
    let silent = |sources: &[&str], processor: &str| steps_are_silent(sources, &[processor], "plugin: drop");
    // One source is raw, the other has fields.
    silent(&["lines", "created"], "plugin: filter, condition: '{{ eq .Payload.After.id 7 }}'");
    // Only what is created has data after the change.
    silent(&["mixed"], "plugin: filter, condition: '{{ eq .Payload.After.name \"x\" }}'");
    silent(&["mixed"], "plugin: filter, condition: '{{ eq .Payload.Before.name \"x\" }}'");
    // One of the collections has the field.
    silent(&["orders"], "plugin: filter, condition: '{{ eq .Payload.After.reason \"x\" }}'");
    silent(&["orders"], "plugin: filter, condition: '{{ eq (index .Metadata \"recfmt.collection\") \"orders\" }}'");
    // Fields that the engine writes into every record.
    silent(&["lines"], "plugin: filter, condition: '{{ eq (index .Metadata \"svc.source.connector.id\") \"x\" }}'");
    silent(&["lines"], "plugin: filter, condition: '{{ gt .Metadata.GetReadAt.Unix 7 }}'");
    // Integers compare with floats, nulls with anything.
    silent(&["created"], "plugin: filter, condition: '{{ gt .Payload.After.id 1.5 }}'");
    silent(&["created"], "plugin: filter, condition: '{{ eq .Metadata.GetCreatedAt.Year 2026 }}'");
    silent(&["created"], "plugin: filter, condition: '{{ eq .Payload.After.at.Year 2026 }}'");
    silent(&["created"], "plugin: filter, condition: '{{ contains \"x\" (toJson .Payload.After) }}'");
    silent(&["lines"], "plugin: filter, condition: '{{ contains \"x\" (printf \"%s\" .Payload.After) }}'");
    silent(&["lines"], "plugin: filter, condition: '{{ contains \"x\" (toString .Payload.After.Bytes) }}'");
    silent(&["anything"], "plugin: filter, condition: '{{ eq .Metadata.kind \"x\" }}'");
    silent(&["anything"], "plugin: split, settings: { field: .Payload.After.items }");
}

/// Templates without a certain mistake: the compiler reports nothing.
#[test]
fn templates_that_may_be_right() {
    let silent = |sources: &[&str], condition: &str| {
        let step = format!("plugin: base64.encode, condition: '{condition}', settings: {{ field: .Key }}");
        steps_are_silent(sources, &[&step], "plugin: drop");
    };
    for condition in [
        "{{ if .Payload.Before }}{{ eq .Payload.Before.a 1 }}{{ else }}false{{ end }}",
        "{{ if and .Payload.Before (eq .Payload.Before.a 1) }}true{{ else }}false{{ end }}",
        "{{ with .Payload.After }}{{ gt .id 7 }}{{ else }}false{{ end }}",
        "{{ $after := .Payload.After }}{{ gt $after.id 7 }}",
        "{{ $x := 1 }}{{ if .Payload.After.active }}{{ $x = \"a\" }}{{ end }}{{ eq $x \"a\" }}",
        "{{ $found := false }}{{ range $k, $v := .Payload.After }}{{ if eq $k \"id\" }}{{ $found = true }}{{ end }}{{ end }}{{ $found }}",
        "{{ or (gt .Payload.After.id 10) (lt .Payload.After.id 5) }}",
        "{{ and (gt .Payload.After.id 5) (lt .Payload.After.id 10) }}",
        "{{ and (ge .Payload.After.id 5) (le .Payload.After.id 5) }}",
        "{{ or (eq .Payload.After.name \"a\") (eq .Payload.After.name \"b\") }}",
        "{{ and (ne .Payload.After.name \"a\") (ne .Payload.After.name \"b\") }}",
        "{{ and (eq .Payload.After.name \"a\" \"b\") (ne .Payload.After.name \"a\") }}",
        "{{ gt .Payload.After.price 10.0 }}",
        "{{ gt (float64 .Payload.After.id) 10.5 }}",
        "{{ gt (int .Payload.After.price) 10 }}",
        "{{ eq (toString .Payload.After.id) \"7\" }}",
        "{{ hasPrefix \"x\" .Payload.After.name }}",
        "{{ .Payload.After.name | lower | eq \"x\" }}",
        "{{ eq .Operation.String \"create\" }}",
        "{{ if eq .Operation.String \"delete\" }}1{{ else }} true {{ end }}",
        "{{ eq (printf \"%s\" .Key) \"1\" }}",
        "{{ eq (index .Metadata \"svc.source.connector.id\") \"x\" }}",
        "{{ .Payload.After.active }}",
        "{{ ne .Payload.After.name nil }}",
        "{{ empty .Payload.After.name | not }}",
        "{{ eq .Payload.After.at.Year 2026 }}",
        "{{ template \"t\" . }}{{ define \"t\" }}{{ eq .anything.at.all 1 }}{{ end }}",
        "{{/* said */}}{{ gt .Payload.After.id 1 }}",
        "{{ not (contains \"x\" .Payload.After.name) }}",
        "{{ eq (default \"x\" .Payload.After.name) \"x\" }}",
        "{{ eq (len (toJson .Payload.After)) 3 }}",
        "{{ (index .Payload.After \"id\") | eq 7 }}",
        "{{ regexMatch \"^a\" .Payload.After.name }}",
        "{{ has .Payload.After.name (list \"a\" \"b\") }}",
        "{{ eq (or .Payload.After.name \"none\") \"none\" }}",
        "{{ or (eq .Payload.After.name \"a\") \"false\" }}",
        "{{ if and .Payload.After.active (eq .Payload.After.name \"a\") }}true{{ else }}false{{ end }}",
        "{{ eq (int .Payload.After.active) 1 }}",
        "{{ eq (add .Payload.After.id 1) 2 }}",
        "{{ gt (len .Payload.After.name) 1 }}",
        "{{ contains \"a\" (toString .Payload.After.at) }}",
        "{{ regexMatch \"/api/v1/\" .Payload.After.name }}",
        "{{ eq (first (splitList \",\" .Payload.After.name)) \"a\" }}",
        "{{ eq (index (splitList \",\" .Payload.After.name) 0) \"a\" }}",
        "{{ contains \"a\" (toJson (printf \"%s\" .Key)) }}",
    ] {
        silent(&["created"], condition);
        silent(&["anything"], condition);
    }
    // An absent payload has no fields, and one that is there may have any.
    silent(&["anything"], "{{ eq .Key \"1\" }}");
    silent(&["anything"], "{{ gt .Payload.After.price \"10\" }}");
    silent(&["anything"], "{{ .Metadata.flag }}");
    // A part of a path has slashes around it.
    silent(&["anything"], "{{ regexMatch \"/api/\" .Payload.After.url }}");
}

/// Setting a field twice is right where the first value shows.
/// An entry that is not there is an empty text.
#[test]
fn an_entry_that_only_some_records_have_may_be_empty() {
    let some = "plugin: field.set, condition: '{{ eq (printf \"%s\" .Key) \"1\" }}', settings: { field: .Metadata.stage, value: one }";
    for condition in ["eq (index .Metadata \"stage\") \"\"", "ne .Metadata.stage \"\""] {
        let filter = format!("plugin: filter, condition: '{{{{ {condition} }}}}'");
        steps_are_silent(&["lines"], &[some, &filter], TO_FILE);
    }
}

#[test]
fn what_shows_before_it_is_replaced() {
    let first = "plugin: field.set, settings: { field: .Metadata.stage, value: one }";
    let second = "plugin: field.set, settings: { field: .Metadata.stage, value: two }";
    for between in [
        "plugin: field.set, settings: { field: .Metadata.was, value: '{{ .Metadata.stage }}' }",
        "plugin: filter, condition: '{{ eq .Metadata.stage .Operation.String }}'",
        // A failed record goes to the dead-letter queue with the first value.
        "plugin: json.encode, settings: { field: .Payload.After }",
        "plugin: error, condition: '{{ eq .Operation.String \"delete\" }}'",
        "plugin: custom.javascript",
    ] {
        steps_are_silent(&["anything"], &[first, between, second], "plugin: drop");
    }
    let sometimes = "plugin: field.set, condition: '{{ eq .Operation.String \"delete\" }}', \
                     settings: { field: .Metadata.stage, value: two }";
    steps_are_silent(&["anything"], &[first, sometimes], "plugin: drop");
    let itself = "plugin: field.set, settings: { field: .Metadata.stage, value: '{{ .Metadata.stage }}!' }";
    steps_are_silent(&["anything"], &[first, itself], "plugin: drop");
}

/// A schema in the metadata may decode raw data before a step sees them.
#[test]
fn schemas_make_raw_data_anything() {
    steps_are_silent(
        &["lines"],
        &[
            "plugin: field.set, settings: { field: '.Metadata[\"recfmt.payload.schema.subject\"]', value: orders }",
            "plugin: split, settings: { field: .Payload.After.items }",
        ],
        "plugin: table",
    );
}

/// Pipelines that look wrong and are right.
#[test]
fn unusual_pipelines() {
    let decode = "plugin: json.decode, settings: { field: .Payload.After }";
    for processor in [
        "plugin: field.set, settings: { field: .Metadata.x, value: '{{ printf \"%s\" .Key }}' }",
        "plugin: field.set, settings: { field: .Metadata.x, value: '{{ toJson .Payload.After }}' }",
        "plugin: field.set, settings: { field: .Metadata.x, value: '{{ if .Payload.After }}a{{ end }}' }",
        "plugin: field.set, settings: { field: .Metadata.x, value: '{{ range $k, $v := .Payload.After }}{{ $k }}{{ end }}' }",
        "plugin: field.set, settings: { field: .Metadata.x, value: '{{ define \"x\" }}a{{ end }}{{ template \"x\" . }}' }",
        "plugin: field.set, settings: { field: .Metadata.x, value: '{{ printf \"%5.2f%% %v %q\" 1.5 .Payload.After.n .Operation.String }}' }",
        "plugin: field.set, settings: { field: .Metadata.x, value: '{{ printf \"%*d\" 5 1 }}' }",
        "plugin: field.set, settings: { field: .Metadata.x, value: '{{ add .Payload.After.n 1 }} {{ addf .Payload.After.n 0.5 }}' }",
        "plugin: field.set, settings: { field: .Metadata.x, value: '{{ date \"2006\" now }} {{ date \"2006\" (int64 .Payload.After.t) }}' }",
        "plugin: field.set, settings: { field: .Metadata.x, value: '{{ regexMatch \"^a[b]\" .Operation.String }}' }",
        "plugin: field.set, settings: { field: .Metadata.x, value: '.Payload' }",
        "plugin: field.set, settings: { field: .Metadata.x, value: '{{ index .Payload.After.list 0 }} {{ .Payload.After.at }}' }",
        "plugin: field.set, settings: { field: .Metadata.x, value: '{{ int .Payload.After.n }} {{ quote .Key }} {{ toString .Key }}' }",
        "plugin: field.set, settings: { field: .Metadata.x, value: '{{ toJson .Payload }} {{ or .Payload.After.a \"none\" }}' }",
        "plugin: field.exclude, condition: '{{ eq (upper .Operation.String) \"CREATE\" }}', settings: { fields: .Payload.After.n }",
        "plugin: field.exclude, condition: '{{ eq .Operation.String \"create\" }}', settings: { fields: .Payload.After.n }",
        "plugin: filter, condition: '{{ eq .Operation.String .Payload.After.op }}'",
        "plugin: field.exclude, condition: '{{ ne .Operation.String \"delete\" }}', settings: { fields: .Payload.After.n }",
        "plugin: field.exclude, condition: '{{ or (eq .Operation.String \"create\") (eq .Operation.String \"snapshot\") }}', settings: { fields: .Payload.After.n }",
        "plugin: field.exclude, condition: '{{ eq .Operation.String \"create\" \"snapshot\" }}', settings: { fields: .Payload.After.n }",
    ] {
        steps_are_silent(&["lines"], &[decode, processor], TO_FILE);
    }
    // A field that was removed may come again.
    steps_are_silent(
        &["lines"],
        &[
            decode,
            "plugin: field.exclude, settings: { fields: .Payload.After.n }",
            "plugin: field.set, condition: '{{ .Payload.After.ok }}', settings: { field: .Payload.After.n, value: '1' }",
            "plugin: filter, condition: '{{ eq .Payload.After.n \"1\" }}'",
        ],
        TO_FILE,
    );
    // Data that were encoded are decoded again.
    steps_are_silent(
        &["lines"],
        &[
            decode,
            "plugin: json.encode, settings: { field: .Payload.After }",
            "plugin: base64.encode, settings: { field: .Payload.After }",
            "plugin: base64.decode, settings: { field: .Payload.After }",
            decode,
            "plugin: field.set, settings: { field: .Payload.After.n, value: '1' }",
        ],
        TO_FILE,
    );
    // An envelope that may be there.
    steps_are_silent(&["lines"], &[decode, "plugin: unwrap.kafkaconnect"], "plugin: table");
}

#[test]
fn pieces_with_keys_of_their_own() {
    const DECODE: &str = "plugin: json.decode, settings: { field: .Payload.After }";
    const SPLIT: &str = "plugin: split, settings: { field: .Payload.After.tags }";
    const CLONE: &str = "plugin: clone, settings: { count: 1 }";
    let set = |value: &str| format!("plugin: field.set, settings: {{ field: .Key, value: '{value}' }}");
    let of_index = set(r#"{"id": {{ .Payload.After.id }}, "n": {{ index .Metadata "split.index" }}}"#);
    let of_element = set(r#"{"id": {{ toJson .Payload.After.tags }}}"#);
    let of_copy = "plugin: field.set, condition: '{{ eq (index .Metadata \"clone.index\") \"1\" }}', \
                   settings: { field: .Key, value: '{\"id\": 1}' }";
    let random = set(r#"{"id": "{{ uuidv4 }}"}"#);
    let by_way = "plugin: field.set, settings: { field: .Metadata.n, value: '{{ index .Metadata \"split.index\" }}' }";
    let of_way = set(r#"{"id": {{ .Metadata.n }}}"#);
    let only = "plugin: filter, condition: '{{ ne (index .Metadata \"clone.index\") \"0\" }}'";
    for steps in [
        vec![DECODE, SPLIT, &of_index],
        vec![DECODE, SPLIT, &of_element],
        vec![DECODE, SPLIT, by_way, &of_way],
        vec![DECODE, CLONE, of_copy],
        vec![DECODE, CLONE, &random],
        vec![DECODE, CLONE, only],
        vec![DECODE, CLONE, "plugin: custom.javascript"],
    ] {
        steps_are_silent(&["lines"], &steps, "plugin: keyed");
    }
}

#[test]
fn guards_against_operations_that_do_not_come() {
    for condition in [r#"not (eq .Operation.String "create")"#, r#"ne .Operation.String "create""#] {
        steps_are_silent(&["lines"], &[&format!("plugin: filter, condition: '{{{{ {condition} }}}}'")], TO_FILE);
    }
    let tag = "plugin: field.set, condition: '{{ ne .Operation.String \"delete\" }}', \
               settings: { field: .Metadata.a, value: b }";
    steps_are_silent(&["lines"], &[tag], TO_FILE);
    steps_are_silent(&["mixed"], &["plugin: filter, condition: '{{ eq .Operation.String \"delete\" }}'"], TO_FILE);
}

#[test]
fn encodings_in_order() {
    const DECODE: &str = "plugin: json.decode, settings: { field: .Payload.After }";
    let step = |plugin: &str| format!("plugin: {plugin}, settings: {{ field: .Payload.After.doc }}");
    let [json, base64, unbase64, unjson] = ["json.encode", "base64.encode", "base64.decode", "json.decode"].map(step);
    steps_are_silent(&["lines"], &[DECODE, &json, &base64, &unbase64, &unjson], TO_FILE);
    let convert = "plugin: field.convert, settings: { field: .Payload.After.at, type: time }";
    for value in ["{{ now | date \"2006-01-02T15:04:05Z07:00\" }}", "{{ now | unixEpoch }}", "1790000000000000000"] {
        let set = format!("plugin: field.set, settings: {{ field: .Payload.After.at, value: '{value}' }}");
        steps_are_silent(&["lines"], &[DECODE, &set, convert], TO_FILE);
    }
}

/// One field of several types: each step tests the type, or another field takes its place.
#[test]
fn fields_of_several_types() {
    let set = |field: &str, value: &str| format!("plugin: field.set, settings: {{ field: {field}, value: '{value}' }}");
    let upper = set(".Metadata.a", "{{ upper .Payload.After.c }}");
    let country = set(".Metadata.b", "{{ .Payload.After.c.country }}");
    let with = |condition: &str, step: &str| step.replacen(", ", &format!(", condition: '{{{{ {condition} }}}}', "), 1);
    let is_text = |step: &str| with("kindIs \"string\" .Payload.After.c", step);
    let pairs: &[&[String]] = &[
        &[is_text(&upper), country.clone()],
        &[country.clone(), is_text(&upper)],
        &[upper.clone(), with("kindIs \"map\" .Payload.After.c", &country)],
        &[set(
            ".Metadata.a",
            "{{ if kindIs \"string\" .Payload.After.c }}{{ upper .Payload.After.c }}{{ else }}{{ .Payload.After.c.country }}{{ end }}",
        )],
        &[upper.clone(), set(".Payload.After.c", "{\"country\": \"DE\"}"), with(".Payload.After.d", &upper)],
        &[upper.clone(), "plugin: json.decode, settings: { field: .Payload.After.c }".to_owned(), country.clone()],
        &[upper.clone(), "plugin: custom.javascript".to_owned(), country.clone()],
        &[set(".Metadata.a", "{{ .Payload.After.c | default \"x\" | toString | upper }}"), country.clone()],
        &[set(".Metadata.a", "{{ toString .Payload.After.c }}{{ printf \"%s\" .Payload.After.c }}"), country.clone()],
        &[
            "plugin: filter, condition: '{{ and (kindIs \"float64\" .Payload.After.c) (lt .Payload.After.c 2.0) }}'"
                .to_owned(),
            upper.clone(),
        ],
        &[
            "plugin: filter, condition: '{{ lt .Payload.After.c 2.0 }}'".to_owned(),
            "plugin: filter, condition: '{{ gt .Payload.After.c 10 }}'".to_owned(),
            "plugin: field.convert, settings: { field: .Payload.After.c, type: string }".to_owned(),
            upper.clone(),
        ],
        &[
            "plugin: filter, condition: '{{ eq .Payload.After.c \"x\" }}'".to_owned(),
            upper.clone(),
            set(".Metadata.x", "{{ len .Payload.After.c }}{{ index .Payload.After.c 0 }}"),
        ],
        &[
            set(".Metadata.x", "{{ len .Payload.After.c }}{{ range .Payload.After.c }}x{{ end }}"),
            "plugin: split, settings: { field: .Payload.After.c }".to_owned(),
            country.clone(),
        ],
    ];
    for steps in pairs {
        let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
        steps_are_silent(&["anything"], &steps, TO_FILE);
    }
}

/// Arithmetic in pipes, and lists, that mean what they say.
#[test]
fn arguments_in_their_order() {
    for value in [
        "{{ 100 | sub .Payload.After.c }}",
        "{{ .Payload.After.c | sub 100 }}",
        "{{ .Payload.After.c | divf 1.0 }}",
        "{{ .Payload.After.c | add 1 }}",
        "{{ .Payload.After.c | mul 100 }}",
        "{{ has .Payload.After.c (list \"DE\" \"FR\") }}",
        "{{ has \"DE\" .Payload.After.c }}",
        "{{ with .Payload.After.c }}{{ $.Payload.After.d }}{{ .Payload }}{{ end }}",
        "{{ range .Payload.After.c }}{{ .Key }}={{ .Value }}{{ end }}",
        "{{ with . }}{{ .Payload.After.c }}{{ end }}",
        "{{ gt (unixEpoch now) (unixEpoch (toDate \"2006-01-02\" .Payload.After.c)) }}",
        "{{ eq (duration .Payload.After.c) \"1h0m0s\" }}",
        "{{ .Payload.After.c.Format \"2006\" }}",
    ] {
        let step = format!("plugin: field.set, settings: {{ field: .Metadata.x, value: '{value}' }}");
        steps_are_silent(&["anything"], &[&step], TO_FILE);
    }
    let step = "plugin: field.set, settings: { field: .Operation, value: '{{ if .Payload.After.c }}delete{{ else if .Payload.After.d }} update {{ else }}{{ .Payload.After.op }}{{ end }}' }";
    steps_are_silent(&["anything"], &[step], TO_FILE);
}
