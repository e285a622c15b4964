//! `migrate`: connectors of Kafka Connect and projects of Conduit become pipelines that can be started.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

mod projects;
mod settings;

use crate::process::Workspace;
#[cfg(feature = "kafka")]
use crate::servers::kafka::broker;

/// Every credential in the files of this test.
const CREDENTIALS: [&str; 10] = [
    "Hunter2!",
    "Hunter2%21",
    "AKIAEXAMPLEEXAMPLE",
    "abcdefghijklmnop",
    "dbz-pa55",
    "br0ker-pass",
    "sh0p-pass",
    "kafka-pa55",
    "reg1stry",
    "reader:",
];

const CONNECTORS: [&str; 6] =
    ["jdbc-sink.json", "jdbc-source.json", "s3-sink.json", "files.json", "debezium.json", "transforms.json"];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/migrate")
}

/// A directory with these files of connectors.
fn with(files: &[&str]) -> Workspace {
    let workspace = Workspace::new();
    for name in files {
        workspace.write(name, fs::read(fixtures().join(name)).unwrap());
    }
    workspace
}

fn report(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Sets every variable that the report names.
fn set_variables(workspace: &mut Workspace, report: &Value) {
    for variable in report["result"]["variables"].as_array().unwrap() {
        let name = variable["name"].as_str().unwrap();
        let value = match name {
            name if name.ends_with("_URL") => "postgresql://u:p@localhost/d",
            "KAFKA_SERVERS" => "localhost:9092",
            _ => "value",
        };
        workspace.env(name, value);
    }
}

/// The line of the report on a setting of a connector.
fn line<'r>(report: &'r Value, connector: &str, setting: &str) -> &'r Value {
    let connectors = report["result"]["connectors"].as_array().unwrap();
    let connector = connectors.iter().find(|found| found["name"] == connector).unwrap();
    let lines = connector["settings"].as_array().unwrap();
    lines.iter().find(|line| line["setting"] == setting).unwrap_or_else(|| panic!("no {setting} in {connector:#}"))
}

#[test]
#[cfg(all(feature = "kafka", feature = "postgres", feature = "s3"))]
fn connectors_become_pipelines_that_can_be_planned() {
    let mut workspace = with(&CONNECTORS);
    let arguments = [&["migrate", "kafka-connect", "--json"][..], &CONNECTORS].concat();
    let report = report(&workspace.run(&arguments).expect_code(0).stdout);
    assert_eq!(report["result"]["findings"], serde_json::json!([]), "{report:#}");
    set_variables(&mut workspace, &report);
    let checked = workspace.run(&["pipelines", "validate", "--strict"]);
    assert_eq!(checked.code(), Some(0), "{}", checked.both());
    for connector in report["result"]["connectors"].as_array().unwrap() {
        workspace.run(&["pipelines", "plan", connector["pipeline"].as_str().unwrap()]).expect_code(0);
    }
}

#[test]
#[cfg(all(feature = "kafka", feature = "postgres", feature = "s3"))]
fn no_output_and_no_file_contains_a_credential() {
    let workspace = with(&CONNECTORS);
    workspace.write("worker.properties", fs::read(fixtures().join("worker.properties")).unwrap());
    let arguments = [&["migrate", "kafka-connect", "--worker", "worker.properties"][..], &CONNECTORS].concat();
    let mut shown = String::new();
    for flags in [&["--dry-run"][..], &["--dry-run", "--json"], &[]] {
        shown.push_str(&workspace.run(&[&arguments[..], flags].concat()).expect_code(0).both());
    }
    let source = fixtures().join("conduit");
    for flags in [&["--dry-run"][..], &["--json"]] {
        let arguments = [&["migrate", "conduit", source.to_str().unwrap(), "--to", "new"][..], flags].concat();
        shown.push_str(&workspace.run(&arguments).expect_code(0).both());
    }
    let mut files: Vec<PathBuf> = crate::docs::below(&workspace.path("pipelines"), ".yaml")
        .into_iter()
        .chain(crate::docs::below(&workspace.path("new"), ".yaml"))
        .collect();
    files.sort();
    assert_eq!(files.len(), 10, "{files:?}");
    files.iter().for_each(|file| shown.push_str(&fs::read_to_string(file).unwrap()));
    for credential in CREDENTIALS {
        assert!(!shown.contains(credential), "{credential} is in {shown}");
    }
    // The variables that replace them are named.
    for variable in [
        "ORDERS_TO_POSTGRES_CONNECTION_PASSWORD",
        "SHOP_PASSWORD",
        "SHOP_USER",
        "EVENTS_TO_S3_AWS_SECRET_ACCESS_KEY",
        "KAFKA_SASL_PASSWORD",
        "ORDERS_SHOP_URL",
        "ANABRANCH_SCHEMA_REGISTRY_CONFLUENT_CONNECTION_STRING",
    ] {
        assert!(shown.contains(variable), "{variable} is not in {shown}");
    }
}

