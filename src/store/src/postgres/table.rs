//! The tables: the state table with one row per mark, pipeline and claim, and the table of cached results.

use std::cell::Cell;
use std::collections::BTreeMap;

use anabranch_plugin::state::{ResultKey, StoreError};
use anabranch_record::text::Str;
use bytes::Bytes;
use tokio_postgres::GenericClient;

use super::PostgresError;
use super::amended::amended;
use super::contents::COPY;
use super::hints::NOTIFY;
use super::session::{Client, Failure as Error, Timed, Transaction};
use super::units::understood;
use crate::compare;
use crate::entity::{Status, StopReason, StoredPipeline};
use crate::letters::{LetterChange, LetterSelection};
use crate::request::{Read, ReadResult, Spread, Write, WriteResult};
use crate::tables::{SCHEMA, understand};

/// Kinds of rows.
pub(super) const VERSION: &str = "schema";
pub(super) const EPOCH: &str = "epoch";
pub(super) const PIPELINE: &str = "pipeline";
pub(super) const MARK: &str = "mark";
pub(super) const DETACHED: &str = "detached";
/// Confirmed mark of a destination (`connector`); `partition` is a JSON list of the source connector and its partition.
pub(super) const RECEIPT: &str = "receipt";
pub(super) const ACTIVE: &str = "active";
const TRIAL: &str = "trial";

/// Columns of the primary key of the state table.
pub(super) const KEY: &str = "kind, pipeline, slot, connector, partition";

/// Maximum bytes of cached results.
const MEMO_BOUND: i64 = 256 << 20;

/// Returns a number that is stored in a signed column; 0 if it is negative, which only a damaged store has.
pub(super) fn unsigned(stored: i64) -> u64 {
    u64::try_from(stored).unwrap_or(0)
}

/// The kind of relation that exists under the name of the store.
pub(super) enum Prepared {
    /// The store.
    Ready,
    /// None, and the store must exist.
    Missing,
    /// Another table.
    Foreign,
    /// A store of this later version.
    Newer(i64),
    /// A store that another one is copied into, or was: it is not complete.
    Unfinished,
}

/// Names of the tables, quoted for SQL.
pub(super) struct Table {
    pub(super) name: String,
    pub(super) state: String,
    memo: String,
    pub(super) letters: String,
    /// Nodes of the cluster, with their leases, and the units that they have.
    pub(super) nodes: String,
    pub(super) units: String,
    /// True if the nodes of a cluster share the tables: they read the configuration again when its revision changes.
    pub(super) is_shared: Cell<bool>,
    /// True if the tables are not created.
    pub(super) must_exist: Cell<bool>,
    /// True once the tables are known to have the present form.
    pub(super) is_current: Cell<bool>,
    /// Bytes of results that were stored since the oldest were last removed.
    remembered: Cell<i64>,
}

impl Table {
    /// Parses the name of the table, with an optional schema.
    pub(super) fn parse(name: &str) -> Result<Table, PostgresError> {
        let refuse = |what: &str| PostgresError::Setting { key: "db.postgres.table", what: format!("{name:?} {what}") };
        let parts: Vec<&str> = name.split('.').collect();
        if parts.len() > 2 || parts.iter().any(|part| part.is_empty()) || name.contains('\0') {
            return Err(refuse("is not the name of a table (table or schema.table)"));
        }
        // The server truncates longer names, so that both tables would have the same name.
        if parts.iter().any(|part| part.len() > 58) {
            return Err(refuse("is longer than 58 bytes"));
        }
        let quoted = |suffix: &str| {
            let mut parts: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
            if let Some(last) = parts.last_mut() {
                last.push_str(suffix);
            }
            parts.iter().map(|part| format!("\"{}\"", part.replace('"', "\"\""))).collect::<Vec<_>>().join(".")
        };
        let (state, memo, letters) = (quoted(""), quoted("_memo"), quoted("_dlq"));
        let (nodes, units) = (quoted("_node"), quoted("_unit"));
        Ok(Table {
            name: name.to_owned(),
            state,
            memo,
            letters,
            nodes,
            units,
            is_shared: Cell::new(false),
            must_exist: Cell::new(false),
            is_current: Cell::new(false),
            remembered: Cell::new(MEMO_BOUND),
        })
    }

