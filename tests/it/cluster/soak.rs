//! Nodes are killed, paused and cut off from the store and from a broker under load, one after the other, at random times. A
//! history of what happens is checked in the end.
//!
//! A check does it a few times. `ANABRANCH_KILLS=200 cargo test --test it -- --nocapture cluster::soak` does it as often,
//! and also checks that the others take over within ten seconds, for which the machine must be idle otherwise.
//! `ANABRANCH_FAULTS=Kill,LongPause,Kill,ShortPause` names the kinds of faults, in their order.

mod watch;

use std::io::Read as _;
use std::process::Child;
use std::time::{Duration, Instant};

use serde_json::json;

use super::split::generated;
use super::{Node, counts, each_has, places, wait_for};
use crate::api::{ask, end};
use crate::fault_plan::{choices, number, say, wait};
use crate::history::{Checked, Partitions, check};
use crate::process::Workspace;
use crate::servers::kafka::{Broker, broker};
use crate::servers::postgres::Database;
use crate::servers::proxy::{OPEN, Proxy, SILENT, SLOW};
use watch::{FROM_KAFKA, GENERATED, GENERATED_PARTITIONS, KAFKA_PARTITIONS, Watch};

/// Number of faults of a check.
const FEW: usize = 2;
const NAMES: [&str; 3] = ["a", "b", "c"];
/// Units of both pipelines: each has as many as `cluster.slots` says.
const UNITS: usize = 16;
/// Time in which the others take over, as `docs/cluster.md` promises.
const PROMISED: Duration = Duration::from_secs(10);

/// A fault of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// SIGKILL, and a new process when the others have its units.
    Kill,
    /// SIGSTOP until the others have its units.
    LongPause,
    /// Nothing passes between the node and the store until the others have its units. It still reaches the destination.
    Cut,
    /// SIGSTOP for a time in which its lease may end or not.
    ShortPause,
    /// Every piece of data between the node and the store is late for some time.
    Slow,
    /// Nothing passes between the node and the broker for some time.
    NoBroker,
}

const FAULTS: [Fault; 6] = [Fault::Kill, Fault::ShortPause, Fault::Cut, Fault::NoBroker, Fault::LongPause, Fault::Slow];

/// Returns the kinds of faults, in their order.
fn kinds() -> Vec<Fault> {
    let named = |name: &str| FAULTS.into_iter().find(|fault| format!("{fault:?}") == name);
    match std::env::var("ANABRANCH_FAULTS") {
        Ok(names) => names.split(',').map(|name| named(name).unwrap_or_else(|| panic!("no fault {name:?}"))).collect(),
        Err(_) => FAULTS.to_vec(),
    }
}

/// A node, and its ways to the store and to the broker.
struct Struck {
    name: &'static str,
    node: Node,
    store: Proxy,
    broker: Proxy,
}

impl Struck {
    fn start(name: &'static str, watch: &Watch<'_>, database: &Database, broker: &Broker, pipelines: &str) -> Struck {
        let store = Proxy::start(database.port());
        let port = broker.address().rsplit(':').next().unwrap().parse().unwrap();
        let to_broker = Proxy::start(port);
        let mut workspace = Workspace::new();
        // The name of the application is that of the node in the history.
        let url =
            |port: u16| format!("postgresql://postgres@127.0.0.1:{port}/{}?application_name={name}", database.name());
        let witness = watch.witness(name, port, to_broker.port);
        for (variable, value) in [
            ("ANABRANCH_CLUSTER_URL", url(store.port)),
            ("ANABRANCH_CLUSTER_NODE", name.to_owned()),
            ("ANABRANCH_PIPELINES_ERROR_RECOVERY_MIN_DELAY", "100ms".to_owned()),
            ("ANABRANCH_PIPELINES_ERROR_RECOVERY_MAX_DELAY", "1s".to_owned()),
            ("DATABASE", url(database.port())),
            ("BROKER", format!("127.0.0.1:{witness}")),
        ] {
            workspace.env(variable, &value);
        }
        workspace.write("pipelines/p.yaml", format!("version: \"2.2\"\npipelines:\n{pipelines}"));
        Struck { name, node: Node::start(workspace), store, broker: to_broker }
    }

