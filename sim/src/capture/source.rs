//! A source that reads the database like `postgres` reads PostgreSQL.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use anabranch_plugin::host::Host;
use anabranch_plugin::source::{Acker, OpenedSource, Read, Reader, Release, Request, Requested, Room, Source};
use anabranch_record::fault::Fault;
use anabranch_record::mark::{Mark, Partition};
use anabranch_record::{Position, Record};
use async_trait::async_trait;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::acknowledged::Acknowledged;
use super::backfills::{Backfill, Backfills};
use super::driver::{Driver, Ended, Events, Step, is_of_rows};
use super::plan::Plan;
use super::position::{BACKFILL, CHANGES, ChangePosition, PLAN, Stage, is_complete};
use super::world::World;
use crate::ends::passing;

/// The source.
pub(super) struct CaptureSource(pub(super) Arc<World>);

impl CaptureSource {
    /// Returns the step with which a run after a position begins.
    fn step(&self, stored: Option<ChangePosition>) -> Step {
        let is_incremental = self.0.scenario.is_incremental;
        let slot = self.0.lock().database.confirmed();
        match (stored, slot) {
            (None, _) => Step::Create(true),
            (Some(ChangePosition { stage: Stage::Intent, .. }), None) => Step::Create(false),
            (Some(ChangePosition { stage: Stage::Intent, .. }), Some(confirmed)) => match is_incremental {
                true => Step::Incremental(ChangePosition::at(Stage::Changes, confirmed)),
                false => Step::Snapshot(ChangePosition::at(Stage::Snapshot, confirmed)),
            },
            (Some(position), _) if position.stage == Stage::Snapshot => Step::Snapshot(position),
            (Some(position), _) => Step::Changes(position),
        }
    }
}

#[async_trait]
impl Source for CaptureSource {
    fn catches_up(&self) -> bool {
        true
    }

    async fn open(&self, resume: &BTreeMap<Partition, Mark>, _: &Host) -> Result<OpenedSource, Fault> {
        self.0.tick().await;
        let stored = resume.get(&CHANGES).and_then(|mark| ChangePosition::decode(&mark.position));
        let step = self.step(stored);
        let mut finished: Vec<Partition> = resume.keys().filter(|lane| is_of_rows(lane)).cloned().collect();
        let backfill = resume.get(&BACKFILL).map(|mark| Backfill::decode(&mark.position));
        // Lanes of earlier runs may have had lower numbers.
        let after = Backfill { attempt: 1000 * u64::from(self.0.run()), next: None };
        if backfill.is_some_and(|backfill| backfill.next.is_none()) {
            finished.push(BACKFILL);
        }
        let mut plan = resume.get(&PLAN).map(|mark| Plan::decode(&mark.position)).unwrap_or_default();
        plan.note_lanes(|lane| resume.get(lane).is_some_and(|mark| is_complete(&mark.position)));
        if resume.contains_key(&PLAN) && !matches!(step, Step::Snapshot(_) | Step::Create(_)) {
            finished.push(PLAN);
        }
        let from = match step {
            Step::Snapshot(from) | Step::Changes(from) | Step::Incremental(from) => from.end,
            Step::Create(_) => 0,
        };
        let acknowledged = Arc::new(Acknowledged::new(from));
        let (sender, events) = mpsc::channel(2);
        let backfill = backfill.filter(|backfill| backfill.next.is_some()).unwrap_or(after);
        let backfills = Arc::new(Backfills::new(backfill, Events(sender.clone()), acknowledged.clone()));
        let driver = Driver {
            world: self.0.clone(),
            events: Events(sender.clone()),
            acknowledged: acknowledged.clone(),
            backfills: backfills.clone(),
            step,
            plan,
            finished,
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            if let Err(Ended::Failed(fault)) = driver.run().await {
                let _ = sender.send(Err(fault)).await;
            }
        });
        let reader = CaptureReader { events, left: None, backfills };
        let acker = CaptureAcker { world: self.0.clone(), acknowledged, tasks };
        Ok(OpenedSource::new(Box::new(reader), Box::new(acker)))
    }
}

struct CaptureReader {
    events: mpsc::Receiver<Result<Read, Fault>>,
    /// Records that the engine had no room for.
    left: Option<(Partition, VecDeque<Record>)>,
    backfills: Arc<Backfills>,
}

impl CaptureReader {
    /// Returns as many records as there is room for.
    fn cut(&mut self, room: Room) -> Option<Read> {
        let (partition, left) = self.left.as_mut()?;
        let (partition, count) = (partition.clone(), left.len().min(room.rows.max(1)));
        let records = left.drain(..count).collect();
        self.left.take_if(|(_, left)| left.is_empty());
        Some(Read::Rows { partition, records })
    }
}

#[async_trait]
impl Reader for CaptureReader {
    async fn read(&mut self, room: Room) -> Result<Read, Fault> {
        if let Some(rows) = self.cut(room) {
            return Ok(rows);
        }
        match self.events.recv().await {
            Some(Ok(Read::Rows { partition, records })) => {
                self.left = Some((partition, records.into()));
                self.cut(room).ok_or_else(|| passing("no records"))
            }
            Some(event) => event,
            None => Err(passing("the source has ended")),
        }
    }

    async fn request(&mut self, _: Request) -> Result<Requested, Fault> {
        let backfills = self.backfills.clone();
        Ok(Box::pin(async move { backfills.add().await.map_err(|_| passing("the source is being closed")) }))
    }

    async fn stop(&mut self) -> Result<(), Fault> {
        self.events.close();
        while self.events.try_recv().is_ok() {}
        Ok(())
    }
}

struct CaptureAcker {
    world: Arc<World>,
    acknowledged: Arc<Acknowledged>,
    tasks: JoinSet<()>,
}

#[async_trait]
impl Acker for CaptureAcker {
    async fn ack(&mut self, partition: &Partition, positions: &[Position]) -> Result<(), Fault> {
        self.world.tick().await;
        self.acknowledged.note(partition, positions);
        Ok(())
    }

    async fn released(&mut self, partition: &Partition, _: Release) -> Result<(), Fault> {
        self.acknowledged.forget(partition);
        Ok(())
    }

    async fn close(&mut self) -> Result<(), Fault> {
        self.world.tick().await;
        if self.acknowledged.is_streaming() {
            self.world.lock().database.confirm(self.acknowledged.confirmed());
        }
        self.tasks.shutdown().await;
        Ok(())
    }
}
