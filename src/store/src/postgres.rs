//! The store in a table of PostgreSQL.
//!
//! One connection runs on its own thread, so that it does not depend on the runtime of the caller. All writes that wait
//! when the connection is free are written in one transaction. If the connection is lost, it is opened again and the
//! transaction is repeated. So every write may happen twice: a claim then takes a later number. Marks are fenced by the
//! number of the claim within the transaction that stores them, so a repeated write never overwrites the marks of a
//! later owner. A process that does not own the store any more abandons its writes.
//!
//! A server that is silent for too long counts as lost. It may still commit a transaction that was repeated meanwhile.
//! This does not overwrite anything either: the commit is sent only after every statement was answered, so the first
//! transaction holds its rows until it ends, and the repeated one waits for them.

mod amended;
mod connection;
mod contents;
mod hints;
mod imports;
mod leases;
mod letters;
mod owner;
mod schemas;
mod session;
mod table;
mod units;
mod upgrade;

use std::future::pending;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use anabranch_plugin::backoff::Backoff;
use anabranch_plugin::state::StoreError;
use anabranch_settings::PostgresDatabase;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout};

use crate::owner::{Owner, StoreOwnership};
use crate::request::{Read, ReadResult, Write, WriteResult};
use connection::{Address, is_passing};
pub(crate) use hints::Hints;
pub(crate) use leases::Leases;
pub(crate) use owner::Ownership;
use session::{Client, Failure, Session};
use table::Table;

/// Makes the server release the locks of a node that is paused within a transaction before its lease of 6 s is over: the next
/// node waits for the rows of its units.
const RELEASE: &str = "SET LOCAL idle_in_transaction_session_timeout = '4s'";

/// Maximum attempts of a request. The waits start at 100 ms and double up to 2 s: about 5 s in total, plus the time
/// limits of a silent server. After that the pipelines recover, which takes longer.
const ATTEMPTS: u32 = 7;
const WAITS: Backoff = Backoff::doubling(Duration::from_millis(100), Duration::from_secs(2));
/// How long an unreachable server is considered unreachable: reads are refused immediately, so that commands and probes
/// get an answer. After that each request is tried once, without repetition, until one succeeds.
const AWAY: Duration = Duration::from_secs(1);
/// Time limit for a connection to a server that was unreachable.
const AWAY_OPENING: Duration = Duration::from_secs(2);

/// Time limit for an answer to a node of a cluster. A network may drop its connections without closing them, and let new ones
/// pass, so that it keeps its lease. Longer than a paused node keeps its locks, see [`RELEASE`].
const SHARED_SILENCE: Duration = Duration::from_secs(6);

/// Why the store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PostgresError {
    /// The address or the name of the table is not valid.
    #[error("{key}: {what}")]
    Setting {
        /// The setting.
        key: &'static str,
        /// The error.
        what: String,
    },
    /// The server cannot be reached, or refuses the connection.
    #[error("the store in PostgreSQL at {server} cannot be opened: {what}")]
    Server {
        /// Hosts and ports.
        server: String,
        /// Its message.
        what: String,
    },
    /// The table is not a store.
    #[error("the table {table} is not a store of Anabranch: it was not changed; set another db.postgres.table")]
    Foreign {
        /// Its name.
        table: String,
    },
    /// The table does not exist.
    #[error("there is no table {table} in the database")]
    Missing {
        /// Its name.
        table: String,
    },
    /// Another store is copied into the table, or was.
    #[error(
        "a copy into this store has not ended: wait for it; if it was interrupted, remove what it has written (DROP TABLE \
         IF EXISTS {tables}), and copy again"
    )]
    Unfinished {
        /// The tables of the store, for SQL.
        tables: String,
    },
    /// A later version wrote the table.
    #[error(
        "the store in table {table} has version {found}, but this program supports versions up to {known}: use the \
         program that wrote it"
    )]
    Newer {
        /// The table.
        table: String,
        /// Its version.
        found: i64,
        /// The latest version that this program knows.
        known: u64,
    },
    /// A system call failed.
    #[error("the store in PostgreSQL cannot be opened: {0}")]
    System(std::io::Error),
}

