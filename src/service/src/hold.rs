//! Pipelines that are stopped for an operation, and resume after it.

use std::sync::Arc;
use std::time::Duration;

use anabranch_store::{Status, StopReason};
use tokio::sync::{OwnedMutexGuard, oneshot};

use crate::control::{Control, ControlError};
use crate::lifecycle::LifecycleCommand;
use crate::pipeline_table::PipelineEntry;
use crate::tasks::{JobResult, Task};

/// How long a hold waits for the pipeline to drain; records left then are read again when it resumes.
const DRAIN: Duration = Duration::from_secs(15);

impl Control {
    /// Stops a pipeline until the returned value is dropped.
    pub(super) async fn hold(&self, id: &str) -> Result<ExclusiveAccess, ControlError> {
        let (entry, gate) = self.gate(id).await?;
        Ok(self.hold_with(entry, gate).await)
    }

    /// Holds a pipeline for a caller that has its gate.
    pub(super) async fn hold_with(&self, entry: Arc<PipelineEntry>, gate: OwnedMutexGuard<()>) -> ExclusiveAccess {
        let (held, released) = oneshot::channel::<()>();
        // This task keeps the service from ending while the hold exists.
        self.see_to(Task::Errand("the hold on a run", entry.id.clone()), async move {
            let _ = released.await;
            JobResult::Errand
        });
        let resumes = entry.is_live() && *entry.orders.borrow() == LifecycleCommand::Run;
        let hold = ExclusiveAccess { control: self.clone(), entry, gate: Some(gate), resumes, _held: held };
        if hold.entry.is_live() {
            hold.entry.stop(LifecycleCommand::Stop { budget: Some(DRAIN), by: StopReason::System });
            hold.entry.wait_until_stopped().await;
        }
        hold
    }
}

/// Exclusive access to a stopped pipeline. If the pipeline ran before, it resumes on drop.
pub(super) struct ExclusiveAccess {
    control: Control,
    pub(super) entry: Arc<PipelineEntry>,
    gate: Option<OwnedMutexGuard<()>>,
    /// True if the pipeline ran and resumes on drop.
    pub(super) resumes: bool,
    _held: oneshot::Sender<()>,
}

impl Drop for ExclusiveAccess {
    fn drop(&mut self) {
        if !self.resumes {
            return;
        }
        let (control, entry, gate) = (self.control.clone(), self.entry.clone(), self.gate.take());
        let go_on = move || {
            // A pipeline that degraded or finished before the stop keeps its status.
            if matches!(entry.seen.borrow().status, Status::Degraded { .. } | Status::Finished) {
                return;
            }
            match control.begin(&entry) {
                Ok(()) | Err(ControlError::ServiceStopping) => {}
                Err(error) => tracing::error!(pipeline = %entry.id, %error, "the pipeline does not resume"),
            }
        };
        if !self.entry.is_live() {
            go_on();
            return;
        }
        // The caller of the drain has disconnected.
        let entry = self.entry.clone();
        self.control.see_to(Task::Errand("the drain", entry.id.clone()), async move {
            entry.wait_until_stopped().await;
            go_on();
            drop(gate);
            JobResult::Errand
        });
    }
}
