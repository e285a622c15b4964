//! Properties of every migration, whatever the connector.

use std::collections::{BTreeMap, BTreeSet};

use anabranch_config::{Variables, load};
use anabranch_plugin::diagnostic::{Files, Severity};
use proptest::prelude::*;
use proptest::sample::select;

use super::{CLASSES, ConnectorConfig, Worker, migrate, read, read_worker};

/// A credential that no output may contain.
const SECRET: &str = "s3cr3t-value";

/// Names of settings that the conversions know.
const NAMES: &[&str] = &[
    "topics",
    "topics.regex",
    "topic",
    "topic.prefix",
    "file",
    "connection.url",
    "connection.user",
    "connection.password",
    "database.hostname",
    "database.port",
    "database.user",
    "database.password",
    "database.dbname",
    "database.sslmode",
    "table.include.list",
    "table.whitelist",
    "table.name.format",
    "schema.pattern",
    "schema.include.list",
    "column.exclude.list",
    "column.mask.with.12.chars",
    "mode",
    "query",
    "insert.mode",
    "pk.mode",
    "pk.fields",
    "fields.whitelist",
    "delete.enabled",
    "auto.create",
    "batch.size",
    "slot.name",
    "snapshot.mode",
    "heartbeat.interval.ms",
    "s3.bucket.name",
    "s3.region",
    "aws.access.key.id",
    "aws.secret.access.key",
    "flush.size",
    "rotate.interval.ms",
    "format.class",
    "partitioner.class",
    "partition.field.name",
    "path.format",
    "timezone",
    "timestamp.extractor",
    "timestamp.field",
    "behavior.on.null.values",
    "key.converter",
    "value.converter",
    "value.converter.schemas.enable",
    "value.converter.schema.registry.url",
    "errors.tolerance",
    "errors.deadletterqueue.topic.name",
    "consumer.override.auto.offset.reset",
    "consumer.override.sasl.jaas.config",
    "consumer.override.security.protocol",
    "consumer.override.sasl.mechanism",
    "topic.creation.default.partitions",
    "tasks.max",
    "transforms",
    "transforms.a.type",
    "transforms.a.field",
    "transforms.a.fields",
    "transforms.a.predicate",
    "transforms.a.negate",
    "transforms.a.spec",
    "transforms.a.regex",
    "transforms.a.replacement",
    "transforms.a.renames",
    "transforms.a.include",
    "transforms.a.exclude",
    "transforms.a.static.field",
    "transforms.a.static.value",
    "transforms.a.timestamp.field",
    "transforms.a.topic.field",
    "transforms.a.offset.field",
    "transforms.a.target.type",
    "transforms.a.format",
    "transforms.a.unix.precision",
    "transforms.a.delimiter",
    "transforms.a.header",
    "transforms.a.value.literal",
    "transforms.a.headers",
    "transforms.a.add.fields",
    "transforms.a.delete.handling.mode",
    "transforms.a.drop.tombstones",
    "transforms.b.type",
    "transforms.b.field",
    "predicates",
    "predicates.p.type",
    "predicates.p.pattern",
    "predicates.p.name",
    "unheard.of",
];

const VALUES: &[&str] = &[
    "",
    "a",
    "a,b",
    "a, a ,b",
    "p",
    "true",
    "false",
    "5",
    "-1",
    "a:int32,b:string,c",
    "a:b",
    "x y\"z'\\",
    "{{ .Key",
    "}}",
    "${",
    "${topic}",
    "${env:HOME}",
    "${file:/etc/x.properties:k.e-y}",
    "${directory:/run/secrets:pw}",
    "pre${vault:a/b:c}post$",
    "line\nbreak\u{0}\u{feff}\u{2028}",
    "jdbc:postgresql://db:5432/shop?user=a&currentSchema=b&ssl=true",
    "jdbc:postgresql:${env:DB}",
    "jdbc:mysql://db/shop",
    "public\\.orders,sales.*",
    "sales.orders.card",
    "(a|b)+",
    "(",
    "$1-$12",
    "yyyy-MM-dd'T'HH:mm:ss",
    "'year'=YYYY/'month'=MM",
    "string",
    "unix",
    "Timestamp",
    "upsert",
    "record_key",
    "record_value",
    "none",
    "all",
    "timestamp",
    "incrementing",
    "initial",
    "org.apache.kafka.connect.json.JsonConverter",
    "org.apache.kafka.connect.storage.StringConverter",
    "io.confluent.connect.avro.AvroConverter",
    "io.confluent.connect.storage.partitioner.FieldPartitioner",
    "io.confluent.connect.storage.partitioner.TimeBasedPartitioner",
    "RecordField",
    "org.apache.kafka.connect.transforms.InsertField$Value",
    "org.apache.kafka.connect.transforms.ReplaceField$Value",
    "org.apache.kafka.connect.transforms.MaskField$Key",
    "org.apache.kafka.connect.transforms.Cast$Value",
    "org.apache.kafka.connect.transforms.Flatten$Value",
    "org.apache.kafka.connect.transforms.ExtractField$Key",
    "org.apache.kafka.connect.transforms.HoistField$Value",
    "org.apache.kafka.connect.transforms.ValueToKey",
    "org.apache.kafka.connect.transforms.TimestampConverter$Value",
    "org.apache.kafka.connect.transforms.RegexRouter",
    "org.apache.kafka.connect.transforms.Filter",
    "org.apache.kafka.connect.transforms.InsertHeader",
    "org.apache.kafka.connect.transforms.DropHeaders",
    "io.debezium.transforms.ExtractNewRecordState",
    "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
    "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
    "org.apache.kafka.connect.transforms.predicates.HasHeaderKey",
    "SASL_SSL",
    "PLAIN",
    "x required username=\"u\" password=\"p\";",
];

