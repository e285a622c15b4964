//! The lifecycle of one pipeline: run, recover, stop.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anabranch_cluster::TICK;
use anabranch_graph::exec::{self, Ending, LaneCount, Progress, RunOptions, Services, SourceBacklog};
use anabranch_graph::plan::StagePlan;
use anabranch_graph::plan::stage::StageKind;
use anabranch_plugin::host::Network;
use anabranch_plugin::schema::SchemaRegistry;
use anabranch_plugin::source::Undelivered;
use anabranch_plugin::state::StateStore;
use anabranch_process::log::Log;
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::phrase::plural;
use anabranch_record::text::Str;
use anabranch_settings::RecoveryPolicy;
use anabranch_store::{Status, StopReason, Store, StoreOwnership};
use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::account::Account;
use crate::codes;
use crate::pipeline::{Pipeline, ReloadError};
use crate::recovery::Recovery;
use crate::status::{LifecycleEvent, next};

/// An order to a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifecycleCommand {
    /// Run.
    Run,
    /// Stop reading and drain within the budget.
    Stop {
        /// Time to drain; `None` = without a limit.
        budget: Option<Duration>,
        /// Origin of the order.
        by: StopReason,
    },
    /// Stop immediately. Records in flight are dropped, and read again at the next start.
    Kill {
        /// Origin of the order.
        by: StopReason,
    },
}

impl LifecycleCommand {
    /// Combines this order with `later`, which can only bring the end nearer. The origin of the first order stays.
    pub fn hastened(self, later: LifecycleCommand) -> LifecycleCommand {
        match (self, later) {
            (LifecycleCommand::Run, later) => later,
            (LifecycleCommand::Stop { by, .. }, LifecycleCommand::Kill { .. }) => LifecycleCommand::Kill { by },
            (LifecycleCommand::Stop { budget, by }, LifecycleCommand::Stop { budget: sooner, .. }) => {
                LifecycleCommand::Stop { budget: budget.into_iter().chain(sooner).min(), by }
            }
            (LifecycleCommand::Stop { .. }, LifecycleCommand::Run) | (LifecycleCommand::Kill { .. }, _) => self,
        }
    }
}

/// Result of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PipelineOutcome {
    /// Its sources ended and everything is delivered.
    Finished,
    /// It was stopped and drained.
    Stopped,
    /// It was stopped before everything was delivered.
    NotDrained {
        /// Ids of connectors and processors with records left.
        left: Vec<Str>,
    },
    /// It failed permanently.
    Degraded {
        /// The error.
        error: String,
    },
}

/// The state of a pipeline that the service shows.
#[derive(Clone, Debug)]
pub struct LifecycleState {
    /// The status.
    pub status: Status,
    /// When it entered this status.
    pub since: SystemTime,
    /// The next attempt, while the pipeline is recovering.
    pub retry: Option<Retry>,
    /// The connector or processor that failed, if known.
    pub place: Option<Str>,
    /// The latest failure that it recovered from by itself since it was started.
    pub failed: Option<RestartCause>,
    /// Number of the current or last run, from 1; 0 = it has not run in this process.
    pub run: u64,
    /// Counters of its current run.
    pub progress: Option<Arc<Progress>>,
    /// Totals of its earlier runs in this process.
    pub account: Account,
    /// When it was started, until it is finished, stopped or degraded.
    pub(super) started: Option<Instant>,
    /// Counters of the latest earlier run that read something.
    pub(super) past: Option<Arc<Progress>>,
    /// True if an earlier run in this process read records that were not delivered and that no later run has read
    /// again.
    pub(super) left_over: bool,
    /// When an earlier run in this process last stored positions.
    pub(super) succeeded: Option<SystemTime>,
}

/// A failure after which a pipeline restarted by itself.
#[derive(Clone, Debug)]
pub struct RestartCause {
    /// Time of the failure.
    pub at: SystemTime,
    /// The error.
    pub error: String,
    /// Number of attempts to recover that counted at that time, including this one.
    pub attempts: usize,
}

impl LifecycleState {
    /// Returns the state of a pipeline that has not run in this process.
    pub fn new(status: Status) -> Self {
        LifecycleState {
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
            started: None,
        }
    }