    /// Suffers from a fault as long as it takes.
    fn suffer(&mut self, fault: Fault, random: &mut fastrand::Rng, until_others_have_all: impl FnOnce()) {
        match fault {
            Fault::Kill => {
                self.node.process.signal("KILL");
                until_others_have_all();
                self.node.restart();
            }
            Fault::LongPause => {
                self.node.process.signal("STOP");
                until_others_have_all();
                self.node.process.signal("CONT");
            }
            Fault::ShortPause => {
                self.node.process.signal("STOP");
                wait(random, 500..8_000);
                self.node.process.signal("CONT");
            }
            Fault::Cut => {
                self.store.set(SILENT);
                until_others_have_all();
                // Connections that were silent lack pieces.
                self.store.end_at_server();
                self.store.set(OPEN);
            }
            Fault::Slow => {
                self.store.set(SLOW);
                wait(random, 2_000..8_000);
                self.store.set(OPEN);
            }
            Fault::NoBroker => {
                self.broker.set(SILENT);
                wait(random, 500..8_000);
                self.broker.end_at_server();
                self.broker.set(OPEN);
            }
        }
    }
}

/// A producer that fills the topic at 400 records in a second until it ends.
struct Producer<'a> {
    process: Child,
    broker: &'a Broker,
    topic: String,
}

