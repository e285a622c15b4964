//! What all tasks of a run share: lanes, signals, the first fault, and the one place where tasks are spawned.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anabranch_plugin::host::{Host, Network};
use anabranch_plugin::secret::mask;
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::text::Str;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::ambient::Within;
use super::lanes::Lanes;
use super::live::{Alive, Live};
use super::open::Stage;
use super::progress::Progress;
use super::receipt::Confirmed;
use super::signal::Signal;
use super::trace::Traces;
use super::{RunOptions, Services};
use crate::batch::Alarm;
use crate::plan::stage::{Limits, StagePlan, StageSpec};

/// Why a stage ended before its input did.
#[derive(Debug)]
pub(super) enum Interrupt {
    /// It failed.
    Fault(Fault),
    /// The stage it feeds is gone.
    Gone,
    /// The run is being stopped and its budget is used up.
    GaveUp,
}

impl From<Fault> for Interrupt {
    fn from(fault: Fault) -> Self {
        Interrupt::Fault(fault)
    }
}

/// When a stop was asked for, and how long it may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct StopOrder {
    pub(super) since: Instant,
    pub(super) budget: Option<Duration>,
}

impl StopOrder {
    /// When a share of the budget is used up.
    pub(super) fn at(&self, percent: u32) -> Option<Instant> {
        Some(self.since + self.budget? * percent / 100)
    }
}

pub(super) struct Context {
    pub(super) pipeline: Str,
    pub(super) limits: Limits,
    pub(super) services: Services,
    pub(super) options: RunOptions,
    pub(super) progress: Arc<Progress>,
    pub(super) lanes: Lanes,
    /// What the transactional destinations have.
    pub(super) confirmed: Confirmed,
    pub(super) alarm: Arc<Alarm>,
    pub(super) traces: Option<Arc<Traces>>,
    /// Sources stop reading.
    pub(super) stopping: Signal,
    /// Failed writes are not repeated any more.
    pub(super) retries_over: Signal,
    /// Stages give up what they have.
    pub(super) writes_over: Signal,
    /// Every stage has ended: what is settled now is all there will be.
    pub(super) drained: Signal,
    /// The run has failed or was killed: every task ends where it stands.
    pub(super) halt: Signal,
    /// As `halt`, and not even a commit under way is waited for.
    pub(super) killed: Signal,
    stop: watch::Sender<Option<StopOrder>>,
    fault: Mutex<Option<Fault>>,
    left: Mutex<Vec<Str>>,
    live: Arc<Live>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Faults that are the consequence of another one, which may be noticed later.
fn is_secondary(fault: &Fault) -> bool {
    matches!(fault.code(), "lost" | "downstream_gone")
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
            left: Mutex::default(),
            live: Arc::default(),
        }
    }

    /// What an operator, source or destination may reach.
    pub(super) fn host(&self, node: &Str) -> Host {
        Host {
            pipeline: self.pipeline.clone(),
            node: node.clone(),
            log: self.services.log.clone(),
            memo: self.services.memo.clone(),
            schemas: self.services.schemas.clone(),
            network: Network::Open,
        }
    }

    /// Counts a thread among the tasks that `join` waits for.
    pub(super) fn alive(&self) -> Alive {
        Live::enter(&self.live)
    }

    /// Spawns a task of this run.
    pub(super) fn spawn<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        let alive = self.alive();
        let task = Within::new(&self.pipeline, task);
        #[expect(
            clippy::disallowed_methods,
            reason = "the one place where a run spawns: every task is counted and joined"
        )]
        tokio::spawn(async move {
            let _alive = alive;
            task.await
        })
    }

    /// Waits until no task and no thread is left.
    pub(super) async fn all_ended(&self) {
        self.live.all_ended().await;
    }

    /// Spawns a stage. When it ends other than by the end of its input, the run is told.
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
                    context.fail(Fault::fatal("downstream_gone", "the stage it feeds has ended").at(&name));
                }
                Err(Interrupt::Gone | Interrupt::GaveUp) => context.leave(&name),
            }
        })
    }

    /// Ends the run with a fault, unless it has one already. Of a run that was killed parts are missed by others: that
    /// is no fault.
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

    /// The fault that ended the run, with secrets masked.
    pub(super) fn fault(&self) -> Option<Fault> {
        let fault = locked(&self.fault).clone()?;
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

    /// The text with every secret replaced.
    pub(super) fn mask(&self, text: &str) -> String {
        mask(text, &self.options.mask)
    }

    /// Drops everything where it stands.
    pub(super) fn kill(&self) {
        self.alarm.disarm();
        self.killed.set();
        self.halt.set();
    }

    /// Stops reading; of two orders the one that ends earlier counts.
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

    /// A line in the log about something that does not end the run, with secrets masked.
    pub(super) fn warn(&self, node: &Str, what: &str, fault: &Fault) {
        tracing::warn!(pipeline = %self.pipeline, %node, fault = self.mask(&fault.message()), "{what}");
    }

    /// As [`Context::warn`], for what is tried again.
    pub(super) fn note(&self, what: &str, fault: &Fault) {
        if tracing::enabled!(tracing::Level::DEBUG) {
            tracing::debug!(pipeline = %self.pipeline, fault = self.mask(&fault.to_string()), "{what}");
        }
    }

    /// As [`Context::note`], for what has been tried for a while.
    pub(super) fn complain(&self, what: &str, fault: &Fault) {
        tracing::warn!(pipeline = %self.pipeline, error = self.mask(&fault.to_string()), "{what}");
    }

    /// Whether the ledgers and the store can be trusted although the run has failed: then what is settled may still
    /// be stored, so that less is repeated.
    pub(super) fn may_still_commit(&self) -> bool {
        let unsound = ["lost", "credit_overdrawn", "not_conserved", "engine_panicked"];
        let fault = locked(&self.fault);
        !self.killed.is_set() && fault.as_ref().is_some_and(|fault| !unsound.contains(&fault.code()))
    }

    /// The run gives up: lineages may be dropped from now on, their rows are replayed.
    pub(super) fn give_up(&self, signal: &Signal) {
        self.alarm.disarm();
        signal.set();
    }

    /// Notes that something did not get done in time.
    pub(super) fn leave(&self, name: &Str) {
        self.alarm.disarm();
        let mut left = locked(&self.left);
        if !left.contains(name) {
            left.push(name.clone());
        }
    }

    /// What did not get done in time.
    pub(super) fn left(&self) -> Vec<Str> {
        locked(&self.left).clone()
    }
}

/// A transient fault that outlived its retries while the run was being stopped: rows are left, nothing is broken.
pub(super) fn is_left_over(fault: &Fault) -> bool {
    fault.class() == FaultClass::Transient
}
