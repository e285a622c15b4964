//! A connection of a writer.

use std::time::Duration;

use anabranch_record::fault::Fault;
use deadpool_postgres::{ClientWrapper, Manager, Object, Pool, PoolError};
use tokio_postgres::Config;

use crate::address::Address;
use crate::fault;

/// Longest time for a connection, where the URL does not say.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// A peer that is silent for so long is asked whether it is there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// Sent data that nobody confirms for so long means that the peer is gone.
const UNCONFIRMED: Duration = Duration::from_secs(60);

/// The server is to notice soon that this machine is gone: until then a transaction of ours would keep its locks, and
/// the next run of the pipeline would wait for them. A time without an offset is in UTC, whatever the server's zone.
const SESSION: &str = "SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3; \
     SET idle_in_transaction_session_timeout = '60s'; SET TimeZone = 'UTC'";

impl Address {
    /// Host, port and database, for messages: no user, no password.
    pub(crate) fn place(&self) -> String {
        let database = self.config.get_dbname().or(self.config.get_user()).unwrap_or_default();
        format!("{}/{database}", self.hosts())
    }

    /// With the times that the string does not give.
    fn patient(&self) -> Config {
        let mut config = self.config.clone();
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(UNCONFIRMED);
        }
        if config.get_keepalives_idle() == Config::new().get_keepalives_idle() {
            config.keepalives_idle(KEEPALIVE_IDLE);
        }
        config
    }

    /// Connects; the connection ends when what is returned is dropped. `was_opened`: it was there before.
    pub(crate) async fn connect(&self, was_opened: bool) -> Result<ClientWrapper, Fault> {
        let place = self.place();
        let tls = self
            .tls()
            .map_err(|error| Fault::fatal("connect_failed", format!("cannot connect to {place}: {error}")))?;
        let config = self.patient();
        let limit = config.get_connect_timeout().copied().unwrap_or(CONNECT_TIMEOUT) * 2;
        let manager = Manager::new(config, tls);
        // A writer has one connection at a time. The pool makes it, with the task that drives it, and lets it go: one
        // that was given up in the middle of a transaction must not be handed out again.
        let pool = Pool::builder(manager)
            .max_size(1)
            .build()
            .map_err(|error| Fault::fatal("connect_failed", format!("cannot connect to {place}: {error}")))?;
        // The client's own limit is per attempt to open a socket: a server that accepts and says nothing is not
        // covered by it.
        match tokio::time::timeout(limit, pool.get()).await {
            Ok(Ok(client)) => {
                let client = Object::take(client);
                client.batch_execute(SESSION).await.map_err(|error| fault::connect(&error, &place, was_opened))?;
                Ok(client)
            }
            Ok(Err(PoolError::Backend(error))) => Err(fault::connect(&error, &place, was_opened)),
            Ok(Err(error)) => Err(Fault::transient("connect_failed", format!("cannot connect to {place}: {error}"))),
            Err(_) => Err(Fault::transient(
                "connect_failed",
                format!("cannot connect to {place}: no answer in {} s", limit.as_secs()),
            )),
        }
    }
}
