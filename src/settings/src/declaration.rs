//! Every setting of the service, declared once.
//!
//! The table drives flags, environment variables, the configuration file, its generated form, `config` and
//! the documentation. No other code names a setting, except [`Settings`](crate::Settings), which
//! gives it a type.

/// One setting.
#[derive(Debug)]
pub struct Key {
    /// Dotted name: `db.path`. The flag is `--db.path`.
    pub name: &'static str,
    /// Type of the value.
    pub kind: Kind,
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
pub enum Kind {
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

impl Kind {
    /// Describes the type in a word or two, for help and generated files.
    pub fn describe(self) -> String {
        match self {
            Kind::Text => "text".into(),
            Kind::Path => "path".into(),
            Kind::Bool => "true or false".into(),
            Kind::Int { .. } => "integer".into(),
            Kind::Bytes { .. } => "size, for example 64MiB".into(),
            Kind::Duration { .. } => "duration, for example 1m30s".into(),
            Kind::Choice(words) => words.join(" or "),
            Kind::List => "comma-separated list".into(),
            Kind::Address => "host:port".into(),
            Kind::Share => "share, for example 0.01 or 1/100".into(),
        }
    }
}

impl Key {
    const fn new(name: &'static str, kind: Kind, default: Option<&'static str>, comment: &'static str) -> Self {
        Key { name, kind, default, comment, alias: None, secret: false, standard: &[], awaits: None, idle: None }
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
pub fn find(name: &str) -> Option<&'static Key> {
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
pub const KEYS: &[Key] = &[
    Key::new("config.path", Kind::Path, Some("./anabranch.yaml"), "The configuration file of the service."),
    Key::new(
        "db.type",
        Kind::Choice(&["embedded", "inmemory", "postgres"]),
        Some("embedded"),
        "Store of positions: embedded (one file, used by one process), inmemory (nothing survives the process) or \
         postgres (a table).",
    ),
    Key::new("db.path", Kind::Path, Some("./anabranch.db"), "File of the embedded store."),
    Key::new(
        "db.wait",
        Kind::Duration { zero: true },
        Some("0s"),
        "How long the service waits at startup for a store that another service owns, whose server is unavailable, or \
         whose disk is full. 0 = it does not wait.",
    )
    .alias("wait-for-store"),
    Key::new(
        "db.postgres.connection-string",
        Kind::Text,
        None,
        "Connection URL of the PostgreSQL store; sslmode, sslrootcert, sslcert and sslkey have the same meaning as in \
         libpq.",
    )
    .secret(),
    Key::new(
        "db.postgres.table",
        Kind::Text,
        Some("anabranch_kv_store"),
        "Table of the PostgreSQL store; created if it does not exist.",
    ),
    Key::new(
        "engine.replay-rows",
        Kind::Int { min: 1 },
        Some("16384"),
        "Maximum number of records of a source that are read but not yet stored as settled. It limits duplicates after \
         a crash.",
    ),
    Key::new(
        "engine.held-bytes",
        Kind::Bytes { min: 64 << 10 },
        Some("64MiB"),
        "Maximum size of the records that a pipeline holds in memory. A single larger record still passes.",
    ),
    Key::new(
        "engine.queue-bytes",
        Kind::Bytes { min: 4 << 10 },
        Some("8MiB"),
        "Maximum size of one queue between two stages of a pipeline.",
    ),
    Key::new(
        "shutdown.timeout",
        Kind::Duration { zero: true },
        Some("25s"),
        "How long a stop waits for records in flight. Records that remain are read again at the next start. 0s = no \
         limit.",
    ),
    Key::new(
        "log.level",
        Kind::Choice(&["trace", "debug", "info", "warn", "error"]),
        Some("info"),
        "Lines below this level are left out.",
    ),
    Key::new(
        "log.format",
        Kind::Choice(&["cli", "json"]),
        Some("cli"),
        "Format of log lines: cli (readable text) or json (one object per line).",
    ),
    Key::new("pipelines.path", Kind::Path, Some("./pipelines"), "A pipeline file, or a directory of pipeline files.")
        .alias("pipelines"),
    Key::new(
        "pipelines.watch",
        Kind::Bool,
        Some("false"),
        "Apply pipeline files when they are saved. If the new version of a pipeline cannot be opened, the earlier one \
         is restored. If a file is deleted, its pipelines keep running.",
    ),
    Key::new(
        "pipelines.strict",
        Kind::Bool,
        Some("false"),
        "Refuse a pipeline that has warnings, such as an unknown field, like one that has errors.",
    ),
    Key::new(
        "pipelines.exit-on-degraded",
        Kind::Bool,
        Some("false"),
        "Stop the service when a pipeline fails for good, or when a pipeline file has errors.",
    ),
    Key::new(
        "pipelines.error-recovery.min-delay",
        Kind::Duration { zero: false },
        Some("1s"),
        "Shortest delay before a failed pipeline is restarted.",
    ),
    Key::new(
        "pipelines.error-recovery.max-delay",
        Kind::Duration { zero: false },
        Some("10m"),
        "Longest delay before a failed pipeline is restarted.",
    ),
    Key::new(
        "pipelines.error-recovery.backoff-factor",
        Kind::Int { min: 0 },
        Some("2"),
        "Factor by which the delay grows with each attempt. With 0 or 1, every delay is the shortest one.",
    ),
    Key::new(
        "pipelines.error-recovery.max-retries",
        Kind::Int { min: -1 },
        Some("-1"),
        "Number of restarts after which a pipeline counts as failed for good. -1 = no limit, 0 = no restart.",
    ),
    Key::new(
        "pipelines.error-recovery.max-retries-window",
        Kind::Duration { zero: false },
        Some("5m"),
        "A pipeline that runs this long after a restart gets that attempt back.",
    ),
    Key::new(
        "pipelines.error-recovery.login-patience",
        Kind::Duration { zero: true },
        Some("5m"),
        "How long a pipeline is restarted while a server refuses its credentials, which may be about to be replaced. \
         After that, it has failed for good. 0s = it fails at once, as with `run --once`.",
    ),
    Key::new("connectors.path", Kind::Path, Some("./connectors"), "Directory of standalone connectors."),
    Key::new(
        "connectors.max-receive-record-size",
        Kind::Bytes { min: 1024 },
        Some("4194304"),
        "Maximum size of a record for a standalone connector. A larger record goes to the dead-letter queue.",
    ),
    Key::new(
        "connectors.timeout",
        Kind::Duration { zero: false },
        Some("5m"),
        "How long a standalone connector may take to open, or to acknowledge any of the records that it received.",
    ),
    Key::new(
        "connectors.equal-refusals",
        Kind::Int { min: 0 },
        Some("32"),
        "Number of consecutive records that a standalone connector can refuse with the same error. At this number, the \
         error counts as the connector's own: the pipeline recovers, and the records are written again. 0 = each \
         refusal counts for its record.",
    ),
    Key::new("processors.path", Kind::Path, Some("./processors"), "Directory of standalone processors."),
    Key::new(
        "processors.timeout",
        Kind::Duration { zero: true },
        Some("60s"),
        "Time limit of one call of a standalone processor, which handles up to 128 records. 0s = no limit.",
    ),
    Key::new(
        "processors.max-memory",
        Kind::Bytes { min: 64 << 10 },
        Some("1GiB"),
        "Memory limit of one instance of a processor: the memories and tables of a module, or the heap of a script. \
         Each worker has one instance.",
    ),
    Key::new(
        "processors.egress.enabled",
        Kind::Bool,
        Some("false"),
        "Whether standalone processors may send HTTP requests, each to the hosts that its settings name.",
    ),
    Key::new(
        "processors.egress.allow",
        Kind::List,
        Some(""),
        "Hosts that standalone processors may reach: host, host:port, http://address:port. Empty = any public host.",
    ),
    Key::new(
        "processors.egress.secret-refs",
        Kind::List,
        Some(""),
        "Secrets that standalone processors may use: NAME stands for the variable ANABRANCH_SECRET_NAME.",
    ),
    Key::new(
        "processors.egress.timeout",
        Kind::Duration { zero: true },
        Some("0s"),
        "Time limit of one HTTP request of a standalone processor. 0s = the request's own limit.",
    ),
    Key::new(
        "processors.egress.max-response-bytes",
        Kind::Bytes { min: 0 },
        Some("0"),
        "Maximum size of an HTTP response to a standalone processor. 0 = the processor's own limit.",
    ),
    Key::new(
        "schema-registry.type",
        Kind::Choice(&["builtin", "confluent"]),
        Some("builtin"),
        "Schema registry: \
                                                                                                builtin (in the store) \
                                                                                                or confluent (a \
                                                                                                registry with the \
                                                                                                Confluent protocol).",
    ),
    Key::new("schema-registry.confluent.connection-string", Kind::Text, None, "URL of the Confluent schema registry.")
        .secret(),
    Key::new(
        "schema-registry.confluent.auth.type",
        Kind::Choice(&["none", "basic", "bearer"]),
        Some("none"),
        "Authentication at the Confluent schema registry.",
    ),
    Key::new("schema-registry.confluent.auth.basic.username", Kind::Text, None, "User name for basic authentication."),
    Key::new("schema-registry.confluent.auth.basic.password", Kind::Text, None, "Password for basic authentication.")
        .secret(),
    Key::new("schema-registry.confluent.auth.bearer.token", Kind::Text, None, "Token for bearer authentication.")
        .secret(),
    Key::new(
        "schema-registry.serve",
        Kind::Bool,
        Some("false"),
        "Serve the built-in schema registry over HTTP with the Confluent protocol, for other tools.",
    ),
    Key::new(
        "schema-registry.compatibility",
        Kind::Choice(&[
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
    Key::new(
        "api.enabled",
        Kind::Bool,
        Some("true"),
        "Whether to serve HTTP. With `run --once`, HTTP is served only if this setting or the address is given.",
    ),
    Key::new(
        "api.http.address",
        Kind::Address,
        Some("127.0.0.1:8080"),
        "Address of the HTTP API; port 0 = any free port. An address that other machines can reach needs a token. \
         Commands connect to the service at this address, over TLS if it begins with https://.",
    ),
    Key::new("api.http.token", Kind::Text, None, "Token that requests must carry. Prefer the variable to the file.")
        .secret(),
    Key::new("api.http.token-file", Kind::Path, None, "File with the token that requests must carry."),
    Key::new(
        "api.http.allow-unauthenticated",
        Kind::Bool,
        Some("false"),
        "Serve other machines without a token: everyone who can reach the address can do everything.",
    ),
    Key::new(
        "api.http.open-metrics",
        Kind::Bool,
        Some("false"),
        "Serve /metrics without a token. It names pipelines, connectors and processors.",
    ),
    Key::new(
        "api.http.tls.cert",
        Kind::Path,
        None,
        "File with the TLS certificate of the HTTP API and its intermediate certificates, in PEM. Enables TLS.",
    ),
    Key::new("api.http.tls.key", Kind::Path, None, "File with the private key of that certificate, in PEM."),
    Key::new(
        "api.http.tls.ca",
        Kind::Path,
        None,
        "File with the certificate authorities that commands trust when they connect to a service over TLS, in PEM. \
         Without it, they trust those of the operating system, and the certificate of api.http.tls.cert.",
    ),
    Key::new(
        "api.http.cors.allowed-origins",
        Kind::List,
        Some(""),
        "Origins (https://host:port) of other sites whose pages may use the HTTP API. * = all.",
    ),
    Key::new("api.http.ui.enabled", Kind::Bool, Some("true"), "Whether to serve the web interface."),
    Key::new("api.grpc.address", Kind::Address, Some("127.0.0.1:8084"), "Address of the gRPC API.").awaits(GRPC),
    Key::new(
        "api.allow-live-restart-apply",
        Kind::Bool,
        Some("true"),
        "Whether `pipelines apply` and the HTTP API may drain and restart a running pipeline to change it. If false, \
         stop the pipeline first.",
    ),
    Key::new(
        "traces.endpoint",
        Kind::Text,
        None,
        "URL of an OpenTelemetry collector (OTLP over HTTP), for example http://localhost:4318; /v1/traces is \
         appended. Without it, no record is traced.",
    )
    .standard(&["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"]),
    Key::new(
        "traces.sample",
        Kind::Share,
        Some("0.01"),
        "Share of the records that are traced. For a record with a `traceparent` in its metadata, the `traceparent` \
         decides.",
    )
    .standard(&["OTEL_TRACES_SAMPLER_ARG"]),
    Key::new(
        "traces.headers",
        Kind::List,
        Some(""),
        "Headers of requests to the collector, as name=value. Prefer the variable to the file.",
    )
    .secret()
    .standard(&["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"]),
    Key::new("traces.service-name", Kind::Text, Some("anabranch"), "Name of the service in traces.")
        .standard(&["OTEL_SERVICE_NAME"]),
    Key::new(
        "traces.attributes",
        Kind::List,
        Some(""),
        "Further attributes of the service in traces, as name=value: deployment.environment.name=production.",
    )
    .standard(&["OTEL_RESOURCE_ATTRIBUTES"]),
    Key::new("install.allow-unsigned", Kind::Bool, Some("false"), "Whether unsigned plugins may be installed.")
        .awaits(INSTALL),
    Key::new("install.max-staleness", Kind::Duration { zero: true }, Some("168h"), "Maximum age of a plugin index.")
        .awaits(INSTALL),
    Key::new(
        "install.allow-stale-bundle",
        Kind::Bool,
        Some("false"),
        "Whether a bundle with an outdated index may be \
                                                                       used.",
    )
    .awaits(INSTALL),
    Key::new(
        "preview.pipeline-arch-v2",
        Kind::Bool,
        Some("false"),
        "Allow processors to return several records for one: split, clone, chunks of texts, lists that scripts return.",
    ),
    Key::new(
        "preview.pipeline-arch-v2-disable-metrics",
        Kind::Bool,
        Some("false"),
        "Accepted because files of other services contain it.",
    )
    .idle("Anabranch has one architecture and always serves its metrics"),
    Key::new("dev.enabled", Kind::Bool, Some("false"), "Reload pipeline files when they change.").alias("dev"),
    Key::new("dev.json", Kind::Bool, Some("false"), "In development mode, print the log as JSON."),
    Key::new("dev.cpuprofile", Kind::Path, None, "Path of a CPU profile to write.").awaits(DEV),
    Key::new("dev.memprofile", Kind::Path, None, "Path of a memory profile to write.").awaits(DEV),
    Key::new("dev.blockprofile", Kind::Path, None, "Path of a blocking profile to write.").awaits(DEV),
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
