//! A tap: a program that is started with files for its configuration, its catalogue and its state.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anabranch_ops_program::log::ProgramOwner;
use anabranch_ops_program::{RunningProgram, Starting, command, described, log, private_directory, supervise};
use anabranch_plugin::parameters::Choice;
use anabranch_plugin::secret::mask;
use anabranch_plugin::source::OfferedStream;
use anabranch_record::code::Code;
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::text::Str;
use tempfile::TempDir;
use tokio::time::timeout;

use crate::catalog::{StoredCatalog, StreamSelection, TapCatalog};
use crate::codes;
use crate::config::TapConfig;
use crate::log::TapLog;
use crate::output::TapOutput;

/// Maximum size of a catalogue in bytes.
const LARGEST_CATALOG: usize = 256 << 20;
/// Maximum time until a tap ends that has closed its output.
const LAST: Duration = Duration::from_secs(60);

/// The argument with which a tap gets its catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CatalogArgument {
    Catalog,
    Properties,
    None,
}

impl Choice for CatalogArgument {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("catalog", CatalogArgument::Catalog),
        ("properties", CatalogArgument::Properties),
        ("none", CatalogArgument::None),
    ];
}

/// A tap as it is configured.
#[derive(Clone)]
pub(crate) struct Tap {
    /// The program that supervises it; `None` if this program cannot be started as one.
    pub(crate) supervisor: Option<Arc<[OsString]>>,
    pub(crate) program: Str,
    pub(crate) arguments: Vec<String>,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) environment: BTreeMap<Str, Str>,
    pub(crate) config: TapConfig,
    /// Texts to mask in everything that the tap writes to its log.
    pub(crate) secrets: Vec<Str>,
    pub(crate) catalog: StoredCatalog,
    pub(crate) catalog_argument: CatalogArgument,
    pub(crate) selection: StreamSelection,
    pub(crate) stop_timeout: Duration,
    pub(crate) discover_timeout: Duration,
    /// Maximum size of a message in bytes.
    pub(crate) message_limit: usize,
}

/// A tap that writes messages. Dropping it kills it.
pub(crate) struct RunningTap {
    program: RunningProgram,
    pub(crate) output: TapOutput,
}

impl Tap {
    /// Starts a sync from a state.
    ///
    /// # Errors
    /// The tap cannot be started or cannot discover its streams; the settings do not fit its catalogue.
    pub(crate) async fn sync(
        self: Arc<Self>,
        state: Option<String>,
        origin: ProgramOwner,
    ) -> Result<RunningTap, Fault> {
        let catalog = match self.catalog_argument {
            CatalogArgument::None => None,
            CatalogArgument::Catalog | CatalogArgument::Properties => Some(self.choose(self.catalog(&origin).await?)?),
        };
        let mut files = self.files()?;
        if let Some(catalog) = catalog {
            let argument = match self.catalog_argument {
                CatalogArgument::Properties => "--properties",
                CatalogArgument::Catalog | CatalogArgument::None => "--catalog",
            };
            files.add(argument, "catalog.json", &catalog.text()).map_err(|error| self.not_started(&error))?;
        }
        if let Some(state) = state {
            files.add("--state", "state.json", &state).map_err(|error| self.not_started(&error))?;
        }
        self.start(files, self.message_limit, origin)
    }

    /// Returns the streams that the tap offers, with the choice of the settings if it is possible.
    pub(crate) async fn offered(&self, origin: &ProgramOwner) -> Result<Vec<OfferedStream>, Fault> {
        if self.catalog_argument == CatalogArgument::None {
            return Ok(Vec::new());
        }
        let offered = self.catalog(origin).await?;
        match self.choose(offered.clone()) {
            Ok(chosen) => Ok(chosen.offered()),
            Err(fault) => {
                tracing::warn!(tap = %self.program, "the settings do not fit the streams: {}", fault.message());
                Ok(offered.offered())
            }
        }
    }

