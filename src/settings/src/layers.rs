//! Resolves the value of each setting from the layers, and checks it.

mod cluster;
mod listener;
mod traces;

use std::ffi::OsString;
use std::num::IntErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anabranch_config::Variables;
use anabranch_config::limits::MemoryLimits;
use anabranch_plugin::arguments::{parse_bool, parse_bytes, parse_duration};
use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics, Files};
use anabranch_plugin::host::LogLevel;
use anabranch_process::files::{self, UnreadableText};
use anabranch_process::log::{LogFormat, LogSettings};
use anabranch_record::near::did_you_mean;

use crate::codes;
use crate::credential::Credential;
use crate::declaration::{ENVIRONMENT_PREFIX, KEYS, SettingKey, SettingType};
use crate::file;
use crate::resolved::{Resolved, Source};
use crate::settings::{
    ConfluentLogin, ConfluentSettings, ConnectorSettings, Database, EgressSettings, PipelineSettings, PostgresDatabase,
    ProcessorSettings, RecoveryPolicy, Schemas, Settings, below,
};
use crate::traces::parse_share;

/// The sources of settings.
pub struct Layers<'a> {
    /// Flags of the command line.
    pub flags: &'a [(&'static str, String)],
    /// The environment.
    pub environment: &'a [(OsString, OsString)],
}

/// Findings in the settings; an error if the settings cannot be used.
#[derive(Debug)]
pub struct SettingsFindings {
    /// The configuration file, for spans.
    pub files: Files,
    /// The findings.
    pub findings: Diagnostics,
}

/// Maximum size of the configuration file, in bytes.
const MAX_BYTES: u64 = 1 << 20;

