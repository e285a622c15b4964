//! Measures the cost of the engine per record: `cargo run --release -p anabranch-graph --example overhead`. A source of prepared records, operators that do nothing, a destination that discards everything.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use anabranch_graph::exec::{Ending, RunOptions, start};
use anabranch_graph::plan::stage::{ReadSpec, StageKind, StagePlan, StageSpec, WriteSpec};
use anabranch_graph::testing::{Pipeline, services};
use anabranch_plugin::destination::{Delivered, Destination, Retry, Verdicts, Write, WritePolicy, Writer};
use anabranch_plugin::host::Host;
use anabranch_plugin::operator::Decision;
use anabranch_plugin::source::{Acker, OpenedSource, Read, Reader, Room, Source};
use anabranch_plugin::testing::{Downstream, Journal, MemoryStore, Upstream, inline};
use anabranch_record::fault::Fault;
use anabranch_record::mark::{Mark, Partition};
use anabranch_record::{Data, Position, Record};
use async_trait::async_trait;
use bytes::Bytes;

const ROWS: usize = 10_000_000;

struct Ready;

struct Numbers {
    left: usize,
    record: Record,
}

#[async_trait]
impl Source for Ready {
    fn catches_up(&self) -> bool {
        true
    }

    async fn open(&self, _: &BTreeMap<Partition, Mark>, _: &Host) -> Result<OpenedSource, Fault> {
        let mut record =
            Record::create(Position(Bytes::from_static(b"position")), Data::text("key"), Data::text("payload"));
        record.metadata.insert("recfmt.collection", "numbers");
        Ok(OpenedSource::new(Box::new(Numbers { left: ROWS, record }), Box::new(Ready)))
    }
}

#[async_trait]
impl Acker for Ready {
    async fn ack(&mut self, _: &Partition, _: &[Position]) -> Result<(), Fault> {
        Ok(())
    }
}

#[async_trait]
impl Reader for Numbers {
    async fn read(&mut self, room: Room) -> Result<Read, Fault> {
        let rows = self.left.min(room.rows).min(1024);
        if rows == 0 {
            return Ok(Read::End);
        }
        self.left -= rows;
        Ok(Read::Rows { partition: Partition::ONLY, records: vec![self.record.clone(); rows] })
    }
}

struct Forget;

#[async_trait]
impl Destination for Forget {
    async fn open(&self, _: &Host) -> Result<Box<dyn Writer>, Fault> {
        Ok(Box::new(Forget))
    }

    fn policy(&self) -> WritePolicy {
        let linger = std::time::Duration::ZERO;
        WritePolicy { rows: 128, bytes: 1 << 20, linger, retry: Retry::Idempotent }
    }
}

#[async_trait]
impl Writer for Forget {
    async fn write(&mut self, _: Write<'_>) -> Result<Verdicts, Fault> {
        Ok(Verdicts::All(Delivered::Durable))
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

/// Returns the CPU time of this process in seconds, user and system.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

/// Returns a plan with one source, `steps` operators in one chain and `ways` destinations.
fn plan(steps: usize, ways: usize) -> Arc<StagePlan> {
    let journal = Journal::default();
    let shelf = Arc::new(Downstream::new("letters", &journal));
    let mut pipeline = Pipeline::new(&shelf, 1, 0);
    let upstream = Arc::new(Upstream::new(&journal, 0, anabranch_plugin::testing::AtEnd::End));
    let mut last = pipeline.read("in", &upstream);
    if steps > 0 {
        let operators: Vec<_> = (0..steps).map(|_| inline(|_| Ok(Decision::Keep))).collect();
        last = pipeline.chain(&[last], &operators);
    }
    for way in 0..ways {
        pipeline.write(&[last], &format!("out{way}"), &shelf);
    }
    let mut plan = (*pipeline.plan()).clone();
    for StageSpec { kind, .. } in &mut plan.stages {
        match kind {
            StageKind::Read(ReadSpec { source, .. }) => *source = Arc::new(Ready),
            StageKind::Write(WriteSpec { destination, .. }) => *destination = Arc::new(Forget),
            _ => {}
        }
    }
    Arc::new(plan)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    for (steps, ways) in [(0, 1), (1, 1), (5, 1), (5, 2)] {
        let plan = plan(steps, ways);
        let store = Arc::new(MemoryStore::new(&Journal::default()));
        let (wall, before) = (Instant::now(), cpu());
        let ending = runtime.block_on(async { start(plan, services(&store), RunOptions::default()).join().await });
        if !matches!(ending, Ending::Finished) {
            return Err(format!("{ending:?}").into());
        }
        let per_record = |seconds: f64| seconds * 1e9 / ROWS as f64;
        println!(
            "{steps} steps, {ways} destinations: {:.0} ns of CPU per record, {:.0} ns of wall time, {} commits",
            per_record(cpu() - before),
            per_record(wall.elapsed().as_secs_f64()),
            store.commits()
        );
    }
    Ok(())
}
