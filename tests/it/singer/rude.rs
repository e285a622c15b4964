//! Taps that write garbage, fail, hang, or send states when nobody expects them: nothing is lost, and errors say why.

use serde_json::json;

use super::scripted::{failing, ids, no_tap_is_left, record, records, schema, script, starts, state};

fn one(id: u32) -> String {
    record(&format!("\"id\": {id}"))
}

#[test]
fn a_line_that_is_not_a_message_stops_the_pipeline_after_the_records_before_it() {
    for (line, error) in [
        ("Connecting to the database...", "wrote a line that is not a message (line 3)"),
        ("{\"type\": \"RECORD\", ", "it is not a JSON object with a `type`"),
        ("{\"type\": \"BATCH\", \"stream\": \"numbers\"}", "messages of the type \"BATCH\""),
        ("{\"type\": \"PURGE\"}", "messages of the type \"PURGE\""),
        (
            "{\"type\": \"RECORD\", \"stream\": \"others\", \"record\": {}}",
            "a record of the stream \"others\" before its schema",
        ),
    ] {
        let mut workspace = script(&format!("{}{}{line}\n{}", schema(""), one(1), one(2)), "");
        let output = failing(&mut workspace);
        assert!(output.both().contains(error), "{line}: {}", output.both());
        assert_eq!(ids(&workspace), [1], "{line}");
        no_tap_is_left(&workspace);
    }
}

#[test]
fn a_record_that_cannot_be_passed_on_is_a_dead_letter() {
    let lines = [
        schema(""),
        one(1),
        "!long 300000\n".to_owned(),
        record("\"name\": \"no key\""),
        "{\"type\": \"RECORD\", \"stream\": \"numbers\", \"record\": [1]}\n".to_owned(),
        one(2),
        state("{\"next\": 3}"),
    ];
    let workspace = script(&lines.concat(), "          maxMessageBytes: 100KiB\n");
    workspace.once();
    assert_eq!(ids(&workspace), [1, 2]);
    let letters = workspace.lines("letters.ndjson").join("\n");
    for code in ["record_too_large", "tap_key_missing", "tap_record_invalid"] {
        assert!(letters.contains(code), "{code}: {letters}");
    }
    workspace.once();
    assert_eq!(starts(&workspace)[1]["state"], json!({"next": 3}), "a dead letter is settled");
}

#[test]
fn a_record_that_breaks_its_schema_is_a_dead_letter_that_says_why() {
    let lines = [
        schema(r#", "d": {"type": ["null", "number"]}"#),
        one(1),
        record(r#""id": "notint""#),
        record(r#""id": 77, "d": "abc""#),
        record(r#""id": null"#),
        record(r#""id": 78, "d": NaN"#),
        "{\"type\": \"RECORD\", \"stream\": \"numbers\"}\n".to_owned(),
        one(2),
    ];
    let workspace = script(&lines.concat(), "");
    workspace.once();
    assert_eq!(ids(&workspace), [1, 2]);
    let letters = workspace.lines("letters.ndjson");
    assert_eq!(letters.len(), 5, "{letters:?}");
    for (letter, parts) in letters.iter().zip([
        ["tap_type_mismatch", "is a text, and the schema of the stream declares an integer (line 3)"],
        ["tap_type_mismatch", "is a text, and the schema of the stream declares a number (line 4)"],
        ["tap_key_missing", "of its key (line 5)"],
        ["tap_record_invalid", "wrote a record with NaN, which is not a number in JSON (line 6)"],
        ["tap_record_invalid", "wrote a RECORD message without a record (line 7)"],
    ]) {
        assert!(parts.iter().all(|part| letter.contains(part)), "{parts:?}: {letter}");
        assert!(!letter.contains("schema.version"), "no schema describes it: {letter}");
    }
}

#[test]
fn a_state_before_any_record_counts() {
    let workspace = script(&state("{\"a\": 1}"), "");
    // Nothing was read.
    workspace.run(&["run", "--once"]).expect_code(5);
    workspace.write("script", [schema(""), one(1), state("{\"a\": 1}"), state("{\"a\": 2}")].concat());
    workspace.once();
    workspace.once();
    let states: Vec<_> = starts(&workspace).into_iter().map(|start| start["state"].clone()).collect();
    assert_eq!(states, [json!(null), json!({"a": 1}), json!({"a": 2})]);
}

#[test]
fn without_a_state_everything_comes_again() {
    // The last line has no end.
    let workspace = script(&format!("{}{}!rest {}", schema(""), one(1), one(2)), "");
    workspace.once();
    workspace.once();
    assert_eq!(ids(&workspace), [1, 2, 1, 2]);
    assert!(starts(&workspace).iter().all(|start| start["state"].is_null()));
}

#[test]
fn a_tap_that_fails_is_started_again_from_its_last_state() {
    let lines =
        [schema(""), one(1), state("{\"next\": 2}"), one(2), "!stderr CRITICAL disk on fire\n!exit 3\n".to_owned()];
    let mut workspace = script(&lines.concat(), "");
    let output = failing(&mut workspace);
    let error = "the tap python3 failed (exit code 3); its last output: CRITICAL disk on fire";
    assert!(output.both().contains(error), "{}", output.both());
    assert_eq!(ids(&workspace), [1, 2]);
    workspace.env("ANABRANCH_PIPELINES_ERROR_RECOVERY_MAX_RETRIES", "-1");
    let mut service = workspace.start(&["run"]);
    service.wait_until("two more starts", || starts(&workspace).len() >= 3);
    workspace.replace("script", [schema(""), one(3)].concat());
    service.wait_until("the last record", || ids(&workspace).contains(&3));
    service.signal("INT");
    service.finish().expect_code(0);
    assert!(starts(&workspace)[1..].iter().all(|start| start["state"] == json!({"next": 2})));
}

#[test]
fn a_tap_that_hangs_is_killed_when_the_service_stops() {
    let workspace = script(&format!("{}{}!wait\n", schema(""), one(1)), "          stopTimeout: 100ms\n");
    let mut service = workspace.start(&["run"]);
    service.wait_until("the record", || workspace.lines("out.ndjson").len() == 1 && starts(&workspace).len() == 2);
    service.signal("INT");
    let output = service.finish().expect_code(0);
    assert!(output.both().contains("the tap did not end within 0.1 s and is killed"), "{}", output.both());
    no_tap_is_left(&workspace);
}

#[test]
fn a_tap_that_cannot_be_started_is_named() {
    let mut workspace = script("", "");
    let text = workspace.read("pipelines/p.yaml").replace("command: python3", "command: tap-nowhere");
    workspace.write("pipelines/p.yaml", text);
    let output = failing(&mut workspace);
    assert!(output.both().contains("the tap tap-nowhere cannot be started"), "{}", output.both());
}

#[test]
fn versions_are_ignored_or_refused() {
    let lines =
        [schema(""), "{\"type\": \"ACTIVATE_VERSION\", \"stream\": \"numbers\", \"version\": 9}\n".to_owned(), one(1)];
    let workspace = script(&lines.concat(), "");
    workspace.once();
    assert_eq!(records(&workspace).len(), 1);
    let mut workspace = script(&lines.concat(), "          activateVersion: fail\n");
    let output = failing(&mut workspace);
    assert!(output.both().contains("only records of the version 9 of the stream"), "{}", output.both());
}