impl Layers<'_> {
    /// Resolves every setting; also returns warnings.
    ///
    /// # Errors
    /// Returns all errors, with their places in the configuration file.
    pub fn resolve(&self) -> Result<(Settings, SettingsFindings), SettingsFindings> {
        let mut found = SettingsFindings { files: Files::new(), findings: Diagnostics::new() };
        let path_key = &KEYS[0];
        let given = self.flag(path_key).or_else(|| self.variable(path_key, &mut found.findings));
        let config_path = match &given {
            Some(text) => PathBuf::from(text),
            None => below(Path::new("."), path_key.default.unwrap_or_default()),
        };
        let entries = self.entries(&config_path, given.is_some(), &mut found);
        if given.is_none() {
            found.findings.extend(unread(&config_path));
        }
        let base = match config_path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
            _ => PathBuf::from("."),
        };
        let mut resolved: Vec<Resolved> = Vec::with_capacity(KEYS.len());
        for key in KEYS {
            let (mut standard, mut written) = (None, None);
            let (text, source, span) = if let Some(text) = self.flag(key) {
                (Some(text), Source::Flag, None)
            } else if let Some(text) = self.variable(key, &mut found.findings) {
                (Some(text), Source::Environment, None)
            } else if let Some(entry) = entries.iter().find(|e| e.key.name == key.name) {
                written.clone_from(&entry.written);
                (Some(entry.text.clone()), Source::File, Some(entry.span))
            } else if let Some((name, text)) = self.standard(key, &mut found.findings) {
                standard = Some(name);
                (Some(text), Source::Environment, None)
            } else {
                (key.default.map(str::to_owned), Source::Default, None)
            };
            resolved.push(Resolved { key, text, source, standard, written, span });
        }
        self.near_misses(&mut found.findings);
        let mut checking = Checking { base: &base, resolved: &resolved, findings: &mut found.findings };
        checking.all();
        let settings = checking.settings(config_path);
        if found.findings.has_errors() {
            return Err(found);
        }
        Ok((Settings { resolved, ..settings }, found))
    }

    fn flag(&self, key: &SettingKey) -> Option<String> {
        self.flags.iter().find(|(name, _)| *name == key.name).map(|(_, text)| text.clone())
    }

    /// Returns a variable if it is set and not empty.
    fn variable(&self, key: &SettingKey, findings: &mut Diagnostics) -> Option<String> {
        let name = key.variable();
        let value = self.in_environment(&name)?;
        let text = value.to_str().map(str::to_owned);
        if text.is_none() {
            findings.push(Diagnostic::error(codes::SERVICE_INVALID_VALUE, format!("{name} is not valid UTF-8")));
        }
        text
    }

    fn in_environment(&self, name: &str) -> Option<&OsString> {
        self.environment.iter().find(|(n, v)| n.to_str() == Some(name) && !v.is_empty()).map(|(_, value)| value)
    }

    /// Returns the value of a variable of another standard. Such a variable may be meant for other programs, so an
    /// unusable value is only a warning.
    fn standard(&self, key: &SettingKey, findings: &mut Diagnostics) -> Option<(&'static str, String)> {
        let (name, value) = key.standard.iter().find_map(|name| Some((*name, self.in_environment(name)?)))?;
        let problem = match value.to_str() {
            Some(text) => problem(key, text).map(|problem| problem.message).or_else(|| self.unfit(key, name, text)),
            None => Some("it is not valid UTF-8".to_owned()),
        };
        if let Some(problem) = problem {
            let message = format!("the variable {name} is ignored: {problem}");
            findings.push(Diagnostic::warning(codes::SERVICE_INVALID_VALUE, message));
            return None;
        }
        Some((name, value.to_str()?.to_owned()))
    }

    fn entries(&self, path: &Path, required: bool, found: &mut SettingsFindings) -> Vec<file::FileEntry> {
        let name = path.display().to_string();
        match files::read_text(path, MAX_BYTES) {
            Ok(text) => {
                let id = found.files.add(name, text.as_str());
                let (entries, findings) = file::read(id, &text, self);
                found.findings.extend(findings);
                entries
            }
            Err(UnreadableText::Missing) if !required => Vec::new(),
            Err(error) => {
                let finding = Diagnostic::error(codes::SERVICE_UNREADABLE, format!("cannot read {name}: {error}"));
                found.findings.push(match error {
                    UnreadableText::Missing => finding.with_hint("`anabranch init` writes one"),
                    _ => finding,
                });
                Vec::new()
            }
        }
    }

    /// Warns of variables whose names look like a setting, because they are probably misspelled.
    fn near_misses(&self, findings: &mut Diagnostics) {
        let names: Vec<String> = KEYS.iter().map(SettingKey::variable).collect();
        for (name, _) in self.environment {
            let Some(name) = name.to_str().filter(|n| n.starts_with(ENVIRONMENT_PREFIX)) else { continue };
            if names.iter().any(|n| n == name) {
                continue;
            }
            if let Some(near) = did_you_mean(name, names.iter().map(String::as_str)) {
                findings.push(
                    Diagnostic::warning(
                        codes::SERVICE_UNKNOWN_VARIABLE,
                        format!("the variable {name} belongs to no setting"),
                    )
                    .with_hint(format!("did you mean {near}?")),
                );
            }
        }
    }
}

/// Warns of a file that looks like the configuration file but is not read.
fn unread(config_path: &Path) -> Diagnostics {
    let other = config_path.with_extension("yml");
    if !other.is_file() {
        return Diagnostics::new();
    }
    let (read, other) = (config_path.display(), other.display());
    let message = format!("{other} is not read: the configuration file is {read}");
    let hint = format!("rename it to {read}, or set --config.path {other}");
    Diagnostic::warning(codes::SERVICE_NO_EFFECT, message).with_hint(hint).into()
}

/// Resolves `${NAME}` and `${file:PATH}` in the file, with the same meaning as in a pipeline file.
impl Variables for Layers<'_> {
    fn variable(&self, name: &str) -> Option<String> {
        let (_, value) = self.environment.iter().find(|(given, _)| given.to_str() == Some(name))?;
        value.to_str().map(str::to_owned)
    }

    fn file(&self, path: &str) -> Result<String, String> {
        files::read_text(Path::new(path), MAX_BYTES).map_err(|error| error.to_string())
    }
}

