//! A scripted destination.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{LaneId, Mark};
use anabranch_record::text::Str;
use async_trait::async_trait;

use super::{Event, Journal, locked, row_at};
use crate::destination::{Delivered, Destination, Retry, ShareWriter, Verdicts, Write, WritePolicy, Writer};
use crate::host::Host;
use crate::state::Slots;

/// The reaction of a destination to one write.
#[derive(Debug)]
pub enum Reaction {
    /// All rows are durable.
    Durable,
    /// All rows are accepted: durable after a flush, lost without one.
    Accepted,
    /// A result for each row.
    Each(Vec<Result<Delivered, Fault>>),
    /// Nothing is written because of these rows.
    Refuse(Vec<(usize, Fault)>),
    /// The call fails.
    Fail(Fault),
    /// All rows are durable, but the call fails, so that the outcome is unknown.
    FailAfter(Fault),
    /// All rows are durable, but the call never returns.
    HangAfter,
    /// The call never returns.
    Hang,
}

type Script = Arc<dyn Fn(&[Record], usize) -> Reaction + Send + Sync>;

/// The storage of a scripted destination. It survives runs and crashes.
pub struct Downstream {
    name: Str,
    journal: Journal,
    script: Script,
    policy: WritePolicy,
    delay: Duration,
    durable: Mutex<Vec<Record>>,
    calls: Mutex<Vec<usize>>,
    flush_faults: Mutex<Vec<Fault>>,
    marks: Mutex<BTreeMap<LaneId, Mark>>,
    /// True if each slot of a run has a writer.
    is_per_slot: bool,
    /// Number of the latest run that has opened the destination for a slot; `None` = for all.
    epochs: Mutex<BTreeMap<Option<u32>, u64>>,
    transactions: Mutex<Vec<Vec<Record>>>,
    /// Results of the next removals of marks that fail: `true` if the marks are removed nevertheless.
    unanswered: Mutex<Vec<bool>>,
}

impl Downstream {
    /// Creates a destination on which every row is durable immediately.
    pub fn new(name: &str, journal: &Journal) -> Self {
        Downstream {
            name: name.into(),
            journal: journal.clone(),
            script: Arc::new(|_, _| Reaction::Durable),
            policy: WritePolicy { rows: 1000, bytes: 1 << 20, linger: Duration::ZERO, retry: Retry::Idempotent },
            delay: Duration::ZERO,
            durable: Mutex::default(),
            calls: Mutex::default(),
            flush_faults: Mutex::default(),
            marks: Mutex::default(),
            is_per_slot: false,
            epochs: Mutex::default(),
            transactions: Mutex::default(),
            unanswered: Mutex::default(),
        }
    }

    /// Sets the reaction to each write, from the rows and the number of the call, counted from 0.
    #[must_use]
    pub fn script(mut self, script: impl Fn(&[Record], usize) -> Reaction + Send + Sync + 'static) -> Self {
        self.script = Arc::new(script);
        self
    }

    /// Accepts rows, which become durable when flushed.
    #[must_use]
    pub fn accepting(self) -> Self {
        self.script(|_, _| Reaction::Accepted)
    }

    /// Fails the rows with these numbers; the others are durable.
    #[must_use]
    pub fn rejecting(self, bad: impl Fn(u64) -> bool + Send + Sync + 'static) -> Self {
        self.script(move |rows, _| {
            let verdict = |record: &Record| match bad(row_at(record.position())) {
                true => Err(Fault::record(crate::testing::codes::REJECTED, "the destination does not want it")),
                false => Ok(Delivered::Durable),
            };
            Reaction::Each(rows.iter().map(verdict).collect())
        })
    }

    /// Delays every write.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Stores rows and marks in one transaction, and rejects a run that does not know the latest one.
    #[must_use]
    pub fn transactional(self) -> Self {
        self.policy(|policy| policy.retry = Retry::Transactional)
    }

    /// Opens a writer for each slot of a run. It rejects only runs that do not know the latest one of the slot.
    #[must_use]
    pub fn per_slot(mut self) -> Self {
        self.is_per_slot = true;
        self
    }

    /// Changes the policy.
    #[must_use]
    pub fn policy(mut self, change: impl FnOnce(&mut WritePolicy)) -> Self {
        change(&mut self.policy);
        self
    }

