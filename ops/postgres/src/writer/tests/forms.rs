//! Tables of marks and writers of earlier forms, as `src/store/fixtures/make.sh` made them.

use std::sync::atomic::{AtomicBool, Ordering};

use anabranch_plugin::state::Slots;
use anabranch_record::fault::FaultClass;
use anabranch_record::mark::Partition;

use super::*;

/// The tables of the first form, with what pipeline `orders` had written through destination `out`.
const FIRST: &str = include_str!("../../../fixtures/marks-1.sql");

fn mark(connector: &str, seq: u64, position: &[u8]) -> (LaneId, Mark) {
    let lane = LaneId { connector: connector.into(), partition: Partition::ONLY };
    (lane, Mark { generation: 1, seq, position: Position::copy_from(position) })
}

fn part(connector: &str, partition: &str, seq: u64) -> (LaneId, Mark) {
    let lane = LaneId { connector: connector.into(), partition: Partition(partition.into()) };
    (lane, Mark { generation: 1, seq, position: Position::copy_from(seq.to_string().as_bytes()) })
}

fn known() -> Vec<(LaneId, Mark)> {
    vec![
        mark(
            "in",
            5,
            b"\x04\x2e\0\0\0\0\0\x05\0\0\0\0\0\x33\x5c\xdd\xc0\0\xb3\xa2\x59\x65\x1c\xc3\x6c\xee\xb8\xe2\xed\xca\x08\xa2\x01",
        ),
        mark(
            "more",
            2,
            b"\x04\x16\0\0\0\0\0\x02\0\0\0\0\0\x22\xdc\x0d\x0b\x3f\x22\xbc\x75\xf6\x27\x98\xca\x9f\x62\xe5\xed\xca\x08\xa2\x01",
        ),
        mark(
            "old",
            1,
            b"\x04\x0b\0\0\0\0\0\x01\0\0\0\0\0\xeb\x6b\xcf\xd9\x39\x5b\xd7\xdb\x13\xee\x44\x7a\x19\xe8\xe5\xed\xca\x08\xa2\x01",
        ),
    ]
}

async fn open_orders(url: &str) -> Box<dyn Writer> {
    let host = Host { pipeline: "orders".into(), ..host() };
    configure(url, &[("table", "t"), ("exactlyOnce", "true")]).unwrap().open(&host).await.unwrap()
}

async fn marks_of(writer: &mut Box<dyn Writer>) -> Vec<(LaneId, Mark)> {
    let mut marks = writer.marks().await.unwrap();
    marks.sort_by(|one, other| one.0.cmp(&other.0));
    marks
}

