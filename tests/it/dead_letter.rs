//! The dead-letter queue: window, threshold, and what a letter holds.

use crate::process::{Output, Workspace, numbered_lines, raw_after};

/// Lines whose number ends in 7 fail.
fn pipeline(queue: &str) -> String {
    format!(
        r#"
version: "2.2"
pipelines:
  - id: letters
    connectors:
      - {{ id: in, type: source, plugin: file, settings: {{ path: in.txt }} }}
      - {{ id: out, type: destination, plugin: file, settings: {{ path: out.ndjson }} }}
    processors:
      - {{ id: touch, plugin: field.set, settings: {{ field: .Metadata.touched, value: "yes" }} }}
      - id: fail
        plugin: error
        condition: '{{{{ hasSuffix "7" (printf "%s" .Payload.After) }}}}'
        settings: {{ message: "bad line {{{{ printf \"%s\" .Payload.After }}}}" }}
{queue}"#
    )
}

fn run(queue: &str, lines: usize) -> (Workspace, Output) {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(lines));
    workspace.write("pipelines/p.yaml", pipeline(queue));
    let output = workspace.run(&["run", "--once"]);
    (workspace, output)
}

#[test]
fn without_a_window_every_failure_becomes_a_letter() {
    let (workspace, output) = run(
        "    dead-letter-queue: { plugin: file, settings: { path: dlq.ndjson }, window-size: 0, window-nack-threshold: 0 }",
        1_000,
    );
    output.expect_code(0);
    assert_eq!(workspace.lines("out.ndjson").len(), 900);
    assert!(workspace.lines("out.ndjson").iter().all(|l| !raw_after(l).ends_with('7')));
    let letters = workspace.lines("dlq.ndjson");
    assert_eq!(letters.len(), 100);
    let letter: serde_json::Value = serde_json::from_str(&letters[0]).unwrap();
    assert_eq!(letter["operation"], "create");
    assert_eq!(letter["metadata"]["svc.dlq.nack.node.id"], "fail");
    assert!(letter["metadata"]["svc.dlq.nack.error"].as_str().unwrap().contains("bad line line 7"), "{letter}");
    let failed = &letter["payload"]["after"];
    assert_eq!(failed["payload"]["after"], "bGluZSA3", "{letter}");
    assert_eq!(failed["metadata"]["touched"], "yes", "the record as it entered the failing step: {letter}");
    assert_eq!(failed["operation"], "create");
    assert!(failed["position"].is_string() && failed["key"].is_string(), "{letter}");
}

#[test]
fn by_default_the_first_failure_stops_the_pipeline_and_is_not_lost() {
    let (workspace, output) = run("", 1_000);
    let text = output.expect_code(1).both();
    assert!(text.contains("bad line line 7"), "{text}");
    let delivered = workspace.lines("out.ndjson").len();
    // The cause is gone: the failed line and everything after it arrive.
    workspace.write("pipelines/p.yaml", pipeline("").replace("hasSuffix \"7\"", "hasSuffix \"nothing\""));
    workspace.once();
    let mut all: Vec<String> = workspace.lines("out.ndjson").iter().map(|l| raw_after(l)).collect();
    assert!(all.len() <= 1_000 + delivered);
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 1_000);
}

#[test]
fn a_window_tolerates_its_threshold() {
    // One of ten fails: ten in a window of a hundred.
    let (workspace, output) = run(
        "    dead-letter-queue: { plugin: file, settings: { path: dlq.ndjson }, window-size: 100, window-nack-threshold: 10 }",
        2_000,
    );
    output.expect_code(0);
    assert_eq!(workspace.lines("dlq.ndjson").len(), 200);

    let (workspace, output) = run(
        "    dead-letter-queue: { plugin: file, settings: { path: dlq.ndjson }, window-size: 100, window-nack-threshold: 9 }",
        2_000,
    );
    let text = output.expect_code(1).both();
    assert!(text.contains("threshold"), "{text}");
    assert_eq!(workspace.lines("dlq.ndjson").len(), 9, "the tenth is one too many");
}

