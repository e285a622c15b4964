//! Every built-in processor in one pipeline, and the record formats.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::process::{Workspace, file_to_file};

/// Three sources whose lines hold records of three kinds, each unwrapped; then everything else, in one chain.
const PIPELINE: &str = r#"
version: "2.2"
pipelines:
  - id: all
    connectors:
      - id: debezium
        type: source
        plugin: file
        settings: { path: debezium.txt }
        processors:
          - { id: undebezium, plugin: unwrap.debezium }
      - id: connect
        type: source
        plugin: file
        settings: { path: connect.txt }
        processors:
          - { id: unconnect, plugin: unwrap.kafkaconnect, settings: { field: .Payload.After } }
      - id: records
        type: source
        plugin: file
        settings: { path: records.txt }
        processors:
          - { id: unopencdc, plugin: unwrap.opencdc }
      - { id: out, type: destination, plugin: file, settings: { path: out.ndjson, sdk.record.format: opencdc/json } }
      - id: envelopes
        type: destination
        plugin: file
        settings:
          path: envelopes.ndjson
          sdk.record.format: debezium/json
          sdk.record.format.options: debezium.schema.name=people,debezium.rawData.key=raw
    processors:
      - { id: no-deletes, plugin: filter, condition: '{{ eq .Operation.String "delete" }}' }
      - id: no-strangers
        plugin: error
        condition: '{{ eq .Payload.After.name "stranger" }}'
        settings: { message: 'who is {{ .Payload.After.name }}?' }
      - { id: tag, plugin: field.set, settings: { field: .Payload.After.tag, value: 'is {{ .Payload.After.name }}' } }
      - { id: names, plugin: field.rename, settings: { mapping: '.Payload.After.name:full name,.Payload.After.n:number' } }
      - { id: number, plugin: field.convert, settings: { field: .Payload.After.number, type: int } }
      - { id: born, plugin: field.convert, settings: { field: .Payload.After.born, type: time } }
      - { id: secrets, plugin: field.exclude, settings: { fields: '.Payload.After.password, .Metadata["file.path"]' } }
      - { id: text, plugin: json.encode, settings: { field: .Payload.After.extra } }
      - { id: hidden, plugin: base64.encode, settings: { field: .Payload.After.extra } }
      - { id: shown, plugin: base64.decode, settings: { field: .Payload.After.extra } }
      - { id: fields, plugin: json.decode, settings: { field: .Payload.After.extra } }
      - { id: tagged, plugin: base64.encode, settings: { field: '.Payload.After["full name"]' } }
      - { id: pieces, plugin: split, condition: '{{ hasKey .Payload.After "list" }}', settings: { field: .Payload.After.list } }
      - { id: copies, plugin: clone, condition: '{{ eq (index .Metadata "split.index") "1" }}', settings: { count: "1" } }
    dead-letter-queue: { plugin: file, settings: { path: dlq.ndjson }, window-size: 0 }
"#;

fn people() -> Workspace {
    let workspace = Workspace::new();
    workspace.write(
        "debezium.txt",
        [
            r#"{"payload":{"op":"u","ts_ms":1674061777225,"before":{"name":"ann"},"after":{"name":"ann","n":"1234567890123456789","born":1674061777225877000,"password":"x","extra":{"a":[1.0,null]}},"source":{"db":"test","opencdc.collection":"people"}}}"#,
            r#"{"payload":{"op":"d","ts_ms":1,"before":{"name":"ann"},"after":null,"source":{}}}"#,
            r#"{"payload":{"op":"c","ts_ms":1,"after":{"name":"stranger"},"source":{}}}"#,
            r#"{"payload":{"op":"x","ts_ms":1,"after":null,"source":{}}}"#,
            "no json",
        ]
        .map(|line| format!("{line}\n"))
        .concat(),
    );
    workspace.write(
        "connect.txt",
        concat!(
            r#"{"schema":{},"payload":{"name":"bob","n":true,"born":"2026-11-21T07:00:00+01:00","list":["x","y"]}}"#,
            "\n",
            r#"{"schema":{},"payload":{"name":"bob","n":1.5,"born":0}}"#,
            "\n",
        ),
    );
    workspace.write(
        "records.txt",
        concat!(
            r#"{"position":"eA==","operation":"snapshot","metadata":{"conduit.x":"1","opencdc.collection":"people"},"key":"aw==","payload":{"before":null,"after":{"name":"carl","n":2.0,"born":null}}}"#,
            "\n",
        ),
    );
    workspace
}

