//! Exclusive ownership of a store.
//!
//! The owner holds an advisory lock in a session of its own and writes its name and a heartbeat into a row. The lock
//! ends with the session: immediately when the process ends; when its machine or the network fails, as soon as the
//! server notices, which the settings of the session limit to about 25 s. The heartbeat covers the time until then: a
//! process that lost the session stops its pipelines [`SAFE`] after the last heartbeat, and the next owner begins
//! [`LEASE`] after it, by the clock of the server, unless the previous owner released the store. So two processes never
//! own the store at the same time.

use std::sync::mpsc::sync_channel;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, timeout};

use super::connection::{Address, message};
use super::session::{Client, Failure, Session};
use super::table::{Table, unsigned};
use super::{PostgresError, TakeError};
use crate::owner::{Owner, StoreOwnership};

/// Time between two heartbeats.
const BEAT: Duration = Duration::from_secs(2);
/// A process whose last heartbeat is older than this must not run pipelines.
const SAFE: Duration = Duration::from_secs(6);
/// The next owner begins when the last heartbeat of the previous one is older than this.
pub(super) const LEASE: Duration = Duration::from_secs(10);
/// Time between two attempts to take the lock again.
const AGAIN: Duration = Duration::from_millis(500);
/// Time limit for an answer of the server.
const ANSWER: Duration = Duration::from_secs(2);

/// Makes the server notice within about 25 s that the machine of the owner failed.
const KEEPALIVE: &str = "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3";

/// Kind of the row with the owner.
pub(super) const OWNER: &str = "owner";

/// The ownership of this process. Dropping it releases the store some time later; [`Ownership::release`] waits until it
/// is released.
pub(crate) struct Ownership {
    orders: mpsc::Sender<oneshot::Sender<()>>,
    holding: watch::Receiver<StoreOwnership>,
}

impl Ownership {
    /// Becomes the owner, or returns the current owner as an error. Waits for the lease of an owner that did not
    /// release the store.
    pub(super) fn take(mut address: Address, table: Table, name: &Owner) -> Result<Ownership, TakeError> {
        address.limits.statement = ANSWER;
        let system = |error| TakeError::Refused(PostgresError::System(error));
        let runtime =
            anabranch_process::runtime::start(&mut tokio::runtime::Builder::new_current_thread()).map_err(system)?;
        let (orders, waiting) = mpsc::channel(1);
        let (tell, holding) = watch::channel(StoreOwnership::Held);
        let (taken, is_taken) = sync_channel(1);
        let name = serde_json::to_vec(name).map_err(|error| system(std::io::Error::other(error)))?;
        let hold = move || {
            runtime.block_on(async {
                let mut claim = Claim { address, table, name, session: None, process: 0, beat: Instant::now() };
                match claim.take().await {
                    Ok(()) => {
                        let _ = taken.send(Ok(()));
                        claim.hold(waiting, tell).await;
                    }
                    Err(refused) => drop(taken.send(Err(refused))),
                }
            });
        };
        std::thread::Builder::new().name("store-owner".to_owned()).spawn(hold).map_err(system)?;
        is_taken.recv().map_err(|_| system(std::io::Error::other("its thread has ended")))??;
        Ok(Ownership { orders, holding })
    }

    /// Returns a receiver of whether this process still is the owner.
    pub(crate) fn holding(&self) -> watch::Receiver<StoreOwnership> {
        self.holding.clone()
    }

    /// Lets the next owner begin immediately. Waits for the server, at most two times [`ANSWER`].
    pub(crate) async fn release(&self) {
        let (done, is_done) = oneshot::channel();
        if self.orders.send(done).await.is_ok() {
            let _ = timeout(ANSWER * 2, is_done).await;
        }
    }
}

/// Result of an attempt to take the lock.
enum LockAttempt {
    /// This session holds the lock, and the row belongs to this process or is free.
    Ours,
    /// This session holds the lock; the previous owner did not release the store, and its last heartbeat is this old.
    Left { ago: Duration, by: Vec<u8> },
    /// Another session holds the lock; the row names its owner.
    Others(Vec<u8>),
}

