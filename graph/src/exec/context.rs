//! State shared by all tasks of a run: lanes, signals, the first fault, and the only place where tasks are spawned.

use anabranch_config::limits::MemoryLimits;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anabranch_plugin::host::Host;
use anabranch_plugin::secret::mask;
use anabranch_plugin::state::{SiblingMarks, StateStore, StoreError};
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::mark::{Mark, Partition};
use anabranch_record::text::Str;
use async_trait::async_trait;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::lanes::Lanes;
use super::live::{Alive, Live};
use super::open::Stage;
use super::progress::Progress;
use super::receipt::Confirmed;
use super::signal::Signal;
use super::trace::Traces;
use super::{RunOptions, Services};
use crate::ack::Overdrawn;
use crate::batch::Alarm;
use crate::codes;
use crate::plan::stage::{StagePlan, StageSpec};
use anabranch_plugin::current::PipelineTask;

/// Reason why a stage ended before its input.
#[derive(Debug)]
pub(super) enum Interrupt {
    /// The stage failed.
    Fault(Fault),
    /// The next stage has ended.
    Gone,
    /// The run is stopping and its time limit has passed.
    GaveUp,
}

impl From<Fault> for Interrupt {
    fn from(fault: Fault) -> Self {
        Interrupt::Fault(fault)
    }
}

impl From<Overdrawn> for Fault {
    fn from(cause: Overdrawn) -> Self {
        Fault::fatal(codes::CREDIT_OVERDRAWN, cause)
    }
}

impl From<Overdrawn> for Interrupt {
    fn from(cause: Overdrawn) -> Self {
        Interrupt::Fault(cause.into())
    }
}

/// The marks of one connector in the store.
struct ConnectorMarks {
    store: Arc<dyn StateStore>,
    pipeline: Str,
    connector: Str,
}

#[async_trait]
impl SiblingMarks for ConnectorMarks {
    async fn marks(&self) -> Result<BTreeMap<Partition, Mark>, StoreError> {
        let marks = self.store.survey(&self.pipeline).await?;
        let ours = marks.into_iter().filter(|(lane, _)| lane.connector == self.connector);
        Ok(ours.map(|(lane, mark)| (lane.partition, mark)).collect())
    }
}

/// A request to stop, with its time and time limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct StopOrder {
    pub(super) since: Instant,
    pub(super) budget: Option<Duration>,
}

impl StopOrder {
    /// Returns the time at which this percentage of the budget is used up.
    pub(super) fn at(&self, percent: u32) -> Option<Instant> {
        Some(self.since + self.budget? * percent / 100)
    }
}

/// Maximum time in which a run whose source has failed delivers the rows that were read.
const LAST_ROWS: Duration = Duration::from_secs(30);

