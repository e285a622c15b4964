//! Positions without rows, and partitions that come and go.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Mutex;

use anabranch_config::limits::MemoryLimits;
use anabranch_plugin::host::Host;
use anabranch_plugin::source::{Acker, OpenedSource, Read, Reader, Release, Replay, Room, Source, Start};
use anabranch_plugin::testing::{Event, Reaction, position, record, row_at};
use anabranch_record::fault::Fault;
use anabranch_record::mark::{LaneId, Mark, Partition};
use anabranch_record::{Position, Record};
use async_trait::async_trait;

use tokio::time::Instant;

use super::*;
use crate::plan::stage::{ReadSpec, StageKind};

/// Gives one scripted read after the other, a second apart, then waits.
/// A partition that resumed, after which mark, and when.
pub(super) type Resumption = (Partition, Option<Mark>, Instant);

#[derive(Clone, Default)]
pub(super) struct Scripted {
    pub(super) reads: Arc<Mutex<VecDeque<Read>>>,
    /// Reads that are given as changes, at the times when there is no room.
    pub(super) changes: Arc<Mutex<VecDeque<Read>>>,
    pub(super) changed: Arc<tokio::sync::Notify>,
    pub(super) acked: Acked,
    pub(super) released: Arc<Mutex<Vec<(Partition, Release, Instant)>>>,
    /// Where partitions start that are assigned.
    pub(super) starts: BTreeMap<Partition, (Start, u64)>,
    pub(super) went_on: Arc<Mutex<Vec<Resumption>>>,
}

struct End {
    script: Scripted,
    /// The first row of a partition that came back.
    from: BTreeMap<Partition, u64>,
    /// Partitions that are assigned and did not resume.
    awaited: BTreeSet<Partition>,
}

#[async_trait]
impl Source for Scripted {
    fn catches_up(&self) -> bool {
        false
    }

    fn replay(&self) -> Replay {
        Replay::Exactly
    }

    async fn open(&self, _: &BTreeMap<Partition, Mark>, _: &Host) -> Result<OpenedSource, Fault> {
        let end = || Box::new(End { script: self.clone(), from: BTreeMap::new(), awaited: BTreeSet::new() });
        Ok(OpenedSource::new(end(), end()))
    }
}

#[async_trait]
impl Reader for End {
    async fn read(&mut self, _: Room) -> Result<Read, Fault> {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let waits = match self.script.reads.lock().unwrap().front() {
            Some(Read::Rows { partition, .. }) => self.awaited.contains(partition),
            Some(Read::End) => !self.awaited.is_empty(),
            other => other.is_none(),
        };
        if waits {
            return std::future::pending().await;
        }
        let read = self.script.reads.lock().unwrap().pop_front();
        match read {
            Some(Read::Rows { partition, mut records }) => {
                let from = self.from.get(&partition).copied().unwrap_or(0);
                records.retain(|record| row_at(record.position()) >= from);
                Ok(Read::Rows { partition, records })
            }
            Some(read) => {
                if let Read::Assigned(partition) = &read {
                    self.awaited.insert(partition.clone());
                }
                Ok(read)
            }
            None => std::future::pending().await,
        }
    }

    async fn change(&mut self) -> Result<Read, Fault> {
        loop {
            if let Some(change) = self.script.changes.lock().unwrap().pop_front() {
                return Ok(change);
            }
            self.script.changed.notified().await;
        }
    }

    async fn go_on(&mut self, partition: &Partition, mark: Option<&Mark>) -> Result<Start, Fault> {
        self.awaited.remove(partition);
        self.script.went_on.lock().unwrap().push((partition.clone(), mark.cloned(), Instant::now()));
        let after_mark = (Start::after_mark(), mark.map_or(0, |mark| mark.seq));
        let (start, from) = self.script.starts.get(partition).cloned().unwrap_or(after_mark);
        self.from.insert(partition.clone(), from);
        Ok(start)
    }
}

