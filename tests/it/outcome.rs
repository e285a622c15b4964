//! What `run --once` says at its end, and with which exit code: success is said only where there is one.

use std::process::Command;

use serde_json::Value;

use crate::process::{Output, Workspace, file_to_file, numbered_lines};

fn workspace() -> Workspace {
    let workspace = Workspace::new();
    workspace.write("pipelines/p.yaml", file_to_file("p", ""));
    workspace
}

/// `run --once`, for people.
fn once(workspace: &Workspace) -> Output {
    workspace.run(&["run", "--once"])
}

#[track_caller]
fn last_line(output: &Output) -> &str {
    output.stdout.lines().last().unwrap_or_default()
}

#[test]
fn a_path_that_does_not_exist_is_no_success() {
    let workspace = workspace();
    let output = once(&workspace).expect_code(5);
    assert!(output.stderr.contains("nothing was read: p:in: the file in.txt does not exist"), "{}", output.both());
    assert!(!output.both().contains("everything is delivered"), "{}", output.both());
    // Nor is a pattern that no file matches.
    workspace.write("app.txt", numbered_lines(3));
    workspace.write("pipelines/p.yaml", file_to_file("p", "").replace("in.txt", "'app-*.log'"));
    let output = once(&workspace).expect_code(5);
    assert!(output.stderr.contains("nothing was read: p:in: no file is at app-*.log"), "{}", output.both());
    let json = workspace.run(&["run", "--once", "--json"]).expect_code(5);
    let report: Value = serde_json::from_str(last_line(&json)).unwrap();
    assert_eq!((&report["ok"], &report["error"]["code"]), (&false.into(), &"run.nothing_read".into()));
    assert_eq!(report["result"]["pipelines"][0]["unread"][0]["connector"], "in");
}

#[test]
fn a_source_that_never_had_anything_is_no_success_and_one_with_nothing_new_is() {
    let workspace = workspace();
    workspace.write("in.txt", "");
    let output = once(&workspace).expect_code(5);
    assert!(output.stderr.contains("p:in contains no record"), "{}", output.both());
    workspace.write("in.txt", numbered_lines(3));
    let output = once(&workspace).expect_code(0);
    assert!(last_line(&output).starts_with("p finished: 3 records read, 3 delivered, 0 filtered"), "{}", output.both());
    let output = once(&workspace).expect_code(0);
    assert!(last_line(&output).starts_with("p finished: 0 records read"), "{}", output.both());
    std::fs::remove_file(workspace.path("in.txt")).unwrap();
    once(&workspace).expect_code(5);
}

#[test]
fn a_pipeline_that_is_not_started_is_no_success() {
    let workspace = workspace();
    workspace.write("in.txt", numbered_lines(3));
    workspace.write("pipelines/p.yaml", file_to_file("p", "").replace("status: running", "status: stopped"));
    let output = once(&workspace).expect_code(5);
    assert!(output.stderr.contains("status: stopped"), "{}", output.both());
}

#[test]
fn totals_are_the_last_line() {
    let workspace = workspace();
    workspace.write("in.txt", numbered_lines(30));
    let processors = r#"      - id: fail
        plugin: error
        condition: '{{ hasSuffix "7" (printf "%s" .Payload.After) }}'
        settings: { message: bad }
      - id: leave
        plugin: filter
        condition: '{{ hasSuffix "8" (printf "%s" .Payload.After) }}'
    dead-letter-queue: { plugin: store, window-size: 0 }
"#;
    let second =
        "      - { id: copy, type: destination, plugin: file, settings: { path: copy.ndjson } }\n    processors:";
    workspace.write("pipelines/p.yaml", file_to_file("p", processors).replace("    processors:", second));
    workspace.write("more.txt", "one\n");
    let other = file_to_file("q", "").replace("in.txt", "more.txt").replace("out.ndjson", "more.ndjson");
    let output = once(&workspace).expect_code(0);
    let line = last_line(&output);
    let words = "p finished: 30 records read, 48 delivered (out 24, copy 24), 3 filtered, 3 dead-lettered, in ";
    assert!(line.starts_with(words) && line.ends_with(" s"), "{line}");

    workspace.write("pipelines/q.yaml", other);
    workspace.append("in.txt", "line 30\n");
    let output = once(&workspace).expect_code(0);
    let lines: Vec<&str> = output.stdout.lines().rev().take(3).collect();
    assert!(lines[0].starts_with("2 pipelines: 2 records read, 3 delivered, "), "{lines:?}");
    workspace.append("in.txt", "line 37\n");
    let json = workspace.run(&["run", "--once", "--json"]).expect_code(0);
    let report: Value = serde_json::from_str(last_line(&json)).unwrap();
    let totals = &report["summary"]["totals"];
    assert_eq!(
        (&totals["read"], &totals["deadLettered"], &totals["lettersDropped"]),
        (&1.into(), &1.into(), &0.into())
    );
    assert!(totals["seconds"].is_number());
    let mut pipelines = report["result"]["pipelines"].as_array().unwrap().iter();
    let p = pipelines.find(|pipeline| pipeline["id"] == "p").unwrap();
    assert_eq!(p["totals"]["destinations"], serde_json::json!({ "out": 0, "copy": 0 }));
}

