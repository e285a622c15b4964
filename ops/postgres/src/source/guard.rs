//! Watches slot and publication while changes are read: the server does not say when it drops changes.

use std::collections::BTreeSet;
use std::sync::Arc;

use anabranch_record::fault::{Fault, FaultClass};
use tokio::time::{MissedTickBehavior, interval};

use super::acknowledged::Acknowledged;
use super::config::Config;
use super::database::Database;
use super::lsn::Lsn;
use super::slot::{self, HERE, Slot};
use super::snapshot::stored;
use super::tables::Table;
use super::wire::{Session, literal};
use super::{publication, slot::missing};
use crate::codes;

/// Bytes of the log behind which a slot that stands still is moved by a message.
const BEHIND: u64 = 16 << 20;
/// Prefix of the messages of a source in the log.
const PREFIX: &str = "anabranch";
/// Age of the oldest transaction for which the server keeps rows of its catalogue, above which the log warns.
const OLD: i64 = 500_000_000;

/// The watch of a source.
pub(super) struct Guard {
    pub(super) config: Arc<Config>,
    pub(super) version: u32,
    pub(super) tables: Vec<Table>,
    pub(super) acknowledged: Arc<Acknowledged>,
}

impl Guard {
    /// Checks at intervals, and returns the first fault that the pipeline must not ignore.
    pub(super) async fn run(self) -> Fault {
        let mut ticks = interval(self.config.check);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        let mut database: Option<Database> = None;
        let mut behind = Behind::default();
        let mut parts: Option<BTreeSet<u32>> = None;
        loop {
            ticks.tick().await;
            let mut connected = match database.take() {
                Some(connected) => connected,
                None => match Database::connect(&self.config.address, Session::Queries).await {
                    Ok(connected) => connected,
                    // The stream notices a server that is gone, and a login that is refused when it connects again.
                    Err(fault) => {
                        tracing::debug!(%fault, "cannot check the slot");
                        continue;
                    }
                },
            };
            match self.check(&mut connected, &mut behind, &mut parts).await {
                Ok(()) => database = Some(connected),
                Err(fault) if fault.class() == FaultClass::Transient => {
                    tracing::debug!(%fault, "cannot check the slot");
                }
                Err(fault) => return fault,
            }
        }
    }

    async fn check(
        &self,
        database: &mut Database,
        behind: &mut Behind,
        parts: &mut Option<BTreeSet<u32>>,
    ) -> Result<(), Fault> {
        let name = self.config.slot.as_str();
        // Read before the slot, because it may move meanwhile.
        let found = slot::find(database, name, self.version).await?;
        let confirmed = self.acknowledged.confirmed();
        let Some(found) = found else {
            // Before changes are streamed, the slot may not exist yet.
            return if *self.acknowledged.streaming.borrow() { Err(missing(name, confirmed)) } else { Ok(()) };
        };
        self.acknowledged.note_retention(found.retention());
        // The place of a slot that is new is confirmed when it is stored.
        let confirmed = if confirmed == Lsn::ZERO { found.confirmed.unwrap_or_default() } else { confirmed };
        found.check(name, self.config.database(), confirmed)?;
        for warning in warnings(name, &found) {
            tracing::warn!("{warning}");
        }
        self.check_publication(database).await?;
        self.note_partitions(database, parts).await?;
        let end = database.value("reading the end of the log", &format!("SELECT {HERE}")).await?;
        let end: Lsn = end.and_then(|text| text.parse().ok()).unwrap_or_default();
        self.acknowledged.note_server_end(end);
        if !self.config.heartbeat.is_zero() && behind.is_stuck(confirmed, end, self.config.heartbeat) {
            write_message(database).await;
        }
        Ok(())
    }

    /// Logs partitions that were added: rows that one has when it is attached are in no transaction of the stream.
    async fn note_partitions(&self, database: &mut Database, known: &mut Option<BTreeSet<u32>>) -> Result<(), Fault> {
        let partitioned = self.tables.iter().filter(|table| table.kind == 'p').cloned().collect::<Vec<_>>();
        if partitioned.is_empty() {
            return Ok(());
        }
        let found = stored(database, &partitioned).await?;
        for (_, table, part) in &found {
            if known.as_ref().is_some_and(|known| !known.contains(&part.oid)) {
                tracing::info!(
                    table = table.as_str(),
                    partition = part.name.as_str(),
                    "a partition was added; if it had rows before, `anabranch pipelines backfill` reads them"
                );
            }
        }
        *known = Some(found.into_iter().map(|(.., part)| part.oid).collect());
        Ok(())
    }