struct AnyValue;

impl Variables for AnyValue {
    fn variable(&self, _: &str) -> Option<String> {
        Some("value".to_owned())
    }

    fn file(&self, _: &str) -> Result<String, String> {
        Ok("value".to_owned())
    }
}

fn names_a_secret(name: &str) -> bool {
    ["connection.password", "database.password", "aws.secret.access.key", "aws.access.key.id"].contains(&name)
}

/// A connector of a known class, with likely settings.
fn connectors() -> impl Strategy<Value = ConnectorConfig> {
    let classes: Vec<&str> =
        CLASSES.iter().flat_map(|(names, _)| names.iter().copied()).chain(["an.Other", ""]).collect();
    let value = prop_oneof![9 => select(VALUES).prop_map(str::to_owned), 1 => any::<String>()];
    let settings = proptest::collection::btree_map(select(NAMES).prop_map(str::to_owned), value, 0..30);
    (any::<String>(), select(classes), settings).prop_map(|(name, class, mut settings)| {
        for (name, value) in &mut settings {
            if names_a_secret(name) {
                *value = SECRET.to_owned();
            }
        }
        settings.insert("connector.class".to_owned(), class.to_owned());
        settings.entry("file".to_owned()).or_insert_with(|| "f".to_owned());
        if !settings.get("connection.url").is_some_and(|url| url.starts_with("jdbc:")) {
            let url = format!("jdbc:postgresql://db:5432/shop?user=a&password={SECRET}&ssl=true");
            settings.insert("connection.url".to_owned(), url);
        }
        let jaas = "consumer.override.sasl.jaas.config".to_owned();
        settings.entry(jaas).and_modify(|jaas| *jaas = format!("x required username=\"u\" password=\"{SECRET}\";"));
        ConnectorConfig { name, settings, unreadable: Vec::new() }
    })
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        select(VALUES).prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        let keys = prop_oneof![
            select(NAMES).prop_map(str::to_owned),
            select(&["name", "config", "info", "connector.class"][..]).prop_map(str::to_owned),
        ];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            proptest::collection::btree_map(keys, inner, 0..8)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_setting_is_reported_and_every_file_is_valid(connectors in proptest::collection::vec(connectors(), 1..3)) {
        let worker = Worker { settings: BTreeMap::from([("sasl.jaas.config".to_owned(), format!("x required username=\"u\" password=\"{SECRET}\";"))]) };
        let migration = migrate(&connectors, &worker);
        let mut files = Files::new();
        for (job, connector) in migration.jobs.iter().zip(&connectors) {
            let reported: BTreeSet<&str> = job.lines.iter().map(|line| line.setting.as_str()).collect();
            for setting in connector.settings.keys() {
                prop_assert!(reported.contains(setting.as_str()), "{setting} is not in the report: {:?}", job.lines);
            }
            for line in &job.lines {
                let shown = format!("{line:?}");
                prop_assert!(!shown.contains(SECRET), "{shown}");
            }
            if let Some(pipeline) = &job.pipeline {
                prop_assert!(!pipeline.text.contains(SECRET), "{}", pipeline.text);
                files.add(pipeline.id.as_str(), pipeline.text.as_str());
            }
        }
        let shown = format!("{:?}", migration.variables);
        prop_assert!(!shown.contains(SECRET), "{shown}");
        let loaded = load(&files, &AnyValue);
        let errors: Vec<_> = loaded.diagnostics.iter().filter(|finding| finding.severity == Severity::Error).collect();
        prop_assert!(errors.is_empty(), "{errors:?}\n{files:?}");
        let ids: BTreeSet<&str> = migration.jobs.iter().filter_map(|job| job.pipeline.as_ref()).map(|p| p.id.as_str()).collect();
        prop_assert_eq!(ids.len(), loaded.pipelines.len());
    }

    #[test]
    fn no_json_ends_the_migration(value in json()) {
        if let Ok(connectors) = read("any.json", &value.to_string()) {
            migrate(&connectors, &Worker::default());
        }
    }

    #[test]
    fn no_text_ends_the_migration(text in any::<String>()) {
        let worker = read_worker(&text);
        if let Ok(connectors) = read("any.json", &text) {
            migrate(&connectors, &worker);
        }
    }
}
