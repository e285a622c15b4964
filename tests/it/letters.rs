//! Dead letters in the state store: kept, shown, edited, replayed and purged.

mod asked;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::process::{Output, Process, Workspace, numbered_lines, raw_after};

/// Lines whose number ends in 7 fail at `fail`, after `touch`.
fn pipeline(failing: &str, queue: &str) -> String {
    format!(
        r#"
version: "2.2"
pipelines:
  - id: orders
    connectors:
      - {{ id: in, type: source, plugin: file, settings: {{ path: in.txt }} }}
      - {{ id: out, type: destination, plugin: file, settings: {{ path: out.ndjson }} }}
    processors:
      - {{ id: touch, plugin: field.set, settings: {{ field: .Metadata.touched, value: "yes" }} }}
      - id: fail
        plugin: error
        condition: '{{{{ hasSuffix "{failing}" (printf "%s" .Payload.After) }}}}'
        settings: {{ message: "bad {{{{ printf \"%s\" .Payload.After }}}}" }}
      - {{ id: seal, plugin: field.set, settings: {{ field: .Metadata.sealed, value: "yes" }} }}
    dead-letter-queue: {{ plugin: store, window-size: 0{queue} }}
"#
    )
}

/// A workspace after a run over so many lines.
fn after_run(lines: usize, queue: &str) -> Workspace {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(lines));
    workspace.write("pipelines/p.yaml", pipeline("7", queue));
    workspace.once();
    workspace
}

/// The cause is gone.
fn mend(workspace: &Workspace) {
    workspace.write("pipelines/p.yaml", pipeline("nothing", ""));
}

#[track_caller]
fn json(output: &Output) -> Value {
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", output.both()))
}

#[track_caller]
pub fn dlq(workspace: &Workspace, arguments: &[&str], code: i32) -> Value {
    let all: Vec<&str> = ["dlq"].iter().chain(arguments).chain(&["--json"]).copied().collect();
    let mut report = json(&workspace.run(&all).expect_code(code));
    report["result"]["summary"] = report["summary"].take();
    report["result"]["error"] = report["error"].take();
    report["result"].take()
}

/// How often each line arrived.
fn arrived(workspace: &Workspace) -> BTreeMap<String, usize> {
    let mut arrived = BTreeMap::new();
    for line in workspace.lines("out.ndjson") {
        *arrived.entry(raw_after(&line)).or_default() += 1;
    }
    arrived
}

fn numbers(page: &Value) -> Vec<u64> {
    page["letters"].as_array().unwrap().iter().map(|letter| letter["number"].as_u64().unwrap()).collect()
}

#[test]
fn what_failed_is_kept_as_it_was_and_arrives_once_when_the_cause_is_gone() {
    let workspace = after_run(100, "");
    assert_eq!(arrived(&workspace).len(), 90);
    let page = dlq(&workspace, &["list", "orders"], 0);
    assert_eq!((&page["count"], numbers(&page)), (&10.into(), (1..=10).rev().collect()));
    let newest = &page["letters"][0];
    assert_eq!(
        (&newest["node"], &newest["connector"], &newest["record"]),
        (&"fail".into(), &"in".into(), &"line 97".into())
    );
    assert_eq!((&newest["attempts"], &newest["error"]["message"]), (&1.into(), &"bad line 97".into()));

    let letter = dlq(&workspace, &["show", "orders", "1"], 0);
    let record = &letter["record"];
    assert_eq!((&record["payload"]["after"], &record["operation"]), (&"bGluZSA3".into(), &"create".into()));
    assert_eq!(record["metadata"]["touched"], "yes", "as it entered the step: {letter}");
    assert!(record["metadata"].get("sealed").is_none());
    let text = workspace.run(&["dlq", "show", "orders", "1"]).expect_code(0).stdout;
    assert!(text.contains("bad line 7") && text.contains("at fail"), "{text}");
    assert!(text.contains("after as text:\n  line 7\n") && text.contains("anabranch dlq replay orders 1"), "{text}");

    // As long as the cause is there, it fails again and stays.
    let outcome = dlq(&workspace, &["replay", "orders", "1"], 1);
    assert_eq!((&outcome["replayed"], &outcome["failedAgain"]), (&1.into(), &1.into()));
    let letter = dlq(&workspace, &["show", "orders", "1"], 0);
    assert_eq!((&letter["attempts"], &letter["record"]), (&2.into(), record));

    mend(&workspace);
    let outcome = dlq(&workspace, &["replay", "orders", "2", "1"], 0);
    assert_eq!((&outcome["delivered"], &outcome["remaining"]), (&2.into(), &serde_json::json!([])));
    let outcome = dlq(&workspace, &["replay", "orders", "--all"], 0);
    assert_eq!(outcome["delivered"], 8);
    assert_eq!(dlq(&workspace, &["list", "orders"], 0)["count"], 0);
    let arrived = arrived(&workspace);
    assert_eq!(arrived.len(), 100);
    assert!(arrived.values().all(|times| *times == 1), "{arrived:?}");
    let replayed: Value = serde_json::from_str(workspace.lines("out.ndjson").last().unwrap()).unwrap();
    assert_eq!((&replayed["metadata"]["touched"], &replayed["metadata"]["sealed"]), (&"yes".into(), &"yes".into()));

    // No position was touched: there is nothing to read again, and nothing was left out.
    workspace.once();
    assert_eq!(workspace.lines("out.ndjson").len(), 100);
    let gone = dlq(&workspace, &["replay", "orders", "1"], 2);
    assert_eq!(gone["error"]["code"], "dead_letter.not_found");
}

