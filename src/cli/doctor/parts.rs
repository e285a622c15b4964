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
use anabranch_process::files::system;
use anabranch_process::runtime;
use anabranch_service::pipelines::Pipelines;
use anabranch_settings::{Database, Source};
use anabranch_store::{OpenError, Store};
use chrono::Utc;
use tokio::runtime::Builder;
use tokio::time::timeout;

use super::machine::directory_of;
use super::{Found, Mark, Patient};
use crate::cli::answers::{LIVE, LiveAnswer, LivePipeline, StatusAnswer};
use crate::cli::report::counted;
use crate::cli::{compile_options, registry, registry_with};
use crate::client::{Client, ClientError};

pub(super) fn pipelines(patient: &mut Patient<'_>) -> Found {
    let settings = patient.settings;
    let path = &settings.pipelines.path;
    if !path.exists() {
        let advice = "`anabranch init` creates the directory, `anabranch pipelines init` writes a pipeline into it";
        return Found::warning(format!("{} does not exist", path.display())).advise(advice);
    }
    let (registry, options) = (registry_with(settings), compile_options(settings, false));
    // If no standalone plugin is installed, plugins that are not built in are errors.
    let nothing_installed = children(&settings.processors.path).next().is_none();
    let (pipelines, left) = if patient.deep || nothing_installed {
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
        Found::new(Mark::Invalid, format!("{} in {}", counted(errors.max(1), "error"), path.display())).advise(look)
    } else if warnings > 0 {
        Found::warning(format!("{what}, with {}", counted(warnings, "warning"))).advise(look)
    } else if good == 0 && left.is_empty() {
        Found::warning(format!("there is no pipeline in {}", path.display()))
            .advise("`anabranch pipelines init` writes one")
    } else {
        Found::well(what)
    }
}

impl Patient<'_> {
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

pub(super) fn service(patient: &mut Patient<'_>) -> Found {
    if patient.settings.api.is_none() {
        return Found::well("api.enabled is false: the service has no HTTP API");
    }
    let health = health(patient.settings);
    patient.answers = Some(health.is_ok());
    match health {
        Ok((url, ready)) => {
            let degraded = ready["pipelines"]["degraded"].as_u64().unwrap_or_default();
            let total = ready["pipelines"]["total"].as_u64();
            match (ready["status"].as_str(), degraded) {
                (Some("ready"), 0) => {
                    let total = total.map(|total| format!(", with {}", counted(total as usize, "pipeline")));
                    Found::well(format!("a service runs at {url}{}", total.unwrap_or_default()))
                }
                (Some("ready"), degraded) => Found::warning(format!(
                    "a service runs at {url}, {} degraded",
                    counted(degraded as usize, "pipeline")
                ))
                .advise("`anabranch pipelines list` shows why"),
                _ => Found::warning(format!("a service runs at {url}, but it is not ready"))
                    .advise("it is starting or stopping, or it cannot reach its store: see its log"),
            }
        }
        Err(error) if error.is_absence() => Found::warning(format!("{error}"))
            .advise("`anabranch run` starts a service; the other checks do not need one"),
        Err(error) => {
            let advice =
                error.suggestion().unwrap_or("check whether another program listens at this address").to_owned();
            Found::environment(error.to_string()).advise(advice)
        }
    }
}

/// Reports pipelines of the service that deliver nothing, and why.
pub(super) fn progress(patient: &mut Patient<'_>) -> Found {
    if !patient.answers() {
        return Found::well("no service runs: no records are delivered");
    }
    let live = match live(patient.settings) {
        Ok(live) => live,
        Err(error) => {
            let advice = error.suggestion().unwrap_or("see the log of the service").to_owned();
            return Found::warning(format!("cannot read the pipelines of the service: {error}")).advise(advice);
        }
    };
    let now = Utc::now();
    let is_told = |status: &StatusAnswer| status.is_held_up() || status.recent_failure(now).is_some();
    let held_up: Vec<_> = live.pipelines.iter().filter(|pipeline| is_told(&pipeline.status)).collect();
    if held_up.is_empty() {
        return Found::well(format!("{}, none of them stalled or failed", counted(live.pipelines.len(), "pipeline")));
    }
    let told =
        |LivePipeline { id, status, .. }: &LivePipeline| format!("{id} is {}: {}", status.shown(), status.detail(now));
    let told: Vec<String> = held_up.iter().take(TOLD).map(|pipeline| told(pipeline)).collect();
    let more = held_up.len().saturating_sub(TOLD);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    Found::warning(format!("{}{more}", told.join("; ")))
        .advise("correct the cause in the message; `anabranch pipelines describe ID` shows more")
}