#[test]
#[cfg(all(feature = "kafka", feature = "postgres", feature = "s3"))]
fn the_worker_gives_what_a_connector_does_not_set() {
    let workspace = with(&[]);
    workspace.write("worker.properties", fs::read(fixtures().join("worker.properties")).unwrap());
    let sink = r#"{"connector.class": "FileStreamSink", "file": "out", "topics": "in"}"#;
    workspace.write("sink.json", sink);
    let unsure =
        report(&workspace.run(&["migrate", "kafka-connect", "sink.json", "--dry-run", "--json"]).expect_code(0).stdout);
    assert_eq!(line(&unsure, "sink", "value.converter")["blocks"], true);
    let text = unsure["result"]["connectors"][0]["text"].as_str().unwrap();
    assert!(text.contains("status: stopped") && text.contains("--worker"), "{text}");
    let known = workspace
        .run(&["migrate", "kafka-connect", "sink.json", "--worker", "worker.properties", "--dry-run", "--json"])
        .expect_code(0);
    let known = report(&known.stdout);
    let text = known["result"]["connectors"][0]["text"].as_str().unwrap();
    for expected in [
        "servers: broker-1.example:9093,broker-2.example:9093",
        "tls.enabled: true",
        "saslMechanism: SCRAM-SHA-512",
        "saslUsername: connect",
        "saslPassword: ${KAFKA_SASL_PASSWORD}",
        "groupID: connect-sink",
    ] {
        assert!(text.contains(expected), "{expected} is not in {text}");
    }
    assert!(!text.contains("status: stopped"), "{text}");
}

#[test]
#[cfg(feature = "kafka")]
fn transformations_do_what_those_of_kafka_connect_do() {
    let mut workspace = with(&["transforms.json"]);
    let report =
        report(&workspace.run(&["migrate", "kafka-connect", "transforms.json", "--json"]).expect_code(0).stdout);
    set_variables(&mut workspace, &report);
    let tests = r#"
env: { KAFKA_SERVERS: "localhost:9092" }
tests:
  - name: a record passes all transformations
    input:
      - metadata: { recfmt.collection: in, kafka.header.trace: x, kafka.header.kept: y }
        after:
          $json: { id: 7, name: tea, card: "4111", amount: "3.5", at: 1772357400000, seen: "2026-03-01T09:30:00", address: { city: Oslo }, dropped: 1 }
    expect:
      records:
        - metadata:
            recfmt.collection: n-i
            kafka.header.team: shop
            kafka.header.kept: y
            kafka.header.trace: $absent
          key: { row: { id: "7", name: tea, card: "****", amount: 3.5, at: 2026-03-01 09:30, seen: 1772357400, address_city: Oslo, from: "{{ not a template }}" } }
          after: { row: { id: "7", name: tea, card: "****", amount: 3.5, at: 2026-03-01 09:30, seen: 1772357400, address_city: Oslo, from: "{{ not a template }}" } }
  - name: a predicate selects topics
    input:
      - metadata: { recfmt.collection: audit-1 }
        after: { $json: { id: 1, row: x, address: {} } }
    expect:
      records:
        - metadata: { recfmt.collection: audit-1 }
          after: { $fields: { id: "1", from: "{{ not a template }}" } }
  - name: tombstones are dropped
    input:
      - { operation: delete, key: a, metadata: { recfmt.collection: in } }
    expect:
      records: []
"#;
    workspace.write("pipelines/all-transforms.test.yaml", tests);
    let output = workspace.run(&["pipelines", "test"]);
    assert_eq!(output.code(), Some(0), "{}\n{}", output.both(), workspace.read("pipelines/all-transforms.yaml"));
}

