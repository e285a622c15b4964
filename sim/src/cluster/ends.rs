//! The ends of the pipeline: a source with several partitions, and the destination.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::destination::{Delivered, Destination, Retry, ShareWriter, Verdicts, Write, WritePolicy, Writer};
use anabranch_plugin::host::Host;
use anabranch_plugin::source::{Acker, OpenedSource, Read, Reader, Replay, Room, Source};
use anabranch_plugin::state::Slots;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{LaneId, Mark, Partition};
use anabranch_record::{Data, Position, Record};
use async_trait::async_trait;
use tokio::time::sleep;

use super::PlantedFault;
use super::forms::{ProgramVersion, row_number};
use super::scenario::SinkKind;
use super::sink::{Refused, SinkWriter};
use super::world::{RunId, World, partition};
use crate::codes;
use crate::ends::passing;

/// The metadata key of the partition of a record.
const PARTITION: &str = "partition";
/// Time between two looks for rows.
const LOOK: Duration = Duration::from_millis(30);
/// Rows of one read, at most.
const READ: u64 = 5;

/// A row of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) partition: Partition,
    pub(super) number: u64,
}

impl Row {
    fn record(&self, version: ProgramVersion) -> Record {
        let mut record = Record::create(version.position(self.number), Data::Absent, Data::Absent);
        record.metadata.insert(PARTITION, self.partition.0.to_string());
        record
    }

    fn of(record: &Record) -> Option<Row> {
        let partition = Partition(record.metadata.get(PARTITION)?.as_str().into());
        Some(Row { partition, number: row_number(record.position()) })
    }
}

/// A run on a node.
#[derive(Clone)]
pub(super) struct RunOf {
    pub(super) world: Arc<World>,
    pub(super) run: RunId,
    pub(super) version: ProgramVersion,
}

/// The source: rows of several partitions, which appear as time passes.
pub(super) struct ClusterSource(pub(super) RunOf);

#[async_trait]
impl Source for ClusterSource {
    fn catches_up(&self) -> bool {
        true
    }

    fn splits(&self) -> bool {
        true
    }

    fn replay(&self) -> Replay {
        Replay::Exactly
    }

    async fn open(&self, resume: &BTreeMap<Partition, Mark>, host: &Host) -> Result<OpenedSource, Fault> {
        let RunOf { world, run, version } = self.0.clone();
        sleep(world.call().0).await;
        let mut read = Vec::new();
        for partition in (0..world.scenario.partitions).map(partition).filter(|partition| host.slots.has(partition)) {
            let Some(mark) = resume.get(&partition) else {
                read.push((0, partition));
                continue;
            };
            let (after, stored) = (version.resumed(&mark.position, world.planted), row_number(&mark.position));
            if after != stored {
                let what = format!("run {run} resumes {} after row {after}, and {stored} are stored", partition.0);
                world.lock().breaks(what);
            }
            read.push((after, partition));
        }
        let reader = ClusterReader { world: world.clone(), version, read, next: 0 };
        Ok(OpenedSource::new(Box::new(reader), Box::new(ClusterAcker(world))))
    }
}

struct ClusterReader {
    world: Arc<World>,
    version: ProgramVersion,
    /// The last row that was read of each partition.
    read: Vec<(u64, Partition)>,
    next: usize,
}

#[async_trait]
impl Reader for ClusterReader {
    async fn read(&mut self, room: Room) -> Result<Read, Fault> {
        loop {
            let there = self.world.rows();
            for _ in 0..self.read.len() {
                self.next = (self.next + 1) % self.read.len();
                let (last, partition) = &mut self.read[self.next];
                let to = there.min(*last + READ.min(room.rows.max(1) as u64));
                if *last < to {
                    let rows = *last + 1..=to;
                    *last = to;
                    let record = |number| Row { partition: partition.clone(), number }.record(self.version);
                    let records = rows.map(record).collect();
                    return Ok(Read::Rows { partition: partition.clone(), records });
                }
            }
            sleep(LOOK).await;
        }
    }
}

struct ClusterAcker(Arc<World>);

#[async_trait]
impl Acker for ClusterAcker {
    async fn ack(&mut self, partition: &Partition, positions: &[Position]) -> Result<(), Fault> {
        let mut state = self.0.lock();
        let delivered = state.sink.prefix(partition);
        if let Some(early) = positions.iter().map(row_number).find(|number| *number > delivered) {
            state.breaks(format!("row {early} of {} is acknowledged, and {delivered} are delivered", partition.0));
        }
        Ok(())
    }
}

