//! Totals of a pipeline since the service started.

use std::collections::BTreeMap;
use std::time::Duration;

use anabranch_graph::exec::{LaneCount, Progress, UnfinishedSource, UnreadSource};
use anabranch_record::mark::LaneId;
use anabranch_record::text::Str;

/// Totals over all runs of a pipeline in this process. Each copy of a record counts: a record that goes to two
/// destinations is delivered twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Records read.
    pub read: u64,
    /// Number of read records that an earlier run had read and not delivered.
    pub read_again: u64,
    /// Copies delivered per destination, in the order of the plan.
    pub delivered: Vec<(Str, u64)>,
    /// Copies filtered.
    pub filtered: u64,
    /// Copies whose dead letter is durable.
    pub dead_lettered: u64,
    /// Dead letters that were evicted because of a limit of the queue.
    pub letters_dropped: u64,
    /// Sources that ended without reading any record.
    pub unread: Vec<UnreadSource>,
    /// Sources that ended and left input to a later run.
    pub left: Vec<UnfinishedSource>,
    /// Time from each start to the end that followed, with the waits before restarts after failures.
    pub took: Duration,
    /// Number of records read per lane since its beginning.
    pub heads: BTreeMap<LaneId, u64>,
}

impl Account {
    /// Adds the counters of one run.
    pub fn add(&mut self, run: &Progress) {
        let totals = run.totals();
        self.read += totals.read;
        run.lanes().iter().for_each(|lane| self.note_lane(lane));
        self.filtered += totals.filtered;
        self.dead_lettered += totals.dead_lettered;
        self.letters_dropped += totals.letters_evicted;
        for (destination, rows) in run.delivered() {
            match self.delivered.iter_mut().find(|(id, _)| *id == destination) {
                Some((_, sum)) => *sum += rows,
                None => self.delivered.push((destination, rows)),
            }
        }
        self.unread = run.unread();
        self.left = run.left();
    }

    fn note_lane(&mut self, lane: &LaneCount) {
        let head = self.heads.entry(lane.id.clone()).or_default();
        self.read_again += lane.read.min(head.saturating_sub(lane.before));
        *head = (*head).max(lane.before + lane.read);
    }

    /// Returns the number of copies delivered to all destinations.
    pub fn delivered_in_all(&self) -> u64 {
        self.delivered.iter().map(|(_, rows)| rows).sum()
    }
}

#[cfg(test)]
mod tests {
    use anabranch_record::mark::Partition;

    use super::*;

    #[test]
    fn a_record_that_is_read_again_is_counted_so() {
        let mut account = Account::default();
        let mut run = |before, read| {
            let id = LaneId { connector: "in".into(), partition: Partition::ONLY };
            let nothing = Duration::ZERO;
            account.note_lane(&LaneCount {
                id,
                before,
                read,
                settled: 0,
                persisted: 0,
                lag: nothing,
                unstored: nothing,
            });
            account.read_again
        };
        // An earlier process had delivered 1000.
        assert_eq!(run(1000, 500), 0);
        assert_eq!(run(1000, 500), 500);
        // A run that failed before it reached the same position.
        assert_eq!(run(1000, 200), 700);
        // 100 of them were delivered, and it reads further.
        assert_eq!(run(1100, 600), 1100);
        // Resumes from a position that the destination has stored, and delivers only new records.
        assert_eq!(run(1700, 5), 1100);
        assert_eq!(account.heads.into_values().collect::<Vec<_>>(), [1705]);
    }
}
