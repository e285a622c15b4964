use std::sync::Mutex;

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::parameters::shared;
use anabranch_plugin::schema::{MemoryRegistry, SchemaRegistry, SchemaVersion};
use anabranch_plugin::settings::Settings;
use anabranch_plugin::source::Acker;
use anabranch_record::Position;

use super::*;
use crate::testing::{after, block_on, fields, host};

/// Gives these records.
struct Given(Specification, Vec<Record>);

impl SourceKind for Given {
    fn specification(&self) -> &Specification {
        &self.0
    }
    fn configure(&self, _: &Arguments) -> Result<Arc<dyn Source>, Diagnostics> {
        Ok(Arc::new(Giving(self.1.clone())))
    }
}

struct Giving(Vec<Record>);

#[async_trait]
impl Source for Giving {
    fn catches_up(&self) -> bool {
        true
    }
    async fn open(&self, _: &BTreeMap<Partition, Mark>, _: &Host) -> Result<OpenedSource, Fault> {
        Ok(OpenedSource::new(Box::new(Reads(Mutex::new(self.0.clone()))), Box::new(Forgets)))
    }
}

struct Reads(Mutex<Vec<Record>>);

#[async_trait]
impl Reader for Reads {
    async fn read(&mut self, _: Room) -> Result<Read, Fault> {
        let records = std::mem::take(self.0.get_mut().unwrap());
        Ok(if records.is_empty() { Read::End } else { Read::Rows { partition: Partition::ONLY, records } })
    }
}

struct Forgets;

#[async_trait]
impl Acker for Forgets {
    async fn ack(&mut self, _: &Partition, _: &[Position]) -> Result<(), Fault> {
        Ok(())
    }
}

fn extracted_by(
    parameters: Vec<anabranch_plugin::specification::Parameter>,
    registry: Arc<MemoryRegistry>,
    settings: &[(&str, &str)],
    records: Vec<Record>,
) -> Result<Vec<Record>, Fault> {
    let kind = around(Arc::new(Given(Specification::builtin("given", "Given.").with_all(parameters), records)));
    let settings = Settings::from_pairs(settings.iter().copied());
    let source = kind.configure(&Arguments::parse(kind.specification(), &settings).unwrap()).unwrap();
    block_on(async {
        let mut reader = source.open(&BTreeMap::new(), &host(registry)).await?.reader;
        match reader.read(Room { rows: 100, bytes: 1 << 20 }).await? {
            Read::Rows { records, .. } => Ok(records),
            other => panic!("{other:?}"),
        }
    })
}

/// A source of structured data that gives these records.
pub(crate) async fn reader_of(registry: Arc<dyn SchemaRegistry>, records: Vec<Record>) -> Box<dyn Reader> {
    let specification = Specification::builtin("given", "Given.").with_all(shared::structured_source());
    let kind = around(Arc::new(Given(specification, records)));
    let arguments = Arguments::parse(kind.specification(), &Settings::default()).unwrap();
    kind.configure(&arguments).unwrap().open(&BTreeMap::new(), &host(registry)).await.unwrap().reader
}

/// Extraction as a source of structured data has it.
fn extracted(settings: &[(&str, &str)], records: Vec<Record>) -> Vec<Record> {
    extracted_by(shared::structured_source(), Arc::default(), settings, records).unwrap()
}

/// Subject and version of a part.
fn named(part: SchemaPart, record: &Record) -> Option<String> {
    let (subject, version) = part.names();
    let (subject, version) = (record.metadata.get(&subject), record.metadata.get(&version));
    assert_eq!(subject.is_some(), version.is_some());
    Some(format!("{} v{}", subject?, version?))
}

fn payload(record: &Record) -> Option<String> {
    named(SchemaPart::Payload, record)
}

fn of_collection(name: &'static str, json: &str) -> Record {
    let mut record = after(fields(json));
    record.metadata.insert(key::COLLECTION, name);
    record
}

