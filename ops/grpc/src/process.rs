//! Process of a plugin: start, output, end.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use anabranch_plugin::host::LogLevel;
use anabranch_record::text::Str;
use tempfile::TempDir;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use crate::Settings;
use crate::handshake::{self, Handshake};
use crate::log::{self, LineParser};
use crate::supervise::SUPERVISE;

/// Maximum time until a process prints its handshake.
const START: Duration = Duration::from_secs(60);
/// Maximum time until a plugin's output ends after the process has ended.
const LAST_LINES: Duration = Duration::from_secs(2);
/// Maximum number of last lines that errors quote.
const LAST_WORDS: usize = 12;
/// Maximum number of bytes that errors quote.
const QUOTED: usize = 2_000;
/// Maximum length of a directory's path for sockets: the path of a socket has at most 107 bytes, and plugins add a
/// name.
const LONGEST_DIRECTORY: usize = 80;

/// Identity of a process.
#[derive(Clone, Debug)]
pub(crate) struct ProcessIdentity {
    /// Id of the connector, with its pipeline.
    pub(crate) connector: Str,
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

/// Last output of a plugin, formatted as the end of a sentence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LastWords(pub(crate) String);

impl std::fmt::Display for LastWords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.as_str() {
            "" => Ok(()),
            words => write!(f, "; its last output: {words}"),
        }
    }
}

/// A running process. Dropping it ends it and all its children.
pub(crate) struct Process {
    /// Standard input of the supervisor, which ends when this is closed.
    control: Mutex<Option<ChildStdin>>,
    ended: watch::Receiver<Option<ExitStatus>>,
    said: Arc<LastLines>,
    _directory: TempDir,
}

/// The last lines of a process.
#[derive(Default)]
struct LastLines(Mutex<VecDeque<String>>);

impl LastLines {
    fn add(&self, line: &str) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The first lines of a panic are the most useful ones.
        let is_full = lines.len() == LAST_WORDS;
        if is_full && lines.iter().any(|line| line.starts_with("panic: ") || line.starts_with("fatal error: ")) {
            return;
        }
        if is_full {
            lines.pop_front();
        }
        lines.push_back(line.chars().take(QUOTED).collect());
    }

    fn last_words(&self) -> LastWords {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let panic = lines.iter().position(|line| line.starts_with("panic: ") || line.starts_with("fatal error: "));
        let told: Vec<&str> = lines.iter().skip(panic.unwrap_or(0)).map(String::as_str).collect();
        LastWords(told.join(" | ").chars().take(QUOTED).collect())
    }
}

impl Process {
    /// Starts a plugin and waits for its handshake.
    pub(crate) async fn start(
        settings: &Settings,
        file: &Path,
        identity: &ProcessIdentity,
        patience: Duration,
    ) -> Result<(Process, Handshake), StartError> {
        let directory = socket_directory().map_err(StartError::Directory)?;
        let mut child = command(settings, file, identity, directory.path()).spawn().map_err(StartError::Spawn)?;
        let said = Arc::new(LastLines::default());
        let (first, line) = oneshot::channel();
        let (ending, ended) = watch::channel(None);
        let heard = listen(&mut child, identity, &said, first).map_err(StartError::Spawn)?;
        let control = child.stdin.take();
        std::thread::Builder::new()
            .name("connector-wait".to_owned())
            .spawn(move || {
                // A process that cannot be waited for counts as ended.
                let status = child.wait().unwrap_or_default();
                // Collect its last output first, because errors quote it. No value is sent: this waits until both
                // senders are dropped, which a child of the plugin may delay.
                let _ = heard.recv_timeout(LAST_LINES);
                ending.send_replace(Some(status));
            })
            .map_err(StartError::Spawn)?;
        let process = Process { control: Mutex::new(control), ended, said, _directory: directory };
        let patience = patience.min(START);
        match timeout(patience, line).await {
            Ok(Ok(line)) => match handshake::parse(&line) {
                Ok(handshake) => Ok((process, handshake)),
                Err(reason) => Err(StartError::Handshake(reason, process.last_words())),
            },
            // Its output has ended, so the process ends soon.
            Ok(Err(_)) => {
                let status = process.wait(Duration::from_secs(5)).await;
                let how = status.map_or_else(|| "without an exit code".to_owned(), described);
                Err(StartError::Ended(how, process.last_words()))
            }
            Err(_) => Err(StartError::Late(seconds(patience), process.last_words())),
        }
    }

    /// Returns its last output.
    pub(crate) fn last_words(&self) -> LastWords {
        self.said.last_words()
    }

    /// Returns the exit status; `None` if the process still runs after `patience`.
    pub(crate) async fn wait(&self, patience: Duration) -> Option<ExitStatus> {
        let mut ended = self.ended.clone();
        let status = timeout(patience, ended.wait_for(Option::is_some)).await.ok()?;
        status.ok().and_then(|status| *status)
    }

