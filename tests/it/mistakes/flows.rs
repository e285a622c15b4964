//! Mistakes that show only in how sources, processors and destinations follow each other.

use anabranch_graph::plan::CompileOptions;
use anabranch_plugin::diagnostic::Files;
use anabranch_process::files::PipelineFiles;
use anabranch_registry::registry;
use anabranch_service::pipelines::Pipelines;

use super::told;

pub(super) const FILE: &str = "plugin: file, settings: { path: in.ndjson }";
const BUCKET: &str =
    "plugin: s3, settings: { aws.bucket: b, aws.region: us-east-1, aws.accessKeyId: a, aws.secretAccessKey: b }";
const TABLE: &str = "plugin: postgres, settings: { url: 'postgres://u@h/d', table: t }";
pub(super) const DECODE: &str = "plugin: json.decode, settings: { field: .Payload.After }";
const KEY: &str = "plugin: field.set, settings: { field: .Key, value: '{\"id\": {{ .Payload.After.id }}}' }";
const SPLIT: &str = "plugin: split, settings: { field: .Payload.After.tags }";
const AVRO: &str = "plugin: avro.encode, settings: { field: .Payload.After, schema.strategy: autoRegister, \
                    schema.autoRegister.subject: s }";
pub(super) const DROP: &str = "plugin: drop";

pub(super) fn found(source: &str, processors: &[&str], destination: &str) -> Vec<String> {
    let mut text = format!(
        "version: \"2.2\"\npipelines:\n  - id: p\n    connectors:\n      - {{ id: in, type: source, {source} }}\n      \
         - {{ id: out, type: destination, {destination} }}\n    processors:\n"
    );
    for (i, processor) in processors.iter().enumerate() {
        text.push_str(&format!("      - {{ id: p{i}, {processor} }}\n"));
    }
    let (mut files, options) = (Files::new(), CompileOptions { split: true, ..CompileOptions::default() });
    files.add("p.yaml", text);
    let pipelines = Pipelines::of(PipelineFiles { files, unreadable: Vec::new() }, &registry(), &options);
    told(&pipelines).into_iter().filter(|line| !line.contains("plan.literal_secret")).collect()
}

#[track_caller]
fn one(source: &str, processors: &[&str], destination: &str, words: &[&str]) {
    let found = found(source, processors, destination);
    let fits = |line: &String| words.iter().all(|word| line.contains(word));
    assert!(found.len() == 1 && found.iter().all(fits), "{words:?}\n{}", found.join("\n"));
}

#[track_caller]
fn none(source: &str, processors: &[&str], destination: &str) {
    assert_eq!(found(source, processors, destination), [] as [String; 0]);
}

#[test]
fn pieces_of_one_key_are_told_before_they_overwrite_each_other() {
    let clone = "plugin: clone, settings: { count: 2 }";
    let chunk = "plugin: ai.chunk, settings: { inputField: .Payload.After.text, emit: records }";
    let words = ["warning flow.key_shared", "only the last remains"];
    one(FILE, &[DECODE, KEY, SPLIT], TABLE, &[words[0], words[1], "\"split.index\""]);
    one(FILE, &[DECODE, KEY, clone], TABLE, &[words[0], words[1], "\"clone.index\""]);
    one(FILE, &[DECODE, KEY, chunk], TABLE, &words);
    one(FILE, &[DECODE, SPLIT, KEY], TABLE, &words);
    let own = "plugin: field.set, settings: { field: .Key, value: '{\"id\": {{ index .Metadata \"split.index\" }}}' }";
    none(FILE, &[DECODE, KEY, SPLIT, own], TABLE);
    // Rows without a key are inserted, and files keep every line.
    none(FILE, &[DECODE, "plugin: field.exclude, settings: { fields: .Key }", SPLIT], TABLE);
    none(FILE, &[DECODE, KEY, SPLIT], DROP);
    // Each piece has a table of its own.
    let table =
        "plugin: postgres, settings: { url: 'postgres://u@h/d', table: 't{{ index .Metadata \"split.index\" }}' }";
    none(FILE, &[DECODE, KEY, SPLIT], table);
}

