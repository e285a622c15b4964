//! Replicas of a partition: the nearest one, and one that lacks records and becomes leader.

use serde_json::json;

use super::pipeline;
use crate::api::get;
use crate::process::Workspace;
use crate::servers::kafka_cluster::{Cluster, cluster, rack};

/// Produces `count` messages to the only partition of a topic.
fn produce(cluster: &Cluster, topic: &str, count: usize) {
    cluster.judge().ask("bulk", &json!({ "topic": topic, "count": count, "partitions": 1 }));
}

/// A pipeline from a topic to the file `out.txt`.
fn to_file(cluster: &Cluster, topic: &str, more: &str) -> String {
    let source = format!(
        "plugin: kafka, settings: {{ servers: '{}', topics: {topic}, groupID: {topic}, readFromBeginning: true{more} }}",
        cluster.addresses()
    );
    pipeline("p", &source, "plugin: file, settings: { path: out.txt, sdk.record.format: recfmt/raw }")
}

#[test]
fn records_are_read_from_the_replica_in_the_rack_of_the_service() {
    let Some((cluster, _turn)) = cluster() else { return };
    let topic = cluster.topic("near", 1, &json!({}));
    produce(cluster, &topic, 1000);
    let near = cluster.leader(&topic, 0) % cluster.replicas(&topic, 0).len() + 1;
    let mut workspace = Workspace::new();
    workspace.env("ANABRANCH_LOG_LEVEL", "debug");
    workspace.write("pipelines/p.yaml", to_file(cluster, &topic, &format!(", rack: {}", rack(near))));
    let output = workspace.once().both();
    assert_eq!(workspace.lines("out.txt").len(), 1000);
    let line = output.lines().find(|line| line.contains("the nearest replica")).unwrap_or_else(|| panic!("{output}"));
    assert!(line.contains(&format!("broker={near}")), "{line}");
}

/// The only replica in sync fails, and the other one becomes leader without the last records. What follows has their
/// offsets: it must not be taken for what was to be read next.
#[test]
fn records_that_an_unclean_election_removes_are_a_gap() {
    let Some((cluster, _turn)) = cluster() else { return };
    let config = json!({ "unclean.leader.election.enable": "true", "min.insync.replicas": "1" });
    let topic = cluster.topic_with("unclean", 1, 2, &config);
    let leader = cluster.leader(&topic, 0);
    let follower = cluster.replicas(&topic, 0).into_iter().find(|node| *node != leader).unwrap();
    produce(cluster, &topic, 100);
    let workspace = Workspace::new();
    workspace.write("pipelines/p.yaml", to_file(cluster, &topic, ""));
    let mut process = workspace.start(&["run"]);
    let address = process.address();
    process.wait_until("the first records", || workspace.lines("out.txt").len() == 100);
    cluster.kill(follower);
    // Confirmed by the leader alone, as soon as it does not wait for the other any more.
    produce(cluster, &topic, 50);
    process.wait_until("the records of the leader", || workspace.lines("out.txt").len() == 150);
    cluster.kill(leader);
    cluster.restart(follower);
    while cluster.leader(&topic, 0) != follower {}
    produce(cluster, &topic, 80);
    let state = || get(address, "/v1/pipelines/p").json()["state"].to_string();
    process.wait_until("the gap", || state().contains("unclean leader election"));
    assert!(state().contains("offset 100"), "{}", state());
    assert_eq!(workspace.lines("out.txt").len(), 150, "nothing behind the gap is read");
    process.signal("TERM");
    process.finish();
    cluster.repair();
    cluster.await_health();
}
