use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anabranch_plugin::destination::{Delivered, DestinationKind, Retry};
use anabranch_plugin::parameters::declared;
use anabranch_plugin::schema::{MemoryRegistry, SchemaKind, SchemaRegistry};
use anabranch_plugin::settings::Settings;
use anabranch_plugin::specification::Specification;
use anabranch_record::Data;
use anabranch_record::metadata::key;
use bytes::Bytes;

use super::*;
use crate::testing::{after, block_on, fields, host, opened, process};

/// Keeps the written records. The topic of a record is its collection.
#[derive(Clone, Default)]
struct Topics(Arc<Mutex<Vec<Record>>>);

struct TopicsKind(Specification, Topics);

impl DestinationKind for TopicsKind {
    fn specification(&self) -> &Specification {
        &self.0
    }
    fn configure(&self, _: &Arguments) -> Result<Arc<dyn Destination>, Diagnostics> {
        Ok(Arc::new(self.1.clone()))
    }
}

#[async_trait]
impl Destination for Topics {
    async fn open(&self, _: &Host) -> Result<Box<dyn Writer>, Fault> {
        Ok(Box::new(self.clone()))
    }
    fn topic<'a>(&'a self, record: &Record) -> Option<Cow<'a, str>> {
        record.metadata.get(&key::COLLECTION).map(|topic| Cow::Owned(topic.as_str().to_owned()))
    }
    fn policy(&self) -> WritePolicy {
        WritePolicy { rows: 10, bytes: 1 << 20, linger: Duration::ZERO, retry: Retry::Idempotent }
    }
}

