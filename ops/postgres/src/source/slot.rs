//! The replication slot: with it, the server keeps the log from the place on that the source has confirmed.

use std::time::Duration;

use anabranch_plugin::source::Retention;
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use serde::Deserialize;
use tokio::time::sleep;

use super::database::Database;
use super::fault::WireError;
use super::lsn::Lsn;
use super::position::Server;
use super::wire::literal;
use crate::codes;
use crate::name::Quoted;

/// Version from which standbys can take over slots.
const FAILOVER: u32 = 170_000;
/// Time after which a slot that is being created waits noticeably.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes that can still be written before the server may invalidate a slot, below which the slot is at risk.
const SAFE: i64 = 1 << 30;
/// The output plugin.
const PLUGIN: &str = "pgoutput";

/// A slot, as the server shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Slot {
    pub(super) plugin: Option<String>,
    pub(super) database: Option<String>,
    pub(super) temporary: bool,
    /// The program that reads it now.
    #[serde(default)]
    pub(super) reader: Option<String>,
    /// The place up to which the changes are confirmed.
    pub(super) confirmed: Option<Lsn>,
    /// `reserved`, `extended`, `unreserved` or `lost`.
    pub(super) wal_status: Option<String>,
    /// Bytes that can be written before the slot may be lost; `None` if there is no limit.
    pub(super) safe_wal_size: Option<i64>,
    /// Bytes of the log that the slot keeps.
    pub(super) retained: Option<i64>,
    /// Age of the oldest transaction whose rows of the catalogue the slot keeps.
    pub(super) xmin_age: Option<i64>,
    /// Reason why the slot is invalid, from version 17 on.
    #[serde(default)]
    pub(super) invalidation: Option<String>,
}

/// Reads a slot; `None` if there is none of the name.
///
/// # Errors
/// The server cannot answer.
pub(super) async fn find(database: &mut Database, name: &str, version: u32) -> Result<Option<Slot>, Fault> {
    let invalidation = if version >= FAILOVER { ", 'invalidation', s.invalidation_reason" } else { "" };
    let sql = format!(
        "SELECT pg_catalog.json_build_object('plugin', s.plugin, 'database', s.database, 'temporary', s.temporary,
            'confirmed', s.confirmed_flush_lsn::text, 'wal_status', s.wal_status,
            'safe_wal_size', s.safe_wal_size, 'xmin_age', pg_catalog.age(s.catalog_xmin)::int8,
            'retained', pg_catalog.pg_wal_lsn_diff({HERE}, s.restart_lsn)::int8,
            'reader', CASE WHEN s.active THEN coalesce((SELECT pg_catalog.format('%s from %s as %s, process %s',
                nullif(a.application_name, ''), coalesce(a.client_addr::text, 'this machine'), a.usename, a.pid)
                FROM pg_catalog.pg_stat_activity a WHERE a.pid = s.active_pid), 'process ' || s.active_pid) END
            {invalidation})
        FROM pg_catalog.pg_replication_slots s WHERE s.slot_name = {}",
        literal(name)
    );
    Ok(database.read(&format!("reading the slot {name}"), &sql).await?.into_iter().next())
}

/// The SQL expression for the end of the log.
pub(super) const HERE: &str = "CASE WHEN pg_catalog.pg_is_in_recovery() \
     THEN pg_catalog.pg_last_wal_replay_lsn() ELSE pg_catalog.pg_current_wal_flush_lsn() END";

fn gap(text: &str) -> Fault {
    Fault::fatal(codes::SLOT_GAP, format!("{text}; set onGap: snapshot to read all rows again"))
}

/// Returns the fault of a slot that the server does not stream any more, with its reason.
pub(super) fn unusable(name: &str, from: Lsn, reason: &WireError) -> Fault {
    gap(&format!("the slot {name} cannot be read from {from} on: {reason}: the changes after it are lost"))
}

/// Returns the fault of a slot that does not exist although changes after `from` are wanted.
pub(super) fn missing(name: &str, from: Lsn) -> Fault {
    gap(&format!("the slot {name} does not exist any more: the changes after {from} are lost unless it is restored"))
}

