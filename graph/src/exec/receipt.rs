//! Marks confirmed by the transactional destinations of a run, to be stored with the positions.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anabranch_plugin::state::Receipt;
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
        self.lock().insert(stage, Destination { connector, known });
    }

    /// Notes the marks of a committed transaction.
    pub(super) fn note(&self, stage: StageId, marks: &[(LaneId, Mark)]) {
        if let Some(destination) = self.lock().get_mut(&stage) {
            destination.known.extend(marks.iter().cloned());
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
