//! Signals of the operating system.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Those that end the service.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

/// A file grew beyond the limit of the process: without a handler this kills it, with one the write fails
/// with an error that a pipeline can report.
const FILE_SIZE_EXCEEDED: i32 = 25;

impl Signals {
    /// From now on signals arrive here and no longer end the process by themselves. Must be called on a
    /// runtime with I/O.
    ///
    /// # Errors
    /// The system refuses.
    pub(super) fn listen() -> io::Result<Signals> {
        // The handler stays when its stream goes.
        drop(signal(SignalKind::from_raw(FILE_SIZE_EXCEEDED))?);
        Ok(Signals { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// The number of the next one.
    pub(super) async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt().as_raw_value(),
            _ = self.terminate.recv() => SignalKind::terminate().as_raw_value(),
        }
    }
}