pub(super) struct Context {
    pub(super) pipeline: Str,
    pub(super) limits: MemoryLimits,
    pub(super) services: Services,
    pub(super) options: RunOptions,
    pub(super) progress: Arc<Progress>,
    pub(super) lanes: Lanes,
    /// Marks confirmed by transactional destinations.
    pub(super) confirmed: Confirmed,
    pub(super) alarm: Arc<Alarm>,
    pub(super) traces: Option<Arc<Traces>>,
    /// Sources stop reading.
    pub(super) stopping: Signal,
    /// Failed writes are not retried.
    pub(super) retries_over: Signal,
    /// Stages give up the rows they hold.
    pub(super) writes_over: Signal,
    /// Every stage has ended, so no more rows will be settled.
    pub(super) drained: Signal,
    /// The run has failed or was killed; every task ends immediately.
    pub(super) halt: Signal,
    /// Like `halt`, and the run does not even wait for a running commit.
    pub(super) killed: Signal,
    stop: watch::Sender<Option<StopOrder>>,
    fault: Mutex<Option<Fault>>,
    /// The fault of a source, with which the run ends when the rows that were read are delivered.
    source_fault: Mutex<Option<Fault>>,
    left: Mutex<Vec<Str>>,
    live: Arc<Live>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns `true` for faults that are the consequence of another fault, which may be noticed later.
fn is_secondary(fault: &Fault) -> bool {
    matches!(fault.code(), codes::LOST | codes::DOWNSTREAM_GONE)
}

impl Context {
    pub(super) fn new(plan: &StagePlan, services: Services, options: RunOptions) -> Self {
        let progress = Arc::new(Progress::new(plan, options.mask.clone()));
        let traces = options.traces.clone().map(|tracing| Traces::new(&plan.pipeline, tracing, options.mask.clone()));
        Context {
            pipeline: plan.pipeline.clone(),
            limits: plan.limits,
            services,
            options,
            lanes: Lanes::new(
                plan.limits.replay_rows,
                plan.limits.held_bytes,
                plan.stages.iter().any(StageSpec::is_transactional),
                progress.clone(),
            ),
            progress,
            confirmed: Confirmed::default(),
            alarm: Arc::default(),
            traces: traces.map(Arc::new),
            stopping: Signal::default(),
            retries_over: Signal::default(),
            writes_over: Signal::default(),
            drained: Signal::default(),
            halt: Signal::default(),
            killed: Signal::default(),
            stop: watch::Sender::new(None),
            fault: Mutex::default(),
            source_fault: Mutex::default(),
            left: Mutex::default(),
            live: Arc::default(),
        }
    }

    /// Returns the services for an operator, source or destination.
    pub(super) fn host(&self, node: &Str) -> Host {
        Host {
            pipeline: self.pipeline.clone(),
            slots: self.options.slots,
            node: node.clone(),
            log: self.services.log.clone(),
            result_cache: self.services.result_cache.clone(),
            active: self.services.active.clone(),
            marks: Arc::new(ConnectorMarks {
                store: self.services.store.clone(),
                pipeline: self.pipeline.clone(),
                connector: node.clone(),
            }),
            schemas: self.services.schemas.clone(),
            network: self.services.network,
            shared: self.services.shared.clone(),
            once: self.options.once,
        }
    }

    /// Registers a thread among the tasks that `join` waits for.
    pub(super) fn alive(&self) -> Alive {
        Live::enter(&self.live)
    }

