//! What is not read yet: in metrics, on the page's API, in listings, and as the progress of `run --once`.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::api::get;
use crate::process::{Workspace, file_to_file, numbered_lines};

/// The value of the only series of a metric.
fn sample(metrics: &str, name: &str) -> Option<f64> {
    let line = metrics.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// Bounds of the alarms that `docs/metrics.md` gives: name of the metric and the number above which it is.
fn documented_bounds() -> Vec<(String, f64)> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md")).unwrap();
    let rules = text.split('`').filter_map(|code| code.split_once(" > "));
    let rules = rules.filter_map(|(name, bound)| Some((name.to_owned(), bound.trim().parse().ok()?)));
    rules.filter(|(name, _)| name.starts_with("anabranch_") && !name.contains(['(', '{'])).collect()
}

#[test]
fn unread_lines_are_the_backlog_and_raise_the_documented_alarm() {
    const LINES: usize = 300_000;
    let workspace = Workspace::new();
    let path = workspace.write("in.txt", numbered_lines(LINES));
    let hours_ago = SystemTime::now() - Duration::from_secs(3 * 3600);
    File::options().append(true).open(&path).unwrap().set_modified(hours_ago).unwrap();
    // A destination that takes a record a second.
    let slow = "path: out.ndjson\n          sdk.rate.perSecond: 1\n          sdk.rate.burst: 1";
    workspace.write("pipelines/p.yaml", file_to_file("p", "").replace("path: out.ndjson", slow));
    let mut process = workspace.start(&["run"]);
    let address = process.address();
    let metrics = || get(address, "/metrics").body;
    let left = || sample(&metrics(), "anabranch_source_backlog_bytes").unwrap_or(0.0);
    let age = "anabranch_source_backlog_age_seconds";
    process.wait_until("the backlog with its age, and records in flight", || {
        let text = metrics();
        sample(&text, "anabranch_source_backlog_bytes").unwrap_or(0.0) > 0.0
            && [age, "anabranch_source_lag_seconds"].iter().all(|name| sample(&text, name).is_some())
    });
    let text = metrics();
    assert!(left() > 500_000.0, "{text}");
    let bounds = documented_bounds();
    let (_, bound) = bounds.iter().find(|(name, _)| name == age).expect("an alarm on the backlog");
    assert!(sample(&text, age).unwrap() > *bound, "{text}");
    // Records in flight are not counted in it.
    assert!(sample(&text, "anabranch_source_lag_seconds").unwrap() < 1800.0, "{text}");
    assert_eq!(sample(&text, "anabranch_source_missed_total"), Some(0.0));

    // It grows while nothing can be read: beyond all that there was, however much of it was read before.
    let all = numbered_lines(LINES);
    workspace.append("in.txt", &all.repeat(2));
    process.wait_until("more backlog", || left() > all.len() as f64);

    let live = get(address, "/v1/live").json()["pipelines"][0].clone();
    assert!(live["backlog"]["ageSeconds"].as_f64().unwrap() > 10_000.0, "{live}");
    let one = get(address, "/v1/pipelines/p/live").json();
    assert_eq!((&one["backlogs"][0]["connector"], &one["backlogs"][0]["missed"]), (&"in".into(), &0.into()));
    assert!(one["backlogs"][0]["bytes"].as_u64().unwrap() > 500_000, "{one}");
    let of_service = |args: &[&str]| {
        let address = format!("--api.http.address={address}");
        workspace.run(&[args, &[address.as_str()]].concat()).expect_code(0).stdout
    };
    let list = of_service(&["pipelines", "list"]);
    assert!(list.contains("BACKLOG") && list.contains("MiB / 3 h"), "{list}");
    let description = of_service(&["pipelines", "describe", "p"]);
    assert!(description.contains("MiB, the next at least 3 h old"), "{description}");
    let top = of_service(&["top", "--once", "--interval=0.1"]);
    assert!(top.contains("BACKLOG") && top.contains("MiB / 3 h"), "{top}");
    process.signal("KILL");
}

