//! Checks of the service: pipelines, store, listener, plugins, and a running service.

use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anabranch_api::ending;
use anabranch_ops_tls::Identity;
use anabranch_plugin::diagnostic::Severity;
use anabranch_process::files::{system, visible_files};
use anabranch_process::runtime;
use anabranch_service::pipelines::Pipelines;
use anabranch_settings::{Database, Source};
use anabranch_store::{OpenError, Store};
use chrono::Utc;
use serde::de::DeserializeOwned;
use tokio::runtime::Builder;
use tokio::time::timeout;

use super::machine::directory_of;
use super::{CheckResult, CheckSeverity, DoctorContext};
use crate::cli::answers::{LIVE, LiveAnswer, LivePipeline, StatusAnswer};
use crate::cli::report::counted;
use crate::cli::{compile_options, registry, registry_with};
use crate::client::{Client, ClientError};

pub(super) fn pipelines(subject: &mut DoctorContext<'_>) -> CheckResult {
    let settings = subject.settings;
    let path = &settings.pipelines.path;
    if !path.exists() {
        let advice = "`anabranch init` creates the directory, `anabranch pipelines init` writes a pipeline into it";
        return CheckResult::warning(format!("{} does not exist", path.display())).advise(advice);
    }
    let (registry, options) = (registry_with(settings), compile_options(settings, false));
    // If no standalone plugin is installed, plugins that are not built in are errors.
    let nothing_installed = visible_files(&settings.processors.path).is_empty();
    let (pipelines, left) = if subject.deep || nothing_installed {
        (Pipelines::load(&[path], &registry, &options), 0)
    } else {
        let (pipelines, unloaded) = Pipelines::load_ready(&[path], &registry, &options);
        (pipelines, unloaded.configs.len())
    };
    let left = match left {
        0 => String::new(),
        count => {
            format!("; {} with standalone processors not checked (--deep checks them)", counted(count, "pipeline"))
        }
    };
    let good = pipelines.good.len();
    let (errors, warnings) = (pipelines.count(Severity::Error), pipelines.count(Severity::Warning));
    let look = "`anabranch pipelines validate` shows them; with `--fix` it corrects those that it can";
    let what = format!("{} in {}{left}", counted(good, "pipeline"), path.display());
    if pipelines.has_errors() {
        CheckResult::new(CheckSeverity::Invalid, format!("{} in {}", counted(errors.max(1), "error"), path.display()))
            .advise(look)
    } else if warnings > 0 {
        CheckResult::warning(format!("{what}, with {}", counted(warnings, "warning"))).advise(look)
    } else if good == 0 && left.is_empty() {
        CheckResult::warning(format!("there is no pipeline in {}", path.display()))
            .advise("`anabranch pipelines init` writes one")
    } else {
        CheckResult::well(what)
    }
}

impl DoctorContext<'_> {
    /// Returns `true` if a service answers at the configured address.
    pub(super) fn answers(&mut self) -> bool {
        *self.answers.get_or_insert_with(|| health(self.settings).is_ok())
    }
}

/// Returns the URL of the running service and its readiness.
fn health(settings: &anabranch_settings::Settings) -> Result<(String, serde_json::Value), ClientError> {
    let client = Client::of(settings.api.as_ref())?;
    let unreachable = |error| ClientError::Unreachable { url: client.url(), error };
    let runtime = runtime::start(&mut Builder::new_current_thread()).map_err(unreachable)?;
    runtime.block_on(async {
        client.get::<serde_json::Value>("/healthz").await?;
        Ok((client.url(), client.get("/readyz").await.unwrap_or_default()))
    })
}

pub(super) fn service(subject: &mut DoctorContext<'_>) -> CheckResult {
    if subject.settings.api.is_none() {
        return CheckResult::well("api.enabled is false: the service has no HTTP API");
    }
    let health = health(subject.settings);
    subject.answers = Some(health.is_ok());
    match health {
        Ok((url, ready)) => {
            let degraded = ready["pipelines"]["degraded"].as_u64().unwrap_or_default();
            let total = ready["pipelines"]["total"].as_u64();
            match (ready["status"].as_str(), degraded) {
                (Some("ready"), 0) => {
                    let total = total.map(|total| format!(", with {}", counted(total as usize, "pipeline")));
                    CheckResult::well(format!("a service runs at {url}{}", total.unwrap_or_default()))
                }
                (Some("ready"), degraded) => CheckResult::warning(format!(
                    "a service runs at {url}, {} degraded",
                    counted(degraded as usize, "pipeline")
                ))
                .advise("`anabranch pipelines list` shows why"),
                _ => CheckResult::warning(format!("a service runs at {url}, but it is not ready"))
                    .advise("it is starting or stopping, or it cannot reach its store: see its log"),
            }
        }
        Err(error) if error.is_absence() => CheckResult::warning(format!("{error}"))
            .advise("`anabranch run` starts a service; the other checks do not need one"),
        Err(error) => {
            let advice =
                error.suggestion().unwrap_or("check whether another program listens at this address").to_owned();
            CheckResult::environment(error.to_string()).advise(advice)
        }
    }
}