    async fn check_publication(&self, database: &mut Database) -> Result<(), Fault> {
        let name = &self.config.publication;
        let found = publication::find(database, name, self.version).await?;
        let Some(found) = found else { return Err(no_publication(name, &self.tables)) };
        found.check(name, &self.tables, self.config.partial == super::config::Partial::Accept)
    }
}

/// Writes a message to the log: the server sends at once what was committed before, and moves the slot of a quiet database.
pub(super) async fn write_message(database: &mut Database) {
    // Standbys may not answer.
    let sql = format!(
        "BEGIN; SET LOCAL synchronous_commit = local; SELECT pg_catalog.pg_logical_emit_message(true, {}, ''); COMMIT",
        literal(PREFIX)
    );
    if let Err(fault) = database.rows("writing a message to the log", &sql).await {
        tracing::debug!(%fault, "cannot write a message to the log");
        // The transaction is open. If the connection is lost, the next statement says so.
        let _ = database.rows("ending a transaction", "ROLLBACK").await;
    }
}

/// Returns the fault of a publication that does not exist any more.
pub(super) fn no_publication(name: &str, tables: &[Table]) -> Fault {
    let list = tables.iter().map(Table::sql).collect::<Vec<_>>().join(", ");
    let text = format!(
        "the publication {name} does not exist any more; run `CREATE PUBLICATION {} FOR TABLE {list} WITH \
         (publish_via_partition_root = true)`, and set onGap: snapshot if rows were written meanwhile",
        crate::name::Quoted(name)
    );
    Fault::fatal(codes::PUBLICATION_NARROWED, text)
}

/// Returns what endangers a slot or the server that keeps it.
pub(super) fn warnings(name: &str, slot: &Slot) -> Vec<String> {
    let mut warnings = Vec::new();
    let kept = slot.retained.unwrap_or_default() >> 20;
    if slot.wal_status.as_deref() == Some("unreserved") {
        warnings.push(format!(
            "the slot {name} keeps {kept} MiB of the log, more than max_slot_wal_keep_size: the server may invalidate it \
             at any time"
        ));
    } else if let Some(safe) = slot.safe_wal_size.filter(|_| slot.has_little_space()) {
        let safe = safe >> 20;
        warnings.push(format!(
            "the slot {name} keeps {kept} MiB of the log; after {safe} MiB more the server may invalidate it \
             (max_slot_wal_keep_size)"
        ));
    }
    if let Some(age) = slot.xmin_age.filter(|age| *age > OLD) {
        warnings.push(format!(
            "the slot {name} keeps rows of the catalogue since {age} transactions: vacuum cannot remove them"
        ));
    }
    warnings
}

/// How long a slot stands still.
#[derive(Default)]
struct Behind {
    confirmed: Lsn,
    since: Option<tokio::time::Instant>,
}

impl Behind {
    /// Returns `true` if the confirmed place did not move for `time` although the log grows.
    fn is_stuck(&mut self, confirmed: Lsn, end: Lsn, time: std::time::Duration) -> bool {
        if confirmed != self.confirmed || end.since(confirmed) < BEHIND {
            self.confirmed = confirmed;
            self.since = None;
        }
        let now = tokio::time::Instant::now();
        let since = *self.since.get_or_insert(now);
        if end.since(confirmed) < BEHIND || now.duration_since(since) < time {
            return false;
        }
        self.since = None;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_slot_that_stands_still_while_the_log_grows_is_stuck() {
        let minute = Duration::from_secs(60);
        let mut behind = Behind::default();
        let end = Lsn(BEHIND + 100);
        assert!(!behind.is_stuck(Lsn(100), end, minute));
        tokio::time::advance(minute).await;
        assert!(behind.is_stuck(Lsn(100), end, minute));
        assert!(!behind.is_stuck(Lsn(100), end, minute));
        tokio::time::advance(minute).await;
        assert!(!behind.is_stuck(Lsn(101), Lsn(BEHIND + 200), minute));
        tokio::time::advance(minute).await;
        assert!(!behind.is_stuck(Lsn(101), Lsn(200), minute));
    }

    #[test]
    fn a_slot_that_may_be_lost_is_reported() {
        let slot = Slot { retained: Some(5 << 20), ..Slot::default() };
        assert!(warnings("s", &slot).is_empty() && !slot.retention().at_risk);
        let near = Slot { safe_wal_size: Some(10 << 20), xmin_age: Some(OLD + 1), ..slot.clone() };
        assert!(near.retention().at_risk);
        let found = warnings("s", &near);
        assert!(found[0].contains("after 10 MiB more") && found[1].contains("500000001"), "{found:?}");
        let over = Slot { wal_status: Some("unreserved".into()), safe_wal_size: Some(0), ..slot };
        assert!(over.retention().at_risk);
        assert!(warnings("s", &over)[0].contains("at any time"));
    }
}