/// The dead-letter queue, which gets nothing.
pub(super) struct NoLetters;

#[async_trait]
impl Destination for NoLetters {
    async fn open(&self, _: &Host) -> Result<Box<dyn Writer>, Fault> {
        Ok(Box::new(NoLetters))
    }

    fn takes_shares(&self) -> bool {
        true
    }

    fn policy(&self) -> WritePolicy {
        WritePolicy { rows: 1, bytes: 1 << 20, linger: Duration::ZERO, retry: Retry::Idempotent }
    }
}

#[async_trait]
impl Writer for NoLetters {
    async fn write(&mut self, _: Write<'_>) -> Result<Verdicts, Fault> {
        Err(Fault::fatal(codes::SIM_BROKEN, "there is a dead letter"))
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

/// The destination.
pub(super) struct ClusterDestination(pub(super) RunOf);

#[async_trait]
impl Destination for ClusterDestination {
    async fn open(&self, host: &Host) -> Result<Box<dyn Writer>, Fault> {
        let RunOf { world, run, .. } = self.0.clone();
        // A node may be paused before it, and after it.
        let opening = world.opening();
        sleep(opening).await;
        let epoch = {
            let mut state = world.lock();
            state.resumes(host.slots);
            state.sink.opens(host.slots)
        };
        world.note(|| format!("run {run} opens the destination"));
        sleep(world.call().0).await;
        Ok(Box::new(ClusterWriter { world, writer: SinkWriter { run, slots: host.slots, epoch } }))
    }

    async fn open_shares(&self, host: &Host) -> Result<Vec<ShareWriter>, Fault> {
        if !self.0.world.scenario.has_writers_per_slot {
            return Ok(vec![ShareWriter { slots: host.slots, writer: self.open(host).await? }]);
        }
        let mut writers = Vec::new();
        for slot in host.slots.iter() {
            let slots = Slots::none(host.slots.of()).with(slot);
            writers.push(ShareWriter { slots, writer: self.open(&Host { slots, ..host.clone() }).await? });
        }
        Ok(writers)
    }

    fn takes_shares(&self) -> bool {
        true
    }

    fn refuses_earlier_runs(&self) -> bool {
        self.0.world.scenario.sink != SinkKind::Plain
    }

    fn policy(&self) -> WritePolicy {
        let retry = match self.0.world.scenario.sink {
            SinkKind::Transactional => Retry::Transactional,
            SinkKind::Fenced | SinkKind::Plain => Retry::Idempotent,
        };
        WritePolicy { rows: 4, bytes: 1 << 20, linger: Duration::ZERO, retry }
    }
}

struct ClusterWriter {
    world: Arc<World>,
    writer: SinkWriter,
}

impl ClusterWriter {
    /// Returns `true` if the destination refuses the writes of earlier runs.
    fn is_fenced(&self) -> bool {
        match self.world.scenario.sink {
            SinkKind::Transactional => true,
            SinkKind::Fenced => !self.world.is_planted(PlantedFault::FencedOnlyWithMarks),
            SinkKind::Plain => false,
        }
    }

    fn check(&self) -> Result<(), Fault> {
        match self.world.lock().sink.check(&self.writer) {
            Err(Refused) if self.is_fenced() => {
                Err(Fault::fatal(codes::FENCED, "a later run has opened the destination"))
            }
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl Writer for ClusterWriter {
    async fn marks(&mut self) -> Result<Vec<(LaneId, Mark)>, Fault> {
        sleep(self.world.call().0).await;
        self.check()?;
        let state = self.world.lock();
        let its = state.sink.marks.iter().filter(|(lane, _)| self.writer.slots.has(&lane.partition));
        Ok(its.map(|(lane, mark)| (lane.clone(), mark.clone())).collect())
    }

    async fn write(&mut self, write: Write<'_>) -> Result<Verdicts, Fault> {
        let (takes, fails) = self.world.call();
        sleep(takes).await;
        self.check()?;
        if fails == Some(false) {
            return Err(passing("the destination is away"));
        }
        let rows: Option<Vec<Row>> = write.rows.iter().map(Row::of).collect();
        let rows = rows.ok_or_else(|| passing("a record is not a row"))?;
        self.world.lock().write(&self.writer, &rows, write.marks);
        sleep(takes / 4).await;
        match fails {
            Some(_) => Err(passing("the answer is lost")),
            None => Ok(Verdicts::All(Delivered::Durable)),
        }
    }

    async fn forget(&mut self, _: &[LaneId]) -> Result<bool, Fault> {
        Ok(false)
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}
