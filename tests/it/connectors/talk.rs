//! What plugins are told, and in which order.

use super::plugin::{no_plugin_is_left, pipeline, run_to, started, wait_for, workspace, written};
use crate::process::Workspace;

const LINES: usize = 2_000;

/// The calls that a plugin noted since the last time.
fn calls(workspace: &Workspace, name: &str) -> Vec<String> {
    let lines = workspace.lines(name);
    std::fs::remove_file(workspace.path(name)).unwrap();
    lines
}

#[test]
fn both_versions_of_the_protocol_are_spoken_in_order() {
    for version in ["1", "2"] {
        let mut workspace = workspace();
        workspace.env("HELPER_PROTOCOL", version);
        pipeline(&workspace, "count: 2000, batch: 7, options.a.b: x", "keys: true, greeting: ' '");
        let mut process = workspace.start(&["run"]);
        wait_for(&mut process, &workspace, LINES);
        // It may note so after the last line has arrived.
        process.wait_until("the source to be done", || workspace.lines("source.log").contains(&"all sent".to_owned()));
        process.signal("INT");
        process.finish().expect_code(0);
        no_plugin_is_left(&workspace);
        assert_eq!(written(&workspace), (0..LINES).collect::<Vec<_>>());
        let line = &workspace.lines("out.txt")[7];
        assert_eq!(line, "line 7 conduit.source.connector.id opencdc.collection opencdc.readAt");
        assert_eq!(
            calls(&workspace, "source.log"),
            [
                "configure [batch=7 count=2000 options.a.b=x]",
                "created [batch=7 count=2000 options.a.b=x]",
                "open \"\"",
                "run",
                "all sent",
                "stop",
                "acked 2000 up to \"1999\"",
                "teardown, was listened to once",
            ]
            .map(String::from)
        );
        let destination = calls(&workspace, "destination.log");
        assert_eq!(
            destination,
            [
                "configure [greeting=]",
                "created [greeting=]",
                "open",
                "run",
                "stop \"1999\"",
                "closed after 2000",
                "teardown, was listened to once",
            ]
            .map(|line| line.replace("[greeting=]", "[greeting= keys=true]"))
        );

        // The next run goes on after the last line, and has nothing new to tell the source but the count.
        pipeline(&workspace, "count: 2100, batch: 7, options.a.b: x", "keys: true, greeting: ' '");
        run_to(&workspace, 2_100).expect_code(0);
        assert_eq!(written(&workspace), (0..2_100).collect::<Vec<_>>());
        let source = calls(&workspace, "source.log");
        let change = "updated [batch=7 count=2000 options.a.b=x] -> [batch=7 count=2100 options.a.b=x]";
        assert!(source.contains(&change.to_owned()), "{source:?}");
        assert!(source.contains(&"open \"1999\"".to_owned()), "{source:?}");
        let destination = calls(&workspace, "destination.log");
        assert!(!destination.iter().any(|line| line.starts_with("created") || line.starts_with("updated")));
        assert!(destination.contains(&"stop \"2099\"".to_owned()), "{destination:?}");
    }
}

#[test]
fn a_variable_is_shown_to_the_plugin_and_stored_for_nobody() {
    let mut workspace = workspace();
    workspace.env("SECRET", "hunter2222");
    pipeline(&workspace, "count: 10, greeting: '${SECRET}'", "");
    run_to(&workspace, 10).expect_code(0);
    assert!(calls(&workspace, "source.log").contains(&"created [count=10 greeting=hunter2222]".to_owned()));
    let store = std::fs::read(workspace.path("anabranch.db")).unwrap();
    let has = |text: &[u8]| store.windows(text.len()).any(|bytes| bytes == text);
    assert!(has(b"${SECRET}") && !has(b"hunter2222"));
    workspace.env("SECRET", "hunter3333");
    let mut process = workspace.start(&["run"]);
    process.wait_until("the source to run", || workspace.read("source.log").contains("run"));
    process.signal("INT");
    process.finish().expect_code(0);
    let source = calls(&workspace, "source.log");
    let change = "updated [count=10 greeting=hunter3333] -> [count=10 greeting=hunter3333]";
    assert!(source.contains(&change.to_owned()), "{source:?}");
}

