//! The bounds of a cluster: how long a planned move takes, when units are owned again, and when a stop holds.

use std::collections::{BTreeMap, BTreeSet};

use anabranch_cluster::NodeId;
use anabranch_plugin::state::{Slots, Unit};

use super::scenario::ClusterScenario;
use super::tables::PIPELINE;
use super::world::{LAST, RunPlace, State, partition};

/// Maximum time of a planned move, in milliseconds.
const MOVED: u64 = 2_000;
/// Maximum time until each unit is owned again after the last fault, in milliseconds.
const OWNED: u64 = 10_000;
/// Maximum time in milliseconds until no node runs a stopped pipeline, while there are faults.
const STOPPED: u64 = 15_000;

/// The moves of units between nodes.
#[derive(Debug, Default)]
pub(super) struct Moves {
    /// True if nothing goes wrong in this scenario: all moves are planned.
    pub(super) are_planned: bool,
    /// When the run of a slot began to be drained, and the node that has had the slot since.
    drained: BTreeMap<u32, (u64, usize)>,
    /// Slots that a node has run since the last fault, with the files that the store has.
    owned: BTreeSet<u32>,
    /// The longest planned move.
    pub(super) longest: u64,
}

impl State {
    /// Notes that a run is drained because its units move.
    pub(super) fn drains(&mut self, slots: Slots, node: usize) {
        let now = self.now;
        for slot in slots.iter() {
            self.moves.drained.entry(slot).or_insert((now, node));
        }
    }

    /// Notes that a node gives a unit away. If the node did not run it yet, this is another move.
    pub(super) fn gives_away(&mut self, id: NodeId, unit: &Unit) {
        let (now, Some(node)) = (self.now, self.ids.get(&id).copied()) else { return };
        if let Some(drained) = self.moves.drained.get_mut(&unit.slot).filter(|(_, by)| *by != node) {
            *drained = (now, node);
        }
    }

    /// Notes that a run of these slots begins to read and write.
    pub(super) fn resumes(&mut self, slots: Slots) {
        for slot in slots.iter() {
            let Some((drained, _)) = self.moves.drained.remove(&slot) else { continue };
            let took = self.now - drained;
            if !self.moves.are_planned || self.user.stopped().is_some_and(|stopped| stopped >= drained) {
                continue;
            }
            self.moves.longest = self.moves.longest.max(took);
            if took > MOVED {
                self.breaks(format!("a planned move of slot {slot} takes {took} ms"));
            }
        }
    }

    /// Forgets moves that a stop of the pipeline ends.
    pub(super) fn move_ends(&mut self) {
        self.moves.drained.clear();
    }

    /// Checks that no node runs a pipeline that was stopped some time ago, except one that was paused meanwhile.
    pub(super) fn check_stop(&mut self) {
        let Some(stopped) = self.user.stopped() else { return };
        let bound = if self.quiet.is_some() { OWNED } else { STOPPED };
        let since = stopped.max(self.quiet.unwrap_or(0));
        if self.now <= since + bound {
            return;
        }
        let missed = |node: usize| self.woken.get(&node).is_some_and(|woken| *woken + bound > self.now);
        if let Some((run, place)) = self.here.iter().find(|(_, place)| !missed(place.node)) {
            let what = format!(
                "run {run} is on node {}, {} ms after the pipeline was stopped",
                place.node,
                self.now - stopped
            );
            self.breaks(what);
        }
    }

    /// Notes which units are owned, and returns the first one that was not since the last fault.
    fn unowned(&mut self, scenario: &ClusterScenario) -> Option<u32> {
        let (clock, set) = (self.clock(), self.tables.set());
        for slot in 0..scenario.slots {
            let unit = Unit { pipeline: PIPELINE.into(), slot };
            let owner = self.tables.units.get(&unit).and_then(|row| row.owner);
            let node = owner.filter(|owner| self.tables.is_live(*owner, clock)).and_then(|owner| self.ids.get(&owner));
            // A late claim of an earlier run may have fenced this one, which shows when there is something to store.
            let is_its =
                |run: &RunPlace| Some(&run.node) == node && run.set == set && run.slots.iter().any(|it| it == slot);
            if self.here.values().any(is_its) {
                self.moves.owned.insert(slot);
            }
        }
        (0..scenario.slots).find(|slot| !self.moves.owned.contains(slot))
    }

    /// Checks that each unit is owned again within the bound, `since` the last fault or the start of the pipeline. Returns
    /// `true` if all are.
    pub(super) fn check_owned(&mut self, scenario: &ClusterScenario, since: u64) -> bool {
        let Some(slot) = self.unowned(scenario) else { return true };
        if self.now > since + OWNED {
            let (places, set, here) = (self.tables.places(), self.tables.set(), &self.here);
            let what = format!(
                "slot {slot} is not owned {} s after the last fault; units {places}; files {set}; runs {here:?}",
                OWNED / 1_000
            );
            self.breaks(what);
        }
        false
    }

    /// Returns `true` if a stopped pipeline has stayed stopped after the last fault.
    pub(super) fn has_stayed_stopped(&self, since: u64) -> bool {
        self.user.stopped().is_some_and(|stopped| self.now > stopped.max(since) + OWNED + STOPPED / 5)
    }

    /// Returns what is not delivered or not stored yet.
    pub(super) fn missing(&self, scenario: &ClusterScenario) -> Option<String> {
        let rows = scenario.rows + LAST;
        (0..scenario.partitions).map(partition).find_map(|partition| {
            let (last, stored) = (self.sink.prefix(&partition), self.tables.stored(&partition));
            let missing = last < rows || stored < rows;
            missing.then(|| format!("of {rows} rows of {}, {last} are delivered and {stored} stored", partition.0))
        })
    }
}
