//! Reading: changes of the membership, and records of the partitions that this process owns.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use anabranch_plugin::source::{Backlog, Read, Reader, Room, Start};
use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{Mark, Partition};
use async_trait::async_trait;
use tokio::time::Instant;

use super::batches::{BatchesEnd, Walk};
use super::commit::Offsets;
use super::ends::{Ends, STALE};
use super::fetch::{Batches, Break, Fetched, Fetcher};
use super::prepare::Preparing;
use super::record::RecordMaker;
use super::start::Starter;
use crate::codes;
use crate::group::{Change, Membership, Tenure, TopicPartition};

/// Reads the partitions of a member.
pub(super) struct PartitionReader {
    starts: Arc<dyn Starter>,
    membership: Arc<dyn Membership>,
    offsets: Arc<Offsets>,
    fetches: Box<dyn Fetcher>,
    /// Partitions that the engine has resumed.
    owned: BTreeMap<TopicPartition, Owned>,
    /// Partitions that are assigned, and that the engine does not know yet.
    preparing: Preparing,
    /// Partitions that are assigned, and that the engine has not resumed.
    waiting: BTreeMap<TopicPartition, Tenure>,
    /// Where partitions start whose log did not continue what was read.
    restarts: BTreeMap<TopicPartition, i64>,
    /// Logs that do not continue what was read, and that the reader has not handled yet.
    broken: VecDeque<(TopicPartition, u64, Break)>,
    /// Events for the engine.
    events: VecDeque<Read>,
    /// Records that are decoded, of one partition.
    decoded: Option<Decoded>,
    /// True if the last rebalance is complete.
    settled: bool,
    /// True if the group has distributed its partitions since this process is a member.
    joined: bool,
    /// True if the engine knows that nothing is left.
    caught_up: bool,
    missed: u64,
    /// Ends of logs of which nothing is fetched now.
    ends: Ends,
}

/// A partition that is read.
pub(super) struct Owned {
    tenure: Tenure,
    number: u64,
    maker: RecordMaker,
    /// The offset of the next record.
    next: i64,
    /// The offset after the last record that can be read now.
    end: i64,
    /// Time of the last answer of a fetch.
    heard: Instant,
}

/// Fetched batches of a partition, of which one is decoded.
pub(super) struct Decoded {
    at: TopicPartition,
    walk: Walk,
    /// The records of the batch that are not delivered, with their offsets.
    records: VecDeque<(i64, Record)>,
}

/// Returns the engine's name of a partition.
pub(super) fn named(at: &TopicPartition) -> Partition {
    Partition(at.to_string().into())
}

impl PartitionReader {
    /// Creates a reader that owns no partition.
    pub(super) fn new(
        starts: Arc<dyn Starter>,
        membership: Arc<dyn Membership>,
        offsets: Arc<Offsets>,
        fetches: Box<dyn Fetcher>,
    ) -> PartitionReader {
        PartitionReader {
            starts,
            membership,
            offsets,
            fetches,
            owned: BTreeMap::new(),
            preparing: Preparing::new(),
            waiting: BTreeMap::new(),
            restarts: BTreeMap::new(),
            broken: VecDeque::new(),
            events: VecDeque::new(),
            decoded: None,
            settled: false,
            joined: false,
            caught_up: false,
            missed: 0,
            ends: Ends::new(),
        }
    }

    fn note(&mut self, change: Change) {
        match change {
            Change::Settled => (self.settled, self.joined) = (true, true),
            Change::Assigned(partitions) => {
                self.settled = false;
                self.caught_up = false;
                self.preparing.begin(&self.starts, &self.membership, partitions);
            }
            Change::Revoked { partitions, within } => {
                self.settled = false;
                for at in partitions {
                    if self.preparing.stop(&at) {
                        // The engine does not know of it. It may still deliver what it read before the assignment; then it
                        // lets go itself.
                        if !self.offsets.has(&named(&at)) {
                            self.membership.let_go(&at);
                        }
                        continue;
                    }
                    self.drop_partition(&at);
                    self.events.push_back(Read::Revoked { partition: named(&at), within });
                }
            }
            Change::Lost(partitions) => {
                self.settled = false;
                for at in partitions {
                    if self.preparing.stop(&at) {
                        continue;
                    }
                    self.offsets.lose(&named(&at));
                    self.drop_partition(&at);
                    self.events.push_back(Read::Lost(named(&at)));
                }
            }
        }
    }