struct Claim {
    address: Address,
    table: Table,
    /// The value of the row while this process is the owner.
    name: Vec<u8>,
    session: Option<Session>,
    /// The server process id of the latest session.
    process: i32,
    /// When the latest successful heartbeat was sent.
    beat: Instant,
}

impl Claim {
    async fn take(&mut self) -> Result<(), TakeError> {
        loop {
            match self.try_lock().await.map_err(|error| self.refused(&error))? {
                LockAttempt::Ours => {}
                LockAttempt::Left { ago, by } if ago < LEASE => {
                    let by = understood(&by).map_or_else(|| "another process".to_owned(), |owner| owner.to_string());
                    let wait = (LEASE - ago).as_secs_f64();
                    tracing::info!("{by} did not release the state store: waiting {wait:.1} s for its lease to end");
                    sleep(LEASE - ago).await;
                    continue;
                }
                LockAttempt::Left { .. } => {}
                LockAttempt::Others(by) => return Err(TakeError::InUse(understood(&by))),
            }
            if let Some(node) = self.node().await.map_err(|error| self.refused(&error))? {
                self.session = None;
                return Err(TakeError::Cluster(node));
            }
            self.beat = Instant::now();
            return self.write().await.map_err(|error| self.refused(&error));
        }
    }

    fn refused(&self, error: &Failure) -> TakeError {
        TakeError::Refused(self.address.refused(error))
    }

    /// Keeps the lock until it is ordered to release it, or the sender of orders is gone.
    async fn hold(mut self, mut orders: mpsc::Receiver<oneshot::Sender<()>>, holding: watch::Sender<StoreOwnership>) {
        let mut wait = BEAT;
        loop {
            let order = tokio::select! {
                order = orders.recv() => Some(order),
                () = sleep(wait) => None,
            };
            if let Some(order) = order {
                let _ = timeout(ANSWER, self.clear()).await;
                if let Some(done) = order {
                    let _ = done.send(());
                }
                return;
            }
            let renewed = timeout(ANSWER, self.renew()).await;
            let now = match renewed.unwrap_or(Err(Failure::Silent(ANSWER))) {
                Ok(now) => now,
                Err(error) => {
                    self.session = None;
                    let what = message(&error);
                    if self.beat.elapsed() < SAFE {
                        tracing::debug!(error = what, "the session that owns the state store is lost");
                        wait = AGAIN;
                        continue;
                    }
                    StoreOwnership::Paused(format!(
                        "the session by which this service owns the state store is lost ({what}); another service may \
                         take the store"
                    ))
                }
            };
            wait = if now == StoreOwnership::Held { BEAT } else { AGAIN };
            let is_taken = matches!(now, StoreOwnership::Taken(_));
            holding.send_if_modified(|before| {
                let differs = std::mem::discriminant(before) != std::mem::discriminant(&now);
                if differs {
                    *before = now;
                }
                differs
            });
            if is_taken {
                return;
            }
        }
    }

    /// Sends a heartbeat in the session that has the lock, or in a new session.
    async fn renew(&mut self) -> Result<StoreOwnership, Failure> {
        let asked = Instant::now();
        if self.session.as_ref().is_some_and(|session| !session.is_closed()) {
            self.write().await?;
            self.beat = asked;
            return Ok(StoreOwnership::Held);
        }
        self.session = None;
        let before = self.process;
        let taken = |by: &[u8]| {
            let by = understood(by).map_or_else(|| "another service".to_owned(), |owner| owner.to_string());
            StoreOwnership::Taken(format!("the state store was taken by {by}"))
        };
        match self.try_lock().await? {
            LockAttempt::Ours => {
                self.write().await?;
                self.beat = asked;
                Ok(StoreOwnership::Held)
            }
            // Another process had the lock meanwhile and has ended: the stored state differs from the state of this
            // process.
            LockAttempt::Left { by, .. } => Ok(taken(&by)),
            LockAttempt::Others(by) if by != self.name => Ok(taken(&by)),
            LockAttempt::Others(_) => {
                // The server has not noticed yet that the old session is gone, or the next owner waits for the lease.
                let sql = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND pid = $1";
                self.client().await?.query(sql, &[&before]).await?;
                self.process = before;
                self.session = None;
                if self.beat.elapsed() < SAFE {
                    return Ok(StoreOwnership::Held);
                }
                let what = "another session holds the lock of the state store: an earlier session of this service that the \
                            server has not ended yet, or a session of another service";
                Ok(StoreOwnership::Paused(what.to_owned()))
            }
        }
    }

