//! The simulated sources, destinations and store, whose behaviour the scenario determines.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::destination::{Delivered, Destination, Retry, Verdicts, Write, WritePolicy, Writer};
use anabranch_plugin::host::Host;
use anabranch_plugin::source::{Acker, OpenedSource, Read, Reader, Release, Replay, Room, Source, Start};
use anabranch_plugin::state::{Commit, Epoch, Receipt, StateStore, StoreError, Unit};
use anabranch_record::fault::Fault;
use anabranch_record::mark::{LaneId, Mark, Partition};
use anabranch_record::value::Value;
use anabranch_record::{Data, Position, Record};
use async_trait::async_trait;
use tokio::time::Instant;

use crate::record::{copy, number, record};
use crate::scenario::{AcceptedDurability, Sink, Upstream, WriteRetry, hits, mix};
use crate::transaction::{self, KnownMarks};
use crate::world::{State, World, first, position};

/// Time for the rows of a revoked partition.
const REVOKED: Duration = Duration::from_secs(5);
/// A shorter one.
const HURRIED: Duration = Duration::from_millis(100);

/// Creates a transient fault.
fn passing(what: &'static str) -> Fault {
    Fault::transient(crate::codes::SIM_PASSING, what)
}

async fn sleep_up_to(millis: u64, number: u64) {
    if millis > 0 {
        tokio::time::sleep(Duration::from_millis(mix(number, 5) % (millis + 1))).await;
    }
}

/// Source `index` of the scenario.
pub struct SimSource {
    /// The world.
    pub world: Arc<World>,
    /// Index of the source.
    pub index: usize,
}

impl SimSource {
    fn spec(&self) -> &Upstream {
        &self.world.scenario.sources[self.index]
    }
}

#[async_trait]
impl Source for SimSource {
    fn catches_up(&self) -> bool {
        true
    }

    fn replay(&self) -> Replay {
        Replay::Exactly
    }

    async fn open(&self, resume: &BTreeMap<Partition, Mark>, _: &Host) -> Result<OpenedSource, Fault> {
        self.world.opening().await?;
        let mut state = self.world.lock();
        let mut lanes = Vec::new();
        for (i, lane) in state.lanes.iter_mut().enumerate().filter(|(_, lane)| lane.source == self.index) {
            // The source resumes only from the position that the engine sets.
            if lane.opens(resume.get(&lane.id.partition), self.spec().finishes) {
                lanes.push(i);
            }
        }
        drop(state);
        let source = || SimSource { world: self.world.clone(), index: self.index };
        let reader = SimReader {
            source: source(),
            lanes,
            turn: 0,
            reads: 0,
            progress: None,
            caught_up: false,
            away: BTreeMap::new(),
            returning: BTreeSet::new(),
            came_back: None,
        };
        Ok(OpenedSource::new(Box::new(reader), Box::new(SimAcker { source: source() })))
    }
}

struct SimReader {
    source: SimSource,
    lanes: Vec<usize>,
    turn: usize,
    reads: u64,
    /// A position to report next, without a record.
    progress: Option<(usize, u32)>,
    caught_up: bool,
    /// Lanes that have been revoked or lost, with the number of reads after which they come back, if they do.
    away: BTreeMap<usize, Option<u64>>,
    /// Lanes that came back and did not resume.
    returning: BTreeSet<usize>,
    /// When the latest lane came back, if nothing else can delay the next call.
    came_back: Option<Instant>,
}

#[async_trait]
impl Reader for SimReader {
    async fn read(&mut self, room: Room) -> Result<Read, Fault> {
        self.check_delay();
        let world = self.source.world.clone();
        let spec = self.source.spec();
        let (call, troubled) = {
            let mut state = world.lock();
            (state.next_call(), state.is_troubled())
        };
        sleep_up_to(spec.delay, call).await;
        world.tick().await;
        if troubled && hits(1, call, spec.read_fails) {
            return Err(passing("the source cannot be read"));
        }
        world.may_panic();
        // Partitions that are lost between a commit and its acknowledgements are seldom without help.
        let storing = spec.revokes > 0 && world.lock().storing;
        if troubled
            && hits(6, call, if storing { 2 } else { spec.revokes })
            && let Some(partition) = self.revoke(call)
        {
            return Ok(match mix(call, 11).is_multiple_of(if storing { 2 } else { 3 }) {
                true => {
                    world.lost(self.source.index, &partition);
                    Read::Lost(partition)
                }
                false => {
                    // A short time ends while transactions hold rows of the partition.
                    let within = if mix(call, 12).is_multiple_of(3) { HURRIED } else { REVOKED };
                    Read::Revoked { partition, within }
                }
            });
        }
        loop {
            if let Some(read) = self.give(room) {
                return Ok(read);
            }
            if !self.waits_for_a_lane() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(Duration::from_millis(400)).await;
            world.tick().await;
        }
    }

