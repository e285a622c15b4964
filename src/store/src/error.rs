//! Why a store cannot be opened.

use std::path::PathBuf;

use crate::owner::Owner;
#[cfg(feature = "postgres")]
use crate::postgres::PostgresError;
use crate::tables::SCHEMA;

/// Why the store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process owns the store.
    #[error(
        "the store {place} is in use by {}: stop that process, wait for it with --db.wait, or use another store with \
         {}",
        owner.as_ref().map_or_else(|| "another process".to_owned(), ToString::to_string),
        if *.is_file { "--db.path" } else { "--db.postgres.table" }
    )]
    InUse {
        /// The file, or the table and its server.
        place: String,
        /// The process, if known.
        owner: Option<Owner>,
        /// True if the store is a file.
        is_file: bool,
    },
    /// The nodes of a cluster use the store.
    #[error(
        "the store {place} belongs to a cluster, whose node {node} runs: send the request to a node with \
         --api.http.address, or stop all nodes"
    )]
    Cluster {
        /// The table and its server.
        place: String,
        /// Name of a node.
        node: String,
    },
    /// The file of an open store is missing, or another file is in its place.
    #[error(
        "the file of the state store, {}, is gone or another file is in its place: put it back before you start the \
         service again; with an empty store every source starts from its beginning",
        .path.display()
    )]
    Gone {
        /// The file.
        path: PathBuf,
    },
    /// Another program wrote to the file of an open store.
    #[error(
        "another program truncated or overwrote the file of the state store, {}: stop the service, put a copy of the \
         store in its place, and start it again; with an empty store every source starts from its beginning",
        .path.display()
    )]
    Overwritten {
        /// The file.
        path: PathBuf,
    },
    /// The file is not a store.
    #[error(
        "{} is not a store of Anabranch: it was not changed; set another --db.path",
        .path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A later version wrote the store.
    #[error(
        "the store {} has version {found}, but this program supports versions up to {SCHEMA}: use the program that \
         wrote it",
        .path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
    },
    /// The store is damaged.
    #[error(
        "the store {} is damaged ({what}): it was not changed. Restore it from a backup; if you move it away, every \
         source starts from its beginning",
        .path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Description of the damage.
        what: String,
    },
    /// The store in PostgreSQL cannot be opened.
    #[cfg(feature = "postgres")]
    #[error(transparent)]
    Postgres(#[from] PostgresError),
    /// This build does not support PostgreSQL.
    #[cfg(not(feature = "postgres"))]
    #[error("db.type postgres: this program was built without the feature `postgres`")]
    LeftOut,
    /// The disk does not have the space that opening the store needs.
    #[error("the store {} cannot be opened: {what}: free disk space, and start again; with --db.wait, the start waits for \
         free space", .path.display())]
    Full {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        what: String,
    },
    /// An operation of the file system failed.
    #[error("the store {} cannot be opened: {what}", .path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        what: String,
    },
}

impl OpenError {
    /// Returns `true` if the address or the name of the table is not valid.
    pub fn is_invalid(&self) -> bool {
        match self {
            #[cfg(feature = "postgres")]
            OpenError::Postgres(crate::postgres::PostgresError::Setting { .. }) => true,
            _ => false,
        }
    }

    /// Returns `true` if the store may become usable without a change: another process ends, or the server answers
    /// again.
    pub fn is_passing(&self) -> bool {
        match self {
            OpenError::InUse { .. } | OpenError::Cluster { .. } | OpenError::Full { .. } => true,
            #[cfg(feature = "postgres")]
            OpenError::Postgres(refused) => refused.is_passing(),
            #[cfg(not(feature = "postgres"))]
            OpenError::LeftOut => false,
            OpenError::Gone { .. }
            | OpenError::Overwritten { .. }
            | OpenError::Foreign { .. }
            | OpenError::Newer { .. }
            | OpenError::Damaged { .. }
            | OpenError::System { .. } => false,
        }
    }
}