#[test]
#[cfg(all(feature = "kafka", feature = "postgres"))]
fn rows_have_the_key_that_the_connector_made() {
    let workspace = with(&["jdbc-sink.json"]);
    workspace.run(&["migrate", "kafka-connect", "jdbc-sink.json"]).expect_code(0);
    let tests = r#"
env: { KAFKA_SERVERS: "localhost:9092", ORDERS_TO_POSTGRES_CONNECTION_PASSWORD: p }
tests:
  - name: a record becomes a row
    input:
      - metadata: { recfmt.collection: shop.orders }
        key: ignored
        after: { $json: { schema: { type: struct }, payload: { id: 9007199254740993, cust: Ada, amt: "12.5", quantity: "3", card: "4111", debug: true } } }
    expect:
      records:
        - key: { id: 9007199254740993 }
          after: { id: 9007199254740993, customer: Ada, amount: 12.5, quantity: 3, card: "****", loaded_by: connect, topic: shop.orders }
  - name: a record without a value fails, because deletions are disabled
    input:
      - { operation: delete, key: a, metadata: { recfmt.collection: shop.orders } }
    expect:
      records: []
      error: deletions are disabled
      status: degraded
"#;
    workspace.write("pipelines/orders-to-postgres.test.yaml", tests);
    let output = workspace.run(&["pipelines", "test"]);
    assert_eq!(output.code(), Some(0), "{}\n{}", output.both(), workspace.read("pipelines/orders-to-postgres.yaml"));
}

#[test]
#[cfg(all(feature = "kafka", feature = "postgres"))]
fn keys_and_envelopes_of_messages_become_rows() {
    let sink = |name: &str, key: &str, more: &str| {
        format!(
            r#"{{"name": "{name}", "config": {{"connector.class": "JdbcSink", "topics": "orders", "connection.url": "jdbc:postgresql:shop",
            "insert.mode": "upsert", "pk.mode": "record_key", "pk.fields": "id", "delete.enabled": "true",
            "key.converter": "{key}", "value.converter": "org.apache.kafka.connect.json.JsonConverter", {more}}}}}"#
        )
    };
    let json = "org.apache.kafka.connect.json.JsonConverter";
    let plain = r#""value.converter.schemas.enable": "false""#;
    let unwrap = r#""transforms": "u", "transforms.u.type": "io.debezium.transforms.ExtractNewRecordState",
        "transforms.u.delete.handling.mode": "rewrite", "transforms.u.add.fields": "op,lsn""#;
    let connectors = [
        sink("text-key", "org.apache.kafka.connect.storage.StringConverter", plain),
        sink("json-key", json, plain),
        sink("envelope", json, unwrap),
    ];
    let workspace = Workspace::new();
    workspace.write("sinks.json", format!("[{}]", connectors.join(",")));
    workspace.run(&["migrate", "kafka-connect", "sinks.json"]).expect_code(0);
    let tests = [
        (
            "text-key",
            r#"
      - { key: "7", metadata: { recfmt.collection: orders }, after: { $json: { id: 7, a: 1 } } }
      - { operation: delete, key: "8", metadata: { recfmt.collection: orders } }
    expect:
      records:
        - { key: { id: "7" }, after: { id: 7, a: 1 }, metadata: { migrate.key: $absent } }
        - { key: { id: "8" }, operation: delete, metadata: { migrate.key: $absent } }
"#,
        ),
        (
            "json-key",
            r#"
      - { key: { $json: { schema: {}, payload: { id: 7 } } }, metadata: { recfmt.collection: orders }, after: { $json: { id: 7 } } }
      - { operation: delete, key: { $json: { schema: {}, payload: 8 } }, metadata: { recfmt.collection: orders } }
      - { operation: delete, key: { $json: { schema: {}, payload: x } }, metadata: { recfmt.collection: orders } }
    expect:
      records:
        - { key: { id: 7 }, after: { id: 7 } }
        - { key: { id: "8" }, operation: delete }
        - { key: { id: x }, operation: delete }
"#,
        ),
        (
            "envelope",
            r#"
      - key: { $json: { schema: {}, payload: { id: 7 } } }
        after: { $json: { schema: {}, payload: { op: c, before: null, after: { id: 7 }, source: { lsn: 5 }, ts_ms: 1 } } }
      - key: { $json: { schema: {}, payload: { id: 8 } } }
        after: { $json: { schema: {}, payload: { op: d, before: { id: 8, a: 2 }, after: null, source: { lsn: 6 }, ts_ms: 1 } } }
      - { operation: delete, key: { $json: { schema: {}, payload: { id: 8 } } } }
    expect:
      records:
        - { key: { id: 7 }, after: { id: 7, __deleted: "false", __op: c, __lsn: "5" } }
        - { key: { id: 8 }, after: { id: 8, a: 2, __deleted: "true", __op: d, __lsn: "6" }, operation: update }
"#,
        ),
    ];
    for (name, test) in tests {
        let text = format!("env: {{ KAFKA_SERVERS: \"localhost:9092\" }}\ntests:\n  - name: {name}\n    input:{test}");
        workspace.write(&format!("pipelines/{name}.test.yaml"), text);
    }
    let output = workspace.run(&["pipelines", "test"]);
    assert_eq!(output.code(), Some(0), "{}", output.both());
}