#[async_trait]
impl Writer for Topics {
    async fn write(&mut self, Write { rows, .. }: Write<'_>) -> Result<Verdicts, Fault> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(rows);
        Ok(Verdicts::All(Delivered::Durable))
    }
    async fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

/// Writes rows, and returns the written records, or the refused rows with their messages.
fn written(
    registry: &Arc<MemoryRegistry>,
    settings: &[(&str, &str)],
    rows: &[Record],
) -> Result<Vec<Record>, Vec<(usize, String)>> {
    let topics = Topics::default();
    let specification = Specification::builtin("topics", "Keeps.").with_all(declared::<MessageEncoding>());
    let kind = crate::destination::around(Arc::new(TopicsKind(specification, topics.clone())));
    let settings = Settings::from_pairs(settings.iter().copied());
    let destination = kind.configure(&Arguments::parse(kind.specification(), &settings).unwrap()).unwrap();
    let verdicts = block_on(async {
        let mut writer = destination.open(&host(registry.clone())).await.unwrap();
        writer.write(Write::new(rows)).await.unwrap()
    });
    match verdicts {
        Verdicts::All(_) => Ok(topics.0.lock().unwrap().clone()),
        Verdicts::Refused(refused) => {
            assert_eq!(*topics.0.lock().unwrap(), []);
            Err(refused.into_iter().map(|(row, fault)| (row, fault.message())).collect())
        }
        Verdicts::Each(each) => panic!("{each:?}"),
    }
}

const AVRO: &[(&str, &str)] = &[("encode.key", "avro"), ("encode.payload", "avro")];

fn to(topic: &str, key: impl Into<Data>, payload: impl Into<Data>) -> Record {
    let mut record = after(payload);
    record.key = key.into();
    record.metadata.insert(key::COLLECTION, topic);
    record
}

fn raw(bytes: &[u8]) -> Data {
    Data::Raw(Bytes::copy_from_slice(bytes))
}

fn subject(registry: &MemoryRegistry, subject: &str) -> Vec<String> {
    let subject = Str::from(subject);
    block_on(async {
        let Ok(versions) = registry.versions(&subject).await else { return Vec::new() };
        let mut texts = Vec::new();
        for version in versions {
            texts.push(registry.get(&subject, version).await.unwrap().text.as_str().to_owned());
        }
        texts
    })
}

fn register(registry: &MemoryRegistry, subject: &str, text: &str) -> u32 {
    block_on(registry.create(&subject.into(), SchemaKind::Avro, &text.into())).unwrap().id.get()
}

/// Decodes the key and the payload of a record as pipelines do.
fn decoded(registry: &Arc<MemoryRegistry>, record: Record) -> Record {
    let host = host(registry.clone());
    let mut key = opened(&crate::decode::kind(), &[("field", ".Key")], &host);
    let mut payload = opened(&crate::decode::kind(), &[], &host);
    process(&mut payload, process(&mut key, record).unwrap()).unwrap()
}

const OLD: &str = r#"{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"id","type":"int"}]}"#;
const NEW: &str = r#"{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"id","type":"int"},{"name":"note","type":["null","string"],"default":null}]}"#;

#[test]
fn data_is_encoded_under_the_subjects_of_its_topic() {
    let registry = Arc::new(MemoryRegistry::new());
    let rows = [
        to("orders", Data::text("ada"), fields(r#"{"id":1}"#)),
        to("orders", Data::text("bob"), Data::text(r#" {"id": 2}"#)),
        to("carts", raw(b"\xff"), fields(r#"{"id":"x"}"#)),
        to("orders", Data::text("ada"), Data::Absent),
        to("orders", Data::Absent, fields(r#"{"id":3}"#)),
    ];
    let out = written(&registry, AVRO, &rows).unwrap();
    let inferred =
        |kind: &str| format!(r#"{{"name":"record","type":"record","fields":[{{"name":"id","type":"{kind}"}}]}}"#);
    assert_eq!(subject(&registry, "orders-key"), ["\"string\""]);
    assert_eq!(subject(&registry, "orders-value"), [inferred("long")]);
    assert_eq!(subject(&registry, "carts-key"), ["\"bytes\""]);
    assert_eq!(subject(&registry, "carts-value"), [inferred("string")]);
    assert_eq!(out[0].key, raw(b"\0\0\0\0\x01\x06ada"));
    assert_eq!(out[0].payload.after, raw(b"\0\0\0\0\x02\x02"));
    assert_eq!(out[1].payload.after, raw(b"\0\0\0\0\x02\x04"));
    assert_eq!((&out[3].key, &out[3].payload.after), (&raw(b"\0\0\0\0\x01\x06ada"), &Data::Absent));
    assert_eq!((&out[4].key, &out[4].payload.after), (&Data::Absent, &raw(b"\0\0\0\0\x02\x06")));
    let again = decoded(&registry, out[2].clone());
    assert_eq!((again.key, again.payload.after), (raw(b"\xff"), fields(r#"{"id":"x"}"#)));
}

#[test]
fn nothing_is_encoded_without_the_settings() {
    let registry = Arc::new(MemoryRegistry::new());
    let row = to("orders", Data::text("ada"), fields(r#"{"id":1}"#));
    assert_eq!(written(&registry, &[], std::slice::from_ref(&row)).unwrap(), std::slice::from_ref(&row));
    let out = written(&registry, &AVRO[1..], std::slice::from_ref(&row)).unwrap();
    assert_eq!((&out[0].key, &out[0].payload.after), (&row.key, &raw(b"\0\0\0\0\x01\x02")));
}

/// Old and new schemas in one topic, which a pipeline decodes, changes in part, and writes to another topic.
#[test]
fn decoded_data_keeps_its_schema_as_long_as_it_fits() {
    let registry = Arc::new(MemoryRegistry::new());
    assert_eq!(register(&registry, "in-value", OLD), 1);
    assert_eq!(register(&registry, "in-value", NEW), 2);
    assert_eq!(register(&registry, "in-key", "\"long\""), 3);
    let rows = [
        to("out", raw(b"\0\0\0\0\x03\x0e"), raw(b"\0\0\0\0\x01\x02")),
        to("out", raw(b"\0\0\0\0\x03\x0e"), raw(b"\0\0\0\0\x02\x04\x02\x04hi")),
        to("out", raw(b"\0\0\0\0\x03\x0e"), raw(b"\0\0\0\0\x02\x04\0")),
    ];
    let mut read: Vec<Record> = rows.iter().map(|row| decoded(&registry, row.clone())).collect();
    assert_eq!((&read[1].key, &read[1].payload.after), (&Data::text("7"), &fields(r#"{"id":2,"note":"hi"}"#)));
    assert_eq!(read[1].metadata.get(&SchemaPart::Payload.decoded_with()).map(Str::as_str), Some("2"));
    let out = written(&registry, AVRO, &read).unwrap();
    for (written, row) in out.iter().zip(&rows) {
        assert_eq!((&written.key, &written.payload.after), (&row.key, &row.payload.after));
    }
    assert_eq!(subject(&registry, "out-value"), [OLD, NEW]);
    assert_eq!(subject(&registry, "out-key"), ["\"long\""]);

    // A changed record gets the schema of its fields.
    read[0].payload.after = fields(r#"{"id":1,"more":true}"#);
    let out = written(&registry, AVRO, &read[..1]).unwrap();
    assert_eq!(out[0].payload.after, raw(b"\0\0\0\0\x04\x02\x01"));
    // An id of another registry is no schema here.
    read[2].metadata.insert(SchemaPart::Payload.decoded_with(), "99");
    assert_eq!(written(&registry, AVRO, &read[2..]).unwrap()[0].payload.after.fields(), None);
}

#[test]
fn a_schema_that_the_metadata_names_is_kept_too() {
    let registry = Arc::new(MemoryRegistry::new());
    register(&registry, "shop:orders.payload", NEW);
    let mut row = to("out", Data::Absent, fields(r#"{"id":2}"#));
    let (of, version) = SchemaPart::Payload.names();
    row.metadata.insert(of, "shop:orders.payload");
    row.metadata.insert(version, "1");
    assert_eq!(written(&registry, AVRO, &[row]).unwrap()[0].payload.after, raw(b"\0\0\0\0\x01\x04\0"));
    assert_eq!(subject(&registry, "out-value"), [NEW]);
}

#[test]
fn the_latest_version_is_used_and_nothing_registered() {
    let registry = Arc::new(MemoryRegistry::new());
    let latest: &[(&str, &str)] = &[("encode.payload", "avro"), ("encode.schema", "latest")];
    let rows = [
        to("out", Data::Absent, fields(r#"{"id":1}"#)),
        to("out", Data::Absent, fields(r#"{"id":2,"note":"x"}"#)),
        to("out", Data::Absent, fields(r#"{"id":3,"more":"x"}"#)),
    ];
    let missing = written(&registry, latest, &rows[..1]).unwrap_err();
    assert_eq!(missing, [(0, "schema subject \"out-value\" not found".to_owned())]);
    register(&registry, "out-value", OLD);
    register(&registry, "out-value", NEW);
    let out = written(&registry, latest, &rows[..2]).unwrap();
    assert_eq!(out[0].payload.after, raw(b"\0\0\0\0\x02\x02\0"));
    assert_eq!(out[1].payload.after, raw(b"\0\0\0\0\x02\x04\x02\x02x"));
    let refused = written(&registry, latest, &rows).unwrap_err();
    let why = "cannot encode .Payload.After by schema \"out-value\", version 2: more: the schema has no such field";
    assert_eq!(refused, [(2, why.to_owned())]);
    assert_eq!(subject(&registry, "out-value").len(), 2);
}

#[test]
fn subjects_may_be_the_names_of_records() {
    let registry = Arc::new(MemoryRegistry::new());
    register(&registry, "in-value", OLD);
    let row = decoded(&registry, to("out", Data::Absent, raw(b"\0\0\0\0\x01\x02")));
    let plain = to("out", Data::Absent, fields(r#"{"id":1}"#));
    for (strategy, name) in [("RecordNameStrategy", "shop.Order"), ("TopicRecordNameStrategy", "out-shop.Order")] {
        let settings = [("encode.payload", "avro"), ("encode.subject", strategy)];
        assert_eq!(
            written(&registry, &settings, std::slice::from_ref(&row)).unwrap()[0].payload.after,
            raw(b"\0\0\0\0\x01\x02")
        );
        assert_eq!(subject(&registry, name), [OLD]);
        let refused = written(&registry, &settings, std::slice::from_ref(&plain)).unwrap_err();
        assert!(refused[0].1.contains("its schema has no name"), "{refused:?}");
        let latest = [&settings[..], &[("encode.schema", "latest")]].concat();
        assert!(written(&registry, &latest, std::slice::from_ref(&row)).is_ok());
    }
}

#[test]
fn encoded_data_is_not_encoded_twice() {
    let registry = Arc::new(MemoryRegistry::new());
    register(&registry, "in-value", OLD);
    let refused = written(&registry, AVRO, &[to("out", Data::Absent, raw(b"\0\0\0\0\x01\x02"))]).unwrap_err();
    assert!(refused[0].1.contains("set encode.payload to none, or decode it"), "{refused:?}");
}

#[test]
fn a_schema_is_chosen_only_for_encoded_data() {
    let specification = Specification::builtin("topics", "Keeps.").with_all(declared::<MessageEncoding>());
    let kind = crate::destination::around(Arc::new(TopicsKind(specification, Topics::default())));
    let settings = Settings::from_pairs([("encode.schema", "latest"), ("encode.subject", "RecordNameStrategy")]);
    let arguments = Arguments::parse(kind.specification(), &settings).unwrap();
    let findings = kind.configure(&arguments).err().unwrap();
    let messages: Vec<_> = findings.into_iter().map(|finding| finding.message).collect();
    let text = |name: &str| format!("{name} is used only if encode.key or encode.payload is avro");
    assert_eq!(messages, [text("encode.schema"), text("encode.subject")]);
}
