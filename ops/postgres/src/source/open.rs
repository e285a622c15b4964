//! Opens a source: checks the server, and decides with which step the run begins.

use std::collections::BTreeMap;
use std::sync::Arc;

use anabranch_plugin::host::Host;
use anabranch_plugin::source::{OpenedSource, Start};
use anabranch_record::fault::Fault;
use anabranch_record::mark::{Mark, Partition};

use super::accepted::Accepted;
use super::backfill::{Backfills, StoredBackfills};
use super::begun::Begun;
use super::config::{Config, Drift, OnGap, Partial, SnapshotMode};
use super::database::Database;
use super::driver::{Driver, Step};
use super::events::Ended;
use super::guard::{Guard, no_publication};
use super::lanes::{FIRST, Lanes, part_of};
use super::lsn::Lsn;
use super::position::{CHANGES, ChangePosition, ForeignPlace, RangePosition, Server, Stage, StoredPosition};
use super::publication::{self, Publication};
use super::requests::Requests;
use super::slot::{self, Slot};
use super::snapshot::Plan;
use super::split::{self, SplitSource};
use super::tables::{self, Table};
use super::wire::Session;
use crate::codes;

/// Oldest version of the server: messages in the stream, and ranges of pages that are found without reading the others.
const OLDEST: u32 = 140_000;

/// Returns the version of the server, such as 170011.
///
/// # Errors
/// The server cannot answer, or is too old.
pub(super) async fn version(database: &mut Database) -> Result<u32, Fault> {
    let text = database.value("reading the version", "SELECT pg_catalog.current_setting('server_version_num')").await?;
    let version = text.and_then(|text| text.parse().ok()).unwrap_or(0);
    if version < OLDEST {
        let text = format!("{}: the source needs PostgreSQL 14 or later, and the server is older", database.place());
        return Err(Fault::fatal(codes::POSTGRES_REFUSED, text));
    }
    Ok(version)
}

/// Checks that the log has what logical replication needs.
///
/// # Errors
/// It does not.
pub(super) async fn check_level(database: &mut Database) -> Result<(), Fault> {
    let level = database.value("reading wal_level", "SELECT pg_catalog.current_setting('wal_level')").await?;
    match level.as_deref() {
        Some("logical") => Ok(()),
        level => {
            let text = format!(
                "{}: wal_level is {}; run `ALTER SYSTEM SET wal_level = logical` and restart the server",
                database.place(),
                level.unwrap_or("unknown")
            );
            Err(Fault::fatal(codes::NOT_LOGICAL, text))
        }
    }
}

/// What the server has for a source.
struct Found {
    server: Server,
    /// The end of its log.
    end: Lsn,
    slot: Option<Slot>,
}

