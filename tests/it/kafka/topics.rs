//! Topics that lose or change records while a pipeline copies them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{pipeline, values};
use crate::api::get;
use crate::process::{PATIENCE, Process, Workspace};
use crate::servers::kafka::{Broker, broker};

/// Time between two looks, each of which starts a client.
const PAUSE: Duration = Duration::from_millis(300);

/// A pipeline `p` that copies a topic.
fn copy(broker: &Broker, from: &str, to: &str, more: &str, exact: bool) -> Workspace {
    let mut workspace = Workspace::new();
    workspace.env("ANABRANCH_PIPELINES_ERROR_RECOVERY_MIN_DELAY", "100ms");
    workspace.env("ANABRANCH_PIPELINES_ERROR_RECOVERY_MAX_DELAY", "1s");
    let address = broker.address();
    let source = format!(
        "plugin: kafka, settings: {{ servers: '{address}', topics: {from}, groupID: {from}, readFromBeginning: true, \
         sessionTimeout: 6s, commitOffsetsDelay: 200ms{more} }}"
    );
    let exactly = if exact { format!(", exactlyOnce: true, exactlyOnce.transactionalID: {to}") } else { String::new() };
    let destination = format!(
        "plugin: kafka, settings: {{ servers: '{address}', topic: {to}, sdk.record.format: recfmt/raw{exactly} }}"
    );
    workspace.write("pipelines/p.yaml", pipeline("p", &source, &destination));
    workspace
}