    async fn go_on(&mut self, partition: &Partition, mark: Option<&Mark>) -> Result<Start, Fault> {
        self.check_delay();
        let world = &self.source.world;
        world.tick().await;
        let lanes = self.lanes.iter().copied();
        let lane = {
            let state = world.lock();
            lanes.into_iter().find(|lane| state.lanes[*lane].id.partition == *partition)
        };
        if let Some(lane) = lane {
            world.resumes(lane, mark);
            self.away.remove(&lane);
            self.returning.remove(&lane);
        }
        Ok(Start::after_mark())
    }

    async fn stop(&mut self) -> Result<(), Fault> {
        self.source.world.tick().await;
        self.source.world.may_panic();
        Ok(())
    }
}

impl SimReader {
    /// Revokes a partition. It comes back soon, or in the next run.
    fn revoke(&mut self, call: u64) -> Option<Partition> {
        let here: Vec<usize> = self.lanes.iter().copied().filter(|lane| !self.away.contains_key(lane)).collect();
        let lane = *here.get(call as usize % here.len().max(1))?;
        let comes_back = self.source.spec().comes_back;
        self.away.insert(lane, (comes_back > 0).then_some(self.reads + comes_back));
        self.progress = self.progress.filter(|(other, _)| *other != lane);
        Some(self.source.world.revoked(lane))
    }

    /// Checks that the engine does not wait for a lane that came back before it reads others.
    fn check_delay(&mut self) {
        let Some(since) = self.came_back.take() else { return };
        if since.elapsed() > Duration::from_millis(500) {
            self.source.world.breaks(|| "the source waits for a partition that is assigned again".to_owned());
        }
    }

    /// Finishes a partition whose rows are all read.
    fn finish(&mut self, state: &mut State) -> Option<Partition> {
        let is_read = |lane: &usize| state.lanes[*lane].is_read() && !self.away.contains_key(lane);
        let at = self.lanes.iter().position(is_read)?;
        Some(state.finishes(self.lanes.remove(at)))
    }

    fn waits_for_a_lane(&self) -> bool {
        self.away.values().any(Option::is_some)
    }

    /// Returns the next read; `None` if there is nothing to wait for.
    fn give(&mut self, room: Room) -> Option<Read> {
        let world = self.source.world.clone();
        let spec = &world.scenario.sources[self.source.index];
        self.reads += 1;
        let mut state = world.lock();
        if let Some((lane, back)) = self.away.iter_mut().find(|(_, back)| back.is_some_and(|back| back <= self.reads)) {
            // The lane stays revoked until the engine sets the position to resume from.
            *back = None;
            self.returning.insert(*lane);
            // Only a window or a batch that is full may delay the next read.
            let is_free = world.scenario.held_bytes >= 1 << 20
                && !world.scenario.has_threads()
                && spec.batch.is_none()
                && (world.scenario.replay_rows >= 1000 || state.holds_only(self.source.index, *lane));
            self.came_back = is_free.then(Instant::now);
            return Some(Read::Assigned(state.returns(*lane)));
        }
        if let Some((lane, row)) = self.progress.take() {
            let at = position(lane, row, b'p');
            let partition = state.lanes[lane].id.partition.clone();
            drop(state);
            world.read(lane, [at.clone()]);
            return Some(Read::Progress(partition, at));
        }
        let n = self.lanes.len();
        let turns = (0..n).map(|i| self.lanes[(self.turn + i) % n]);
        let mut turns = turns.filter(|lane| !self.away.contains_key(lane));
        if let Some(lane) = turns.find(|lane| (state.lanes[*lane].next as usize) < state.lanes[*lane].fates.len()) {
            self.turn += 1;
            self.caught_up = false;
            let at = &mut state.lanes[lane];
            let from = at.next;
            let weight = record(first(lane, from), position(lane, from, b'r')).weight();
            let most = spec.per_read.min(room.rows).min(room.bytes / weight).max(1);
            let upto = (from as usize + most).min(at.fates.len()) as u32;
            at.next = upto;
            let partition = at.id.partition.clone();
            if hits(2, u64::from(upto), spec.progress) {
                self.progress = Some((lane, upto - 1));
            }
            state.note(|| format!("rows {from}..{upto} of lane {lane} are read"));
            drop(state);
            world.read(lane, (from..upto).map(|row| spec.position(lane, row)));
            world.holds(lane, (upto - from) as usize, weight);
            let records = (from..upto).map(|row| record(first(lane, row), spec.position(lane, row))).collect();
            return Some(Read::Rows { partition, records });
        }
        if spec.finishes
            && let Some(partition) = self.finish(&mut state)
        {
            return Some(Read::Finished(partition));
        }
        if self.waits_for_a_lane() || !self.returning.is_empty() {
            return None;
        }
        if spec.ends {
            return Some(Read::End);
        }
        if state.nothing_to_do() {
            world.orders.notify_one();
        }
        let said = std::mem::replace(&mut self.caught_up, true);
        (!said).then_some(Read::CaughtUp)
    }
}

