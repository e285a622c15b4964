//! What a step made raw data of reaches the next step and the destination as that step made it.

use serde_json::{Value, json};

use super::records;
use crate::process::{Workspace, base64_decode};

const PIPELINE: &str = r#"
version: "2.2"
pipelines:
  - id: a
    connectors:
      - id: s
        type: source
        plugin: generator
        settings: { format.type: structured, format.options.a: int, recordCount: 2, operations: OPERATION }
      - { id: d, type: destination, plugin: file, settings: { path: out.ndjson } }
    processors:
"#;

fn step(id: &str, plugin: &str, settings: &str) -> String {
    format!("      - {{ id: {id}, plugin: {plugin}, settings: {{ {settings} }} }}\n")
}

fn workspace(operation: &str, steps: &[String]) -> Workspace {
    let workspace = Workspace::new();
    workspace.write("pipelines/p.yaml", PIPELINE.replace("OPERATION", operation) + &steps.concat());
    workspace
}

/// Returns the records delivered after these steps.
#[track_caller]
fn delivered(operation: &str, steps: &[String]) -> Vec<Value> {
    let workspace = workspace(operation, steps);
    workspace.run(&["run", "--once", "--db.type=inmemory"]).expect_code(0);
    let records = records(&workspace, "out.ndjson");
    assert_eq!(records.len(), 2);
    records
}

fn subject(record: &Value) -> Option<&str> {
    record["metadata"]["recfmt.payload.schema.subject"].as_str()
}

/// The bytes in base64, which have no schema.
#[track_caller]
fn raw(data: &Value, record: &Value) -> Vec<u8> {
    assert_eq!(subject(record), None, "{record}");
    base64_decode(data.as_str().unwrap_or_else(|| panic!("not raw: {record}")))
}

fn set() -> String {
    step("e", "field.set", r#"field: .Payload.After, value: "1""#)
}

fn encode() -> String {
    step("e", "json.encode", "field: .Payload.After")
}

/// A step that has no business with the data.
fn tag() -> String {
    step("t", "field.set", "field: .Metadata.tag, value: x")
}

#[test]
fn text_in_the_place_of_fields_is_delivered_as_it_is() {
    for operation in ["create", "update"] {
        for steps in [&[set()][..], &[set(), tag()]] {
            for record in delivered(operation, steps) {
                assert_eq!(raw(&record["payload"]["after"], &record), b"1");
                assert_eq!(record["payload"]["before"].is_object(), operation == "update");
            }
        }
    }
}

#[test]
fn the_key_and_the_side_before_are_alike() {
    let key = [step("k", "field.set", r#"field: .Key, value: "1""#), tag()];
    for record in delivered("create", &key) {
        assert_eq!(base64_decode(record["key"].as_str().unwrap()), b"1");
        assert!(record["payload"]["after"]["a"].is_i64() && subject(&record).is_some(), "{record}");
    }
    for record in delivered("update", &[step("b", "field.set", r#"field: .Payload.Before, value: "1""#), tag()]) {
        assert_eq!(raw(&record["payload"]["before"], &record), b"1");
        assert!(record["payload"]["after"]["a"].is_i64(), "{record}");
    }
}

#[test]
fn json_is_delivered_and_read_back() {
    for steps in [&[encode()][..], &[encode(), tag()]] {
        for record in delivered("create", steps) {
            let text: Value = serde_json::from_slice(&raw(&record["payload"]["after"], &record)).unwrap();
            assert!(text["a"].is_i64(), "{text}");
        }
    }
    let decode = step("d", "json.decode", "field: .Payload.After");
    let more = step("m", "field.set", "field: .Payload.After.b, value: x");
    for record in delivered("update", &[encode(), tag(), decode, more]) {
        let after = &record["payload"]["after"];
        assert!(after["a"].is_i64() && after["b"] == "x", "{record}");
    }
}

#[test]
fn the_wire_format_is_delivered_and_read_back() {
    let encode = step("e", "avro.encode", "schema.strategy: autoRegister, schema.autoRegister.subject: mine");
    for steps in [&[encode.clone()][..], &[encode.clone(), tag()]] {
        for record in delivered("create", steps) {
            let bytes = raw(&record["payload"]["after"], &record);
            assert_eq!(bytes[..4], [0; 4]);
            assert!(bytes.len() > 5);
        }
    }
    for record in delivered("create", &[encode, tag(), step("d", "avro.decode", "")]) {
        assert!(record["payload"]["after"]["a"].is_i64(), "{record}");
    }
}

#[test]
#[cfg(feature = "js")]
fn what_a_script_makes_is_delivered_as_it_is() {
    for made in [r#"\"1\""#, r#"RawData(\"1\")"#] {
        let script = format!(r#"script: "function process(rec) {{ rec.Payload.After = {made}; return rec; }}""#);
        for record in delivered("create", &[step("s", "custom.javascript", &script), tag()]) {
            assert_eq!(raw(&record["payload"]["after"], &record), b"1");
        }
    }
    // Fields that it leaves fields keep a schema.
    let script = r#"script: "function process(rec) { rec.Payload.After.b = 1; return rec; }""#;
    for record in delivered("create", &[step("s", "custom.javascript", script), tag()]) {
        assert_eq!(record["metadata"]["recfmt.payload.schema.version"], "2");
    }
}

/// Where no data are moved it is as where they are.
#[test]
fn a_trial_shows_what_a_run_delivers() {
    let workspace = workspace("create", &[set(), tag()]);
    let shown = workspace.run(&["pipelines", "dry-run", "a", "--json", "--records", "2"]).expect_code(0).stdout;
    assert!(shown.contains("MQ=="), "{shown}");

    workspace.write(
        "pipelines/p.test.yaml",
        r#"tests:
  - name: text
    input:
      - { after: { a: 7 }, metadata: { recfmt.payload.schema.subject: s, recfmt.payload.schema.version: "1" } }
    expect:
      records: [{ after: "1", metadata: { recfmt.payload.schema.subject: $absent } }]
"#,
    );
    workspace.run(&["pipelines", "test", "--no-color"]).expect_code(0);

    let record = json!({
        "position": "MQ==",
        "operation": "create",
        "metadata": { "recfmt.payload.schema.subject": "s", "recfmt.payload.schema.version": "1" },
        "key": null,
        "payload": { "before": null, "after": { "a": 7 } },
    });
    workspace.write("record.ndjson", record.to_string() + "\n");
    let args = ["processors", "run", "field.set", "--set", "field=.Payload.After", "--set", "value=1"];
    let input = std::fs::File::open(workspace.path("record.ndjson")).unwrap();
    let output = workspace.command(args).stdin(input).output().unwrap();
    let made: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert_eq!(raw(&made["payload"]["after"], &made), b"1");
}