#[test]
fn a_run_to_the_end_says_how_far_it_is() {
    let workspace = Workspace::new();
    let source = "plugin: generator\n        settings:\n          format.type: raw\n          \
                  format.options.id: int\n          operations: create\n          rate: 100\n          recordCount: 60000";
    let text = file_to_file("p", "").replace("plugin: file\n        settings:\n          path: in.txt", source);
    workspace.write("pipelines/p.yaml", text);
    let mut process = workspace.start(&["run", "--once"]);
    let printed = process.printed();
    process.wait_until("progress", || {
        let text = printed();
        text.lines().any(|line| line.contains(" records read, ") && line.contains(" %, ") && line.contains(" left"))
    });
    // Of ten minutes that is enough.
    process.signal("INT");
    process.finish().expect_code(7);
}

/// Writes a generation of a log and has the one before it compressed and deleted, as some rotations do.
fn rotate(workspace: &Workspace, generation: usize, lines: usize) {
    let (path, moved) = (workspace.path("app.log"), workspace.path("app.log.1"));
    if generation > 0 {
        fs::rename(&path, &moved).unwrap();
    }
    let text: String = (0..lines).map(|line| format!("{generation} {line}\n")).collect();
    fs::write(&path, text).unwrap();
    if generation > 0 {
        let gzip = std::process::Command::new("gzip").arg("-f").arg(&moved).status();
        assert!(gzip.unwrap().success());
        fs::remove_file(workspace.path("app.log.1.gz")).unwrap();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn files_that_are_rotated_away_within_a_moment_are_read() {
    const GENERATIONS: usize = 9;
    const LINES: usize = 1000;
    let workspace = Workspace::new();
    rotate(&workspace, 0, LINES);
    workspace.write("pipelines/p.yaml", file_to_file("p", "").replace("in.txt", "app.log"));
    let mut process = workspace.start(&["run"]);
    process.wait_until("the first file", || workspace.lines("out.ndjson").len() == LINES);
    for generation in 1..GENERATIONS {
        // From then on it may be moved and deleted, read or not.
        let current = workspace.path("app.log");
        while !process.has_open(&current) {
            assert!(process.is_running());
            std::thread::sleep(Duration::from_millis(1));
        }
        rotate(&workspace, generation, LINES);
    }
    process.wait_until("all lines", || workspace.lines("out.ndjson").len() >= GENERATIONS * LINES);
    process.signal("TERM");
    process.finish().expect_code(0);
    let lines: Vec<String> = workspace.lines("out.ndjson").iter().map(|line| crate::process::raw_after(line)).collect();
    let expected = (0..GENERATIONS).flat_map(|generation| (0..LINES).map(move |line| format!("{generation} {line}")));
    assert!(lines.iter().cloned().eq(expected), "{} lines", lines.len());
}

/// Runs until 100 lines of `logs/in.txt` are read, and then puts 20 lines more into the file, and two more files in its
/// place, one after the other: all lines.
fn rotated_twice(workspace: &Workspace) -> Vec<String> {
    let path = |name: &str| workspace.path(&format!("logs/{name}"));
    let text = |from: usize, to: usize| (from..=to).map(|line| format!("{line}\n")).collect::<String>();
    workspace.write("pipelines/p.yaml", file_to_file("p", "").replace("in.txt", "logs/in.txt"));
    workspace.write("logs/in.txt", text(1, 100));
    workspace.once().expect_code(0);
    workspace.append("logs/in.txt", &text(101, 120));
    fs::rename(path("in.txt"), path("in.txt.2")).unwrap();
    workspace.write("logs/in.txt.1", text(121, 150));
    workspace.write("logs/in.txt", text(151, 160));
    let now = SystemTime::now();
    for (name, age) in [("in.txt.2", 3), ("in.txt.1", 2), ("in.txt", 1)] {
        let file = File::options().append(true).open(path(name)).unwrap();
        file.set_modified(now - Duration::from_millis(10 * age)).unwrap();
    }
    (1..=160).map(|line| line.to_string()).collect()
}

#[test]
fn a_directory_that_is_moved_away_for_a_moment_hides_no_rotated_file() {
    let workspace = Workspace::new();
    let expected = rotated_twice(&workspace);
    let delivered = || -> Vec<String> {
        workspace.lines("out.ndjson").iter().map(|line| crate::process::raw_after(line)).collect()
    };
    let (logs, away) = (workspace.path("logs"), workspace.path("away"));
    let mut process = workspace.start(&["run"]);
    // The source waits at the first file then, whose writer may go on with it for a second.
    process.wait_until("the first rotated file", || delivered().len() >= 120);
    fs::rename(&logs, &away).unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    fs::rename(&away, &logs).unwrap();
    process.wait_until("the file at the path", || delivered().last() == expected.last());
    assert_eq!(delivered(), expected);
    assert_eq!(sample(&get(process.address(), "/metrics").body, "anabranch_source_missed_total"), Some(0.0));
    process.signal("TERM");
    process.finish().expect_code(0);
}

#[test]
fn a_rotated_file_is_recognised_in_a_copy_of_its_directory() {
    let workspace = Workspace::new();
    let expected = rotated_twice(&workspace);
    let (logs, copy) = (workspace.path("logs"), workspace.path("copy"));
    let copied = std::process::Command::new("cp").arg("-a").args([&logs, &copy]).status();
    assert!(copied.unwrap().success());
    fs::remove_dir_all(&logs).unwrap();
    fs::rename(&copy, &logs).unwrap();
    let output = workspace.once().expect_code(0);
    let lines: Vec<String> = workspace.lines("out.ndjson").iter().map(|line| crate::process::raw_after(line)).collect();
    assert_eq!(lines, expected, "{}", output.stderr);
    assert!(!output.stderr.contains("is lost"), "{}", output.stderr);
}

/// Runs until the three lines of `logs/in.txt` are read, and rotates the file to the name `to`.
fn read_and_rotated(workspace: &Workspace, to: &str) {
    workspace.write("pipelines/p.yaml", file_to_file("p", "").replace("in.txt", "logs/in.txt"));
    workspace.write("logs/in.txt", "a1\na2\na3\n");
    workspace.once();
    fs::rename(workspace.path("logs/in.txt"), workspace.path(&format!("logs/{to}"))).unwrap();
}

/// Gives files in `logs` times one after the other, the oldest first: the order of the generations.
fn aged(workspace: &Workspace, names: &[&str]) {
    let now = SystemTime::now();
    for (name, age) in names.iter().rev().zip(1..) {
        let file = File::options().append(true).open(workspace.path(&format!("logs/{name}"))).unwrap();
        file.set_modified(now - Duration::from_millis(10 * age)).unwrap();
    }
}

/// Runs the pipeline again, which must deliver these lines, and report and count one file that it cannot read.
#[track_caller]
fn misses_one(workspace: &Workspace, expected: &[&str]) {
    let delivered = || -> Vec<String> {
        workspace.lines("out.ndjson").iter().map(|line| crate::process::raw_after(line)).collect()
    };
    let mut process = workspace.start(&["run"]);
    let address = process.address();
    process.wait_until("the last line", || delivered().last().map(String::as_str) == expected.last().copied());
    process.wait_until("the count", || {
        sample(&get(address, "/metrics").body, "anabranch_source_missed_total") == Some(1.0)
    });
    assert_eq!(delivered(), expected);
    process.signal("TERM");
    let output = process.finish().expect_code(0);
    let log = output.both();
    let lost = log.lines().filter(|line| line.contains("its data is lost"));
    assert_eq!(lost.count(), 1, "{log}");
}

#[test]
fn a_restart_reports_and_counts_a_generation_that_is_gone() {
    let workspace = Workspace::new();
    read_and_rotated(&workspace, "in.txt.3");
    workspace.write("logs/in.txt.1", "c1\n");
    workspace.write("logs/in.txt", "d1\nd2\n");
    aged(&workspace, &["in.txt.3", "in.txt.1", "in.txt"]);
    misses_one(&workspace, &["a1", "a2", "a3", "c1", "d1", "d2"]);
}