struct SimAcker {
    source: SimSource,
}

#[async_trait]
impl Acker for SimAcker {
    async fn released(&mut self, partition: &Partition, release: Release) -> Result<(), Fault> {
        let world = &self.source.world;
        world.tick().await;
        world.check_released(self.source.index, partition, release);
        Ok(())
    }

    async fn ack(&mut self, partition: &Partition, positions: &[Position]) -> Result<(), Fault> {
        let world = &self.source.world;
        let spec = self.source.spec();
        world.check_acknowledged(self.source.index, partition);
        let (call, troubled) = {
            let mut state = world.lock();
            (state.next_call(), state.is_troubled())
        };
        world.tick().await;
        if world.is_lost(self.source.index, partition) {
            // The source drops what arrives while the partition is lost.
            return Ok(());
        }
        if troubled && hits(3, call, spec.ack_hangs) {
            world.hang().await;
        }
        world.may_panic();
        if troubled && hits(4, call, spec.ack_fails) {
            return Err(passing("the source is not reachable"));
        }
        world.acked(self.source.index, partition, positions);
        world.tick().await;
        Ok(())
    }

    async fn close(&mut self) -> Result<(), Fault> {
        self.source.world.tick().await;
        self.source.world.may_panic();
        Ok(())
    }
}

/// A destination of the scenario. The one after the last is for dead letters.
pub struct SimDestination {
    /// The world.
    pub world: Arc<World>,
    /// Index of the destination.
    pub index: usize,
}

impl SimDestination {
    fn spec(&self) -> &Sink {
        self.world.scenario.sinks.get(self.index).unwrap_or(&self.world.scenario.letters)
    }

    fn is_letters(&self) -> bool {
        self.index == self.world.scenario.sinks.len()
    }
}

#[async_trait]
impl Destination for SimDestination {
    async fn open(&self, _: &Host) -> Result<Box<dyn Writer>, Fault> {
        self.world.opening().await?;
        let sink = SimDestination { world: self.world.clone(), index: self.index };
        Ok(Box::new(SimWriter { sink, unknown: false, known: KnownMarks::new() }))
    }

    fn policy(&self) -> WritePolicy {
        let spec = self.spec();
        let retry = match spec.retry {
            WriteRetry::Idempotent => Retry::Idempotent,
            WriteRetry::AtMostOnce => Retry::AtMostOnce,
            WriteRetry::Transactional => Retry::Transactional,
        };
        WritePolicy { rows: spec.rows, bytes: 1 << 20, linger: Duration::from_millis(spec.linger), retry }
    }
}

struct SimWriter {
    sink: SimDestination,
    /// The outcome of a call was unknown.
    unknown: bool,
    /// The stored marks of a transactional destination, as this writer last read or wrote them.
    known: KnownMarks,
}

