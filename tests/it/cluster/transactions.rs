//! Pipelines that the nodes share, with a Kafka destination that writes records and positions in transactions.
//!
//! A check strikes the nodes once in each way. `ANABRANCH_KILLS=20` does it as often.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{Node, each_has, places, wait_for};
use crate::api::{ask, end};
use crate::comparison::Comparison;
use crate::fault_plan::{choices, say, wait};
use crate::kafka::checker::{Sequences, compare};
use crate::process::base64_decode;
use crate::servers::kafka::{Broker, broker};
use crate::servers::postgres::Database;

const NAMES: [&str; 3] = ["a", "b", "c"];
/// Partitions of the generator. Record n is in the partition n % 16.
const GENERATED: u64 = 16;

fn pipeline(source: &str, broker: &Broker, topic: &str, processors: &str) -> String {
    format!(
        "  - id: p\n    connectors:\n      - {{ id: in, type: source, {source} }}\n      - id: out\n        type: destination\n        \
         plugin: kafka\n        settings: {{ servers: '{}', topic: {topic}, sdk.record.format: recfmt/raw, exactlyOnce: true, \
         exactlyOnce.topic: '{topic}-marks' }}\n{processors}",
        broker.address()
    )
}

/// Records whose values are their numbers.
fn generated(broker: &Broker, topic: &str) -> String {
    let source = format!(
        "plugin: generator, settings: {{ partitions: '{GENERATED}', rate: '1200', seed: '1', format.type: structured, \
         format.options.v: int }}"
    );
    let number = "{ id: number, plugin: field.set, settings: { field: .Payload.After, value: '{{ printf \"%s\" .Position }}' } }";
    let bare = "{ id: bare, plugin: field.exclude, settings: { fields: .Key } }";
    pipeline(&source, broker, topic, &format!("    processors:\n      - {number}\n      - {bare}\n"))
}

/// Returns how many messages the topic has, with the markers of its transactions.
fn size(broker: &Broker, topic: &str) -> u64 {
    let ends = broker.judge("ends", &json!({ "topic": topic }));
    ends.as_object().into_iter().flatten().filter_map(|(_, end)| end.as_u64()).sum()
}

fn wait_for_more(broker: &Broker, topic: &str) {
    let before = size(broker, topic);
    wait_for("further records", || size(broker, topic) > before + 100);
}

/// True if each node has some of the eight slots.
fn is_spread(database: &Database) -> bool {
    let places = places(database);
    NAMES.iter().all(|name| (2..4).contains(&places.iter().filter(|place| place == name).count()))
}

/// Waits until the other nodes have what a node had. Returns how long it took.
fn taken_over(database: &Database, name: &str) -> Duration {
    let begun = Instant::now();
    wait_for("the slots of the node that was struck", || {
        each_has(database, &[(name, 0)]) && places(database).iter().all(|place| !place.is_empty())
    });
    begun.elapsed()
}

/// Kills a node, pauses one for longer than its lease, and has one leave and come back, once or more often. Returns how often,
/// and how long the others needed at most until they had the slots.
fn strike(nodes: &mut [Node; 3], database: &Database, broker: &Broker, topic: &str) -> (usize, Duration) {
    let spread = || wait_for("slots of each node", || is_spread(database));
    let (rounds, mut random) = choices(1);
    let mut slowest = Duration::ZERO;
    spread();
    for _ in 0..rounds {
        let mut at = [0, 1, 2];
        random.shuffle(&mut at);
        let [killed, paused, left] = at;
        wait_for_more(broker, topic);
        wait(&mut random, 0..300);
        nodes[killed].process.signal("KILL");
        slowest = slowest.max(taken_over(database, NAMES[killed]));
        wait_for_more(broker, topic);
        nodes[killed].restart();
        spread();
        wait(&mut random, 0..300);
        nodes[paused].process.signal("STOP");
        slowest = slowest.max(taken_over(database, NAMES[paused]));
        wait_for_more(broker, topic);
        // It wakes up when others have its slots, perhaps within a transaction.
        nodes[paused].process.signal("CONT");
        spread();
        wait_for_more(broker, topic);
        nodes[left].process.signal("TERM");
        slowest = slowest.max(taken_over(database, NAMES[left]));
        nodes[left].restart();
        spread();
        wait_for_more(broker, topic);
    }
    (rounds, slowest)
}

/// Returns the numbers of each partition of the generator, in the order of the topic.
fn numbers(broker: &Broker, topic: &str) -> Sequences {
    let mut found = Sequences::new();
    for message in broker.consume(topic) {
        let value = String::from_utf8(base64_decode(message["value"].as_str().unwrap())).unwrap();
        let number: u64 = value.parse().unwrap();
        // The first record has the number 1.
        found.entry((number % GENERATED).to_string()).or_default().push((number - 1) / GENERATED);
    }
    found
}