/// Opens a source.
///
/// # Errors
/// The server does not have what the source needs, or the stored position cannot be continued.
pub(super) async fn open(
    config: &Arc<Config>,
    resume: &BTreeMap<Partition, Mark>,
    host: &Host,
) -> Result<OpenedSource, Fault> {
    let split = split::decide(config, resume, host).await?;
    if split.as_ref().is_some_and(|split| !split.has_changes) {
        return Ok(open_parts_only(config, resume, host, split));
    }
    let lanes = if split.is_some() { Lanes::Split } else { Lanes::Whole };
    let mut queries = Database::connect(&config.address, Session::Queries).await?;
    let version = version(&mut queries).await?;
    let tables = tables::select(&mut queries, &config.selectors).await?;
    let mark = resume.get(&CHANGES);
    let stored = mark.filter(|mark| !mark.position.0.is_empty()).map(|mark| StoredPosition::decode(&mark.position));
    let stored = stored.transpose()?;
    let mut opened = Opening { config, queries: &mut queries, version, tables: &tables, is_reset: mark.is_some() };
    let (server, publication, step, gap) = match config.mode {
        SnapshotMode::Only => opened.only(stored).await?,
        SnapshotMode::Initial | SnapshotMode::Incremental | SnapshotMode::Never => opened.changes(stored).await?,
    };
    let reads_rows = matches!(step, Step::Create { .. } | Step::Snapshot(_) | Step::Rows);
    let (plan, mut finished) = planned(resume, lanes, reads_rows)?;
    let backfills = backfills(resume, lanes)?;
    let accepted = accepted(config, resume, lanes)?;
    if accepted.is_none() && resume.contains_key(&lanes.columns()) {
        finished.push(lanes.columns());
    }
    if backfills.tables.is_empty() && resume.contains_key(&lanes.backfill()) {
        finished.push(lanes.backfill());
    }
    let from = match &step {
        Step::Snapshot(from) | Step::Changes(from) | Step::Incremental(from) => from.end,
        Step::Create { .. } | Step::Rows | Step::Nothing => Lsn::ZERO,
    };
    let mut begun = Begun::new(config, host, from);
    if config.mode != SnapshotMode::Only {
        let acknowledged = begun.acknowledged.clone();
        let guard = Guard { config: config.clone(), version, tables: tables.clone(), acknowledged };
        // A source that is closed does not need its fault.
        begun.spawn(async move { Err(Ended::Failed(guard.run().await)) });
    }
    let backfills = Arc::new(Backfills::new(backfills, begun.events.clone(), begun.acknowledged.clone(), lanes));
    let requests = (config.mode != SnapshotMode::Only).then(|| Requests {
        config: config.clone(),
        tables: tables.clone(),
        backfills: backfills.clone(),
    });
    let parts = split.map(|split| begun.read_parts(config, host, resume, split));
    let driver = Driver {
        config: config.clone(),
        server,
        version,
        queries,
        tables,
        publication,
        schemas: begun.schemas.clone(),
        backfills,
        parts,
        lanes,
        accepted,
        events: begun.events.clone(),
        acknowledged: begun.acknowledged.clone(),
        step,
        plan,
        finished,
    };
    begun.spawn(driver.run());
    let opened = begun.opened(requests);
    Ok(if gap { opened.start(CHANGES, Start::elsewhere()) } else { opened })
}

/// Opens a source whose changes another run reads.
fn open_parts_only(
    config: &Arc<Config>,
    resume: &BTreeMap<Partition, Mark>,
    host: &Host,
    split: Option<SplitSource>,
) -> OpenedSource {
    let mut begun = Begun::new(config, host, Lsn::ZERO);
    if let Some(split) = split {
        begun.read_parts(config, host, resume, split);
    }
    // The slots of a run may have no part at all: it waits until it is closed.
    let events = begun.events.clone();
    begun.spawn(async move {
        events.0.closed().await;
        Ok(())
    });
    begun.opened(None)
}

/// Returns the tables whose rows an earlier run was to read beside the changes.
fn backfills(resume: &BTreeMap<Partition, Mark>, lanes: Lanes) -> Result<StoredBackfills, Fault> {
    match resume.get(&lanes.backfill()).filter(|mark| !mark.position.0.is_empty()) {
        Some(mark) => StoredBackfills::decode(&mark.position),
        None if resume.is_empty() => Ok(StoredBackfills::after(0)),
        // Lanes of earlier runs may have had the same names.
        None => Ok(StoredBackfills::after(Plan::after_others().attempt)),
    }
}

/// Returns the columns that earlier runs accepted; `None` if all are.
fn accepted(config: &Config, resume: &BTreeMap<Partition, Mark>, lanes: Lanes) -> Result<Option<Accepted>, Fault> {
    if config.drift == Drift::Evolve || config.mode == SnapshotMode::Only {
        return Ok(None);
    }
    match resume.get(&lanes.columns()).filter(|mark| !mark.position.0.is_empty()) {
        Some(mark) => Accepted::decode(&mark.position).map(Some),
        None => Ok(Some(Accepted::default())),
    }
}

