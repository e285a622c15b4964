//! The course of a source: the slot, the snapshot, then the changes.
//!
//! It runs as a task that passes on what it reads. Each step begins when the positions of the step before are stored, so
//! that a crash at any place repeats a step and never skips one.

use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::source::Read;
use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_record::mark::Partition;
use bytes::Bytes;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::accepted::Accepted;
use super::acknowledged::Acknowledged;
use super::backfill::{self, Backfills, Filling};
use super::changes::{Changes, Seen, Taken};
use super::config::{Config, SnapshotMode};
use super::database::Database;
use super::events::{Ended, Events};
use super::fault::WireError;
use super::guard::no_publication;
use super::lanes::Lanes;
use super::lead::Parts;
use super::lsn::Lsn;
use super::pgoutput::{Relation, decode};
use super::position::{CHANGES, ChangePosition, PLAN, Server, Stage};
use super::publication::{self, Publication};
use super::record::{Layout, Schemas, SentColumn};
use super::slot::{self, HERE, NewSlot};
use super::snapshot::{Exported, Plan, Snapshot, stored};
use super::stream::{Part, Stream, parts};
use super::tables::{self, Table};
use super::wire::{Session, literal};
use crate::codes;

/// Maximum number of records that are passed on at once.
pub(super) const ROWS: usize = 1024;
/// Approximate maximum size of records that are passed on at once, in bytes of the log.
const BYTES: usize = 512 << 10;
/// Time between two positions that move without a record.
const PROGRESS: Duration = Duration::from_secs(1);

/// The step with which a run begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Create the slot.
    Create {
        /// True if it is not stored yet that this source creates it.
        is_new: bool,
        /// True if a slot of the name exists that is to be dropped.
        drops: bool,
    },
    /// Read what is left of a snapshot, and the changes from a position on.
    Snapshot(ChangePosition),
    /// Read the changes from a position on.
    Changes(ChangePosition),
    /// Read the changes from a position on, and all rows beside them.
    Incremental(ChangePosition),
    /// Read a snapshot and no changes.
    Rows,
    /// Nothing is left.
    Nothing,
}

/// Runs a source.
pub(super) struct Driver {
    pub(super) config: Arc<Config>,
    pub(super) server: Server,
    /// Version of the server, such as 170011.
    pub(super) version: u32,
    pub(super) queries: Database,
    pub(super) tables: Vec<Table>,
    /// `None` if nothing but a snapshot is read.
    pub(super) publication: Option<Publication>,
    pub(super) schemas: Option<Arc<Schemas>>,
    pub(super) backfills: Arc<Backfills>,
    /// The parts that read the snapshot; `None` if the driver does.
    pub(super) parts: Option<Parts>,
    pub(super) lanes: Lanes,
    /// The columns of tables that are accepted; `None` if all are.
    pub(super) accepted: Option<Accepted>,
    pub(super) events: Events,
    pub(super) acknowledged: Arc<Acknowledged>,
    pub(super) step: Step,
    /// The plan of an earlier attempt to read a snapshot.
    pub(super) plan: Plan,
    /// Lanes of earlier runs without further records.
    pub(super) finished: Vec<Partition>,
}

impl Driver {
    /// Runs until the source ends or is closed.
    ///
    /// # Errors
    /// The server does not answer, or what it has is not what the source needs.
    pub(super) async fn run(mut self) -> Result<(), Ended> {
        for lane in std::mem::take(&mut self.finished) {
            self.events.send(Read::Finished(lane)).await?;
        }
        let from = match self.step.clone() {
            Step::Nothing => return self.events.send(Read::End).await,
            Step::Rows => return self.read_rows_only().await,
            Step::Changes(from) => from,
            Step::Incremental(from) => self.begin_incremental(from).await?,
            Step::Create { is_new, drops } => self.create(is_new, drops).await?,
            Step::Snapshot(from) => self.resume_snapshot(from).await?,
        };
        self.backfills.resume(&self.tables).await?;
        self.follow(&from, None).await?;
        Ok(())
    }

