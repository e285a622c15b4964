//! Marks that are stored in the transactions of the rows, and the fence between two runs of a pipeline.
//!
//! `anabranch_marks` holds how far each lane was written. `anabranch_writers` has a row per slot of a pipeline and
//! destination, so that runs with other slots of the pipeline do not fence each other. Each run raises `epoch` of its slots
//! when it opens, and every transaction increments their `writes` under the epoch of its run. So the transactions of a slot
//! are serial, and a transaction of an older run with one of the slots finds too few rows and fails. If a run loses its
//! connection during a commit, `writes` shows whether the commit succeeded. If the number of slots changes, the first run
//! with the new number raises all epochs and moves the marks to the slots of their lanes.
//!
//! A server that lost confirmed transactions, for example after a failover or a restore, has an earlier `epoch` or
//! fewer `writes` than the run expects. Then nothing is written, and the run ends. The same applies if only the marks
//! differ from those that the run stored, for example because only their table was restored.

use std::collections::HashMap;

use anabranch_plugin::host::Host;
use anabranch_plugin::state::Slots;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{LaneId, Mark, Partition};
use anabranch_record::{Position, Record};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row};

use crate::codes;
use crate::fault::Failure;

mod distribution;
mod tables;

use distribution::Distribution;
use tables::MarkTables;

/// The lock of a run on the marks of its slots.
pub(crate) struct Fence {
    tables: MarkTables,
    pipeline: String,
    slots: Slots,
    /// The slots as a parameter of statements.
    slot_list: Vec<i64>,
    destination: String,
    epoch: i64,
    /// Sum of `writes` of the slots after the transactions that are certainly committed.
    committed: i64,
    /// Generations and numbers of the marks that are certainly stored, for the known lanes.
    stored: Stored,
    /// True if the stored marks were found to differ, so that nothing may be written.
    moved: bool,
    /// A transaction with an unknown outcome.
    pending: Option<Pending>,
    /// Sum of `writes` of the slots in the open transaction.
    current: i64,
}

struct Pending {
    writes: i64,
    work: PendingWork,
}

enum PendingWork {
    Write { positions: Vec<Position>, marks: Stored },
    Forget(Vec<LaneId>),
}

/// Content of a transaction.
#[derive(Clone, Copy)]
pub(crate) enum Work<'a> {
    /// Rows, and the marks that they complete.
    Write(&'a [Record], &'a [(LaneId, Mark)]),
    /// Removes the marks of lanes.
    Forget(&'a [LaneId]),
}

type Stored = HashMap<LaneId, (u64, u64)>;

fn numbers(marks: &[(LaneId, Mark)]) -> Stored {
    marks.iter().map(|(lane, mark)| (lane.clone(), (mark.generation, mark.seq))).collect()
}

/// Returns the sum of a column of numbers.
fn sum(rows: &[Row], column: usize) -> Result<i64, Error> {
    rows.iter().try_fold(0i64, |sum, row| Ok(sum.saturating_add(row.try_get::<_, i64>(column)?)))
}

/// What is left to do in a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransactionWork {
    /// Write the rows.
    Write,
    /// Nothing: an earlier attempt with an unknown outcome was committed.
    Written,
}

impl Fence {
    /// Takes over from earlier runs: waits for the end of their open transactions. Epochs follow the server's clock, so
    /// that two runs have different ones even if the server lost the first.
    pub(crate) async fn raise(client: &Client, host: &Host, schema: Option<&str>) -> Result<Fence, Failure> {
        let tables = MarkTables::new(schema);
        tables.prepare(client).await?;
        let (pipeline, destination) = (host.pipeline.to_string(), host.node.to_string());
        let slot_list: Vec<i64> = host.slots.iter().map(i64::from).collect();
        client.batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED").await?;
        // Runs that open at the same time see each other's epochs.
        let lock = "SELECT pg_advisory_xact_lock(hashtextextended('anabranch_writers ' || $1 || ' ' || $2, 0))";
        client.execute(lock, &[&pipeline, &destination]).await?;
        let distributed = Distribution { client, tables: &tables, pipeline: &pipeline, destination: &destination };
        distributed.ensure(host.slots).await?;
        let sql = format!(
            "INSERT INTO {0} AS w (pipeline, slot, destination, epoch, writes) \
             SELECT $1, slot, $3, n.epoch, 0 FROM unnest($2::bigint[]) AS slot, (SELECT greatest(coalesce(max(epoch), 0) + 1, \
             (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS epoch FROM {0} \
             WHERE pipeline = $1 AND destination = $3) n \
             ON CONFLICT (pipeline, slot, destination) DO UPDATE SET epoch = EXCLUDED.epoch RETURNING epoch, writes",
            tables.writers
        );
        let rows = client.query(&sql, &[&pipeline, &slot_list, &destination]).await?;
        client.batch_execute("COMMIT").await?;
        let epoch = rows.first().map_or(Ok(0), |row| row.try_get(0))?;
        let committed = sum(&rows, 1)?;
        Ok(Fence {
            tables,
            pipeline,
            slots: host.slots,
            slot_list,
            destination,
            epoch,
            committed,
            stored: Stored::new(),
            moved: false,
            pending: None,
            current: 0,
        })
    }

