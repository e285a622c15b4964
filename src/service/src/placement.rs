//! The pipelines that this node of a cluster runs: those of which it has units, with the latest configuration.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anabranch_cluster::{
    ConfigurationRevision, DrainReason, Membership, RunEnd, Shares, Standing, TICK, UnitRuns, follow_units, run_units,
};
use anabranch_plugin::state::{Slots, StoreError};
use anabranch_record::text::Str;
use anabranch_store::{Status, StopReason, StoreOwnership, StoredPipeline, between};
use async_trait::async_trait;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::control::Control;
use crate::document::Read;
use crate::lifecycle::{LifecycleCommand, LifecycleState};
use crate::pipeline_table::{NextStart, PipelineEntry};
use crate::tasks::{JobResult, Task};

/// Time between two looks at the statuses of pipelines that other nodes run.
const STATUSES: Duration = Duration::from_secs(2);

/// The parts that the task of a pipeline uses.
#[derive(Clone)]
struct Keeper {
    control: Control,
    membership: Membership,
    /// The configuration that this node has read.
    known: watch::Receiver<Option<ConfigurationRevision>>,
    /// Time to drain.
    budget: Option<Duration>,
}

/// Runs the pipelines of this node. Never returns.
pub(super) async fn place(control: Control, membership: Membership, budget: Option<Duration>) {
    // Units that are lost must stop at once, whatever the store does meanwhile: so each pipeline has a task.
    let (tell, known) = watch::channel(None);
    let standing = membership.standing();
    let keeper = Keeper { control: control.clone(), membership, known, budget };
    let begin = |pipeline: Str, shares| {
        // A pipeline that is not known yet comes with the next revision.
        let Ok(entry) = control.entry(&pipeline) else { return false };
        let holding = Mutex::new(watch::channel(StoreOwnership::Held).0);
        let runs = PipelineRuns { keeper: keeper.clone(), entry, holding };
        control.see_to(Task::Errand("the place", pipeline), async move {
            run_units(&runs.entry.id, &runs, &runs.keeper.membership, shares).await;
            JobResult::Errand
        });
        true
    };
    let units = follow_units(&keeper.membership, keeper.known.clone(), begin);
    tokio::join!(units, follow_configuration(&control, standing, tell), follow_statuses(&control));
}

/// Reads the stored configuration at the start and after each change.
async fn follow_configuration(
    control: &Control,
    mut standing: watch::Receiver<Standing>,
    known: watch::Sender<Option<ConfigurationRevision>>,
) {
    let mut revision = None;
    loop {
        let latest = standing.borrow_and_update().configuration();
        if latest.is_some() && latest != revision {
            match refresh(control).await {
                Ok(()) => {
                    revision = latest;
                    known.send_replace(latest);
                    // For units whose pipelines were not known before.
                    continue;
                }
                Err(error) => tracing::warn!(%error, "the configuration of the cluster cannot be read"),
            }
            sleep(TICK).await;
            continue;
        }
        // The sender lives as long as the membership.
        let _ = standing.changed().await;
    }
}

/// Shows the statuses of pipelines that other nodes run.
async fn follow_statuses(control: &Control) {
    let mut statuses = interval(STATUSES);
    statuses.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        statuses.tick().await;
        if let Err(error) = show_others(control).await {
            tracing::debug!(%error, "the statuses of other nodes cannot be read");
        }
    }
}

/// The runs of a pipeline on this node.
struct PipelineRuns {
    keeper: Keeper,
    entry: Arc<PipelineEntry>,
    /// Whether the run may still store something.
    holding: Mutex<watch::Sender<StoreOwnership>>,
}

#[async_trait]
impl UnitRuns for PipelineRuns {
    async fn ended(&self) {
        self.entry.wait_until_stopped().await;
    }

    async fn may_begin(&self, shares: &Shares) -> bool {
        self.is_current().await && self.fits(shares).await
    }

