use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::operator::{Class, Configured, Decision, OperatorContext, Pieces};
use anabranch_plugin::parameters::shared;
use anabranch_plugin::schema::{MemoryRegistry, SchemaKind, SchemaRegistry, SchemaVersion};
use anabranch_plugin::specification::Specification;
use anabranch_plugin::testing::of_class;
use anabranch_record::Operation;
use anabranch_record::metadata::key;
use anabranch_record::value::Value;
use bytes::Bytes;

use super::*;
use crate::testing::{after, fields, host, opened};

mod raw;

/// Adds a field where it sees fields, fails a record that says so, and makes two of one that asks for it.
pub(crate) struct Adding(Specification, Class);

impl Adding {
    pub(crate) fn kind(class: Class) -> Arc<dyn OperatorKind> {
        around(Arc::new(Adding(Specification::builtin("adding", "Adds.").with_all(shared::processor()), class)))
    }
}

impl OperatorKind for Adding {
    fn specification(&self) -> &Specification {
        &self.0
    }
    fn configure(&self, _: &Arguments) -> Result<Configured, Diagnostics> {
        Ok(of_class(self.1, Signature::new(), |_| Ok(Add)))
    }
}

struct Add;

fn add(record: &mut Record) -> Result<(), Fault> {
    let Some(fields) = record.payload.after.fields_mut() else {
        return Err(Fault::record(anabranch_plugin::testing::codes::RAW, "raw data"));
    };
    if fields.get("fail").is_some() {
        return Err(Fault::record(anabranch_plugin::testing::codes::ASKED, "asked to fail"));
    }
    fields.insert("more", Value::from(true));
    Ok(())
}

fn is_doubled(record: &Record) -> bool {
    record.payload.after.fields().is_some_and(|fields| fields.get("twice").is_some())
}

impl Operator for Add {
    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        rows.for_each(|record| {
            if is_doubled(record) {
                let mut copies = vec![record.clone(), record.clone()];
                copies.iter_mut().try_for_each(add)?;
                // The second one has another shape.
                if let (Operation::Update, Some(fields)) = (record.operation, copies[1].payload.after.fields_mut()) {
                    fields.remove("more");
                }
                return Ok(match record.operation {
                    Operation::Update => Decision::Pieces(Pieces::new(2, move |i| copies[i].clone())),
                    _ => Decision::Split(copies),
                });
            }
            add(record).map(|()| Decision::Keep)
        });
    }
}

#[async_trait]
impl AsyncOperator for Add {
    async fn call(&self, rows: &mut [Record], _: &OperatorContext) -> Vec<Decision> {
        let decision = |record: &mut Record| match add(record) {
            Ok(()) if is_doubled(record) => Decision::Split(vec![record.clone(), record.clone()]),
            Ok(()) => Decision::Keep,
            Err(fault) => Decision::Fail(fault),
        };
        rows.iter_mut().map(decision).collect()
    }
}

pub(crate) const ID: &str = r#"{"name":"record","type":"record","fields":[{"name":"id","type":"long"}]}"#;
const FAIL: &str = r#"{"name":"record","type":"record","fields":[{"name":"fail","type":"long"}]}"#;

pub(crate) fn named(data: Bytes, version: &str) -> Record {
    let mut record = after(anabranch_record::Data::Raw(data));
    record.metadata.insert(key::PAYLOAD_SCHEMA_SUBJECT, "s");
    record.metadata.insert(key::PAYLOAD_SCHEMA_VERSION, version);
    record
}

/// Good, undecodable, unknown version, no number, failing, without schema.
fn strip() -> Vec<Record> {
    let mut unnamed = named(Bytes::from_static(b"\x02"), "1");
    unnamed.metadata = anabranch_record::metadata::Metadata::new();
    vec![
        named(Bytes::from_static(b"\x02"), "1"),
        named(Bytes::from_static(b"\x02\x02"), "1"),
        named(Bytes::from_static(b"\x02"), "9"),
        named(Bytes::from_static(b"\x02"), "x"),
        named(Bytes::from_static(b"\x04"), "2"),
        unnamed,
    ]
}