/// Reports pipelines of the service that deliver nothing, and why.
pub(super) fn progress(subject: &mut DoctorContext<'_>) -> CheckResult {
    if !subject.answers() {
        return CheckResult::well("no service runs: no records are delivered");
    }
    let live = match live(subject.settings) {
        Ok(live) => live,
        Err(error) => {
            let advice = error.suggestion().unwrap_or("see the log of the service").to_owned();
            return CheckResult::warning(format!("cannot read the pipelines of the service: {error}")).advise(advice);
        }
    };
    let now = Utc::now();
    let is_told = |status: &StatusAnswer| status.is_held_up() || status.recent_failure(now).is_some();
    let held_up: Vec<_> = live.pipelines.iter().filter(|pipeline| is_told(&pipeline.status)).collect();
    if held_up.is_empty() {
        return CheckResult::well(format!(
            "{}, none of them stalled or failed",
            counted(live.pipelines.len(), "pipeline")
        ));
    }
    let told =
        |LivePipeline { id, status, .. }: &LivePipeline| format!("{id} is {}: {}", status.shown(), status.detail(now));
    let told: Vec<String> = held_up.iter().take(TOLD).map(|pipeline| told(pipeline)).collect();
    let more = held_up.len().saturating_sub(TOLD);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    CheckResult::warning(format!("{}{more}", told.join("; ")))
        .advise("correct the cause in the message; `anabranch pipelines describe ID` shows more")
}

/// Maximum number of pipelines that a message names.
const TOLD: usize = 5;

/// Returns the counters of a running service.
pub(super) fn live(settings: &anabranch_settings::Settings) -> Result<LiveAnswer, ClientError> {
    answer(settings, LIVE)
}

/// Returns what a running service answers to a `GET` request.
pub(super) fn answer<T: DeserializeOwned>(
    settings: &anabranch_settings::Settings,
    path: &str,
) -> Result<T, ClientError> {
    let client = Client::of(settings.api.as_ref())?;
    let unreachable = |error| ClientError::Unreachable { url: client.url(), error };
    let runtime = runtime::start(&mut Builder::new_current_thread()).map_err(unreachable)?;
    runtime.block_on(client.get(path))
}

/// How long a store may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn store(subject: &mut DoctorContext<'_>) -> CheckResult {
    let answers = subject.answers();
    let database = &subject.settings.database;
    match database {
        Database::InMemory => {
            return CheckResult::warning("in memory: the positions of sources are lost when the service ends")
                .advise("set db.type to embedded to store positions in a file");
        }
        Database::Embedded(path) if !path.exists() => return absent(path),
        Database::Embedded(_) | Database::Postgres(_) => {}
    }
    let store = match Store::open_existing(database) {
        Ok(Some(store)) => store,
        Ok(None) => return CheckResult::well("there is no store yet; the first `anabranch run` creates it"),
        Err(OpenError::InUse { place, owner, .. }) => {
            let who = owner.map(|who| format!(" by {who}")).unwrap_or_default();
            let what = format!("{place} is in use{who}");
            return if answers {
                CheckResult::well(what)
            } else {
                CheckResult::environment(what)
                    .advise("stop that process first, or set another db.path for this service")
            };
        }
        Err(error) => return CheckResult::environment(error.to_string()),
    };
    let runtime = match runtime::start(&mut Builder::new_current_thread()) {
        Ok(runtime) => runtime,
        Err(error) => return CheckResult::environment(system(&error)),
    };
    let place = match database {
        Database::Embedded(path) => path.display().to_string(),
        Database::InMemory => "memory".to_owned(),
        Database::Postgres(postgres) => format!("PostgreSQL, table {}", postgres.table),
    };
    match runtime.block_on(async { timeout(PATIENCE, store.pipelines()).await }) {
        Ok(Ok(pipelines)) => CheckResult::well(format!("{place}: {}", counted(pipelines.len(), "pipeline"))),
        Ok(Err(error)) => CheckResult::environment(format!("{place}: {error}")),
        Err(_) => CheckResult::environment(format!("{place}: no answer within {} s", PATIENCE.as_secs())),
    }
}

/// Checks that a store that does not exist can be created at the first start.
fn absent(path: &Path) -> CheckResult {
    let directory = directory_of(path);
    let shown = path.display();
    if path.parent().is_some_and(|parent| !parent.as_os_str().is_empty() && !parent.is_dir()) {
        return CheckResult::environment(format!("{shown} cannot be created: its directory does not exist"))
            .advise("create the directory, or set another db.path");
    }
    match tempfile::tempfile_in(&directory) {
        Ok(_) => CheckResult::well(format!("{shown} does not exist; the first start creates it")),
        Err(error) => CheckResult::environment(format!("{shown} cannot be created: {}", system(&error)))
            .advise("allow this user to write there, or set another db.path"),
    }
}

