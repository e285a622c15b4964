//! Faults of three brokers, of the service and of the topic, while the service copies a topic at least once and exactly
//! once.
//!
//! A check takes a few faults in a random order. `ANABRANCH_SOAK=600 cargo test --test it -- --nocapture kafka::chaos` takes
//! all of them again and again for ten minutes. `ANABRANCH_SEED` repeats the choices of another time, and
//! `ANABRANCH_FAULTS=KillLeader,StopTwo` names the faults.

use std::io::Write as _;
use std::time::{Duration, Instant};

use serde_json::json;

use super::copier::{Copier, PARTITIONS};
use super::pipeline;
use crate::api::{ask, get};
use crate::fault_plan;
use crate::process::Workspace;
use crate::servers::kafka_cluster::{Cluster, NODES, cluster};

/// Faults of a check.
const FEW: usize = 3;
/// Messages in a second.
const RATE: u64 = 500;
/// Keys of the messages.
const KEYS: u64 = 30;
/// Name of the client, which the limits of throughput are for.
const CLIENT: &str = "conduit-connector-kafka";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    KillLeader,
    StopLeader,
    KillGroupCoordinator,
    StopGroupCoordinator,
    KillTransactionCoordinator,
    StopTransactionCoordinator,
    /// Two of three brokers are killed: too few replicas, and no controller.
    KillTwo,
    StopTwo,
    /// One of three brokers is away, and all must have a record.
    TooFewReplicas,
    KillService,
    /// The service stops for longer than the session of its members lasts.
    StopService,
    AddPartitions,
    Throttle,
    TooFewReplicasForLong,
    /// For longer than the source waits for a partition.
    StopTwoForLong,
    /// For longer than a transaction may last.
    StopServiceForLong,
}

const ALL: [Fault; 16] = [
    Fault::KillLeader,
    Fault::StopLeader,
    Fault::KillGroupCoordinator,
    Fault::StopGroupCoordinator,
    Fault::KillTransactionCoordinator,
    Fault::StopTransactionCoordinator,
    Fault::KillTwo,
    Fault::StopTwo,
    Fault::TooFewReplicas,
    Fault::KillService,
    Fault::StopService,
    Fault::AddPartitions,
    Fault::Throttle,
    Fault::TooFewReplicasForLong,
    Fault::StopTwoForLong,
    Fault::StopServiceForLong,
];
/// Number of the faults that are over within some seconds; they are the first of [`ALL`].
const SHORT: usize = 13;

/// A random time.
fn moment(random: &mut fastrand::Rng, millis: std::ops::Range<u64>) {
    std::thread::sleep(Duration::from_millis(random.u64(millis)));
}

/// Takes brokers away and gives them back.
fn away(cluster: &Cluster, random: &mut fastrand::Rng, nodes: &[usize], dead: bool) {
    for node in nodes {
        if dead { cluster.kill(*node) } else { cluster.stop(*node) }
    }
    // The brokers choose another leader after four seconds.
    moment(random, 1_000..6_000);
    cluster.repair();
}

/// Limits the bytes that the service may produce and consume in a second.
fn limit(cluster: &Cluster, bytes: Option<u64>) {
    let given = json!({ "client": CLIENT, "producer_byte_rate": bytes, "consumer_byte_rate": bytes });
    cluster.judge().ask("throttle", &given);
}

/// Lets all replicas of the copies be needed, takes a broker away for a time, and gives everything back.
fn need_all(cluster: &Cluster, copier: &Copier, node: usize, time: Duration) {
    let need = |count: &str| {
        for topic in [&copier.once.to, &copier.exact.to] {
            let config = json!({ "min.insync.replicas": count });
            cluster.judge().ask("configure", &json!({ "topic": topic, "config": config }));
        }
    };
    need("3");
    cluster.stop(node);
    std::thread::sleep(time);
    cluster.repair();
    need("2");
}

impl Fault {
    /// Causes the fault and ends it. Returns how many times the service may read records again because of it: for each
    /// broker that is away, and when its sessions are over.
    fn happen(self, cluster: &Cluster, copier: &mut Copier, random: &mut fastrand::Rng) -> usize {
        let partition = random.u32(..PARTITIONS);
        match self {
            Fault::KillLeader | Fault::StopLeader => {
                let topic = random.choice([&copier.from, &copier.once.to, &copier.exact.to]).unwrap();
                away(cluster, random, &[cluster.leader(topic, partition)], self == Fault::KillLeader);
                1
            }
            Fault::KillGroupCoordinator | Fault::StopGroupCoordinator => {
                let group = random.choice([&copier.once.group, &copier.exact.group]).unwrap();
                away(cluster, random, &[cluster.group_coordinator(group)], self == Fault::KillGroupCoordinator);
                1
            }
            Fault::KillTransactionCoordinator | Fault::StopTransactionCoordinator => {
                let node = cluster.transaction_coordinator(&copier.exact.to);
                away(cluster, random, &[node], self == Fault::KillTransactionCoordinator);
                1
            }
            Fault::KillTwo | Fault::StopTwo => {
                let stays = random.usize(1..=NODES);
                let nodes: Vec<usize> = (1..=NODES).filter(|node| *node != stays).collect();
                away(cluster, random, &nodes, self == Fault::KillTwo);
                2
            }
            Fault::TooFewReplicas => {
                // The brokers first notice that it is away.
                let time = Duration::from_millis(random.u64(5_000..8_000));
                need_all(cluster, copier, random.usize(1..=NODES), time);
                1
            }
            Fault::TooFewReplicasForLong => {
                need_all(cluster, copier, random.usize(1..=NODES), Duration::from_secs(75));
                1
            }
            Fault::StopTwoForLong => {
                cluster.stop(1);
                cluster.stop(2);
                std::thread::sleep(Duration::from_secs(50));
                cluster.repair();
                2
            }
            Fault::StopServiceForLong => {
                // A transaction is open most of the time.
                limit(cluster, Some(5_000));
                moment(random, 3_000..5_000);
                copier.service.process().signal("STOP");
                std::thread::sleep(Duration::from_secs(190));
                copier.service.process().signal("CONT");
                limit(cluster, None);
                1
            }
            Fault::KillService => {
                copier.service.kill();
                moment(random, 0..1_000);
                copier.service.begin();
                0
            }
            Fault::StopService => {
                copier.service.process().signal("STOP");
                moment(random, 6_500..9_000);
                copier.service.process().signal("CONT");
                1
            }
            Fault::AddPartitions => {
                copier.add_partitions();
                moment(random, 0..2_000);
                0
            }
            Fault::Throttle => {
                limit(cluster, Some(random.u64(5_000..50_000)));
                moment(random, 3_000..8_000);
                limit(cluster, None);
                0
            }
        }
    }
}

