//! Files changed between two runs: what keeps the position and what starts anew.

use crate::process::{Workspace, file_to_file, numbered_lines, raw_after};

const PROCESSOR: &str = r#"      - id: set
        plugin: field.set
        condition: '{{ ne .Operation.String "nothing" }}'
        settings: { field: .Metadata.a, value: "1" }
      - id: second
        plugin: field.set
        settings: { field: .Metadata.b, value: "1" }
"#;

/// Runs a pipeline over 100 lines, edits its file, adds 10 lines, runs again, and gives the second run's records.
fn edited(edit: impl Fn(String) -> String) -> Vec<serde_json::Value> {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(100));
    let before = file_to_file("edits", PROCESSOR);
    workspace.write("pipelines/p.yaml", &before);
    workspace.once();
    assert_eq!(workspace.lines("out.ndjson").len(), 100);
    let after = edit(before.clone());
    assert_ne!(before, after, "the edit changes something");
    workspace.write("pipelines/p.yaml", after);
    workspace.write("in.txt", numbered_lines(110));
    workspace.write("other.txt", numbered_lines(110));
    workspace.once();
    let mut lines = workspace.lines("out.ndjson").split_off(100);
    lines.extend(workspace.lines("moved.ndjson"));
    lines.iter().map(|l| serde_json::from_str(l).unwrap()).collect()
}

#[track_caller]
fn continues(records: &[serde_json::Value]) {
    let lines: Vec<String> = records.iter().map(|r| raw_after(&r.to_string())).collect();
    assert_eq!(lines, (100..110).map(|i| format!("line {i}")).collect::<Vec<_>>());
}

#[test]
fn fields_of_the_pipeline_keep_the_position() {
    for (from, to) in [
        ("status: running", "name: other\n    status: running"),
        ("status: running", "description: some words\n    status: running"),
        (
            "status: running",
            "dead-letter-queue: { plugin: log, window-size: 5, window-nack-threshold: 2 }\n    status: running",
        ),
        ("version: \"2.2\"", "version: \"2.1\""),
    ] {
        continues(&edited(|yaml| yaml.replace(from, to)));
    }
}

#[test]
fn fields_of_connectors_keep_the_position() {
    for (from, to) in [
        ("type: source\n", "type: source\n        name: renamed\n"),
        ("type: destination\n", "type: destination\n        name: renamed\n"),
        ("path: out.ndjson", "path: moved.ndjson"),
        ("path: in.txt", "path: in.txt\n          sdk.batch.size: 3\n          sdk.batch.delay: 10ms"),
        ("plugin: file", "plugin: builtin:file"),
        (
            "path: in.txt\n",
            "path: in.txt\n        processors:\n          - { id: own, plugin: field.set, settings: { field: .Metadata.own, value: x } }\n",
        ),
    ] {
        let records = edited(|yaml| yaml.replace(from, to));
        continues(&records);
        assert_eq!(records[0]["metadata"]["own"].as_str(), to.contains("own").then_some("x"));
    }
}

#[test]
fn fields_of_processors_take_effect_and_keep_the_position() {
    let check = |from: &str, to: &str, a: Option<&str>, b: Option<&str>| {
        let records = edited(|yaml| yaml.replace(from, to));
        continues(&records);
        for record in records {
            assert_eq!(record["metadata"]["a"].as_str(), a, "{from} -> {to}");
            assert_eq!(record["metadata"]["b"].as_str(), b, "{from} -> {to}");
        }
    };
    check("ne .Operation.String", "eq .Operation.String", None, Some("1"));
    check(".Metadata.a, value: \"1\"", ".Metadata.a, value: \"2\"", Some("2"), Some("1"));
    check("id: second\n", "id: second\n        workers: 4\n", Some("1"), Some("1"));
    check("id: second", "id: renamed", Some("1"), Some("1"));
    check(
        "plugin: field.set\n        settings: { field: .Metadata.b, value: \"1\" }",
        "plugin: json.encode\n        settings: { field: .Payload.Before }",
        Some("1"),
        None,
    );
    // The order of processors.
    let records = edited(|yaml| {
        let (head, list) = yaml.split_once("    processors:\n").unwrap();
        let (first, second) = list.split_at(list.find("      - id: second").unwrap());
        let second = second.replace("value: \"1\"", "value: '{{ index .Metadata \"a\" }}'");
        format!("{head}    processors:\n{second}{first}")
    });
    continues(&records);
    assert!(records.iter().all(|r| r["metadata"]["b"] == "<no value>" || r["metadata"]["b"] == ""));
}

#[test]
fn a_new_id_starts_anew() {
    for (from, to) in [("id: in\n", "id: renamed\n"), ("id: edits", "id: other")] {
        let records = edited(|yaml| yaml.replace(from, to));
        assert_eq!(records.len(), 110, "{from} -> {to}");
    }
}

#[test]
fn a_pipeline_that_vanished_or_broke_keeps_its_state() {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(100));
    let file = file_to_file("kept", "");
    workspace.write("pipelines/p.yaml", &file);
    workspace.once();
    // Broken: the file cannot be read, the state stays.
    workspace.write("pipelines/p.yaml", "pipelines: [\n");
    workspace.run(&["run", "--once"]).expect_code(2);
    // Gone: another pipeline runs, the state stays and is listed.
    std::fs::remove_file(workspace.path("pipelines/p.yaml")).unwrap();
    workspace.write("pipelines/q.yaml", file_to_file("other", "").replace("out.ndjson", "q.ndjson"));
    workspace.once();
    let listed = workspace.run(&["pipelines", "list"]).expect_code(0).stdout;
    assert!(listed.lines().any(|l| l.contains("kept") && l.contains("detached")), "{listed}");
    // Back again: it continues.
    workspace.write("pipelines/p.yaml", &file);
    workspace.write("in.txt", numbered_lines(110));
    workspace.once();
    assert_eq!(workspace.lines("out.ndjson").len(), 110);
}

#[test]
fn a_stopped_pipeline_is_not_started() {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(10));
    workspace.write("pipelines/p.yaml", file_to_file("p", "").replace("running", "stopped"));
    workspace.write("pipelines/q.yaml", file_to_file("q", "").replace("out.ndjson", "q.ndjson"));
    workspace.once();
    assert!(!workspace.path("out.ndjson").exists());
    assert_eq!(workspace.lines("q.ndjson").len(), 10);
}
