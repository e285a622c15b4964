//! Drawings of plans: what real programs make of them, and whether they are pleasant to look at.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::process::{Workspace, skip};

mod geometry;

use geometry::{Drawing, graphviz_lines};

/// The shape of the reference pipeline from documents to vectors: 13 steps, of which two call a service.
const THIRTEEN: &str = include_str!("drawing/documents.yaml");

/// Sixty nodes and more: sources and destinations with processors of their own, conditions, wide stages.
pub fn sixty() -> String {
    let connector = |id: &str, role: &str, steps: usize| {
        let mut text = format!(
            "      - id: {id}\n        type: {role}\n        plugin: file\n        settings: {{ path: {id}.txt }}\n"
        );
        if steps > 0 {
            text.push_str("        processors:\n");
        }
        for step in 0..steps {
            text.push_str(&format!(
                "          - {{ id: s{step}, plugin: field.set, settings: {{ field: .Metadata.{}_{step}, value: x }} }}\n",
                id.replace('-', "_")
            ));
        }
        text
    };
    let mut text = "version: \"2.2\"\npipelines:\n  - id: sixty\n    connectors:\n".to_owned();
    (0..4).for_each(|i| text.push_str(&connector(&format!("source-{i}"), "source", i)));
    (0..9).for_each(|i| text.push_str(&connector(&format!("destination-{i}"), "destination", (i + 1) % 4)));
    text.push_str("    processors:\n");
    for i in 0..30 {
        let condition = format!(", condition: '{{{{ eq (index .Metadata \"kind\") \"{i}\" }}}}'");
        text.push_str(&format!(
            "      - {{ id: shared-{i}, plugin: field.set{}{}, settings: {{ field: .Metadata.m{i}, value: x }} }}\n",
            if i % 4 == 1 { &condition } else { "" },
            if (6..9).contains(&i) { ", workers: 4" } else { "" },
        ));
    }
    text
}

fn plan(pipeline: &str, extra: &[&str]) -> String {
    let mut workspace = Workspace::new();
    workspace.env("DATABASE", "postgres://hidden-place");
    workspace.write("p.yaml", pipeline);
    let args = [&["pipelines", "plan", "p.yaml", "--preview.pipeline-arch-v2", "--no-color"][..], extra].concat();
    let output = workspace.run(&args).expect_code(0);
    assert!(!output.both().contains("hidden-place"), "{}", output.both());
    output.stdout
}

const STAGES: [&str; 3] = ["lowered", "rewritten", "fused"];

fn both() -> [String; 2] {
    [THIRTEEN.to_owned(), sixty()]
}

/// Pipes a text through a program; `None` = the program is not there.
fn pipe(program: &str, args: &[&str], input: &str) -> Option<String> {
    let spawned =
        Command::new(program).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(mut child) = spawned else {
        skip(&format!("{program} is not installed; .ci/setup installs it"));
        return None;
    };
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    let _ = writer.join();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {stderr}");
    assert!(!stderr.to_lowercase().contains("warning: syntax"), "{stderr}");
    Some(String::from_utf8(output.stdout).unwrap())
}

fn node(script: &str, args: &[&str], input: &str) -> Option<String> {
    let consumers = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/consumers");
    if !std::path::Path::new(consumers).join("node_modules").is_dir() {
        skip("tests/consumers/node_modules is not there; .ci/setup installs it");
        return None;
    }
    let script = format!("{consumers}/{script}");
    pipe("node", &[&[script.as_str()][..], args].concat(), input)
}

#[test]
fn nothing_overlaps_and_no_line_goes_through_a_foreign_node() {
    for pipeline in both() {
        for stage in STAGES {
            let drawing = Drawing::read(&plan(&pipeline, &["--format", "svg", "--stage", stage]));
            drawing.check();
        }
    }
    let nodes = Drawing::read(&plan(&sixty(), &["--format", "svg", "--stage", "fused"])).nodes.len();
    assert!(nodes >= 60, "{nodes}");
}

#[test]
fn lines_cross_no_more_often_than_those_of_graphviz() {
    for pipeline in both() {
        for stage in STAGES {
            let ours = Drawing::read(&plan(&pipeline, &["--format", "svg", "--stage", stage]));
            // Records that fail leave by a mark on their node in our drawings: leave their lines out of theirs.
            let dot = plan(&pipeline, &["--format", "dot", "--stage", stage]);
            let dot: String = dot
                .lines()
                .filter(|line| !line.contains("style=dotted"))
                .fold(String::new(), |all, line| all + line + "\n");
            let Some(theirs) = pipe("dot", &["-Tsvg"], &dot) else { return };
            let theirs = graphviz_lines(&theirs);
            assert_eq!(ours.lines.len(), theirs.len(), "both draw every line");
            let (ours, theirs) = (geometry::crossings(&ours.lines), geometry::crossings(&theirs));
            assert!(2 * ours <= 3 * theirs, "{stage}: {ours} crossings, {theirs} with Graphviz");
        }
    }
}

