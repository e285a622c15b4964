//! Replay of dead letters through the pipelines of a running service.

use std::time::Duration;

use anabranch_record::text::Str;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::control::{Control, ControlError, Shared};
use crate::dead_letters::replay::{ReplayError, ReplayOutcome, Request, Tools, replay};
use crate::tasks::{JobResult, Task};

/// Time limit of one replay: the HTTP client waits for it, and the pipeline is stopped until it ends.
const LONGEST: Duration = Duration::from_secs(8);

/// Reason why nothing was replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayRequestError {
    /// The pipeline cannot be held.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The dead letters cannot be replayed.
    #[error(transparent)]
    Replay(#[from] ReplayError),
}

impl Control {
    /// Replays dead letters while the pipeline is stopped, for at most 8 s. The outcome contains the remaining number.
    /// Continues even if the caller has disconnected.
    ///
    /// # Errors
    /// Nothing was replayed: the pipeline or a dead letter does not exist, the pipeline has errors, or another request
    /// changes it.
    pub async fn replay(&self, id: &str, request: Request) -> Result<ReplayOutcome, ReplayRequestError> {
        let id = self.entry(id)?.id.clone();
        let (done, outcome) = oneshot::channel();
        let control = self.clone();
        self.see_to(Task::Errand("a replay of dead letters", id.clone()), async move {
            let _ = done.send(control.replay_held(&id, request).await);
            JobResult::Errand
        });
        outcome.await.unwrap_or(Err(ReplayRequestError::Control(ControlError::ServiceStopping)))
    }

    async fn replay_held(&self, id: &Str, request: Request) -> Result<ReplayOutcome, ReplayRequestError> {
        let Shared { store, schemas, log, executor, traces, .. } = self.shared();
        let tools = Tools {
            store: store.clone(),
            log: log.clone(),
            schemas: schemas.clone(),
            executor: executor.clone(),
            traces: traces.as_ref().map(|traces| traces.tracing()),
        };
        let stopping = async {
            while !self.is_stopping() {
                sleep(Duration::from_millis(100)).await;
            }
        };
        let halt = async { drop(timeout(LONGEST, stopping).await) };
        let replayed = self.held(id, async {
            let Some(pipeline) = self.compiled(id) else {
                return Err(match self.invalid(id) {
                    Some(what) => ControlError::Invalid { id: id.clone(), what }.into(),
                    None => ReplayRequestError::Control(ControlError::Loading(id.clone())),
                });
            };
            log.mask(pipeline.compiled.secrets.iter().cloned());
            Ok(replay(&tools, &pipeline, request, halt).await?)
        });
        replayed.await?
    }
}
