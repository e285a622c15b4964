//! Connectors of Kafka Connect whose settings need more than another name.

use serde_json::{Value, json};

use super::{line, report};
use crate::process::Workspace;

const JSON: &str = "org.apache.kafka.connect.json.JsonConverter";
const TEXT: &str = "org.apache.kafka.connect.storage.StringConverter";

/// Migrates connectors without writing a file, and returns the report.
fn migrated(connectors: &[(&str, &Value)]) -> Value {
    let workspace = Workspace::new();
    let connectors: Vec<Value> =
        connectors.iter().map(|(name, config)| json!({"name": name, "config": config})).collect();
    workspace.write("c.json", Value::from(connectors).to_string());
    report(&workspace.run(&["migrate", "kafka-connect", "c.json", "--dry-run", "--json"]).expect_code(0).stdout)
}

/// The text of the pipeline file of the only connector.
fn text(report: &Value) -> &str {
    report["result"]["connectors"][0]["text"].as_str().unwrap()
}

/// Runs tests of the only pipeline of these connectors.
fn tested(name: &str, config: &Value, tests: &str) {
    let workspace = Workspace::new();
    workspace.write("c.json", json!([{"name": name, "config": config}]).to_string());
    workspace.run(&["migrate", "kafka-connect", "c.json"]).expect_code(0);
    let tests = format!("env: {{ KAFKA_SERVERS: \"localhost:9092\" }}\ntests:\n{tests}");
    workspace.write(&format!("pipelines/{name}.test.yaml"), tests);
    let output = workspace.run(&["pipelines", "test"]);
    assert_eq!(output.code(), Some(0), "{}\n{}", output.both(), workspace.read(&format!("pipelines/{name}.yaml")));
}

/// Sets more settings.
fn with(config: &Value, more: Value) -> Value {
    let mut config = config.clone();
    let Value::Object(more) = more else { panic!("{more} is no object") };
    config.as_object_mut().unwrap().extend(more);
    config
}

fn jdbc_source() -> Value {
    json!({
        "connector.class": "JdbcSource", "connection.url": "jdbc:postgresql://db/shop", "mode": "incrementing",
        "table.whitelist": "orders", "value.converter": JSON, "value.converter.schemas.enable": "false",
        "key.converter": JSON, "key.converter.schemas.enable": "false",
        "transforms": "make,take",
        "transforms.make.type": "org.apache.kafka.connect.transforms.ValueToKey", "transforms.make.fields": "id",
        "transforms.take.type": "org.apache.kafka.connect.transforms.ExtractField$Key", "transforms.take.field": "id",
    })
}

#[test]
#[cfg(all(feature = "kafka", feature = "postgres"))]
fn an_extracted_key_is_written_as_the_value_that_it_was() {
    let numbers = jdbc_source();
    let report = migrated(&[("numbers", &numbers)]);
    assert!(!text(&report).contains("          key:"), "{}", text(&report));
    let test = |name: &str, key: &str, value: &str| {
        format!(
            "  - name: {name}\n    input: [{{ after: {{ id: {value} }} }}]\n    expect: {{ records: [{{ key: {key} }}] }}\n"
        )
    };
    tested("numbers", &numbers, &(test("a number", "'5'", "5") + &test("a text", "'\"a\"'", "a")));
    let texts = with(&jdbc_source(), json!({"key.converter": TEXT}));
    tested("texts", &texts, &(test("a number", "'5'", "5") + &test("a text", "a", "a")));
    // With another transformation behind it, the value keeps its type, too.
    let put = json!({
        "transforms": "make,take,put",
        "transforms.put.type": "org.apache.kafka.connect.transforms.HoistField$Key", "transforms.put.field": "k",
    });
    tested(
        "hoisted",
        &with(&jdbc_source(), put),
        &(test("a number", "{ k: 5 }", "5") + &test("a text", "{ k: a }", "a")),
    );
}

fn jdbc_sink(unwrap: Value) -> Value {
    let sink = json!({
        "connector.class": "JdbcSink", "topics": "orders", "connection.url": "jdbc:postgresql:shop",
        "insert.mode": "upsert", "pk.mode": "record_key", "pk.fields": "id", "delete.enabled": "true",
        "key.converter": JSON, "key.converter.schemas.enable": "false",
        "value.converter": JSON, "value.converter.schemas.enable": "false",
        "transforms": "u", "transforms.u.type": "io.debezium.transforms.ExtractNewRecordState",
    });
    with(&sink, unwrap)
}