    /// Checks that the tap has what the settings choose.
    pub(crate) async fn check(&self, origin: &ProgramOwner) -> Result<(), Fault> {
        match self.catalog_argument {
            CatalogArgument::None => Ok(()),
            CatalogArgument::Catalog | CatalogArgument::Properties => {
                self.choose(self.catalog(origin).await?).map(drop)
            }
        }
    }

    fn choose(&self, mut catalog: TapCatalog) -> Result<TapCatalog, Fault> {
        let is_discovered = self.catalog == StoredCatalog::Discovered;
        match catalog.choose(&self.selection, is_discovered) {
            Ok(()) => Ok(catalog),
            Err(error) => Err(self.fatal(codes::TAP_CATALOG, &format!("cannot be used: {error}"))),
        }
    }

    async fn catalog(&self, origin: &ProgramOwner) -> Result<TapCatalog, Fault> {
        let invalid = |what: &str, error: &dyn std::fmt::Display| {
            self.fatal(codes::TAP_CATALOG_INVALID, &format!("{what} that cannot be used: {error}"))
        };
        match &self.catalog {
            StoredCatalog::Text(text) => {
                TapCatalog::parse(text.as_bytes()).map_err(|error| invalid("has a catalogue", &error))
            }
            StoredCatalog::File(path) => {
                let what = format!("has a catalogue {path}");
                let text = tokio::fs::read(path.as_str()).await.map_err(|error| invalid(&what, &error))?;
                TapCatalog::parse(&text).map_err(|error| invalid(&what, &error))
            }
            StoredCatalog::Discovered => {
                let text = self.discover(origin.clone()).await?;
                TapCatalog::parse(&text).map_err(|error| invalid("discovered a catalogue", &error))
            }
        }
    }

    /// Asks the tap for its catalogue.
    async fn discover(&self, origin: ProgramOwner) -> Result<Vec<u8>, Fault> {
        let mut files = self.files()?;
        files.arguments.push("--discover".into());
        let RunningTap { program, output } = self.start(files, LARGEST_CATALOG, origin)?;
        let late = || {
            let text = format!("did not discover its streams within {} s", self.discover_timeout.as_secs_f64());
            self.fault(FaultClass::Transient, codes::TAP_LATE, &text)
        };
        let whole = timeout(self.discover_timeout, output.whole()).await.map_err(|_| late())?;
        let whole = whole.map_err(|error| self.unreadable(&error))?;
        self.ended(&program, "cannot discover its streams").await?;
        Ok(whole)
    }

    /// Waits for the end of a tap that has closed its output.
    ///
    /// # Errors
    /// It did not end, or it failed.
    async fn ended(&self, program: &RunningProgram, what: &str) -> Result<(), Fault> {
        let Some(status) = program.wait(LAST).await else {
            let text = format!("closed its output and did not end within {} s", LAST.as_secs());
            return Err(self.fault(FaultClass::Transient, codes::TAP_LATE, &text));
        };
        if status.success() {
            return Ok(());
        }
        let words = program.last_words();
        if status.code() == Some(supervise::CANNOT.into()) {
            let text = format!("cannot be started{words}");
            return Err(self.fault(FaultClass::Transient, codes::TAP_START_FAILED, &text));
        }
        let text = format!("{what} ({}){words}", described(status));
        Err(self.fault(FaultClass::Transient, codes::TAP_FAILED, &text))
    }

    /// Waits for the end of a sync.
    ///
    /// # Errors
    /// The tap did not end, or it failed.
    pub(crate) async fn finished(&self, running: &RunningTap) -> Result<(), Fault> {
        self.ended(&running.program, "failed").await
    }

    /// Ends a tap: asks it to, and kills it if it does not.
    pub(crate) async fn stop(&self, running: &mut RunningTap) {
        let RunningTap { program, output } = running;
        program.ask_to_end();
        // A tap that waits for room in its output cannot end.
        let ended = async { tokio::join!(output.discard(), program.wait(self.stop_timeout)).1 };
        if timeout(self.stop_timeout, ended).await.ok().flatten().is_none() {
            tracing::warn!(tap = %self.program, "the tap did not end within {} s and is killed", self.stop_timeout.as_secs_f64());
            program.kill().await;
        }
    }