#[test]
fn each_shape_is_a_version_and_data_stay_as_they_are() {
    let registry = Arc::new(MemoryRegistry::new());
    let texts =
        [r#"{"b":1,"a":"x"}"#, r#"{"a":"y","b":2}"#, r#"{"a":1}"#, r#"{"l":[1]}"#, r#"{"l":[2]}"#, r#"{"a":3}"#];
    let records: Vec<Record> = texts.iter().map(|text| after(fields(text))).collect();
    let read = extracted_by(shared::structured_source(), registry.clone(), &[], records.clone()).unwrap();
    let versions: Vec<_> = read.iter().map(|record| payload(record).unwrap()).collect();
    // The id of the connector is the context.
    assert_eq!(versions, [1, 1, 2, 3, 3, 2].map(|version| format!("p:p:n:payload v{version}")));
    for (record, before) in read.iter().zip(&records) {
        assert_eq!((&record.key, &record.payload), (&before.key, &before.payload));
        assert_eq!(named(SchemaPart::Key, record), None, "there is no key");
    }
    let first = block_on(registry.get(&"p:p:n:payload".into(), SchemaVersion::FIRST)).unwrap();
    assert_eq!(
        first.text.as_str(),
        r#"{"name":"record","type":"record","fields":[{"name":"a","type":"string"},{"name":"b","type":"long"}]}"#
    );
}

#[test]
fn subjects_have_a_context_a_collection_and_a_name() {
    let read = |settings: &[(&str, &str)]| {
        let mut record = of_collection("users", r#"{"a":1}"#);
        record.key = fields(r#"{"id":1}"#);
        let read = extracted(settings, vec![record, after(fields(r#"{"a":1}"#))]);
        [named(SchemaPart::Key, &read[0]), payload(&read[0]), payload(&read[1])].map(Option::unwrap_or_default)
    };
    assert_eq!(read(&[]), ["p:p:n:users.key v1", "p:p:n:users.payload v1", "p:p:n:payload v1"]);
    let named = [("sdk.schema.context.name", "shop"), ("sdk.schema.extract.payload.subject", "row")];
    assert_eq!(read(&named), ["shop:users.key v1", "shop:users.row v1", "shop:row v1"]);
    for none in [("sdk.schema.context.name", ""), ("sdk.schema.context.enabled", "false")] {
        assert_eq!(read(&[none]), ["users.key v1", "users.payload v1", "payload v1"]);
    }
    assert_eq!(read(&[("sdk.schema.extract.key.enabled", "false")])[0], "");
}

#[test]
fn a_source_of_raw_data_extracts_only_when_asked() {
    let read = |settings: &[(&str, &str)]| {
        let records = vec![after(fields(r#"{"a":1}"#)), after(Data::Raw(bytes::Bytes::from_static(b"raw")))];
        let read = extracted_by(shared::source(), Arc::default(), settings, records).unwrap();
        read.iter().map(payload).collect::<Vec<_>>()
    };
    assert_eq!(read(&[]), [None, None]);
    let asked = read(&[("sdk.schema.extract.payload.enabled", "true")]);
    assert_eq!(asked, [Some("p:p:n:payload v1".to_owned()), None]);
}

#[test]
fn what_a_source_names_itself_stays() {
    let mut own = after(fields(r#"{"a":1}"#));
    let (subject, version) = SchemaPart::Payload.names();
    own.metadata.insert(subject.clone(), "mine");
    own.metadata.insert(version.clone(), "7");
    let read = extracted(&[], vec![own.clone()]);
    assert_eq!(payload(&read[0]).unwrap(), "mine v7");
    own.metadata.remove(&version);
    let fault = extracted_by(shared::structured_source(), Arc::default(), &[], vec![own]).unwrap_err();
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Fatal, "schema_metadata_incomplete"));
    assert!(
        fault.message().contains("recfmt.payload.schema.subject of a record without recfmt.payload.schema.version")
    );
}

#[test]
fn what_has_no_schema_goes_on_without() {
    let mut half_raw = after(fields(r#"{"a":1}"#));
    half_raw.payload.before = Data::Raw(bytes::Bytes::from_static(b"\x02"));
    let read = extracted(&[], vec![after(fields(r#"{"a-b":1}"#)), after(fields(r#"{"a":1}"#)), half_raw]);
    assert_eq!((payload(&read[0]), payload(&read[2])), (None, None));
    assert_eq!(payload(&read[1]).unwrap(), "p:p:n:payload v1");
}

#[test]
fn records_that_share_metadata_share_them_afterwards() {
    let metadata: Metadata = [("k", "v")].into_iter().collect();
    let record = |json: &str| {
        let mut record = after(fields(json));
        record.metadata = metadata.clone();
        record
    };
    let read = extracted(&[], [r#"{"a":1}"#, r#"{"a":2}"#, r#"{"b":1}"#, r#"{"b":2}"#].map(record).to_vec());
    assert!(read[0].metadata.shares(&read[1].metadata) && read[2].metadata.shares(&read[3].metadata));
    assert_eq!(
        read.iter().map(|r| payload(r).unwrap()).collect::<Vec<_>>(),
        [1, 1, 2, 2].map(|v| format!("p:p:n:payload v{v}"))
    );
    assert!(read.iter().all(|record| record.metadata.get("k").is_some_and(|value| *value == "v")));
    assert_eq!(metadata.len(), 1);
}