    /// Fails the next flush with this fault.
    pub fn fail_flush(&self, fault: Fault) {
        locked(&self.flush_faults).push(fault);
    }

    /// Fails the next removal of marks, which takes effect or not. Until the marks are read, further removals and writes
    /// fail.
    pub fn leave_unanswered(&self, takes_effect: bool) {
        locked(&self.unanswered).push(takes_effect);
    }

    /// Returns the durable rows, in the order in which they were written.
    pub fn durable(&self) -> Vec<Record> {
        locked(&self.durable).clone()
    }

    /// Returns the numbers of the durable rows.
    pub fn rows(&self) -> Vec<u64> {
        super::rows(&locked(&self.durable))
    }

    /// Returns the number of rows of each write.
    pub fn calls(&self) -> Vec<usize> {
        locked(&self.calls).clone()
    }

    /// Returns the rows of each transaction.
    pub fn transactions(&self) -> Vec<Vec<Record>> {
        locked(&self.transactions).clone()
    }

    /// Returns the marks of the latest transactions.
    pub fn marks(&self) -> BTreeMap<LaneId, Mark> {
        locked(&self.marks).clone()
    }

    /// Simulates a failover to a copy, or a restore, that has the rows up to the mark of a lane; without a mark, the
    /// copy is empty.
    pub fn restore(&self, lane: &LaneId, mark: Option<Mark>) {
        let rows = mark.as_ref().map_or(0, |mark| mark.seq);
        locked(&self.durable).retain(|row| row_at(row.position()) < rows);
        match mark {
            Some(mark) => drop(locked(&self.marks).insert(lane.clone(), mark)),
            None => locked(&self.marks).clear(),
        }
    }

    /// Simulates a mark of an earlier run.
    pub fn set_mark(&self, lane: LaneId, mark: Mark) {
        locked(&self.marks).insert(lane, mark);
    }

    /// Makes rows durable, in a transaction with marks if the policy is transactional.
    fn commit(&self, rows: &[Record], marks: &[(LaneId, Mark)]) {
        self.keep(rows.iter().cloned());
        if self.policy.retry == Retry::Transactional {
            locked(&self.transactions).push(rows.to_vec());
            locked(&self.marks).extend(marks.iter().cloned());
            self.journal.note(Event::Transacted { shelf: self.name.clone(), marks: marks.to_vec() });
        }
    }

    fn keep(&self, records: impl IntoIterator<Item = Record>) {
        let mut durable = locked(&self.durable);
        for record in records {
            self.journal.note(Event::Durable { shelf: self.name.clone(), row: row_at(record.position()) });
            durable.push(record);
        }
    }
}

/// The shelf as a destination of a plan.
pub struct DownstreamDestination(pub Arc<Downstream>);

#[async_trait]
impl Destination for DownstreamDestination {
    async fn open(&self, host: &Host) -> Result<Box<dyn Writer>, Fault> {
        Ok(self.writer(None, host.slots))
    }

    async fn open_shares(&self, host: &Host) -> Result<Vec<ShareWriter>, Fault> {
        let of_slot = |slot| {
            let slots = Slots::none(host.slots.of()).with(slot);
            ShareWriter { slots, writer: self.writer(Some(slot), slots) }
        };
        Ok(match self.0.is_per_slot {
            true => host.slots.iter().map(of_slot).collect(),
            false => vec![ShareWriter { slots: host.slots, writer: self.writer(None, host.slots) }],
        })
    }

    fn policy(&self) -> WritePolicy {
        self.0.policy
    }
}

impl DownstreamDestination {
    fn writer(&self, of: Option<u32>, slots: Slots) -> Box<dyn Writer> {
        let epoch = {
            let mut epochs = locked(&self.0.epochs);
            let epoch = epochs.entry(of).or_default();
            *epoch += 1;
            *epoch
        };
        let (shelf, accepted, known) = (self.0.clone(), Vec::new(), BTreeMap::new());
        Box::new(DownstreamWriter { shelf, of, slots, accepted, known, epoch, unknown: false })
    }
}

