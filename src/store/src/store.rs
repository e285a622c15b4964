//! The handle of the store.

mod backup;
mod cluster;
mod copy;
mod letters;
mod open;
mod positions;
mod schemas;

use std::collections::BTreeMap;
#[cfg(feature = "postgres")]
use std::sync::Arc;
use std::time::Duration;

use anabranch_cluster::Membership;
use anabranch_plugin::letter::{KeptLetters, Letter, LetterBounds, LetterStore};
use anabranch_plugin::state::{
    ActiveSettings, Commit, Epoch, Receipt, ResultCache, ResultKey, StateStore, StoreError, Unit,
};
use anabranch_record::mark::{LaneId, Mark};
use anabranch_record::text::Str;
use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

pub use backup::{Backup, BackupError, path_of};
pub use copy::{CopiedCounts, CopyError};

use self::letters::Evictions;
use crate::compare::{ConfigurationChange, Provision};
use crate::embedded::Embedded;
use crate::entity::{Moment, Status, StoredPipeline};
use crate::failure::{LastWrite, WriteHealth};
use crate::form;
use crate::meter::{Meter, StoreNumbers};
use crate::owner::StoreOwnership;
#[cfg(feature = "postgres")]
use crate::postgres::{Ownership, Postgres};
use crate::request::{Read, ReadResult, Write, WriteResult, contradiction};

/// Time limit of [`Store::check`].
const ANSWER: Duration = Duration::from_secs(5);

/// A handle of the store; clones share it.
#[derive(Clone)]
pub struct Store {
    pub(crate) backend: Backend,
    last_write: LastWrite,
    meter: Meter,
    evictions: Evictions,
    holding: watch::Receiver<StoreOwnership>,
    /// The membership in a cluster, if several nodes share the store.
    membership: Option<Membership>,
    /// Identifies the store, if several nodes share it.
    identity: Option<Str>,
    /// The session that proves that this process owns a store in PostgreSQL.
    #[cfg(feature = "postgres")]
    ownership: Option<Arc<Ownership>>,
}

/// The storage back end.
#[derive(Clone)]
pub(crate) enum Backend {
    Embedded(Embedded),
    #[cfg(feature = "postgres")]
    Postgres(Postgres),
}

impl Store {
    /// Compares the files with the stored configuration and stores what the files say, in one transaction. Settings,
    /// plugins, conditions, processors, their order and workers change in place and keep the position. A connector
    /// whose type or id changed starts from its beginning, and its old state is kept as detached. A pipeline that is
    /// missing in the files is detached. A pipeline that ran when the process ended becomes stopped by the system.
    ///
    /// # Errors
    /// The store cannot be written; nothing was changed.
    pub async fn provision(&self, provision: Provision) -> Result<Vec<ConfigurationChange>, StoreError> {
        match self.write(Write::Provision(provision)).await? {
            WriteResult::Changes(changes) => Ok(changes),
            other => Err(contradiction(&other)),
        }
    }

    /// Replaces a stored pipeline in one transaction and returns the differences. Its status stays. Connectors that are
    /// missing are set aside with their marks, and get them back if they return.
    ///
    /// # Errors
    /// The store cannot be written; nothing was changed.
    pub async fn replace(&self, pipeline: StoredPipeline) -> Result<Vec<ConfigurationChange>, StoreError> {
        match self.write(Write::Replace { pipeline: Box::new(pipeline), at: Moment::now() }).await? {
            WriteResult::Changes(changes) => Ok(changes),
            other => Err(contradiction(&other)),
        }
    }

    /// Deletes everything that is stored of a pipeline, including its marks. The pipeline must not run. If a
    /// transactional destination has a position of a source, that source starts from its beginning if the pipeline is
    /// created again: see [`Store::start_anew`].
    ///
    /// # Errors
    /// The store cannot be written; the pipeline still exists.
    pub async fn delete(&self, pipeline: &Str) -> Result<(), StoreError> {
        self.start_anew(pipeline, |_| true).await?;
        self.write(Write::Delete { pipeline: pipeline.clone() }).await.map(drop)
    }

