use std::collections::BTreeSet;
use std::time::Duration;

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::settings::Settings;
use proptest::prelude::*;

use super::field::FieldKind;
use super::*;
use crate::testing::host;

fn configured(settings: &[(&str, &str)]) -> Result<Arc<dyn Source>, Vec<String>> {
    let kind = super::kind();
    Arguments::parse(kind.specification(), &Settings::from_pairs(settings.iter().copied()))
        .and_then(|arguments| kind.configure(&arguments))
        .map_err(|findings| findings.iter().map(|d| d.message.clone()).collect())
}

fn findings(settings: &[(&str, &str)]) -> Vec<String> {
    configured(settings).err().unwrap_or_default()
}

async fn open(settings: &[(&str, &str)], resume: Option<&Position>) -> Box<dyn Reader> {
    let marks = resume.map(|position| (Partition::ONLY, Mark { generation: 0, seq: 0, position: position.clone() }));
    configured(settings).unwrap().open(&marks.into_iter().collect(), &host()).await.unwrap().reader
}

const ROOM: Room = Room { rows: 128, bytes: 1 << 20 };

async fn rows(reader: &mut Box<dyn Reader>, room: Room) -> Vec<Record> {
    match reader.read(room).await.unwrap() {
        Read::Rows { records, .. } => records,
        other => panic!("{other:?}"),
    }
}

fn number(record: &Record) -> u64 {
    number_of(record.position()).unwrap()
}

/// Without what depends on the clock.
fn timeless(mut record: Record) -> Record {
    record.metadata.remove(key::CREATED_AT.as_str());
    record
}

#[test]
fn settings_are_checked_together() {
    assert_eq!(findings(&[]), ["\"format.type\" is required by generator"]);
    assert_eq!(findings(&[("format.options.id", "int")]), ["\"format.type\" is required by generator"]);
    assert_eq!(findings(&[("format.type", "structured")]), ["\"format.options.<field>\" is required by generator"]);
    assert_eq!(findings(&[("format.type", "file")]), ["\"format.options.path\" is required by generator"]);
    assert_eq!(
        findings(&[("format.type", "raw"), ("format.options.path", "/etc/hosts")]),
        [format!("format.options.path: \"/etc/hosts\" is not one of {}", FieldKind::NAMES.join(", "))]
    );
    assert_eq!(
        findings(&[("collections.a.operations", "create"), ("collections.b.format.options.x", "int")]),
        [
            "\"collections.a.format.type\" is required by generator",
            "\"collections.b.format.type\" is required by generator"
        ]
    );
    let base = [("format.type", "raw"), ("format.options.id", "int")];
    let with = |more: &[(&'static str, &'static str)]| findings(&[&base[..], more].concat());
    assert_eq!(with(&[]), [""; 0]);
    assert_eq!(with(&[("rate", "-1")]), ["rate: -1 must not be below 0"]);
    assert_eq!(
        with(&[("rate", "2"), ("readTime", "1s")]),
        ["\"readTime\" and \"rate\" exclude each other; \"readTime\" is deprecated"]
    );
    assert_eq!(with(&[("operations", "create,drop")]).len(), 1);
    assert_eq!(with(&[("burst.generateTime", "0s")]).len(), 1);
    assert_eq!(with(&[("collections.a.format.type", "file"), ("collections.a.format.options.path", "x")]), [""; 0]);
}

#[tokio::test]
async fn records_follow_the_rules_of_their_operation() {
    let settings = [
        ("format.type", "structured"),
        ("format.options.id", "int"),
        ("format.options.path", "string"),
        ("operations", "create, update,delete,snapshot"),
    ];
    let mut reader = open(&settings, None).await;
    let mut seen = BTreeSet::new();
    for _ in 0..8 {
        for record in rows(&mut reader, ROOM).await {
            seen.insert(record.operation as u8);
            let Change { before, after } = &record.payload;
            let sides = (before.fields().is_some(), after.fields().is_some());
            let expected = match record.operation {
                Operation::Create | Operation::Snapshot => (false, true),
                Operation::Update => (true, true),
                Operation::Delete => (true, false),
            };
            assert_eq!(sides, expected, "{record:?}");
            assert_ne!(before, after);
            assert!(matches!(&record.key, Data::Raw(word) if !word.is_empty()));
            assert!(record.metadata.get("recfmt.createdAt").unwrap().parse::<i64>().unwrap() > 0);
            assert_eq!(record.collection(), None);
        }
    }
    assert_eq!(seen.len(), 4);
}

