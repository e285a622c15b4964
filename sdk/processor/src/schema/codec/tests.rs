use std::sync::Arc;

use anabranch_record::avro::infer;
use anabranch_record::metadata::key::{PAYLOAD_SCHEMA_SUBJECT, PAYLOAD_SCHEMA_VERSION};
use anabranch_record::specification::Specification;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Record};

use crate::processor::{Output, Processor};
use crate::schema::{self, avro::Avro};
use crate::testing::{self, Running};
use crate::tests::arbitrary::Random;
use crate::{Error, HostError};

/// Adds the field `new` to structured data, and says in the metadata what it saw.
struct Add;

impl Processor for Add {
    type Parameters = ();

    fn specification() -> Specification {
        Specification::new("add", "v0.1.0", "")
    }

    fn configure((): ()) -> Result<Self, Error> {
        Ok(Add)
    }

    fn process(&mut self, mut record: Record) -> Result<Output, Error> {
        let saw = record.payload.after.type_name();
        record.metadata.insert("saw", saw);
        if record.metadata.contains_key("add")
            && let Some(map) = record.payload.after.fields_mut()
        {
            map.insert("new", "text".into());
        }
        Ok(record.into())
    }
}

const SCHEMA: &str = r#"{"name":"record","type":"record","fields":[{"name":"id","type":"int"}]}"#;

fn data() -> Object {
    [("id", 1)].into_iter().collect()
}

/// A record that is encoded with the first version of the subject.
fn record() -> Record {
    testing::reset();
    schema::create("s", SCHEMA).unwrap();
    let mut bytes = Vec::new();
    assert!(Avro::parse(SCHEMA).unwrap().encode(&data(), &mut bytes));
    let mut record = Record::new(bytes);
    name(&mut record, "1");
    record
}

fn name(record: &mut Record, version: &str) {
    record.metadata.insert(PAYLOAD_SCHEMA_SUBJECT, "s");
    record.metadata.insert(PAYLOAD_SCHEMA_VERSION, version);
}

fn start(settings: &[(&str, &str)]) -> Running<Add> {
    testing::start(settings).unwrap()
}

fn noted<'r>(record: &'r Record, key: &str) -> &'r str {
    record.metadata.get(key).unwrap()
}

fn one(running: &mut Running<Add>, record: Record) -> Record {
    running.process_one(record).unwrap().into_records().remove(0)
}

#[test]
fn data_are_decoded_and_encoded_again_with_their_schema() {
    let before = record();
    let after = one(&mut start(&[]), before.clone());
    assert_eq!(noted(&after, "saw"), "structured");
    assert_eq!((&after.payload, noted(&after, &PAYLOAD_SCHEMA_VERSION)), (&before.payload, "1"));
}

#[test]
fn a_changed_shape_becomes_a_version() {
    let mut before = record();
    before.metadata.insert("add", "");
    let mut running = start(&[]);
    for _ in 0..2 {
        let after = one(&mut running, before.clone());
        assert_eq!(noted(&after, &PAYLOAD_SCHEMA_VERSION), "2");
        let schema = schema::get("s", 2).unwrap();
        assert_eq!(
            schema.text,
            r#"{"name":"record","type":"record","fields":[{"name":"id","type":"long"},{"name":"new","type":"string"}]}"#
        );
        let decoded =
            Avro::parse(&schema.text).unwrap().decode(after.payload.after.raw().unwrap(), Arc::default()).unwrap();
        assert_eq!(*decoded, Object::from_iter([("id", Value::Int(1)), ("new", "text".into())]));
    }
}

/// A record with data in binary, of a schema of their own, or damaged.
fn encoded(random: &mut Random) -> Record {
    let map = random.map(2);
    let mut text = String::new();
    infer(&map, &mut text).unwrap();
    let version = schema::create("s", &text).unwrap().version.to_string();
    let mut bytes = Vec::new();
    assert!(Avro::parse(&text).unwrap().encode(&map, &mut bytes));
    if random.below(8) == 0 {
        bytes.truncate(random.below(bytes.len() as u64 + 1) as usize);
    }
    let mut record = Record::new(bytes);
    record.metadata = random.metadata();
    name(&mut record, &version);
    if random.below(8) == 0 {
        record.metadata.insert("add", "");
    }
    record
}

