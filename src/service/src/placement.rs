//! The pipelines that this node of a cluster runs: those of which it has units.
//!
//! One task follows the membership. For each pipeline of which this node has units, another task runs these units in one run.
//! If the units change, the run is drained and begins again with those that the node has then; if one is lost, it is
//! killed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anabranch_cluster::{Hold, Membership, Standing, TICK, Tenure};
use anabranch_plugin::state::{Slots, StoreError, Unit};
use anabranch_record::text::Str;
use anabranch_store::{Status, StopReason, StoreOwnership, StoredPipeline, between};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::control::Control;
use crate::document::Read;
use crate::lifecycle::{LifecycleCommand, LifecycleState};
use crate::pipeline_table::{NextStart, PipelineEntry};
use crate::tasks::{JobResult, Task};

/// Time between two looks at the statuses of pipelines that other nodes run.
const STATUSES: Duration = Duration::from_secs(2);

/// How long a node keeps a pipeline that it cannot run before it releases it.
const UNABLE: Duration = Duration::from_secs(5);

/// The units that this node has of a pipeline, by slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Shares(BTreeMap<u32, Hold>);

impl Shares {
    /// Returns the units that this node runs.
    fn running(&self) -> Shares {
        let running = self.0.iter().filter(|(_, hold)| hold.tenure == Tenure::Held);
        Shares(running.map(|(slot, hold)| (*slot, *hold)).collect())
    }

    /// Returns the slots that this node runs.
    fn held(&self) -> Slots {
        let of = self.0.values().map(|hold| hold.of).next().unwrap_or(1);
        self.running().0.keys().fold(Slots::none(of), |slots, slot| slots.with(*slot))
    }

    /// Returns `true` if this node has had all units since `before` that it had then.
    fn keeps(&self, before: &Shares) -> bool {
        before.0.iter().all(|(slot, hold)| self.0.get(slot).is_some_and(|now| now.number == hold.number))
    }
}

/// A pipeline of which this node has units.
struct Place {
    shares: watch::Sender<Shares>,
    /// Numbers of the holds that its task knows.
    known: BTreeSet<u64>,
}

/// The parts that the task of a pipeline uses.
#[derive(Clone)]
struct Keeper {
    control: Control,
    membership: Membership,
    /// The revision of the configuration that this node has read.
    known: watch::Receiver<Option<u64>>,
    /// Time to drain.
    budget: Option<Duration>,
}

/// Runs the pipelines of this node. Never returns.
pub(super) async fn place(control: Control, membership: Membership, budget: Option<Duration>) {
    // Units that are lost must stop at once, whatever the store does meanwhile: so each pipeline has a task.
    let (tell, known) = watch::channel(None);
    let standing = membership.standing();
    let keeper = Keeper { control: control.clone(), membership, known, budget };
    tokio::join!(follow_units(&keeper), follow_configuration(&control, standing, tell), follow_statuses(&control));
}

