//! A snapshot of several ranges that is interrupted again and again, while rows move between the ranges.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::kills::choices;
use super::replica::Replica;
use super::server::Release;
use crate::fault_plan::{say, wait};

/// Four rows have a page, and bodies that are stored elsewhere: an update does not repeat them in the log.
const TABLE: &str = "
    CREATE TABLE bulk (id int PRIMARY KEY, n int NOT NULL, filler text, body text);
    ALTER TABLE bulk ALTER filler SET STORAGE PLAIN, ALTER body SET STORAGE EXTERNAL;";
const ROWS: usize = 40_000;
const KILLS: usize = 8;

#[test]
fn rows_that_move_between_ranges_are_neither_lost_nor_old() {
    // One range after the other, so that some are read when the service is killed.
    check(", snapshot.parallel: 1", "snapshot/public.bulk/%.%");
}

#[test]
fn rows_that_move_between_the_ranges_of_parts_are_neither_lost_nor_old() {
    // Further lanes of ranges of which an earlier run has read some rows.
    check(", snapshot.parts: 4", "snapshot/public.bulk/%+%@part-%");
}

fn check(of_source: &str, again: &str) {
    let fill = format!(
        "INSERT INTO bulk SELECT n, 0, repeat('x', 1700), repeat(md5(n::text), 70) FROM generate_series(1, {ROWS}) n;
         DELETE FROM bulk WHERE id % 7 = 0"
    );
    let (kills, mut random) = choices();
    let settings = [of_source, ""];
    let Some(mut replica) = Replica::start(Release::V17, TABLE, &fill, settings) else { return };
    let pages: u32 = replica.source.query("SELECT pg_relation_size('bulk') / 8192")[0].parse().unwrap();
    assert!(pages > 4 * 2048, "few ranges: {pages} pages");
    // From now on, rows move to the places that are free, in other ranges.
    replica.source.query("VACUUM bulk");
    let mut session = replica.source.session();
    let is_over = AtomicBool::new(false);
    let (logged, within) = std::thread::scope(|scope| {
        let changes = scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(7);
            let mut round = 0;
            while !is_over.load(Ordering::Relaxed) {
                round += 1;
                let (from, key) = (random.usize(1..ROWS), ROWS + round);
                session.run(&format!(
                    "UPDATE bulk SET n = n + 1 WHERE id IN (SELECT {from} + 97 * g FROM generate_series(0, 40) g);
                     UPDATE bulk SET id = {key}, n = n + 1 WHERE id = (SELECT min(id) FROM bulk WHERE id >= {from});
                     DELETE FROM bulk WHERE id = (SELECT max(id) FROM bulk WHERE id < {from})"
                ));
                std::thread::sleep(Duration::from_millis(5));
            }
            round
        });
        let mut logged = String::new();
        // Lanes of ranges that a run reads although an earlier run has read some of the others.
        let lanes = format!("SELECT count(*) > 0 FROM anabranch_marks WHERE partition LIKE '{again}'");
        let mut within = 0;
        for _ in 0..kills.max(KILLS) {
            // On a busy machine, a run takes long to begin.
            let rows = "SELECT count(*), sum(n) FROM bulk";
            let before = replica.copy.query(rows);
            replica.wait_until("rows", |replica| replica.copy.query(rows) != before);
            wait(&mut random, 0..800);
            within += usize::from(replica.copy.query(&lanes) == ["t"]);
            logged += &replica.restart();
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(changes.join().unwrap() > 100, "too few changes");
        (logged, within)
    });
    let attempts = logged.matches("starting pipeline=replica").count();
    let finished = logged.matches("read the snapshot").count();
    replica.wait_for(
        "SELECT count(*), sum(n), md5(string_agg(md5(bulk::text), '' ORDER BY id)), count(*) FILTER (WHERE body IS NULL) \
         FROM bulk",
    );
    say(&format!(
        "{attempts} runs were killed, {within} within a snapshot that was resumed, {finished} after it: the copy is the same"
    ));
    replica.end();
}
