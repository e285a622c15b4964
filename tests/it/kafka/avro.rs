//! Avro in the Confluent wire format, between Kafka and a schema registry: what Confluent's serializers write is read, and
//! what is written is read by Confluent's deserializers.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::process::{Process, Workspace, skip};
use crate::servers::Port;
use crate::servers::kafka::{Broker, broker};

const TOKEN: &str = "of-the-test";

/// The schema registry of a service, at an address of its own.
struct Registry {
    workspace: Workspace,
    port: Port,
}

impl Registry {
    fn new() -> Registry {
        let mut workspace = Workspace::new();
        workspace.env("ANABRANCH_API_HTTP_TOKEN", TOKEN);
        workspace.write("in.txt", "");
        workspace.write("pipelines/p.yaml", crate::process::file_to_file("p", ""));
        Registry { workspace, port: Port::hold() }
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port.number()))
    }

    fn start(&self) -> Process {
        let address = format!("--api.http.address={}", self.address());
        let mut process = self.workspace.start(&["run", "--schema-registry.serve", &address]);
        process.address();
        process
    }

    /// A workspace whose service uses this registry, with a login.
    fn client(&self) -> Workspace {
        let mut workspace = Workspace::new();
        workspace.env("ANABRANCH_SCHEMA_REGISTRY_CONFLUENT_AUTH_BASIC_PASSWORD", TOKEN);
        workspace.write(
            "anabranch.yaml",
            format!(
                "schema-registry:\n  type: confluent\n  confluent:\n    connection-string: http://{}\n    \
                 auth: {{ type: basic, basic: {{ username: anybody }} }}\n",
                self.address()
            ),
        );
        workspace
    }

    /// Runs a command of Confluent's client.
    #[track_caller]
    fn confluent(&self, broker: &Broker, command: &str, given: &Value) -> Value {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let output = Command::new(root.join("target/schema-client/bin/python"))
            .arg(root.join("tests/it/kafka/avro.py"))
            .args([&broker.address(), &format!("http://{}", self.address()), TOKEN, command, &given.to_string()])
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command} {given}: {error}");
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }
}

/// The shared broker, if Confluent's client with its serializers is there too.
fn broker_and_client() -> Option<&'static Broker> {
    let broker = broker()?;
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/schema-client/bin/python");
    let imported = Command::new(python).args(["-c", "import confluent_kafka.schema_registry.avro"]).output();
    if imported.is_ok_and(|output| output.status.success()) {
        return Some(broker);
    }
    skip("Confluent's serializers for Python are not installed");
    None
}

/// Two versions of a schema, with types that JSON does not have.
fn order_schemas() -> [Value; 2] {
    let old = json!({"type": "record", "name": "Order", "namespace": "shop", "fields": [
        {"name": "id", "type": "int"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["SALE", "RETURN"]}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    ]});
    let mut new = old.clone();
    let note = json!({"name": "note", "type": ["null", "string"], "default": null});
    new["fields"].as_array_mut().unwrap().push(note);
    [old, new]
}

/// The pipeline that the documentation shows: it decodes, drops returns, and encodes.
fn sales(broker: &Broker, from: &str, to: &str) -> String {
    let servers = broker.address();
    format!(
        r#"
version: "2.2"
pipelines:
  - id: sales
    connectors:
      - id: orders
        type: source
        plugin: kafka
        settings: {{ servers: "{servers}", topics: {from}, groupID: {from}, readFromBeginning: true }}
      - id: sales
        type: destination
        plugin: kafka
        settings:
          servers: {servers}
          topic: {to}
          encode.key: avro
          encode.payload: avro
    processors:
      - {{ id: key, plugin: avro.decode, settings: {{ field: .Key }} }}
      - {{ id: value, plugin: avro.decode }}
      - id: sales
        plugin: filter
        condition: '{{{{ if .Payload.After }}}}{{{{ eq .Payload.After.kind "RETURN" }}}}{{{{ else }}}}false{{{{ end }}}}'
    dead-letter-queue: {{ plugin: file, settings: {{ path: dlq.ndjson }}, window-size: 0 }}
"#
    )
}