fn exactly_once(found: &Sequences) -> Comparison {
    let produced: BTreeMap<String, u64> =
        found.iter().map(|(name, numbers)| (name.clone(), numbers.iter().max().map_or(0, |last| last + 1))).collect();
    compare(found, &produced)
}

#[test]
fn a_generator_is_spread_over_nodes_and_each_record_arrives_once() {
    let (Some(broker), Some(database)) = (broker(), Database::create()) else { return };
    let topic = broker.topic("generated", 1, &json!({}));
    let pipelines = generated(broker, &topic);
    let mut nodes = NAMES.map(|name| Node::new(name, &database, &pipelines));
    let (rounds, slowest) = strike(&mut nodes, &database, broker, &topic);
    let of_each = nodes[1].process.printed()();
    assert!(of_each.contains("this node runs the slots"), "{of_each}");

    // The nodes come back with another number of slots, and again with the first one: the marks are found.
    for (slots, units) in [("1", 1), ("8", 8)] {
        for node in &mut nodes {
            node.process.signal("KILL");
            node.process.wait_for_end();
            node.workspace.env("ANABRANCH_CLUSTER_SLOTS", slots);
        }
        for node in &mut nodes {
            node.restart();
        }
        wait_for("the units", || places(&database).len() == units && places(&database).iter().all(|it| !it.is_empty()));
        wait_for_more(broker, &topic);
    }
    assert_eq!(ask(nodes[0].process.address(), "POST", "/v1/pipelines/p/stop", "", "{}").status, 200);
    wait_for("the stop", || places(&database).is_empty());
    let found = numbers(broker, &topic);
    let total: usize = found.values().map(Vec::len).sum();
    assert_eq!(found.len() as u64, GENERATED);
    let printed: Vec<String> = nodes.iter().map(|node| node.process.printed()()).collect();
    let compared = exactly_once(&found);
    say(&format!(
        "generator to kafka on three nodes, {rounds} rounds of faults: {total} records, lost {}, repeated {}; the others had the slots of a node after at \
         most {:.1} s",
        compared.lost,
        compared.repeated,
        slowest.as_secs_f64()
    ));
    compared.check(0, &format!("{}\nexactly once", printed.join("\n\n")));
    nodes.into_iter().for_each(|node| end(node.process));
}

#[test]
fn a_topic_is_copied_by_several_nodes_and_each_record_arrives_once() {
    const PARTITIONS: u32 = 8;
    const KEYS: u64 = 24;
    let (Some(broker), Some(database)) = (broker(), Database::create()) else { return };
    let from = broker.topic("from", PARTITIONS, &json!({}));
    let to = broker.topic("to", 3, &json!({}));
    let source = format!(
        "plugin: kafka, settings: {{ servers: '{}', topics: {from}, groupID: {from}, readFromBeginning: true, \
         commitOffsetsDelay: 500ms }}",
        broker.address()
    );
    let given = json!({ "topic": from, "prefix": "k", "keys": KEYS, "rate": 600, "base": 0, "partitions": PARTITIONS });
    let mut producer = broker.judge_running("fill", &given);
    let pipelines = pipeline(&source, broker, &to, "");
    let mut nodes = NAMES.map(|name| Node::new(name, &database, &pipelines));
    let (rounds, slowest) = strike(&mut nodes, &database, broker, &to);
    drop(producer.stdin.take());
    let output = producer.wait_with_output().unwrap();
    assert!(output.status.success(), "not everything was produced");
    let count: u64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    broker.judge("await_commits", &json!({ "group": from, "topic": from, "patience": 60 }));
    let found: Sequences = serde_json::from_value(broker.judge("sequences", &json!({ "topic": to }))).unwrap();
    let produced: BTreeMap<String, u64> = (0..KEYS).map(|key| (format!("k{key}"), count)).collect();
    let compared = compare(&found, &produced);
    let printed: Vec<String> = nodes.iter().map(|node| node.process.printed()()).collect();
    say(&format!(
        "kafka to kafka on three nodes, {rounds} rounds of faults: {} records, lost {}, repeated {}; the others had the slots of a node after at most {:.1} s",
        count * KEYS,
        compared.lost,
        compared.repeated,
        slowest.as_secs_f64()
    ));
    compared.check(0, &format!("{}\nexactly once", printed.join("\n\n")));
    nodes.into_iter().for_each(|node| end(node.process));
}
