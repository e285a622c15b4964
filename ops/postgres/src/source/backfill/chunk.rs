//! Reads a chunk of a table.

use std::sync::Arc;
use std::time::Duration;

use anabranch_record::Position;
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::text::Str;
use tokio::time::Instant;

use super::super::copy::row;
use super::super::database::Database;
use super::super::fault::{ServerError, WireError};
use super::super::guard::write_message;
use super::super::lsn::Lsn;
use super::super::pgoutput::{Cell, Tuple};
use super::super::publication::{self, Publication};
use super::super::record::{Layout, Origin, Schemas, SentColumn};
use super::super::slot::oldest_writer;
use super::super::tables::{self, Table};
use super::super::wire::{Messages, Session, literal};
use super::stored::{KeyTexts, Part};
use super::window::{ChunkRow, RowKey, Visible};
use super::{TableBackfill, check_key};
use crate::address::Address;
use crate::codes;
use crate::name::Quoted;

/// Approximate size of a chunk, in bytes of the values as texts.
const BYTES: usize = 1 << 20;
/// Size at which a chunk with several rows is given up, because its rows are much larger than those before.
const TOO_MANY: usize = 8 * BYTES;
/// Rows of the first chunk, when the size of rows is not known.
const FIRST: usize = 256;
/// The transactions that a statement sees, and a place in the log after all of them, which is looked up later.
const VISIBLE: &str = "SELECT pg_catalog.pg_current_snapshot()::pg_catalog.text, \
     pg_catalog.pg_current_wal_insert_lsn()::pg_catalog.text";
/// Maximum number of rows that are read again at once. Fewer wait until all rows were read.
const AGAIN: usize = 256;
/// Time after which the log names the transaction that a chunk waits for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Rows of a table, as one statement saw them.
#[derive(Debug)]
pub(in super::super) struct Chunk {
    /// The rows, in the order of the key.
    pub(in super::super) rows: Vec<ChunkRow>,
    /// The transactions that it contains.
    pub(in super::super) visible: Visible,
    /// All transactions that it contains were committed before this place in the log.
    pub(in super::super) until: Lsn,
    /// The part of the table.
    pub(in super::super) part: Part,
    /// Keys of rows that are to be read again.
    pub(in super::super) again: Vec<KeyTexts>,
    /// The fault of the rows, if the columns of the table are not accepted.
    pub(in super::super) fault: Option<Box<Fault>>,
}

/// What a look at a table found.
#[derive(Debug)]
pub(in super::super) enum Looked {
    /// Rows.
    Chunk(Chunk),
    /// Transactions that began before the stream was watched have not ended: it is not known whether the stream had their
    /// changes.
    Waits,
    /// The table does not exist any more, or its rows cannot be continued.
    Gone,
}

/// Reads chunks, with a connection of its own.
pub(in super::super) struct ChunkReader {
    pub(in super::super) address: Arc<Address>,
    pub(in super::super) publication: Option<Publication>,
    pub(in super::super) schemas: Option<Arc<Schemas>>,
    /// Maximum number of rows of a chunk.
    pub(in super::super) rows: usize,
    database: Option<Database>,
    /// Number of rows of the next chunk.
    limit: usize,
    /// A transaction that began after the stream was first watched; `None` before the first look.
    watched_from: Option<u64>,
    /// Since when it waits for transactions from before; `None` if it does not, or if the log says so already.
    waits_since: Option<Instant>,
    /// How the rows of the table become records, while its columns stay.
    layout: Option<(Table, Layout)>,
}

impl ChunkReader {
    pub(in super::super) fn new(
        address: Arc<Address>,
        publication: Option<Publication>,
        schemas: Option<Arc<Schemas>>,
        rows: usize,
    ) -> ChunkReader {
        let limit = FIRST.min(rows);
        let (database, watched_from, waits_since, layout) = (None, None, None, None);
        ChunkReader { address, publication, schemas, rows, database, limit, watched_from, waits_since, layout }
    }

    /// Reads the next rows of a table. From the first call on, the ids of all transactions of the stream must be noted.
    ///
    /// # Errors
    /// The server cannot answer, or the table has no key any more.
    pub(in super::super) async fn look(&mut self, task: &TableBackfill) -> Result<Looked, Fault> {
        let mut database = match self.database.take() {
            Some(database) => database,
            None => Database::connect(&self.address, Session::Queries).await?,
        };
        let watched_from = match self.watched_from {
            Some(id) => id,
            // The ids of all transactions that began before are lower. Those in a snapshot end with the last that has ended.
            None => {
                let sql = "SELECT pg_catalog.pg_current_xact_id()::pg_catalog.text";
                let id = database.value("asking for the id of a transaction", sql).await?;
                let id = id.and_then(|text| text.parse().ok()).unwrap_or(u64::MAX);
                *self.watched_from.insert(id)
            }
        };
        loop {
            let looked = self.look_with(&mut database, task, watched_from).await?;
            match looked {
                Some(looked) => {
                    // The transaction holds back the cleaning of tables.
                    database.rows("ending the reading of a chunk", "COMMIT").await?;
                    // Without it, the stream may not come to the place of the chunk until others write.
                    write_message(&mut database).await;
                    self.database = Some(database);
                    return Ok(looked);
                }
                // The copy that was given up ends with its connection.
                None => database = Database::connect(&self.address, Session::Queries).await?,
            }
        }
    }