impl PostgresError {
    /// Returns `true` if the error may disappear by itself: the server is unreachable, or does not accept the login
    /// yet.
    pub(super) fn is_passing(&self) -> bool {
        matches!(self, PostgresError::Server { .. })
    }
}

/// Why a process cannot become the owner of the store.
pub(super) enum TakeError {
    /// The server cannot be reached, or refuses.
    Refused(PostgresError),
    /// Another process owns the store; its name, if known.
    InUse(Option<Owner>),
    /// The nodes of a cluster use the store; the name of one of them.
    Cluster(String),
}

enum Request {
    Read(Read, oneshot::Sender<Result<ReadResult, StoreError>>),
    Write(Write, oneshot::Sender<Result<WriteResult, StoreError>>),
    Held(watch::Receiver<StoreOwnership>),
}

/// A handle; clones share it. The connection closes when the last clone is dropped.
#[derive(Clone)]
pub(super) struct Postgres {
    requests: mpsc::UnboundedSender<Request>,
}

/// Makes this process the owner of an open store.
pub(super) fn own(database: &PostgresDatabase, name: &Owner) -> Result<Ownership, TakeError> {
    let address = Address::parse(&database.connection).map_err(TakeError::Refused)?;
    let table = Table::parse(&database.table).map_err(TakeError::Refused)?;
    Ownership::take(address, table, name)
}

/// Returns the location of the store for messages, without the password.
pub(super) fn place(database: &PostgresDatabase) -> String {
    let hosts =
        Address::parse(&database.connection).map_or_else(|_| String::new(), |address| address.hosts().to_owned());
    format!("{} in PostgreSQL at {hosts}", database.table)
}

impl Postgres {
    /// Connects, and creates the table if it does not exist. Waits for the server.
    pub(super) fn open(database: &PostgresDatabase) -> Result<Postgres, PostgresError> {
        Postgres::start(Address::parse(&database.connection)?, Table::parse(&database.table)?)
    }

    /// Connects to a table that exists.
    pub(super) fn open_existing(database: &PostgresDatabase) -> Result<Postgres, PostgresError> {
        let table = Table::parse(&database.table)?;
        table.must_exist.set(true);
        Postgres::start(Address::parse(&database.connection)?, table)
    }

    /// Opens the tables as a node of a cluster, which does not own them alone.
    pub(super) fn open_shared(database: &PostgresDatabase) -> Result<Postgres, PostgresError> {
        let table = Table::parse(&database.table)?;
        table.is_shared.set(true);
        let mut address = Address::parse(&database.connection)?;
        address.limits.statement = SHARED_SILENCE;
        Postgres::start(address, table)
    }

    fn start(address: Address, table: Table) -> Result<Postgres, PostgresError> {
        let (requests, waiting) = mpsc::unbounded_channel();
        let (opened, is_open) = sync_channel(1);
        let runtime = anabranch_process::runtime::start(&mut tokio::runtime::Builder::new_current_thread())
            .map_err(PostgresError::System)?;
        let keep = ConnectionTask { address, table, session: None, away: None, holding: None };
        let live = move || runtime.block_on(keep.live(waiting, |result| drop(opened.send(result))));
        std::thread::Builder::new().name("state-store".to_owned()).spawn(live).map_err(PostgresError::System)?;
        let gone = || PostgresError::System(std::io::Error::other("its thread has ended"));
        is_open.recv().map_err(|_| gone())??;
        Ok(Postgres { requests })
    }

    pub(super) async fn read(&self, read: Read) -> Result<ReadResult, StoreError> {
        let (done, found) = oneshot::channel();
        self.ask(Request::Read(read, done))?;
        found.await.map_err(|_| gone())?
    }

    pub(super) async fn write(&self, write: Write) -> Result<WriteResult, StoreError> {
        let (done, written) = oneshot::channel();
        self.ask(Request::Write(write, done))?;
        written.await.map_err(|_| gone())?
    }

    /// Sets the ownership to observe: writes are abandoned once this process does not own the store any more.
    pub(super) fn held(&self, holding: watch::Receiver<StoreOwnership>) {
        // If the thread has ended, nothing is written.
        let _ = self.requests.send(Request::Held(holding));
    }

