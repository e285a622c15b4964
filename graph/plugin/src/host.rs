//! The environment of a plugin: the log, stored results, schemas, the network.

use std::net::SocketAddr;
use std::sync::Arc;

use anabranch_record::text::Str;

use crate::schema::SchemaRegistry;
use crate::state::{ActiveSettings, ResultCache, SiblingMarks, Slots};

/// The resources that an operator, source or destination may use, in addition to its settings.
#[derive(Clone)]
pub struct Host {
    /// Id of the pipeline.
    pub pipeline: Str,
    /// The slots of the pipeline whose rows the plugin gets. A source that splits ([`Source::splits`]) reads only the
    /// partitions that they have.
    ///
    /// [`Source::splits`]: crate::source::Source::splits
    pub slots: Slots,
    /// Id of the processor or connector, as users see it.
    pub node: Str,
    /// The log for output of the `log` destination and other plugins.
    pub log: Arc<dyn LogSink>,
    /// Results that operators stored in earlier runs.
    pub result_cache: Arc<dyn ResultCache>,
    /// The settings with which connectors were last active.
    pub active: Arc<dyn ActiveSettings>,
    /// The marks of the connector, those of other runs too.
    pub marks: Arc<dyn SiblingMarks>,
    /// The schemas of keys and payloads.
    pub schemas: Arc<dyn SchemaRegistry>,
    /// Network access of operators.
    pub network: Network,
    /// Identifies the state store, if several processes share it, as the nodes of a cluster. Then another process may run
    /// the pipeline while this one believes that it still does: a destination that can refuse the writes of earlier runs
    /// does so in every transaction.
    pub shared: Option<Str>,
    /// True if the run ends when all sources have caught up (`run --once`).
    pub once: bool,
}

/// The route of HTTP requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Network {
    /// Directly to the host of the URL.
    #[default]
    Open,
    /// All requests go to the proxy at this address, which answers in place of every service. No connection is made to
    /// any other address.
    Through(SocketAddr),
}

impl Network {
    /// Header with the scheme of a request's URL, for requests that go to a proxy in plain text ([`Network::Through`]).
    /// The proxy could not read the request through an encrypted connection.
    pub const SCHEME: &'static str = "x-anabranch-scheme";
}

/// The level of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogLevel {
    /// Detailed tracing.
    Trace,
    /// Details for debugging a pipeline.
    Debug,
    /// Normal operation.
    Info,
    /// A condition that needs attention.
    Warn,
    /// A failure.
    Error,
}

impl LogLevel {
    /// Returns its name in lower case.
    pub const fn as_str(self) -> &'static str {
        match self {
            LogLevel::Trace => "trace",
            LogLevel::Debug => "debug",
            LogLevel::Info => "info",
            LogLevel::Warn => "warn",
            LogLevel::Error => "error",
        }
    }
}

/// The service log, as plugins see it.
pub trait LogSink: Send + Sync {
    /// Returns `true` if lines of this level are logged. Call it before formatting.
    fn enabled(&self, level: LogLevel) -> bool;

    /// Writes one line per record under one lock and with as few writes as possible. Each record is a JSON
    /// text. The sink adds timestamp, level, component, connector id and plugin name (spec § 2.4).
    ///
    /// # Errors
    /// The output is closed or full: the records count as not written.
    fn write_records(&self, line: &LogLine<'_>, records: &mut dyn Iterator<Item = &[u8]>) -> std::io::Result<()>;
}

/// A log that discards everything.
pub struct DiscardingLog;

impl LogSink for DiscardingLog {
    fn enabled(&self, _: LogLevel) -> bool {
        false
    }

    fn write_records(&self, _: &LogLine<'_>, _: &mut dyn Iterator<Item = &[u8]>) -> std::io::Result<()> {
        Ok(())
    }
}

/// The common parts of all lines of one [`LogSink::write_records`].
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