pub(super) fn listener(subject: &mut DoctorContext<'_>) -> CheckResult {
    let Some(api) = &subject.settings.api else {
        return CheckResult::well("api.enabled is false: the service does not serve HTTP");
    };
    if let Err(error) = api.read_token() {
        return CheckResult::new(CheckSeverity::Invalid, format!("api.http.token-file: {error}"));
    }
    if let Some(Err(error)) = api.identity.as_ref().map(Identity::server) {
        return CheckResult::new(CheckSeverity::Invalid, format!("api.http.tls: {error}"));
    }
    if let Some(warning) = api.identity.as_ref().and_then(|identity| ending(identity, SystemTime::now())) {
        return CheckResult::warning(format!("api.http.tls: {warning}"))
            .advise("replace it with a new certificate: a running service reads the new one within seconds");
    }
    let shown = api.shown();
    let open = |what: String| {
        if api.is_local() || api.identity.is_some() {
            CheckResult::well(what)
        } else {
            CheckResult::warning(format!("{what}; other machines can reach it, without encryption"))
                .advise("if you do not trust the network, set api.http.tls.cert and api.http.tls.key")
        }
    };
    if api.port == 0 {
        return open(format!("{shown}: any free port"));
    }
    let (host, port) = (if api.host.is_empty() { "::" } else { api.host.as_str() }, api.port);
    if subject.answers() {
        return open(format!("the running service serves {shown}"));
    }
    match TcpListener::bind((host, port)) {
        Ok(_) => open(format!("{shown} is free")),
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            CheckResult::environment(format!("{shown} is in use by another program"))
                .advise("set another address with api.http.address, or disable HTTP with api.enabled=false")
        }
        Err(error) => CheckResult::environment(format!("cannot listen on {shown}: {}", system(&error)))
            .advise("set another address with api.http.address"),
    }
}

pub(super) fn builtin(_: &mut DoctorContext<'_>) -> CheckResult {
    let registry = registry();
    let counts = [
        (registry.sources().count(), "source"),
        (registry.operators().count(), "processor"),
        (registry.destinations().count(), "destination"),
    ];
    let counts: Vec<String> = counts.iter().map(|(count, what)| counted(*count, what)).collect();
    CheckResult::well(counts.join(", "))
}

pub(super) fn connectors(subject: &mut DoctorContext<'_>) -> CheckResult {
    let path = &subject.settings.connectors.path;
    let found = directory(subject, "connectors.path", path);
    if found.mark > CheckSeverity::Well {
        return found;
    }
    let is_executable =
        |path: &Path| fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0);
    let not_executable = visible_files(path).iter().filter(|path| !is_executable(path)).count();
    match not_executable {
        0 => found,
        count => {
            CheckResult::warning(format!("{} in {} without execute permission", counted(count, "file"), path.display()))
                .advise(
                    "connectors are programs: run `chmod +x` on them, or move files that are not connectors to another \
                     directory",
                )
        }
    }
}

pub(super) fn processors(subject: &mut DoctorContext<'_>) -> CheckResult {
    directory(subject, "processors.path", &subject.settings.processors.path)
}

/// Checks a directory of plugins, whose files this program executes.
fn directory(subject: &DoctorContext<'_>, setting: &str, path: &Path) -> CheckResult {
    let shown = path.display();
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let given =
                subject.settings.resolved.iter().any(|it| it.key.name == setting && it.source != Source::Default);
            let what = format!("{shown} does not exist: no standalone plugins");
            return if given {
                CheckResult::warning(what).advise(format!("create it, or correct {setting}"))
            } else {
                CheckResult::well(what)
            };
        }
        Err(error) => return CheckResult::environment(format!("{shown}: {}", system(&error))),
    };
    if !metadata.is_dir() {
        return CheckResult::environment(format!("{shown} is not a directory")).advise(format!("correct {setting}"));
    }
    if let Err(error) = fs::read_dir(path) {
        return CheckResult::environment(format!("{shown} cannot be read: {}", system(&error)));
    }
    if metadata.permissions().mode() & 0o002 != 0 {
        return CheckResult::warning(format!("every user can write to {shown}, and the service runs the files in it"))
            .advise(format!("run `chmod o-w {shown}`"));
    }
    CheckResult::well(format!("{} in {shown}", counted(visible_files(path).len(), "file")))
}

/// Loads all standalone plugins. Errors are printed when they occur.
pub(super) fn standalone(subject: &mut DoctorContext<'_>) -> CheckResult {
    let registry = registry_with(subject.settings);
    let (connectors, processors) = (registry.standalone_connectors().len(), registry.standalone_operators().len());
    let files = [&subject.settings.connectors.path, &subject.settings.processors.path];
    let files: usize = files.iter().map(|path| visible_files(path).len()).sum();
    let what = format!("{}, {}", counted(connectors, "connector"), counted(processors, "processor"));
    if connectors + processors < files {
        CheckResult::warning(format!("{what}, from {}", counted(files, "file")))
            .advise("the messages above describe the files that could not be loaded")
    } else {
        CheckResult::well(what)
    }
}
