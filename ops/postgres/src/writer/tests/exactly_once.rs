use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use anabranch_record::fault::FaultClass;
use anabranch_record::mark::Partition;
use futures::poll;

use super::*;

const SETTINGS: &[(&str, &str)] = &[("table", "t"), ("exactlyOnce", "true"), ("marks.schema", "state")];

fn mark(seq: u64) -> (LaneId, Mark) {
    let lane = LaneId { connector: "in".into(), partition: Partition("0".into()) };
    (lane, Mark { generation: 3, seq, position: Position::copy_from(&seq.to_be_bytes()) })
}

/// Rows without keys: a replay would double them.
fn rows(from: u64, to: u64) -> Vec<Record> {
    (from..to)
        .map(|n| create("null", &format!(r#"{{"n":{n}}}"#)).with_position(Position::copy_from(&n.to_be_bytes())))
        .collect()
}

#[tokio::test]
async fn marks_are_stored_with_the_rows() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (n int CHECK (n <> 13))");
    let mut writer = open(&db.url(), SETTINGS).await.unwrap();
    assert_eq!(writer.marks().await.unwrap(), []);
    let verdicts = writer.write(Write::new(&rows(0, 100)).marks(&[mark(100)])).await.verdict_text();
    assert_eq!(verdicts, "refused 13 check_violation");
    assert_eq!(db.query("SELECT count(*) FROM t"), ["0"]);
    assert_eq!(writer.marks().await.unwrap(), []);
    let mut good = rows(0, 100);
    good.remove(13);
    assert_eq!(writer.write(Write::new(&good).marks(&[mark(100)])).await.verdict_text(), "all");
    assert_eq!(db.query("SELECT count(*) FROM t"), ["99"]);
    assert_eq!(writer.marks().await.unwrap(), [mark(100)]);
    // A value that cannot be encoded, beside one that the server refuses.
    let mut bad = vec![create("null", r#"{"n":"x"}"#)];
    bad.extend(rows(12, 15));
    assert_eq!(
        writer.write(Write::new(&bad).marks(&[mark(200)])).await.verdict_text(),
        "refused 0 value_mismatch, 2 check_violation"
    );
    assert_eq!(db.query("SELECT count(*) FROM t"), ["99"]);
    writer.close().await.unwrap();

    let mut next = open(&db.url(), SETTINGS).await.unwrap();
    assert_eq!(next.marks().await.unwrap(), [mark(100)]);
    assert_eq!(next.write(Write::new(&rows(100, 101)).marks(&[mark(101)])).await.verdict_text(), "all");
    assert_eq!(next.marks().await.unwrap(), [mark(101)]);
}

#[tokio::test]
async fn an_older_run_writes_no_more() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (n int)");
    let mut old = open(&db.url(), SETTINGS).await.unwrap();
    old.write(Write::new(&rows(0, 1)).marks(&[mark(1)])).await.unwrap();
    let mut new = open(&db.url(), SETTINGS).await.unwrap();
    let fault = old.write(Write::new(&rows(1, 2)).marks(&[mark(2)])).await.unwrap_err();
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Fatal, "fenced"), "{fault}");
    new.write(Write::new(&rows(1, 2)).marks(&[mark(2)])).await.unwrap();
    assert_eq!(db.query("SELECT n FROM t ORDER BY n"), ["0", "1"]);
}

/// Without marks, only the rows are fenced: also those that one statement writes.
#[tokio::test]
async fn a_run_with_rivals_writes_nothing_after_a_later_one_has_opened() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (id int PRIMARY KEY, v int)");
    let versions = |v: usize| [create(r#"{"id":1}"#, &format!(r#"{{"id":1,"v":{v}}}"#))];
    let settings = [("table", "t"), ("marks.schema", "state")];
    let has_rivals = Host { shared: Some("store".into()), ..host() };
    let mut old = configure(&db.url(), &settings).unwrap().open(&has_rivals).await.unwrap();
    old.write(Write::new(&versions(1))).await.unwrap();
    old.write(Write::new(&versions(2))).await.unwrap();
    assert!(old.marks().await.unwrap().is_empty());
    let mut new = configure(&db.url(), &settings).unwrap().open(&has_rivals).await.unwrap();
    new.write(Write::new(&versions(3))).await.unwrap();
    let fault = old.write(Write::new(&versions(2))).await.unwrap_err();
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Fatal, "fenced"), "{fault}");
    assert_eq!(db.query("SELECT v FROM t"), ["3"]);
    // A connection that is lost does not lose the fence, and the writes of the present run pass.
    db.query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() \
         AND datname = current_database()",
    );
    let again = new.write(Write::new(&versions(4))).await;
    if again.is_err() {
        new.write(Write::new(&versions(4))).await.unwrap();
    }
    assert_eq!(db.query("SELECT v FROM t"), ["4"]);
}