#[test]
fn letters_are_found_by_step_time_and_content() {
    let workspace = after_run(100, "");
    let of = |arguments: &[&str]| {
        let all: Vec<&str> = ["list", "orders"].iter().chain(arguments).copied().collect();
        numbers(&dlq(&workspace, &all, 0))
    };
    assert_eq!(of(&["--node", "fail", "--limit", "2"]), [10, 9]);
    assert_eq!(of(&["--node", "touch"]), [0; 0]);
    assert_eq!(of(&["--since", "1h"]).len(), 10);
    assert_eq!(of(&["--since", "2100-01-01T00:00:00Z"]), [0; 0]);
    assert_eq!(of(&["--where", r#"{{ hasPrefix "line 5" (printf "%s" .Payload.After) }}"#]), [6]);
    let refused = dlq(&workspace, &["list", "orders", "--where", "{{ eq"], 2);
    assert_eq!(refused["error"]["code"], "dlq.invalid_condition");
    assert_eq!(dlq(&workspace, &["list", "order"], 2)["error"]["suggestion"], "did you mean orders?");

    let asked = dlq(&workspace, &["purge", "orders", "--all"], 4);
    assert_eq!((&asked["summary"]["count"], &asked["summary"]["done"]), (&10.into(), &false.into()));
    assert_eq!(dlq(&workspace, &["purge", "orders", "3", "4", "99"], 0)["summary"]["purged"], 2);
    assert_eq!(dlq(&workspace, &["purge", "orders", "99", "3"], 2)["error"]["code"], "dead_letter.not_found");
    assert_eq!(dlq(&workspace, &["purge", "orders", "--older-than", "1h", "--yes"], 0)["summary"]["purged"], 0);
    assert_eq!(dlq(&workspace, &["purge", "orders", "--all", "--yes"], 0)["summary"]["purged"], 8);
    assert_eq!(dlq(&workspace, &["list", "orders"], 0)["count"], 0);
}

#[test]
fn an_edited_record_takes_the_place_of_the_one_that_failed() {
    let workspace = after_run(20, "");
    let letter = dlq(&workspace, &["show", "orders", "1"], 0);
    let edited = letter["record"].to_string().replace("bGluZSA3", "bWVuZGVk");
    workspace.write("edited.json", &edited);
    dlq(&workspace, &["replay", "orders", "1", "--edit", "edited.json"], 0);
    assert_eq!(arrived(&workspace).get("mended"), Some(&1));
    assert_eq!(numbers(&dlq(&workspace, &["list", "orders"], 0)), [2]);

    // One that fails again is what the letter holds from then on.
    workspace.write("edited.json", edited.replace("bWVuZGVk", "NDc3"));
    dlq(&workspace, &["replay", "orders", "2", "--edit", "edited.json"], 1);
    let letter = dlq(&workspace, &["show", "orders", "2"], 0);
    assert_eq!((&letter["record"]["payload"]["after"], &letter["attempts"]), (&"NDc3".into(), &2.into()));

    workspace.write("edited.json", "{\n  \"operation\": \"creat\"\n}");
    let refused = dlq(&workspace, &["replay", "orders", "2", "--edit", "edited.json"], 2);
    assert_eq!(refused["error"]["code"], "dead_letter.invalid_record");
    assert_eq!(refused["error"]["oldCode"], "dlq.invalid_record");
    assert!(refused["error"]["message"].as_str().unwrap().starts_with("edited.json:2:"), "{refused}");
    let two = dlq(&workspace, &["replay", "orders", "1", "2", "--edit", "edited.json"], 2);
    assert_eq!(two["error"]["code"], "dead_letter.not_one");
}

#[test]
fn from_the_start_means_through_all_steps_and_a_step_that_is_gone_says_so() {
    let workspace = after_run(20, "");
    let text = pipeline("nothing", "")
        .replace("id: fail", "id: renamed")
        .replace("touched, value: \"yes\"", "touched, value: again");
    workspace.write("pipelines/p.yaml", text);
    let refused = dlq(&workspace, &["replay", "orders", "--all"], 2);
    assert_eq!(refused["error"]["code"], "dead_letter.no_step");
    assert!(refused["error"]["suggestion"].as_str().unwrap().contains("--from start"), "{refused}");
    assert_eq!(dlq(&workspace, &["list", "orders"], 0)["count"], 2);
    assert_eq!(dlq(&workspace, &["replay", "orders", "--all", "--from", "start"], 0)["delivered"], 2);
    let replayed: Value = serde_json::from_str(workspace.lines("out.ndjson").last().unwrap()).unwrap();
    assert_eq!((&replayed["metadata"]["touched"], &replayed["metadata"]["sealed"]), (&"again".into(), &"yes".into()));
}

/// One command shows the letter and the next one in the pipe replays it: both take the store, one after the other.
#[test]
fn a_letter_is_edited_in_a_pipe() {
    let workspace = after_run(20, "");
    mend(&workspace);
    let piped = |edit: &str| {
        let program = env!("CARGO_BIN_EXE_anabranch");
        let line = format!("{program} dlq show orders 1 --json | {edit} | {program} dlq replay orders 1 --edit -");
        let plain = workspace.command(["version"]);
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &line]).current_dir(workspace.root()).env_clear();
        shell.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Process::spawn(&mut shell).finish()
    };
    let wrong = piped("sed s/create/creat/").expect_code(2).stderr;
    assert!(wrong.contains("standard input:1:"), "{wrong}");
    let mended = piped("sed s/bGluZSA3/bWVuZGVk/").expect_code(0);
    assert!(mended.stdout.contains("1 delivered"), "{}", mended.both());
    assert_eq!(arrived(&workspace).get("mended"), Some(&1));

    // Raw data may be given as text.
    let letter = dlq(&workspace, &["show", "orders", "2"], 0);
    let text = letter["record"].to_string().replace("\"bGluZSAxNw==\"", r#"{ "$text": "as text" }"#);
    workspace.write("edited.json", text);
    dlq(&workspace, &["replay", "orders", "2", "--edit", "edited.json"], 0);
    assert_eq!(arrived(&workspace).get("as text"), Some(&1));
}

#[test]
fn a_record_enters_where_the_user_says_also_before_the_step_where_it_failed() {
    let workspace = after_run(20, "");
    // A step that makes good what the next one refuses, put before it.
    let inserted = "      - { id: clean, plugin: field.set, settings: { field: .Payload.After, value: clean } }\n      - id: fail\n";
    workspace.write("pipelines/p.yaml", pipeline("7", "").replace("      - id: fail\n", inserted));
    assert_eq!(
        dlq(&workspace, &["replay", "orders", "1"], 1)["failedAgain"],
        1,
        "behind the new step it fails as before"
    );
    let unknown = dlq(&workspace, &["replay", "orders", "1", "--from", "clear"], 2);
    assert_eq!(unknown["error"]["code"], "dead_letter.no_step");
    assert!(unknown["error"]["message"].as_str().unwrap().contains("clear"), "{unknown}");
    assert_eq!(dlq(&workspace, &["replay", "orders", "1", "--from", "clean"], 0)["delivered"], 1);
    assert_eq!(dlq(&workspace, &["replay", "orders", "2", "--from", "step:seal"], 0)["delivered"], 1);
    let arrived = arrived(&workspace);
    assert_eq!((arrived.get("clean"), arrived.get("line 17")), (Some(&1), Some(&1)));
}

#[test]
fn a_processor_of_a_connector_is_named_by_its_own_id_too() {
    let workspace = after_run(40, "");
    let with = |connectors: &[(&str, &str)]| {
        let mut text = pipeline("7", "");
        for (connector, path) in connectors {
            let own = "{ id: flat, plugin: field.set, settings: { field: .Payload.After, value: own } }";
            let settings = format!("settings: {{ path: {path} }}");
            assert!(text.contains(&settings), "{connector}");
            text = text.replace(&settings, &format!("{settings}, processors: [{own}]"));
        }
        workspace.write("pipelines/p.yaml", text);
    };
    with(&[("out", "out.ndjson")]);
    assert_eq!(dlq(&workspace, &["replay", "orders", "1", "--from", "flat"], 0)["delivered"], 1);
    assert_eq!(dlq(&workspace, &["replay", "orders", "2", "--from", "out:flat"], 0)["delivered"], 1);
    assert_eq!(arrived(&workspace).get("own"), Some(&2));
    with(&[("out", "out.ndjson"), ("in", "in.txt")]);
    let several = dlq(&workspace, &["replay", "orders", "3", "--from", "flat"], 2);
    let message = several["error"]["message"].as_str().unwrap();
    assert!(message.contains("in:flat") && message.contains("out:flat"), "{several}");
    // Letters that failed before the named step.
    let text = workspace.run(&["dlq", "replay", "orders", "3", "--from", "fail"]).expect_code(1).stdout;
    assert!(text.contains("--from start"), "{text}");
}

#[test]
fn a_step_that_is_never_applied_is_passed_by() {
    let workspace = after_run(20, "");
    let never = pipeline("7", "").replace(r#"'{{ hasSuffix "7" (printf "%s" .Payload.After) }}'"#, "'{{ false }}'");
    assert!(never.contains("'{{ false }}'"), "{never}");
    workspace.write("pipelines/p.yaml", never);
    let done = dlq(&workspace, &["replay", "orders", "--all"], 0);
    assert_eq!((&done["delivered"], &done["failedAgain"]), (&2.into(), &0.into()), "{done}");
    let replayed: Value = serde_json::from_str(workspace.lines("out.ndjson").last().unwrap()).unwrap();
    assert_eq!(replayed["metadata"]["sealed"], "yes", "it goes on behind the step");
    assert_eq!(arrived(&workspace).len(), 20);
}

#[test]
fn a_full_queue_stops_the_pipeline_and_loses_no_letter() {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(200));
    workspace.write("pipelines/p.yaml", pipeline("7", ", settings: { max-count: 5 }"));
    let log = workspace.run(&["run", "--once"]).expect_code(1).both();
    for word in [
        "dead-letter queue of pipeline orders is full",
        "`max-count` is 5",
        "5 letters",
        "bad line 57",
        "dlq list orders",
    ] {
        assert!(log.contains(word), "{word}: {log}");
    }
    let page = dlq(&workspace, &["list", "orders"], 0);
    assert_eq!((numbers(&page), &page["evicted"]), (vec![5, 4, 3, 2, 1], &0.into()));
    let described = workspace.run(&["pipelines", "describe", "orders"]).expect_code(0).stdout;
    assert!(described.contains("degraded") && described.contains("when the queue is full"), "{described}");
    assert!(described.lines().any(|line| line.split_whitespace().take(2).eq(["kept", "5,"])), "{described}");

    // It stays so, and loses nothing, until there is room.
    workspace.run(&["run", "--once"]).expect_code(1);
    assert_eq!(numbers(&dlq(&workspace, &["list", "orders"], 0)), [5, 4, 3, 2, 1]);
    dlq(&workspace, &["purge", "orders", "--all", "--yes"], 0);
    workspace.write("pipelines/p.yaml", pipeline("7", ""));
    workspace.once();
    let page = dlq(&workspace, &["list", "orders", "--limit", "100"], 0);
    assert_eq!((&page["count"], &page["evicted"]), (&15.into(), &0.into()));
    let lines = arrived(&workspace);
    assert_eq!(lines.len(), 180);
}

#[test]
fn a_queue_that_is_not_the_store_says_where_letters_go() {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(30));
    let to_file = pipeline("7", "").replace("plugin: store,", "plugin: file, settings: { path: dead.ndjson },");
    workspace.write("pipelines/p.yaml", to_file);
    workspace.once();
    assert_eq!(workspace.lines("dead.ndjson").len(), 3);
    let text = workspace.run(&["dlq", "list", "orders"]).expect_code(0).stdout;
    assert!(text.contains("dead.ndjson") && !text.contains("has no dead letters"), "{text}");
    let page = dlq(&workspace, &["list", "orders"], 0);
    assert_eq!((&page["queue"]["plugin"], &page["queue"]["path"]), (&"file".into(), &"dead.ndjson".into()));
    workspace.write("pipelines/p.yaml", pipeline("7", "").replace("plugin: store,", ""));
    workspace.once();
    let text = workspace.run(&["dlq", "list", "orders"]).expect_code(0).stdout;
    assert!(text.contains("the log receives its failed records"), "{text}");
}

#[test]
fn beyond_an_evicting_bound_the_oldest_letters_go_and_that_is_no_success() {
    let after_run = |lines: usize, queue: &str, code: i32| {
        let workspace = Workspace::new();
        workspace.write("in.txt", numbered_lines(lines));
        workspace.write("pipelines/p.yaml", pipeline("7", queue));
        workspace.run(&["run", "--once"]).expect_code(code);
        workspace
    };
    let workspace = after_run(200, ", settings: { max-count: 5, when-full: drop-oldest }", 6);
    let page = dlq(&workspace, &["list", "orders"], 0);
    assert_eq!(numbers(&page), [20, 19, 18, 17, 16]);
    assert_eq!((&page["count"], &page["evicted"]), (&5.into(), &15.into()));
    let described = workspace.run(&["pipelines", "describe", "orders"]).expect_code(0).stdout;
    assert!(described.contains("15 removed by the bounds of the queue"), "{described}");
    let doctor = workspace.run(&["doctor", "--check", "dead_letters"]).expect_code(0).stdout;
    assert!(doctor.contains("orders: 15") && doctor.contains("lost"), "{doctor}");

    // A bound that a single letter exceeds keeps the newest.
    let workspace = after_run(50, ", settings: { max-bytes: 1, when-full: drop-oldest }", 6);
    assert_eq!(numbers(&dlq(&workspace, &["list", "orders"], 0)), [5]);

    // Expired letters are deleted when the pipeline starts.
    let workspace = after_run(50, "", 0);
    workspace.write("pipelines/p.yaml", pipeline("7", ", settings: { max-age: 1ns }"));
    let log = workspace.run(&["run", "--once"]).expect_code(6).both();
    assert!(
        log.contains("the bounds of the dead-letter queue removed dead letters") && log.contains("evicted=5"),
        "{log}"
    );
    let page = dlq(&workspace, &["list", "orders"], 0);
    assert_eq!((&page["count"], &page["evicted"]), (&0.into(), &5.into()));
}

#[test]
fn only_what_failed_is_replayed_of_copies_and_pieces() {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(10));
    let pipeline = |failing: &str| {
        format!(
            r#"
version: "2.2"
pipelines:
  - id: orders
    connectors:
      - {{ id: in, type: source, plugin: file, settings: {{ path: in.txt }} }}
      - {{ id: plain, type: destination, plugin: file, settings: {{ path: plain.ndjson }} }}
      - id: picky
        type: destination
        plugin: file
        settings: {{ path: picky.ndjson }}
        processors:
          - {{ id: twice, plugin: clone, settings: {{ count: 1 }} }}
          - id: fail
            plugin: error
            condition: '{{{{ and (hasSuffix "{failing}" (printf "%s" .Payload.After)) (eq (index .Metadata "clone.index") "1") }}}}'
            settings: {{ message: bad }}
    dead-letter-queue: {{ plugin: store, window-size: 0 }}
"#
        )
    };
    workspace.write("pipelines/p.yaml", pipeline("7"));
    workspace.once();
    assert_eq!((workspace.lines("plain.ndjson").len(), workspace.lines("picky.ndjson").len()), (10, 19));
    let letter = dlq(&workspace, &["show", "orders", "1", "--preview.pipeline-arch-v2"], 0);
    assert_eq!((&letter["node"], &letter["record"]["metadata"]["clone.index"]), (&"picky:fail".into(), &"1".into()));
    workspace.write("pipelines/p.yaml", pipeline("nothing"));
    dlq(&workspace, &["replay", "orders", "1", "--preview.pipeline-arch-v2"], 0);
    let picky: Vec<Value> =
        workspace.lines("picky.ndjson").iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of_seven: Vec<&Value> = picky
        .iter()
        .filter(|record| record["payload"]["after"] == "bGluZSA3")
        .map(|record| &record["metadata"]["clone.index"])
        .collect();
    assert_eq!((workspace.lines("plain.ndjson").len(), of_seven), (10, vec![&Value::from("0"), &Value::from("1")]));
}

