//! What a user sees of the PostgreSQL source: the example, and the templates of `pipelines init`.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::server::{Database, Release};
use crate::api::get;
use crate::process::Workspace;

fn run_example(program: &Path, patience: &str) -> (Output, String) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/postgres-replica/run.sh");
    let mut command = Command::new(script);
    let output =
        command.arg("--check").env("ANABRANCH", program).env("PATIENCE", patience).current_dir("/").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output, text)
}

#[test]
fn the_example_runs_and_checks() {
    if Database::create().is_none() {
        return;
    }
    let (output, text) = run_example(Path::new(env!("CARGO_BIN_EXE_anabranch")), "120");
    assert!(output.status.success(), "{text}");
    assert_eq!(text.matches("the service was killed after ").count(), 2, "{text}");
    assert_eq!(text.matches("the same after").count(), 7, "{text}");
    assert!(!text.contains("customers 0,"), "{text}");

    // A copy that nobody writes is found to differ.
    let workspace = Workspace::new();
    let idle = workspace.write_program("idle.sh", "#!/bin/sh\nexec sleep 600\n");
    let (output, text) = run_example(&idle, "1");
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("customers: missing") && text.contains("the copy differs"), "{text}");
}

/// A source with a table `orders`, and a directory where a template is the only pipeline.
struct Template {
    source: Database,
    workspace: Workspace,
    name: &'static str,
}

impl Template {
    fn new(name: &'static str, variable: &str) -> Option<Template> {
        let source = Database::logical(Release::Installed)?;
        source.query(
            "CREATE TABLE orders (id bigint PRIMARY KEY, customer text NOT NULL, sum numeric(10,2));
             INSERT INTO orders VALUES (1, 'ada', 12.50), (2, 'bob', 250)",
        );
        let mut workspace = Workspace::new();
        workspace.env(variable, &source.url());
        workspace.run(&["pipelines", "init", "--template", name]).expect_code(0);
        let template = Template { source, workspace, name };
        // Slots are those of the whole server, which other tests use.
        let (usual, slot) = (name.replace('-', "_"), template.slot());
        for setting in ["slotName", "publicationName"] {
            template.replace(&format!("logrepl.{setting}: {usual}\n"), &format!("logrepl.{setting}: {slot}\n"));
        }
        Some(template)
    }

    /// Changes the orders: a new one, one that changes, one with another key, and one that is gone.
    fn change(&self) {
        self.source.query("INSERT INTO orders VALUES (3, 'cyd', 3); UPDATE orders SET sum = 260 WHERE id = 2");
        self.source.query("UPDATE orders SET id = 4 WHERE id = 3; DELETE FROM orders WHERE id = 1");
    }

    /// Replaces text of the file of the template, which must have it.
    #[track_caller]
    fn replace(&self, from: &str, to: &str) {
        let file = format!("pipelines/{}.yaml", self.name);
        let text = self.workspace.read(&file);
        assert!(text.contains(from), "{text}");
        self.workspace.write(&file, text.replace(from, to));
    }

    /// Returns the name of the slot, which no other test has.
    fn slot(&self) -> String {
        format!("{}_{}", self.name.replace('-', "_"), self.source.name())
    }

    fn slots(&self) -> Vec<String> {
        self.source.query("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()")
    }
}

#[test]
fn the_template_for_files_writes_rows_and_changes() {
    let Some(template) = Template::new("postgres-to-file", "SOURCE_POSTGRES_URL") else { return };
    template.workspace.once();
    template.change();
    template.workspace.once();
    let lines = template.workspace.lines("changes.ndjson");
    let records: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let short = |record: &Value| {
        let payload = &record["payload"];
        json!([record["operation"], record["key"]["id"], payload["before"]["id"], payload["after"]["sum"]])
    };
    let mut found: Vec<Value> = records.iter().map(short).collect();
    found[..2].sort_by_key(|row| row[1].as_i64());
    let expected = [
        json!(["snapshot", 1, null, "12.50"]),
        json!(["snapshot", 2, null, "250.00"]),
        json!(["create", 3, null, "3.00"]),
        json!(["update", 2, null, "260.00"]),
        json!(["update", 4, 3, "3.00"]),
        json!(["delete", 1, 1, null]),
    ];
    assert_eq!(found, expected, "{lines:#?}");
    assert!(records.iter().all(|record| record["metadata"]["recfmt.collection"] == "orders"), "{lines:#?}");
    assert_eq!(template.slots(), [template.slot()]);
}

#[test]
fn the_template_for_postgresql_copies_tables() {
    let Some(mut template) = Template::new("postgres-to-postgres", "SOURCE_POSTGRES_URL") else { return };
    let Some(copy) = Database::create() else { return };
    template.workspace.env("POSTGRES_URL", &copy.url());
    template.source.query("CREATE TABLE gone (a int, b text, PRIMARY KEY (b, a)); INSERT INTO gone VALUES (1, 'x')");
    template.workspace.once();
    let rows = || copy.query("SELECT id, customer, sum FROM orders ORDER BY id");
    assert_eq!(rows(), ["1|ada|12.50", "2|bob|250.00"]);
    template.change();
    template.source.query("TRUNCATE gone; ALTER TABLE orders ADD note text; UPDATE orders SET note = 'n' WHERE id = 4");
    template.workspace.once();
    assert_eq!(rows(), ["2|bob|260.00", "4|cyd|3.00"]);
    assert_eq!(copy.query("SELECT note FROM orders ORDER BY id"), ["", "n"]);
    assert_eq!(copy.query("SELECT count(*) FROM gone"), ["0"]);
    let types = "SELECT format_type(atttypid, atttypmod) FROM pg_attribute \
                 WHERE attrelid = 'orders'::regclass AND attnum > 0 ORDER BY attname";
    assert_eq!(copy.query(types), ["text", "bigint", "text", "numeric(10,2)"]);
}

