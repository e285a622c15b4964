//! The rows that exist before the changes: ranges of tables, read in parallel under one snapshot.

mod plan;
mod worker;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use anabranch_plugin::source::Read;
use anabranch_record::fault::Fault;
use anabranch_record::mark::Partition;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use plan::Item;
pub(super) use plan::{Plan, Share, stored};
use worker::Worker;

use super::acknowledged::Acknowledged;
use super::database::Database;
use super::events::{Ended, Events};
use super::lsn::Lsn;
use super::position::RangePosition;
use super::publication::{self, Publication};
use super::record::{Layout, Origin, Schemas};
use super::tables::{Table, types};
use super::wire::{Session, literal};
use crate::address::Address;
use crate::codes;

/// A snapshot that other connections can read from.
pub(super) struct Exported {
    /// Its name.
    pub(super) name: String,
    /// All transactions that were committed before this place are in it.
    pub(super) at: Lsn,
}

/// What a snapshot reads, and for whom.
pub(super) struct Snapshot<'a> {
    pub(super) address: &'a Arc<Address>,
    /// Number of connections.
    pub(super) parallel: usize,
    /// Maximum number of records that are passed on at once.
    pub(super) rows: usize,
    pub(super) tables: &'a [Table],
    /// What is published of the tables; `None` if nothing but the snapshot is read.
    pub(super) publication: Option<&'a Publication>,
    pub(super) schemas: Option<&'a Schemas>,
    pub(super) events: &'a Events,
    pub(super) acknowledged: &'a Arc<Acknowledged>,
    /// When the ranges that are left are given up, if their tables have keys; `None` = never.
    pub(super) until: Option<Instant>,
}

/// The number of the transaction below which all are visible.
const HORIZON: &str = "SELECT (pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::text::numeric \
     % 4294967296)::text";

/// Ranges that are left, in the order in which they are read.
pub(super) type Queue = Arc<Mutex<VecDeque<Item>>>;

