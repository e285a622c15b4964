//! Generations that begin elsewhere, and partitions that are lost, returned and finished.

use std::collections::BTreeMap;
use std::sync::Mutex;

use anabranch_plugin::host::Host;
use anabranch_plugin::source::{Acker, OpenedSource, Read, Reader, Release, Room, Source, Start};
use anabranch_plugin::testing::{AtEnd, Event, Reaction, position, record};
use anabranch_record::Position;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{LaneId, Mark, Partition};
use async_trait::async_trait;

use super::partitions::{Scripted, part, revoked, rows_in, rows_of, start_limited, start_script};
use super::*;
use crate::plan::stage::{ReadSpec, StageKind};

fn lane(partition: &str) -> LaneId {
    LaneId { connector: "in".into(), partition: part(partition) }
}

#[tokio::test(start_paused = true)]
async fn rows_after_a_gap_are_not_taken_for_rows_that_a_destination_has() {
    let bench = Bench::new();
    let upstream = Arc::new(Upstream::new(&bench.journal, 40, AtEnd::End).exact().rereading().per_read(10));
    let a = Arc::new(Downstream::new("a", &bench.journal).transactional());
    let b =
        Arc::new(Downstream::new("b", &bench.journal).policy(|policy| policy.rows = 10).script(|_, call| match call {
            1 => Reaction::Hang,
            _ => Reaction::Durable,
        }));
    let mut pipeline = bench.tolerant();
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &a);
    pipeline.write(&[read], "b", &b);
    let plan = pipeline.plan();
    let running = bench.start(&plan);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(a.rows().len() > 10, "it is ahead: {:?}", a.rows());
    running.kill();
    in_time(running.join()).await;
    let had = a.rows().len();
    assert_eq!(b.rows(), (0..10).collect::<Vec<u64>>());
    // The rows before 50 are gone when the source is opened again.
    upstream.add(40..60);
    let stored = bench.store.mark("p", &lane("")).unwrap();
    assert_eq!((stored.generation, stored.seq), (1, 10));
    let b_before = b.rows();
    upstream.start_elsewhere(50);
    finished(&in_time(bench.start(&plan).join()).await);
    let left: Vec<u64> = (50..60).collect();
    assert_eq!(a.rows()[had..], left[..]);
    assert_eq!(b.rows()[b_before.len()..], left[..]);
    let committed = bench.journal.events().into_iter().filter_map(|event| match event {
        Event::Committed(_, mark) => Some((mark.generation, mark.seq)),
        _ => None,
    });
    let committed: Vec<(u64, u64)> = committed.collect();
    let begun = committed.iter().position(|(generation, _)| *generation == 2).unwrap();
    assert_eq!(committed[begun], (2, 0), "the generation is stored before its rows: {committed:?}");
    assert_eq!(bench.store.mark("p", &lane("")).unwrap(), Mark { generation: 2, seq: 10, position: position(59) });
}