    /// Converts a failure in the mark tables, which is never the fault of a record.
    fn own(failure: Failure) -> Failure {
        match failure {
            // The next run creates the tables, and then reads the marks again.
            Failure::Stale(fault) if fault.code() == codes::TABLE_MISSING => {
                let text = format!("a table with the stored positions is missing: {}", fault.message());
                Failure::Retry(Fault::transient(codes::MARKS_MOVED, text))
            }
            Failure::Row(fault) | Failure::Stale(fault) => {
                let text = format!("the tables with the stored positions cannot be used: {}", fault.message());
                Failure::Fatal(Fault::fatal(codes::MARKS_DAMAGED, text))
            }
            other => other,
        }
    }

    /// Returns the stored marks. A transaction of a lost connection that may still commit holds a lock on the row of
    /// the fence: this waits for it, and then its outcome is known.
    pub(crate) async fn marks(&mut self, client: &Client) -> Result<Vec<(LaneId, Mark)>, Failure> {
        self.read(client).await.map_err(Fence::own)
    }

    async fn read(&mut self, client: &Client) -> Result<Vec<(LaneId, Mark)>, Failure> {
        // Use two statements under one lock: each sees what was committed before it began.
        client.batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED").await?;
        let sql = format!(
            "SELECT writes FROM {} WHERE pipeline = $1 AND slot = ANY($2) AND destination = $3 AND epoch = $4 \
             ORDER BY slot FOR UPDATE",
            self.tables.writers
        );
        let rows = client.query(&sql, &[&self.pipeline, &self.slot_list, &self.destination, &self.epoch]).await?;
        if rows.len() < self.slot_list.len() {
            return Err(self.epoch_mismatch(client).await?);
        }
        let writes = sum(&rows, 0)?;
        let pending = self.pending.as_ref().map(|pending| pending.writes);
        if writes != self.committed && Some(writes) != pending {
            return Err(self.went_back(writes));
        }
        let sql = format!(
            "SELECT connector, partition, generation, seq, position FROM {} \
             WHERE pipeline = $1 AND slot = ANY($2) AND destination = $3",
            self.tables.marks
        );
        let rows = client.query(&sql, &[&self.pipeline, &self.slot_list, &self.destination]).await?;
        client.batch_execute("COMMIT").await?;
        match self.pending.take() {
            Some(pending) if pending.writes == writes => self.note_committed(pending),
            _ => self.committed = writes,
        }
        let marks: Vec<(LaneId, Mark)> = rows
            .iter()
            .map(|row| {
                let (connector, partition): (&str, &str) = (row.try_get(0)?, row.try_get(1)?);
                let (generation, seq): (i64, i64) = (row.try_get(2)?, row.try_get(3)?);
                let number = |n: i64| {
                    u64::try_from(n).map_err(|_| {
                        let text = format!("{} contains a negative number for {connector}", self.tables.marks);
                        Failure::Fatal(Fault::fatal(codes::MARKS_DAMAGED, text))
                    })
                };
                let position = Position::copy_from(row.try_get(4)?);
                let lane = LaneId { connector: connector.into(), partition: Partition(partition.into()) };
                Ok((lane, Mark { generation: number(generation)?, seq: number(seq)?, position }))
            })
            .collect::<Result<_, Failure>>()?;
        let found = numbers(&marks);
        if self.moved || self.stored.iter().any(|(lane, stored)| found.get(lane) != Some(stored)) {
            return Err(self.moved());
        }
        self.stored = found;
        Ok(marks)
    }

    /// Handles stored marks that differ from those that the server confirmed to this run.
    fn moved(&mut self) -> Failure {
        self.moved = true;
        let text = format!(
            "the positions in {} differ from those that this run stored, although {} contains the run: another \
             program changed them, for example by restoring one table without the other",
            self.tables.marks, self.tables.writers
        );
        Failure::Retry(Fault::transient(codes::MARKS_MOVED, text))
    }