/// A deletion of Debezium, which is two messages.
const DELETED: &str = "
      - key: { $json: { id: 8 } }
        after: { $json: { op: d, before: { id: 8, a: 2 }, after: null, source: { lsn: 6 }, ts_ms: 1 } }
      - { operation: delete, key: { $json: { id: 8 } } }
";

#[test]
#[cfg(all(feature = "kafka", feature = "postgres"))]
fn a_tombstone_that_a_transformation_keeps_deletes_its_row() {
    let deletion = "        - { key: { id: 8 }, operation: delete, metadata: { migrate.tombstone: $absent } }\n";
    let rewritten = "        - { key: { id: 8 }, operation: update, after: { id: 8, a: 2, __deleted: \"true\" } }\n";
    let old = |mode: &str, drop: &str| json!({"transforms.u.delete.handling.mode": mode, "transforms.u.drop.tombstones": drop});
    let new = |mode: &str| json!({"transforms.u.delete.tombstone.handling.mode": mode});
    for (name, settings, expected) in [
        ("old-drop", old("drop", "false"), deletion.to_owned()),
        ("old-rewrite", old("rewrite", "false"), format!("{rewritten}{deletion}")),
        ("old-none", old("none", "true"), deletion.to_owned()),
        ("tombstone", new("tombstone"), deletion.to_owned()),
        ("rewrite-with-tombstone", new("rewrite-with-tombstone"), format!("{rewritten}{deletion}")),
        ("delete-to-tombstone", new("delete-to-tombstone"), deletion.to_owned()),
        ("drop", new("drop"), String::new()),
        ("old-drop-both", old("drop", "true"), String::new()),
        ("old-rewrite-only", old("rewrite", "true"), rewritten.to_owned()),
    ] {
        let records = if expected.is_empty() { " []\n".to_owned() } else { format!("\n{expected}") };
        let test = format!("  - name: a deletion\n    input:{DELETED}    expect:\n      records:{records}");
        let config = jdbc_sink(settings);
        tested(name, &config, &test);
        let report = migrated(&[(name, &config)]);
        // Without deletions, `delete.enabled` has no effect, and the report says so.
        let line = line(&report, name, "delete.enabled");
        assert_eq!(line["outcome"] == "carried", expected.contains("operation: delete"), "{name}: {line}");
    }
}

#[test]
#[cfg(all(feature = "kafka", feature = "postgres"))]
fn a_deletion_cannot_be_a_row_and_a_tombstone() {
    let source = |unwrap: Value| {
        let source = json!({
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "database.hostname": "db",
            "topic.prefix": "shop", "table.include.list": "public.orders", "key.converter": TEXT, "value.converter": JSON,
            "transforms": "u", "transforms.u.type": "io.debezium.transforms.ExtractNewRecordState",
        });
        with(&source, unwrap)
    };
    let both = source(json!({"transforms.u.delete.tombstone.handling.mode": "rewrite-with-tombstone"}));
    let report = migrated(&[("both", &both)]);
    assert_eq!(line(&report, "both", "transforms.u.delete.tombstone.handling.mode")["blocks"], true);
    let kept = source(json!({"transforms.u.delete.handling.mode": "drop", "transforms.u.drop.tombstones": "false"}));
    let report = migrated(&[("kept", &kept)]);
    let text = text(&report);
    assert!(text.contains("deletes: tombstone") && !text.contains("Drops deletions"), "{text}");
}

#[test]
#[cfg(all(feature = "kafka", feature = "postgres"))]
fn the_timestamp_of_a_line_is_the_time_of_its_reading() {
    let time = json!({
        "transforms": "put,time",
        "transforms.put.type": "org.apache.kafka.connect.transforms.HoistField$Value", "transforms.put.field": "line",
        "transforms.time.type": "org.apache.kafka.connect.transforms.InsertField$Value",
        "transforms.time.timestamp.field": "at",
    });
    let file = json!({
        "connector.class": "FileStreamSource", "file": "a", "topic": "t", "value.converter": JSON,
        "value.converter.schemas.enable": "false", "key.converter": TEXT,
    });
    let test = "  - name: a line\n    input: [{ after: one }]\n    expect: { records: [{ after: { $fields: { line: one } } }] }\n";
    tested("file", &with(&file, time.clone()), test);
    let report = migrated(&[("file", &with(&file, time.clone()))]);
    assert_eq!(line(&report, "file", "transforms.time.timestamp.field")["outcome"], "changed");
    // The rows of a snapshot have none.
    let report = migrated(&[("rows", &with(&jdbc_source(), time))]);
    assert_eq!(line(&report, "rows", "transforms.time.timestamp.field")["blocks"], true);
}