    /// Looks in a transaction, which stays open. `None` if the rows are too large for the chunk.
    async fn look_with(
        &mut self,
        database: &mut Database,
        task: &TableBackfill,
        watched_from: u64,
    ) -> Result<Option<Looked>, Fault> {
        let what = format!("reading the table {}", task.title);
        let Some(found) = tables::by_oid(database, task.oid).await? else { return Ok(Some(Looked::Gone)) };
        let schemas = key_schemas(database, &found).await?;
        let path = ["pg_catalog".into()].into_iter().chain(schemas).map(|name| Quoted(&name).to_string());
        let path = path.collect::<Vec<_>>().join(", ");
        // A table that was rewritten or emptied by a transaction that is not visible would seem to be empty, so it is locked
        // before the first look.
        let sql = format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL search_path = {path}; \
             LOCK TABLE {} IN ACCESS SHARE MODE",
            found.sql()
        );
        match database.wire.query(&sql).await {
            Ok(_) => {}
            // It was dropped or renamed just now.
            Err(error) if error.state() == Some("42P01") => {
                return Err(database.fault(&what, error).with_class(FaultClass::Transient));
            }
            Err(error) => return Err(database.fault(&what, error)),
        }
        let mut found =
            database.rows(&what, VISIBLE).await?.into_iter().next().unwrap_or_default().into_iter().flatten();
        let visible = found.next().as_deref().and_then(Visible::parse);
        let until = found.next().and_then(|text| text.parse().ok());
        let (Some(visible), Some(until)) = (visible, until) else {
            let text = format!("{what}: the server does not say which transactions it sees");
            return Err(Fault::fatal(codes::POSTGRES_REFUSED, text));
        };
        if visible.oldest < watched_from {
            self.tell_of_wait(database, task).await;
            return Ok(Some(Looked::Waits));
        }
        self.waits_since = None;
        let Some(table) = tables::by_oid(database, task.oid).await? else { return Ok(Some(Looked::Gone)) };
        check_key(&table)?;
        self.describe(database, &table).await?;
        if table.identity_key() != task.key {
            return Ok(Some(Looked::Gone));
        }
        let keys = match task.is_read || task.again.len() >= AGAIN {
            true => &task.again[..task.again.len().min(AGAIN)],
            false => &[],
        };
        let sql = self.sql(&table, task, keys);
        let Some((rows, last)) = self.copy(database, &what, &sql, until).await? else { return Ok(None) };
        let part = match last {
            _ if !keys.is_empty() => Part::Again(keys.to_vec()),
            Some(last) => Part::Until(last),
            None => Part::Rest,
        };
        Ok(Some(Looked::Chunk(Chunk { rows, visible, until, part, again: Vec::new(), fault: None })))
    }

    async fn tell_of_wait(&mut self, database: &mut Database, task: &TableBackfill) {
        let since = *self.waits_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= PATIENCE {
            self.waits_since = Some(Instant::now() + 12 * PATIENCE);
            let oldest = oldest_writer(database).await;
            tracing::warn!(
                table = task.title.as_str(),
                oldest,
                "the rows of a table are read when the transactions that were writing before have ended"
            );
        }
    }

    /// Finds out how rows become records.
    async fn describe(&mut self, database: &mut Database, table: &Table) -> Result<(), Fault> {
        if self.layout.as_ref().is_some_and(|(known, _)| known == table) {
            return Ok(());
        }
        let columns = self.columns(table);
        let oids: Vec<u32> = columns.iter().map(|column| column.type_id).collect();
        let mut layout = Layout::new(table, &columns, &tables::types(database, &oids).await?);
        if let Some(schemas) = &self.schemas {
            layout.register(table, schemas).await?;
        }
        self.layout = Some((table.clone(), layout));
        Ok(())
    }

    fn columns(&self, table: &Table) -> Vec<SentColumn> {
        publication::sent(self.publication.as_ref(), table)
    }

    /// Returns the table of the last chunk, and its columns.
    pub(in super::super) fn described(&self) -> Option<(Table, Vec<SentColumn>)> {
        let (table, _) = self.layout.as_ref()?;
        Some((table.clone(), self.columns(table)))
    }

    /// Returns the statement that reads the rows with some keys, or the next ones.
    fn sql(&self, table: &Table, task: &TableBackfill, keys: &[KeyTexts]) -> String {
        let key = table.identity_key();
        let columns = crate::name::list(self.columns(table).iter().map(|column| column.name.as_str()));
        let key_columns = crate::name::list(key.iter().map(Str::as_str));
        let mut conditions = Vec::new();
        let row = |values: &KeyTexts| {
            let column = |name: &Str| table.columns().iter().find(|column| column.name == *name);
            let values = key.iter().zip(values).map(|(name, value)| {
                let sql_type = column(name).map_or("text", |column| &*column.sql_type);
                format!("{}::{sql_type}", literal(value))
            });
            format!("({})", values.collect::<Vec<_>>().join(", "))
        };
        match (&task.after, keys) {
            (Some(after), []) => conditions.push(format!("({key_columns}) > {}", row(after))),
            (None, []) => {}
            (_, keys) => {
                conditions
                    .push(format!("({key_columns}) IN ({})", keys.iter().map(row).collect::<Vec<_>>().join(", ")));
            }
        }
        if let Some(filter) = self.publication.as_ref().and_then(|publication| publication.filter(table)) {
            conditions.push(filter.to_string());
        }
        let condition = match conditions.is_empty() {
            true => String::new(),
            false => format!(" WHERE ({})", conditions.join(") AND (")),
        };
        let only = if table.kind == 'p' { "" } else { "ONLY " };
        let limit = if keys.is_empty() { self.limit } else { keys.len() };
        format!(
            "COPY (SELECT {columns} FROM {only}{}{condition} ORDER BY {key_columns} LIMIT {limit}) TO STDOUT",
            table.sql()
        )
    }

    async fn copy(
        &mut self,
        database: &mut Database,
        what: &str,
        sql: &str,
        until: Lsn,
    ) -> Result<Option<(Vec<ChunkRow>, Option<KeyTexts>)>, Fault> {
        let Some((table, layout)) = &mut self.layout else { return Ok(None) };
        if let Err(error) = database.wire.copy(sql).await {
            return Err(database.fault(what, error));
        }
        let origin = Origin::Snapshot { at: until, is_resumed: false };
        let (mut rows, mut bytes, mut last): (Vec<ChunkRow>, usize, Option<Tuple>) = (Vec::new(), 0, None);
        loop {
            let chunk = database.wire.chunk().await.map_err(|error| database.fault(what, error))?;
            for message in Messages(chunk) {
                let error = match message.tag {
                    b'd' => match row(&message.body, layout.width()) {
                        Some(row) => {
                            bytes += message.body.len();
                            let key = table.identity_key().iter().map(|name| layout.cell(&row, name));
                            let Some(key) = RowKey::of(key) else {
                                let text = format!("{what}: a row has a key that is null");
                                return Err(Fault::fatal(codes::IDENTITY_MISSING, text));
                            };
                            rows.push((key, Some(layout.snapshot(Position::default(), origin, &row))));
                            last = Some(row);
                            continue;
                        }
                        None => WireError::Protocol("a row does not have the expected columns"),
                    },
                    b'c' | b'C' | b'N' | b'S' => continue,
                    b'Z' => {
                        let is_last = rows.len() < self.limit;
                        let mean = bytes / rows.len().max(1);
                        self.limit = (BYTES / mean.max(1)).clamp(1, self.rows);
                        let after = match last.filter(|_| !is_last) {
                            Some(row) => Some(texts(table, layout, &row)?),
                            None => None,
                        };
                        return Ok(Some((rows, after)));
                    }
                    b'E' => WireError::Server(ServerError::parse(&message.body)),
                    _ => WireError::Protocol("an unexpected message is in a copy"),
                };
                return Err(database.fault(what, error));
            }
            if bytes > TOO_MANY && rows.len() > 1 {
                self.limit = (rows.len() / 8).max(1);
                return Ok(None);
            }
        }
    }
}

