//! Where the server is, and how it is reached.

use std::time::Duration;

use anabranch_graph::fault::Fault;
use deadpool_postgres::{ClientWrapper, Manager, Object, Pool, PoolError};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::fault;
use crate::tls::Trust;

/// Longest time for a connection, where the URL does not say.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// A peer that is silent for so long is asked whether it is there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// Sent data that nobody confirms for so long means that the peer is gone.
const UNCONFIRMED: Duration = Duration::from_secs(60);

/// The server is to notice soon that this machine is gone: until then a transaction of ours would keep its locks, and
/// the next run of the pipeline would wait for them.
const SESSION: &str = "SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3; \
     SET idle_in_transaction_session_timeout = '60s'";

/// A URL that was read.
#[derive(Clone)]
pub(crate) struct Address {
    config: Config,
    trust: Trust,
}

/// Why a URL is none. Holds no part of it: it has a password in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct AddressError(String);

impl Address {
    /// Reads `postgresql://user:password@host:port/database?option=value`, or the `key=value` form of libpq.
    pub(crate) fn parse(url: &str) -> Result<Address, AddressError> {
        let url = url.trim();
        let (base, query) = match url.split_once("://") {
            Some(("postgres" | "postgresql", _)) => url.split_once('?').unwrap_or((url, "")),
            Some(_) => return Err(AddressError("it must begin with postgresql://".to_owned())),
            None => (url, ""),
        };
        let mut mode = None;
        let mut roots = None;
        let mut rest = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("sslmode", value)) => mode = Some(value.to_owned()),
                Some(("sslrootcert", value)) => roots = Some(decode(value)),
                _ => rest.push(pair),
            }
        }
        let text = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
        let mut config: Config = text.parse().map_err(|error| unreadable(&error))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(AddressError("it names no host".to_owned()));
        }
        let (ssl_mode, trust) = match mode.as_deref() {
            None => (config.get_ssl_mode(), Trust::Anything),
            Some("disable") => (SslMode::Disable, Trust::Anything),
            Some("allow" | "prefer") => (SslMode::Prefer, Trust::Anything),
            // As libpq: with a root certificate, `require` checks the chain.
            Some("require") if roots.is_some() => (SslMode::Require, Trust::Chain),
            Some("require") => (SslMode::Require, Trust::Anything),
            Some("verify-ca") => (SslMode::Require, Trust::Chain),
            Some("verify-full") => (SslMode::Require, Trust::ChainAndName),
            Some(_) => {
                let modes = "disable, allow, prefer, require, verify-ca or verify-full";
                return Err(AddressError(format!("sslmode must be {modes}")));
            }
        };
        config.ssl_mode(ssl_mode);
        if config.get_application_name().is_none() {
            config.application_name("anabranch");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(UNCONFIRMED);
        }
        if !query.contains("keepalives_idle") {
            config.keepalives_idle(KEEPALIVE_IDLE);
        }
        let trust = match roots {
            Some(path) if path != "system" => trust.with_roots(path),
            _ => trust,
        };
        Ok(Address { config, trust })
    }

    /// Host, port and database, for messages: no user, no password.
    pub(crate) fn place(&self) -> String {
        let ports = self.config.get_ports();
        let port = |i: usize| ports.get(i).or(ports.first()).copied().unwrap_or(5432);
        let hosts: Vec<String> = self
            .config
            .get_hosts()
            .iter()
            .enumerate()
            .map(|(i, host)| match host {
                Host::Tcp(name) => format!("{name}:{}", port(i)),
                Host::Unix(path) => path.display().to_string(),
            })
            .collect();
        let database = self.config.get_dbname().or(self.config.get_user()).unwrap_or_default();
        format!("{}/{database}", hosts.join(","))
    }

    /// Connects; the connection ends when what is returned is dropped.
    pub(crate) async fn connect(&self) -> Result<ClientWrapper, Fault> {
        let place = self.place();
        let tls = self
            .trust
            .clone()
            .client()
            .map_err(|error| Fault::fatal("connect_failed", format!("cannot connect to {place}: {error}")))?;
        let manager = Manager::new(self.config.clone(), MakeRustlsConnect::new(tls));
        // A writer has one connection at a time. The pool makes it, with the task that drives it, and lets it go: one
        // that was given up in the middle of a transaction must not be handed out again.
        let pool = Pool::builder(manager)
            .max_size(1)
            .build()
            .map_err(|error| Fault::fatal("connect_failed", format!("cannot connect to {place}: {error}")))?;
        // The client's own limit is per attempt to open a socket: a server that accepts and says nothing is not
        // covered by it.
        let limit = self.config.get_connect_timeout().copied().unwrap_or(CONNECT_TIMEOUT) * 2;
        match tokio::time::timeout(limit, pool.get()).await {
            Ok(Ok(client)) => {
                let client = Object::take(client);
                client.batch_execute(SESSION).await.map_err(|error| fault::connect(&error, &place))?;
                Ok(client)
            }
            Ok(Err(PoolError::Backend(error))) => Err(fault::connect(&error, &place)),
            Ok(Err(error)) => Err(Fault::transient("connect_failed", format!("cannot connect to {place}: {error}"))),
            Err(_) => Err(Fault::transient(
                "connect_failed",
                format!("cannot connect to {place}: no answer in {} s", limit.as_secs()),
            )),
        }
    }
}

/// Says which option is wrong, where that is all it says.
fn unreadable(error: &tokio_postgres::Error) -> AddressError {
    let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    match cause.starts_with("invalid value for option") {
        true => AddressError(cause),
        false => AddressError("it is not understood".to_owned()),
    }
}

/// Percent-decoding, for the path of a file.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        let code =
            (*first == b'%').then(|| more.get(..2)).flatten().and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &more[2..];
            }
            None => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_no_password() {
        let address = Address::parse("postgresql://me:s%40cret@db.example:5433/shop?sslmode=verify-full").unwrap();
        assert_eq!(address.place(), "db.example:5433/shop");
        assert_eq!(address.trust, Trust::ChainAndName);
        let address = Address::parse("postgres://me@h/d?sslrootcert=/a%20b.pem&sslmode=verify-ca").unwrap();
        assert_eq!(address.trust, Trust::Chain.with_roots("/a b.pem".to_owned()));
    }

    #[test]
    fn a_bad_url_is_described_without_its_password() {
        for url in [
            "mysql://me:hunter2@h/d",
            "postgresql://me:hunter2@h:x/d",
            "postgresql://me:hunter2@h/d?sslmode=verify",
            "postgresql://me:hunter2@h/d?color=hunter2",
            "postgresql:///d",
            "hunter2",
            "",
        ] {
            let error = Address::parse(url).err().unwrap_or_else(|| panic!("{url}")).to_string();
            assert!(!error.contains("hunt") && !error.contains("er2"), "{error}");
        }
    }
}
