//! Schemas in the service: they are kept over restarts, and native processors see decoded data.

use std::time::Duration;

use anabranch_ops_http::testing::{Reply, Server};
use serde_json::{Value, json};

use crate::process::{Workspace, base64_decode};

mod raw;

/// Lines of JSON from `in.txt`, as Avro with an inferred schema of the subject `orders`.
const ENCODE: &str = r#"
version: "2.2"
pipelines:
  - id: encode
    connectors:
      - { id: in, type: source, plugin: file, settings: { path: in.txt } }
      - { id: out, type: destination, plugin: file, settings: { path: encoded.ndjson } }
    processors:
      - { id: parse, plugin: json.decode, settings: { field: .Payload.After } }
      - id: encode
        plugin: avro.encode
        settings: { schema.strategy: autoRegister, schema.autoRegister.subject: orders }
"#;

/// Lines of base64 from `encoded.txt`, as fields.
const DECODE: &str = r#"
version: "2.2"
pipelines:
  - id: decode
    connectors:
      - { id: in, type: source, plugin: file, settings: { path: encoded.txt } }
      - { id: out, type: destination, plugin: file, settings: { path: decoded.ndjson } }
    processors:
      - { id: bytes, plugin: base64.decode, settings: { field: .Payload.After } }
      - { id: decode, plugin: avro.decode }
"#;

fn workspace() -> Workspace {
    let workspace = Workspace::new();
    workspace.write("encode.yaml", ENCODE);
    workspace.write("decode.yaml", DECODE);
    workspace
}