#[test]
fn a_replay_that_multiplies_keeps_each_piece_that_fails() {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(10));
    let pipeline = |early: &str, late: &str| {
        format!(
            r#"
version: "2.2"
pipelines:
  - id: orders
    connectors:
      - {{ id: in, type: source, plugin: file, settings: {{ path: in.txt }} }}
      - {{ id: out, type: destination, plugin: file, settings: {{ path: out.ndjson }} }}
    processors:
      - {{ id: early, plugin: error, condition: '{{{{ hasSuffix "{early}" (printf "%s" .Payload.After) }}}}', settings: {{ message: early }} }}
      - {{ id: copies, plugin: clone, settings: {{ count: 2 }} }}
      - {{ id: late, plugin: error, condition: '{{{{ and (ne (index .Metadata "clone.index") "0") (hasSuffix "{late}" (printf "%s" .Payload.After)) }}}}', settings: {{ message: late }} }}
    dead-letter-queue: {{ plugin: store, window-size: 0 }}
"#
        )
    };
    workspace.write("pipelines/p.yaml", pipeline("7", "nothing"));
    workspace.once();
    assert_eq!(workspace.lines("out.ndjson").len(), 27);
    // Two of the three copies fail later on: the letter is the first of them, the other is a new one.
    workspace.write("pipelines/p.yaml", pipeline("nothing", "7"));
    let outcome = dlq(&workspace, &["replay", "orders", "--all", "--preview.pipeline-arch-v2"], 1);
    assert_eq!((&outcome["replayed"], &outcome["failedAgain"]), (&1.into(), &1.into()));
    assert_eq!(workspace.lines("out.ndjson").len(), 28);
    let page = dlq(&workspace, &["list", "orders"], 0);
    assert_eq!(numbers(&page), [2, 1]);
    assert!(
        page["letters"].as_array().unwrap().iter().all(|letter| letter["node"] == "late" && letter["attempts"] == 2)
    );
    workspace.write("pipelines/p.yaml", pipeline("nothing", "nothing"));
    let outcome = dlq(&workspace, &["replay", "orders", "--all", "--preview.pipeline-arch-v2"], 0);
    assert_eq!(outcome["delivered"], 2);
    assert_eq!(arrived(&workspace).get("line 7"), Some(&3));
    assert_eq!(dlq(&workspace, &["list", "orders"], 0)["count"], 0);
}