impl Slot {
    /// Returns `true` if the server may soon invalidate the slot, or has done so.
    fn is_at_risk(&self) -> bool {
        matches!(self.wal_status.as_deref(), Some("unreserved" | "lost")) || self.has_little_space()
    }

    /// Returns `true` if the server may invalidate the slot after [`SAFE`] more bytes of the log.
    pub(super) fn has_little_space(&self) -> bool {
        self.safe_wal_size.is_some_and(|safe| safe < SAFE)
    }

    /// Returns the data that the server retains for the slot.
    pub(super) fn retention(&self) -> Retention {
        let count = |count: Option<i64>| count.map(|count| u64::try_from(count).unwrap_or(0));
        Retention {
            bytes: count(self.retained),
            spare_bytes: count(self.safe_wal_size),
            status: self.wal_status.as_deref().map(Str::from),
            at_risk: self.is_at_risk(),
            transactions: count(self.xmin_age),
        }
    }

    /// Checks that the slot has the changes of all transactions from `from` on.
    ///
    /// # Errors
    /// It is another kind of slot, or it does not have them.
    pub(super) fn check(&self, name: &str, database: &str, from: Lsn) -> Result<(), Fault> {
        self.check_kind(name, database)?;
        if let Some(reason) = self.invalidation.as_deref().or(self.wal_status.as_deref().filter(|is| *is == "lost")) {
            return Err(gap(&format!(
                "the server invalidated the slot {name} ({reason}): the changes after {from} are lost; drop it with \
                 `SELECT pg_drop_replication_slot({})`, and check max_slot_wal_keep_size",
                literal(name)
            )));
        }
        match self.confirmed {
            Some(confirmed) if confirmed <= from => Ok(()),
            Some(confirmed) => Err(gap(&format!(
                "another program moved the slot {name} to {confirmed}: the changes from {from} to there are lost"
            ))),
            None => {
                // It waits for transactions that write, and is dropped if the program that creates it is gone then.
                let who = self.reader.as_deref().unwrap_or("unknown");
                Err(Fault::transient(codes::SLOT_IN_USE, format!("the slot {name} is being created ({who})")))
            }
        }
    }

    /// Checks that the slot is one that this source can read.
    ///
    /// # Errors
    /// It is another kind of slot.
    pub(super) fn check_kind(&self, name: &str, database: &str) -> Result<(), Fault> {
        let foreign = |text: String| Err(Fault::fatal(codes::SLOT_FOREIGN, text));
        match (&self.plugin, &self.database) {
            (Some(plugin), _) if plugin != PLUGIN => foreign(format!(
                "the slot {name} has the output plugin {plugin}, and the source reads {PLUGIN}; set another \
                 logrepl.slotName"
            )),
            (None, _) => foreign(format!("the slot {name} is a physical one; set another logrepl.slotName")),
            (_, Some(other)) if other != database => {
                foreign(format!("the slot {name} belongs to the database {other}; set another logrepl.slotName"))
            }
            _ if self.temporary => {
                foreign(format!("the slot {name} ends with the program that made it; set another logrepl.slotName"))
            }
            _ => Ok(()),
        }
    }
}

/// A slot that was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Created {
    /// The slot has all transactions that were committed from here on.
    pub(super) consistent: Lsn,
    /// Name of the snapshot that contains all others, until the next command of the connection.
    pub(super) snapshot: Option<String>,
}

/// The kind of slot to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NewSlot {
    /// One that stays, with a snapshot or without.
    Lasting {
        /// Whether a snapshot is exported.
        exports: bool,
        /// Whether standbys can take it over.
        failover: bool,
    },
    /// One for its snapshot only, which ends with the connection.
    Temporary,
}

