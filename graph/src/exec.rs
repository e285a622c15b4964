//! The executor: runs a fused plan as tokio tasks until its sources end, it is stopped, or it fails.
//!
//! Every stage of the plan is a task: `read`, `chain`, `parallel`, `asynchronous`, `isolate` (with threads of its own)
//! and `write`. Strips of rows pass between stages through a `queue`, which is bounded in rows and bytes; `fan_out` is
//! the output of a stage. Each strip carries the obligation to settle it, which ends in one of three places: `write` if
//! a destination has made it durable, `fan_out` if a row was filtered, or `dead_letter` if the dead letter of a failed
//! row is durable. `lanes` takes the credit back, notifies `read` when there is room, and notifies `drain` when a
//! commit is due. `drain` flushes the destinations, stores the settled prefix of every lane, and acknowledges it to the
//! sources. `open` creates and connects all parts, `supervise` runs them until the end.
//!
//! A transactional destination gets whole source rows with the marks that they complete (`write/transaction`,
//! `lanes/landing`). At the start, `resume` compares its marks with those of the store. The marks that a destination
//! confirmed are stored with the positions (`receipt`), so that data loss in the destination is detected.
//!
//! The order is always: destination durable, position stored, source acknowledged. Therefore a crash, or a
//! [`Running::kill`], at any await point can only repeat rows: at most
//! [`MemoryLimits::replay_rows`](anabranch_config::limits::MemoryLimits) per lane and destination.

mod activity;
mod asynchronous;
mod backlog;
mod chain;
mod claims;
mod context;
mod dead_letter;
mod deliver;
mod drain;
mod failures;
mod fan_out;
mod idle;
mod isolate;
mod lanes;
mod live;
#[cfg(all(test, feature = "loom"))]
mod loom;
mod meter;
mod open;
mod panic;
mod parallel;
mod progress;
mod queue;
mod rate;
mod read;
mod receipt;
mod requests;
mod resume;
mod route;
mod signal;
mod supervise;
mod tap;
#[cfg(test)]
mod tests;
mod trace;
mod trial;
mod write;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use activity::{Activity, STATE_STORE};
pub use backlog::SourceBacklog;
pub use progress::{
    LaneCount, LastError, NodeCount, Progress, QueueCount, StageCount, Totals, UnfinishedSource, UnreadSource,
};
pub use requests::{RequestError, SourceRequests};
pub use tap::{Inspection, InspectionParameters, NodeRole, Side, TapPoint, TappedRecord, Taps, Unjudged, places};
pub use trial::{Trial, try_out};

use anabranch_plugin::host::{LogSink, Network};
use anabranch_plugin::letter::{KeptLetters, Letter, LetterBounds, LetterStore};
use anabranch_plugin::schema::SchemaRegistry;
use anabranch_plugin::state::{ActiveSettings, Epoch, ResultCache, Slots, StateStore, StoreError};
use anabranch_plugin::trace::Tracing;
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use context::{Context, Interrupt};

use crate::codes;
use crate::plan::stage::StagePlan;

/// Services that a run uses, in addition to its plan.
#[derive(Clone)]
pub struct Services {
    /// Store of the marks.
    pub store: Arc<dyn StateStore>,
    /// Store of dead letters; `None` = pipelines whose dead-letter queue is in the store cannot run.
    pub letters: Option<Arc<dyn LetterStore>>,
    /// Log of operators and destinations.
    pub log: Arc<dyn LogSink>,
    /// State that operators keep across runs.
    pub result_cache: Arc<dyn ResultCache>,
    /// Settings with which connectors were last active.
    pub active: Arc<dyn ActiveSettings>,
    /// Registry of the schemas of keys and payloads.
    pub schemas: Arc<dyn SchemaRegistry>,
    /// Network access of operators.
    pub network: Network,
    /// Identifies the store, if several processes share it: another one may run the units of this run while this process
    /// believes that it still does. See [`Host::shared`](anabranch_plugin::host::Host::shared).
    pub shared: Option<Str>,
}

impl Services {
    /// Stores dead letters of a unit whose dead-letter queue is in the store: see [`LetterStore::keep_letters`].
    async fn keep_letters(
        &self,
        epoch: &Epoch,
        letters: Vec<Letter>,
        bounds: &LetterBounds,
    ) -> Result<KeptLetters, StoreError> {
        match &self.letters {
            Some(store) => store.keep_letters(epoch, letters, bounds).await,
            None => Err(StoreError::Unavailable("this store cannot store dead letters".into())),
        }
    }
}