    fn ask(&self, request: Request) -> Result<(), StoreError> {
        self.requests.send(request).map_err(|_| gone())
    }
}

fn gone() -> StoreError {
    StoreError::Unavailable("the connection of the state store has ended".into())
}

/// Owner of the connection.
struct ConnectionTask {
    address: Address,
    table: Table,
    session: Option<Session>,
    /// When and why the server was last found unreachable; `None` while it answers.
    away: Option<(Instant, String)>,
    /// Whether this process owns the store; `None` if it only reads.
    holding: Option<watch::Receiver<StoreOwnership>>,
}

impl ConnectionTask {
    async fn live(
        mut self,
        mut requests: mpsc::UnboundedReceiver<Request>,
        opened: impl FnOnce(Result<(), PostgresError>),
    ) {
        let result = self.open().await;
        let failed = result.is_err();
        opened(result);
        if failed {
            return;
        }
        while let Some(first) = requests.recv().await {
            let mut writes = Vec::new();
            let mut reads = Vec::new();
            let mut next = Some(first);
            while let Some(request) = next {
                match request {
                    Request::Read(read, done) => reads.push((read, done)),
                    Request::Write(write, done) => writes.push((write, done)),
                    Request::Held(holding) => self.holding = Some(holding),
                }
                next = requests.try_recv().ok();
            }
            self.write(writes).await;
            for (read, done) in reads {
                // A request that arrives just after the server was found unreachable does not wait for it as well.
                let found = match &self.away {
                    Some((since, why)) if since.elapsed() < AWAY => Err(StoreError::Unavailable(why.clone().into())),
                    _ => self.read(&read).await,
                };
                let _ = done.send(found);
            }
        }
    }

    async fn open(&mut self) -> Result<(), PostgresError> {
        let mut session = self.address.connect().await.map_err(|error| self.address.refused(&error))?;
        let limit = self.address.limits.opening;
        let known = timeout(limit, self.table.prepare(session.client())).await.unwrap_or(Err(Failure::Silent(limit)));
        self.session = Some(session);
        match known.map_err(|error| self.address.refused(&error))? {
            table::Prepared::Ready => Ok(()),
            table::Prepared::Missing => Err(PostgresError::Missing { table: self.table.name().to_owned() }),
            table::Prepared::Foreign => Err(PostgresError::Foreign { table: self.table.name().to_owned() }),
            table::Prepared::Unfinished => Err(PostgresError::Unfinished { tables: self.table.all() }),
            table::Prepared::Newer(found) => {
                Err(PostgresError::Newer { table: self.table.name().to_owned(), found, known: crate::tables::SCHEMA })
            }
        }
    }

    /// Returns the connection; opens it again if it was lost.
    async fn connected(&mut self) -> Result<(&Table, &mut Client), Failure> {
        let ConnectionTask { address, table, session, away, holding: _ } = self;
        let before = session.take().filter(|live| !live.is_closed());
        // A server that was restored from a backup may have the tables of an earlier version.
        table.is_current.set(table.is_current.get() && before.is_some());
        let live = match before {
            Some(live) => live,
            _ if away.is_some() => {
                let connecting = timeout(AWAY_OPENING, address.connect());
                connecting.await.unwrap_or(Err(Failure::Silent(AWAY_OPENING)))?
            }
            _ => address.connect().await?,
        };
        Ok((table, session.insert(live).client()))
    }