#[test]
fn graphviz_reads_every_pass() {
    for pipeline in both() {
        for stage in STAGES {
            let Some(svg) = pipe("dot", &["-Tsvg"], &plan(&pipeline, &["--format", "dot", "--stage", stage])) else {
                return;
            };
            assert!(svg.contains("</svg>"));
        }
    }
}

#[test]
fn mermaid_reads_every_pass() {
    for pipeline in both() {
        for stage in STAGES {
            let diagram = plan(&pipeline, &["--format", "mermaid", "--stage", stage]);
            let Some(kind) = node("mermaid.mjs", &[], &diagram) else { return };
            assert_eq!(kind.trim(), "flowchart-v2");
        }
    }
}

#[test]
fn json_is_as_its_schema_says() {
    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/drawing/plan.schema.json");
    for pipeline in both() {
        for stage in STAGES {
            if node("schema.mjs", &[schema], &plan(&pipeline, &["--format", "json", "--stage", stage])).is_none() {
                return;
            }
        }
    }
    let workspace = Workspace::new();
    workspace.write("in.txt", crate::process::numbered_lines(100));
    workspace.write("p.yaml", crate::process::file_to_file("p", ""));
    let analyzed = workspace.run(&["pipelines", "plan", "p.yaml", "--format", "json", "--analyze"]).expect_code(0);
    node("schema.mjs", &[schema], &analyzed.stdout);
}

#[test]
fn svg_shows_any_text_as_text() {
    let hostile = r##"version: "2.2"
pipelines:
  - id: hostile
    connectors:
      - { id: in, type: source, plugin: file, settings: { path: "</script><b>&amp;]]>" } }
      - { id: out, type: destination, plugin: file, settings: { path: "x\u0007\u001b[31m\uFFFE" } }
    processors:
      - id: tag
        plugin: field.set
        condition: '{{ eq "<script>alert(1)</script> & ]]> 漢字" (index .Metadata "\"--><!--") }}'
        settings: { field: .Metadata.tag, value: "<script>'\"" }
"##;
    let svg = plan(hostile, &["--format", "svg"]);
    let drawing = Drawing::read(&svg);
    drawing.check();
    assert!(!svg.contains("<script") && svg.contains("&lt;script&gt;"), "{svg}");
    let html = plan(hostile, &["--format", "html"]);
    assert_eq!(html.matches("<script").count(), 2, "the data and the script of the page");
    let document = roxmltree::Document::parse_with_options(&html, geometry::lenient()).unwrap();
    let data = document.descendants().find(|n| n.attribute("id") == Some("plans")).unwrap().text().unwrap();
    let plans: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!(plans[2]["nodes"][0]["settings"]["path"], "</script><b>&amp;]]>");
    assert_eq!(plans[2]["nodes"][1]["settings"]["value"], "<script>'\"");
}

#[test]
fn the_page_is_complete_in_itself() {
    let html = plan(THIRTEEN, &["--format", "html"]);
    let document = roxmltree::Document::parse_with_options(&html, geometry::lenient()).unwrap();
    for element in document.descendants().filter(roxmltree::Node::is_element) {
        for attribute in element.attributes() {
            assert!(!matches!(attribute.name(), "src" | "href" | "data" | "action"), "{attribute:?} loads something");
        }
        assert!(!matches!(element.tag_name().name(), "link" | "img" | "iframe" | "object"));
    }
    let addresses = html.replace("http://www.w3.org/1999/xhtml", "").replace("http://www.w3.org/2000/svg", "");
    assert!(!addresses.contains("://"), "an address is in the page");
    assert!(html.contains("default-src 'none'"));
}

#[test]
fn the_page_shows_settings_and_passes() {
    let html = plan(THIRTEEN, &["--format", "html"]);
    let Some(said) = node("page.mjs", &[], &html) else { return };
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["start"], serde_json::json!(["panel-fused"]));
    assert_eq!(said["tab"], serde_json::json!(["panel-lowered"]));
    assert_eq!(said["arrow"], serde_json::json!(["panel-rewritten"]));
    assert_eq!(said["beside"], serde_json::json!(["panel-lowered", "panel-rewritten", "panel-fused"]));
    assert!(said["clicked"].as_str().unwrap().contains("path"), "{said}");
    assert!(said["entered"].as_str().unwrap().starts_with("encode"), "{said}");
    assert_eq!((&said["chosen"], &said["reachable"]), (&1.into(), &true.into()));
    assert!(said["closed"].as_str().unwrap().contains("Choose a node"));
}

#[test]
fn a_drawing_is_of_one_pipeline() {
    let workspace = Workspace::new();
    workspace.write("pipelines/a.yaml", crate::process::file_to_file("a", ""));
    workspace.write("pipelines/b.yaml", crate::process::file_to_file("b", ""));
    let output = workspace.run(&["pipelines", "plan", "--format", "svg"]).expect_code(2);
    assert!(output.stderr.contains("name one: a, b"), "{}", output.stderr);
    assert!(workspace.run(&["pipelines", "plan", "b", "--format", "svg"]).expect_code(0).stdout.starts_with("<?xml"));
}
