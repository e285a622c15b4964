//! Writes batches of records, each in one transaction.

mod encoded;
mod follow;
mod known;
mod make;
mod probe;
mod rejected;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use anabranch_plugin::destination::{Delivered, Verdicts, Write, Writer};
use anabranch_plugin::host::Host;
use anabranch_record::Record;
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::mark::{LaneId, Mark};
use anabranch_record::phrase::counted;
use anabranch_record::text::Str;
use async_trait::async_trait;

use self::encoded::EncodedBatch;
use self::known::KnownTables;
use self::rejected::RejectedRows;
use crate::batch::{StatementRows, plan};
use crate::codes;
use crate::fault::{self, Failure};
use crate::marks::{Fence, TransactionWork, Work};
use crate::name::TableName;
use crate::row::{RowAction, row_of};
use crate::session::{COPY_FROM, Session};
use crate::settings::{Settings, TableSelector};
use crate::table::{EncodeError, MissingPart, RowFault, Table};

/// Rows that cannot be written, by index in the call.
type RefusedRows = Vec<(usize, Fault)>;

/// Writes to the tables of one database over one connection.
pub(crate) struct TableWriter {
    settings: Arc<Settings>,
    host: Host,
    /// The connection; `None` during a call, so that a call that is dropped closes its connection.
    session: Option<Session>,
    /// The fence whose transactions also store marks.
    fence: Option<Fence>,
    /// The fence of a writer without marks that has rivals.
    guard: Option<Fence>,
    known: KnownTables,
    batch: EncodedBatch,
    /// Tables that could not be created for all records of this call at once.
    narrow: HashSet<Str>,
    /// Reasons why rows of this call were rejected.
    rejected: RejectedRows,
    /// Number of rows from which steps are copied.
    copy_from: usize,
}

impl TableWriter {
    /// Connects, checks the settings against the database and takes over the marks.
    pub(crate) async fn open(settings: Arc<Settings>, host: &Host) -> Result<TableWriter, Fault> {
        let session = connect(&settings, host, COPY_FROM).await?;
        let mut writer = TableWriter {
            settings: settings.clone(),
            host: host.clone(),
            session: None,
            fence: None,
            guard: None,
            known: KnownTables::default(),
            batch: EncodedBatch::default(),
            narrow: HashSet::new(),
            rejected: RejectedRows::default(),
            copy_from: COPY_FROM,
        };
        // A part that is missing at the first start is a mistake in the pipeline. Later it was removed and may come
        // back.
        let missing = |fault: &Fault| {
            let class = if settings.history.was_opened() { FaultClass::Transient } else { FaultClass::Fatal };
            Fault::new(class, fault.code(), fault.message())
        };
        if let TableSelector::Fixed(text) = &settings.table
            && !settings.create_tables
        {
            let found = writer.known.look_up(&session, text).await.map_err(|failure| match failure {
                Failure::Denied(fault) => missing(&fault),
                other => other.into_fault(),
            })?;
            match found {
                Ok(_) => {}
                Err(row_fault) => return Err(missing(&row_fault.fault)),
            }
        }
        if settings.exactly_once || host.shared.is_some() {
            let fence = Fence::raise(session.client(), host, settings.marks_schema.as_deref()).await;
            let fence = fence.map_err(|failure| match failure {
                Failure::Row(fault) | Failure::Stale(fault) => Fault::fatal(fault.code(), fault.message()),
                Failure::Denied(fault) => missing(&fault),
                other => other.into_fault(),
            })?;
            match settings.exactly_once {
                true => writer.fence = Some(fence),
                false => writer.guard = Some(fence),
            }
        }
        settings.history.note_opened();
        writer.session = Some(session);
        Ok(writer)
    }

    async fn connect(&self) -> Result<Session, Fault> {
        connect(&self.settings, &self.host, self.copy_from).await
    }

    async fn connected(&mut self) -> Result<Session, Fault> {
        match self.session.take().filter(|session| !session.client().is_closed()) {
            Some(session) => Ok(session),
            None => {
                self.known = KnownTables::default();
                self.connect().await
            }
        }
    }

    /// Encodes and writes records. If the known layouts turn out to be wrong, reads them again.
    async fn deliver(
        &mut self,
        session: &mut Session,
        records: &[Record],
        marks: &[(LaneId, Mark)],
    ) -> Result<Verdicts, Failure> {
        let first = self.deliver_once(session, records, marks, true).await;
        let Err(Failure::Stale(_)) = first else { return first };
        self.known = KnownTables::default();
        *session = self.connect().await.map_err(Failure::Lost)?;
        match self.deliver_once(session, records, marks, false).await {
            Err(Failure::Stale(fault)) => {
                Err(Failure::Retry(Fault::transient(codes::TRANSACTION_CONFLICT, fault.message())))
            }
            other => other,
        }
    }

