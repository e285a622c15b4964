//! The state store: the positions (marks) of every lane, pipelines as they were last provisioned with their statuses,
//! cached results of operators, dead letters and schemas. It is one file or memory (`embedded`), or a table in
//! PostgreSQL (`postgres`).
//!
//! Writes queue up, and one commit covers all that arrived in the meantime (group commit): a commit costs one `fsync`,
//! or one transaction, however many pipelines wait for it.
//!
//! ```
//! use anabranch_plugin::state::{Commit, StateStore as _, Unit};
//! use anabranch_record::mark::{LaneId, Mark, Partition};
//! use anabranch_settings::Database;
//! use anabranch_store::Store;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! let store = Store::open(&Database::InMemory).unwrap();
//! let epoch = store.claim(&Unit::whole("orders")).await.unwrap();
//! let lane = LaneId { connector: "in".into(), partition: Partition("0".into()) };
//! store.commit(&epoch, Commit::of(&[(lane.clone(), Mark::beginning(1))])).await.unwrap();
//! assert!(store.positions(&"orders".into()).await.unwrap().contains_key(&lane));
//! # });
//! ```

mod compare;
mod contents;
mod embedded;
mod entity;
mod error;
mod failure;
mod file;
pub mod form;
pub mod letters;
mod meter;
mod owner;
#[cfg(feature = "postgres")]
mod postgres;
mod request;
mod schemas;
mod store;
mod tables;

pub use compare::{Action, ConfigurationChange, Entity, Import, Provision, between};
pub use entity::{
    Moment, Origin, Status, StopReason, StoredConnector, StoredDeadLetter, StoredPipeline, StoredProcessor,
    StoredSetting,
};
pub use error::OpenError;
pub use meter::{OperationNumbers, StoreNumbers};
pub use owner::{Owner, StoreOwnership};
pub use request::Spread;
pub use schemas::{Deletion, Reference, SchemaDocument, SchemaEntry};
pub use store::{Backup, BackupError, CopiedCounts, CopyError, Store, path_of};