    fn start(&self, files: TapFiles, limit: usize, origin: ProgramOwner) -> Result<RunningTap, Fault> {
        let Some(supervisor) = &self.supervisor else {
            let text = "cannot be started: this program does not call `Service::worker` first in `main`";
            return Err(self.fatal(codes::TAP_START_FAILED, &text));
        };
        let TapFiles { directory, arguments } = files;
        let mut command = command(supervisor, directory.path(), OsStr::new(self.program.as_str()));
        command.args(&self.arguments).args(arguments);
        command.envs(self.environment.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        let started = (|| {
            let mut starting = Starting::spawn(&mut command)?;
            let stdout = starting.stdout().ok_or(io::ErrorKind::BrokenPipe)?;
            let output = TapOutput::new(stdout, limit)?;
            if let Some(stderr) = starting.stderr() {
                let (mut log_format, secrets) = (TapLog::default(), self.secrets.clone());
                let plugin = self.program.clone();
                starting.listen("tap-err", stderr, move |line, said| {
                    if let Some(mut line) = log_format.parse(line) {
                        line.text = mask(&line.text, &secrets);
                        said.add(&line.text);
                        log::write(&line, &origin, &plugin);
                    }
                })?;
            }
            Ok::<_, io::Error>(RunningTap { program: starting.run(directory)?, output })
        })();
        started.map_err(|error| self.not_started(&error))
    }

    /// Creates the private directory of a run, with the configuration.
    fn files(&self) -> Result<TapFiles, Fault> {
        let files = || {
            let mut files = TapFiles { directory: private_directory(&std::env::temp_dir())?, arguments: Vec::new() };
            files.add("--config", "config.json", &self.config.text())?;
            Ok::<_, io::Error>(files)
        };
        files().map_err(|error| self.not_started(&error))
    }

    /// Builds the fault of an output that cannot be read.
    pub(crate) fn unreadable(&self, error: &io::Error) -> Fault {
        self.fault(FaultClass::Transient, codes::TAP_FAILED, &format!("cannot be read: {error}"))
    }

    fn not_started(&self, error: &io::Error) -> Fault {
        let place = match &self.directory {
            Some(directory) => format!(" in {}", directory.display()),
            None => String::new(),
        };
        let text = format!("cannot be started{place}: {error}");
        self.fault(FaultClass::Transient, codes::TAP_START_FAILED, &text)
    }

    /// Builds the fault of a record without a schema.
    pub(crate) fn unknown_stream(&self, stream: &str, number: u64) -> Fault {
        let text = format!("wrote a record of the stream {stream:?} before its schema (line {number})");
        self.fatal(codes::TAP_SCHEMA_MISSING, &text)
    }

    pub(crate) fn fatal(&self, code: Code, what: &dyn std::fmt::Display) -> Fault {
        self.fault(FaultClass::Fatal, code, what)
    }

    /// Builds a fault of this tap, without credentials.
    pub(crate) fn fault(&self, class: FaultClass, code: Code, what: &dyn std::fmt::Display) -> Fault {
        let text = format!("the tap {} {what}", self.program);
        Fault::new(class, code, mask(&text, &self.secrets))
    }
}

/// The files of a run, which only this user can read. The supervisor removes them with their directory.
struct TapFiles {
    directory: TempDir,
    arguments: Vec<OsString>,
}

impl TapFiles {
    /// Writes a file and adds the argument that names it.
    fn add(&mut self, argument: &str, name: &str, text: &str) -> io::Result<()> {
        let path = self.directory.path().join(name);
        write_private(&path, text)?;
        self.arguments.extend([argument.into(), path.into_os_string()]);
        Ok(())
    }
}

fn write_private(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(text.as_bytes())
}