#[tokio::test]
async fn raw_is_the_json_text_of_the_same_fields() {
    let options =
        [("seed", "7"), ("format.options.a", "int"), ("format.options.b", "name"), ("format.options.c", "bool")];
    let mut raw = open(&[&options[..], &[("format.type", "raw")]].concat(), None).await;
    let mut structured = open(&[&options[..], &[("format.type", "structured")]].concat(), None).await;
    for (raw, structured) in rows(&mut raw, ROOM).await.iter().zip(rows(&mut structured, ROOM).await) {
        let mut text = Vec::new();
        write_data(&structured.payload.after, &mut text).unwrap();
        assert_eq!(raw.payload.after, Data::Raw(text.into()));
        assert_eq!(raw.key, structured.key);
    }
}

#[tokio::test]
async fn collections_are_mixed_and_named() {
    let settings = [
        ("collections.users.format.type", "structured"),
        ("collections.users.format.options.id", "uuid"),
        ("collections.users.operations", "delete"),
        ("collections.orders.format.type", "raw"),
        ("collections.orders.format.options.id", "int"),
        ("operations", "snapshot"),
    ];
    let mut reader = open(&settings, None).await;
    let records = rows(&mut reader, ROOM).await;
    let users = records.iter().filter(|r| r.collection().unwrap() == "users").count();
    assert!((20..108).contains(&users), "{users}");
    for record in records {
        let expected = if record.collection().unwrap() == "users" { Operation::Delete } else { Operation::Snapshot };
        assert_eq!(record.operation, expected);
    }
}

#[tokio::test]
async fn a_file_is_sent_whole() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), b"a\nb\xff").unwrap();
    let path = file.path().to_str().unwrap();
    let mut reader = open(&[("format.type", "file"), ("format.options.path", path)], None).await;
    let records = rows(&mut reader, ROOM).await;
    assert_eq!(records[3].payload.after, Data::Raw(Bytes::from_static(b"a\nb\xff")));

    let missing = [("format.type", "file"), ("format.options.path", "/nowhere/x")];
    let fault = configured(&missing).unwrap().open(&BTreeMap::new(), &host()).await.err().unwrap();
    assert!(fault.message().contains("/nowhere/x"), "{fault}");
    let endless = [("format.type", "file"), ("format.options.path", "/dev/zero")];
    let fault = configured(&endless).unwrap().open(&BTreeMap::new(), &host()).await.err().unwrap();
    assert!(fault.message().contains("it is not a regular file"), "{fault}");
    let large = tempfile::NamedTempFile::new().unwrap();
    large.as_file().set_len(MOST_BYTES + 1).unwrap();
    let path = large.path().to_str().unwrap();
    let large = [("format.type", "file"), ("format.options.path", path)];
    let fault = configured(&large).unwrap().open(&BTreeMap::new(), &host()).await.err().unwrap();
    assert!(fault.message().contains("larger than 64 MiB"), "{fault}");
}

#[tokio::test(start_paused = true)]
async fn it_waits_after_the_last_record() {
    let settings = [("format.type", "raw"), ("format.options.a", "int"), ("recordCount", "130")];
    assert!(configured(&settings).unwrap().catches_up());
    assert!(!configured(&settings[..2]).unwrap().catches_up());
    let mut reader = open(&settings, None).await;
    let first = rows(&mut reader, ROOM).await;
    assert_eq!(rows(&mut reader, ROOM).await.len(), 2);
    assert!(matches!(reader.read(ROOM).await, Ok(Read::CaughtUp)));
    assert!(tokio::time::timeout(Duration::from_secs(3600), reader.read(ROOM)).await.is_err());

    let mut again = open(&settings, Some(first[99].position())).await;
    let rest = rows(&mut again, ROOM).await;
    assert_eq!((number(&rest[0]), rest.len()), (101, 30));
    assert!(matches!(again.read(ROOM).await, Ok(Read::CaughtUp)));
}