/// Converts texts to types. A value that fails its check is reported and replaced by a zero value, so that all errors
/// are found; the result is then discarded.
struct Checking<'a> {
    base: &'a Path,
    resolved: &'a [Resolved],
    findings: &'a mut Diagnostics,
}

impl<'a> Checking<'a> {
    fn all(&mut self) {
        for entry in self.resolved {
            if let Some(problem) = entry.text.as_deref().and_then(|text| problem(entry.key, text)) {
                let finding = Diagnostic::error(codes::SERVICE_INVALID_VALUE, problem.message);
                self.report(entry, finding, problem.hint);
            } else if let (Some(part), true) = (entry.key.awaits, entry.source != Source::Default) {
                let message = format!("{} has no effect in this version: {part} is not available yet", entry.key.name);
                self.report(entry, Diagnostic::warning(codes::SERVICE_NO_EFFECT, message), None);
            } else if let (Some(why), true) = (entry.key.idle, entry.source != Source::Default) {
                let message = format!("{} has no effect: {why}", entry.key.name);
                self.report(entry, Diagnostic::warning(codes::SERVICE_NO_EFFECT, message), None);
            }
        }
        if self.text("schema-registry.type") == "confluent" {
            self.check_confluent();
        }
        self.check_cluster();
        self.check_idle();
        self.check_listener();
        self.check_traces();
        if !self.findings.has_errors() {
            self.check_idle_traces();
        }
        if self.text("db.type") == "postgres" && self.text("cluster.url").is_empty() {
            let entry = self.entry("db.type");
            let refuse = |what: &str| Diagnostic::error(codes::SERVICE_INVALID_VALUE, what.to_owned());
            if !cfg!(feature = "postgres") {
                let what = "db.type: this program was built without PostgreSQL (feature `postgres`)";
                self.report(entry, refuse(what), Some("use `embedded` or `inmemory`".to_owned()));
            } else if self.text("db.postgres.connection-string").is_empty() {
                let hint = "set ANABRANCH_DB_POSTGRES_CONNECTION_STRING, for example to \
                            postgresql://user:password@host/database";
                let what = "db.postgres.connection-string config value is required";
                self.report(entry, refuse(what), Some(hint.to_owned()));
            }
        }
        if self.duration("pipelines.error-recovery.max-delay") < self.duration("pipelines.error-recovery.min-delay") {
            let entry = self.entry("pipelines.error-recovery.max-delay");
            let message = "pipelines.error-recovery.max-delay must not be below pipelines.error-recovery.min-delay";
            self.report(entry, Diagnostic::error(codes::SERVICE_INVALID_VALUE, message), None);
        }
    }

    fn check_confluent(&mut self) {
        let refuse = |what: String| Diagnostic::error(codes::SERVICE_INVALID_VALUE, what);
        if !cfg!(feature = "avro") {
            let what = "schema-registry.type: this program was built without support for it (feature `avro`)";
            self.report(self.entry("schema-registry.type"), refuse(what.to_owned()), Some("use `builtin`".to_owned()));
            return;
        }
        let needed: &[&str] = match self.text("schema-registry.confluent.auth.type") {
            "basic" => &["connection-string", "auth.basic.username", "auth.basic.password"],
            "bearer" => &["connection-string", "auth.bearer.token"],
            _ => &["connection-string"],
        };
        for name in needed {
            let name = format!("schema-registry.confluent.{name}");
            if self.text(&name).is_empty() {
                let what = format!("{name} config value is required");
                self.report(self.entry("schema-registry.type"), refuse(what), None);
            }
        }
        let url = self.text("schema-registry.confluent.connection-string");
        if !url.is_empty() && !url.starts_with("http://") && !url.starts_with("https://") {
            let what = "schema-registry.confluent.connection-string is not the URL of a server";
            let hint = Some("write a URL, for example https://registry:8081".to_owned());
            self.report(self.entry("schema-registry.confluent.connection-string"), refuse(what.to_owned()), hint);
        }
    }

