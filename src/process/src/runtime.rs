//! Tokio runtimes, and threads for work that must not run on the control runtime.

use std::io;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::panics::caught;

/// Threads for work whose duration depends on the text of a client.
///
/// The control runtime has one thread, for signals, timers, probes and the supervision of pipelines. A template, a
/// regular expression or a pipeline file never runs there. Each kind of work has a bounded number of threads, so that
/// clients cannot occupy those that the state store needs.
pub struct Threads(Semaphore);

/// For expressions over records: conditions and regular expressions of requests.
pub static EXPRESSIONS: Threads = Threads(Semaphore::const_new(2));
/// For texts that are read and compiled: pipelines, connectors and processors.
pub static TEXTS: Threads = Threads(Semaphore::const_new(4));

impl Threads {
    /// Runs `work` on one of the threads, once one is free. Returns `None` if it panicked or the runtime ends. Work
    /// that has begun continues to its end, even if the future is dropped.
    pub async fn run<T: Send + 'static>(&'static self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let turn = self.0.acquire().await.ok()?;
        let done = spawn_blocking(move || {
            let _turn = turn;
            work()
        });
        done.await.ok()
    }
}

/// Builds a runtime with timers, sockets and signals.
///
/// # Errors
/// The operating system refuses a resource. Tokio panics if the socket pair for signals cannot be created; this
/// function converts the panic, which is the only one of a build, to an error.
pub fn start(builder: &mut Builder) -> io::Result<Runtime> {
    let refused =
        || io::Error::other("cannot create a socket for signals: too many open files; raise the limit (`ulimit -n`)");
    caught(|| builder.enable_all().build()).unwrap_or_else(|| Err(refused()))
}
