//! The course of a source: the slot, the snapshot, then the changes, and rows beside them. Each step begins when the
//! positions of the step before are stored.

use std::sync::Arc;
use std::time::Duration;

use anabranch_graph::mutant::{Mutant, is_active};
use anabranch_plugin::source::Read;
use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_record::mark::Partition;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::acknowledged::Acknowledged;
use super::backfills::Backfills;
use super::changes::{Changes, Streamed};
use super::database::{Cursor, Message, Xid};
use super::filling::Filling;
use super::plan::Plan;
use super::position::{BACKFILL, CHANGES, ChangePosition, PLAN, Stage};
use super::world::{World, record};
use crate::ends::passing;

/// Time between two positions that move without a record, and between two reports to the server.
const PROGRESS: Duration = Duration::from_secs(1);
/// Why a task of the source ends early.
pub(super) enum Ended {
    /// The source is being closed.
    Stopped,
    /// It failed.
    Failed(Fault),
}

/// Passes events on to the reader.
#[derive(Clone)]
pub(super) struct Events(pub(super) mpsc::Sender<Result<Read, Fault>>);

impl Events {
    /// Passes on an event, when the reader has room for it.
    ///
    /// # Errors
    /// The source is being closed.
    pub(super) async fn send(&self, read: Read) -> Result<(), Ended> {
        self.0.send(Ok(read)).await.map_err(|_| Ended::Stopped)
    }

    /// Waits for something.
    ///
    /// # Errors
    /// The source is being closed.
    pub(super) async fn unless_closed<T>(&self, wait: impl Future<Output = T>) -> Result<T, Ended> {
        tokio::select! {
            done = wait => Ok(done),
            () = self.0.closed() => Err(Ended::Stopped),
        }
    }
}

/// The step with which a run begins.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// Create the slot; `true` if it is not stored yet that this source creates it.
    Create(bool),
    /// Read what is left of a snapshot, and the changes from a position on.
    Snapshot(ChangePosition),
    /// Read the changes from a position on.
    Changes(ChangePosition),
    /// Read the changes from a position on, and all rows beside them.
    Incremental(ChangePosition),
}

/// Runs a source.
pub(super) struct Driver {
    pub(super) world: Arc<World>,
    pub(super) events: Events,
    pub(super) acknowledged: Arc<Acknowledged>,
    pub(super) backfills: Arc<Backfills>,
    pub(super) step: Step,
    pub(super) plan: Plan,
    /// Lanes of earlier runs without further records.
    pub(super) finished: Vec<Partition>,
}

impl Driver {
    /// Runs until the source is closed.
    ///
    /// # Errors
    /// The connection broke.
    pub(super) async fn run(mut self) -> Result<(), Ended> {
        for lane in std::mem::take(&mut self.finished) {
            self.events.send(Read::Finished(lane)).await?;
        }
        self.world.note(|| format!("the source begins with {:?}", self.step));
        let from = match self.step {
            Step::Changes(from) => from,
            Step::Incremental(from) => self.begin_incremental(from).await?,
            Step::Create(is_new) => self.create(is_new).await?,
            Step::Snapshot(from) => self.resume_snapshot(from).await?,
        };
        self.backfills.resume().await?;
        self.follow(from, None).await
    }

    /// Stores that all rows are read beside the changes, and then that the changes are read.
    async fn begin_incremental(&mut self, from: ChangePosition) -> Result<ChangePosition, Ended> {
        self.backfills.add().await?;
        self.store(from).await?;
        Ok(from)
    }

    /// Passes on a position of the changes, and waits until it is stored.
    pub(super) async fn store(&self, position: ChangePosition) -> Result<(), Ended> {
        let position = position.encode();
        self.events.send(Read::Progress(CHANGES, position.clone())).await?;
        self.events.unless_closed(self.acknowledged.reaches(&CHANGES, &position)).await
    }

    /// Waits until all transactions that write now have ended, as the creation of a slot does.
    async fn wait_for_writers(&self) {
        let writers: Vec<Xid> = self.world.lock().database.running().collect();
        while self.world.lock().database.running().any(|xid| writers.contains(&xid)) {
            self.world.moved().await;
        }
        self.world.tick().await;
    }

    async fn create(&mut self, is_new: bool) -> Result<ChangePosition, Ended> {
        if is_new {
            // After a crash, a slot that exists is known to be ours.
            self.store(ChangePosition::at(Stage::Intent, 0)).await?;
        }
        self.wait_for_writers().await;
        let (snapshot, at) = {
            let mut state = self.world.lock();
            state.database.create_slot();
            (state.database.snapshot_of_slot(), state.database.end())
        };
        self.world.note(|| format!("the slot is created at {at}"));
        self.world.tick().await;
        let from = ChangePosition::at(Stage::Changes, at);
        if self.world.scenario.is_incremental {
            return self.begin_incremental(from).await;
        }
        self.store(ChangePosition::at(Stage::Snapshot, at)).await?;
        self.read_snapshot(&snapshot, from).await?;
        Ok(from)
    }

