//! Follows the schemas of records: widens columns.

use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;

use super::TableWriter;
use crate::declared::{DeclaredTypes, schema_of, widens};
use crate::fault::Failure;
use crate::name::Quoted;
use crate::session::Session;

impl TableWriter {
    /// Returns the types of the columns of a record's table that its schema declares and the server has.
    pub(super) async fn declared(&self, session: &mut Session, record: &Record) -> Result<DeclaredTypes, Failure> {
        let mut declared = DeclaredTypes::of(record, &*self.host.schemas).await.map_err(Failure::Retry)?;
        declared.retain_known(session).await?;
        Ok(declared)
    }

    /// Widens the columns of a table to the types of a record's schema, if this schema is new. Returns the index of the
    /// table. O(columns) for a new schema, otherwise O(1).
    pub(super) async fn follow(
        &mut self,
        session: &mut Session,
        name: &Str,
        table: usize,
        record: &Record,
    ) -> Result<usize, Failure> {
        let Some((subject, version)) = schema_of(record) else { return Ok(table) };
        if self.known.has_schema(table, subject, version) {
            return Ok(table);
        }
        let mut declared = DeclaredTypes::of(record, &*self.host.schemas).await.map_err(Failure::Retry)?;
        let columns = self.known.tables[table].layout.columns.clone();
        let now = |field: &str| columns.iter().find(|column| column.name == field);
        declared.retain(|field, sql| now(field).is_some_and(|column| widens(column.type_of, sql)));
        declared.retain_known(session).await?;
        let changes: Vec<String> =
            declared.iter().map(|(field, sql)| format!("ALTER COLUMN {} TYPE {sql}", Quoted(field))).collect();
        let mut table = table;
        if !changes.is_empty() {
            let sql = format!("ALTER TABLE {} {}", self.known.tables[table].name, changes.join(", "));
            match self.alter(session, name, &sql).await {
                Ok(()) => {}
                // Values that fit the columns can be written all the same.
                Err(Failure::Row(fault) | Failure::Stale(fault) | Failure::Denied(fault)) => {
                    self.note_narrow(name, &sql, &fault);
                }
                Err(other) => return Err(other),
            }
            if let Ok(found) = self.known.look_up(session, name).await? {
                table = found;
                self.settings.history.note_altered(&self.known.tables[table]);
            }
        }
        self.known.note_schema(table, subject, version);
        Ok(table)
    }

    fn note_narrow(&self, name: &Str, sql: &str, fault: &Fault) {
        let (pipeline, connector) = (&self.host.pipeline, &self.host.node);
        tracing::warn!(%pipeline, %connector, table = %name, "columns stay narrower than those of the source: {sql}: {fault}");
    }

    /// Changes the layout of a table. With a fence, the change is in a transaction of this run: an earlier run, which
    /// another one has replaced, changes nothing.
    pub(super) async fn alter(&mut self, session: &mut Session, name: &Str, sql: &str) -> Result<(), Failure> {
        let Some(fence) = self.fence.as_ref().or(self.guard.as_ref()) else {
            session.execute(sql).await?;
            self.note_alteration(name, sql);
            return Ok(());
        };
        session.begin().await?;
        let done = match fence.hold(session.client()).await {
            Ok(()) => session.execute(sql).await,
            Err(failure) => Err(failure),
        };
        match done {
            Ok(()) => {
                session.execute("COMMIT").await?;
                self.note_alteration(name, sql);
                Ok(())
            }
            Err(lost @ Failure::Lost(_)) => Err(lost),
            Err(failure) => {
                session.execute("ROLLBACK").await?;
                Err(failure)
            }
        }
    }

    fn note_alteration(&self, name: &Str, sql: &str) {
        tracing::info!(pipeline = %self.host.pipeline, connector = %self.host.node, table = %name, "{sql}");
    }
}
