//! The life of one pipeline: run, recover, stop.

use std::sync::Arc;
use std::time::Duration;

use anabranch_graph::exec::{self, Ending, Progress, RunOptions, Services};
use anabranch_graph::fault::FaultClass;
use anabranch_graph::plan::StagePlan;
use anabranch_graph::schema::SchemaRegistry;
use anabranch_graph::state::StateStore;
use anabranch_graph::text::Str;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout};

use super::recovery::Recovery;
use super::status::{Event, next};
use crate::log::Log;
use crate::settings::RecoveryPolicy;
use crate::store::{Status, StopReason, Store};

/// What is asked of all pipelines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Run.
    Run,
    /// Stop reading, drain within the budget; `None` = however long it takes.
    Stop(Option<Duration>),
}

/// How a pipeline's life ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its sources ended and everything is delivered.
    Finished,
    /// It was stopped and drained.
    Stopped,
    /// It was stopped, and this was left.
    NotDrained {
        /// Ids of connectors and processors.
        left: Vec<Str>,
    },
    /// It failed for good.
    Degraded {
        /// What it failed of.
        error: String,
    },
}

/// What is known of a pipeline while the service runs.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its status.
    pub status: Status,
    /// Counters of its current run.
    pub progress: Option<Arc<Progress>>,
}

/// What a pipeline needs to live.
pub struct Life {
    /// Its id.
    pub id: Str,
    /// What it runs.
    pub plan: Arc<StagePlan>,
    /// Whether it ends when there is nothing more to read.
    pub options: RunOptions,
    /// Where its status and its marks go.
    pub store: Store,
    /// The schemas of keys and payloads.
    pub schemas: Arc<dyn SchemaRegistry>,
    /// Where its lines go.
    pub log: Arc<Log>,
    /// The runtime that its tasks run on.
    pub executor: Handle,
    /// Shared by all pipelines: each takes a permit to open.
    pub opening: Arc<Semaphore>,
    /// When it is started again.
    pub recovery: RecoveryPolicy,
    /// What is asked of it.
    pub orders: watch::Receiver<Order>,
    /// Where it shows how it is doing.
    pub seen: watch::Sender<Seen>,
}

/// How long a pipeline that opens keeps its permit: one that waits for a service far away holds up nobody for long.
const OPENING: Duration = Duration::from_millis(100);

impl Life {
    /// Runs the pipeline until it is finished, stopped or degraded.
    pub async fn live(mut self) -> Outcome {
        let mut recovery = Recovery::new(self.recovery);
        loop {
            // Sources need not wait until the disk knows that they are read.
            let stored = self.enter(Event::Start);
            let (ending, ()) = tokio::join!(self.run(), stored);
            let error = match ending {
                Ending::Finished => {
                    self.enter(Event::End).await;
                    tracing::info!(pipeline = %self.id, "finished: there is nothing more to read, everything is delivered");
                    return Outcome::Finished;
                }
                Ending::Stopped => return self.stopped(Outcome::Stopped).await,
                Ending::NotDrained { left } => return self.stopped(Outcome::NotDrained { left }).await,
                Ending::Killed => return self.degraded("it was killed".to_owned()).await,
                Ending::Faulted(fault) => {
                    let error = self.log.masked(&fault.to_string());
                    if fault.class() == FaultClass::Transient { error } else { return self.degraded(error).await }
                }
            };
            // A fault while stopping: what is left is read again at the next start.
            if *self.orders.borrow() != Order::Run {
                tracing::warn!(pipeline = %self.id, error = %error, "failed while stopping");
                return self.stopped(Outcome::NotDrained { left: Vec::new() }).await;
            }
            let Some(wait) = recovery.next(Instant::now()) else {
                let tries = match recovery.attempts() {
                    0 => String::new(),
                    n => format!(" (after {n} attempts to recover)"),
                };
                return self.degraded(format!("{error}{tries}")).await;
            };
            self.enter(Event::Retry { error: error.clone() }).await;
            tracing::warn!(
                pipeline = %self.id, error = %error, attempt = recovery.attempts(),
                "failed; starts again in {:.1} s", wait.as_secs_f64()
            );
            let stop = async { self.orders.wait_for(|order| *order != Order::Run).await.is_ok() };
            if timeout(wait, stop).await.is_ok() {
                return self.stopped(Outcome::Stopped).await;
            }
        }
    }

    /// One run, from the stored positions to its end.
    async fn run(&mut self) -> Ending {
        let services = Services {
            store: Arc::new(self.store.clone()) as Arc<dyn StateStore>,
            log: self.log.clone(),
            memo: Arc::new(self.store.clone()),
            schemas: self.schemas.clone(),
        };
        let permit = tokio::select! {
            biased;
            permit = self.opening.clone().acquire_owned() => permit,
            _ = self.orders.wait_for(|order| *order != Order::Run) => return Ending::Stopped,
        };
        let mut running = {
            let _on_executor = self.executor.enter();
            exec::start(self.plan.clone(), services, self.options.clone())
        };
        let progress = running.progress();
        self.seen.send_modify(|seen| seen.progress = Some(progress));
        tokio::select! {
            _ = timeout(OPENING, running.opened()) => {}
            _ = self.orders.wait_for(|order| *order != Order::Run) => {}
        }
        drop(permit);
        let mut stopping = false;
        loop {
            tokio::select! {
                ending = running.wait() => {
                    self.seen.send_modify(|seen| seen.progress = None);
                    return ending;
                }
                order = self.orders.wait_for(|order| *order != Order::Run), if !stopping => {
                    stopping = true;
                    // The service is gone without a word: stop as it would have said.
                    let budget = order.map_or(None, |order| match *order {
                        Order::Run => None,
                        Order::Stop(budget) => budget,
                    });
                    running.stop(budget);
                }
            }
        }
    }

    async fn stopped(&mut self, outcome: Outcome) -> Outcome {
        self.enter(Event::Stop(StopReason::System)).await;
        match &outcome {
            Outcome::NotDrained { left } => tracing::warn!(
                pipeline = %self.id, left = %names(left),
                "stopped before everything was delivered; what is left is read again at the next start"
            ),
            Outcome::Finished | Outcome::Stopped | Outcome::Degraded { .. } => {
                tracing::info!(pipeline = %self.id, "stopped: everything that was read is delivered");
            }
        }
        outcome
    }

    async fn degraded(&mut self, error: String) -> Outcome {
        // What fails while it is drained was not drained; who is told to stop afterwards had failed before.
        let draining = *self.orders.borrow() != Order::Run;
        self.enter(Event::Fail { error: error.clone() }).await;
        tracing::error!(pipeline = %self.id, error = %error, "degraded: it does not run until the service is started again");
        if draining { Outcome::NotDrained { left: Vec::new() } } else { Outcome::Degraded { error } }
    }

    /// Moves the status, shows it, and stores it when awaited.
    fn enter(&self, event: Event) -> impl Future<Output = ()> + use<> {
        let moved = next(&self.seen.borrow().status, event);
        if let Ok(status) = &moved {
            self.seen.send_modify(|seen| seen.status = status.clone());
        }
        let (id, store) = (self.id.clone(), self.store.clone());
        async move {
            match moved {
                Ok(status) => {
                    if let Err(error) = store.set_status(&id, status).await {
                        tracing::warn!(pipeline = %id, error = %error, "the status could not be stored");
                    }
                }
                Err(refused) => tracing::error!(pipeline = %id, "{refused}"),
            }
        }
    }
}

/// Names in a row.
pub fn names(ids: &[Str]) -> String {
    ids.iter().map(Str::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