#[test]
fn a_queue_that_cannot_be_opened_keeps_the_pipeline_from_running() {
    let (workspace, output) =
        run("    dead-letter-queue: { plugin: file, settings: { path: nowhere/dlq.ndjson }, window-size: 0 }", 10);
    assert_ne!(output.code(), Some(0));
    assert!(output.both().contains("nowhere"), "{}", output.both());
    assert_eq!(workspace.read("out.ndjson"), "");
}

/// Lines of the log about records that failed.
fn about_failures(output: &Output) -> Vec<&str> {
    output.stdout.lines().filter(|line| line.contains("step=fail")).collect()
}

/// Without a queue that keeps it, a failed record is found where the log says.
#[test]
fn the_log_says_where_the_record_is_that_failed_and_not_what_is_in_it() {
    let (_, output) = run("", 1_000);
    let output = output.expect_code(1);
    let lines = about_failures(&output);
    let [line] = &lines[..] else { panic!("{}", output.both()) };
    for part in ["pipeline=letters", "source=in", "position=in.txt:8", "key=8", "code=", "error=\"bad line line 7\""] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(!output.both().contains("bGluZSA3"), "the record: {}", output.both());
}

#[test]
fn the_log_does_not_promise_a_letter_for_the_record_that_stops_the_pipeline() {
    let (workspace, output) = run("    dead-letter-queue: { plugin: store }", 20);
    let text = output.expect_code(1).both();
    assert!(text.contains("a record failed, and the pipeline stops") && text.contains("in.txt:8"), "{text}");
    assert!(!text.contains("goes to the dead-letter queue"), "{text}");
    let letters = workspace.run(&["dlq", "list", "letters"]).expect_code(0).stdout;
    assert!(letters.contains("has no dead letters"), "{letters}");
}

#[test]
fn failures_of_one_kind_are_counted_and_records_are_logged_at_debug_only() {
    const QUEUE: &str = "    dead-letter-queue: { plugin: log, window-size: 0 }";
    let (workspace, output) = run(QUEUE, 1_000);
    let output = output.expect_code(0);
    let lines = about_failures(&output);
    let [first, counts @ ..] = &lines[..] else { panic!("{}", output.both()) };
    assert!(first.contains("record delivery failed") && first.contains("position=in.txt:8"), "{first}");
    // One count where the run is short.
    let more = |line: &&str| {
        let (before, _) = line.split_once(" more record").unwrap_or_else(|| panic!("{line}"));
        before.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(counts.iter().map(more).sum::<u64>(), 99, "{counts:?}");
    assert!(counts.last().is_some_and(|last| last.contains("position=in.txt:998")), "{counts:?}");
    assert!(!output.both().contains("bGluZSA"), "records: {}", output.both());
    assert!(output.stdout.lines().last().unwrap().contains("900 delivered, 0 filtered, 100 dead-lettered"));

    workspace.append("in.txt", "line 1007\n");
    let debug = workspace.run(&["run", "--once", "--log.level", "debug"]).expect_code(0);
    assert!(debug.stdout.lines().any(|line| line.contains("pipeline=letters") && line.contains("bGluZSAxMDA3")));
}

/// The line about a failure was larger than the queue of the log: it was lost, and the log blamed its reader.
#[test]
fn an_error_that_quotes_a_large_record_is_short_everywhere() {
    const SINK: &str = "    dead-letter-queue: { plugin: file, settings: { path: dlq.ndjson }, window-size: 0, window-nack-threshold: 0 }";
    for (queue, code) in [(SINK, 0), ("", 1)] {
        let workspace = Workspace::new();
        workspace.write("in.txt", format!("{}7\n", "z".repeat(6_000_000)));
        workspace.write("pipelines/p.yaml", pipeline(queue));
        let output = workspace.run(&["run", "--once"]);
        let log = output.expect_code(code).both();
        assert!(log.len() < 32 << 10, "{} bytes", log.len());
        assert!(log.contains("bad line zzz") && log.contains(" more bytes)"), "{log}");
        assert!(!log.contains("lost "), "{log}");
        for letter in if code == 0 { workspace.lines("dlq.ndjson") } else { Vec::new() } {
            let letter: serde_json::Value = serde_json::from_str(&letter).unwrap();
            let error = letter["metadata"]["svc.dlq.nack.error"].as_str().unwrap();
            assert!(error.len() < 4200 && error.contains(" more bytes)"), "{error}");
        }
    }
}
