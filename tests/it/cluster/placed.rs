//! Pipelines that run only on some nodes.

use serde_json::json;

use super::{Node, counts, lines, places, wait_for};
use crate::api::{end, get};
use crate::process::Workspace;
use crate::servers::postgres::Database;

fn placed(id: &str, file: &std::path::Path, placement: &str) -> String {
    super::pipeline(id, file, "").replacen("placement: shared", placement, 1)
}

#[test]
fn a_pipeline_runs_where_its_label_is() {
    let Some(database) = Database::create() else { return };
    let input = Workspace::new();
    let file = input.write("in.txt", lines(10));
    let mut pipelines = String::new();
    for id in ["p1", "p2", "p3"] {
        database.query(&format!("CREATE TABLE {id} (id int)"));
        pipelines += &placed(id, &file, "placement: disk");
    }
    let labelled = |name: &str, labels: &str, pipelines: &str| {
        let mut workspace = Workspace::new();
        workspace.env("ANABRANCH_CLUSTER_URL", &database.url());
        workspace.env("ANABRANCH_CLUSTER_NODE", name);
        workspace.env("ANABRANCH_CLUSTER_LABELS", labels);
        workspace.env("DATABASE", &database.url());
        workspace.write("pipelines/p.yaml", format!("version: \"2.2\"\npipelines:\n{pipelines}"));
        Node::start(workspace)
    };
    let mut a = labelled("a", "", &pipelines);
    let at_a = a.process.address();
    let waits = || get(at_a, "/v1/cluster").json()["units"].clone();
    wait_for("the units", || waits().as_array().is_some_and(|units| units.len() == 3));
    assert_eq!(waits()[0], json!({ "pipeline": "p1", "slot": 0, "label": "disk", "isEnding": false }));
    // More than its fair share, because no other node can run them.
    let b = labelled("b", "ssd, disk", &pipelines);
    wait_for("all of them on b", || places(&database) == ["b", "b", "b"]);
    wait_for("the rows", || counts(&database, "p3").0 == 10);
    // The label of a pipeline changes.
    let elsewhere = pipelines.replacen("placement: disk", "placement: cold", 1);
    let mut c = labelled("c", "cold", &elsewhere);
    wait_for("the first on c", || places(&database) == ["c", "b", "b"]);
    input.append("in.txt", "{\"id\":10}\n");
    wait_for("the row", || counts(&database, "p1").0 == 11);
    let shown = c.workspace.run(&["cluster", &format!("--api.http.address={}", c.process.address())]).expect_code(0);
    assert!(shown.stdout.contains("only on nodes with the label cold"), "{}", shown.stdout);
    for node in [a, b, c] {
        end(node.process);
    }
}

#[test]
fn a_pipeline_that_names_a_file_needs_a_placement() {
    let workspace = Workspace::new();
    let file = workspace.write("in.txt", "");
    let write = |placement: &str| {
        let text = placed("p", &file, placement);
        workspace.write("pipelines/p.yaml", format!("version: \"2.2\"\npipelines:\n{text}"));
    };
    let validate = |flags: &[&str]| {
        let arguments = [&["pipelines", "validate"][..], flags].concat();
        let mut command = workspace.command(arguments);
        command.env("DATABASE", "postgresql://127.0.0.1:1/x");
        crate::process::Process::spawn(&mut command).finish()
    };
    let node = ["--cluster.url", "postgresql://127.0.0.1:1/x"];
    write("description: a file");
    let refused = validate(&node).expect_code(2);
    assert!(refused.both().contains("plan.no_placement"), "{}", refused.both());
    assert!(refused.both().contains("pipelines/p.yaml:6:"), "{}", refused.both());
    validate(&[]).expect_code(0);
    for placement in ["placement: shared", "placement: disk"] {
        write(placement);
        validate(&node).expect_code(0);
    }
}
