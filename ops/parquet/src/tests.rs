//! Records become a file, and the file becomes records.

use std::sync::Arc;

use anabranch_plugin::format::parquet::{ParquetColumns, ParquetCompression, ParquetLayout};
use anabranch_plugin::schema::{MemoryRegistry, SchemaKind, SchemaRegistry};
use anabranch_record::metadata::key;
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Operation, Position, Record};
use bytes::Bytes;
use proptest::prelude::*;

use crate::DeclaredSchemas;
use crate::table::TableSet;
use crate::table_reader::{TableError, TableReader};

const LAYOUT: ParquetLayout = ParquetLayout {
    columns: ParquetColumns::Payload,
    compression: ParquetCompression::Zstd,
    group_rows: 1000,
    group_bytes: 1 << 20,
};

fn record(fields: Object) -> Record {
    Record::create(Position::copy_from(b"1"), Data::Absent, Data::from(fields))
}

fn object(entries: &[(&str, Value)]) -> Object {
    entries.iter().map(|(name, value)| (*name, value.clone())).collect()
}

fn no_schemas() -> DeclaredSchemas {
    DeclaredSchemas::new(Arc::new(MemoryRegistry::new()))
}

/// The files of these records, in one place.
fn files(layout: ParquetLayout, records: &[Record], schemas: &DeclaredSchemas) -> Vec<Bytes> {
    let mut set = TableSet::new(layout.columns, usize::MAX);
    for record in records {
        set.add("", record, schemas).unwrap();
    }
    set.into_tables().map(|(_, table)| table.write(&layout, Vec::new()).unwrap().into()).collect()
}

fn rows(file: Bytes, from: u64) -> Vec<Object> {
    let (mut reader, mut all) = (TableReader::open(file, from).unwrap(), Vec::new());
    loop {
        let rows = reader.next_rows().unwrap();
        if rows.is_empty() {
            return all;
        }
        all.extend(rows);
    }
}

fn time(text: &str) -> Value {
    Value::Time(text.parse().unwrap())
}

#[test]
fn every_kind_of_value_comes_back() {
    let nested =
        object(&[("list", Value::from(vec![1i64.into(), Value::Null])), ("t", time("2026-11-28T12:00:00.5Z"))]);
    let full = object(&[
        ("bool", true.into()),
        ("bytes", Value::Bytes(b"\xff\0".as_slice().into())),
        ("early", time("0001-01-01T00:00:00Z")),
        ("float", 0.25.into()),
        ("int", i64::MIN.into()),
        ("large", u64::MAX.into()),
        ("lists", Value::from(vec![Value::from(vec!["a".into()]), Value::from(Vec::new())])),
        ("maps", Value::from(vec![Value::from(nested.clone()), Value::Null])),
        ("nanos", time("2026-11-28T12:00:00.000000001Z")),
        ("nested", Value::from(nested)),
        ("text", "\u{1f600}".into()),
    ]);
    let nulls: Object = full.iter().map(|(name, _)| (name.clone(), Value::Null)).collect();
    let files = files(LAYOUT, &[record(full.clone()), record(object(&[("bool", Value::Null)]))], &no_schemas());
    assert_eq!(files.len(), 1);
    assert_eq!(rows(files[0].clone(), 0), [full, nulls]);
}

#[test]
fn a_file_is_read_from_any_row_across_row_groups() {
    let records: Vec<Record> = (0..2500i64).map(|n| record(object(&[("n", n.into())]))).collect();
    for group_rows in [1000, 7, 100_000] {
        let files = files(ParquetLayout { group_rows, ..LAYOUT }, &records, &no_schemas());
        for from in [0, 1, 999, 1000, 1001, 2499, 2500, 2600] {
            let found: Vec<i64> =
                rows(files[0].clone(), from).iter().map(|row| row.get("n").unwrap().as_i64().unwrap()).collect();
            assert_eq!(found, (from.min(2500) as i64..2500).collect::<Vec<_>>(), "{group_rows} {from}");
        }
    }
}

#[test]
fn row_groups_are_bounded_by_rows_and_by_bytes() {
    let groups = |layout: ParquetLayout, records: &[Record]| {
        let file = files(layout, records, &no_schemas()).remove(0);
        let reader = parquet::file::serialized_reader::SerializedFileReader::new(file).unwrap();
        let metadata = parquet::file::reader::FileReader::metadata(&reader).clone();
        metadata.row_groups().iter().map(|group| (group.num_rows(), group.total_byte_size())).collect::<Vec<_>>()
    };
    let mut random = 1u64;
    let records: Vec<Record> = (0..10_000)
        .map(|_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            record(object(&[("text", format!("{random:064x}").into())]))
        })
        .collect();
    let by_rows = groups(ParquetLayout { group_rows: 3000, group_bytes: 1 << 30, ..LAYOUT }, &records);
    assert_eq!(by_rows.iter().map(|(rows, _)| *rows).collect::<Vec<_>>(), [3000, 3000, 3000, 1000]);
    let by_bytes = groups(ParquetLayout { group_rows: 1 << 20, group_bytes: 100 << 10, ..LAYOUT }, &records);
    assert!(by_bytes.len() >= 5 && by_bytes.iter().all(|(_, bytes)| *bytes < 300 << 10), "{by_bytes:?}");
}