struct DownstreamWriter {
    shelf: Arc<Downstream>,
    /// The slot, if each has a writer.
    of: Option<u32>,
    slots: Slots,
    accepted: Vec<Record>,
    known: BTreeMap<LaneId, Mark>,
    epoch: u64,
    /// `true` if the last removal of marks was not answered.
    unknown: bool,
}

impl DownstreamWriter {
    /// Returns `true` if a later run has opened the destination, or its marks are not those that this writer stored.
    fn is_fenced(&self, marks: &[(LaneId, Mark)]) -> bool {
        let shelf = &self.shelf;
        let moved = |(lane, _): &(LaneId, Mark)| locked(&shelf.marks).get(lane) != self.known.get(lane);
        shelf.policy.retry == Retry::Transactional && locked(&shelf.epochs).get(&self.of) != Some(&self.epoch)
            || marks.iter().any(moved)
    }
}

#[async_trait]
impl Writer for DownstreamWriter {
    async fn marks(&mut self) -> Result<Vec<(LaneId, Mark)>, Fault> {
        self.known = self.shelf.marks();
        if self.of.is_some() {
            self.known.retain(|lane, _| self.slots.has(&lane.partition));
        }
        self.unknown = false;
        Ok(self.known.clone().into_iter().collect())
    }

    async fn forget(&mut self, lanes: &[LaneId]) -> Result<bool, Fault> {
        if self.is_fenced(&[]) {
            return Err(Fault::transient(crate::codes::MARKS_MOVED, "another run writes here"));
        }
        if self.of.is_some() && lanes.iter().any(|lane| !self.slots.has(&lane.partition)) {
            return Err(Fault::fatal(crate::testing::codes::BAD, "another writer has the marks of these lanes"));
        }
        let unanswered = || Fault::transient(crate::testing::codes::DOWN, "the outcome is not known");
        if self.unknown {
            return Err(unanswered());
        }
        let fails = locked(&self.shelf.unanswered).pop();
        if fails != Some(false) {
            lanes.iter().for_each(|lane| drop(locked(&self.shelf.marks).remove(lane)));
        }
        if fails.is_some() {
            self.unknown = true;
            return Err(unanswered());
        }
        lanes.iter().for_each(|lane| drop(self.known.remove(lane)));
        Ok(self.shelf.policy.retry == Retry::Transactional)
    }

    async fn write(&mut self, Write { rows, marks, .. }: Write<'_>) -> Result<Verdicts, Fault> {
        let shelf = self.shelf.clone();
        let call = {
            let mut calls = locked(&shelf.calls);
            calls.push(rows.len());
            calls.len() - 1
        };
        if !shelf.delay.is_zero() {
            tokio::time::sleep(shelf.delay).await;
        }
        if self.is_fenced(marks) || self.unknown {
            return Err(Fault::transient(crate::codes::MARKS_MOVED, "another run writes here"));
        }
        match (shelf.script)(rows, call) {
            Reaction::Durable => {
                shelf.commit(rows, marks);
                self.known.extend(marks.iter().cloned());
                Ok(Verdicts::All(Delivered::Durable))
            }
            Reaction::Refuse(refused) => Ok(Verdicts::Refused(refused)),
            Reaction::FailAfter(fault) => {
                shelf.commit(rows, marks);
                Err(fault)
            }
            Reaction::HangAfter => {
                shelf.commit(rows, marks);
                std::future::pending().await
            }
            Reaction::Accepted => {
                self.accepted.extend(rows.iter().cloned());
                Ok(Verdicts::All(Delivered::Accepted))
            }
            Reaction::Each(verdicts) => {
                for (record, verdict) in rows.iter().zip(&verdicts) {
                    match verdict {
                        Ok(Delivered::Durable) => shelf.keep([record.clone()]),
                        Ok(Delivered::Accepted) => self.accepted.push(record.clone()),
                        Err(_) => {}
                    }
                }
                Ok(Verdicts::Each(verdicts))
            }
            Reaction::Fail(fault) => Err(fault),
            Reaction::Hang => std::future::pending().await,
        }
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        if let Some(fault) = locked(&self.shelf.flush_faults).pop() {
            return Err(fault);
        }
        self.shelf.keep(self.accepted.drain(..));
        Ok(())
    }
}
