//! The life of one pipeline: run, recover, stop.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anabranch_graph::exec::{self, Ending, LaneCount, Progress, RunOptions, Services, SourceBacklog};
use anabranch_graph::plan::StagePlan;
use anabranch_plugin::schema::SchemaRegistry;
use anabranch_plugin::state::StateStore;
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::text::Str;
use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};

use super::account::Account;
use super::recovery::Recovery;
use super::status::{Event, next};
use crate::log::Log;
use crate::pipelines::{NotReadAgain, Pipeline};
use crate::settings::RecoveryPolicy;
use crate::store::{Holding, Status, StopReason, Store};

/// What is asked of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Run.
    Run,
    /// Stop reading, drain within the budget.
    Stop {
        /// `None` = however long it takes.
        budget: Option<Duration>,
        /// Who asks.
        by: StopReason,
    },
    /// Stop at once; what is on its way is dropped, and read again at the next start.
    Kill {
        /// Who asks.
        by: StopReason,
    },
}

impl Order {
    /// This order after `later`, which can only bring the end nearer. Who asked first stays the one who did.
    pub fn hastened(self, later: Order) -> Order {
        match (self, later) {
            (Order::Run, later) => later,
            (Order::Stop { by, .. }, Order::Kill { .. }) => Order::Kill { by },
            (Order::Stop { budget, by }, Order::Stop { budget: sooner, .. }) => {
                Order::Stop { budget: budget.into_iter().chain(sooner).min(), by }
            }
            (Order::Stop { .. }, Order::Run) | (Order::Kill { .. }, _) => self,
        }
    }
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
    /// Since when it has this status.
    pub since: SystemTime,
    /// While it is recovering: which attempt comes next, and when.
    pub retry: Option<Retry>,
    /// The connector or processor that it failed at, where that is known.
    pub place: Option<Str>,
    /// The latest failure after which it started again by itself, since it was started.
    pub failed: Option<Failed>,
    /// Number of the current run, or the last one, from 1; 0 = there was none in this process.
    pub run: u64,
    /// Counters of its current run.
    pub progress: Option<Arc<Progress>>,
    /// What its earlier runs in this process came to.
    pub account: Account,
    /// Counters of the run before, of the latest one that read something.
    pub(super) past: Option<Arc<Progress>>,
    /// Whether an earlier run of this process read what was not delivered, and none since has read it again.
    pub(super) left_over: bool,
    /// When positions were stored last in an earlier run of this process.
    pub(super) succeeded: Option<SystemTime>,
}

/// A failure after which a pipeline started again by itself.
#[derive(Clone, Debug)]
pub struct Failed {
    /// When.
    pub at: SystemTime,
    /// What it failed of.
    pub error: String,
    /// How many attempts to recover counted then, this one included.
    pub attempts: usize,
}

impl Seen {
    /// How a pipeline is that has not run in this process.
    pub fn new(status: Status) -> Self {
        Seen {
            status,
            since: SystemTime::now(),
            retry: None,
            place: None,
            failed: None,
            run: 0,
            progress: None,
            past: None,
            left_over: false,
            succeeded: None,
            account: Account::default(),
        }
    }

    /// What all of its runs came to, the current one as far as it is.
    pub fn whole_account(&self) -> Account {
        let mut account = self.account.clone();
        if let Some(run) = &self.progress {
            account.add(run);
        }
        account
    }

    /// When records were delivered and their positions stored last, in this process.
    pub fn succeeded(&self) -> Option<SystemTime> {
        self.progress.as_ref().and_then(|progress| progress.stored_at()).or(self.succeeded)
    }

    /// How far the partitions of its sources are. While a pipeline recovers, and until the run after has acknowledged
    /// something, these are also what an earlier run has read and not delivered: it waits for as long as before.
    pub fn lanes(&self) -> Vec<LaneCount> {
        let mut lanes = self.progress.as_ref().map(|progress| progress.lanes()).unwrap_or_default();
        let waits = self.status.is_live() || matches!(self.status, Status::Degraded { .. });
        for open in self.past.iter().filter(|_| waits).flat_map(|past| past.lanes()) {
            if open.unstored.is_zero() {
                continue;
            }
            match lanes.iter_mut().find(|lane| lane.id == open.id) {
                Some(lane) if lane.persisted > 0 => {}
                Some(lane) => (lane.lag, lane.unstored) = (lane.lag.max(open.lag), lane.unstored.max(open.unstored)),
                None => lanes.push(open),
            }
        }
        lanes
    }

