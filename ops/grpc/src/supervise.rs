//! The supervisor process between the service and a plugin. When its standard input closes, which happens when the
//! service ends, it ends the plugin and all processes that the plugin has started.

use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

/// First argument that makes this program a supervisor: `supervise-connector DIRECTORY PLUGIN`.
pub const SUPERVISE: &str = "supervise-connector";
/// First argument that makes it execute the plugin: `become-connector PID PLUGIN`.
const BECOME: &str = "become-connector";

/// Exit code if the plugin cannot be executed.
const CANNOT: u8 = 127;

/// Supervises a plugin if the arguments of this process ask for it; otherwise returns `None`. Call it first in `main`,
/// while there is only one thread.
pub fn requested(mut arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let program = arguments.next()?;
    let what = arguments.next()?;
    let (first, plugin) = (arguments.next(), arguments.next());
    match (what.to_str()?, first, plugin) {
        (SUPERVISE, Some(directory), Some(plugin)) => {
            Some(supervise(&program, Path::new(&directory), Path::new(&plugin)))
        }
        (BECOME, Some(parent), Some(plugin)) => Some(replace(&parent, Path::new(&plugin))),
        _ => None,
    }
}

/// Returns the program that this process runs, even if its file was replaced.
pub fn own_program(otherwise: impl Into<OsString>) -> OsString {
    match cfg!(target_os = "linux") {
        true => "/proc/self/exe".into(),
        false => std::env::current_exe().map_or_else(|_| otherwise.into(), OsString::from),
    }
}

fn supervise(program: &OsStr, directory: &Path, plugin: &Path) -> ExitCode {
    // If the supervisor is killed, the plugin must end too. A process can request that only for itself.
    let started = Command::new(own_program(program))
        .args([OsStr::new(BECOME), OsStr::new(&std::process::id().to_string()), plugin.as_os_str()])
        .stdin(Stdio::null())
        .process_group(0)
        .spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(error) => return cannot(plugin, &error),
    };
    let group = Arc::new(Mutex::new(Pid::from_raw(child.id().cast_signed())));
    let watched = group.clone();
    let watching = std::thread::Builder::new().spawn(move || {
        let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
        if let Some(group) = *watched.lock().unwrap_or_else(PoisonError::into_inner) {
            kill(group);
        }
    });
    if watching.is_err() {
        let _ = child.kill();
    }
    let status = finish(&mut child, &group);
    let _ = std::fs::remove_dir_all(directory);
    match status {
        Ok(status) => ExitCode::from(code(status)),
        Err(error) => cannot(plugin, &error),
    }
}

/// Waits for the end of the plugin, and ends its children.
fn finish(child: &mut Child, group: &Mutex<Option<Pid>>) -> std::io::Result<ExitStatus> {
    let pid = *group.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pid) = pid {
        // Reap the process only after its group is gone, so that no other process can get its id before.
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while matches!(rustix::process::waitid(WaitId::Pid(pid), ended), Err(rustix::io::Errno::INTR)) {}
        let mut group = group.lock().unwrap_or_else(PoisonError::into_inner);
        kill(pid);
        *group = None;
    }
    child.wait()
}

fn kill(group: Pid) {
    let _ = rustix::process::kill_process_group(group, Signal::KILL);
    let _ = rustix::process::kill_process(group, Signal::KILL);
}

fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

fn replace(parent: &OsStr, plugin: &Path) -> ExitCode {
    #[cfg(target_os = "linux")]
    {
        let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
        let alive = rustix::process::getppid().is_some_and(|pid| *parent == *pid.as_raw_nonzero().to_string());
        if !alive {
            return ExitCode::from(CANNOT);
        }
    }
    let error = Command::new(plugin).exec();
    cannot(plugin, &error)
}

/// Reports an error on standard error, which the parent reads.
fn cannot(plugin: &Path, error: &std::io::Error) -> ExitCode {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "cannot execute {}: {error}", plugin.display());
    ExitCode::from(CANNOT)
}