/// Maximum number of pipelines that a message names.
const TOLD: usize = 5;

/// Returns the counters of a running service.
pub(super) fn live(settings: &anabranch_settings::Settings) -> Result<LiveAnswer, ClientError> {
    let client = Client::of(settings.api.as_ref())?;
    let unreachable = |error| ClientError::Unreachable { url: client.url(), error };
    let runtime = runtime::start(&mut Builder::new_current_thread()).map_err(unreachable)?;
    runtime.block_on(client.get(LIVE))
}

/// How long a store may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn store(patient: &mut Patient<'_>) -> Found {
    let answers = patient.answers();
    let database = &patient.settings.database;
    match database {
        Database::InMemory => {
            return Found::warning("in memory: the positions of sources are lost when the service ends")
                .advise("set db.type to embedded to store positions in a file");
        }
        Database::Embedded(path) if !path.exists() => return absent(path),
        Database::Embedded(_) | Database::Postgres(_) => {}
    }
    let store = match Store::open_existing(database) {
        Ok(Some(store)) => store,
        Ok(None) => return Found::well("there is no store yet; the first `anabranch run` creates it"),
        Err(OpenError::InUse { place, owner, .. }) => {
            let who = owner.map(|who| format!(" by {who}")).unwrap_or_default();
            let what = format!("{place} is in use{who}");
            return if answers {
                Found::well(what)
            } else {
                Found::environment(what).advise("stop that process first, or set another db.path for this service")
            };
        }
        Err(error) => return Found::environment(error.to_string()),
    };
    let runtime = match runtime::start(&mut Builder::new_current_thread()) {
        Ok(runtime) => runtime,
        Err(error) => return Found::environment(system(&error)),
    };
    let place = match database {
        Database::Embedded(path) => path.display().to_string(),
        Database::InMemory => "memory".to_owned(),
        Database::Postgres(postgres) => format!("PostgreSQL, table {}", postgres.table),
    };
    match runtime.block_on(async { timeout(PATIENCE, store.pipelines()).await }) {
        Ok(Ok(pipelines)) => Found::well(format!("{place}: {}", counted(pipelines.len(), "pipeline"))),
        Ok(Err(error)) => Found::environment(format!("{place}: {error}")),
        Err(_) => Found::environment(format!("{place}: no answer within {} s", PATIENCE.as_secs())),
    }
}

/// Checks that a store that does not exist can be created at the first start.
fn absent(path: &Path) -> Found {
    let directory = directory_of(path);
    let shown = path.display();
    if path.parent().is_some_and(|parent| !parent.as_os_str().is_empty() && !parent.is_dir()) {
        return Found::environment(format!("{shown} cannot be created: its directory does not exist"))
            .advise("create the directory, or set another db.path");
    }
    match tempfile::tempfile_in(&directory) {
        Ok(_) => Found::well(format!("{shown} does not exist; the first start creates it")),
        Err(error) => Found::environment(format!("{shown} cannot be created: {}", system(&error)))
            .advise("allow this user to write there, or set another db.path"),
    }
}