#[test]
fn records_whose_types_conflict_are_in_different_files() {
    let values: [Value; 5] = [1i64.into(), "a".into(), 2i64.into(), 0.5.into(), "b".into()];
    let records: Vec<Record> = values.iter().map(|value| record(object(&[("x", value.clone())]))).collect();
    let files = files(LAYOUT, &records, &no_schemas());
    let found: Vec<Vec<Value>> =
        files.into_iter().map(|file| rows(file, 0).iter().map(|row| row.get("x").unwrap().clone()).collect()).collect();
    assert_eq!(found, [vec![1.0.into(), 2.0.into(), 0.5.into()], vec!["a".into(), "b".into()]] as [Vec<Value>; 2]);
    // One that no column can hold fails alone, and leaves no file behind.
    let mut set = TableSet::new(ParquetColumns::Payload, usize::MAX);
    let list = Value::from(vec![1i64.into(), "x".into()]);
    let fault = set.add("", &record(object(&[("l", list)])), &no_schemas()).unwrap_err();
    assert_eq!(fault.code().name(), "parquet_unfit");
    assert_eq!(fault.to_string(), ".l: integer and text cannot be in one Parquet column");
    for after in [Data::text("raw"), Data::Absent, Data::from(Object::new())] {
        let record = Record::create(Position::default(), Data::Absent, after);
        assert_eq!(set.add("", &record, &no_schemas()).unwrap_err().code().name(), "format_failed");
    }
    assert_eq!(set.into_tables().count(), 0);
}

#[test]
fn the_whole_record_has_its_own_columns() {
    let mut update = record(object(&[("id", 7i64.into())]));
    update.operation = Operation::Update;
    update.key = Data::text("k");
    update.payload.before = Data::from(object(&[("id", 6i64.into())]));
    update.metadata.insert("a", "b");
    let layout = ParquetLayout { columns: ParquetColumns::Record, ..LAYOUT };
    let file = files(layout, &[update], &no_schemas()).remove(0);
    let bytes = |bytes: &[u8]| Value::Bytes(bytes.into());
    let side = |id: i64| Value::from(object(&[("id", id.into())]));
    assert_eq!(
        rows(file, 0),
        [object(&[
            ("position", bytes(b"1")),
            ("operation", "update".into()),
            ("metadata", Value::from(object(&[("a", "b".into())]))),
            ("key", bytes(b"k")),
            ("payload", Value::from(object(&[("before", side(6)), ("after", side(7))]))),
        ])]
    );
}

#[tokio::test]
async fn the_schema_that_a_record_names_gives_the_types() {
    let registry = Arc::new(MemoryRegistry::new());
    let text = r#"{"type":"record","name":"R","fields":[
        {"name":"z","type":"int"},
        {"name":"amount","type":{"type":"bytes","logicalType":"decimal","precision":10,"scale":2}},
        {"name":"day","type":["null",{"type":"int","logicalType":"date"}]}]}"#;
    registry.create(&"s".into(), SchemaKind::Avro, &text.into()).await.unwrap();
    let named = |version: &str, fields: Object| {
        let mut record = record(fields);
        record.metadata.insert(key::PAYLOAD_SCHEMA_SUBJECT, "s");
        record.metadata.insert(key::PAYLOAD_SCHEMA_VERSION, Str::from(version));
        record
    };
    let fields = object(&[("z", 1i64.into()), ("amount", "12.50".into()), ("day", time("2026-11-28T00:00:00Z"))]);
    // The last does not fit its schema: its types are inferred.
    let other = object(&[("z", "text".into())]);
    let records = [named("1", fields.clone()), named("1", other.clone())];
    let mut schemas = DeclaredSchemas::new(registry);
    schemas.load(&records).await.unwrap();
    let files = files(LAYOUT, &records, &schemas);
    let types = |file: &Bytes| -> Vec<String> {
        let reader = parquet::file::serialized_reader::SerializedFileReader::new(file.clone()).unwrap();
        let metadata = parquet::file::reader::FileReader::metadata(&reader).clone();
        let columns = metadata.file_metadata().schema_descr().columns().to_vec();
        columns
            .iter()
            .map(|column| format!("{} {:?} {:?}", column.name(), column.physical_type(), column.converted_type()))
            .collect()
    };
    assert_eq!(types(&files[0]), ["z INT32 NONE", "amount INT64 DECIMAL", "day INT32 DATE"]);
    assert_eq!(rows(files[0].clone(), 0), [fields]);
    assert_eq!(rows(files[1].clone(), 0), [other]);
    let missing = [named("9", Object::new())];
    schemas.load(&missing).await.unwrap();
    let mut set = TableSet::new(ParquetColumns::Payload, usize::MAX);
    assert_eq!(
        set.add("", &named("9", object(&[("a", true.into())])), &schemas).unwrap_err().code().name(),
        "schema_version_not_found"
    );
}