fn letters(workspace: &Workspace) -> Vec<String> {
    let error = |line: &String| {
        let letter: Value = serde_json::from_str(line).unwrap();
        letter["metadata"]["svc.dlq.nack.error"].as_str().unwrap().to_owned()
    };
    workspace.lines("dlq.ndjson").iter().map(error).collect()
}

#[test]
fn records_pass_between_confluents_serializer_and_deserializer() {
    let Some(broker) = broker_and_client() else { return };
    let registry = Registry::new();
    let _service = registry.start();
    let (from, to) = (broker.topic("avro-in", 1, &json!({})), broker.topic("avro-out", 1, &json!({})));
    let [old, new] = order_schemas();
    let order = |id: i32, kind: &str| json!({"id": id, "kind": kind, "price": "12.50"});
    let noted = |id: i32, note: Value| json!({"id": id, "kind": "SALE", "price": "0.05", "note": note});
    let messages = json!([
        ["ada", order(1, "SALE"), 0],
        ["bob", noted(2, json!("quick")), 1],
        ["cyd", order(3, "RETURN"), 0],
        ["ada", null, 0],
        {"bytes": [0, 0, 0, 255, 255, 2]},
        {"bytes": b"{\"id\":5}".to_vec()},
        ["bob", noted(4, Value::Null), 1],
        ["dan", order(6, "SALE"), 0],
    ]);
    let produced = json!({"topic": from, "key": "string", "schemas": [old, new], "messages": messages});
    registry.confluent(broker, "produce", &produced);

    let workspace = registry.client();
    workspace.write("pipelines/p.yaml", sales(broker, &from, &to));
    workspace.once();

    let consumed = registry.confluent(broker, "consume", &json!({ "topic": to }));
    let expected = json!([
        ["ada", order(1, "SALE")],
        ["bob", noted(2, json!("quick"))],
        ["ada", null],
        ["bob", noted(4, Value::Null)],
        ["dan", order(6, "SALE")],
    ]);
    assert_eq!(consumed["messages"], expected);
    let (key, value) = (format!("{to}-key"), format!("{to}-value"));
    assert_eq!(consumed["subjects"], json!({ key: [1], value: [1, 2] }));

    // Only the two records that nobody can read are dead letters.
    let letters = letters(&workspace);
    assert_eq!(letters.len(), 2, "{letters:?}");
    assert!(letters[0].contains("schema not found: id 65535"), "{letters:?}");
    assert!(letters[1].contains("but like JSON text") && letters[1].contains("json.decode"), "{letters:?}");
}

#[test]
fn the_latest_registered_schema_is_written() {
    let Some(broker) = broker_and_client() else { return };
    let registry = Registry::new();
    let _service = registry.start();
    let topic = broker.topic("avro-latest", 1, &json!({}));
    let [old, new] = order_schemas();
    for schema in [&old, &new] {
        registry.confluent(
            broker,
            "register",
            &json!({"topic": topic, "subject": format!("{topic}-value"), "schema": schema}),
        );
    }
    let workspace = registry.client();
    workspace.write(
        "in.txt",
        "{\"id\":1,\"kind\":\"SALE\",\"price\":12.5}\n{\"id\":2,\"kind\":\"GIFT\",\"price\":1}\n{\"id\":3,\"kind\":\"RETURN\",\"price\":\"3.10\",\"note\":\"no\"}\n",
    );
    let servers = broker.address();
    workspace.write(
        "pipelines/p.yaml",
        format!(
            r#"
version: "2.2"
pipelines:
  - id: orders
    connectors:
      - {{ id: in, type: source, plugin: file, settings: {{ path: in.txt }} }}
      - id: out
        type: destination
        plugin: kafka
        settings: {{ servers: "{servers}", topic: {topic}, encode.payload: avro, encode.schema: latest, key: k }}
    dead-letter-queue: {{ plugin: file, settings: {{ path: dlq.ndjson }}, window-size: 0 }}
"#
        ),
    );
    workspace.once();
    let consumed = registry.confluent(broker, "consume", &json!({ "topic": topic, "raw_keys": true }));
    let order = |id: i32, kind: &str, price: &str, note: Value| json!(["k", {"id": id, "kind": kind, "price": price, "note": note}]);
    let expected = json!([order(1, "SALE", "12.50", Value::Null), order(3, "RETURN", "3.10", json!("no"))]);
    assert_eq!(consumed["messages"], expected);
    assert_eq!(consumed["subjects"], json!({ format!("{topic}-value"): [1, 2] }), "nothing is registered");
    let letters = letters(&workspace);
    assert_eq!(letters.len(), 1, "{letters:?}");
    assert!(letters[0].contains("kind: the enum has no symbol \"GIFT\""), "{letters:?}");
}

