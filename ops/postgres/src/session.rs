//! A connection and its prepared statements.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::pin::pin;

use anabranch_record::fault::Fault;
use bytes::{BufMut, Bytes, BytesMut};
use deadpool_postgres::ClientWrapper;
use futures::future::{join, join3, try_join_all};
use futures::sink::SinkExt;
use tokio_postgres::{Client, Row, Statement};

use crate::batch::StatementRows;
use crate::catalog;
use crate::encode::{EncodedValue, EncodedValues};
use crate::fault::Failure;
use crate::row::RowAction;
use crate::statement;
use crate::table::{RowShape, Table};

/// Number of rows from which a staging table and one statement cost less than parameters; see the crate documentation
/// for the measurements.
pub(crate) const COPY_FROM: usize = 512;
/// Row counts of multi-row statements. There are few, because each is prepared once per shape.
const CHUNKS: [usize; 7] = [64, 32, 16, 8, 4, 2, 1];
/// Maximum number of parameters of a statement, set by the protocol.
const MOST_PARAMETERS: usize = 65_535;
/// Maximum number of staging tables of a connection. Further shapes are written with parameters.
const MOST_STAGES: usize = 64;
/// Maximum number of prepared statements of a connection. Above it, all are discarded and prepared again as needed.
const MOST_STATEMENTS: usize = 512;

/// Begins a transaction. Each statement must see rows of other writers and table changes that were committed before it.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

