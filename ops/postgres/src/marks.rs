//! Marks that are stored in the transactions of the rows, and the fence between two runs of a pipeline.
//!
//! `anabranch_marks` holds how far each lane was written. `anabranch_writers` has a row per pipeline and destination.
//! Each run increments `epoch` when it opens, and every transaction increments `writes` under the epoch of its run. So
//! the transactions of one destination are serial, and a transaction of an older run finds no row and fails. If a run
//! loses its connection during a commit, `writes` shows whether the commit succeeded.
//!
//! A server that lost confirmed transactions, for example after a failover or a restore, has an earlier `epoch` or
//! fewer `writes` than the run expects. Then nothing is written, and the run ends. The same applies if only the marks
//! differ from those that the run stored, for example because only their table was restored.

use std::collections::HashMap;

use anabranch_plugin::host::Host;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{LaneId, Mark, Partition};
use anabranch_record::{Position, Record};
use tokio_postgres::{Client, Error};

use crate::codes;
use crate::fault::Failure;
use crate::name::Quoted;

/// The lock of a run on its marks.
pub(crate) struct Fence {
    tables: Tables,
    pipeline: String,
    destination: String,
    epoch: i64,
    /// Number of transactions that are certainly committed.
    committed: i64,
    /// Generations and numbers of the marks that are certainly stored, for the known lanes.
    stored: Stored,
    /// True if the stored marks were found to differ, so that nothing may be written.
    moved: bool,
    /// A transaction with an unknown outcome.
    pending: Option<Pending>,
    /// Number of the open transaction.
    current: i64,
}

struct Pending {
    writes: i64,
    positions: Vec<Position>,
    marks: Stored,
}

type Stored = HashMap<LaneId, (u64, u64)>;

fn numbers(marks: &[(LaneId, Mark)]) -> Stored {
    marks.iter().map(|(lane, mark)| (lane.clone(), (mark.generation, mark.seq))).collect()
}

struct Tables {
    schema: Option<String>,
    marks: String,
    writers: String,
}

/// Work of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransactionWork {
    /// Write the rows.
    Write,
    /// Nothing: these rows and marks are stored already.
    Written,
}

impl Tables {
    fn new(schema: Option<&str>) -> Self {
        let name = |table: &str| match schema {
            Some(schema) => format!("{}.{}", Quoted(schema), Quoted(table)),
            None => Quoted(table).to_string(),
        };
        Tables { schema: schema.map(str::to_owned), marks: name("anabranch_marks"), writers: name("anabranch_writers") }
    }

    /// Creates missing tables. If all exist, no permission to create is needed.
    async fn create(&self, client: &Client) -> Result<(), Error> {
        let there = client
            .query_one(
                "SELECT to_regclass($1) IS NOT NULL AND to_regclass($2) IS NOT NULL",
                &[&self.marks, &self.writers],
            )
            .await?;
        if there.try_get(0)? {
            return Ok(());
        }
        // `CREATE SCHEMA IF NOT EXISTS` needs the permission to create schemas even if the schema exists.
        let schema = match &self.schema {
            Some(schema) => {
                let quoted = Quoted(schema).to_string();
                let row = client.query_one("SELECT to_regnamespace($1) IS NOT NULL", &[&quoted]).await?;
                match row.try_get(0)? {
                    true => String::new(),
                    false => format!("CREATE SCHEMA IF NOT EXISTS {quoted};"),
                }
            }
            None => String::new(),
        };
        // Without a lock, `IF NOT EXISTS` fails if two sessions create the table at the same time.
        let sql = format!(
            "BEGIN; SELECT pg_advisory_xact_lock(hashtext('anabranch_marks'));{schema}\
             CREATE TABLE IF NOT EXISTS {} (pipeline text, destination text, connector text, partition text, \
             generation bigint NOT NULL, seq bigint NOT NULL, position bytea NOT NULL, \
             PRIMARY KEY (pipeline, destination, connector, partition));\
             CREATE TABLE IF NOT EXISTS {} (pipeline text, destination text, epoch bigint NOT NULL, \
             writes bigint NOT NULL, PRIMARY KEY (pipeline, destination)); COMMIT",
            self.marks, self.writers
        );
        client.batch_execute(&sql).await
    }
}