#[async_trait]
impl Acker for End {
    async fn ack(&mut self, partition: &Partition, positions: &[Position]) -> Result<(), Fault> {
        self.script.acked.lock().unwrap().extend(positions.iter().map(|at| (partition.clone(), row_at(at))));
        Ok(())
    }

    async fn released(&mut self, partition: &Partition, release: Release) -> Result<(), Fault> {
        self.script.released.lock().unwrap().push((partition.clone(), release, Instant::now()));
        Ok(())
    }
}

pub(super) type Acked = Arc<Mutex<Vec<(Partition, u64)>>>;

fn start_with(bench: &Bench, reads: impl IntoIterator<Item = Read>, shelf: &Arc<Downstream>) -> (Running, Acked) {
    start_to(bench, reads, &[shelf])
}

fn start_to(bench: &Bench, reads: impl IntoIterator<Item = Read>, shelves: &[&Arc<Downstream>]) -> (Running, Acked) {
    let script = Scripted::of(reads);
    (start_script(bench, &script, shelves), script.acked)
}

impl Scripted {
    pub(super) fn of(reads: impl IntoIterator<Item = Read>) -> Self {
        Scripted { reads: Arc::new(Mutex::new(reads.into_iter().collect())), ..Scripted::default() }
    }

    /// Returns the releases without their times.
    pub(super) fn releases(&self) -> Vec<(Partition, Release)> {
        self.released.lock().unwrap().iter().map(|(partition, release, _)| (partition.clone(), *release)).collect()
    }
}

pub(super) fn start_script(bench: &Bench, script: &Scripted, shelves: &[&Arc<Downstream>]) -> Running {
    start_limited(bench, script, shelves, MemoryLimits::default().replay_rows)
}

/// Starts a script with a window of so many rows per partition.
pub(super) fn start_limited(
    bench: &Bench,
    script: &Scripted,
    shelves: &[&Arc<Downstream>],
    replay_rows: usize,
) -> Running {
    let upstream = upstream(bench, 0);
    let mut pipeline = bench.tolerant();
    let read = pipeline.read("in", &upstream);
    for (i, shelf) in shelves.iter().enumerate() {
        pipeline.write(&[read], ["a", "b"][i], shelf);
    }
    let mut plan = (*pipeline.plan()).clone();
    plan.limits.replay_rows = replay_rows;
    if let StageKind::Read(ReadSpec { source, .. }) = &mut plan.stages[0].kind {
        *source = Arc::new(script.clone());
    }
    bench.start(&Arc::new(plan))
}

pub(super) fn revoked(name: &str) -> Read {
    Read::Revoked { partition: part(name), within: Duration::from_secs(5) }
}

pub(super) fn part(name: &str) -> Partition {
    Partition(name.into())
}

pub(super) fn rows_of(name: &str, rows: std::ops::Range<u64>) -> Read {
    let of = |row| {
        let mut record = record(row);
        record.metadata.insert("partition", name.to_owned());
        record
    };
    Read::Rows { partition: part(name), records: rows.map(of).collect() }
}

#[tokio::test(start_paused = true)]
async fn a_position_without_rows_is_stored_and_acknowledged_in_order() {
    let bench = Bench::new();
    let a = Arc::new(Downstream::new("a", &bench.journal).delay(Duration::from_secs(5)));
    let reads = [rows_of("", 0..3), Read::Progress(Partition::ONLY, position(99)), rows_of("", 100..101)];
    let (running, acked) = start_with(&bench, reads, &a);
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(acked.lock().unwrap().is_empty(), "the rows before it are not delivered yet");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let in_order: Vec<u64> = acked.lock().unwrap().iter().map(|(_, row)| *row).collect();
    assert_eq!(in_order, [0, 1, 2, 99, 100]);
    let lane = LaneId { connector: "in".into(), partition: Partition::ONLY };
    assert_eq!(bench.store.mark("p", &lane).unwrap(), Mark { generation: 1, seq: 4, position: position(100) });
    running.stop(None);
    assert!(matches!(in_time(running.join()).await, Ending::Stopped));
}

