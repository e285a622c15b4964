//! Commits of acknowledged offsets.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anabranch_plugin::source::{Acker, Release};
use anabranch_record::Position;
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::mark::Partition;
use anabranch_record::text::Str;
use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::position::LogPosition;
use crate::codes;
use crate::group::{Committed, Membership, Tenure, TopicPartition};

/// Time for which the last commit of a partition is repeated.
const LAST: Duration = Duration::from_secs(10);

/// The acknowledged offsets of the partitions that this process reads.
pub(super) struct Offsets {
    membership: Arc<dyn Membership>,
    /// Marks the offsets as committed by this source.
    signature: Str,
    partitions: Mutex<BTreeMap<Partition, Acknowledged>>,
    /// Held while offsets are sent, so that a commit and the release of a partition are in order.
    sending: tokio::sync::Mutex<()>,
    /// Notified when enough is acknowledged for a commit.
    due: Notify,
    /// The last error of a commit that does not pass.
    failed: Mutex<Option<Fault>>,
}

struct Acknowledged {
    at: TopicPartition,
    tenure: Tenure,
    /// The offset after the last acknowledged record, if it is not committed yet.
    next: Option<i64>,
}

impl Offsets {
    pub(super) fn new(membership: Arc<dyn Membership>, signature: Str) -> Arc<Offsets> {
        let (partitions, sending) = (Mutex::default(), tokio::sync::Mutex::default());
        let (due, failed) = (Notify::new(), Mutex::default());
        Arc::new(Offsets { membership, signature, partitions, sending, due, failed })
    }

    fn partitions(&self) -> MutexGuard<'_, BTreeMap<Partition, Acknowledged>> {
        self.partitions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to take acknowledgements of a partition.
    pub(super) fn begin(&self, partition: Partition, at: TopicPartition, tenure: Tenure) {
        self.partitions().insert(partition, Acknowledged { at, tenure, next: None });
    }

    /// Commits the offset at which a partition starts, before a record of it is read.
    ///
    /// # Errors
    /// The group does not take the offset.
    pub(super) async fn adopt(&self, partition: &Partition, from: i64) -> Result<(), Fault> {
        if let Some(it) = self.partitions().get_mut(partition) {
            it.next = Some(from);
        }
        self.commit(LAST).await?;
        match self.partitions().get(partition).and_then(|it| it.next) {
            None => Ok(()),
            Some(_) => {
                let text = format!("the consumer group does not take the offset {from} of {}", partition.0);
                Err(Fault::transient(codes::UNAVAILABLE, text))
            }
        }
    }

    /// Returns `true` if acknowledgements of a partition are taken.
    pub(super) fn has(&self, partition: &Partition) -> bool {
        self.partitions().contains_key(partition)
    }

    /// Drops later acknowledgements of a partition: another process may own it.
    pub(super) fn lose(&self, partition: &Partition) {
        self.partitions().remove(partition);
    }

    /// Commits everything that is acknowledged, and repeats for `patience` what the group does not take now. What is left
    /// is part of the next commit.
    pub(super) async fn commit(&self, patience: Duration) -> Result<(), Fault> {
        let _sending = self.sending.lock().await;
        let pending: Vec<(Partition, TopicPartition, Tenure, i64)> = self
            .partitions()
            .iter()
            .filter_map(|(partition, it)| Some((partition.clone(), it.at.clone(), it.tenure, it.next?)))
            .collect();
        if pending.is_empty() {
            return Ok(());
        }
        let offset = |offset| Committed { offset, leader_epoch: -1, metadata: self.signature.clone() };
        let offsets: Vec<_> =
            pending.iter().map(|(_, at, tenure, next)| (at.clone(), *tenure, offset(*next))).collect();
        let left = self.membership.commit(&offsets, patience).await?;
        let mut partitions = self.partitions();
        for (partition, _, tenure, next) in pending.into_iter().filter(|(_, at, ..)| !left.contains(at)) {
            // More may be acknowledged meanwhile.
            if let Some(it) = partitions.get_mut(&partition).filter(|it| it.tenure == tenure && it.next == Some(next)) {
                it.next = None;
            }
        }
        Ok(())
    }
}

/// Receives the acknowledgements. A task commits them, so that a slow coordinator does not delay those of later records.
pub(super) struct Commits {
    offsets: Arc<Offsets>,
    /// Number of acknowledgements after which they are committed.
    size: usize,
    since: usize,
    task: JoinSet<()>,
}

impl Commits {
    pub(super) fn new(offsets: Arc<Offsets>, size: usize, delay: Duration) -> Commits {
        let mut task = JoinSet::new();
        task.spawn(commit(offsets.clone(), delay));
        Commits { offsets, size, since: 0, task }
    }

    /// Returns the error of a commit in the task.
    fn check(&mut self) -> Result<(), Fault> {
        if let Some(Err(error)) = self.task.try_join_next()
            && let Ok(panic) = error.try_into_panic()
        {
            std::panic::resume_unwind(panic);
        }
        let failed = self.offsets.failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        failed.map_or(Ok(()), Err)
    }
}

/// Commits offsets when enough are acknowledged, and after some time.
async fn commit(offsets: Arc<Offsets>, delay: Duration) {
    loop {
        tokio::select! {
            () = offsets.due.notified() => {}
            () = tokio::time::sleep(delay) => {}
        }
        match offsets.commit(Duration::ZERO).await {
            Ok(()) => {}
            Err(fault) if fault.class() == FaultClass::Transient => {
                tracing::warn!("cannot commit offsets to the consumer group: {}", fault.message());
            }
            Err(fault) => *offsets.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault),
        }
    }
}

#[async_trait]
impl Acker for Commits {
    async fn ack(&mut self, partition: &Partition, positions: &[Position]) -> Result<(), Fault> {
        self.check()?;
        let Some(last) = positions.last() else { return Ok(()) };
        let next = LogPosition::decode(last)?.offset + 1;
        match self.offsets.partitions().get_mut(partition) {
            Some(acknowledged) => acknowledged.next = Some(next),
            // Lost meanwhile.
            None => return Ok(()),
        }
        self.since += positions.len();
        if self.since >= self.size {
            self.since = 0;
            self.offsets.due.notify_one();
        }
        Ok(())
    }

    async fn released(&mut self, partition: &Partition, _release: Release) -> Result<(), Fault> {
        let committed = if self.offsets.has(partition) { self.offsets.commit(LAST).await } else { Ok(()) };
        self.offsets.lose(partition);
        // Whatever happened to the commit: the next owner reads again what it lacks. A partition that was revoked before the
        // engine resumed it is let go too.
        if let Some(at) = TopicPartition::parse(&partition.0) {
            self.offsets.membership.let_go(&at);
        }
        committed
    }

    async fn close(&mut self) -> Result<(), Fault> {
        self.task.abort_all();
        let committed = self.offsets.commit(LAST).await;
        self.offsets.membership.leave().await;
        committed
    }
}