/// A node is paused between two statements. The next one waits for the rows that it has locked.
#[tokio::test]
async fn a_run_that_is_paused_within_a_transaction_is_followed_within_seconds() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (n int)");
    let is_within = "SELECT count(*) = 0 FROM (SELECT FROM state.anabranch_writers FOR UPDATE SKIP LOCKED) free";
    let has_rivals = Host { shared: Some("store".into()), ..host() };
    for settings in [SETTINGS, &[("table", "t"), ("marks.schema", "state")]] {
        let mut old = configure(&db.url(), settings).unwrap().open(&has_rivals).await.unwrap();
        old.marks().await.unwrap();
        let (rows, marks) = (rows(0, 600), [mark(1)]);
        let marks = if settings == SETTINGS { &marks[..] } else { &[] };
        let mut write = pin!(old.write(Write::new(&rows).marks(marks)));
        while db.query(is_within) != ["t"] {
            assert!(poll!(write.as_mut()).is_pending(), "it was not seen within its transaction");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let begun = Instant::now();
        let mut new = configure(&db.url(), settings).unwrap().open(&has_rivals).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
        new.marks().await.unwrap();
        let fault = write.await.unwrap_err();
        assert_eq!(fault.class(), FaultClass::Transient, "{fault}");
        assert_eq!(db.query("SELECT count(*) FROM t"), ["0"]);
    }
}

#[tokio::test]
async fn marks_of_finished_lanes_are_removed() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (n int)");
    let mut writer = open(&db.url(), SETTINGS).await.unwrap();
    let other = |seq| {
        let (lane, mark) = mark(seq);
        (LaneId { partition: Partition("1".into()), ..lane }, mark)
    };
    writer.write(Write::new(&rows(0, 2)).marks(&[mark(1), other(1)])).await.unwrap();
    assert!(writer.forget(&[other(1).0]).await.unwrap());
    assert_eq!(writer.marks().await.unwrap(), [mark(1)]);
    // The outcome of an earlier attempt may be unknown.
    assert!(writer.forget(&[other(1).0]).await.unwrap());
    writer.write(Write::new(&rows(2, 3)).marks(&[mark(2), other(1)])).await.unwrap();
    assert_eq!(writer.marks().await.unwrap(), [mark(2), other(1)]);
    let mut next = open(&db.url(), SETTINGS).await.unwrap();
    let fault = writer.forget(&[mark(2).0]).await.unwrap_err();
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Fatal, "fenced"), "{fault}");
    assert_eq!(next.marks().await.unwrap(), [mark(2), other(1)]);
    db.query("DELETE FROM state.anabranch_marks");
    let fault = next.forget(&[mark(2).0]).await.unwrap_err();
    assert_eq!((fault.class(), fault.code().name()), (FaultClass::Transient, "marks_moved"), "{fault}");
}

/// Like a write, the removal of marks is not repeated if its commit succeeded without an answer.
#[tokio::test]
async fn a_removal_without_an_answer_is_not_repeated() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (n int)");
    let mut writer = open(&db.url(), SETTINGS).await.unwrap();
    let lanes = [mark(1).0];
    for polls in 1..200usize {
        writer.write(Write::new(&rows(0, 1)).marks(&[mark(1)])).await.unwrap();
        let mut call = writer.forget(&lanes);
        let mut left = polls;
        let given_up = std::future::poll_fn(|context| {
            left -= 1;
            match (call.as_mut().poll(context), left) {
                (Poll::Ready(removed), _) => Poll::Ready(removed.is_err()),
                (Poll::Pending, 0) => Poll::Ready(true),
                _ => Poll::Pending,
            }
        })
        .await;
        drop(call);
        if given_up {
            assert!(writer.forget(&lanes).await.unwrap());
        }
        assert_eq!(writer.marks().await.unwrap(), [], "given up after {polls} polls");
        if !given_up {
            assert!(polls > 2);
            return;
        }
    }
    panic!("the call never ended");
}

