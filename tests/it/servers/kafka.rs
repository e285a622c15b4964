//! A Kafka broker of the tests' own, and what another client sees of it.
//!
//! Uses the standard library, `tempfile`, `serde_json` and the modules `certificates` and `port` beside it, so that other
//! crates of the workspace take it by its path.

#![allow(dead_code, unreachable_pub, reason = "several test binaries share it, none uses all of it")]

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Port;
use super::certificates::Certificates;

/// Longest time a broker may take to start, on a slow and busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Name and password of the user of all mechanisms.
pub const USER: (&str, &str) = ("ada", "secret-of-ada");

/// A running broker: no login at its address, and listeners with TLS and with logins. The brokers' process and files end
/// with the process of the tests.
pub struct Broker {
    dir: PathBuf,
    certificates: Certificates,
    ports: [Port; 5],
    topics: AtomicU32,
    /// A shell that ends the broker when its input ends.
    keeper: Child,
}

/// Returns the broker that the tests of this process share. `None`, and a word about it, where Java, the broker's jars or
/// the client that judges are missing.
pub fn broker() -> Option<&'static Broker> {
    static SHARED: OnceLock<Option<Broker>> = OnceLock::new();
    SHARED.get_or_init(|| Broker::start(Release::New)).as_ref()
}

/// Like [`broker`], of the oldest release that the connector supports. It has no users of SCRAM.
pub fn old_broker() -> Option<&'static Broker> {
    static SHARED: OnceLock<Option<Broker>> = OnceLock::new();
    SHARED.get_or_init(|| Broker::start(Release::Oldest)).as_ref()
}

/// Releases of Kafka.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Release {
    New,
    Oldest,
}

impl Release {
    fn lib(self) -> PathBuf {
        root().join(match self {
            Release::New => "target/kafka/lib",
            Release::Oldest => "target/kafka-3.4/lib",
        })
    }
}

fn root() -> PathBuf {
    // The crates that take this file are at different depths.
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().filter(|path| path.join("Cargo.lock").is_file()).last().unwrap_or(here).to_owned()
}

fn python() -> PathBuf {
    root().join("target/schema-client/bin/python")
}

/// Returns what the tests lack, if they lack something.
pub fn missing() -> Option<&'static str> {
    missing_for(Release::New)
}

fn missing_for(release: Release) -> Option<&'static str> {
    let runs = |program: &Path, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
        output.is_ok_and(|output| output.status.success())
    };
    let has_jars = fs::read_dir(release.lib()).is_ok_and(|mut jars| jars.next().is_some());
    match () {
        () if !runs(Path::new("java"), &["-version"]) => Some("java is missing"),
        // The Java members of groups are compiled when they start.
        () if !runs(Path::new("javac"), &["-version"]) => Some("javac is missing"),
        () if !has_jars => Some("the jars of Kafka are missing: run .ci/setup"),
        () if !runs(&python(), &["-c", "import confluent_kafka"]) => Some("confluent_kafka is missing: run .ci/setup"),
        () => None,
    }
}

/// Says that a test was skipped, or fails it.
pub fn skip(reason: &str) {
    assert!(std::env::var_os("ANABRANCH_TEST_REQUIRE").is_none(), "{reason}");
    let _ = writeln!(std::io::stderr(), "skipped: {reason}");
}

/// The command, for a shell, that runs a class of Kafka.
pub fn java(memory: &str) -> String {
    java_of(Release::New, memory)
}

fn java_of(release: Release, memory: &str) -> String {
    let lib = release.lib();
    format!(
        "java -Xmx{memory} -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Dlog4j2.configurationFile= \
         -cp '{}/*'",
        lib.display()
    )
}

/// The client that judges, of the cluster at these addresses.
#[derive(Clone, Debug)]
pub struct Judge {
    servers: String,
}

impl Judge {
    pub fn new(servers: String) -> Self {
        Judge { servers }
    }

    fn command(&self, command: &str, given: &Value) -> Command {
        let mut judge = Command::new(python());
        judge.arg(root().join("tests/it/servers/kafka/judge.py")).args([&self.servers, command, &given.to_string()]);
        judge
    }

