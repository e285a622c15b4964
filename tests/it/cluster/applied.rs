//! `anabranch cluster apply`: a set of files for all nodes.

use serde_json::json;

use super::{Node, counts, lines, pipeline, wait_for};
use crate::api::{ask, end};
use crate::process::Workspace;
use crate::servers::postgres::Database;

fn set(pipelines: &[String]) -> String {
    format!("version: \"2.2\"\npipelines:\n{}", pipelines.concat())
}

/// Pipelines that have units.
fn wanted(database: &Database) -> Vec<String> {
    database.query("SELECT DISTINCT pipeline FROM anabranch_kv_store_unit ORDER BY pipeline")
}

#[test]
fn a_set_of_files_replaces_another_on_all_nodes_and_comes_back_where_it_was() {
    const ROWS: usize = 20;
    let Some(database) = Database::create() else { return };
    let input = Workspace::new();
    let file = input.write("in.txt", lines(ROWS));
    for table in ["p1", "p2", "p3"] {
        database.query(&format!("CREATE TABLE {table} (id int)"));
    }
    let [p1, p2, p3] = ["p1", "p2", "p3"].map(|id| pipeline(id, &file, ""));
    let old = [p1.clone(), p2.clone()];
    let [mut a, mut b] = ["a", "b"].map(|name| Node::new(name, &database, &old.concat()));
    wait_for("all rows", || ["p1", "p2"].iter().all(|table| counts(&database, table) == (ROWS, ROWS)));

    let laptop = Workspace::new();
    laptop.write("new/all.yaml", set(&[p1.replace("id: p1\n", "id: p1\n    description: changed\n"), p3]));
    laptop.write("old/all.yaml", set(&old));
    let to = format!("--api.http.address={}", a.process.address());
    let apply = |arguments: &[&str]| laptop.run(&[&["cluster", "apply", &to], arguments].concat());
    apply(&["old", "--check"]).expect_code(0);
    let planned = apply(&["new", "--check"]).expect_code(4).both();
    for part in ["Pipeline p1: 1 change", "+ pipeline p3", "- pipeline p2 is in none of the files", "Hash: "] {
        assert!(planned.contains(part), "{part}: {planned}");
    }
    let stale = apply(&["new", "--plan-hash", "0000"]).expect_code(2).both();
    assert!(stale.contains("not those of the plan"), "{stale}");
    laptop.write("bad/all.yaml", set(&[pipeline("p4", &file, "").replace("plugin: postgres", "plugin: postgras")]));
    let bad = apply(&["bad", "--yes"]).expect_code(2).both();
    assert!(bad.contains("postgras"), "{bad}");
    assert_eq!(wanted(&database), ["p1", "p2"], "nothing was changed");

    let rereads = apply(&["new", "--yes"]).expect_code(2).both();
    assert!(rereads.contains("--accept-rereads"), "{rereads}");
    assert_eq!(wanted(&database), ["p1", "p2"], "nothing was changed");
    apply(&["new", "--yes", "--accept-rereads"]).expect_code(0);
    wait_for("the new pipeline", || counts(&database, "p3") == (ROWS, ROWS));
    wait_for("the end of the old one", || wanted(&database) == ["p1", "p3"]);
    for node in [&mut a, &mut b] {
        let address = node.process.address();
        wait_for("the change", || {
            ask(address, "GET", "/v1/pipelines/p1", "", "").json()["config"]["description"] == json!("changed")
        });
    }
    // A node that starts with the files from before does not undo it.
    b.process.signal("TERM");
    b.restart();
    let printed = b.process.printed();
    b.process.wait_until("its message", || printed().contains("are not imported"));
    assert_eq!(wanted(&database), ["p1", "p3"]);

    // Neither does a node without files.
    b.workspace.write("pipelines/p.yaml", "version: \"2.2\"\npipelines: []\n");
    b.process.signal("TERM");
    b.restart();
    let printed = b.process.printed();
    b.process.wait_until("its message", || printed().contains("has no pipeline files"));
    assert_eq!(wanted(&database), ["p1", "p3"]);

    input.append("in.txt", "{\"id\":20}\n");
    apply(&["old", "--yes"]).expect_code(0);
    wait_for("the old pipeline", || counts(&database, "p2") == (ROWS + 1, ROWS + 1));
    wait_for("its place", || wanted(&database) == ["p1", "p2"]);
    wait_for("the changed pipeline", || counts(&database, "p1").1 == ROWS + 1);
    assert_eq!(counts(&database, "p1").0, ROWS + 1, "it resumed after its position");
    end(a.process);
    end(b.process);
}
