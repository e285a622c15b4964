//! Connection to a cluster: the client, and the settings that source and destination share.

mod security;

use std::time::Duration;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::parameters::{Argument, Parameters};
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use krafka::{Kafka, KrafkaError};

use crate::codes;
use crate::fault::{Doing, refused, unreachable};
use security::{Security, SecurityOptions};

/// Time limit for opening a connection to one server.
const CONNECT: Duration = Duration::from_secs(5);
/// Time limit for finding the cluster through any of the servers.
const OPEN: Duration = Duration::from_secs(10);
/// Time limit for an answer. A broker that stops without closing its connections delays its partitions, and look-ups that
/// ask it, for that long. Time for which the broker throttles the connection does not count.
pub(crate) const ANSWER: Duration = Duration::from_secs(10);
/// Time after which files with certificates and keys are read again.
const RELOAD: Duration = Duration::from_secs(60);
/// Port of a server that is written without one.
const PORT: &str = "9092";

/// Parameters of the connection, for source and destination.
#[derive(Parameters)]
pub(crate) struct Options {
    /// Addresses of brokers, `host:port`. One that responds is enough: it names the others.
    #[parameter(required)]
    servers: Argument<Vec<Str>>,
    /// Name of this client in the logs and quotas of the brokers.
    #[parameter(name = "clientID", default = "conduit-connector-kafka")]
    client_id: Str,
    #[parameter(flatten)]
    security: SecurityOptions,
}

/// Settings of the connection to a cluster.
pub(crate) struct Connection {
    servers: Str,
    client_id: Str,
    security: Security,
}

impl Connection {
    /// Builds the connection.
    ///
    /// # Errors
    /// Fails if an address is invalid, or the settings of the login are incomplete.
    pub(crate) fn new(options: &Options) -> Result<Connection, Diagnostics> {
        let mut findings = Diagnostics::new();
        let setting = &options.servers;
        let servers: Vec<String> = setting.iter().map(|server| address(server.trim())).collect();
        if let Some(why) = servers.iter().find_map(|server| not_an_address(server)) {
            let finding = setting.finding(codes::SETTINGS_INVALID, format!("{}: an address {why}", setting.name()));
            findings.push(finding.with_hint("for example kafka-1.example.com:9092, kafka-2.example.com:9092"));
        }
        let security = Security::new(&options.security).map_err(|found| findings.0.extend(found)).ok();
        match security {
            Some(security) if !findings.has_errors() => Ok(Connection {
                servers: servers.join(",").into(),
                client_id: options.client_id.trim().into(),
                security,
            }),
            _ => Err(findings),
        }
    }

    /// Returns the namespace of the names of topics. Settings with the same servers in any order give the same value.
    pub(crate) fn space(&self) -> Str {
        let mut servers: Vec<String> = self.servers.split(',').map(str::to_ascii_lowercase).collect();
        servers.sort_unstable();
        servers.dedup();
        servers.join(",").replace("localhost:", "127.0.0.1:").into()
    }

    /// Connects to the cluster through the first server that responds.
    ///
    /// # Errors
    /// Transient if no server responds within ten seconds. Fatal if a file cannot be read or the login is refused.
    pub(crate) async fn open(&self) -> Result<Kafka, Fault> {
        let mut builder = Kafka::builder(self.servers.as_str())
            .client_id(self.client_id.as_str())
            .connect_timeout(CONNECT)
            .request_timeout(ANSWER)
            .tls_reload_interval(self.security.has_files().then_some(RELOAD));
        if let Some(auth) = self.security.auth()? {
            builder = builder.security(auth);
        }
        match tokio::time::timeout(OPEN, builder.connect()).await {
            Ok(Ok(kafka)) => Ok(kafka),
            Ok(Err(error @ KrafkaError::Network(_))) => Err(unreachable(&self.servers, &error.to_string())),
            Ok(Err(error)) => Err(refused(&Doing::Connecting(&self.servers), error)),
            Err(_) => Err(unreachable(&self.servers, &format!("there is no answer within {} s", OPEN.as_secs()))),
        }
    }
}

/// Adds the usual port to an address without one.
fn address(server: &str) -> String {
    let host_end = server.rfind(']').unwrap_or(0);
    match server[host_end..].contains(':') {
        true => server.to_owned(),
        false => format!("{server}:{PORT}"),
    }
}

/// Returns the problem with an address, as a phrase. Does not quote it, because it may contain a password.
fn not_an_address(server: &str) -> Option<&'static str> {
    if server.contains("://") {
        return Some("must not begin with a scheme such as http://");
    }
    if server.contains('@') {
        return Some("must not contain a user or a password");
    }
    let (host, port) = server.rsplit_once(':')?;
    if host.is_empty() || server.contains(char::is_whitespace) || server.contains(['/', ',']) {
        return Some("is a host and a port");
    }
    port.parse::<u16>().map_or(true, |port| port == 0).then_some("ends with a port between 1 and 65535")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for (written, full) in [("a", "a:9092"), ("a:1", "a:1"), ("[::1]", "[::1]:9092"), ("[::1]:7", "[::1]:7")] {
            assert_eq!(address(written), full);
            assert_eq!(not_an_address(&address(written)), None, "{written}");
        }
        for wrong in ["", ":1", "a:0", "a:x", "a:70000", "kafka://a:1", "u:p@a:1", "a b:1", "a/b:1"] {
            assert!(not_an_address(&address(wrong)).is_some(), "{wrong}");
        }
    }
}
