//! `pipelines plan` in every format.

use crate::process::Workspace;

const PIPELINE: &str = r#"version: "2.2"
pipelines:
  - id: orders
    connectors:
      - { id: in, type: source, plugin: file, settings: { path: in.txt } }
      - { id: all, type: destination, plugin: file, settings: { path: "${SECRET_PLACE}/all.ndjson" } }
      - { id: log, type: destination, plugin: log }
    processors:
      - { id: decode, plugin: json.decode, settings: { field: .Payload.After } }
      - { id: pieces, plugin: split, settings: { field: .Payload.After.items } }
      - { id: first, plugin: field.set, condition: '{{ eq (index .Metadata "split.index") "0" }}', settings: { field: .Metadata.first, value: "yes" } }
      - { id: tag, plugin: field.set, condition: '{{ eq (index .Metadata "split.index") "0" }}', settings: { field: .Metadata.tag, value: "x" } }
      - { id: heavy, plugin: json.encode, workers: 4, settings: { field: .Payload.After } }
"#;

fn plan(extra: &[&str]) -> String {
    let mut workspace = Workspace::new();
    workspace.env("SECRET_PLACE", "hidden-place");
    workspace.write("p.yaml", PIPELINE);
    let args = [&["pipelines", "plan", "p.yaml", "--preview.pipeline-arch-v2", "--no-color"][..], extra].concat();
    let output = workspace.run(&args).expect_code(0);
    assert!(!output.both().contains("hidden-place"), "{}", output.both());
    assert!(!workspace.path("anabranch.db").exists(), "planning opens nothing");
    output.stdout
}

#[test]
fn text() {
    insta::assert_snapshot!("plan_text_lowered", plan(&["--stage", "lowered"]));
    insta::assert_snapshot!("plan_text_rewritten", plan(&["--stage", "rewritten"]));
    insta::assert_snapshot!("plan_text_fused", plan(&["--stage", "fused"]));
    assert_eq!(plan(&[]), plan(&["--stage", "fused", "--format", "text"]));
}

#[test]
fn dot() {
    insta::assert_snapshot!("plan_dot", plan(&["--format", "dot"]));
}

#[test]
fn mermaid() {
    insta::assert_snapshot!("plan_mermaid", plan(&["--format", "mermaid"]));
}

#[test]
fn json() {
    let text = plan(&["--format", "json"]);
    let plan: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(plan.is_object());
    insta::assert_snapshot!("plan_json", text);
}
