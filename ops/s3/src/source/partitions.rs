//! Reads the partitions of a run in turns.

use anabranch_plugin::source::{Backlog, Read, Reader, Room};
use anabranch_record::fault::Fault;
use anabranch_record::mark::Partition;
use async_trait::async_trait;
use futures::FutureExt;
use futures::future::select_all;

use super::reader::Objects;
use super::sweep::Ahead;

/// Reader of the partitions that a run has; possibly none.
pub(super) struct PartitionsInTurn {
    partitions: Vec<ReadPartition>,
    /// The partition that is asked first.
    turn: usize,
    /// True if the reader of no partition has said that it is caught up.
    said: bool,
}

struct ReadPartition {
    objects: Objects,
    caught_up: bool,
}

impl PartitionsInTurn {
    pub(super) fn new(partitions: impl IntoIterator<Item = Objects>) -> Self {
        let partitions = partitions.into_iter().map(|objects| ReadPartition { objects, caught_up: false }).collect();
        PartitionsInTurn { partitions, turn: 0, said: false }
    }

    /// Returns the next result of any partition. The partition that follows the last one comes first, so that a partition which
    /// always has records does not delay the others.
    async fn next(&mut self, room: Room) -> Result<(Read, usize), Fault> {
        let (turn, count) = (self.turn, self.partitions.len());
        let (last, first) = self.partitions.split_at_mut(turn);
        let reads = first.iter_mut().chain(last).map(|partition| partition.objects.read(room).boxed());
        let (read, after, _) = select_all(reads).await;
        let at = (turn + after) % count;
        self.turn = (at + 1) % count;
        Ok((read?, at))
    }
}

#[async_trait]
impl Reader for PartitionsInTurn {
    async fn read(&mut self, room: Room) -> Result<Read, Fault> {
        if self.partitions.is_empty() {
            if !std::mem::replace(&mut self.said, true) {
                return Ok(Read::CaughtUp);
            }
            return std::future::pending().await;
        }
        loop {
            let (read, at) = self.next(room).await?;
            self.partitions[at].caught_up = matches!(&read, Read::CaughtUp);
            // The source is caught up when all partitions are.
            if !matches!(&read, Read::CaughtUp) || self.partitions.iter().all(|partition| partition.caught_up) {
                return Ok(read);
            }
        }
    }

    fn left(&self) -> Option<String> {
        let mut all = Ahead::default();
        self.partitions.iter().for_each(|partition| all.add(partition.objects.ahead()));
        all.words()
    }

    async fn backlog(&mut self) -> Option<Backlog> {
        let mut all = Backlog { objects: Some(0), bytes: Some(0), ..Backlog::default() };
        for partition in &self.partitions {
            let Backlog { objects, bytes, since, ahead, .. } = partition.objects.backlog();
            let sum = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_add(b?));
            all.objects = sum(all.objects, objects);
            all.bytes = sum(all.bytes, bytes);
            all.since = [all.since, since].into_iter().flatten().min();
            all.ahead = all.ahead.saturating_add(ahead);
            let name = partition.objects.partition();
            // An object is a record.
            all.partitions.extend(objects.filter(|_| *name != Partition::ONLY).map(|objects| (name.clone(), objects)));
        }
        Some(all)
    }
}
