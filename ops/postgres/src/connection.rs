//! Connection of a writer.

use std::time::Duration;

use anabranch_record::fault::Fault;
use deadpool_postgres::{ClientWrapper, Manager, Object, Pool, PoolError};
use tokio_postgres::Config;

use crate::address::Address;
use crate::codes;
use crate::fault;

/// Maximum time for connecting, if the URL does not set one.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Idle time after which keep-alive probes are sent.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// Time after which a peer that does not confirm sent data counts as gone.
const UNCONFIRMED: Duration = Duration::from_secs(60);

/// Settings of each session. With keep-alives, the server soon notices that this machine is gone: until then, an open
/// transaction keeps its locks and blocks the next run of the pipeline. Times without an offset are in UTC, whatever
/// the time zone of the server.
const SESSION: &str = "SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3; \
     SET idle_in_transaction_session_timeout = '60s'; SET TimeZone = 'UTC'";

impl Address {
    /// Returns host, port and database for messages, without user and password.
    pub(crate) fn place(&self) -> String {
        let database = self.config.get_dbname().or(self.config.get_user()).unwrap_or_default();
        format!("{}/{database}", self.hosts())
    }

    /// Returns the configuration with default timeouts.
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

    /// Connects; the connection is closed on drop. `was_opened` is true if the database was reachable before.
    pub(crate) async fn connect(&self, was_opened: bool) -> Result<ClientWrapper, Fault> {
        let place = self.place();
        let tls = self
            .tls()
            .map_err(|error| Fault::fatal(codes::CONNECT_FAILED, format!("cannot connect to {place}: {error}")))?;
        let config = self.patient();
        let limit = config.get_connect_timeout().copied().unwrap_or(CONNECT_TIMEOUT) * 2;
        let manager = Manager::new(config, tls);
        // A writer has one connection at a time. The pool creates it with its driver task, and gives it up: a
        // connection that was dropped within a transaction must not be reused.
        let pool = Pool::builder(manager)
            .max_size(1)
            .build()
            .map_err(|error| Fault::fatal(codes::CONNECT_FAILED, format!("cannot connect to {place}: {error}")))?;
        // The client's own limit covers only opening the socket, not a server that accepts and does not answer.
        match tokio::time::timeout(limit, pool.get()).await {
            Ok(Ok(client)) => {
                let client = Object::take(client);
                client.batch_execute(SESSION).await.map_err(|error| fault::connect(&error, &place, was_opened))?;
                Ok(client)
            }
            Ok(Err(PoolError::Backend(error))) => Err(fault::connect(&error, &place, was_opened)),
            Ok(Err(error)) => {
                Err(Fault::transient(codes::CONNECT_FAILED, format!("cannot connect to {place}: {error}")))
            }
            Err(_) => Err(Fault::transient(
                codes::CONNECT_FAILED,
                format!("cannot connect to {place}: no answer in {} s", limit.as_secs()),
            )),
        }
    }
}
