//! Sources.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anabranch_graph::fault::Fault;
use anabranch_graph::operator::Host;
use anabranch_graph::record::Position;
use anabranch_graph::source::{Acker, Mark, Partition, Read, Reader, Room, Source};
use async_trait::async_trait;

use super::{passing, record, sleep_up_to};
use crate::scenario::{Upstream, hits};
use crate::world::{World, first, position};

impl Upstream {
    /// The position of a row of a lane of this source.
    pub fn position(&self, lane: usize, row: u32) -> Position {
        position(lane, if self.twins { row & !1 } else { row }, b'r')
    }
}

/// Source `index` of the scenario.
pub struct SimSource {
    /// The world.
    pub world: Arc<World>,
    /// Its number.
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

    fn replays_exactly(&self) -> bool {
        true
    }

    async fn open(
        &self,
        resume: &BTreeMap<Partition, Mark>,
        _: &Host,
    ) -> Result<(Box<dyn Reader>, Box<dyn Acker>), Fault> {
        self.world.opening().await?;
        let mut state = self.world.lock();
        let mut lanes = Vec::new();
        for (i, lane) in state.lanes.iter_mut().enumerate().filter(|(_, lane)| lane.source == self.index) {
            // It goes on where the engine says, and only there.
            lane.next = resume.get(&lane.id.partition).map_or(0, |mark| lane.rows_upto(mark).unwrap_or(0));
            lane.acked = lane.next;
            lanes.push(i);
        }
        drop(state);
        let source = || SimSource { world: self.world.clone(), index: self.index };
        let away = BTreeMap::new();
        let reader = SimReader { source: source(), lanes, turn: 0, reads: 0, progress: None, caught_up: false, away };
        Ok((Box::new(reader), Box::new(SimAcker { source: source() })))
    }
}

struct SimReader {
    source: SimSource,
    lanes: Vec<usize>,
    turn: usize,
    reads: u64,
    /// A position that comes next, without a record.
    progress: Option<(usize, u32)>,
    caught_up: bool,
    /// Lanes that are somebody else's, and after how many reads they come back, if they do.
    away: BTreeMap<usize, Option<u64>>,
}

#[async_trait]
impl Reader for SimReader {
    async fn read(&mut self, room: Room) -> Result<Read, Fault> {
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
        if troubled
            && hits(6, call, spec.revokes)
            && let Some(partition) = self.revoke(call)
        {
            return Ok(Read::Revoked(partition));
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

    async fn go_on(&mut self, partition: &Partition, mark: Option<&Mark>) -> Result<(), Fault> {
        let world = &self.source.world;
        world.tick().await;
        let lanes = self.lanes.iter().copied();
        let lane = {
            let state = world.lock();
            lanes.into_iter().find(|lane| state.lanes[*lane].id.partition == *partition)
        };
        if let Some(lane) = lane {
            world.goes_on(lane, mark);
            self.away.remove(&lane);
        }
        Ok(())
    }

    async fn stop(&mut self) -> Result<(), Fault> {
        self.source.world.tick().await;
        self.source.world.may_panic();
        Ok(())
    }
}

impl SimReader {
    /// A partition becomes somebody else's; it comes back soon, or in the next run.
    fn revoke(&mut self, call: u64) -> Option<Partition> {
        let here: Vec<usize> = self.lanes.iter().copied().filter(|lane| !self.away.contains_key(lane)).collect();
        let lane = *here.get(call as usize % here.len().max(1))?;
        let comes_back = self.source.spec().comes_back;
        self.away.insert(lane, (comes_back > 0).then_some(self.reads + comes_back));
        self.progress = self.progress.filter(|(other, _)| *other != lane);
        Some(self.source.world.revoked(lane))
    }

    fn waits_for_a_lane(&self) -> bool {
        self.away.values().any(Option::is_some)
    }

    /// What there is to read; `None` where there is nothing to wait for.
    fn give(&mut self, room: Room) -> Option<Read> {
        let world = self.source.world.clone();
        let spec = self.source.spec();
        self.reads += 1;
        let mut state = world.lock();
        if let Some((lane, back)) = self.away.iter_mut().find(|(_, back)| back.is_some_and(|back| back <= self.reads)) {
            // It stays away until it is told where it goes on.
            *back = None;
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
        if self.waits_for_a_lane() {
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
    async fn ack(&mut self, partition: &Partition, positions: &[Position]) -> Result<(), Fault> {
        let world = &self.source.world;
        let spec = self.source.spec();
        let (call, troubled) = {
            let mut state = world.lock();
            (state.next_call(), state.is_troubled())
        };
        world.tick().await;
        if troubled && hits(3, call, spec.ack_hangs) {
            world.hang().await;
        }
        world.may_panic();
        if troubled && hits(4, call, spec.ack_fails) {
            return Err(passing("the source cannot be told"));
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
