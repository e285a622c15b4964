//! Examination for `anabranch doctor`: rights, tables, publication and slot. Changes nothing, and names all problems.

use std::slice::from_ref;

use anabranch_record::fault::Fault;

use super::config::{Config, Partial, SnapshotMode};
use super::database::Database;
use super::guard::warnings;
use super::open::{check_level, version};
use super::tables::{self, Selector, Table};
use super::wire::Session;
use super::{backfill, publication, slot};
use crate::codes;

/// Examines the server, and returns warnings.
///
/// # Errors
/// The source could not read now. The message has every reason, and the code is that of the first.
pub(super) async fn examine(config: &Config) -> Result<Vec<String>, Fault> {
    let mut database = Database::connect(&config.address, Session::Queries).await?;
    let version = version(&mut database).await?;
    let mut findings = Findings::default();
    let selected = match tables::select(&mut database, &config.selectors).await {
        Ok(selected) => selected,
        Err(fault) => select_each(config, &mut database, fault, &mut findings).await,
    };
    for table in &selected {
        findings.take(check_rights(&mut database, table).await);
        if config.mode == SnapshotMode::Incremental {
            findings.take(backfill::check_key(table));
        }
    }
    if config.mode == SnapshotMode::Only {
        return findings.end();
    }
    findings.take(check_level(&mut database).await);
    examine_publication(config, &mut database, version, &selected, &mut findings).await;
    examine_slot(config, &mut database, version, &mut findings).await;
    // The attribute REPLICATION is needed to open such a connection.
    if let Some(mut replication) = findings.take(Database::connect(&config.address, Session::Replication).await) {
        findings.take(slot::identify(&mut replication).await);
    }
    findings.end()
}

/// Selects the tables that can be read, if not all can. `fault` says what is wrong with one of them.
async fn select_each(config: &Config, database: &mut Database, fault: Fault, findings: &mut Findings) -> Vec<Table> {
    let mut selected: Vec<Table> = Vec::new();
    for selector in &config.selectors {
        match tables::select(database, from_ref(selector)).await {
            Ok(tables) => {
                for table in tables {
                    if selected.iter().all(|known| known.oid != table.oid) {
                        selected.push(table);
                    }
                }
            }
            // A pattern that matches nothing is no error beside others.
            Err(fault) if matches!(selector, Selector::Named { .. }) => {
                findings.take::<()>(Err(fault));
            }
            Err(_) => {}
        }
    }
    if selected.is_empty() && findings.faults.is_empty() {
        findings.take::<()>(Err(fault));
    }
    selected
}

async fn examine_publication(
    config: &Config,
    database: &mut Database,
    version: u32,
    tables: &[Table],
    findings: &mut Findings,
) {
    let name = &config.publication;
    match findings.take(publication::find(database, name, version).await) {
        Some(Some(found)) => {
            for table in tables {
                findings.take(found.check(name, from_ref(table), config.partial == Partial::Accept));
            }
        }
        Some(None) => {
            for table in tables {
                findings.take(table.check_identity());
            }
            findings.note(format!("the publication {name} does not exist; the source creates it"));
        }
        None => {}
    }
}

async fn examine_slot(config: &Config, database: &mut Database, version: u32, findings: &mut Findings) {
    let name = &config.slot;
    match findings.take(slot::find(database, name, version).await) {
        Some(Some(found)) => {
            findings.take(found.check(name, config.database(), found.confirmed.unwrap_or_default()));
            warnings(name, &found).into_iter().for_each(|warning| findings.note(warning));
        }
        Some(None) => {
            findings.note(format!("the slot {name} does not exist; the source creates it"));
            let sql = "SELECT pg_catalog.current_setting('max_replication_slots')::int8
                - (SELECT count(*) FROM pg_catalog.pg_replication_slots)";
            let free = findings.take(database.value("counting the slots", sql).await).flatten();
            if free.and_then(|text| text.parse().ok()).is_some_and(|free: i64| free < 1) {
                findings.note("no replication slot is free: increase max_replication_slots, or drop one".to_owned());
            }
        }
        None => {}
    }
}

/// What was found so far.
#[derive(Debug, Default)]
struct Findings {
    faults: Vec<Fault>,
    notes: Vec<String>,
}

impl Findings {
    /// Notes the fault of a part of the examination.
    fn take<T>(&mut self, result: Result<T, Fault>) -> Option<T> {
        match result {
            Ok(found) => Some(found),
            Err(fault) => {
                // Each table may have the same one.
                if self.faults.iter().all(|known| known.message() != fault.message()) {
                    self.faults.push(fault);
                }
                None
            }
        }
    }

    fn note(&mut self, warning: String) {
        self.notes.push(warning);
    }

    /// Returns the warnings, or one fault for all.
    fn end(self) -> Result<Vec<String>, Fault> {
        let Some(first) = self.faults.first() else { return Ok(self.notes) };
        let texts: Vec<String> = self.faults.iter().map(Fault::message).collect();
        Err(Fault::new(first.class(), first.code(), texts.join("; ")))
    }
}

/// Checks that the user may read a table.
async fn check_rights(database: &mut Database, table: &Table) -> Result<(), Fault> {
    let sql = format!("SELECT pg_catalog.has_table_privilege({}::pg_catalog.oid, 'SELECT')", table.oid);
    if database.value("checking the rights", &sql).await?.as_deref() == Some("t") {
        return Ok(());
    }
    let text = format!(
        "{}: the user may not read the table {}; run `GRANT SELECT ON {} TO …`",
        database.place(),
        table.title(),
        table.sql()
    );
    Err(Fault::transient(codes::POSTGRES_DENIED, text))
}
