//! A service that copies a topic of the cluster to two others: at least once, and exactly once.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::process::Child;

use serde_json::json;

use super::checker::{Sequences, compare};
use super::pipeline;
use crate::process::NOBODY;
use crate::restarted::RestartedService;
use crate::servers::kafka_cluster::Cluster;

/// Partitions of the topics.
pub const PARTITIONS: u32 = 3;
/// `engine.replay-rows` of the service.
const REPLAY: usize = 2_000;
/// Seconds without progress after which the service counts as stuck, when all brokers are there again: longer than the time
/// limit of a write.
const SETTLE: u32 = 150;

/// A topic that is filled, and a service that copies it.
pub struct Copier {
    cluster: &'static Cluster,
    pub service: RestartedService,
    pub from: String,
    /// Number of partitions of the topic.
    partitions: u32,
    pub once: Copy,
    pub exact: Copy,
    producers: Vec<Producer>,
}

/// Produces messages with keys of a prefix until its input ends.
struct Producer {
    prefix: &'static str,
    keys: u64,
    process: Child,
}

/// A copy of the topic.
pub struct Copy {
    pub pipeline: &'static str,
    pub to: String,
    pub group: String,
}

impl Copier {
    /// Creates the topics and starts the service.
    pub fn start(cluster: &'static Cluster) -> Self {
        let from = cluster.topic("from", PARTITIONS, &json!({}));
        let copy = |pipeline| Copy {
            pipeline,
            to: cluster.topic(pipeline, PARTITIONS, &json!({})),
            group: format!("{from}-{pipeline}"),
        };
        let (once, exact) = (copy("once"), copy("exact"));
        let mut service = RestartedService::new(REPLAY);
        // Half of the servers do not exist.
        let addresses = cluster.addresses();
        let servers: Vec<String> = addresses.split(',').map(|address| format!("{NOBODY},{address}")).collect();
        let servers = servers.join(",");
        for (copy, more) in [(&once, ""), (&exact, ", exactlyOnce: true, exactlyOnce.transactionalID: ID")] {
            // The copy that is exact has a static member, the other one a dynamic one.
            let member = if more.is_empty() { "" } else { ", groupInstanceID: one" };
            let source = format!(
                "plugin: kafka, settings: {{ servers: '{servers}', topics: {from}, groupID: {}, readFromBeginning: true, \
                 sessionTimeout: 6s, commitOffsetsDelay: 500ms{member} }}",
                copy.group
            );
            let destination = format!(
                "plugin: kafka, settings: {{ servers: '{servers}', topic: {}, sdk.record.format: recfmt/raw{} }}",
                copy.to,
                more.replace("ID: ID", &format!("ID: {}", copy.to)),
            );
            let name = format!("pipelines/{}.yaml", copy.pipeline);
            service.workspace.write(&name, pipeline(copy.pipeline, &source, &destination));
        }
        service.begin();
        Copier { cluster, service, from, partitions: PARTITIONS, once, exact, producers: Vec::new() }
    }

    /// Starts to produce messages with `keys` keys, `rate` in a second, to `partitions` from `base` on.
    pub fn produce(&mut self, prefix: &'static str, keys: u64, rate: u64, (base, partitions): (u32, u32)) {
        let given = json!({
            "topic": self.from, "prefix": prefix, "keys": keys, "rate": rate, "base": base, "partitions": partitions,
        });
        let process = self.cluster.judge().start("fill", &given);
        self.producers.push(Producer { prefix, keys, process });
    }

    /// Adds a partition to the topic, and messages in it.
    pub fn add_partitions(&mut self) {
        const PREFIXES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let prefix = PREFIXES[self.producers.len() - 1];
        self.cluster.judge().ask("add_partitions", &json!({ "topic": self.from, "count": self.partitions + 1 }));
        self.produce(prefix, 2, 20, (self.partitions, 1));
        self.partitions += 1;
    }

    /// Waits until everything is produced and copied, ends the service, and checks the copies. `faults` is the number of
    /// faults of brokers and ends of sessions. Returns a line about it.
    pub fn finish(mut self, faults: usize) -> String {
        let produced = self.end_producing();
        for copy in [&self.once, &self.exact] {
            let given = json!({ "group": copy.group, "topic": self.from, "patience": SETTLE });
            if let Err(error) = self.cluster.judge().try_ask("await_commits", &given) {
                panic!("{}: {error}\n{}", copy.pipeline, self.service.log());
            }
        }
        let bound = self.service.promised();
        assert_eq!(bound, REPLAY);
        self.service.end();
        let (runs, logged) = (self.service.runs(), self.service.log());
        let total: u64 = produced.values().sum();
        let most = bound * self.partitions as usize * (runs[0] - 1 + faults);
        // The client that produces sends again what a killed broker had not confirmed, and sometimes doubles it.
        let source = self.sequences(&self.from);
        let doubled = compare(&source, &produced).repeated;
        let (once, exact) = (self.sequences(&self.once.to), self.sequences(&self.exact.to));
        let differing: Vec<&String> = source.keys().filter(|key| exact.get(*key) != source.get(*key)).collect();
        let (once, exact) = (compare(&once, &produced), compare(&exact, &produced));
        let said = format!(
            "{total} records ({doubled} doubled by their producer), {} kills of the service, {faults} faults of brokers and ends of sessions, \
             {runs:?} runs: {} repeated of at most {most}, exactly once {}",
            self.service.kills(),
            once.repeated.saturating_sub(doubled),
            exact.repeated.saturating_sub(doubled)
        );
        once.check(most + doubled, &format!("{said}\n{logged}\nat least once"));
        exact.check(doubled, &format!("{said}\n{logged}\nexactly once"));
        assert!(differing.is_empty(), "{said}\n{logged}\nexactly once: other than the topic for {differing:?}");
        said
    }

    /// Ends the producers, and returns how many numbers of each key they have produced.
    fn end_producing(&mut self) -> BTreeMap<String, u64> {
        let mut produced = BTreeMap::new();
        for Producer { prefix, keys, process } in &mut self.producers {
            drop(process.stdin.take());
            let mut text = String::new();
            process.stdout.take().unwrap().read_to_string(&mut text).unwrap();
            assert!(process.wait().unwrap().success(), "not everything was produced");
            let count: u64 = text.parse().unwrap();
            produced.extend((0..*keys).map(|key| (format!("{prefix}{key}"), count)));
        }
        produced
    }

    fn sequences(&self, topic: &str) -> Sequences {
        serde_json::from_value(self.cluster.judge().ask("sequences", &json!({ "topic": topic }))).unwrap()
    }
}

impl Drop for Copier {
    fn drop(&mut self) {
        for producer in &mut self.producers {
            let _ = producer.process.kill();
            let _ = producer.process.wait();
        }
    }
}
