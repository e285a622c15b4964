//! The units of a node, by pipeline: for each pipeline of which the node has units, a task runs them in one run.
//!
//! If the units change, the run is drained and begins again with those that the node has then; if one is lost, it is
//! abandoned. A unit is given away only when no run of this node has it any more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anabranch_plugin::state::{Slots, Unit};
use anabranch_record::text::Str;
use async_trait::async_trait;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::TICK;
use crate::member::{Hold, Membership, Tenure};

/// How long a node keeps a pipeline that it cannot run before it releases it.
const UNABLE: Duration = Duration::from_secs(5);

/// How long a run waits for further units when the first ones come. Nobody runs them meanwhile: together with a tick until
/// the node sees them and two drains, this must stay below the 2 s of a planned move.
const GATHERED: Duration = Duration::from_millis(500);

/// The units that this node has of a pipeline, by slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shares(BTreeMap<u32, Hold>);

impl Shares {
    /// Returns the units that this node runs.
    fn running(&self) -> Shares {
        let running = self.0.iter().filter(|(_, hold)| hold.tenure == Tenure::Held);
        Shares(running.map(|(slot, hold)| (*slot, *hold)).collect())
    }

    /// Returns the slots that this node runs.
    pub fn held(&self) -> Slots {
        let of = self.0.values().map(|hold| hold.of).next().unwrap_or(1);
        self.running().0.keys().fold(Slots::none(of), |slots, slot| slots.with(*slot))
    }

    /// Returns `true` if this node has had all units since `before` that it had then.
    fn keeps(&self, before: &Shares) -> bool {
        before.0.iter().all(|(slot, hold)| self.0.get(slot).is_some_and(|now| now.number == hold.number))
    }

    /// Returns the units, those that are to be given away too.
    pub fn units(&self, pipeline: &Str) -> impl Iterator<Item = Unit> {
        self.0.keys().map(|slot| Unit { pipeline: pipeline.clone(), slot: *slot })
    }

    fn is_ending(&self) -> bool {
        self.0.values().any(|hold| hold.tenure == Tenure::Ending)
    }
}

/// Why a run is drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainReason {
    /// The units move between nodes.
    Move,
    /// The pipeline is being stopped.
    Stop,
}

/// How a run ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// It did not: the pipeline was changed and runs again.
    GoesOn,
    /// This node stopped it: another one may run its units.
    Released,
    /// Its sources have no more records. The other units may have some.
    Finished,
    /// It failed for good, or a user stopped it: no node is to run the pipeline.
    Over,
}

/// The runs of one pipeline on this node, of which there is at most one at a time.
#[async_trait]
pub trait UnitRuns: Send + Sync {
    /// Waits until there is no run. Returns at once if there is none.
    async fn ended(&self);

    /// Returns `true` if the node can run these units now. If not, it is asked again later, unless it has released them.
    async fn may_begin(&self, shares: &Shares) -> bool;

    /// Begins a run of these slots. Returns `false` if this node cannot run the pipeline.
    fn begin(&self, slots: Slots) -> bool;

    /// Drains the run: it delivers what it has read, stores the positions, and ends.
    fn drain(&self, reason: DrainReason);

    /// Ends the run without draining it, and waits for its end: this node has lost one of its units. From now on, the run
    /// stores nothing.
    async fn abandon(&self);

    /// Notes that the run has ended because the units changed.
    fn put_down(&self);

    /// Returns how a run ended that was neither drained nor abandoned.
    async fn end(&self) -> RunEnd;

    /// Removes the units of this node, whose run has ended, from the store. With `all`, the other nodes drain theirs. Returns
    /// `false` if the store does not answer.
    async fn unwant(&self, all: bool) -> bool;
}

/// A pipeline of which this node has units.
struct Place {
    shares: watch::Sender<Shares>,
    /// Numbers of the holds that its task knows.
    known: BTreeSet<u64>,
}

/// Begins tasks, and tells them which units this node has. `begin` starts a task that calls [`run_units`]; it returns `false` if
/// the pipeline is not known yet. It is not called before `ready` has a value, and again whenever that changes. Never
/// returns.
pub async fn follow_units<R>(
    membership: &Membership,
    mut ready: watch::Receiver<Option<R>>,
    mut begin: impl FnMut(Str, watch::Receiver<Shares>) -> bool,
) {
    let mut standing = membership.standing();
    let mut places: BTreeMap<Str, Place> = BTreeMap::new();
    loop {
        let now = standing.borrow_and_update().clone();
        let is_ready = ready.borrow_and_update().is_some();
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
                left.into_iter().for_each(|unit| membership.release(unit));
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
        for (pipeline, shares) in shares.into_iter().filter(|_| is_ready) {
            if places.contains_key(&pipeline) {
                continue;
            }
            let known = shares.0.values().map(|hold| hold.number).collect();
            let (tell, told) = watch::channel(shares);
            if begin(pipeline.clone(), told) {
                places.insert(pipeline, Place { shares: tell, known });
            }
        }
        // The senders live as long as this loop.
        tokio::select! {
            _ = standing.changed() => {}
            _ = ready.changed() => {}
        }
    }
}

