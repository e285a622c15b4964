//! Rows that are read beside the changes: of an incremental snapshot, or because a user asked for them.
//!
//! A table is read in chunks, in the order of its key ([`chunk`]), and each chunk is merged with the changes that arrive
//! meanwhile ([`window`]). Its rows are passed on at a place between two transactions where the log and the chunk agree:
//! all transactions that the chunk contains were read, and its rows that others have changed are left out, because their
//! changes are newer. What was read before is delivered and stored first, and the changes that follow wait for the rows,
//! so that lanes that are written side by side cannot overtake each other.
//!
//! The log does not contain large values that an update did not change. If the row of such an update was left out of a
//! chunk, or has a new key that may have been read already, the destination would never have these values: it is read
//! again by its key.
//!
//! Source: the watermarks of "DBLog: A Watermark Based Change-Data-Capture Framework" (Andreakis and Papapanagiotou,
//! 2020). Here, a chunk knows by the ids of the transactions which changes it contains, not by their places in the log: a
//! transaction is in the log before others see it.

mod chunk;
mod filling;
mod stored;
pub(super) mod window;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anabranch_plugin::source::Read;
use anabranch_record::fault::Fault;
use tokio::sync::{Mutex, Notify};

pub(super) use chunk::Chunk;
use chunk::{ChunkReader, Looked};
pub(super) use filling::Filling;
use stored::Part;
pub(super) use stored::{KeyTexts, StoredBackfills, TableBackfill};
pub(super) use window::{Visible, Window};

use super::acknowledged::Acknowledged;
use super::database::Database;
use super::events::{Ended, Events};
use super::lanes::Lanes;
use super::snapshot::stored;
use super::tables::Table;
use crate::codes;

/// The tables whose rows are to be read beside the changes. They are the position of a lane of their own, so that they
/// survive a crash.
pub(super) struct Backfills {
    /// Held while a state is being stored, so that states are stored in their order.
    state: Mutex<StoredBackfills>,
    /// True if there are any.
    pending: AtomicBool,
    added: Notify,
    events: Events,
    acknowledged: Arc<Acknowledged>,
    lanes: Lanes,
}

impl Backfills {
    /// Creates it with those of the last run.
    pub(super) fn new(
        state: StoredBackfills,
        events: Events,
        acknowledged: Arc<Acknowledged>,
        lanes: Lanes,
    ) -> Backfills {
        let pending = AtomicBool::new(!state.tables.is_empty());
        Backfills { state: Mutex::new(state), pending, added: Notify::new(), events, acknowledged, lanes }
    }

    /// Returns `true` if rows are left.
    pub(super) fn is_pending(&self) -> bool {
        self.pending.load(Ordering::Acquire)
    }

    /// Waits until a table was added.
    pub(super) async fn added(&self) {
        self.added.notified().await;
    }

    /// Has the rows of tables read from the first on, and returns when that is stored.
    ///
    /// # Errors
    /// The source is being closed.
    pub(super) async fn add(&self, tables: Vec<TableBackfill>) -> Result<(), Ended> {
        let mut state = self.state.lock().await;
        for table in tables {
            state.add(table);
        }
        self.store(&state).await?;
        drop(state);
        self.added.notify_one();
        Ok(())
    }

    /// Begins those that an earlier run did not complete, with lanes of their own.
    ///
    /// # Errors
    /// The source is being closed.
    pub(super) async fn resume(&self, tables: &[Table]) -> Result<(), Ended> {
        let mut state = self.state.lock().await;
        if state.tables.is_empty() {
            return Ok(());
        }
        for gone in state.keep(|oid| tables.iter().any(|table| table.oid == oid)) {
            tracing::warn!(
                table = gone.as_str(),
                "the rows of a table are not read: the source does not read it any more"
            );
        }
        self.store(&state).await
    }

    /// Returns the table whose rows are next.
    pub(super) async fn next(&self) -> Option<TableBackfill> {
        self.state.lock().await.tables.first().cloned()
    }

    /// Notes that a chunk of a table is delivered, of which rows with the keys `again` are to be read again. Returns `true` if
    /// the table is complete. Does nothing if it was added again meanwhile.
    ///
    /// # Errors
    /// The source is being closed.
    pub(super) async fn note(
        &self,
        read: &TableBackfill,
        part: Part,
        rows: u64,
        again: Vec<KeyTexts>,
    ) -> Result<bool, Ended> {
        let mut state = self.state.lock().await;
        let is_complete = state.note(read, part, rows, again);
        self.store(&state).await?;
        Ok(is_complete)
    }

    /// Has rows of a table that is being read be read again, and returns when that is stored.
    ///
    /// # Errors
    /// The source is being closed.
    pub(super) async fn read_again(&self, title: &str, keys: Vec<KeyTexts>) -> Result<(), Ended> {
        let mut state = self.state.lock().await;
        state.read_again(title, keys);
        self.store(&state).await
    }

    /// Removes a table that does not exist any more.
    ///
    /// # Errors
    /// The source is being closed.
    pub(super) async fn remove(&self, table: &TableBackfill) -> Result<(), Ended> {
        let mut state = self.state.lock().await;
        state.remove(table.oid);
        self.store(&state).await
    }

    async fn store(&self, state: &StoredBackfills) -> Result<(), Ended> {
        self.pending.store(!state.tables.is_empty(), Ordering::Release);
        let lane = self.lanes.backfill();
        self.acknowledged.set_rows_left(&lane, state.rows_left());
        let position = state.encode();
        self.events.send(Read::Progress(lane.clone(), position.clone())).await?;
        let reached = self.acknowledged.reaches(&lane, &position);
        tokio::select! {
            () = reached => {}
            () = self.events.0.closed() => return Err(Ended::Stopped),
        }
        if state.tables.is_empty() {
            self.acknowledged.forget(&lane);
            self.events.send(Read::Finished(lane)).await?;
        }
        Ok(())
    }
}

/// Returns tables with the estimated number of their rows.
///
/// # Errors
/// A table has no key, its rows may not be read, or the server cannot answer.
pub(super) async fn measured(database: &mut Database, tables: &[Table]) -> Result<Vec<TableBackfill>, Fault> {
    tables.iter().try_for_each(check_key)?;
    for table in tables {
        // The reading itself is retried, and this user would never be allowed to.
        let only = if table.kind == 'p' { "" } else { "ONLY " };
        let sql = format!("SELECT FROM {only}{} LIMIT 0", table.sql());
        database.rows(&format!("reading the table {}", table.title()), &sql).await?;
    }
    let parts = stored(database, tables).await?;
    let rows = |oid| parts.iter().filter(|(root, ..)| *root == oid).map(|(.., part)| part.rows).sum();
    let measured = tables.iter().map(|table| {
        TableBackfill::new(table.oid, table.title().into(), table.identity_key().to_vec(), rows(table.oid))
    });
    Ok(measured.collect())
}

/// Checks that the rows of a table can be read in the order of a key.
///
/// # Errors
/// The table has no key that every change contains.
pub(super) fn check_key(table: &Table) -> Result<(), Fault> {
    if !table.identity_key().is_empty() {
        return Ok(());
    }
    let text = format!(
        "the rows of the table {} cannot be read beside its changes, because it has no key: add a primary key, or set \
         snapshotMode: initial",
        table.title()
    );
    Err(Fault::fatal(codes::IDENTITY_MISSING, text))
}