/// A full disk: the log said 6 %, "about 46 s left", and the last line left out the waits before restarts.
#[cfg(target_os = "linux")]
#[test]
fn a_run_that_delivers_nothing_invents_no_progress() {
    let workspace = Workspace::new();
    let generator = "plugin: generator\n        settings:\n          format.type: raw\n          \
                     format.options.id: int\n          operations: create\n          recordCount: 100000";
    let text = file_to_file("p", "").replace("plugin: file\n        settings:\n          path: in.txt", generator);
    workspace.write("pipelines/p.yaml", text.replace("out.ndjson", "/dev/full"));
    let wait = ["--pipelines.error-recovery.min-delay=1h", "--pipelines.error-recovery.max-delay=1h"];
    let mut process = workspace.start(&[&["run", "--once", "--json"], &wait[..]].concat());
    let printed = process.printed();
    process.wait_until("the wait", || printed().contains("failed; restarts in"));
    let waits = std::time::Instant::now();
    process.wait_until("progress while it waits", || printed().contains("restarts_in_seconds"));
    let waited = waits.elapsed().as_secs_f64();
    process.signal("INT");
    let output = process.finish().expect_code(3);
    let lines: Vec<Value> = output.stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    for line in &lines {
        let percent = line["percent"].as_f64().unwrap_or_default();
        assert!(percent == 0.0 && line["seconds_left"].is_null(), "{line}");
    }
    let report = lines.last().unwrap();
    let seconds = &report["result"]["pipelines"][0]["totals"]["seconds"];
    assert!(seconds.as_f64().unwrap() >= waited, "{seconds} instead of at least {waited}: {report}");
}

/// A source that is still being read when the signal comes: its destination is a pipe, read slowly.
#[test]
fn an_interrupted_run_is_no_success() {
    let mut workspace = workspace();
    workspace.env("ANABRANCH_SHUTDOWN_TIMEOUT", "0");
    workspace.write("in.txt", numbered_lines(1_000_000));
    assert!(Command::new("mkfifo").arg(workspace.path("pipe")).status().unwrap().success());
    workspace.write("pipelines/p.yaml", file_to_file("p", "").replace("out.ndjson", "pipe"));
    let mut process = workspace.start(&["run", "--once"]);
    // Opened by both: it runs, and cannot get far before it is read.
    let pipe = std::fs::File::open(workspace.path("pipe")).unwrap();
    process.signal("INT");
    let printed = process.printed();
    process.wait_until("it to stop", || printed().contains("stopping; "));
    let reader = std::thread::spawn(move || std::io::copy(&mut { pipe }, &mut std::io::sink()).unwrap());
    let output = process.finish().expect_code(7);
    reader.join().unwrap();
    assert!(output.stderr.contains("interrupted before all records were read"), "{}", output.both());
    let line = last_line(&output);
    assert!(line.starts_with("p interrupted: "), "{line}");
}

/// A source that caught up before the pipeline ended that writes its file would leave lines to the next run.
#[test]
fn pipelines_that_feed_each_other_run_one_after_the_other() {
    let workspace = Workspace::new();
    // The names of the files would have them start in another order.
    for (id, from, to) in
        [("c", "in.txt", "first.txt"), ("a", "first.txt", "second.txt"), ("b", "second.txt", "third.txt")]
    {
        let pipeline = file_to_file(id, "").replace("in.txt", from).replace("path: out.ndjson", &format!("path: {to}"));
        workspace.write(&format!("pipelines/{id}.yaml"), pipeline);
    }
    workspace.write("in.txt", "");
    once(&workspace).expect_code(5);
    for (run, lines) in [1, 30_000, 7].into_iter().enumerate() {
        workspace.append("in.txt", &numbered_lines(lines));
        let output = once(&workspace).expect_code(0);
        for file in ["first.txt", "second.txt", "third.txt"] {
            assert_eq!(
                workspace.lines(file).len(),
                workspace.lines("in.txt").len(),
                "{file} of run {run}: {}",
                output.both()
            );
        }
        let log = output.both();
        assert!(log.contains("starts after the end of c") && log.contains("starts after the end of a"), "{log}");
    }
    // One that fails is one that has ended.
    std::fs::remove_file(workspace.path("first.txt")).unwrap();
    std::fs::create_dir(workspace.path("first.txt")).unwrap();
    workspace.append("second.txt", "more\n");
    let output = once(&workspace);
    assert_ne!(output.code(), Some(0), "{}", output.both());
    assert!(workspace.lines("third.txt").last().unwrap().contains("bW9yZQ"), "{}", output.both());
}

#[test]
fn dead_letters_that_a_pipeline_reads_are_written_before() {
    let workspace = Workspace::new();
    let queue = |path: &str| {
        format!("    dead-letter-queue: {{ plugin: file, window-size: 0, settings: {{ path: {path} }} }}\n")
    };
    let fail = "      - { id: fail, plugin: error, settings: { message: no } }\n";
    let first = file_to_file("z", fail) + &queue("letters.txt");
    let second = file_to_file("a", "").replace("in.txt", "letters.txt").replace("out.ndjson", "read.txt");
    workspace.write("pipelines/z.yaml", first);
    workspace.write("pipelines/a.yaml", &second);
    workspace.write("in.txt", numbered_lines(2_000));
    once(&workspace).expect_code(0);
    assert_eq!((workspace.lines("letters.txt").len(), workspace.lines("read.txt").len()), (2_000, 2_000));
    // Each reads dead letters of the other: one of them is first.
    workspace.write("pipelines/a.yaml", second + &queue("in.txt"));
    workspace.append("in.txt", "more\n");
    for _ in 0..2 {
        once(&workspace).expect_code(0);
    }
    assert_eq!(workspace.lines("read.txt").len(), 2_001);
}
