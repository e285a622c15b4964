//! Tools of unit size: one processor over standard input, plugins without a service, templates, lint, dry runs.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::process::{Output, Process, Workspace, file_to_file, raw_after};

const RECORD: &str = r#"{"position":"AAA=","operation":"create","metadata":{"k":"v"},"key":null,"payload":{"before":null,"after":{"a":1,"l":[1,2,3]}}}"#;
const RAW: &str =
    r#"{"position":"AAE=","operation":"update","metadata":{},"key":"aw==","payload":{"before":null,"after":"aGk="}}"#;

/// Runs a command with `input` on standard input.
fn filter(workspace: &Workspace, args: &[&str], input: &str) -> Output {
    let mut process = Process::spawn(workspace.command(args).stdin(Stdio::piped()));
    let mut stdin = process.stdin();
    let input = input.to_owned();
    // A process that refuses its arguments does not read.
    let writer = std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    let output = process.finish();
    writer.join().unwrap();
    output
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

fn letter(value: &Value, key: &str) -> String {
    value["metadata"][key].as_str().unwrap_or_else(|| panic!("no {key} in {value}")).to_owned()
}

const SET: &[&str] = &["processors", "run", "field.set", "--set", "field=.Metadata.seen", "--set"];

#[test]
fn one_processor_changes_nothing_else() {
    let workspace = Workspace::new();
    let input = format!("{RECORD}\n\n{RAW}");
    let output = filter(&workspace, &[SET, &["value={{ .Operation }}=x"]].concat(), &input).expect_code(0);
    let expected = format!("{RECORD}\n{RAW}\n")
        .replace(r#""k":"v""#, r#""k":"v","seen":"create=x""#)
        .replace("{}", r#"{"seen":"update=x"}"#);
    assert_eq!((output.stdout, output.stderr), (expected, String::new()));
}

#[test]
fn a_condition_selects_and_its_failure_fails_the_record() {
    let workspace = Workspace::new();
    let args = [SET, &["value=1", "--condition", "{{ eq (index .Payload.After \"a\") 1 }}"]].concat();
    let input = format!("{RECORD}\n{RAW}\n{}\n", RECORD.replace("\"a\":1", "\"a\":2"));
    let output = filter(&workspace, &args, &input).expect_code(1);
    let out = lines(&output.stdout);
    assert_eq!(out.len(), 2, "{out:?}");
    assert_eq!((&out[0]["metadata"]["seen"], &out[1]["metadata"]["seen"]), (&json!("1"), &Value::Null));
    let letters = lines(&output.stderr);
    assert_eq!(letters.len(), 1, "{letters:?}");
    assert_eq!(letter(&letters[0], "svc.dlq.nack.code"), "condition_failed");
    assert_eq!(letter(&letters[0], "svc.dlq.nack.node.id"), "field.set");
    assert_eq!(letters[0]["payload"]["after"]["payload"]["after"], "aGk=", "the letter holds the record");
}

#[test]
fn split_filter_and_error_do_what_they_do_in_pipelines() {
    let workspace = Workspace::new();
    let split = ["processors", "run", "split", "--set", "field=.Payload.After.l"];
    let refused = filter(&workspace, &split, RECORD).expect_code(2).both();
    assert!(refused.contains("plan.needs_arch_v2"), "{refused}");
    let split = [&split[..], &["--preview.pipeline-arch-v2"]].concat();
    let out = lines(&filter(&workspace, &split, RECORD).expect_code(0).stdout);
    let pieces: Vec<_> =
        out.iter().map(|r| (r["payload"]["after"]["l"].clone(), r["metadata"]["split.index"].clone())).collect();
    assert_eq!(pieces, [(json!(1), json!("0")), (json!(2), json!("1")), (json!(3), json!("2"))]);
    let all = filter(&workspace, &["processors", "run", "filter"], RECORD).expect_code(0);
    assert_eq!(all.both(), "");
    let error = ["processors", "run", "error", "--set", "message=no {{ .Operation }}"];
    let output = filter(&workspace, &error, &format!("{RECORD}\n{RAW}\n")).expect_code(1);
    assert_eq!(output.stdout, "");
    let messages: Vec<String> = lines(&output.stderr).iter().map(|l| letter(l, "svc.dlq.nack.error")).collect();
    assert_eq!(messages, ["no create", "no update"]);
}

#[test]
fn what_a_script_logs_is_shown_when_it_is_asked_for() {
    let workspace = Workspace::new();
    let script = "script=function process(rec) { logger.Info().Msg('seen'); return rec }";
    let script = ["processors", "run", "custom.javascript", "--set", script];
    let quiet = filter(&workspace, &script, RECORD).expect_code(0);
    assert_eq!(quiet.stderr, "");
    let told = filter(&workspace, &[&script[..], &["--log.level=info"]].concat(), RECORD).expect_code(0);
    assert!(told.stderr.contains("INF seen"), "{}", told.stderr);
    assert_eq!((lines(&told.stdout).len(), told.stderr.lines().count()), (1, 1), "{}", told.stderr);
}

/// The command ended before the log was written, and the last lines were lost.
#[test]
fn the_last_lines_of_the_log_are_written_before_the_command_ends() {
    let workspace = Workspace::new();
    let script =
        "script=function process(rec) { for (let i = 0; i < 5000; i++) { logger.Info().Msg('n' + i) } return rec }";
    let command = ["processors", "run", "custom.javascript", "--log.level=info", "--set", script];
    let mut command = workspace.command(command);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    write!(child.stdin.take().unwrap(), "{RECORD}").unwrap();
    // A slow reader: most lines still wait for it when the record has been processed.
    let (mut stderr, mut log, mut piece) = (child.stderr.take().unwrap(), Vec::new(), [0; 4096]);
    while let count @ 1.. = stderr.read(&mut piece).unwrap() {
        log.extend_from_slice(&piece[..count]);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let log = String::from_utf8(log).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(log.lines().last().is_some_and(|line| line.contains("INF n4999 ")), "{} lines", log.lines().count());
}

#[test]
fn a_script_without_a_function_is_not_valid() {
    let workspace = Workspace::new();
    let script = ["processors", "run", "custom.javascript", "--set", "script=var process = 1"];
    let output = filter(&workspace, &script, RECORD).expect_code(2);
    assert!(output.stderr.contains("no function named process"), "{}", output.stderr);
}

#[test]
fn bad_lines_are_named_and_the_others_go_on() {
    let workspace = Workspace::new();
    let long = "x".repeat(100_000);
    let input = format!("{RECORD}\n{{\"operation\":\n[]\n{RAW}\n{long}\n{{}}\n{{\"operation\":\"delete\"}}");
    let output = filter(&workspace, &[SET, &["value=1"]].concat(), &input).expect_code(1);
    let out = lines(&output.stdout);
    assert_eq!(
        out.iter().map(|r| r["operation"].as_str().unwrap()).collect::<Vec<_>>(),
        ["create", "update", "delete"]
    );
    assert_eq!(out[2]["position"], "Nw==", "a record without position gets the number of its line");
    let letters = lines(&output.stderr);
    for (letter_, line) in letters.iter().zip([2, 3, 5, 6]) {
        let message = letter(letter_, "svc.dlq.nack.error");
        assert!(message.starts_with(&format!("line {line} is not a record: ")), "{message}");
    }
    assert_eq!(letters.len(), 4);
    assert_eq!(raw_after(&letters[1].to_string()), "[]");
    assert_eq!(raw_after(&letters[2].to_string()), long);
}

#[test]
fn workers_keep_the_order() {
    let workspace = Workspace::new();
    let input: String = (0..5000).map(|i| RECORD.replace("\"a\":1", &format!("\"a\":{i}")) + "\n").collect();
    let output = filter(&workspace, &[SET, &["value=1", "--workers", "4"]].concat(), &input).expect_code(0);
    let out = lines(&output.stdout);
    assert!(
        out.iter().enumerate().all(|(i, r)| r["payload"]["after"]["a"] == json!(i) && r["metadata"]["seen"] == "1")
    );
    assert_eq!(out.len(), 5000);
}

#[test]
fn output_does_not_wait_for_more_input() {
    let workspace = Workspace::new();
    let mut child =
        workspace.command([SET, &["value=1"]].concat()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    for _ in 0..3 {
        writeln!(stdin, "{RECORD}").unwrap();
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(lines(&line)[0]["metadata"]["seen"], "1");
    }
    drop(stdin);
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!((rest.as_str(), child.wait().unwrap().code()), ("", Some(0)));
}

#[test]
fn a_reader_that_went_away_is_nobodys_problem() {
    let workspace = Workspace::new();
    let mut child = workspace
        .command([SET, &["value=1"]].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    writeln!(stdin, "{RECORD}").unwrap();
    stdout.read_line(&mut String::new()).unwrap();
    drop(stdout);
    // Endless input: only the closed output ends it.
    while writeln!(stdin, "{RECORD}").is_ok() {}
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap()), (Some(0), String::new()));
}

#[test]
fn wrong_arguments_are_underlined() {
    let workspace = Workspace::new();
    let refused = |args: &[&str], expected: &[&str]| {
        let args = [&["processors", "run"], args].concat();
        let output = filter(&workspace, &args, RECORD).expect_code(2);
        assert_eq!(output.stdout, "");
        for part in expected {
            assert!(output.stderr.contains(part), "{part:?} is not in:\n{}", output.stderr);
        }
    };
    refused(&["field.sett"], &["NAME:1:1", "did you mean \"field.set\"?"]);
    refused(&["field.set", "--set", "field"], &["--set:1:1", "--set name=value"]);
    refused(&["field.set", "--set", "fild=.Key", "--set", "value=x"], &["--set:1:1", "did you mean \"field\"?"]);
    refused(&["field.set", "--set", "field=.Key", "--set", "value={{ uper }}"], &["--set:1:10", "^^^^", "`upper`"]);
    refused(&["filter", "--condition", "{{ eq 1"], &["--condition:1:1", "is not closed"]);
    refused(&["filter", "--workers", "0"], &["--workers"]);
    refused(&["clone", "--set", "count=0"], &["must be at least 1"]);
    refused(&["generator"], &["cannot be used as a processor"]);
    let output = filter(&workspace, &["--json", "processors", "run", "nothing"], RECORD).expect_code(2);
    let envelope: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!((&envelope["command"], &envelope["ok"]), (&json!("processors.run"), &json!(false)));
    assert_eq!(envelope["result"]["findings"][0]["code"], "plan.unknown_plugin");
}

#[test]
fn plugins_are_listed_under_all_their_names() {
    let workspace = Workspace::new();
    let processors = workspace.run(&["processors", "list"]).expect_code(0).stdout;
    assert!(processors.contains("field.set") && !processors.contains("generator"), "{processors}");
    for name in ["processor", "processor-plugins", "processor-plugin"] {
        assert_eq!(workspace.run(&[name, "ls", "--processors.path", "x"]).expect_code(0).stdout, processors);
    }
    let connectors = workspace.run(&["connectors", "list"]).expect_code(0).stdout;
    let file = connectors.lines().find(|line| line.trim_start().starts_with("file ")).unwrap();
    assert!(file.contains("source, destination"), "{file}");
    for name in ["connector", "connector-plugins", "connector-plugin"] {
        assert_eq!(workspace.run(&[name, "ls", "--connectors.path", "x"]).expect_code(0).stdout, connectors);
    }
    let json: Value = serde_json::from_str(&workspace.run(&["connectors", "list", "--json"]).stdout).unwrap();
    let named: Vec<&str> =
        json["result"]["connectors"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert!(["drop", "file", "generator", "log"].iter().all(|name| named.contains(name)), "{named:?}");
    assert_eq!(json["summary"]["connectors"], json!(named.len()));
}

#[test]
fn a_plugin_is_described_with_every_parameter() {
    let workspace = Workspace::new();
    let text = workspace.run(&["processors", "describe", "split"]).expect_code(0).stdout;
    for part in
        ["split v", "field", "reference", "required; within .Key, .Payload", "sdk.schema.decode.key.enabled", "true"]
    {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    let file = workspace.run(&["connectors", "describe", "file"]).expect_code(0).stdout;
    let (source, destination) = file.split_once("As a destination").unwrap();
    assert!(source.contains("maxLineBytes") && !source.contains("durability"), "{source}");
    assert!(destination.contains("one of process, disk"), "{destination}");
    let json: Value =
        serde_json::from_str(&workspace.run(&["connectors", "describe", "file", "--json"]).stdout).unwrap();
    let parameters = json["result"]["destination"]["parameters"].as_array().unwrap();
    let durability = parameters.iter().find(|p| p["name"] == "durability").unwrap();
    assert_eq!((&durability["type"], &durability["default"]), (&json!("text"), &json!("process")));
    assert_eq!(durability["validations"], json!([{ "type": "oneOf", "values": ["process", "disk"] }]));
    let unknown = workspace.run(&["processors", "describe", "splt"]).expect_code(2);
    assert!(unknown.stderr.contains("did you mean split?"), "{}", unknown.stderr);
    let wrong = workspace.run(&["connectors", "describe", "split"]).expect_code(2);
    assert!(wrong.stderr.contains("anabranch processors describe split"), "{}", wrong.stderr);
}

#[test]
fn templates_are_evaluated_record_by_record() {
    let workspace = Workspace::new();
    let template = "{{ .Operation }} {{ .Metadata.k }}";
    let input = format!("{RECORD}\nbad\n{RAW}\n");
    let output = filter(&workspace, &["template", "eval", template, "--record", "-"], &input).expect_code(1);
    assert_eq!(output.stdout, "create v\nupdate <no value>\n");
    assert!(output.stderr.contains("line 2 is not a record"), "{}", output.stderr);
    workspace.write("records.ndjson", format!("{RECORD}\n{RAW}\n"));
    let strict = ["template", "eval", template, "--record", "records.ndjson", "--missing-key", "error"];
    let output = workspace.run(&strict).expect_code(1);
    assert_eq!(output.stdout, "create v\n");
    assert!(output.stderr.contains("TEMPLATE:1:21") && output.stderr.contains("line 2: "), "{}", output.stderr);
    let json: Value = serde_json::from_str(&workspace.run(&[&strict[..], &["--json"]].concat()).stdout).unwrap();
    assert_eq!(json["result"]["outputs"][0], json!({ "line": 1, "output": "create v" }));
    assert_eq!(json["summary"], json!({ "records": 2, "failed": 1 }));
    workspace.run(&["template", "eval", "{{ .Key", "--record", "records.ndjson"]).expect_code(2);
    workspace.run(&["template", "eval", "x", "--record", "missing"]).expect_code(3);
    assert_eq!(workspace.run(&["template", "eval", "{{ add 1 2 }}"]).expect_code(0).stdout, "3\n");
}

#[test]
fn functions_of_templates_are_listed_and_described() {
    let workspace = Workspace::new();
    let json = |name: &[&str], code: i32| -> Value {
        let output = workspace.run(&[&["template", "functions", "--json"][..], name].concat()).expect_code(code);
        serde_json::from_str(&output.stdout).unwrap()
    };
    let all = json(&[], 0);
    let listed = all["result"]["functions"].as_array().unwrap();
    assert!(listed.len() > 150, "{}", listed.len());
    let one = json(&["must_date_modify"], 0);
    assert_eq!(one["result"]["functions"][0]["name"], "mustDateModify");

    // The result is the output of the example with the record that stands beside it.
    let record = one["result"]["record"].to_string();
    for function in listed.iter().filter(|it| it["deterministic"] == true && it["error"].is_null()).take(5) {
        let example = function["example"].as_str().unwrap();
        let output = filter(&workspace, &["template", "eval", example, "--record", "-"], &record).expect_code(0);
        assert_eq!(output.stdout.trim_end(), function["result"].as_str().unwrap(), "{example}");
    }
    let text = workspace.run(&["template", "functions", "replace"]).expect_code(0).stdout;
    assert!(text.contains("replace old new text") && text.contains("Ada_Lovelace"), "{text}");

    let unknown = json(&["replce"], 2);
    assert_eq!(unknown["error"]["code"], "template.unknown_function");
    assert!(unknown["error"]["suggestion"].as_str().unwrap().contains("`replace`"), "{unknown}");
    let refused = workspace.run(&["template", "functions", "env"]).expect_code(2);
    assert!(refused.stderr.contains("do not read the environment"), "{}", refused.stderr);
}

#[test]
fn templates_are_checked() {
    let workspace = Workspace::new();
    let text =
        workspace.run(&["template", "check", "{{ .Metadata.a }}{{ index .Payload.After \"b c\" }}"]).expect_code(0);
    assert!(text.stdout.contains("  .Metadata.a\n  .Payload.After[\"b c\"]\n"), "{}", text.stdout);
    let wrong = workspace.run(&["template", "check", "{{ .Metadata.a | uper }}"]).expect_code(2);
    assert!(wrong.stderr.contains("TEMPLATE:1:18") && wrong.stderr.contains("`upper`"), "{}", wrong.stderr);
    let decided = |condition: &str| {
        let output = workspace.run(&["template", "check", "--condition", condition, "--json"]).expect_code(0);
        serde_json::from_str::<Value>(&output.stdout).unwrap()["result"]["decided"].clone()
    };
    assert_eq!(decided("{{ eq .Metadata.a \"b\" }}"), "native");
    assert_eq!(decided("{{ true }}"), "constant");
    assert_eq!(decided("{{ gt (len (upper .Metadata.a)) 2 }}"), "template");
    workspace.run(&["template", "check", "--condition", "maybe"]).expect_code(2);
    workspace.run(&["template", "check", "--condition", " "]).expect_code(2);
}

#[test]
fn lint_is_strict_if_asked() {
    let workspace = Workspace::new();
    workspace.write("in.txt", "");
    let processors = "      - { id: f, plugin: filter, workers: 1, unknown: 1 }\n";
    workspace.write("pipelines/p.yaml", file_to_file("p", processors));
    let lax = workspace.run(&["pipelines", "lint"]).expect_code(0);
    assert!(lax.stderr.contains("config.field_unknown"), "{}", lax.stderr);
    let strict = workspace.run(&["pipelines", "lint", "--strict", "--json"]).expect_code(2);
    let json: Value = serde_json::from_str(&strict.stdout).unwrap();
    assert_eq!(
        (&json["command"], &json["ok"], &json["error"]),
        (&json!("pipelines.lint"), &json!(false), &Value::Null)
    );
    assert_eq!(json["summary"]["errors"], 0);
    assert!(json["summary"]["warnings"].as_u64().unwrap() >= 1);
    workspace.write("pipelines/p.yaml", file_to_file("p", ""));
    workspace.run(&["pipelines", "lint", "--strict"]).expect_code(0);
}

/// A pipeline on whose records everything happens.
fn eventful(workspace: &Workspace) {
    workspace
        .write("in.txt", "{\"n\":1,\"l\":[1,2]}\nbad\n{\"n\":2,\"l\":[3]}\n{\"n\":3,\"l\":[]}\n{\"n\":4,\"l\":[4]}\n");
    let processors = r#"      - { id: decode, plugin: json.decode, settings: { field: .Payload.After } }
      - { id: two, plugin: filter, condition: '{{ eq .Payload.After.n 2 }}' }
      - { id: items, plugin: split, settings: { field: .Payload.After.l } }
      - { id: mark, plugin: field.set, workers: 2, settings: { field: .Metadata.secret, value: 'x${TOKEN}' } }
      - { id: four, plugin: error, condition: '{{ eq .Payload.After.n 4 }}', settings: { message: 'four ${TOKEN}' } }
"#;
    workspace.write("pipelines/p.yaml", file_to_file("p", processors));
}

#[test]
fn a_dry_run_shows_every_step_and_leaves_nothing() {
    let mut workspace = Workspace::new();
    workspace.env("TOKEN", "hunter2hunter2");
    eventful(&workspace);
    let args = ["pipelines", "dry-run", "p", "--records", "10", "--preview.pipeline-arch-v2"];
    let text = workspace.run(&args).expect_code(1).stdout;
    for part in [
        "record 1 of 5, from in",
        "-    \"after\": \"{\\\"n\\\":1,\\\"l\\\":[1,2]}\"",
        "+      \"n\": 1",
        "two (filter): not applied, the condition is false",
        "items (split): 2 records",
        "decode (json.decode): failed, ",
        "two (filter): dropped",
        "items (split): dropped",
        "four (error): failed, four *** (",
        "out (file): would be written",
        "5 read, 2 delivered, 2 dropped, 2 failed",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    assert!(!text.contains('\x1b'), "no colours in a pipe");
    for left in ["out.ndjson", "anabranch.db", ".out.ndjson.anabranch"] {
        assert!(!workspace.path(left).exists(), "{left} was made");
    }
    let output = workspace.run(&[&args[..], &["--json"]].concat()).expect_code(1);
    let json: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(json["summary"], json!({ "read": 5, "delivered": 2, "dropped": 2, "failed": 2, "doubts": 0 }));
    let events = |record: usize| -> Vec<(String, String)> {
        let events = json["result"]["pipelines"][0]["records"][record]["events"].as_array().unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        events.iter().map(|event| (text(&event["node"]), text(&event["outcome"]))).collect()
    };
    let expect = |record: usize, expected: &[(&str, &str)]| {
        let found = events(record);
        let found: Vec<(&str, &str)> = found.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        assert_eq!(found, expected, "record {record}");
    };
    expect(
        0,
        &[
            ("decode", "kept"),
            ("two", "not-applied"),
            ("items", "split"),
            ("mark", "kept"),
            ("mark", "kept"),
            ("four", "not-applied"),
            ("out", "delivered"),
            ("out", "delivered"),
        ],
    );
    expect(1, &[("decode", "failed")]);
    expect(2, &[("decode", "kept"), ("two", "dropped")]);
    expect(3, &[("decode", "kept"), ("two", "not-applied"), ("items", "dropped")]);
    expect(4, &[("decode", "kept"), ("two", "not-applied"), ("items", "split"), ("mark", "kept"), ("four", "failed")]);
}

#[test]
fn a_dry_run_ends_after_its_records_or_its_time() {
    let workspace = Workspace::new();
    let generator = |rate: &str| {
        file_to_file("p", "").replace(
            "plugin: file\n        settings:\n          path: in.txt",
            &format!("plugin: generator\n        settings:\n          format.type: raw\n          format.options.a: int\n          rate: {rate}"),
        )
    };
    workspace.write("pipelines/p.yaml", generator("0"));
    let run = |args: &[&str]| {
        let output = workspace.run(&[&["pipelines", "dry-run", "p", "--json"], args].concat()).expect_code(0);
        serde_json::from_str::<Value>(&output.stdout).unwrap()
    };
    assert_eq!(run(&["--records", "3"])["summary"]["delivered"], 3);
    workspace.write("pipelines/p.yaml", generator("0.01"));
    let late = run(&["--timeout", "200ms"]);
    assert_eq!(late["result"]["pipelines"][0]["timedOut"], true);
    workspace.run(&["pipelines", "dry-run", "q"]).expect_code(2);
    workspace.run(&["pipelines", "dry-run", "p", "--records", "0"]).expect_code(2);
}

/// A trial never moves what the service has stored.
#[test]
fn a_dry_run_beside_a_stored_position_changes_nothing() {
    let workspace = Workspace::new();
    workspace.write("in.txt", "a\nb\n");
    workspace.write("pipelines/p.yaml", file_to_file("p", ""));
    workspace.once();
    assert_eq!(workspace.lines("out.ndjson").len(), 2);
    workspace.write("in.txt", "a\nb\nc\n");
    let output = workspace.run(&["pipelines", "dry-run", "pipelines/p.yaml"]).expect_code(0);
    assert!(output.stdout.contains("3 read, 3 delivered"), "{}", output.stdout);
    workspace.once();
    assert_eq!(workspace.lines("out.ndjson").iter().map(|line| raw_after(line)).collect::<Vec<_>>(), ["a", "b", "c"]);
}

/// The line that a destination would write is shown, and a template that fails for a record fails there as it would in a
/// run.
#[test]
fn a_dry_run_shows_what_would_be_written() {
    let workspace = Workspace::new();
    workspace.write("in.txt", "a\nb\n");
    let format = |template: &str| {
        let path = "          path: out.ndjson\n";
        let settings =
            format!("{path}          sdk.record.format: template\n          sdk.record.format.options: '{template}'\n");
        workspace.write("pipelines/p.yaml", file_to_file("p", "").replace(path, &settings));
    };
    format(r#"got {{ printf "%s" .Payload.After }}!"#);
    let text = workspace.run(&["pipelines", "dry-run"]).expect_code(0).stdout;
    assert!(text.contains("would be written as\n    got a!\n"), "{text}");
    let json = workspace.run(&["pipelines", "dry-run", "--json"]).expect_code(0).stdout;
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["result"]["pipelines"][0]["records"][1]["events"][0]["written"], "got b!");

    // A module that is too short has no such section.
    format(r#"{{ substr 5 9 (printf "%s" .Payload.After) }}"#);
    let output = workspace.run(&["pipelines", "dry-run"]).expect_code(1);
    assert!(output.stdout.contains("2 read, 0 delivered, 0 dropped, 2 failed"), "{}", output.both());
    assert!(output.stdout.contains("out (file): failed, "), "{}", output.both());
    assert!(!workspace.path("out.ndjson").exists());
    assert!(workspace.run(&["run", "--once"]).expect_code(1).both().contains("substr"), "as a run says it");
}