    async fn deliver_once(
        &mut self,
        session: &mut Session,
        records: &[Record],
        marks: &[(LaneId, Mark)],
        fresh: bool,
    ) -> Result<Verdicts, Failure> {
        let refused = self.encode(session, records).await?;
        // The records may not fit an outdated layout.
        if fresh && !refused.is_empty() && !self.is_current(session).await? {
            return Err(changed());
        }
        if let Some(fault) = self.rejected.fault(records.len()) {
            return Err(Failure::Retry(fault));
        }
        if self.fence.is_none() || refused.is_empty() {
            match self.attempt(session, records, marks).await {
                Ok(()) => return Ok(verdicts(records.len(), refused)),
                Err(stale @ Failure::Stale(_)) if fresh => return Err(stale),
                Err(Failure::Row(_)) if fresh && !self.is_current(session).await? => return Err(changed()),
                Err(Failure::Row(_) | Failure::Stale(_)) => {}
                Err(other) => return Err(other),
            }
        }
        self.probe(session, records, marks, refused).await
    }

    /// Encodes the records of a call; returns those that cannot be encoded.
    async fn encode(&mut self, session: &mut Session, records: &[Record]) -> Result<RefusedRows, Failure> {
        self.known.tidy();
        self.batch.clear();
        self.narrow.clear();
        self.rejected = RejectedRows::default();
        let mut refused = RefusedRows::new();
        let mut looked_up: HashSet<Str> = HashSet::new();
        let mut missing: HashMap<Str, RowFault> = HashMap::new();
        let mut rendered = String::new();
        let mut last: Option<(Str, usize)> = None;
        let mut last_shape = 0;
        for (index, record) in records.iter().enumerate() {
            let name = match self.settings.table.of(record, &mut rendered) {
                Ok(name) => name,
                Err(fault) => {
                    self.rejected.note_other();
                    refused.push((index, fault));
                    continue;
                }
            };
            if let Some(row_fault) = missing.get(name) {
                refused.push((index, self.refuse(&Str::from(name), None, record, row_fault.clone())));
                continue;
            }
            let table = match &last {
                Some((known, table)) if known.as_str() == name => *table,
                _ => {
                    let name = Str::from(name);
                    let table = match self.known.by_name.get(&name) {
                        Some(table) => *table,
                        None => match self.find_or_create(session, &name, &records[index..]).await? {
                            Ok(table) => {
                                looked_up.insert(name.clone());
                                table
                            }
                            Err(row_fault) => {
                                refused.push((index, self.refuse(&name, None, record, row_fault.clone())));
                                // Other reasons concern only this record's fields.
                                if matches!(row_fault.fault.code(), codes::TABLE_MISSING | codes::TABLE_NAME) {
                                    missing.insert(name, row_fault);
                                }
                                continue;
                            }
                        },
                    };
                    last = Some((name, table));
                    table
                }
            };
            let table = match &last {
                Some((name, _)) if self.settings.evolves => {
                    let name = name.clone();
                    let followed = self.follow(session, &name, table, record).await?;
                    last = Some((name, followed));
                    followed
                }
                _ => table,
            };
            match self.batch.push(index, record, &mut self.known.tables, table, &mut last_shape) {
                Ok(()) => continue,
                Err(EncodeError::Final(row_fault)) => {
                    let name = last.as_ref().map(|(name, _)| name.clone()).unwrap_or_default();
                    refused.push((index, self.refuse(&name, Some(table), record, row_fault)));
                }
                Err(EncodeError::Unknown(row_fault)) => {
                    let name = last.take().map(|(name, _)| name).unwrap_or_default();
                    if !looked_up.insert(name.clone()) && !self.settings.add_columns {
                        refused.push((index, self.refuse(&name, Some(table), record, row_fault)));
                        last = Some((name, table));
                        continue;
                    }
                    // The column may have been added meanwhile, or this call must add it.
                    let mut table = None;
                    let again = match self.look_up_again(session, &name, &records[index..]).await? {
                        Ok((found, why)) => {
                            table = Some(found);
                            last = Some((name.clone(), found));
                            let pushed = self.batch.push(index, record, &mut self.known.tables, found, &mut last_shape);
                            match (pushed, why) {
                                (Err(EncodeError::Unknown(_)), Some(why)) => Err(EncodeError::Final(why.into())),
                                (pushed, _) => pushed,
                            }
                        }
                        Err(row_fault) => Err(EncodeError::Final(row_fault)),
                    };
                    if let Err(EncodeError::Final(row_fault) | EncodeError::Unknown(row_fault)) = again {
                        refused.push((index, self.refuse(&name, table, record, row_fault)));
                    }
                }
            }
        }
        Ok(refused)
    }

