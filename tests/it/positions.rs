//! Where sources go on: shown, reset, rewound; refused while the service runs.

use serde_json::{Value, json};

use crate::api::get;
use crate::api_lifecycle::Service;
use crate::process::{NOBODY, Workspace, file_to_file, numbered_lines, raw_after};

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
    let output = workspace.run(&["positions", "reset", "moved"]).expect_code(4);
    assert!(output.stderr.contains("Nothing was changed"), "{}", output.both());
    let answer = workspace.run(&["positions", "reset", "moved", "--json"]).expect_code(4).stdout;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(
        (&answer["ok"], &answer["summary"]["moved"], &answer["summary"]["wouldMove"]),
        (&false.into(), &0.into(), &1.into())
    );
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
fn a_service_that_was_named_and_does_not_answer_is_not_replaced_by_the_store_here() {
    let workspace = workspace();
    let address = format!("--api.http.address={NOBODY}");
    for command in [
        &["positions", "reset", "moved", "--yes"][..],
        &["positions", "show"],
        &["dlq", "purge", "moved", "--all", "--yes"],
        &["dlq", "list", "moved"],
        &["pipelines", "list"],
        &["pipelines", "describe", "moved"],
    ] {
        let text = workspace.run(&[command, &[&address]].concat()).expect_code(3).both();
        assert!(text.contains(NOBODY) && text.contains("--api.http.address"), "{command:?}: {text}");
    }
    assert_eq!(positions(&workspace)[0]["generation"], 1);
    workspace.run(&["pipelines", "list", "--api.enabled=false"]).expect_code(0);
    // Where a service of a container listens is no address of a certain one.
    let all = ["--api.http.address", &NOBODY.replace("127.0.0.1", "0.0.0.0"), "--api.http.allow-unauthenticated"];
    workspace.run(&[&["pipelines", "list"][..], &all].concat()).expect_code(0);
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
fn a_renamed_source_resumes_from_a_copied_position() {
    let workspace = workspace();
    let renamed = file_to_file("moved", "").replace("- id: in\n", "- id: lines\n");
    workspace.write("pipelines/p.yaml", &renamed);
    let shown = workspace.run(&["positions", "copy", "moved:in", "moved:lines"]).expect_code(4).both();
    assert!(shown.contains("moved:lines would resume after") && shown.contains("Nothing was changed"), "{shown}");
    workspace.run(&["positions", "copy", "moved:in", "moved:lines", "--yes"]).expect_code(0);
    workspace.append("in.txt", "line 10\n");
    workspace.once();
    let expected: Vec<String> = (0..11).map(|i| format!("line {i}")).collect();
    assert_eq!(delivered(&workspace), expected, "each line once");
}

#[test]
fn a_renamed_pipeline_resumes_from_copied_positions() {
    let workspace = workspace();
    workspace.write("pipelines/p.yaml", file_to_file("renamed", ""));
    workspace.run(&["positions", "copy", "moved", "renamed", "--yes"]).expect_code(0);
    workspace.once();
    assert_eq!(delivered(&workspace).len(), 10, "each line once");
}

/// Without the copy everything is delivered again: the log says so, with the remedy.
#[test]
fn a_renaming_is_reported_as_the_repetition_that_it_is() {
    let workspace = workspace();
    workspace.write("pipelines/p.yaml", file_to_file("renamed", ""));
    let log = workspace.once().both();
    let warning = log.lines().find(|line| line.contains("delivered again")).unwrap_or_else(|| panic!("{log}"));
    for part in ["renamed:in", "moved:in", "10 records", "anabranch positions copy moved:in renamed:in --new --yes"] {
        assert!(warning.contains(part), "{part}: {warning}");
    }
    assert_eq!(delivered(&workspace).len(), 20);
    assert!(!workspace.once().both().contains("delivered again"), "it has a position now");

    let workspace = self::workspace();
    workspace.write("pipelines/p.yaml", file_to_file("moved", "").replace("- id: in\n", "- id: lines\n"));
    let log = workspace.once().both();
    assert!(log.contains("positions copy moved:in moved:lines"), "{log}");
}

#[test]
fn an_export_replaces_nothing_but_an_export() {
    let workspace = workspace();
    let kept = ["anabranch.db", "anabranch.yaml", "pipelines/p.yaml", "in.txt", "out.ndjson"];
    workspace.write("anabranch.yaml", "log.level: warn\n");
    let read = |name: &str| std::fs::read(workspace.path(name)).unwrap();
    for name in kept {
        let before = read(name);
        let output = workspace.run(&["positions", "export", "--json", "--to", name]).expect_code(2);
        assert!(output.stdout.contains("cli.output_taken"), "{name}: {}", output.both());
        // Opening a store writes a mark into it.
        let compared = if name == "anabranch.db" { 9 } else { before.len() };
        assert!(read(name)[..compared] == before[..compared], "{name}");
    }
    workspace.run(&["positions", "export", "--to", "pipelines"]).expect_code(2);
    workspace.run(&["positions", "export", "--to", "/dev/null"]).expect_code(0);
    for _ in 0..2 {
        workspace.run(&["positions", "export", "--to", "positions.json"]).expect_code(0);
    }
    let shown = workspace.run(&["positions", "export", "--to", "/dev/stdout"]).expect_code(0).stdout;
    assert_eq!(shown, workspace.read("positions.json"));
    workspace.once();
    assert_eq!(delivered(&workspace).len(), 10);
}

/// Nobody knows which of the two is meant.
#[test]
fn two_positions_of_one_source_are_not_imported() {
    let workspace = workspace();
    let exported = workspace.run(&["positions", "export"]).expect_code(0).stdout;
    let mut twice: Value = serde_json::from_str(&exported).unwrap();
    let same = twice["positions"][0].clone();
    twice["positions"].as_array_mut().unwrap().push(same);
    workspace.write("twice.json", twice.to_string());
    let shown = workspace.run(&["positions", "import", "twice.json"]).expect_code(4).stdout;
    assert_eq!(shown.lines().count(), 1, "{shown}");
    twice["positions"][1]["position"] = "AAAA".into();
    workspace.write("twice.json", twice.to_string());
    let text = workspace.run(&["positions", "import", "twice.json", "--yes"]).expect_code(2).both();
    assert!(text.contains("contains two positions of moved:in"), "{text}");
    assert_eq!(positions(&workspace)[0]["generation"], 1, "nothing was changed");
}

#[test]
fn positions_move_to_another_host() {
    let here = workspace();
    here.run(&["positions", "export", "--to", "positions.json"]).expect_code(0);
    let there = Workspace::new();
    there.write("in.txt", numbered_lines(12));
    there.write("pipelines/p.yaml", file_to_file("moved", ""));
    there.write("positions.json", here.read("positions.json"));
    // The store is made by the first start; nothing is read before the import.
    there.write("pipelines/p.yaml", file_to_file("moved", "").replace("status: running", "status: stopped"));
    there.run(&["run", "--once"]).expect_code(5);
    there.write("pipelines/p.yaml", file_to_file("moved", ""));
    let shown = there.run(&["positions", "import", "positions.json"]).expect_code(4).both();
    assert!(shown.contains("moved:in would resume after"), "{shown}");
    there.run(&["positions", "import", "positions.json", "--yes"]).expect_code(0);
    there.once();
    // A file source notices that this is another file than the one it has a position of, and what it does then is its
    // own matter; the position itself has arrived as it was.
    let exported: Value = serde_json::from_str(&here.read("positions.json")).unwrap();
    assert_eq!(exported["version"], 1);
    let lane = &exported["positions"][0];
    assert_eq!((&lane["pipeline"], &lane["connector"], &lane["records"]), (&"moved".into(), &"in".into(), &10.into()));

    let refused = |text: &str, arguments: &[&str], expected: &str| {
        there.write("other.json", text);
        let said =
            there.run(&[&["positions", "import", "other.json", "--yes"], arguments].concat()).expect_code(2).both();
        assert!(said.contains(expected), "{text}: {said}");
    };
    refused("{}", &[], "does not contain exported positions");
    refused("nonsense", &[], "does not contain exported positions");
    refused(r#"{"version":2,"positions":[]}"#, &[], "version 2");
    refused(&exported.to_string(), &["--pipeline", "other"], "contains no position to import");
    refused(&exported.to_string().replace("\"in\"", "\"out\""), &[], "has no source \"out\"");
    refused(&exported.to_string().replace("moved", "move"), &[], "did you mean moved?");
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let workspace = workspace();
    let refused = |arguments: &[&str], code: i32, expected: &str| {
        let text = workspace.run(arguments).expect_code(code).both();
        assert!(text.contains(expected), "{arguments:?}: {text}");
    };
    refused(&["positions", "reset", "move", "--yes"], 2, "did you mean moved?");
    refused(&["positions", "reset", "moved", "--connector", "out", "--yes"], 2, "positions are stored for in");
    refused(&["positions", "rewind", "moved", "--to", "", "--yes"], 2, "positions reset");
    refused(&["positions", "rewind", "moved", "--to", "base64:?", "--yes"], 2, "not base64");
    refused(&["positions", "copy", "moved", "moved", "--yes"], 2, "cannot be copied");
    refused(&["positions", "copy", "moved:in", "moved", "--yes"], 2, "give two pipelines");
    refused(&["positions", "copy", "moved:in", "moved:out", "--yes"], 2, "the sources of the pipeline are in");
    refused(&["positions", "copy", "moved:out", "moved:in", "--yes"], 2, "no position is stored");
    workspace.once();
    assert_eq!(delivered(&workspace).len(), 10, "nothing was changed");
    let elsewhere = Workspace::new();
    let text = elsewhere.run(&["positions", "show"]).expect_code(3).both();
    assert!(text.contains("no store yet") && !elsewhere.path("anabranch.db").exists(), "{text}");
}

/// The position that it has is not given up for one that the source cannot read.
#[test]
fn a_position_that_the_source_cannot_read_is_refused() {
    let mut workspace = workspace();
    let before = positions(&workspace);
    let exported = workspace.run(&["positions", "export"]).expect_code(0).stdout;
    let mut exported: Value = serde_json::from_str(&exported).unwrap();
    let long = "A".repeat(100_000);
    let mut refused_by = |workspace: &Workspace, at: &str| {
        for position in ["AAAA", &long] {
            exported["positions"][0]["position"] = position.into();
            workspace.write("bad.json", exported.to_string());
            for arguments in [
                &["positions", "rewind", "moved", "--to", position, "--yes"][..],
                &["positions", "rewind", "moved", "--to", position],
                &["positions", "import", "bad.json", "--yes"],
            ] {
                let text = workspace.run(arguments).expect_code(2).both();
                assert!(text.contains("moved:in") && text.contains("cannot resume"), "{at}: {text}");
                assert!(text.len() < 2000, "{at}: {} bytes are no message", text.len());
            }
        }
        assert_eq!(positions(workspace), before, "{at}");
    };
    refused_by(&workspace, "the store");
    let mut service = Service::start(&workspace);
    service.wait_for("moved", "running");
    workspace.env("ANABRANCH_API_HTTP_ADDRESS", &service.address.to_string());
    refused_by(&workspace, "the service");
    workspace.env("ANABRANCH_API_HTTP_ADDRESS", "127.0.0.1:0");
    service.end();
    workspace.once();
    assert_eq!(delivered(&workspace).len(), 10);
    // Nobody can be asked about a pipeline that is not there yet, and that is said.
    exported["positions"][0]["position"] = "AAAA".into();
    workspace.write("new.json", exported.to_string().replace("moved", "later"));
    let text = workspace.run(&["positions", "import", "new.json", "--new", "--yes"]).expect_code(0).both();
    assert!(text.contains("not checked"), "{text}");
    workspace.write("pipelines/later.yaml", file_to_file("later", ""));
    let text = workspace.run(&["run", "--once"]).expect_code(1).both();
    assert!(text.contains("positions reset"), "says what to do: {text}");
}

/// Positions that are there before their pipeline can be looked at, in the store and by asking the service.
#[test]
fn positions_of_a_pipeline_that_is_not_there_yet_are_shown() {
    let workspace = workspace();
    workspace.run(&["positions", "copy", "moved:in", "later:in", "--new", "--yes"]).expect_code(0);
    let shown = workspace.run(&["positions", "show", "later"]).expect_code(0).stdout;
    assert!(shown.contains("later") && shown.contains("base64:"), "{shown}");
    let text = workspace.run(&["positions", "show", "latter"]).expect_code(2).both();
    assert!(text.contains("latter"), "{text}");
    let service = Service::start(&workspace);
    assert_eq!(service.get("/v1/pipelines/later/positions")["positions"][0]["connector"], "in");
    service.refused("GET", "/v1/pipelines/latter/positions", &Value::Null, "pipeline.not_found");
    service.end();
}

#[test]
fn a_position_of_a_partition_that_the_source_does_not_have_is_refused() {
    let workspace = workspace();
    let before = positions(&workspace);
    let exported = workspace.run(&["positions", "export"]).expect_code(0).stdout;
    let mut exported: Value = serde_json::from_str(&exported).unwrap();
    exported["positions"][0]["partition"] = "zzz".into();
    workspace.write("bad.json", exported.to_string());
    for more in [&["--yes"][..], &[]] {
        let text = workspace.run(&[&["positions", "import", "bad.json"], more].concat()).expect_code(2).both();
        assert!(text.contains("moved:in has no partition \"zzz\""), "{text}");
    }
    assert_eq!(positions(&workspace), before);
}

#[test]
fn a_service_that_runs_keeps_its_positions() {
    let workspace = workspace();
    // A service that is ready has its store.
    let service = Service::start(&workspace);
    let text = workspace.run(&["positions", "reset", "moved", "--yes"]).expect_code(3).both();
    assert!(text.contains("in use"), "{text}");
    service.end();
}

/// A destination may have more than the position of a pipeline that was killed tells.
#[test]
fn a_position_of_a_pipeline_that_did_not_end_is_not_copied_by_accident() {
    let workspace = workspace();
    let mut service = workspace.start(&["run"]);
    let address = service.address();
    service.wait_until("the pipeline", || get(address, "/v1/pipelines/moved").json()["status"]["word"] == "running");
    service.signal("KILL");
    service.finish();
    let copy = ["positions", "copy", "moved", "later", "--new", "--yes"];
    let refused = workspace.run(&copy).expect_code(3).both();
    assert!(refused.contains("did not end cleanly") && refused.contains("start the service"), "{refused}");
    workspace.run(&[&copy[..], &["--force"]].concat()).expect_code(0);
}

#[test]
#[cfg(feature = "postgres")]
fn rows_of_a_transaction_come_again_after_their_pipeline_was_deleted_with_its_positions() {
    let Some(database) = crate::servers::postgres::Database::create() else { return };
    database.query("CREATE TABLE t (line text)");
    for state in ["embedded", "postgres"] {
        database.query("TRUNCATE t");
        let mut workspace = Workspace::new();
        workspace.write("in.txt", "{\"line\":\"a\"}\n{\"line\":\"b\"}\n");
        workspace.env("ANABRANCH_DB_TYPE", state);
        workspace.env("ANABRANCH_DB_POSTGRES_CONNECTION_STRING", &database.url());
        let mut service = Service::start(&workspace);
        make_rows_of_lines(&mut service, state, &database);
        let path = format!("/v1/pipelines/{state}");
        service.refused("DELETE", &format!("{path}?parts=true"), &json!({}), "pipeline.has_positions");
        service.done("DELETE", &format!("{path}?parts=true&positions=true"), &json!({}));
        service.refused("GET", &format!("{path}/positions"), &json!({}), "pipeline.not_found");
        database.query("TRUNCATE t");
        make_rows_of_lines(&mut service, state, &database);
        service.end();
    }
}

/// Makes a pipeline that copies two lines into the table `t`, exactly once, waits for the rows, and stops it.
#[cfg(feature = "postgres")]
#[track_caller]
fn make_rows_of_lines(service: &mut Service, id: &str, database: &crate::servers::postgres::Database) {
    let connector = |name: &str, role: &str, plugin: &str, settings: Value| {
        let config = json!({ "settings": settings });
        json!({ "id": name, "type": role, "plugin": plugin, "pipelineId": id, "config": config })
    };
    let processor = |name: &str, plugin: &str, settings: Value| {
        let parent = json!({ "type": "TYPE_PIPELINE", "id": id });
        json!({ "id": name, "plugin": plugin, "parent": parent, "config": { "settings": settings } })
    };
    service.done("POST", "/v1/pipelines", &json!({ "id": id, "config": { "name": id } }));
    let source = connector("in", "TYPE_SOURCE", "file", json!({ "path": "in.txt" }));
    service.done("POST", "/v1/connectors", &source);
    for processor in [
        processor("decode", "json.decode", json!({ "field": ".Payload.After" })),
        processor("key", "field.set", json!({ "field": ".Key", "value": "{}" })),
    ] {
        service.done("POST", "/v1/processors", &processor);
    }
    let table = json!({ "url": database.url(), "table": "t", "exactlyOnce": "true" });
    service.done("POST", "/v1/connectors", &connector("out", "TYPE_DESTINATION", "postgres", table));
    service.done("POST", &format!("/v1/pipelines/{id}/start"), &json!({}));
    service.process.wait_until("the rows", || database.query("SELECT count(*) FROM t") == ["2"]);
    service.done("POST", &format!("/v1/pipelines/{id}/stop"), &json!({}));
    service.wait_for(id, "stopped");
}

/// A lost store, or another service with the same ids, is no reason to be silent about where a source resumes.
#[test]
#[cfg(feature = "postgres")]
fn a_position_that_only_the_destination_has_is_told() {
    let Some(database) = crate::servers::postgres::Database::create() else { return };
    database.query("CREATE TABLE t (line text)");
    let workspace = Workspace::new();
    workspace.write("in.txt", "{\"line\":\"a\"}\n{\"line\":\"b\"}\n");
    workspace.write("pipelines/p.yaml", rows_of_lines(&database.url()));
    let untold = "the state store has no position of this source";
    let first = workspace.run(&["run", "--once"]).expect_code(0).both();
    assert!(!first.contains(untold), "{first}");
    std::fs::remove_file(workspace.path("anabranch.db")).unwrap();
    let resumed = workspace.run(&["run", "--once"]).expect_code(0).both();
    assert!(resumed.contains(untold) && resumed.contains("2 records of generation 1"), "{resumed}");
    assert_eq!(database.query("SELECT count(*) FROM t"), ["2"]);
    let again = workspace.run(&["run", "--once"]).expect_code(0).both();
    assert!(!again.contains(untold), "{again}");
    workspace.run(&["positions", "reset", "moved", "--yes"]).expect_code(0);
    workspace.run(&["run", "--once"]).expect_code(0);
    assert_eq!(database.query("SELECT count(*) FROM t"), ["4"]);
}

/// Every import was said to repeat records, also one that repeats none.
#[test]
#[cfg(feature = "postgres")]
fn an_import_is_said_to_repeat_records_only_where_it_may() {
    let Some(database) = crate::servers::postgres::Database::create() else { return };
    database.query("CREATE TABLE t (line text)");
    let workspace = Workspace::new();
    workspace.write("in.txt", "{\"line\":\"a\"}\n{\"line\":\"b\"}\n");
    workspace.write("pipelines/p.yaml", rows_of_lines(&database.url()));
    workspace.run(&["run", "--once"]).expect_code(0);
    workspace.run(&["positions", "export", "--to", "positions.json"]).expect_code(0);
    let import = || workspace.run(&["positions", "import", "positions.json", "--yes"]).expect_code(0);
    import();
    let exact = workspace.run(&["run", "--once"]).expect_code(0).both();
    assert!(!exact.contains("may be delivered again"), "{exact}");
    assert_eq!(database.query("SELECT count(*) FROM t"), ["2"]);
    workspace.append("in.txt", "{\"line\":\"c\"}\n");
    workspace.run(&["run", "--once"]).expect_code(0);
    import();
    let repeats = workspace.run(&["run", "--once"]).expect_code(0).both();
    assert!(repeats.contains("records that the destination already has may be delivered again"), "{repeats}");
    assert_eq!(database.query("SELECT count(*) FROM t"), ["4"]);
}

/// A pipeline `moved` that copies lines into the table `t`, exactly once.
#[cfg(feature = "postgres")]
fn rows_of_lines(url: &str) -> String {
    let pipeline = file_to_file(
        "moved",
        "      - { id: decode, plugin: json.decode, settings: { field: .Payload.After } }\n\
         \x20     - { id: key, plugin: field.set, settings: { field: .Key, value: \"{}\" } }\n",
    );
    let destination = format!(
        "plugin: postgres\n        settings:\n          url: {url}\n          table: t\n          exactlyOnce: \"true\"",
    );
    pipeline.replace("plugin: file\n        settings:\n          path: out.ndjson", &destination)
}

#[test]
#[cfg(feature = "postgres")]
fn rows_of_a_transaction_come_again_after_a_reset() {
    let Some(database) = crate::servers::postgres::Database::create() else { return };
    database.query("CREATE TABLE t (line text)");
    let workspace = Workspace::new();
    workspace.write("in.txt", "{\"line\":\"a\"}\n{\"line\":\"b\"}\n");
    workspace.write("pipelines/p.yaml", rows_of_lines(&database.url()));
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
