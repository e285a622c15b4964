//! Pipelines that are made through the API, one of which reads what the other one writes.

use serde_json::{Value, json};

use crate::api_lifecycle::Service;
use crate::process::Workspace;

/// A pipeline that copies the lines of a file to another one.
fn copy(id: &str, from: &str, to: &str) -> String {
    format!(
        r#"version: "2.2"
pipelines:
  - id: {id}
    connectors:
      - {{ id: in, type: source, plugin: file, settings: {{ path: {from} }} }}
      - id: out
        type: destination
        plugin: file
        settings:
          path: {to}
          sdk.record.format: template
          sdk.record.format.options: '{{{{ printf "%s" .Payload.After }}}}'
"#
    )
}

#[track_caller]
fn apply(service: &Service, yaml: &str) {
    let hash: Value = service.done("POST", "/v1/pipelines/plan", &json!({ "yaml": yaml }))["hash"].clone();
    service.done("POST", "/v1/pipelines/apply", &json!({ "yaml": yaml, "hash": hash }));
}

fn lines(from: usize, to: usize) -> Vec<String> {
    (from..to).map(|line| format!("line {line}")).collect()
}

fn text(from: usize, to: usize) -> String {
    lines(from, to).iter().map(|line| format!("{line}\n")).collect()
}

#[test]
fn a_restart_and_stops_of_either_lose_nothing() {
    let workspace = Workspace::new();
    workspace.write("in.txt", text(0, 100));
    let mut service = Service::start(&workspace);
    // The one that reads comes first: its file does not exist yet.
    apply(&service, &copy("reader", "middle.txt", "out.txt"));
    apply(&service, &copy("writer", "in.txt", "middle.txt"));
    let arrived = |count| move |workspace: &Workspace| workspace.lines("out.txt").len() >= count;
    service.process.wait_until("the first lines", || arrived(100)(&workspace));

    for (stopped, from) in [("writer", 100), ("reader", 200)] {
        service.done("POST", &format!("/v1/pipelines/{stopped}/stop"), &json!({}));
        service.wait_for(stopped, "stopped");
        workspace.append("in.txt", &text(from, from + 100));
        service.done("POST", &format!("/v1/pipelines/{stopped}/start"), &json!({}));
        service.process.wait_until("the lines since a stop", || arrived(from + 100)(&workspace));
    }

    service.end();
    workspace.append("in.txt", &text(300, 400));
    let mut service = Service::start(&workspace);
    for id in ["writer", "reader"] {
        service.wait_for(id, "running");
    }
    service.process.wait_until("the lines since the restart", || arrived(400)(&workspace));
    service.end();
    assert_eq!(workspace.lines("out.txt"), lines(0, 400), "each line once and in order");
}