    /// Returns the totals of all runs, including the current run so far.
    pub fn whole_account(&self) -> Account {
        let mut account = self.account.clone();
        if let Some(run) = &self.progress {
            account.add(run);
        }
        account.took += self.started.map(|started| started.elapsed()).unwrap_or_default();
        account
    }

    /// Returns when records were last delivered and their positions stored, in this process.
    pub fn succeeded(&self) -> Option<SystemTime> {
        self.progress.as_ref().and_then(|progress| progress.stored_at()).or(self.succeeded)
    }

    /// Returns the progress of the partitions of its sources. While a pipeline recovers, and until the next run has
    /// acknowledged something, this includes records that an earlier run read and did not deliver: they have been
    /// waiting since then.
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

    /// Returns the backlogs of its sources; while the current run has none, those of the previous run.
    pub fn backlogs(&self) -> Vec<SourceBacklog> {
        let waits = self.status.is_live() || matches!(self.status, Status::Degraded { .. });
        let runs = self.progress.iter().chain(self.past.iter().filter(|_| waits));
        runs.map(|progress| progress.backlogs()).find(|known| !known.is_empty()).unwrap_or_default()
    }

    /// Another node of the cluster delivers what the runs in this process did not deliver.
    pub(super) fn leave_to_others(&mut self) {
        (self.left_over, self.past) = (false, None);
    }

    /// Ends the current run. `drained` is true if everything that it read is delivered.
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
        // If a run acknowledged nothing, it waits for the same records as the run before it.
        let waited = |past: &Arc<Progress>| past.lanes().iter().any(|lane| !lane.unstored.is_zero());
        if stored.is_some() || has_read && !self.past.as_ref().is_some_and(waited) {
            self.past = Some(ended);
        }
    }
}

/// The next attempt of a pipeline that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Its number among the attempts that count, from 1.
    pub attempt: usize,
    /// When it is made.
    pub at: SystemTime,
}

/// Reloads credentials from their files and returns the pipeline to run with them; `None` if they did not change.
pub type Renewal = Arc<dyn Fn() -> BoxFuture<'static, Result<Option<Arc<Pipeline>>, ReloadError>> + Send + Sync>;

/// A pipeline with everything that its supervision needs.
pub struct PipelineLifecycle {
    /// The id of the pipeline.
    pub id: Str,
    /// The plan that it runs.
    pub plan: Arc<StagePlan>,
    /// Options of its runs, such as whether it ends when its sources end.
    pub options: RunOptions,
    /// Receives its status and its positions.
    pub store: Store,
    /// The schemas of keys and payloads.
    pub schemas: Arc<dyn SchemaRegistry>,
    /// Receives its log lines.
    pub log: Arc<Log>,
    /// The runtime that its tasks run on.
    pub executor: Handle,
    /// Permits to open, shared by all pipelines.
    pub opening: Arc<Semaphore>,
    /// When to restart it after a failure.
    pub recovery: RecoveryPolicy,
    /// Called before each run, because credentials may have changed.
    pub renewal: Renewal,
    /// The orders to it.
    pub orders: watch::Receiver<LifecycleCommand>,
    /// True if everything was open since this flag was last reset: logins were accepted.
    pub was_open: bool,
    /// Publishes its state.
    pub seen: watch::Sender<LifecycleState>,
}

/// How long a pipeline that opens keeps its permit: one that waits for a remote service does not block others for
/// longer.
const OPENING: Duration = Duration::from_millis(100);
/// The place of a fault of the store.
const STORE: Str = Str::from_static("state-store");

impl PipelineLifecycle {
    /// Runs the pipeline until it is finished, stopped or degraded. Its status is `starting` from this call on.
    pub fn supervise(self) -> impl Future<Output = PipelineOutcome> + Send {
        self.seen.send_modify(|seen| (seen.failed, seen.started) = (None, Some(Instant::now())));
        let stored = self.enter(LifecycleEvent::Start);
        let seen = self.seen.clone();
        async move {
            let outcome = self.run_again_and_again(stored).await;
            seen.send_modify(|seen| {
                seen.account.took += seen.started.take().map(|started| started.elapsed()).unwrap_or_default();
            });
            outcome
        }
    }

