//! The state store, which keeps marks across crashes, the memo of operators, and the active settings of connectors.

use std::collections::BTreeMap;

use anabranch_record::mark::{LaneId, Mark};
use anabranch_record::text::Str;
use async_trait::async_trait;
use bytes::Bytes;

/// Proof that this run is the latest owner of a pipeline's marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// The pipeline.
    pub pipeline: Str,
    /// Increases with each claim.
    pub number: u64,
}

/// The position that a transactional destination had confirmed when a position of the lane was stored.
///
/// A position is stored only after every destination has received the records before it. A destination that later has
/// less than its receipt has lost confirmed records, for example after a failover or because of a restored backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Id of the destination connector.
    pub destination: Str,
    /// The lane.
    pub lane: LaneId,
    /// The lowest mark at which the destination has received all its records before the stored position. A `seq`
    /// of 0 is no requirement.
    pub mark: Mark,
}

/// A failure of the state store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another run has claimed the pipeline: this one must stop and acknowledge nothing more.
    #[error("pipeline {pipeline} was claimed by another run (epoch {theirs}, ours is {ours})")]
    Fenced {
        /// The pipeline.
        pipeline: Str,
        /// Epoch of this run.
        ours: u64,
        /// Epoch of the other run.
        theirs: u64,
    },
    /// The store cannot be read or written.
    #[error("state store: {0}")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The file of the store was removed or replaced: nothing is written until the user restores it.
    #[error("{0}")]
    Gone(String),
    /// The content of the store is invalid.
    #[error("state store is damaged: {0}")]
    Damaged(String),
}

/// Stores the mark of every lane. Implementations are fenced: a commit with an old epoch fails.
#[async_trait]
pub trait StateStore: Send + Sync {
    /// Makes the caller the owner of the pipeline's marks.
    async fn claim(&self, pipeline: &Str) -> Result<Epoch, StoreError>;

    /// Returns all marks of the pipeline.
    async fn load(&self, epoch: &Epoch) -> Result<BTreeMap<LaneId, Mark>, StoreError>;

    /// Returns the receipts of the pipeline's transactional destinations, in any order.
    async fn receipts(&self, epoch: &Epoch) -> Result<Vec<Receipt>, StoreError>;

    /// Stores marks, all or none; durable when it returns.
    async fn commit(&self, epoch: &Epoch, moves: &[(LaneId, Mark)]) -> Result<(), StoreError> {
        self.commit_with_receipts(epoch, moves, &[]).await
    }

    /// Stores marks and receipts, all or none; durable when it returns. A receipt replaces the earlier one of the same
    /// destination and lane.
    async fn commit_with_receipts(
        &self,
        epoch: &Epoch,
        moves: &[(LaneId, Mark)],
        receipts: &[Receipt],
    ) -> Result<(), StoreError>;
}

/// Results that operators keep across runs, such as the embedding of a text. A result depends only on the data whose
/// hash is its key. Losing entries costs time, never correctness; an implementation may discard them at any time.
#[async_trait]
pub trait ResultCache: Send + Sync {
    /// Returns the results under the given keys of a space, in the order of the keys.
    ///
    /// # Errors
    /// The store cannot be read.
    async fn recall(&self, space: &str, keys: &[ResultKey]) -> Result<Vec<Option<Bytes>>, StoreError>;

    /// Stores results; they become durable some time later.
    ///
    /// # Errors
    /// The store cannot be written.
    async fn keep(&self, space: &str, entries: Vec<(ResultKey, Bytes)>) -> Result<(), StoreError>;
}

/// The settings with which connectors were last active, so that a plugin can be notified of changes. Unlike results of a
/// [`ResultCache`], they are never discarded.
#[async_trait]
pub trait ActiveSettings: Send + Sync {
    /// Returns the last value of [`ActiveSettings::set_active`] for a connector.
    ///
    /// # Errors
    /// The store cannot be read.
    async fn active(&self, pipeline: &Str, connector: &Str) -> Result<Option<Bytes>, StoreError>;

    /// Stores the settings with which a connector is active. Durable when it returns.
    ///
    /// # Errors
    /// The store cannot be written.
    async fn set_active(&self, pipeline: &Str, connector: &Str, settings: Bytes) -> Result<(), StoreError>;
}

/// SHA-256 of everything that a stored result depends on.
pub type ResultKey = [u8; 32];

/// A store of results and active settings that keeps neither.
pub struct DiscardingState;

#[async_trait]
impl ResultCache for DiscardingState {
    async fn recall(&self, _space: &str, keys: &[ResultKey]) -> Result<Vec<Option<Bytes>>, StoreError> {
        Ok(vec![None; keys.len()])
    }

    async fn keep(&self, _space: &str, _entries: Vec<(ResultKey, Bytes)>) -> Result<(), StoreError> {
        Ok(())
    }
}

#[async_trait]
impl ActiveSettings for DiscardingState {
    async fn active(&self, _pipeline: &Str, _connector: &Str) -> Result<Option<Bytes>, StoreError> {
        Ok(None)
    }

    async fn set_active(&self, _pipeline: &Str, _connector: &Str, _settings: Bytes) -> Result<(), StoreError> {
        Ok(())
    }
}
