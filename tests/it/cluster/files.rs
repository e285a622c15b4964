//! Files of a pattern, which spread over nodes that see the same directory.

use std::collections::BTreeSet;

use super::split::shares;
use super::{Node, counts, wait_for, wait_for_ids};
use crate::api::end;
use crate::process::Workspace;
use crate::servers::postgres::Database;

const FILES: usize = 24;

/// A pipeline from the files of a directory to a table.
fn files_to_table(directory: &Workspace, placement: &str) -> String {
    format!(
        r#"  - id: p
{placement}
    connectors:
      - {{ id: in, type: source, plugin: file, settings: {{ path: "{}/in/**/*.log", pollingPeriod: 100ms }} }}
      - id: out
        type: destination
        plugin: postgres
        settings: {{ url: "${{DATABASE}}", table: p, sdk.batch.size: 20, exactlyOnce: "true" }}
    processors:
      - {{ id: decode, plugin: json.decode, settings: {{ field: .Payload.After }} }}
      - {{ id: file, plugin: field.set, settings: {{ field: .Payload.After.file, value: '{{{{ index .Metadata "file.path" }}}}' }} }}
      - {{ id: bare, plugin: field.exclude, settings: {{ fields: .Key }} }}
"#,
        directory.root().display()
    )
}

const SHARED: &str = "    placement: shared";

/// Appends records with the ids of a range, in turn to each file.
fn append(input: &Workspace, ids: std::ops::Range<usize>) {
    let mut texts = vec![String::new(); FILES];
    for id in ids {
        texts[id % FILES] += &format!("{{\"id\":{id}}}\n");
    }
    for (file, text) in texts.iter().enumerate() {
        let name = format!("in/{}/{file}.log", file % 3);
        std::fs::create_dir_all(input.path(&name).parent().unwrap()).unwrap();
        let was = input.read(&name);
        // Files that grow, as the source sees them.
        if was.is_empty() { drop(input.write(&name, text)) } else { input.append(&name, text) }
    }
}

#[test]
fn the_files_of_a_pattern_spread_over_nodes_and_each_record_is_written_once() {
    let Some(database) = Database::create() else { return };
    let input = Workspace::new();
    database.query("CREATE TABLE p (id int, file text)");
    let pipelines = files_to_table(&input, SHARED);
    append(&input, 0..1_200);
    let mut nodes = ["a", "b"].map(|name| Node::new(name, &database, &pipelines));
    let spread = || shares(&database, "p") == ["a:4", "b:4"];
    wait_for("slots of both nodes", spread);
    wait_for_ids(1_200, "p", &database, &nodes);
    append(&input, 1_200..2_400);
    wait_for_ids(2_400, "p", &database, &nodes);

    // Each node has files open that the other one has not.
    let open = |node: &Node| -> BTreeSet<usize> {
        (0..FILES).filter(|file| node.process.has_open(&input.path(&format!("in/{}/{file}.log", file % 3)))).collect()
    };
    let (of_a, of_b) = (open(&nodes[0]), open(&nodes[1]));
    assert!(!of_a.is_empty() && !of_b.is_empty() && of_a.is_disjoint(&of_b), "{of_a:?} {of_b:?}");
    assert_eq!(of_a.len() + of_b.len(), FILES);

    // One is killed while there is much to read.
    append(&input, 2_400..12_000);
    wait_for("some of them", || counts(&database, "p").1 > 2_600);
    nodes[0].process.signal("KILL");
    wait_for_ids(12_000, "p", &database, &nodes[1..]);
    nodes[0].restart();
    wait_for("slots of both nodes again", spread);
    append(&input, 12_000..12_240);
    wait_for_ids(12_240, "p", &database, &nodes);
    assert_eq!(counts(&database, "p"), (12_240, 12_240));
    nodes.into_iter().for_each(|node| end(node.process));
}

#[test]
fn nodes_share_the_files_of_a_pattern_only_if_they_see_the_same_files() {
    let mut workspace = Workspace::new();
    workspace.env("DATABASE", "postgresql://127.0.0.1:1/x");
    let cluster = ["pipelines", "plan", "--cluster.url", "postgresql://127.0.0.1:1/x"];
    let several = |placement: &str| format!("version: \"2.2\"\npipelines:\n{}", files_to_table(&workspace, placement));
    let one = several(SHARED).replace("**/*.log", "one.log");
    let (shared, whole) = ("the nodes share the partitions", "one node at a time runs the whole pipeline");
    for (text, says, says_not) in [(several(SHARED), shared, whole), (one, whole, shared)] {
        workspace.write("pipelines/p.yaml", text);
        let printed = workspace.run(&cluster).expect_code(0).both();
        assert!(printed.contains(says) && !printed.contains(says_not), "{printed}");
    }
    workspace.write("pipelines/p.yaml", several(""));
    let refused = workspace.run(&cluster).both();
    assert!(refused.contains("plan.no_placement"), "{refused}");
}