    /// Kills the process and waits until it has ended.
    pub(crate) async fn kill(&self) {
        drop(self.control.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.wait(Duration::from_secs(5)).await;
    }
}

/// Describes an exit status.
pub(crate) fn described(status: ExitStatus) -> String {
    match status.code() {
        // The supervisor uses the exit codes of shells.
        Some(code) if code > 128 => format!("by signal {}", code - 128),
        Some(code) => format!("exit code {code}"),
        None => "killed".to_owned(),
    }
}

fn command(settings: &Settings, file: &Path, identity: &ProcessIdentity, directory: &Path) -> Command {
    let fallback = Path::new("anabranch").as_os_str().to_owned();
    let (program, first) = settings.supervisor.split_first().unwrap_or((&fallback, &[]));
    let mut command = Command::new(program);
    command.args(first).arg(SUPERVISE).arg(directory).arg(file);
    for (name, _) in std::env::vars_os() {
        if is_ours(&name) {
            command.env_remove(name);
        }
    }
    let level = settings.log_level.as_str();
    command
        .env("CONDUIT_PLUGIN_MAGIC_COOKIE", "204e8e812c3a1bb73b838928c575b42a105dd2e9aa449be481bc4590486df53f")
        .env("PLUGIN_PROTOCOL_VERSIONS", "1,2")
        .env("PLUGIN_MIN_PORT", "10000")
        .env("PLUGIN_MAX_PORT", "25000")
        .env("PLUGIN_UNIX_SOCKET_DIR", directory)
        .env("TMPDIR", directory)
        .env("CONDUIT_CONNECTOR_UTILITIES_GRPC_TARGET", &identity.utilities)
        .env("CONDUIT_CONNECTOR_TOKEN", &identity.token)
        .env("CONDUIT_CONNECTOR_ID", identity.connector.as_str())
        .env("CONDUIT_CONNECTOR_LOG_LEVEL", level)
        .env("CONDUIT_CONNECTOR_MAX_RECEIVE_RECORD_SIZE", settings.record_limit.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // Ctrl+C at the terminal must reach only the service, which stops plugins in order.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command
}

/// Returns `true` for variables of the plugin protocol and of this service, which may contain the address of the state
/// store.
fn is_ours(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with("ANABRANCH_") || name.starts_with("CONDUIT_") || name.starts_with("PLUGIN_")
}

/// Creates a directory that only this user can enter, with a short path for sockets.
fn socket_directory() -> std::io::Result<TempDir> {
    let wanted = std::env::temp_dir();
    let fits = wanted.as_os_str().len() <= LONGEST_DIRECTORY - "/anabranch-XXXXXX".len();
    let below = if fits { wanted } else { PathBuf::from("/tmp") };
    // Without explicit permissions, others may list it.
    let own = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    tempfile::Builder::new().prefix("anabranch-").permissions(own).tempdir_in(below)
}

/// Reads the output of the process to its end on separate threads, so that a plugin never blocks on it. The returned
/// channel is disconnected when all output is read.
fn listen(
    child: &mut Child,
    identity: &ProcessIdentity,
    said: &Arc<LastLines>,
    first: oneshot::Sender<String>,
) -> std::io::Result<mpsc::Receiver<()>> {
    let (hearing, heard) = mpsc::channel::<()>();
    let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
        std::thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
    };
    if let Some(stdout) = child.stdout.take() {
        let (said, identity) = (said.clone(), identity.clone());
        let mut first = Some(first);
        let hearing = hearing.clone();
        spawn(
            "connector-out",
            Box::new(move || {
                let _hearing = hearing;
                log::drain(stdout, |line| match first.take() {
                    Some(first) => drop(first.send(line.to_owned())),
                    None => {
                        said.add(line);
                        let heard = log::ParsedLine { level: LogLevel::Debug, text: line.to_owned() };
                        log::write(&heard, &identity.connector, &identity.plugin);
                    }
                });
            }),
        )?;
    }
    if let Some(stderr) = child.stderr.take() {
        let (said, identity) = (said.clone(), identity.clone());
        spawn(
            "connector-err",
            Box::new(move || {
                let _hearing = hearing;
                let mut voice = LineParser::default();
                log::drain(stderr, |line| {
                    if let Some(heard) = voice.hear(line) {
                        said.add(&heard.text);
                        log::write(&heard, &identity.connector, &identity.plugin);
                    }
                });
            }),
        )?;
    }
    Ok(heard)
}

/// Formats a duration.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn only_its_user_enters_the_directory_of_a_socket() {
        let directory = socket_directory().unwrap();
        let mode = std::fs::metadata(directory.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
}
