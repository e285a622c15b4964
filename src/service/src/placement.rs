//! The pipelines that this node of a cluster runs: those whose units it has.
//!
//! One task follows the membership. For each unit of this node, another task runs its pipeline until the unit is wanted
//! elsewhere, is lost, or the pipeline ends by itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anabranch_cluster::{Membership, NodeId, Standing, TICK, Tenure};
use anabranch_plugin::state::Unit;
use anabranch_record::text::Str;
use anabranch_store::{Status, StopReason, StoreOwnership, StoredPipeline, between};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::control::Control;
use crate::document::Read;
use crate::lifecycle::{LifecycleCommand, LifecycleState};
use crate::pipeline_table::{NextStart, PipelineEntry};
use crate::tasks::{JobResult, Task};

/// Time between two looks at the statuses of pipelines that other nodes run.
const STATUSES: Duration = Duration::from_secs(2);

/// How long a node keeps a pipeline that it cannot run before it releases it.
const UNABLE: Duration = Duration::from_secs(5);

/// A unit that this node runs.
struct Place {
    /// The node as which it was taken: after joining again, this process may have lost it for a while.
    node: Option<NodeId>,
    tenure: watch::Sender<Option<Tenure>>,
}

/// Runs the pipelines of this node. Never returns.
pub(super) async fn place(control: Control, membership: Membership, budget: Option<Duration>) {
    let mut standing = membership.standing();
    let mut places: BTreeMap<Unit, Place> = BTreeMap::new();
    let mut revision = 0;
    let mut statuses = interval(STATUSES);
    statuses.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let now = standing.borrow_and_update().clone();
        if now.revision != revision {
            match refresh(&control).await {
                Ok(()) => revision = now.revision,
                Err(error) => tracing::warn!(%error, "the configuration of the cluster cannot be read"),
            }
        }
        follow(&control, &membership, &now, &mut places, budget);
        tokio::select! {
            // The sender lives as long as the membership.
            _ = standing.changed() => {}
            _ = statuses.tick() => {
                if let Err(error) = show_others(&control, &places).await {
                    tracing::debug!(%error, "the statuses of other nodes cannot be read");
                }
            }
        }
    }
}

/// Compares the units of this node with those that it runs, and begins and ends tasks.
fn follow(
    control: &Control,
    membership: &Membership,
    now: &Standing,
    places: &mut BTreeMap<Unit, Place>,
    budget: Option<Duration>,
) {
    places.retain(|unit, place| {
        let tenure = now.units.get(unit).copied().filter(|_| place.node == now.id);
        place.tenure.send_if_modified(|before| std::mem::replace(before, tenure) != tenure);
        tenure.is_some() && !place.tenure.is_closed()
    });
    for (unit, tenure) in &now.units {
        if places.contains_key(unit) {
            continue;
        }
        if *tenure == Tenure::Wanted {
            // It was given to this node and asked for before it was started.
            membership.release(unit.clone());
            continue;
        }
        // A pipeline that is not known yet comes with the next revision.
        let Ok(entry) = control.entry(&unit.pipeline) else { continue };
        let (tell, tenure) = watch::channel(Some(*tenure));
        places.insert(unit.clone(), Place { node: now.id, tenure: tell });
        let keep = keep(control.clone(), membership.clone(), unit.clone(), entry, tenure, budget);
        control.see_to(Task::Errand("the place", unit.pipeline.clone()), async move {
            keep.await;
            JobResult::Errand
        });
    }
}

