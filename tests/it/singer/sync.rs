//! Syncs: what a tap gets, what becomes of its records, and when it gets which state.

use std::path::Path;

use serde_json::{Value, json};

use super::scripted::{ids, no_tap_is_left, pipeline, record, records, schema, script, starts, state, workspace};

const COUNT: &str = "          config.count: 10\n          config.every: 4\n";

fn states(workspace: &crate::process::Workspace) -> Vec<Value> {
    starts(workspace).into_iter().map(|mut start| start["state"].take()).collect()
}

#[test]
fn a_tap_gets_its_last_state_and_continues_after_it() {
    let workspace = workspace(COUNT);
    workspace.once();
    assert_eq!(ids(&workspace), (0..10).collect::<Vec<_>>());
    let first = &records(&workspace)[0];
    assert_eq!(first["operation"], "create");
    assert_eq!(first["metadata"]["recfmt.collection"], "numbers");
    assert_eq!(first["key"], json!({"id": 0}));
    // Two records came after the last state.
    workspace.once();
    assert_eq!(ids(&workspace), (0..10).chain(8..10).collect::<Vec<_>>());
    pipeline(&workspace, "          config.count: 12\n          config.every: 4\n");
    workspace.once();
    workspace.once();
    assert_eq!(states(&workspace), [json!(null), json!({"next": 8}), json!({"next": 8}), json!({"next": 12})]);
    assert_eq!(ids(&workspace).len(), 10 + 2 + 4);
    no_tap_is_left(&workspace);
}

#[test]
fn a_tap_runs_again_after_the_interval() {
    let workspace = workspace(&format!("{COUNT}          schedule.interval: 10ms\n"));
    let mut service = workspace.start(&["run"]);
    service.wait_until("three syncs", || starts(&workspace).len() >= 3);
    service.signal("INT");
    service.finish().expect_code(0);
    assert_eq!(states(&workspace)[..3], [json!(null), json!({"next": 8}), json!({"next": 8})]);
    no_tap_is_left(&workspace);
}

#[test]
fn a_tap_gets_its_settings_and_its_files_are_private_and_removed() {
    let mut workspace = workspace(
        "          arguments: tap.py --loud
          directory: there
          environment.GREETING: two words
          config.script: script
          config.password: ${PASSWORD}
          config.options.depth: 3
          streams: numbers
          replicationMethod.numbers: INCREMENTAL
          replicationKey.main-numbers: id
",
    );
    // The first `arguments` of the pipeline is replaced by the one of the settings.
    let text = workspace.read("pipelines/p.yaml").replacen("          arguments: tap.py\n", "", 1);
    workspace.write("pipelines/p.yaml", text);
    workspace.env("PASSWORD", "hunter22-0123");
    workspace.env("ANABRANCH_LOG_LEVEL", "debug");
    workspace.write("there/tap.py", workspace.read("tap.py"));
    workspace.write(
        "there/script",
        [schema(""), record("\"id\": 1"), "!stderr ERROR login with hunter22-0123 failed\n".to_owned()].concat(),
    );
    let output = workspace.once();
    let start: Value = serde_json::from_str(&workspace.lines("there/starts.ndjson")[0]).unwrap();
    assert_eq!(start["config"], json!({"script": "script", "password": "hunter22-0123", "options": {"depth": 3}}));
    assert_eq!((&start["loud"], &start["environment"]["GREETING"]), (&json!(true), &json!("two words")));
    let environment = start["environment"].as_object().unwrap();
    assert!(environment.keys().all(|name| !name.starts_with("ANABRANCH_")), "{environment:?}");
    assert_eq!(start["directory"], json!(workspace.path("there").canonicalize().unwrap()));
    assert_eq!(start["modes"], json!(["0o600", "0o600", "0o700"]));
    assert_eq!(start["files"].as_array().unwrap().len(), 2);
    let left = |file: &Value| Path::new(file.as_str().unwrap()).exists();
    assert!(!start["files"].as_array().unwrap().iter().any(left), "{}", start["files"]);
    let streams = start["catalog"]["streams"].as_array().unwrap();
    let root = |stream: &Value| stream["metadata"][0]["metadata"].clone();
    let numbers = root(&streams[0]);
    assert_eq!((&numbers["selected"], &numbers["replication-method"]), (&json!(true), &json!("INCREMENTAL")));
    assert_eq!((&streams[0]["replication_key"], &root(&streams[1])["selected"]), (&json!("id"), &json!(false)));
    let plan = workspace.run(&["pipelines", "plan"]).expect_code(0);
    for printed in [output.both(), plan.both()] {
        assert!(!printed.contains("hunter22"), "{printed}");
    }
    assert!(output.both().contains("login with *** failed"), "{}", output.both());
}

