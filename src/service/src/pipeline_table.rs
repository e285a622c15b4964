//! The pipelines of a service, with the state and the commands of each.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use anabranch_graph::exec::{SourceRequests, Taps};
use anabranch_plugin::state::Slots;
use anabranch_record::text::Str;
use anabranch_store::{Status, StopReason, StoreOwnership};
use tokio::sync::{Mutex as Gate, watch};

use crate::lifecycle::{LifecycleCommand, LifecycleState};
use crate::pipeline::Pipeline;

/// The plan for the next start of a pipeline.
#[derive(Clone)]
pub(super) enum NextStart {
    /// This compiled pipeline.
    Good(Arc<Pipeline>),
    /// Nothing: the pipeline has this error.
    Invalid(Str),
    /// Nothing: the pipeline is being created and lacks this.
    Incomplete(Str),
    /// Nothing yet: its plugins are being loaded, and then it is started.
    Loading,
}

/// One pipeline.
pub(super) struct PipelineEntry {
    pub(super) id: Str,
    /// Held by the request that starts, stops, changes or deletes the pipeline.
    pub(super) gate: Arc<Gate<()>>,
    pub(super) orders: watch::Sender<LifecycleCommand>,
    pub(super) seen: watch::Sender<LifecycleState>,
    /// The taps for inspecting its records, shared by all of its runs.
    pub(super) taps: Arc<Taps>,
    /// Passes requests to its sources, shared by all of its runs.
    pub(super) requests: Arc<SourceRequests>,
    /// True while the pipeline is live. The status may show the end earlier.
    live: watch::Sender<bool>,
    /// True during a trial start: its outcome concerns the request and not the service.
    on_trial: AtomicBool,
    plan: Mutex<NextStart>,
    /// Whether this node of a cluster has the pipeline; `None` if another node has it, or none.
    tenure: Mutex<Option<watch::Receiver<StoreOwnership>>>,
    /// The slots that its next run has.
    slots: Mutex<Slots>,
}

impl PipelineEntry {
    pub(super) fn new(id: Str, plan: NextStart, status: Status) -> Arc<PipelineEntry> {
        let status = match &plan {
            NextStart::Good(_) | NextStart::Incomplete(_) | NextStart::Loading => status,
            NextStart::Invalid(_) => Status::Invalid,
        };
        Arc::new(PipelineEntry {
            id,
            gate: Arc::default(),
            orders: watch::Sender::new(LifecycleCommand::Run),
            seen: watch::Sender::new(LifecycleState::new(status)),
            taps: Arc::default(),
            requests: Arc::default(),
            live: watch::Sender::new(false),
            on_trial: AtomicBool::new(false),
            plan: Mutex::new(plan),
            tenure: Mutex::new(None),
            slots: Mutex::new(Slots::WHOLE),
        })
    }

    pub(super) fn plan(&self) -> NextStart {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the plan that the next start runs.
    pub(super) fn set_plan(&self, plan: NextStart) {
        if let NextStart::Invalid(_) = plan {
            self.show(Status::Invalid);
        } else if self.seen.borrow().status == Status::Invalid {
            self.show(Status::Stopped { reason: StopReason::User });
        }
        *self.plan.lock().unwrap_or_else(PoisonError::into_inner) = plan;
    }

    pub(super) fn tenure(&self) -> Option<watch::Receiver<StoreOwnership>> {
        self.tenure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_tenure(&self, tenure: Option<watch::Receiver<StoreOwnership>>) {
        *self.tenure.lock().unwrap_or_else(PoisonError::into_inner) = tenure;
    }

    pub(super) fn slots(&self) -> Slots {
        *self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_slots(&self, slots: Slots) {
        *self.slots.lock().unwrap_or_else(PoisonError::into_inner) = slots;
    }

    /// Shows a status while the pipeline is not live.
    pub(super) fn show(&self, status: Status) {
        self.seen.send_modify(|seen| {
            *seen = LifecycleState { status, since: SystemTime::now(), retry: None, place: None, ..seen.clone() };
        });
    }

    pub(super) fn is_on_trial(&self) -> bool {
        self.on_trial.load(Ordering::Relaxed)
    }

    pub(super) fn set_on_trial(&self, on_trial: bool) {
        self.on_trial.store(on_trial, Ordering::Relaxed);
    }

    pub(super) fn is_live(&self) -> bool {
        *self.live.borrow()
    }

    pub(super) fn set_live(&self, live: bool) {
        self.live.send_replace(live);
    }

    /// Waits until the pipeline is not live.
    pub(super) async fn wait_until_stopped(&self) {
        // The sender is in `self`, so the channel cannot close.
        let _ = self.live.subscribe().wait_for(|live| !live).await;
    }

    /// Orders the pipeline to stop, unless an earlier order stops it at least as soon. The origin of the first order
    /// stays.
    pub(super) fn stop(&self, order: LifecycleCommand) {
        self.orders.send_if_modified(|before| {
            let after = before.hastened(order);
            std::mem::replace(before, after) != after
        });
    }
}

/// Phase of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Some pipelines that start with the service were not started yet.
    Starting,
    Serving,
    Stopping,
}

/// All pipelines by id.
pub(super) struct PipelineTable {
    pub(super) entries: BTreeMap<Str, Arc<PipelineEntry>>,
    pub(super) phase: Phase,
}

impl PipelineTable {
    /// Returns `true` if this entry is current: the pipeline was not deleted or replaced.
    pub(super) fn has(&self, entry: &Arc<PipelineEntry>) -> bool {
        self.entries.get(&entry.id).is_some_and(|known| Arc::ptr_eq(known, entry))
    }

    pub(super) fn empty() -> Mutex<PipelineTable> {
        Mutex::new(PipelineTable { entries: BTreeMap::new(), phase: Phase::Starting })
    }
}

/// Locks the table. A poisoned lock is ignored: the map and the phase are consistent even after a panic elsewhere.
pub(super) fn locked(table: &Mutex<PipelineTable>) -> MutexGuard<'_, PipelineTable> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}