/// A server that was restored, or a standby that took over before it had everything, has an earlier state of the fence.
#[tokio::test]
async fn a_server_that_lost_what_it_confirmed_is_noticed() {
    let Some(db) = Database::create() else { return };
    for lost in [
        "UPDATE state.anabranch_writers SET writes = writes - 1",
        "UPDATE state.anabranch_writers SET epoch = epoch - 1, writes = 0",
        "DELETE FROM state.anabranch_writers",
        "TRUNCATE state.anabranch_marks, state.anabranch_writers",
        "DROP SCHEMA state CASCADE",
    ] {
        db.query("DROP TABLE IF EXISTS t; CREATE TABLE t (n int)");
        let mut writer = open(&db.url(), SETTINGS).await.unwrap();
        writer.write(Write::new(&rows(0, 1)).marks(&[mark(1)])).await.unwrap();
        writer.write(Write::new(&rows(1, 2)).marks(&[mark(2)])).await.unwrap();
        db.query(lost);
        let fault = writer.write(Write::new(&rows(2, 3)).marks(&[mark(3)])).await.unwrap_err();
        assert_eq!((fault.class(), fault.code().name()), (FaultClass::Transient, "marks_moved"), "{lost}: {fault}");
        let fault = writer.marks().await.unwrap_err();
        assert_eq!((fault.class(), fault.code().name()), (FaultClass::Transient, "marks_moved"), "{lost}: {fault}");
        assert_eq!(db.query("SELECT n FROM t ORDER BY n"), ["0", "1"], "{lost}");
        // The next run is told what is left.
        let mut next = open(&db.url(), SETTINGS).await.unwrap();
        let left = next.marks().await.unwrap();
        assert_eq!(left.is_empty(), lost.starts_with("TRUNCATE") || lost.starts_with("DROP"), "{lost}: {left:?}");
        let fault = writer.write(Write::new(&rows(2, 3)).marks(&[mark(3)])).await.unwrap_err();
        assert_eq!((fault.class(), fault.code().name()), (FaultClass::Fatal, "fenced"), "{lost}: {fault}");
        next.write(Write::new(&rows(2, 3)).marks(&[mark(3)])).await.unwrap();
        assert_eq!(next.marks().await.unwrap(), [mark(3)]);
    }
}

/// A backup of rows and marks that has no table of the writers, and is put back in mid-run.
#[tokio::test]
async fn marks_that_were_put_back_without_the_writers_are_noticed() {
    let Some(db) = Database::create() else { return };
    for (lost, left) in [
        ("DELETE FROM t; DELETE FROM state.anabranch_marks", vec![]),
        ("DELETE FROM t WHERE n > 0; UPDATE state.anabranch_marks SET seq = 1, position = '\\x01'", vec![1]),
        ("UPDATE state.anabranch_marks SET generation = 2", vec![2]),
    ] {
        for reads in [true, false] {
            db.query("DROP TABLE IF EXISTS t; DROP SCHEMA IF EXISTS state CASCADE; CREATE TABLE t (n int)");
            let mut writer = open(&db.url(), SETTINGS).await.unwrap();
            if reads {
                assert_eq!(writer.marks().await.unwrap(), []);
            }
            writer.write(Write::new(&rows(0, 1)).marks(&[mark(1)])).await.unwrap();
            writer.write(Write::new(&rows(1, 2)).marks(&[mark(2)])).await.unwrap();
            db.query(lost);
            let before = db.query("SELECT count(*) FROM t");
            for _ in 0..2 {
                let fault = writer.write(Write::new(&rows(2, 3)).marks(&[mark(3)])).await.unwrap_err();
                assert_eq!(
                    (fault.class(), fault.code().name()),
                    (FaultClass::Transient, "marks_moved"),
                    "{lost}: {fault}"
                );
                let fault = writer.marks().await.unwrap_err();
                assert_eq!(
                    (fault.class(), fault.code().name()),
                    (FaultClass::Transient, "marks_moved"),
                    "{lost}: {fault}"
                );
            }
            assert_eq!(db.query("SELECT count(*) FROM t"), before, "{lost}");
            // The next run is told what is left.
            let mut next = open(&db.url(), SETTINGS).await.unwrap();
            let seqs: Vec<u64> = next.marks().await.unwrap().iter().map(|(_, mark)| mark.seq).collect();
            assert_eq!(seqs, left, "{lost}");
            next.write(Write::new(&rows(2, 3)).marks(&[mark(3)])).await.unwrap();
            next.write(Write::new(&rows(3, 4)).marks(&[mark(4)])).await.unwrap();
            assert_eq!(next.marks().await.unwrap(), [mark(4)]);
        }
    }
}

