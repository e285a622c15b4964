//! Three Kafka brokers of the tests' own, which can be killed, stopped and started again.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use serde_json::{Value, json};

use super::Port;
use super::kafka::{Judge, PATIENCE, java, missing, skip};

/// Number of brokers; each is a controller too.
pub const NODES: usize = 3;

/// Three brokers, each a controller too. Topics have three replicas, of which two must be in sync. The processes and files
/// of the brokers end with the process of the tests.
pub struct Cluster {
    dir: PathBuf,
    ports: [Port; NODES],
    topics: AtomicU32,
    keeper: Mutex<Keeper>,
    turn: Mutex<()>,
}

/// A shell that starts the brokers and sends them signals, and that ends them when its input ends.
struct Keeper {
    _process: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    conditions: [Condition; NODES],
}

/// What the tests have done to a broker.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Runs,
    Stopped,
    Killed,
}

/// Returns the cluster that the tests of this process share, one after the other. `None`, and a word about it, where Java,
/// the jars or the client that judges are missing.
pub fn cluster() -> Option<(&'static Cluster, MutexGuard<'static, ()>)> {
    static SHARED: OnceLock<Option<Cluster>> = OnceLock::new();
    let cluster = SHARED.get_or_init(Cluster::start).as_ref()?;
    let turn = cluster.turn.lock().unwrap_or_else(PoisonError::into_inner);
    // A test that failed may have left brokers behind that do not run.
    cluster.repair();
    cluster.await_health();
    Some((cluster, turn))
}