    /// Returns why the row of the fence does not have the epoch of this run.
    async fn epoch_mismatch(&self, client: &Client) -> Result<Failure, Error> {
        let sql = format!(
            "SELECT max(epoch) FROM {} WHERE pipeline = $1 AND slot = ANY($2) AND destination = $3",
            self.tables.writers
        );
        let row = client.query_one(&sql, &[&self.pipeline, &self.slot_list, &self.destination]).await?;
        let theirs = row.try_get::<_, Option<i64>>(0)?;
        if theirs.is_none_or(|theirs| theirs <= self.epoch) {
            let text = format!(
                "{} does not contain this run: the server lost transactions that it had confirmed, for example in a \
                 failover or a restore",
                self.tables.writers
            );
            return Ok(Failure::Retry(Fault::transient(codes::MARKS_MOVED, text)));
        }
        let text = format!("another run of pipeline {} has taken over this destination: this run stops", self.pipeline);
        Ok(Failure::Fatal(Fault::fatal(codes::FENCED, text)))
    }

    fn went_back(&self, writes: i64) -> Failure {
        let text = format!(
            "the server had confirmed {} transactions of this pipeline and has {writes}: it lost some, for example \
             in a failover or a restore",
            self.committed
        );
        Failure::Retry(Fault::transient(codes::MARKS_MOVED, text))
    }

    /// Keeps later runs of the pipeline from taking over until the end of an open transaction, and fails if one has.
    pub(crate) async fn hold(&self, client: &Client) -> Result<(), Failure> {
        let sql = format!(
            "SELECT FROM {} WHERE pipeline = $1 AND slot = ANY($2) AND destination = $3 AND epoch = $4 \
             ORDER BY slot FOR UPDATE",
            self.tables.writers
        );
        let held = client.query(&sql, &[&self.pipeline, &self.slot_list, &self.destination, &self.epoch]).await;
        match held.map_err(Failure::from).map_err(Fence::own)?.len() == self.slot_list.len() {
            true => Ok(()),
            false => Err(self.epoch_mismatch(client).await?),
        }
    }

    /// Begins an open transaction: passes the fence and stores or removes the marks.
    pub(crate) async fn enter(&mut self, client: &Client, work: Work<'_>) -> Result<TransactionWork, Failure> {
        self.pass(client, work).await.map_err(Fence::own)
    }

    async fn pass(&mut self, client: &Client, work: Work<'_>) -> Result<TransactionWork, Failure> {
        let sql = format!(
            "UPDATE {} SET writes = writes + 1 \
             WHERE pipeline = $1 AND slot = ANY($2) AND destination = $3 AND epoch = $4 RETURNING writes",
            self.tables.writers
        );
        let rows = client.query(&sql, &[&self.pipeline, &self.slot_list, &self.destination, &self.epoch]).await?;
        let step = self.slot_list.len();
        if rows.len() < step {
            return Err(self.epoch_mismatch(client).await?);
        }
        let step = i64::try_from(step).unwrap_or(i64::MAX);
        self.current = sum(&rows, 0)?;
        // If the pending transaction had not been committed, this one would have its number.
        if let Some(pending) = self.pending.take_if(|pending| pending.writes + step == self.current) {
            let is_same = match (&pending.work, work) {
                (PendingWork::Write { positions, .. }, Work::Write(rows, _)) => {
                    rows.iter().map(Record::position).eq(positions)
                }
                (PendingWork::Forget(before), Work::Forget(lanes)) => before == lanes,
                _ => false,
            };
            self.note_committed(pending);
            if !is_same {
                return Err(Failure::Fatal(Fault::fatal(
                    codes::WRITE_CHANGED,
                    "an interrupted write took effect, but its retry contains other rows",
                )));
            }
            return Ok(TransactionWork::Written);
        }
        if self.current != self.committed + step {
            return Err(self.went_back(self.current - step));
        }
        self.pending = None;
        match work {
            Work::Write(_, marks) => self.store(client, marks).await?,
            Work::Forget(lanes) => self.remove(client, lanes).await?,
        }
        Ok(TransactionWork::Write)
    }

    /// Removes the marks of lanes.
    async fn remove(&mut self, client: &Client, lanes: &[LaneId]) -> Result<(), Failure> {
        if self.moved {
            return Err(self.moved());
        }
        let sql = format!(
            "DELETE FROM {} WHERE pipeline = $1 AND slot = ANY($2) AND destination = $3 \
             AND (connector, partition) IN (SELECT * FROM unnest($4::text[], $5::text[]))",
            self.tables.marks
        );
        let connectors: Vec<&str> = lanes.iter().map(|lane| lane.connector.as_str()).collect();
        let partitions: Vec<&str> = lanes.iter().map(|lane| lane.partition.0.as_str()).collect();
        let key: [&(dyn ToSql + Sync); 5] =
            [&self.pipeline, &self.slot_list, &self.destination, &connectors, &partitions];
        let removed = client.execute(&sql, &key).await?;
        let known = lanes.iter().filter(|lane| self.stored.contains_key(*lane)).count();
        if usize::try_from(removed).is_ok_and(|removed| removed >= known) { Ok(()) } else { Err(self.moved()) }
    }