impl Snapshot<'_> {
    /// Reads the ranges of a plan that are left, and returns when they are delivered and stored: the tables with ranges that
    /// were given up. The snapshot exists until this function has imported it. `plan` is the one of the last attempt.
    ///
    /// # Errors
    /// A table was rewritten or dropped meanwhile (transient), or the server cannot answer.
    pub(super) async fn read(&self, exported: &Exported, plan: Plan) -> Result<Vec<Table>, Ended> {
        let holder = self.import(exported).await?;
        Ok(self.read_under(holder, exported, plan).await?.0)
    }

    /// Reads as [`Snapshot::read`] does, with a connection that has imported the snapshot. Returns the plan with the ranges
    /// that are read, too.
    ///
    /// # Errors
    /// Those of [`Snapshot::read`].
    pub(super) async fn read_under(
        &self,
        mut holder: Database,
        exported: &Exported,
        mut plan: Plan,
    ) -> Result<(Vec<Table>, Plan), Ended> {
        self.lock(&mut holder, &plan).await?;
        let horizon = holder.value("reading the snapshot", HORIZON).await?;
        plan.horizon = horizon.and_then(|text| text.parse().ok()).unwrap_or(0);
        let layouts = self.layouts(&mut holder, &plan, exported.at).await?;
        let items = plan.items();
        let mut workers = Vec::with_capacity(self.parallel);
        workers.push(holder);
        while workers.len() < self.parallel.min(items.len()) {
            workers.push(self.import(exported).await?);
        }
        // No record is delivered before the plan is stored.
        let of_plan = plan.own_lane();
        let stored = plan.encode();
        self.events.send(Read::Progress(of_plan.clone(), stored.clone())).await?;
        self.acknowledged.reaches(&of_plan, &stored).await;
        self.acknowledged.set_rows_left(&of_plan, plan.rows_left());

        let queue: Queue = Arc::new(Mutex::new(items.iter().cloned().collect()));
        let mut reading = JoinSet::new();
        for database in workers {
            let worker = Worker {
                database,
                attempt: plan.attempt,
                rows: self.rows,
                layouts: layouts.clone(),
                queue: queue.clone(),
                events: self.events.clone(),
            };
            reading.spawn(worker.run());
        }
        let mut open: BTreeMap<Partition, Item> = items.into_iter().map(|item| (item.lane.clone(), item)).collect();
        let mut left: BTreeSet<u32> = BTreeSet::new();
        let mut until = self.until;
        while !open.is_empty() {
            let complete = tokio::select! {
                Some(ended) = reading.join_next() => {
                    match ended {
                        Ok(outcome) => outcome?,
                        Err(error) => match error.try_into_panic() {
                            Ok(panic) => std::panic::resume_unwind(panic),
                            Err(_) => return Err(Ended::Stopped),
                        },
                    }
                    continue;
                }
                complete = self.acknowledged.when(|| self.complete(&open)) => complete,
                () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => {
                    until = None;
                    for item in self.give_up(&queue, &plan) {
                        left.extend(plan.tables.get(item.table).map(|table| table.root));
                        open.remove(&item.lane);
                    }
                    continue;
                }
            };
            // The lane stays until the plan is stored, so that the range is not read again after a crash.
            for lane in &complete {
                if let Some(item) = open.remove(lane) {
                    plan.note(&item);
                }
            }
            let stored = plan.encode();
            self.events.send(Read::Progress(of_plan.clone(), stored.clone())).await?;
            self.acknowledged.reaches(&of_plan, &stored).await;
            self.acknowledged.set_rows_left(&of_plan, plan.rows_left());
            for lane in complete {
                self.acknowledged.forget(&lane);
                self.events.send(Read::Finished(lane)).await?;
            }
        }
        Ok((self.tables.iter().filter(|table| left.contains(&table.oid)).cloned().collect(), plan))
    }

    /// Removes the ranges that no worker has begun, of tables whose rows can be read beside the changes.
    fn give_up(&self, queue: &Queue, plan: &Plan) -> VecDeque<Item> {
        let has_key = |item: &Item| {
            let root = plan.tables.get(item.table).map(|table| table.root);
            self.tables.iter().any(|table| Some(table.oid) == root && !table.identity_key().is_empty())
        };
        let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
        let (given_up, kept) = std::mem::take(&mut *queue).into_iter().partition(has_key);
        *queue = kept;
        given_up
    }

    /// Returns the lanes that are read, delivered and stored; `None` if there are none.
    fn complete(&self, open: &BTreeMap<Partition, Item>) -> Option<Vec<Partition>> {
        let is_complete = |lane: &&Partition| {
            let position = self.acknowledged.of(lane).and_then(|position| RangePosition::decode(&position).ok());
            position.is_some_and(|position| position.complete)
        };
        let complete: Vec<Partition> = open.keys().filter(is_complete).cloned().collect();
        (!complete.is_empty()).then_some(complete)
    }

    /// Connects, and reads from the snapshot.
    ///
    /// # Errors
    /// The snapshot does not exist any more (transient), or the server cannot answer.
    pub(super) async fn import(&self, exported: &Exported) -> Result<Database, Fault> {
        self.find(exported).await?.ok_or_else(|| {
            let text = "the snapshot does not exist any more, because the connection that exported it was lost";
            Fault::transient(codes::SNAPSHOT_AGAIN, text)
        })
    }

    /// Connects, and reads from the snapshot. `None` if it does not exist any more: it ends with the connection that exported
    /// it, for example if the server crashes.
    ///
    /// # Errors
    /// The server cannot answer.
    pub(super) async fn find(&self, exported: &Exported) -> Result<Option<Database>, Fault> {
        let mut database = Database::connect(self.address, Session::Queries).await?;
        let sql = format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET TRANSACTION SNAPSHOT {}",
            literal(&exported.name)
        );
        match database.wire.query(&sql).await {
            Ok(_) => Ok(Some(database)),
            Err(error) if error.state() == Some("42704") => Ok(None),
            Err(error) => Err(database.fault("reading the snapshot", error)),
        }
    }

    /// Locks the tables against being rewritten or dropped, and checks that this did not happen since they were measured:
    /// their rows would be missing in the snapshot.
    ///
    /// # Errors
    /// It did (transient), or the server cannot answer.
    pub(super) async fn lock(&self, holder: &mut Database, plan: &Plan) -> Result<(), Fault> {
        let rewritten = |title: &str| {
            let text =
                format!("the table {title} was rewritten or dropped while its rows were read; they are read again");
            Fault::transient(codes::SNAPSHOT_TABLE_REWRITTEN, text)
        };
        for table in &plan.tables {
            let what = format!("locking the table {}", table.title);
            let sql = format!("LOCK TABLE ONLY {} IN ACCESS SHARE MODE", table.stored.sql());
            match holder.wire.query(&sql).await {
                Ok(_) => {}
                Err(error) if error.state() == Some("42P01") => return Err(rewritten(&table.title)),
                Err(error) => return Err(holder.fault(&what, error)),
            }
            let sql = format!("SELECT pg_catalog.pg_relation_filenode({})", table.stored.oid);
            if holder.value(&what, &sql).await? != Some(table.stored.file.to_string()) {
                return Err(rewritten(&table.title));
            }
        }
        Ok(())
    }

    /// Returns how to read the rows of each stored table.
    async fn layouts(&self, database: &mut Database, plan: &Plan, at: Lsn) -> Result<Arc<Vec<Reading>>, Fault> {
        let mut layouts = Vec::with_capacity(plan.tables.len());
        for planned in &plan.tables {
            let Some(table) = self.tables.iter().find(|table| table.oid == planned.root) else {
                let text = format!("the table {} is not in the setting tables any more", planned.title);
                return Err(Fault::fatal(codes::SOURCE_TABLE, text));
            };
            let columns = publication::sent(self.publication, table);
            let oids: Vec<u32> = columns.iter().map(|column| column.type_id).collect();
            let mut layout = Layout::new(table, &columns, &types(database, &oids).await?);
            if let Some(schemas) = self.schemas {
                layout.register(table, schemas).await?;
            }
            let list = crate::name::list(columns.iter().map(|column| column.name.as_str()));
            layouts.push(Reading {
                layout,
                columns: list,
                from: planned.stored.sql(),
                filter: self.publication.and_then(|publication| publication.filter(table)).map(ToString::to_string),
                origin: Origin::Snapshot { at, is_resumed: plan.is_resumed },
            });
        }
        Ok(Arc::new(layouts))
    }
}

/// How to read the rows of a stored table.
#[derive(Clone)]
pub(super) struct Reading {
    pub(super) layout: Layout,
    /// The columns in SQL.
    columns: String,
    /// The table in SQL.
    from: String,
    /// The condition of the rows that are published.
    filter: Option<String>,
    pub(super) origin: Origin,
}

impl Reading {
    /// Returns the statement that reads the rows with a condition.
    fn sql(&self, condition: &str) -> String {
        let conditions: Vec<&str> = [Some(condition).filter(|condition| !condition.is_empty()), self.filter.as_deref()]
            .into_iter()
            .flatten()
            .collect();
        let filter = match conditions.is_empty() {
            true => String::new(),
            false => format!(" WHERE ({})", conditions.join(") AND (")),
        };
        format!("COPY (SELECT {} FROM ONLY {}{filter}) TO STDOUT", self.columns, self.from)
    }
}