/// Returns the plan of the snapshot that an earlier run began, and the lanes without further records.
fn planned(
    resume: &BTreeMap<Partition, Mark>,
    lanes: Lanes,
    reads_rows: bool,
) -> Result<(Plan, Vec<Partition>), Fault> {
    let lasting = lanes.lasting();
    let others = resume.keys().filter(|lane| !lasting.contains(lane) && part_of(lane).is_none_or(|part| part == FIRST));
    let mut finished: Vec<Partition> = others.cloned().collect();
    let of_plan = lanes.plan();
    let stored = resume.get(&of_plan).filter(|mark| !mark.position.0.is_empty());
    if !reads_rows {
        finished.extend(resume.contains_key(&of_plan).then_some(of_plan));
        return Ok((Plan::default(), finished));
    }
    let Some(stored) = stored else {
        // Lanes of earlier snapshots may have had the same names.
        let is_first = resume.is_empty() && lanes == Lanes::Whole;
        let plan = if is_first { Plan::default() } else { Plan::after_others() };
        return Ok((plan, finished));
    };
    let mut plan = Plan::decode(&stored.position)?;
    plan.note_lanes(|lane| {
        let position = resume.get(lane).and_then(|mark| RangePosition::decode(&mark.position).ok());
        position.is_some_and(|position| position.complete)
    });
    Ok((plan, finished))
}

/// A source that is being opened.
struct Opening<'a> {
    config: &'a Config,
    queries: &'a mut Database,
    version: u32,
    tables: &'a [Table],
    /// True if there is a mark of the changes, even without a position.
    is_reset: bool,
}

/// Server, publication, first step, and whether changes are missing.
type Decided = (Server, Option<Publication>, Step, bool);

