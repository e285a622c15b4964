//! The store of a cluster, which several nodes share.

use std::collections::BTreeMap;
#[cfg(feature = "postgres")]
use std::sync::{Arc, mpsc::sync_channel};

#[cfg(feature = "postgres")]
use anabranch_cluster::Member;
use anabranch_cluster::{Announcement, Membership};
use anabranch_plugin::state::StoreError;
use anabranch_record::text::{Str, hexadecimal};
use anabranch_settings::PostgresDatabase;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use super::Store;
use crate::compare::{Import, Provision};
use crate::entity::StoredPipeline;
use crate::error::OpenError;
use crate::owner::StoreOwnership;
#[cfg(feature = "postgres")]
use crate::postgres::{Hints, Leases, Postgres, PostgresError};
use crate::request::{ImportOrder, ImportedSet, Read, ReadResult, Spread, Write, WriteResult, contradiction};

impl Store {
    /// Opens the store in PostgreSQL as a node of a cluster, and joins the cluster some time later. Unlike
    /// [`Store::own`], this does not exclude other processes: a node runs only the units that it has, see
    /// [`Store::membership`].
    ///
    /// # Errors
    /// The errors of [`Store::open`].
    #[cfg(feature = "postgres")]
    pub fn join(database: &PostgresDatabase, announced: Announcement) -> Result<Store, OpenError> {
        let store = Store::at(super::Backend::Postgres(Postgres::open_shared(database)?));
        let runtime = anabranch_process::runtime::start(&mut tokio::runtime::Builder::new_current_thread())
            .map_err(PostgresError::System)?;
        let (opened, is_open) = sync_channel(1);
        let database = database.clone();
        let live = move || {
            runtime.block_on(async {
                let (leases, identity) = match Leases::open(&database).await {
                    Ok(opened) => opened,
                    Err(error) => return drop(opened.send(Err(error))),
                };
                let hints = match Hints::of(&database) {
                    Ok(hints) => hints,
                    Err(error) => return drop(opened.send(Err(error))),
                };
                let (member, membership) = Member::new(Arc::new(leases), announced);
                let looker = membership.looker();
                let _ = opened.send(Ok((membership, identity)));
                let hinted = async {
                    hints.follow(|| looker.look()).await;
                    std::future::pending::<()>().await;
                };
                tokio::select! {
                    () = member.live() => {}
                    () = hinted => {}
                }
            });
        };
        // A thread of its own: the lease must be renewed however busy the pipelines are.
        std::thread::Builder::new().name("cluster-member".to_owned()).spawn(live).map_err(PostgresError::System)?;
        let gone = |_| PostgresError::System(std::io::Error::other("its thread has ended"));
        let (membership, identity) = is_open.recv().map_err(gone)??;
        Ok(Store { membership: Some(membership), identity: Some(identity), ..store })
    }

    /// Fails: this build does not support PostgreSQL.
    ///
    /// # Errors
    /// Always.
    #[cfg(not(feature = "postgres"))]
    pub fn join(_: &PostgresDatabase, _: Announcement) -> Result<Store, OpenError> {
        Err(OpenError::LeftOut)
    }

    /// Returns the membership of this node; `None` if the store is not shared.
    pub fn membership(&self) -> Option<&Membership> {
        self.membership.as_ref()
    }

    /// Returns the same store for one pipeline, which may run as long as `holding` says so.
    #[must_use]
    pub fn held_while(&self, holding: watch::Receiver<StoreOwnership>) -> Store {
        Store { holding, ..self.clone() }
    }

    /// Imports the configuration that files declare, unless a later set of files was imported: see [`Import`]. Statuses
    /// stay. `spreads` says how the nodes run the pipelines; those that are absent run in one unit anywhere. The first import
    /// also starts what a service alone ran with this store.
    ///
    /// # Errors
    /// The store cannot be written; nothing was changed.
    pub async fn import(&self, provision: Provision, spreads: BTreeMap<Str, Spread>) -> Result<Import, StoreError> {
        self.import_on(ImportOrder::AtStart, provision, spreads).await
    }

