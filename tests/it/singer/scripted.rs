//! The scripted tap, and pipelines that read it.

use serde_json::Value;

use crate::process::{Output, Workspace};

/// A workspace with the tap and a pipeline from it to `out.ndjson`. Settings are in YAML, indented by ten.
pub fn workspace(settings: &str) -> Workspace {
    let mut workspace = Workspace::new();
    workspace.env("ANABRANCH_PIPELINES_ERROR_RECOVERY_MIN_DELAY", "10ms");
    workspace.write("tap.py", include_str!("tap.py"));
    pipeline(&workspace, settings);
    workspace
}

/// Writes the pipeline again, with other settings.
pub fn pipeline(workspace: &Workspace, settings: &str) {
    let text = format!(
        r#"version: "2.2"
pipelines:
  - id: p
    dead-letter-queue:
      plugin: file
      window-size: 0
      window-nack-threshold: 0
      settings: {{ path: letters.ndjson }}
    connectors:
      - id: in
        type: source
        plugin: singer
        settings:
          command: python3
          arguments: tap.py
{settings}
      - {{ id: out, type: destination, plugin: file, settings: {{ path: out.ndjson }} }}
"#
    );
    workspace.write("pipelines/p.yaml", text);
}

/// A workspace whose tap writes these lines.
pub fn script(lines: &str, settings: &str) -> Workspace {
    let workspace = workspace(&format!("          config.script: script\n{settings}"));
    workspace.write("script", lines);
    workspace
}

/// The SCHEMA message of the stream `numbers`, with further properties.
pub fn schema(properties: &str) -> String {
    format!(
        r#"{{"type": "SCHEMA", "stream": "numbers", "key_properties": ["id"], "schema": {{"type": "object", "properties": {{"id": {{"type": "integer"}}{properties}}}}}}}"#
    ) + "\n"
}

/// A RECORD message of the stream `numbers`.
pub fn record(fields: &str) -> String {
    format!(r#"{{"type": "RECORD", "stream": "numbers", "record": {{{fields}}}}}"#) + "\n"
}

/// A STATE message.
pub fn state(value: &str) -> String {
    format!(r#"{{"type": "STATE", "value": {value}}}"#) + "\n"
}

/// The records that were written.
pub fn records(workspace: &Workspace) -> Vec<Value> {
    workspace.lines("out.ndjson").iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The property `id` of the records that were written.
pub fn ids(workspace: &Workspace) -> Vec<u64> {
    records(workspace).iter().map(|record| record["payload"]["after"]["id"].as_u64().unwrap()).collect()
}

/// What the tap noted about its starts.
pub fn starts(workspace: &Workspace) -> Vec<Value> {
    workspace.lines("starts.ndjson").iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Runs a pipeline whose tap fails for good.
#[track_caller]
pub fn failing(workspace: &mut Workspace) -> Output {
    workspace.env("ANABRANCH_PIPELINES_ERROR_RECOVERY_MAX_RETRIES", "0");
    let output = workspace.run(&["run", "--pipelines.exit-on-degraded"]).expect_code(1);
    assert!(!output.both().contains("panicked"), "{}", output.both());
    output
}

/// Returns `true` if a process of the tap is still there. A zombie counts as ended.
pub fn is_alive(pid: u64) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    status.contains("tap.py")
}

/// Waits until no process of the tap is left.
#[track_caller]
pub fn no_tap_is_left(workspace: &Workspace) {
    let start = std::time::Instant::now();
    let pids: Vec<u64> = starts(workspace).iter().map(|start| start["pid"].as_u64().unwrap()).collect();
    while let Some(pid) = pids.iter().find(|pid| is_alive(**pid)) {
        assert!(start.elapsed() < crate::process::PATIENCE, "the tap {pid} lives on");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

/// Waits until no file that a tap was given is left. The supervisor removes them also if the service is killed.
#[track_caller]
pub fn no_file_is_left(workspace: &Workspace) {
    let start = std::time::Instant::now();
    let given: Vec<String> = starts(workspace).iter().flat_map(files).collect();
    while let Some(file) = given.iter().find(|file| std::path::Path::new(file).exists()) {
        assert!(start.elapsed() < crate::process::PATIENCE, "{file} is left");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

fn files(start: &Value) -> Vec<String> {
    start["files"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