    /// Stores that all rows are read beside the changes, and then that the changes are read.
    async fn begin_incremental(&mut self, from: ChangePosition) -> Result<ChangePosition, Ended> {
        let tables = backfill::measured(&mut self.queries, &self.tables).await?;
        self.backfills.add(tables).await?;
        self.store(&from).await?;
        Ok(from)
    }

    fn at(&self, stage: Stage, end: Lsn) -> ChangePosition {
        ChangePosition::at(&self.server, &self.config.slot, stage, end)
    }

    /// Passes on a position of the changes, and waits until it is stored.
    pub(super) async fn store(&self, position: &ChangePosition) -> Result<(), Ended> {
        let position = position.encode();
        self.events.send(Read::Progress(CHANGES, position.clone())).await?;
        self.acknowledged.reaches(&CHANGES, &position).await;
        Ok(())
    }

    /// Creates the slot, reads the snapshot of its beginning, and returns where the changes begin.
    async fn create(&mut self, is_new: bool, drops: bool) -> Result<ChangePosition, Ended> {
        if is_new {
            // After a crash, a slot that exists is known to be ours.
            self.store(&self.at(Stage::Intent, Lsn::ZERO)).await?;
        }
        let name = self.config.slot.clone();
        if drops {
            let sql = format!("SELECT pg_catalog.pg_drop_replication_slot({})", literal(&name));
            self.queries.rows(&format!("dropping the slot {name}"), &sql).await?;
            tracing::warn!(slot = name.as_str(), "dropped the slot, which did not have the changes any more");
        }
        let exports = self.config.mode == SnapshotMode::Initial;
        let measured = if exports { stored(&mut self.queries, &self.tables).await? } else { Vec::new() };
        let mut replication = Database::connect(&self.config.address, Session::Replication).await?;
        let kind = NewSlot::Lasting { exports, failover: self.config.failover };
        let created = slot::create(&mut replication, &mut self.queries, &name, kind, self.version).await?;
        tracing::info!(slot = name.as_str(), at = %created.consistent, "created a slot");
        let from = self.at(Stage::Changes, created.consistent);
        let Some(snapshot) = created.snapshot.filter(|_| exports) else {
            if self.config.mode == SnapshotMode::Incremental {
                return self.begin_incremental(from).await;
            }
            self.store(&from).await?;
            return Ok(from);
        };
        self.store(&self.at(Stage::Snapshot, created.consistent)).await?;
        let exported = Exported { name: snapshot, at: created.consistent };
        let plan = std::mem::take(&mut self.plan);
        match self.parts.clone() {
            Some(parts) => {
                let plan = plan.next_for(measured, parts.count);
                self.lead(&exported, plan, false, parts, &from).await?;
            }
            None => self.read_snapshot(&exported, plan.next(measured), &from).await?,
        }
        drop(replication);
        Ok(from)
    }

    /// Reads the rest of a snapshot that an earlier run began: first the changes up to a new snapshot, then the rows that
    /// are left. Returns where the changes continue.
    async fn resume_snapshot(&mut self, from: ChangePosition) -> Result<ChangePosition, Ended> {
        if let Some(parts) = self.parts.clone() {
            return self.lead_again(from, parts).await;
        }
        let measured = stored(&mut self.queries, &self.tables).await?;
        let mut replication = Database::connect(&self.config.address, Session::Replication).await?;
        let name = format!("anabranch_{:016x}", fastrand::u64(..));
        let created =
            slot::create(&mut replication, &mut self.queries, &name, NewSlot::Temporary, self.version).await?;
        let Some(snapshot) = created.snapshot else {
            return Err(Fault::fatal(codes::POSTGRES_REFUSED, "the server exported no snapshot").into());
        };
        self.follow(&from, Some(created.consistent)).await?;
        let reached = self.at(Stage::Snapshot, created.consistent);
        self.store(&reached).await?;
        let plan = std::mem::take(&mut self.plan).next(measured);
        let from = self.at(Stage::Changes, created.consistent);
        self.read_snapshot(&Exported { name: snapshot, at: created.consistent }, plan, &from).await?;
        drop(replication);
        Ok(from)
    }

