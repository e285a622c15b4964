//! Examination for `anabranch doctor`: rights, tables, publication and slot. Changes nothing.

use anabranch_record::fault::Fault;

use super::config::{Config, Partial, SnapshotMode};
use super::database::Database;
use super::guard::warnings;
use super::open::{check_level, version};
use super::tables::{self, Table};
use super::wire::Session;
use super::{publication, slot};
use crate::codes;

/// Examines the server, and returns warnings.
///
/// # Errors
/// The source could not read now.
pub(super) async fn examine(config: &Config) -> Result<Vec<String>, Fault> {
    let mut database = Database::connect(&config.address, Session::Queries).await?;
    let version = version(&mut database).await?;
    let tables = tables::select(&mut database, &config.selectors).await?;
    check_rights(&mut database, &tables).await?;
    if config.mode == SnapshotMode::Only {
        return Ok(Vec::new());
    }
    check_level(&mut database).await?;
    let mut notes = Vec::new();
    let name = &config.publication;
    match publication::find(&mut database, name, version).await? {
        Some(found) => found.check(name, &tables, config.partial == Partial::Accept)?,
        None => {
            tables.iter().try_for_each(Table::check_identity)?;
            notes.push(format!("the publication {name} does not exist; the source creates it"));
        }
    }
    let name = &config.slot;
    match slot::find(&mut database, name, version).await? {
        Some(found) => {
            found.check(name, config.database(), found.confirmed.unwrap_or_default())?;
            notes.extend(warnings(name, &found));
        }
        None => {
            notes.push(format!("the slot {name} does not exist; the source creates it"));
            let sql = "SELECT pg_catalog.current_setting('max_replication_slots')::int8
                - (SELECT count(*) FROM pg_catalog.pg_replication_slots)";
            let free = database.value("counting the slots", sql).await?.and_then(|text| text.parse().ok());
            if free.is_some_and(|free: i64| free < 1) {
                notes.push("no replication slot is free: increase max_replication_slots, or drop one".to_owned());
            }
        }
    }
    // The attribute REPLICATION is needed to open such a connection.
    let mut replication = Database::connect(&config.address, Session::Replication).await?;
    slot::identify(&mut replication).await?;
    Ok(notes)
}

/// Checks that the user may read the tables.
async fn check_rights(database: &mut Database, tables: &[Table]) -> Result<(), Fault> {
    for table in tables {
        let sql = format!("SELECT pg_catalog.has_table_privilege({}::pg_catalog.oid, 'SELECT')", table.oid);
        if database.value("checking the rights", &sql).await?.as_deref() != Some("t") {
            let text = format!(
                "{}: the user may not read the table {}; run `GRANT SELECT ON {} TO …`",
                database.place(),
                table.title(),
                table.sql()
            );
            return Err(Fault::transient(codes::POSTGRES_DENIED, text));
        }
    }
    Ok(())
}