#[cfg(feature = "kafka")]
mod kafka {
    use super::*;
    use crate::process::base64_decode;
    use crate::servers::kafka::{Broker, broker};

    /// Runs a template before and after changes, and returns keys and values of the topic.
    fn published(name: &'static str, topic: &str) -> Option<Vec<(Value, Value)>> {
        let broker: &Broker = broker()?;
        let mut template = Template::new(name, "SOURCE_POSTGRES_URL")?;
        template.workspace.env("KAFKA_SERVERS", &broker.address());
        // The broker is shared.
        let prefix = broker.name("shop");
        template.replace("topic: 'shop.", &format!("topic: '{prefix}."));
        template.workspace.once();
        template.change();
        template.workspace.once();
        let part = |message: &Value, part: &str| match message[part].as_str() {
            Some(text) => serde_json::from_slice(&base64_decode(text)).unwrap(),
            None => Value::Null,
        };
        let messages = broker.consume(&format!("{prefix}.{topic}"));
        let mut messages: Vec<_> =
            messages.iter().map(|message| (part(message, "key"), part(message, "value"))).collect();
        // The messages of a key are in order, those of different keys may be in different partitions.
        messages.sort_by_key(|(key, _)| key["id"].as_i64());
        Some(messages)
    }

    #[test]
    fn the_template_for_kafka_publishes_rows_and_changes() {
        let Some(messages) = published("postgres-to-kafka", "public.orders") else { return };
        let short = |(key, value): &(Value, Value)| json!([key, value["operation"], value["payload"]["after"]["sum"]]);
        let found: Vec<Value> = messages.iter().map(short).collect();
        let expected = [
            json!([{ "id": 1 }, "snapshot", "12.50"]),
            json!([{ "id": 1 }, "delete", null]),
            json!([{ "id": 2 }, "snapshot", "250.00"]),
            json!([{ "id": 2 }, "update", "260.00"]),
            json!([{ "id": 3 }, "create", "3.00"]),
            json!([{ "id": 4 }, "update", "3.00"]),
        ];
        assert_eq!(found, expected, "{messages:#?}");
    }

    #[test]
    fn the_template_for_debezium_has_its_envelope() {
        let Some(messages) = published("postgres-to-kafka-debezium", "public.orders") else { return };
        let short = |(key, value): &(Value, Value)| {
            let payload = &value["payload"];
            json!([
                key,
                payload["op"],
                payload["before"],
                payload["after"]["customer"],
                payload["source"]["recfmt.collection"]
            ])
        };
        let found: Vec<Value> = messages.iter().map(short).collect();
        let expected = [
            json!([{ "id": 1 }, "r", null, "ada", "orders"]),
            json!([{ "id": 1 }, "d", { "id": 1 }, null, "orders"]),
            json!([{ "id": 2 }, "r", null, "bob", "orders"]),
            json!([{ "id": 2 }, "u", null, "bob", "orders"]),
            json!([{ "id": 3 }, "c", null, "cyd", "orders"]),
            json!([{ "id": 4 }, "u", { "id": 3 }, "cyd", "orders"]),
        ];
        assert_eq!(found, expected, "{messages:#?}");
        assert!(messages.iter().all(|(_, value)| value["schema"]["type"] == "struct"), "{messages:#?}");
    }
}

#[test]
fn what_the_server_keeps_for_a_slot_is_shown() {
    let Some(template) = Template::new("postgres-to-file", "SOURCE_POSTGRES_URL") else { return };
    let id = template.name;
    template.replace("          url:", "          checkInterval: 1s\n          url:");
    let mut process = template.workspace.start(&["run"]);
    let address = process.address();
    process.wait_until("the first check of the slot", || {
        get(address, "/metrics").body.contains("anabranch_source_retained_bytes{")
    });
    let metrics = get(address, "/metrics").body;
    let has = |start: &str| metrics.lines().any(|line| line.starts_with(start));
    assert!(has("anabranch_source_retained_transactions{"), "{metrics}");
    let status = metrics.lines().find(|line| line.starts_with("anabranch_source_retention_status{"));
    assert!(status.is_some_and(|line| line.contains("retention=\"reserved\"") && line.ends_with(" 1")), "{status:?}");
    // The server has no limit.
    assert!(!has("anabranch_source_retention_spare_bytes{"), "{metrics}");
    let live = get(address, &format!("/v1/pipelines/{id}/live")).json();
    assert_eq!(live["backlogs"][0]["retention"]["status"], "reserved", "{live}");

    let at = format!("--api.http.address={address}");
    let described = template.workspace.run(&["pipelines", "describe", id, &at]).expect_code(0).stdout;
    assert!(described.contains("kept upstream") && described.contains("(reserved)"), "{described}");
    let top = template.workspace.run(&["top", "--once", id, &at]).expect_code(0).stdout;
    assert!(top.contains("kept for ") && top.contains("(reserved)"), "{top}");
    process.signal("TERM");
    process.finish().expect_code(0);
}