    fn begin(&self, slots: Slots) -> bool {
        let entry = &self.entry;
        let (tell, holding) = watch::channel(StoreOwnership::Held);
        *self.holding.lock().unwrap_or_else(PoisonError::into_inner) = tell;
        // Until now, the status was that of its run on another node.
        if entry.seen.borrow().status.is_live() {
            entry.show(Status::Stopped { reason: StopReason::System });
        }
        entry.set_tenure(Some(holding));
        entry.set_slots(slots);
        if let Err(error) = self.keeper.control.begin(entry) {
            tracing::error!(pipeline = %entry.id, %error, "this node cannot run the pipeline: another one may");
            entry.set_tenure(None);
            return false;
        }
        true
    }

    fn drain(&self, reason: DrainReason) {
        let (by, what) = match reason {
            DrainReason::Stop => (StopReason::User, "stop requested"),
            DrainReason::Move => (StopReason::System, "the pipeline is drained, because its units move between nodes"),
        };
        tracing::info!(pipeline = %self.entry.id, "{what}");
        self.entry.stop(LifecycleCommand::Stop { budget: self.keeper.budget, by });
    }

    async fn abandon(&self) {
        let entry = &self.entry;
        let why = "this node has lost the pipeline; another one takes it over".to_owned();
        tracing::warn!(pipeline = %entry.id, "{why}");
        self.holding.lock().unwrap_or_else(PoisonError::into_inner).send_replace(StoreOwnership::Paused(why));
        // As after a trial, the outcome is not one of this service: the other node delivers the rest.
        entry.set_on_trial(true);
        entry.stop(LifecycleCommand::Kill { by: StopReason::System });
        entry.wait_until_stopped().await;
        entry.set_on_trial(false);
        entry.seen.send_modify(LifecycleState::leave_to_others);
    }

    fn put_down(&self) {
        self.entry.set_tenure(None);
    }

    async fn end(&self) -> RunEnd {
        // A change holds the pipeline, and resumes it before it opens the gate.
        let gate = self.keeper.control.gate(&self.entry.id).await;
        if gate.is_ok() && self.entry.is_live() {
            return RunEnd::GoesOn;
        }
        self.entry.set_tenure(None);
        match self.entry.seen.borrow().status {
            // The service stopped it, not a user: another node runs it.
            Status::Stopped { reason: StopReason::System } => RunEnd::Released,
            Status::Finished => RunEnd::Finished,
            _ => RunEnd::Over,
        }
    }

    async fn unwant(&self, all: bool) -> bool {
        let (store, id) = (&self.keeper.control.shared().store, &self.entry.id);
        match store.unwant(id, all).await {
            // Others still read theirs.
            Ok(left) if left > 0 && !all => {
                let _ = store.set_status(id, Status::Running).await;
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(pipeline = %id, %error, "the store does not know yet that the pipeline has stopped");
                return false;
            }
        }
        true
    }
}

impl PipelineRuns {
    /// Returns `true` if this node has the latest configuration.
    async fn is_current(&self) -> bool {
        let Some(latest) = self.keeper.membership.standing().borrow().configuration() else { return false };
        let mut known = self.keeper.known.clone();
        let is_known = known.wait_for(|known| known.is_some_and(|known| known.covers(latest)));
        timeout(TICK, is_known).await.is_ok_and(|known| known.is_ok())
    }