pub(super) fn listener(patient: &mut Patient<'_>) -> Found {
    let Some(api) = &patient.settings.api else {
        return Found::well("api.enabled is false: the service does not serve HTTP");
    };
    if let Err(error) = api.read_token() {
        return Found::new(Mark::Invalid, format!("api.http.token-file: {error}"));
    }
    if let Some(Err(error)) = api.identity.as_ref().map(Identity::server) {
        return Found::new(Mark::Invalid, format!("api.http.tls: {error}"));
    }
    if let Some(warning) = api.identity.as_ref().and_then(|identity| ending(identity, SystemTime::now())) {
        return Found::warning(format!("api.http.tls: {warning}"))
            .advise("replace it with a new certificate: a running service reads the new one within seconds");
    }
    let shown = api.shown();
    let open = |what: String| {
        if api.is_local() || api.identity.is_some() {
            Found::well(what)
        } else {
            Found::warning(format!("{what}; other machines can reach it, without encryption"))
                .advise("if you do not trust the network, set api.http.tls.cert and api.http.tls.key")
        }
    };
    if api.port == 0 {
        return open(format!("{shown}: any free port"));
    }
    let (host, port) = (if api.host.is_empty() { "::" } else { api.host.as_str() }, api.port);
    if patient.answers() {
        return open(format!("the running service serves {shown}"));
    }
    match TcpListener::bind((host, port)) {
        Ok(_) => open(format!("{shown} is free")),
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            Found::environment(format!("{shown} is in use by another program"))
                .advise("set another address with api.http.address, or disable HTTP with api.enabled=false")
        }
        Err(error) => Found::environment(format!("cannot listen on {shown}: {}", system(&error)))
            .advise("set another address with api.http.address"),
    }
}

pub(super) fn builtin(_: &mut Patient<'_>) -> Found {
    let registry = registry();
    let counts = [
        (registry.sources().count(), "source"),
        (registry.operators().count(), "processor"),
        (registry.destinations().count(), "destination"),
    ];
    let counts: Vec<String> = counts.iter().map(|(count, what)| counted(*count, what)).collect();
    Found::well(counts.join(", "))
}

pub(super) fn connectors(patient: &mut Patient<'_>) -> Found {
    let path = &patient.settings.connectors.path;
    let found = directory(patient, "connectors.path", path);
    if found.mark > Mark::Well {
        return found;
    }
    let not_executable = children(path).filter(|(_, metadata)| metadata.permissions().mode() & 0o111 == 0).count();
    match not_executable {
        0 => found,
        count => Found::warning(format!("{} in {} without execute permission", counted(count, "file"), path.display()))
            .advise(
                "connectors are programs: run `chmod +x` on them, or move files that are not connectors to another \
                     directory",
            ),
    }
}

pub(super) fn processors(patient: &mut Patient<'_>) -> Found {
    directory(patient, "processors.path", &patient.settings.processors.path)
}

fn children(path: &Path) -> impl Iterator<Item = (std::path::PathBuf, fs::Metadata)> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let hidden = |path: &Path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    entries.filter(move |path| !hidden(path)).filter_map(|path| {
        let metadata = fs::metadata(&path).ok()?;
        metadata.is_file().then_some((path, metadata))
    })
}

/// Checks a directory of plugins, whose files this program executes.
fn directory(patient: &Patient<'_>, setting: &str, path: &Path) -> Found {
    let shown = path.display();
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let given =
                patient.settings.resolved.iter().any(|it| it.key.name == setting && it.source != Source::Default);
            let what = format!("{shown} does not exist: no standalone plugins");
            return if given {
                Found::warning(what).advise(format!("create it, or correct {setting}"))
            } else {
                Found::well(what)
            };
        }
        Err(error) => return Found::environment(format!("{shown}: {}", system(&error))),
    };
    if !metadata.is_dir() {
        return Found::environment(format!("{shown} is not a directory")).advise(format!("correct {setting}"));
    }
    if let Err(error) = fs::read_dir(path) {
        return Found::environment(format!("{shown} cannot be read: {}", system(&error)));
    }
    if metadata.permissions().mode() & 0o002 != 0 {
        return Found::warning(format!("every user can write to {shown}, and the service runs the files in it"))
            .advise(format!("run `chmod o-w {shown}`"));
    }
    Found::well(format!("{} in {shown}", counted(children(path).count(), "file")))
}

/// Loads all standalone plugins. Errors are printed when they occur.
pub(super) fn standalone(patient: &mut Patient<'_>) -> Found {
    let registry = registry_with(patient.settings);
    let (connectors, processors) = (registry.standalone_connectors().len(), registry.standalone_operators().len());
    let files = [&patient.settings.connectors.path, &patient.settings.processors.path];
    let files: usize = files.iter().map(|path| children(path).count()).sum();
    let what = format!("{}, {}", counted(connectors, "connector"), counted(processors, "processor"));
    if connectors + processors < files {
        Found::warning(format!("{what}, from {}", counted(files, "file")))
            .advise("the messages above describe the files that could not be loaded")
    } else {
        Found::well(what)
    }
}
