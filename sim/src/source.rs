//! The simulated sources. Some of them are members of a consumer group.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::host::Host;
use anabranch_plugin::source::{Acker, OpenedSource, Read, Reader, Release, Replay, Room, Source, Start};
use anabranch_record::Position;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{Mark, Partition};
use async_trait::async_trait;
use tokio::time::Instant;

use crate::ends::passing;
use crate::record::record;
use crate::scenario::{Upstream, hits, mix};
use crate::world::{State, World, first, position};

/// Time for the rows of a revoked partition.
const REVOKED: Duration = Duration::from_secs(5);
/// A shorter one.
const HURRIED: Duration = Duration::from_millis(100);
/// Maximum time until the engine calls a source again, if nothing that the source knows of can delay it.
const PROMPT: Duration = Duration::from_millis(500);
/// Maximum time until a source that is full learns of a change, in milliseconds.
const UNTIL_CHANGE: u64 = 200;

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
        let mut lanes = Vec::new();
        let mut starts = BTreeMap::new();
        let ours = {
            let state = self.world.lock();
            (0..state.lanes.len()).filter(|lane| state.lanes[*lane].source == self.index).collect::<Vec<usize>>()
        };
        for lane in ours {
            // The source resumes only from the position that the engine sets.
            if let Some((partition, start)) = self.world.opens_lane(lane, resume) {
                lanes.push(lane);
                starts.insert(partition, start);
            }
        }
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
            expected: None,
        };
        let mut opened = OpenedSource::new(Box::new(reader), Box::new(SimAcker { source: source() }));
        opened.starts = starts;
        Ok(opened)
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
    /// When a lane came back or was taken away, if nothing else can delay the next call.
    expected: Option<Instant>,
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
        if troubled && let Some(change) = self.rebalance(call) {
            return Ok(change);
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

    async fn change(&mut self) -> Result<Read, Fault> {
        let world = self.source.world.clone();
        if self.source.spec().group.is_some() {
            self.check_delay();
            let (call, troubled) = {
                let mut state = world.lock();
                (state.next_call(), state.is_troubled())
            };
            sleep_up_to(UNTIL_CHANGE, call).await;
            if troubled && let Some(change) = self.rebalance(call) {
                return Ok(change);
            }
        }
        std::future::pending().await
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
        let Some(lane) = lane else { return Ok(Start::after_mark()) };
        let start = world.resumes(lane, mark);
        self.away.remove(&lane);
        self.returning.remove(&lane);
        Ok(start)
    }

    async fn stop(&mut self) -> Result<(), Fault> {
        self.source.world.tick().await;
        self.source.world.may_panic();
        Ok(())
    }
}

impl SimReader {
    /// Takes a partition away, in some calls. It comes back soon, or in the next run. A member of a group may learn of
    /// a partition that it does not have, or of one that it is getting back.
    fn rebalance(&mut self, call: u64) -> Option<Read> {
        let world = self.source.world.clone();
        let spec = self.source.spec();
        // Partitions that are lost during a commit, a flush, a transaction or an acknowledgement are seldom without help.
        let is_busy = {
            let state = world.lock();
            if spec.group.is_some() { state.is_busy() } else { state.storing }
        };
        let is_busy = spec.revokes > 0 && is_busy;
        if !hits(6, call, if is_busy { 2 } else { spec.revokes }) {
            return None;
        }
        let lanes = self.lanes.iter().copied();
        let known: Vec<usize> = lanes.filter(|lane| spec.group.is_some() || !self.away.contains_key(lane)).collect();
        let lane = *known.get(call as usize % known.len().max(1))?;
        self.expected = self.is_prompt(&world.lock(), lane);
        self.away.insert(lane, (spec.comes_back > 0).then_some(self.reads + spec.comes_back));
        self.returning.remove(&lane);
        self.progress = self.progress.filter(|(other, _)| *other != lane);
        if mix(call, 11).is_multiple_of(if is_busy { 2 } else { 3 }) {
            return Some(Read::Lost(world.lost(lane)));
        }
        // A short time ends while transactions hold rows of the partition.
        let within = if mix(call, 12).is_multiple_of(3) { HURRIED } else { REVOKED };
        Some(Read::Revoked { partition: world.revoked(lane), within })
    }

    /// Returns the time, if the next call cannot be delayed: only a window or a batch that is full may do that.
    fn is_prompt(&self, state: &State, lane: usize) -> Option<Instant> {
        let scenario = &self.source.world.scenario;
        let is_free = scenario.held_bytes >= 1 << 20
            && !scenario.has_threads()
            && self.source.spec().batch.is_none()
            && (scenario.replay_rows >= 1000 || state.holds_only(self.source.index, lane));
        is_free.then(Instant::now)
    }

    /// Checks that the engine does not wait for a lane that was taken away or came back before it reads others.
    fn check_delay(&mut self) {
        let Some(since) = self.expected.take() else { return };
        if since.elapsed() > PROMPT {
            self.source
                .world
                .breaks(|| "the source waits for a partition that was revoked or assigned again".to_owned());
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
            let lane = *lane;
            self.returning.insert(lane);
            self.expected = self.is_prompt(&state, lane);
            return Some(Read::Assigned(state.returns(lane)));
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
            // A row that fails comes alone.
            let failing = (from..upto).find(|row| spec.fails(first(lane, *row)));
            let upto = failing.map_or(upto, |row| row.max(from + 1));
            let fails = failing == Some(from);
            at.gives(upto);
            let partition = at.id.partition.clone();
            if hits(2, u64::from(upto), spec.progress) {
                self.progress = Some((lane, upto - 1));
            }
            state.note(|| format!("rows {from}..{upto} of lane {lane} are read"));
            drop(state);
            world.read(lane, (from..upto).map(|row| spec.position(lane, row)));
            world.holds(lane, (upto - from) as usize, weight);
            let mut records = (from..upto).map(|row| record(first(lane, row), spec.position(lane, row)));
            if fails && let Some(record) = records.next() {
                let fault = Fault::record(anabranch_plugin::testing::codes::FAILED, "the source cannot pass it on");
                return Some(Read::Failed { partition, record: Box::new(record), fault });
            }
            return Some(Read::Rows { partition, records: records.collect() });
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
        let (spec, source) = (self.source.spec(), self.source.index);
        world.check_acknowledged(source, partition);
        let (call, troubled, assignment) = {
            let mut state = world.lock();
            (state.next_call(), state.is_troubled(), state.assignment(source, partition))
        };
        world.tick().await;
        if let Some(group) = &spec.group {
            let _busy = world.busy();
            sleep_up_to(group.ack_delay, call).await;
        }
        if world.is_lost(source, partition) {
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
        world.acked(source, partition, positions, assignment);
        world.tick().await;
        Ok(())
    }

    async fn close(&mut self) -> Result<(), Fault> {
        self.source.world.tick().await;
        self.source.world.may_panic();
        Ok(())
    }
}
