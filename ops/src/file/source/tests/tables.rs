//! Parquet files.

use std::sync::Arc;

use anabranch_ops_parquet::DeclaredSchemas;
use anabranch_ops_parquet::table::TableSet;
use anabranch_plugin::format::parquet::{ParquetColumns, ParquetCompression, ParquetLayout};
use anabranch_plugin::schema::MemoryRegistry;
use anabranch_record::Position;
use anabranch_record::value::{Object, Value};

use super::*;

const PARQUET: [(&str, &str); 3] = [("framing", "parquet"), ("pollingPeriod", "5ms"), ("settlingPeriod", "40ms")];

/// A file of the numbers from 0 to `rows`, in row groups of three.
fn table(rows: i64) -> Vec<u8> {
    let layout = ParquetLayout {
        columns: ParquetColumns::Payload,
        compression: ParquetCompression::None,
        group_rows: 3,
        group_bytes: 1 << 20,
    };
    let mut set = TableSet::new(layout.columns, usize::MAX);
    let schemas = DeclaredSchemas::new(Arc::new(MemoryRegistry::new()));
    for n in 0..rows {
        let fields: Object = [("n", Value::from(n))].into_iter().collect();
        set.add("", &Record::create(Position::default(), Data::Absent, Data::from(fields)), &schemas).unwrap();
    }
    let (_, table) = set.into_tables().next().unwrap();
    table.write(&layout, Vec::new()).unwrap()
}

#[tokio::test]
async fn the_rows_of_tables_keep_the_promises_of_a_source() {
    let directory = tempfile::tempdir().unwrap();
    for pattern in ["*.parquet", "a.parquet"] {
        let path = format!("{}/{pattern}", directory.path().display());
        let fresh = async || {
            for (name, rows) in [("a", 7), ("b", 1)] {
                fs::write(directory.path().join(format!("{name}.parquet")), table(rows)).unwrap();
            }
            let settings = [&[("path", path.as_str())], &PARQUET[..]].concat();
            configured::source(&crate::file::source::kind(), &settings).unwrap()
        };
        let records = check_source(fresh).await.unwrap_or_else(|broken| panic!("{pattern}: {broken:?}"));
        assert_eq!(records.len(), if pattern == "a.parquet" { 7 } else { 8 });
    }
}

/// The values of the next rows.
async fn next(reader: &mut dyn Reader) -> Vec<String> {
    let room = Room { rows: 100, bytes: 1 << 20 };
    loop {
        match tokio::time::timeout(Duration::from_secs(120), reader.read(room)).await.unwrap().unwrap() {
            Read::Rows { records, .. } => {
                let value =
                    |record: &Record| record.payload.after.fields().unwrap().get("n").unwrap().as_i64().unwrap();
                return records.iter().map(|record| value(record).to_string()).collect();
            }
            Read::CaughtUp | Read::Progress(..) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_table_is_read_when_it_is_complete_and_again_when_it_is_another_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.parquet");
    let (whole, at) = (table(4), path.to_str().unwrap());
    fs::write(&path, &whole[..whole.len() - 6]).unwrap();
    let source = configured::source(&crate::file::source::kind(), &[&[("path", at)], &PARQUET[..]].concat()).unwrap();
    let mut opened = source.open(&Default::default(), &host()).await.unwrap();
    let room = Room { rows: 100, bytes: 1 << 20 };
    assert!(matches!(opened.reader.read(room).await.unwrap(), Read::CaughtUp));
    let left = opened.reader.left().unwrap();
    assert!(left.ends_with("x.parquet is not a complete Parquet file: its rest is read when it is there"), "{left}");
    fs::write(&path, &whole).unwrap();
    let mut rows = next(&mut *opened.reader).await;
    while rows.len() < 4 {
        rows.extend(next(&mut *opened.reader).await);
    }
    assert_eq!(rows, ["0", "1", "2", "3"]);
    assert_eq!(opened.reader.left(), None);
    // Another file replaces it, and a damaged one replaces that.
    let replace = |bytes: &[u8]| {
        fs::write(directory.path().join("new"), bytes).unwrap();
        fs::rename(directory.path().join("new"), &path).unwrap();
    };
    replace(&table(2));
    assert_eq!(next(&mut *opened.reader).await, ["0", "1"]);
    replace(b"nothing but the end PAR1");
    while opened.reader.left().is_none() {
        let read = tokio::time::timeout(Duration::from_millis(20), opened.reader.read(room)).await;
        assert!(!matches!(read, Ok(Ok(Read::Rows { .. } | Read::Failed { .. }))), "{read:?}");
    }
    replace(&table(3));
    assert_eq!(next(&mut *opened.reader).await, ["0", "1", "2"]);
    assert_eq!(opened.reader.left(), None);
}
