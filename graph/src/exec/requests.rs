//! Requests of users to the sources of a pipeline.
//!
//! Like taps, they belong to the pipeline and not to a run ([`RunOptions::requests`](super::RunOptions)): each run opens an
//! inbox for each of its sources, and the source is asked between two reads.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use anabranch_plugin::source::{Request, Requested};
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use tokio::sync::{mpsc, oneshot};

/// Requests that wait for a source. More are refused.
const WAITING: usize = 16;

/// Passes requests to the sources of a pipeline.
#[derive(Default)]
pub struct SourceRequests {
    inboxes: Mutex<BTreeMap<Str, mpsc::Sender<Asked>>>,
}

impl fmt::Debug for SourceRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceRequests").field("sources", &self.sources()).finish()
    }
}

/// Reason why a source did not take a request.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// No run reads from a source with this id.
    #[error("the source is not being read")]
    NotRead,
    /// Too many requests wait for the source.
    #[error("{WAITING} requests wait for the source already")]
    Full,
    /// The source refuses it.
    #[error(transparent)]
    Refused(#[from] Fault),
}

/// A request that waits for its source.
pub(super) struct Asked {
    pub(super) request: Request,
    pub(super) answer: oneshot::Sender<Result<Requested, Fault>>,
}

/// The requests to a source of a run.
pub(super) struct Inbox(mpsc::Receiver<Asked>);

impl SourceRequests {
    /// Asks a source, and returns when it has stored the request. Waits as long as the source is busy.
    ///
    /// # Errors
    /// The source is not being read, or refuses the request.
    pub async fn ask(&self, connector: &str, request: Request) -> Result<(), RequestError> {
        let inbox = self.inboxes.lock().unwrap_or_else(PoisonError::into_inner).get(connector).cloned();
        let inbox = inbox.ok_or(RequestError::NotRead)?;
        let (answer, answered) = oneshot::channel();
        inbox.try_send(Asked { request, answer }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => RequestError::Full,
            mpsc::error::TrySendError::Closed(_) => RequestError::NotRead,
        })?;
        let stored = answered.await.map_err(|_| RequestError::NotRead)??;
        Ok(stored.await?)
    }

    /// Returns the ids of the sources that were read.
    pub fn sources(&self) -> Vec<String> {
        self.inboxes.lock().unwrap_or_else(PoisonError::into_inner).keys().map(ToString::to_string).collect()
    }

    /// Opens the inbox of a source, in place of that of an earlier run.
    pub(super) fn open(&self, connector: &Str) -> Inbox {
        let (sender, receiver) = mpsc::channel(WAITING);
        self.inboxes.lock().unwrap_or_else(PoisonError::into_inner).insert(connector.clone(), sender);
        Inbox(receiver)
    }
}

impl Inbox {
    /// Returns the next request; never, if nobody can ask any more. Cancel-safe.
    pub(super) async fn next(&mut self) -> Asked {
        match self.0.recv().await {
            Some(asked) => asked,
            None => std::future::pending().await,
        }
    }
}
