//! Reads chunks beside a stream, one at a time, and passes their rows on.

use std::time::Duration;

use anabranch_graph::mutant::{Mutant, is_active};
use anabranch_plugin::source::Read;
use anabranch_record::Record;
use tokio::time::{Instant, sleep_until};

use super::backfills::Backfill;
use super::changes::Chunk;
use super::driver::{Driver, Ended, Follower};
use super::position::range;
use super::world::record;

/// Time after which a chunk is begun again that cannot be merged with the stream yet.
const AGAIN: Duration = Duration::from_millis(200);

/// The reading of chunks beside a stream.
pub(super) enum Filling {
    /// A chunk is to be begun, if rows are left.
    Idle,
    /// A chunk is begun again at this time.
    Again(Instant),
    /// The server has the rows of a chunk at this time.
    Reading(Backfill, Instant),
    /// A chunk waits for the stream.
    Merging(Backfill),
}

impl Filling {
    /// Waits until something is to be done.
    pub(super) fn looked(&self) -> impl Future<Output = ()> + use<> {
        let at = match self {
            Filling::Again(at) | Filling::Reading(_, at) => Some(*at),
            Filling::Idle | Filling::Merging(_) => None,
        };
        async move {
            match at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        }
    }
}

impl Driver {
    /// Begins a chunk if rows are to be read, or passes on the rows of one if the stream has come to its place.
    pub(super) async fn fill(&self, follower: &mut Follower) -> Result<(), Ended> {
        loop {
            match std::mem::replace(&mut follower.filling, Filling::Idle) {
                Filling::Idle => match self.backfills.next().await {
                    Some(backfill) => self.begin_chunk(backfill, follower).await?,
                    None => {
                        self.finish_lane(follower).await?;
                        follower.changes.end_windows();
                        follower.watched = None;
                        return Ok(());
                    }
                },
                Filling::Again(at) if at <= Instant::now() => {}
                Filling::Reading(backfill, at) if at <= Instant::now() => {
                    follower.filling = self.read_chunk(backfill, follower).await;
                }
                Filling::Merging(backfill) => {
                    let Some(chunk) = follower.changes.close_window() else {
                        follower.filling = Filling::Merging(backfill);
                        return Ok(());
                    };
                    self.pass_on_chunk(chunk, backfill, follower).await?;
                }
                waiting => {
                    follower.filling = waiting;
                    return Ok(());
                }
            }
        }
    }

    async fn begin_chunk(&self, backfill: Backfill, follower: &mut Follower) -> Result<(), Ended> {
        if follower.lane.as_ref().is_none_or(|(lane, _)| *lane != backfill.lane()) {
            self.finish_lane(follower).await?;
            follower.lane = Some((backfill.lane(), 0));
        }
        follower.changes.open_window();
        // Ids of transactions that began before the stream was watched are lower.
        follower.watched.get_or_insert_with(|| self.world.lock().database.begin_reading());
        let takes = self.world.scenario.chunk_time(self.world.next());
        follower.filling = Filling::Reading(backfill, Instant::now() + takes);
        Ok(())
    }

    /// Reads a chunk.
    async fn read_chunk(&self, backfill: Backfill, follower: &mut Follower) -> Filling {
        self.world.tick().await;
        let scenario = &self.world.scenario;
        let chunk = {
            let state = self.world.lock();
            let (snapshot, until) = (state.database.snapshot(), state.database.end());
            if follower.watched.is_some_and(|watched| snapshot.oldest < watched) {
                None
            } else {
                let mut rows = state.database.rows(&snapshot);
                rows.retain(|row| backfill.next.is_some_and(|next| row.change.key >= next));
                let is_last = rows.len() <= scenario.chunk;
                rows.truncate(scenario.chunk);
                let last = rows.last().map(|row| row.change.key).filter(|_| !is_last);
                Some(Chunk { rows: rows.iter().map(|row| Some(row.change)).collect(), snapshot, until, last })
            }
        };
        let Some(chunk) = chunk else {
            follower.changes.drop_window();
            return Filling::Again(Instant::now() + AGAIN);
        };
        match follower.changes.merge(chunk) {
            true => Filling::Merging(backfill),
            false => Filling::Again(Instant::now() + AGAIN),
        }
    }

    /// Passes on the rows of a chunk, after all changes before it are delivered and stored, and returns when its rows are.
    async fn pass_on_chunk(&self, chunk: Chunk, backfill: Backfill, follower: &mut Follower) -> Result<(), Ended> {
        self.send(follower).await?;
        if !is_active(Mutant::ChunkOvertakesStream) {
            let before = follower.changes.recorded;
            let is_stored = || (self.acknowledged.confirmed() >= before).then_some(());
            self.events.unless_closed(self.acknowledged.when(is_stored)).await?;
        }
        if let Some((lane, count)) = &mut follower.lane {
            let row = |change| {
                *count += 1;
                record(change, lane, range(backfill.attempt, *count, false))
            };
            let records: Vec<Record> = chunk.rows.into_iter().flatten().map(row).collect();
            if let Some(last) = records.last().map(|record| record.position().clone()) {
                let lane = lane.clone();
                self.events.send(Read::Rows { partition: lane.clone(), records }).await?;
                self.events.unless_closed(self.acknowledged.reaches(&lane, &last)).await?;
            }
        }
        if self.backfills.note(backfill, chunk.last.map(|last| last + 1)).await? {
            self.finish_lane(follower).await?;
        }
        Ok(())
    }

    async fn finish_lane(&self, follower: &mut Follower) -> Result<(), Ended> {
        let Some((lane, _)) = follower.lane.take().filter(|(_, rows)| *rows > 0) else { return Ok(()) };
        self.acknowledged.forget(&lane);
        self.events.send(Read::Finished(lane)).await
    }
}
