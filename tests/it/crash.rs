//! SIGKILL at random moments: no line lost, duplicates bounded, no torn line.

use std::collections::BTreeMap;

use crate::process::{Workspace, numbered_lines, raw_after};

const LINES: usize = 400_000;
const KILLS: usize = 12;
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
    let seed = std::env::var("ANABRANCH_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("ANABRANCH_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut workspace = Workspace::new();
    workspace.env("ANABRANCH_ENGINE_REPLAY_ROWS", &REPLAY.to_string());
    workspace.write("in.txt", numbered_lines(LINES));
    workspace.write("pipelines/p.yaml", PIPELINE);
    let size = |name: &str| std::fs::metadata(workspace.path(name)).map_or(0, |m| m.len());
    let mut killed = 0;
    for _ in 0..KILLS {
        let target = size("a.ndjson") + random.u64(1..3_000_000);
        let mut process = workspace.start(&["run", "--once"]);
        process.wait_until("some progress", || size("a.ndjson") >= target);
        process.signal("KILL");
        let output = process.finish();
        assert!(!output.stderr.contains("panic"), "{}", output.stderr);
        killed += usize::from(output.code().is_none());
    }
    let listed = workspace.run(&["pipelines", "list"]).expect_code(0).stdout;
    assert!(!listed.contains("running"), "nothing runs: {listed}");
    assert!(killed >= 10, "only {killed} of {KILLS} runs were killed while they worked");
    workspace.once();
    for name in ["a.ndjson", "b.ndjson"] {
        let text = workspace.read(name);
        assert!(text.ends_with('\n'));
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for line in text.lines() {
            *seen.entry(raw_after(line)).or_default() += 1;
        }
        assert_eq!(seen.len(), LINES, "{name}: lines lost");
        let duplicates: usize = seen.values().map(|n| n - 1).sum();
        println!("{name}: {duplicates} duplicates after {killed} kills");
        assert!(duplicates <= killed * REPLAY, "{name}: {duplicates} duplicates after {killed} kills");
    }
}