#[tokio::test]
async fn a_commit_that_fails_is_repeated() {
    let Some(db) = Database::create() else { return };
    db.query(
        "CREATE TABLE t (n int);
         CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS
             $$BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END$$;
         CREATE CONSTRAINT TRIGGER die AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION die()",
    );
    let mut writer = open(&db.url(), SETTINGS).await.unwrap();
    let fault = writer.write(Write::new(&rows(0, 10)).marks(&[mark(10)])).await.unwrap_err();
    assert_eq!(fault.class(), FaultClass::Transient, "{fault}");
    db.query("DROP TRIGGER die ON t");
    assert_eq!(db.query("SELECT count(*) FROM t"), ["0"]);
    assert_eq!(writer.write(Write::new(&rows(0, 10)).marks(&[mark(10)])).await.verdict_text(), "all");
    assert_eq!(db.query("SELECT count(*) FROM t"), ["10"]);
}

/// A call is given up at each of its points; at one of them the commit was sent and its answer has not come.
#[tokio::test]
async fn a_commit_without_an_answer_is_not_repeated() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (n int)");
    let mut writer = open(&db.url(), SETTINGS).await.unwrap();
    let (batch, marks) = (rows(0, 10), [mark(10)]);
    for polls in 1..200usize {
        let mut call = writer.write(Write::new(&batch).marks(&marks));
        let mut left = polls;
        let given_up = std::future::poll_fn(|context| {
            left -= 1;
            match (call.as_mut().poll(context), left) {
                (Poll::Ready(verdict), _) => Poll::Ready(verdict.is_err()),
                (Poll::Pending, 0) => Poll::Ready(true),
                _ => Poll::Pending,
            }
        })
        .await;
        drop(call);
        if given_up {
            assert_eq!(writer.write(Write::new(&batch).marks(&marks)).await.verdict_text(), "all");
        }
        assert_eq!(db.query("SELECT count(*) FROM t"), ["10"], "given up after {polls} polls");
        db.query("TRUNCATE t");
        if !given_up {
            assert!(polls > 5);
            return;
        }
    }
    panic!("the call never ended");
}

/// After a call that was given up, the marks show its outcome, and other rows may follow them.
#[tokio::test]
async fn marks_end_the_doubt_about_a_commit() {
    let Some(db) = Database::create() else { return };
    db.query("CREATE TABLE t (n int)");
    let mut writer = open(&db.url(), SETTINGS).await.unwrap();
    let mut written = 0;
    for polls in 1..200usize {
        let (batch, marks) = (rows(written, written + 10), [mark(written + 10)]);
        let mut call = writer.write(Write::new(&batch).marks(&marks));
        let mut left = polls;
        let given_up = std::future::poll_fn(|context| {
            left -= 1;
            match (call.as_mut().poll(context), left) {
                (Poll::Ready(verdict), _) => Poll::Ready(verdict.is_err()),
                (Poll::Pending, 0) => Poll::Ready(true),
                _ => Poll::Pending,
            }
        })
        .await;
        drop(call);
        let stored = writer.marks().await.unwrap().first().map_or(0, |(_, mark)| mark.seq);
        assert!(stored == written || stored == written + 10, "{stored} after {written}");
        assert_eq!(db.query("SELECT count(*) FROM t"), [stored.to_string()], "given up after {polls} polls");
        written = stored;
        if !given_up {
            assert!(polls > 5);
            return;
        }
    }
    panic!("the call never ended");
}

trait VerdictText {
    fn verdict_text(self) -> String;
}

impl VerdictText for Result<Verdicts, Fault> {
    fn verdict_text(self) -> String {
        match self.unwrap() {
            Verdicts::All(Delivered::Durable) => "all".to_owned(),
            Verdicts::Refused(refused) => {
                let rows: Vec<String> = refused.iter().map(|(row, fault)| format!("{row} {}", fault.code())).collect();
                format!("refused {}", rows.join(", "))
            }
            other => panic!("{other:?}"),
        }
    }
}
