//! Sets of pipeline files that the nodes of a cluster import, and the number of the latest change of the configuration.

use std::collections::{BTreeMap, BTreeSet};

use anabranch_cluster::{PastImports, SetDecision};
use anabranch_plugin::state::StoreError;
use anabranch_record::text::Str;
use tokio_postgres::GenericClient;

use super::leases::REVISION;
use super::session::{Failure as Error, Timed, Transaction};
use super::table::{KEY, Table, unsigned};
use crate::compare::{self, Action, Entity, Import};
use crate::entity::{Origin, Status, StopReason, StoredPipeline};
use crate::request::{ImportOrder, ImportedSet, WriteResult};

/// Kind of the rows with the sets that were imported. `connector` is a text that identifies the set, which may have several;
/// `number` counts the imports.
pub(super) const IMPORT: &str = "import";

impl Table {
    /// Imports a set of files, unless it is stored already and no user asks for it. A set that another one has replaced is not
    /// imported: a node that restarts with old files must not undo what the others have. A node without files imports
    /// nothing, but its import may be the first.
    pub(super) async fn import(
        &self,
        transaction: &Transaction<'_>,
        ImportedSet { provision, names, spreads, order }: &ImportedSet,
    ) -> Result<Result<WriteResult, StoreError>, Error> {
        // Nodes that start together import one after the other.
        transaction.execute("SELECT pg_advisory_xact_lock(hashtext($1))", &[&format!("import {}", self.name)]).await?;
        let sql = format!(
            "SELECT max(number) FILTER (WHERE connector = ANY($1)), coalesce(max(number), 0) FROM {} WHERE kind = '{IMPORT}'",
            self.state
        );
        let row = transaction.query_one(&sql, &[names]).await?;
        let (this, latest): (Option<i64>, i64) = (row.get(0), row.get(1));
        let past = PastImports { this: this.map(unsigned), latest: unsigned(latest) };
        let is_on_request = match order {
            // Only this transaction has raised it since the user saw the plan.
            ImportOrder::OnRequest { revision } => {
                if !past.is_current() && self.revision(transaction).await? != revision + 1 {
                    return Ok(Ok(WriteResult::Imported(Import::Outdated)));
                }
                true
            }
            ImportOrder::AtStart if latest > 0 && provision.is_empty() => {
                return Ok(Ok(WriteResult::Imported(Import::Current)));
            }
            ImportOrder::AtStart => false,
        };
        let number = match past.decide(is_on_request) {
            SetDecision::Import(number) => i64::try_from(number).unwrap_or(i64::MAX),
            SetDecision::Current => return Ok(Ok(WriteResult::Imported(Import::Current))),
            SetDecision::Older => return Ok(Ok(WriteResult::Imported(Import::Older))),
        };
        let mut before = BTreeMap::new();
        let compared = |stored: BTreeMap<Str, StoredPipeline>| {
            before = stored.iter().map(|(id, pipeline)| (id.clone(), pipeline.status.clone())).collect();
            compare::import(stored, provision)
        };
        let changes = match self.bring_in_line(transaction, compared).await? {
            Ok(WriteResult::Changes(changes)) => changes,
            other => return Ok(other),
        };
        let sql = format!(
            "INSERT INTO {} SELECT '{IMPORT}', '', name, '', $2, '' FROM unnest($1::text[]) name ON CONFLICT ({KEY}) DO UPDATE SET number = \
             EXCLUDED.number",
            self.state
        );
        transaction.execute(&sql, &[names, &number]).await?;
        let mut starting = BTreeSet::new();
        for change in &changes {
            let declared = provision.good.iter().find(|pipeline| pipeline.id == change.pipeline);
            let is_wanted = declared.is_some_and(|pipeline| pipeline.autostart);
            let is_ended = matches!(
                before.get(&change.pipeline),
                Some(Status::Degraded { .. } | Status::Finished | Status::Invalid)
            );
            let is_decided = match (&change.entity, &change.action) {
                (Entity::Pipeline, Action::Created | Action::Attached | Action::Detached) => true,
                (Entity::Pipeline, Action::Updated(fields)) => fields.contains(&"status"),
                _ => false,
            };
            if is_wanted && (is_decided || is_ended) {
                starting.insert(change.pipeline.clone());
            } else if is_decided {
                self.end_units(transaction, &change.pipeline).await?;
            }
        }
        if latest == 0 {
            // The store was that of a service alone: the nodes run what that service would start.
            let stored = match self.pipelines(transaction, "").await? {
                Ok(stored) => stored,
                Err(error) => return Ok(Err(error)),
            };
            starting.extend(stored.iter().filter(|pipeline| was_wanted(pipeline, &before)).map(|it| it.id.clone()));
        }
        for pipeline in &starting {
            let spread = spreads.get(pipeline).cloned().unwrap_or_default();
            if self.revive(transaction, pipeline, &spread).await? {
                continue;
            }
            if let Err(error) = self.start(transaction, pipeline, &spread).await? {
                return Ok(Err(error));
            }
        }
        Ok(Ok(WriteResult::Imported(Import::Stored(changes))))
    }

    /// Returns the number of the latest change of the configuration; 0 = there was none.
    pub(super) async fn revision<C: GenericClient>(&self, client: &Timed<C>) -> Result<u64, Error> {
        let sql = format!("SELECT number FROM {} WHERE kind = '{REVISION}'", self.state);
        let row = client.query_opt(&sql, &[]).await?;
        Ok(row.map_or(0, |row| unsigned(row.get(0))))
    }

    /// Tells the nodes that the configuration changes this many times with this transaction. Transactions that change it come
    /// one after the other.
    pub(super) async fn raise_revision(&self, transaction: &Transaction<'_>, by: usize) -> Result<(), Error> {
        let sql = format!(
            "INSERT INTO {} AS t VALUES ('{REVISION}', '', '', '', $1, '') \
             ON CONFLICT ({KEY}) DO UPDATE SET number = t.number + $1",
            self.state
        );
        transaction.execute(&sql, &[&i64::try_from(by).unwrap_or(1)]).await?;
        Ok(())
    }
}

/// Returns `true` if a service alone, which had the store, ran a pipeline or would start it. `before` has the statuses that the
/// service left.
fn was_wanted(pipeline: &StoredPipeline, before: &BTreeMap<Str, Status>) -> bool {
    // A user stopped it; a pipeline that is new has this status too, but the service did not have it.
    let is_stopped = before.get(&pipeline.id) == Some(&Status::Stopped { reason: StopReason::User });
    match pipeline.origin {
        Origin::File => pipeline.autostart && !pipeline.detached && !is_stopped && pipeline.status != Status::Invalid,
        Origin::Api => pipeline.status.is_live() || pipeline.status.is_stopped_by_system(),
    }
}
