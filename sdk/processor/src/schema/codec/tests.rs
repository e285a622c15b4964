use crate::metadata::{PAYLOAD_SCHEMA_SUBJECT, PAYLOAD_SCHEMA_VERSION};
use crate::processor::{Output, Processor};
use crate::record::{Data, Record};
use crate::schema::{self, avro::Avro};
use crate::specification::Specification;
use crate::testing::{self, Running};
use crate::tests::arbitrary::Random;
use crate::value::{Map, Value};
use crate::{Error, HostError};

/// Adds the field `new` to structured data, and says in the metadata what it saw.
struct Add;

impl Processor for Add {
    type Parameters = ();

    fn specification() -> Specification {
        Specification::new("add", "v0.1.0")
    }

    fn configure((): ()) -> Result<Self, Error> {
        Ok(Add)
    }

    fn process(&mut self, mut record: Record) -> Result<Output, Error> {
        let saw = record.payload.after.type_name();
        record.metadata.insert("saw".to_owned(), saw.to_owned());
        if record.metadata.contains_key("add")
            && let Some(map) = record.payload.after.as_structured_mut()
        {
            map.insert("new".to_owned(), "text".into());
        }
        Ok(record.into())
    }
}

const SCHEMA: &str = r#"{"name":"record","type":"record","fields":[{"name":"id","type":"int"}]}"#;

fn data() -> Map {
    [("id".to_owned(), Value::Int(1))].into()
}

/// A record that is encoded with the first version of the subject.
fn record() -> Record {
    testing::reset();
    schema::create("s", SCHEMA).unwrap();
    let mut bytes = Vec::new();
    assert!(Avro::parse(SCHEMA).unwrap().encode(&data(), &mut bytes));
    let mut record = Record::create(bytes);
    name(&mut record, "1");
    record
}

fn name(record: &mut Record, version: &str) {
    record.metadata.insert(PAYLOAD_SCHEMA_SUBJECT.to_owned(), "s".to_owned());
    record.metadata.insert(PAYLOAD_SCHEMA_VERSION.to_owned(), version.to_owned());
}

fn start(settings: &[(&str, &str)]) -> Running<Add> {
    testing::start(settings).unwrap()
}

fn one(running: &mut Running<Add>, record: Record) -> Record {
    running.process_one(record).unwrap().into_records().remove(0)
}

#[test]
fn data_are_decoded_and_encoded_again_with_their_schema() {
    let before = record();
    let after = one(&mut start(&[]), before.clone());
    assert_eq!(after.metadata["saw"], "structured data");
    assert_eq!((&after.payload, &after.metadata[PAYLOAD_SCHEMA_VERSION]), (&before.payload, &"1".to_owned()));
}

#[test]
fn a_changed_shape_becomes_a_version() {
    let mut before = record();
    before.metadata.insert("add".to_owned(), String::new());
    let mut running = start(&[]);
    for _ in 0..2 {
        let after = one(&mut running, before.clone());
        assert_eq!(after.metadata[PAYLOAD_SCHEMA_VERSION], "2");
        let schema = schema::get("s", 2).unwrap();
        assert_eq!(
            schema.text,
            r#"{"name":"record","type":"record","fields":[{"name":"id","type":"long"},{"name":"new","type":"string"}]}"#
        );
        let decoded =
            Avro::parse(&schema.text).unwrap().decode(after.payload.after.as_raw().unwrap(), Map::new()).unwrap();
        assert_eq!((&decoded["id"], &decoded["new"]), (&Value::Int(1), &Value::from("text")));
    }
}

/// A record with data in binary, of a schema of their own, or damaged.
fn encoded(random: &mut Random) -> Record {
    let map = random.map(2);
    let text = super::infer(&map).unwrap();
    let version = schema::create("s", &text).unwrap().version.to_string();
    let mut bytes = Vec::new();
    assert!(Avro::parse(&text).unwrap().encode(&map, &mut bytes));
    if random.below(8) == 0 {
        bytes.truncate(random.below(bytes.len() as u64 + 1) as usize);
    }
    let mut record = Record { metadata: random.metadata(), ..Record::create(bytes) };
    name(&mut record, &version);
    if random.below(8) == 0 {
        record.metadata.insert("add".to_owned(), String::new());
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
    let map = Map::from([("name".to_owned(), Value::from("n"))]);
    let mut bytes = Vec::new();
    assert!(Avro::parse(text).unwrap().encode(&map, &mut bytes));
    let mut second = Record::create(bytes);
    name(&mut second, "2");
    let mut running = start(&[]);
    for _ in 0..3 {
        for before in [&first, &second] {
            let after = one(&mut running, before.clone());
            assert_eq!(after.metadata["saw"], "structured data");
            assert_eq!(after.payload, before.payload);
        }
    }
}

#[test]
fn each_step_can_be_switched_off() {
    let off = |step: &str| format!("sdk.schema.{step}.payload.enabled");
    let kept = one(&mut start(&[(&off("decode"), "false")]), record());
    assert_eq!((kept.metadata["saw"].as_str(), &kept.payload), ("raw data", &record().payload));
    let open = one(&mut start(&[(&off("encode"), "false")]), record());
    // Outside of Avro numbers are floats.
    assert_eq!(open.payload.after, Data::from([("id", 1.0)]));
    let key = one(&mut start(&[("sdk.schema.decode.key.enabled", "false")]), record());
    assert_eq!(key.metadata["saw"], "structured data");
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
            Specification::new("choose", "v0.1.0")
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
    other.metadata.insert("rename".to_owned(), String::new());
    let after = running.process_one(other).unwrap().into_records().remove(0);
    assert_eq!(after.payload.after.as_raw(), Some(&[2, b'x'][..]));
}

#[test]
fn every_shape_fits_the_schema_that_is_inferred_from_it() {
    let nested = Value::Map([("a".to_owned(), Value::Int(1)), ("b".to_owned(), Value::Null)].into());
    let lists = vec![Value::List(vec![nested.clone(), Value::List(Vec::new()), "x".into()]), Value::Map(Map::new())];
    let map: Map = [
        ("null".to_owned(), Value::Null),
        ("bool".to_owned(), true.into()),
        ("float".to_owned(), f64::NEG_INFINITY.into()),
        ("bytes".to_owned(), vec![1u8].into()),
        ("nested".to_owned(), nested),
        ("lists".to_owned(), lists.into()),
    ]
    .into();
    let avro = Avro::parse(&super::infer(&map).unwrap()).unwrap();
    let mut bytes = Vec::new();
    assert!(avro.encode(&map, &mut bytes));
    assert_eq!(avro.decode(&bytes, Map::new()), Ok(map));
    assert!(super::infer(&[("a b".to_owned(), Value::Null)].into()).is_err());
}
