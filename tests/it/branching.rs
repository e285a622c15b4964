//! Conditions, split and clone into two destinations.

use std::collections::BTreeMap;

use crate::process::{Workspace, numbered_lines};

const PIPELINE: &str = r#"
version: "2.2"
pipelines:
  - id: branching
    connectors:
      - id: in
        type: source
        plugin: file
        settings: { path: in.txt }
        processors:
          - { id: decode, plugin: json.decode, settings: { field: .Payload.After } }
      - { id: all, type: destination, plugin: file, settings: { path: all.ndjson } }
      - id: some
        type: destination
        plugin: file
        settings: { path: some.ndjson }
        processors:
          - { id: only-originals, plugin: filter, condition: '{{ ne (index .Metadata "clone.index") "0" }}' }
    processors:
      - { id: split, plugin: split, settings: { field: .Payload.After.list } }
      - id: clone
        plugin: clone
        condition: '{{ eq (index .Metadata "split.index") "0" }}'
        settings: { count: "3" }
      - id: mark
        plugin: field.set
        condition: '{{ eq (index .Metadata "clone.index") "2" }}'
        workers: 3
        settings: { field: .Metadata.marked, value: "yes" }
"#;

#[test]
fn each_record_takes_its_branches() {
    const LINES: usize = 2_000;
    let workspace = Workspace::new();
    let lines: String =
        (0..LINES).map(|i| format!("{{\"id\":{i},\"list\":[{{\"n\":0}},{{\"n\":1}},{{\"n\":2}}]}}\n")).collect();
    workspace.write("in.txt", lines);
    workspace.write("pipelines/p.yaml", PIPELINE);
    workspace.once();

    let parse = |name: &str| -> Vec<serde_json::Value> {
        workspace.lines(name).iter().map(|l| serde_json::from_str(l).unwrap()).collect()
    };
    let all = parse("all.ndjson");
    assert_eq!(all.len(), LINES * 6);
    // Order: pieces in list order, the original before its copies, lines in file order.
    for (i, records) in all.chunks(6).enumerate() {
        let got: Vec<(i64, &str, Option<&str>, Option<&str>)> = records
            .iter()
            .map(|r| {
                assert_eq!(r["payload"]["after"]["id"], i);
                let meta = |k: &str| r["metadata"][k].as_str();
                (
                    r["payload"]["after"]["list"]["n"].as_i64().unwrap(),
                    meta("split.index").unwrap(),
                    meta("clone.index"),
                    meta("marked"),
                )
            })
            .collect();
        assert_eq!(
            got,
            [
                (0, "0", Some("0"), None),
                (0, "0", Some("1"), None),
                (0, "0", Some("2"), Some("yes")),
                (0, "0", Some("3"), None),
                (1, "1", None, None),
                (2, "2", None, None),
            ]
        );
    }
    let some = parse("some.ndjson");
    assert_eq!(some.len(), LINES);
    assert!(
        some.iter().enumerate().all(|(i, r)| r["payload"]["after"]["id"] == i && r["metadata"]["clone.index"] == "0")
    );
}

#[test]
fn split_and_clone_need_the_flag() {
    let workspace = Workspace::new();
    workspace.write("in.txt", "{}\n");
    workspace.write("pipelines/p.yaml", PIPELINE);
    let output = workspace.run(&["pipelines", "validate", "--no-color"]).expect_code(2);
    let text = output.both();
    assert!(text.contains("--preview.pipeline-arch-v2"), "{text}");
    assert!(text.contains("p.yaml:20:"), "{text}");
    assert!(text.contains("p.yaml:22:"), "{text}");
    assert!(!workspace.path("all.ndjson").exists());
    workspace.run(&["run", "--once"]).expect_code(2);
    workspace.run(&["pipelines", "validate", "--preview.pipeline-arch-v2"]).expect_code(0);
}

#[test]
fn several_sources_and_destinations_share_processors() {
    let workspace = Workspace::new();
    workspace.write("a.txt", numbered_lines(3_000));
    workspace.write("b.txt", numbered_lines(2_000));
    workspace.write(
        "pipelines/p.yaml",
        r#"
version: "2.2"
pipelines:
  - id: many
    connectors:
      - { id: a, type: source, plugin: file, settings: { path: a.txt } }
      - id: b
        type: source
        plugin: file
        settings: { path: b.txt }
        processors:
          - { id: tag, plugin: field.set, settings: { field: .Metadata.tag, value: from-b } }
      - { id: x, type: destination, plugin: file, settings: { path: x.ndjson } }
      - { id: y, type: destination, plugin: file, settings: { path: y.ndjson, sdk.record.format: template, sdk.record.format.options: '{{ index .Metadata "svc.source.connector.id" }}' } }
    processors:
      - { id: shared, plugin: field.set, settings: { field: .Metadata.shared, value: "1" } }
"#,
    );
    workspace.once();
    let mut last: BTreeMap<String, i64> = BTreeMap::new();
    let x = workspace.lines("x.ndjson");
    assert_eq!(x.len(), 5_000);
    for line in &x {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(record["metadata"]["shared"], "1");
        let source = record["metadata"]["svc.source.connector.id"].as_str().unwrap().to_owned();
        assert_eq!(record["metadata"]["tag"].as_str(), (source == "many:b").then_some("from-b"));
        let number: i64 = crate::process::raw_after(line).trim_start_matches("line ").parse().unwrap();
        assert_eq!(number, last.get(&source).map_or(0, |n| n + 1), "order within {source}");
        last.insert(source, number);
    }
    let y = workspace.lines("y.ndjson");
    assert_eq!(y.iter().filter(|l| *l == "many:a").count(), 3_000);
    assert_eq!(y.iter().filter(|l| *l == "many:b").count(), 2_000);
}