impl Cluster {
    fn start() -> Option<Cluster> {
        if let Some(reason) = missing() {
            skip(reason);
            return None;
        }
        let dir = tempfile::Builder::new().prefix("anabranch-cluster-").tempdir().unwrap().keep();
        let ports: [Port; NODES] = std::array::from_fn(|_| Port::hold());
        let controllers: [Port; NODES] = std::array::from_fn(|_| Port::hold());
        let voter = |n: usize| format!("{}@127.0.0.1:{}", n + 1, controllers[n].number());
        let voters: Vec<String> = (0..NODES).map(voter).collect();
        for n in 0..NODES {
            let node = dir.join((n + 1).to_string());
            fs::create_dir(&node).unwrap();
            let broker = format!("PLAINTEXT://127.0.0.1:{}", ports[n].number());
            let properties = format!(
                "process.roles=broker,controller\nnode.id={id}\n\
                 listeners={broker},CONTROLLER://127.0.0.1:{controller}\nadvertised.listeners={broker}\n\
                 controller.listener.names=CONTROLLER\n\
                 listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n\
                 controller.quorum.voters={voters}\nlog.dirs={shown}/data\n\
                 broker.session.timeout.ms=4000\nbroker.heartbeat.interval.ms=500\n\
                 controller.quorum.fetch.timeout.ms=1500\ncontroller.quorum.election.timeout.ms=600\n\
                 replica.lag.time.max.ms=4000\ndefault.replication.factor=3\nmin.insync.replicas=2\n\
                 offsets.topic.replication.factor=3\noffsets.topic.num.partitions=3\n\
                 transaction.state.log.replication.factor=3\ntransaction.state.log.min.isr=2\n\
                 transaction.state.log.num.partitions=3\nshare.coordinator.state.topic.replication.factor=3\n\
                 share.coordinator.state.topic.min.isr=2\ngroup.initial.rebalance.delay.ms=0\n\
                 log.cleaner.dedupe.buffer.size=4194304\nnum.network.threads=2\nnum.io.threads=2\n\
                 auto.create.topics.enable=false\nbroker.rack={rack}\n\
                 replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector\n",
                id = n + 1,
                rack = rack(n + 1),
                controller = controllers[n].number(),
                voters = voters.join(","),
                shown = node.display(),
            );
            fs::write(node.join("server.properties"), properties).unwrap();
        }
        // Signals of the tests reach only the brokers: the shell has a group of its own.
        let script = format!(
            "format() {{ (cd $1 && {format} kafka.tools.StorageTool format -t AnabranchTestCluster00 \
             -c server.properties) >>$1/broker.log 2>&1; }}\n\
             start() {{ (cd $1 && exec {run} kafka.Kafka server.properties) >>$1/broker.log 2>&1 & eval \"pid$1=$!\"; }}\n\
             tell() {{ eval \"kill -$1 \\$pid$2\"; }}\n\
             gone() {{ eval \"wait \\$pid$1\"; }}\n\
             format 1 & format 2 & format 3 & wait\nstart 1; start 2; start 3\n\
             while read -r what node; do\n\
             case $what in START) start $node;; KILL) tell KILL $node; gone $node;; *) tell $what $node;; esac\n\
             echo done\ndone\nkill -9 $pid1 $pid2 $pid3\nwait\ncd / && rm -rf '{dir}'",
            format = java("128m"),
            run = java("192m"),
            dir = dir.display(),
        );
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).current_dir(&dir);
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        std::os::unix::process::CommandExt::process_group(&mut shell, 0);
        let mut process = shell.spawn().unwrap();
        let (commands, answers) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        let conditions = [Condition::Runs; NODES];
        let keeper = Mutex::new(Keeper { _process: process, commands, answers, conditions });
        let cluster = Cluster { dir, ports, topics: AtomicU32::new(0), keeper, turn: Mutex::new(()) };
        for node in 1..=NODES {
            cluster.wait_for(node);
        }
        cluster.await_health();
        Some(cluster)
    }

    fn wait_for(&self, node: usize) {
        let begun = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.ports[node - 1].number())).is_err() {
            assert!(begun.elapsed() < PATIENCE, "the broker {node} does not start: {}", self.log(node));
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    fn tell(&self, command: &str, node: usize, then: Condition) {
        let mut keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(keeper.commands, "{command} {node}").unwrap();
        let mut answer = String::new();
        keeper.answers.read_line(&mut answer).unwrap();
        assert_eq!(answer, "done\n", "{command} {node}");
        keeper.conditions[node - 1] = then;
    }

    /// Kills a broker, from 1.
    pub fn kill(&self, node: usize) {
        self.tell("KILL", node, Condition::Killed);
    }

    /// Starts a broker that was killed. It takes part some seconds later.
    pub fn restart(&self, node: usize) {
        self.tell("START", node, Condition::Runs);
    }

    /// Stops the process of a broker: its connections stay open, and nothing answers.
    pub fn stop(&self, node: usize) {
        self.tell("STOP", node, Condition::Stopped);
    }

    /// Continues the process of a broker that was stopped.
    pub fn resume(&self, node: usize) {
        self.tell("CONT", node, Condition::Runs);
    }

    /// Starts what was killed, and continues what was stopped.
    pub fn repair(&self) {
        let conditions = self.keeper.lock().unwrap_or_else(PoisonError::into_inner).conditions;
        for (node, condition) in (1..).zip(conditions) {
            match condition {
                Condition::Runs => {}
                Condition::Stopped => self.resume(node),
                Condition::Killed => self.restart(node),
            }
        }
    }

    /// Waits until each broker knows all brokers, and all replicas are in sync.
    pub fn await_health(&self) {
        if let Err(error) = self.judge().try_ask("await_health", &json!({})) {
            let log = |node| self.log(node).lines().rev().take(5).collect::<Vec<_>>().join("\n");
            panic!("{error}\n{}", (1..=NODES).map(log).collect::<Vec<_>>().join("\n\n"));
        }
    }

    /// Returns the log of a broker.
    pub fn log(&self, node: usize) -> String {
        fs::read_to_string(self.dir.join(node.to_string()).join("broker.log")).unwrap_or_default()
    }

    /// Returns the client that judges.
    pub fn judge(&self) -> Judge {
        Judge::new(self.addresses())
    }

    /// The addresses of all brokers.
    pub fn addresses(&self) -> String {
        let address = |port: &Port| format!("127.0.0.1:{}", port.number());
        self.ports.iter().map(address).collect::<Vec<_>>().join(",")
    }

    /// Returns a name that nothing else in the cluster has.
    pub fn name(&self, what: &str) -> String {
        format!("{what}-{}", self.topics.fetch_add(1, Ordering::Relaxed))
    }

    /// Creates a topic of a new name, with three replicas.
    pub fn topic(&self, what: &str, partitions: u32, config: &Value) -> String {
        self.topic_with(what, partitions, NODES, config)
    }

    /// Creates a topic of a new name.
    pub fn topic_with(&self, what: &str, partitions: u32, replicas: usize, config: &Value) -> String {
        let name = self.name(what);
        let given = json!({ "topic": name, "partitions": partitions, "replicas": replicas, "config": config });
        self.judge().ask("create", &given);
        name
    }

    /// Returns the brokers that have a replica of a partition.
    pub fn replicas(&self, topic: &str, partition: u32) -> Vec<usize> {
        let answer = self.judge().ask("replicas", &json!({ "topic": topic, "partition": partition }));
        answer.as_array().unwrap().iter().map(number).collect()
    }

    /// Returns the broker that leads a partition.
    pub fn leader(&self, topic: &str, partition: u32) -> usize {
        number(&self.judge().ask("leader", &json!({ "topic": topic, "partition": partition })))
    }

    /// Returns the broker that coordinates a consumer group.
    pub fn group_coordinator(&self, group: &str) -> usize {
        number(&self.judge().ask("group_coordinator", &json!({ "group": group })))
    }

    /// Gives the transactions of each id to the broker that coordinates them if all brokers run.
    pub fn restore_transaction_coordinators(&self) {
        self.judge().ask("elect_preferred", &json!({ "topic": "__transaction_state" }));
    }

    /// Returns the broker that coordinates the transactions of an id.
    pub fn transaction_coordinator(&self, id: &str) -> usize {
        number(&self.judge().ask("transaction_coordinator", &json!({ "id": id })))
    }
}

/// Returns the rack of a broker.
pub fn rack(node: usize) -> String {
    format!("rack-{node}")
}

fn number(answer: &Value) -> usize {
    answer.as_u64().and_then(|node| usize::try_from(node).ok()).unwrap_or_else(|| panic!("not a broker: {answer}"))
}
