//! The executor: runs a fused plan as tokio tasks until its sources end, it is stopped, or it fails.

use std::sync::Arc;
use std::time::Duration;

use crate::fault::Fault;
use crate::operator::LogSink;
use crate::plan::stage::StagePlan;
use crate::state::StateStore;
use crate::text::Str;

/// What a run reaches outside of its plan.
#[derive(Clone)]
pub struct Services {
    /// Where marks are stored.
    pub store: Arc<dyn StateStore>,
    /// Where operators and destinations write lines for people.
    pub log: Arc<dyn LogSink>,
}

/// How a plan is run.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// A source is finished at its first `CaughtUp` or `End`.
    pub once: bool,
    /// Secrets to mask in dead letters and faults.
    pub mask: Arc<[Str]>,
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

/// Counters of a run, readable while it runs.
#[derive(Debug, Default)]
pub struct Progress {}

/// A run.
pub struct Running {}

/// Starts a plan on the current tokio runtime; returns at once.
pub fn start(_plan: Arc<StagePlan>, _services: Services, _options: RunOptions) -> Running {
    Running {}
}

impl Running {
    /// Stops reading and drains. Of a budget, retries end at 60 %, writes and flushes at 85 %, the rest is for
    /// commit and acknowledgement; `None` waits for ever. A later call can only shorten the budget.
    pub fn stop(&self, _budget: Option<Duration>) {}

    /// Drops everything where it stands, as a crash would.
    pub fn kill(&self) {}

    /// Waits for the end; every task is joined. Cancel-safe: it may be called again until it has returned once,
    /// so that a run can be awaited and stopped by one owner.
    pub async fn join(&mut self) -> Ending {
        Ending::Killed
    }

    /// Its counters.
    pub fn progress(&self) -> Arc<Progress> {
        Arc::default()
    }

    /// Waits until sources, operators, destinations and the dead-letter queue are open.
    ///
    /// # Errors
    /// Why one cannot be opened.
    pub async fn opened(&self) -> Result<(), Fault> {
        Ok(())
    }
}
