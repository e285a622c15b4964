//! Two services with the pipeline, the consumer group and the transactional id of one: the second takes over while the first
//! is stopped, and the first does no harm when it continues.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use super::checker::{Sequences, compare};
use super::{delivered, pipeline};
use crate::api::get;
use crate::process::Workspace;
use crate::servers::kafka_cluster::cluster;

const KEYS: u64 = 30;
const PARTITIONS: u32 = 3;

#[test]
fn a_service_that_was_stopped_writes_nothing_after_another_has_taken_over() {
    let Some((cluster, _turn)) = cluster() else { return };
    let from = cluster.topic("zombie-from", PARTITIONS, &json!({}));
    let to = cluster.topic("zombie-to", PARTITIONS, &json!({}));
    let source = format!(
        "plugin: kafka, settings: {{ servers: '{servers}', topics: {from}, groupID: {from}, readFromBeginning: true, \
         sessionTimeout: 6s, commitOffsetsDelay: 500ms }}",
        servers = cluster.addresses()
    );
    let destination = format!(
        "plugin: kafka, settings: {{ servers: '{servers}', topic: {to}, sdk.record.format: recfmt/raw, exactlyOnce: true, \
         exactlyOnce.transactionalID: {to} }}",
        servers = cluster.addresses()
    );
    let services: [Workspace; 2] = std::array::from_fn(|_| Workspace::new());
    for workspace in &services {
        workspace.write("pipelines/p.yaml", pipeline("p", &source, &destination));
    }
    let given = json!({ "topic": from, "prefix": "k", "keys": KEYS, "rate": 500, "base": 0, "partitions": PARTITIONS });
    let mut producer = cluster.judge().start("fill", &given);

    let mut first = services[0].start(&["run"]);
    let address = first.address();
    first.wait_until("the first records", || delivered(address) > 0.0);
    first.signal("STOP");
    // The session of the first service ends, and the second one receives its partitions.
    let mut second = services[1].start(&["run"]);
    let begun = std::time::Instant::now();
    let address_of_second = second.address();
    while delivered(address_of_second) == 0.0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "the second service takes nothing over");
        std::thread::sleep(Duration::from_millis(50));
    }
    first.signal("CONT");
    first.wait_until("the end of the first run", || {
        get(address, "/v1/pipelines/p").json()["state"].to_string().contains("a later run uses it")
    });
    let before = delivered(address_of_second);

    drop(producer.stdin.take());
    let output = producer.wait_with_output().unwrap();
    assert!(output.status.success(), "not everything was produced");
    let count: u64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    let given = json!({ "group": from, "topic": from, "patience": 60 });
    cluster.judge().ask("await_commits", &given);
    assert!(delivered(address_of_second) > before, "the second service was disturbed");
    for process in [first, second] {
        process.signal("TERM");
        process.finish();
    }
    let found: Sequences = serde_json::from_value(cluster.judge().ask("sequences", &json!({ "topic": to }))).unwrap();
    let produced: BTreeMap<String, u64> = (0..KEYS).map(|key| (format!("k{key}"), count)).collect();
    compare(&found, &produced).check(0, "exactly once");
}