#[tokio::test(start_paused = true)]
async fn a_revoked_partition_is_given_up_and_the_others_go_on() {
    let bench = Bench::new();
    // The rows of `x` are never written.
    let a = Arc::new(Downstream::new("a", &bench.journal).script(|rows, _| {
        match rows.iter().any(|row| row_at(row.position()) < 100) {
            true => Reaction::Fail(Fault::transient(anabranch_plugin::testing::codes::DOWN, "no")),
            false => Reaction::Durable,
        }
    }));
    let b = Arc::new(Downstream::new("b", &bench.journal).delay(Duration::from_secs(30)));
    for (shelf, delivered) in [(&b, true), (&a, false)] {
        let reads = [rows_of("x", 0..3), revoked("x")];
        let (running, acked) = start_with(&bench, reads, shelf);
        tokio::time::sleep(Duration::from_secs(8)).await;
        assert!(acked.lock().unwrap().is_empty());
        running.stop(Some(Duration::from_secs(60)));
        let ending = in_time(running.join()).await;
        // Rows that are delivered after the deadline are not acknowledged: the partition is somebody else's.
        assert!(acked.lock().unwrap().is_empty());
        assert_eq!(matches!(ending, Ending::Stopped), delivered, "{ending:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_comes_back_goes_on_after_what_was_stored() {
    let bench = Bench::new();
    let a = shelf(&bench, "a");
    let reads = [
        rows_of("x", 0..3),
        revoked("x"),
        rows_of("y", 0..2),
        Read::Assigned(part("x")),
        rows_of("x", 0..5),
        Read::End,
    ];
    let (running, acked) = start_with(&bench, reads, &a);
    finished(&in_time(running.join()).await);
    assert_eq!(of_x(&acked), [0, 1, 2, 3, 4]);
    assert_eq!(a.rows().len(), 7, "what was open was delivered before it came back");
    assert_eq!(stored_of_x(&bench), 5);
}

fn of_x(acked: &Acked) -> Vec<u64> {
    acked.lock().unwrap().iter().filter(|(partition, _)| *partition == part("x")).map(|(_, row)| *row).collect()
}

fn stored_of_x(bench: &Bench) -> u64 {
    bench.store.mark("p", &LaneId { connector: "in".into(), partition: part("x") }).unwrap().seq
}

/// `x` goes away while its rows are being written, and comes back after so many reads of others.
fn away_for(others: u64) -> Vec<Read> {
    let mut reads = vec![rows_of("x", 0..3), revoked("x")];
    reads.extend((0..others).map(|row| rows_of("y", row..row + 1)));
    reads.extend([Read::Assigned(part("x")), rows_of("x", 0..5), Read::End]);
    reads
}

#[tokio::test(start_paused = true)]
async fn a_transaction_under_way_is_waited_for_before_its_rows_are_read_again() {
    for others in [0, 3, 20] {
        let bench = Bench::new();
        let delay = Duration::from_secs(12);
        let a = Arc::new(Downstream::new("a", &bench.journal).transactional().delay(delay));
        let (running, acked) = start_with(&bench, away_for(others), &a);
        finished(&in_time(running.join()).await);
        let x: Vec<u64> = rows_in(&a, "x");
        assert_eq!(x, [0, 1, 2, 3, 4], "after {others} others");
        assert_eq!(of_x(&acked), [3, 4], "the partition was given up before the others were stored");
        assert_eq!(stored_of_x(&bench), 5);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_transaction_wrote_is_not_written_again_where_another_destination_lacks_it() {
    let bench = Bench::new();
    let a = Arc::new(Downstream::new("a", &bench.journal).transactional());
    let b = Arc::new(Downstream::new("b", &bench.journal).delay(Duration::from_secs(12)));
    let (running, acked) = start_to(&bench, away_for(20), &[&a, &b]);
    finished(&in_time(running.join()).await);
    assert_eq!(rows_in(&a, "x"), [0, 1, 2, 3, 4]);
    assert_eq!(rows_in(&b, "x"), [0, 1, 2, 3, 4], "what it had in hand was stored before the partition came back");
    assert_eq!(of_x(&acked), [3, 4], "the partition was given up before the others were stored");
    // The first write of `b` fails for a while longer than the rows are waited for.
    let bench = Bench::new();
    let a = Arc::new(Downstream::new("a", &bench.journal).transactional());
    let b = Arc::new(Downstream::new("b", &bench.journal).delay(Duration::from_secs(2)).script(|_, call| match call {
        0..3 => Reaction::Fail(Fault::transient(anabranch_plugin::testing::codes::AWAY, "not yet")),
        _ => Reaction::Durable,
    }));
    let (running, acked) = start_to(&bench, away_for(0), &[&a, &b]);
    finished(&in_time(running.join()).await);
    assert_eq!(rows_in(&a, "x"), [0, 1, 2, 3, 4]);
    assert_eq!(rows_in(&b, "x"), [0, 1, 2, 0, 1, 2, 3, 4], "it is at least once");
    assert_eq!(of_x(&acked), [0, 1, 2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn rows_that_wait_for_a_letter_are_not_written_once_their_partition_is_gone() {
    let bench = Bench::new();
    let letters = Arc::new(Downstream::new("letters", &bench.journal).delay(Duration::from_secs(20)));
    let bench = Bench { letters, ..bench };
    let a = Arc::new(Downstream::new("a", &bench.journal).transactional().script(|rows, _| {
        let bad = rows.iter().position(|row| row_at(row.position()) == 1 && !is_of_y(row));
        match bad {
            Some(row) => {
                Reaction::Refuse(vec![(row, Fault::record(anabranch_plugin::testing::codes::BAD, "not this one"))])
            }
            None => Reaction::Durable,
        }
    }));
    let (running, acked) = start_with(&bench, away_for(0), &a);
    finished(&in_time(running.join()).await);
    assert_eq!(rows_in(&a, "x"), [0, 2, 3, 4]);
    assert_eq!(of_x(&acked), [0, 1, 2, 3, 4]);
    let events = bench.journal.events();
    let at = |wanted: &dyn Fn(&Event) -> bool| events.iter().position(wanted).unwrap();
    let letter = at(&|event| matches!(event, Event::Durable { shelf, .. } if shelf == "letters"));
    let mark = at(&|event| matches!(event, Event::Transacted { marks, .. } if !marks.is_empty()));
    let keys: BTreeSet<String> = bench.letters.durable().iter().map(|letter| format!("{:?}", letter.key)).collect();
    assert_eq!(
        (bench.letters.rows(), keys.len()),
        (vec![1, 1], 1),
        "the letter of a row that is read again overwrites"
    );
    assert!(letter < mark, "no mark covers a row whose letter is not durable: {events:?}");
}

#[tokio::test(start_paused = true)]
async fn rows_of_a_partition_that_is_not_assigned_are_refused() {
    for reads in [
        vec![rows_of("x", 0..3), revoked("x"), rows_of("x", 3..5)],
        vec![rows_of("x", 0..3), Read::Assigned(part("x"))],
    ] {
        let bench = Bench::new();
        let a = shelf(&bench, "a");
        let (running, _) = start_with(&bench, reads, &a);
        let Ending::Faulted(fault) = in_time(running.join()).await else { panic!("it went on") };
        assert_eq!(fault.code().name(), "partition_unexpected");
    }
}

fn is_of_y(row: &Record) -> bool {
    row.metadata.get("partition").is_some_and(|partition| partition == "y")
}

/// Rows of a partition that are durable on a shelf.
pub(super) fn rows_in(shelf: &Downstream, name: &str) -> Vec<u64> {
    let durable = shelf.durable();
    let rows = durable.iter().filter(|row| row.metadata.get("partition").is_some_and(|partition| partition == name));
    rows.map(|row| row_at(row.position())).collect()
}