/// Connection of one writer.
pub(crate) struct Session {
    client: ClientWrapper,
    copy_from: usize,
    statements: HashMap<StatementKey, Statement>,
    stages: HashSet<(u64, RowAction)>,
    versions: Option<Statement>,
    /// Staging tables that this transaction filled.
    filled: HashSet<(u64, RowAction)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct StatementKey {
    shape: u64,
    action: RowAction,
    text: SqlText,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum SqlText {
    Values(usize),
    Copy,
    Merge,
}

impl Session {
    /// Creates a session. Steps with at least `copy_from` rows are copied, see [`COPY_FROM`].
    pub(crate) fn new(client: ClientWrapper, copy_from: usize) -> Self {
        let (stages, filled) = (HashSet::new(), HashSet::new());
        Session { client, copy_from, statements: HashMap::new(), stages, versions: None, filled }
    }

    /// Sets the number of rows from which steps are copied.
    #[cfg(test)]
    pub(crate) fn set_copy_from(&mut self, rows: usize) {
        self.copy_from = rows;
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Runs SQL without parameters and results.
    pub(crate) async fn execute(&mut self, sql: &str) -> Result<(), Failure> {
        Ok(self.client.batch_execute(sql).await?)
    }

    /// Begins a transaction.
    pub(crate) async fn begin(&mut self) -> Result<(), Failure> {
        self.filled.clear();
        self.execute(BEGIN).await
    }

    /// Queries [`catalog::VERSIONS`] for some tables.
    pub(crate) async fn versions(&mut self, tables: &[String]) -> Result<Vec<i64>, Failure> {
        let statement = self.prepare_versions().await?;
        versions_of(&self.client.query(&statement, &[&tables]).await?)
    }

    async fn prepare_versions(&mut self) -> Result<Statement, Failure> {
        match &self.versions {
            Some(statement) => Ok(statement.clone()),
            None => Ok(self.versions.insert(self.client.prepare(catalog::VERSIONS).await?).clone()),
        }
    }

    /// In one round trip, begins a transaction, writes a step for which [`Session::is_single`] is true, and queries the
    /// versions of tables. Also returns the number of rows that the server wrote. The transaction is open if and only if
    /// the step succeeded or failed because of a row.
    pub(crate) async fn begin_single(
        &mut self,
        step: &StatementRows,
        tables: &[Table],
        bytes: &[u8],
        names: &[String],
    ) -> Result<Result<(u64, Vec<i64>), Failure>, Failure> {
        let table = &tables[step.table];
        let shape = table.shape(step.shape);
        let text = SqlText::Values(step.rows.len());
        let sql = || statement::values(table, shape, step.action, step.rows.len());
        let statement = self.prepare(shape, step.action, text, sql).await?;
        let versions = self.prepare_versions().await?;
        let parameters: Vec<EncodedValue<'_>> =
            step.rows.iter().flat_map(|row| EncodedValues(&bytes[row.clone()])).collect();
        // Each is sent when it is first polled, in this order: the write holds its locks when the versions are read.
        let (begun, wrote, versions) = join3(
            self.client.batch_execute(BEGIN),
            self.client.execute_raw(&statement, parameters),
            self.client.query(&versions, &[&names]),
        )
        .await;
        begun?;
        Ok(match wrote {
            Ok(wrote) => versions.map_err(Failure::from).and_then(|rows| Ok((wrote, versions_of(&rows)?))),
            Err(error) => Err(error.into()),
        })
    }

    /// Creates the staging tables that steps need, outside of a transaction so that they survive a rollback. If that is
    /// not allowed, returns the fault; the session then writes with parameters.
    pub(crate) async fn stage(&mut self, steps: &[StatementRows], tables: &[Table]) -> Result<Option<Fault>, Failure> {
        let copy_from = self.copy_from;
        for step in steps.iter().filter(|step| step.rows.len() >= copy_from && step.action != RowAction::Truncate) {
            let table = &tables[step.table];
            let shape = table.shape(step.shape);
            let stage = (shape.id, step.action);
            if self.stages.len() < MOST_STAGES && !self.stages.contains(&stage) {
                match self.execute(&statement::create_stage(table, shape, step.action)).await {
                    Ok(()) => self.stages.insert(stage),
                    // For example, the user lacks the permission TEMP.
                    Err(Failure::Denied(fault) | Failure::Fatal(fault)) => {
                        self.copy_from = usize::MAX;
                        return Ok(Some(fault));
                    }
                    Err(other) => return Err(other),
                };
            }
        }
        Ok(None)
    }

    /// Returns `true` if a step is one statement.
    pub(crate) fn is_single(&self, step: &StatementRows, tables: &[Table]) -> bool {
        let shape = tables[step.table].shape(step.shape);
        !self.copies(step, shape) && chunks(step.rows.len(), width(shape, step.action)).nth(1).is_none()
    }

    /// Writes a step. Returns the number of rows that the server wrote.
    pub(crate) async fn run(&mut self, step: &StatementRows, tables: &[Table], bytes: &[u8]) -> Result<u64, Failure> {
        let table = &tables[step.table];
        let shape = table.shape(step.shape);
        match self.copies(step, shape) {
            true => self.copy(step, table, shape, bytes).await,
            false => self.values(step, table, shape, bytes).await,
        }
    }

    fn copies(&self, step: &StatementRows, shape: &RowShape) -> bool {
        step.rows.len() >= self.copy_from && self.stages.contains(&(shape.id, step.action))
    }

    async fn values(
        &mut self,
        step: &StatementRows,
        table: &Table,
        shape: &RowShape,
        bytes: &[u8],
    ) -> Result<u64, Failure> {
        let width = width(shape, step.action);
        let mut prepared = Vec::new();
        for chunk in chunks(step.rows.len(), width) {
            let sql = || statement::values(table, shape, step.action, chunk.len());
            let statement = self.prepare(shape, step.action, SqlText::Values(chunk.len()), sql).await?;
            prepared.push((statement, chunk));
        }
        // All are sent before the first answer arrives.
        let wrote = try_join_all(prepared.iter().map(|(statement, chunk)| {
            let mut parameters = Vec::with_capacity(chunk.len() * width);
            for row in &step.rows[chunk.clone()] {
                parameters.extend(EncodedValues(&bytes[row.clone()]));
            }
            self.client.execute_raw(statement, parameters)
        }))
        .await?;
        Ok(wrote.into_iter().sum())
    }

    async fn copy(
        &mut self,
        step: &StatementRows,
        table: &Table,
        shape: &RowShape,
        bytes: &[u8],
    ) -> Result<u64, Failure> {
        let action = step.action;
        let copy = self.prepare(shape, action, SqlText::Copy, || statement::copy(shape, action)).await?;
        let merge = self.prepare(shape, action, SqlText::Merge, || statement::merge(table, shape, action)).await?;
        if !self.filled.insert((shape.id, action)) {
            self.execute(&format!("TRUNCATE {}", statement::stage(shape, action))).await?;
        }
        let mut sink = pin!(self.client.copy_in::<_, Bytes>(&copy).await?);
        sink.feed(copy_data(&step.rows, width(shape, action), bytes)).await?;
        // The client sends the merge right after the end of the copy, without waiting for its result.
        let (copied, merged) = join(sink.finish(), self.client.execute(&merge, &[])).await;
        copied?;
        Ok(merged?)
    }

    async fn prepare(
        &mut self,
        shape: &RowShape,
        action: RowAction,
        text: SqlText,
        sql: impl FnOnce() -> String,
    ) -> Result<Statement, Failure> {
        let key = StatementKey { shape: shape.id, action, text };
        if let Some(statement) = self.statements.get(&key) {
            return Ok(statement.clone());
        }
        if self.statements.len() >= MOST_STATEMENTS {
            self.statements.clear();
        }
        let statement = self.client.prepare(&sql()).await?;
        self.statements.insert(key, statement.clone());
        Ok(statement)
    }
}

fn versions_of(rows: &[Row]) -> Result<Vec<i64>, Failure> {
    Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
}

/// Returns the number of columns that a step writes.
fn width(shape: &RowShape, action: RowAction) -> usize {
    match action {
        RowAction::Delete => shape.keys,
        RowAction::Move => shape.columns.len() + shape.keys,
        _ => shape.columns.len(),
    }
}

/// Splits rows into chunks of the prepared sizes.
fn chunks(rows: usize, width: usize) -> impl Iterator<Item = Range<usize>> {
    let most = (MOST_PARAMETERS / width.max(1)).max(1);
    let mut at = 0;
    std::iter::from_fn(move || {
        let left = rows - at;
        let size = CHUNKS.into_iter().find(|size| *size <= left && *size <= most)?;
        at += size;
        Some(at - size..at)
    })
}

/// Returns the rows in the format of `COPY … (FORMAT binary)`.
fn copy_data(rows: &[Range<usize>], width: usize, bytes: &[u8]) -> Bytes {
    const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";
    let length: usize = rows.iter().map(|row| row.len() + 2).sum();
    let mut data = BytesMut::with_capacity(length + SIGNATURE.len() + 10);
    data.put_slice(SIGNATURE);
    // Flags, and the length of an extension.
    data.put_u64(0);
    for row in rows {
        // A table has at most 1600 columns.
        data.put_u16(width as u16);
        data.put_slice(&bytes[row.clone()]);
    }
    data.put_i16(-1);
    data.freeze()
}
