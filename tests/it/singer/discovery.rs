//! `connectors discover`, and choices that a catalogue does not have.

use serde_json::{Value, json};

use super::scripted::{failing, workspace};

#[test]
fn the_streams_of_a_tap_are_listed() {
    let workspace = workspace(
        "          config.count: 1\n          streams: numbers\n          replicationMethod.numbers: FULL_TABLE\n",
    );
    let output = workspace.run(&["connectors", "discover", "p"]).expect_code(0);
    let lines: Vec<Vec<&str>> = output.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["p:in"]);
    assert_eq!(lines[2], ["main-numbers", "numbers", "yes", "id", "FULL_TABLE", "-"]);
    assert_eq!(lines[3], ["main-others", "others", "no", "id", "-", "-"]);
    let output = workspace.run(&["connectors", "discover", "--json", "pipelines/p.yaml"]).expect_code(0);
    let envelope: Value = serde_json::from_str(&output.stdout).unwrap();
    let source = &envelope["result"]["sources"][0];
    assert_eq!((&source["connector"], source["streams"].as_array().unwrap().len()), (&json!("p:in"), 2));
    assert_eq!(
        source["streams"][0],
        json!({
            "id": "main-numbers", "name": "numbers", "selected": true, "key": ["id"], "replicationMethod": "FULL_TABLE",
            "replicationKey": null, "replicationKeys": ["id"], "properties": ["id"]
        })
    );
    assert!(workspace.lines("starts.ndjson").is_empty(), "no sync was started");
}

#[test]
fn discovery_says_why_it_fails_without_credentials() {
    let mut workspace = workspace("          config.discover: fails\n          config.password: ${PASSWORD}\n");
    workspace.env("PASSWORD", "hunter22-0123");
    let output = workspace.run(&["connectors", "discover"]).expect_code(3);
    let error =
        "the tap python3 cannot discover its streams (exit code 1); its last output: CRITICAL cannot log in with ***";
    assert!(output.both().contains(error), "{}", output.both());
    assert!(!output.both().contains("hunter22"), "{}", output.both());
    let other = crate::process::Workspace::new();
    other.write("in.txt", "");
    other.write("pipelines/p.yaml", crate::process::file_to_file("p", ""));
    let output = other.run(&["connectors", "discover"]).expect_code(2);
    assert!(output.both().contains("no source that was asked names its streams"), "{}", output.both());
}

#[test]
fn a_stream_that_the_tap_lacks_is_refused_before_the_first_record() {
    let mut workspace = workspace("          config.count: 1\n          streams: nubmers\n");
    let output = failing(&mut workspace);
    assert!(output.both().contains("the tap has no stream \"nubmers\"; did you mean numbers?"), "{}", output.both());
    assert!(workspace.lines("starts.ndjson").is_empty());
    // Discovery still shows the names.
    let output = workspace.run(&["connectors", "discover"]).expect_code(0);
    assert!(output.stdout.contains("main-numbers"), "{}", output.both());
    let output = workspace.run(&["doctor", "--check", "pipelines.connectors"]);
    assert!(output.both().contains("did you mean numbers?"), "{}", output.both());
}

#[test]
fn settings_that_exclude_each_other_are_refused_before_the_first_record() {
    let refused = |settings: &str, error: &str| {
        let output = workspace(settings).run(&["pipelines", "validate"]).expect_code(2);
        assert!(output.both().contains(error), "{settings}: {}", output.both());
    };
    refused("          config: '[1]'\n", "the text is not a JSON object");
    refused("          catalog: '{\"streams\": 7}'\n", "it is not a JSON object with a list `streams`");
    refused("          catalog.argument: none\n          streams: numbers\n", "the tap has no catalogue");
    refused("          operation: delete\n", "is not one of create, update, snapshot");
    refused("          config.a: '[1'\n", "config.a: the text is not valid JSON (line 1, column 2)");
    refused("          environment.A=B: x\n", "must not contain `=`");
    refused("          replicationMethod.numbers: SOMETIMES\n", "is not one of FULL_TABLE, INCREMENTAL, LOG_BASED");
}