#[test]
fn a_connector_without_a_counterpart_is_named() {
    let workspace = Workspace::new();
    workspace.write(
        "c.json",
        r#"[{"name": "m", "config": {"connector.class": "io.debezium.connector.mysql.MySqlConnector", "database.password": "Hunter2!"}},
            {"name": "o", "config": {"connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector", "topics": "t", "connection.url": "jdbc:oracle:thin:@db:1521/x", "connection.password": "Hunter2!"}},
            {"name": "f", "config": {"connector.class": "FileStreamSink", "topics": "t", "file": "out", "who.knows": "Hunter2!"}}]"#,
    );
    let output = workspace.run(&["migrate", "kafka-connect", "c.json"]).expect_code(2);
    for expected in [
        "m (io.debezium",
        "not migrated",
        "of the Debezium connectors, only PostgreSQL",
        "this is oracle",
        "to do         who.knows",
    ] {
        assert!(output.stdout.contains(expected), "{expected}: {}", output.both());
    }
    assert!(!output.both().contains("Hunter2"), "{}", output.both());
    let text = workspace.read("pipelines/f.yaml");
    assert!(text.contains("status: stopped") && text.contains("# * who.knows:"), "{text}");
    assert!(!workspace.path("pipelines/m.yaml").exists());
}

#[test]
fn no_file_is_written_over() {
    let workspace = with(&["files.json"]);
    workspace.write("pipelines/file-sink.yaml", "mine");
    let output = workspace.run(&["migrate", "kafka-connect", "files.json"]).expect_code(2);
    assert!(
        output.stderr.contains("pipelines/file-sink.yaml already exists; nothing was written"),
        "{}",
        output.both()
    );
    assert_eq!(workspace.read("pipelines/file-sink.yaml"), "mine");
    assert!(!workspace.path("pipelines/file-source.yaml").exists());
    let source = fixtures().join("conduit");
    workspace.write("new/anabranch.yaml", "mine");
    workspace.run(&["migrate", "conduit", source.to_str().unwrap(), "--to", "new"]).expect_code(2);
    assert!(!workspace.path("new/pipelines").exists());
}

#[test]
fn input_that_is_not_a_connector_is_refused_without_its_values() {
    let workspace = Workspace::new();
    workspace.write("broken.json", "{\"connector.class\": \"C\", \"password\": \"Hunter2!\"");
    workspace.write("other.json", "[{\"password\": \"Hunter2!\"}]");
    for (file, expected) in [
        ("broken.json", "broken.json: not valid JSON, at line 1, column"),
        ("other.json", "other.json: there is no connector at /0"),
        ("missing.json", "cannot read missing.json"),
    ] {
        let output = workspace.run(&["migrate", "kafka-connect", file]);
        assert_ne!(output.code(), Some(0));
        assert!(output.stderr.contains(expected) && !output.stderr.contains("Hunter2"), "{}", output.both());
    }
    let output = workspace.run(&["migrate", "conduit", "pipelines", "--to", "new"]).expect_code(2);
    assert!(output.stderr.contains("there is no project of Conduit in pipelines"), "{}", output.both());
}