impl Opening<'_> {
    /// Decides about a source that reads no changes.
    async fn only(&mut self, stored: Option<StoredPosition>) -> Result<Decided, Fault> {
        let sql = "SELECT system_identifier::text FROM pg_catalog.pg_control_system()";
        let system = self.queries.value("identifying the server", sql).await?.unwrap_or_default();
        let server = Server { system: system.into(), timeline: 0 };
        let step = match stored {
            Some(StoredPosition::Ours(position)) if position.stage == Stage::Complete => Step::Nothing,
            _ => Step::Rows,
        };
        Ok((server, None, step, false))
    }

    /// Decides about a source that reads changes.
    async fn changes(&mut self, stored: Option<StoredPosition>) -> Result<Decided, Fault> {
        check_level(self.queries).await?;
        let mut replication = Database::connect(&self.config.address, Session::Replication).await?;
        let (server, end) = slot::identify(&mut replication).await?;
        let slot = slot::find(self.queries, &self.config.slot, self.version).await?;
        let found = Found { server, end, slot };
        let is_new = !matches!(
            &stored,
            Some(
                StoredPosition::Ours(ChangePosition { stage: Stage::Snapshot | Stage::Changes, .. })
                    | StoredPosition::Foreign(ForeignPlace::Changes { .. })
            )
        );
        let publication = self.publication(is_new).await?;
        let (step, gap) = match stored {
            None => (self.begin(&found, self.is_reset || self.config.adopts, true)?, false),
            Some(StoredPosition::Foreign(ForeignPlace::Snapshot)) => (self.begin(&found, true, true)?, false),
            Some(StoredPosition::Ours(position)) if position.stage == Stage::Intent => {
                (self.begin(&found, true, false)?, false)
            }
            // The setting snapshotMode was `only`.
            Some(StoredPosition::Ours(position)) if position.stage == Stage::Complete => {
                (self.begin(&found, self.config.adopts, true)?, false)
            }
            Some(StoredPosition::Ours(position)) => self.go_on(&mut replication, &found, position).await?,
            Some(StoredPosition::Foreign(ForeignPlace::Changes { end, ordinal })) => {
                let at = self.at(&found, Stage::Changes, end);
                let position = ChangePosition { commit: end, ordinal, ..at };
                self.go_on(&mut replication, &found, position).await?
            }
        };
        Ok((found.server, Some(publication), step, gap))
    }

    fn at(&self, found: &Found, stage: Stage, end: Lsn) -> ChangePosition {
        ChangePosition::at(&found.server, &self.config.slot, stage, end)
    }

    /// Returns the publication, which is created if the source is new and there is none.
    async fn publication(&mut self, is_new: bool) -> Result<Publication, Fault> {
        let name = &self.config.publication;
        let allows_parts = self.config.partial == Partial::Accept;
        match publication::find(self.queries, name, self.version).await? {
            Some(found) => {
                found.check(name, self.tables, allows_parts)?;
                return Ok(found);
            }
            None if !is_new => return Err(no_publication(name, self.tables)),
            None => {}
        }
        self.tables.iter().try_for_each(Table::check_identity)?;
        publication::create(self.queries, name, &self.config.slot, self.tables).await?;
        match publication::find(self.queries, name, self.version).await? {
            Some(created) => Ok(created),
            None => Err(no_publication(name, self.tables)),
        }
    }

    /// Decides about a source without a position in the changes. `is_ours` says that a slot of the name belongs to it.
    fn begin(&self, found: &Found, is_ours: bool, is_new: bool) -> Result<Step, Fault> {
        let name = &self.config.slot;
        let Some(slot) = &found.slot else { return Ok(Step::Create { is_new, drops: false }) };
        slot.check_kind(name, self.config.database())?;
        self.check_owner(slot, is_ours)?;
        let from = slot.confirmed.unwrap_or_default();
        match slot.check(name, self.config.database(), from) {
            Ok(()) => Ok(match self.config.mode {
                SnapshotMode::Never => Step::Changes(self.at(found, Stage::Changes, from)),
                SnapshotMode::Incremental => Step::Incremental(self.at(found, Stage::Changes, from)),
                SnapshotMode::Initial | SnapshotMode::Only => Step::Snapshot(self.at(found, Stage::Snapshot, from)),
            }),
            Err(fault) if self.is_gap(&fault) => Ok(Step::Create { is_new, drops: true }),
            Err(fault) => Err(fault),
        }
    }

    /// Checks that a slot is one that this source may read and drop.
    fn check_owner(&self, slot: &Slot, is_ours: bool) -> Result<(), Fault> {
        let name = &self.config.slot;
        if !is_ours {
            let text = format!(
                "the slot {name} exists, and this pipeline did not create it: another program may read it; set another \
                 logrepl.slotName, drop it with `SELECT pg_drop_replication_slot('{name}')`, or set \
                 logrepl.adoptSlot: true to read the changes from {} on",
                slot.confirmed.unwrap_or_default()
            );
            return Err(Fault::fatal(codes::SLOT_FOREIGN, text));
        }
        Ok(())
    }

    /// Decides about a source that continues after a position.
    async fn go_on(
        &self,
        replication: &mut Database,
        found: &Found,
        position: ChangePosition,
    ) -> Result<(Step, bool), Fault> {
        let name = &self.config.slot;
        if position.slot != *name {
            let text = format!(
                "logrepl.slotName is {name}, and the stored position belongs to the slot {}; correct it, or reset the \
                 position",
                position.slot
            );
            return Err(Fault::fatal(codes::POSITION_UNKNOWN, text));
        }
        let stored = Server { system: position.system.clone(), timeline: position.timeline };
        let checked = match slot::check_history(replication, &stored, position.end, &found.server, found.end).await {
            Ok(()) => match &found.slot {
                Some(slot) => slot.check(name, self.config.database(), position.end),
                None => Err(slot::missing(name, position.end)),
            },
            Err(fault) => Err(fault),
        };
        match checked {
            Ok(()) => {
                let position = ChangePosition { timeline: found.server.timeline, ..position };
                match position.stage {
                    Stage::Snapshot if self.config.mode == SnapshotMode::Initial => {
                        Ok((Step::Snapshot(position), false))
                    }
                    Stage::Snapshot if self.config.mode == SnapshotMode::Incremental => {
                        let position = ChangePosition { stage: Stage::Changes, ..position };
                        Ok((Step::Incremental(position), false))
                    }
                    _ => Ok((Step::Changes(position), false)),
                }
            }
            Err(fault) if self.is_gap(&fault) && self.config.mode != SnapshotMode::Never => {
                if let Some(slot) = found.slot.as_ref().filter(|_| stored.system != found.server.system) {
                    self.check_owner(slot, self.config.adopts)?;
                }
                tracing::warn!(%fault, "changes are missing: all rows are read again, and rows that were deleted meanwhile \
                     stay at the destination");
                Ok((Step::Create { is_new: true, drops: found.slot.is_some() }, true))
            }
            Err(fault) => Err(fault),
        }
    }

    fn is_gap(&self, fault: &Fault) -> bool {
        self.config.on_gap == OnGap::Snapshot && [codes::SLOT_GAP, codes::HISTORY_DIFFERS].contains(&fault.code())
    }
}
