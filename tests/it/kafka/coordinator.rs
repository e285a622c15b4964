//! The transaction coordinator moves to a broker that did not run when the service last looked up the brokers.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{delivered, pipeline};
use crate::process::Workspace;
use crate::servers::kafka_cluster::cluster;

const PARTITIONS: u32 = 3;
/// Messages that are copied at a time.
const BATCH: u32 = 300;

#[test]
fn transactions_go_on_at_a_coordinator_that_has_come_back() {
    let Some((cluster, _turn)) = cluster() else { return };
    let from = cluster.topic("returned-from", PARTITIONS, &json!({}));
    let to = cluster.topic("returned-to", PARTITIONS, &json!({}));
    let servers = cluster.addresses();
    let source = format!(
        "plugin: kafka, settings: {{ servers: '{servers}', topics: {from}, groupID: {from}, readFromBeginning: true }}"
    );
    let destination = format!(
        "plugin: kafka, settings: {{ servers: '{servers}', topic: {to}, exactlyOnce: true, \
         exactlyOnce.transactionalID: {to} }}"
    );
    let workspace = Workspace::new();
    workspace.write("pipelines/p.yaml", pipeline("p", &source, &destination));
    let mut process = workspace.start(&["run"]);
    let address = process.address();
    let mut produced = 0;
    let mut copy_more = |what: &str| {
        cluster.judge().ask("bulk", &json!({ "topic": from, "count": BATCH, "partitions": PARTITIONS }));
        produced += BATCH;
        process.wait_until(what, || delivered(address) >= f64::from(produced));
    };
    copy_more("the first transaction");

    cluster.restore_transaction_coordinators();
    let coordinator = cluster.transaction_coordinator(&to);
    cluster.kill(coordinator);
    while cluster.transaction_coordinator(&to) == coordinator {}
    // The service learns that the broker does not run: it led a partition.
    copy_more("a transaction at another coordinator");
    cluster.restart(coordinator);
    cluster.await_health();
    cluster.restore_transaction_coordinators();
    while cluster.transaction_coordinator(&to) != coordinator {}
    // Nothing but the transaction leads to that broker.
    let moved = Instant::now();
    copy_more("a transaction at the first coordinator");
    assert!(moved.elapsed() < Duration::from_secs(60), "{:?}: {}", moved.elapsed(), process.printed()());
    process.signal("TERM");
    process.finish().expect_code(0);
}