#[test]
fn a_destination_that_cannot_be_opened_leaves_the_letters_as_they_are() {
    let workspace = after_run(50, "");
    workspace.write("pipelines/p.yaml", pipeline("nothing", "").replace("out.ndjson", "nowhere/out.ndjson"));
    let outcome = dlq(&workspace, &["replay", "orders", "--all"], 1);
    assert_eq!(outcome["error"]["code"], "dead_letter.replay_stopped");
    assert!(outcome["error"]["message"].as_str().unwrap().contains("nowhere"), "{outcome}");
    assert_eq!(outcome["remaining"], serde_json::json!([1, 2, 3, 4, 5]));
    let page = dlq(&workspace, &["list", "orders"], 0);
    assert!(page["letters"].as_array().unwrap().iter().all(|letter| letter["attempts"] == 1), "{page}");
}

#[test]
fn the_queue_is_no_destination_and_says_when_it_would_keep_nothing() {
    let workspace = Workspace::new();
    workspace.write("in.txt", "x\n");
    workspace.write("pipelines/p.yaml", pipeline("7", "").replace("plugin: store, window-size: 0", "plugin: store"));
    let text = workspace.run(&["pipelines", "validate"]).expect_code(0).both();
    assert!(text.contains("plan.no_letter_kept") && text.contains("window-size: 0"), "{text}");
    let as_destination = crate::process::file_to_file("p", "")
        .replace("plugin: file\n        settings:\n          path: out.ndjson", "plugin: store");
    workspace.write("pipelines/p.yaml", as_destination);
    let text = workspace.run(&["pipelines", "validate"]).expect_code(2).both();
    assert!(text.contains("cannot be used as a destination, only as a dead-letter queue"), "{text}");
}