    /// Records the columns with which the rows of this call were written. O(rows).
    fn note_written(&mut self) {
        for row in &self.batch.rows {
            let table = &mut self.known.tables[row.table];
            if !std::mem::replace(&mut table.shape_mut(row.shape).written, true) {
                self.settings.history.note_written(table, table.shape(row.shape));
            }
        }
    }

    /// Returns the fault of a rejected row, and records whether its table is the reason. `table` is the table's index,
    /// if it exists.
    fn refuse(&mut self, name: &Str, table: Option<usize>, record: &Record, mut row_fault: RowFault) -> Fault {
        let lost = row_fault.missing.as_ref().is_some_and(|missing| {
            let fixed = *missing == MissingPart::Table && matches!(self.settings.table, TableSelector::Fixed(_));
            let now = table.map(|table| &self.known.tables[table]);
            fixed || TableName::parse(name).is_ok_and(|name| self.settings.history.had(&name.to_string(), missing, now))
        });
        if let (Some(MissingPart::Column(field)), Some(table)) = (&row_fault.missing, table)
            && !self.settings.add_columns
            && is_addable(field, &self.known.tables[table], record)
        {
            let text = format!("{}; `addColumns: true` adds a column for such a field", row_fault.fault.message());
            row_fault.fault = Fault::new(row_fault.fault.class(), row_fault.fault.code(), text);
        }
        self.rejected.note(name, &row_fault, lost);
        row_fault.fault
    }

    /// Returns `true` if the tables of this call still have their known layouts.
    async fn is_current(&self, session: &mut Session) -> Result<bool, Failure> {
        let names = self.batch.names(&self.known.tables);
        Ok(names.is_empty() || self.batch.holds(&self.known.tables, &session.versions(&names).await?))
    }

    /// Writes all rows in one transaction, or none.
    async fn attempt(
        &mut self,
        session: &mut Session,
        records: &[Record],
        marks: &[(LaneId, Mark)],
    ) -> Result<(), Failure> {
        let (batch, bytes) = (&self.batch, &self.batch.bytes);
        let tables = &self.known.tables;
        let steps = plan(&batch.rows, tables, bytes);
        if steps.is_empty() && self.fence.is_none() {
            return Ok(());
        }
        if let Some(fault) = session.stage(&steps, tables).await? {
            self.copy_from = usize::MAX;
            let (pipeline, connector) = (&self.host.pipeline, &self.host.node);
            tracing::warn!(
                %pipeline, %connector,
                "cannot create a temporary table, so large batches take longer: {fault}"
            );
        }
        let names = batch.names(tables);
        if let ([step], None, None) = (steps.as_slice(), &self.fence, &self.guard)
            && session.is_single(step, tables)
        {
            let done = match session.begin_single(step, tables, bytes, &names).await? {
                Ok((wrote, versions)) if batch.holds(tables, &versions) => {
                    self.note_missing(step, wrote);
                    Ok(())
                }
                Ok(_) => Err(changed()),
                Err(failure) => Err(failure),
            };
            return self.end(session, Work::Write(records, marks), done, true).await;
        }
        session.begin().await?;
        let mut entered = TransactionWork::Write;
        let mut wrote = Vec::new();
        let done: Result<(), Failure> = async {
            entered = enter(self.guard.as_ref(), self.fence.as_mut(), session, Work::Write(records, marks)).await?;
            if entered == TransactionWork::Write {
                for step in &steps {
                    wrote.push(session.run(step, tables, bytes).await?);
                }
                // The statements hold locks that prevent changes of the tables until the end of the transaction.
                if !steps.is_empty() && !batch.holds(tables, &session.versions(&names).await?) {
                    return Err(changed());
                }
            }
            Ok(())
        }
        .await;
        steps.iter().zip(wrote).for_each(|(step, wrote)| self.note_missing(step, wrote));
        self.end(session, Work::Write(records, marks), done, entered == TransactionWork::Write).await
    }

    /// Logs updates of rows that do not exist and could not be inserted, because their records are partial. If a source
    /// delivers a change again, the row may have been deleted by a later one.
    fn note_missing(&self, step: &StatementRows, wrote: u64) {
        let table = &self.known.tables[step.table];
        let missing = step.rows.len().saturating_sub(usize::try_from(wrote).unwrap_or(usize::MAX));
        if step.action == RowAction::Update && table.shape(step.shape).is_partial && missing > 0 {
            tracing::warn!(
                pipeline = %self.host.pipeline, connector = %self.host.node, table = %table.name,
                "{} found no row: none is inserted, because the records lack columns that they do not change",
                counted(missing, "update")
            );
        }
    }

