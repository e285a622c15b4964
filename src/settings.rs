//! The service's own settings: flags over environment variables over `anabranch.yaml` over defaults.

mod credential;
pub mod declaration;
mod document;
mod file;
mod flags;
mod layers;
mod listener;
mod traces;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anabranch_graph::plan::stage::Limits;
use anabranch_plugin::host::LogLevel;

pub use credential::Credential;
pub use document::document;
pub use flags::{ServiceFlags, SettingFlags, handed_down};
pub use layers::{Layers, Refused, Resolved, Source};
pub(crate) use listener::token_in;
pub use listener::{ApiSettings, Compatibility, ServedSchemas};
pub use traces::TraceSettings;

/// The settings with their types. Built only by [`Layers::resolve`], so every value has passed its checks.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The configuration file, whether or not it exists.
    pub config_path: PathBuf,
    /// Where state is stored.
    pub database: Database,
    /// How long the start of a service waits for the store; 0 = not at all.
    pub store_wait: Duration,
    /// Where schemas live.
    pub schemas: Schemas,
    /// Where HTTP is served; `None` = nowhere.
    pub api: Option<ApiSettings>,
    /// Where traces of records go; `None` = no record is traced.
    pub traces: Option<TraceSettings>,
    /// What is logged, and how.
    pub log: LogSettings,
    /// Pipeline files and what happens when a pipeline fails.
    pub pipelines: PipelineSettings,
    /// Standalone connectors.
    pub connectors: ConnectorSettings,
    /// Standalone processors.
    pub processors: ProcessorSettings,
    /// Bounds of a running pipeline.
    pub limits: Limits,
    /// How long a stop waits for records in flight; `None` = for ever.
    pub shutdown_timeout: Option<Duration>,
    /// Whether `split` and `clone` are allowed.
    pub arch_v2: bool,
    /// Whether a pipeline that runs may be restarted to apply a change that a client sends.
    pub live_restart: bool,
    /// Whether pipeline files that are saved are taken up.
    pub dev: bool,
    /// Every setting as text with the layer it comes from, in the order of the declaration.
    pub resolved: Vec<Resolved>,
}

/// Where state is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Database {
    /// In one file, used by one process.
    Embedded(PathBuf),
    /// In memory: nothing survives the process.
    InMemory,
    /// In a table of PostgreSQL.
    Postgres(PostgresDatabase),
}

/// A table of PostgreSQL. Its address holds a password: it is shown to nobody.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresDatabase {
    /// Connection URL, or `key=value` pairs.
    pub connection: Credential,
    /// Name of the table, with its schema where it has one.
    pub table: String,
}

impl std::fmt::Debug for PostgresDatabase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresDatabase").field("table", &self.table).finish_non_exhaustive()
    }
}

/// Where schemas live.
#[derive(Clone, Debug)]
pub enum Schemas {
    /// In the state store.
    BuiltIn,
    /// In a registry that speaks Confluent's protocol.
    Confluent(ConfluentSettings),
}

/// A registry that speaks Confluent's protocol. Its address may hold a password: it is shown to nobody.
#[derive(Clone)]
pub struct ConfluentSettings {
    /// URL.
    pub url: Credential,
    /// How to log in.
    pub login: ConfluentLogin,
}

impl std::fmt::Debug for ConfluentSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConfluentSettings").finish_non_exhaustive()
    }
}

/// How to log in to a schema registry.
#[derive(Clone)]
pub enum ConfluentLogin {
    /// Not at all, or with what the URL says.
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

/// What is logged, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// Lines below it are left out.
    pub level: LogLevel,
    /// Form of the lines.
    pub format: LogFormat,
}

/// Form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Cli,
    /// One JSON object per line.
    Json,
}

/// Pipeline files and what happens when a pipeline fails.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineSettings {
    /// A file or a directory.
    pub path: PathBuf,
    /// Whether saved pipeline files are applied.
    pub watch: bool,
    /// Whether a pipeline with warnings is refused, as one with errors is.
    pub strict: bool,
    /// Whether a degraded pipeline ends the service.
    pub exit_on_degraded: bool,
    /// When a failed pipeline is started again.
    pub recovery: RecoveryPolicy,
}

/// Standalone connectors: programs in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectorSettings {
    /// The directory.
    pub path: PathBuf,
    /// Bytes of the largest record that one is given.
    pub record_limit: usize,
    /// How long one may take for a call.
    pub timeout: Duration,
    /// How many records in a row one may refuse with the same error before that is its own; 0 = any number.
    pub equal_refusals: usize,
}

/// Standalone processors: where they are and what they may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessorSettings {
    /// Their directory.
    pub path: PathBuf,
    /// Longest time of one call; `None` = no limit.
    pub timeout: Option<Duration>,
    /// Most memory of one instance, in bytes: all memories and tables of a module together, the heap of a script.
    pub max_memory: usize,
    /// HTTP requests.
    pub egress: EgressSettings,
}

/// What standalone processors may reach at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EgressSettings {
    /// Whether there may be requests.
    pub enabled: bool,
    /// The hosts; none = any.
    pub allow: Vec<String>,
    /// Names of secrets.
    pub secret_refs: Vec<String>,
    /// Longest time of a request; `None` = no limit.
    pub timeout: Option<Duration>,
    /// Largest answer in bytes; `None` = no limit.
    pub max_response_bytes: Option<u64>,
}

/// When a failed pipeline is started again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecoveryPolicy {
    /// Shortest wait.
    pub min_delay: Duration,
    /// Longest wait, at least `min_delay`.
    pub max_delay: Duration,
    /// Growth of the wait with each attempt.
    pub backoff_factor: u32,
    /// Attempts that are made; `None` = no limit.
    pub max_retries: Option<u32>,
    /// An attempt is forgotten this long after it was made.
    pub max_retries_window: Duration,
    /// How long a pipeline whose login is refused is started again before it counts as failed for good.
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

/// `path` below `base`, without a leading `./`.
fn below(base: &Path, path: &str) -> PathBuf {
    let path = path.strip_prefix("./").unwrap_or(path);
    if base == Path::new(".") { PathBuf::from(path) } else { base.join(path) }
}