/// Creates a slot on a connection for replication. Waits until all transactions that write have ended; if that takes long,
/// the log names one of them.
///
/// # Errors
/// The server refuses it.
pub(super) async fn create(
    replication: &mut Database,
    queries: &mut Database,
    name: &str,
    kind: NewSlot,
    version: u32,
) -> Result<Created, Fault> {
    let sql = match kind {
        NewSlot::Temporary => {
            format!("CREATE_REPLICATION_SLOT {} TEMPORARY LOGICAL {PLUGIN} EXPORT_SNAPSHOT", Quoted(name))
        }
        NewSlot::Lasting { exports, failover: true } if version >= FAILOVER => {
            let snapshot = if exports { "export" } else { "nothing" };
            format!("CREATE_REPLICATION_SLOT {} LOGICAL {PLUGIN} (SNAPSHOT '{snapshot}', FAILOVER true)", Quoted(name))
        }
        NewSlot::Lasting { exports, .. } => {
            let snapshot = if exports { "EXPORT_SNAPSHOT" } else { "NOEXPORT_SNAPSHOT" };
            format!("CREATE_REPLICATION_SLOT {} LOGICAL {PLUGIN} {snapshot}", Quoted(name))
        }
    };
    let what = format!("creating the slot {name}");
    let row = {
        let creating = replication.wire.query(&sql);
        tokio::pin!(creating);
        tokio::select! {
            created = &mut creating => created,
            () = sleep(PATIENCE) => {
                tell_of_oldest(queries, name).await;
                creating.await
            }
        }
    };
    let row = match row {
        Ok(rows) => rows.into_iter().next().unwrap_or_default(),
        Err(error) => return Err(refused(replication, &what, error)),
    };
    let mut columns = row.into_iter().skip(1);
    let consistent = columns.next().flatten().and_then(|text| text.parse().ok());
    let consistent = consistent.ok_or_else(|| {
        Fault::fatal(codes::POSTGRES_REFUSED, format!("{what}: the server does not say where the slot begins"))
    })?;
    Ok(Created { consistent, snapshot: columns.next().flatten() })
}

/// Adds to some errors what to do.
fn refused(database: &Database, what: &str, error: WireError) -> Fault {
    match error.state() {
        Some("53400") => {
            let text = format!("{}: {what}: {error}; increase max_replication_slots, or drop a slot", database.place());
            Fault::transient(codes::SERVER_UNAVAILABLE, text)
        }
        Some("55000") => Fault::fatal(codes::NOT_LOGICAL, format!("{}: {what}: {error}", database.place())),
        _ => database.fault(what, error),
    }
}

/// Logs the oldest transaction for which a new slot waits.
async fn tell_of_oldest(queries: &mut Database, name: &str) {
    let oldest = oldest_writer(queries).await;
    tracing::warn!(slot = name, oldest, "the new slot waits until all transactions that are writing have ended");
}

/// Describes the oldest transaction that is writing, for the log.
pub(super) async fn oldest_writer(queries: &mut Database) -> String {
    let sql = "SELECT text FROM (
            SELECT xact_start, pg_catalog.format('process %s (%s, %s), since %s', pid, coalesce(usename, '?'),
                coalesce(nullif(application_name, ''), '?'), xact_start)
            FROM pg_catalog.pg_stat_activity WHERE backend_xid IS NOT NULL
            UNION ALL SELECT prepared, pg_catalog.format('prepared transaction %s (%s), since %s', gid, owner, prepared)
            FROM pg_catalog.pg_prepared_xacts) AS writers (since, text) ORDER BY since LIMIT 1";
    let oldest = queries.value("looking for the oldest transaction", sql).await.ok().flatten();
    oldest.unwrap_or_else(|| "unknown".to_owned())
}

/// Returns the identity of the server, and the end of its log.
///
/// # Errors
/// The server cannot answer.
pub(super) async fn identify(replication: &mut Database) -> Result<(Server, Lsn), Fault> {
    let rows = replication.rows("identifying the server", "IDENTIFY_SYSTEM").await?;
    let mut columns = rows.into_iter().next().unwrap_or_default().into_iter().flatten();
    let identity = (|| {
        let system = columns.next()?.into();
        let timeline = columns.next()?.parse().ok()?;
        Some((Server { system, timeline }, columns.next()?.parse().ok()?))
    })();
    identity.ok_or_else(|| {
        Fault::fatal(codes::POSTGRES_REFUSED, format!("{}: the server does not identify itself", replication.place()))
    })
}