/// One service writes the topic and serves its own registry, without any setting for the pipeline.
#[test]
fn the_built_in_registry_serves_what_a_pipeline_writes() {
    let Some(broker) = broker_and_client() else { return };
    let topic = broker.topic("avro-built-in", 1, &json!({}));
    let registry = Registry::new();
    let servers = broker.address();
    registry.workspace.write("in.txt", "{\"id\":1,\"name\":\"tea\"}\n{\"id\":2}\n{\"id\":3,\"name\":\"cup\"}\n");
    let to_kafka = format!(
        "{{ id: out, type: destination, plugin: kafka, settings: {{ servers: \"{servers}\", topic: {topic}, key: k, \
         encode.payload: avro }} }}"
    );
    registry.workspace.write(
        "pipelines/p.yaml",
        format!(
            "version: \"2.2\"\npipelines:\n  - id: p\n    connectors:\n      - {{ id: in, type: source, plugin: file, \
             settings: {{ path: in.txt }} }}\n      - {to_kafka}\n"
        ),
    );
    let mut service = registry.start();
    service.wait_until("three messages", || broker.consume(&topic).len() == 3);
    let consumed = registry.confluent(broker, "consume", &json!({ "topic": topic, "raw_keys": true }));
    let expected = json!([["k", {"id": 1, "name": "tea"}], ["k", {"id": 2}], ["k", {"id": 3, "name": "cup"}]]);
    assert_eq!(consumed["messages"], expected);
    assert_eq!(consumed["subjects"], json!({ format!("{topic}-value"): [1, 2] }));
    service.signal("TERM");
    service.finish().expect_code(0);
}

#[test]
fn records_wait_for_a_registry_that_is_away() {
    let Some(broker) = broker_and_client() else { return };
    let registry = Registry::new();
    let (from, to) = (broker.topic("avro-away", 1, &json!({})), broker.topic("avro-back", 1, &json!({})));
    let serving = registry.start();
    let [old, new] = order_schemas();
    let orders: Vec<Value> =
        (0..20).map(|id| json!(["k", {"id": id, "kind": "SALE", "price": "1.00"}, id % 2])).collect();
    registry.confluent(
        broker,
        "produce",
        &json!({"topic": from, "key": "string", "schemas": [old, new], "messages": orders}),
    );
    serving.signal("TERM");
    serving.finish().expect_code(0);

    let workspace = registry.client();
    workspace.write("pipelines/p.yaml", sales(broker, &from, &to));
    let mut process = workspace.start(&["run", "--api.enabled=false"]);
    let printed = process.printed();
    process.wait_until("the pipeline recovers", || {
        printed().contains("schema registry: GET") && printed().contains("restarts in")
    });
    assert!(broker.consume(&to).is_empty());
    let _service = registry.start();
    process.wait_until("all records arrive", || broker.consume(&to).len() >= 20);
    process.signal("TERM");
    process.finish().expect_code(0);
    let consumed = registry.confluent(broker, "consume", &json!({ "topic": to }));
    let ids: Vec<_> =
        consumed["messages"].as_array().unwrap().iter().map(|message| message[1]["id"].as_i64()).collect();
    assert_eq!(ids, (0..20).map(Some).collect::<Vec<_>>());
    assert!(letters(&workspace).is_empty(), "{:?}", letters(&workspace));
}
