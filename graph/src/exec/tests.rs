//! Scenarios on a paused clock: one file per promise.

mod activity;
mod backlog;
mod backpressure;
mod conditions;
mod crash;
mod dead_letter;
mod drain;
mod fan_out;
mod handover;
mod isolate;
mod limits;
mod ordering;
mod panic;
mod partitions;
mod recovery;
mod requests;
mod route;
mod shares;
mod together;
mod transaction;
mod trial;
mod unsound;
mod workers;

use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::testing::{Downstream, Journal, MemoryStore, Upstream};

use super::{Ending, RunOptions, Running, start};
use crate::plan::stage::StagePlan;
use crate::testing::{Pipeline, services};

/// Imports that most scenarios need.
pub(super) struct Bench {
    pub(super) journal: Journal,
    pub(super) store: Arc<MemoryStore>,
    letters: Arc<Downstream>,
}

impl Bench {
    pub(super) fn new() -> Self {
        let journal = Journal::default();
        let store = Arc::new(MemoryStore::new(&journal));
        let letters = Arc::new(Downstream::new("letters", &journal));
        Bench { journal, store, letters }
    }

    /// A pipeline with the default window: the first failure stops it.
    pub(super) fn pipeline(&self) -> Pipeline {
        Pipeline::new(&self.letters, 1, 0)
    }

    /// A pipeline whose failures all go to the letters.
    pub(super) fn tolerant(&self) -> Pipeline {
        Pipeline::new(&self.letters, 0, 0)
    }

    fn start(&self, plan: &Arc<StagePlan>) -> Running {
        start(plan.clone(), services(&self.store), RunOptions::default())
    }

    fn start_once(&self, plan: &Arc<StagePlan>) -> Running {
        start(plan.clone(), services(&self.store), RunOptions { once: true, ..RunOptions::default() })
    }

    async fn run(&self, plan: &Arc<StagePlan>) -> Ending {
        in_time(self.start(plan).join()).await
    }
}

/// Nothing here takes an hour of the paused clock, unless it hangs.
pub(super) async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(3600), future).await.expect("it hangs")
}

pub(super) fn finished(ending: &Ending) {
    assert!(matches!(ending, Ending::Finished), "{ending:?}");
}

pub(super) fn upstream(bench: &Bench, rows: u64) -> Arc<Upstream> {
    Arc::new(Upstream::new(&bench.journal, rows, anabranch_plugin::testing::AtEnd::End))
}

pub(super) fn shelf(bench: &Bench, name: &str) -> Arc<Downstream> {
    Arc::new(Downstream::new(name, &bench.journal))
}