/// Lets faults happen to a service, and checks its copies in the end.
fn endure(cluster: &'static Cluster, random: &mut fastrand::Rng, faults: &[Fault]) {
    let mut copier = Copier::start(cluster);
    copier.produce("k", KEYS, RATE, (0, PARTITIONS));
    copier.service.await_progress();
    let mut repeats = 0;
    for fault in faults {
        let begun = Instant::now();
        repeats += fault.happen(cluster, &mut copier, random);
        cluster.await_health();
        println!("{fault:?}: {:.1} s", begun.elapsed().as_secs_f64());
        moment(random, 0..1_000);
    }
    let said = copier.finish(repeats);
    let _ = writeln!(std::io::stderr(), "{faults:?}: {said}");
}

/// The run of a pipeline may end while a write is in flight. The next run writes the records again, and later ones: what is
/// left of the first run must not follow them.
#[test]
fn nothing_is_written_after_the_end_of_a_run() {
    let Some((cluster, _turn)) = cluster() else { return };
    let topic = cluster.topic("ended", 1, &json!({ "min.insync.replicas": "3" }));
    let follower = cluster.leader(&topic, 0) % NODES + 1;
    cluster.stop(follower);
    let judge = cluster.judge();
    while judge.ask("in_sync", &json!({ "topic": topic, "partition": 0 })) != 2 {}

    let workspace = Workspace::new();
    workspace.write("in.txt", "0\n1\n2\n");
    let destination = format!(
        "plugin: kafka, settings: {{ servers: '{}', topic: {topic}, sdk.record.format: recfmt/raw }}",
        cluster.addresses()
    );
    workspace.write("pipelines/p.yaml", pipeline("p", "plugin: file, settings: { path: in.txt }", &destination));
    let mut process = workspace.start(&["run"]);
    let address = process.address();
    let word = || get(address, "/v1/pipelines/p").json()["state"]["word"].as_str().unwrap_or_default().to_owned();
    let order = |what: &str, body: &str| {
        ask(address, "POST", &format!("/v1/pipelines/p/{what}"), "Content-Type: application/json\r\n", body)
    };
    process.wait_until("the write", || {
        let metrics = get(address, "/metrics").body;
        metrics
            .lines()
            .any(|line| line == "anabranch_node_records_held{pipeline=\"p\",node=\"out\",kind=\"destination\"} 3")
    });
    // The producer has tried, and the brokers have refused.
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(order("stop", r#"{ "force": true }"#).status, 200);
    process.wait_until("the stop", || word() == "stopped");
    cluster.repair();
    cluster.await_health();
    // Longer than a producer waits before it tries again.
    std::thread::sleep(Duration::from_secs(3));
    let consume = || judge.ask("consume", &json!({ "topic": topic })).as_array().unwrap().len();
    assert_eq!(consume(), 0, "written after the stop");
    assert_eq!(order("start", "{}").status, 200);
    process.wait_until("the copy", || consume() >= 3);
    assert_eq!(consume(), 3);
}

#[test]
fn no_fault_loses_or_reorders_a_record() {
    let Some((cluster, _turn)) = cluster() else { return };
    let text = |name: &str| std::env::var(name).ok();
    let mut random = fastrand::Rng::with_seed(fault_plan::seed());
    let named: Option<Vec<Fault>> = text("ANABRANCH_FAULTS").map(|names| {
        let fault = |name: &str| ALL.into_iter().find(|fault| format!("{fault:?}") == name).unwrap();
        names.split(',').map(fault).collect()
    });
    let soak = fault_plan::number("ANABRANCH_SOAK").map(Duration::from_secs);
    let begun = Instant::now();
    loop {
        let mut faults = named.clone().unwrap_or_else(|| match soak {
            None => ALL[..SHORT].to_vec(),
            Some(_) => ALL.to_vec(),
        });
        if named.is_none() {
            random.shuffle(&mut faults);
            faults.truncate(FEW);
        }
        endure(cluster, &mut random, &faults);
        if soak.is_none_or(|soak| begun.elapsed() > soak) {
            break;
        }
    }
}