    fn report(&mut self, entry: &Resolved, finding: Diagnostic, hint: Option<String>) {
        let finding = Diagnostic { message: entry.hidden(finding.message), ..finding };
        let hint = hint.map(|hint| entry.hidden(hint));
        let finding = match (entry.span, entry.source) {
            (Some(span), _) => finding.with_span(span),
            (None, Source::Environment) => {
                let variable = entry.standard.map_or_else(|| entry.key.variable(), str::to_owned);
                let message = format!("{} (from {variable})", finding.message);
                Diagnostic { message, ..finding }
            }
            (None, _) => finding,
        };
        self.findings.push(match hint {
            Some(hint) => finding.with_hint(hint),
            None => finding,
        });
    }

    fn entry(&self, name: &str) -> &'a Resolved {
        // Every name below is in the table; the fallback avoids a panic.
        self.resolved.iter().find(|r| r.key.name == name).unwrap_or(&self.resolved[0])
    }

    fn text(&self, name: &str) -> &str {
        self.entry(name).text.as_deref().unwrap_or_default().trim()
    }

    /// Warns of settings that belong to an unused feature.
    fn check_idle(&mut self) {
        let choices = [
            ("db.postgres.", "db.type", "postgres"),
            ("schema-registry.confluent.", "schema-registry.type", "confluent"),
        ];
        for (prefix, switch, wanted) in choices {
            let chosen = self.text(switch);
            if prefix == "db.postgres." && !self.text("cluster.url").is_empty() {
                continue;
            }
            let idle = self.resolved.iter().find(|entry| {
                let is_given =
                    entry.source != Source::Default && entry.text.as_ref().is_some_and(|text| !text.is_empty());
                chosen != wanted && entry.key.name.starts_with(prefix) && is_given
            });
            if let Some(entry) = idle {
                let message = format!("{} has no effect: {switch} is {chosen}", entry.key.name);
                let hint = format!("set {switch} to {wanted}, or remove this setting");
                self.report(entry, Diagnostic::warning(codes::SERVICE_NO_EFFECT, message), Some(hint));
            }
        }
        let path = self.entry("db.path");
        if self.text("db.type") == "inmemory" && path.source != Source::Default {
            let message = "db.path has no effect: db.type is inmemory, and positions are lost when the service ends";
            let hint = "set db.type to embedded, or remove this setting".to_owned();
            self.report(path, Diagnostic::warning(codes::SERVICE_NO_EFFECT, message.to_owned()), Some(hint));
        }
    }

    fn credential(&self, name: &str) -> Credential {
        Credential::new(self.text(name), self.entry(name).written.clone())
    }

    fn path(&self, name: &str) -> PathBuf {
        let text = self.text(name);
        match self.entry(name).source {
            Source::Default | Source::File => below(self.base, text),
            Source::Environment | Source::Flag => PathBuf::from(text),
        }
    }

    fn bool(&self, name: &str) -> bool {
        parse_bool(self.text(name)).unwrap_or_default()
    }

    fn int(&self, name: &str) -> i64 {
        self.text(name).parse().unwrap_or_default()
    }

    fn bytes(&self, name: &str) -> usize {
        usize::try_from(parse_bytes(self.text(name)).unwrap_or_default()).unwrap_or(usize::MAX)
    }

    fn duration(&self, name: &str) -> Duration {
        parse_duration(self.text(name)).unwrap_or_default()
    }

    /// Returns a duration, with zero as `None`.
    fn limit(&self, name: &str) -> Option<Duration> {
        Some(self.duration(name)).filter(|limit| !limit.is_zero())
    }

    /// Returns the items of a comma-separated list.
    fn list(&self, name: &str) -> Vec<String> {
        self.text(name).split(',').map(|item| item.trim().to_owned()).filter(|item| !item.is_empty()).collect()
    }

    fn settings(&self, config_path: PathBuf) -> Settings {
        let cluster = self.cluster();
        let shutdown = self.duration("shutdown.timeout");
        Settings {
            config_path,
            database: match (&cluster, self.text("db.type")) {
                (Some(cluster), _) => Database::Postgres(cluster.database.clone()),
                (None, "inmemory") => Database::InMemory,
                (None, "postgres") => Database::Postgres(PostgresDatabase {
                    connection: self.credential("db.postgres.connection-string"),
                    table: self.text("db.postgres.table").to_owned(),
                }),
                (None, _) => Database::Embedded(self.path("db.path")),
            },
            cluster,
            store_wait: self.duration("db.wait"),
            schemas: match self.text("schema-registry.type") {
                "confluent" => Schemas::Confluent(ConfluentSettings {
                    url: self.credential("schema-registry.confluent.connection-string"),
                    login: match self.text("schema-registry.confluent.auth.type") {
                        "basic" => ConfluentLogin::Basic {
                            username: self.credential("schema-registry.confluent.auth.basic.username"),
                            password: self.credential("schema-registry.confluent.auth.basic.password"),
                        },
                        "bearer" => ConfluentLogin::Bearer {
                            token: self.credential("schema-registry.confluent.auth.bearer.token"),
                        },
                        _ => ConfluentLogin::None,
                    },
                }),
                _ => Schemas::BuiltIn,
            },
            api: self.bool("api.enabled").then(|| self.api()),
            traces: self.traces(),
            log: LogSettings {
                level: match self.text("log.level") {
                    "trace" => LogLevel::Trace,
                    "debug" => LogLevel::Debug,
                    "warn" => LogLevel::Warn,
                    "error" => LogLevel::Error,
                    _ => LogLevel::Info,
                },
                format: if self.text("log.format") == "json" || (self.bool("dev.enabled") && self.bool("dev.json")) {
                    LogFormat::Json
                } else {
                    LogFormat::Cli
                },
            },
            pipelines: PipelineSettings {
                path: self.path("pipelines.path"),
                watch: self.bool("pipelines.watch"),
                strict: self.bool("pipelines.strict"),
                exit_on_degraded: self.bool("pipelines.exit-on-degraded"),
                recovery: RecoveryPolicy {
                    min_delay: self.duration("pipelines.error-recovery.min-delay"),
                    max_delay: self.duration("pipelines.error-recovery.max-delay"),
                    backoff_factor: u32::try_from(self.int("pipelines.error-recovery.backoff-factor"))
                        .unwrap_or(u32::MAX),
                    max_retries: match self.int("pipelines.error-recovery.max-retries") {
                        ..0 => None,
                        n => Some(u32::try_from(n).unwrap_or(u32::MAX)),
                    },
                    max_retries_window: self.duration("pipelines.error-recovery.max-retries-window"),
                    login_patience: self.duration("pipelines.error-recovery.login-patience"),
                },
            },
            connectors: ConnectorSettings {
                path: self.path("connectors.path"),
                record_limit: self.bytes("connectors.max-receive-record-size"),
                timeout: self.duration("connectors.timeout"),
                equal_refusals: usize::try_from(self.int("connectors.equal-refusals")).unwrap_or(usize::MAX),
            },
            processors: ProcessorSettings {
                path: self.path("processors.path"),
                timeout: self.limit("processors.timeout"),
                max_memory: self.bytes("processors.max-memory"),
                egress: EgressSettings {
                    enabled: self.bool("processors.egress.enabled"),
                    allow: self.list("processors.egress.allow"),
                    secret_refs: self.list("processors.egress.secret-refs"),
                    timeout: self.limit("processors.egress.timeout"),
                    max_response_bytes: parse_bytes(self.text("processors.egress.max-response-bytes"))
                        .filter(|bytes| *bytes > 0),
                },
            },
            limits: MemoryLimits {
                replay_rows: usize::try_from(self.int("engine.replay-rows")).unwrap_or_default(),
                held_bytes: self.bytes("engine.held-bytes"),
                queue_bytes: self.bytes("engine.queue-bytes"),
                ..MemoryLimits::default()
            },
            shutdown_timeout: (!shutdown.is_zero()).then_some(shutdown),
            dev: self.bool("dev.enabled"),
            arch_v2: self.bool("preview.pipeline-arch-v2"),
            live_restart: self.bool("api.allow-live-restart-apply"),
            resolved: Vec::new(),
        }
    }
}