    /// Imports the configuration that files declare because a user asks for it, also if it was imported before. It is the
    /// latest set then. `revision` is that of the configuration to which the user has seen the changes.
    ///
    /// # Errors
    /// The store cannot be written; nothing was changed.
    pub async fn import_on_request(
        &self,
        provision: Provision,
        spreads: BTreeMap<Str, Spread>,
        revision: u64,
    ) -> Result<Import, StoreError> {
        self.import_on(ImportOrder::OnRequest { revision }, provision, spreads).await
    }

    async fn import_on(
        &self,
        order: ImportOrder,
        provision: Provision,
        spreads: BTreeMap<Str, Spread>,
    ) -> Result<Import, StoreError> {
        let names = names(&provision)?;
        match self.write(Write::Import(ImportedSet { provision, names, spreads, order })).await? {
            WriteResult::Imported(import) => Ok(import),
            other => Err(contradiction(&other)),
        }
    }

    /// Returns the number of the latest change of the configuration, in the store of a cluster.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn revision(&self) -> Result<u64, StoreError> {
        match self.read(Read::Revision).await? {
            ReadResult::Revision(number) => Ok(number),
            other => Err(contradiction(&other)),
        }
    }

    /// Has the nodes of the cluster run a pipeline. Returns `false` if they do already, or if the store is not shared.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn want(&self, pipeline: &Str, spread: Spread) -> Result<bool, StoreError> {
        Ok(self.units(Write::Want { pipeline: pipeline.clone(), spread }).await? > 0)
    }

    /// Has the nodes of the cluster run a pipeline in another number of units, if they run it. Its runs end without draining.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn reshape(&self, pipeline: &Str, spread: Spread) -> Result<(), StoreError> {
        self.units(Write::Reshape { pipeline: pipeline.clone(), spread }).await.map(drop)
    }

    /// Has only nodes with a label take units of a pipeline, for each of these pipelines; empty = all nodes. Nodes that have
    /// some keep them until they release them.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn set_labels(&self, labels: Vec<(Str, Str)>) -> Result<(), StoreError> {
        if labels.is_empty() {
            return Ok(());
        }
        self.units(Write::Labels(labels)).await.map(drop)
    }

    /// Returns a text that identifies this store, if several processes share it.
    pub fn identity(&self) -> Option<&Str> {
        self.identity.as_ref()
    }

    /// Has all nodes of the cluster stop a pipeline: they deliver what they have read. Returns `false` if none runs it.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn end(&self, pipeline: &Str) -> Result<bool, StoreError> {
        Ok(self.units(Write::End { pipeline: pipeline.clone() }).await? > 0)
    }

    /// Removes the units that this node has of a pipeline, because its run has ended. With `all`, the other nodes stop
    /// theirs. Returns the number of units that other nodes have or may take.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn unwant(&self, pipeline: &Str, all: bool) -> Result<u64, StoreError> {
        let by = self.membership.as_ref().and_then(|membership| membership.standing().borrow().id);
        self.units(Write::Unwant { pipeline: pipeline.clone(), by, all }).await
    }

    async fn units(&self, write: Write) -> Result<u64, StoreError> {
        if self.membership.is_none() {
            return Ok(0);
        }
        match self.write(write).await? {
            WriteResult::Units(count) => Ok(count),
            other => Err(contradiction(&other)),
        }
    }
}

/// Returns texts that identify a set of files, whatever the order and the names of the files: one of the content of the files,
/// and one of what this program makes of it. Programs of other versions have the same text for the content, if the same
/// pipelines are valid for them: what they make of it may have other fields.
fn names(provision: &Provision) -> Result<Vec<String>, StoreError> {
    let mut good: Vec<&StoredPipeline> = provision.good.iter().collect();
    good.sort_by(|a, b| a.id.cmp(&b.id));
    let mut invalid: Vec<&Str> = provision.invalid.iter().collect();
    invalid.sort();
    let hashed = |content: serde_json::Result<Vec<u8>>| {
        let content =
            content.map_err(|error| StoreError::Damaged(format!("the pipelines cannot be written: {error}")))?;
        Ok(hexadecimal(&Sha256::digest(content)))
    };
    let form = hashed(serde_json::to_vec(&(good, &invalid)))?;
    if provision.texts.is_empty() {
        return Ok(vec![form]);
    }
    let mut texts: Vec<String> = provision.texts.iter().map(|hash| hexadecimal(hash)).collect();
    texts.sort();
    Ok(vec![format!("files:{}", hashed(serde_json::to_vec(&(texts, invalid)))?), form])
}