#[test]
fn values_have_the_types_of_the_schema() {
    let properties = r#", "price": {"type": ["null", "number"], "multipleOf": 0.01}, "at": {"type": "string", "format": "date-time"}, "address": {"type": "object", "properties": {"since": {"type": "string", "format": "date-time"}}}, "_sdc_deleted_at": {"type": ["null", "string"]}"#;
    let fields = r#""id": 1, "price": 123456789012345678.90, "at": "2024-01-02T03:04:05+01:00", "address": {"since": "2024-01-02T00:00:00Z"}, "_sdc_deleted_at": null"#;
    let line = format!(
        r#"{{"type": "RECORD", "stream": "numbers", "record": {{{fields}}}, "version": 7, "time_extracted": "2024-05-06T07:08:09Z"}}"#
    );
    let gone = record(r#""id": 2, "_sdc_deleted_at": "2024-01-03T00:00:00Z""#);
    let workspace = script(&format!("{}{line}\n{gone}", schema(properties)), "          deletedAt: _sdc_deleted_at\n");
    workspace.once();
    let all = records(&workspace);
    let expected = json!({
        "id": 1, "price": "123456789012345678.90", "at": "2024-01-02T02:04:05Z",
        "address": {"since": "2024-01-02T00:00:00Z"}, "_sdc_deleted_at": null
    });
    assert_eq!(all[0]["payload"]["after"], expected);
    let metadata = &all[0]["metadata"];
    assert_eq!(
        (&metadata["singer.version"], &metadata["singer.timeExtracted"]),
        (&json!("7"), &json!("2024-05-06T07:08:09Z"))
    );
    assert_eq!(metadata["recfmt.payload.schema.subject"], "p:in:numbers_payload");
    assert_eq!(metadata["recfmt.key.schema.subject"], "p:in:numbers_key");
    assert_eq!((&all[1]["operation"], &all[1]["key"]), (&json!("delete"), &json!({"id": 2})));
    assert_eq!(all[1]["payload"]["before"]["_sdc_deleted_at"], "2024-01-03T00:00:00Z");
}

#[test]
fn no_digit_of_a_number_without_a_declaration_is_lost() {
    let fields =
        r#""id": 1, "any": 12345678901234567890123, "o": {"x": 0.12345678901234567890123}, "new": 9007199254740993.0"#;
    let workspace = script(&format!("{}{}", schema(r#", "any": {}, "o": {"type": "object"}"#), record(fields)), "");
    workspace.once();
    let expected = json!({
        "id": 1, "any": "12345678901234567890123", "o": {"x": "0.12345678901234567890123"}, "new": "9007199254740993.0"
    });
    assert_eq!(records(&workspace)[0]["payload"]["after"], expected);
}

#[test]
fn a_schema_that_changes_has_a_new_version() {
    let lines = [
        schema(""),
        record(r#""id": 1"#),
        schema(r#", "name": {"type": "string"}"#),
        record(r#""id": 2, "name": "b""#),
        record(r#""id": 3, "other": true"#),
        state("{}"),
    ];
    let workspace = script(&lines.concat(), "");
    workspace.once();
    let all = records(&workspace);
    let version = |at: usize| all[at]["metadata"]["recfmt.payload.schema.version"].clone();
    assert_eq!((version(0), version(1)), (json!("1"), json!("2")));
    // The schema does not describe a record with a property that it lacks.
    assert_eq!((version(2), &all[2]["payload"]["after"]["other"]), (json!(null), &json!(true)));
}

#[test]
fn lines_of_standard_error_are_in_the_log_with_their_level() {
    let lines = [
        schema(""),
        "!stderr 3 tables\n!stderr WARNING the table is large\n!stderr   and has no key\n".to_owned(),
        record("\"id\": 1"),
        "!stderr ERROR one row is unreadable\n".to_owned(),
    ];
    let workspace = script(&lines.concat(), "");
    let printed = workspace.once().both();
    for (text, level) in [
        ("3 tables", "INF"),
        ("WARNING the table is large", "WRN"),
        ("  and has no key", "WRN"),
        ("ERROR one row is unreadable", "ERR"),
    ] {
        let line = printed.lines().find(|line| line.contains(text));
        let is_as_expected =
            |line: &str| [level, "pipeline=p", "connector=in", "plugin=python3"].iter().all(|part| line.contains(part));
        assert!(line.is_some_and(is_as_expected), "{text}: {printed}");
    }
    assert_eq!(ids(&workspace), [1]);
}