    async fn write(&mut self, requests: Vec<(Write, oneshot::Sender<Result<WriteResult, StoreError>>)>) {
        if requests.is_empty() {
            return;
        }
        let (writes, done): (Vec<_>, Vec<_>) = requests.into_iter().unzip();
        let mut attempts = Attempts::new();
        let mut holding = self.holding.clone();
        loop {
            let outcome = tokio::select! {
                biased;
                // A claim made later would take a pipeline away from the next owner.
                why = lost(holding.as_mut()) => {
                    self.session = None;
                    let failed = || Err(StoreError::Unavailable(why.clone().into()));
                    done.into_iter().for_each(|done| drop(done.send(failed())));
                    return;
                }
                outcome = self.transact(&writes) => outcome,
            };
            match outcome {
                Ok(outcomes) => {
                    self.answered(&attempts);
                    done.into_iter().zip(outcomes).for_each(|(done, outcome)| drop(done.send(outcome)));
                    return;
                }
                Err(error) => {
                    if !self.may_repeat(&mut attempts, &error).await {
                        let failed = || Err(StoreError::Unavailable(connection::message(&error).into()));
                        done.into_iter().for_each(|done| drop(done.send(failed())));
                        return;
                    }
                }
            }
        }
    }

    async fn transact(&mut self, writes: &[Write]) -> Result<Vec<Result<WriteResult, StoreError>>, Failure> {
        let (table, client) = self.connected().await?;
        table.upgrade(client).await?;
        let transaction = client.transaction().await?;
        let release = async {
            match table.is_shared.get() {
                // Within the transaction, because a pooler gives each one another session.
                true => transaction.batch_execute(RELEASE).await,
                false => Ok(()),
            }
        };
        // Sent together with the first write, and before it.
        let (released, outcomes) = tokio::join!(biased; release, table.apply(&transaction, writes));
        released?;
        let outcomes = outcomes?;
        transaction.commit().await?;
        Ok(outcomes)
    }

    async fn read(&mut self, read: &Read) -> Result<ReadResult, StoreError> {
        let mut attempts = Attempts::new();
        loop {
            let found = match self.connected().await {
                Ok((table, client)) => table.find(client, read).await,
                Err(error) => Err(error),
            };
            match found {
                Ok(found) => {
                    self.answered(&attempts);
                    return found;
                }
                Err(error) => {
                    if !self.may_repeat(&mut attempts, &error).await {
                        return Err(StoreError::Unavailable(connection::message(&error).into()));
                    }
                }
            }
        }
    }

    /// Waits before the next attempt. Returns `false` if there is none.
    async fn may_repeat(&mut self, attempts: &mut Attempts, error: &Failure) -> bool {
        let passing = is_passing(error);
        match error {
            Failure::Silent(_) => {
                self.session = None;
                attempts.silent = true;
                // Logged here, because it takes minutes until the pipelines report it.
                tracing::warn!("the state store in PostgreSQL at {} does not respond: {error}", self.address.hosts());
            }
            Failure::Postgres(error) if error.is_closed() || error.as_db_error().is_none() => self.session = None,
            Failure::Postgres(_) => {}
        }
        tracing::debug!(error = connection::message(error), passing, "the state store failed");
        if passing && self.away.is_none() && attempts.wait().await {
            return true;
        }
        if passing {
            self.away = Some((Instant::now(), connection::message(error)));
        }
        false
    }

    /// Records that the server answered.
    fn answered(&mut self, attempts: &Attempts) {
        if self.away.take().is_some() || attempts.silent {
            tracing::info!("the state store responds again");
        }
    }
}

/// Waits until another process may own the store. Returns the reason.
async fn lost(holding: Option<&mut watch::Receiver<StoreOwnership>>) -> String {
    let Some(holding) = holding else { return pending().await };
    let lost =
        holding.wait_for(|holding| matches!(holding, StoreOwnership::Paused(_) | StoreOwnership::Taken(_))).await;
    match lost.ok().and_then(|lost| lost.refusal().map(str::to_owned)) {
        Some(why) => why,
        None => pending().await,
    }
}

struct Attempts {
    failures: u32,
    silent: bool,
}

impl Attempts {
    fn new() -> Self {
        Attempts { failures: 0, silent: false }
    }

    async fn wait(&mut self) -> bool {
        self.failures += 1;
        if self.failures >= ATTEMPTS {
            return false;
        }
        tokio::time::sleep(WAITS.after(self.failures)).await;
        true
    }
}

#[cfg(test)]
#[path = "../../../tests/it/servers/proxy.rs"]
mod proxy;
#[cfg(test)]
#[path = "../../../tests/it/servers/postgres.rs"]
pub(crate) mod server;
#[cfg(test)]
mod tests;