    /// What its sources have not read yet; until the current run knows, what the one before knew.
    pub fn backlogs(&self) -> Vec<SourceBacklog> {
        let waits = self.status.is_live() || matches!(self.status, Status::Degraded { .. });
        let runs = self.progress.iter().chain(self.past.iter().filter(|_| waits));
        runs.map(|progress| progress.backlogs()).find(|known| !known.is_empty()).unwrap_or_default()
    }

    /// The current run is over; `drained`: everything that it read is delivered.
    fn end_run(&mut self, drained: bool) {
        let Some(ended) = self.progress.take() else { return };
        self.account.add(&ended);
        let stored = ended.stored_at();
        let lanes = ended.lanes();
        self.left_over = if drained {
            self.left_over && lanes.iter().all(|lane| lane.read == 0)
        } else {
            let own = lanes.iter().any(|lane| lane.read > lane.settled || !lane.unstored.is_zero());
            own || self.left_over && stored.is_none()
        };
        self.succeeded = stored.or(self.succeeded);
        let has_read = lanes.iter().any(|lane| lane.read > 0) || !ended.backlogs().is_empty();
        // A run that acknowledged nothing waits for what the one before it waited for.
        let waited = |past: &Arc<Progress>| past.lanes().iter().any(|lane| !lane.unstored.is_zero());
        if stored.is_some() || has_read && !self.past.as_ref().is_some_and(waited) {
            self.past = Some(ended);
        }
    }
}

/// The next attempt of a pipeline that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Its number among those that count, from 1.
    pub attempt: usize,
    /// When it is made.
    pub at: SystemTime,
}

/// Says what a pipeline runs with the credentials that its files have now; `None`: what it ran before.
pub type Renewal = Arc<dyn Fn() -> BoxFuture<'static, Result<Option<Arc<Pipeline>>, NotReadAgain>> + Send + Sync>;

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
    /// Asked before each run: credentials may be others by then.
    pub renewal: Renewal,
    /// What is asked of it.
    pub orders: watch::Receiver<Order>,
    /// Whether everything was open since it was last looked at: logins were accepted.
    pub was_open: bool,
    /// Where it shows how it is doing.
    pub seen: watch::Sender<Seen>,
}

/// How long a pipeline that opens keeps its permit: one that waits for a service far away holds up nobody for long.
const OPENING: Duration = Duration::from_millis(100);
/// The place of a fault of the store.
const STORE: Str = Str::from_static("state-store");

impl Life {
    /// Runs the pipeline until it is finished, stopped or degraded. It is shown as starting at once.
    pub fn live(self) -> impl Future<Output = Outcome> + Send {
        self.seen.send_modify(|seen| seen.failed = None);
        let stored = self.enter(Event::Start);
        self.run_again_and_again(stored)
    }