#[test]
fn a_table_that_another_destination_makes_repeat_rows_is_told() {
    let keyless = "plugin: field.exclude, settings: { fields: .Key }";
    let once = "plugin: postgres, settings: { url: 'postgres://u@h/d', table: t, exactlyOnce: true }";
    let beside = |first: &str, second: &str| format!("{first} }}\n      - {{ id: other, type: destination, {second}");
    let words = [
        "warning plan.not_exactly_once: \"out\" may write rows twice after a crash",
        "the records have no key",
        "\"in\" also delivers to \"other\"",
        "exactlyOnce",
    ];
    one(FILE, &[DECODE, keyless], &beside(once, DROP), &words);
    none(FILE, &[DECODE, keyless], once);
    none(FILE, &[DECODE, keyless], &beside(TABLE, DROP));
    // Rows with a key overwrite themselves, and records that may have one are not judged.
    none(FILE, &[DECODE, KEY], &beside(once, DROP));
    let some = format!("{keyless}, condition: '{{{{ eq .Payload.After.id 1 }}}}'");
    none(FILE, &[DECODE, KEY, &some], &beside(once, DROP));
}

#[test]
fn a_key_that_is_the_same_for_all_records_is_told() {
    let words = ["warning flow.key_constant: every record has the same key", "only the last remains"];
    let key = |value: &str| format!("plugin: field.set, settings: {{ field: .Key, value: '{value}' }}");
    one(FILE, &[DECODE, &key("{\"id\": 7}")], TABLE, &words);
    one(FILE, &[&key("{\"id\": \"orders\"}"), DECODE], TABLE, &words);
    none(FILE, &[DECODE, KEY], TABLE);
    // Another step gives them their own, and a variable may be another elsewhere.
    none(FILE, &[DECODE, &key("{\"id\": 7}"), SPLIT, KEY], DROP);
    none(FILE, &[DECODE, &key("{\"id\": \"${HOME}\"}")], TABLE);
    let some = format!("{}, condition: '{{{{ eq .Payload.After.id 1 }}}}'", key("{\"id\": 7}"));
    none(FILE, &[DECODE, KEY, &some], TABLE);
    none(FILE, &[DECODE, &key("{\"id\": 7}")], DROP);
    let table = "plugin: postgres, settings: { url: 'postgres://u@h/d', table: 't{{ .Payload.After.kind }}' }";
    none(FILE, &[DECODE, &key("{\"id\": 7}")], table);
}

#[test]
fn objects_of_a_bucket_are_no_rows() {
    let raw = found(BUCKET, &[], TABLE);
    assert!(raw.len() == 2 && raw[0].contains("warning flow.needs_fields: nearly every record"), "{raw:?}");
    assert!(raw[1].contains("warning flow.key_raw: nearly every record"), "{raw:?}");
    one(BUCKET, &[DECODE], TABLE, &["warning flow.key_raw: nearly every record", "name of an object"]);
    none(BUCKET, &[DECODE, "plugin: field.exclude, settings: { fields: .Key }"], TABLE);
    none(BUCKET, &[DECODE, KEY], TABLE);
}

#[test]
fn keys_that_are_no_objects_fail_every_row() {
    one(FILE, &["plugin: unwrap.debezium"], TABLE, &["warning flow.key_raw: nearly every record"]);
    for value in ["id={{ .Payload.After.id }}", "[{{ .Payload.After.id }}]"] {
        let set = format!("plugin: field.set, settings: {{ field: .Key, value: '{value}' }}");
        one(FILE, &[DECODE, &set], TABLE, &["error flow.key_raw"]);
    }
    let both = "plugin: field.exclude, settings: { fields: '.Payload.After,.Key' }";
    one(FILE, &[DECODE, both], TABLE, &["error flow.nothing_to_write"]);
    none(FILE, &[DECODE, KEY], TABLE);
}

