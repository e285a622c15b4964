//! Marks in the transactions of the rows, and the fence that keeps two runs of a pipeline apart.
//!
//! `anabranch_marks` holds how far each lane was written. `anabranch_writers` has a row per pipeline and destination:
//! each run raises `epoch` when it opens, and every transaction raises `writes` under the epoch of its run. So the
//! transactions of one destination are serial, one of an older run finds no row and gives up, and a run that lost its
//! connection while it committed can tell by `writes` whether it did. A server that lost transactions which it had
//! confirmed, as after a failover or from a restored backup, has an earlier `epoch` or fewer `writes` than the run knows
//! of: then nothing is written, and the run ends. The same holds where only the marks are others than the run stored, as
//! when their table was restored without that of the writers.

use std::collections::HashMap;

use anabranch_plugin::host::Host;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{LaneId, Mark, Partition};
use anabranch_record::{Position, Record};
use tokio_postgres::{Client, Error};

use crate::fault::Failure;
use crate::name::Quoted;

/// A run's hold on its marks.
pub(crate) struct Fence {
    tables: Tables,
    pipeline: String,
    destination: String,
    epoch: i64,
    /// Transactions that are there for certain.
    committed: i64,
    /// Generation and number of the marks that are there for certain, of the lanes that are known.
    stored: Stored,
    /// The marks were found to be others: what is known of them is no ground to write on.
    moved: bool,
    /// A transaction whose outcome is unknown.
    pending: Option<Pending>,
    /// The number of the transaction that is open.
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

/// What is to be done in a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entered {
    /// Write the rows.
    Write,
    /// Nothing: these rows and marks are there already.
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

    /// Creates what is missing, so that no right to create is needed once it is there.
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
        // `CREATE SCHEMA IF NOT EXISTS` needs the right to create schemas even where there is nothing to do.
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
        // `IF NOT EXISTS` alone fails when two do it at once.
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
    /// Takes the pipeline over from earlier runs: waits for a transaction that one of them has open. Epochs rise with the
    /// server's clock, so that two runs have different ones also where a server forgot the first.
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

    /// What fails in the tables of the marks is no fault of a record.
    fn own(failure: Failure) -> Failure {
        match failure {
            // The next run makes them, and then sees what was in them.
            Failure::Stale(fault) if fault.code() == "table_missing" => {
                let text = format!("the tables of the marks are gone: {}", fault.message());
                Failure::Retry(Fault::transient("marks_moved", text))
            }
            Failure::Row(fault) | Failure::Stale(fault) => {
                let text = format!("the tables of the marks cannot be used: {}", fault.message());
                Failure::Fatal(Fault::fatal("marks_damaged", text))
            }
            other => other,
        }
    }

    /// The marks that earlier transactions stored. A transaction of a lost connection that may still be committed holds
    /// the row of the fence: it is waited for, and with the answer the doubt about it is over.
    pub(crate) async fn marks(&mut self, client: &Client) -> Result<Vec<(LaneId, Mark)>, Failure> {
        self.read(client).await.map_err(Fence::own)
    }