    /// Removes the marks of lanes in a transaction of its own. Nothing without marks.
    async fn remove_marks(&mut self, session: &mut Session, lanes: &[LaneId]) -> Result<(), Failure> {
        let Some(fence) = &mut self.fence else { return Ok(()) };
        session.begin().await?;
        let entered = fence.enter(session.client(), Work::Forget(lanes)).await;
        let is_new = matches!(entered, Ok(TransactionWork::Write));
        self.end(session, Work::Forget(lanes), entered.map(drop), is_new).await
    }

    /// Ends the open transaction: commits it if everything succeeded and is to be kept.
    async fn end(
        &mut self,
        session: &mut Session,
        work: Work<'_>,
        done: Result<(), Failure>,
        keep: bool,
    ) -> Result<(), Failure> {
        match done {
            Ok(()) if keep => {
                if let Some(fence) = &mut self.fence {
                    fence.begin_commit(work);
                }
                let committed = session.execute("COMMIT").await;
                if let (Some(fence), false) = (&mut self.fence, matches!(committed, Err(Failure::Lost(_)))) {
                    fence.end_commit(committed.is_ok());
                }
                if committed.is_ok() && matches!(work, Work::Write(..)) {
                    self.note_written();
                }
                committed
            }
            Ok(()) => session.execute("ROLLBACK").await,
            Err(lost @ Failure::Lost(_)) => Err(lost),
            Err(failure) => {
                session.execute("ROLLBACK").await?;
                Err(failure)
            }
        }
    }
}

#[async_trait]
impl Writer for TableWriter {
    async fn marks(&mut self) -> Result<Vec<(LaneId, Mark)>, Fault> {
        let session = self.connected().await?;
        let marks = match &mut self.fence {
            Some(fence) => fence.marks(session.client()).await.map_err(Failure::into_fault)?,
            None => Vec::new(),
        };
        self.session = Some(session);
        Ok(marks)
    }

    async fn write(&mut self, Write { rows, marks, .. }: Write<'_>) -> Result<Verdicts, Fault> {
        let mut session = self.connected().await?;
        let verdicts = self.deliver(&mut session, rows, marks).await.map_err(Failure::into_fault)?;
        self.session = Some(session);
        Ok(verdicts)
    }

    async fn forget(&mut self, lanes: &[LaneId]) -> Result<bool, Fault> {
        let mut session = self.connected().await?;
        self.remove_marks(&mut session, lanes).await.map_err(Failure::into_fault)?;
        self.session = Some(session);
        Ok(self.fence.is_some())
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    async fn close(&mut self) -> Result<(), Fault> {
        self.session = None;
        Ok(())
    }
}

/// Makes the server release the locks of a node that is paused between two statements: the next one waits for its fence, and
/// is to have it within ten seconds.
const RELEASE: &str = "SET idle_in_transaction_session_timeout = '4s'";

/// Connects for the writes of a run.
async fn connect(settings: &Settings, host: &Host, copy_from: usize) -> Result<Session, Fault> {
    let was_opened = settings.history.was_opened();
    let client = settings.address.connect(was_opened).await?;
    if host.shared.is_some() {
        let place = settings.address.place();
        client.batch_execute(RELEASE).await.map_err(|error| fault::connect(&error, &place, was_opened))?;
    }
    Ok(Session::new(client, copy_from))
}

/// Begins the work of an open transaction: passes the fences. After a later run of the unit has opened, an earlier one
/// writes nothing.
async fn enter(
    guard: Option<&Fence>,
    fence: Option<&mut Fence>,
    session: &Session,
    work: Work<'_>,
) -> Result<TransactionWork, Failure> {
    if let Some(guard) = guard {
        guard.hold(session.client()).await?;
    }
    match fence {
        Some(fence) => fence.enter(session.client(), work).await,
        None => Ok(TransactionWork::Write),
    }
}

/// Returns `true` if a field without a column may be a new one. It must not be a misspelt column, nor a field of the
/// key, whose columns need a unique index.
fn is_addable(field: &Str, table: &Table, record: &Record) -> bool {
    let is_of_key = row_of(record).is_ok_and(|row| row.key.contains_key(field));
    !is_of_key && table.near(field).is_none()
}

fn changed() -> Failure {
    Failure::Stale(Fault::record(codes::ROW_REJECTED, "the table was changed while rows were written to it"))
}

fn verdicts(rows: usize, refused: RefusedRows) -> Verdicts {
    if refused.is_empty() {
        return Verdicts::All(Delivered::Durable);
    }
    let mut each: Vec<Result<Delivered, Fault>> = (0..rows).map(|_| Ok(Delivered::Durable)).collect();
    for (row, fault) in refused {
        each[row] = Err(fault);
    }
    Verdicts::Each(each)
}

#[cfg(test)]
mod tests;
