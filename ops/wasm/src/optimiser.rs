//! The thread that compiles optimised code, one module at a time, while pipelines run.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;

use tracing::Dispatch;

use crate::module::ModuleFile;

/// Lowest priority that a thread can have.
#[cfg(target_os = "linux")]
const LOWEST: i32 = 19;

/// A module that needs optimised code, and the log of those who requested it.
struct Request {
    module: Weak<ModuleFile>,
    log: Dispatch,
}

/// Requests optimised code of a module, and returns at once. If the process ends first, the code is requested again by
/// the next process that runs the module.
pub(crate) fn request(module: &Arc<ModuleFile>) {
    static REQUESTS: OnceLock<Option<Sender<Request>>> = OnceLock::new();
    let requests = REQUESTS.get_or_init(|| {
        let (requests, inbox) = mpsc::channel();
        // The thread is not joined: nothing that it does has to be completed.
        let started = thread::Builder::new().name("wasm compiler".to_owned()).spawn(move || serve(&inbox));
        started
            .inspect_err(|error| tracing::warn!("processors are not optimised: cannot start a thread: {error}"))
            .ok()?;
        Some(requests)
    });
    let request = Request { module: Arc::downgrade(module), log: tracing::dispatcher::get_default(Clone::clone) };
    if let Some(requests) = requests {
        // The thread ends with the process.
        let _ = requests.send(request);
    }
}

fn serve(inbox: &Receiver<Request>) {
    // On Linux the priority is that of the thread, elsewhere it is that of the process. If it cannot be changed, the
    // thread still takes one CPU at most.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(None, LOWEST);
    for Request { module, log } in inbox {
        let Some(module) = module.upgrade() else { continue };
        let path = module.path().display();
        tracing::dispatcher::with_default(&log, || {
            // The compiler can panic: the module then keeps its baseline code.
            match catch_unwind(AssertUnwindSafe(|| module.optimise())) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!("{path} is not optimised: {error}"),
                Err(_) => tracing::warn!("{path} is not optimised: the compiler panicked"),
            }
        });
    }
}
