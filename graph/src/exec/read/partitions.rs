//! Partitions of a source that come and go.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use anabranch_plugin::source::{Read, Release, Start};
use anabranch_record::Position;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{LaneId, Mark, Partition};
use futures::future::{AbortHandle, Abortable, BoxFuture};
use futures::poll;
use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

use super::Reading;
use crate::ack::LaneIndex;
use crate::codes;
use crate::exec::Interrupt;
use crate::exec::context::Context;
use crate::exec::lanes::{Change, Lanes};
use crate::exec::receipt::Confirmed;

/// A partition that is assigned again and can be read: its lane, if it was read in this run, and the mark after which it
/// continues.
type Returned = (Partition, Option<LaneIndex>, Option<Mark>);
type Returning = Abortable<BoxFuture<'static, Result<Returned, Fault>>>;

/// Partitions that another instance owns, or owned.
#[derive(Default)]
pub(super) struct Away {
    /// Lanes of revoked and lost partitions.
    lanes: BTreeMap<Partition, LaneIndex>,
    /// Partitions that are assigned again, and whose earlier rows are not given up yet.
    returning: BTreeMap<Partition, (Option<LaneIndex>, AbortHandle)>,
    waits: FuturesUnordered<Returning>,
}

impl Away {
    /// Waits for a partition whose earlier rows are given up. Never completes if none is assigned again. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Returned, Fault> {
        loop {
            match self.waits.next().await {
                // A partition that was taken away again.
                Some(Err(_)) => {}
                Some(Ok(returned)) => {
                    if let Ok((partition, ..)) = &returned {
                        self.returning.remove(partition);
                    }
                    return returned;
                }
                None => std::future::pending::<()>().await,
            }
        }
    }

    /// Takes a returning partition away again. Returns its lane.
    fn stop_returning(&mut self, partition: &Partition) -> Option<LaneIndex> {
        let (lane, wait) = self.returning.remove(partition)?;
        wait.abort();
        lane
    }

    fn contains(&self, partition: &Partition) -> bool {
        self.lanes.contains_key(partition) || self.returning.contains_key(partition)
    }
}

/// The partitions that were finished in this run, in a fixed amount of memory: a set of hashes. A partition that is
/// wrongly found in it only begins a later generation.
#[derive(Default)]
pub(super) struct Finished {
    bits: Vec<u64>,
    /// Highest generation of a finished lane.
    generation: u64,
}

impl Finished {
    /// 64 KiB.
    const WORDS: usize = 1 << 13;

    fn place(partition: &Partition) -> (usize, u64) {
        let mut hasher = DefaultHasher::new();
        partition.hash(&mut hasher);
        let bit = hasher.finish() as usize % (Self::WORDS * 64);
        (bit / 64, 1 << (bit % 64))
    }

    fn add(&mut self, partition: &Partition, generation: u64) {
        let (word, bit) = Self::place(partition);
        self.bits.resize(Self::WORDS, 0);
        self.bits[word] |= bit;
        self.generation = self.generation.max(generation);
    }

    fn may_contain(&self, partition: &Partition) -> bool {
        let (word, bit) = Self::place(partition);
        self.bits.get(word).is_some_and(|bits| bits & bit != 0)
    }
}

/// Returns the mark with which a lane begins a new generation. It is later than any stored generation, here or at a
/// destination, and without a stored one later than any of a finished partition with the same name.
pub(in crate::exec) fn beginning(
    confirmed: &Confirmed,
    epoch: u64,
    id: &LaneId,
    mark: Option<&Mark>,
    at: Option<&Position>,
) -> Mark {
    let stored = mark.map_or(epoch.max(1), |mark| mark.generation);
    let generation = stored.max(confirmed.generation(id)) + 1;
    let position = at.or(mark.map(|mark| &mark.position)).cloned();
    Mark { generation, seq: 0, position: position.unwrap_or_else(|| Position::copy_from(b"")) }
}