/// Produces numbers as values.
fn produce(broker: &Broker, topic: &str, numbers: std::ops::Range<usize>) {
    let message = |n: usize| json!({ "value": base64(&n.to_string()), "partition": 0 });
    let messages: Vec<Value> = numbers.map(message).collect();
    broker.judge("produce", &json!({ "topic": topic, "messages": messages }));
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// Waits until the copy has so many messages.
#[track_caller]
fn await_copied(broker: &Broker, process: &Process, to: &str, count: usize) -> Vec<usize> {
    let begun = Instant::now();
    loop {
        let copied = values(broker, to);
        if copied.len() >= count {
            return copied;
        }
        assert!(begun.elapsed() < PATIENCE, "{copied:?}\n{}", process.printed()());
        std::thread::sleep(PAUSE);
    }
}

/// Waits until the pipeline has failed for good, and returns what the API says of it.
#[track_caller]
fn await_degraded(process: &mut Process) -> String {
    let address = process.address();
    let mut said = String::new();
    process.wait_until("the failure", || {
        said = get(address, "/v1/pipelines/p").body;
        serde_json::from_str::<Value>(&said).unwrap()["state"]["word"] == "degraded"
    });
    said
}

fn delete(broker: &Broker, topic: &str) {
    broker.judge("delete", &json!({ "topic": topic }));
    while broker.judge("describe", &json!({ "topic": topic })) != Value::Null {}
}

#[test]
fn records_that_expire_before_they_are_read_are_a_gap() {
    let Some(broker) = broker() else { return };
    let (from, to) = (broker.topic("expired", 1, &json!({})), broker.topic("copy", 1, &json!({})));
    let workspace = copy(broker, &from, &to, "", false);
    produce(broker, &from, 0..10);
    workspace.once();
    produce(broker, &from, 10..20);
    broker.judge("delete_records", &json!({ "topic": from, "before": 15 }));
    let said = await_degraded(&mut workspace.start(&["run"]));
    assert!(said.contains("has the offset 10") && said.contains("onGap: continue"), "{said}");
    assert_eq!(values(broker, &to), (0..10).collect::<Vec<_>>());

    // The same positions, and the missing records are counted.
    let other = copy(broker, &from, &to, ", onGap: continue", false);
    workspace.write("pipelines/p.yaml", other.read("pipelines/p.yaml"));
    let mut process = workspace.start(&["run"]);
    let expected: Vec<usize> = (0..10).chain(15..20).collect();
    assert_eq!(await_copied(broker, &process, &to, 15), expected);
    let address = process.address();
    let mut next = 20;
    process.wait_until("the count", || {
        // The engine asks a source at most once in a second, and only while records arrive.
        std::thread::sleep(Duration::from_secs(1));
        produce(broker, &from, next..next + 1);
        next += 1;
        let metrics = get(address, "/metrics").body;
        metrics.lines().any(|line| line == "anabranch_source_missed_total{pipeline=\"p\",connector=\"in\"} 5")
    });
}

#[test]
fn a_topic_that_is_created_again_while_it_is_read_is_a_gap() {
    let Some(broker) = broker() else { return };
    let (from, to) = (broker.topic("recreated", 1, &json!({})), broker.topic("copy", 1, &json!({})));
    let workspace = copy(broker, &from, &to, "", false);
    produce(broker, &from, 0..10);
    let mut process = workspace.start(&["run"]);
    await_copied(broker, &process, &to, 10);
    delete(broker, &from);
    broker.judge("create", &json!({ "topic": from }));
    // As many as before, and more: the next offset exists, with another record.
    produce(broker, &from, 100..120);
    let said = await_degraded(&mut process);
    assert!(said.contains("created again") && said.contains("onGap: continue"), "{said}");
    assert_eq!(values(broker, &to), (0..10).collect::<Vec<_>>(), "nothing of the new topic is skipped");
}

#[test]
fn a_topic_that_is_created_again_is_read_from_its_start_if_gaps_are_allowed() {
    let Some(broker) = broker() else { return };
    let (from, to) = (broker.topic("again", 1, &json!({})), broker.topic("copy", 1, &json!({})));
    let workspace = copy(broker, &from, &to, ", onGap: continue", true);
    produce(broker, &from, 0..10);
    let process = workspace.start(&["run"]);
    await_copied(broker, &process, &to, 10);
    delete(broker, &from);
    broker.judge("create", &json!({ "topic": from }));
    produce(broker, &from, 100..120);
    let expected: Vec<usize> = (0..10).chain(100..120).collect();
    assert_eq!(await_copied(broker, &process, &to, 30), expected);
}

#[test]
fn aborted_transactions_and_compaction_upstream_leave_no_gap() {
    let Some(broker) = broker() else { return };
    let config = json!({
        "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "100", "max.compaction.lag.ms": "100",
    });
    let (from, to) = (broker.topic("compacted", 1, &config), broker.topic("copy", 1, &json!({})));
    let workspace = copy(broker, &from, &to, "", true);
    let produce = |n: usize, end: &str| {
        let message = |n: usize| json!({ "key": base64("key"), "value": base64(&n.to_string()), "partition": 0 });
        let messages: Vec<Value> = (n * 10..n * 10 + 10).map(message).collect();
        broker.judge("produce", &json!({ "topic": from, "transaction": end, "messages": messages, "id": from }));
    };
    // Each third transaction is aborted.
    let end = |n: usize| if n % 3 == 1 { "abort" } else { "commit" };
    (0..4).for_each(|n| produce(n, end(n)));
    let mut process = workspace.start(&["run"]);
    let before: Vec<usize> = (0..10).chain(20..40).collect();
    let copied = await_copied(broker, &process, &to, 1);
    assert!(copied.iter().all(|n| before.contains(n)), "{copied:?}");
    process.signal("KILL");
    process.wait_for_end();

    // Compaction removes records before and after the position. It needs a new segment, which a new record begins.
    let mut n = 4;
    let begun = Instant::now();
    while broker.consume(&from).len() > 30 {
        produce(n, end(n));
        n += 1;
        assert!(begun.elapsed() < PATIENCE, "the topic is not compacted");
    }
    produce(n, "commit");
    let process = workspace.start(&["run"]);
    let begun = Instant::now();
    let copied = loop {
        let copied = values(broker, &to);
        if copied.last() == Some(&(n * 10 + 9)) {
            break copied;
        }
        assert!(begun.elapsed() < PATIENCE, "{copied:?}\n{}", process.printed()());
        std::thread::sleep(PAUSE);
    };
    // What compaction has left is there once, in order, and nothing is of an aborted transaction.
    assert!(copied.is_sorted_by(|a, b| a < b), "{copied:?}");
    assert!(copied.iter().all(|number| *number >= n * 10 || end(number / 10) == "commit"), "{copied:?}");
}
