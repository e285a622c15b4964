//! Nodes that reach their store through a transaction-pooling proxy.

use super::{Node, counts, each_has, lines, pipeline, wait_for};
use crate::api::end;
use crate::process::Workspace;
use crate::servers::pgbouncer::Pooler;
use crate::servers::postgres::Database;

#[test]
fn a_cluster_works_through_a_transaction_pooler() {
    const ROWS: usize = 6_000;
    let Some(database) = Database::create() else { return };
    let Some(pooler) = Pooler::start(&database) else { return };
    let input = Workspace::new();
    let file = input.write("in.txt", lines(ROWS));
    let mut pipelines = String::new();
    for id in ["p1", "p2", "p3", "p4"] {
        database.query(&format!("CREATE TABLE {id} (id int)"));
        pipelines += &pipeline(id, &file, "exactlyOnce: \"true\"");
    }
    let mut nodes = ["a", "b"].map(|name| {
        let mut workspace = Workspace::new();
        workspace.env("ANABRANCH_CLUSTER_URL", pooler.url());
        workspace.env("ANABRANCH_CLUSTER_NODE", name);
        workspace.env("ANABRANCH_DB_WAIT", "30s");
        // Destinations have settings of their session, which a pooler that shares connections does not keep.
        workspace.env("DATABASE", &database.url());
        workspace.write("pipelines/p.yaml", format!("version: \"2.2\"\npipelines:\n{pipelines}"));
        Node::start(workspace)
    });
    wait_for("equal shares", || each_has(&database, &[("a", 2), ("b", 2)]));
    nodes[0].process.signal("KILL");
    wait_for("the units of a", || each_has(&database, &[("a", 0), ("b", 4)]));
    nodes[0].restart();
    wait_for("equal shares again", || each_has(&database, &[("a", 2), ("b", 2)]));
    for table in ["p1", "p2", "p3", "p4"] {
        wait_for("the rows", || counts(&database, table).1 == ROWS);
        assert_eq!(counts(&database, table), (ROWS, ROWS), "{table}");
    }
    nodes.into_iter().for_each(|node| end(node.process));
    assert!(pooler.port() > 0);
}