/// Returns the key of a row as texts.
fn texts(table: &Table, layout: &Layout, row: &Tuple) -> Result<Vec<String>, Fault> {
    let text = |name: &Str| match layout.cell(row, name) {
        Some(Cell::Text(text)) => String::from_utf8(text.to_vec()).ok(),
        _ => None,
    };
    let texts: Option<Vec<String>> = table.identity_key().iter().map(text).collect();
    texts.ok_or_else(|| {
        let text = format!("the key of a row of the table {} is not a text in UTF-8", table.title());
        Fault::fatal(codes::SOURCE_TABLE, text)
    })
}

/// Returns the schemas of the types of a table's key, whose operators compare its values.
async fn key_schemas(database: &mut Database, table: &Table) -> Result<Vec<String>, Fault> {
    let key = table.identity_key();
    let columns = table.columns().iter().filter(|column| key.contains(&column.name));
    let oids: Vec<String> = columns.map(|column| column.type_id.to_string()).collect();
    if oids.is_empty() {
        return Ok(Vec::new());
    }
    let sql = format!(
        "SELECT DISTINCT n.nspname FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
        WHERE t.oid IN ({}) AND n.nspname <> 'pg_catalog'",
        oids.join(", ")
    );
    let rows = database.rows("looking up the types of a key", &sql).await?;
    Ok(rows.into_iter().filter_map(|row| row.into_iter().next().flatten()).collect())
}