    async fn client(&mut self) -> Result<&mut Client, Failure> {
        let live = match self.session.take() {
            Some(live) if !live.is_closed() => live,
            _ => {
                let mut live = self.address.connect().await?;
                live.client().batch_execute(KEEPALIVE).await?;
                // Visible to administrators of the server.
                let name = format!("anabranch owner {}", std::process::id());
                live.client().query("SELECT set_config('application_name', $1, false)", &[&name]).await?;
                self.process = live.client().query_one("SELECT pg_backend_pid()", &[]).await?.get(0);
                live
            }
        };
        Ok(self.session.insert(live).client())
    }

    async fn try_lock(&mut self) -> Result<LockAttempt, Failure> {
        let state = self.table.state.clone();
        let name = self.name.clone();
        let client = self.client().await?;
        // Locks by the object id of the table, because one table may have two names. A session can take its own lock
        // again.
        let sql = "SELECT pg_try_advisory_lock(hashtextextended('anabranch store ' || to_regclass($1)::oid, 0))";
        let locked: Option<bool> = client.query_one(sql, &[&state]).await?.get(0);
        let sql = format!(
            "SELECT value, (extract(epoch FROM clock_timestamp()) * 1000)::bigint - number FROM {state} \
             WHERE kind = '{OWNER}' AND pipeline = '' AND connector = '' AND partition = ''"
        );
        let row = client.query_opt(&sql, &[]).await?;
        let row = row.map(|row| (row.get::<_, Vec<u8>>(0), unsigned(row.get(1))));
        Ok(match (locked, row) {
            (Some(true), None) => LockAttempt::Ours,
            (Some(true), Some((by, _))) if by == name || by.is_empty() => LockAttempt::Ours,
            (Some(true), Some((by, ago))) => LockAttempt::Left { ago: Duration::from_millis(ago), by },
            (_, row) => LockAttempt::Others(row.unwrap_or_default().0),
        })
    }

    /// Returns the name of a node whose cluster uses the store. While this session has the lock, no node joins.
    async fn node(&mut self) -> Result<Option<String>, Failure> {
        let nodes = self.table.nodes.clone();
        let client = self.client().await?;
        let exists = client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&nodes]).await?;
        if !exists.get::<_, bool>(0) {
            return Ok(None);
        }
        let sql = format!("SELECT name FROM {nodes} WHERE expires > clock_timestamp() ORDER BY name LIMIT 1");
        Ok(client.query_opt(&sql, &[]).await?.map(|row| row.get(0)))
    }

    /// Writes the name and a heartbeat.
    async fn write(&mut self) -> Result<(), Failure> {
        // Nobody else writes the row meanwhile. Works with tables of any form: they are upgraded later, by the owner.
        let now = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
        let update = format!(
            "UPDATE {} SET number = {now}, value = $1 WHERE kind = '{OWNER}' AND pipeline = '' AND connector = '' \
             AND partition = ''",
            self.table.state
        );
        let insert = format!(
            "INSERT INTO {} (kind, pipeline, connector, partition, number, value) \
             VALUES ('{OWNER}', '', '', '', {now}, $1)",
            self.table.state
        );
        // Only in the session that has the lock.
        let Some(session) = &mut self.session else { return Err(Failure::Silent(ANSWER)) };
        if session.client().execute(&update, &[&self.name]).await? == 0 {
            session.client().execute(&insert, &[&self.name]).await?;
        }
        Ok(())
    }

    /// Marks the store as free, if this process owns it.
    async fn clear(&mut self) -> Result<(), Failure> {
        let Some(session) = &mut self.session else { return Ok(()) };
        let sql = format!("UPDATE {} SET value = '' WHERE kind = '{OWNER}' AND value = $1", self.table.state);
        session.client().execute(&sql, &[&self.name]).await?;
        self.session = None;
        Ok(())
    }
}

fn understood(name: &[u8]) -> Option<Owner> {
    serde_json::from_slice(name).ok()
}
