//! The part of a split source that has the changes: it announces the snapshot that the others read, and waits for them.
//!
//! It keeps a transaction open, whose snapshot the others import, and stores the name of that snapshot with the ranges of the
//! tables. When all parts have stored that their shares are delivered, it stores where the changes begin. Until then, no change
//! is read: the slot keeps them all, from the place on at which it was created. A row that is read under a later snapshot may
//! have changes that are read again after it. They end with the same row, and no row is delivered after its changes.

use std::time::Duration;

use anabranch_plugin::source::Read;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::config::SnapshotMode;
use super::driver::{Driver, ROWS};
use super::events::Ended;
use super::lanes::{FIRST, Lanes};
use super::lsn::Lsn;
use super::position::{ChangePosition, Stage};
use super::publication;
use super::siblings::Siblings;
use super::slot::HERE;
use super::snapshot::{Exported, Plan, Share, Snapshot, stored};

/// Time between two looks at the connection that keeps the snapshot.
const LOOK: Duration = Duration::from_secs(1);

/// The parts that read ranges.
#[derive(Clone)]
pub(super) struct Parts {
    /// Their number; their numbers begin at 1.
    pub(super) count: u32,
    pub(super) siblings: watch::Receiver<Siblings>,
}

impl Driver {
    /// Has the parts read what is left of a snapshot, under a new one. Returns where the changes begin: where they were to
    /// begin before.
    pub(super) async fn lead_again(&mut self, from: ChangePosition, parts: Parts) -> Result<ChangePosition, Ended> {
        let measured = stored(&mut self.queries, &self.tables).await?;
        let reached = ChangePosition { stage: Stage::Snapshot, ..from.clone() };
        self.store(&reached).await?;
        let at = self.queries.value("reading the end of the log", &format!("SELECT {HERE}")).await?;
        let at = at.and_then(|text| text.parse().ok()).unwrap_or(Lsn::ZERO);
        let sql = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT pg_catalog.pg_export_snapshot()";
        let name = self.queries.value("exporting a snapshot", sql).await?.unwrap_or_default();
        let plan = std::mem::take(&mut self.plan).next_for(measured, parts.count);
        let from = ChangePosition { stage: Stage::Changes, ..from };
        self.lead(&Exported { name, at }, plan, true, parts, &from).await?;
        Ok(from)
    }

    /// Has the parts read a snapshot, and stores `after` when all rows are delivered.
    pub(super) async fn lead(
        &mut self,
        exported: &Exported,
        mut plan: Plan,
        is_resumed: bool,
        mut parts: Parts,
        after: &ChangePosition,
    ) -> Result<(), Ended> {
        debug_assert_eq!(self.config.mode, SnapshotMode::Initial);
        for table in self.tables.clone() {
            let columns = publication::sent(self.publication.as_ref(), &table);
            // A run that ended early may have seen others.
            drop(self.check_columns(&table, &columns).await?);
        }
        let began = Instant::now();
        let snapshot = Snapshot {
            address: &self.config.address,
            parallel: 1,
            rows: ROWS,
            tables: &self.tables,
            publication: self.publication.as_ref(),
            schemas: None,
            events: &self.events,
            acknowledged: &self.acknowledged,
            until: None,
        };
        // The transaction that has exported the snapshot answers nothing while it does: this one does.
        let mut holder = snapshot.import(exported).await?;
        snapshot.lock(&mut holder, &plan).await?;
        let name = holder.value("exporting a snapshot", "SELECT pg_catalog.pg_export_snapshot()").await?;
        if is_resumed {
            // That one does not have to stay.
            self.queries.rows("ending a transaction", "ROLLBACK").await?;
        }
        let number = plan.attempt;
        plan.share = Some(Share {
            part: FIRST,
            of: parts.count,
            snapshot: number,
            name: name.unwrap_or_default().into(),
            at: exported.at,
            is_resumed,
            complete: false,
        });
        let (lane, position) = (Lanes::Split.plan(), plan.encode());
        self.events.send(Read::Progress(lane.clone(), position.clone())).await?;
        self.acknowledged.reaches(&lane, &position).await;
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !parts.siblings.borrow_and_update().have_all(parts.count, number) {
            tokio::select! {
                changed = parts.siblings.changed() => changed.map_err(|_| Ended::Stopped)?,
                // If the connection is lost, so is the snapshot: the next run announces another.
                _ = looks.tick() => drop(holder.value("keeping the snapshot", "SELECT 1").await?),
                () = self.events.0.closed() => return Err(Ended::Stopped),
            }
        }
        let seconds = began.elapsed().as_secs();
        tracing::info!(
            slot = self.config.slot.as_str(),
            parts = parts.count,
            seconds,
            "all parts have read the snapshot"
        );
        self.store(after).await?;
        self.events.send(Read::Finished(lane)).await
    }
}
