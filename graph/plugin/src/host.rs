//! What a plugin may reach besides its own settings: the log, what was remembered, schemas, the network.

use std::net::SocketAddr;
use std::sync::Arc;

use anabranch_record::text::Str;

use crate::schema::SchemaRegistry;
use crate::state::Memo;

/// What an operator, source or destination may reach besides its own settings; nothing else.
#[derive(Clone)]
pub struct Host {
    /// Id of the pipeline.
    pub pipeline: Str,
    /// Id of the processor or connector, as shown to users.
    pub node: Str,
    /// Where the `log` destination and other operators write lines for people.
    pub log: Arc<dyn LogSink>,
    /// What was remembered in earlier runs.
    pub memo: Arc<dyn Memo>,
    /// The schemas of keys and payloads.
    pub schemas: Arc<dyn SchemaRegistry>,
    /// The way to services in the network, for operators.
    pub network: Network,
}

/// The way of HTTP requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Network {
    /// To where their URL says.
    #[default]
    Open,
    /// All of them to the proxy at this address, which answers in the place of every service: no connection is made to
    /// anywhere else.
    Through(SocketAddr),
}

impl Network {
    /// Header that names the scheme of a request's URL where it went to a proxy in plain text ([`Network::Through`]): an
    /// encrypted connection would keep the request from it.
    pub const SCHEME: &'static str = "x-anabranch-scheme";
}

/// The level of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogLevel {
    /// Everything.
    Trace,
    /// For who debugs a pipeline.
    Debug,
    /// The course of things.
    Info,
    /// Something to look at.
    Warn,
    /// Something is broken.
    Error,
}

/// The service log, as an operator sees it.
pub trait LogSink: Send + Sync {
    /// Whether lines of this level are kept: ask before formatting.
    fn enabled(&self, level: LogLevel) -> bool;

    /// Writes one line per record under one lock and with as few writes as possible. Each record is a JSON
    /// text. The sink adds timestamp, level, component, connector id and plugin name (spec § 2.4).
    ///
    /// # Errors
    /// The output is gone or full: the records count as not written.
    fn write_records(&self, line: &LogLine<'_>, records: &mut dyn Iterator<Item = &[u8]>) -> std::io::Result<()>;
}

/// What all lines of one [`LogSink::write_records`] have in common.
#[derive(Clone, Copy, Debug)]
pub struct LogLine<'a> {
    /// Level of the lines.
    pub level: LogLevel,
    /// Id of the pipeline.
    pub pipeline: &'a str,
    /// Component, `plugin`.
    pub component: &'a str,
    /// Id of the connector.
    pub connector: &'a str,
    /// Name of the plugin.
    pub plugin: &'a str,
    /// Text before the record; may be empty.
    pub message: &'a str,
}