/// A replay that is killed again and again loses no letter and no record.
#[test]
fn a_replay_survives_kills() {
    let workspace = after_run(2_000, "");
    workspace.write(
        "pipelines/p.yaml",
        // A few at once, and the others so slowly that none of these comes to its end.
        pipeline("nothing", "").replace(
            "path: out.ndjson }",
            "path: out.ndjson, sdk.batch.size: 5, sdk.rate.perSecond: 1, sdk.rate.burst: 20 }",
        ),
    );
    for _ in 0..4 {
        let before = workspace.lines("out.ndjson").len();
        let mut process = workspace.start(&["dlq", "replay", "orders", "--all"]);
        process.wait_until("some letters", || workspace.lines("out.ndjson").len() > before + 7);
        process.signal("KILL");
        assert_eq!(process.finish().code(), None, "it was hit");
    }
    mend(&workspace);
    let left = dlq(&workspace, &["list", "orders", "--limit", "1000"], 0);
    let left = numbers(&left).len();
    let outcome = dlq(&workspace, &["replay", "orders", "--all"], 0);
    assert_eq!(outcome["delivered"], left);
    assert_eq!(dlq(&workspace, &["list", "orders"], 0)["count"], 0);
    let arrived = arrived(&workspace);
    assert_eq!(arrived.len(), 2_000);
}

