//! Every setting of the service, declared once.
//!
//! The table drives flags, environment variables, the configuration file, its generated form, `config` and
//! the documentation. No other code names a setting, except [`Settings`](crate::Settings), which
//! gives it a type.

/// One setting.
#[derive(Debug)]
pub struct SettingKey {
    /// Dotted name: `db.path`. The flag is `--db.path`.
    pub name: &'static str,
    /// Type of the value.
    pub kind: SettingType,
    /// Value if no layer gives one; `None` = no value.
    pub default: Option<&'static str>,
    /// Description, in one or two sentences.
    pub comment: &'static str,
    /// Alternative name of the flag.
    pub alias: Option<&'static str>,
    /// `true` if the value is a credential.
    pub secret: bool,
    /// Variables of other standards; the first one that is set is used if no layer gives a value.
    pub standard: &'static [&'static str],
    /// The missing part of the service that will read the setting, if it has no effect yet.
    pub awaits: Option<&'static str>,
    /// The reason why the setting has no effect. It is accepted because files of other services contain it.
    pub idle: Option<&'static str>,
}

/// The type of a setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SettingType {
    /// Any text.
    Text,
    /// Path of a file or directory.
    Path,
    /// True or false.
    Bool,
    /// An integer of at least `min`.
    Int {
        /// The smallest allowed value.
        min: i64,
    },
    /// A number of bytes of at least `min`: `64MiB`.
    Bytes {
        /// The smallest allowed value.
        min: u64,
    },
    /// A duration: `25s`, `1m30s`.
    Duration {
        /// `true` if 0 is allowed.
        zero: bool,
    },
    /// One of several words.
    Choice(&'static [&'static str]),
    /// Comma-separated texts.
    List,
    /// `host:port`.
    Address,
    /// A fraction: `0.01`, `1/100`.
    Share,
}

impl SettingType {
    /// Describes the type in a word or two, for help and generated files.
    pub fn describe(self) -> String {
        match self {
            SettingType::Text => "text".into(),
            SettingType::Path => "path".into(),
            SettingType::Bool => "true or false".into(),
            SettingType::Int { .. } => "integer".into(),
            SettingType::Bytes { .. } => "size, for example 64MiB".into(),
            SettingType::Duration { .. } => "duration, for example 1m30s".into(),
            SettingType::Choice(words) => words.join(" or "),
            SettingType::List => "comma-separated list".into(),
            SettingType::Address => "host:port".into(),
            SettingType::Share => "share, for example 0.01 or 1/100".into(),
        }
    }
}

impl SettingKey {
    const fn new(name: &'static str, kind: SettingType, default: Option<&'static str>, comment: &'static str) -> Self {
        SettingKey { name, kind, default, comment, alias: None, secret: false, standard: &[], awaits: None, idle: None }
    }

    const fn alias(mut self, alias: &'static str) -> Self {
        self.alias = Some(alias);
        self
    }

    const fn secret(mut self) -> Self {
        self.secret = true;
        self
    }

    const fn standard(mut self, variables: &'static [&'static str]) -> Self {
        self.standard = variables;
        self
    }

    const fn idle(mut self, why: &'static str) -> Self {
        self.idle = Some(why);
        self
    }

    const fn awaits(mut self, part: &'static str) -> Self {
        self.awaits = Some(part);
        self
    }

    /// Returns the description, including why a setting has no effect.
    pub fn meaning(&self) -> String {
        let mut text = self.comment.to_owned();
        if let Some(part) = self.awaits {
            text += &format!(" No effect yet: comes with {part}.");
        }
        if let Some(why) = self.idle {
            text += &format!(" No effect: {why}.");
        }
        text
    }

    /// Returns `true` if the setting has no effect.
    pub fn has_no_effect(&self) -> bool {
        self.awaits.is_some() || self.idle.is_some()
    }

    /// Returns the name of the environment variable: `ANABRANCH_DB_PATH`.
    pub fn variable(&self) -> String {
        let upper = |c: char| if c == '.' || c == '-' { '_' } else { c.to_ascii_uppercase() };
        ENVIRONMENT_PREFIX.chars().chain(self.name.chars().map(upper)).collect()
    }

    /// Returns the part of the name before the first dot.
    pub fn section(&self) -> &'static str {
        self.name.split('.').next().unwrap_or(self.name)
    }
}

/// Prefix of the names of all variables.
pub const ENVIRONMENT_PREFIX: &str = "ANABRANCH_";

/// Returns the key with this name.
pub fn find(name: &str) -> Option<&'static SettingKey> {
    KEYS.iter().find(|key| key.name == name)
}

