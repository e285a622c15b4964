//! The plan of a snapshot: the ranges of the table, which are its pages, and which of them are read.

use anabranch_record::Position;
use anabranch_record::mark::Partition;

use super::database::{Row, Xid};
use super::position::{decode, encode};

/// A plan.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    /// Number of the attempt, from 1.
    pub(super) attempt: u64,
    /// All transactions before this one are visible in the snapshot of the attempt.
    pub(super) horizon: Xid,
    /// The horizon of the attempt that read the first range; 0 = none is read.
    first: Xid,
    /// Which ranges are read.
    done: Vec<bool>,
}

/// What is read.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) lane: Partition,
    range: usize,
    /// Only rows that were written by this transaction or later, because the others are read; 0 = all.
    since: Xid,
}

impl Item {
    /// Returns `true` if a row belongs to it.
    pub(super) fn has(&self, row: &Row) -> bool {
        row.page as usize == self.range && row.writer >= self.since
    }
}

impl Plan {
    pub(super) fn encode(&self) -> Position {
        let done = self.done.iter().map(|done| u64::from(*done));
        encode(&[self.attempt, self.first].into_iter().chain(done).collect::<Vec<u64>>())
    }

    pub(super) fn decode(position: &Position) -> Plan {
        let numbers = decode(position);
        let [attempt, first, done @ ..] = &numbers[..] else { return Plan::default() };
        Plan { attempt: *attempt, horizon: 0, first: *first, done: done.iter().map(|done| *done > 0).collect() }
    }

    /// Returns the plan of the next attempt.
    pub(super) fn next(mut self, pages: u32, horizon: Xid) -> Plan {
        self.done.resize(pages as usize, false);
        Plan { attempt: self.attempt + 1, horizon, ..self }
    }

    /// Returns what is to be read in this attempt.
    pub(super) fn items(&self) -> Vec<Item> {
        let item = |(range, done): (usize, &bool)| match done {
            true => {
                let lane = Partition(format!("snapshot/{range}+{}", self.attempt).into());
                Item { lane, range, since: self.first }
            }
            false => Item { lane: Partition(format!("snapshot/{range}.{}", self.attempt).into()), range, since: 0 },
        };
        self.done.iter().enumerate().map(item).collect()
    }

    /// Notes that a range is read.
    pub(super) fn note(&mut self, item: &Item) {
        if let Some(done) = self.done.get_mut(item.range).filter(|done| !**done) {
            *done = true;
            self.first = if self.first == 0 { self.horizon } else { self.first };
        }
    }

    /// Notes the ranges whose lanes were read to their ends, before the plan was stored.
    pub(super) fn note_lanes(&mut self, is_complete: impl Fn(&Partition) -> bool) {
        for item in self.items() {
            if is_complete(&item.lane) {
                self.note(&item);
            }
        }
    }
}