#[test]
#[cfg(all(feature = "kafka", feature = "postgres"))]
fn variables_have_names_that_a_shell_does_not_have() {
    let sink = json!({
        "connector.class": "JdbcSink", "topics": "t", "connection.url": "jdbc:postgresql://db/shop",
        "connection.user": "${file:/opt/s.properties:user}", "connection.password": "${vault:shop:home}",
        "table.name.format": "t", "key.converter": TEXT, "value.converter": JSON, "value.converter.schemas.enable": "false",
    });
    let report = migrated(&[("load", &sink)]);
    let text = text(&report);
    assert!(text.contains("postgresql://${LOAD_USER}:${LOAD_HOME}@db/shop"), "{text}");
    // Each connector has its own login to Kafka.
    let login = |password: &str| {
        with(
            &sink,
            json!({
                "consumer.override.security.protocol": "SASL_SSL", "consumer.override.sasl.mechanism": "PLAIN",
                "consumer.override.sasl.jaas.config": format!("x required username=\"u\" password=\"{password}\";"),
            }),
        )
    };
    let report = migrated(&[("one", &login("Hunter1")), ("two", &login("Hunter2"))]);
    for (at, variable) in [(0, "${ONE_KAFKA_SASL_PASSWORD}"), (1, "${TWO_KAFKA_SASL_PASSWORD}")] {
        let text = report["result"]["connectors"][at]["text"].as_str().unwrap();
        assert!(text.contains(variable), "{text}");
    }
    assert!(!report.to_string().contains("Hunter"));
}

#[test]
#[cfg(all(feature = "kafka", feature = "postgres"))]
fn expressions_for_tables_become_patterns_or_are_left_to_do() {
    let source = |more: Value| {
        let source = json!({
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "database.hostname": "db",
            "topic.prefix": "shop", "key.converter": TEXT, "value.converter": JSON, "slot.name": "s",
        });
        with(&source, more)
    };
    for (name, setting, expressions, tables) in [
        ("a", "table.include.list", "public.cust.*", Some("public.cust*")),
        ("b", "schema.include.list", "inv.*", Some("inv*.*")),
        ("c", "table.include.list", "public\\.orders, sales\\..*", Some("public.orders,sales.*")),
        ("d", "table.include.list", ".*\\.log", Some("*.log")),
        ("e", "table.include.list", "public.(a|b)", None),
        ("f", "table.include.list", "shop.*", Some("shop*.*")),
        ("g", "table.include.list", "public.or?ders", None),
        ("h", "schema.include.list", "a\\.b", None),
    ] {
        let report = migrated(&[(name, &source(json!({setting: expressions})))]);
        let line = line(&report, name, setting);
        match tables {
            Some(tables) => {
                assert!(
                    text(&report).contains(&format!("tables: '{tables}'"))
                        || text(&report).contains(&format!("tables: {tables}\n")),
                    "{}",
                    text(&report)
                );
                assert_eq!(line["outcome"], "carried", "{line}");
            }
            None => assert_eq!(line["blocks"], true, "{line}"),
        }
        assert_eq!(report["result"]["findings"], json!([]), "{report:#}");
    }
    // A table must be in a list of schemas as well.
    let both = json!({"table.include.list": "public.a", "schema.include.list": "sales"});
    let report = migrated(&[("both", &source(both))]);
    assert_eq!(line(&report, "both", "schema.include.list")["blocks"], true);
}

#[test]
fn a_properties_file_gives_a_connector_its_name() {
    let workspace = Workspace::new();
    workspace.write(
        "c.properties",
        format!("name=lines\nconnector.class=FileStreamSink\ntopics=t\nfile=out\nkey.converter={TEXT}\nvalue.converter={TEXT}\n"),
    );
    let output = workspace.run(&["migrate", "kafka-connect", "c.properties", "--dry-run", "--json"]).expect_code(0);
    let report = report(&output.stdout);
    assert_eq!(report["result"]["connectors"][0]["complete"], true, "{report:#}");
    assert!(!text(&report).contains("status: stopped"), "{}", text(&report));
}

#[test]
#[cfg(all(feature = "kafka", feature = "postgres"))]
fn a_login_in_a_jdbc_url_becomes_that_of_the_url() {
    let mut source = jdbc_source();
    source["connection.url"] = "jdbc:postgresql://reader:Hunter%402@db:5432/shop?ssl=true".into();
    let report = migrated(&[("rows", &source)]);
    let text = text(&report);
    assert!(text.contains("postgresql://reader:${ROWS_CONNECTION_PASSWORD}@db:5432/shop?sslmode="), "{text}");
    assert!(!report.to_string().contains("Hunter"), "{report}");
}

