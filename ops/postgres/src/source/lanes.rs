//! The names of lanes.
//!
//! The lanes of a source that is split belong to parts: part 0 has the changes, the others have ranges of the snapshot. All
//! lanes of a part have one slot ([`Slots::PART`]), so that one run reads them.

use anabranch_plugin::state::Slots;
use anabranch_record::mark::Partition;

use super::backfill::TableBackfill;
use super::position::{BACKFILL, CHANGES, COLUMNS, PLAN};

/// The part that has the changes.
pub(super) const FIRST: u32 = 0;

/// The names of the lanes beside the changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lanes {
    /// One run reads everything.
    Whole,
    /// The lanes have the slot of the changes.
    Split,
}

impl Lanes {
    fn named(self, lane: Partition) -> Partition {
        match self {
            Lanes::Whole => lane,
            Lanes::Split => of_part(&lane, FIRST),
        }
    }

    /// Returns the lane of the tables whose rows are read beside the changes.
    pub(super) fn backfill(self) -> Partition {
        self.named(BACKFILL)
    }

    /// Returns the lane of the rows of such a table.
    pub(super) fn rows(self, table: &TableBackfill) -> Partition {
        self.named(Partition(format!("backfill/{}.{}", table.title, table.attempt).into()))
    }

    /// Returns the lane of the accepted columns.
    pub(super) fn columns(self) -> Partition {
        self.named(COLUMNS)
    }

    /// Returns the lane of the plan of the snapshot.
    pub(super) fn plan(self) -> Partition {
        self.named(PLAN)
    }

    /// Returns the lanes that have a meaning beyond one snapshot or backfill.
    pub(super) fn lasting(self) -> [Partition; 4] {
        [CHANGES, self.plan(), self.backfill(), self.columns()]
    }
}

/// Returns the lane of a part.
pub(super) fn of_part(lane: &Partition, part: u32) -> Partition {
    Partition(format!("{}{}{part}", lane.0, Slots::PART).into())
}

/// Returns the part of a lane; `None` for the lanes of a source that is not split.
pub(super) fn part_of(lane: &Partition) -> Option<u32> {
    lane.0.rsplit_once(Slots::PART).and_then(|(_, part)| part.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lanes_beside_the_changes_have_their_slot() {
        for of in 1..=Slots::MOST {
            let slots = Slots::none(of);
            for lane in Lanes::Split.lasting() {
                assert_eq!(slots.slot_of(&lane), slots.slot_of(&CHANGES), "{lane:?} of {of}");
            }
        }
        assert_eq!(Lanes::Whole.lasting(), [CHANGES, PLAN, BACKFILL, COLUMNS]);
        assert_eq!(part_of(&of_part(&PLAN, 7)), Some(7));
        assert_eq!([part_of(&PLAN), part_of(&CHANGES)], [None; 2]);
    }
}
