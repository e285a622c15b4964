//! Totals of a pipeline since the service started.

use std::time::Duration;

use anabranch_graph::exec::{Left, Progress, Unread};
use anabranch_graph::text::Str;

/// Totals over all runs of a pipeline in this process. Copies of a record count one by one: a record that goes to two
/// destinations is delivered twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Records read.
    pub read: u64,
    /// Copies delivered per destination, in the order of the plan.
    pub delivered: Vec<(Str, u64)>,
    /// Copies filtered.
    pub filtered: u64,
    /// Copies whose dead letter is durable.
    pub dead_lettered: u64,
    /// Dead letters that went because of a bound of the queue.
    pub letters_dropped: u64,
    /// Sources of which nothing was read although they came to their end.
    pub unread: Vec<Unread>,
    /// Sources that left something to a later run when they came to their end.
    pub left: Vec<Left>,
    /// Duration of the run.
    pub took: Duration,
}

impl Account {
    /// With the counters of one more run.
    pub fn add(&mut self, run: &Progress) {
        let totals = run.totals();
        self.read += totals.read;
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
        self.took += run.began().elapsed().unwrap_or_default();
    }

    /// Copies delivered to all destinations.
    pub fn delivered_in_all(&self) -> u64 {
        self.delivered.iter().map(|(_, rows)| rows).sum()
    }
}
