//! Sets of pipeline files that the nodes of a cluster import, and the number of the latest change of the configuration.

use std::collections::BTreeMap;

use anabranch_plugin::state::StoreError;
use anabranch_record::text::Str;

use super::leases::REVISION;
use super::session::{Failure as Error, Transaction};
use super::table::{KEY, Table};
use crate::compare::{self, Action, Entity, Import, Provision};
use crate::entity::{Origin, Status, StoredPipeline};
use crate::request::{Spread, WriteResult};

/// Kind of the rows with the sets that were imported. `connector` identifies the set, `number` counts the imports.
const IMPORT: &str = "import";

impl Table {
    /// Imports a set of files, unless it is stored already and no user asks for it. A set that another one has replaced is not
    /// imported: a node that restarts with old files must not undo what the others have.
    pub(super) async fn import(
        &self,
        transaction: &Transaction<'_>,
        provision: &Provision,
        set: &str,
        spreads: &BTreeMap<Str, Spread>,
        on_request: bool,
    ) -> Result<Result<WriteResult, StoreError>, Error> {
        // Nodes that start together import one after the other.
        transaction.execute("SELECT pg_advisory_xact_lock(hashtext($1))", &[&format!("import {}", self.name)]).await?;
        let sql = format!(
            "SELECT max(number) FILTER (WHERE connector = $1), coalesce(max(number), 0) FROM {} WHERE kind = '{IMPORT}'",
            self.state
        );
        let row = transaction.query_one(&sql, &[&set]).await?;
        let (this, latest): (Option<i64>, i64) = (row.get(0), row.get(1));
        match this {
            _ if on_request => {}
            Some(this) if this == latest => return Ok(Ok(WriteResult::Imported(Import::Current))),
            Some(_) => return Ok(Ok(WriteResult::Imported(Import::Older))),
            None => {}
        }
        let mut starting = Vec::new();
        let changes = match self.bring_in_line(transaction, |stored| compare::import(stored, provision)).await? {
            Ok(WriteResult::Changes(changes)) => changes,
            other => return Ok(other),
        };
        let sql = format!(
            "INSERT INTO {} VALUES ('{IMPORT}', '', $1, '', $2, '') ON CONFLICT ({KEY}) DO UPDATE SET number = \
             EXCLUDED.number",
            self.state
        );
        transaction.execute(&sql, &[&set, &(latest + 1)]).await?;
        for change in changes.iter().filter(|change| change.entity == Entity::Pipeline) {
            let declared = provision.good.iter().find(|pipeline| pipeline.id == change.pipeline);
            let wanted = declared.is_some_and(|pipeline| pipeline.autostart);
            let is_decided = match &change.action {
                Action::Created | Action::Attached | Action::Detached => true,
                Action::Updated(fields) => fields.contains(&"status"),
                Action::Removed => false,
            };
            match (is_decided, wanted) {
                (true, true) => starting.push(change.pipeline.clone()),
                (true, false) => drop(self.end_units(transaction, &change.pipeline).await?),
                (false, _) => {}
            }
        }
        if latest == 0 {
            // The store was that of a service alone: the nodes run what that service would start.
            let stored = match self.pipelines(transaction, "").await? {
                Ok(stored) => stored,
                Err(error) => return Ok(Err(error)),
            };
            let was_wanted = |pipeline: &&StoredPipeline| match pipeline.origin {
                Origin::File => pipeline.autostart && !pipeline.detached && pipeline.status != Status::Invalid,
                Origin::Api => pipeline.status.is_live() || pipeline.status.is_stopped_by_system(),
            };
            starting.extend(stored.iter().filter(was_wanted).map(|pipeline| pipeline.id.clone()));
        }
        for pipeline in &starting {
            let spread = spreads.get(pipeline).cloned().unwrap_or_default();
            if let Err(error) = self.start(transaction, pipeline, &spread).await? {
                return Ok(Err(error));
            }
        }
        Ok(Ok(WriteResult::Imported(Import::Stored(changes))))
    }

    /// Tells the nodes that the configuration changes with this transaction.
    pub(super) async fn raise_revision(&self, transaction: &Transaction<'_>) -> Result<(), Error> {
        let sql = format!(
            "INSERT INTO {} AS t VALUES ('{REVISION}', '', '', '', 1, '') \
             ON CONFLICT ({KEY}) DO UPDATE SET number = t.number + 1",
            self.state
        );
        transaction.execute(&sql, &[]).await?;
        Ok(())
    }
}
