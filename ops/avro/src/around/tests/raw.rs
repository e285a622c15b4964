//! Raw data that a processor makes do not keep the schema of the fields they replace.

use anabranch_plugin::flow::{Fields, RecordShape, Shape};
use anabranch_record::Data;

use super::*;
use crate::testing::configured;

type Change = fn(Record) -> Vec<Record>;

/// Makes these records of one. What it writes is what it says it does.
#[derive(Clone)]
struct Making {
    specification: Specification,
    class: Class,
    signature: Signature,
    change: Change,
}

impl OperatorKind for Making {
    fn specification(&self) -> &Specification {
        &self.specification
    }
    fn configure(&self, _: &Arguments) -> Result<Configured, Diagnostics> {
        let making = self.clone();
        Ok(of_class(self.class, self.signature.clone(), move |_| Ok(making.clone())))
    }
}

impl Operator for Making {
    fn process(&mut self, rows: &mut Rows<'_>, _: &OperatorContext) {
        rows.for_each(|record| {
            let mut made = (self.change)(record.clone());
            if made.len() != 1 {
                return Ok(Decision::Pieces(Pieces::new(made.len(), move |i| made[i].clone())));
            }
            *record = made.remove(0);
            Ok(Decision::Keep)
        });
    }
}

#[async_trait]
impl AsyncOperator for Making {
    async fn call(&self, rows: &mut [Record], _: &OperatorContext) -> Vec<Decision> {
        rows.iter().map(|record| Decision::Split((self.change)(record.clone()))).collect()
    }
}

const AB: &str = r#"{"name":"record","type":"record","fields":[{"name":"a","type":"long"}]}"#;

/// Runs records through a strip, with an inline and with an async processor.
fn made_as(writes: &Access, settings: &[(&str, &str)], change: Change, rows: &[Record]) -> Vec<Record> {
    let built = |class| {
        let registry = Arc::new(MemoryRegistry::new());
        crate::testing::block_on(registry.create(&"s".into(), SchemaKind::Avro, &AB.into())).unwrap();
        let specification = Specification::builtin("making", "Makes.").with_all(shared::processor());
        let signature = Signature::new().writes(writes.clone());
        let kind = around(Arc::new(Making { specification, class, signature, change }));
        opened(&kind, settings, &host(registry))
    };
    let mut operator = built(Class::Inline);
    let mut records = rows.to_vec();
    let decisions = operator.process(&mut records, None);
    let mut decisions: std::collections::BTreeMap<usize, Decision> = decisions.into_iter().collect();
    let inline: Vec<Record> = records
        .into_iter()
        .enumerate()
        .flat_map(|(row, record)| match decisions.remove(&row) {
            None => vec![record],
            Some(decision @ Decision::Pieces(_)) => decision.into_records(),
            Some(other) => panic!("{other:?}"),
        })
        .collect();
    let operator = built(Class::Async);
    let called = crate::testing::block_on(operator.call(rows.to_vec()));
    let waited = called.into_iter().flat_map(|(_, decision)| match decision {
        Decision::Split(records) => records,
        other => panic!("{other:?}"),
    });
    assert_eq!(inline, waited.collect::<Vec<_>>());
    inline
}

fn made(change: Change, record: &Record) -> Record {
    let mut made = made_as(&Access::Everything, &[], change, std::slice::from_ref(record));
    // A processor that declares that it leaves the metadata alone is checked less closely.
    let data = Access::These(vec![vec!["Key".into()], vec!["Payload".into()]]);
    if made[0].metadata.get("own").is_none() {
        assert_eq!(made_as(&data, &[], change, std::slice::from_ref(record)), made);
    }
    made.remove(0)
}

fn one() -> Data {
    Data::text("1")
}

