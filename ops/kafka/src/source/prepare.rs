//! Preparation of assigned partitions, so that partitions that are read do not wait for look-ups.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::lookup::Found;
use super::start::Starter;
use crate::group::{Membership, Tenure, TopicPartition};

/// A partition that is prepared. Without a result, the look-up is repeated when the engine resumes the partition.
pub(super) type Prepared = (TopicPartition, Tenure, Option<Found>);

/// The partitions whose start is being looked up.
pub(super) struct Preparing {
    tasks: JoinSet<()>,
    left: BTreeMap<TopicPartition, Tenure>,
    found: BTreeMap<TopicPartition, Found>,
    ready: (mpsc::UnboundedSender<Prepared>, mpsc::UnboundedReceiver<Prepared>),
}

impl Preparing {
    pub(super) fn new() -> Self {
        let (left, found) = (BTreeMap::new(), BTreeMap::new());
        Preparing { tasks: JoinSet::new(), left, found, ready: mpsc::unbounded_channel() }
    }

    /// Begins to look up where partitions start.
    pub(super) fn begin(
        &mut self,
        starts: &Arc<dyn Starter>,
        membership: &Arc<dyn Membership>,
        partitions: Vec<(TopicPartition, Tenure)>,
    ) {
        self.left.extend(partitions.iter().cloned());
        let (starts, membership, ready) = (starts.clone(), membership.clone(), self.ready.0.clone());
        self.tasks.spawn(async move { starts.prepare(partitions, &*membership, &ready).await });
    }

    /// Takes what was found of a partition that is prepared.
    pub(super) fn take(&mut self, at: &TopicPartition) -> Option<Found> {
        self.found.remove(at)
    }

    /// Stops preparing a partition. Returns `false` if it was not being prepared.
    pub(super) fn stop(&mut self, at: &TopicPartition) -> bool {
        self.found.remove(at);
        self.left.remove(at).is_some()
    }

    /// Returns `true` if no partition is being prepared.
    pub(super) fn is_idle(&self) -> bool {
        self.left.is_empty()
    }

    /// Waits for the next partition that is prepared. Cancel-safe.
    pub(super) async fn next(&mut self) -> (TopicPartition, Tenure) {
        loop {
            tokio::select! {
                Some((at, tenure, found)) = self.ready.1.recv() => {
                    // The partition may have been taken away and assigned again meanwhile.
                    if self.left.get(&at) == Some(&tenure) {
                        self.left.remove(&at);
                        self.found.extend(found.map(|found| (at.clone(), found)));
                        return (at, tenure);
                    }
                }
                Some(ended) = self.tasks.join_next() => {
                    if let Err(error) = ended
                        && let Ok(panic) = error.try_into_panic()
                    {
                        std::panic::resume_unwind(panic);
                    }
                }
                else => std::future::pending().await,
            }
        }
    }
}