    /// Runs a command, and returns its answer or what it says of its failure.
    pub fn try_ask(&self, command: &str, given: &Value) -> Result<Value, String> {
        let output = self.command(command, given).output().unwrap();
        match output.status.success() {
            true => Ok(serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)),
            false => Err(format!("{command} {given}: {}", String::from_utf8_lossy(&output.stderr))),
        }
    }

    /// Runs a command, and returns its answer.
    #[track_caller]
    pub fn ask(&self, command: &str, given: &Value) -> Value {
        self.try_ask(command, given).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Starts a command.
    pub fn start(&self, command: &str, given: &Value) -> Child {
        self.command(command, given).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    }
}

impl Broker {
    fn start(release: Release) -> Option<Broker> {
        if let Some(reason) = missing_for(release) {
            skip(reason);
            return None;
        }
        let dir = tempfile::Builder::new().prefix("anabranch-kafka-").tempdir().unwrap().keep();
        let certificates = Certificates::create(&dir)?;
        certificates.sign("broker", "broker", "IP:127.0.0.1,DNS:localhost");
        certificates.sign("client", "client", "DNS:client");
        let read = |path: String| fs::read_to_string(path).unwrap();
        let pem = read(certificates.key("broker")) + &read(certificates.certificate("broker"));
        fs::write(dir.join("broker.pem"), pem).unwrap();

        let ports: [Port; 5] = std::array::from_fn(|_| Port::hold());
        let number = |n: usize| ports[n].number();
        let (shown, (user, password)) = (dir.display(), USER);
        let at = |name: &str, n: usize| format!("{name}://127.0.0.1:{}", number(n));
        let clients = [at("PLAINTEXT", 0), at("SSL", 1), at("SASL_PLAINTEXT", 2), at("SASL_SSL", 3)].join(",");
        let login = |module: &str, rest: &str| format!("org.apache.kafka.common.security.{module} required {rest};");
        let jaas = |listener: &str| {
            let plain = login("plain.PlainLoginModule", &format!("user_{user}=\"{password}\""));
            let scram = login("scram.ScramLoginModule", "");
            let bearer = login("oauthbearer.OAuthBearerLoginModule", "unsecuredLoginStringClaim_sub=\"broker\"");
            let name = format!("listener.name.{listener}");
            format!(
                "{name}.plain.sasl.jaas.config={plain}\n{name}.scram-sha-256.sasl.jaas.config={scram}\n\
                 {name}.scram-sha-512.sasl.jaas.config={scram}\n{name}.oauthbearer.sasl.jaas.config={bearer}\n\
                 {name}.oauthbearer.connections.max.reauth.ms=4000\n"
            )
        };
        let properties = format!(
            "process.roles=broker,controller\nnode.id=1\nlisteners={clients},{controller}\n\
             advertised.listeners={clients}\ncontroller.listener.names=CONTROLLER\n\
             listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL,\
             CONTROLLER:PLAINTEXT\ninter.broker.listener.name=PLAINTEXT\n\
             controller.quorum.{quorum}\nlog.dirs={shown}/data\n\
             offsets.topic.replication.factor=1\noffsets.topic.num.partitions=4\n\
             transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n\
             transaction.state.log.num.partitions=4\nshare.coordinator.state.topic.replication.factor=1\n\
             share.coordinator.state.topic.min.isr=1\ngroup.initial.rebalance.delay.ms=0\n\
             log.cleaner.dedupe.buffer.size=4194304\nlog.cleaner.backoff.ms=500\nnum.network.threads=2\nnum.io.threads=2\n\
             auto.create.topics.enable=false\n\
             authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n\
             super.users=User:ANONYMOUS\nallow.everyone.if.no.acl.found=true\n\
             ssl.keystore.type=PEM\nssl.keystore.location={shown}/broker.pem\n\
             ssl.truststore.type=PEM\nssl.truststore.location={shown}/ca.crt\n\
             listener.name.ssl.ssl.client.auth=required\nlistener.name.sasl_ssl.ssl.client.auth=none\n\
             sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER\n{}{}",
            jaas("sasl_plaintext"),
            jaas("sasl_ssl"),
            controller = at("CONTROLLER", 4),
            quorum = match release {
                Release::New => format!("bootstrap.servers=127.0.0.1:{}", number(4)),
                Release::Oldest => format!("voters=1@127.0.0.1:{}", number(4)),
            },
        );
        fs::write(dir.join("server.properties"), properties).unwrap();
        let scram = |mechanism: &str| format!("--add-scram '{mechanism}=[name={user},password={password}]'");
        // The broker outlives neither this process nor a test that fails: the input of the shell ends with this process.
        let script = format!(
            "{format} kafka.tools.StorageTool format -t AnabranchTestCluster00 -c server.properties {more} \
             >format.log 2>&1 || exit 1\n{run} kafka.Kafka server.properties >broker.log 2>&1 &\nbroker=$!\n\
             cat >/dev/null\nkill -9 $broker\ncd / && rm -rf '{shown}'",
            format = java_of(release, "128m"),
            run = java_of(release, "320m"),
            more = match release {
                Release::New => format!("--standalone {} {}", scram("SCRAM-SHA-256"), scram("SCRAM-SHA-512")),
                Release::Oldest => String::new(),
            },
        );
        let keeper = Command::new("sh")
            .args(["-c", &script])
            .current_dir(&dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut broker = Broker { dir, certificates, ports, topics: AtomicU32::new(0), keeper };
        broker.wait();
        if release == Release::Oldest {
            // It answers before it has registered.
            broker.judge("await_controller", &Value::Null);
        }
        Some(broker)
    }

    fn wait(&mut self) {
        let begun = Instant::now();
        let listens = |port: &Port| TcpStream::connect((Ipv4Addr::LOCALHOST, port.number())).is_ok();
        while !self.ports[..4].iter().all(listens) {
            let ended = self.keeper.try_wait().unwrap();
            let is_late = begun.elapsed() > PATIENCE;
            assert!(ended.is_none() && !is_late, "the broker does not start: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the logs of the broker.
    pub fn log(&self) -> String {
        let read = |name: &str| fs::read_to_string(self.dir.join(name)).unwrap_or_default();
        read("format.log") + &read("broker.log")
    }

    /// Address without a login.
    pub fn address(&self) -> String {
        self.listener(0)
    }

    /// Address with TLS, where each client needs a certificate.
    pub fn tls(&self) -> String {
        self.listener(1)
    }

    /// Address with a login, in plain text.
    pub fn login(&self) -> String {
        self.listener(2)
    }

    /// Address with a login, with TLS.
    pub fn login_tls(&self) -> String {
        self.listener(3)
    }

    fn listener(&self, n: usize) -> String {
        format!("127.0.0.1:{}", self.ports[n].number())
    }

    /// The certificates `ca`, `broker` and `client`.
    pub fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    /// Returns a name that no other topic has.
    pub fn name(&self, what: &str) -> String {
        format!("{what}-{}", self.topics.fetch_add(1, Ordering::Relaxed))
    }

    /// Creates a topic of a new name.
    pub fn topic(&self, what: &str, partitions: u32, config: &Value) -> String {
        let name = self.name(what);
        self.judge("create", &json!({ "topic": name, "partitions": partitions, "config": config }));
        name
    }

    /// Runs a command of the client that judges, and returns its answer.
    #[track_caller]
    pub fn judge(&self, command: &str, given: &Value) -> Value {
        Judge::new(self.address()).ask(command, given)
    }

    /// Starts a command of the client that judges, which runs until its input ends.
    pub fn judge_running(&self, command: &str, given: &Value) -> Child {
        Judge::new(self.address()).start(command, given)
    }

    /// Returns the committed messages of a topic, by partition and offset.
    #[track_caller]
    pub fn consume(&self, topic: &str) -> Vec<Value> {
        let mut messages = match self.judge("consume", &json!({ "topic": topic })) {
            Value::Array(messages) => messages,
            other => panic!("{other}"),
        };
        messages.sort_by_key(|message| (message["partition"].as_i64(), message["offset"].as_i64()));
        messages
    }
}
