//! The typed settings.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anabranch_config::limits::MemoryLimits;
use anabranch_process::log::LogSettings;

use crate::credential::Credential;
use crate::listener::ApiSettings;
use crate::resolved::Resolved;
use crate::traces::TraceSettings;

/// The typed settings. Only [`Layers::resolve`](crate::Layers::resolve) builds them, so every value has passed its
/// checks.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Path of the configuration file, whether or not it exists.
    pub config_path: PathBuf,
    /// The state store.
    pub database: Database,
    /// The cluster that the service is a node of; `None` = it runs alone.
    pub cluster: Option<ClusterSettings>,
    /// How long the start of the service waits for the store; 0 = not at all.
    pub store_wait: Duration,
    /// The schema registry.
    pub schemas: Schemas,
    /// The HTTP listener; `None` = HTTP is not served.
    pub api: Option<ApiSettings>,
    /// Export of traces; `None` = no record is traced.
    pub traces: Option<TraceSettings>,
    /// Level and format of the log.
    pub log: LogSettings,
    /// Pipeline files, and the behaviour when a pipeline fails.
    pub pipelines: PipelineSettings,
    /// Standalone connectors.
    pub connectors: ConnectorSettings,
    /// Standalone processors.
    pub processors: ProcessorSettings,
    /// Limits of a running pipeline.
    pub limits: MemoryLimits,
    /// How long a stop waits for records in flight; `None` = without a limit.
    pub shutdown_timeout: Option<Duration>,
    /// `true` if processors that split records, such as `split` and `clone`, are allowed.
    pub arch_v2: bool,
    /// `true` if a running pipeline may be restarted to apply a change from a client.
    pub live_restart: bool,
    /// `true` if saved pipeline files are applied.
    pub dev: bool,
    /// Every setting as text with the layer of its value, in the order of the declaration.
    pub resolved: Vec<Resolved>,
}

/// The state store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Database {
    /// One file, used by one process.
    Embedded(PathBuf),
    /// Memory: nothing survives the process.
    InMemory,
    /// A PostgreSQL table.
    Postgres(PostgresDatabase),
}

/// A service that is a node of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSettings {
    /// The store that the nodes share.
    pub database: PostgresDatabase,
    /// Name of this node; `None` = the name of the machine.
    pub node: Option<String>,
    /// URL at which the other nodes reach this one: scheme and authority.
    pub address: Option<String>,
    /// Labels of this node.
    pub labels: Vec<String>,
    /// Number of units into which a pipeline is split that can be split: 1 to 64.
    pub slots: u32,
    /// Token of requests that nodes forward; `None` = that of the API.
    pub token: Option<Credential>,
}

/// A PostgreSQL table. `Debug` leaves out the connection, which contains a password.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresDatabase {
    /// Connection URL, or `key=value` pairs.
    pub connection: Credential,
    /// Name of the table, optionally with its schema.
    pub table: String,
}

impl std::fmt::Debug for PostgresDatabase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresDatabase").field("table", &self.table).finish_non_exhaustive()
    }
}

/// The schema registry.
#[derive(Clone, Debug)]
pub enum Schemas {
    /// The built-in registry, in the state store.
    BuiltIn,
    /// A registry with the Confluent protocol.
    Confluent(ConfluentSettings),
}

/// A registry with the Confluent protocol. `Debug` leaves out its URL, which can contain a password.
#[derive(Clone)]
pub struct ConfluentSettings {
    /// URL.
    pub url: Credential,
    /// Authentication.
    pub login: ConfluentLogin,
}

impl std::fmt::Debug for ConfluentSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConfluentSettings").finish_non_exhaustive()
    }
}

/// Authentication at a schema registry.
#[derive(Clone)]
pub enum ConfluentLogin {
    /// None, or as in the URL.
    None,
    /// User and password.
    Basic {
        /// User.
        username: Credential,
        /// Password.
        password: Credential,
    },
    /// A token.
    Bearer {
        /// The token.
        token: Credential,
    },
}

/// Pipeline files, and the behaviour when a pipeline fails.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineSettings {
    /// A file or a directory.
    pub path: PathBuf,
    /// `true` if saved pipeline files are applied.
    pub watch: bool,
    /// `true` if a pipeline with warnings is refused like one with errors.
    pub strict: bool,
    /// `true` if a degraded pipeline stops the service.
    pub exit_on_degraded: bool,
    /// Restarts of failed pipelines.
    pub recovery: RecoveryPolicy,
}

/// Standalone connectors: programs in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectorSettings {
    /// The directory.
    pub path: PathBuf,
    /// Maximum size of a record for a connector, in bytes.
    pub record_limit: usize,
    /// Time limit of a call.
    pub timeout: Duration,
    /// Number of consecutive records that a connector can refuse with the same error before the error counts as the
    /// connector's own; 0 = any number.
    pub equal_refusals: usize,
}

/// Standalone processors: their directory and limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessorSettings {
    /// Directory of the modules.
    pub path: PathBuf,
    /// Time limit of one call; `None` = no limit.
    pub timeout: Option<Duration>,
    /// Memory limit of one instance, in bytes: all memories and tables of a module together, or the heap of a script.
    pub max_memory: usize,
    /// HTTP requests.
    pub egress: EgressSettings,
}

/// Limits of HTTP requests of standalone processors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EgressSettings {
    /// `true` if requests are allowed.
    pub enabled: bool,
    /// The allowed hosts; empty = any.
    pub allow: Vec<String>,
    /// Names of secrets.
    pub secret_refs: Vec<String>,
    /// Time limit of a request; `None` = no limit.
    pub timeout: Option<Duration>,
    /// Maximum size of a response in bytes; `None` = no limit.
    pub max_response_bytes: Option<u64>,
}

/// Restarts of failed pipelines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecoveryPolicy {
    /// Shortest delay.
    pub min_delay: Duration,
    /// Longest delay, at least `min_delay`.
    pub max_delay: Duration,
    /// Growth factor of the delay with each attempt.
    pub backoff_factor: u32,
    /// Maximum number of attempts; `None` = no limit.
    pub max_retries: Option<u32>,
    /// A pipeline that runs this long after an attempt gets the attempt back.
    pub max_retries_window: Duration,
    /// How long a pipeline whose login is refused is restarted before it counts as failed for good.
    pub login_patience: Duration,
}

impl Default for RecoveryPolicy {
    fn default() -> Self {
        RecoveryPolicy {
            min_delay: Duration::from_secs(1),
            max_delay: Duration::from_secs(600),
            backoff_factor: 2,
            max_retries: None,
            max_retries_window: Duration::from_secs(300),
            login_patience: Duration::from_secs(300),
        }
    }
}

/// Returns `path` below `base`, without a leading `./`.
pub(crate) fn below(base: &Path, path: &str) -> PathBuf {
    let path = path.strip_prefix("./").unwrap_or(path);
    if base == Path::new(".") { PathBuf::from(path) } else { base.join(path) }
}