    async fn read(&mut self, client: &Client) -> Result<Vec<(LaneId, Mark)>, Failure> {
        // Two statements under one lock: each sees what was committed before it began.
        client.batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED").await?;
        let sql = format!(
            "SELECT writes FROM {} WHERE pipeline = $1 AND destination = $2 AND epoch = $3 FOR UPDATE",
            self.tables.writers
        );
        let Some(row) = client.query_opt(&sql, &[&self.pipeline, &self.destination, &self.epoch]).await? else {
            return Err(self.turned_away(client).await?);
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
                        let text = format!("{} holds a negative number for {connector}", self.tables.marks);
                        Failure::Fatal(Fault::fatal("marks_damaged", text))
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

    /// The marks are others than those that the server confirmed to this run.
    fn moved(&mut self) -> Failure {
        self.moved = true;
        let text = format!(
            "the positions in {} are not those that this run stored, although {} knows the run: something else changed \
             them, as from a backup of one table without the other",
            self.tables.marks, self.tables.writers
        );
        Failure::Retry(Fault::transient("marks_moved", text))
    }

    /// Why the row of the fence does not have the epoch of this run.
    async fn turned_away(&self, client: &Client) -> Result<Failure, Error> {
        let sql = format!("SELECT epoch FROM {} WHERE pipeline = $1 AND destination = $2", self.tables.writers);
        let row = client.query_opt(&sql, &[&self.pipeline, &self.destination]).await?;
        let theirs = row.map(|row| row.try_get::<_, i64>(0)).transpose()?;
        if theirs.is_none_or(|theirs| theirs < self.epoch) {
            let text = format!(
                "{} does not know this run: the server lost what it had confirmed, as after a failover or from a \
                 restored backup",
                self.tables.writers
            );
            return Ok(Failure::Retry(Fault::transient("marks_moved", text)));
        }
        let text = format!("another run of pipeline {} has taken over this destination: this one stops", self.pipeline);
        Ok(Failure::Fatal(Fault::fatal("fenced", text)))
    }

    fn went_back(&self, writes: i64) -> Failure {
        let text = format!(
            "the server had confirmed {} transactions of this pipeline and has {writes}: it lost some, as after a \
             failover or from a restored backup",
            self.committed
        );
        Failure::Retry(Fault::transient("marks_moved", text))
    }

    /// Begins the work of a transaction that is open: passes the fence and stores the marks.
    pub(crate) async fn enter(
        &mut self,
        client: &Client,
        rows: &[Record],
        marks: &[(LaneId, Mark)],
    ) -> Result<Entered, Failure> {
        self.pass(client, rows, marks).await.map_err(Fence::own)
    }

    async fn pass(&mut self, client: &Client, rows: &[Record], marks: &[(LaneId, Mark)]) -> Result<Entered, Failure> {
        let sql = format!(
            "UPDATE {} SET writes = writes + 1 WHERE pipeline = $1 AND destination = $2 AND epoch = $3 \
             RETURNING writes",
            self.tables.writers
        );
        let Some(row) = client.query_opt(&sql, &[&self.pipeline, &self.destination, &self.epoch]).await? else {
            return Err(self.turned_away(client).await?);
        };
        self.current = row.try_get(0)?;
        // Had the pending transaction not been committed, this one would have its number.
        if let Some(pending) = self.pending.take_if(|pending| pending.writes + 1 == self.current) {
            self.committed = pending.writes;
            self.stored.extend(pending.marks);
            if !rows.iter().map(Record::position).eq(&pending.positions) {
                return Err(Failure::Fatal(Fault::fatal(
                    "write_changed",
                    "a write that was interrupted took effect, and other rows came in its place",
                )));
            }
            return Ok(Entered::Written);
        }
        if self.current != self.committed + 1 {
            return Err(self.went_back(self.current - 1));
        }
        self.pending = None;
        self.store(client, marks).await?;
        Ok(Entered::Write)
    }

    /// Each mark replaces the one that this run knows of; one of a lane that it does not know, whatever is there.
    async fn store(&mut self, client: &Client, marks: &[(LaneId, Mark)]) -> Result<(), Failure> {
        if self.moved {
            return Err(self.moved());
        }
        if marks.is_empty() {
            return Ok(());
        }
        let number =
            |n: u64| i64::try_from(n).map_err(|_| Failure::Fatal(Fault::fatal("mark_too_large", "a mark beyond 2^63")));
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

    /// The open transaction is about to be committed: from here on its outcome is unknown until [`Fence::settle`].
    pub(crate) fn doubt(&mut self, rows: &[Record], marks: &[(LaneId, Mark)]) {
        let positions = rows.iter().map(|row| row.position().clone()).collect();
        self.pending = Some(Pending { writes: self.current, positions, marks: numbers(marks) });
    }

    /// The outcome is known.
    pub(crate) fn settle(&mut self, committed: bool) {
        if let Some(pending) = self.pending.take()
            && committed
        {
            self.committed = pending.writes;
            self.stored.extend(pending.marks);
        }
    }
}