#[test]
fn a_damaged_file_is_an_error_and_not_a_crash() {
    let records: Vec<Record> = (0..50i64)
        .map(|n| {
            record(object(&[("n", n.into()), ("text", format!("text {n}").into()), ("l", Value::from(vec![n.into()]))]))
        })
        .collect();
    let file =
        files(ParquetLayout { compression: ParquetCompression::None, ..LAYOUT }, &records, &no_schemas()).remove(0);
    let read = |bytes: Vec<u8>| -> Result<usize, TableError> {
        let (mut reader, mut all) = (TableReader::open(Bytes::from(bytes), 0)?, 0);
        loop {
            match reader.next_rows()?.len() {
                0 => return Ok(all),
                rows => all += rows,
            }
        }
    };
    assert_eq!(read(file.to_vec()).unwrap(), 50);
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut failed = 0;
    for at in 0..file.len() {
        for mask in [0x01, 0x80] {
            let mut bytes = file.to_vec();
            bytes[at] ^= mask;
            failed += usize::from(read(bytes).is_err());
        }
        assert!(read(file[..at].to_vec()).is_err());
    }
    std::panic::set_hook(quiet);
    assert!(failed > 0, "some damage is noticed");
    assert!(matches!(read(b"PAR1\xff\xff\xff\x7fPAR1".to_vec()), Err(TableError::Corrupt(_))));
}

/// Values of one type, so that they are in one file.
fn typed(depth: u32) -> BoxedStrategy<BoxedStrategy<Value>> {
    let leaf = prop_oneof![
        Just(any::<bool>().prop_map(Value::from).boxed()),
        Just(any::<i64>().prop_map(Value::from).boxed()),
        Just(any::<u64>().prop_map(Value::from).boxed()),
        Just(any::<i32>().prop_map(|number| Value::Float(f64::from(number) / 8.0)).boxed()),
        Just("\\PC*".prop_map(Value::from).boxed()),
        Just(proptest::collection::vec(any::<u8>(), 0..8).prop_map(|bytes| Value::Bytes(bytes.into())).boxed()),
        Just(
            (0i64..1 << 45)
                .prop_map(|micros| Value::Time(chrono::DateTime::from_timestamp_micros(micros).unwrap()))
                .boxed()
        ),
    ];
    leaf.prop_recursive(depth, 16, 3, |inner| {
        prop_oneof![
            inner
                .clone()
                .prop_map(|items| proptest::collection::vec(nullable(items), 0..4).prop_map(Value::from).boxed()),
            proptest::collection::vec(("[a-c]", inner), 1..3)
                .prop_map(|fields| object_of(fields).prop_map(Value::from).boxed()),
        ]
    })
    .prop_map(|values| nullable(values).boxed())
    .boxed()
}

fn nullable(values: BoxedStrategy<Value>) -> impl Strategy<Value = Value> {
    prop_oneof![1 => Just(Value::Null), 4 => values]
}

/// Maps with all of these fields.
fn object_of(fields: Vec<(String, BoxedStrategy<Value>)>) -> impl Strategy<Value = Object> {
    let (names, values): (Vec<String>, Vec<BoxedStrategy<Value>>) = fields.into_iter().unzip();
    values.prop_map(move |values| names.iter().cloned().zip(values).collect::<Object>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn rows_of_any_types_come_back(objects in proptest::collection::vec(("[a-d]", typed(3)), 1..4)
        .prop_flat_map(|fields| proptest::collection::vec(object_of(fields), 1..20)))
    {
        let records: Vec<Record> = objects.iter().cloned().map(record).collect();
        let mut found: Vec<Object> = files(LAYOUT, &records, &no_schemas()).into_iter().flat_map(|file| rows(file, 0)).collect();
        // Signed and unsigned integers of one column beyond both ranges are decimals, which are text.
        found.iter_mut().for_each(integers);
        prop_assert_eq!(found, objects.into_iter().map(|mut object| { integers(&mut object); object }).collect::<Vec<_>>());
    }
}

/// Replaces integers and texts of integers by texts.
fn integers(object: &mut Object) {
    fn of(value: &mut Value) {
        match value {
            Value::Int(number) => *value = number.to_string().into(),
            Value::UInt(number) => *value = number.to_string().into(),
            Value::List(items) => Arc::make_mut(items).iter_mut().for_each(of),
            Value::Map(map) => integers(Arc::make_mut(map)),
            _ => {}
        }
    }
    object.iter_mut().for_each(|(_, value)| of(value));
}
