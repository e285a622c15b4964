//! The supervisor process between the service and a program. When its standard input closes, which happens when the
//! service ends, it ends the program and all processes that the program has started. A byte on its standard input asks
//! them to end.

use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, Read as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

/// First argument that makes this program a supervisor: `supervise-connector DIRECTORY PROGRAM [ARGUMENT…]`.
pub const SUPERVISE: &str = "supervise-connector";
/// First argument that makes it execute the program: `become-connector PID PROGRAM [ARGUMENT…]`.
const BECOME: &str = "become-connector";

/// Byte on standard input that asks the program to end.
pub(crate) const ASK_TO_END: u8 = b'T';

/// Exit code if the program cannot be executed.
pub const CANNOT: u8 = 127;

/// Supervises a program if the arguments of this process ask for it; otherwise returns `None`. Call it first in `main`,
/// while there is only one thread.
pub fn requested(mut arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let own = arguments.next()?;
    let what = arguments.next()?;
    let (first, program) = (arguments.next(), arguments.next());
    let rest: Vec<OsString> = match what.to_str()? {
        SUPERVISE | BECOME => arguments.collect(),
        _ => return None,
    };
    match (what.to_str()?, first, program) {
        (SUPERVISE, Some(directory), Some(program)) => Some(supervise(&own, Path::new(&directory), &program, &rest)),
        (BECOME, Some(parent), Some(program)) => Some(replace(&parent, &program, &rest)),
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

fn supervise(own: &OsStr, directory: &Path, program: &OsStr, arguments: &[OsString]) -> ExitCode {
    // If the supervisor is killed, the program must end too. A process can request that only for itself.
    let started = Command::new(own_program(own))
        .args([OsStr::new(BECOME), OsStr::new(&std::process::id().to_string()), program])
        .args(arguments)
        .stdin(Stdio::null())
        .process_group(0)
        .spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(error) => return cannot(program, &error),
    };
    let group = Arc::new(Mutex::new(Pid::from_raw(child.id().cast_signed())));
    let watched = group.clone();
    let watching = std::thread::Builder::new().spawn(move || watch(&watched));
    if watching.is_err() {
        let _ = child.kill();
    }
    let status = finish(&mut child, &group);
    let _ = std::fs::remove_dir_all(directory);
    match status {
        Ok(status) => ExitCode::from(code(status)),
        Err(error) => cannot(program, &error),
    }
}

/// Reads the requests of the service, and ends the group when there can be no more.
fn watch(group: &Mutex<Option<Pid>>) {
    let mut stdin = std::io::stdin().lock();
    let mut request = [0];
    loop {
        let is_asked = match stdin.read(&mut request) {
            Ok(0) => false,
            Ok(_) => request == [ASK_TO_END],
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => false,
        };
        let group = group.lock().unwrap_or_else(PoisonError::into_inner);
        match (*group, is_asked) {
            (Some(group), true) => {
                let _ = rustix::process::kill_process_group(group, Signal::TERM);
            }
            (Some(group), false) => return kill(group),
            (None, _) => return,
        }
    }
}

/// Waits for the end of the program, and ends its children.
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

fn replace(parent: &OsStr, program: &OsStr, arguments: &[OsString]) -> ExitCode {
    #[cfg(target_os = "linux")]
    {
        let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
        let alive = rustix::process::getppid().is_some_and(|pid| *parent == *pid.as_raw_nonzero().to_string());
        if !alive {
            return ExitCode::from(CANNOT);
        }
    }
    let error = Command::new(program).args(arguments).exec();
    cannot(program, &error)
}

/// Reports an error on standard error, which the parent reads.
fn cannot(program: &OsStr, error: &std::io::Error) -> ExitCode {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "cannot execute {}: {error}", program.display());
    ExitCode::from(CANNOT)
}