    /// Stores the marks. Each replaces the mark known to this run; for an unknown lane, it replaces any mark.
    async fn store(&mut self, client: &Client, marks: &[(LaneId, Mark)]) -> Result<(), Failure> {
        if self.moved {
            return Err(self.moved());
        }
        if marks.is_empty() {
            return Ok(());
        }
        let number = |n: u64| {
            i64::try_from(n).map_err(|_| Failure::Fatal(Fault::fatal(codes::MARK_TOO_LARGE, "a mark beyond 2^63")))
        };
        let connectors: Vec<&str> = marks.iter().map(|(lane, _)| lane.connector.as_str()).collect();
        let partitions: Vec<&str> = marks.iter().map(|(lane, _)| lane.partition.0.as_str()).collect();
        let generations = marks.iter().map(|(_, mark)| number(mark.generation)).collect::<Result<Vec<_>, _>>()?;
        let seqs = marks.iter().map(|(_, mark)| number(mark.seq)).collect::<Result<Vec<_>, _>>()?;
        let positions: Vec<&[u8]> = marks.iter().map(|(_, mark)| &mark.position.0[..]).collect();
        let slots: Vec<i64> = marks.iter().map(|(lane, _)| i64::from(self.slots.slot_of(&lane.partition))).collect();
        let known: Vec<Option<(u64, u64)>> = marks.iter().map(|(lane, _)| self.stored.get(lane).copied()).collect();
        let was = |of: fn((u64, u64)) -> u64| known.iter().map(move |it| it.map(of).map(number).transpose());
        let generations_before = was(|(generation, _)| generation).collect::<Result<Vec<_>, _>>()?;
        let seqs_before = was(|(_, seq)| seq).collect::<Result<Vec<_>, _>>()?;
        let sql = format!(
            "WITH new AS (SELECT * FROM unnest($3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bytea[], \
             $8::bigint[], $9::bigint[], $10::bigint[]) \
             AS n (connector, partition, generation, seq, position, generation_before, seq_before, slot)), \
             replaced AS (UPDATE {marks} AS m SET generation = n.generation, seq = n.seq, position = n.position \
             FROM new AS n WHERE m.pipeline = $1 AND m.slot = n.slot AND m.destination = $2 \
             AND m.connector = n.connector AND m.partition = n.partition AND m.generation = n.generation_before \
             AND m.seq = n.seq_before RETURNING 1), \
             stored AS (INSERT INTO {marks} \
             (pipeline, slot, destination, connector, partition, generation, seq, position) \
             SELECT $1, slot, $2, connector, partition, generation, seq, position FROM new WHERE seq_before IS NULL \
             ON CONFLICT (pipeline, slot, destination, connector, partition) \
             DO UPDATE SET generation = EXCLUDED.generation, seq = EXCLUDED.seq, position = EXCLUDED.position \
             RETURNING 1) \
             SELECT (SELECT count(*) FROM replaced) + (SELECT count(*) FROM stored)",
            marks = self.tables.marks
        );
        let row = client
            .query_one(
                &sql,
                &[
                    &self.pipeline,
                    &self.destination,
                    &connectors,
                    &partitions,
                    &generations,
                    &seqs,
                    &positions,
                    &generations_before,
                    &seqs_before,
                    &slots,
                ],
            )
            .await?;
        let stored: i64 = row.try_get(0)?;
        if usize::try_from(stored) != Ok(marks.len()) {
            return Err(self.moved());
        }
        Ok(())
    }

    /// Notes that the open transaction is being committed: its outcome is unknown until [`Fence::end_commit`].
    pub(crate) fn begin_commit(&mut self, work: Work<'_>) {
        let work = match work {
            Work::Write(rows, marks) => {
                let positions = rows.iter().map(|row| row.position().clone()).collect();
                PendingWork::Write { positions, marks: numbers(marks) }
            }
            Work::Forget(lanes) => PendingWork::Forget(lanes.to_vec()),
        };
        self.pending = Some(Pending { writes: self.current, work });
    }

    /// Records the outcome of the pending transaction.
    pub(crate) fn end_commit(&mut self, committed: bool) {
        if let Some(pending) = self.pending.take_if(|_| committed) {
            self.note_committed(pending);
        }
        self.pending = None;
    }

    fn note_committed(&mut self, pending: Pending) {
        self.committed = pending.writes;
        match pending.work {
            PendingWork::Write { marks, .. } => self.stored.extend(marks),
            PendingWork::Forget(lanes) => self.stored.retain(|lane, _| !lanes.contains(lane)),
        }
    }
}