#[test]
fn encodings_are_undone_in_the_reverse_order() {
    let step = |plugin: &str| format!("plugin: {plugin}, settings: {{ field: .Payload.After }}");
    let [unjson, base64, unbase64, unavro] = ["json.decode", "base64.encode", "base64.decode", "avro.decode"].map(step);
    one(FILE, &[DECODE, AVRO, &unjson], DROP, &["warning flow.not_encoded", "Avro data"]);
    one(FILE, &[DECODE, AVRO, AVRO], DROP, &["warning flow.not_encoded", "Avro data"]);
    one(FILE, &[DECODE, AVRO, &unbase64], DROP, &["warning flow.not_encoded", "Avro data"]);
    one(FILE, &[&base64, &unavro], DROP, &["error flow.not_encoded", "base64 text"]);
    one(FILE, &[&base64, AVRO], DROP, &["error flow.not_encoded", "base64 text"]);
    one(FILE, &[&base64, &unjson], DROP, &["warning flow.not_encoded", "nearly every record"]);
    none(FILE, &[DECODE, AVRO, &base64, &unbase64, &unavro], DROP);
    none(FILE, &[AVRO, &unavro], DROP);
    let key = AVRO.replace(".Payload.After", ".Key");
    one(FILE, &[&key], DROP, &["error flow.not_encoded", ".Key"]);
    let field = AVRO.replace(".Payload.After", ".Payload.After.addr");
    let city = "plugin: filter, condition: '{{ eq .Payload.After.addr.city \"x\" }}'";
    one(FILE, &[DECODE, &field, city], DROP, &["warning flow.not_a_map", "every record that has .Payload.After.addr"]);
}

#[test]
fn requests_that_are_hardly_meant_are_told() {
    let webhook = |more: &str| format!("plugin: webhook.http, settings: {{ request.url: 'http://h/'{more} }}");
    let body = "request.body: '{{ toJson .Payload.After }}'";
    let one = |more: &str, words: &[&str]| one(FILE, &[DECODE, &webhook(more)], DROP, words);
    let none = |more: &str| none(FILE, &[DECODE, &webhook(more)], DROP);
    one(&format!(", {body}"), &["warning flow.suspect", "a GET with a body"]);
    one(", request.method: POST", &["warning flow.suspect", "has no body"]);
    none(&format!(", {body}, request.method: GET"));
    none(&format!(", {body}, request.method: POST"));
    none(", request.method: POST, response.body: .Payload.After.answer");
    none("");
    let of_record =
        "plugin: webhook.http, settings: { request.url: 'http://h/{{ .Payload.After.id }}', request.method: POST }";
    super::flows::none(FILE, &[DECODE, of_record], DROP);
}

#[test]
fn references_without_braces_in_requests_are_told() {
    let webhook = |settings: &str| format!("plugin: webhook.http, settings: {{ {settings} }}");
    let address = "request.url: 'http://h/'";
    for (settings, meant) in [
        (format!("{address}, headers.X-Id: .Payload.After.order"), "write '{{ .Payload.After.order }}'"),
        (
            format!("{address}, request.headers.X-Id: '{{ .Payload.After.order }}'"),
            "write '{{ .Payload.After.order }}'",
        ),
        (
            format!("{address}, request.method: POST, request.body: '{{\"order\": .Payload.After.order}}'"),
            "write '{\"order\": {{ toJson .Payload.After.order }}}'",
        ),
        (
            format!("{address}, request.method: POST, request.body: '{{\"order\": \".Payload.After.order\"}}'"),
            "write '{\"order\": {{ toJson .Payload.After.order }}}'",
        ),
        (
            format!("{address}, request.method: POST, request.body: toJson .Payload.After"),
            "{{ toJson .Payload.After }}",
        ),
        ("request.url: 'http://h/z/{ .Payload.After.order }'".into(), "write 'http://h/z/{{ .Payload.After.order }}'"),
        ("request.url: http://h/z/.Payload.After.order".into(), "write 'http://h/z/{{ .Payload.After.order }}'"),
        ("request.url: http://h/z?a=.Metadata.a&b=1".into(), "write 'http://h/z?a={{ .Metadata.a }}&b=1'"),
    ] {
        one(FILE, &[DECODE, &webhook(&settings)], DROP, &["warning flow.suspect: this is the text", meant]);
    }
    for settings in [
        "request.url: 'http://h/a.Key', headers.X-Id: order".to_owned(),
        "request.url: 'http://h/{{ .Payload.After.order }}', headers.X-Id: '{{ .Payload.After.order }}'".to_owned(),
        format!("{address}, request.method: POST, request.body: '{{\"about\": \"the field .Payload.After.a\"}}'"),
    ] {
        none(FILE, &[DECODE, &webhook(&settings)], DROP);
    }
    // A password in an address is not shown.
    let found = found(FILE, &[DECODE, &webhook("request.url: http://me:HUNTER22@h/.Payload.After.a")], DROP);
    assert!(found.iter().any(|line| line.contains("flow.suspect")), "{found:?}");
    assert!(!found.iter().any(|line| line.contains("HUNTER22")), "{found:?}");
}

