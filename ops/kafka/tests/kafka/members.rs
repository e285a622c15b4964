//! Members of groups that are not ours: librdkafka, and the client of the Kafka project.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use serde_json::{Value, json};

use super::server::Broker;

/// Longest time until a member has left.
const PATIENCE: Duration = Duration::from_secs(60);

/// Kinds of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// librdkafka, with an assignor.
    Librdkafka(&'static str),
    /// The client of the Kafka project: `cooperative`, `eager`, or `consumer` for KIP-848.
    Java(&'static str),
}

/// What a member says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    Assigned(Vec<String>),
    Revoked(Vec<String>),
    Lost(Vec<String>),
    /// It has read these offsets of a partition, from the first to the last.
    Read(String, u64, u64),
    Other(String),
}

/// A member of a group. It leaves when it is dropped.
pub struct Other {
    member: Running,
    lines: Receiver<Value>,
}

enum Running {
    Process { process: Child, input: Option<ChildStdin> },
    Java { name: String },
}

impl Other {
    pub fn join(broker: &Broker, topic: &str, group: &str, kind: Kind) -> Other {
        match kind {
            Kind::Librdkafka(strategy) => {
                let given = json!({ "topic": topic, "group": group, "strategy": strategy });
                let mut process = broker.judge_running("member", &given);
                let (sender, lines) = channel();
                let output = BufReader::new(process.stdout.take().unwrap());
                std::thread::spawn(move || {
                    for line in output.lines().map_while(Result::ok) {
                        let _ = sender.send(serde_json::from_str(&line).unwrap_or(Value::Null));
                    }
                });
                let input = process.stdin.take();
                Other { member: Running::Process { process, input }, lines }
            }
            Kind::Java(protocol) => {
                let name = broker.name("java");
                let lines = Java::shared().listen(&name);
                let given = json!({
                    "open": name, "servers": broker.address(), "group": group, "topic": topic, "protocol": protocol
                });
                Java::shared().tell(&given);
                Other { member: Running::Java { name }, lines }
            }
        }
    }

    /// Returns what it said since the last call.
    pub fn said(&self) -> Vec<Said> {
        self.lines.try_iter().filter_map(|line| said(&line)).collect()
    }

    /// Keeps a member of the client of the Kafka project from polling for a time, as a slow program does.
    pub fn pause(&self, time: Duration) {
        let Running::Java { name } = &self.member else { panic!("only members of Java pause") };
        Java::shared().tell(&json!({ "pause": name, "millis": u64::try_from(time.as_millis()).unwrap() }));
        while self.lines.recv_timeout(PATIENCE).unwrap()["event"] != "paused" {}
    }

    /// Leaves the group, and returns the rest of what it said.
    pub fn leave(mut self) -> Vec<Said> {
        let mut all = Vec::new();
        match &mut self.member {
            Running::Process { process, input } => {
                drop(input.take());
                process.wait().unwrap();
                // The reader of the lines ends with the process.
                all.extend(self.lines.iter().filter_map(|line| said(&line)));
            }
            Running::Java { name } => {
                Java::shared().tell(&json!({ "close": name }));
                loop {
                    let line = self.lines.recv_timeout(PATIENCE).unwrap();
                    if line["event"] == "closed" {
                        break;
                    }
                    all.extend(said(&line));
                }
            }
        }
        all
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        if let Running::Process { process, input } = &mut self.member {
            drop(input.take());
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn said(line: &Value) -> Option<Said> {
    let texts = |value: &Value| {
        let texts = value.as_array().into_iter().flatten();
        texts.filter_map(|text| text.as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let (event, partitions) = match line {
        Value::Array(words) => (words[0].as_str()?, texts(&words[1])),
        _ => (line["event"].as_str()?, texts(&line["partitions"])),
    };
    Some(match event {
        "assigned" => Said::Assigned(partitions),
        "revoked" => Said::Revoked(partitions),
        "lost" => Said::Lost(partitions),
        "read" if line.is_array() => {
            let offset = line[2].as_u64()?;
            Said::Read(line[1].as_str()?.to_owned(), offset, offset)
        }
        "read" => Said::Read(line["partition"].as_str()?.to_owned(), line["first"].as_u64()?, line["last"].as_u64()?),
        _ => Said::Other(line.to_string()),
    })
}

/// One process with all members of the client of the Kafka project.
struct Java {
    input: Mutex<ChildStdin>,
    listeners: Arc<Mutex<BTreeMap<String, Sender<Value>>>>,
}

impl Java {
    fn shared() -> &'static Java {
        static SHARED: OnceLock<Java> = OnceLock::new();
        SHARED.get_or_init(Java::start)
    }

    /// The process ends with its input, and so with the process of the tests.
    fn start() -> Java {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut command = Command::new("java");
        command.args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-cp"]);
        command.arg(root.join("target/kafka/lib/*")).arg(root.join("tests/it/servers/kafka/Member.java"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().unwrap();
        let listeners: Arc<Mutex<BTreeMap<String, Sender<Value>>>> = Arc::default();
        let (heard, output) = (listeners.clone(), BufReader::new(process.stdout.take().unwrap()));
        let input = process.stdin.take().unwrap();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let Ok(line) = serde_json::from_str::<Value>(&line) else { continue };
                let name = line["member"].as_str().unwrap_or_default();
                if let Some(listener) = heard.lock().unwrap().get(name) {
                    let _ = listener.send(line);
                }
            }
            // Members that are waited for fail now.
            heard.lock().unwrap().clear();
            let _ = process.wait();
        });
        Java { input: Mutex::new(input), listeners }
    }

    fn listen(&self, name: &str) -> Receiver<Value> {
        let (sender, lines) = channel();
        self.listeners.lock().unwrap().insert(name.to_owned(), sender);
        lines
    }

    fn tell(&self, command: &Value) {
        let mut input = self.input.lock().unwrap();
        writeln!(input, "{command}").unwrap();
        input.flush().unwrap();
    }
}