#[tokio::test(start_paused = true)]
async fn a_range_that_is_read_again_is_written_again() {
    let bench = Bench::new();
    let upstream = Arc::new(Upstream::new(&bench.journal, 10, AtEnd::End).exact().rereading());
    let a = Arc::new(Downstream::new("a", &bench.journal).transactional());
    let b = shelf(&bench, "b");
    let mut pipeline = bench.tolerant();
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", &a);
    pipeline.write(&[read], "b", &b);
    let plan = pipeline.plan();
    finished(&in_time(bench.start(&plan).join()).await);
    upstream.start_elsewhere(4);
    finished(&in_time(bench.start(&plan).join()).await);
    let again: Vec<u64> = (0..10).chain(4..10).collect();
    assert_eq!((a.rows(), b.rows()), (again.clone(), again));
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_returns_elsewhere_begins_a_generation() {
    let bench = Bench::new();
    let a = Arc::new(Downstream::new("a", &bench.journal).transactional());
    let b = shelf(&bench, "b");
    let mut script =
        Scripted::of([rows_of("x", 0..5), revoked("x"), Read::Assigned(part("x")), rows_of("x", 0..8), Read::End]);
    // It is assigned at row 6, so that row numbers 1 and 2 of the new generation are rows 6 and 7.
    script.starts.insert(part("x"), (Start::elsewhere().at(position(5)), 6));
    let running = start_script(&bench, &script, &[&a, &b]);
    finished(&in_time(running.join()).await);
    assert_eq!(rows_in(&a, "x"), [0, 1, 2, 3, 4, 6, 7]);
    assert_eq!(rows_in(&b, "x"), [0, 1, 2, 3, 4, 6, 7]);
    let begun = Event::Committed(lane("x"), Mark { generation: 2, seq: 0, position: position(5) });
    assert!(bench.journal.events().contains(&begun), "{:?}", bench.journal.events());
    assert_eq!(bench.store.mark("p", &lane("x")).unwrap(), Mark { generation: 2, seq: 2, position: position(7) });
}

#[tokio::test(start_paused = true)]
async fn nothing_of_a_lost_partition_is_stored_or_acknowledged() {
    let bench = Bench::new();
    let a = Arc::new(Downstream::new("a", &bench.journal).delay(Duration::from_secs(3)));
    let reads = [
        rows_of("x", 0..3),
        Read::Lost(part("x")),
        rows_of("y", 0..1),
        Read::Assigned(part("x")),
        rows_of("x", 0..5),
        Read::End,
    ];
    let script = Scripted::of(reads);
    let running = start_script(&bench, &script, &[&a]);
    tokio::time::sleep(Duration::from_millis(2100)).await;
    assert_eq!(script.releases(), [(part("x"), Release::Abandoned)], "at once");
    finished(&in_time(running.join()).await);
    let (_, mark, _) = script.went_on.lock().unwrap()[0].clone();
    assert_eq!(mark, None, "the rows were delivered after the partition was lost, and are not stored");
    let of_x: Vec<u64> = script.acked.lock().unwrap().iter().filter(|(at, _)| *at == part("x")).map(|a| a.1).collect();
    assert_eq!(of_x, [0, 1, 2, 3, 4], "each once");
    assert_eq!(rows_in(&a, "x"), [0, 1, 2, 0, 1, 2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_revoked_partition_is_released_when_it_is_drained() {
    for (delay, within, release, after) in [
        (Duration::from_millis(300), 20, Release::Drained, 0..2),
        (Duration::from_secs(60), 4, Release::Abandoned, 4..5),
    ] {
        let bench = Bench::new();
        let a = Arc::new(Downstream::new("a", &bench.journal).delay(delay));
        let revoke = Read::Revoked { partition: part("x"), within: Duration::from_secs(within) };
        let script = Scripted::of([rows_of("x", 0..3), revoke]);
        let running = start_script(&bench, &script, &[&a]);
        let began = tokio::time::Instant::now();
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(script.releases(), [(part("x"), release)]);
        let at = script.released.lock().unwrap()[0].2 - began - Duration::from_secs(2);
        assert!(after.contains(&at.as_secs()), "{at:?}");
        assert_eq!(script.acked.lock().unwrap().len(), if release == Release::Drained { 3 } else { 0 });
        running.kill();
        in_time(running.join()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn other_partitions_are_read_while_one_returns() {
    let bench = Bench::new();
    // A write of `x` takes long, so that the partition cannot return before.
    let x = Arc::new(Downstream::new("a", &bench.journal).transactional().delay(Duration::from_secs(50)));
    let mut reads = vec![rows_of("x", 0..3), revoked("x"), Read::Assigned(part("x"))];
    reads.extend((0..10).map(|row| rows_of("y", row..row + 1)));
    let script = Scripted::of(reads);
    let running = start_script(&bench, &script, &[&x]);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(script.went_on.lock().unwrap().is_empty(), "its rows are still being written");
    assert!(script.reads.lock().unwrap().is_empty(), "the rows of the other partition were read");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(script.went_on.lock().unwrap().len(), 1);
    running.kill();
    in_time(running.join()).await;
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_is_lost_while_it_returns_stays_away() {
    let bench = Bench::new();
    let a = Arc::new(Downstream::new("a", &bench.journal).transactional().delay(Duration::from_secs(20)));
    let reads = [
        rows_of("x", 0..3),
        revoked("x"),
        Read::Assigned(part("x")),
        Read::Lost(part("x")),
        rows_of("y", 0..1),
        Read::Assigned(part("x")),
        rows_of("x", 0..5),
        Read::End,
    ];
    let script = Scripted::of(reads);
    finished(&in_time(start_script(&bench, &script, &[&a]).join()).await);
    assert_eq!(script.went_on.lock().unwrap().len(), 1, "it resumes only after the second assignment");
    assert_eq!(rows_in(&a, "x"), [0, 1, 2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_full_pipeline_learns_that_a_partition_is_revoked() {
    let bench = Bench::new();
    let a = Arc::new(Downstream::new("a", &bench.journal).script(|_, _| Reaction::Hang));
    let rows = anabranch_config::limits::MemoryLimits::default().replay_rows as u64;
    let script = Scripted::of([rows_of("x", 0..rows), rows_of("x", rows..rows + 1)]);
    let running = start_script(&bench, &script, &[&a]);
    tokio::time::sleep(Duration::from_secs(10)).await;
    script.changes.lock().unwrap().push_back(revoked("x"));
    script.changed.notify_one();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let released = script.releases();
    running.kill();
    in_time(running.join()).await;
    assert_eq!(released, [(part("x"), Release::Abandoned)]);
}

#[tokio::test(start_paused = true)]
async fn rows_that_wait_for_room_in_a_partition_that_is_taken_away_do_not_delay_others() {
    for taken in [Read::Lost(part("x")), revoked("x")] {
        let bench = Bench::new();
        let a = Arc::new(Downstream::new("a", &bench.journal).script(|_, _| Reaction::Hang));
        let script = Scripted::of([rows_of("x", 0..3), rows_of("x", 3..5), rows_of("y", 0..1)]);
        let running = start_limited(&bench, &script, &[&a], 4);
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(script.reads.lock().unwrap().len(), 1, "two rows wait for room");
        script.changes.lock().unwrap().push_back(taken);
        script.changed.notify_one();
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(script.reads.lock().unwrap().is_empty(), "the other partition is read");
        running.kill();
        in_time(running.join()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_partition_that_is_revoked_before_it_resumes_stays_lost() {
    let bench = Bench::new();
    let a = Arc::new(Downstream::new("a", &bench.journal).transactional().delay(Duration::from_secs(20)));
    let reads = [
        rows_of("x", 0..3),
        Read::Lost(part("x")),
        Read::Assigned(part("x")),
        revoked("x"),
        rows_of("y", 0..1),
        Read::Assigned(part("x")),
        rows_of("x", 0..5),
        Read::End,
    ];
    let script = Scripted::of(reads);
    finished(&in_time(start_script(&bench, &script, &[&a]).join()).await);
    let (_, mark, _) = script.went_on.lock().unwrap()[0].clone();
    assert_eq!(mark, None, "its rows were delivered after it was lost, and are not stored");
    assert_eq!(rows_in(&a, "x"), [0, 1, 2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_acknowledged_after_a_partition_was_given_up() {
    let bench = Bench::new();
    let a = Arc::new(Downstream::new("a", &bench.journal).delay(Duration::from_secs(12)));
    let mut reads = vec![rows_of("x", 0..3), revoked("x")];
    reads.extend((0..20).map(|row| rows_of("y", row..row + 1)));
    reads.extend([Read::Assigned(part("x")), rows_of("x", 0..5), Read::End]);
    let script = Scripted::of(reads);
    finished(&in_time(start_script(&bench, &script, &[&a]).join()).await);
    assert_eq!(script.releases(), [(part("x"), Release::Abandoned)]);
    let (_, mark, _) = script.went_on.lock().unwrap()[0].clone();
    assert_eq!(mark.map(|mark| mark.seq), Some(3), "what was delivered since is stored");
    let of_x: Vec<u64> = script.acked.lock().unwrap().iter().filter(|(at, _)| *at == part("x")).map(|a| a.1).collect();
    assert_eq!(of_x, [3, 4], "the mark stands for the others");
}

/// Reads a number of partitions one after the other, with one row each, and finishes them.
#[derive(Clone)]
struct Chapters {
    left: Arc<Mutex<std::collections::VecDeque<Read>>>,
    acked: Arc<Mutex<u64>>,
    released: Arc<Mutex<u64>>,
    resumed: Arc<Mutex<Vec<Partition>>>,
}

impl Chapters {
    fn of(reads: impl IntoIterator<Item = Read>) -> Self {
        let left = Arc::new(Mutex::new(reads.into_iter().collect()));
        Chapters { left, acked: Arc::default(), released: Arc::default(), resumed: Arc::default() }
    }

    fn plan(&self, bench: &Bench, shelves: &[&Arc<Downstream>]) -> Arc<StagePlan> {
        let upstream = upstream(bench, 0);
        let mut pipeline = bench.tolerant();
        let read = pipeline.read("in", &upstream);
        for (i, shelf) in shelves.iter().enumerate() {
            pipeline.write(&[read], ["a", "b"][i], shelf);
        }
        let mut plan = (*pipeline.plan()).clone();
        if let StageKind::Read(ReadSpec { source, .. }) = &mut plan.stages[0].kind {
            *source = Arc::new(self.clone());
        }
        Arc::new(plan)
    }
}

#[async_trait]
impl Source for Chapters {
    fn catches_up(&self) -> bool {
        false
    }

    fn replay(&self) -> anabranch_plugin::source::Replay {
        anabranch_plugin::source::Replay::Exactly
    }

    async fn open(&self, resume: &BTreeMap<Partition, Mark>, _: &Host) -> Result<OpenedSource, Fault> {
        *self.resumed.lock().unwrap() = resume.keys().cloned().collect();
        Ok(OpenedSource::new(Box::new(self.clone()), Box::new(self.clone())))
    }
}

#[async_trait]
impl Reader for Chapters {
    async fn read(&mut self, _: Room) -> Result<Read, Fault> {
        Ok(self.left.lock().unwrap().pop_front().unwrap_or(Read::End))
    }
}

#[async_trait]
impl Acker for Chapters {
    async fn ack(&mut self, _: &Partition, positions: &[Position]) -> Result<(), Fault> {
        *self.acked.lock().unwrap() += positions.len() as u64;
        Ok(())
    }

    async fn released(&mut self, _: &Partition, release: Release) -> Result<(), Fault> {
        assert_eq!(release, Release::Finished);
        *self.released.lock().unwrap() += 1;
        Ok(())
    }
}

fn one_row(name: &str) -> Read {
    Read::Rows { partition: part(name), records: vec![record(0)] }
}

#[tokio::test(start_paused = true)]
async fn finished_partitions_free_their_lanes_and_marks() {
    const PARTITIONS: u64 = 70_000;
    for transactional in [false, true] {
        let bench = Bench::new();
        let a = Downstream::new("a", &bench.journal);
        let a = Arc::new(if transactional { a.transactional() } else { a });
        let reads = (0..PARTITIONS).flat_map(|n| [one_row(&format!("p{n}")), Read::Finished(part(&format!("p{n}")))]);
        let source = Chapters::of(reads);
        let mut running = bench.start(&source.plan(&bench, &[&a]));
        let progress = running.progress();
        finished(&in_time(running.wait()).await);
        assert_eq!(a.rows().len() as u64, PARTITIONS);
        assert_eq!(*source.acked.lock().unwrap(), PARTITIONS);
        assert_eq!(progress.totals().read, PARTITIONS);
        assert!(progress.totals().balance());
        if !transactional {
            assert_eq!(*source.released.lock().unwrap(), PARTITIONS);
            assert!(bench.store.marks("p").is_empty(), "{:?}", bench.store.marks("p").len());
            assert!(progress.lanes().is_empty());
        }
        // A destination forgets while it writes; the marks of the last lanes stay until the next run.
        assert!(a.marks().len() <= 2048, "{}", a.marks().len());
        assert_eq!(bench.store.marks("p").len(), a.marks().len());
    }
}

#[tokio::test(start_paused = true)]
async fn a_finished_partition_that_appears_again_is_a_new_one() {
    let bench = Bench::new();
    let a = Arc::new(Downstream::new("a", &bench.journal).transactional());
    let b = shelf(&bench, "b");
    let reads = [
        one_row("x"),
        Read::Finished(part("x")),
        one_row("x"),
        Read::Rows { partition: part("x"), records: vec![record(1)] },
        Read::Finished(part("x")),
        one_row("y"),
    ];
    let source = Chapters::of(reads);
    finished(&in_time(bench.start(&source.plan(&bench, &[&a, &b])).join()).await);
    assert_eq!(a.rows(), [0, 0, 1, 0]);
    assert_eq!(b.rows(), [0, 0, 1, 0]);
    let of_x = bench.journal.events().into_iter().filter_map(|event| match event {
        Event::Committed(at, mark) if at == lane("x") => Some((mark.generation, mark.seq)),
        _ => None,
    });
    assert_eq!(of_x.collect::<Vec<_>>(), [(1, 1), (2, 0), (2, 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_finishes_without_rows_loses_its_mark() {
    let bench = Bench::new();
    bench.store.set_mark("p", lane("old"), Mark { generation: 1, seq: 7, position: position(6) });
    let source = Chapters::of([Read::Finished(part("old")), one_row("y")]);
    finished(&in_time(bench.start(&source.plan(&bench, &[&shelf(&bench, "a")])).join()).await);
    assert_eq!(*source.resumed.lock().unwrap(), [part("old")]);
    assert_eq!(bench.store.marks("p").into_keys().collect::<Vec<_>>(), [lane("y")]);
}

#[tokio::test(start_paused = true)]
async fn the_mark_of_a_finished_partition_stays_until_its_rows_are_acknowledged() {
    let bench = Bench::new();
    let a = Arc::new(Downstream::new("a", &bench.journal).delay(Duration::from_secs(30)));
    let source = Chapters::of([one_row("x"), Read::Finished(part("x"))]);
    finished(&in_time(bench.start(&source.plan(&bench, &[&a])).join()).await);
    let events = bench.journal.events();
    let at = |wanted: &dyn Fn(&Event) -> bool| events.iter().position(wanted).unwrap();
    let stored = at(&|event| matches!(event, Event::Committed(..)));
    let forgotten = at(&|event| matches!(event, Event::Forgotten(_)));
    assert!(stored < forgotten);
    assert_eq!((*source.acked.lock().unwrap(), *source.released.lock().unwrap()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_crash_while_a_finished_partition_is_removed_is_not_taken_for_a_loss() {
    let bench = Bench::new();
    let a = Arc::new(Downstream::new("a", &bench.journal).transactional());
    let b = shelf(&bench, "b");
    let script = Scripted::of([rows_of("x", 0..3), Read::Finished(part("x"))]);
    let running = start_script(&bench, &script, &[&a, &b]);
    let removed_at_destination = async {
        while script.acked.lock().unwrap().len() < 3 || !a.marks().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    in_time(removed_at_destination).await;
    running.kill();
    in_time(running.join()).await;
    assert!(bench.store.mark("p", &lane("x")).is_some(), "the store removes it after the destination");
    let script = Scripted::of([Read::Finished(part("x")), rows_of("y", 0..1), Read::End]);
    finished(&in_time(start_script(&bench, &script, &[&a, &b]).join()).await);
    assert_eq!(bench.store.marks("p").into_keys().collect::<Vec<_>>(), [lane("y")]);
}

#[tokio::test(start_paused = true)]
async fn a_removal_of_marks_without_an_answer_is_repeated_only_if_it_failed() {
    for takes_effect in [false, true] {
        let bench = Bench::new();
        let a = Arc::new(Downstream::new("a", &bench.journal).transactional());
        a.leave_unanswered(takes_effect);
        let script = Scripted::of([rows_of("x", 0..3), Read::Finished(part("x")), rows_of("y", 0..1), Read::End]);
        finished(&in_time(start_script(&bench, &script, &[&a]).join()).await);
        assert_eq!(a.marks().into_keys().collect::<Vec<_>>(), [lane("y")]);
        assert_eq!(bench.store.marks("p").into_keys().collect::<Vec<_>>(), [lane("y")]);
        assert_eq!(script.releases(), [(part("x"), Release::Finished)]);
    }
}
