//! A part of a source that is split: it reads its ranges of the snapshot, and nothing else.
//!
//! It reads under the snapshot that the part with the changes has announced ([`super::lead`]). If that part announces another
//! one, because its run ended, this part reads under that one what is left, and the rows that were written to its ranges since.

use std::sync::Arc;

use anabranch_plugin::source::Read;
use anabranch_record::fault::Fault;
use anabranch_record::mark::Partition;
use tokio::sync::watch;

use super::acknowledged::Acknowledged;
use super::config::Config;
use super::database::Database;
use super::driver::ROWS;
use super::events::{Ended, Events};
use super::guard::no_publication;
use super::lanes::of_part;
use super::open;
use super::position::PLAN;
use super::publication;
use super::record::Schemas;
use super::siblings::Siblings;
use super::snapshot::{Exported, Plan, Share, Snapshot};
use super::tables;
use super::wire::Session;
use crate::codes;

/// A part.
pub(super) struct PartReader {
    pub(super) config: Arc<Config>,
    /// Its number, from 1.
    pub(super) number: u32,
    /// What it has stored.
    pub(super) plan: Plan,
    pub(super) schemas: Option<Arc<Schemas>>,
    pub(super) events: Events,
    pub(super) acknowledged: Arc<Acknowledged>,
    pub(super) siblings: watch::Receiver<Siblings>,
    /// Lanes of earlier runs without further records.
    pub(super) finished: Vec<Partition>,
}

/// What a part does next.
enum Next {
    /// Read its share of a snapshot.
    Read(Plan),
    /// Forget what it has stored, because only changes are left.
    Forget,
}

impl PartReader {
    /// Runs until the source is closed.
    ///
    /// # Errors
    /// The server does not answer, or what it has is not what the source needs.
    pub(super) async fn run(mut self) -> Result<(), Ended> {
        for lane in std::mem::take(&mut self.finished) {
            self.events.send(Read::Finished(lane)).await?;
        }
        // A snapshot that does not exist any more: the next one has another number.
        let mut gone = None;
        loop {
            match self.next(gone).await? {
                Next::Forget => break,
                Next::Read(announced) => {
                    let number = announced.share.as_ref().map(|share| share.snapshot);
                    gone = if self.read(&announced).await? { None } else { number };
                }
            }
        }
        if self.plan.share.is_some() {
            self.events.send(Read::Finished(of_part(&PLAN, self.number))).await?;
        }
        self.wait_for(|siblings| (!siblings.is_over()).then_some(())).await?;
        // The lane of the plan has ended in this run.
        let text = "the rows of the tables are read again: the next run of this part takes its share";
        Err(Fault::transient(codes::SNAPSHOT_AGAIN, text).into())
    }

    async fn next(&mut self, gone: Option<u32>) -> Result<Next, Ended> {
        let known = self.plan.share.as_ref().filter(|share| share.complete).map(|share| share.snapshot);
        self.wait_for(|siblings| {
            if siblings.is_over() {
                return Some(Next::Forget);
            }
            let announced = siblings.announced.as_ref()?;
            let number = announced.share.as_ref().map(|share| share.snapshot);
            (number != known && number != gone).then(|| Next::Read(announced.clone()))
        })
        .await
    }

    /// Waits until the parts are so far.
    async fn wait_for<T>(&mut self, look: impl Fn(&Siblings) -> Option<T>) -> Result<T, Ended> {
        loop {
            if let Some(found) = look(&self.siblings.borrow_and_update()) {
                return Ok(found);
            }
            tokio::select! {
                changed = self.siblings.changed() => changed.map_err(|_| Ended::Stopped)?,
                () = self.events.0.closed() => return Err(Ended::Stopped),
            }
        }
    }

    /// Reads the share of this part, and returns when it is delivered and stored. `false` if the snapshot does not exist any
    /// more.
    async fn read(&mut self, announced: &Plan) -> Result<bool, Ended> {
        let Some(share) = &announced.share else { return Ok(false) };
        let exported = Exported { name: share.name.to_string(), at: share.at };
        let mut queries = Database::connect(&self.config.address, Session::Queries).await?;
        let version = open::version(&mut queries).await?;
        let tables = tables::select(&mut queries, &self.config.selectors).await?;
        let publication = publication::find(&mut queries, &self.config.publication, version).await?;
        let publication = publication.ok_or_else(|| no_publication(&self.config.publication, &tables))?;
        let snapshot = Snapshot {
            address: &self.config.address,
            parallel: 1,
            rows: self.config.fetch.clamp(1, ROWS),
            tables: &tables,
            publication: Some(&publication),
            schemas: self.schemas.as_deref(),
            events: &self.events,
            acknowledged: &self.acknowledged,
            until: None,
        };
        let Some(holder) = snapshot.find(&exported).await? else { return Ok(false) };
        drop(queries);
        let share = Share { part: self.number, complete: false, ..share.clone() };
        tracing::info!(part = self.number, of = share.of, snapshot = share.snapshot, "reading a part of the snapshot");
        let plan = Plan::of_part(announced, share, &self.plan);
        let (_, mut plan) = snapshot.read_under(holder, &exported, plan).await?;
        if let Some(share) = &mut plan.share {
            share.complete = true;
        }
        let (lane, stored) = (of_part(&PLAN, self.number), plan.encode());
        self.events.send(Read::Progress(lane.clone(), stored.clone())).await?;
        self.acknowledged.reaches(&lane, &stored).await;
        self.plan = plan;
        Ok(true)
    }
}
