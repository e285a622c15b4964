//! What the tasks of a source pass on to the engine, and why they end.

use anabranch_plugin::source::Read;
use anabranch_record::fault::Fault;
use tokio::sync::mpsc;

/// Why a task of the source ends early.
#[derive(Debug)]
pub(super) enum Ended {
    /// The source is being closed.
    Stopped,
    /// It failed.
    Failed(Fault),
}

impl From<Fault> for Ended {
    fn from(fault: Fault) -> Ended {
        Ended::Failed(fault)
    }
}

/// Passes events on to the reader.
#[derive(Clone)]
pub(super) struct Events(pub(super) mpsc::Sender<Result<Read, Fault>>);

impl Events {
    /// Passes on an event, when the reader has room for it.
    ///
    /// # Errors
    /// The source is being closed.
    pub(super) async fn send(&self, read: Read) -> Result<(), Ended> {
        self.0.send(Ok(read)).await.map_err(|_| Ended::Stopped)
    }
}
