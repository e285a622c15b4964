//! The pipelines that this node of a cluster runs: those whose units it has.
//!
//! One task follows the membership. For each unit of this node, another task runs its pipeline until the unit is wanted
//! elsewhere, is lost, or the pipeline ends by itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anabranch_cluster::{Membership, Standing, TICK, Tenure};
use anabranch_plugin::state::{StoreError, Unit};
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
    /// The number of the hold.
    number: u64,
    tenure: watch::Sender<Option<Tenure>>,
}

/// Runs the pipelines of this node. Never returns.
pub(super) async fn place(control: Control, membership: Membership, budget: Option<Duration>) {
    // A unit that is lost must stop at once, whatever the store does meanwhile: so each waits for itself.
    let (known, is_known) = watch::channel(false);
    tokio::join!(
        follow_units(&control, &membership, is_known, budget),
        follow_configuration(&control, membership.standing(), known),
        follow_statuses(&control),
    );
}

/// Begins and ends tasks, so that those units run which this node has.
async fn follow_units(
    control: &Control,
    membership: &Membership,
    mut known: watch::Receiver<bool>,
    budget: Option<Duration>,
) {
    let mut standing = membership.standing();
    let mut places: BTreeMap<Unit, Place> = BTreeMap::new();
    loop {
        let (now, may_begin) = (standing.borrow_and_update().clone(), *known.borrow_and_update());
        places.retain(|unit, place| {
            let hold = now.units.get(unit).filter(|hold| hold.number == place.number);
            let tenure = hold.map(|hold| hold.tenure);
            place.tenure.send_if_modified(|before| std::mem::replace(before, tenure) != tenure);
            tenure.is_some()
        });
        for (unit, hold) in now.units.iter().filter(|_| may_begin) {
            if places.contains_key(unit) {
                continue;
            }
            // A pipeline that is not known yet comes with the next revision.
            let Ok(entry) = control.entry(&unit.pipeline) else { continue };
            let (tell, tenure) = watch::channel(Some(hold.tenure));
            places.insert(unit.clone(), Place { number: hold.number, tenure: tell });
            let keep = keep(control.clone(), membership.clone(), unit.clone(), entry, tenure, budget);
            control.see_to(Task::Errand("the place", unit.pipeline.clone()), async move {
                keep.await;
                JobResult::Errand
            });
        }
        // The senders live as long as this loop.
        tokio::select! {
            _ = standing.changed() => {}
            _ = known.changed() => {}
        }
    }
}

/// Reads the stored configuration at the start and after each change.
async fn follow_configuration(control: &Control, mut standing: watch::Receiver<Standing>, known: watch::Sender<bool>) {
    let mut revision = None;
    loop {
        // A node that has not joined does not know the revision.
        let now = standing.borrow_and_update().clone();
        let latest = now.id.map(|_| now.revision);
        if latest.is_some() && latest != revision {
            match refresh(control).await {
                Ok(()) => {
                    revision = latest;
                    known.send_replace(true);
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
        // Another node decides, which has the pipeline now.
        if membership.tenure(unit).is_none() {
            return;
        }
    }
    // A row that is gone is not released, but the member forgets the unit.
    membership.release(unit.clone());
}

/// Reads the stored configuration. Pipelines that run here and changed are restarted with the change.
async fn refresh(control: &Control) -> Result<(), StoreError> {
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
async fn show_others(control: &Control) -> Result<(), StoreError> {
    for pipeline in control.shared().store.pipelines().await? {
        let Ok(entry) = control.entry(&pipeline.id) else { continue };
        let is_here = entry.is_live() || entry.tenure().is_some();
        let differs = entry.seen.borrow().status != pipeline.status;
        if !is_here && differs && !matches!(entry.plan(), NextStart::Invalid(_)) {
            entry.show(pipeline.status);
        }
    }
    Ok(())
}