    /// Returns the names of all tables, for SQL.
    pub(super) fn all(&self) -> String {
        let Table { state, memo, letters, nodes, units, .. } = self;
        [state, memo, letters, nodes, units].map(String::as_str).join(", ")
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Creates the tables if they do not exist; otherwise only examines them. Tables of an earlier form stay as they are
    /// until [`Table::upgrade`].
    pub(super) async fn prepare(&self, client: &mut Client) -> Result<Prepared, Error> {
        let transaction = client.transaction().await?;
        // If two processes start at the same time, one of them creates the tables.
        transaction.execute("SELECT pg_advisory_xact_lock(hashtext($1))", &[&self.name]).await?;
        let row = transaction.query_one("SELECT to_regclass($1) IS NOT NULL", &[&self.state]).await?;
        if !row.get::<_, bool>(0) {
            if self.must_exist.get() {
                return Ok(Prepared::Missing);
            }
            let Table { state, memo, .. } = self;
            let make = format!(
                "CREATE TABLE {state} (kind text NOT NULL, pipeline text NOT NULL, connector text NOT NULL, \
                 partition text NOT NULL, number bigint NOT NULL, value bytea NOT NULL, \
                 slot bigint NOT NULL DEFAULT 0, PRIMARY KEY ({KEY}));\
                 CREATE TABLE {memo} (space text NOT NULL, key bytea NOT NULL, value bytea NOT NULL, \
                 kept timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (space, key));\
                 INSERT INTO {state} VALUES ('{VERSION}', '', '', '', {SCHEMA}, '')"
            );
            transaction.batch_execute(&make).await?;
            transaction.commit().await?;
            return Ok(Prepared::Ready);
        }
        let columns = "SELECT count(*) FROM pg_attribute WHERE attrelid = to_regclass($1) AND NOT attisdropped \
                       AND (attname, atttypid::regtype::text) IN (('kind', 'text'), ('pipeline', 'text'), \
                       ('connector', 'text'), ('partition', 'text'), ('number', 'bigint'), ('value', 'bytea'))";
        if transaction.query_one(columns, &[&self.state]).await?.get::<_, i64>(0) != 6 {
            return Ok(Prepared::Foreign);
        }
        let version = format!(
            "SELECT max(number) FILTER (WHERE kind = '{VERSION}'), count(*) FILTER (WHERE kind = '{COPY}') FROM {} \
             WHERE kind IN ('{VERSION}', '{COPY}')",
            self.state
        );
        let row = transaction.query_one(&version, &[]).await?;
        let (found, copies): (Option<i64>, i64) = (row.get(0), row.get(1));
        transaction.commit().await?;
        Ok(match found {
            Some(_) if copies > 0 => Prepared::Unfinished,
            None => Prepared::Foreign,
            Some(found) if u64::try_from(found).is_ok_and(|found| (1..=SCHEMA).contains(&found)) => Prepared::Ready,
            Some(found) => Prepared::Newer(found),
        })
    }

    /// Applies several writes in one transaction. A write that is fenced or finds damaged data changes nothing and does
    /// not affect the others.
    pub(super) async fn apply(
        &self,
        transaction: &Transaction<'_>,
        writes: &[Write],
    ) -> Result<Vec<Result<WriteResult, StoreError>>, Error> {
        let mut outcomes = Vec::with_capacity(writes.len());
        let changes = writes.iter().filter(|write| write.changes_configuration()).count();
        if self.is_shared.get() && changes > 0 {
            self.raise_revision(transaction, changes).await?;
            if self.is_being_copied_to(transaction).await? {
                let refuse = || Err(StoreError::Unavailable(PostgresError::Unfinished { tables: self.all() }.into()));
                return Ok(writes.iter().map(|_| refuse()).collect());
            }
        }
        let mut rest = writes;
        while let Some(first) = rest.first() {
            // Lanes that a write removes may come back in the next one.
            let moves_only = |write: &&Write| matches!(write, Write::Marks { drops, .. } if drops.is_empty());
            let marks = rest.iter().take_while(moves_only).count();
            if marks > 0 {
                let (group, after) = rest.split_at(marks);
                outcomes.extend(self.put_marks(transaction, group).await?);
                rest = after;
                continue;
            }
            rest = &rest[1..];
            outcomes.push(match first {
                Write::Claim { unit, by } => self.claim(transaction, unit, *by).await?.map(WriteResult::Epoch),
                Write::Marks { epoch, drops, .. } => {
                    let stored = self.put_marks(transaction, std::slice::from_ref(first)).await?;
                    if stored.iter().all(Result::is_ok) {
                        self.drop_lanes(transaction, &epoch.unit, drops).await?;
                    }
                    outcomes.extend(stored);
                    continue;
                }
                Write::Status { pipeline, status } => {
                    // Of several runs that share a pipeline, one has failed, and the others are drained for that.
                    let is_of_sibling = |before: &Status| {
                        self.is_shared.get()
                            && matches!(before, Status::Degraded { .. } | Status::Invalid)
                            && matches!(status, Status::Stopped { .. })
                    };
                    let change = |stored: &mut StoredPipeline| {
                        if !is_of_sibling(&stored.status) {
                            stored.status = status.clone();
                        }
                    };
                    self.change_pipeline(transaction, pipeline, change).await?
                }
                Write::Provision(provision) => {
                    let found = |stored| compare::provision(stored, provision);
                    self.bring_in_line(transaction, found).await?
                }
                Write::Import(set) => self.import(transaction, set).await?,
                Write::Replace { pipeline, at } => {
                    let found = |stored: BTreeMap<Str, StoredPipeline>| {
                        compare::replace(stored.get(&pipeline.id), pipeline, *at)
                    };
                    self.bring_in_line(transaction, found).await?
                }
                Write::Delete { pipeline } => {
                    // The number of the latest claim stays: a run that hangs must not own the marks of a pipeline that
                    // is created with the same id. Marks of a beginning stay: a destination may have marks of the
                    // generation before. Such a mark is the generation and a number that is 0, see `encode`.
                    let sql = format!(
                        "DELETE FROM {} WHERE pipeline = $1 \
                         AND (kind IN ('{PIPELINE}', '{DETACHED}', '{RECEIPT}', '{ACTIVE}') \
                         OR kind = '{MARK}' AND substring(value from 9) <> '\\x0000000000000000')",
                        self.state
                    );
                    transaction.execute(&sql, &[&&**pipeline]).await?;
                    self.change_letters(transaction, pipeline, &LetterChange::Remove(LetterSelection::All))
                        .await?
                        .map(|_| WriteResult::Nothing)
                }
                Write::Want { pipeline, spread } => {
                    let begun = self.start(transaction, pipeline, spread).await?;
                    begun.map(|is_new| WriteResult::Units(if is_new { u64::from(spread.units) } else { 0 }))
                }
                Write::Labels(labels) => {
                    let sql = format!(
                        "UPDATE {} u SET label = n.label FROM unnest($1::text[], $2::text[]) AS n (pipeline, label) \
                         WHERE u.pipeline = n.pipeline AND u.label <> n.label",
                        self.units
                    );
                    let (pipelines, labels): (Vec<&str>, Vec<&str>) =
                        labels.iter().map(|(pipeline, label)| (pipeline.as_str(), label.as_str())).unzip();
                    transaction.execute(&sql, &[&pipelines, &labels]).await?;
                    Ok(WriteResult::Units(0))
                }
                Write::Reshape { pipeline, spread } => {
                    let changed = self.reshape(transaction, pipeline, spread).await?;
                    Ok(WriteResult::Units(u64::from(changed)))
                }
                Write::End { pipeline } => {
                    let had = self.end_units(transaction, pipeline).await?;
                    Ok(WriteResult::Units(u64::from(had)))
                }
                Write::Unwant { pipeline, by, all } => {
                    Ok(WriteResult::Units(self.unwant(transaction, pipeline, *by, *all).await?))
                }
                Write::Keep { space, entries } => {
                    self.keep(transaction, space, entries).await?;
                    Ok(WriteResult::Nothing)
                }
                Write::Active { pipeline, connector, settings } => {
                    let sql = format!(
                        "INSERT INTO {} VALUES ('{ACTIVE}', $1, $2, '', 0, $3) \
                         ON CONFLICT ({KEY}) DO UPDATE SET value = EXCLUDED.value",
                        self.state
                    );
                    transaction.execute(&sql, &[&&**pipeline, &&**connector, &&settings[..]]).await?;
                    Ok(WriteResult::Nothing)
                }
                Write::Forget { pipeline, connector } => {
                    let change = |stored: &mut StoredPipeline| stored.forget(connector);
                    let changed = self.change_pipeline(transaction, pipeline, change).await?;
                    if changed.is_ok() {
                        let sql = format!(
                            "DELETE FROM {} WHERE kind IN ('{DETACHED}', '{ACTIVE}') AND pipeline = $1 \
                             AND connector = $2",
                            self.state
                        );
                        transaction.execute(&sql, &[&&**pipeline, &&**connector]).await?;
                        let sql = format!(
                            "DELETE FROM {} WHERE kind = '{RECEIPT}' AND pipeline = $1 \
                             AND (connector = $2 OR CASE kind WHEN '{RECEIPT}' THEN partition::json ->> 0 END = $2)",
                            self.state
                        );
                        transaction.execute(&sql, &[&&**pipeline, &&**connector]).await?;
                    }
                    changed
                }
                Write::Letters { pipeline, epoch, change } => {
                    let owned = match epoch {
                        Some(epoch) => self.check(transaction, epoch).await?,
                        None => Ok(()),
                    };
                    match owned {
                        Ok(()) => self.change_letters(transaction, pipeline, change).await?,
                        Err(fenced) => Err(fenced),
                    }
                }
                Write::Schema { subject, text } => self.create_schema(transaction, subject, text).await?,
                Write::DeleteSchemas { subject, versions, how } => {
                    self.delete_schemas(transaction, subject, versions, *how).await?;
                    Ok(WriteResult::Nothing)
                }
                Write::Level { subject, level } => {
                    self.set_level(transaction, subject.as_ref(), level.as_ref()).await?;
                    Ok(WriteResult::Nothing)
                }
                Write::BeginCopy => Ok(self.begin_copy(transaction).await?),
                Write::AbandonCopy => {
                    self.abandon_copy(transaction).await?;
                    Ok(WriteResult::Nothing)
                }
                Write::CopiedLetters { pipeline, letters } => {
                    self.put_copies(transaction, pipeline, letters).await?;
                    Ok(WriteResult::Nothing)
                }
                Write::Contents(contents) => self.put_contents(transaction, contents).await?,
                Write::Trial(bytes) => {
                    // Written to the write-ahead log and the pages of the table, so that both need space for it.
                    let sql = format!(
                        "INSERT INTO {0} VALUES ('{TRIAL}', '', '', '', 0, $1) \
                         ON CONFLICT ({KEY}) DO UPDATE SET value = EXCLUDED.value",
                        self.state
                    );
                    transaction.execute(&sql, &[&incompressible(*bytes)]).await?;
                    let sql = format!("DELETE FROM {} WHERE kind = '{TRIAL}'", self.state);
                    transaction.execute(&sql, &[]).await?;
                    Ok(WriteResult::Nothing)
                }
            });
        }
        if self.is_shared.get() && writes.iter().any(Write::concerns_nodes) {
            transaction.query_one(NOTIFY, &[&self.state]).await?;
        }
        Ok(outcomes)
    }

    /// Compares the stored pipelines and applies the differences.
    pub(super) async fn bring_in_line(
        &self,
        transaction: &Transaction<'_>,
        compared: impl FnOnce(BTreeMap<Str, StoredPipeline>) -> compare::Differences,
    ) -> Result<Result<WriteResult, StoreError>, Error> {
        let rows = self.pipeline_rows(transaction, "FOR UPDATE").await?;
        let stored = rows.iter().map(|row| understand(row.get(0), row.get(1))).collect::<Result<Vec<_>, _>>();
        let stored: BTreeMap<Str, StoredPipeline> = match stored {
            Ok(stored) => stored.into_iter().map(|pipeline| (pipeline.id.clone(), pipeline)).collect(),
            Err(error) => return Ok(Err(error)),
        };
        let found = compared(stored.clone());
        let texts: BTreeMap<&str, &[u8]> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        // Serialized before anything is changed.
        let puts = found.puts.iter().map(|pipeline| {
            let id = &pipeline.id;
            let before = texts.get(id.as_str()).zip(stored.get(id));
            Ok((id, before.map_or_else(|| json(pipeline), |(text, before)| amended(text, before, pipeline))?))
        });
        let puts = match puts.collect::<Result<Vec<_>, StoreError>>() {
            Ok(puts) => puts,
            Err(error) => return Ok(Err(error)),
        };
        for (moved, from, to) in [(&found.detached, MARK, DETACHED), (&found.attached, DETACHED, MARK)] {
            for (pipeline, connector) in moved {
                let Table { state, .. } = self;
                let remove = format!(
                    "DELETE FROM {state} t USING {state} f WHERE f.kind = '{from}' AND f.pipeline = $1 \
                     AND f.connector = $2 AND t.kind = '{to}' AND t.pipeline = $1 AND t.connector = $2 \
                     AND t.partition = f.partition AND t.slot = f.slot"
                );
                transaction.execute(&remove, &[&&**pipeline, &&**connector]).await?;
                let rename = format!(
                    "UPDATE {state} SET kind = '{to}' WHERE kind = '{from}' AND pipeline = $1 AND connector = $2"
                );
                transaction.execute(&rename, &[&&**pipeline, &&**connector]).await?;
            }
        }
        for (id, json) in puts {
            self.put_pipeline(transaction, id, &json).await?;
        }
        Ok(Ok(WriteResult::Changes(found.changes)))
    }

    /// Has the nodes of a cluster run a pipeline: it waits for one. Returns `false` if they do already.
    pub(super) async fn start(
        &self,
        transaction: &Transaction<'_>,
        pipeline: &Str,
        spread: &Spread,
    ) -> Result<Result<bool, StoreError>, Error> {
        if !self.want(transaction, pipeline, spread).await? {
            return Ok(Ok(false));
        }
        let waits = Status::Stopped { reason: StopReason::System };
        let changed = self.change_pipeline(transaction, pipeline, |stored| stored.status = waits).await?;
        Ok(changed.map(|_| true))
    }

    /// Changes a stored pipeline, if it exists.
    async fn change_pipeline(
        &self,
        transaction: &Transaction<'_>,
        pipeline: &str,
        change: impl FnOnce(&mut StoredPipeline),
    ) -> Result<Result<WriteResult, StoreError>, Error> {
        let sql = format!("SELECT value FROM {} WHERE kind = '{PIPELINE}' AND pipeline = $1 FOR UPDATE", self.state);
        let Some(row) = transaction.query_opt(&sql, &[&pipeline]).await? else { return Ok(Ok(WriteResult::Nothing)) };
        match understand(pipeline, row.get(0)) {
            Err(error) => Ok(Err(error)),
            Ok(before) => {
                let mut stored = before.clone();
                change(&mut stored);
                match amended(row.get(0), &before, &stored) {
                    Ok(json) => self.put_pipeline(transaction, &stored.id, &json).await?,
                    Err(error) => return Ok(Err(error)),
                }
                Ok(Ok(WriteResult::Nothing))
            }
        }
    }

    pub(super) async fn put_pipeline(&self, transaction: &Transaction<'_>, id: &str, json: &[u8]) -> Result<(), Error> {
        let sql = format!(
            "INSERT INTO {} VALUES ('{PIPELINE}', $1, '', '', 0, $2) \
             ON CONFLICT ({KEY}) DO UPDATE SET value = EXCLUDED.value",
            self.state
        );
        transaction.execute(&sql, &[&id, &json]).await?;
        Ok(())
    }

    /// Stores results, and occasionally removes the oldest beyond the limit.
    async fn keep(
        &self,
        transaction: &Transaction<'_>,
        space: &Str,
        entries: &[(ResultKey, Bytes)],
    ) -> Result<(), Error> {
        let Table { memo, .. } = self;
        // The last of several results for a key.
        let latest: BTreeMap<&[u8], &[u8]> = entries.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        let (keys, values): (Vec<&[u8]>, Vec<&[u8]>) = latest.into_iter().unzip();
        let sql = format!(
            "INSERT INTO {memo} (space, key, value) SELECT $1, key, value FROM unnest($2::bytea[], $3::bytea[]) \
             AS kept (key, value) ON CONFLICT (space, key) DO UPDATE SET value = EXCLUDED.value, kept = EXCLUDED.kept"
        );
        transaction.execute(&sql, &[&&**space, &keys, &values]).await?;
        let bytes: usize = values.iter().map(|value| value.len() + size_of::<ResultKey>()).sum();
        self.remembered.set(self.remembered.get() + bytes as i64);
        // The scan of all results is expensive, so it is rare; a new process does it at its first write.
        if self.remembered.get() >= MEMO_BOUND / 8 {
            self.forget(transaction, MEMO_BOUND).await?;
            self.remembered.set(0);
        }
        Ok(())
    }

    /// Removes the oldest results, so that the remaining ones have at most `bound` bytes. O(all).
    pub(super) async fn forget(&self, transaction: &Transaction<'_>, bound: i64) -> Result<(), Error> {
        let sql = format!(
            "DELETE FROM {0} USING (SELECT space, key, sum(octet_length(value) + octet_length(key) + \
             octet_length(space)) OVER (ORDER BY kept DESC, space, key) AS bytes FROM {0}) AS aged \
             WHERE aged.bytes > $1 AND {0}.space = aged.space AND {0}.key = aged.key",
            self.memo
        );
        transaction.execute(&sql, &[&bound]).await?;
        Ok(())
    }

    /// Runs a read. Damaged data is an error of the store, not of the connection.
    pub(super) async fn find(&self, client: &Client, read: &Read) -> Result<Result<ReadResult, StoreError>, Error> {
        let Table { state, memo, .. } = self;
        match read {
            Read::Pipelines => Ok(self.pipelines(client, "").await?.map(ReadResult::Pipelines)),
            Read::Marks(epoch) => self.unit_marks(client, epoch).await,
            Read::Receipts(epoch) => self.unit_receipts(client, epoch).await,
            Read::Slots(pipeline) => self.slots(client, pipeline).await.map(|slots| Ok(ReadResult::Slots(slots))),
            Read::Positions(pipeline) => self.marks(client, pipeline, MARK).await,
            Read::DetachedMarks(pipeline) => self.marks(client, pipeline, DETACHED).await,
            Read::Recall { space, keys } => {
                let sql = format!("SELECT key, value FROM {memo} WHERE space = $1 AND key = ANY($2)");
                let wanted: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
                let rows = client.query(&sql, &[&&**space, &wanted]).await?;
                let found: BTreeMap<&[u8], &[u8]> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
                let recalled = keys.iter().map(|key| found.get(&key[..]).map(|value| Bytes::copy_from_slice(value)));
                Ok(Ok(ReadResult::Recalled(recalled.collect())))
            }
            Read::Active { pipeline, connector } => {
                let sql =
                    format!("SELECT value FROM {state} WHERE kind = '{ACTIVE}' AND pipeline = $1 AND connector = $2");
                let row = client.query_opt(&sql, &[&&**pipeline, &&**connector]).await?;
                let value = row.map(|row| Bytes::copy_from_slice(row.get::<_, &[u8]>(0)));
                Ok(Ok(ReadResult::Recalled(vec![value])))
            }
            Read::Revision => Ok(Ok(ReadResult::Revision(self.revision(client).await?))),
            Read::Contents => Ok(self.contents(client).await?.map(|contents| ReadResult::Contents(Box::new(contents)))),
            Read::Letters { pipeline, question } => self.answer_letters(client, pipeline, question).await,
            Read::Schemas(question) => Ok(self.schemas(client, question).await?.map(ReadResult::Schemas)),
        }
    }

    async fn marks(
        &self,
        client: &Client,
        pipeline: &Str,
        kind: &str,
    ) -> Result<Result<ReadResult, StoreError>, Error> {
        let state = &self.state;
        let sql = format!("SELECT connector, partition, value FROM {state} WHERE kind = '{kind}' AND pipeline = $1");
        let rows = client.query(&sql, &[&&**pipeline]).await?;
        let marks = rows.iter().map(|row| (row.get(0), row.get(1), row.get(2)));
        Ok(understood(pipeline, marks).map(ReadResult::Marks))
    }

    /// Returns the stored pipelines, as ids and forms.
    async fn pipeline_rows(
        &self,
        client: &Timed<impl GenericClient>,
        lock: &str,
    ) -> Result<Vec<tokio_postgres::Row>, Error> {
        let sql = format!(
            "SELECT pipeline, value FROM {} WHERE kind = '{PIPELINE}' ORDER BY pipeline COLLATE \"C\" {lock}",
            self.state
        );
        client.query(&sql, &[]).await
    }

    pub(super) async fn pipelines(
        &self,
        client: &Timed<impl GenericClient>,
        lock: &str,
    ) -> Result<Result<Vec<StoredPipeline>, StoreError>, Error> {
        let rows = self.pipeline_rows(client, lock).await?;
        Ok(rows.iter().map(|row| understand(row.get(0), row.get(1))).collect())
    }
}

/// Serializes a pipeline; the error keeps an invalid one from being stored.
pub(super) fn json(pipeline: &StoredPipeline) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(pipeline)
        .map_err(|error| StoreError::Damaged(format!("pipeline {} cannot be written: {error}", pipeline.id)))
}

/// Returns bytes that the server cannot compress.
fn incompressible(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..bytes).map(|_| next()).collect()
}