    async fn run_again_and_again(mut self, stored: impl Future<Output = ()>) -> PipelineOutcome {
        let mut recovery = Recovery::new(self.recovery);
        // Time since which servers have refused its login, without a run that was open.
        let mut refused_since = None;
        let mut first = Some(stored);
        loop {
            // Sources do not have to wait until the status is durable.
            let (ending, lost) = match first.take() {
                Some(stored) => tokio::join!(self.run(), stored).0,
                None => {
                    let stored = self.enter(LifecycleEvent::Start);
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
                    self.enter(LifecycleEvent::End).await;
                    let account = self.seen.borrow().account.clone();
                    tracing::info!(
                        pipeline = %self.id, read = account.read, delivered = account.delivered_in_all(),
                        filtered = account.filtered, dead_lettered = account.dead_lettered,
                        "finished: the sources have no more records"
                    );
                    return PipelineOutcome::Finished;
                }
                Ending::Stopped => return self.stopped(PipelineOutcome::Stopped).await,
                Ending::NotDrained { left } => return self.stopped(PipelineOutcome::NotDrained { left }).await,
                Ending::Killed if matches!(*self.orders.borrow(), LifecycleCommand::Kill { .. }) => {
                    return self.stopped(PipelineOutcome::NotDrained { left: Vec::new() }).await;
                }
                Ending::Killed => return self.degraded("the run was killed".to_owned(), None).await,
                // The tenure of this node tells whether another one runs the pipeline, or an earlier run of this node
                // was in the way.
                Ending::Faulted(fault)
                    if fault.code() == anabranch_plugin::codes::FENCED && self.store.membership().is_some() =>
                {
                    sleep(TICK).await;
                    match self.regain(self.log.masked(&fault.to_string())).await {
                        Some(outcome) => return outcome,
                        None => continue,
                    }
                }
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
            // After a fault while stopping, undelivered records are read again at the next start.
            if *self.orders.borrow() != LifecycleCommand::Run {
                tracing::warn!(pipeline = %self.id, error = %error, "failed while stopping");
                return self.stopped(PipelineOutcome::NotDrained { left: Vec::new() }).await;
            }
            let Some(wait) = recovery.next(Instant::now()) else {
                let tries = match recovery.attempts() {
                    0 => String::new(),
                    n => format!(" (after {n} attempts to recover)"),
                };
                return self.degraded(format!("{error}{tries}"), place).await;
            };
            let retry = Retry { attempt: recovery.attempts(), at: SystemTime::now() + wait };
            let stored = self.enter(LifecycleEvent::Retry { error: error.clone() });
            let failed = RestartCause { at: SystemTime::now(), error: error.clone(), attempts: recovery.attempts() };
            self.seen.send_modify(|seen| (seen.retry, seen.place, seen.failed) = (Some(retry), place, Some(failed)));
            stored.await;
            tracing::warn!(
                pipeline = %self.id, error = %error, attempt = recovery.attempts(),
                "failed; restarts in {:.1} s", wait.as_secs_f64()
            );
            let stop = async { self.orders.wait_for(|order| *order != LifecycleCommand::Run).await.is_ok() };
            if timeout(wait, stop).await.is_ok() {
                let outcome = self.undrained();
                return self.stopped(outcome).await;
            }
        }
    }

    /// Waits until this service owns the store again. If it cannot, returns the outcome of the pipeline.
    async fn regain(&mut self, why: String) -> Option<PipelineOutcome> {
        let mut holding = self.store.holding();
        if *self.orders.borrow() != LifecycleCommand::Run {
            return Some(self.stopped(PipelineOutcome::NotDrained { left: Vec::new() }).await);
        }
        if !matches!(*holding.borrow(), StoreOwnership::Gone(_)) {
            // Shown but not stored: the store refuses writes.
            drop(self.enter(LifecycleEvent::Retry { error: why.clone() }));
            tracing::warn!(pipeline = %self.id, error = why, "stopped reading until this service owns the store again");
        }
        let decided = async {
            let decided =
                holding.wait_for(|holding| matches!(holding, StoreOwnership::Held | StoreOwnership::Gone(_))).await;
            match decided.ok().map(|holding| holding.clone()) {
                Some(holding) => holding,
                None => std::future::pending().await,
            }
        };
        let again = tokio::select! {
            holding = decided => Some(holding),
            _ = self.orders.wait_for(|order| *order != LifecycleCommand::Run) => None,
        };
        match again {
            Some(StoreOwnership::Held) => None,
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

    /// Returns the outcome if the pipeline is stopped between two runs: records that the last run read and did not
    /// deliver are left.
    fn undrained(&self) -> PipelineOutcome {
        match self.seen.borrow().lanes().iter().any(|lane| !lane.lag.is_zero()) {
            true => PipelineOutcome::NotDrained { left: Vec::new() },
            false => PipelineOutcome::Stopped,
        }
    }

    fn stopped_before_it_opened(&self) -> Ending {
        match self.undrained() {
            PipelineOutcome::NotDrained { left } => Ending::NotDrained { left },
            _ => Ending::Stopped,
        }
    }

    /// Runs once, from the stored positions to the end. If the run ended because the store was lost, also returns the
    /// reason.
    async fn run(&mut self) -> (Ending, Option<String>) {
        let mut holding = self.store.holding();
        let refusal = holding.borrow().refusal().map(str::to_owned);
        if refusal.is_some() {
            return (Ending::Killed, refusal);
        }
        let services = Services {
            store: Arc::new(self.store.clone()) as Arc<dyn StateStore>,
            log: self.log.clone(),
            letters: Some(Arc::new(self.store.clone())),
            result_cache: Arc::new(self.store.clone()),
            active: Arc::new(self.store.clone()),
            schemas: self.schemas.clone(),
            network: Network::Open,
            shared: self.store.identity().cloned(),
        };
        let unopened = self.stopped_before_it_opened();
        let permit = tokio::select! {
            biased;
            permit = self.opening.clone().acquire_owned() => permit,
            _ = self.orders.wait_for(|order| *order != LifecycleCommand::Run) => return (unopened, None),
        };
        let mut permit = Some(permit);
        let renewed = tokio::select! {
            biased;
            renewed = (self.renewal)() => renewed,
            _ = self.orders.wait_for(|order| *order != LifecycleCommand::Run) => return (unopened, None),
        };
        match renewed {
            Ok(Some(pipeline)) => {
                self.plan = pipeline.compiled.stages.clone();
                self.options.mask = pipeline.compiled.secrets.clone().into();
            }
            Ok(None) => {}
            Err(error) => {
                return (Ending::Faulted(Fault::fatal(codes::CREDENTIALS_UNREADABLE, error).of_login()), None);
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
        let mut told = LifecycleCommand::Run;
        // False once the sender of orders is gone.
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
                    // Records in flight are read again: another service may write soon.
                    lost = Some(why);
                    running.kill();
                }
                result = &mut opened, if opening => {
                    opening = false;
                    permit = None;
                    if result.is_ok() {
                        self.was_open = true;
                        // The stored status has been `running` since the start.
                        drop(self.enter(LifecycleEvent::Open));
                    }
                }
                () = &mut long_enough, if permit.is_some() => permit = None,
                order = hear(&mut self.orders, told), if ordered => {
                    permit = None;
                    ordered = order.is_some();
                    // The sender of orders is gone: stop as the service would have ordered.
                    told = order.unwrap_or(LifecycleCommand::Stop { budget: None, by: StopReason::System });
                    match told {
                        LifecycleCommand::Run => {}
                        LifecycleCommand::Stop { budget, .. } => running.stop(budget),
                        LifecycleCommand::Kill { .. } => running.kill(),
                    }
                }
            }
        }
    }

    async fn stopped(&mut self, outcome: PipelineOutcome) -> PipelineOutcome {
        let outcome = match outcome {
            // This run has drained, or there was none; an earlier run may not have drained.
            PipelineOutcome::Stopped if self.seen.borrow().left_over => {
                PipelineOutcome::NotDrained { left: Vec::new() }
            }
            outcome => outcome,
        };
        let by = match *self.orders.borrow() {
            LifecycleCommand::Run => StopReason::System,
            LifecycleCommand::Stop { by, .. } | LifecycleCommand::Kill { by } => by,
        };
        self.enter(LifecycleEvent::Stop(by)).await;
        let outcome = match (outcome, self.count_kept(by == StopReason::User)) {
            (PipelineOutcome::Stopped, kept) if kept > 0 => PipelineOutcome::NotDrained { left: Vec::new() },
            (outcome, _) => outcome,
        };
        let rest = self.rest();
        match &outcome {
            PipelineOutcome::NotDrained { left } if left.is_empty() => {
                tracing::warn!(pipeline = %self.id, "stopped before all records were delivered; {rest}");
            }
            PipelineOutcome::NotDrained { left } => tracing::warn!(
                pipeline = %self.id, left = %names(left),
                "stopped before all records were delivered; {rest}"
            ),
            PipelineOutcome::Finished | PipelineOutcome::Stopped | PipelineOutcome::Degraded { .. } => {
                tracing::info!(pipeline = %self.id, "stopped: all records that were read are delivered");
            }
        }
        match outcome {
            // The user requested it: it is not a failure of the service.
            PipelineOutcome::NotDrained { .. } if by == StopReason::User => PipelineOutcome::Stopped,
            outcome => outcome,
        }
    }

    /// Returns what becomes of undelivered records, by source.
    fn undelivered(&self) -> impl Iterator<Item = (&Str, Undelivered)> {
        self.plan.stages.iter().filter_map(|stage| match &stage.kind {
            StageKind::Read(read) => Some((&read.connector, read.source.undelivered())),
            _ => None,
        })
    }

    /// Describes what becomes of the undelivered records of a stopped pipeline.
    fn rest(&self) -> &'static str {
        match () {
            () if self.undelivered().all(|(_, found)| found.is_read_again()) => {
                "the next start reads the remaining ones again"
            }
            () if self.undelivered().all(|(_, found)| found == Undelivered::SentAgain) => {
                "the senders of the remaining ones got no confirmation, and repeat them"
            }
            () => "the next start reads again what the sources still have",
        }
    }

    /// Logs and returns the number of records that sources have confirmed and keep in memory. `does_continue` is true if the
    /// service continues without the pipeline.
    fn count_kept(&self, does_continue: bool) -> u64 {
        let mut all = 0;
        for (connector, undelivered) in self.undelivered() {
            let Undelivered::Lost(Some(records @ 1..)) = undelivered else { continue };
            all += records;
            let records = format!("{records} confirmed {}", plural(records, "record"));
            match does_continue {
                true => tracing::error!(
                    pipeline = %self.id, connector = %connector,
                    "{records} not delivered: the next start delivers what is kept in memory, unless the service ends before"
                ),
                false => tracing::error!(
                    pipeline = %self.id, connector = %connector,
                    "{records} lost: the service ends before they are delivered"
                ),
            }
        }
        all
    }

    async fn degraded(&mut self, error: String, place: Option<Str>) -> PipelineOutcome {
        // A failure while draining means that the run was not drained. An order to stop after the failure does not
        // change it.
        let draining = *self.orders.borrow() != LifecycleCommand::Run;
        let stored = self.enter(LifecycleEvent::Fail { error: error.clone() });
        self.seen.send_modify(|seen| seen.place = place);
        stored.await;
        tracing::error!(pipeline = %self.id, error = %error, "degraded: the pipeline does not run until you start it");
        self.count_kept(!draining);
        if draining { PipelineOutcome::NotDrained { left: Vec::new() } } else { PipelineOutcome::Degraded { error } }
    }

    /// Changes the status and shows it. The returned future stores it.
    fn enter(&self, event: LifecycleEvent) -> impl Future<Output = ()> + use<> {
        let moved = next(&self.seen.borrow().status, event);
        if let Ok(status) = &moved {
            self.seen.send_modify(|seen| {
                *seen = LifecycleState {
                    status: status.clone(),
                    since: SystemTime::now(),
                    retry: None,
                    place: None,
                    ..seen.clone()
                };
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

/// Returns the next order that differs from `told`; `None` if the sender is gone.
async fn hear(orders: &mut watch::Receiver<LifecycleCommand>, told: LifecycleCommand) -> Option<LifecycleCommand> {
    orders.wait_for(|order| *order != told).await.ok().map(|order| *order)
}

/// Waits until this service does not own its store. Returns the reason.
async fn refused(holding: &mut watch::Receiver<StoreOwnership>) -> String {
    let lost = holding.wait_for(|holding| holding.refusal().is_some()).await;
    let why = lost.ok().and_then(|lost| lost.refusal().map(str::to_owned));
    match why {
        Some(why) => why,
        // This store cannot be lost.
        None => std::future::pending().await,
    }
}

/// Joins names with commas.
pub fn names(ids: &[Str]) -> String {
    ids.iter().map(Str::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