#[test]
#[cfg(feature = "postgres")]
fn letters_are_kept_in_postgresql_too() {
    let Some(database) = crate::servers::postgres::Database::create() else { return };
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(30));
    workspace.write("pipelines/p.yaml", pipeline("7", ", settings: { max-count: 2, when-full: drop-oldest }"));
    let url = format!("--db.postgres.connection-string={}", database.url());
    let there = ["--db.type=postgres", url.as_str()];
    let with = |arguments: &[&'static str]| -> Vec<&str> { arguments.iter().copied().chain(there).collect() };
    workspace.run(&with(&["run", "--once"])).expect_code(6);
    let page = dlq(&workspace, &with(&["list", "orders"]), 0);
    assert_eq!((numbers(&page), &page["evicted"]), (vec![3, 2], &1.into()));
    dlq(&workspace, &with(&["replay", "orders", "2"]), 1);
    assert_eq!(dlq(&workspace, &with(&["show", "orders", "2"]), 0)["attempts"], 2);
    mend(&workspace);
    assert_eq!(dlq(&workspace, &with(&["replay", "orders", "--all"]), 0)["delivered"], 2);
    assert_eq!(dlq(&workspace, &with(&["list", "orders"]), 0)["count"], 0);
    assert_eq!(arrived(&workspace).len(), 29);
}