#[test]
fn plugins_from_before_lifecycle_calls_and_with_much_to_say_are_heard() {
    let mut workspace = workspace();
    let all_said = workspace.path("said").display().to_string();
    workspace.env("HELPER_CHATTY", &all_said);
    pipeline(&workspace, "count: 2000, fault: old", "fault: old");
    let mut process = workspace.start(&["run"]);
    wait_for(&mut process, &workspace, LINES);
    // Their output exceeds the buffer of a pipe.
    process.wait_until("all to be said", || workspace.lines("said").len() == 4);
    process.signal("INT");
    let output = process.finish().expect_code(0);
    assert_eq!(written(&workspace), (0..LINES).collect::<Vec<_>>());
    for connector in ["in", "out"] {
        let said =
            |line: &str| output.stdout.contains(&format!("{line} pipeline=p connector={connector} plugin=helper\n"));
        assert!(said("INF on standard error n=0") && said("WRN line 1"), "{connector}");
    }
    assert!(!output.stdout.contains("on standard output"), "that is for debugging");
}

#[test]
fn schemas_are_registered_with_the_token_of_the_connector() {
    let workspace = workspace();
    pipeline(&workspace, "count: 10, schema: true", "");
    run_to(&workspace, 10).expect_code(0);
    let schema = "c:lines.payload v1 \"string\"";
    let expected = format!(
        "schema {schema}; {schema}; Unknown: schema subject not found; Unknown: schema subject not found; \
         Unknown: invalid schema; Unknown: invalid token; Unimplemented: method not implemented"
    );
    assert!(calls(&workspace, "source.log").contains(&expected));
}

#[test]
fn messages_stay_below_the_limit_whatever_the_size_of_records() {
    for version in ["1", "2"] {
        let mut workspace = workspace();
        workspace.env("HELPER_PROTOCOL", version);
        // Hundreds of them are more than the plugin takes in one message.
        pipeline(&workspace, "count: 300, batch: 50, size: 60000", "");
        run_to_sized(&workspace, 300);
        let lines = workspace.lines("out.txt");
        assert!(lines.iter().all(|line| line.len() == 60_000));
        assert_eq!(lines.len(), 300);
    }
}

#[test]
fn a_source_that_sends_every_record_in_a_frame_of_its_own_may_be_far_ahead() {
    let mut workspace = workspace();
    workspace.env("ANABRANCH_ENGINE_REPLAY_ROWS", "100");
    // While the destination pauses, the source sends as many as the stream takes.
    pipeline(&workspace, "count: 20000, batch: 1", "pause: 2000");
    run_to(&workspace, 20_000).expect_code(0);
    assert_eq!(written(&workspace), (0..20_000).collect::<Vec<_>>());
    assert_eq!(started(&workspace).len(), 2, "neither was started again");
}

/// Runs until so many lines are written.
fn run_to_sized(workspace: &Workspace, lines: usize) {
    let mut process = workspace.start(&["run"]);
    process.wait_until("the last line", || workspace.lines("out.txt").len() == lines);
    process.signal("INT");
    process.finish().expect_code(0);
}

#[test]
fn a_record_that_no_plugin_takes_is_a_dead_letter() {
    let mut workspace = workspace();
    workspace.env("ANABRANCH_CONNECTORS_MAX_RECEIVE_RECORD_SIZE", "2000");
    pipeline(&workspace, "count: 3, size: 3000", "");
    let tried = workspace.run(&["pipelines", "dry-run", "--records", "3"]).expect_code(1).both();
    assert!(tried.contains("record_too_large") && tried.contains("3 failed"), "{tried}");
    let mut process = workspace.start(&["run"]);
    process.wait_until("the letters", || workspace.lines("letters.ndjson").len() == 3);
    process.signal("INT");
    process.finish().expect_code(0);
    let letters = workspace.read("letters.ndjson");
    assert!(letters.contains("connectors.max-receive-record-size"), "{letters}");
    assert_eq!(workspace.lines("out.txt").len(), 0);
}

#[test]
fn built_in_ends_and_processors_see_our_names() {
    let workspace = workspace();
    let source_log = workspace.path("source.log").display().to_string();
    let text = format!(
        r#"version: "2.2"
pipelines:
  - id: p
    connectors:
      - {{ id: in, type: source, plugin: "standalone:helper", settings: {{ count: 10, structured: true, log: "{source_log}" }} }}
      - {{ id: out, type: destination, plugin: file, settings: {{ path: out.ndjson }} }}
    processors:
      - {{ id: mark, plugin: field.set, condition: '{{{{ eq (index .Metadata "recfmt.collection") "lines" }}}}', settings: {{ field: .Payload.After.seen, value: "yes" }} }}
"#
    );
    workspace.write("pipelines/p.yaml", text);
    let mut process = workspace.start(&["run"]);
    process.wait_until("all records", || workspace.lines("out.ndjson").len() == 10);
    process.signal("INT");
    process.finish().expect_code(0);
    let record: serde_json::Value = serde_json::from_str(&workspace.lines("out.ndjson")[3]).unwrap();
    assert_eq!(record["payload"]["after"], serde_json::json!({ "n": 3, "seen": "yes", "text": "line 3" }));
    assert_eq!(record["metadata"]["recfmt.collection"], "lines");
    assert_eq!(record["metadata"]["svc.source.connector.id"], "p:in");
    assert!(record["metadata"].as_object().unwrap().keys().all(|key| !key.starts_with("opencdc.")));
    assert_eq!(started(&workspace).len(), 1);
    no_plugin_is_left(&workspace);
}