/// Options of a run.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// True if a source is finished at its first `CaughtUp` or `End`.
    pub once: bool,
    /// The slots of the pipeline that the run claims.
    pub slots: Slots,
    /// Secrets to mask in dead letters and faults.
    pub mask: Arc<[Str]>,
    /// Taps for inspecting records. They belong to the pipeline and are the same for all of its runs.
    pub taps: Arc<Taps>,
    /// Passes requests to the sources. They belong to the pipeline and are the same for all of its runs.
    pub requests: Arc<SourceRequests>,
    /// Tracing configuration; `None` = no tracing.
    pub traces: Option<Tracing>,
}

/// Outcome of a run.
#[derive(Debug)]
pub enum Ending {
    /// All sources ended and every row is settled, stored and acknowledged.
    Finished,
    /// The run was stopped; everything that was read is settled, stored and acknowledged.
    Stopped,
    /// The run was stopped, but the time limit was too short. The remaining rows are replayed on the next start.
    NotDrained {
        /// Ids of connectors and processors that still had rows.
        left: Vec<Str>,
    },
    /// The run failed. After a transient fault it can be restarted later; otherwise the pipeline is degraded.
    Faulted(Fault),
    /// The run was killed.
    Killed,
}

/// Maximum wait of `join` for threads that do not end.
const HANGING: Duration = Duration::from_secs(5);

/// A run. Dropping it kills the run.
pub struct Running {
    context: Arc<Context>,
    task: Option<JoinHandle<Ending>>,
    /// Outcome, until `wait` returns it.
    ending: Option<Ending>,
    opened: watch::Receiver<Option<Result<(), Fault>>>,
}

/// Starts a plan on the current tokio runtime and returns immediately.
pub fn start(plan: Arc<StagePlan>, services: Services, options: RunOptions) -> Running {
    let context = Arc::new(Context::new(&plan, services, options));
    let (opened, is_open) = watch::channel(None);
    let task = context.spawn(supervise::run(context.clone(), plan, opened));
    Running { context, task: Some(task), ending: None, opened: is_open }
}

impl Running {
    /// Stops reading and drains the run. Of the budget, retries end at 60 %, writes and flushes at 85 %, and the rest
    /// is for commits and acknowledgements; `None` waits without limit. A later call can only shorten the remaining
    /// time.
    pub fn stop(&self, budget: Option<Duration>) {
        self.context.order_stop(budget);
    }

    /// Drops everything immediately, as a crash would.
    pub fn kill(&self) {
        self.context.kill();
    }

    /// Waits until the run has ended and every task is joined.
    pub async fn join(mut self) -> Ending {
        self.wait().await
    }

    /// Waits until the run has ended and every task is joined. Cancel-safe, so that one owner can wait for a run and
    /// stop it. After the first return, it returns [`Ending::Killed`].
    pub async fn wait(&mut self) -> Ending {
        if let Some(task) = &mut self.task {
            let ending = task.await.unwrap_or_else(|error| {
                Ending::Faulted(Fault::fatal(
                    codes::ENGINE_PANICKED,
                    format!("the executor panicked: {}", panic::of_task(error)),
                ))
            });
            self.task = None;
            self.ending = Some(ending);
        }
        // A thread that hangs in a processor cannot be terminated and is left behind.
        let _ = tokio::time::timeout(HANGING, self.context.all_ended()).await;
        self.ending.take().unwrap_or(Ending::Killed)
    }

    /// Returns the counters of the run.
    pub fn progress(&self) -> Arc<Progress> {
        self.context.progress.clone()
    }

    /// Waits until sources, operators, destinations and the dead-letter queue are open, or until the run has ended.
    ///
    /// # Errors
    /// One of them cannot be opened.
    pub fn opened(&self) -> impl Future<Output = Result<(), Fault>> + Send + use<> {
        let mut opened = self.opened.clone();
        async move {
            match opened.wait_for(Option::is_some).await {
                Ok(result) => result.clone().unwrap_or(Ok(())),
                Err(_) => Err(Fault::transient(codes::NOT_OPENED, "the run ended before everything was open")),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.context.kill();
    }
}
