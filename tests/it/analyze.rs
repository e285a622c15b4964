//! `pipelines plan --analyze`: measured by running, with nothing left behind.

use crate::process::{Workspace, file_to_file, numbered_lines};

fn workspace() -> Workspace {
    let workspace = Workspace::new();
    workspace.write("in.txt", numbered_lines(3000));
    workspace.write(
        "p.yaml",
        file_to_file(
            "p",
            "      - { id: tag, plugin: field.set, workers: 2, settings: { field: .Metadata.tag, value: x } }\n      \
             - { id: never, plugin: field.set, condition: '{{ eq (index .Metadata \"tag\") \"y\" }}', settings: { field: .Metadata.z, value: x } }\n",
        ),
    );
    workspace
}

fn analyze(workspace: &Workspace, extra: &[&str]) -> String {
    workspace.run(&[&["pipelines", "plan", "p.yaml", "--analyze"][..], extra].concat()).expect_code(0).stdout
}

#[test]
fn every_node_says_what_it_did() {
    let workspace = workspace();
    let text = analyze(&workspace, &["--format", "json", "--records", "1234"]);
    let plan: serde_json::Value = serde_json::from_str(&text).unwrap();
    let measured = |id: &str| {
        let node = plan["nodes"].as_array().unwrap().iter().find(|node| node["id"] == id).unwrap();
        let count = |name: &str| node["measured"][name].as_u64().unwrap();
        assert!(count("busy_ns") > 0, "{node}");
        [count("rows_in"), count("selected"), count("rows_out"), count("failed")]
    };
    for id in ["in", "tag", "out"] {
        assert_eq!(measured(id), [1234, 1234, 1234, 0], "{id}");
    }
    assert_eq!(measured("never"), [1234, 0, 1234, 0]);
    let shares: f64 =
        plan["nodes"].as_array().unwrap().iter().filter_map(|node| node["measured"]["share"].as_f64()).sum();
    assert!((shares - 1.0).abs() < 0.01, "{shares}");
    assert_eq!((&plan["measured"]["read"], &plan["measured"]["written"]), (&1234.into(), &false.into()));
    let left: Vec<_> = std::fs::read_dir(workspace.root()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "the input, the file and the directory of pipelines are all there is: {left:?}");
}

#[test]
fn every_form_shows_what_was_measured() {
    let workspace = workspace();
    let text = analyze(&workspace, &[]);
    assert!(text.contains("3,000 records read, 3,000 brought to destinations that wrote nothing, 0 failed"), "{text}");
    assert!(text.contains("|   3,000 -> 3,000, ") && text.contains("applied to 0"), "{text}");
    for format in ["svg", "html"] {
        assert!(analyze(&workspace, &["--format", format]).contains(">3,000 → 3,000</text>"), "{format}");
    }
    assert!(analyze(&workspace, &["--stage", "lowered"]).contains("3,000 -> 3,000"));
}

#[test]
fn destinations_are_written_only_on_demand() {
    let workspace = workspace();
    let text = analyze(&workspace, &["--write", "--records", "10"]);
    assert!(text.contains("10 records read, 10 delivered"), "{text}");
    assert_eq!(workspace.lines("out.ndjson").len(), 10);
    assert!(!workspace.path("anabranch.db").exists(), "no position is stored");
    let refused = workspace.run(&["pipelines", "plan", "p.yaml", "--write"]).expect_code(2);
    assert!(refused.stderr.contains("--analyze"), "{}", refused.stderr);
    workspace.run(&["pipelines", "plan", "p.yaml", "--analyze", "--records", "0"]).expect_code(2);
}

#[test]
fn what_cannot_be_opened_is_not_analyzed() {
    let mut workspace = Workspace::new();
    workspace.env("PLACE", "secret-place-of-mine");
    workspace.write("p.yaml", file_to_file("p", "").replace("out.ndjson", "/dev/null/${PLACE}"));
    workspace.write("in.txt", numbered_lines(5));
    let output = workspace.run(&["pipelines", "plan", "p.yaml", "--analyze", "--write"]).expect_code(1);
    assert!(!output.both().contains("secret-place"), "{}", output.both());
    assert!(output.stderr.contains("error: "), "{}", output.stderr);
}
