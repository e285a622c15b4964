//! The executor: runs a fused plan as tokio tasks until its sources end, it is stopped, or it fails.
//!
//! Every stage of the plan is a task: `read`, `chain`, `parallel`, `asynchronous`, `isolate` (with threads of its own)
//! and `write`. Strips of rows go from stage to stage through a `queue` that is bounded by rows and bytes; `fan_out` is
//! the way out of a stage. With every strip goes the duty to settle it, which ends in one of three places: `write` when
//! a destination has made it durable, `fan_out` when a row was filtered, `dead_letter` when the letter of a failed row
//! is durable. `lanes` takes the credit back, tells `read` when there is room, and tells `drain` when a commit is due;
//! `drain` flushes the destinations, stores the settled prefix of every lane, and acknowledges it to the sources.
//! `open` wires all this up, `supervise` sees it to its end.
//!
//! A transactional destination is given whole source rows with the marks that they complete (`write/transaction`,
//! `lanes/landing`), and `resume` compares its marks with the store's at the start. What it had confirmed is stored with
//! the positions (`receipt`), so that a destination that lost it is noticed.
//!
//! The order is always: destination durable, position stored, source acknowledged. So a crash, or a [`Running::kill`],
//! at any await point can only repeat rows, at most [`Limits::replay_rows`](crate::plan::stage::Limits) per lane and
//! destination.

mod activity;
mod ambient;
mod asynchronous;
mod backlog;
mod chain;
mod context;
mod dead_letter;
mod deliver;
mod drain;
mod failures;
mod fan_out;
mod isolate;
mod lanes;
mod live;
#[cfg(all(test, feature = "loom"))]
mod loom;
mod meter;
mod open;
mod parallel;
mod progress;
mod queue;
mod read;
mod receipt;
mod resume;
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
pub use ambient::pipeline as current_pipeline;
pub use backlog::SourceBacklog;
pub use progress::{LaneCount, LastError, Left, NodeCount, Progress, QueueCount, StageCount, Totals, Unread};
pub use tap::{Glimpse, Inspection, Look, Place, Side, Station, Taps, Unjudged, places};
pub use trial::{Trial, try_out};

use anabranch_plugin::host::LogSink;
use anabranch_plugin::schema::SchemaRegistry;
use anabranch_plugin::state::{Memo, StateStore};
use anabranch_plugin::trace::Tracing;
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use context::{Context, Interrupt};

use crate::plan::stage::StagePlan;

/// What a run reaches outside of its plan.
#[derive(Clone)]
pub struct Services {
    /// Where marks are stored.
    pub store: Arc<dyn StateStore>,
    /// Where operators and destinations write lines for people.
    pub log: Arc<dyn LogSink>,
    /// What operators remember across runs.
    pub memo: Arc<dyn Memo>,
    /// The schemas of keys and payloads.
    pub schemas: Arc<dyn SchemaRegistry>,
}

/// How a plan is run.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// A source is finished at its first `CaughtUp` or `End`.
    pub once: bool,
    /// Secrets to mask in dead letters and faults.
    pub mask: Arc<[Str]>,
    /// Where its records can be looked at: the pipeline's own, the same for all of its runs.
    pub taps: Arc<Taps>,
    /// How it is traced; `None` = not at all.
    pub traces: Option<Tracing>,
}

/// How a run ended.
#[derive(Debug)]
pub enum Ending {
    /// All sources ended and every row is settled, stored and acknowledged.
    Finished,
    /// It was told to stop, and everything that was read is settled, stored and acknowledged.
    Stopped,
    /// It was told to stop, and the budget did not suffice: what is left is replayed on the next start.
    NotDrained {
        /// Ids of connectors and processors that still had rows.
        left: Vec<Str>,
    },
    /// Something failed. Transient: start again later. Otherwise: degraded.
    Faulted(Fault),
    /// It was killed.
    Killed,
}

/// How long `join` waits for threads that do not end.
const HANGING: Duration = Duration::from_secs(5);

/// A run. Dropping it kills the run.
pub struct Running {
    context: Arc<Context>,
    task: Option<JoinHandle<Ending>>,
    /// How it ended, until somebody was told.
    ending: Option<Ending>,
    opened: watch::Receiver<Option<Result<(), Fault>>>,
}

/// Starts a plan on the current tokio runtime; returns at once.
pub fn start(plan: Arc<StagePlan>, services: Services, options: RunOptions) -> Running {
    let context = Arc::new(Context::new(&plan, services, options));
    let (opened, is_open) = watch::channel(None);
    let task = context.spawn(supervise::run(context.clone(), plan, opened));
    Running { context, task: Some(task), ending: None, opened: is_open }
}

impl Running {
    /// Stops reading and drains. Of a budget, retries end at 60 %, writes and flushes at 85 %, the rest is for
    /// commit and acknowledgement; `None` waits for ever. A later call can only shorten the time left.
    pub fn stop(&self, budget: Option<Duration>) {
        self.context.order_stop(budget);
    }

    /// Drops everything where it stands, as a crash would.
    pub fn kill(&self) {
        self.context.kill();
    }

    /// Waits for the end; every task is joined.
    pub async fn join(mut self) -> Ending {
        self.wait().await
    }

    /// Waits for the end; every task is joined. Cancel-safe, so that one owner can wait for a run and stop it.
    /// Once it has returned, it says [`Ending::Killed`].
    pub async fn wait(&mut self) -> Ending {
        if let Some(task) = &mut self.task {
            let ending = task.await.unwrap_or_else(|error| {
                Ending::Faulted(Fault::fatal(
                    "engine_panicked",
                    format!("the executor panicked: {}", chain::said(error)),
                ))
            });
            self.task = None;
            self.ending = Some(ending);
        }
        // A thread that hangs in a processor cannot be ended: it is left behind.
        let _ = tokio::time::timeout(HANGING, self.context.all_ended()).await;
        self.ending.take().unwrap_or(Ending::Killed)
    }

    /// Its counters.
    pub fn progress(&self) -> Arc<Progress> {
        self.context.progress.clone()
    }

    /// Waits until sources, operators, destinations and the dead-letter queue are open, or the run has ended.
    ///
    /// # Errors
    /// Why one cannot be opened.
    pub fn opened(&self) -> impl Future<Output = Result<(), Fault>> + Send + use<> {
        let mut opened = self.opened.clone();
        async move {
            match opened.wait_for(Option::is_some).await {
                Ok(result) => result.clone().unwrap_or(Ok(())),
                Err(_) => Err(Fault::transient("not_opened", "the run ended before everything was open")),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.context.kill();
    }
}
