//! Opening the store, and owning it.

use std::path::{Path, PathBuf};
#[cfg(feature = "postgres")]
use std::sync::Arc;

use anabranch_process::files::parent_directory;
use redb::Database;
use redb::backends::InMemoryBackend;
#[cfg(feature = "postgres")]
use tokio::sync::watch;

use super::letters::Evictions;
use super::{Backend, Store};
use crate::embedded::Embedded;
use crate::error::OpenError;
use crate::failure::LastWrite;
use crate::file::{StoreFile, builder, create, head, initialized, io, open_existing, refused};
use crate::meter::Meter;
#[cfg(feature = "postgres")]
use crate::owner::{Owner, StoreOwnership};
#[cfg(feature = "postgres")]
use crate::postgres;

impl Store {
    pub(crate) fn at(backend: Backend) -> Store {
        let holding = match &backend {
            Backend::Embedded(embedded) => embedded.holding(),
            #[cfg(feature = "postgres")]
            Backend::Postgres(_) => watch::channel(StoreOwnership::Held).1,
        };
        Store {
            backend,
            last_write: LastWrite::default(),
            meter: Meter::default(),
            evictions: Evictions::default(),
            holding,
            membership: None,
            identity: None,
            #[cfg(feature = "postgres")]
            ownership: None,
        }
    }

    /// Opens the store for a service that runs pipelines with it, or for a command that changes it. No other process
    /// can own it meanwhile. For a store in PostgreSQL this waits up to 10 s for the lease of an owner that did not
    /// release it.
    ///
    /// # Errors
    /// The errors of [`Store::open`], or another process owns the store.
    pub fn own(database: &anabranch_settings::Database) -> Result<Store, OpenError> {
        Store::open(database)?.owned(database)
    }

    /// Opens a store that exists as [`Store::own`] does. Creates nothing; returns `Ok(None)` if there is none.
    ///
    /// # Errors
    /// The errors of [`Store::own`].
    pub fn own_existing(database: &anabranch_settings::Database) -> Result<Option<Store>, OpenError> {
        let store = match database {
            anabranch_settings::Database::InMemory => return Ok(None),
            anabranch_settings::Database::Embedded(path) if !path.exists() => return Ok(None),
            #[cfg(feature = "postgres")]
            anabranch_settings::Database::Postgres(address) => match postgres::Postgres::open_existing(address) {
                Err(postgres::PostgresError::Missing { .. }) => return Ok(None),
                opened => Store::at(Backend::Postgres(opened?)),
            },
            other => Store::open(other)?,
        };
        store.owned(database).map(Some)
    }

    /// Excludes other processes, unless the store is a file, which its process has for itself.
    fn owned(self, database: &anabranch_settings::Database) -> Result<Store, OpenError> {
        let store = self;
        #[cfg(feature = "postgres")]
        if let anabranch_settings::Database::Postgres(address) = database {
            let owned = postgres::own(address, &Owner::here());
            let ownership = owned.map_err(|error| match error {
                postgres::TakeError::Refused(refused) => OpenError::Postgres(refused),
                postgres::TakeError::Cluster(node) => OpenError::Cluster { place: postgres::place(address), node },
                postgres::TakeError::InUse(owner) => {
                    OpenError::InUse { place: postgres::place(address), owner, is_file: false }
                }
            })?;
            let holding = ownership.holding();
            if let Backend::Postgres(postgres) = &store.backend {
                postgres.held(holding.clone());
            }
            return Ok(Store { holding, ownership: Some(Arc::new(ownership)), ..store });
        }
        Ok(store)
    }

    /// Opens the store that the settings name, and creates it if it does not exist.
    ///
    /// # Errors
    /// The store is in use, foreign, newer or damaged, or a system call failed.
    pub fn open(database: &anabranch_settings::Database) -> Result<Store, OpenError> {
        match database {
            anabranch_settings::Database::InMemory => {
                let path = PathBuf::from("(in memory)");
                let database =
                    builder().create_with_backend(InMemoryBackend::new()).map_err(|error| refused(&path, error))?;
                Ok(embedded(initialized(database, &path)?, None))
            }
            anabranch_settings::Database::Embedded(path) => open_file(path),
            #[cfg(feature = "postgres")]
            anabranch_settings::Database::Postgres(address) => {
                let backend = Backend::Postgres(postgres::Postgres::open(address)?);
                Ok(Store::at(backend))
            }
            #[cfg(not(feature = "postgres"))]
            anabranch_settings::Database::Postgres(_) => Err(OpenError::LeftOut),
        }
    }

    /// Opens a store for commands that only read. Does not create a file.
    ///
    /// # Errors
    /// The errors of [`Store::open`]. A missing file is not an error: it returns `Ok(None)`.
    pub fn open_existing(database: &anabranch_settings::Database) -> Result<Option<Store>, OpenError> {
        match database {
            anabranch_settings::Database::Embedded(path) if !path.exists() => Ok(None),
            other => Store::open(other).map(Some),
        }
    }
}

fn embedded(database: Database, file: Option<StoreFile>) -> Store {
    Store::at(Backend::Embedded(Embedded::new(database, file)))
}

pub(super) fn open_file(path: &Path) -> Result<Store, OpenError> {
    let database = match head(path) {
        Ok(Some(head)) => open_existing(path, &head)?,
        Ok(None) => match create(path)? {
            Some(database) => database,
            None => return open_file(path),
        },
        Err(error) => return Err(io(path, &error)),
    };
    Ok(Store { meter: Meter::of_file(parent_directory(path).into()), ..embedded(database, Some(StoreFile::of(path)?)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_in_the_place_of_a_store_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.db");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let Err(error) = open_file(&path) else { panic!("a store was opened") };
        assert!(error.to_string().contains("not a regular file"), "{error}");
    }
}