    /// Notes that a partition is prepared.
    fn announce(&mut self, (at, tenure): (TopicPartition, Tenure)) {
        self.events.push_back(Read::Assigned(named(&at)));
        self.waiting.insert(at, tenure);
    }

    /// Stops reading a partition.
    fn drop_partition(&mut self, at: &TopicPartition) {
        self.waiting.remove(at);
        self.preparing.stop(at);
        self.restarts.remove(at);
        self.fetches.end(at);
        self.ends.forget(at);
        let partition = named(at);
        self.events.retain(|event| !matches!(event, Read::Progress(of, _) if *of == partition));
        if self.decoded.as_ref().is_some_and(|decoded| decoded.at == *at) {
            self.decoded = None;
        }
        self.owned.remove(at);
    }

    /// Decodes batches.
    fn decode(&mut self, batches: Batches) -> Result<(), Fault> {
        let Some(owned) = self.owned.get_mut(&batches.at).filter(|owned| owned.number == batches.number) else {
            return Ok(());
        };
        // A replica may know less of the log than the leader.
        owned.end = owned.end.max(batches.end);
        owned.heard = Instant::now();
        if batches.bytes.is_empty() {
            return Ok(());
        }
        let walk = Walk::new(batches.bytes, batches.from, batches.aborted);
        self.decoded = Some(Decoded { at: batches.at, walk, records: VecDeque::new() });
        Ok(())
    }

    /// Returns the next rows of the fetched batches, or the progress past records that are not delivered.
    fn rows(&mut self, room: Room) -> Result<Option<Read>, Fault> {
        let Some(decoded) = self.decoded.as_mut() else { return Ok(None) };
        let Some(owned) = self.owned.get_mut(&decoded.at) else { return Ok(None) };
        while decoded.records.is_empty() {
            owned.maker.expect(64);
            let stepped = decoded.walk.step(|fetched| {
                decoded.records.push_back((fetched.offset, owned.maker.make(fetched)));
            });
            let has_more = stepped.map_err(|(offset, error)| {
                let text = format!("{}: the batch at offset {offset} cannot be decoded: {error}", decoded.at);
                Fault::fatal(codes::DATA_DAMAGED, text)
            })?;
            if !has_more {
                let BatchesEnd { next, epoch } = decoded.walk.end();
                if next > owned.next {
                    // Behind the last record are markers of transactions, or records that compaction removed.
                    let progress = Read::Progress(named(&decoded.at), owned.maker.progress(next, epoch));
                    self.events.push_front(progress);
                }
                owned.next = next;
                self.decoded = None;
                return Ok(self.events.pop_front());
            }
        }
        let (mut records, mut bytes) = (Vec::new(), 0);
        while let Some((offset, record)) = decoded.records.pop_front() {
            let weight = record.weight();
            if !records.is_empty() && (records.len() >= room.rows || bytes + weight > room.bytes) {
                decoded.records.push_front((offset, record));
                break;
            }
            bytes += weight;
            owned.next = offset + 1;
            records.push(record);
        }
        Ok(Some(Read::Rows { partition: named(&decoded.at), records }))
    }

    /// Waits for a change of the partitions or, with `records`, for records, and takes it. Cancel-safe.
    async fn wait(&mut self, records: bool) -> Result<(), Fault> {
        tokio::select! {
            biased;
            change = self.membership.change() => {
                let change = change?;
                self.note(change);
            }
            prepared = self.preparing.next() => self.announce(prepared),
            fetched = self.fetches.next(), if records => match fetched {
                Fetched::Batches(batches) => self.decode(batches)?,
                // Handled by the next call, because this one may be cancelled.
                Fetched::Broken(at, number, broken) => self.broken.push_back((at, number, broken)),
                Fetched::Failed(fault) => return Err(fault),
            },
        }
        Ok(())
    }

    /// Returns `true` if everything that exists was read.
    fn is_at_end(&self) -> bool {
        self.settled
            && self.preparing.is_idle()
            && self.waiting.is_empty()
            && self.decoded.is_none()
            && self.broken.is_empty()
            && self.events.is_empty()
            && self.owned.values().all(|owned| owned.next >= owned.end)
    }