fn parsed(workspace: &Workspace, name: &str) -> Vec<Value> {
    workspace.lines(name).iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn all_processors_in_one_pipeline() {
    let workspace = people();
    workspace.write("pipelines/p.yaml", PIPELINE);
    workspace.once();

    let mut by_name: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for record in parsed(&workspace, "out.ndjson") {
        assert!(record["metadata"].get("file.path").is_none(), "{record}");
        by_name.entry(record["payload"]["after"]["tag"].as_str().unwrap().to_owned()).or_default().push(record);
    }
    assert_eq!(by_name.keys().collect::<Vec<_>>(), ["is ann", "is bob", "is carl"]);

    let [ann] = &by_name["is ann"][..] else { panic!("{by_name:?}") };
    assert_eq!(ann["operation"], "update");
    assert_eq!(ann["metadata"]["db"], "test");
    assert_eq!(ann["metadata"]["recfmt.collection"], "people");
    assert_eq!(ann["metadata"]["recfmt.readAt"], "1674061777225000000");
    assert_eq!(ann["payload"]["before"], json!({"name": "ann"}));
    assert_eq!(
        ann["payload"]["after"],
        json!({
            "full name": "YW5u", "number": 1_234_567_890_123_456_789i64, "born": "2023-01-18T17:09:37.225877Z",
            "extra": {"a": [1.0, null]}, "tag": "is ann",
        })
    );

    let bob: Vec<_> = by_name["is bob"]
        .iter()
        .map(|r| {
            assert_eq!(r["operation"], "create");
            assert_eq!(r["payload"]["after"]["number"], 1);
            assert_eq!(r["payload"]["after"]["born"], "2026-11-21T06:00:00Z");
            let meta = |name: &str| r["metadata"][name].as_str();
            (r["payload"]["after"]["list"].as_str().unwrap(), meta("split.index"), meta("clone.index"))
        })
        .collect();
    assert_eq!(bob, [("x", Some("0"), None), ("y", Some("1"), Some("0")), ("y", Some("1"), Some("1"))]);

    let [carl] = &by_name["is carl"][..] else { panic!("{by_name:?}") };
    assert_eq!((&carl["operation"], &carl["key"]), (&json!("snapshot"), &json!("aw==")));
    assert_eq!(carl["metadata"], json!({"recfmt.collection": "people", "svc.x": "1"}));
    assert_eq!(carl["payload"]["after"], json!({"full name": "Y2FybA==", "number": 2, "born": null, "tag": "is carl"}));

    let mut failed: Vec<_> = parsed(&workspace, "dlq.ndjson")
        .iter()
        .map(|letter| {
            let meta = |name: &str| letter["metadata"][name].as_str().unwrap().to_owned();
            (meta("svc.dlq.nack.node.id"), meta("svc.dlq.nack.error"))
        })
        .collect();
    failed.sort();
    let failed: Vec<_> = failed.iter().map(|(node, error)| (node.as_str(), error.as_str())).collect();
    assert_eq!(
        failed,
        [
            ("debezium:undebezium", "cannot unwrap .Payload.After: invalid JSON at byte 1: expected ident"),
            (
                "debezium:undebezium",
                "cannot unwrap .Payload.After: unknown op \"x\", expected one of c, u, d, r, $unset"
            ),
            ("no-strangers", "who is stranger?"),
            (
                "number",
                "cannot convert .Payload.After.number from float to int: it is not an integer in base 10 that fits 64 bits"
            ),
        ]
    );
}

#[test]
fn envelopes_can_be_opened_again() {
    let workspace = people();
    workspace.write("pipelines/p.yaml", PIPELINE);
    workspace.once();
    let written = parsed(&workspace, "out.ndjson");
    let envelopes = parsed(&workspace, "envelopes.ndjson");
    assert_eq!(envelopes.len(), written.len());
    assert!(envelopes.iter().all(|e| e["schema"]["name"] == "people" && e["schema"]["fields"].is_array()));

    let again = Workspace::new();
    again.write("in.txt", workspace.read("envelopes.ndjson"));
    again.write("pipelines/p.yaml", file_to_file("again", "      - { id: open, plugin: unwrap.debezium }\n"));
    again.once();
    let comparable = |records: Vec<Value>| {
        let mut texts: Vec<String> = records
            .into_iter()
            .map(|mut record| {
                // Of these two, the second run has its own, or none where the first had none.
                for own in ["file.path", "svc.source.connector.id", "recfmt.readAt"] {
                    record["metadata"].as_object_mut().unwrap().remove(own);
                }
                json!([record["operation"], record["metadata"], record["payload"]]).to_string()
            })
            .collect();
        texts.sort();
        texts
    };
    assert_eq!(comparable(parsed(&again, "out.ndjson")), comparable(written));
}

#[test]
fn a_record_that_does_not_fit_the_format_is_dead_lettered() {
    let workspace = Workspace::new();
    workspace.write("in.txt", "{\"l\":[1,2]}\n{\"l\":[1,\"x\"]}\nraw\n");
    workspace.write(
        "pipelines/p.yaml",
        file_to_file("p", "")
            .replace("path: out.ndjson", "path: out.ndjson\n          sdk.record.format: debezium/json")
            + "    dead-letter-queue: { plugin: file, settings: { path: dlq.ndjson }, window-size: 0 }\n",
    );
    workspace.once();
    let after: Vec<_> = parsed(&workspace, "out.ndjson").iter().map(|e| e["payload"]["after"].clone()).collect();
    assert_eq!(after, [json!({"l": [1, 2]}), json!({"recfmt.rawData": "cmF3"})]);
    let letters = parsed(&workspace, "dlq.ndjson");
    assert_eq!(letters.len(), 1);
    assert_eq!(
        letters[0]["metadata"]["svc.dlq.nack.error"],
        "debezium/json: .Payload.After.l is a list that mixes int64 and string"
    );
}