    /// Spawns a task of this run.
    pub(super) fn spawn<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        let alive = self.alive();
        let task = PipelineTask::new(&self.pipeline, task);
        #[expect(
            clippy::disallowed_methods,
            reason = "the one place where a run spawns: every task is counted and joined"
        )]
        tokio::spawn(async move {
            let _alive = alive;
            task.await
        })
    }

    /// Waits until all tasks and threads have ended.
    pub(super) async fn all_ended(&self) {
        self.live.all_ended().await;
    }

    /// Spawns a stage. If it ends before its input, the run is informed.
    pub(super) fn spawn_stage(self: &Arc<Self>, Stage { name, idle, task }: Stage) -> JoinHandle<()> {
        let context = self.clone();
        self.spawn(async move {
            let result = tokio::select! {
                biased;
                () = context.halt.wait() => Ok(()),
                () = context.writes_over.wait() => if idle.is_idle() { Ok(()) } else { Err(Interrupt::GaveUp) },
                result = task => result,
            };
            match result {
                Ok(()) => {}
                Err(Interrupt::Fault(fault)) => context.fail(fault.at(&name)),
                Err(Interrupt::Gone) if !context.stopping.is_set() => {
                    context.fail(Fault::fatal(codes::DOWNSTREAM_GONE, "the stage it feeds has ended").at(&name));
                }
                Err(Interrupt::Gone | Interrupt::GaveUp) => context.leave(&name),
            }
        })
    }

    /// Ends the run with a fault, unless it already has one. After a kill, faults caused by missing parts are ignored.
    pub(super) fn fail(&self, fault: Fault) {
        if self.killed.is_set() && is_secondary(&fault) {
            return;
        }
        let mut first = locked(&self.fault);
        if first.as_ref().is_none_or(|first| is_secondary(first) && !is_secondary(&fault)) {
            *first = Some(fault);
        }
        drop(first);
        self.alarm.disarm();
        self.halt.set();
    }

    /// Ends the run with the fault of a source, but first lets it deliver the rows that were read.
    pub(super) fn fail_drained(&self, fault: Fault) {
        locked(&self.source_fault).get_or_insert(fault);
        self.order_stop(Some(LAST_ROWS));
    }

    /// Returns the fault that ended the run, with secrets masked. That of a source is the cause of others, such as of an
    /// acknowledgement that it does not receive.
    pub(super) fn fault(&self) -> Option<Fault> {
        let fault = locked(&self.source_fault).clone().or_else(|| locked(&self.fault).clone())?;
        let message = fault.message();
        let masked = self.mask(&message);
        if masked == message {
            return Some(fault);
        }
        let clean = Fault::new(fault.class(), fault.code(), masked);
        Some(match fault.node() {
            Some(node) => clean.at(node),
            None => clean,
        })
    }

    /// Returns the text with every secret masked.
    pub(super) fn mask(&self, text: &str) -> String {
        mask(text, &self.options.mask)
    }

    /// Drops everything immediately.
    pub(super) fn kill(&self) {
        self.alarm.disarm();
        self.killed.set();
        self.halt.set();
    }

    /// Stops reading. If there are two orders, the one that ends earlier applies.
    pub(super) fn order_stop(&self, budget: Option<Duration>) {
        let order = StopOrder { since: Instant::now(), budget };
        self.stop.send_if_modified(|current| match current {
            Some(current) if current.at(100).is_some_and(|end| order.at(100).is_none_or(|new| end <= new)) => false,
            Some(_) if order.budget.is_none() => false,
            _ => {
                *current = Some(order);
                true
            }
        });
        self.stopping.set();
    }

    pub(super) fn stop_orders(&self) -> watch::Receiver<Option<StopOrder>> {
        self.stop.subscribe()
    }

    /// Logs a warning about a fault that does not end the run, with secrets masked.
    pub(super) fn warn(&self, node: &Str, what: &str, fault: &Fault) {
        tracing::warn!(pipeline = %self.pipeline, %node, fault = self.mask(&fault.message()), "{what}");
    }

    /// Logs a fault that is retried, at debug level.
    pub(super) fn note(&self, what: &str, fault: &Fault) {
        if tracing::enabled!(tracing::Level::DEBUG) {
            tracing::debug!(pipeline = %self.pipeline, fault = self.mask(&fault.to_string()), "{what}");
        }
    }

    /// Logs a fault that has been retried for some time, as a warning.
    pub(super) fn complain(&self, what: &str, fault: &Fault) {
        tracing::warn!(pipeline = %self.pipeline, error = self.mask(&fault.to_string()), "{what}");
    }

    /// Returns `true` if the ledgers and the store can be trusted although the run has failed. Then settled rows may
    /// still be stored, so that fewer rows are repeated.
    pub(super) fn may_still_commit(&self) -> bool {
        let unsound = [codes::LOST, codes::CREDIT_OVERDRAWN, codes::NOT_CONSERVED, codes::ENGINE_PANICKED];
        let fault = locked(&self.fault);
        !self.killed.is_set() && fault.as_ref().is_some_and(|fault| !unsound.contains(&fault.code()))
    }

    /// Gives up: lineages may be dropped from here on, and their rows are replayed.
    pub(super) fn give_up(&self, signal: &Signal) {
        self.alarm.disarm();
        signal.set();
    }

    /// Notes that a stage did not finish in time.
    pub(super) fn leave(&self, name: &Str) {
        self.alarm.disarm();
        let mut left = locked(&self.left);
        if !left.contains(name) {
            left.push(name.clone());
        }
    }

    /// Returns the stages that did not finish in time.
    pub(super) fn left(&self) -> Vec<Str> {
        locked(&self.left).clone()
    }
}

/// Returns `true` for a transient fault that outlasted its retries during a stop: rows are left over, but nothing is
/// broken.
pub(super) fn is_left_over(fault: &Fault) -> bool {
    fault.class() == FaultClass::Transient
}