#[test]
fn a_field_that_is_set_in_vain_is_told() {
    let set = |value: &str| format!("plugin: field.set, settings: {{ field: .Payload.After.x, value: {value} }}");
    let exclude = "plugin: field.exclude, settings: { fields: .Payload.After.x }";
    for second in [set("b"), exclude.to_owned()] {
        one(
            FILE,
            &[DECODE, &set("a"), &second],
            DROP,
            &["warning flow.overwritten", "no processor reads the value that"],
        );
    }
    let other = "plugin: field.set, settings: { field: .Metadata.y, value: '{{ .Payload.After.x }}' }";
    none(FILE, &[DECODE, &set("a"), other, &set("b")], DROP);
    none(FILE, &[DECODE, &set("a"), &exclude.replace(".x", ".y")], DROP);
}

#[test]
fn the_key_of_a_line_is_set_as_a_whole() {
    let set = "plugin: field.set, settings: { field: .Key.id, value: x }";
    one(FILE, &[set], DROP, &["error flow.not_a_map", "value: '{\"id\": …}'"]);
}

#[test]
fn statuses_that_fail_the_record_are_never_compared() {
    let webhook = |more: &str| {
        format!(
            "plugin: webhook.http, settings: {{ request.url: 'http://h/', response.status: .Metadata.status{more} }}"
        )
    };
    let bad =
        "plugin: field.set, condition: '{{ eq .Metadata.status \"400\" }}', settings: { field: .Metadata.a, value: b }";
    one(FILE, &[&webhook(""), bad], DROP, &["warning flow.never_true", "response.accept"]);
    none(FILE, &[&webhook(", response.accept: 4xx"), bad], DROP);
    none(FILE, &[&webhook(""), &bad.replace("400", "204")], DROP);
}

#[test]
fn folders_that_no_object_may_have_are_told() {
    let bucket = |folder: &str| BUCKET.replace(" }", &format!(", folder: '{folder}' }}"));
    one(FILE, &[], &bucket("../x"), &["error settings.invalid", "cannot be a part of a key"]);
    one(FILE, &[], &bucket("a/../{{ .Operation.String }}"), &["error settings.invalid"]);
    none(FILE, &[], &bucket("{{ .Operation.String }}/x"));
    none(FILE, &[], &bucket("a..b/.c"));
}

#[test]
fn fields_that_are_needed_as_two_types_are_told() {
    let set = |value: &str| format!("plugin: field.set, settings: {{ field: .Metadata.x, value: '{value}' }}");
    let upper = set("{{ upper .Payload.After.customer }}").replacen(".Metadata.x", ".Metadata.y", 1);
    let country = set("{{ .Payload.After.customer.country }}");
    let words = ["error flow.not_a_map", "must be a map here, and a text in an earlier use"];
    one(
        FILE,
        &[DECODE, &set("{{ urlParse .Payload.After.customer }}{{ .Payload.After.customer.country }}")],
        DROP,
        &words,
    );
    one(FILE, &[DECODE, &upper, &country], DROP, &words);
    let cheap = "plugin: filter, condition: '{{ lt .Payload.After.tags 2.0 }}'";
    one(FILE, &[DECODE, cheap, SPLIT], DROP, &["error flow.not_a_list", "a list here, and an int or a float"]);
    let encode = "plugin: base64.encode, settings: { field: .Payload.After.customer }";
    let words = ["warning flow.not_a_text", "every record that has .Payload.After.customer fails"];
    one(FILE, &[DECODE, &country, encode], DROP, &words);
    let text = "plugin: field.set, settings: { field: .Payload.After.customer, value: '{\"country\": \"DE\"}' }";
    let decode = "plugin: json.decode, settings: { field: .Payload.After.customer }";
    none(FILE, &[DECODE, &upper, text, decode, &country], DROP);
    let if_text = upper.replacen(", ", ", condition: '{{ kindIs \"string\" .Payload.After.customer }}', ", 1);
    none(FILE, &[DECODE, &if_text, &country], DROP);
    none(FILE, &[DECODE, &country, &if_text], DROP);
}
