//! The connection: its address, whom it trusts, and which of its failures pass.

use std::fmt::Write as _;
use std::time::Duration;

use anabranch_ops_postgres::tls::Trust;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Error};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::Refused;

/// How long a connection may take, where the address does not say.
const CONNECT: Duration = Duration::from_secs(10);
/// How long the server may be silent in a connection before it counts as lost.
const SILENCE: Duration = Duration::from_secs(30);

/// A server, and how to talk to it.
pub(super) struct Address {
    config: Config,
    tls: MakeRustlsConnect,
}

impl Address {
    /// Reads a connection string. `sslmode` means what it means to libpq, and `sslrootcert` names a file of trusted
    /// certificates instead of the system's.
    pub(super) fn parse(text: &str) -> Result<Address, Refused> {
        let refuse = |what: String| Refused::Setting { key: "db.postgres.connection-string", what };
        let (text, roots) = without(text, "sslrootcert");
        let (text, mode) = without(&text, "sslmode");
        // The text holds a password: of the parser's message only what does not quote it.
        let mut config: Config = text
            .parse()
            .map_err(|_| refuse("it is not understood; write postgresql://user@host/database".to_owned()))?;
        let (mode, trust) = match mode.as_deref() {
            None | Some("prefer") => (SslMode::Prefer, Trust::Anything),
            Some("disable") => (SslMode::Disable, Trust::Anything),
            Some("require") => (SslMode::Require, Trust::Anything),
            Some("verify-ca") => (SslMode::Require, Trust::Chain),
            Some("verify-full") => (SslMode::Require, Trust::ChainAndName),
            Some(other) => {
                return Err(refuse(format!(
                    "sslmode {other:?} is not one of disable, prefer, require, verify-ca, verify-full"
                )));
            }
        };
        config.ssl_mode(mode);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT);
        }
        if config.get_application_name().is_none() {
            config.application_name("anabranch");
        }
        config.tcp_user_timeout(SILENCE);
        let trust = match roots {
            Some(file) => trust.with_roots(file),
            None => trust,
        };
        let client = trust.client().map_err(|error| refuse(error.to_string()))?;
        Ok(Address { config, tls: MakeRustlsConnect::new(client) })
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
        let mut server = String::new();
        for (i, host) in self.config.get_hosts().iter().enumerate() {
            let ports = self.config.get_ports();
            let port = ports.get(i).or(ports.first()).copied().unwrap_or(5432);
            let comma = if i == 0 { "" } else { ", " };
            let _ = match host {
                Host::Tcp(host) => write!(server, "{comma}{host}:{port}"),
                #[cfg(unix)]
                Host::Unix(path) => write!(server, "{comma}{}:{port}", path.display()),
            };
        }
        Refused::Server { server, what: message(error) }
    }
}

/// A connection string without a parameter, and its value.
fn without(text: &str, name: &str) -> (String, Option<String>) {
    if let Some((address, query)) = text.split_once('?').filter(|_| text.contains("://")) {
        let (ours, others): (Vec<&str>, Vec<&str>) =
            query.split('&').partition(|pair| pair.split_once('=').is_some_and(|(key, _)| key == name));
        let value = ours.last().and_then(|pair| pair.split_once('=')).map(|(_, value)| value.replace("%2F", "/"));
        let text = if others.is_empty() { address.to_owned() } else { format!("{address}?{}", others.join("&")) };
        return (text, value);
    }
    if text.contains("://") {
        return (text.to_owned(), None);
    }
    let prefix = format!("{name}=");
    let value =
        text.split_whitespace().rfind(|pair| pair.starts_with(&prefix)).map(|pair| pair[prefix.len()..].to_owned());
    match value {
        Some(value) => (text.replace(&format!("{prefix}{value}"), ""), Some(value)),
        None => (text.to_owned(), None),
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
    fn parameters_are_taken_out_of_both_forms() {
        let url = "postgresql://u@h/d?sslmode=verify-full&connect_timeout=3&sslrootcert=%2Fa.pem";
        let (rest, mode) = without(url, "sslmode");
        assert_eq!(mode.as_deref(), Some("verify-full"));
        let (rest, roots) = without(&rest, "sslrootcert");
        assert_eq!((rest.as_str(), roots.as_deref()), ("postgresql://u@h/d?connect_timeout=3", Some("/a.pem")));
        let (rest, mode) = without("host=h sslmode=require user=u", "sslmode");
        assert_eq!(mode.as_deref(), Some("require"));
        assert!(rest.parse::<Config>().is_ok(), "{rest}");
        assert_eq!(without("postgresql://u@h/d", "sslmode").1, None);
    }

    #[test]
    fn what_is_refused_does_not_show_the_password() {
        for text in ["postgresql://u:hunter2@h/d?sslmode=perhaps", "postgresql://u:hunter2@[/d", "hunter2", "x=hunter2"]
        {
            let Err(error) = Address::parse(text) else { panic!("{text}") };
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }
}