    async fn read_rows_only(&mut self) -> Result<(), Ended> {
        let measured = stored(&mut self.queries, &self.tables).await?;
        let sql = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT pg_catalog.pg_export_snapshot()";
        let snapshot = self.queries.value("exporting a snapshot", sql).await?.unwrap_or_default();
        let at = self.queries.value("reading the end of the log", &format!("SELECT {HERE}")).await?;
        let at = at.and_then(|text| text.parse().ok()).unwrap_or_default();
        self.store(&self.at(Stage::Snapshot, at)).await?;
        let plan = std::mem::take(&mut self.plan).next(measured);
        self.read_snapshot(&Exported { name: snapshot, at }, plan, &self.at(Stage::Complete, at)).await?;
        self.events.send(Read::End).await
    }

    /// Reads a snapshot, and stores `after` when all rows are delivered.
    async fn read_snapshot(&mut self, exported: &Exported, plan: Plan, after: &ChangePosition) -> Result<(), Ended> {
        for table in self.tables.clone() {
            let columns = publication::sent(self.publication.as_ref(), &table);
            // A run that ended early may have seen others.
            drop(self.check_columns(&table, &columns).await?);
        }
        let began = Instant::now();
        let snapshot = Snapshot {
            address: &self.config.address,
            parallel: self.config.parallel,
            rows: self.config.fetch.clamp(1, ROWS),
            tables: &self.tables,
            publication: self.publication.as_ref(),
            schemas: self.schemas.as_deref(),
            events: &self.events,
            acknowledged: &self.acknowledged,
            until: self.config.snapshot_time.filter(|_| self.publication.is_some()).map(|time| began + time),
        };
        let left = snapshot.read(exported, plan).await?;
        if !left.is_empty() {
            let titles = left.iter().map(Table::title).collect::<Vec<_>>().join(", ");
            tracing::info!(
                slot = self.config.slot.as_str(),
                tables = titles,
                "the snapshot takes longer than maxSnapshotTime: the rows of these tables are read beside the changes"
            );
            let left = backfill::measured(&mut self.queries, &left).await?;
            self.backfills.add(left).await?;
        }
        tracing::info!(slot = self.config.slot.as_str(), seconds = began.elapsed().as_secs(), "read the snapshot");
        self.store(after).await?;
        self.events.send(Read::Finished(PLAN)).await
    }

    /// Reads the changes from a position on: until the source is closed, or all transactions that were committed before
    /// `limit` are read.
    async fn follow(&mut self, from: &ChangePosition, limit: Option<Lsn>) -> Result<(), Ended> {
        let end = self.queries.value("reading the end of the log", &format!("SELECT {HERE}")).await?;
        let end: Lsn = end.and_then(|text| text.parse().ok()).unwrap_or_default();
        self.acknowledged.note_server_end(end);
        self.acknowledged.note_read_end(from.end);
        let replication = Database::connect(&self.config.address, Session::Replication).await?;
        let (slot, publication) = (&self.config.slot, &self.config.publication);
        let mut stream = Stream::start(replication, slot, publication, from.end, &self.acknowledged).await?;
        self.acknowledged.streaming.send_replace(true);
        let template =
            ChangePosition { stage: if limit.is_some() { Stage::Snapshot } else { Stage::Changes }, ..from.clone() };
        let mut follower = Follower {
            changes: Changes::new(&template, limit, self.config.on_truncate),
            records: Vec::new(),
            bytes: 0,
            caught_up_at: end,
            reports_end: limit.is_none(),
            is_caught_up: false,
            filling: Filling::new(&self.config, self.publication.clone(), self.schemas.clone()),
        };
        let followed = self.pass_on(&mut stream, &mut follower).await;
        if limit.is_none() && matches!(followed, Err(Ended::Stopped)) {
            // The task of the socket reports the last acknowledgements.
            drop(stream.ended().await);
        }
        self.acknowledged.streaming.send_replace(false);
        followed
    }

