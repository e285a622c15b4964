//! Consumer groups: which partitions this process owns, and the offsets that the group has committed.

mod assignor;
mod commit;
mod coordinator;
mod member;
mod rebalance;
mod rights;
mod slots;
mod topics;
mod watch;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use async_trait::async_trait;

pub(crate) use member::{GroupSettings, join};
pub(crate) use rights::check_rights;
pub(crate) use slots::take_slots;
pub(crate) use topics::Subscription;

/// A partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TopicPartition {
    /// Name of the topic.
    pub(crate) topic: Str,
    /// Number of the partition, from 0.
    pub(crate) partition: i32,
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic, self.partition)
    }
}

impl TopicPartition {
    /// Reads what `Display` writes. Names of topics have no slash.
    pub(crate) fn parse(text: &str) -> Option<TopicPartition> {
        let (topic, partition) = text.rsplit_once('/')?;
        Some(TopicPartition { topic: topic.into(), partition: partition.parse().ok()? })
    }
}

/// The time for which this member owns a partition. A partition that is lost or revoked and assigned again has another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tenure(pub(crate) u64);

/// An offset that the group committed for a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Committed {
    /// Offset of the next record to read.
    pub(crate) offset: i64,
    /// Epoch of the leader of the last record that was read; -1 if unknown.
    pub(crate) leader_epoch: i32,
    /// Text that the committer chose.
    pub(crate) metadata: Str,
}

/// A change of the partitions of this member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// This member owns these partitions from now on, in addition to those it has.
    Assigned(Vec<(TopicPartition, Tenure)>),
    /// Another member is to own these partitions. The member gives them up when [`Membership::let_go`] was called for
    /// each, at the latest after `within`.
    Revoked {
        /// The partitions.
        partitions: Vec<TopicPartition>,
        /// Time until the group no longer waits.
        within: Duration,
    },
    /// Another member may own these partitions already.
    Lost(Vec<TopicPartition>),
    /// A rebalance is complete, also if this member received no partition.
    Settled,
}

/// Membership in a consumer group. A task of its own keeps it, so that a full pipeline is not expelled.
#[async_trait]
pub(crate) trait Membership: Send + Sync {
    /// Waits for the next change. Cancel-safe; only one call at a time.
    ///
    /// # Errors
    /// The member cannot take part in the group.
    async fn change(&self) -> Result<Change, Fault>;

    /// Returns the offsets that the group committed; a partition without one is absent.
    ///
    /// # Errors
    /// The coordinator does not answer, or answers with an error for one of the partitions. An error never means that
    /// there is no offset.
    async fn committed(&self, partitions: &[TopicPartition]) -> Result<BTreeMap<TopicPartition, Committed>, Fault>;

    /// Commits offsets of partitions that this member owns. Offsets of a tenure that is over are dropped, also if the
    /// partition was assigned again since then: another member may have read and committed more meanwhile.
    ///
    /// Returns the partitions whose offsets are not committed, because the group rebalances or the coordinator does not
    /// answer. The call repeats them for `patience`; with zero, it sends them once.
    ///
    /// # Errors
    /// The coordinator refuses the offsets, for example because a right is missing.
    async fn commit(
        &self,
        offsets: &[(TopicPartition, Tenure, Committed)],
        patience: Duration,
    ) -> Result<Vec<TopicPartition>, Fault>;

    /// Lets a revoked partition go. Does nothing if it is not revoked.
    fn let_go(&self, partition: &TopicPartition);

    /// Leaves the group, so that others receive the partitions at once. A member with a static id stays until its
    /// session ends.
    async fn leave(&self);
}
