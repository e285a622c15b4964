//! Where sources go on: shown, reset, rewound; refused while the service runs.

use serde_json::Value;

use crate::process::{Workspace, file_to_file, numbered_lines, raw_after};

fn workspace() -> Workspace {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(10));
    workspace.write("pipelines/p.yaml", file_to_file("moved", ""));
    workspace.once();
    workspace
}

fn delivered(workspace: &Workspace) -> Vec<String> {
    workspace.lines("out.ndjson").iter().map(|record| raw_after(record)).collect()
}

fn positions(workspace: &Workspace) -> Vec<Value> {
    let output = workspace.run(&["positions", "show", "--json"]).expect_code(0);
    let answer: Value = serde_json::from_str(&output.stdout).unwrap();
    answer["result"]["positions"].as_array().unwrap().clone()
}

#[test]
fn a_position_is_shown_and_reset_on_demand_only() {
    let workspace = workspace();
    let shown = workspace.run(&["positions", "show", "moved"]).expect_code(0).stdout;
    assert!(shown.contains("moved") && shown.contains("in") && shown.contains("10"), "{shown}");
    let output = workspace.run(&["positions", "reset", "moved"]).expect_code(0);
    assert!(output.stderr.contains("Nothing was changed"), "{}", output.both());
    workspace.once();
    assert_eq!(delivered(&workspace).len(), 10, "nothing was changed");
    workspace.run(&["positions", "reset", "moved", "--yes"]).expect_code(0);
    assert_eq!((&positions(&workspace)[0]["records"], &positions(&workspace)[0]["generation"]), (&0.into(), &2.into()));
    workspace.once();
    assert_eq!(delivered(&workspace).len(), 20, "everything came again");
    workspace.once();
    assert_eq!(delivered(&workspace).len(), 20);
    assert_eq!(positions(&workspace)[0]["records"], 10);
}

#[test]
fn a_source_goes_on_after_the_position_of_a_record() {
    let workspace = workspace();
    // The fourth record's, as it was delivered.
    let record: Value = serde_json::from_str(&workspace.lines("out.ndjson")[3]).unwrap();
    let to = format!("base64:{}", record["position"].as_str().unwrap());
    workspace.run(&["positions", "rewind", "moved", "--to", &to, "--yes"]).expect_code(0);
    workspace.once();
    let again: Vec<String> = (4..10).map(|i| format!("line {i}")).collect();
    assert_eq!(delivered(&workspace)[10..], again);
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let workspace = workspace();
    let refused = |arguments: &[&str], code: i32, expected: &str| {
        let text = workspace.run(arguments).expect_code(code).both();
        assert!(text.contains(expected), "{arguments:?}: {text}");
    };
    refused(&["positions", "reset", "move", "--yes"], 2, "did you mean moved?");
    refused(&["positions", "reset", "moved", "--connector", "out", "--yes"], 2, "there are in");
    refused(&["positions", "rewind", "moved", "--to", "", "--yes"], 2, "positions reset");
    refused(&["positions", "rewind", "moved", "--to", "base64:?", "--yes"], 2, "not base64");
    workspace.once();
    assert_eq!(delivered(&workspace).len(), 10, "nothing was changed");
    let elsewhere = Workspace::new();
    let text = elsewhere.run(&["positions", "show"]).expect_code(3).both();
    assert!(text.contains("no store yet") && !elsewhere.path("anabranch.db").exists(), "{text}");
    // A position that the source does not know is its to refuse, and nothing is read.
    workspace.run(&["positions", "rewind", "moved", "--to", "nonsense", "--yes"]).expect_code(0);
    let text = workspace.run(&["run", "--once"]).expect_code(1).both();
    assert!(text.contains("position"), "{text}");
    assert_eq!(delivered(&workspace).len(), 10);
}

#[test]
fn a_service_that_runs_keeps_its_positions() {
    let workspace = workspace();
    let mut service = workspace.start(&["run"]);
    let store = workspace.path("anabranch.db");
    let before = std::fs::read(&store).unwrap();
    service.wait_until("the store to be used", || std::fs::read(&store).unwrap() != before);
    let text = workspace.run(&["positions", "reset", "moved", "--yes"]).expect_code(3).both();
    assert!(text.contains("in use"), "{text}");
    service.signal("INT");
    service.finish().expect_code(0);
}

#[test]
#[cfg(feature = "postgres")]
fn rows_of_a_transaction_come_again_after_a_reset() {
    let Some(database) = crate::servers::postgres::Database::create() else { return };
    database.query("CREATE TABLE t (line text)");
    let workspace = Workspace::new();
    workspace.write("in.txt", "{\"line\":\"a\"}\n{\"line\":\"b\"}\n");
    let pipeline = file_to_file(
        "moved",
        "      - { id: decode, plugin: json.decode, settings: { field: .Payload.After } }\n\
         \x20     - { id: key, plugin: field.set, settings: { field: .Key, value: \"{}\" } }\n",
    );
    let destination = format!(
        "plugin: postgres\n        settings:\n          url: {}\n          table: t\n          exactlyOnce: \"true\"",
        database.url()
    );
    workspace.write(
        "pipelines/p.yaml",
        pipeline.replace("plugin: file\n        settings:\n          path: out.ndjson", &destination),
    );
    let url = format!("--db.postgres.connection-string={}", database.url());
    let run = |arguments: &[&str], code: i32| {
        workspace.run(&[arguments, &["--db.type=postgres", &url]].concat()).expect_code(code).both()
    };
    run(&["run", "--once"], 0);
    assert_eq!(database.query("SELECT count(*) FROM t"), ["2"]);
    // The destination has a position of its own, of the generation that ends here.
    run(&["positions", "reset", "moved", "--yes"], 0);
    run(&["run", "--once"], 0);
    let rows = database.query("SELECT count(*) FROM t");
    assert_eq!(rows, ["4"]);
    run(&["run", "--once"], 0);
    assert_eq!(database.query("SELECT count(*) FROM t"), ["4"]);
}