impl Reading {
    /// Waits for `work`. Meanwhile asks the source for its backlog, and handles changes of its partitions.
    pub(super) async fn wait_for<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Interrupt> {
        let meters = self.output.meters();
        let mut work = pin!(work);
        if let Poll::Ready(done) = poll!(&mut work) {
            return Ok(done);
        }
        loop {
            let change = tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                () = self.questions.beside_wait() => None,
                asked = self.inbox.next() => {
                    self.ask_source(asked).await;
                    continue;
                }
                change = self.reader.change() => Some(change),
            };
            match change {
                None => self.questions.ask(&mut *self.reader, &meters).await,
                Some(change) => match self.named(change)? {
                    // Rows of the partition may wait here for room.
                    Read::Finished(partition) => self.to_finish.push(partition),
                    change => self.note_change(change).await?,
                },
            }
        }
    }

    /// Returns the lane of a partition when its window has room for `rows` rows; `None` if the partition was taken away
    /// meanwhile, so that the rows are another owner's.
    pub(super) async fn lane_with_room(
        &mut self,
        partition: &Partition,
        rows: usize,
    ) -> Result<Option<LaneIndex>, Interrupt> {
        let lane = self.lane(partition).await?;
        let context = self.context().clone();
        let room = context.lanes.lane_room(lane, rows);
        match self.revoking.as_ref().filter(|(revoked, _)| revoked == partition).map(|(_, until)| *until) {
            None => self.wait_for(room).await?,
            Some(until) => {
                if self.wait_for(timeout_at(until, room)).await?.is_err() {
                    self.revoke_pending();
                }
            }
        }
        let found = self.lanes.get(partition).copied().filter(|found| *found == lane);
        if found.is_none() {
            context.lanes.leaves_rows(lane);
        }
        Ok(found)
    }

    /// Returns the partition of a read, if this instance owns it.
    pub(super) fn owned_partition(&self, read: &Read) -> Option<Partition> {
        match read {
            Read::Rows { partition, .. }
            | Read::Failed { partition, .. }
            | Read::Progress(partition, _)
            | Read::Finished(partition) => Some(partition.clone()).filter(|partition| !self.away.contains(partition)),
            _ => None,
        }
    }

    /// Revokes the partition whose batch was sent.
    pub(super) fn revoke_pending(&mut self) {
        if let Some((partition, until)) = self.revoking.take() {
            self.revoke(partition, until.saturating_duration_since(Instant::now()));
        }
    }

    async fn lane(&mut self, partition: &Partition) -> Result<LaneIndex, Interrupt> {
        if let Some(lane) = self.lanes.get(partition) {
            return Ok(*lane);
        }
        if self.away.contains(partition) {
            return Err(self.misused(partition, "read", "assigned to another consumer").into());
        }
        let context = self.context().clone();
        let id = Lanes::lane_id(&self.connector, partition);
        if self.finished.may_contain(partition) && !self.resume.contains_key(partition) {
            context.lanes.no_longer_finishing(&id).await;
            let generation = self.finished.generation.max(context.confirmed.generation(&id)) + 1;
            self.finished.generation = generation;
            let mark = Mark::beginning(generation);
            begin(&context, id.clone(), mark.clone()).await?;
            self.resume.insert(partition.clone(), mark);
        }
        let exact = self.starts.get(partition).unwrap_or(&Start::default()).is_exact(self.replay);
        let lane = context.lanes.add(self.source, id, self.resume.get(partition), exact)?;
        self.lanes.insert(partition.clone(), lane);
        Ok(lane)
    }

    /// Handles an event that brings no records.
    pub(super) async fn note_change(&mut self, change: Read) -> Result<(), Interrupt> {
        self.revoke_pending();
        match change {
            Read::Revoked { partition, within } => {
                let lane = self.lanes.get(&partition).copied();
                self.revoke(partition, within);
                if mutant!(RevokeStallsOthers)
                    && let Some(lane) = lane
                {
                    self.context().lanes.has_left(lane).await;
                }
            }
            Read::Lost(partition) => self.lose(partition),
            Read::Finished(partition) => self.finish(partition).await?,
            Read::Assigned(partition) => self.assign(partition).await?,
            Read::Rows { partition, .. } | Read::Failed { partition, .. } | Read::Progress(partition, _) => {
                return Err(self.misused(&partition, "read without room", "one with changes").into());
            }
            Read::CaughtUp | Read::End => {
                let what = "the source reported that it has caught up or ended as a change of its partitions";
                return Err(Fault::fatal(codes::PARTITION_UNEXPECTED, what).at(&self.connector).into());
            }
        }
        Ok(())
    }

    /// Handles a revoked partition: its open rows may be delivered for a limited time and are then abandoned.
    fn revoke(&mut self, partition: Partition, within: Duration) {
        self.awaiting.take_if(|awaiting| *awaiting == partition);
        let context = self.context().clone();
        let Some(lane) = self.lanes.remove(&partition) else {
            match self.away.stop_returning(&partition) {
                Some(lane) => {
                    context.lanes.leaves(lane);
                    context.lanes.give_up_lane(lane);
                    self.away.lanes.insert(partition, lane);
                }
                None if self.away.lanes.contains_key(&partition) => {}
                None => context.lanes.released(self.source, partition, Release::Drained),
            }
            return;
        };
        context.lanes.leaves(lane);
        if mutant!(CommitAfterRevoke) {
            context.lanes.released(self.source, partition.clone(), Release::Abandoned);
        }
        let task = context.clone();
        context.spawn(async move {
            tokio::select! {
                () = task.halt.wait() => return,
                () = task.drained.wait() => return,
                _ = timeout(within, task.lanes.has_left(lane)) => {}
            }
            // First, because the lane may be renewed as soon as it is given up.
            if let Some(traces) = &task.traces {
                traces.abandoned(lane, "its partition was assigned to another consumer");
            }
            task.lanes.give_up_lane(lane);
        });
        self.away.lanes.insert(partition, lane);
    }

    /// Handles a lost partition: nothing of it is stored or acknowledged from here on.
    fn lose(&mut self, partition: Partition) {
        self.awaiting.take_if(|awaiting| *awaiting == partition);
        let context = self.context().clone();
        let returning = self.away.stop_returning(&partition);
        let known = self.lanes.remove(&partition).or(returning).or_else(|| self.away.lanes.get(&partition).copied());
        let Some(lane) = known else {
            return context.lanes.released(self.source, partition, Release::Abandoned);
        };
        context.lanes.lose(lane);
        if let Some(traces) = &context.traces {
            traces.abandoned(lane, "its partition was lost to another consumer");
        }
        self.away.lanes.insert(partition, lane);
    }

    /// Handles a finished partition.
    pub(super) async fn finish(&mut self, partition: Partition) -> Result<(), Interrupt> {
        if self.away.contains(&partition) {
            return Err(self.misused(&partition, "finished", "assigned to another consumer").into());
        }
        let context = self.context().clone();
        self.starts.remove(&partition);
        let stored = self.resume.remove(&partition);
        let Some(lane) = self.lanes.remove(&partition) else {
            if let Some(mark) = stored {
                self.finished.add(&partition, mark.generation);
                context.lanes.change(Change::Remove(Lanes::lane_id(&self.connector, &partition)));
            }
            context.lanes.released(self.source, partition, Release::Finished);
            return Ok(());
        };
        self.finished.add(&partition, context.lanes.generation(lane));
        tokio::select! {
            biased;
            () = context.stopping.wait() => {}
            () = context.lanes.finish(lane) => {}
        }
        Ok(())
    }

    /// Handles an assigned partition. If it was taken away before, it is read when its earlier rows are delivered or
    /// abandoned, so that a row is never written by two instances at a time. Other partitions are read meanwhile.
    async fn assign(&mut self, partition: Partition) -> Result<(), Interrupt> {
        if self.lanes.contains_key(&partition) || self.away.returning.contains_key(&partition) {
            return Err(self.misused(&partition, "was assigned", "already its own").into());
        }
        let context = self.context().clone();
        let lane = self.away.lanes.remove(&partition);
        let mark = self.resume.get(&partition).cloned();
        if lane.is_none() && !context.lanes.is_reported_later(self.source, &partition) {
            return self.go_on(partition, None, mark).await;
        }
        let (wait, registration) = AbortHandle::new_pair();
        self.away.returning.insert(partition.clone(), (lane, wait));
        let source = self.source;
        let renewed: BoxFuture<'static, _> = Box::pin(async move {
            let Some(lane) = lane else {
                context.lanes.is_reported(source, &partition).await;
                return Ok((partition, None, mark));
            };
            let (lane, mark) = context.lanes.renew(lane).await?;
            Ok((partition, Some(lane), mark))
        });
        self.away.waits.push(Abortable::new(renewed, registration));
        if mutant!(ReturnStallsOthers) {
            self.resume_all_returned().await?;
        }
        Ok(())
    }

    /// Resumes a partition whose earlier rows are given up.
    pub(super) async fn resume_returned(&mut self, (partition, lane, mark): Returned) -> Result<(), Interrupt> {
        if let Some(lane) = lane {
            self.lanes.insert(partition.clone(), lane);
        }
        self.go_on(partition, lane, mark).await
    }

    /// Resumes all partitions that are assigned again. Returns `false` if there are none.
    pub(super) async fn resume_all_returned(&mut self) -> Result<bool, Interrupt> {
        let context = self.context().clone();
        let mut any = false;
        while !self.away.returning.is_empty() {
            any = true;
            tokio::select! {
                biased;
                () = context.stopping.wait() => return Ok(false),
                returned = self.away.next() => self.resume_returned(returned?).await?,
            }
        }
        Ok(any)
    }

    async fn go_on(
        &mut self,
        partition: Partition,
        lane: Option<LaneIndex>,
        mark: Option<Mark>,
    ) -> Result<(), Interrupt> {
        let context = self.context().clone();
        // A lane that was reset has a generation but no position.
        let after = mark.as_ref().filter(|mark| self.takes_resets || !mark.position.0.is_empty());
        let went_on = self.reader.go_on(&partition, after).await;
        let start = self.named(went_on)?;
        let exact = start.is_exact(self.replay);
        if start.is_elsewhere() && !mutant!(ElsewhereContinues) {
            let id = Lanes::lane_id(&self.connector, &partition);
            let mark =
                beginning(&context.confirmed, self.claims.number(&partition), &id, mark.as_ref(), start.position());
            begin(&context, id, mark.clone()).await?;
            if let Some(lane) = lane {
                self.lanes.insert(partition.clone(), context.lanes.restart(lane, mark.clone())?);
            }
            self.resume.insert(partition.clone(), mark);
        }
        if let Some(lane) = self.lanes.get(&partition) {
            context.lanes.set_exact(*lane, exact);
        }
        self.starts.insert(partition, start);
        Ok(())
    }
}

/// Stores the beginning of a generation.
async fn begin(context: &Context, id: LaneId, mark: Mark) -> Result<(), Interrupt> {
    let (stored, done) = oneshot::channel();
    context.lanes.change(Change::Begin { id, mark, stored });
    // The commit loop ends only with the run.
    done.await.map_err(|_| Interrupt::GaveUp)
}