#[test]
fn nothing_shows_of_the_batches_before() {
    testing::reset();
    let mut random = Random(3);
    let mut running = start(&[]);
    for _ in 0..300 {
        let records: Vec<Record> = (0..random.below(4)).map(|_| encoded(&mut random)).collect();
        assert_eq!(running.process(records.clone()), start(&[]).process(records));
    }
}

#[test]
fn records_of_two_schemas_take_turns() {
    let first = record();
    let text = r#"{"name":"record","type":"record","fields":[{"name":"name","type":"string"}]}"#;
    assert_eq!(schema::create("s", text).unwrap().version, 2);
    let map = Object::from_iter([("name", "n")]);
    let mut bytes = Vec::new();
    assert!(Avro::parse(text).unwrap().encode(&map, &mut bytes));
    let mut second = Record::new(bytes);
    name(&mut second, "2");
    let mut running = start(&[]);
    for _ in 0..3 {
        for before in [&first, &second] {
            let after = one(&mut running, before.clone());
            assert_eq!(noted(&after, "saw"), "structured");
            assert_eq!(after.payload, before.payload);
        }
    }
}

#[test]
fn each_step_can_be_switched_off() {
    let off = |step: &str| format!("sdk.schema.{step}.payload.enabled");
    let kept = one(&mut start(&[(&off("decode"), "false")]), record());
    assert_eq!((noted(&kept, "saw"), &kept.payload), ("raw", &record().payload));
    let open = one(&mut start(&[(&off("encode"), "false")]), record());
    assert_eq!(open.payload.after, Data::from([("id", 1)]));
    let key = one(&mut start(&[("sdk.schema.decode.key.enabled", "false")]), record());
    assert_eq!(noted(&key, "saw"), "structured");
    let error = testing::start::<Add>(&[(&off("encode"), "maybe")]).map(drop).unwrap_err();
    assert!(error.message().contains("sdk.schema.encode.payload.enabled"), "{error}");
}

#[test]
fn a_record_that_cannot_be_decoded_fails_alone() {
    let good = record();
    let (mut cut, mut unknown, mut odd) = (good.clone(), good.clone(), good.clone());
    cut.payload.after = "".into();
    name(&mut unknown, "9");
    name(&mut odd, "x");
    let results = start(&[]).process(vec![cut, good, unknown, odd]);
    let messages: Vec<Option<&str>> = results.iter().map(|result| result.as_ref().err().map(Error::message)).collect();
    assert_eq!(
        messages,
        [
            Some("schema \"s\" version 1: cannot decode the data: the data ends too early"),
            None,
            Some("schema \"s\" version 9: schema version not found"),
            Some("recfmt.payload.schema.version: \"x\" is not a number"),
        ]
    );
    assert_eq!(results[2].as_ref().unwrap_err().host(), Some(HostError::VERSION_NOT_FOUND));
}

#[test]
fn a_schema_that_the_processor_chose_must_fit() {
    let mut other = record();
    schema::create("s", r#"{"name":"record","type":"record","fields":[{"name":"name","type":"string"}]}"#).unwrap();
    struct Choose;
    impl Processor for Choose {
        type Parameters = ();
        fn specification() -> Specification {
            Specification::new("choose", "v0.1.0", "")
        }
        fn configure((): ()) -> Result<Self, Error> {
            Ok(Choose)
        }
        fn process(&mut self, mut record: Record) -> Result<Output, Error> {
            name(&mut record, "2");
            if record.metadata.contains_key("rename") {
                record.payload.after = [("name", "x")].into();
            }
            Ok(record.into())
        }
    }
    let mut running = testing::start::<Choose>(&[]).unwrap();
    assert!(running.process_one(other.clone()).is_err());
    other.metadata.insert("rename", "");
    let after = running.process_one(other).unwrap().into_records().remove(0);
    assert_eq!(after.payload.after, Data::from(vec![2, b'x']));
}