#[test]
#[cfg(all(feature = "kafka", feature = "postgres"))]
fn a_project_of_conduit_can_be_planned_where_it_is_written() {
    let mut workspace = Workspace::new();
    let source = fixtures().join("conduit");
    for (name, text) in [("conduit.yaml", "conduit.yaml"), ("pipelines/orders.yaml", "pipelines/orders.yaml")] {
        workspace.write(&format!("old/{name}"), fs::read(source.join(text)).unwrap());
    }
    workspace.write("old/connectors/notes.txt", "not a program");
    let output = workspace.run(&["migrate", "conduit", "old", "--to", "new", "--json"]).expect_code(0);
    let report = report(&output.stdout);
    set_variables(&mut workspace, &report);
    let text = workspace.read("new/pipelines/orders.yaml");
    for expected in [
        "# The orders of the shop.\n",
        "url: \"${ORDERS_SHOP_URL}\" # read-only\n",
        "saslPassword: \"${ORDERS_TOPIC_SASLPASSWORD}\"}\n",
        "(index .Metadata \"recfmt.collection\")",
        "{{ index .Metadata \"svc.source.connector.id\" }}",
    ] {
        assert!(text.contains(expected), "{expected} is not in {text}");
    }
    assert_eq!(workspace.read("new/connectors/notes.txt"), "not a program");
    let service = workspace.read("new/anabranch.yaml");
    for expected in ["log.level: debug", "api.http.address: ':8081'", "pipelines.error-recovery.max-retries: 5"] {
        assert!(service.contains(expected), "{expected} is not in {service}");
    }
    let checked = workspace.run(&["pipelines", "validate", "--strict", "new/pipelines"]);
    assert_eq!(checked.code(), Some(0), "{}", checked.both());
    workspace.env("ANABRANCH_SCHEMA_REGISTRY_CONFLUENT_CONNECTION_STRING", "https://registry.example");
    workspace.env("ANABRANCH_API_HTTP_TOKEN", "a-token-of-the-api-for-this-test");
    workspace.run(&["config", "--config.path", "new/anabranch.yaml"]).expect_code(0);
}

/// The consumer group of a sink connector continues where the connector has stopped: here, the group has only the
/// offsets that a run without a stored position has committed.
#[test]
#[cfg(feature = "kafka")]
fn the_pipelines_of_file_connectors_move_a_file_through_a_broker() {
    let Some(broker) = broker() else { return };
    let topic = broker.topic("migrated", 1, &serde_json::json!({}));
    let workspace = Workspace::new();
    let connectors = fs::read_to_string(fixtures().join("files.json")).unwrap();
    let connectors = connectors
        .replace("/var/log/shop/access.log", "in.txt")
        .replace("/tmp/access.copy", "out.txt")
        .replace("\"access\"", &format!("{topic:?}"));
    workspace.write("files.json", connectors);
    workspace.write("worker.properties", format!("bootstrap.servers={}\n", broker.address()));
    workspace.run(&["migrate", "kafka-connect", "files.json", "--worker", "worker.properties"]).expect_code(0);
    let once = |pipeline: &str, store: [&str; 2]| {
        let file = format!("pipelines/{pipeline}.yaml");
        workspace.run(&[&["run", "--once", "--pipelines", &file][..], &store].concat()).expect_code(0);
    };
    workspace.write("in.txt", "one\ntwo\n");
    once("file-source", ["--db.path", "source.db"]);
    once("file-sink", ["--db.type", "inmemory"]);
    let line = |text: &str| format!("{{\"host\":\"web-1\",\"line\":{text:?}}}");
    assert_eq!(workspace.lines("out.txt"), [line("one"), line("two")]);
    workspace.append("in.txt", "three\n");
    once("file-source", ["--db.path", "source.db"]);
    once("file-sink", ["--db.type", "inmemory"]);
    assert_eq!(workspace.lines("out.txt"), [line("one"), line("two"), line("three")]);
}