fn a(number: i64) -> Data {
    fields(&format!(r#"{{"a":{number}}}"#))
}

/// With schemas of key and payload, and other metadata.
fn record(key: Data, before: Data, after: Data) -> Record {
    let mut record = crate::testing::after(after);
    (record.key, record.payload.before) = (key, before);
    record.metadata.insert("other", "x");
    for (subject, version) in SchemaPart::ALL.map(SchemaPart::names) {
        record.metadata.insert(subject, "s");
        record.metadata.insert(version, "1");
    }
    record
}

/// The versions of key and payload; that of a part has gone with its subject.
#[track_caller]
fn versions(record: &Record) -> [Option<&str>; 2] {
    assert_eq!(record.metadata.get("other").map(Str::as_str), Some("x"));
    SchemaPart::ALL.map(|part| {
        let (subject, version) = part.names();
        let version = record.metadata.get(&version).map(Str::as_str);
        assert_eq!(record.metadata.get(&subject).is_some(), version.is_some());
        version
    })
}

#[test]
fn fields_that_became_raw_data_lose_their_schema() {
    let raw_key: Change = |mut record| {
        record.key = one();
        vec![record]
    };
    let raw_after: Change = |mut record| {
        record.payload.after = one();
        vec![record]
    };
    let raw_before: Change = |mut record| {
        record.payload.before = one();
        vec![record]
    };
    let raw_payload: Change = |mut record| {
        (record.payload.before, record.payload.after) = (one(), one());
        vec![record]
    };
    let (key, payload) = ([None, Some("1")], [Some("1"), None]);
    for (before, after, change, left) in [
        (Data::Absent, a(1), raw_key, key),
        (Data::Absent, a(1), raw_after, payload),
        (a(1), a(2), raw_after, payload),
        (a(1), a(2), raw_before, payload),
        (a(1), a(2), raw_payload, payload),
        (a(1), Data::Absent, raw_before, payload),
        // Raw data beside fields, which were not there.
        (Data::Absent, a(1), raw_before, payload),
        (a(1), Data::Absent, raw_after, payload),
        // As a step left it that took the fields away.
        (Data::Absent, Data::Absent, raw_after, payload),
        // Fields that came as Avro.
        (Data::Absent, Data::Raw(Bytes::from_static(b"\x02")), raw_after, payload),
        (Data::Raw(Bytes::from_static(b"\x02")), a(1), raw_after, payload),
    ] {
        let came = record(a(1), before, after);
        let left_with = made(change, &came);
        assert_eq!(versions(&left_with), left, "{came:?}");
    }
    let after = made(raw_after, &record(a(1), a(1), a(2)));
    assert_eq!((after.payload.before, after.payload.after), (a(1), one()));
}

#[test]
fn a_schema_that_the_processor_names_itself_is_kept() {
    let change: Change = |mut record| {
        record.payload.after = Data::Raw(Bytes::from_static(b"\x02"));
        record.metadata.insert(key::PAYLOAD_SCHEMA_VERSION, "7");
        record.metadata.insert("own", "");
        vec![record]
    };
    assert_eq!(versions(&made(change, &record(a(1), Data::Absent, a(1)))), [Some("1"), Some("7")]);
    let other_subject: Change = |mut record| {
        record.payload.after = Data::Raw(Bytes::from_static(b"\x02"));
        record.metadata.insert(key::PAYLOAD_SCHEMA_SUBJECT, "mine");
        record.metadata.insert("own", "");
        vec![record]
    };
    let made_of_it = made(other_subject, &record(a(1), a(2), a(1)));
    // The version is that of the raw data: fields beside them that it does not fit are not to change it.
    assert_eq!(versions(&made_of_it), [Some("1"), Some("1")]);
    assert_eq!(made_of_it.metadata.get("recfmt.payload.schema.subject").map(Str::as_str), Some("mine"));
    // Metadata that were written, but not there.
    let unrelated: Change = |mut record| {
        record.payload.after = one();
        record.metadata.insert("own", "");
        vec![record]
    };
    assert_eq!(versions(&made(unrelated, &record(a(1), Data::Absent, a(1)))), [Some("1"), None]);
}

#[test]
fn raw_data_that_the_processor_was_given_keep_their_schema() {
    let off = ["decode.key", "decode.payload"].map(|step| (format!("sdk.schema.{step}.enabled"), "false"));
    let off = off.each_ref().map(|(name, value)| (name.as_str(), *value));
    let avro = |bytes| Data::Raw(Bytes::from_static(bytes));
    let untouched: Change = |record| vec![record];
    let came = record(avro(b"\x02"), avro(b"\x04"), avro(b"\x06"));
    assert_eq!(made_as(&Access::Everything, &off, untouched, std::slice::from_ref(&came)), [came]);
    // One side given to the other.
    let moved: Change = |mut record| {
        record.payload.after = std::mem::take(&mut record.payload.before);
        vec![record]
    };
    let came = record(a(1), avro(b"\x04"), Data::Absent);
    assert_eq!(versions(&made_as(&Access::Everything, &off, moved, &[came])[0]), [Some("1"); 2]);
}

#[test]
fn fields_beside_raw_data_do_not_change_the_version_of_these() {
    let mut cache = SchemaCache::new(crate::testing::block_on(registry()));
    let mut mixed = record(a(1), Data::Raw(Bytes::from_static(b"\x02")), fields(r#"{"other":"x"}"#));
    for _ in 0..2 {
        assert!(refresh(&mut cache, SchemaPart::Payload, &mut mixed).unwrap());
        assert_eq!(versions(&mixed), [Some("1"); 2]);
    }
}

#[test]
fn metadata_are_left_alone_where_that_is_asked() {
    let change: Change = |mut record| {
        (record.key, record.payload.after) = (one(), one());
        vec![record]
    };
    let came = [record(a(1), Data::Absent, a(1))];
    for (part, left) in [("key", [Some("1"), None]), ("payload", [None, Some("1")])] {
        let setting = format!("sdk.schema.encode.{part}.enabled");
        assert_eq!(versions(&made_as(&Access::Everything, &[(&setting, "false")], change, &came)[0]), left);
    }
}

#[test]
fn each_record_made_of_one_is_looked_at() {
    let split: Change = |mut record| {
        let whole = record.clone();
        record.payload.after = one();
        vec![whole.clone(), record, whole]
    };
    let none: Change = |_| Vec::new();
    let rows = [record(a(1), Data::Absent, a(1)), record(a(1), Data::Absent, a(2))];
    let made = made_as(&Access::Everything, &[], split, &rows);
    let expected = [Some("1"), None, Some("1"), Some("1"), None, Some("1")].map(|payload| [Some("1"), payload]);
    assert_eq!(made.iter().map(versions).collect::<Vec<_>>(), expected);
    assert_eq!(made_as(&Access::Everything, &[], none, &rows), []);
}

/// Only what changed is looked at, and what a strip shares stays shared.
#[test]
fn rows_of_a_strip_are_told_apart_and_share_what_is_left() {
    let change: Change = |mut record| {
        if record.payload.after != a(3) {
            record.payload.after = one();
        }
        vec![record]
    };
    let first = record(a(1), Data::Absent, a(1));
    let mut rows = vec![first; 6];
    rows[2].payload.after = a(3);
    rows[4].payload.after = Data::Raw(Bytes::from_static(b"\x02\x02"));
    // The row that cannot be decoded fails, and the processor does not see it.
    rows.remove(4);
    rows[3].metadata = anabranch_record::metadata::Metadata::new();
    rows[3].metadata.insert("other", "x");
    let data = Access::These(vec![vec!["Payload".into()]]);
    for writes in [Access::Everything, data] {
        let made = made_as(&writes, &[], change, &rows);
        let gone = [Some("1"), None];
        assert_eq!(made.iter().map(versions).collect::<Vec<_>>(), [gone, gone, [Some("1"); 2], [None; 2], gone]);
        assert!(made[0].metadata.shares(&made[1].metadata) && made[1].metadata.shares(&made[4].metadata));
        assert!(made[2].metadata.shares(&rows[0].metadata) && made[3].metadata.shares(&rows[3].metadata));
    }
}

#[test]
fn a_row_that_is_not_seen_does_not_shift_the_others() {
    let change: Change = |mut record| {
        record.payload.after = one();
        vec![record]
    };
    let specification = Specification::builtin("making", "Makes.").with_all(shared::processor());
    let kind = around(Arc::new(Making { specification, class: Class::Inline, signature: Signature::new(), change }));
    let registry = crate::testing::block_on(registry());
    let mut operator = opened(&kind, &[], &host(registry));
    let mut records = strip();
    records.push(named(Bytes::new(), "1"));
    records[6].payload.after = fields(r#"{"id":1}"#);
    let mut selected = anabranch_record::mask::Mask::none(7);
    (1..7).for_each(|row| selected.set(row));
    let decisions = operator.process(&mut records, Some(&selected));
    let failed: Vec<usize> = decisions.iter().map(|(row, _)| *row).collect();
    assert_eq!(failed, [1, 2, 3]);
    assert_eq!(records[..4], strip()[..4]);
    assert!(records[4..].iter().all(|record| record.payload.after == one() && record.metadata.is_empty()));
}

#[test]
fn what_avro_encode_makes_is_read_by_avro_decode() {
    let host = host(crate::testing::block_on(registry()));
    let settings = [("schema.strategy", "autoRegister"), ("schema.autoRegister.subject", "mine")];
    let mut encode = opened(&around(crate::encode::kind()), &settings, &host);
    let mut decode = opened(&around(crate::decode::kind()), &[], &host);
    let encoded = crate::testing::process(&mut encode, record(Data::Absent, Data::Absent, a(1))).unwrap();
    assert_eq!(encoded.payload.after, Data::Raw(Bytes::from_static(b"\0\0\0\0\x03\x02")));
    assert_eq!(versions(&encoded), [Some("1"), None]);
    let decoded = crate::testing::process(&mut decode, encoded).unwrap();
    assert_eq!((&decoded.payload.after, versions(&decoded)), (&a(1), [Some("1"), None]));
}

#[test]
fn the_compiler_knows_that_raw_data_lost_their_schema() {
    let (subject, version) = SchemaPart::Payload.names();
    let mut came = RecordShape::create(Shape::RAW, Shape::structured(Fields::any()));
    [&subject, &version].into_iter().for_each(|key| came.metadata.insert(key.clone()));
    let after = |kind: Arc<dyn OperatorKind>, settings: &[(&str, &str)]| {
        let mut flow = Flow::new(came.clone());
        configured(&around(kind), settings).unwrap().flow(&mut flow);
        flow.record
    };
    let settings = [("schema.strategy", "autoRegister"), ("schema.autoRegister.subject", "mine")];
    let raw = after(crate::encode::kind(), &settings);
    assert!(raw.after.is_raw() && !raw.metadata.may_have(&subject) && !raw.metadata.may_have(&version));
    let below = after(crate::encode::kind(), &[&settings[..], &[("field", ".Payload.After.a")]].concat());
    assert!(below.metadata.may_have(&subject) && !below.metadata.has(&subject));
    let key = after(crate::encode::kind(), &[&settings[..], &[("field", ".Key")]].concat());
    assert!(key.metadata.has(&subject) && key.metadata.has(&version));
}
