//! Runtimes of tokio, from the builders of those who need them.

use std::io;

use tokio::runtime::{Builder, Runtime};

use crate::panics::caught;

/// Builds a runtime with timers, sockets and signals.
///
/// # Errors
/// The system refuses. Tokio says so by a panic where it is the pair of sockets for signals that it cannot have, the only
/// panic of a build; here it is an error like the others.
pub fn start(builder: &mut Builder) -> io::Result<Runtime> {
    let refused = || io::Error::other("no socket for signals; too many open files, raise the limit (ulimit -n)");
    caught(|| builder.enable_all().build()).unwrap_or_else(|| Err(refused()))
}
