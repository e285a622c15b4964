//! The connection: its address, TLS, and which of its failures are temporary.

use std::fmt::Write as _;
use std::time::Duration;

use anabranch_ops_postgres::address::{Address as Given, Tls};
use anabranch_settings::Credential;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Config, Socket};

use super::PostgresError;
use super::session::{Failure, Session, answered};

/// Time limit for a connection, if the address does not set one.
const CONNECT: Duration = Duration::from_secs(10);
/// How long the server may be silent before the connection counts as lost.
const SILENCE: Duration = Duration::from_secs(30);

/// Makes the server release the locks of a lost connection soon: until then the next connection would wait for them.
const SESSION: &str = "SET idle_in_transaction_session_timeout = '60s'";

/// How long the server may be silent.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// Until the connection is open, and then until the table is prepared.
    pub(super) opening: Duration,
    /// After a statement.
    pub(super) statement: Duration,
}

/// The part of a connection that sends and receives: a client gets answers only while this part is polled.
pub(super) type Connection = tokio_postgres::Connection<Socket, <Tls as MakeTlsConnect<Socket>>::Stream>;

/// A server, and how to connect to it.
pub(super) struct Address {
    credential: Credential,
    config: Config,
    hosts: String,
    tls: Tls,
    pub(super) limits: Limits,
}

impl Address {
    /// Parses a connection string, and reads the files that it names.
    pub(super) fn parse(credential: &Credential) -> Result<Address, PostgresError> {
        Address::read(credential, &credential.now())
    }

    fn read(credential: &Credential, text: &str) -> Result<Address, PostgresError> {
        let refuse = |what: String| PostgresError::Setting { key: "db.postgres.connection-string", what };
        let expected = "expected postgresql://user:password@host:port/database";
        let address = Given::parse(text).map_err(|error| refuse(format!("{error}; {expected}")))?;
        let tls = address.tls().map_err(|error| refuse(error.to_string()))?;
        let hosts = address.hosts();
        let mut config = address.config;
        let connect = config.get_connect_timeout().copied().unwrap_or(CONNECT);
        config.connect_timeout(connect);
        config.tcp_user_timeout(SILENCE);
        // A connection that only listens would not notice that the network has dropped it.
        config.keepalives_idle(SILENCE);
        // The limit of the client applies to each host and ends when the socket is open: a server that accepts and
        // stays silent needs an additional one.
        let hosts_to_try = config.get_hosts().len().max(config.get_hostaddrs().len()).max(1);
        let opening = connect.saturating_mul(u32::try_from(hosts_to_try).unwrap_or(u32::MAX).saturating_add(1));
        Ok(Address {
            credential: credential.clone(),
            config,
            hosts,
            tls,
            limits: Limits { opening, statement: SILENCE },
        })
    }

    /// Returns the address with the current credentials of its files; `None` if they did not change.
    fn renewed(&self) -> Option<Address> {
        let renewed = match Address::parse(&self.credential) {
            Ok(renewed) if renewed.config == self.config => return None,
            Ok(renewed) => renewed,
            Err(error) => {
                tracing::warn!(%error, "the new address of the state store cannot be used");
                return None;
            }
        };
        let place = |address: &Address| {
            let config = &address.config;
            let (hosts, addresses) = (config.get_hosts().to_vec(), config.get_hostaddrs().to_vec());
            (hosts, addresses, config.get_ports().to_vec(), config.get_dbname().map(str::to_owned))
        };
        if place(&renewed) != place(self) {
            tracing::warn!("the settings contain another database for the state store: restart the service to use it");
            return None;
        }
        Some(renewed)
    }

    /// Connects with reloaded credentials. The caller has to poll the connection.
    pub(super) async fn dial(&self) -> Result<(tokio_postgres::Client, Connection), Failure> {
        let renewed = self.renewed();
        let Address { config, tls, .. } = renewed.as_ref().unwrap_or(self);
        answered(self.limits.opening, config.connect(tls.clone())).await
    }

    /// Connects with reloaded credentials. The connection ends with the session.
    pub(super) async fn connect(&self) -> Result<Session, Failure> {
        let Limits { opening, statement } = self.limits;
        let (client, connection) = self.dial().await?;
        #[expect(clippy::disallowed_methods, reason = "the runtime is the store's own and ends with its thread")]
        let driver = tokio::spawn(async move {
            if let Err(error) = connection.await {
                let error = message(&Failure::Postgres(error));
                tracing::debug!(error, "the connection of the state store ended");
            }
        });
        let mut session = Session::new(client, driver.abort_handle(), statement);
        // A server that stops answering here counts as unreachable.
        timeout(opening, session.client().batch_execute(SESSION)).await.map_err(|_| Failure::Silent(opening))??;
        Ok(session)
    }

    /// Returns hosts and ports.
    pub(super) fn hosts(&self) -> &str {
        &self.hosts
    }

    pub(super) fn refused(&self, error: &Failure) -> PostgresError {
        PostgresError::Server { server: self.hosts.clone(), what: message(error) }
    }
}

/// Returns `true` if the same request may succeed later: the connection was lost, or other transactions interfered.
pub(super) fn is_passing(error: &Failure) -> bool {
    let Failure::Postgres(error) = error else { return true };
    let Some(code) = error.code() else { return true };
    let class = &code.code()[..2.min(code.code().len())];
    // Connection exceptions, transaction rollback, insufficient resources, operator intervention.
    let passing = matches!(class, "08" | "40" | "53" | "57") && *code != SqlState::QUERY_CANCELED;
    passing || *code == SqlState::LOCK_NOT_AVAILABLE
}

/// Returns the message of the server, or the error of the connection.
pub(super) fn message(error: &Failure) -> String {
    let Failure::Postgres(error) = error else { return error.to_string() };
    match error.as_db_error() {
        Some(server) => format!("{} ({})", server.message(), server.code().code()),
        None => {
            let mut text = error.to_string();
            let mut next = std::error::Error::source(error);
            while let Some(cause) = next {
                let cause_text = cause.to_string();
                if !text.contains(&cause_text) {
                    let _ = write!(text, ": {cause_text}");
                }
                next = cause.source();
            }
            text
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_does_not_show_the_password() {
        for text in ["postgresql://u:hunter2@h/d?sslmode=perhaps", "postgresql://u:hunter2@[/d", "hunter2", "x=hunter2"]
        {
            let Err(error) = Address::parse(&text.to_owned().into()) else { panic!("{text}") };
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }
}
