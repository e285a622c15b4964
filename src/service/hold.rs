//! Pipelines that are held still while something is done with them, and go on after.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedMutexGuard, oneshot};

use super::control::{Control, ControlError};
use super::lifecycle::Order;
use super::roster::Entry;
use super::tasks::{Done, Task};
use crate::store::{Status, StopReason};

/// How long who holds a pipeline waits for it to drain; what is left then is read again when it goes on.
const DRAIN: Duration = Duration::from_secs(15);

impl Control {
    /// Holds a pipeline still until the hold is dropped.
    pub(super) async fn hold(&self, id: &str) -> Result<Hold, ControlError> {
        let (entry, gate) = self.gate(id).await?;
        Ok(self.hold_with(entry, gate).await)
    }

    /// The same for who has the right to.
    pub(super) async fn hold_with(&self, entry: Arc<Entry>, gate: OwnedMutexGuard<()>) -> Hold {
        let (held, released) = oneshot::channel::<()>();
        // The service does not end under it.
        self.see_to(Task::Errand("who holds a run", entry.id.clone()), async move {
            let _ = released.await;
            Done::Errand
        });
        let resumes = entry.is_live() && *entry.orders.borrow() == Order::Run;
        let hold = Hold { control: self.clone(), entry, gate: Some(gate), resumes, _held: held };
        if hold.entry.is_live() {
            hold.entry.stop(Order::Stop { budget: Some(DRAIN), by: StopReason::System });
            hold.entry.stands().await;
        }
        hold
    }
}

/// A pipeline that stands still and is nobody else's. Dropping it lets the pipeline go on, if it ran.
pub(super) struct Hold {
    control: Control,
    pub(super) entry: Arc<Entry>,
    gate: Option<OwnedMutexGuard<()>>,
    /// Whether it ran, and goes on after.
    pub(super) resumes: bool,
    _held: oneshot::Sender<()>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.resumes {
            return;
        }
        let (control, entry, gate) = (self.control.clone(), self.entry.clone(), self.gate.take());
        let go_on = move || {
            // What failed for good or was finished before it could be stopped is left as it is.
            if matches!(entry.seen.borrow().status, Status::Degraded { .. } | Status::Finished) {
                return;
            }
            match control.begin(&entry) {
                Ok(()) | Err(ControlError::ServiceStopping) => {}
                Err(error) => tracing::error!(pipeline = %entry.id, %error, "it does not go on"),
            }
        };
        if !self.entry.is_live() {
            go_on();
            return;
        }
        // Nobody waits for the drain any more.
        let entry = self.entry.clone();
        self.control.see_to(Task::Errand("the drain", entry.id.clone()), async move {
            entry.stands().await;
            go_on();
            drop(gate);
            Done::Errand
        });
    }
}