/// Begins tasks, and tells them which units this node has.
async fn follow_units(keeper: &Keeper) {
    let (mut standing, mut known) = (keeper.membership.standing(), keeper.known.clone());
    let mut places: BTreeMap<Str, Place> = BTreeMap::new();
    loop {
        let now = standing.borrow_and_update().clone();
        let may_begin = known.borrow_and_update().is_some();
        let mut shares: BTreeMap<Str, Shares> = BTreeMap::new();
        for (unit, hold) in now.units {
            shares.entry(unit.pipeline).or_default().0.insert(unit.slot, hold);
        }
        places.retain(|pipeline, place| {
            let now = shares.get(pipeline).cloned().unwrap_or_default();
            if place.shares.is_closed() {
                // Its task has ended, perhaps before the latest units came: they are given away too.
                let left = now.0.iter().filter(|(_, hold)| place.known.contains(&hold.number));
                let left: Vec<Unit> = left.map(|(slot, _)| Unit { pipeline: pipeline.clone(), slot: *slot }).collect();
                let is_left = !left.is_empty();
                left.into_iter().for_each(|unit| keeper.membership.release(unit));
                return is_left;
            }
            place.known.extend(now.0.values().map(|hold| hold.number));
            place.shares.send_if_modified(|before| {
                let differs = *before != now;
                *before = now;
                differs
            });
            true
        });
        for (pipeline, shares) in shares.into_iter().filter(|_| may_begin) {
            if places.contains_key(&pipeline) {
                continue;
            }
            // A pipeline that is not known yet comes with the next revision.
            let Ok(entry) = keeper.control.entry(&pipeline) else { continue };
            let known = shares.0.values().map(|hold| hold.number).collect();
            let (tell, told) = watch::channel(shares);
            places.insert(pipeline.clone(), Place { shares: tell, known });
            let keep = keeper.clone().keep(entry, told);
            keeper.control.see_to(Task::Errand("the place", pipeline), async move {
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
async fn follow_configuration(
    control: &Control,
    mut standing: watch::Receiver<Standing>,
    known: watch::Sender<Option<u64>>,
) {
    let mut revision = None;
    loop {
        // A node that has not joined does not know the revision.
        let now = standing.borrow_and_update().clone();
        let latest = now.id.map(|_| now.revision);
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

/// How a run in this node ended.
enum Run {
    /// The units changed: what this node still has runs again.
    Again,
    /// The pipeline has ended by itself, or this node does not run it.
    Over,
}

impl Keeper {
    /// Runs the units of a pipeline as long as this node has some.
    async fn keep(self, entry: Arc<PipelineEntry>, mut shares: watch::Receiver<Shares>) {
        loop {
            // A run of earlier units ends first.
            entry.wait_until_stopped().await;
            let now = shares.borrow_and_update().clone();
            for (slot, hold) in &now.0 {
                let unit = Unit { pipeline: entry.id.clone(), slot: *slot };
                match hold.tenure {
                    Tenure::Held => {}
                    Tenure::Wanted => self.membership.release(unit),
                    Tenure::Ending => self.membership.end(unit),
                }
            }
            if now.held().is_empty() {
                if now.0.is_empty() || shares.changed().await.is_err() {
                    return;
                }
                continue;
            }
            if !self.is_current().await || !self.fits(&entry, &now).await {
                // Units may be lost or wanted meanwhile.
                if timeout(TICK, shares.changed()).await.is_ok_and(|changed| changed.is_err()) {
                    return;
                }
                continue;
            }
            match self.run(&entry, &now, &mut shares).await {
                Run::Again => {}
                Run::Over => return,
            }
        }
    }

    /// Returns `true` if this node has the latest configuration.
    async fn is_current(&self) -> bool {
        let latest = self.membership.standing().borrow().revision;
        let mut known = self.known.clone();
        let is_known = known.wait_for(|known| known.is_some_and(|known| known >= latest));
        timeout(TICK, is_known).await.is_ok_and(|known| known.is_ok())
    }

    /// Returns `true` if the pipeline can run here, in as many units as the cluster has of it. A change of its configuration
    /// may have given it another label, or made it a pipeline that cannot be split, or one that can.
    async fn fits(&self, entry: &PipelineEntry, shares: &Shares) -> bool {
        let spread = self.control.spread_of(entry);
        if !self.membership.takes(&spread.label) {
            tracing::info!(pipeline = %entry.id, "this node does not have the label {}: others run the pipeline", spread.label);
            let labels = vec![(entry.id.clone(), spread.label)];
            if let Err(error) = self.control.shared().store.set_labels(labels).await {
                tracing::warn!(pipeline = %entry.id, %error, "the label cannot be stored yet");
                return false;
            }
            self.release(entry, shares);
            return false;
        }
        let (is_split, units) = (shares.held().of() > 1, spread.units);
        let can_run = matches!(entry.plan(), NextStart::Good(_));
        if !can_run || is_split == (units > 1) || !is_split && self.control.shared().slots == 1 {
            return true;
        }
        tracing::info!(pipeline = %entry.id, units, "the cluster runs the changed pipeline in another number of units");
        if let Err(error) = self.control.shared().store.reshape(&entry.id, spread).await {
            tracing::warn!(pipeline = %entry.id, %error, "the number of units cannot be changed yet");
        }
        self.membership.look();
        false
    }

    /// Runs the units that this node has, until they change or the pipeline ends.
    async fn run(&self, entry: &Arc<PipelineEntry>, now: &Shares, shares: &mut watch::Receiver<Shares>) -> Run {
        let Keeper { control, .. } = self;
        let (tell, holding) = watch::channel(StoreOwnership::Held);
        let slots = now.held();
        let running = now.running();
        // Until now, the status was that of its run on another node.
        if entry.seen.borrow().status.is_live() {
            entry.show(Status::Stopped { reason: StopReason::System });
        }
        entry.set_tenure(Some(holding));
        entry.set_slots(slots);
        if let Err(error) = control.begin(entry) {
            tracing::error!(pipeline = %entry.id, %error, "this node cannot run the pipeline: another one may");
            entry.set_tenure(None);
            // Not at once: this node may be the next to take it.
            sleep(UNABLE).await;
            self.release(entry, now);
            return Run::Over;
        }
        if slots.of() > 1 {
            let has = slots.iter().map(|slot| slot.to_string()).collect::<Vec<_>>().join(", ");
            tracing::info!(pipeline = %entry.id, "this node runs the slots {has} of {}", slots.of());
        }
        loop {
            tokio::select! {
                biased;
                changed = shares.changed() => {
                    let mut now = match changed {
                        Ok(()) => shares.borrow_and_update().clone(),
                        Err(_) => Shares::default(),
                    };
                    if now.keeps(&running) && now.held().contains(slots) {
                        if now.held() == slots {
                            continue;
                        }
                        // More units: others may follow.
                        let _ = timeout(TICK, shares.wait_for(|now| !now.held().contains(slots))).await;
                        now = shares.borrow_and_update().clone();
                    }
                    self.end_run(entry, &now, &running, shares, &tell).await;
                    entry.set_tenure(None);
                    return Run::Again;
                }
                () = entry.wait_until_stopped() => {}
            }
            // A change holds the pipeline, and resumes it before it opens the gate.
            let gate = control.gate(&entry.id).await;
            if gate.is_ok() && entry.is_live() {
                continue;
            }
            entry.set_tenure(None);
            let status = entry.seen.borrow().status.clone();
            drop(gate);
            match status {
                // The service stopped it, not a user: another node runs it.
                Status::Stopped { reason: StopReason::System } => self.release(entry, &shares.borrow().clone()),
                // The other units may have records left.
                Status::Finished => self.give_up(entry, &running, false).await,
                _ => self.give_up(entry, &running, true).await,
            }
            return Run::Over;
        }
    }

    /// Ends the run whose units have changed: drains it, unless this node has lost one of them.
    async fn end_run(
        &self,
        entry: &PipelineEntry,
        now: &Shares,
        running: &Shares,
        shares: &mut watch::Receiver<Shares>,
        tell: &watch::Sender<StoreOwnership>,
    ) {
        let is_ending = now.0.values().any(|hold| hold.tenure == Tenure::Ending);
        if now.keeps(running) {
            tracing::info!(
                pipeline = %entry.id,
                "{}", if is_ending { "stop requested" } else { "the pipeline is drained, because its units move between nodes" }
            );
            let by = if is_ending { StopReason::User } else { StopReason::System };
            entry.stop(LifecycleCommand::Stop { budget: self.budget, by });
            let lost = async {
                // An error means that the loop of the units has ended.
                let _ = shares.wait_for(|now| !now.keeps(running)).await;
            };
            tokio::select! {
                () = entry.wait_until_stopped() => return,
                () = lost => {}
            }
        }
        let why = "this node has lost the pipeline; another one takes it over".to_owned();
        tracing::warn!(pipeline = %entry.id, "{why}");
        tell.send_replace(StoreOwnership::Paused(why));
        // As after a trial, the outcome is not one of this service: the other node delivers the rest.
        entry.set_on_trial(true);
        entry.stop(LifecycleCommand::Kill { by: StopReason::System });
        entry.wait_until_stopped().await;
        entry.set_on_trial(false);
        entry.seen.send_modify(LifecycleState::leave_to_others);
    }

    /// Gives units away.
    fn release(&self, entry: &PipelineEntry, shares: &Shares) {
        for slot in shares.0.keys() {
            self.membership.release(Unit { pipeline: entry.id.clone(), slot: *slot });
        }
    }

    /// Removes the units whose run has ended here. With `all`, no node runs the pipeline until a user starts it.
    async fn give_up(&self, entry: &PipelineEntry, running: &Shares, all: bool) {
        let store = &self.control.shared().store;
        let unit = |slot: &u32| Unit { pipeline: entry.id.clone(), slot: *slot };
        loop {
            match store.unwant(&entry.id, all).await {
                // Others still read theirs.
                Ok(left) if left > 0 && !all => {
                    let _ = store.set_status(&entry.id, Status::Running).await;
                    break;
                }
                Ok(_) => break,
                Err(error) => {
                    tracing::warn!(pipeline = %entry.id, %error, "the store does not know yet that the pipeline has stopped");
                }
            }
            sleep(TICK).await;
            // Another node decides, which has the units now.
            if running.0.keys().any(|slot| self.membership.tenure(&unit(slot)).is_none()) {
                return;
            }
        }
        // Rows that are gone are not released, but the member forgets the units.
        self.release(entry, running);
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