#[test]
fn a_dead_letter_queue_has_no_life_of_its_own() {
    let workspace = workspace();
    let path = |name: &str| workspace.path(name).display().to_string();
    let text = format!(
        r#"version: "2.2"
pipelines:
  - id: p
    dead-letter-queue: {{ plugin: helper, window-size: 0, window-nack-threshold: 0, settings: {{ path: "{}", log: "{}" }} }}
    connectors:
      - {{ id: in, type: source, plugin: helper, settings: {{ count: 10 }} }}
      - {{ id: out, type: destination, plugin: helper, settings: {{ path: "{}", fault: "refuse:4" }} }}
"#,
        path("letters.txt"),
        path("letters.log"),
        path("out.txt")
    );
    workspace.write("pipelines/p.yaml", text);
    run_to(&workspace, 10).expect_code(0);
    assert_eq!(written(&workspace), [0, 1, 2, 3, 5, 6, 7, 8, 9]);
    let letter = workspace.read("letters.txt");
    assert!(letter.contains("this one is not liked"), "{letter}");
    let calls = calls(&workspace, "letters.log");
    assert!(!calls.iter().any(|line| line.starts_with("created")), "{calls:?}");
    assert!(calls.contains(&"teardown, was listened to once".to_owned()), "{calls:?}");
}

#[test]
fn schemas_are_the_business_of_plugins() {
    let workspace = workspace();
    let settings = "sdk.schema.context.name: mine, sdk.schema.extract.payload.subject: row, sdk.batch.size: 5";
    pipeline(&workspace, &format!("count: 10, {settings}"), "sdk.schema.extract.key.enabled: false");
    run_to(&workspace, 10).expect_code(0);
    let given = "configure [count=10 sdk.schema.context.name=mine sdk.schema.extract.payload.subject=row]";
    assert_eq!(calls(&workspace, "source.log")[0], given);
    assert_eq!(calls(&workspace, "destination.log")[0], "configure [sdk.schema.extract.key.enabled=false]");
}

#[test]
#[cfg(feature = "avro")]
fn fields_with_a_schema_reach_a_plugin_that_decodes_with_their_types() {
    for (setting, sent) in [("", false), ("sdk.schema.extract.payload.enabled: false", true)] {
        let workspace = workspace();
        let path = workspace.path("out.txt").display().to_string();
        let text = format!(
            r#"version: "2.2"
pipelines:
  - id: p
    connectors:
      - id: in
        type: source
        plugin: generator
        settings: {{ recordCount: 1, operations: create, format.type: structured, format.options.n: int }}
      - {{ id: out, type: destination, plugin: helper, settings: {{ path: "{path}", {setting} }} }}
    processors:
      - {{ id: big, plugin: field.convert, settings: {{ field: .Payload.After.n, type: string }} }}
      - {{ id: set, plugin: field.set, settings: {{ field: .Payload.After.n, value: "9007199254740993" }} }}
      - {{ id: int, plugin: field.convert, settings: {{ field: .Payload.After.n, type: int }} }}
"#
        );
        workspace.write("pipelines/p.yaml", text);
        let mut process = workspace.start(&["run"]);
        let written = || std::fs::read(workspace.path("out.txt")).unwrap_or_default();
        process.wait_until("the record", || written().ends_with(b"\n"));
        process.signal("INT");
        process.finish().expect_code(0);
        let fields = String::from_utf8(written()).is_ok_and(|text| text.contains("900719925474099"));
        assert_eq!(fields, sent, "{:?}", written());
        if !sent {
            // 2⁵³ + 1 as Avro has it, which no double is.
            assert_eq!(written(), b"\x82\x80\x80\x80\x80\x80\x80\x20\n");
        }
    }
}