    /// Handles a log that does not continue what was read.
    async fn restart(&mut self, at: &TopicPartition, number: u64, broken: Break) -> Result<(), Fault> {
        let Some(owned) = self.owned.get(at).filter(|owned| owned.number == number) else { return Ok(()) };
        let (wanted, tenure) = (owned.next, owned.tenure);
        let (earliest, latest) = self.starts.bounds(at).await?;
        let (there, why) = match broken {
            Break::Recreated => (earliest, "the topic was deleted and created again".to_owned()),
            Break::Replaced(offset) => {
                let why = format!(
                    "a replica that lacked the records from offset {offset} on became leader (unclean leader election)"
                );
                (offset.clamp(earliest, wanted), why)
            }
            Break::OutOfRange if wanted < earliest => {
                (earliest, format!("the records before offset {earliest} were removed"))
            }
            Break::OutOfRange if wanted > latest => {
                (latest, format!("the log ends at offset {latest}: it was truncated"))
            }
            // The leader does not know the epoch of the last record.
            Break::OutOfRange => (wanted, "the log before it is not the one that was read".to_owned()),
        };
        self.missed += self.starts.gap(at, wanted, there, &why)?;
        // A new generation begins: the engine treats the partition as one that is assigned again.
        self.offsets.lose(&named(at));
        self.drop_partition(at);
        self.events.push_back(Read::Lost(named(at)));
        self.events.push_back(Read::Assigned(named(at)));
        self.restarts.insert(at.clone(), there);
        self.waiting.insert(at.clone(), tenure);
        Ok(())
    }
}

#[async_trait]
impl Reader for PartitionReader {
    async fn read(&mut self, room: Room) -> Result<Read, Fault> {
        loop {
            if let Some(event) = self.events.pop_front() {
                if matches!(event, Read::Progress(..)) {
                    self.caught_up = false;
                }
                return Ok(event);
            }
            if let Some(read) = self.rows(room)? {
                self.caught_up = false;
                return Ok(read);
            }
            if let Some((at, number, broken)) = self.broken.front().cloned() {
                self.restart(&at, number, broken).await?;
                self.broken.pop_front();
                continue;
            }
            if self.is_at_end() && !self.caught_up {
                self.caught_up = true;
                return Ok(Read::CaughtUp);
            }
            self.wait(true).await?;
        }
    }

    async fn change(&mut self) -> Result<Read, Fault> {
        loop {
            let is_change = |read: &Read| !matches!(read, Read::Progress(..));
            if let Some(at) = self.events.iter().position(is_change)
                && let Some(event) = self.events.remove(at)
            {
                return Ok(event);
            }
            self.wait(false).await?;
        }
    }

    async fn go_on(&mut self, partition: &Partition, mark: Option<&Mark>) -> Result<Start, Fault> {
        let waiting = TopicPartition::parse(&partition.0).and_then(|at| Some((self.waiting.get(&at).copied()?, at)));
        let Some((tenure, at)) = waiting else {
            // Revoked or lost meanwhile; that event follows.
            return Ok(Start::after_mark());
        };
        let restart = self.restarts.get(&at).copied();
        let found = self.preparing.take(&at);
        let started = self.starts.start(&at, mark, restart, found, &*self.membership).await?;
        self.missed += started.missed;
        self.offsets.begin(partition.clone(), at.clone(), tenure);
        if started.is_adopted {
            self.offsets.adopt(partition, started.from.offset).await?;
        }
        let number = self.fetches.begin(&at, started.from).await;
        let maker = RecordMaker::new(at.topic.clone(), started.positions);
        let (next, end) = (started.from.offset, started.end);
        self.restarts.remove(&at);
        self.owned.insert(at.clone(), Owned { tenure, number, maker, next, end, heard: Instant::now() });
        self.waiting.remove(&at);
        Ok(started.start)
    }

    async fn backlog(&mut self) -> Option<Backlog> {
        // Nobody knows yet which partitions are this process's own.
        if !self.joined && self.owned.is_empty() {
            return Some(Backlog { missed: self.missed, ..Backlog::default() });
        }
        let stale = self.owned.iter().filter(|(_, owned)| owned.heard.elapsed() >= STALE);
        self.ends.refresh(&self.starts, stale.map(|(at, _)| at.clone()).collect());
        let left = |at: &TopicPartition, owned: &Owned| {
            let end = self.ends.of(at).map_or(owned.end, |end| end.max(owned.end));
            u64::try_from(end - owned.next).unwrap_or(0)
        };
        let partitions: BTreeMap<Partition, u64> =
            self.owned.iter().map(|(at, owned)| (named(at), left(at, owned))).collect();
        let records = partitions.values().sum();
        Some(Backlog { records: Some(records), missed: self.missed, partitions, ..Backlog::default() })
    }
}

#[cfg(test)]
mod tests;
