//! Queries, with faults that say what failed.

use anabranch_record::fault::Fault;
use serde::de::DeserializeOwned;

use super::fault::WireError;
use super::wire::{Row, Session, Wire};
use crate::address::Address;
use crate::codes;

/// A connection for queries.
pub(super) struct Database {
    pub(super) wire: Wire,
    /// Host, port and database, for messages.
    place: String,
}

impl Database {
    /// Connects.
    ///
    /// # Errors
    /// Transient if the server cannot be reached, fatal if it refuses the login.
    pub(super) async fn connect(address: &Address, session: Session) -> Result<Database, Fault> {
        let place = address.place();
        match Wire::connect(address, session).await {
            Ok(wire) => Ok(Database { wire, place }),
            Err(error @ (WireError::Io(_) | WireError::Closed | WireError::Silent(_))) => {
                Err(Fault::transient(codes::CONNECT_FAILED, format!("cannot connect to {place}: {error}")))
            }
            Err(error) => Err(error.fault(&format!("cannot connect to {place}"))),
        }
    }

    /// Runs statements, and returns the rows of the last one. `what` says what for: `reading the slot s`.
    ///
    /// # Errors
    /// The server refuses a statement, or the connection is lost.
    pub(super) async fn rows(&mut self, what: &str, sql: &str) -> Result<Vec<Row>, Fault> {
        self.wire.query(sql).await.map_err(|error| self.fault(what, error))
    }

    /// Runs a statement whose rows are JSON texts, and reads them.
    ///
    /// # Errors
    /// The server refuses the statement, or the connection is lost.
    pub(super) async fn read<T: DeserializeOwned>(&mut self, what: &str, sql: &str) -> Result<Vec<T>, Fault> {
        let rows = self.rows(what, sql).await?;
        let texts = rows.into_iter().filter_map(|row| row.into_iter().next().flatten());
        texts
            .map(|text| {
                serde_json::from_str(&text).map_err(|error| {
                    Fault::fatal(
                        codes::POSTGRES_REFUSED,
                        format!("{}: {what}: an answer is wrong: {error}", self.place),
                    )
                })
            })
            .collect()
    }

    /// Returns the first value of a statement; `None` if it is null or there is no row.
    ///
    /// # Errors
    /// The server refuses the statement, or the connection is lost.
    pub(super) async fn value(&mut self, what: &str, sql: &str) -> Result<Option<String>, Fault> {
        Ok(self.rows(what, sql).await?.into_iter().next().and_then(|row| row.into_iter().next()).flatten())
    }

    /// Returns the fault of an operation.
    pub(super) fn fault(&self, what: &str, error: WireError) -> Fault {
        error.fault(&format!("{}: {what}", self.place))
    }

    /// Returns host, port and database, for messages.
    pub(super) fn place(&self) -> &str {
        &self.place
    }
}
