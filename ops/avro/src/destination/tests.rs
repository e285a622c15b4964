use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::destination::{Delivered, Retry, Write};
use anabranch_plugin::parameters::shared;
use anabranch_plugin::schema::{MemoryRegistry, SchemaKind, SchemaRegistry as _};
use anabranch_plugin::settings::Settings;
use anabranch_record::text::Str;

use super::*;
use crate::testing::{after, block_on, fields, host};

#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Record>>>);

struct Keeps(Specification, Collector);

impl DestinationKind for Keeps {
    fn specification(&self) -> &Specification {
        &self.0
    }
    fn configure(&self, _: &Arguments) -> Result<Arc<dyn Destination>, Diagnostics> {
        Ok(Arc::new(self.1.clone()))
    }
}

#[async_trait]
impl Destination for Collector {
    async fn open(&self, _: &Host) -> Result<Box<dyn Writer>, Fault> {
        Ok(Box::new(self.clone()))
    }
    fn policy(&self) -> WritePolicy {
        WritePolicy { rows: 10, bytes: 1 << 20, linger: Duration::ZERO, retry: Retry::Idempotent }
    }
}

#[async_trait]
impl Writer for Collector {
    async fn write(&mut self, Write { rows, .. }: Write<'_>) -> Result<Verdicts, Fault> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(rows);
        Ok(Verdicts::All(Delivered::Durable))
    }
    async fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

/// A record whose payload is Avro of `{"a": long}`.
fn encoded(bytes: &'static [u8]) -> Record {
    let mut record = after(Data::Raw(bytes::Bytes::from_static(bytes)));
    let (subject, version) = SchemaPart::Payload.names();
    record.metadata.insert(subject, "s");
    record.metadata.insert(version, "1");
    record
}

/// Returns the bytes written, and the rejected rows with their codes.
fn written(settings: &[(&str, &str)], rows: &[Record]) -> (Vec<Record>, Vec<(usize, &'static str)>) {
    written_by(around, settings, rows)
}

type Wrap = fn(Arc<dyn DestinationKind>) -> Arc<dyn DestinationKind>;

fn written_by(wrap: Wrap, settings: &[(&str, &str)], rows: &[Record]) -> (Vec<Record>, Vec<(usize, &'static str)>) {
    let registry = Arc::new(MemoryRegistry::new());
    let text = r#"{"name":"record","type":"record","fields":[{"name":"a","type":"long"}]}"#;
    block_on(registry.create(&"s".into(), SchemaKind::Avro, &text.into())).unwrap();
    let collector = Collector::default();
    let specification = Specification::builtin("keeps", "Keeps.").with_all(shared::destination());
    let kind = wrap(Arc::new(Keeps(specification, collector.clone())));
    let settings = Settings::from_pairs(settings.iter().copied());
    let destination = kind.configure(&Arguments::parse(kind.specification(), &settings).unwrap()).unwrap();
    let verdicts = block_on(async {
        let mut writer = destination.open(&host(registry)).await.unwrap();
        writer.write(Write::new(rows)).await.unwrap()
    });
    let refused = match verdicts {
        Verdicts::All(_) => Vec::new(),
        Verdicts::Refused(refused) => refused.into_iter().map(|(row, fault)| (row, fault.code().name())).collect(),
        Verdicts::Each(each) => panic!("{each:?}"),
    };
    let kept = collector.0.lock().unwrap().clone();
    (kept, refused)
}

#[test]
fn data_with_a_schema_are_written_decoded() {
    let plain = after(Data::Raw(bytes::Bytes::from_static(b"plain")));
    let (kept, refused) = written(&[], &[plain.clone(), encoded(b"\x02"), encoded(b"\x04")]);
    assert_eq!(refused, []);
    assert_eq!(kept[0], plain);
    assert_eq!([&kept[1].payload.after, &kept[2].payload.after], [&fields(r#"{"a":1}"#), &fields(r#"{"a":2}"#)]);
}

#[test]
fn what_cannot_be_decoded_is_refused_and_nothing_is_written() {
    let mut unknown = encoded(b"\x02");
    unknown.metadata.insert(SchemaPart::Payload.names().1, "9");
    let (kept, refused) = written(&[], &[encoded(b"\x02"), encoded(b"\x02\x02"), unknown]);
    assert_eq!(refused, [(1, "avro_invalid"), (2, "schema_version_not_found")]);
    assert_eq!(kept, []);
}

#[test]
fn each_part_can_be_left_as_it_is() {
    let (kept, _) = written(&[("sdk.schema.extract.payload.enabled", "false")], &[encoded(b"\x02")]);
    assert_eq!(kept, [encoded(b"\x02")]);
    let (kept, _) = written(&[("sdk.schema.extract.key.enabled", "false")], &[encoded(b"\x02")]);
    assert_eq!(kept[0].payload.after, fields(r#"{"a":1}"#));
}

#[test]
fn a_raw_key_does_not_hide_a_payload_of_the_same_metadata() {
    // Both records share their metadata; only the second has raw data with a schema.
    let second = encoded(b"\x02");
    let mut first = after(Data::Absent);
    first.key = Data::Raw(bytes::Bytes::from_static(b"key"));
    first.metadata = second.metadata.clone();
    let (kept, _) = written(&[], &[first.clone(), second]);
    assert_eq!(kept[0], first);
    assert_eq!(kept[1].payload.after, fields(r#"{"a":1}"#));
}

#[test]
fn who_decodes_by_himself_gets_fields_encoded() {
    let structured = |text| {
        let mut record = encoded(b"");
        record.payload.after = fields(text);
        record
    };
    let (one, misfit, nameless) = (structured(r#"{"a":1}"#), structured(r#"{"a":"x"}"#), structured(r#"{"a-b":1}"#));
    let mut plain = structured(r#"{"a":1}"#);
    plain.metadata = Metadata::default();
    let rows = [one.clone(), encoded(b"\x04"), misfit, nameless.clone(), plain.clone()];
    let (kept, refused) = written_by(super::encoded, &[], &rows);
    assert_eq!(refused, []);
    assert_eq!(kept[..2], [encoded(b"\x02"), encoded(b"\x04")]);
    // A record that does not fit this version has another one; a record that fits none is unchanged.
    assert_eq!(kept[2].payload.after, Data::Raw(bytes::Bytes::from_static(b"\x02x")));
    assert_eq!(kept[2].metadata.get(&SchemaPart::Payload.names().1).map(Str::as_str), Some("2"));
    assert_eq!(kept[3..], [nameless, plain]);
    let (kept, _) = written_by(super::encoded, &[("sdk.schema.extract.payload.enabled", "false")], &rows[..1]);
    assert_eq!(kept, [one]);
}
