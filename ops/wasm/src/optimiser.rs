//! The thread that compiles optimised code, one module at a time, while pipelines run.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use tracing::Dispatch;

/// Lowest priority that a thread can have.
#[cfg(target_os = "linux")]
const LOWEST: i32 = 19;

/// Work of the thread.
type Work = Box<dyn FnOnce() + Send>;

/// Requests work from the thread, and returns at once. If the process ends first, the work is not completed. The work
/// logs to the log of the caller. `name` is the module in the log.
pub(crate) fn request(name: String, work: Work) {
    static REQUESTS: OnceLock<Option<Sender<(String, Work, Dispatch)>>> = OnceLock::new();
    let start = || {
        let (requests, inbox) = mpsc::channel();
        // The thread is not joined: nothing that it does has to be completed.
        let started = thread::Builder::new().name("wasm compiler".to_owned()).spawn(move || serve(&inbox));
        let log = |error: &_| tracing::warn!("processors are not optimised: cannot start a thread: {error}");
        started.inspect_err(log).ok().map(|_| requests)
    };
    if let Some(requests) = REQUESTS.get_or_init(start) {
        // The thread ends with the process.
        let _ = requests.send((name, work, tracing::dispatcher::get_default(Clone::clone)));
    }
}

fn serve(inbox: &Receiver<(String, Work, Dispatch)>) {
    // On Linux the priority is that of the thread, elsewhere it is that of the process. If it cannot be changed, the
    // thread still takes one CPU at most.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(None, LOWEST);
    for (name, work, log) in inbox {
        tracing::dispatcher::with_default(&log, || {
            // The compiler can panic: the module then keeps its baseline code.
            if catch_unwind(AssertUnwindSafe(work)).is_err() {
                tracing::warn!("{name} is not optimised: the compiler panicked");
            }
        });
    }
}
