//! Positions without rows, and partitions that come and go.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

use async_trait::async_trait;

use super::*;
use crate::fault::Fault;
use crate::operator::Host;
use crate::plan::stage::{ReadSpec, StageKind};
use crate::record::Position;
use crate::source::{Acker, Mark, Partition, Read, Reader, Room, Source};
use crate::state::LaneId;
use crate::testing::{Reaction, position, record, row_at};

/// Gives one scripted read after the other, a second apart, then waits.
struct Scripted {
    reads: Mutex<VecDeque<Read>>,
    acked: Arc<Mutex<Vec<(Partition, u64)>>>,
}

struct End {
    reads: VecDeque<Read>,
    acked: Arc<Mutex<Vec<(Partition, u64)>>>,
}

#[async_trait]
impl Source for Scripted {
    fn catches_up(&self) -> bool {
        false
    }

    async fn open(&self, _: &BTreeMap<Partition, Mark>, _: &Host) -> Result<(Box<dyn Reader>, Box<dyn Acker>), Fault> {
        let reads = std::mem::take(&mut *self.reads.lock().unwrap());
        let end = |reads| Box::new(End { reads, acked: self.acked.clone() });
        Ok((end(reads), end(VecDeque::new())))
    }
}

#[async_trait]
impl Reader for End {
    async fn read(&mut self, _: Room) -> Result<Read, Fault> {
        tokio::time::sleep(Duration::from_secs(1)).await;
        match self.reads.pop_front() {
            Some(read) => Ok(read),
            None => std::future::pending().await,
        }
    }
}

#[async_trait]
impl Acker for End {
    async fn ack(&mut self, partition: &Partition, positions: &[Position]) -> Result<(), Fault> {
        self.acked.lock().unwrap().extend(positions.iter().map(|at| (partition.clone(), row_at(at))));
        Ok(())
    }
}

type Acked = Arc<Mutex<Vec<(Partition, u64)>>>;

fn start_with(bench: &Bench, reads: impl IntoIterator<Item = Read>, shelf: &Arc<Shelf>) -> (Running, Acked) {
    let acked: Acked = Arc::default();
    let upstream = upstream(bench, 0);
    let mut pipeline = bench.pipeline();
    let read = pipeline.read("in", &upstream);
    pipeline.write(&[read], "a", shelf);
    let mut plan = (*pipeline.plan()).clone();
    if let StageKind::Read(ReadSpec { source, .. }) = &mut plan.stages[0].kind {
        *source = Arc::new(Scripted { reads: Mutex::new(reads.into_iter().collect()), acked: acked.clone() });
    }
    (bench.start(&Arc::new(plan)), acked)
}

fn part(name: &str) -> Partition {
    Partition(name.into())
}

fn rows_of(name: &str, rows: std::ops::Range<u64>) -> Read {
    Read::Rows { partition: part(name), records: rows.map(record).collect() }
}

#[tokio::test(start_paused = true)]
async fn a_position_without_rows_is_stored_and_acknowledged_in_order() {
    let bench = Bench::new();
    let a = Arc::new(Shelf::new("a", &bench.journal).delay(Duration::from_secs(5)));
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
    let a = Arc::new(Shelf::new("a", &bench.journal).script(|rows, _| {
        match rows.iter().any(|row| row_at(row.position()) < 100) {
            true => Reaction::Fail(Fault::transient("down", "no")),
            false => Reaction::Durable,
        }
    }));
    let b = Arc::new(Shelf::new("b", &bench.journal).delay(Duration::from_secs(30)));
    for (shelf, delivered) in [(&b, true), (&a, false)] {
        let reads = [rows_of("x", 0..3), Read::Revoked(part("x"))];
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
    let reads = [rows_of("x", 0..3), Read::Revoked(part("x")), rows_of("y", 0..2), rows_of("x", 3..5), Read::End];
    let (running, acked) = start_with(&bench, reads, &a);
    finished(&in_time(running.join()).await);
    assert_eq!(acked.lock().unwrap().len(), 7);
    let lane = LaneId { connector: "in".into(), partition: part("x") };
    assert_eq!(bench.store.mark("p", &lane).unwrap().seq, 5);
}