#[tokio::test]
async fn tables_of_the_first_form_keep_every_mark() {
    let Some(db) = Database::create() else { return };
    db.query(FIRST);
    db.query("CREATE TABLE t (n int)");
    let mut writer = open_orders(&db.url()).await;
    assert_eq!(marks_of(&mut writer).await, known());
    let rows = [create("{}", r#"{"n":1}"#)];
    let mut moved = known();
    moved[0].1.seq = 6;
    all_good(&outcomes(&writer.write(Write::new(&rows).marks(&moved[..1])).await.unwrap(), 1));
    assert_eq!(db.query("SELECT writes FROM anabranch_writers"), ["3"]);
    drop(writer);
    let mut next = open_orders(&db.url()).await;
    assert_eq!(marks_of(&mut next).await, moved);
}

#[tokio::test]
async fn an_upgrade_that_is_interrupted_changes_nothing_and_is_repeated() {
    let Some(db) = Database::create() else { return };
    let db = Arc::new(db);
    db.query(FIRST);
    db.query("CREATE TABLE t (n int)");
    let all = "SELECT * FROM anabranch_marks ORDER BY connector";
    let before = db.query(all);
    // The upgrade has locked the first table, and waits for this session.
    let held = db.hold("LOCK TABLE anabranch_marks IN ACCESS SHARE MODE");
    let over = Arc::new(AtomicBool::new(false));
    let (server, is_over, url) = (db.clone(), over.clone(), db.url());
    let cut = tokio::task::spawn_blocking(move || {
        let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
                   AND query LIKE '%anabranch_marks%' AND datname = current_database()";
        while server.query(cut).is_empty() && !is_over.load(Ordering::Relaxed) {}
    });
    let host = Host { pipeline: "orders".into(), ..host() };
    let destination = configure(&url, &[("table", "t"), ("exactlyOnce", "true")]).unwrap();
    let opened = destination.open(&host).await;
    over.store(true, Ordering::Relaxed);
    cut.await.unwrap();
    let fault = opened.err().unwrap();
    assert_eq!(fault.class(), FaultClass::Transient, "{fault}");
    drop(held);
    assert_eq!(db.query(all), before);
    assert_eq!(marks_of(&mut open_orders(&url).await).await, known());
}

/// Two instances of one pipeline write to one destination, each its share of the lanes.
#[tokio::test]
async fn units_of_a_pipeline_fence_only_themselves() {
    for tables in ["", FIRST] {
        let Some(db) = Database::create() else { return };
        db.query(&format!("{tables}; CREATE TABLE t (n int)"));
        let url = db.url();
        let open = async |slot: u32| {
            let host = Host { pipeline: "orders".into(), slots: Slots::none(2).with(slot), ..host() };
            configure(&url, &[("table", "t"), ("exactlyOnce", "true")]).unwrap().open(&host).await.unwrap()
        };
        let row =
            |n: u64| [create("{}", &format!(r#"{{"n":{n}}}"#)).with_position(Position::copy_from(&n.to_be_bytes()))];
        let (mut one, mut zombie) = (open(0).await, open(1).await);
        // Of two slots, these are the first partition and the second.
        let (mine, yours) = (part("a", "1", 1), part("b", "0", 1));
        all_good(&outcomes(&one.write(Write::new(&row(1)).marks(&[mine])).await.unwrap(), 1));
        all_good(&outcomes(&zombie.write(Write::new(&row(2)).marks(std::slice::from_ref(&yours))).await.unwrap(), 1));
        let mut two = open(1).await;
        let mut marks = marks_of(&mut two).await;
        // Those of the first form are those of a lane of the second slot.
        marks.retain(|(lane, _)| *lane.connector == *"b");
        assert_eq!(marks, [yours]);
        let fault = zombie.write(Write::new(&row(3)).marks(&[part("b", "0", 2)])).await.unwrap_err();
        assert_eq!((fault.class(), fault.code().name()), (FaultClass::Fatal, "fenced"), "{fault}");
        assert!(fault.message().contains("pipeline orders"), "{fault}");
        all_good(&outcomes(&one.write(Write::new(&row(4)).marks(&[part("a", "1", 2)])).await.unwrap(), 1));
        all_good(&outcomes(&two.write(Write::new(&row(5)).marks(&[part("b", "0", 3)])).await.unwrap(), 1));
        assert_eq!(db.query("SELECT n FROM t ORDER BY n"), ["1", "2", "4", "5"]);
        let marks = "SELECT slot, connector, seq FROM anabranch_marks WHERE connector IN ('a', 'b') ORDER BY slot";
        assert_eq!(db.query(marks), ["0|a|2", "1|b|3"]);
        // One unit waits for the end of its own transactions only.
        let held = db.hold("SELECT FROM anabranch_writers WHERE slot = 1 FOR UPDATE");
        all_good(&outcomes(&one.write(Write::new(&row(6)).marks(&[part("a", "1", 3)])).await.unwrap(), 1));
        drop(held);
    }
}

/// The number of slots changes: marks move to the slots of their lanes, and earlier runs write nothing.
#[tokio::test]
async fn another_number_of_slots_keeps_every_mark() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (n int)");
    let url = db.url();
    let open = async |slots: Slots| {
        let host = Host { pipeline: "orders".into(), slots, ..host() };
        configure(&url, &[("table", "t"), ("exactlyOnce", "true")]).unwrap().open(&host).await.unwrap()
    };
    let row = [create("{}", r#"{"n":1}"#).with_position(Position::copy_from(b"1"))];
    let all: Vec<_> = (0..8).map(|number: u64| part("in", &number.to_string(), number + 1)).collect();
    let mut whole = open(Slots::WHOLE).await;
    all_good(&outcomes(&whole.write(Write::new(&row).marks(&all)).await.unwrap(), 1));
    let halves = [[0, 2], [1, 3]].map(|slots| slots.into_iter().fold(Slots::none(4), Slots::with));
    let mut first = open(halves[0]).await;
    // The earlier run has the first slot too, but the second half is not its own any more either.
    let fault = whole.write(Write::new(&row).marks(&all[..1])).await.unwrap_err();
    assert_eq!(fault.code().name(), "fenced");
    let mut second = open(halves[1]).await;
    let (one, other) = (marks_of(&mut first).await, marks_of(&mut second).await);
    assert_eq!((one.len(), other.len()), (4, 4));
    let mut both = [one.clone(), other].concat();
    both.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(both, all);
    all_good(&outcomes(
        &first.write(Write::new(&row).marks(&[part("in", &one[0].0.partition.0, 90)])).await.unwrap(),
        1,
    ));
    let mut whole = open(Slots::WHOLE).await;
    assert_eq!(marks_of(&mut whole).await.len(), 8);
    // The rows of the slots that the pipeline does not have any more are gone.
    for (half, code) in [(&mut first, "fenced"), (&mut second, "marks_moved")] {
        let fault = half.write(Write::new(&row).marks(&[])).await.unwrap_err();
        assert_eq!(fault.code().name(), code, "{fault}");
    }
    assert_eq!(db.query("SELECT DISTINCT slot FROM anabranch_marks"), ["0"]);
}

/// The tables are upgraded under a run of the earlier version, or such a run begins later.
#[tokio::test]
async fn an_earlier_version_is_refused() {
    let Some(db) = Database::create() else { return };
    db.query(FIRST);
    db.query("CREATE TABLE t (n int)");
    let epoch = db.query("SELECT epoch FROM anabranch_writers").remove(0);
    drop(open_orders(&db.url()).await);
    // Its next transaction finds a later epoch.
    let enter = format!(
        "UPDATE anabranch_writers SET writes = writes + 1 WHERE pipeline = 'orders' AND destination = 'out' \
         AND epoch = {epoch} RETURNING writes"
    );
    assert_eq!(db.query(&enter), Vec::<String>::new());
    // And its next start fails.
    let raise = "DO $$BEGIN INSERT INTO anabranch_writers AS w (pipeline, destination, epoch, writes) \
                 VALUES ('orders', 'out', 1, 0) ON CONFLICT (pipeline, destination) DO UPDATE SET epoch = w.epoch + 1; \
                 RAISE 'it was not refused'; EXCEPTION WHEN invalid_column_reference THEN NULL; END$$";
    db.query(raise);
}

/// Only the owner of a table may alter it.
#[tokio::test]
async fn a_user_who_may_not_upgrade_is_told_the_statements_that_do() {
    let Some(db) = Database::create() else { return };
    db.query(FIRST);
    let url = rights::role(&db, "no_owner_of_marks");
    db.query("CREATE TABLE t (n int); GRANT ALL ON ALL TABLES IN SCHEMA public TO no_owner_of_marks");
    let host = Host { pipeline: "orders".into(), ..host() };
    let destination = configure(&url, &[("table", "t"), ("exactlyOnce", "true")]).unwrap();
    let fault = destination.open(&host).await.err().unwrap();
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Fatal, "postgres_denied"), "{fault}");
    let statements = fault.message().split('`').nth(1).unwrap_or_default().to_owned();
    db.query(&statements);
    assert_eq!(marks_of(&mut open_orders(&url).await).await, known());
}

/// Tables of the second form, as a node of version 0.1.0 left them: a pipeline of one slot, and one of eight.
#[tokio::test]
async fn tables_of_the_second_form_are_read() {
    let Some(db) = Database::create() else { return };
    db.query(include_str!("../../../fixtures/marks-2.sql"));
    db.query("CREATE TABLE t (n int)");
    let open = async |pipeline: &'static str, slots: Slots| {
        let host = Host { pipeline: pipeline.into(), slots, ..host() };
        configure(&db.url(), &[("table", "t"), ("exactlyOnce", "true")]).unwrap().open(&host).await.unwrap()
    };
    let mut lines = open("lines", Slots::WHOLE).await;
    assert_eq!(marks_of(&mut lines).await.len(), 1);
    for slot in 0..8 {
        let mut numbers = open("numbers", Slots::none(8).with(slot)).await;
        assert_eq!(marks_of(&mut numbers).await.len(), 1, "slot {slot}");
    }
}