    /// Removes a connector that is set aside: its marks and its last active settings.
    ///
    /// # Errors
    /// The store cannot be written; the connector still exists.
    pub async fn forget(&self, pipeline: &Str, connector: &Str) -> Result<(), StoreError> {
        self.start_anew(pipeline, |lane| lane.connector == *connector).await?;
        let write = Write::Forget { pipeline: pipeline.clone(), connector: connector.clone() };
        self.write(write).await.map(drop)
    }

    /// Returns one stored pipeline.
    ///
    /// # Errors
    /// The errors of [`Store::pipelines`].
    pub async fn pipeline(&self, id: &str) -> Result<Option<StoredPipeline>, StoreError> {
        Ok(self.pipelines().await?.into_iter().find(|pipeline| *pipeline.id == *id))
    }

    /// Stores the status of a pipeline; does nothing if the pipeline does not exist.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn set_status(&self, pipeline: &Str, status: Status) -> Result<(), StoreError> {
        self.write(Write::Status { pipeline: pipeline.clone(), status }).await.map(drop)
    }

    /// Returns all stored pipelines in the order of their ids, including detached ones.
    ///
    /// # Errors
    /// The store cannot be read or is damaged.
    pub async fn pipelines(&self) -> Result<Vec<StoredPipeline>, StoreError> {
        match self.read(Read::Pipelines).await? {
            ReadResult::Pipelines(pipelines) => Ok(pipelines),
            other => Err(contradiction(&other)),
        }
    }

    /// Checks the health of the store: reads it and, if the last write failed, tries a write. Takes at most 5 s.
    ///
    /// # Errors
    /// The store cannot be read or does not answer, or the last attempt to write failed.
    pub async fn check(&self) -> Result<(), StoreError> {
        let late = |_| Err(StoreError::Unavailable("it does not answer".into()));
        timeout(ANSWER, self.probe()).await.unwrap_or_else(late)
    }

    async fn probe(&self) -> Result<(), StoreError> {
        match self.last_write.health() {
            WriteHealth::Works => {}
            WriteHealth::Fails(failure) => return Err(failure.error()),
            WriteHealth::Unknown(bytes) => drop(self.write(Write::Trial(bytes)).await?),
        }
        self.look().await;
        if let Some(why) = self.holding.borrow().refusal() {
            return Err(StoreError::Unavailable(why.into()));
        }
        // The cost of this read does not depend on the number of pipelines.
        self.positions(&Str::default()).await.map(drop)
    }

    /// Returns durations, errors and health of the store. It calls [`Store::check`].
    pub async fn numbers(&self) -> Option<StoreNumbers> {
        let (meter, works) = (self.meter.clone(), self.check().await.is_ok());
        tokio::task::spawn_blocking(move || meter.numbers(works)).await.ok()
    }

    async fn read(&self, read: Read) -> Result<ReadResult, StoreError> {
        let since = Instant::now();
        let found = match &self.backend {
            Backend::Embedded(embedded) => embedded.read(read).await,
            #[cfg(feature = "postgres")]
            Backend::Postgres(postgres) => postgres.read(read).await,
        };
        self.meter.note_read(since, &found);
        found
    }

    /// Returns a receiver of whether this process may run pipelines with the store.
    pub fn holding(&self) -> watch::Receiver<StoreOwnership> {
        self.holding.clone()
    }

    /// Checks whether the file of an embedded store still exists; [`Store::holding`] changes if it does not.
    pub async fn look(&self) {
        match &self.backend {
            Backend::Embedded(embedded) => embedded.look().await,
            #[cfg(feature = "postgres")]
            Backend::Postgres(_) => {}
        }
    }

    /// Releases the store, so that the next owner can begin immediately. This process must not run pipelines after
    /// this.
    pub async fn release(&self) {
        if let Some(membership) = &self.membership {
            membership.leave().await;
        }
        #[cfg(feature = "postgres")]
        if let Some(ownership) = &self.ownership {
            ownership.release().await;
        }
    }

    /// Returns the same store with a given holding, for tests.
    #[must_use]
    pub fn held_by(self, holding: watch::Receiver<StoreOwnership>) -> Store {
        #[cfg(feature = "postgres")]
        if let Backend::Postgres(postgres) = &self.backend {
            postgres.held(holding.clone());
        }
        Store { holding, ..self }
    }

    async fn write(&self, write: Write) -> Result<WriteResult, StoreError> {
        if let StoreOwnership::Paused(why) | StoreOwnership::Taken(why) = &*self.holding.borrow() {
            return Err(StoreError::Unavailable(why.clone().into()));
        }
        // A write that does not have to be durable may succeed even if others fail.
        let tells = !matches!(write, Write::Keep { .. });
        let bytes = write.weight();
        let since = Instant::now();
        let written = match &self.backend {
            Backend::Embedded(embedded) => embedded.write(write).await,
            #[cfg(feature = "postgres")]
            Backend::Postgres(postgres) => postgres.write(write).await,
        };
        self.meter.note_write(since, &written);
        match &written {
            Ok(_) if tells => self.last_write.succeeded(bytes),
            Ok(_) => {}
            Err(error) => self.last_write.failed(error, bytes),
        }
        written
    }
}

