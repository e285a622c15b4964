//! CPU time per row of Parquet files, and of the library alone, with the same rows: `cargo bench -p anabranch-bench --bench
//! tables`.
//!
//! The bare library is called as a program calls it that has the same records and knows the types of its five columns. Our
//! code infers the types. Files are in memory. The allocator is that of the service.

#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]
#![allow(missing_docs, reason = "the entry point that divan makes")]

use std::sync::Arc;

use anabranch_ops_parquet::DeclaredSchemas;
use anabranch_ops_parquet::table::TableSet;
use anabranch_ops_parquet::table_reader::TableReader;
use anabranch_plugin::format::parquet::{ParquetColumns, ParquetCompression, ParquetLayout};
use anabranch_plugin::schema::MemoryRegistry;
use anabranch_plugin::testing::position;
use anabranch_record::text::Str;
use anabranch_record::value::{Object, Value};
use anabranch_record::{Data, Record};
use arrow_array::{Array as _, ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray};
use bytes::Bytes;
use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

#[global_allocator]
static ALLOCATOR: anabranch_allocator::Allocator = anabranch_allocator::Allocator;

/// Number of rows of a file.
const ROWS: u64 = 50_000;

/// Number of rows that are converted at a time.
const CHUNK_ROWS: usize = 1024;

const LAYOUT: ParquetLayout = ParquetLayout {
    columns: ParquetColumns::Payload,
    compression: ParquetCompression::Zstd,
    group_rows: 1 << 20,
    group_bytes: 128 << 20,
};

/// The columns in the order of their names.
const NAMES: [Str; 5] = [
    Str::from_static("active"),
    Str::from_static("city"),
    Str::from_static("id"),
    Str::from_static("name"),
    Str::from_static("score"),
];

fn main() {
    anabranch_allocator::settle();
    divan::main();
}

/// Records with the fields of the workload w1, all different.
fn records() -> Vec<Record> {
    let mut state = 1u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let record = |row: u64| {
        let fields = [
            Value::from(random() % 2 == 0),
            Value::from(format!("city {:x}", random())),
            Value::from(row * 1000 + random() % 1000),
            Value::from(format!("name {:x}", random())),
            Value::from(random()),
        ];
        let object = Object::from_entries(NAMES.into_iter().zip(fields).collect());
        Record::create(position(row), Data::Absent, Data::from(object))
    };
    (0..ROWS).map(record).collect()
}

fn rows() -> ItemsCount {
    ItemsCount::new(ROWS)
}

fn written(records: &[Record]) -> Vec<u8> {
    let schemas = DeclaredSchemas::new(Arc::new(MemoryRegistry::new()));
    let mut set = TableSet::new(LAYOUT.columns, usize::MAX);
    for record in records {
        set.add("", record, &schemas).unwrap();
    }
    let mut tables = set.into_tables();
    let (_, table) = tables.next().unwrap();
    assert!(tables.next().is_none());
    table.write(&LAYOUT, Vec::new()).unwrap()
}

#[divan::bench]
fn write_ours(bencher: Bencher<'_, '_>) {
    let records = records();
    bencher.counter(rows()).bench_local(|| written(black_box(&records)));
}

#[divan::bench]
fn write_bare(bencher: Bencher<'_, '_>) {
    let records = records();
    bencher.counter(rows()).bench_local(|| {
        let layout = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build();
        let mut writer: Option<ArrowWriter<Vec<u8>>> = None;
        for records in black_box(&records).chunks(CHUNK_ROWS) {
            let column = |name: &'static str| {
                records.iter().map(move |record| record.payload.after.fields().unwrap().get(name).unwrap())
            };
            let texts = |name| -> ArrayRef { Arc::new(column(name).map(Value::as_str).collect::<StringArray>()) };
            let numbers = |name| -> ArrayRef { Arc::new(column(name).map(Value::as_i64).collect::<Int64Array>()) };
            let active = column("active").map(Value::as_bool).collect::<BooleanArray>();
            let columns: [(&str, ArrayRef); 5] = [
                ("active", Arc::new(active)),
                ("city", texts("city")),
                ("id", numbers("id")),
                ("name", texts("name")),
                ("score", numbers("score")),
            ];
            let batch =
                RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true)));
            let batch = batch.unwrap();
            let writer = writer
                .get_or_insert_with(|| ArrowWriter::try_new(Vec::new(), batch.schema(), Some(layout.clone())).unwrap());
            writer.write(&batch).unwrap();
        }
        writer.unwrap().into_inner().unwrap()
    });
}

#[divan::bench]
fn read_ours(bencher: Bencher<'_, '_>) {
    let file = Bytes::from(written(&records()));
    bencher.counter(rows()).bench_local(|| {
        let (mut reader, mut all) = (TableReader::open(black_box(file.clone()), 0).unwrap(), 0);
        loop {
            let rows = reader.next_rows().unwrap();
            if rows.is_empty() {
                assert_eq!(all, ROWS);
                break;
            }
            all += rows.len() as u64;
        }
    });
}

#[divan::bench]
fn read_bare(bencher: Bencher<'_, '_>) {
    let file = Bytes::from(written(&records()));
    bencher.counter(rows()).bench_local(|| {
        let reader = ParquetRecordBatchReaderBuilder::try_new(black_box(file.clone())).unwrap();
        let mut all = 0;
        for batch in reader.with_batch_size(CHUNK_ROWS).build().unwrap() {
            let rows = objects(&batch.unwrap());
            all += black_box(rows).len() as u64;
        }
        assert_eq!(all, ROWS);
    });
}

/// Returns the rows of a batch. No value is null.
fn objects(batch: &RecordBatch) -> Vec<Object> {
    fn typed<A: 'static>(batch: &RecordBatch, column: usize) -> &A {
        batch.column(column).as_any().downcast_ref().unwrap()
    }
    let active: &BooleanArray = typed(batch, 0);
    let (city, name): (&StringArray, &StringArray) = (typed(batch, 1), typed(batch, 3));
    let (id, score): (&Int64Array, &Int64Array) = (typed(batch, 2), typed(batch, 4));
    let object = |row| {
        let fields = [
            Value::from(active.value(row)),
            Value::from(city.value(row)),
            Value::from(id.value(row)),
            Value::from(name.value(row)),
            Value::from(score.value(row)),
        ];
        Object::from_entries(NAMES.into_iter().zip(fields).collect())
    };
    (0..batch.num_rows()).map(object).collect()
}
