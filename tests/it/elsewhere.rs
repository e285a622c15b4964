//! Files that were written for another service run here, and do the same.

use serde_json::Value;

use crate::process::{Workspace, file_to_file, numbered_lines};

/// Metadata as they are named there: set by a reference, read by a condition, a template and a function of maps.
const PROCESSORS: &str = r#"      - id: name
        plugin: field.set
        settings: { field: '.Metadata["opencdc.collection"]', value: '{{ print "orders" }}' }
      - id: read
        plugin: field.set
        condition: '{{ eq (index .Metadata "opencdc.collection") "orders" }}'
        settings: { field: .Metadata.from, value: '{{ index .Metadata "conduit.source.connector.id" }}' }
      - id: others
        plugin: filter
        condition: '{{ if eq (index $.Metadata "opencdc.collection") "orders" }}false{{ else }}true{{ end }}'
"#;

fn metadata(workspace: &Workspace) -> Vec<Value> {
    let record = |line: &String| serde_json::from_str::<Value>(line).unwrap()["metadata"].take();
    let mut all: Vec<Value> = workspace.lines("out.ndjson").iter().map(record).collect();
    for entries in &mut all {
        entries.as_object_mut().unwrap().remove("recfmt.readAt");
    }
    all
}

#[test]
fn metadata_by_names_of_another_service_are_ours() {
    let run = |fixed: bool| {
        let workspace = Workspace::new();
        workspace.write("in.txt", numbered_lines(3));
        workspace.write("pipelines/p.yaml", file_to_file("p", PROCESSORS));
        let noted = workspace.run(&["pipelines", "validate"]).expect_code(0).both();
        assert!(noted.contains("\"opencdc.collection\" is read as \"recfmt.collection\""), "{noted}");
        if fixed {
            workspace.run(&["pipelines", "validate", "--fix"]).expect_code(0);
            let silent = workspace.run(&["pipelines", "validate", "--strict"]).expect_code(0).both();
            assert!(!silent.contains("warning["), "{silent}");
        } else {
            workspace.run(&["pipelines", "validate", "--strict"]).expect_code(2);
        }
        workspace.once().expect_code(0);
        metadata(&workspace)
    };
    let theirs = run(false);
    assert_eq!(theirs.len(), 3);
    for entries in &theirs {
        assert_eq!((&entries["recfmt.collection"], &entries["from"]), (&"orders".into(), &"p:in".into()), "{entries}");
        assert!(entries.get("opencdc.collection").is_none(), "{entries}");
    }
    assert_eq!(theirs, run(true), "the same file by our names does the same");
}
