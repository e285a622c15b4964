//! The shares of the parts of a source that is split: which ranges of a plan a part reads.
//!
//! The part with the changes announces a plan, so that all parts have the same ranges, whenever they measure the tables. A part
//! keeps which of its ranges are read, over the snapshots that are announced.

use anabranch_record::mark::Partition;
use anabranch_record::text::Str;
use serde::{Deserialize, Serialize};

use super::{Plan, PlannedTable};
use crate::source::lanes::of_part;
use crate::source::lsn::Lsn;
use crate::source::position::PLAN;

/// The share of a part, and the snapshot under which it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super::super) struct Share {
    /// Number of the part, from 1; 0 is the one that announces the snapshot.
    pub(in super::super::super) part: u32,
    /// Number of parts that read.
    pub(in super::super::super) of: u32,
    /// Number of the snapshot. Later ones have higher numbers.
    pub(in super::super::super) snapshot: u32,
    /// The name under which the server has exported it.
    pub(in super::super::super) name: Str,
    /// A place of the log before it was taken.
    pub(in super::super::super) at: Lsn,
    /// True if it is not the snapshot with which the slot begins.
    pub(in super::super::super) is_resumed: bool,
    /// True if all of the share is delivered and stored.
    pub(in super::super::super) complete: bool,
}

impl Plan {
    /// Returns the plan of a part for the ranges of the announced one. `own` is what the part has stored.
    pub(in super::super::super) fn of_part(announced: &Plan, share: Share, own: &Plan) -> Plan {
        let tables = announced.tables.iter().map(|table| {
            let is_same = |known: &&PlannedTable| {
                let of = |table: &PlannedTable| (table.stored.oid, table.stored.file, table.first, table.ranges);
                of(known) == of(table)
            };
            match own.tables.iter().find(is_same) {
                Some(known) => PlannedTable {
                    done: known.done.clone(),
                    horizon: known.horizon,
                    since: known.since,
                    ..table.clone()
                },
                None => table.clone(),
            }
        });
        let attempt = own.attempt.max(Plan::after_others().attempt) + 1;
        Plan { attempt, is_resumed: share.is_resumed, horizon: 0, tables: tables.collect(), share: Some(share) }
    }

    /// Returns `true` if a range belongs to the share. Consecutive ranges of a large table have the same part, and tables with
    /// one range are spread over the parts. The part of a range is the same for all snapshots with the same number of parts.
    pub(super) fn has(&self, table: &PlannedTable, range: u32) -> bool {
        let Some(Share { part, of, .. }) = self.share else { return true };
        let (of, ranges) = (u64::from(of.max(1)), u64::from(table.ranges.max(1)));
        let number = (u64::from(range) * of / ranges + u64::from(table.stored.oid)) % of;
        number + 1 == u64::from(part)
    }

    /// Returns `true` if the ranges of a table that are read were read under an earlier snapshot than this one.
    pub(super) fn is_earlier(&self, table: &PlannedTable) -> bool {
        self.share.as_ref().is_none_or(|share| table.since != Some(share.snapshot))
    }

    /// Returns a lane as one of the part.
    pub(super) fn own(&self, lane: Partition) -> Partition {
        match &self.share {
            Some(share) => of_part(&lane, share.part),
            None => lane,
        }
    }

    /// Returns the lane of the plan.
    pub(in super::super::super) fn own_lane(&self) -> Partition {
        self.own(PLAN)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::tests::stored;
    use super::*;

    fn announced(parts: u32) -> Plan {
        // Of the second table, each part has several ranges; of the others, one part has all.
        Plan::default().next_for(vec![stored(1, 10, 1), stored(2, 20, 9000), stored(3, 30, 0)], parts)
    }

    fn share(part: u32, of: u32, snapshot: u32) -> Share {
        Share { part, of, snapshot, ..Share::default() }
    }

    #[test]
    fn each_range_belongs_to_one_part() {
        for parts in [2, 3, 4, 7, 64] {
            let announced = announced(parts);
            let whole = announced.items().len();
            let mut found = BTreeSet::new();
            for part in 1..=parts {
                let plan = Plan::of_part(&announced, share(part, parts, 1), &Plan::default());
                for item in plan.items() {
                    assert!(found.insert((item.table, item.range)), "{item:?} of part {part}");
                    assert!(item.lane.0.ends_with(&format!("@part-{part}")));
                }
                let ranges = plan.items().iter().filter(|item| item.table == 1).count();
                assert!((1..=8).contains(&ranges), "part {part} of {parts} has {ranges}");
            }
            assert_eq!(found.len(), whole);
        }
    }

    #[test]
    fn a_part_reads_what_is_left_and_what_was_written_since_the_first_snapshot() {
        let announced = announced(4);
        let mut plan = Plan::of_part(&announced, share(1, 4, 7), &Plan::default());
        plan.horizon = 700;
        let (all, left) = (plan.items(), plan.rows_left());
        let first = all.iter().find(|item| item.table == 1).unwrap().clone();
        plan.note(&first);
        assert!(plan.rows_left() < left);
        let before = Plan::decode(&plan.encode()).unwrap();
        // Another run of the part reads under the same snapshot.
        let same = Plan::of_part(&announced, share(1, 4, 7), &before);
        assert_eq!(same.items().len(), all.len() - 1);
        assert!(same.attempt > plan.attempt);
        // Under another one, rows may have moved to the range that is read.
        let mut other = Plan::of_part(&announced, share(1, 4, 8), &before);
        let again: Vec<_> = other.items().into_iter().filter(|item| item.range.is_none()).collect();
        assert_eq!(again.len(), 1);
        assert!(again[0].condition.contains("'700'"), "{again:?}");
        // A range that is read only now does not hide the first snapshot.
        other.horizon = 800;
        let second = other.items().into_iter().find(|item| item.table == 1 && item.range.is_some()).unwrap();
        other.note(&second);
        let third = Plan::of_part(&announced, share(1, 4, 9), &other);
        assert!(third.items().iter().any(|item| item.range.is_none() && item.condition.contains("'700'")));
        // The share is larger if the table was rewritten.
        let rewritten = announced.clone().next_for(vec![stored(2, 21, 9000)], 4);
        let plan = Plan::of_part(&rewritten, share(1, 4, 10), &third);
        assert!(plan.items().iter().all(|item| item.range.is_some()));
    }
}