    /// Reads the rest of a snapshot that an earlier run began: first the changes up to a new snapshot, then the rows that are
    /// left.
    async fn resume_snapshot(&mut self, from: ChangePosition) -> Result<ChangePosition, Ended> {
        self.wait_for_writers().await;
        let (snapshot, at) = {
            let state = self.world.lock();
            (state.database.snapshot_of_slot(), state.database.end())
        };
        let after = ChangePosition::at(Stage::Changes, at);
        if is_active(Mutant::RangeResumedWithoutThePoint) {
            let from = ChangePosition { stage: Stage::Changes, ..from };
            self.read_snapshot(&snapshot, from).await?;
            return Ok(from);
        }
        self.follow(from, Some(at)).await?;
        self.store(ChangePosition::at(Stage::Snapshot, at)).await?;
        self.read_snapshot(&snapshot, after).await?;
        Ok(after)
    }

    /// Reads the changes from a position on: until the source is closed, or all transactions that were committed before
    /// `limit` are read.
    async fn follow(&mut self, from: ChangePosition, limit: Option<u64>) -> Result<(), Ended> {
        self.world.check_start(from.end);
        let cursor = self.world.lock().database.send_from(from.end);
        self.acknowledged.set_streaming(true);
        let changes = Changes::new(from, limit);
        let mut follower = Follower { changes, records: Vec::new(), filling: Filling::Idle, lane: None, watched: None };
        let followed = self.pass_on(cursor, &mut follower, limit.is_none()).await;
        self.acknowledged.set_streaming(false);
        followed
    }

    async fn pass_on(&self, mut cursor: Cursor, follower: &mut Follower, fills: bool) -> Result<(), Ended> {
        let mut tick = Instant::now() + PROGRESS;
        loop {
            if fills {
                self.fill(follower).await?;
            }
            let message = self.world.lock().database.send(&mut cursor);
            match message {
                Some(message) => {
                    self.world.tick().await;
                    if self.world.breaks_connection() {
                        return Err(Ended::Failed(passing("the connection broke")));
                    }
                    if let (Message::Sent(place), true) = (message, is_active(Mutant::ConfirmsFromKeepalive)) {
                        self.world.lock().database.confirm(place);
                    }
                    let is_reached = follower.changes.take(message, &mut follower.records);
                    if is_reached || follower.records.len() >= self.world.scenario.per_read {
                        self.send(follower).await?;
                    }
                    if is_reached {
                        return Ok(());
                    }
                }
                None => {
                    self.send(follower).await?;
                    let look = follower.filling.looked();
                    tokio::select! {
                        biased;
                        () = self.world.moved() => {}
                        () = look => {}
                        () = self.backfills.added(), if fills => {}
                        () = sleep_until(tick) => {}
                        () = self.events.0.closed() => return Err(Ended::Stopped),
                    }
                }
            }
            if Instant::now() >= tick {
                tick = Instant::now() + PROGRESS;
                self.world.lock().database.confirm(self.acknowledged.confirmed());
                self.world.tick().await;
                self.move_on(follower).await?;
            }
        }
    }

    /// Passes on the records that are complete.
    pub(super) async fn send(&self, follower: &mut Follower) -> Result<(), Ended> {
        if follower.records.is_empty() {
            return Ok(());
        }
        let record = |(change, position): Streamed| record(change, &CHANGES, position.encode());
        let records: Vec<Record> = follower.records.drain(..).map(record).collect();
        self.events.send(Read::Rows { partition: CHANGES, records }).await
    }

    /// Passes on the place up to which there is nothing to read.
    pub(super) async fn move_on(&self, follower: &mut Follower) -> Result<(), Ended> {
        match follower.changes.progress() {
            Some(position) => self.events.send(Read::Progress(CHANGES, position.encode())).await,
            None => Ok(()),
        }
    }
}

/// The state of a stream that is read.
pub(super) struct Follower {
    pub(super) changes: Changes,
    pub(super) records: Vec<Streamed>,
    pub(super) filling: Filling,
    /// The lane of the rows that are read beside the stream, and their number.
    pub(super) lane: Option<(Partition, u64)>,
    /// A transaction that began after the stream was first watched.
    pub(super) watched: Option<Xid>,
}

/// Returns the lanes other than those that are never finished by a crash.
pub(super) fn is_of_rows(lane: &Partition) -> bool {
    ![CHANGES, PLAN, BACKFILL].contains(lane)
}