fn records(workspace: &Workspace, name: &str) -> Vec<Value> {
    workspace.lines(name).iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Runs a pipeline file to its end, and says which records it wrote.
#[track_caller]
fn run(workspace: &Workspace, pipelines: &str, out: &str, flags: &[&str]) -> Vec<Value> {
    let before = records(workspace, out).len();
    let fixed = ["run", "--once", "--pipelines", pipelines];
    workspace.run(&[&fixed[..], flags].concat()).expect_code(0);
    records(workspace, out).split_off(before)
}

/// Appends these lines to `in.txt`, encodes them, and gives what was made of each as base64.
#[track_caller]
fn encode(workspace: &Workspace, lines: &[Value], flags: &[&str]) -> Vec<String> {
    let more: String = lines.iter().map(|line| format!("{line}\n")).collect();
    workspace.write("in.txt", workspace.read("in.txt") + &more);
    let encoded = run(workspace, "encode.yaml", "encoded.ndjson", flags);
    assert_eq!(encoded.len(), lines.len());
    encoded.iter().map(|record| record["payload"]["after"].as_str().unwrap().to_owned()).collect()
}

/// The id of the schema in front of the data.
#[track_caller]
fn id(encoded: &str) -> u32 {
    let bytes = base64_decode(encoded);
    assert_eq!(bytes[0], 0);
    u32::from_be_bytes(bytes[1..5].try_into().unwrap())
}

fn schemas_outlive_the_service(flags: &[&str]) {
    let workspace = workspace();
    let first = [json!({"id": 1, "name": "tea"}), json!({"id": 2}), json!({"name": "cup", "id": 3})];
    let second = [json!({"id": 4}), json!({"id": 5.5, "tags": ["a", null]})];
    let mut encoded = encode(&workspace, &first, flags);
    encoded.extend(encode(&workspace, &second, flags));
    assert_eq!(encoded.iter().map(|text| id(text)).collect::<Vec<_>>(), [1, 2, 1, 2, 3]);

    workspace.write("encoded.txt", encoded.join("\n") + "\n");
    let decoded = run(&workspace, "decode.yaml", "decoded.ndjson", flags);
    let payloads: Vec<&Value> = decoded.iter().map(|record| &record["payload"]["after"]).collect();
    assert_eq!(payloads, first.iter().chain(&second).collect::<Vec<_>>());
}

#[test]
fn schemas_in_the_file_outlive_the_service() {
    schemas_outlive_the_service(&[]);
}

#[test]
#[cfg(feature = "postgres")]
fn schemas_in_postgresql_outlive_the_service() {
    let Some(database) = crate::servers::postgres::Database::create() else { return };
    let url = format!("--db.postgres.connection-string={}", database.url());
    schemas_outlive_the_service(&["--db.type=postgres", &url]);
    let texts = "SELECT count(*) FROM anabranch_kv_store WHERE kind = 'schema-text'";
    assert_eq!(database.query(texts), ["3"]);
}

#[test]
fn a_store_in_memory_forgets_schemas() {
    let workspace = workspace();
    let flags = ["--db.type=inmemory"];
    assert_eq!(id(&encode(&workspace, &[json!({"id": 1})], &flags)[0]), 1);
    // The first line comes again: positions are forgotten too.
    workspace.write("in.txt", "");
    assert_eq!(id(&encode(&workspace, &[json!({"name": "x"})], &flags)[0]), 1);
    workspace.write("encoded.txt", "AAAAAAkC\n");
    let output = workspace.run(&["run", "--once", "--pipelines", "decode.yaml", flags[0]]).expect_code(1).both();
    assert!(output.contains("schema not found: id 9"), "{output}");
}

/// A registry that needs a moment for the one schema it has. Every worker gets a strip before the first has its answer.
#[test]
fn workers_that_need_the_same_schema_ask_the_registry_once() {
    let schema = r#"{"type":"record","name":"r","fields":[{"name":"id","type":"long"}]}"#;
    let registry = Server::start(move |request| match request.path.as_str() {
        "/schemas/ids/1" => {
            std::thread::sleep(Duration::from_millis(500));
            Reply::ok(json!({ "schema": schema }).to_string())
        }
        path => Reply::status(404, format!("nothing at {path}")),
    });
    let workspace = workspace();
    workspace.write("encoded.txt", "AAAAAAEC\n".repeat(4000));
    workspace.write("decode.yaml", DECODE.replace("plugin: avro.decode", "plugin: avro.decode, workers: 4"));
    let url = format!("--schema-registry.confluent.connection-string={}", registry.url());
    let decoded = run(&workspace, "decode.yaml", "decoded.ndjson", &["--schema-registry.type=confluent", &url]);
    assert_eq!(decoded.len(), 4000);
    assert!(decoded.iter().all(|record| record["payload"]["after"] == json!({ "id": 1 })));
    assert_eq!(registry.received().len(), 1);
}

/// All four switches, inside `settings`.
fn nothing_on() -> String {
    ["decode.key", "decode.payload", "encode.key", "encode.payload"]
        .map(|step| format!(", sdk.schema.{step}.enabled: 'false'"))
        .concat()
}

/// Data without a header whose schema the metadata name, in the key and the payload; then these processors.
fn by_metadata(processors: &str) -> String {
    let off = nothing_on();
    let set = |id: &str, field: &str, value: &str| {
        format!("      - {{ id: {id}, plugin: field.set, settings: {{ field: '{field}', value: '{value}' {off} }} }}\n")
    };
    let bytes = |id: &str, field: &str| {
        format!("      - {{ id: {id}, plugin: base64.decode, settings: {{ field: {field} {off} }} }}\n")
    };
    let head = DECODE.split("      - { id: bytes").next().unwrap();
    let mut text = head.to_owned() + &set("key", ".Key", r#"{{ printf "%s" .Payload.After }}"#);
    text += &(bytes("key-bytes", ".Key") + &bytes("bytes", ".Payload.After"));
    for part in ["key", "payload"] {
        for (name, value) in [("subject", "orders"), ("version", "1")] {
            text += &set(&format!("{part}-{name}"), &format!(r#".Metadata["recfmt.{part}.schema.{name}"]"#), value);
        }
    }
    let queue = "    dead-letter-queue: { plugin: file, settings: { path: dlq.ndjson }, window-size: 0 }\n";
    text + processors + queue
}

/// Runs one record of version 1 of `orders`.
struct Seen {
    key: Value,
    after: Value,
    versions: [Value; 2],
}

/// The data as they come: bytes in base64.
const RAW: &str = "AgZ0ZWE=";

/// Runs processors over a record with raw data, in a service that has kept their schema.
#[track_caller]
fn process(processors: &str) -> Result<Seen, String> {
    let workspace = workspace();
    let encoded = encode(&workspace, &[json!({"id": 1, "name": "tea"})], &[]);
    assert_eq!(&base64_decode(&encoded[0])[5..], base64_decode(RAW));
    workspace.write("encoded.txt", format!("{RAW}\n"));
    workspace.write("decode.yaml", by_metadata(processors));
    let out = run(&workspace, "decode.yaml", "decoded.ndjson", &[]);
    match out.as_slice() {
        [record] => Ok(Seen {
            key: record["key"].clone(),
            after: record["payload"]["after"].clone(),
            versions: ["key", "payload"]
                .map(|part| record["metadata"][format!("recfmt.{part}.schema.version")].clone()),
        }),
        [] => {
            let letter = records(&workspace, "dlq.ndjson").remove(0);
            Err(letter["metadata"]["svc.dlq.nack.error"].as_str().unwrap().to_owned())
        }
        more => panic!("{more:?}"),
    }
}

/// Sets a field of the key and one of the payload, with these switches inside `settings`.
fn note(switches: &str) -> Result<Seen, String> {
    process(&format!(
        "      - {{ id: key-note, plugin: field.set, settings: {{ field: .Key.note, value: k {switches} }} }}
      - {{ id: note, plugin: field.set, settings: {{ field: .Payload.After.note, value: p {switches} }} }}\n"
    ))
}

#[test]
fn processors_see_decoded_data_and_new_shapes_are_new_versions() {
    let seen = note("").unwrap();
    assert_eq!(seen.key, json!({"id": 1, "name": "tea", "note": "k"}));
    assert_eq!(seen.after, json!({"id": 1, "name": "tea", "note": "p"}));
    // Both have the same new shape, and so the same version.
    assert_eq!(seen.versions, ["2", "2"].map(Value::from));
}

#[test]
fn each_switch_turns_off_its_step() {
    for (step, versions) in [("encode.key", ["1", "2"]), ("encode.payload", ["2", "1"])] {
        let seen = note(&format!(", sdk.schema.{step}.enabled: 'false'")).unwrap();
        assert_eq!((&seen.key["note"], &seen.after["note"]), (&json!("k"), &json!("p")));
        assert_eq!(seen.versions, versions.map(Value::from), "{step}");
    }
    for (step, field) in [("decode.key", ".Key"), ("decode.payload", ".Payload.After")] {
        let failed = note(&format!(", sdk.schema.{step}.enabled: 'false'")).map(|_| ()).unwrap_err();
        assert!(failed.contains(field) && failed.contains("raw data"), "{failed}");
    }
}

#[test]
fn switches_may_stand_beside_the_plugin() {
    let failed = process(
        "      - id: note
        plugin: field.set
        settings: { field: .Payload.After.note, value: p }
        sdk.schema.decode.payload.enabled: false\n",
    );
    let failed = failed.map(|_| ()).unwrap_err();
    assert!(failed.contains(".Payload.After") && failed.contains("raw data"), "{failed}");
}

#[test]
fn a_destination_decodes_unless_told_otherwise() {
    let off = nothing_on();
    let tag =
        format!("      - {{ id: tag, plugin: field.set, settings: {{ field: .Metadata.tag, value: x {off} }} }}\n");
    let seen = process(&tag).unwrap();
    assert_eq!((&seen.key, &seen.after), (&json!({"id": 1, "name": "tea"}), &json!({"id": 1, "name": "tea"})));
    assert_eq!(seen.versions, ["1", "1"].map(Value::from));

    let workspace = workspace();
    encode(&workspace, &[json!({"id": 1, "name": "tea"})], &[]);
    workspace.write("encoded.txt", format!("{RAW}\n"));
    let raw = "path: decoded.ndjson, sdk.schema.extract.key.enabled: false, sdk.schema.extract.payload.enabled: false";
    workspace.write("decode.yaml", by_metadata(&tag).replace("path: decoded.ndjson", raw));
    let out = run(&workspace, "decode.yaml", "decoded.ndjson", &[]);
    assert_eq!((&out[0]["key"], &out[0]["payload"]["after"]), (&json!(RAW), &json!(RAW)));
}

#[test]
fn data_of_another_schema_fail_their_record() {
    let workspace = workspace();
    encode(&workspace, &[json!({"id": 1, "name": "tea"})], &[]);
    workspace.write("encoded.txt", "AgY=\nAgZ0ZWE=\n");
    let tag = "      - { id: tag, plugin: field.set, settings: { field: .Metadata.tag, value: x } }\n";
    workspace.write("decode.yaml", by_metadata(tag));
    let out = run(&workspace, "decode.yaml", "decoded.ndjson", &[]);
    assert_eq!(out.len(), 1);
    assert_eq!(out[0]["payload"]["after"], json!({"id": 1, "name": "tea"}));
    let letters = records(&workspace, "dlq.ndjson");
    let error = letters[0]["metadata"]["svc.dlq.nack.error"].as_str().unwrap();
    assert!(error.contains("schema \"orders\", version 1"), "{error}");
}

#[test]
#[cfg(feature = "js")]
fn scripts_see_decoded_data_too() {
    let script = "      - id: script
        plugin: custom.javascript
        settings:
          script: |
            function process(rec) { rec.Payload.After.name = rec.Payload.After.name + rec.Key.id; return rec; }\n";
    let seen = process(script).unwrap();
    assert_eq!(seen.after, json!({"id": 1, "name": "tea1"}));
    assert_eq!(seen.versions, ["1", "1"].map(Value::from));
}

/// From a source of fields to a file, once.
fn generated(settings: &str) -> Vec<Value> {
    let workspace = Workspace::new();
    workspace.write(
        "pipelines/p.yaml",
        format!(
            r#"
version: "2.2"
pipelines:
  - id: p
    connectors:
      - id: in
        type: source
        plugin: generator
        settings:
          recordCount: 3
          seed: 1
          collections.users.format.type: structured
          collections.users.format.options.id: int
          collections.users.format.options.name: string
          {settings}
      - {{ id: out, type: destination, plugin: file, settings: {{ path: out.ndjson }} }}
"#
        ),
    );
    workspace.once();
    records(&workspace, "out.ndjson")
}

#[test]
fn records_of_a_source_name_their_schema() {
    let named = |settings: &str| {
        let out = generated(settings);
        assert_eq!(out.len(), 3);
        let one = |record: &Value| {
            assert!(record["payload"]["after"]["name"].is_string(), "the fields stay: {record}");
            let of =
                |name: &str| record["metadata"][format!("recfmt.payload.schema.{name}")].as_str().map(str::to_owned);
            assert_eq!(record["metadata"].get("recfmt.key.schema.subject"), None, "the key is raw");
            of("subject").zip(of("version"))
        };
        let first = one(&out[0]);
        assert!(out.iter().all(|record| one(record) == first));
        first.map(|(subject, version)| format!("{subject} v{version}"))
    };
    assert_eq!(named(""), Some("p:in:users.payload v1".to_owned()));
    assert_eq!(named("sdk.schema.context.name: shop"), Some("shop:users.payload v1".to_owned()));
    assert_eq!(named("sdk.schema.context.name: ''"), Some("users.payload v1".to_owned()));
    assert_eq!(named("sdk.schema.context.enabled: false"), Some("users.payload v1".to_owned()));
    assert_eq!(named("sdk.schema.extract.payload.subject: row"), Some("p:in:users.row v1".to_owned()));
    assert_eq!(named("sdk.schema.extract.payload.enabled: false"), None);
}

#[test]
fn lines_of_a_file_have_a_schema_only_when_asked_and_then_none() {
    let workspace = workspace();
    workspace.write("in.txt", "{}\n");
    let pipeline = crate::process::file_to_file("p", "");
    let asked = pipeline.replace("path: in.txt", "path: in.txt\n          sdk.schema.extract.payload.enabled: true");
    for (text, warned) in [(pipeline, false), (asked, true)] {
        workspace.write("p.yaml", text);
        let output = workspace.run(&["run", "--once", "--db.type=inmemory", "--pipelines", "p.yaml"]).expect_code(0);
        let warning = "sdk.schema.extract.payload.enabled: a record gets no schema for its payload: it is raw data";
        assert_eq!(output.both().contains(warning), warned, "{}", output.both());
    }
    for record in records(&workspace, "out.ndjson") {
        assert!(record["metadata"].get("recfmt.payload.schema.subject").is_none(), "{record}");
    }
}