    async fn pass_on(&mut self, stream: &mut Stream, follower: &mut Follower) -> Result<(), Ended> {
        let mut ticks = interval(PROGRESS);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if follower.reports_end {
                self.fill(follower).await?;
                self.report_end(stream, follower).await?;
            }
            let chunk = tokio::select! {
                biased;
                looked = follower.filling.looked() => {
                    self.take_look(looked, follower).await?;
                    continue;
                }
                chunk = stream.chunks.recv(), if !follower.changes.waits_for_chunk() => chunk,
                _ = ticks.tick() => {
                    self.move_on(follower).await?;
                    continue;
                }
                () = self.backfills.added(), if follower.reports_end => continue,
                () = self.events.0.closed() => return Err(Ended::Stopped),
            };
            let Some(chunk) = chunk else { return Err(self.broken(stream.ended().await).into()) };
            let decoded = self.decode(chunk, follower).await;
            if !matches!(decoded, Ok(Taken::More)) {
                // What is complete is delivered before a fault, so that a run after it begins there.
                self.send(follower).await?;
                return decoded.map(drop);
            }
            if follower.records.len() >= ROWS || follower.bytes >= BYTES || stream.is_drained() {
                self.send(follower).await?;
            }
        }
    }

    /// Says once that everything is read that existed when the stream began, and all rows beside it.
    async fn report_end(&self, stream: &Stream, follower: &mut Follower) -> Result<(), Ended> {
        let is_at_end = stream.is_drained()
            && follower.changes.is_between()
            && follower.changes.end() >= follower.caught_up_at
            && !self.backfills.is_pending();
        if !is_at_end {
            return Ok(());
        }
        follower.caught_up_at = Lsn::ZERO;
        if !std::mem::replace(&mut follower.is_caught_up, true) {
            self.move_on(follower).await?;
            self.events.send(Read::CaughtUp).await?;
        }
        Ok(())
    }

    /// Decodes a piece of the stream.
    async fn decode(&mut self, chunk: Bytes, follower: &mut Follower) -> Result<Taken, Ended> {
        for part in parts(chunk) {
            let taken = match part.map_err(|error| self.broken(error))? {
                Part::Sent(place) => follower.changes.heard(place),
                Part::End => return Err(Fault::transient(codes::CONNECTION_LOST, "the server ended the stream").into()),
                Part::Change(body) => {
                    follower.bytes += body.len();
                    let change = decode(body).map_err(|error| {
                        let text = format!("reading the slot {}: {error}", self.config.slot);
                        Fault::fatal(codes::STREAM_UNSUPPORTED, text)
                    })?;
                    follower.changes.take(change, &mut follower.records)?
                }
            };
            match taken {
                Taken::More => {}
                Taken::Relation(relation) if follower.changes.knows(&relation) => {}
                Taken::Relation(relation) => self.install(relation, &mut follower.changes).await?,
                Taken::Reached => return Ok(Taken::Reached),
            }
            if follower.records.len() >= ROWS || follower.bytes >= BYTES {
                self.send(follower).await?;
            }
        }
        Ok(Taken::More)
    }

    /// Returns the fault of a stream that ended.
    fn broken(&self, error: WireError) -> Fault {
        match error.state() {
            // The only object that the server looks up while it sends changes.
            Some("42704") => no_publication(&self.config.publication, &self.tables),
            _ => self.queries.fault(&format!("reading the slot {}", self.config.slot), error),
        }
    }

    /// Passes on the records that are complete.
    pub(super) async fn send(&self, follower: &mut Follower) -> Result<(), Ended> {
        follower.bytes = 0;
        if let Some((table, keys)) = follower.changes.take_again() {
            // The server does not send the change again once it is stored, so the keys are stored first.
            self.backfills.read_again(&table, keys).await?;
        }
        self.acknowledged.note_read_end(follower.changes.end());
        if follower.records.is_empty() {
            return Ok(());
        }
        follower.is_caught_up = false;
        let records = std::mem::take(&mut follower.records);
        let failed = follower.changes.take_failed();
        self.pass_records(CHANGES, records, failed).await
    }

    /// Passes on records of a lane, in their order. Those at the places in `failed` are not delivered.
    pub(super) async fn pass_records(
        &self,
        partition: Partition,
        mut records: Vec<Record>,
        failed: Vec<(usize, Fault)>,
    ) -> Result<(), Ended> {
        let mut passed = 0;
        for (place, fault) in failed {
            let mut rest = records.split_off(place - passed);
            if !records.is_empty() {
                self.events.send(Read::Rows { partition: partition.clone(), records }).await?;
            }
            records = rest.split_off(1);
            passed = place + 1;
            for record in rest {
                let (partition, record) = (partition.clone(), Box::new(record));
                self.events.send(Read::Failed { partition, record, fault: fault.clone() }).await?;
            }
        }
        if records.is_empty() {
            return Ok(());
        }
        self.events.send(Read::Rows { partition, records }).await
    }

    /// Passes on the place up to which there is nothing to read.
    pub(super) async fn move_on(&self, follower: &mut Follower) -> Result<(), Ended> {
        self.acknowledged.note_read_end(follower.changes.end());
        match follower.changes.progress() {
            Some(position) => self.events.send(Read::Progress(CHANGES, position)).await,
            None => Ok(()),
        }
    }

    /// Looks up a table of the stream.
    async fn install(&mut self, relation: Relation, changes: &mut Changes) -> Result<(), Ended> {
        // Changes of a partition may arrive under its own name.
        let is_known = |oid: u32, tables: &[Table]| tables.iter().any(|table| table.oid == oid);
        let mut oid = relation.id;
        if !is_known(oid, &self.tables) {
            oid = tables::root_of(&mut self.queries, oid).await?;
        }
        if !is_known(oid, &self.tables) {
            changes.install(relation, Seen::Ignored);
            return Ok(());
        }
        // A table that was dropped has changes before that.
        if let Some(table) = tables::by_oid(&mut self.queries, oid).await?
            && let Some(known) = self.tables.iter_mut().find(|known| known.oid == oid)
        {
            *known = table;
        }
        let Some(table) = self.tables.iter().find(|table| table.oid == oid).cloned() else { return Ok(()) };
        let columns: Vec<SentColumn> = relation
            .columns
            .iter()
            .map(|column| SentColumn {
                name: column.name.as_str().into(),
                type_id: column.type_id,
                identifies: column.identifies,
            })
            .collect();
        let oids: Vec<u32> = columns.iter().map(|column| column.type_id).collect();
        let types = tables::types(&mut self.queries, &oids).await?;
        let mut layout = Layout::new(&table, &columns, &types);
        let fault = self.check_columns(&table, &columns).await?;
        if let Some(known) = changes.layout(relation.id)
            && !layout.has_fields_of(known)
        {
            tracing::info!(table = table.title(), "the columns of a table changed");
        }
        if let Some(schemas) = &self.schemas {
            layout.register(&table, schemas).await?;
        }
        let id = relation.id;
        changes.install(relation, Seen::Read(Box::new(layout)));
        if let Some(fault) = fault {
            changes.fail_rows_of(id, fault);
        }
        Ok(())
    }
}

/// The state of a stream that is read.
pub(super) struct Follower {
    pub(super) changes: Changes,
    /// Records that are complete and not passed on.
    records: Vec<Record>,
    /// Size of what was decoded since records were passed on.
    bytes: usize,
    /// The end of the log when the stream began.
    caught_up_at: Lsn,
    /// True if nothing follows the stream.
    reports_end: bool,
    /// True if the engine knows that nothing is left.
    is_caught_up: bool,
    /// The rows that are read beside it.
    pub(super) filling: Filling,
}
