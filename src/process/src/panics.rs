//! Panics, which are defects of this program. They are logged, and do not end the process by themselves.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook};

use crate::terminal::{Stream, print};

thread_local! {
    static EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// Installs a hook that reports every panic as a line of the service log, or on standard error before there is a log.
pub fn report() {
    set_hook(Box::new(|panic| {
        if EXPECTED.get() {
            return;
        }
        let message = message(panic);
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        if tracing::dispatcher::has_been_set() {
            tracing::error!(place = %place, "internal error: {message}");
        } else {
            let _ = print(Stream::Err, &format!("internal error: {message} ({place})\n"));
        }
    }));
}

/// Runs code that may panic on input that cannot be checked beforehand. Returns `None` if it panicked.
pub fn caught<T>(run: impl FnOnce() -> T) -> Option<T> {
    let before = EXPECTED.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(run));
    EXPECTED.set(before);
    outcome.ok()
}

fn message(panic: &PanicHookInfo<'_>) -> String {
    let payload = panic.payload();
    let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("unknown").to_owned()
}
