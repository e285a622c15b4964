//! A running program: start, output, end.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::lines;
use crate::supervise::{ASK_TO_END, SUPERVISE};

/// Maximum time until the output of a program ends after its process has ended.
const LAST_LINES: Duration = Duration::from_secs(2);
/// Maximum time until a process ends that was killed.
const KILLED: Duration = Duration::from_secs(5);
/// Maximum number of last lines that errors quote.
const LAST_WORDS: usize = 12;
/// Maximum number of bytes that errors quote.
const QUOTED: usize = 2_000;

/// Returns the command that runs a program under a supervisor, in a process group of its own: Ctrl+C at the terminal
/// reaches only the service, which stops programs in order. Standard input controls the supervisor; output and errors are
/// pipes. `directory` belongs to the program: the supervisor removes it when the program has ended. The program does not
/// inherit the variables of this service, which may contain the address of the state store.
///
/// `supervisor` is the program that supervises, with its first arguments; it calls [`requested`](crate::supervise::requested).
pub fn command(supervisor: &[OsString], directory: &Path, program: &OsStr) -> Command {
    let fallback = OsString::from("anabranch");
    let (own, first) = supervisor.split_first().unwrap_or((&fallback, &[]));
    let mut command = Command::new(own);
    command.args(first).arg(SUPERVISE).arg(directory).arg(program);
    for (name, _) in std::env::vars_os() {
        if is_ours(&name) {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command
}

/// Returns `true` for variables of the plugin protocol and of this service.
fn is_ours(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with("ANABRANCH_") || name.starts_with("CONDUIT_") || name.starts_with("PLUGIN_")
}

/// Creates a directory that only this user can enter, in a directory `below`.
///
/// # Errors
/// The directory cannot be created.
pub fn private_directory(below: &Path) -> std::io::Result<TempDir> {
    // Without explicit permissions, others may list it.
    let own = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    tempfile::Builder::new().prefix("anabranch-").permissions(own).tempdir_in(below)
}

/// Describes an exit status.
pub fn described(status: ExitStatus) -> String {
    match status.code() {
        // The supervisor uses the exit codes of shells.
        Some(code) if code > 128 => format!("by signal {}", code - 128),
        Some(code) => format!("exit code {code}"),
        None => "killed".to_owned(),
    }
}

/// Last output of a program, formatted as the end of a sentence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastWords(pub String);

impl std::fmt::Display for LastWords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.as_str() {
            "" => Ok(()),
            words => write!(f, "; its last output: {words}"),
        }
    }
}

/// The last lines of a program.
#[derive(Debug, Default)]
pub struct LastLines(Mutex<VecDeque<String>>);

impl LastLines {
    /// Adds a line, which displaces the first one if there are too many.
    pub fn add(&self, line: &str) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The first lines of a panic are the most useful ones.
        let is_full = lines.len() == LAST_WORDS;
        if is_full && lines.iter().any(|line| begins_panic(line)) {
            return;
        }
        if is_full {
            lines.pop_front();
        }
        lines.push_back(line.chars().take(QUOTED).collect());
    }

    fn last_words(&self) -> LastWords {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let panic = lines.iter().position(|line| begins_panic(line));
        let told: Vec<&str> = lines.iter().skip(panic.unwrap_or(0)).map(String::as_str).collect();
        LastWords(told.join(" | ").chars().take(QUOTED).collect())
    }
}

fn begins_panic(line: &str) -> bool {
    line.starts_with("panic: ") || line.starts_with("fatal error: ")
}

/// A process that was started and whose output is not read yet.
pub struct Starting {
    child: Child,
    said: Arc<LastLines>,
    hearing: mpsc::Sender<()>,
    heard: mpsc::Receiver<()>,
}

impl Starting {
    /// Starts a [`command`].
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn spawn(command: &mut Command) -> std::io::Result<Starting> {
        let child = command.spawn()?;
        let (hearing, heard) = mpsc::channel();
        Ok(Starting { child, said: Arc::default(), hearing, heard })
    }

    /// Takes standard output. The caller must read it, or the program may block.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Takes standard error. The caller must read it, or the program may block.
    pub fn stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// Reads an output to its end on a thread, line by line.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn listen(
        &self,
        thread: &str,
        from: impl std::io::Read + Send + 'static,
        mut each: impl FnMut(&str, &LastLines) + Send + 'static,
    ) -> std::io::Result<()> {
        let (said, hearing) = (self.said.clone(), self.hearing.clone());
        let run = move || {
            lines::drain(from, |line| each(line, &said));
            drop(hearing);
        };
        std::thread::Builder::new().name(thread.to_owned()).spawn(run).map(drop)
    }

    /// Waits for the end of the process on a thread. `directory` exists as long as the program.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn run(self, directory: TempDir) -> std::io::Result<RunningProgram> {
        let Starting { mut child, said, hearing, heard } = self;
        let control = child.stdin.take();
        let (ending, ended) = watch::channel(None);
        drop(hearing);
        std::thread::Builder::new().name("connector-wait".to_owned()).spawn(move || {
            // A process that cannot be waited for counts as ended.
            let status = child.wait().unwrap_or_default();
            // Collect its last output first, because errors quote it. No value is sent: this waits until all senders are
            // dropped, which a child of the program may delay.
            let _ = heard.recv_timeout(LAST_LINES);
            ending.send_replace(Some(status));
        })?;
        Ok(RunningProgram { control: Mutex::new(control), ended, said, _directory: directory })
    }
}

/// A running program. Dropping it ends it and all its children.
pub struct RunningProgram {
    /// Standard input of the supervisor, which kills the program when this is closed.
    control: Mutex<Option<ChildStdin>>,
    ended: watch::Receiver<Option<ExitStatus>>,
    said: Arc<LastLines>,
    _directory: TempDir,
}

impl RunningProgram {
    /// Returns its last output.
    pub fn last_words(&self) -> LastWords {
        self.said.last_words()
    }

    /// Returns the exit status; `None` if the process still runs after `patience`. Cancel-safe.
    pub async fn wait(&self, patience: Duration) -> Option<ExitStatus> {
        let mut ended = self.ended.clone();
        let status = timeout(patience, ended.wait_for(Option::is_some)).await.ok()?;
        status.ok().and_then(|status| *status)
    }

    /// Sends SIGTERM to the program and its children. Does not wait.
    pub fn ask_to_end(&self) {
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        // A supervisor that has ended needs no request.
        let _ = control.as_mut().map(|control| control.write_all(&[ASK_TO_END]));
    }

    /// Kills the program and its children, and waits until the process has ended.
    pub async fn kill(&self) {
        drop(self.control.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.wait(KILLED).await;
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn only_its_user_enters_the_directory_of_a_program() {
        let directory = private_directory(&std::env::temp_dir()).unwrap();
        let mode = std::fs::metadata(directory.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn errors_quote_the_last_lines_or_a_panic() {
        let said = LastLines::default();
        (0..20).for_each(|n| said.add(&n.to_string()));
        assert_eq!(
            said.last_words().to_string(),
            "; its last output: 8 | 9 | 10 | 11 | 12 | 13 | 14 | 15 | 16 | 17 | 18 | 19"
        );
        let said = LastLines::default();
        said.add("fine");
        said.add("panic: boom");
        (0..20).for_each(|n| said.add(&n.to_string()));
        assert!(said.last_words().0.starts_with("panic: boom | 0 | 1"), "{:?}", said.last_words());
        assert_eq!(LastWords::default().to_string(), "");
    }
}