impl SimWriter {
    /// Stores a row. A dead letter is identified by its contents.
    fn put(&self, row: &Record, delivered: Delivered, uncertain: bool) {
        let world = &self.sink.world;
        let durable = delivered == Delivered::Durable;
        if !self.sink.is_letters() {
            return world.put(self.sink.index, copy(row).id, durable, uncertain);
        }
        let node = row.metadata.get("svc.dlq.nack.node.id").cloned().unwrap_or_default();
        let after = row.payload.after.fields().and_then(|letter| letter.get("payload"));
        let id = match after.and_then(Value::as_map).and_then(|payload| payload.get("after")) {
            Some(Value::Bytes(bytes)) => number(bytes),
            _ => 0,
        };
        let key = match &row.key {
            Data::Raw(key) => &key[..],
            _ => &[],
        };
        world.put_letter(&node, id, key, durable);
    }
}

#[async_trait]
impl Writer for SimWriter {
    async fn marks(&mut self) -> Result<Vec<(LaneId, Mark)>, Fault> {
        transaction::marks(&self.sink.world, self.sink.index, self.sink.spec(), &mut self.known).await
    }

    async fn write(&mut self, Write { rows, marks, .. }: Write<'_>) -> Result<Verdicts, Fault> {
        let world = self.sink.world.clone();
        let (spec, index) = (self.sink.spec(), self.sink.index);
        let (call, troubled) = {
            let mut state = world.lock();
            state.destinations[index].calls += 1;
            (state.destinations[index].calls, state.is_troubled())
        };
        world.may_panic();
        if !self.sink.is_letters() {
            let ids: Vec<u64> = rows.iter().map(|row| copy(row).id).collect();
            world.lock().note(|| format!("d{index} is given {} rows: {ids:x?}", ids.len()));
            world.check_rows(index, &ids, rows.iter().map(Record::position));
            world.check_marks(index, &ids, marks);
            if self.unknown && spec.retry == WriteRetry::AtMostOnce {
                world.breaks(|| format!("d{index} is written again although that must not be"));
            }
            if spec.retry == WriteRetry::Transactional {
                return transaction::write(&world, index, self.sink.spec(), &mut self.known, rows, marks).await;
            }
        }
        tokio::time::sleep(spec.takes_time(call)).await;
        world.tick().await;
        if troubled && hits(spec.salt ^ 1, call, spec.hangs) {
            world.hang().await;
        }
        let refused = |row: &Record| hits(spec.salt, copy(row).id, spec.refuses) && !self.sink.is_letters();
        let refusal = || Fault::record(anabranch_plugin::testing::codes::REFUSED, "the destination does not want it");
        if spec.whole && rows.iter().any(refused) {
            return Err(refusal());
        }
        let delivered = |row: usize| match spec.takes {
            AcceptedDurability::Durable => Delivered::Durable,
            AcceptedDurability::Accepted => Delivered::Accepted,
            AcceptedDurability::Mixed if mix(call, row as u64).is_multiple_of(2) => Delivered::Durable,
            AcceptedDurability::Mixed => Delivered::Accepted,
        };
        if troubled && hits(spec.salt ^ 2, call, spec.fails) {
            if spec.ambiguous {
                let some = mix(call, 9) as usize % (rows.len() + 1);
                rows[..some].iter().filter(|row| !refused(row)).enumerate().for_each(|(i, row)| {
                    self.put(row, delivered(i), true);
                });
            }
            self.unknown = true;
            return Err(passing("the destination is away"));
        }
        let partial = troubled && hits(spec.salt ^ 3, call, spec.partial);
        let verdict = |(i, row): (usize, &Record)| match () {
            () if refused(row) => Err(refusal()),
            () if partial && mix(call, i as u64 ^ 3).is_multiple_of(3) => Err(passing("the row is locked")),
            () => Ok(delivered(i)),
        };
        let mut verdicts: Vec<Result<Delivered, Fault>> = rows.iter().enumerate().map(verdict).collect();
        if troubled && hits(spec.salt ^ 5, call, spec.miscounts) && world.miscounts() {
            match mix(call, 4).is_multiple_of(2) {
                true => drop(verdicts.pop()),
                false => verdicts.push(Ok(Delivered::Durable)),
            }
            for (i, (row, _)) in rows.iter().zip(&verdicts).enumerate().filter(|(_, (_, verdict))| verdict.is_ok()) {
                self.put(row, delivered(i), true);
            }
            self.unknown = true;
            return Ok(Verdicts::Each(verdicts));
        }
        self.unknown |=
            verdicts.iter().any(|verdict| matches!(verdict, Err(fault) if fault.code() == crate::codes::SIM_PASSING));
        for (i, (row, verdict)) in rows.iter().zip(&verdicts).enumerate() {
            // A crash can happen in the middle of a call.
            if i == rows.len() / 2 {
                world.tick().await;
                world.may_panic();
            }
            if let Ok(delivered) = verdict {
                self.put(row, *delivered, false);
            }
        }
        world.tick().await;
        if let Some(Ok(first)) = verdicts.first()
            && verdicts.iter().all(|verdict| matches!(verdict, Ok(other) if other == first))
        {
            return Ok(Verdicts::All(*first));
        }
        Ok(Verdicts::Each(verdicts))
    }