    /// Returns `true` if the pipeline can run here, in as many units as the cluster has of it. A change of its configuration
    /// may have given it another label, or made it a pipeline that cannot be split, or one that can.
    async fn fits(&self, shares: &Shares) -> bool {
        let Keeper { control, membership, .. } = &self.keeper;
        let entry = &self.entry;
        let spread = control.spread_of(entry);
        if !membership.takes(&spread.label) {
            tracing::info!(pipeline = %entry.id, "this node does not have the label {}: others run the pipeline", spread.label);
            let labels = vec![(entry.id.clone(), spread.label)];
            if let Err(error) = control.shared().store.set_labels(labels).await {
                tracing::warn!(pipeline = %entry.id, %error, "the label cannot be stored yet");
                return false;
            }
            for unit in shares.units(&entry.id) {
                membership.release(unit);
            }
            return false;
        }
        let (is_split, units) = (shares.held().of() > 1, spread.units);
        let can_run = matches!(entry.plan(), NextStart::Good(_));
        if !can_run || is_split == (units > 1) || !is_split && control.shared().slots == 1 {
            return true;
        }
        tracing::info!(pipeline = %entry.id, units, "the cluster runs the changed pipeline in another number of units");
        if let Err(error) = control.shared().store.reshape(&entry.id, spread).await {
            tracing::warn!(pipeline = %entry.id, %error, "the number of units cannot be changed yet");
        }
        membership.look();
        false
    }
}

/// Reads the stored configuration. Pipelines that run here and changed are restarted with the change.
async fn refresh(control: &Control) -> Result<(), StoreError> {
    let stored = stored_pipelines(control).await?;
    let mut changed = Vec::new();
    for pipeline in stored.iter().filter(|pipeline| !pipeline.detached) {
        let known = control.entry(&pipeline.id).ok().map(|entry| entry.plan());
        let is_current = match &known {
            Some(NextStart::Good(known)) => between(Some(pipeline), &StoredPipeline::from(&known.config)).is_empty(),
            _ => false,
        };
        if is_current {
            continue;
        }
        // The service is stopping.
        let Ok(read) = Read::stored(control.shared(), pipeline).await else { return Ok(()) };
        changed.push((pipeline, read.into_plan()));
    }
    let label = |(pipeline, plan): &(&StoredPipeline, NextStart)| match plan {
        NextStart::Good(plan) => Some((pipeline.id.clone(), control.spread(plan).label)),
        _ => None,
    };
    // First: if it fails, the changes are read again.
    control.shared().store.set_labels(changed.iter().filter_map(label).collect()).await?;
    for (pipeline, plan) in changed {
        if let NextStart::Invalid(what) = &plan {
            tracing::error!(pipeline = %pipeline.id, "this node cannot run the pipeline: {what}");
        }
        let entry = control.put(&pipeline.id, plan, pipeline.status.clone());
        if entry.is_live()
            && let Err(error) = control.held(&entry.id, async {}).await
        {
            tracing::error!(pipeline = %entry.id, %error, "the pipeline runs without its last change");
        }
    }
    Ok(())
}

/// Reads the stored pipelines. Removes those that are not stored any more, unless they are still being drained.
async fn stored_pipelines(control: &Control) -> Result<Vec<StoredPipeline>, StoreError> {
    let here: Vec<Str> = control.all().into_iter().map(|(id, _)| id).collect();
    let stored = control.shared().store.pipelines().await?;
    let kept: BTreeSet<&Str> =
        stored.iter().filter(|pipeline| !pipeline.detached).map(|pipeline| &pipeline.id).collect();
    for id in here.iter().filter(|id| !kept.contains(id)) {
        if control.entry(id).is_ok_and(|entry| !entry.is_live())
            && let Ok((entry, _gate)) = control.gate(id).await
            && !entry.is_live()
        {
            control.remove(&entry);
        }
    }
    Ok(stored)
}

/// Shows the statuses of pipelines that do not run here, and forgets those that do not exist any more.
async fn show_others(control: &Control) -> Result<(), StoreError> {
    for pipeline in stored_pipelines(control).await? {
        let Ok(entry) = control.entry(&pipeline.id) else { continue };
        let is_here = entry.is_live() || entry.tenure().is_some();
        let differs = entry.seen.borrow().status != pipeline.status;
        if !is_here && differs && !matches!(entry.plan(), NextStart::Invalid(_)) {
            entry.show(pipeline.status);
        }
    }
    Ok(())
}
