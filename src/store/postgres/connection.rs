//! The connection: its address, whom it trusts, and which of its failures pass.

use std::fmt::Write as _;
use std::time::Duration;

use anabranch_ops_postgres::address::{Address as Given, Tls};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Error};

use super::Refused;

/// How long a connection may take, where the address does not say.
const CONNECT: Duration = Duration::from_secs(10);
/// How long the server may be silent in a connection before it counts as lost.
const SILENCE: Duration = Duration::from_secs(30);

/// A server, and how to talk to it.
pub(super) struct Address {
    config: Config,
    hosts: String,
    tls: Tls,
}

impl Address {
    /// Reads a connection string, and the files that it names.
    pub(super) fn parse(text: &str) -> Result<Address, Refused> {
        let refuse = |what: String| Refused::Setting { key: "db.postgres.connection-string", what };
        let expected = "expected postgresql://user:password@host:port/database";
        let address = Given::parse(text).map_err(|error| refuse(format!("{error}; {expected}")))?;
        let tls = address.tls().map_err(|error| refuse(error.to_string()))?;
        let hosts = address.hosts();
        let mut config = address.config;
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT);
        }
        config.tcp_user_timeout(SILENCE);
        Ok(Address { config, hosts, tls })
    }

    /// Connects. The connection ends with the client.
    pub(super) async fn connect(&self) -> Result<Client, Error> {
        let (client, connection) = self.config.connect(self.tls.clone()).await?;
        #[expect(clippy::disallowed_methods, reason = "the runtime is the store's own and ends with its thread")]
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(error = message(&error), "the connection of the state store ended");
            }
        });
        Ok(client)
    }

    pub(super) fn refused(&self, error: &Error) -> Refused {
        Refused::Server { server: self.hosts.clone(), what: message(error) }
    }
}

/// Whether the same request may work in a while: the connection was lost, or others were in the way.
pub(super) fn is_passing(error: &Error) -> bool {
    let Some(code) = error.code() else { return true };
    let class = &code.code()[..2.min(code.code().len())];
    // Connection exceptions, transaction rollback, insufficient resources, operator intervention.
    matches!(class, "08" | "40" | "53" | "57") && *code != SqlState::QUERY_CANCELED
}

/// The server's own message, or what went wrong with the connection.
pub(super) fn message(error: &Error) -> String {
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
            let Err(error) = Address::parse(text) else { panic!("{text}") };
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }
}
