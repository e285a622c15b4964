//! Removes the slot and the publication of a source whose connector is deleted.

use std::collections::BTreeMap;

use anabranch_record::fault::Fault;
use anabranch_record::mark::{Mark, Partition};

use super::config::{Config, SnapshotMode};
use super::database::Database;
use super::position::{CHANGES, ChangePosition, StoredPosition};
use super::publication;
use super::slot;
use super::wire::{Session, literal};
use crate::codes;
use crate::name::Quoted;

/// Drops the slot that the marks belong to, and the publication if a source created it. Returns `true` if the slot is gone:
/// the marks are of no use then.
///
/// # Errors
/// The server cannot be reached or is another one, or another program reads the slot. The slot stays then.
pub(super) async fn clean_up(config: &Config, marks: &BTreeMap<Partition, Mark>) -> Result<bool, Fault> {
    // A slot that the user created is the user's.
    if !config.cleans_up || config.adopts || config.mode == SnapshotMode::Only {
        return Ok(false);
    }
    let stored = marks.get(&CHANGES).filter(|mark| !mark.position.0.is_empty());
    let Some(StoredPosition::Ours(position)) = stored.map(|mark| StoredPosition::decode(&mark.position)).transpose()?
    else {
        return Ok(false);
    };
    let name = &config.slot;
    if position.slot != *name {
        return Ok(false);
    }
    drop_slot(config, &position).await.map_err(|fault| {
        let text = format!("the slot {name} was not dropped: {}", fault.message());
        Fault::new(fault.class(), fault.code(), text)
    })
}

async fn drop_slot(config: &Config, position: &ChangePosition) -> Result<bool, Fault> {
    let name = &config.slot;
    let mut replication = Database::connect(&config.address, Session::Replication).await?;
    let (server, _) = slot::identify(&mut replication).await?;
    if server.system != position.system {
        return Err(Fault::fatal(codes::HISTORY_DIFFERS, "the server is another one than the source has read"));
    }
    let mut queries = Database::connect(&config.address, Session::Queries).await?;
    let sql = format!(
        "SELECT pg_catalog.pg_drop_replication_slot(slot_name) FROM pg_catalog.pg_replication_slots
         WHERE slot_name = {} AND database = pg_catalog.current_database()",
        literal(name)
    );
    queries.rows(&format!("dropping the slot {name}"), &sql).await?;
    tracing::info!(slot = name.as_str(), "dropped the slot of a source that was deleted");
    let publication = &config.publication;
    let sql = format!(
        "SELECT pg_catalog.obj_description(oid, 'pg_publication') FROM pg_catalog.pg_publication WHERE pubname = {}",
        literal(publication)
    );
    let what = format!("dropping the publication {publication}");
    let comment = queries.value(&what, &sql).await?;
    if comment.as_deref() == Some(publication::created_for(name).as_str()) {
        queries.rows(&what, &format!("DROP PUBLICATION {}", Quoted(publication))).await?;
        tracing::info!(publication = publication.as_str(), "dropped the publication of a source that was deleted");
    }
    Ok(true)
}
