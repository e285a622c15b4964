//! Kafka through the real binary: the example, a service that is killed, and faults of brokers.

mod avro;
mod chaos;
pub mod checker;
mod coordinator;
mod copier;
mod kills;
mod replicas;
mod split;
mod topics;
mod visible;
mod zombie;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::json;

use crate::api::get;
use crate::process::{Workspace, base64_decode};
use crate::servers::kafka::{Broker, broker};

#[test]
fn the_example_runs_and_checks() {
    // Without the programs that `.ci/setup` installs, the script would download them.
    if broker().is_none() {
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/kafka/run.sh");
    let mut command = Command::new(script);
    let output =
        command.arg("--check").env("ANABRANCH", env!("CARGO_BIN_EXE_anabranch")).current_dir("/").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("large-orders: 3 records"), "{text}");
}

fn pipeline(id: &str, source: &str, destination: &str) -> String {
    format!(
        "version: \"2.2\"\npipelines:\n  - id: {id}\n    connectors:\n      - {{ id: in, type: source, {source} }}\n      \
         - {{ id: out, type: destination, {destination} }}\n"
    )
}

/// Returns how many records the only pipeline of a service has delivered.
fn delivered(address: SocketAddr) -> f64 {
    let metrics = get(address, "/metrics").body;
    let line = metrics.lines().find(|line| line.starts_with("anabranch_records_delivered_total{"));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0.0)
}

/// A topic with the values `0`, `1`, …, by a pipeline from a file.
fn filled(broker: &Broker, count: usize) -> String {
    let topic = broker.topic("filled", 3, &json!({}));
    let workspace = Workspace::new();
    workspace.write("in.txt", (0..count).map(|n| format!("{n}\n")).collect::<String>());
    let destination = format!(
        "plugin: kafka, settings: {{ servers: '{}', topic: {topic}, sdk.record.format: recfmt/raw }}",
        broker.address()
    );
    workspace.write("pipelines/p.yaml", pipeline("fill", "plugin: file, settings: { path: in.txt }", &destination));
    workspace.once();
    topic
}

fn values(broker: &Broker, topic: &str) -> Vec<usize> {
    let value = |message: &serde_json::Value| {
        String::from_utf8(base64_decode(message["value"].as_str().unwrap())).unwrap().parse().unwrap()
    };
    broker.consume(topic).iter().map(value).collect()
}

/// Kills the service again and again while it copies a topic, and returns the values of the copy.
fn copied_with_kills(broker: &Broker, count: usize, more: &str) -> Vec<usize> {
    let (from, to) = (filled(broker, count), broker.topic("copy", 2, &json!({})));
    let (address, workspace) = (broker.address(), Workspace::new());
    // A member with a static id takes its partitions back at once, without waiting for the session of the killed one.
    let source = format!(
        "plugin: kafka, settings: {{ servers: '{address}', topics: {from}, groupID: {from}, groupInstanceID: one, \
         readFromBeginning: true, sessionTimeout: 6s }}"
    );
    let destination = format!(
        "plugin: kafka, settings: {{ servers: '{address}', topic: {to}, sdk.record.format: recfmt/raw, \
         sdk.batch.size: 100{more} }}"
    );
    workspace.write("pipelines/p.yaml", pipeline("copy", &source, &destination));
    for kill in 0..5 {
        let mut service = workspace.command(["run"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Any moment will do: the times are those of opening, reading and writing.
        std::thread::sleep(Duration::from_millis(500 + 350 * kill));
        assert!(service.try_wait().unwrap().is_none(), "the service ended by itself");
        service.kill().unwrap();
        service.wait().unwrap();
    }
    workspace.once();
    values(broker, &to)
}

#[test]
fn a_killed_service_loses_no_record() {
    let Some(broker) = broker() else { return };
    let copied = copied_with_kills(broker, 30_000, "");
    assert_eq!(copied.iter().collect::<BTreeSet<_>>().len(), 30_000, "lost");
    assert!(copied.len() <= 30_000 + 5 * 3 * 16_384, "more duplicates than `plan` says: {}", copied.len() - 30_000);
}

#[test]
fn a_killed_service_neither_loses_nor_doubles_a_record_with_exactly_once() {
    let Some(broker) = broker() else { return };
    let mut copied = copied_with_kills(broker, 30_000, ", exactlyOnce: true");
    copied.sort_unstable();
    assert_eq!(copied, (0..30_000).collect::<Vec<_>>());
}

#[test]
fn a_pipeline_that_writes_back_to_the_topics_that_it_reads_is_refused() {
    let processor = |plugin: &str| format!("    processors:\n      - {{ id: step, plugin: {plugin} }}\n");
    let sets =
        |field: &str| processor(&format!("field.set, settings: {{ field: '.Metadata[\"{field}\"]', value: other }}"));
    let told = |source: &str, destination: &str, processors: &str| {
        let workspace = Workspace::new();
        let kafka = |settings: &str| format!("plugin: kafka, settings: {{ {settings} }}");
        let text = pipeline("p", &kafka(&format!("groupID: g, {source}")), &kafka(destination)) + processors;
        workspace.write("pipelines/p.yaml", text);
        let output = workspace.run(&["pipelines", "validate", "pipelines"]);
        (output.code(), output.both())
    };
    let (topics, same, other) = ("servers: 'a:1,b', topics: 't,u'", "servers: 'b:9092,a:1'", "servers: 'c:1'");
    for (source, destination, processors) in [
        (topics, same, String::new()),
        ("servers: 'a:1,b', topicPattern: 't.*'", same, sets("kind")),
        (topics, &*format!("{same}, topic: '{{{{ index .Metadata \"opencdc.collection\" }}}}'"), String::new()),
        (topics, &*format!("{same}, topic: u"), String::new()),
    ] {
        let (code, text) = told(source, destination, &processors);
        assert!(code == Some(2) && text.contains("plan.feedback"), "{source} {destination}: {text}");
    }
    for (destination, processors) in [
        (other.to_owned(), String::new()),
        (format!("{same}, topic: v"), String::new()),
        (format!("{same}, topic: 'copy-{{{{ index .Metadata \"opencdc.collection\" }}}}'"), String::new()),
        (same.to_owned(), sets("opencdc.collection")),
        (same.to_owned(), processor("custom.javascript, settings: { script: 'function process(r) { return r }' }")),
    ] {
        let (code, text) = told(topics, &destination, &processors);
        assert!(code == Some(0) && !text.contains("plan.feedback"), "{destination} {processors}: {text}");
    }
}
