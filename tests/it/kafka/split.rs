//! The partitions of a topic over the nodes of a cluster.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::api::end;
use crate::process::{Process, Workspace};
use crate::servers::kafka::broker;
use crate::servers::postgres::Database;

const PARTITIONS: u32 = 8;

fn node(name: &str, database: &Database, pipeline: &str) -> (Workspace, Process) {
    let mut workspace = Workspace::new();
    workspace.env("ANABRANCH_CLUSTER_URL", &database.url());
    workspace.env("ANABRANCH_CLUSTER_NODE", name);
    workspace.env("ANABRANCH_PIPELINES_ERROR_RECOVERY_MIN_DELAY", "100ms");
    workspace.write("pipelines/p.yaml", pipeline);
    let process = workspace.start(&["run"]);
    (workspace, process)
}

fn count(database: &Database, what: &str) -> usize {
    database.query(&format!("SELECT count({what}) FROM copy"))[0].parse().unwrap()
}

fn wait_for(what: &str, nodes: &[&Process], mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        let printed = || nodes.iter().map(|node| node.printed()()).collect::<Vec<_>>().join("\n\n");
        assert!(begun.elapsed() < Duration::from_secs(60), "waited too long for {what}: {}", printed());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn nodes_share_the_partitions_of_a_topic_exactly_once() {
    const ROWS: usize = 40_000;
    let (Some(broker), Some(database)) = (broker(), Database::create()) else { return };
    database.query("CREATE TABLE copy (n bigint)");
    let topic = broker.topic("shared", PARTITIONS, &json!({}));
    // The producer spreads the records over the partitions.
    let filler = Workspace::new();
    filler.write("in.txt", (0..ROWS).map(|n| format!("{{\"n\":{n}}}\n")).collect::<String>());
    filler.write(
        "pipelines/p.yaml",
        super::pipeline(
            "fill",
            "plugin: file, settings: { path: in.txt }",
            &format!(
                "plugin: kafka, settings: {{ servers: '{}', topic: {topic}, sdk.record.format: recfmt/raw, batchBytes: 4096 }}",
                broker.address()
            ),
        ),
    );
    filler.once();
    let copy = super::pipeline(
        "copy",
        &format!(
            "plugin: kafka, settings: {{ servers: '{}', topics: {topic}, groupID: {topic}, readFromBeginning: true }}",
            broker.address()
        ),
        &format!(
            "plugin: postgres, settings: {{ url: '{}', table: copy, exactlyOnce: true, sdk.rate.perSecond: 4000, \
             sdk.batch.size: 100 }}",
            database.url()
        ),
    ) + "    processors:\n      - { id: decode, plugin: json.decode, settings: { field: .Payload.After } }\n      \
         - { id: bare, plugin: field.exclude, settings: { fields: .Key } }\n";
    let (_a_files, a) = node("a", &database, &copy);
    wait_for("the first rows", &[&a], || count(&database, "*") > 500);
    let (b_files, mut b) = node("b", &database, &copy);
    let both = "SELECT count(DISTINCT owner) FROM anabranch_kv_store_unit WHERE pipeline = 'copy'";
    wait_for("a share of each", &[&a, &b], || database.query(both) == ["2"]);
    let reads = |node: &Process| node.printed()().matches("this node runs the slots").count() > 0;
    wait_for("slots of b", &[&a, &b], || reads(&b));
    b.signal("KILL");
    b.wait_for_end();
    wait_for("the slots of b", &[&a], || database.query(both) == ["1"]);
    let mut b = b_files.start(&["run"]);
    wait_for("a share of each again", &[&a, &b], || database.query(both) == ["2"]);
    wait_for("all rows", &[&a, &b], || count(&database, "DISTINCT n") == ROWS);
    assert_eq!(count(&database, "*"), ROWS, "no record is there twice");
    // Nobody is a member of the group, and its offsets show what was read.
    b.wait_until("the committed offsets", || {
        let group = broker.judge("offsets", &json!({ "group": topic, "topic": topic }));
        let committed = group.as_object().into_iter().flatten().filter_map(|(_, offset)| offset.as_u64());
        committed.sum::<u64>() == ROWS as u64
    });
    for node in [a, b] {
        end(node);
    }
}