/// A transaction takes many letters, and none looks at those that are there: the number of letters does not slow it down.
#[test]
#[cfg(feature = "postgres")]
fn letters_are_written_to_postgresql_many_at_a_time() {
    const LETTERS: usize = 20_000;
    let Some(database) = crate::servers::postgres::Database::create() else { return };
    let workspace = Workspace::new();
    workspace.write("in.txt", "line 7\n".repeat(LETTERS));
    workspace.write("pipelines/p.yaml", pipeline("7", ", settings: { max-count: 100000 }"));
    let url = format!("--db.postgres.connection-string={}", database.url());
    let begun = std::time::Instant::now();
    workspace.run(&["run", "--once", "--db.type=postgres", &url]).expect_code(0);
    println!("{:.0} letters a second, with the start", LETTERS as f64 / begun.elapsed().as_secs_f64());
    assert_eq!(database.query("SELECT count(*) FROM anabranch_kv_store_dlq"), [LETTERS.to_string()]);
    // Rows that one transaction wrote have its number.
    let transactions = database.query("SELECT count(DISTINCT xmin::text) FROM anabranch_kv_store_dlq");
    assert!(transactions[0].parse::<usize>().unwrap() <= LETTERS / 50, "{transactions:?} transactions");
}

/// The commands of the guide do what it says.
#[test]
fn the_guide_is_right() {
    let workspace = after_run(30, "");
    let guide = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/dead-letters.md")).unwrap();
    let shown = workspace.run(&["dlq", "show", "orders", "2", "--json"]).expect_code(0).stdout;
    workspace.write("record.json", shown);
    mend(&workspace);
    let mut commands = 0;
    for line in guide.lines().filter_map(|line| line.strip_prefix("$ anabranch ")) {
        let mut arguments: Vec<String> = Vec::new();
        // Text between single quotes is one word.
        for (i, part) in line.split('\'').enumerate() {
            match i % 2 {
                0 => arguments.extend(part.split_whitespace().map(str::to_owned)),
                _ => arguments.push(part.to_owned()),
            }
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        // All letters were replayed before.
        let is_gone = line == "dlq purge orders 3";
        workspace.run(&arguments).expect_code(if is_gone { 2 } else { 0 });
        commands += 1;
    }
    assert_eq!(commands, 11);
    assert_eq!(arrived(&workspace).len(), 30);
    for (name, default) in [("max-count", "10000"), ("max-bytes", "64MiB"), ("when-full", "stop"), ("max-age", "0s")] {
        assert!(guide.contains(&format!("| `{name}` | {default} |")), "{name}");
    }
    let shown = workspace.run(&["connectors", "describe", "store"]).both();
    assert!(shown.contains("10000") && shown.contains("64MiB"), "{shown}");
}

#[test]
fn a_running_service_replays_between_two_runs_of_the_pipeline() {
    use crate::api::{ask, get};
    use std::io::Write as _;

    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(20));
    workspace.write("pipelines/p.yaml", pipeline("7", ""));
    let mut process = workspace.start(&["run"]);
    let address = process.address();
    const LETTERS: &str = "/v1/pipelines/orders/dead-letters";
    process.wait_until("two letters", || get(address, LETTERS).json()["count"] == 2);
    let page = get(address, &format!("{LETTERS}?limit=1&where=%7B%7B%20true%20%7D%7D")).json();
    assert_eq!((numbers(&page), &page["letters"][0]["record"]), (vec![2], &"line 17".into()));
    assert_eq!(numbers(&get(address, &format!("{LETTERS}?before=2&node=fail")).json()), [1]);
    let letter = get(address, &format!("{LETTERS}/1")).json();
    assert_eq!(letter["record"]["payload"]["after"], "bGluZSA3");
    for (path, status) in [
        ("/v1/pipelines/nobody/dead-letters", 404),
        ("/v1/pipelines/orders/dead-letters/9", 404),
        ("/v1/pipelines/orders/dead-letters/x", 400),
        ("/v1/pipelines/orders/dead-letters?where=%7B%7B", 400),
    ] {
        assert_eq!(get(address, path).status, status, "{path}");
    }
    let post = |path: &str, body: &Value| ask(address, "POST", &format!("{LETTERS}/{path}"), "", &body.to_string());
    for (body, status) in [
        (serde_json::json!({}), 400),
        (serde_json::json!({ "all": true, "numbers": [1] }), 400),
        (serde_json::json!({ "all": true, "record": letter["record"] }), 400),
        (serde_json::json!({ "numbers": [1], "record": { "operation": "creat" } }), 400),
        (serde_json::json!({ "numbers": [9] }), 404),
    ] {
        assert_eq!(post("replay", &body).status, status, "{body}");
    }

    // It still fails, and the pipeline goes on after.
    let outcome = post("replay", &serde_json::json!({ "all": true }));
    assert_eq!((outcome.status, &outcome.json()["failedAgain"]), (200, &2.into()), "{}", outcome.body);
    let mut file = std::fs::OpenOptions::new().append(true).open(workspace.path("in.txt")).unwrap();
    file.write_all(b"one more\n").unwrap();
    process.wait_until("the line", || arrived(&workspace).contains_key("one more"));

    // Mended, it arrives once.
    let mut record = letter["record"].clone();
    record["payload"]["after"] = "bWVuZGVk".into();
    let outcome = post("replay", &serde_json::json!({ "numbers": [1], "record": record }));
    assert_eq!((outcome.status, &outcome.json()["delivered"]), (200, &1.into()), "{}", outcome.body);

    // The commands ask the service that has the store.
    let flag = format!("--api.http.address={address}");
    assert_eq!(numbers(&dlq(&workspace, &["list", "orders", "--since", "1h", &flag], 0)), [2]);
    assert_eq!(dlq(&workspace, &["show", "orders", "2", &flag], 0)["attempts"], 2);
    assert_eq!(dlq(&workspace, &["replay", "orders", "--all", &flag], 1)["failedAgain"], 1);
    let edited = record.to_string();
    workspace.write("edited.json", &edited);
    assert_eq!(dlq(&workspace, &["replay", "orders", "2", "--edit", "edited.json", &flag], 0)["delivered"], 1);
    assert_eq!(dlq(&workspace, &["show", "orders", "2", &flag], 2)["error"]["code"], "dead_letter.not_found");
    assert_eq!(arrived(&workspace).get("mended"), Some(&2));
    file.write_all(b"line 27\n").unwrap();
    process.wait_until("another letter", || get(address, LETTERS).json()["count"] == 1);
    assert_eq!(dlq(&workspace, &["purge", "orders", "--all", "--yes", &flag], 0)["summary"]["purged"], 1);
    process.signal("TERM");
    process.finish().expect_code(0);
    let arrived = arrived(&workspace);
    assert_eq!(arrived.len(), 20, "{arrived:?}");
    assert!(arrived.iter().all(|(line, times)| *times == if line == "mended" { 2 } else { 1 }), "{arrived:?}");
}
