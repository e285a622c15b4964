//! The service inside another program.

use std::cell::Cell;
use std::net::SocketAddr;
use std::panic::resume_unwind;
use std::rc::Rc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use anabranch_api::Api;
use anabranch_plugin::diagnostic::{Diagnostics, Files, RenderStyle};
use anabranch_plugin::registry::Plugin;
use anabranch_process::log::{Log, Output};
use anabranch_registry::{RegisterError, registry_inside};
use anabranch_service::pipelines::Pipelines;
use anabranch_service::{Companion, RunSummary, Service, ServiceError, StopSource};
use anabranch_settings::declaration::find;
use anabranch_settings::{Layers, Settings};
use futures::FutureExt as _;
use tokio::sync::watch;

use crate::cli::compile_options;

/// A service that is to run inside this program.
///
/// Its pipelines, processors and stores are those of `anabranch run`. It installs no log and handles no signals: the
/// program does, with a subscriber of the crate `tracing` and [`Running::stop`].
///
/// ```
/// use anabranch::Service;
///
/// let directory = tempfile::tempdir()?;
/// std::fs::write(directory.path().join("in.txt"), "one\ntwo\n")?;
/// let pipeline = format!(
///     "
/// version: '2.2'
/// pipelines:
///   - id: copy
///     connectors:
///       - {{ id: in, type: source, plugin: file, settings: {{ path: {0}/in.txt }} }}
///       - {{ id: out, type: destination, plugin: file, settings: {{ path: {0}/out.txt }} }}
/// ",
///     directory.path().display()
/// );
/// std::fs::write(directory.path().join("copy.yaml"), pipeline)?;
///
/// let service = Service::builder()
///     .in_process()
///     .setting("pipelines.path", directory.path().join("copy.yaml").display().to_string())
///     .setting("db.type", "inmemory")
///     .setting("api.enabled", "false")
///     .once();
/// let ended = service.start()?.wait()?;
/// assert_eq!(ended.accounts["copy"].delivered_in_all(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "nothing happens before `start`"]
pub struct InProcess {
    plugins: Vec<Plugin>,
    settings: Vec<(String, String)>,
    once: bool,
}

/// Why a service inside this program does not start or ends with an error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Plugins cannot be registered.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Plugins(Vec<RegisterError>),
    /// There is no such setting.
    #[error("there is no setting {0:?}")]
    UnknownSetting(String),
    /// Settings have errors: the text shows them with their places.
    #[error("{0}")]
    Settings(String),
    /// Pipeline files have errors: the text shows them with their places.
    #[error("{0}")]
    Pipelines(String),
    /// The service cannot run.
    #[error(transparent)]
    Service(#[from] ServiceError),
}

impl InProcess {
    pub(super) fn new(plugins: Vec<Plugin>) -> Self {
        InProcess { plugins, settings: Vec::new(), once: false }
    }

    /// Gives a setting of the service a value, as a flag of `anabranch run` does: it takes precedence over environment
    /// variables and `anabranch.yaml`. The last value of a setting applies.
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.insert(0, (name.into(), value.into()));
        self
    }

    /// Ends the service when all sources have ended and everything is delivered.
    pub fn once(mut self) -> Self {
        self.once = true;
        self
    }

    /// Reads the settings and pipeline files and starts the service on threads of its own. Returns when its pipelines are
    /// started and its API answers. Blocks: an async program calls it on a blocking thread.
    ///
    /// # Errors
    /// The first of these steps that fails. Then no pipeline was started.
    pub fn start(self) -> Result<Running, StartError> {
        let settings = resolved(&self.settings)?;
        let registry = registry_inside(&settings, self.plugins).map_err(StartError::Plugins)?;
        let options = compile_options(&settings, self.once);
        let pipelines = Pipelines::load(&[&settings.pipelines.path], &registry, &options);
        if pipelines.has_errors() {
            return Err(StartError::Pipelines(shown(&pipelines.all_findings(), &pipelines.files)));
        }
        let system = |what| move |error| ServiceError::System { what, error };
        let output = Output::standard_error().map_err(system("write to standard error"))?;
        let log = Log::new(settings.log, output);
        let (stop, stops) = watch::channel(false);
        let (ready, started) = channel::<Option<SocketAddr>>();
        let run = move || {
            let (on_listening, companion) = announced(ready);
            let service = Service {
                settings,
                registry,
                compile: options,
                log,
                once: self.once,
                stops: StopSource::Program(stops),
                before_abort: None,
                on_listening: Some(on_listening),
                companion: Some(companion),
            };
            service.run::<Api>(pipelines, None)
        };
        let thread = thread::Builder::new().name("anabranch".to_owned()).spawn(run);
        let thread = thread.map_err(system("start a thread"))?;
        match started.recv() {
            Ok(address) => Ok(Running { address, stop, run: Run::Ongoing(thread) }),
            // The service has ended: with an error, or because there was nothing to do.
            Err(_) => Ok(Running { address: None, stop, run: Run::Ended(joined(thread)?) }),
        }
    }
}

/// A service that runs inside this program. Dropping it stops the service without waiting for its end.
#[must_use = "dropping it stops the service"]
pub struct Running {
    address: Option<SocketAddr>,
    stop: watch::Sender<bool>,
    run: Run,
}

enum Run {
    Ongoing(JoinHandle<Result<RunSummary, ServiceError>>),
    Ended(RunSummary),
}

impl Running {
    /// Returns the address of the API; `None` if the settings disable it. With `api.http.address` set to port 0, the
    /// system chooses the port.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Asks the service to stop: sources stop reading, and records that were read are delivered. Does not block.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until the service has ended: after [`Running::stop`], or by itself with [`InProcess::once`]. Blocks: an
    /// async program calls it on a blocking thread.
    ///
    /// # Errors
    /// The service failed. Pipelines that failed are in the summary and are no error.
    pub fn wait(self) -> Result<RunSummary, StartError> {
        match self.run {
            Run::Ongoing(thread) => Ok(joined(thread)?),
            Run::Ended(ended) => Ok(ended),
        }
    }
}

/// Returns the result of the service. A panic of the service continues here.
fn joined(thread: JoinHandle<Result<RunSummary, ServiceError>>) -> Result<RunSummary, ServiceError> {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// Returns the callbacks of a service that report its start, with the address of its API.
fn announced(ready: Sender<Option<SocketAddr>>) -> (Box<dyn FnOnce(SocketAddr)>, Companion) {
    let address = Rc::new(Cell::new(None));
    let listening = address.clone();
    let on_listening = Box::new(move |at| listening.set(Some(at)));
    let companion: Companion = Box::new(move |_| {
        // An error means that nobody waits for the start.
        let _ = ready.send(address.get());
        std::future::ready(()).boxed()
    });
    (on_listening, companion)
}

fn resolved(given: &[(String, String)]) -> Result<Settings, StartError> {
    let mut flags = Vec::with_capacity(given.len());
    for (name, value) in given {
        let key = find(name).ok_or_else(|| StartError::UnknownSetting(name.clone()))?;
        flags.push((key.name, value.clone()));
    }
    let environment: Vec<_> = std::env::vars_os().collect();
    match (Layers { flags: &flags, environment: &environment }).resolve() {
        Ok((settings, _)) => Ok(settings),
        Err(refused) => Err(StartError::Settings(shown(&refused.findings, &refused.files))),
    }
}

fn shown(findings: &Diagnostics, files: &Files) -> String {
    findings.render(files, RenderStyle { color: false, ..RenderStyle::default() })
}