/// Settings of other services of this kind, and their replacements.
pub const REPLACED: &[(&str, &str)] = &[
    ("db.badger.path", "db.path"),
    ("db.sqlite.path", "db.path"),
    ("db.sqlite.table", "db.path (the embedded store needs no table)"),
    ("pipelines", "pipelines.path"),
];

/// Titles of the sections, in the order of the generated file.
pub const SECTIONS: &[(&str, &str)] = &[
    ("db", "Store of positions and pipelines"),
    ("cluster", "A cluster of nodes that share the work"),
    ("engine", "Limits of a running pipeline"),
    ("shutdown", "Stopping"),
    ("log", "The service log"),
    ("pipelines", "Pipeline files and recovery from failures"),
    ("connectors", "Standalone connectors"),
    ("processors", "Standalone processors"),
    ("schema-registry", "The schema registry"),
    ("api", "HTTP and gRPC interfaces"),
    ("traces", "Traces of individual records"),
    ("install", "Installing plugins"),
    ("preview", "Preview features"),
    ("dev", "Development mode"),
];

const GRPC: &str = "the gRPC API";
const INSTALL: &str = "plugin installation";
const DEV: &str = "profiling";

/// All settings. `config.path` comes first. It locates the file, so the file cannot contain it.
pub const KEYS: &[SettingKey] = &[
    SettingKey::new(
        "config.path",
        SettingType::Path,
        Some("./anabranch.yaml"),
        "The configuration file of the service.",
    ),
    SettingKey::new(
        "db.type",
        SettingType::Choice(&["embedded", "inmemory", "postgres"]),
        Some("embedded"),
        "Store of positions: embedded (one file, used by one process), inmemory (nothing survives the process) or \
         postgres (a table).",
    ),
    SettingKey::new("db.path", SettingType::Path, Some("./anabranch.db"), "File of the embedded store."),
    SettingKey::new(
        "db.wait",
        SettingType::Duration { zero: true },
        Some("0s"),
        "How long the service waits at startup for a store that another service owns, whose server is unavailable, or \
         whose disk is full. 0 = it does not wait.",
    )
    .alias("wait-for-store"),
    SettingKey::new(
        "db.postgres.connection-string",
        SettingType::Text,
        None,
        "Connection URL of the PostgreSQL store; sslmode, sslrootcert, sslcert and sslkey have the same meaning as in \
         libpq.",
    )
    .secret(),
    SettingKey::new(
        "db.postgres.table",
        SettingType::Text,
        Some("anabranch_kv_store"),
        "Table of the PostgreSQL store; created if it does not exist.",
    ),
    SettingKey::new(
        "cluster.url",
        SettingType::Text,
        None,
        "Connection URL of the PostgreSQL database that the nodes of a cluster share. With it, this service is a node: it \
         runs the pipelines that no other node runs, and takes over those of a node that fails. The store is the table \
         db.postgres.table of this database.",
    )
    .secret(),
    SettingKey::new(
        "cluster.node",
        SettingType::Text,
        None,
        "Name of this node, which logs and commands show. The default is the name of the machine.",
    ),
    SettingKey::new(
        "cluster.address",
        SettingType::Text,
        None,
        "URL at which the other nodes reach the API of this node, such as https://node-1:8080. With it, each node answers \
         requests for the pipelines of this one, by forwarding them. A certificate is checked with the authorities of \
         api.http.tls.ca, or with those of the system.",
    ),
    SettingKey::new(
        "cluster.labels",
        SettingType::Text,
        None,
        "Comma-separated labels of this node. A pipeline with `placement: LABEL` runs only on nodes with the label.",
    ),
    SettingKey::new(
        "cluster.slots",
        SettingType::Int { min: 1 },
        Some("8"),
        "Number of units into which a pipeline is split whose sources and destinations allow it. Each unit has some of the \
         partitions, and runs on one node. 1 = pipelines are not split. At most 64.",
    ),
    SettingKey::new(
        "cluster.token",
        SettingType::Text,
        None,
        "Token of requests that nodes forward, the same on each node. The default is the token of the API, which must then \
         be the same.",
    )
    .secret(),
    SettingKey::new(
        "engine.replay-rows",
        SettingType::Int { min: 1 },
        Some("16384"),
        "Maximum number of records of a source that are read but not yet stored as settled. It limits duplicates after \
         a crash.",
    ),
    SettingKey::new(
        "engine.held-bytes",
        SettingType::Bytes { min: 64 << 10 },
        Some("64MiB"),
        "Maximum size of the records that a pipeline holds in memory. A single larger record still passes.",
    ),
    SettingKey::new(
        "engine.queue-bytes",
        SettingType::Bytes { min: 4 << 10 },
        Some("8MiB"),
        "Maximum size of one queue between two stages of a pipeline.",
    ),
    SettingKey::new(
        "shutdown.timeout",
        SettingType::Duration { zero: true },
        Some("25s"),
        "How long a stop waits for records in flight. Records that remain are read again at the next start. 0s = no \
         limit.",
    ),
    SettingKey::new(
        "log.level",
        SettingType::Choice(&["trace", "debug", "info", "warn", "error"]),
        Some("info"),
        "Lines below this level are left out.",
    ),
    SettingKey::new(
        "log.format",
        SettingType::Choice(&["cli", "json"]),
        Some("cli"),
        "Format of log lines: cli (readable text) or json (one object per line).",
    ),
    SettingKey::new(
        "pipelines.path",
        SettingType::Path,
        Some("./pipelines"),
        "A pipeline file, or a directory of pipeline files.",
    )
    .alias("pipelines"),
    SettingKey::new(
        "pipelines.watch",
        SettingType::Bool,
        Some("false"),
        "Apply pipeline files when they are saved. If the new version of a pipeline cannot be opened, the earlier one \
         is restored. If a file is deleted, its pipelines keep running.",
    ),
    SettingKey::new(
        "pipelines.strict",
        SettingType::Bool,
        Some("false"),
        "Refuse a pipeline that has warnings, such as an unknown field, like one that has errors.",
    ),
    SettingKey::new(
        "pipelines.exit-on-degraded",
        SettingType::Bool,
        Some("false"),
        "Stop the service when a pipeline fails for good, or when a pipeline file has errors.",
    ),
    SettingKey::new(
        "pipelines.error-recovery.min-delay",
        SettingType::Duration { zero: false },
        Some("1s"),
        "Shortest delay before a failed pipeline is restarted.",
    ),
    SettingKey::new(
        "pipelines.error-recovery.max-delay",
        SettingType::Duration { zero: false },
        Some("10m"),
        "Longest delay before a failed pipeline is restarted.",
    ),
    SettingKey::new(
        "pipelines.error-recovery.backoff-factor",
        SettingType::Int { min: 0 },
        Some("2"),
        "Factor by which the delay grows with each attempt. With 0 or 1, every delay is the shortest one.",
    ),
    SettingKey::new(
        "pipelines.error-recovery.max-retries",
        SettingType::Int { min: -1 },
        Some("-1"),
        "Number of restarts after which a pipeline counts as failed for good. -1 = no limit, 0 = no restart.",
    ),
    SettingKey::new(
        "pipelines.error-recovery.max-retries-window",
        SettingType::Duration { zero: false },
        Some("5m"),
        "A pipeline that runs this long after a restart gets that attempt back.",
    ),
    SettingKey::new(
        "pipelines.error-recovery.login-patience",
        SettingType::Duration { zero: true },
        Some("5m"),
        "How long a pipeline is restarted while a server refuses its credentials, which may be about to be replaced. \
         After that, it has failed for good. 0s = it fails at once, as with `run --once`.",
    ),
    SettingKey::new("connectors.path", SettingType::Path, Some("./connectors"), "Directory of standalone connectors."),
    SettingKey::new(
        "connectors.max-receive-record-size",
        SettingType::Bytes { min: 1024 },
        Some("4194304"),
        "Maximum size of a record for a standalone connector. A larger record goes to the dead-letter queue.",
    ),
    SettingKey::new(
        "connectors.timeout",
        SettingType::Duration { zero: false },
        Some("5m"),
        "How long a standalone connector may take to open, or to acknowledge any of the records that it received.",
    ),
    SettingKey::new(
        "connectors.equal-refusals",
        SettingType::Int { min: 0 },
        Some("32"),
        "Number of consecutive records that a standalone connector can refuse with the same error. At this number, the \
         error counts as the connector's own: the pipeline recovers, and the records are written again. 0 = each \
         refusal counts for its record.",
    ),
    SettingKey::new("processors.path", SettingType::Path, Some("./processors"), "Directory of standalone processors."),
    SettingKey::new(
        "processors.timeout",
        SettingType::Duration { zero: true },
        Some("60s"),
        "Time limit of one call of a standalone processor, which handles up to 128 records. 0s = no limit.",
    ),
    SettingKey::new(
        "processors.max-memory",
        SettingType::Bytes { min: 64 << 10 },
        Some("1GiB"),
        "Memory limit of one instance of a processor: the memories and tables of a module, or the heap of a script. \
         Each worker has one instance.",
    ),
    SettingKey::new(
        "processors.egress.enabled",
        SettingType::Bool,
        Some("false"),
        "Whether standalone processors may send HTTP requests, each to the hosts that its settings name.",
    ),
    SettingKey::new(
        "processors.egress.allow",
        SettingType::List,
        Some(""),
        "Hosts that standalone processors may reach: host, host:port, http://address:port. Empty = any public host.",
    ),
    SettingKey::new(
        "processors.egress.secret-refs",
        SettingType::List,
        Some(""),
        "Secrets that standalone processors may use: NAME stands for the variable ANABRANCH_SECRET_NAME.",
    ),
    SettingKey::new(
        "processors.egress.timeout",
        SettingType::Duration { zero: true },
        Some("0s"),
        "Time limit of one HTTP request of a standalone processor. 0s = the request's own limit.",
    ),
    SettingKey::new(
        "processors.egress.max-response-bytes",
        SettingType::Bytes { min: 0 },
        Some("0"),
        "Maximum size of an HTTP response to a standalone processor. 0 = the processor's own limit.",
    ),
    SettingKey::new(
        "schema-registry.type",
        SettingType::Choice(&["builtin", "confluent"]),
        Some("builtin"),
        "Schema registry: \
                                                                                                builtin (in the store) \
                                                                                                or confluent (a \
                                                                                                registry with the \
                                                                                                Confluent protocol).",
    ),
    SettingKey::new(
        "schema-registry.confluent.connection-string",
        SettingType::Text,
        None,
        "URL of the Confluent schema registry.",
    )
    .secret(),
    SettingKey::new(
        "schema-registry.confluent.auth.type",
        SettingType::Choice(&["none", "basic", "bearer"]),
        Some("none"),
        "Authentication at the Confluent schema registry.",
    ),
    SettingKey::new(
        "schema-registry.confluent.auth.basic.username",
        SettingType::Text,
        None,
        "User name for basic authentication.",
    ),
    SettingKey::new(
        "schema-registry.confluent.auth.basic.password",
        SettingType::Text,
        None,
        "Password for basic authentication.",
    )
    .secret(),
    SettingKey::new(
        "schema-registry.confluent.auth.bearer.token",
        SettingType::Text,
        None,
        "Token for bearer authentication.",
    )
    .secret(),
    SettingKey::new(
        "schema-registry.serve",
        SettingType::Bool,
        Some("false"),
        "Serve the built-in schema registry over HTTP with the Confluent protocol, for other tools.",
    ),
    SettingKey::new(
        "schema-registry.compatibility",
        SettingType::Choice(&[
            "none",
            "backward",
            "backward_transitive",
            "forward",
            "forward_transitive",
            "full",
            "full_transitive",
        ]),
        Some("none"),
        "Required compatibility of a schema that is registered over HTTP with earlier versions of its subject. \
         Pipelines can register any schema.",
    ),
    SettingKey::new(
        "api.enabled",
        SettingType::Bool,
        Some("true"),
        "Whether to serve HTTP. With `run --once`, HTTP is served only if this setting or the address is given.",
    ),
    SettingKey::new(
        "api.http.address",
        SettingType::Address,
        Some("127.0.0.1:8080"),
        "Address of the HTTP API; port 0 = any free port. An address that other machines can reach needs a token. \
         Commands connect to the service at this address, over TLS if it begins with https://.",
    ),
    SettingKey::new(
        "api.http.token",
        SettingType::Text,
        None,
        "Token that requests must carry. Prefer the variable to the file.",
    )
    .secret(),
    SettingKey::new("api.http.token-file", SettingType::Path, None, "File with the token that requests must carry."),
    SettingKey::new(
        "api.http.allow-unauthenticated",
        SettingType::Bool,
        Some("false"),
        "Serve other machines without a token: everyone who can reach the address can do everything.",
    ),
    SettingKey::new(
        "api.http.open-metrics",
        SettingType::Bool,
        Some("false"),
        "Serve /metrics without a token. It names pipelines, connectors and processors.",
    ),
    SettingKey::new(
        "api.http.tls.cert",
        SettingType::Path,
        None,
        "File with the TLS certificate of the HTTP API and its intermediate certificates, in PEM. Enables TLS.",
    ),
    SettingKey::new(
        "api.http.tls.key",
        SettingType::Path,
        None,
        "File with the private key of that certificate, in PEM.",
    ),
    SettingKey::new(
        "api.http.tls.ca",
        SettingType::Path,
        None,
        "File with the certificate authorities that commands trust when they connect to a service over TLS, in PEM. \
         Without it, they trust those of the operating system, and the certificate of api.http.tls.cert.",
    ),
    SettingKey::new(
        "api.http.cors.allowed-origins",
        SettingType::List,
        Some(""),
        "Origins (https://host:port) of other sites whose pages may use the HTTP API. * = all.",
    ),
    SettingKey::new("api.http.ui.enabled", SettingType::Bool, Some("true"), "Whether to serve the web interface."),
    SettingKey::new("api.grpc.address", SettingType::Address, Some("127.0.0.1:8084"), "Address of the gRPC API.")
        .awaits(GRPC),
    SettingKey::new(
        "api.allow-live-restart-apply",
        SettingType::Bool,
        Some("true"),
        "Whether `pipelines apply` and the HTTP API may drain and restart a running pipeline to change it. If false, \
         stop the pipeline first.",
    ),
    SettingKey::new(
        "traces.endpoint",
        SettingType::Text,
        None,
        "URL of an OpenTelemetry collector (OTLP over HTTP), for example http://localhost:4318; /v1/traces is \
         appended. Without it, no record is traced.",
    )
    .standard(&["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"]),
    SettingKey::new(
        "traces.sample",
        SettingType::Share,
        Some("0.01"),
        "Share of the records that are traced. For a record with a `traceparent` in its metadata, the `traceparent` \
         decides.",
    )
    .standard(&["OTEL_TRACES_SAMPLER_ARG"]),
    SettingKey::new(
        "traces.headers",
        SettingType::List,
        Some(""),
        "Headers of requests to the collector, as name=value. Prefer the variable to the file.",
    )
    .secret()
    .standard(&["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"]),
    SettingKey::new("traces.service-name", SettingType::Text, Some("anabranch"), "Name of the service in traces.")
        .standard(&["OTEL_SERVICE_NAME"]),
    SettingKey::new(
        "traces.attributes",
        SettingType::List,
        Some(""),
        "Further attributes of the service in traces, as name=value: deployment.environment.name=production.",
    )
    .standard(&["OTEL_RESOURCE_ATTRIBUTES"]),
    SettingKey::new(
        "install.allow-unsigned",
        SettingType::Bool,
        Some("false"),
        "Whether unsigned plugins may be installed.",
    )
    .awaits(INSTALL),
    SettingKey::new(
        "install.max-staleness",
        SettingType::Duration { zero: true },
        Some("168h"),
        "Maximum age of a plugin index.",
    )
    .awaits(INSTALL),
    SettingKey::new(
        "install.allow-stale-bundle",
        SettingType::Bool,
        Some("false"),
        "Whether a bundle with an outdated index may be \
                                                                       used.",
    )
    .awaits(INSTALL),
    SettingKey::new(
        "preview.pipeline-arch-v2",
        SettingType::Bool,
        Some("false"),
        "Allow processors to return several records for one: split, clone, chunks of texts, lists that scripts return.",
    ),
    SettingKey::new(
        "preview.pipeline-arch-v2-disable-metrics",
        SettingType::Bool,
        Some("false"),
        "Accepted because files of other services contain it.",
    )
    .idle("Anabranch has one architecture and always serves its metrics"),
    SettingKey::new("dev.enabled", SettingType::Bool, Some("false"), "Reload pipeline files when they change.")
        .alias("dev"),
    SettingKey::new("dev.json", SettingType::Bool, Some("false"), "In development mode, print the log as JSON."),
    SettingKey::new("dev.cpuprofile", SettingType::Path, None, "Path of a CPU profile to write.").awaits(DEV),
    SettingKey::new("dev.memprofile", SettingType::Path, None, "Path of a memory profile to write.").awaits(DEV),
    SettingKey::new("dev.blockprofile", SettingType::Path, None, "Path of a blocking profile to write.").awaits(DEV),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_every_section_is_described() {
        let names: BTreeSet<_> = KEYS.iter().map(|k| k.name).collect();
        assert_eq!(names.len(), KEYS.len());
        for key in KEYS.iter().filter(|k| k.name != "config.path") {
            assert!(SECTIONS.iter().any(|(s, _)| *s == key.section()), "{}", key.name);
        }
    }

    #[test]
    fn variables_are_upper_case_with_underscores() {
        let key = find("pipelines.error-recovery.max-retries").unwrap();
        assert_eq!(key.variable(), "ANABRANCH_PIPELINES_ERROR_RECOVERY_MAX_RETRIES");
    }
}