impl<'a> Producer<'a> {
    fn start(broker: &'a Broker) -> Producer<'a> {
        let topic = broker.topic("soak", KAFKA_PARTITIONS as u32, &json!({}));
        // Each key has its own partition, and the producer is idempotent: the number of a record is its offset.
        let given = json!({
            "topic": topic, "prefix": "", "keys": KAFKA_PARTITIONS, "rate": 400, "base": 0, "partitions": KAFKA_PARTITIONS,
            "form": r#"{"id":"%(key)d/%(number)d"}"#,
        });
        Producer { process: broker.judge_running("fill", &given), broker, topic }
    }

    /// The pipeline from the topic to a table of its own.
    fn pipeline(&self) -> String {
        let topic = &self.topic;
        format!(
            r#"  - id: {FROM_KAFKA}
    connectors:
      - id: in
        type: source
        plugin: kafka
        settings: {{ servers: "${{BROKER}}", topics: {topic}, groupID: {topic}, readFromBeginning: true }}
      - id: out
        type: destination
        plugin: postgres
        settings: {{ url: "${{DATABASE}}", table: {FROM_KAFKA}, exactlyOnce: true }}
    processors:
      - {{ id: decode, plugin: json.decode, settings: {{ field: .Payload.After }} }}
      - {{ id: bare, plugin: field.exclude, settings: {{ fields: .Key }} }}
"#
        )
    }

    /// Ends the production, and returns how many records each partition has.
    fn end(&mut self) -> usize {
        drop(self.process.stdin.take());
        let mut text = String::new();
        self.process.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(self.process.wait().unwrap().success());
        text.trim().parse().unwrap()
    }

    /// Returns the sum of the offsets that are committed to the group.
    fn committed(&self) -> u64 {
        let offsets = self.broker.judge("offsets", &json!({ "group": self.topic, "topic": self.topic }));
        offsets.as_object().into_iter().flatten().filter_map(|(_, offset)| offset.as_u64()).sum()
    }
}

/// Checks the history of a pipeline.
fn checked(watch: &Watch<'_>, pipeline: &str, partitions: &Partitions) -> Checked {
    let history = watch.history(pipeline);
    check(&history, partitions).unwrap_or_else(|broken| {
        let file = std::env::temp_dir().join(format!("history-{}-{pipeline}.ndjson", std::process::id()));
        std::fs::write(&file, &history).unwrap();
        panic!("{broken}; the history is in {}", file.display())
    })
}

fn names(partitions: u64) -> Vec<String> {
    (0..partitions).map(|partition| partition.to_string()).collect()
}

#[test]
fn nodes_that_fail_again_and_again_lose_nothing_and_double_nothing() {
    let (Some(database), Some(broker)) = (Database::create(), broker()) else { return };
    let watch = Watch::start(&database);
    let mut producer = Producer::start(broker);
    let pipelines = generated(GENERATED, "rate: \"400\"", "exactlyOnce: \"true\"") + &producer.pipeline();
    let mut nodes = NAMES.map(|name| Struck::start(name, &watch, &database, broker, &pipelines));
    let spread = || {
        let places = places(&database);
        let fair = UNITS / NAMES.len()..=UNITS / NAMES.len() + 1;
        NAMES.iter().all(|name| fair.contains(&places.iter().filter(|place| place == name).count()))
    };
    wait_for("units of each node", spread);
    let tables = [GENERATED, FROM_KAFKA];
    wait_for("the first rows", || tables.iter().all(|table| counts(&database, table).0 > 100));
    let (faults, mut random) = choices(FEW);
    let kinds = kinds();
    let (mut done, mut slowest, begun) = (Vec::new(), Duration::ZERO, Instant::now());
    let first = random.usize(..kinds.len());
    for number in 0..faults {
        wait_for("units of each node", spread);
        wait(&mut random, 0..1_000);
        let struck = &mut nodes[random.usize(..NAMES.len())];
        // Each kind in turn, so that a long check has as many of each.
        let fault = kinds[(first + number) % kinds.len()];
        done.push(fault);
        let name = struck.name;
        watch.fault(&format!("{fault:?} of {name}"));
        struck.suffer(fault, &mut random, || {
            let begun = Instant::now();
            wait_for("the units of the node that was struck", || {
                let places = places(&database);
                each_has(&database, &[(name, 0)]) && places.iter().all(|place| !place.is_empty())
            });
            slowest = slowest.max(begun.elapsed());
        });
        for table in tables {
            let rows = counts(&database, table);
            assert_eq!(rows.0, rows.1, "{fault:?} of {name}: a record is in {table} twice");
            wait_for("further rows", || counts(&database, table).0 > rows.0);
        }
    }
    let took = begun.elapsed();
    let produced = producer.end();
    let all = produced * KAFKA_PARTITIONS as usize;
    wait_for("all records of the topic", || counts(&database, FROM_KAFKA).1 >= all);
    wait_for("the committed offsets", || producer.committed() == all as u64);
    for pipeline in tables {
        let path = format!("/v1/pipelines/{pipeline}/stop");
        assert_eq!(ask(nodes[0].node.process.address(), "POST", &path, "", "{}").status, 200);
    }
    wait_for("the stop", || places(&database).is_empty());
    let lost = database.query(&format!(
        "SELECT count(*) FROM generate_series(0, {KAFKA_PARTITIONS} - 1) p, generate_series(0, {produced} - 1) n \
         WHERE p || '/' || n NOT IN (SELECT id FROM {FROM_KAFKA})"
    ));
    assert_eq!(lost, ["0"], "records of the topic are lost");
    // The number 0 is that of no generated record.
    let number_of = |name: &str| name.parse().ok().filter(|first| *first > 0).unwrap_or(GENERATED_PARTITIONS);
    let of_generator = Partitions {
        names: names(GENERATED_PARTITIONS),
        first: number_of,
        step: GENERATED_PARTITIONS,
        shows_reads: false,
    };
    let of_topic = Partitions { names: names(KAFKA_PARTITIONS), first: |_| 0, step: 1, shows_reads: true };
    say(&format!("{faults} faults in {:.0} s:", took.as_secs_f64()));
    for fault in FAULTS {
        say(&format!("  {} × {fault:?}", done.iter().filter(|done| **done == fault).count()));
    }
    for (pipeline, partitions) in [(GENERATED, of_generator), (FROM_KAFKA, of_topic)] {
        let (rows, distinct) = counts(&database, pipeline);
        assert_eq!(rows, distinct, "a record is in {pipeline} twice");
        let checked = checked(&watch, pipeline, &partitions);
        assert_eq!(checked.writes, rows);
        assert_eq!(partitions.shows_reads, checked.reads > 0 && checked.commits > 0, "{pipeline}: {checked:?}");
        let silence = watch.longest_silence(pipeline);
        say(&format!(
            "  {pipeline}: {rows} rows, doubles {}, no promise is broken by {checked:?}; a partition waited at most \
             {silence} for its next row",
            rows - distinct
        ));
    }
    say(&format!("  {FROM_KAFKA}: {all} records in the topic, lost {}", lost[0]));
    say(&format!("  until the others had the units at most {:.1} s", slowest.as_secs_f64()));
    if number("ANABRANCH_KILLS").is_some() {
        assert!(slowest <= PROMISED, "the others took over too late");
    }
    nodes.into_iter().for_each(|struck| end(struck.node.process));
}