#[test]
#[cfg(all(feature = "kafka", feature = "postgres", feature = "s3"))]
fn a_report_names_only_places_that_the_file_has() {
    let workspace = super::with(&super::CONNECTORS);
    let arguments = [&["migrate", "kafka-connect", "--dry-run", "--json"][..], &super::CONNECTORS].concat();
    let report = report(&workspace.run(&arguments).expect_code(0).stdout);
    for connector in report["result"]["connectors"].as_array().unwrap() {
        let text = connector["text"].as_str().unwrap();
        for line in connector["settings"].as_array().unwrap() {
            let to = line["to"].as_str().unwrap_or_default();
            if to.is_empty() || to.contains(' ') {
                continue;
            }
            let (part, setting) = to.split_once('.').unwrap_or((to, ""));
            let is_part = text.contains(&format!("id: {part}\n")) || text.contains(&format!("\n    {part}:\n"));
            let has = |setting: &str| text.contains(&format!(" {setting}: "));
            assert!(
                is_part && (setting.is_empty() || has(setting) || has(setting.trim_start_matches("settings."))),
                "{line}: {text}"
            );
        }
    }
}

#[test]
#[cfg(all(feature = "kafka", feature = "s3"))]
fn credentials_in_other_settings_become_variables() {
    let sink = json!({
        "connector.class": "io.confluent.connect.s3.S3SinkConnector", "topics": "t", "s3.bucket.name": "b",
        "store.url": "http://u:Hunter-store@minio:9000", "flush.size": "10", "key.converter": TEXT, "value.converter": JSON,
        "value.converter.schemas.enable": "false", "transforms": "head,field",
        "transforms.head.type": "org.apache.kafka.connect.transforms.InsertHeader",
        "transforms.head.header": "Authorization", "transforms.head.value.literal": "Bearer Hunter-header",
        "transforms.field.type": "org.apache.kafka.connect.transforms.InsertField$Value",
        "transforms.field.static.field": "api_key", "transforms.field.static.value": "Hunter-field",
    });
    let report = migrated(&[("load", &sink)]);
    assert!(!report.to_string().contains("Hunter"), "{report:#}");
    for variable in ["LOAD_STORE_URL", "LOAD_TRANSFORMS_HEAD_VALUE_LITERAL", "LOAD_TRANSFORMS_FIELD_STATIC_VALUE"] {
        assert!(text(&report).contains(&format!("${{{variable}}}")), "{}", text(&report));
    }
}

#[test]
#[cfg(all(feature = "kafka", feature = "s3", feature = "parquet"))]
fn parquet_objects_stay_parquet_objects() {
    let sink = json!({
        "connector.class": "io.confluent.connect.s3.S3SinkConnector", "topics": "events", "s3.bucket.name": "lake",
        "s3.region": "eu-central-1", "flush.size": "1000", "key.converter": TEXT, "value.converter": JSON,
        "value.converter.schemas.enable": "true", "behavior.on.null.values": "ignore",
        "format.class": "io.confluent.connect.s3.format.parquet.ParquetFormat",
    });
    for (codec, expected, outcome) in [
        (None, "snappy", ""),
        (Some("zstd"), "zstd", "carried"),
        (Some("none"), "none", "carried"),
        (Some("gzip"), "zstd", "changed"),
    ] {
        let sink = match codec {
            Some(codec) => with(&sink, json!({"parquet.codec": codec, "s3.compression.type": "gzip"})),
            None => sink.clone(),
        };
        let report = migrated(&[("events", &sink)]);
        let written = text(&report);
        for setting in ["format: parquet", "sdk.record.format: recfmt/raw", &format!("parquet.compression: {expected}")]
        {
            assert!(written.contains(setting), "{setting} is not in {written}");
        }
        assert!(!written.contains("status: stopped") && !written.contains(" compression: gzip"), "{written}");
        assert_eq!(line(&report, "events", "format.class")["outcome"], "carried");
        if codec.is_some() {
            assert_eq!(line(&report, "events", "parquet.codec")["outcome"], outcome);
        }
        let workspace = Workspace::new();
        workspace.write("pipelines/p.yaml", written.replace("${KAFKA_SERVERS}", "localhost:9092"));
        let checked = workspace.run(&["pipelines", "validate"]);
        assert_eq!(checked.code(), Some(0), "{}", checked.both());
    }
    // A text has no columns.
    let texts = migrated(&[("events", &with(&sink, json!({"value.converter": TEXT})))]);
    assert_eq!(line(&texts, "events", "format.class")["blocks"], true);
}
