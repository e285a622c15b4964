//! The part of a transactional destination that outlives its writers.

use anabranch_record::mark::{LaneId, Mark};

/// The part of a transactional destination that outlives its writers.
#[derive(Default)]
pub struct Coordinator {
    /// Number of times that a writer took over.
    pub epoch: u64,
    /// Transactions that were not answered and have not ended, with the number of events until they are committed.
    pub open: Vec<(u64, Transaction)>,
}

/// A transaction.
#[derive(Debug)]
pub struct Transaction {
    /// The takeover of its writer.
    pub epoch: u64,
    /// Ids of the records.
    pub ids: Vec<u64>,
    /// Marks that are stored with the records.
    pub marks: Vec<(LaneId, Mark)>,
    /// Lanes whose marks are removed.
    pub forgotten: Vec<LaneId>,
}
