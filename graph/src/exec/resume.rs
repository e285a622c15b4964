//! Where sources go on, when transactional destinations have marks too.
//!
//! The store says where, except that a source whose rows all go to one transactional destination goes on after the mark
//! of that destination: what it has is exactly the rows up to there. With several destinations the source goes on where
//! the store says, the slowest; a transactional one among them leaves out what it has, if the numbers of the rows that
//! come again mean the same rows as before.

use std::collections::BTreeMap;

use super::deliver::Known;
use crate::destination::Retry;
use crate::plan::stage::{StageId, StageKind, StagePlan};
use crate::source::Mark;
use crate::state::LaneId;
use crate::text::Str;

/// What was decided.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Resume {
    /// Marks that the store does not have yet: it is brought up to them before a source is opened.
    pub(super) moves: Vec<(LaneId, Mark)>,
    /// Marks of destinations that are left aside.
    pub(super) foreign: Vec<Foreign>,
}

/// A mark of another generation than the store's.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Foreign {
    /// The destination connector.
    pub(super) destination: Str,
    /// The lane.
    pub(super) lane: LaneId,
    /// The generation of the destination's mark.
    pub(super) theirs: u64,
    /// The generation of the store's.
    pub(super) ours: u64,
}

/// Compares what the store has with what the destinations have, by stage. O(sources × (stages + marks)).
pub(super) fn resume(plan: &StagePlan, stored: &BTreeMap<LaneId, Mark>, known: &BTreeMap<StageId, Known>) -> Resume {
    let mut resume = Resume::default();
    for (index, stage) in plan.stages.iter().enumerate() {
        let StageKind::Read(read) = &stage.kind else { continue };
        let reached = plan.reachable(StageId(index));
        let writes = reached.iter().filter_map(|at| match &plan.stages[at.0].kind {
            StageKind::Write(write) => Some((*at, write)),
            _ => None,
        });
        let writes: Vec<_> = writes.collect();
        for (at, write) in &writes {
            if write.destination.policy().retry != Retry::Transactional {
                continue;
            }
            let marks = known.get(at).into_iter().flatten().filter(|(lane, _)| lane.connector == read.connector);
            for (lane, theirs) in marks {
                let ours = stored.get(lane);
                if let Some(ours) = ours.filter(|ours| ours.generation != theirs.generation) {
                    let (destination, lane) = (write.connector.clone(), lane.clone());
                    let (theirs, ours) = (theirs.generation, ours.generation);
                    resume.foreign.push(Foreign { destination, lane, theirs, ours });
                    continue;
                }
                if writes.len() == 1 && ours.is_none_or(|ours| ours.seq < theirs.seq) {
                    resume.moves.push((lane.clone(), theirs.clone()));
                }
            }
        }
    }
    resume
}