struct SettingProblem {
    message: String,
    hint: Option<String>,
}

fn problem(key: &SettingKey, text: &str) -> Option<SettingProblem> {
    let name = key.name;
    let shown = if key.secret { "the value" } else { text };
    let plain = |message: String| Some(SettingProblem { message, hint: None });
    let text = text.trim();
    if text.is_empty() && key.default.is_some_and(|d| !d.is_empty()) {
        return plain(format!("{name} must not be empty"));
    }
    match key.kind {
        SettingType::Bool if parse_bool(text).is_none() => {
            plain(format!("{name}: {shown:?} is neither true nor false"))
        }
        SettingType::Int { min } => match text.parse::<i64>() {
            Ok(n) if n < min => plain(format!("{name}: {n} must be at least {min}")),
            Ok(_) => None,
            Err(error) if *error.kind() == IntErrorKind::PosOverflow => {
                plain(format!("{name}: {shown} is more than {}", i64::MAX))
            }
            Err(_) => plain(format!("{name}: {shown:?} is not an integer")),
        },
        SettingType::Bytes { min } => match parse_bytes(text) {
            Some(n) if n < min => plain(format!("{name}: {text} must be at least {min} bytes")),
            Some(_) => None,
            None => plain(format!("{name}: {shown:?} is not a size (for example 1000, 64KiB or 8MB)")),
        },
        SettingType::Duration { zero } => match parse_duration(text) {
            Some(d) if d.is_zero() && !zero => plain(format!("{name} must be more than 0")),
            Some(_) => None,
            None => plain(format!("{name}: {shown:?} is not a duration (for example 100ms, 5s or 1h30m)")),
        },
        SettingType::Choice(words) if !words.contains(&text) => Some(SettingProblem {
            message: format!("{name}: {shown:?} is not one of {}", words.join(", ")),
            hint: match (name, text) {
                ("db.type", "badger" | "sqlite") => {
                    Some("use `embedded`: one file at db.path, nothing to install".to_owned())
                }
                _ => did_you_mean(text, words.iter().copied()).map(|near| format!("did you mean {near}?")),
            },
        }),
        SettingType::Address if text.rsplit_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_err()) => {
            let message = format!("{name}: {shown:?} is not an address (host:port)");
            let host = text.strip_suffix(':').unwrap_or(text);
            let hint = match (text.parse::<u16>(), host.is_empty() || host.contains([':', '/', ' '])) {
                (Ok(port), _) => Some(format!("write 127.0.0.1:{port}, or :{port} for every address of this machine")),
                (_, false) => Some(format!("write {host}:8080")),
                _ => None,
            };
            Some(SettingProblem { message, hint })
        }
        SettingType::Share if parse_share(text).is_none() => {
            plain(format!("{name}: {shown:?} is not a share from 0 to 1 (for example 0.01 or 1/100)"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(
        flags: &[(&'static str, &str)],
        env: &[(&str, &str)],
        yaml: &str,
    ) -> Result<(Settings, SettingsFindings), SettingsFindings> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("anabranch.yaml");
        std::fs::write(&path, yaml).unwrap();
        let mut flags: Vec<_> = flags.iter().map(|(n, v)| (*n, (*v).to_owned())).collect();
        flags.push(("config.path", path.display().to_string()));
        let environment: Vec<_> = env.iter().map(|(n, v)| (OsString::from(n), OsString::from(v))).collect();
        Layers { flags: &flags, environment: &environment }.resolve()
    }

    fn messages(refused: &SettingsFindings) -> Vec<String> {
        refused
            .findings
            .iter()
            .map(|d| format!("{}{}", d.message, d.hint.as_ref().map(|h| format!(" | {h}")).unwrap_or_default()))
            .collect()
    }

    #[test]
    fn a_flag_wins_over_a_variable_over_the_file_over_the_default() {
        let yaml = "log.level: warn\nlog.format: json\nshutdown.timeout: 0s\n";
        let env = [("ANABRANCH_LOG_LEVEL", "debug"), ("ANABRANCH_LOG_FORMAT", "")];
        let (settings, found) = resolve(&[("log.level", "trace")], &env, yaml).unwrap();
        assert_eq!(settings.log, LogSettings { level: LogLevel::Trace, format: LogFormat::Json });
        assert_eq!(settings.shutdown_timeout, None);
        assert_eq!(settings.pipelines.recovery, RecoveryPolicy::default());
        assert_eq!(settings.limits, MemoryLimits::default());
        assert!(found.findings.is_empty(), "{:?}", messages(&found));
        let (settings, _) = resolve(&[], &env, yaml).unwrap();
        assert_eq!(settings.log.level, LogLevel::Debug);
        let level = settings.resolved.iter().find(|r| r.key.name == "log.level").unwrap();
        assert_eq!(level.source, Source::Environment);
    }

    #[test]
    fn paths_of_the_file_are_relative_to_it_and_those_of_flags_are_not() {
        let (settings, _) = resolve(&[("pipelines.path", "flows")], &[], "db.path: state/x.db\n").unwrap();
        let base = settings.config_path.parent().unwrap();
        assert_eq!(settings.database, Database::Embedded(base.join("state/x.db")));
        assert_eq!(settings.pipelines.path, PathBuf::from("flows"));
        let (settings, _) = resolve(&[], &[], "").unwrap();
        assert_eq!(settings.pipelines.path, settings.config_path.parent().unwrap().join("pipelines"));
    }

    #[test]
    fn settings_of_traces_say_nothing_where_nothing_is_traced() {
        for name in ["traces.sample: 0.5", "traces.headers: a=b", "traces.service-name: x", "traces.attributes: a=b"] {
            let (_, found) = resolve(&[], &[], name).unwrap();
            let name = name.split(':').next().unwrap();
            let said = format!(
                "{name} has no effect: traces.endpoint is not set | set traces.endpoint, or remove this setting"
            );
            assert_eq!(messages(&found), [said]);
        }
        // A variable that all programs read may not be intended for this program.
        let (_, found) = resolve(&[], &[("OTEL_SERVICE_NAME", "x")], "").unwrap();
        assert_eq!(messages(&found), Vec::<String>::new());
    }

    #[test]
    fn a_file_that_looks_like_the_configuration_is_not_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("anabranch.yaml");
        assert!(unread(&path).is_empty());
        std::fs::write(directory.path().join("anabranch.yml"), "log.level: debug").unwrap();
        let found = unread(&path);
        let [finding] = found.0.as_slice() else { panic!("{found:?}") };
        assert!(finding.message.contains("anabranch.yml is not read"), "{}", finding.message);
    }

    #[test]
    fn texts_stay_as_they_are_written() {
        for text in ["1e3", "0x10", "1_000", "no", "yes", "1.10", "+1", "2024-01-01", "-0"] {
            let (settings, _) =
                resolve(&[], &[], &format!("traces.service-name: {text}\ntraces.endpoint: http://h\n")).unwrap();
            let found = settings.resolved.iter().find(|entry| entry.key.name == "traces.service-name").unwrap();
            assert_eq!(found.text.as_deref(), Some(text));
        }
    }

    #[test]
    fn all_problems_are_reported_at_once() {
        let yaml = "db.type: badger\nshutdown.timeout: 5\npipelines.error-recovery.max-delay: 500ms\n";
        let refused = resolve(&[("engine.replay-rows", "0")], &[("ANABRANCH_LOG_LEVEL", "inof")], yaml).unwrap_err();
        assert_eq!(
            messages(&refused),
            [
                "db.type: \"badger\" is not one of embedded, inmemory, postgres | use `embedded`: one file at db.path, nothing to install",
                "engine.replay-rows: 0 must be at least 1",
                "shutdown.timeout: \"5\" is not a duration (for example 100ms, 5s or 1h30m)",
                "log.level: \"inof\" is not one of trace, debug, info, warn, error (from ANABRANCH_LOG_LEVEL) | did you mean info?",
                "pipelines.error-recovery.max-delay must not be below pipelines.error-recovery.min-delay",
            ]
        );
    }

    #[test]
    fn stores_of_other_services_are_refused_with_what_replaces_them() {
        for (kind, hint) in [("badger", "use `embedded`"), ("sqlite", "use `embedded`")] {
            let refused = resolve(&[("db.type", kind)], &[], "").unwrap_err();
            let message = messages(&refused).remove(0);
            assert!(message.contains(kind) && message.contains(hint), "{message}");
        }
    }

    #[test]
    fn slips_in_variables_and_settings_without_effect_are_warned_of() {
        let (_, found) =
            resolve(&[], &[("ANABRANCH_DB_PAHT", "x"), ("ANABRANCH_MY_OWN", "y")], "dev.cpuprofile: x").unwrap();
        assert_eq!(
            messages(&found),
            [
                "the variable ANABRANCH_DB_PAHT belongs to no setting | did you mean ANABRANCH_DB_PATH?",
                "dev.cpuprofile has no effect in this version: profiling is not available yet",
            ]
        );
    }

    #[test]
    fn credentials_are_not_shown() {
        let (settings, _) =
            resolve(&[], &[("ANABRANCH_DB_POSTGRES_CONNECTION_STRING", "postgres://u:hunter2@h")], "").unwrap();
        let entry = settings.resolved.iter().find(|r| r.key.name == "db.postgres.connection-string").unwrap();
        assert_eq!(entry.shown(), Some("***"));
    }

    #[test]
    fn the_file_may_name_variables_and_files() {
        let directory = tempfile::tempdir().unwrap();
        let secret = directory.path().join("secret");
        std::fs::write(&secret, "postgres://u:hunter2@h/d\n").unwrap();
        let yaml = format!(
            "db.type: postgres\ndb.postgres.connection-string: ${{file:{}}}\nlog:\n  level: ${{LEVEL}}\n\
             pipelines.path: \"${{NONE:-flows}}/$${{x}}\"\nengine.replay-rows: ${{ROWS}}\n",
            secret.display()
        );
        let env = [("LEVEL", "debug"), ("ROWS", "77")];
        let (settings, found) = resolve(&[], &env, &yaml).unwrap_or_else(|refused| panic!("{:?}", messages(&refused)));
        assert!(found.findings.is_empty(), "{:?}", messages(&found));
        let entry = |name: &str| settings.resolved.iter().find(|r| r.key.name == name).unwrap();
        assert_eq!(settings.log.level, LogLevel::Debug);
        assert_eq!(entry("db.postgres.connection-string").text.as_deref(), Some("postgres://u:hunter2@h/d"));
        assert_eq!(entry("db.postgres.connection-string").shown(), Some("***"));
        assert_eq!(entry("log.level").shown(), Some("${LEVEL}"));
        assert_eq!(entry("pipelines.path").shown(), Some("flows/${x}"));
        assert_eq!(entry("engine.replay-rows").text.as_deref(), Some("77"));

        let yaml = "log.level: ${LEVEL}\nengine.replay-rows: ${ROWS}\ndb.path: ${NOT_SET}\nshutdown.timeout: \"${a b}\"\n\
                    pipelines.path: ${file:/not/there}\n";
        let refused = resolve(&[], &[("LEVEL", "hunter2"), ("ROWS", "-5")], yaml).unwrap_err();
        let text = messages(&refused).join("\n");
        for part in [
            "the environment variable NOT_SET is not set",
            "an invalid variable reference",
            "\"/not/there\" cannot be read",
            "log.level: \"${LEVEL}\" is not one of",
            "engine.replay-rows: ${ROWS} must be at least 1",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("hunter2"), "{text}");
        assert!(refused.findings.iter().all(|finding| finding.label.is_some()), "each at its place");
    }

    #[test]
    fn a_file_that_was_asked_for_must_exist() {
        let flags = [("config.path", "/nowhere/anabranch.yaml".to_owned())];
        let refused = Layers { flags: &flags, environment: &[] }.resolve().unwrap_err();
        assert_eq!(
            messages(&refused),
            ["cannot read /nowhere/anabranch.yaml: no such file or directory | `anabranch init` writes one"]
        );
    }
}
