//! Marks confirmed by the transactional destinations of a run, to be stored with the positions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anabranch_plugin::state::{Receipt, Slots};
use anabranch_record::mark::{LaneId, Mark};
use anabranch_record::text::Str;

use super::deliver::WriterMarks;
use crate::plan::stage::StageId;

/// Marks of the transactional destinations, shared by their writers and the commit loop.
#[derive(Default)]
pub(super) struct Confirmed(Mutex<BTreeMap<StageId, Destination>>);

struct Destination {
    connector: Str,
    known: WriterMarks,
    /// Finished lanes whose marks the destination is asked to remove.
    asked: BTreeSet<LaneId>,
    /// Lanes that the destination may remove, because the stored receipts require nothing of them.
    waived: BTreeSet<LaneId>,
    /// False if the destination keeps the marks of finished lanes.
    forgets: bool,
}

/// Returns the receipt for a stored mark: the lowest mark at the destination for which nothing before the stored
/// position is missing there.
pub(super) fn needed(known: Option<&Mark>, stored: &Mark) -> Mark {
    match known {
        Some(known) if known.generation == stored.generation && known.seq > stored.seq => stored.clone(),
        Some(known) if known.generation <= stored.generation => known.clone(),
        // Marks of a later generation are replaced by those of this one.
        _ => Mark::beginning(stored.generation),
    }
}

impl Confirmed {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<StageId, Destination>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a destination with the marks that it has when it is opened.
    pub(super) fn add(&self, stage: StageId, connector: Str, known: WriterMarks) {
        let destination =
            Destination { connector, known, asked: BTreeSet::new(), waived: BTreeSet::new(), forgets: true };
        self.lock().insert(stage, destination);
    }

    /// Notes the marks of a committed transaction.
    pub(super) fn note(&self, stage: StageId, marks: &[(LaneId, Mark)]) {
        if let Some(destination) = self.lock().get_mut(&stage) {
            destination.known.extend(marks.iter().cloned());
        }
    }

    /// Returns `true` if a destination has a mark of a lane and would remove it.
    pub(super) fn removes(&self, lane: &LaneId) -> bool {
        self.lock().values().any(|destination| destination.forgets && destination.known.contains_key(lane))
    }

    /// Returns the receipts to store before [`Confirmed::ask_to_forget`]. They require nothing of the destinations, so
    /// that a mark that was removed before a crash is not taken for a lost one.
    pub(super) fn waive(&self, lanes: &[LaneId]) -> Vec<Receipt> {
        let mut receipts = Vec::new();
        for destination in self.lock().values_mut().filter(|destination| destination.forgets) {
            for lane in lanes {
                if let Some(known) = destination.known.get(lane)
                    && destination.waived.insert(lane.clone())
                {
                    let mark = Mark::beginning(known.generation);
                    receipts.push(Receipt { destination: destination.connector.clone(), lane: lane.clone(), mark });
                }
            }
        }
        receipts
    }

    /// Asks the destinations to remove the marks of finished lanes whose receipts are waived and stored.
    pub(super) fn ask_to_forget(&self, lanes: &[LaneId]) {
        for destination in self.lock().values_mut() {
            let waived = lanes.iter().filter(|lane| destination.waived.contains(*lane));
            destination.asked.extend(waived.cloned());
        }
    }

    /// Removes and returns the lanes of some slots that a destination is asked to remove.
    pub(super) fn asked_to_forget(&self, stage: StageId, slots: Slots) -> Vec<LaneId> {
        let mut destinations = self.lock();
        let Some(destination) = destinations.get_mut(&stage) else { return Vec::new() };
        let asked = std::mem::take(&mut destination.asked);
        let (its, others): (Vec<_>, Vec<_>) = asked.into_iter().partition(|lane| slots.has(&lane.partition));
        destination.asked.extend(others);
        its
    }

    /// Returns `true` if a destination has a mark of a lane.
    pub(super) fn knows(&self, lane: &LaneId) -> bool {
        self.lock().values().any(|destination| destination.known.contains_key(lane))
    }

    /// Returns the highest generation of the marks of a lane; 0 without marks.
    pub(super) fn generation(&self, lane: &LaneId) -> u64 {
        let destinations = self.lock();
        let marks = destinations.values().filter_map(|destination| destination.known.get(lane));
        marks.map(|mark| mark.generation).max().unwrap_or(0)
    }

    /// Notes that a destination has removed the marks of lanes, or that it keeps them.
    pub(super) fn forgot(&self, stage: StageId, lanes: &[LaneId], removed: bool) {
        if let Some(destination) = self.lock().get_mut(&stage) {
            destination.forgets &= removed;
            if removed {
                for lane in lanes {
                    destination.known.remove(lane);
                    destination.waived.remove(lane);
                }
            }
        }
    }

    /// Returns the receipts for marks that are about to be stored. O(destinations × marks).
    pub(super) fn receipts(&self, moves: &[(LaneId, Mark)]) -> Vec<Receipt> {
        let destinations = self.lock();
        let of = |destination: &Destination| {
            let receipt = |(lane, mark): &(LaneId, Mark)| {
                let known = destination.known.get(lane)?;
                let (destination, lane) = (destination.connector.clone(), lane.clone());
                Some(Receipt { destination, lane, mark: needed(Some(known), mark) })
            };
            moves.iter().filter_map(receipt).collect::<Vec<_>>()
        };
        destinations.values().flat_map(of).collect()
    }
}