    async fn forget(&mut self, lanes: &[LaneId]) -> Result<bool, Fault> {
        transaction::forget(&self.sink.world, self.sink.index, self.sink.spec(), &mut self.known, lanes).await
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        let world = self.sink.world.clone();
        let (spec, index) = (self.sink.spec(), self.sink.index);
        let (call, troubled) = {
            let mut state = world.lock();
            state.destinations[index].calls += 1;
            (state.destinations[index].calls, state.is_troubled())
        };
        tokio::time::sleep(spec.takes_time(call)).await;
        world.tick().await;
        if troubled && hits(spec.salt ^ 6, call, spec.hangs) {
            world.hang().await;
        }
        world.may_panic();
        if troubled && hits(spec.salt ^ 4, call, spec.flush_fails) {
            return Err(passing("the destination cannot be flushed"));
        }
        world.flushed(index);
        world.tick().await;
        Ok(())
    }

    async fn close(&mut self) -> Result<(), Fault> {
        self.sink.world.tick().await;
        self.sink.world.may_panic();
        Ok(())
    }
}

/// The simulated state store.
pub struct SimStore(pub Arc<World>);

#[async_trait]
impl StateStore for SimStore {
    async fn claim(&self, unit: &Unit) -> Result<Epoch, StoreError> {
        self.0.tick().await;
        // The claim can take effect even if the call fails.
        let mut state = self.0.lock();
        state.epoch += 1;
        let call = state.next_call();
        if state.is_troubled() && hits(7, call, self.0.scenario.open_fails) {
            return Err(StoreError::Unavailable("the store is away".into()));
        }
        Ok(Epoch { unit: unit.clone(), number: state.epoch })
    }

    async fn load(&self, _: &Epoch) -> Result<BTreeMap<LaneId, Mark>, StoreError> {
        Ok(self.0.marks())
    }

    async fn receipts(&self, _: &Epoch) -> Result<Vec<Receipt>, StoreError> {
        Ok(self.0.receipts())
    }

    async fn commit(&self, epoch: &Epoch, commit: Commit<'_>) -> Result<(), StoreError> {
        let world = &self.0;
        world.check_stored(commit.moves);
        world.check_removed(commit.drops);
        let (call, troubled) = {
            let mut state = world.lock();
            (state.next_call(), state.is_troubled())
        };
        world.tick().await;
        tokio::task::yield_now().await;
        if world.scenario.store_delay > 0 {
            world.lock().storing = true;
            tokio::time::sleep(Duration::from_millis(world.scenario.store_delay)).await;
            world.lock().storing = false;
        }
        if let Some(theirs) = world.refuses(epoch.number) {
            return Err(StoreError::Fenced { unit: epoch.unit.clone(), ours: epoch.number, theirs });
        }
        let fails = troubled && hits(5, call, world.scenario.store_fails);
        // The commit can take effect even if the call fails.
        if !fails || mix(call, 1).is_multiple_of(2) {
            world.lock().note(|| format!("stored {:?}", commit.moves));
            world.store(commit);
        }
        world.tick().await;
        tokio::task::yield_now().await;
        if fails { Err(StoreError::Unavailable("the store is away".into())) } else { Ok(()) }
    }
}