/// Runs the units of a pipeline as long as this node has some.
pub async fn run_units(
    pipeline: &Str,
    runs: &dyn UnitRuns,
    membership: &Membership,
    mut shares: watch::Receiver<Shares>,
) {
    let keeper = Keeper { pipeline, runs, membership };
    loop {
        // A run of earlier units ends first.
        runs.ended().await;
        let now = shares.borrow_and_update().clone();
        keeper.give_away(&now, &Shares::default());
        if now.held().is_empty() {
            if now.0.is_empty() || shares.changed().await.is_err() {
                return;
            }
            continue;
        }
        if !runs.may_begin(&now).await {
            // Units may be lost or wanted meanwhile.
            if timeout(TICK, shares.changed()).await.is_ok_and(|changed| changed.is_err()) {
                return;
            }
            continue;
        }
        if keeper.run(&now, &mut shares).await == Kept::Over {
            return;
        }
    }
}

/// How the run of some units ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    /// The units changed: what this node still has runs again.
    Again,
    /// The pipeline has ended by itself, or this node does not run it.
    Over,
}

struct Keeper<'a> {
    pipeline: &'a Str,
    runs: &'a dyn UnitRuns,
    membership: &'a Membership,
}

impl Keeper<'_> {
    fn unit(&self, slot: u32) -> Unit {
        Unit { pipeline: self.pipeline.clone(), slot }
    }

    /// Gives away what other nodes want and no run of this node has: `running` are the units of its run.
    fn give_away(&self, now: &Shares, running: &Shares) {
        for (slot, hold) in now.0.iter().filter(|(slot, _)| !running.0.contains_key(slot)) {
            match hold.tenure {
                Tenure::Held => {}
                Tenure::Wanted => self.membership.release(self.unit(*slot)),
                Tenure::Ending => self.membership.end(self.unit(*slot)),
            }
        }
    }

    /// Runs the units that this node has, until they change or the pipeline ends.
    async fn run(&self, now: &Shares, shares: &mut watch::Receiver<Shares>) -> Kept {
        let (slots, running) = (now.held(), now.running());
        if !self.runs.begin(slots) {
            // Not at once: this node may be the next to take it.
            sleep(UNABLE).await;
            self.release(now);
            return Kept::Over;
        }
        if slots.of() > 1 {
            let has = slots.iter().map(|slot| slot.to_string()).collect::<Vec<_>>().join(", ");
            tracing::info!(pipeline = %self.pipeline, "this node runs the slots {has} of {}", slots.of());
        }
        loop {
            tokio::select! {
                biased;
                changed = shares.changed() => {
                    let mut now = match changed {
                        Ok(()) => shares.borrow_and_update().clone(),
                        Err(_) => Shares::default(),
                    };
                    // Another node may ask for a unit before this one runs it.
                    self.give_away(&now, &running);
                    if now.keeps(&running) && now.held().contains(slots) {
                        if now.held() == slots {
                            continue;
                        }
                        // More units: others may follow.
                        let _ = timeout(GATHERED, shares.wait_for(|now| !now.held().contains(slots))).await;
                        now = shares.borrow_and_update().clone();
                    }
                    self.end(&now, &running, shares).await;
                    self.runs.put_down();
                    return Kept::Again;
                }
                () = self.runs.ended() => {}
            }
            match self.runs.end().await {
                RunEnd::GoesOn => continue,
                RunEnd::Released => self.release(&shares.borrow().clone()),
                RunEnd::Finished => self.give_up(&running, false).await,
                RunEnd::Over => self.give_up(&running, true).await,
            }
            return Kept::Over;
        }
    }

    /// Ends the run whose units have changed: drains it, unless this node has lost one of them.
    async fn end(&self, now: &Shares, running: &Shares, shares: &mut watch::Receiver<Shares>) {
        if now.keeps(running) {
            self.runs.drain(if now.is_ending() { DrainReason::Stop } else { DrainReason::Move });
            let lost = async {
                // An error means that the loop of the units has ended.
                let _ = shares.wait_for(|now| !now.keeps(running)).await;
            };
            tokio::select! {
                () = self.runs.ended() => return,
                () = lost => {}
            }
        }
        self.runs.abandon().await;
    }

    /// Gives units away.
    fn release(&self, shares: &Shares) {
        shares.units(self.pipeline).for_each(|unit| self.membership.release(unit));
    }

    /// Removes the units whose run has ended here. With `all`, no node runs the pipeline until a user starts it.
    async fn give_up(&self, running: &Shares, all: bool) {
        while !self.runs.unwant(all).await {
            sleep(TICK).await;
            // Another node decides, which has the units now.
            if running.0.keys().any(|slot| self.membership.tenure(&self.unit(*slot)).is_none()) {
                return;
            }
        }
        // Rows that are gone are not released, but the member forgets the units.
        self.release(running);
    }
}

#[cfg(test)]
mod tests;