    async fn run_again_and_again(mut self, stored: impl Future<Output = ()>) -> Outcome {
        let mut recovery = Recovery::new(self.recovery);
        // Since when servers have refused its login, without a run that was open.
        let mut refused_since = None;
        let mut first = Some(stored);
        loop {
            // Sources need not wait until the disk knows that they are read.
            let (ending, lost) = match first.take() {
                Some(stored) => tokio::join!(self.run(), stored).0,
                None => {
                    let stored = self.enter(Event::Start);
                    tokio::join!(self.run(), stored).0
                }
            };
            if let Some(why) = lost {
                match self.regain(why).await {
                    Some(outcome) => return outcome,
                    None => continue,
                }
            }
            let (error, place) = match ending {
                Ending::Finished => {
                    self.enter(Event::End).await;
                    let account = self.seen.borrow().account.clone();
                    tracing::info!(
                        pipeline = %self.id, read = account.read, delivered = account.delivered_in_all(),
                        filtered = account.filtered, dead_lettered = account.dead_lettered,
                        "finished: there is nothing more to read"
                    );
                    return Outcome::Finished;
                }
                Ending::Stopped => return self.stopped(Outcome::Stopped).await,
                Ending::NotDrained { left } => return self.stopped(Outcome::NotDrained { left }).await,
                Ending::Killed if matches!(*self.orders.borrow(), Order::Kill { .. }) => {
                    return self.stopped(Outcome::NotDrained { left: Vec::new() }).await;
                }
                Ending::Killed => return self.degraded("it was killed".to_owned(), None).await,
                Ending::Faulted(fault) => {
                    let error = self.log.masked(&fault.to_string());
                    let place = fault.node().cloned();
                    if !fault.is_of_login() || std::mem::take(&mut self.was_open) {
                        refused_since = None;
                    }
                    let has_patience = fault.is_of_login() && !self.options.once && {
                        let since = *refused_since.get_or_insert_with(Instant::now);
                        since.elapsed() < self.recovery.login_patience
                    };
                    if fault.class() != FaultClass::Transient && !has_patience {
                        return self.degraded(error, place).await;
                    }
                    (error, place)
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
                return self.degraded(format!("{error}{tries}"), place).await;
            };
            let retry = Retry { attempt: recovery.attempts(), at: SystemTime::now() + wait };
            let stored = self.enter(Event::Retry { error: error.clone() });
            let failed = Failed { at: SystemTime::now(), error: error.clone(), attempts: recovery.attempts() };
            self.seen.send_modify(|seen| (seen.retry, seen.place, seen.failed) = (Some(retry), place, Some(failed)));
            stored.await;
            tracing::warn!(
                pipeline = %self.id, error = %error, attempt = recovery.attempts(),
                "failed; starts again in {:.1} s", wait.as_secs_f64()
            );
            let stop = async { self.orders.wait_for(|order| *order != Order::Run).await.is_ok() };
            if timeout(wait, stop).await.is_ok() {
                let outcome = self.undrained();
                return self.stopped(outcome).await;
            }
        }
    }

    /// Waits until the store is this service's again; gives how the life of the pipeline ends where it is not.
    async fn regain(&mut self, why: String) -> Option<Outcome> {
        let mut holding = self.store.holding();
        if *self.orders.borrow() != Order::Run {
            return Some(self.stopped(Outcome::NotDrained { left: Vec::new() }).await);
        }
        if !matches!(*holding.borrow(), Holding::Gone(_)) {
            // Shown and not stored: the store takes nothing.
            drop(self.enter(Event::Retry { error: why.clone() }));
            tracing::warn!(pipeline = %self.id, error = why, "stopped reading until the store is this service's again");
        }
        let decided = async {
            let decided = holding.wait_for(|holding| matches!(holding, Holding::Held | Holding::Gone(_))).await;
            match decided.ok().map(|holding| holding.clone()) {
                Some(holding) => holding,
                None => std::future::pending().await,
            }
        };
        let again = tokio::select! {
            holding = decided => Some(holding),
            _ = self.orders.wait_for(|order| *order != Order::Run) => None,
        };
        match again {
            Some(Holding::Held) => None,
            Some(other) => {
                let error = other.refusal().unwrap_or(&why).to_owned();
                Some(self.degraded(error, Some(STORE)).await)
            }
            None => {
                let outcome = self.undrained();
                Some(self.stopped(outcome).await)
            }
        }
    }

    /// How it ends where it is stopped between two runs: what the last one read and did not deliver is left.
    fn undrained(&self) -> Outcome {
        match self.seen.borrow().lanes().iter().any(|lane| !lane.lag.is_zero()) {
            true => Outcome::NotDrained { left: Vec::new() },
            false => Outcome::Stopped,
        }
    }

    fn stopped_before_it_opened(&self) -> Ending {
        match self.undrained() {
            Outcome::NotDrained { left } => Ending::NotDrained { left },
            _ => Ending::Stopped,
        }
    }

    /// One run, from the stored positions to its end; and why it was ended, where the store was lost.
    async fn run(&mut self) -> (Ending, Option<String>) {
        let mut holding = self.store.holding();
        let refusal = holding.borrow().refusal().map(str::to_owned);
        if refusal.is_some() {
            return (Ending::Killed, refusal);
        }
        let services = Services {
            store: Arc::new(self.store.clone()) as Arc<dyn StateStore>,
            log: self.log.clone(),
            memo: Arc::new(self.store.clone()),
            schemas: self.schemas.clone(),
        };
        let unopened = self.stopped_before_it_opened();
        let permit = tokio::select! {
            biased;
            permit = self.opening.clone().acquire_owned() => permit,
            _ = self.orders.wait_for(|order| *order != Order::Run) => return (unopened, None),
        };
        let mut permit = Some(permit);
        let renewed = tokio::select! {
            biased;
            renewed = (self.renewal)() => renewed,
            _ = self.orders.wait_for(|order| *order != Order::Run) => return (unopened, None),
        };
        match renewed {
            Ok(Some(pipeline)) => {
                self.plan = pipeline.compiled.stages.clone();
                self.options.mask = pipeline.compiled.secrets.clone().into();
            }
            Ok(None) => {}
            Err(error) => {
                return (Ending::Faulted(Fault::fatal("credentials_unreadable", error).of_login()), None);
            }
        }
        let mut running = {
            let _on_executor = self.executor.enter();
            exec::start(self.plan.clone(), services, self.options.clone())
        };
        let progress = running.progress();
        self.seen.send_modify(|seen| {
            seen.progress = Some(progress);
            seen.run += 1;
        });
        let mut opened = pin!(running.opened());
        let mut opening = true;
        let mut long_enough = pin!(sleep(OPENING));
        let mut told = Order::Run;
        // Whether somebody is left who can give orders.
        let mut ordered = true;
        let mut lost = None;
        loop {
            tokio::select! {
                ending = running.wait() => {
                    let drained = matches!(ending, Ending::Stopped | Ending::Finished);
                    self.seen.send_modify(|seen| seen.end_run(drained));
                    return (ending, lost);
                }
                why = refused(&mut holding), if lost.is_none() => {
                    // What is in flight is read again: another service may write soon.
                    lost = Some(why);
                    running.kill();
                }
                result = &mut opened, if opening => {
                    opening = false;
                    permit = None;
                    if result.is_ok() {
                        self.was_open = true;
                        // The store calls it running since its start.
                        drop(self.enter(Event::Open));
                    }
                }
                () = &mut long_enough, if permit.is_some() => permit = None,
                order = hear(&mut self.orders, told), if ordered => {
                    permit = None;
                    ordered = order.is_some();
                    // The service is gone without a word: stop as it would have said.
                    told = order.unwrap_or(Order::Stop { budget: None, by: StopReason::System });
                    match told {
                        Order::Run => {}
                        Order::Stop { budget, .. } => running.stop(budget),
                        Order::Kill { .. } => running.kill(),
                    }
                }
            }
        }
    }

    async fn stopped(&mut self, outcome: Outcome) -> Outcome {
        let outcome = match outcome {
            // The run that was stopped has drained, or there was none: an earlier one may not have.
            Outcome::Stopped if self.seen.borrow().left_over => Outcome::NotDrained { left: Vec::new() },
            outcome => outcome,
        };
        let by = match *self.orders.borrow() {
            Order::Run => StopReason::System,
            Order::Stop { by, .. } | Order::Kill { by } => by,
        };
        self.enter(Event::Stop(by)).await;
        match &outcome {
            Outcome::NotDrained { left } if left.is_empty() => tracing::warn!(
                pipeline = %self.id, "stopped before everything was delivered; what is left is read again at the next start"
            ),
            Outcome::NotDrained { left } => tracing::warn!(
                pipeline = %self.id, left = %names(left),
                "stopped before everything was delivered; what is left is read again at the next start"
            ),
            Outcome::Finished | Outcome::Stopped | Outcome::Degraded { .. } => {
                tracing::info!(pipeline = %self.id, "stopped: everything that was read is delivered");
            }
        }
        match outcome {
            // Who asked for it knows; it is nothing that the service failed to do.
            Outcome::NotDrained { .. } if by == StopReason::User => Outcome::Stopped,
            outcome => outcome,
        }
    }

    async fn degraded(&mut self, error: String, place: Option<Str>) -> Outcome {
        // What fails while it is drained was not drained; who is told to stop afterwards had failed before.
        let draining = *self.orders.borrow() != Order::Run;
        let stored = self.enter(Event::Fail { error: error.clone() });
        self.seen.send_modify(|seen| seen.place = place);
        stored.await;
        tracing::error!(pipeline = %self.id, error = %error, "degraded: it does not run until it is started again");
        if draining { Outcome::NotDrained { left: Vec::new() } } else { Outcome::Degraded { error } }
    }

    /// Moves the status, shows it, and stores it when awaited.
    fn enter(&self, event: Event) -> impl Future<Output = ()> + use<> {
        let moved = next(&self.seen.borrow().status, event);
        if let Ok(status) = &moved {
            self.seen.send_modify(|seen| {
                *seen =
                    Seen { status: status.clone(), since: SystemTime::now(), retry: None, place: None, ..seen.clone() };
            });
        }
        let (id, store) = (self.id.clone(), self.store.clone());
        async move {
            match moved {
                Ok(status) => {
                    let stored = if status == Status::Starting { Status::Running } else { status };
                    if let Err(error) = store.set_status(&id, stored).await {
                        tracing::warn!(pipeline = %id, error = %error, "the status could not be stored");
                    }
                }
                Err(refused) => tracing::error!(pipeline = %id, "{refused}"),
            }
        }
    }
}

/// The next order that is another one than `told`; `None` where there is nobody left to give one.
async fn hear(orders: &mut watch::Receiver<Order>, told: Order) -> Option<Order> {
    orders.wait_for(|order| *order != told).await.ok().map(|order| *order)
}

/// Why the store is not this service's any more, when that is so.
async fn refused(holding: &mut watch::Receiver<Holding>) -> String {
    let lost = holding.wait_for(|holding| holding.refusal().is_some()).await;
    let why = lost.ok().and_then(|lost| lost.refusal().map(str::to_owned));
    match why {
        Some(why) => why,
        // A store that nobody can lose.
        None => std::future::pending().await,
    }
}

/// Names in a row.
pub fn names(ids: &[Str]) -> String {
    ids.iter().map(Str::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