/// Checks that a place of another run is part of the server's history.
///
/// # Errors
/// It is not.
pub(super) async fn check_history(
    replication: &mut Database,
    stored: &Server,
    from: Lsn,
    server: &Server,
    end: Lsn,
) -> Result<(), Fault> {
    let place = replication.place().to_owned();
    let differs = |text: String| {
        let text = format!("{place}: {text}; set onGap: snapshot to read all rows again");
        Err(Fault::fatal(codes::HISTORY_DIFFERS, text))
    };
    if stored.system != server.system {
        return differs(format!(
            "the server is another one (system id {}) than the one of the stored position ({})",
            server.system, stored.system
        ));
    }
    if stored.timeline == server.timeline {
        return match end < from {
            true => differs(format!(
                "the server ends at {end}, before the stored position {from}: it may have been restored from a backup, \
                 and what was read after {end} does not exist there"
            )),
            false => Ok(()),
        };
    }
    if server.timeline < stored.timeline {
        return differs(format!(
            "the server has the older history {}, and the stored position the history {}: it may be a primary from \
             before a failover",
            server.timeline, stored.timeline
        ));
    }
    let rows =
        replication.rows("reading the history of the server", &format!("TIMELINE_HISTORY {}", server.timeline)).await?;
    let text = rows.into_iter().next().and_then(|row| row.into_iter().nth(1)).flatten().unwrap_or_default();
    match left_at(&text, stored.timeline) {
        Some(left) if from <= left => Ok(()),
        Some(left) => differs(format!(
            "the server took over at {left}, before the stored position {from}: what was read between them does not \
             exist there, because the standby had not received it"
        )),
        None => differs(format!(
            "the history {} of the stored position is not part of the history {} of the server",
            stored.timeline, server.timeline
        )),
    }
}

/// Returns the place where a history left a timeline.
fn left_at(history: &str, timeline: u32) -> Option<Lsn> {
    history.lines().find_map(|line| {
        let mut columns = line.split_whitespace();
        let found = columns.next()?.parse::<u32>().ok()? == timeline;
        columns.next()?.parse().ok().filter(|_| found)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_without_the_wanted_changes_is_a_gap() {
        let slot = Slot {
            plugin: Some(PLUGIN.into()),
            database: Some("shop".into()),
            confirmed: Some(Lsn(10)),
            wal_status: Some("reserved".into()),
            ..Slot::default()
        };
        let code = |slot: &Slot, from| slot.check("s", "shop", Lsn(from)).map_err(|fault| fault.code().name());
        assert_eq!(code(&slot, 10), Ok(()));
        assert_eq!(code(&slot, 9), Err("postgres.slot_gap"));
        for (broken, name) in [
            (Slot { wal_status: Some("lost".into()), ..slot.clone() }, "postgres.slot_gap"),
            (Slot { invalidation: Some("wal_removed".into()), ..slot.clone() }, "postgres.slot_gap"),
            (Slot { confirmed: None, ..slot.clone() }, "postgres.slot_in_use"),
            (Slot { plugin: None, ..slot.clone() }, "postgres.slot_foreign"),
            (Slot { plugin: Some("wal2json".into()), ..slot.clone() }, "postgres.slot_foreign"),
            (Slot { database: Some("other".into()), ..slot.clone() }, "postgres.slot_foreign"),
            (Slot { temporary: true, ..slot.clone() }, "postgres.slot_foreign"),
        ] {
            assert_eq!(code(&broken, 20), Err(name), "{broken:?}");
        }
    }

    #[test]
    fn a_history_says_where_it_left_a_timeline() {
        let history = "1\t0/5000148\tno recovery target specified\n\n2\t0/6000000\tbefore 2026\n";
        assert_eq!(left_at(history, 1), Some(Lsn(0x500_0148)));
        assert_eq!(left_at(history, 2), Some(Lsn(0x600_0000)));
        assert_eq!(left_at(history, 3), None);
    }
}