impl Fence {
    /// Takes over from earlier runs: waits for the end of their open transactions. Epochs follow the server's clock, so
    /// that two runs have different ones even if the server lost the first.
    pub(crate) async fn raise(client: &Client, host: &Host, schema: Option<&str>) -> Result<Fence, Failure> {
        let tables = Tables::new(schema);
        tables.create(client).await?;
        let (pipeline, destination) = (host.pipeline.to_string(), host.node.to_string());
        let sql = format!(
            "INSERT INTO {} AS w (pipeline, destination, epoch, writes) \
             VALUES ($1, $2, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, 0) \
             ON CONFLICT (pipeline, destination) DO UPDATE SET epoch = greatest(w.epoch + 1, EXCLUDED.epoch) \
             RETURNING epoch, writes",
            tables.writers
        );
        let row = client.query_one(&sql, &[&pipeline, &destination]).await?;
        let (epoch, committed) = (row.try_get(0)?, row.try_get(1)?);
        Ok(Fence {
            tables,
            pipeline,
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
            "SELECT writes FROM {} WHERE pipeline = $1 AND destination = $2 AND epoch = $3 FOR UPDATE",
            self.tables.writers
        );
        let Some(row) = client.query_opt(&sql, &[&self.pipeline, &self.destination, &self.epoch]).await? else {
            return Err(self.epoch_mismatch(client).await?);
        };
        let writes: i64 = row.try_get(0)?;
        let pending = self.pending.as_ref().map(|pending| pending.writes);
        if writes != self.committed && Some(writes) != pending {
            return Err(self.went_back(writes));
        }
        let sql = format!(
            "SELECT connector, partition, generation, seq, position FROM {} WHERE pipeline = $1 AND destination = $2",
            self.tables.marks
        );
        let rows = client.query(&sql, &[&self.pipeline, &self.destination]).await?;
        client.batch_execute("COMMIT").await?;
        let pending = self.pending.take_if(|pending| pending.writes == writes);
        (self.pending, self.committed) = (None, writes);
        self.stored.extend(pending.into_iter().flat_map(|pending| pending.marks));
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
        let sql = format!("SELECT epoch FROM {} WHERE pipeline = $1 AND destination = $2", self.tables.writers);
        let row = client.query_opt(&sql, &[&self.pipeline, &self.destination]).await?;
        let theirs = row.map(|row| row.try_get::<_, i64>(0)).transpose()?;
        if theirs.is_none_or(|theirs| theirs < self.epoch) {
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

    /// Begins the work of an open transaction: passes the fence and stores the marks.
    pub(crate) async fn enter(
        &mut self,
        client: &Client,
        rows: &[Record],
        marks: &[(LaneId, Mark)],
    ) -> Result<TransactionWork, Failure> {
        self.pass(client, rows, marks).await.map_err(Fence::own)
    }

    async fn pass(
        &mut self,
        client: &Client,
        rows: &[Record],
        marks: &[(LaneId, Mark)],
    ) -> Result<TransactionWork, Failure> {
        let sql = format!(
            "UPDATE {} SET writes = writes + 1 WHERE pipeline = $1 AND destination = $2 AND epoch = $3 \
             RETURNING writes",
            self.tables.writers
        );
        let Some(row) = client.query_opt(&sql, &[&self.pipeline, &self.destination, &self.epoch]).await? else {
            return Err(self.epoch_mismatch(client).await?);
        };
        self.current = row.try_get(0)?;
        // If the pending transaction had not been committed, this one would have its number.
        if let Some(pending) = self.pending.take_if(|pending| pending.writes + 1 == self.current) {
            self.committed = pending.writes;
            self.stored.extend(pending.marks);
            if !rows.iter().map(Record::position).eq(&pending.positions) {
                return Err(Failure::Fatal(Fault::fatal(
                    codes::WRITE_CHANGED,
                    "an interrupted write took effect, but its retry contains other rows",
                )));
            }
            return Ok(TransactionWork::Written);
        }
        if self.current != self.committed + 1 {
            return Err(self.went_back(self.current - 1));
        }
        self.pending = None;
        self.store(client, marks).await?;
        Ok(TransactionWork::Write)
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
        let known: Vec<Option<(u64, u64)>> = marks.iter().map(|(lane, _)| self.stored.get(lane).copied()).collect();
        let was = |of: fn((u64, u64)) -> u64| known.iter().map(move |it| it.map(of).map(number).transpose());
        let generations_before = was(|(generation, _)| generation).collect::<Result<Vec<_>, _>>()?;
        let seqs_before = was(|(_, seq)| seq).collect::<Result<Vec<_>, _>>()?;
        let sql = format!(
            "WITH new AS (SELECT * FROM unnest($3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bytea[], \
             $8::bigint[], $9::bigint[]) \
             AS n (connector, partition, generation, seq, position, generation_before, seq_before)), \
             replaced AS (UPDATE {marks} AS m SET generation = n.generation, seq = n.seq, position = n.position \
             FROM new AS n WHERE m.pipeline = $1 AND m.destination = $2 AND m.connector = n.connector \
             AND m.partition = n.partition AND m.generation = n.generation_before AND m.seq = n.seq_before RETURNING 1), \
             stored AS (INSERT INTO {marks} (pipeline, destination, connector, partition, generation, seq, position) \
             SELECT $1, $2, connector, partition, generation, seq, position FROM new WHERE seq_before IS NULL \
             ON CONFLICT (pipeline, destination, connector, partition) \
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
    pub(crate) fn begin_commit(&mut self, rows: &[Record], marks: &[(LaneId, Mark)]) {
        let positions = rows.iter().map(|row| row.position().clone()).collect();
        self.pending = Some(Pending { writes: self.current, positions, marks: numbers(marks) });
    }

    /// Records the outcome of the pending transaction.
    pub(crate) fn end_commit(&mut self, committed: bool) {
        if let Some(pending) = self.pending.take()
            && committed
        {
            self.committed = pending.writes;
            self.stored.extend(pending.marks);
        }
    }
}
