//! Reads the ranges of a snapshot, in parallel.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use anabranch_plugin::source::Read;
use anabranch_record::Record;
use anabranch_record::mark::Partition;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::database::{Row, Snapshot};
use super::driver::{Driver, Ended, Events};
use super::plan::{Item, Plan};
use super::position::{ChangePosition, PLAN, is_complete, range};
use super::world::{World, record};

impl Driver {
    /// Reads the ranges that are left, and stores `after` when all rows are delivered.
    pub(super) async fn read_snapshot(&mut self, snapshot: &Snapshot, after: ChangePosition) -> Result<(), Ended> {
        let mut plan = std::mem::take(&mut self.plan).next(self.world.scenario.pages, snapshot.oldest);
        let rows = self.world.lock().database.rows(snapshot);
        self.store_plan(&plan).await?;
        let items = plan.items();
        let queue: Arc<Mutex<VecDeque<Item>>> = Arc::new(Mutex::new(items.iter().cloned().collect()));
        let mut workers = JoinSet::new();
        for _ in 0..self.world.scenario.parallel {
            let worker = Worker {
                world: self.world.clone(),
                events: self.events.clone(),
                queue: queue.clone(),
                rows: rows.clone(),
                attempt: plan.attempt,
            };
            workers.spawn(worker.run());
        }
        let mut open: BTreeMap<Partition, Item> = items.into_iter().map(|item| (item.lane.clone(), item)).collect();
        while !open.is_empty() {
            let look = || {
                let is_complete =
                    |lane: &&Partition| self.acknowledged.of(lane).is_some_and(|position| is_complete(&position));
                let complete: Vec<Partition> = open.keys().filter(is_complete).cloned().collect();
                (!complete.is_empty()).then_some(complete)
            };
            let complete = tokio::select! {
                Some(ended) = workers.join_next() => {
                    ended.unwrap_or(Err(Ended::Stopped))?;
                    continue;
                }
                complete = self.acknowledged.when(look) => complete,
            };
            // The lane stays until the plan is stored, so that the range is not read again after a crash.
            for lane in &complete {
                if let Some(item) = open.remove(lane) {
                    plan.note(&item);
                }
            }
            self.store_plan(&plan).await?;
            for lane in complete {
                self.acknowledged.forget(&lane);
                self.events.send(Read::Finished(lane)).await?;
            }
        }
        self.store(after).await?;
        self.events.send(Read::Finished(PLAN)).await
    }

    async fn store_plan(&self, plan: &Plan) -> Result<(), Ended> {
        let stored = plan.encode();
        self.events.send(Read::Progress(PLAN, stored.clone())).await?;
        self.events.unless_closed(self.acknowledged.reaches(&PLAN, &stored)).await
    }
}

/// Reads ranges of a snapshot.
struct Worker {
    world: Arc<World>,
    events: Events,
    queue: Arc<Mutex<VecDeque<Item>>>,
    rows: Vec<Row>,
    attempt: u64,
}

impl Worker {
    fn next(&self) -> Option<Item> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    async fn run(self) -> Result<(), Ended> {
        while let Some(item) = self.next() {
            let mut count = 0;
            let row = |row: &Row| {
                count += 1;
                record(row.change, &item.lane, range(self.attempt, count, false))
            };
            let mut rows: VecDeque<Record> = self.rows.iter().filter(|row| item.has(row)).map(row).collect();
            while !rows.is_empty() {
                sleep(self.world.scenario.chunk_time(self.world.next())).await;
                self.world.tick().await;
                let records = rows.drain(..rows.len().min(self.world.scenario.per_read)).collect();
                self.events.send(Read::Rows { partition: item.lane.clone(), records }).await?;
            }
            let end = range(self.attempt, count, true);
            self.events.send(Read::Progress(item.lane.clone(), end)).await?;
        }
        Ok(())
    }
}