async fn registry() -> Arc<MemoryRegistry> {
    let registry = Arc::new(MemoryRegistry::new());
    registry.create(&"s".into(), SchemaKind::Avro, &ID.into()).await.unwrap();
    registry.create(&"s".into(), SchemaKind::Avro, &FAIL.into()).await.unwrap();
    registry
}

const CODES: [&str; 6] = ["", "avro_invalid", "schema_version_not_found", "schema_version_invalid", "asked", "raw"];

fn is_decoded_and_registered_anew(record: &Record, registry: &Schemas) {
    assert_eq!(record.payload.after, fields(r#"{"id":1,"more":true}"#));
    assert_eq!(record.metadata.get("recfmt.payload.schema.version").map(Str::as_str), Some("3"));
    assert!(registry.text.contains("\"more\""), "{}", registry.text);
}

type Schemas = anabranch_plugin::schema::Schema;

#[tokio::test]
async fn processors_see_fields_and_failed_rows_stay_as_they_came() {
    let registry = registry().await;
    let mut operator = opened(&Adding::kind(Class::Inline), &[], &host(registry.clone()));
    let mut records = strip();
    let decisions = operator.process(&mut records, None);
    let third = registry.get(&"s".into(), SchemaVersion::new(3).unwrap()).await.unwrap();
    is_decoded_and_registered_anew(&records[0], &third);
    let mut codes = [""; 6];
    for (row, decision) in decisions {
        let Decision::Fail(fault) = decision else { panic!("{decision:?}") };
        assert_eq!(codes[row], "", "one decision for a row");
        codes[row] = fault.code().name();
    }
    assert_eq!(codes, CODES);
    assert_eq!(records[1..], strip()[1..]);
}

#[tokio::test]
async fn processors_that_wait_see_fields_too() {
    let registry = registry().await;
    let operator = opened(&Adding::kind(Class::Async), &[], &host(registry.clone()));
    let called = operator.call(strip()).await;
    let third = registry.get(&"s".into(), SchemaVersion::new(3).unwrap()).await.unwrap();
    let codes: Vec<&str> = called
        .iter()
        .map(|called| match called {
            (record, Decision::Keep) => {
                is_decoded_and_registered_anew(record, &third);
                ""
            }
            (_, Decision::Fail(fault)) => fault.code().name(),
            (_, other) => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(codes, CODES);
}

#[tokio::test]
async fn each_of_several_records_made_of_one_has_a_version_that_fits() {
    let registry = registry().await;
    let record = || {
        let mut record = named(Bytes::new(), "1");
        record.payload.after = fields(r#"{"id":1,"twice":true}"#);
        record
    };
    let versions = |records: &[Record]| -> Vec<Option<String>> {
        records.iter().map(|record| record.metadata.get("recfmt.payload.schema.version").map(Str::to_string)).collect()
    };
    let third = || Some("3".to_owned());
    let configured_as = |class| opened(&Adding::kind(class), &[], &host(registry.clone()));
    let mut operator = configured_as(Class::Inline);
    let mut records = vec![record()];
    let decisions = operator.process(&mut records, None);
    let [(0, Decision::Split(copies))] = &decisions[..] else { panic!("{decisions:?}") };
    assert_eq!(versions(copies), [third(), third()]);
    let mut later = record();
    later.operation = Operation::Update;
    let mut decisions = operator.process(&mut [later], None);
    let Some((0, Decision::Pieces(pieces))) = decisions.pop() else { panic!("{decisions:?}") };
    assert_eq!(versions(&pieces.iter().collect::<Vec<_>>()), [third(), Some("4".to_owned())]);
    let operator = configured_as(Class::Async);
    let called = operator.call(vec![record()]).await;
    let [(_, Decision::Split(copies))] = &called[..] else { panic!("{called:?}") };
    assert_eq!(versions(copies), [third(), third()]);
}

#[tokio::test]
async fn switches_leave_data_alone() {
    let registry = registry().await;
    let run = |settings: &[(&str, &str)], record: Record| {
        let mut operator = opened(&Adding::kind(Class::Inline), settings, &host(registry.clone()));
        crate::testing::process(&mut operator, record)
    };
    let raw = named(Bytes::from_static(b"\x02"), "1");
    assert_eq!(run(&[("sdk.schema.decode.payload.enabled", "false")], raw.clone()), Err("raw: raw data".to_owned()));
    let kept = run(&[("sdk.schema.encode.payload.enabled", "false")], raw).unwrap();
    assert_eq!(kept.metadata.get("recfmt.payload.schema.version").map(Str::as_str), Some("1"));
    assert_eq!(registry.versions(&"s".into()).await.unwrap().len(), 2);
}

#[tokio::test]
async fn bytes_are_made_where_records_leave() {
    let registry = registry().await;
    let mut cache = SchemaCache::new(registry);
    let mut record = named(Bytes::from_static(b"\x02"), "1");
    let before = record.clone();
    assert!(decode(&mut cache, SchemaPart::Payload, &mut record).unwrap());
    assert!(!decode(&mut cache, SchemaPart::Payload, &mut record).unwrap());
    assert!(crate::record::encode(&mut cache, SchemaPart::Payload, &mut record).unwrap());
    assert_eq!(record, before);
}

/// The cached result for a shape decides nothing that depends on values.
#[test]
fn a_written_schema_is_left_only_by_the_records_that_do_not_fit_it() {
    let registry = Arc::new(MemoryRegistry::default());
    let subject = Str::from_static("s");
    let written = r#"{"type":"record","name":"r","fields":[{"name":"a","type":"int"}]}"#;
    crate::testing::block_on(registry.create(&subject, SchemaKind::Avro, &Str::from(written))).unwrap();
    let mut cache = SchemaCache::new(registry);
    let mut version = |json: &str, named: &str| {
        let mut record = after(fields(json));
        let (subject_key, version_key) = SchemaPart::Payload.names();
        record.metadata.insert(subject_key, subject.clone());
        record.metadata.insert(version_key.clone(), named);
        assert!(refresh(&mut cache, SchemaPart::Payload, &mut record).unwrap());
        record.metadata.get(&version_key).unwrap().to_string()
    };
    for _ in 0..2 {
        assert_eq!(version(r#"{"a":1}"#, "1"), "1");
        assert_eq!(version(r#"{"a":1099511627776}"#, "1"), "2");
        assert_eq!(version(r#"{"a":1}"#, "2"), "2");
        assert_eq!(version(r#"{"a":1,"b":"x"}"#, "1"), "3");
        assert_eq!(version(r#"{"a":1,"b":"x"}"#, "2"), "3");
        assert_eq!(version(r#"{"a":[1]}"#, "2"), "4");
    }
}

/// Records of one read share their metadata, which are then written once: what names another version keeps that.
#[tokio::test]
async fn records_that_share_metadata_share_those_that_name_what_fits() {
    let mut cache = SchemaCache::new(registry().await);
    let came = named(Bytes::new(), "1").metadata;
    let mut refreshed = |json: &str, part: SchemaPart| {
        let mut record = Record::default();
        record.metadata = came.clone();
        match part {
            SchemaPart::Key => record.key = fields(json),
            SchemaPart::Payload => record.payload.after = fields(json),
        }
        let found = refresh(&mut cache, part, &mut record).unwrap();
        (found, record.metadata)
    };
    let version = |metadata: &anabranch_record::metadata::Metadata| {
        metadata.get("recfmt.payload.schema.version").map(Str::to_string).unwrap()
    };
    for _ in 0..3 {
        let fit = [(); 3].map(|()| refreshed(r#"{"id":1}"#, SchemaPart::Payload).1);
        assert!(fit.iter().all(|metadata| metadata.shares(&came)));
        let more = [(); 3].map(|()| refreshed(r#"{"id":1,"more":2}"#, SchemaPart::Payload).1);
        assert_eq!(more.each_ref().map(version), ["3", "3", "3"]);
        let other = [(); 3].map(|()| refreshed(r#"{"other":2}"#, SchemaPart::Payload).1);
        assert_eq!(other.each_ref().map(version), ["4", "4", "4"]);
        assert!(!refreshed(r#"{"id":1,"more":2}"#, SchemaPart::Key).0, "a key without a schema");
        assert!(more[1].shares(&more[2]) && other[1].shares(&other[2]));
        assert_eq!(version(&came), "1");
    }
}
