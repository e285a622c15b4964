//! SIGKILL at random moments: no line lost, duplicates bounded, no torn line.

use std::collections::BTreeMap;

use crate::kills::{Kills, When};
use crate::process::{Workspace, numbered_lines, raw_after};

/// How many there are at first.
const LINES: usize = 150_000;
/// More are added in so many.
const MORE: usize = 20_000;
/// Most bytes that a destination grows by before a kill.
const GROWTH: u64 = 1_500_000;
/// The least size of a record in the file of a destination.
const RECORD: u64 = 200;
/// `engine.replay-rows` of this test.
const REPLAY: usize = 2_048;

const PIPELINE: &str = r#"
version: "2.2"
pipelines:
  - id: crash
    connectors:
      - { id: in, type: source, plugin: file, settings: { path: in.txt } }
      - { id: a, type: destination, plugin: file, settings: { path: a.ndjson } }
      - { id: b, type: destination, plugin: file, settings: { path: b.ndjson } }
    processors:
      - { id: even, plugin: field.set, condition: '{{ hasSuffix "0" (printf "%s" .Payload.After) }}', settings: { field: .Metadata.even, value: "yes" } }
      - { id: tag, plugin: field.set, workers: 2, settings: { field: .Metadata.tag, value: "x" } }
"#;

#[test]
fn killed_again_and_again_it_loses_nothing() {
    let mut kills = Kills::new();
    loop {
        match kills.round() {
            0 => break,
            round => kill_copies(&mut kills, round),
        }
    }
}

/// A service that copies lines to two files is killed so many times, and comes to its end.
fn kill_copies(kills: &mut Kills, round: usize) {
    let mut workspace = Workspace::new();
    workspace.env("ANABRANCH_ENGINE_REPLAY_ROWS", &REPLAY.to_string());
    workspace.write("in.txt", numbered_lines(LINES));
    workspace.write("pipelines/p.yaml", PIPELINE);
    let size = |name: &str| std::fs::metadata(workspace.path(name)).map_or(0, |m| m.len());
    let mut lines = LINES;
    for _ in 0..round {
        let before = size("a.ndjson");
        // It has work whenever it is killed: on a busy machine it may do much before this test has its turn.
        while lines as u64 * RECORD < before + 4 * GROWTH {
            let more: String = (lines..lines + MORE).map(|i| format!("line {i}\n")).collect();
            workspace.append("in.txt", &more);
            lines += MORE;
        }
        let mut process = workspace.start(&["run"]);
        match kills.when(GROWTH) {
            When::Grown(bytes) => process.wait_until("some progress", || size("a.ndjson") >= before + bytes),
            When::After(time) => std::thread::sleep(time),
        }
        process.signal("KILL");
        let output = process.finish();
        assert!(!output.stderr.contains("panic"), "{}", output.stderr);
        assert_eq!(output.code(), None, "it ended before it was killed: {}", output.both());
    }
    let listed = workspace.run(&["pipelines", "list"]).expect_code(0).stdout;
    assert!(!listed.contains("running"), "nothing runs: {listed}");
    let bound = promised(&workspace);
    workspace.once();
    let mut repeated = Vec::new();
    for name in ["a.ndjson", "b.ndjson"] {
        let text = workspace.read(name);
        assert!(text.ends_with('\n'));
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for line in text.lines() {
            *seen.entry(raw_after(line)).or_default() += 1;
        }
        assert_eq!(seen.len(), lines, "{name}: lines lost");
        repeated.push(seen.values().map(|n| n - 1).sum::<usize>());
    }
    kills.add(round, &repeated, bound);
}

/// How many rows a crash may repeat, as `pipelines plan` says.
fn promised(workspace: &Workspace) -> usize {
    let plan = workspace.run(&["pipelines", "plan", "pipelines/p.yaml", "--format", "json"]).expect_code(0).stdout;
    let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
    let routes = plan["routes"].as_array().unwrap();
    assert_eq!(routes.len(), 2);
    assert!(routes.iter().all(|route| route["replay"]["copies"] == 1 && route["replay"]["records"] == REPLAY));
    REPLAY
}
