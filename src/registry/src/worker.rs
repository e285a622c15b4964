//! Processes that this program starts of itself, for plugins.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// True in the `anabranch` program, which can start itself as a worker process; false in tests that call its modules.
static IS_PROGRAM: AtomicBool = AtomicBool::new(false);

/// Runs this process as a worker, if its arguments say so: as the supervisor of a program, or for scripts. Returns the
/// exit code when the work is done, and `None` in any other process. Starts no thread before.
pub fn requested() -> Option<ExitCode> {
    #[cfg(any(feature = "grpc", feature = "singer"))]
    if let Some(code) = anabranch_ops_program::supervise::requested(std::env::args_os()) {
        return Some(code);
    }
    #[cfg(feature = "js")]
    if let Some(code) = anabranch_ops_js::worker::requested(std::env::args_os()) {
        return Some(code);
    }
    None
}

/// Declares that this process is the `anabranch` program: from now on, registries start scripts in processes of its own.
pub fn is_program() {
    IS_PROGRAM.store(true, Ordering::Relaxed);
}

/// Returns the memory limit of script processes, in bytes, if this process can start any.
pub(crate) fn memory(limit: usize) -> Option<usize> {
    IS_PROGRAM.load(Ordering::Relaxed).then_some(limit)
}
