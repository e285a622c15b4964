//! The server of the store fails over to a standby that lacks its latest claims and positions.
//!
//! A check fails over once. `ANABRANCH_KILLS=20 cargo test --test it -- --nocapture cluster::failover` does it as often.

use super::{Feed, Node, counts, each_has, wait_for, wait_for_ids};
use crate::api::end;
use crate::fault_plan::number;
use crate::process::Workspace;
use crate::servers::postgres::{Database, Server};
use crate::servers::proxy::Proxy;

fn failovers() -> usize {
    number("ANABRANCH_KILLS").map_or(1, |failovers| failovers as usize)
}

#[test]
fn claims_that_a_failover_loses_are_made_again_and_nothing_is_doubled() {
    let (Some(mut primary), Some(database)) = (Server::start(&["wal_level = replica"]), Database::create()) else {
        return;
    };
    let input = Workspace::new();
    let file = input.write("in.txt", "");
    let feed = Feed::start(&file);
    let tables = ["p1", "p2", "p3", "p4"];
    let mut pipelines = String::new();
    for id in tables {
        database.query(&format!("CREATE TABLE {id} (id int)"));
        pipelines += &super::pipeline(id, &file, "exactlyOnce: \"true\"");
    }
    // The address that leads to the primary.
    let proxy = Proxy::start(primary.port());
    let store = format!("postgresql://postgres@127.0.0.1:{}/postgres", proxy.port);
    let mut nodes = ["a", "b"].map(|name| {
        let mut workspace = Workspace::new();
        workspace.env("ANABRANCH_CLUSTER_URL", &store);
        workspace.env("ANABRANCH_CLUSTER_NODE", name);
        workspace.env("ANABRANCH_PIPELINES_ERROR_RECOVERY_MIN_DELAY", "100ms");
        workspace.env("ANABRANCH_PIPELINES_ERROR_RECOVERY_MAX_DELAY", "500ms");
        workspace.env("DATABASE", &database.url());
        workspace.write("pipelines/p.yaml", format!("version: \"2.2\"\npipelines:\n{pipelines}"));
        Node::start(workspace)
    });
    let units = "SELECT coalesce(n.name, '') FROM anabranch_kv_store_unit u LEFT JOIN anabranch_kv_store_node n \
                 ON n.id = u.owner";
    for round in 0..failovers() {
        let have = |server: &Server, of: &[(&str, usize)]| {
            if server.query("SELECT to_regclass('anabranch_kv_store_unit')") == [""] {
                return false;
            }
            let places = server.query(units);
            of.iter().all(|(name, count)| places.iter().filter(|place| place == name).count() == *count)
        };
        wait_for("equal shares", || have(&primary, &[("a", 2), ("b", 2)]));
        let before = counts(&database, "p1").0;
        wait_for("rows", || counts(&database, "p1").0 > before);
        let standby = primary.standby();
        // From here on, the standby gets nothing: what follows is lost.
        standby.query("ALTER SYSTEM SET primary_conninfo = 'host=127.0.0.1 port=1'");
        standby.query("SELECT pg_reload_conf()");
        // Claims move.
        let moved = round % 2;
        nodes[moved].process.signal("KILL");
        let heir = if moved == 0 { "b" } else { "a" };
        wait_for("all units of one node", || have(&primary, &[(heir, 4)]));
        let before = counts(&database, "p1").0;
        wait_for("rows of the heir", || counts(&database, "p1").0 > before + 200);
        primary.kill();
        standby.promote();
        // The next standby gets a copy of this setting.
        standby.query("ALTER SYSTEM RESET primary_conninfo");
        proxy.lead_to(standby.port());
        primary = standby;
        wait_for("the new history", || nodes[1 - moved].process.printed()().matches("another server now").count() > 0);
        wait_for("all units again", || have(&primary, &[(heir, 4)]));
        nodes[moved].restart();
    }
    let rows = feed.end();
    for table in tables {
        wait_for_ids(rows, table, &database, &nodes);
        assert_eq!(counts(&database, table), (rows, rows), "{table}");
    }
    assert!(!each_has(&database, &[("a", 1)]), "the store is another server");
    nodes.into_iter().for_each(|node| end(node.process));
}
