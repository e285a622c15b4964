//! The messages of panics.

use std::any::Any;

use tokio::task::JoinError;

/// Returns the panic message of a task, without the task number, which differs between runs.
pub(super) fn of_task(error: JoinError) -> String {
    match error.try_into_panic() {
        Ok(panic) => message(&*panic).to_owned(),
        Err(error) => error.to_string(),
    }
}

/// Returns the message of a panic.
pub(super) fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
