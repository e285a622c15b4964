//! Ends of logs of which nothing is fetched, because their records wait for the destination.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::start::Starter;
use crate::group::TopicPartition;

/// Age of the last answer of a fetch after which the end of the log is looked up, and minimum time between two look-ups.
pub(super) const STALE: Duration = Duration::from_secs(5);

/// The ends that were looked up.
pub(super) struct Ends {
    found: BTreeMap<TopicPartition, i64>,
    /// The look-up that is under way.
    task: JoinSet<BTreeMap<TopicPartition, i64>>,
    asked: Option<Instant>,
}

impl Ends {
    pub(super) fn new() -> Self {
        Ends { found: BTreeMap::new(), task: JoinSet::new(), asked: None }
    }

    /// Takes the results of the last look-up, and begins another one if it is time. Does not wait.
    pub(super) fn refresh(&mut self, starts: &Arc<dyn Starter>, stale: Vec<TopicPartition>) {
        match self.task.try_join_next() {
            Some(Ok(ends)) => self.found.extend(ends),
            Some(Err(error)) => {
                if let Ok(panic) = error.try_into_panic() {
                    std::panic::resume_unwind(panic);
                }
            }
            None => {}
        }
        let is_due = self.asked.is_none_or(|asked| asked.elapsed() >= STALE);
        if is_due && self.task.is_empty() && !stale.is_empty() {
            self.asked = Some(Instant::now());
            let starts = starts.clone();
            self.task.spawn(async move { starts.ends(stale).await });
        }
    }

    /// Returns the end of a log, if it was looked up.
    pub(super) fn of(&self, at: &TopicPartition) -> Option<i64> {
        self.found.get(at).copied()
    }

    /// Forgets the end of a log.
    pub(super) fn forget(&mut self, at: &TopicPartition) {
        self.found.remove(at);
    }
}