/// Runs the pipeline of a unit as long as this node has it.
async fn keep(
    control: Control,
    membership: Membership,
    unit: Unit,
    entry: Arc<PipelineEntry>,
    mut tenure: watch::Receiver<Option<Tenure>>,
    budget: Option<Duration>,
) {
    let (tell, holding) = watch::channel(StoreOwnership::Held);
    // A run of an earlier tenure ends first.
    entry.wait_until_stopped().await;
    if *tenure.borrow() != Some(Tenure::Held) {
        membership.release(unit);
        return;
    }
    // Until now, the status was that of its run on another node.
    if entry.seen.borrow().status.is_live() {
        entry.show(Status::Stopped { reason: StopReason::System });
    }
    entry.set_tenure(Some(holding));
    if let Err(error) = control.begin(&entry) {
        tracing::error!(pipeline = %entry.id, %error, "this node cannot run the pipeline: another one may");
        entry.set_tenure(None);
        // Not at once: this node may be the next to take it.
        sleep(UNABLE).await;
        membership.release(unit);
        return;
    }
    loop {
        tokio::select! {
            biased;
            changed = tenure.changed() => {
                // The sender is dropped when the unit is lost.
                let now = if changed.is_ok() { *tenure.borrow() } else { None };
                match now {
                    Some(Tenure::Held) => continue,
                    Some(Tenure::Wanted) => {
                        tracing::info!(pipeline = %entry.id, "another node takes the pipeline over: it is drained");
                        entry.stop(LifecycleCommand::Stop { budget, by: StopReason::System });
                        entry.wait_until_stopped().await;
                        entry.set_tenure(None);
                        membership.release(unit);
                    }
                    None => {
                        let why = "this node has lost the pipeline; another one takes it over".to_owned();
                        tracing::warn!(pipeline = %entry.id, "{why}");
                        tell.send_replace(StoreOwnership::Paused(why));
                        // As after a trial, the outcome is not one of this service: the other node delivers the rest.
                        entry.set_on_trial(true);
                        entry.stop(LifecycleCommand::Kill { by: StopReason::System });
                        entry.wait_until_stopped().await;
                        entry.set_on_trial(false);
                        entry.seen.send_modify(LifecycleState::leave_to_others);
                        entry.set_tenure(None);
                    }
                }
                return;
            }
            () = entry.wait_until_stopped() => {}
        }
        // A change holds the pipeline, and resumes it before it opens the gate.
        let Ok((_, gate)) = control.gate(&entry.id).await else {
            entry.set_tenure(None);
            return give_up(&control, &membership, &unit).await;
        };
        if entry.is_live() {
            continue;
        }
        entry.set_tenure(None);
        // What the service stops, another node runs.
        let is_paused = entry.seen.borrow().status == Status::Stopped { reason: StopReason::System };
        drop(gate);
        match is_paused {
            true => membership.release(unit),
            false => give_up(&control, &membership, &unit).await,
        }
        return;
    }
}

/// No node runs the pipeline until a user starts it.
async fn give_up(control: &Control, membership: &Membership, unit: &Unit) {
    while let Err(error) = control.shared().store.want(&unit.pipeline, false).await {
        tracing::warn!(pipeline = %unit.pipeline, %error, "the store does not know yet that the pipeline has stopped");
        sleep(TICK).await;
        if membership.tenure(unit).is_none() {
            return;
        }
    }
    membership.look();
}

/// Reads the stored configuration. Pipelines that run here and changed are restarted with the change.
async fn refresh(control: &Control) -> Result<(), anabranch_plugin::state::StoreError> {
    let stored = control.shared().store.pipelines().await?;
    let here: Vec<Str> = control.all().into_iter().map(|(id, _)| id).collect();
    for id in here.iter().filter(|id| !stored.iter().any(|pipeline| pipeline.id == **id && !pipeline.detached)) {
        if let Ok((entry, _gate)) = control.gate(id).await
            && !entry.is_live()
        {
            control.remove(&entry);
        }
    }
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
        let plan = read.into_plan();
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

/// Shows the statuses of pipelines that do not run here.
async fn show_others(
    control: &Control,
    places: &BTreeMap<Unit, Place>,
) -> Result<(), anabranch_plugin::state::StoreError> {
    for pipeline in control.shared().store.pipelines().await? {
        let Ok(entry) = control.entry(&pipeline.id) else { continue };
        let is_here = entry.is_live() || places.contains_key(&Unit::whole(pipeline.id.clone()));
        let differs = entry.seen.borrow().status != pipeline.status;
        if !is_here && differs && !matches!(entry.plan(), NextStart::Invalid(_)) {
            entry.show(pipeline.status);
        }
    }
    Ok(())
}