#[tokio::test(start_paused = true)]
async fn the_rate_is_kept() {
    let settings = [("format.type", "raw"), ("format.options.a", "int"), ("rate", "4")];
    let mut reader = open(&settings, None).await;
    let start = Instant::now();
    assert_eq!(rows(&mut reader, ROOM).await.len(), 1);
    assert_eq!(start.elapsed(), Duration::ZERO);
    for _ in 0..40 {
        // A read that is given up loses nothing.
        let _ = tokio::time::timeout(Duration::from_millis(10), reader.read(ROOM)).await;
        assert_eq!(rows(&mut reader, ROOM).await.len(), 1);
    }
    let elapsed = start.elapsed();
    assert!((Duration::from_secs(10)..Duration::from_millis(10_005)).contains(&elapsed), "{elapsed:?}");

    let mut old = open(&[("format.type", "raw"), ("format.options.a", "int"), ("readTime", "2s")], None).await;
    let start = Instant::now();
    rows(&mut old, ROOM).await;
    rows(&mut old, ROOM).await;
    assert!(start.elapsed() >= Duration::from_secs(2) && start.elapsed() < Duration::from_millis(2005));
}

#[tokio::test]
async fn reads_fit_the_room() {
    let settings = [("format.type", "structured"), ("format.options.a", "sentence"), ("format.options.b", "email")];
    let mut reader = open(&settings, None).await;
    assert_eq!(rows(&mut reader, Room { rows: 1, bytes: 1 << 20 }).await.len(), 1);
    assert_eq!(rows(&mut reader, Room { rows: 9, bytes: 1 }).await.len(), 1);
    let some = rows(&mut reader, Room { rows: 900, bytes: 64 << 10 }).await;
    assert!(some.len() > 50 && some.iter().map(Record::weight).sum::<usize>() <= 64 << 10);
}

#[tokio::test]
async fn a_foreign_position_is_refused() {
    let marks = [(Partition::ONLY, Mark { generation: 0, seq: 1, position: Position::copy_from(b"\x01x") })];
    let source = configured(&[("format.type", "raw"), ("format.options.a", "int")]).unwrap();
    let fault = source.open(&marks.into(), &host()).await.err().unwrap();
    assert_eq!(fault.code().name(), "position_unknown");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Restarts and the sizes of reads change nothing of what is made.
    #[test]
    fn a_seed_makes_the_same_records(seed in any::<i64>(), reads in proptest::collection::vec((1usize..40, any::<bool>()), 1..12)) {
        let seed = seed.to_string();
        let settings = [
            ("seed", seed.as_str()),
            ("format.type", "structured"),
            ("format.options.a", "int"),
            ("format.options.b", "string"),
            ("operations", "create,update"),
            ("collections.c.format.type", "raw"),
            ("collections.c.format.options.d", "email"),
        ];
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (once, pieces) = runtime.block_on(async {
            let mut pieces: Vec<Record> = Vec::new();
            let mut reader = open(&settings, None).await;
            for (size, restart) in reads {
                if restart {
                    reader = open(&settings, pieces.last().map(Record::position)).await;
                }
                pieces.extend(rows(&mut reader, Room { rows: size, bytes: 1 << 20 }).await);
            }
            let mut whole = open(&settings, None).await;
            (rows(&mut whole, Room { rows: pieces.len(), bytes: 1 << 24 }).await, pieces)
        });
        let timeless = |records: Vec<Record>| records.into_iter().map(timeless).collect::<Vec<_>>();
        prop_assert_eq!(timeless(once), timeless(pieces));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_left_of_a_count_is_known() {
    let settings = [("format.type", "raw"), ("format.options.x", "int"), ("recordCount", "100")];
    let mut reader = open(&settings, None).await;
    assert_eq!(reader.backlog().await.unwrap().records, Some(100));
    let read = rows(&mut reader, Room { rows: 30, ..ROOM }).await.len() as u64;
    assert_eq!(reader.backlog().await.unwrap().records, Some(100 - read));
    assert_eq!(open(&settings[..2], None).await.backlog().await, None);
}