#[async_trait]
impl StateStore for Store {
    async fn claim(&self, unit: &Unit) -> Result<Epoch, StoreError> {
        let by = match &self.membership {
            Some(membership) => match membership.standing().borrow().id {
                Some(id) => Some(id),
                None => return Err(StoreError::Unavailable("this node is not a member of its cluster".into())),
            },
            None => None,
        };
        match self.write(Write::Claim { unit: unit.clone(), by }).await? {
            WriteResult::Epoch(epoch) => Ok(epoch),
            other => Err(contradiction(&other)),
        }
    }

    async fn load(&self, epoch: &Epoch) -> Result<BTreeMap<LaneId, Mark>, StoreError> {
        self.marks(Read::Marks(epoch.clone())).await
    }

    async fn receipts(&self, epoch: &Epoch) -> Result<Vec<Receipt>, StoreError> {
        match self.read(Read::Receipts(epoch.clone())).await? {
            ReadResult::Receipts(receipts) => Ok(receipts),
            other => Err(contradiction(&other)),
        }
    }

    async fn commit(&self, epoch: &Epoch, commit: Commit<'_>) -> Result<(), StoreError> {
        let (moves, receipts, drops) = (commit.moves.to_vec(), commit.receipts.to_vec(), commit.drops.to_vec());
        self.write(Write::Marks { epoch: epoch.clone(), moves, receipts, drops }).await.map(drop)
    }

    async fn survey(&self, pipeline: &Str) -> Result<BTreeMap<LaneId, Mark>, StoreError> {
        self.positions(pipeline).await
    }
}

#[async_trait]
impl LetterStore for Store {
    async fn keep_letters(
        &self,
        epoch: &Epoch,
        letters: Vec<Letter>,
        bounds: &LetterBounds,
    ) -> Result<KeptLetters, StoreError> {
        let letters = letters.iter().map(form::stored).collect::<Result<_, _>>()?;
        self.keep_stored(&epoch.unit.pipeline, Some(epoch), letters, bounds).await
    }
}

#[async_trait]
impl ResultCache for Store {
    async fn recall(&self, space: &str, keys: &[ResultKey]) -> Result<Vec<Option<Bytes>>, StoreError> {
        match self.read(Read::Recall { space: space.into(), keys: keys.to_vec() }).await? {
            ReadResult::Recalled(found) => Ok(found),
            other => Err(contradiction(&other)),
        }
    }

    async fn keep(&self, space: &str, entries: Vec<(ResultKey, Bytes)>) -> Result<(), StoreError> {
        self.write(Write::Keep { space: space.into(), entries }).await.map(drop)
    }
}

#[async_trait]
impl ActiveSettings for Store {
    async fn active(&self, pipeline: &Str, connector: &Str) -> Result<Option<Bytes>, StoreError> {
        let read = Read::Active { pipeline: pipeline.clone(), connector: connector.clone() };
        match self.read(read).await? {
            ReadResult::Recalled(found) => Ok(found.into_iter().flatten().next()),
            other => Err(contradiction(&other)),
        }
    }

    async fn set_active(&self, pipeline: &Str, connector: &Str, settings: Bytes) -> Result<(), StoreError> {
        let write = Write::Active { pipeline: pipeline.clone(), connector: connector.clone(), settings };
        self.write(write).await.map(drop)
    }
}

#[cfg(test)]
mod tests;
