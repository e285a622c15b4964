//! Where marks survive a crash.

use std::collections::BTreeMap;

use anabranch_record::mark::{LaneId, Mark};
use anabranch_record::text::Str;
use async_trait::async_trait;
use bytes::Bytes;

use crate::letter::{KeptLetters, Letter, LetterBounds};

/// Proof that this run is the latest owner of a pipeline's marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// The pipeline.
    pub pipeline: Str,
    /// Rises with each claim.
    pub number: u64,
}

/// The position that a transactional destination had confirmed when a position of the lane was stored.
///
/// A position may be stored when every destination has the records before it. A destination that later has less than its
/// receipt says has lost what it confirmed, as after a failover or from a restored backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Id of the destination connector.
    pub destination: Str,
    /// The lane.
    pub lane: LaneId,
    /// The least mark with which the destination has every record before the stored position that it was to get. A `seq`
    /// of 0 asks nothing of the destination.
    pub mark: Mark,
}

/// A failure of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another run claimed the pipeline: this one must stop and acknowledge nothing more.
    #[error("pipeline {pipeline} was claimed by another run (epoch {theirs}, ours is {ours})")]
    Fenced {
        /// The pipeline.
        pipeline: Str,
        /// Our epoch.
        ours: u64,
        /// The epoch found.
        theirs: u64,
    },
    /// The store cannot be read or written.
    #[error("state store: {0}")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The file of the store is gone, or another one is in its place: nothing is written until the user puts it back.
    #[error("{0}")]
    Gone(String),
    /// What it holds cannot be understood.
    #[error("state store is damaged: {0}")]
    Damaged(String),
}

/// Keeps the mark of every lane. Implementations are fenced: a commit under an old epoch fails.
#[async_trait]
pub trait StateStore: Send + Sync {
    /// Makes the caller the owner of the pipeline's marks.
    async fn claim(&self, pipeline: &Str) -> Result<Epoch, StoreError>;

    /// All marks of the pipeline.
    async fn load(&self, epoch: &Epoch) -> Result<BTreeMap<LaneId, Mark>, StoreError>;

    /// The receipts of the pipeline's transactional destinations, in any order.
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

    /// Keeps the letters of a pipeline whose dead-letter queue says so ([`Destination::keeps_letters`]), durably, and says
    /// how many. A letter replaces the one that has its name, which no bound prevents. When a bound is reached, the rest
    /// of the letters is not kept ([`WhenFull::Stop`]) or the oldest letters are removed ([`WhenFull::DropOldest`]).
    /// Letters older than the bound of age are removed first.
    ///
    /// [`WhenFull::Stop`]: crate::letter::WhenFull::Stop
    /// [`WhenFull::DropOldest`]: crate::letter::WhenFull::DropOldest
    /// [`Destination::keeps_letters`]: crate::destination::Destination::keeps_letters
    ///
    /// # Errors
    /// The store cannot be written, or keeps no letters.
    async fn keep_letters(
        &self,
        pipeline: &Str,
        letters: Vec<Letter>,
        bounds: &LetterBounds,
    ) -> Result<KeptLetters, StoreError> {
        let _ = (pipeline, letters, bounds);
        Err(StoreError::Unavailable("this store keeps no dead letters".into()))
    }
}

/// What operators remember across runs: results that depend on nothing but what their key is a hash of, as the
/// embedding of a text. Losing entries costs time, never correctness; an implementation may forget at will.
#[async_trait]
pub trait Memo: Send + Sync {
    /// What is remembered under each key of a space, in order of the keys.
    ///
    /// # Errors
    /// The store cannot be read.
    async fn recall(&self, space: &str, keys: &[MemoKey]) -> Result<Vec<Option<Bytes>>, StoreError>;

    /// Remembers; durable some time later.
    ///
    /// # Errors
    /// The store cannot be written.
    async fn keep(&self, space: &str, entries: Vec<(MemoKey, Bytes)>) -> Result<(), StoreError>;

    /// What [`Memo::set_active`] was last given for a connector. Unlike results it is not forgotten.
    ///
    /// # Errors
    /// The store cannot be read.
    async fn active(&self, _pipeline: &Str, _connector: &Str) -> Result<Option<Bytes>, StoreError> {
        Ok(None)
    }

    /// Stores with which settings a connector is active: a plugin is told when they change. Durable when it returns.
    ///
    /// # Errors
    /// The store cannot be written.
    async fn set_active(&self, _pipeline: &Str, _connector: &Str, _settings: Bytes) -> Result<(), StoreError> {
        Ok(())
    }
}

/// SHA-256 of everything that a remembered result depends on.
pub type MemoKey = [u8; 32];

/// Remembers nothing.
pub struct Oblivion;

#[async_trait]
impl Memo for Oblivion {
    async fn recall(&self, _space: &str, keys: &[MemoKey]) -> Result<Vec<Option<Bytes>>, StoreError> {
        Ok(vec![None; keys.len()])
    }

    async fn keep(&self, _space: &str, _entries: Vec<(MemoKey, Bytes)>) -> Result<(), StoreError> {
        Ok(())
    }
}
