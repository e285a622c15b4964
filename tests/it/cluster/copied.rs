//! The state of one service becomes that of a cluster, and the other way round.

use std::collections::BTreeSet;

use super::split::generated;
use super::{Node, counts, places, wait_for};
use crate::api::end;
use crate::process::Workspace;
use crate::servers::postgres::Database;

/// In each part, the pipeline is stopped between records. With `exactlyOnce`, a record that came twice would be there twice.
#[test]
fn a_service_becomes_a_cluster_and_a_service_again() {
    let Some(database) = Database::create() else { return };
    database.query("CREATE TABLE p (id text, v bigint)");
    let pipelines = generated("p", "rate: \"1500\"", "exactlyOnce: \"true\"");
    let mut alone = Workspace::new();
    alone.env("DATABASE", &database.url());
    alone.env("CLUSTER", &database.url());
    alone.write("pipelines/p.yaml", format!("version: \"2.2\"\npipelines:\n{pipelines}"));
    let service = alone.start(&["run"]);
    wait_for("the first rows", || counts(&database, "p").0 > 1_000);
    let to_cluster = ["store", "copy", "--to", "${CLUSTER}"];
    let in_use = alone.run(&to_cluster).expect_code(3).both();
    assert!(in_use.contains("is in use by process"), "{in_use}");
    end(service);
    let copied = alone.run(&to_cluster).expect_code(0).both();
    assert!(copied.contains("Copied 1 pipeline, 16 positions") && copied.contains("Do not start"), "{copied}");
    let again = alone.run(&to_cluster).expect_code(2).both();
    assert!(again.contains("has contents already"), "{again}");

    let nodes = ["a", "b"].map(|name| Node::new(name, &database, &pipelines));
    let before = counts(&database, "p").0;
    let each_runs = || {
        let nodes: BTreeSet<String> = places(&database).into_iter().collect();
        nodes == ["a".to_owned(), "b".to_owned()].into() && counts(&database, "p").0 > before + 1_000
    };
    wait_for("rows of both nodes", each_runs);
    let back = |node: &Node| node.workspace.run(&["store", "copy", "--to", "back.db"]);
    let in_use = back(&nodes[0]).expect_code(3).both();
    assert!(in_use.contains("stop all nodes"), "{in_use}");
    let [a, b] = nodes;
    end(a.process);
    end(b.process);
    let copied = a.workspace.run(&["store", "copy", "--to", "back.db"]).expect_code(0).both();
    assert!(copied.contains("to back.db"), "{copied}");
    a.workspace.run(&["store", "copy", "--to", "back.db"]).expect_code(2);

    // The last part has an end, which is after all that the others have delivered.
    let last: usize = database.query("SELECT max(id::int) FROM p")[0].parse().unwrap();
    let rows = last + 2_000;
    let ending = pipelines.replace("rate: \"1500\"", &format!("recordCount: \"{rows}\""));
    alone.write("pipelines/p.yaml", format!("version: \"2.2\"\npipelines:\n{ending}"));
    let path = format!("--db.path={}", a.workspace.path("back.db").display());
    alone.run(&["run", "--once", &path]).expect_code(0);
    assert_eq!(counts(&database, "p"), (rows, rows));
}
