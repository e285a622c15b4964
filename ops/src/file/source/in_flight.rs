//! The positions of each partition that were read and are not acknowledged yet.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anabranch_plugin::source::{Acker, Release};
use anabranch_record::Position;
use anabranch_record::fault::Fault;
use anabranch_record::mark::Partition;
use async_trait::async_trait;

/// Counts positions: the reader adds those that it returns, and the acknowledger those that are stored. Locked once per batch.
#[derive(Clone, Debug, Default)]
pub(super) struct InFlight(Arc<Mutex<BTreeMap<Partition, Counts>>>);

/// The positions of one partition.
#[derive(Debug, Default)]
struct Counts {
    read: u64,
    acknowledged: u64,
    /// The position that was stored last, in this run or an earlier one.
    stored: Option<Position>,
}

impl InFlight {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Partition, Counts>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the stored position of an earlier run.
    pub(super) fn resume(&self, partition: &Partition, position: &Position) {
        self.lock().entry(partition.clone()).or_default().stored = Some(position.clone());
    }

    /// Notes that the reader returns this many positions of a partition.
    pub(super) fn add(&self, partition: &Partition, positions: usize) {
        let mut partitions = self.lock();
        match partitions.get_mut(partition) {
            Some(counts) => counts.read += positions as u64,
            None => {
                let counts = Counts { read: positions as u64, ..Counts::default() };
                partitions.insert(partition.clone(), counts);
            }
        }
    }

    /// Returns how many positions of a partition were read, if some of them are not acknowledged.
    pub(super) fn unacknowledged(&self, partition: &Partition) -> Option<u64> {
        self.lock().get(partition).filter(|counts| counts.acknowledged < counts.read).map(|counts| counts.read)
    }

    /// Returns `true` if the first `count` positions of a partition are acknowledged.
    pub(super) fn has_acknowledged(&self, partition: &Partition, count: u64) -> bool {
        self.lock().get(partition).is_none_or(|counts| counts.acknowledged >= count)
    }

    /// Returns the stored position of a partition.
    pub(super) fn stored(&self, partition: &Partition) -> Option<Position> {
        self.lock().get(partition)?.stored.clone()
    }

    fn acknowledge(&self, partition: &Partition, positions: &[Position]) {
        let Some(last) = positions.last() else { return };
        // A position of its own, because those of records share larger memory.
        let last = Position::copy_from(&last.0);
        if let Some(counts) = self.lock().get_mut(partition) {
            counts.acknowledged += positions.len() as u64;
            counts.stored = Some(last);
        }
    }
}

/// Notes what is acknowledged. The records stay in their files.
pub(super) struct FileAcker(pub(super) InFlight);

#[async_trait]
impl Acker for FileAcker {
    async fn ack(&mut self, partition: &Partition, positions: &[Position]) -> Result<(), Fault> {
        self.0.acknowledge(partition, positions);
        Ok(())
    }

    async fn released(&mut self, partition: &Partition, _: Release) -> Result<(), Fault> {
        let mut partitions = self.0.lock();
        if partitions.get(partition).is_some_and(|counts| counts.acknowledged >= counts.read) {
            partitions.remove(partition);
        }
        Ok(())
    }
}
