//! Requests of users to a source that is reading.

use std::sync::Arc;

use anabranch_plugin::source::{Request, Requested};
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;

use super::backfill::{self, Backfills};
use super::config::Config;
use super::database::Database;
use super::events::Ended;
use super::tables::{Selector, Table};
use super::wire::Session;
use crate::codes;

/// Carries out requests.
pub(super) struct Requests {
    pub(super) config: Arc<Config>,
    pub(super) tables: Vec<Table>,
    pub(super) backfills: Arc<Backfills>,
}

impl Requests {
    /// Takes a request. The result ends when it is stored.
    ///
    /// # Errors
    /// The source cannot carry it out.
    pub(super) fn take(&self, request: &Request) -> Result<Requested, Fault> {
        let Request::Backfill { part } = request else {
            let text = format!("a postgres source does not support the request {request:?}");
            return Err(Fault::record(codes::REQUEST_REFUSED, text));
        };
        let table = self.table(part)?.clone();
        backfill::check_key(&table)?;
        let (config, backfills) = (self.config.clone(), self.backfills.clone());
        Ok(Box::pin(async move {
            let mut database = Database::connect(&config.address, Session::Queries).await?;
            let measured = backfill::measured(&mut database, &[table]).await?;
            match backfills.add(measured).await {
                Ok(()) => Ok(()),
                Err(Ended::Failed(fault)) => Err(fault),
                Err(Ended::Stopped) => {
                    let text = "the pipeline ended before the request was stored; ask again when it runs";
                    Err(Fault::transient(codes::REQUEST_REFUSED, text))
                }
            }
        }))
    }

    fn table(&self, part: &Str) -> Result<&Table, Fault> {
        let found = match Selector::parse(part) {
            Ok(Selector::Named { schema, name }) => {
                self.tables.iter().find(|table| *table.schema == *schema && *table.name == *name)
            }
            Ok(Selector::Matching { .. }) | Err(_) => None,
        };
        found.ok_or_else(|| {
            let names: Vec<String> = self.tables.iter().map(Table::title).collect();
            let text = format!("the source does not read a table {part}; its tables are {}", names.join(", "));
            Fault::record(codes::REQUEST_REFUSED, text)
        })
    }
}
