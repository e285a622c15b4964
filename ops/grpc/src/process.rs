//! Process of a plugin: its environment, its handshake and its output.

use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command};
use std::time::Duration;

use anabranch_ops_program::log::{self, ParsedLine, ProgramOwner};
use anabranch_ops_program::{LastWords, RunningProgram, Starting, described, private_directory};
use anabranch_plugin::host::LogLevel;
use anabranch_record::text::Str;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::Settings;
use crate::handshake::{self, Handshake};
use crate::log::LineParser;

/// Maximum time until a process prints its handshake.
const START: Duration = Duration::from_secs(60);
/// Maximum length of a directory's path for sockets: the path of a socket has at most 107 bytes, and plugins add a
/// name.
const LONGEST_DIRECTORY: usize = 80;

/// Identity of a process.
#[derive(Clone, Debug)]
pub(crate) struct ProcessIdentity {
    /// The connector that uses it.
    pub(crate) owner: ProgramOwner,
    /// The plugin in messages: its name or its file.
    pub(crate) plugin: Str,
    /// Token for the schema service.
    pub(crate) token: String,
    /// Address of the schema service.
    pub(crate) utilities: String,
}

/// Error while starting a plugin.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("cannot be started, because no directory for its socket can be created: {0}")]
    Directory(std::io::Error),
    #[error("cannot be started: {0}")]
    Spawn(std::io::Error),
    #[error("ended ({0}) before it reported its address{1}")]
    Ended(String, LastWords),
    #[error("did not report its address within {0}{1}")]
    Late(String, LastWords),
    #[error("cannot be used: its first line {0}{1}")]
    Handshake(String, LastWords),
}

/// Starts a plugin and waits for its handshake.
pub(crate) async fn start(
    settings: &Settings,
    file: &Path,
    identity: &ProcessIdentity,
    patience: Duration,
) -> Result<(RunningProgram, Handshake), StartError> {
    let directory = socket_directory().map_err(StartError::Directory)?;
    let mut command = command(settings, file, identity, directory.path());
    let (program, line) = run(&mut command, identity, directory).map_err(StartError::Spawn)?;
    let patience = patience.min(START);
    match timeout(patience, line).await {
        Ok(Ok(line)) => match handshake::parse(&line) {
            Ok(handshake) => Ok((program, handshake)),
            Err(reason) => Err(StartError::Handshake(reason, program.last_words())),
        },
        // Its output has ended, so the process ends soon.
        Ok(Err(_)) => {
            let status = program.wait(Duration::from_secs(5)).await;
            let how = status.map_or_else(|| "without an exit code".to_owned(), described);
            Err(StartError::Ended(how, program.last_words()))
        }
        Err(_) => Err(StartError::Late(seconds(patience), program.last_words())),
    }
}

/// Starts a process. Returns the first line of its output when it arrives.
fn run(
    command: &mut Command,
    identity: &ProcessIdentity,
    directory: TempDir,
) -> std::io::Result<(RunningProgram, oneshot::Receiver<String>)> {
    let mut starting = Starting::spawn(command)?;
    let (first, line) = oneshot::channel();
    if let Some(stdout) = starting.stdout() {
        listen(&starting, stdout, identity.clone(), first)?;
    }
    if let Some(stderr) = starting.stderr() {
        let (identity, mut voice) = (identity.clone(), LineParser::default());
        starting.listen("connector-err", stderr, move |line, said| {
            if let Some(heard) = voice.hear(line) {
                said.add(&heard.text);
                log::write(&heard, &identity.owner, &identity.plugin);
            }
        })?;
    }
    Ok((starting.run(directory)?, line))
}

/// Reads standard output: the first line is the handshake, others are for the log.
fn listen(
    starting: &Starting,
    stdout: ChildStdout,
    identity: ProcessIdentity,
    first: oneshot::Sender<String>,
) -> std::io::Result<()> {
    let mut first = Some(first);
    starting.listen("connector-out", stdout, move |line, said| match first.take() {
        Some(first) => drop(first.send(line.to_owned())),
        None => {
            said.add(line);
            let heard = ParsedLine { level: LogLevel::Debug, text: line.to_owned() };
            log::write(&heard, &identity.owner, &identity.plugin);
        }
    })
}

fn command(settings: &Settings, file: &Path, identity: &ProcessIdentity, directory: &Path) -> Command {
    let mut command = anabranch_ops_program::command(&settings.supervisor, directory, file.as_os_str());
    command
        .env("CONDUIT_PLUGIN_MAGIC_COOKIE", "204e8e812c3a1bb73b838928c575b42a105dd2e9aa449be481bc4590486df53f")
        .env("PLUGIN_PROTOCOL_VERSIONS", "1,2")
        .env("PLUGIN_MIN_PORT", "10000")
        .env("PLUGIN_MAX_PORT", "25000")
        .env("PLUGIN_UNIX_SOCKET_DIR", directory)
        .env("TMPDIR", directory)
        .env("CONDUIT_CONNECTOR_UTILITIES_GRPC_TARGET", &identity.utilities)
        .env("CONDUIT_CONNECTOR_TOKEN", &identity.token)
        .env("CONDUIT_CONNECTOR_ID", identity.owner.id().as_str())
        .env("CONDUIT_CONNECTOR_LOG_LEVEL", settings.log_level.as_str())
        .env("CONDUIT_CONNECTOR_MAX_RECEIVE_RECORD_SIZE", settings.record_limit.to_string());
    command
}

/// Creates a directory that only this user can enter, with a short path for sockets.
fn socket_directory() -> std::io::Result<TempDir> {
    let wanted = std::env::temp_dir();
    let fits = wanted.as_os_str().len() <= LONGEST_DIRECTORY - "/anabranch-XXXXXX".len();
    let below = if fits { wanted } else { PathBuf::from("/tmp") };
    private_directory(&below)
}

/// Formats a duration.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
