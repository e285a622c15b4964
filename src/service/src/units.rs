//! Requests that concern the units of pipelines in a cluster: which node has them, and having nodes run and stop them.

use anabranch_cluster::Membership;
use anabranch_plugin::state::StoreError;
use anabranch_store::{Spread, Status, StopReason};

use crate::control::{Control, ControlError};
use crate::lifecycle::LifecycleCommand;
use crate::pipeline::Pipeline;
use crate::pipeline_table::{NextStart, PipelineEntry};

impl Control {
    /// Returns `true` if this service runs the pipeline, or would: always, unless the service is a node of a cluster.
    pub fn has(&self, id: &str) -> bool {
        let Some(_) = self.shared().store.membership() else { return true };
        self.entry(id).is_ok_and(|entry| entry.tenure().is_some() || entry.is_live())
    }

    /// Returns why a pipeline that does not run here cannot be stopped or asked.
    pub(super) fn not_running(&self, entry: &PipelineEntry) -> ControlError {
        let is_shared = self.shared().store.membership().is_some();
        match is_shared && entry.tenure().is_none() && entry.seen.borrow().status.is_live() {
            true => ControlError::Elsewhere(entry.id.clone()),
            false => ControlError::NotRunning(entry.id.clone()),
        }
    }

    /// Returns how the nodes of a cluster run a pipeline.
    pub(super) fn spread_of(&self, entry: &PipelineEntry) -> Spread {
        match entry.plan() {
            NextStart::Good(pipeline) => self.spread(&pipeline),
            _ => Spread::default(),
        }
    }

    /// Returns how the nodes of a cluster run a compiled pipeline.
    pub(super) fn spread(&self, pipeline: &Pipeline) -> Spread {
        Spread {
            units: if pipeline.compiled.stages.splits() { self.shared().slots } else { 1 },
            label: pipeline.config.label().cloned().unwrap_or_default(),
        }
    }

    /// Has the nodes of the cluster stop a pipeline, wherever it runs.
    pub(super) async fn end(
        &self,
        entry: &PipelineEntry,
        membership: &Membership,
        force: bool,
    ) -> Result<(), ControlError> {
        let store = &self.shared().store;
        let unavailable = |error| StoreError::Unavailable(Box::new(error));
        let is_wanted = !membership.overview(Some(&entry.id)).await.map_err(unavailable)?.units.is_empty();
        if !store.end(&entry.id).await? {
            if !is_wanted {
                return Err(ControlError::NotRunning(entry.id.clone()));
            }
            // It waited for a node.
            let stopped = Status::Stopped { reason: StopReason::User };
            store.set_status(&entry.id, stopped.clone()).await?;
            entry.show(stopped);
            return Ok(());
        }
        tracing::info!(pipeline = %entry.id, force, "stop requested");
        if force && entry.is_live() {
            entry.stop(LifecycleCommand::Kill { by: StopReason::User });
        }
        membership.look();
        Ok(())
    }

    /// Has a node of the cluster run a pipeline that no node runs.
    pub(super) async fn want(&self, entry: &PipelineEntry) -> Result<(), ControlError> {
        let store = &self.shared().store;
        if !store.want(&entry.id, self.spread_of(entry)).await?
            && let Some(membership) = store.membership()
            && let Ok(overview) = membership.overview(Some(&entry.id)).await
            && overview.units.iter().any(|place| place.is_ending)
        {
            return Err(ControlError::Stopping(entry.id.clone()));
        }
        if !entry.seen.borrow().status.is_live() {
            entry.show(Status::Stopped { reason: StopReason::System });
        }
        if let Some(membership) = store.membership() {
            membership.look();
        }
        Ok(())
    }
}
