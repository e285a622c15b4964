//! Columns of tables that change, and what becomes of their rows.

use serde_json::Value;

use super::server::{Database, Release};
use crate::letters::dlq;
use crate::process::Workspace;

/// Writes a pipeline that reads the table `t`.
fn pipeline(workspace: &Workspace, slot: &str, drift: &str) {
    let text = format!(
        "version: \"2.2\"\npipelines:\n  - id: p\n    connectors:\n      - {{ id: in, type: source, plugin: postgres, \
         settings: {{ url: '${{URL}}', tables: t, logrepl.slotName: {slot}, logrepl.publicationName: {slot}, \
         schemaDrift: {drift} }} }}\n      - {{ id: out, type: destination, plugin: file, settings: {{ path: out.ndjson, \
         sdk.record.format: opencdc/json }} }}\n    dead-letter-queue: {{ plugin: store, window-size: 0 }}\n"
    );
    workspace.write("pipelines/p.yaml", text);
}

/// The rows in the file, after the changes.
fn rows(workspace: &Workspace) -> Vec<Value> {
    let rows = workspace.lines("out.ndjson").into_iter();
    rows.map(|line| serde_json::from_str::<Value>(&line).unwrap()["payload"]["after"].clone()).collect()
}

#[test]
fn rows_with_other_columns_are_letters_that_can_be_replayed() {
    let Some(source) = Database::logical(Release::Installed) else { return };
    source.query("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)");
    let mut workspace = Workspace::new();
    workspace.env("URL", &source.url());
    pipeline(&workspace, source.name(), "dead-letter");
    workspace.run(&["run", "--once"]).expect_code(0);
    source.query("ALTER TABLE t ADD word text; INSERT INTO t VALUES (2, 'two')");
    workspace.run(&["run", "--once"]).expect_code(0);
    assert_eq!(rows(&workspace).len(), 1);
    let shown = workspace.run(&["dlq", "show", "p", "1"]).expect_code(0);
    assert!(shown.stdout.contains("the columns of the table public.t changed (new: word)"), "{}", shown.both());

    // Accepted, the row comes from the queue, and the next ones from the table.
    pipeline(&workspace, source.name(), "evolve");
    dlq(&workspace, &["replay", "p", "--all"], 0);
    source.query("INSERT INTO t VALUES (3, 'three')");
    workspace.run(&["run", "--once"]).expect_code(0);
    let expected = [r#"{"id":1}"#, r#"{"id":2,"word":"two"}"#, r#"{"id":3,"word":"three"}"#];
    assert_eq!(rows(&workspace), expected.map(|row| serde_json::from_str::<Value>(row).unwrap()));
}
