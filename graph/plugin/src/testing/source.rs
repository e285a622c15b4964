//! A scripted source that deletes acknowledged rows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anabranch_record::fault::Fault;
use anabranch_record::mark::{Mark, Partition};
use anabranch_record::{Position, Record};
use async_trait::async_trait;
use tokio::sync::Notify;

use super::{Event, Journal, locked, position, record, row_at};
use crate::host::Host;
use crate::source::{Acker, Backlog, OpenedSource, Read, Reader, Replay, Room, Source, Start};

/// The behaviour of a source after its last row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtEnd {
    /// It ends.
    End,
    /// It reports that it has caught up, and waits for more.
    CaughtUp,
    /// It waits for more without reporting anything.
    Wait,
}

type Make = Arc<dyn Fn(u64) -> Record + Send + Sync>;

/// Rows to be read, per partition. They survive runs and crashes, but not their acknowledgement: a row that is
/// acknowledged too early is lost.
pub struct Upstream {
    journal: Journal,
    rows: Mutex<BTreeMap<Partition, BTreeSet<u64>>>,
    changed: Notify,
    at_end: AtEnd,
    per_read: usize,
    delay: Duration,
    make: Make,
    open_faults: Mutex<Vec<Fault>>,
    read_faults: Mutex<Vec<Fault>>,
    ack_faults: Mutex<Vec<Fault>>,
    read: AtomicU64,
    exact: bool,
    rereads: bool,
    forgot: AtomicBool,
    counts: bool,
    asked: AtomicU64,
    /// The row that the source fails.
    failing: Option<u64>,
    /// The row at which the next open starts, instead of after the mark.
    elsewhere: Mutex<Option<u64>>,
}

impl Upstream {
    /// Creates rows `0..rows` in one partition.
    pub fn new(journal: &Journal, rows: u64, at_end: AtEnd) -> Self {
        Self::partitioned(journal, [(Partition::ONLY, rows)], at_end)
    }

    /// Creates rows `0..n` in each partition.
    pub fn partitioned(
        journal: &Journal,
        partitions: impl IntoIterator<Item = (Partition, u64)>,
        at_end: AtEnd,
    ) -> Self {
        let rows = partitions.into_iter().map(|(partition, n)| (partition, (0..n).collect())).collect();
        Upstream {
            journal: journal.clone(),
            rows: Mutex::new(rows),
            changed: Notify::new(),
            at_end,
            per_read: usize::MAX,
            delay: Duration::ZERO,
            make: Arc::new(record),
            open_faults: Mutex::default(),
            read_faults: Mutex::default(),
            ack_faults: Mutex::default(),
            read: AtomicU64::new(0),
            exact: false,
            rereads: false,
            forgot: AtomicBool::new(false),
            counts: false,
            asked: AtomicU64::new(0),
            failing: None,
            elsewhere: Mutex::default(),
        }
    }

    /// Fails a row, which must come in a read of its own.
    #[must_use]
    pub fn failing(mut self, row: u64) -> Self {
        self.failing = Some(row);
        self
    }

    /// Limits the number of rows per read.
    #[must_use]
    pub fn per_read(mut self, rows: usize) -> Self {
        self.per_read = rows.max(1);
        self
    }

    /// Declares that the source replays exactly.
    #[must_use]
    pub fn exact(mut self) -> Self {
        self.exact = true;
        self
    }

    /// Keeps acknowledged rows, so that they can be read again.
    #[must_use]
    pub fn rereading(mut self) -> Self {
        self.rereads = true;
        self
    }

    /// Makes the source report that acknowledged rows are gone (`true`) or available again (`false`).
    pub fn forget(&self, forgot: bool) {
        self.forgot.store(forgot, Ordering::Relaxed);
    }

    /// Reports the number of unread rows.
    #[must_use]
    pub fn counts(mut self) -> Self {
        self.counts = true;
        self
    }

    /// Delays every read.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Sets the function that creates the record of a row; its position must be [`position`].
    #[must_use]
    pub fn make(mut self, make: impl Fn(u64) -> Record + Send + Sync + 'static) -> Self {
        self.make = Arc::new(make);
        self
    }

    /// Makes the next open start every partition at a row, as if its offsets were reset.
    pub fn start_elsewhere(&self, row: u64) {
        *locked(&self.elsewhere) = Some(row);
    }

    /// Fails the next attempt to open the source with this fault.
    pub fn fail_open(&self, fault: Fault) {
        locked(&self.open_faults).push(fault);
    }

    /// Fails the next read with this fault.
    pub fn fail_read(&self, fault: Fault) {
        locked(&self.read_faults).push(fault);
        self.changed.notify_waiters();
    }

    /// Fails the next acknowledgement with this fault.
    pub fn fail_ack(&self, fault: Fault) {
        locked(&self.ack_faults).push(fault);
    }

    /// Adds rows to the only partition.
    pub fn add(&self, rows: impl IntoIterator<Item = u64>) {
        locked(&self.rows).entry(Partition::ONLY).or_default().extend(rows);
        self.changed.notify_waiters();
    }

    /// Returns the number of rows that are not acknowledged.
    pub fn kept(&self) -> usize {
        locked(&self.rows).values().map(BTreeSet::len).sum()
    }

    /// Returns how often the backlog was requested, in all runs.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Returns the number of rows that were read, in all runs.
    pub fn rows_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }
}

/// The upstream as a source of a plan.
pub struct UpstreamSource(pub Arc<Upstream>);

#[async_trait]
impl Source for UpstreamSource {
    fn catches_up(&self) -> bool {
        self.0.at_end != AtEnd::Wait
    }

    fn replay(&self) -> Replay {
        if self.0.exact { Replay::Exactly } else { Replay::NotExactly }
    }

    fn rereads(&self) -> bool {
        self.0.rereads
    }

    async fn still_has(&self, _position: &Position) -> Result<bool, Fault> {
        Ok(!self.0.forgot.load(Ordering::Relaxed))
    }

    async fn open(&self, resume: &BTreeMap<Partition, Mark>, _: &Host) -> Result<OpenedSource, Fault> {
        if let Some(fault) = locked(&self.0.open_faults).pop() {
            return Err(fault);
        }
        // Rows below a stored mark count as acknowledged: the previous run may have ended before it acknowledged them.
        for (partition, mark) in resume.iter().filter(|_| !self.0.rereads) {
            if let Some(rows) = locked(&self.0.rows).get_mut(partition) {
                *rows = rows.split_off(&(row_at(&mark.position) + 1));
            }
        }
        let next = resume.iter().map(|(partition, mark)| (partition.clone(), row_at(&mark.position) + 1));
        let mut next: BTreeMap<Partition, u64> = next.collect();
        let mut starts = BTreeMap::new();
        if let Some(row) = locked(&self.0.elsewhere).take() {
            for partition in locked(&self.0.rows).keys() {
                next.insert(partition.clone(), row);
                starts.insert(partition.clone(), Start::elsewhere());
            }
        }
        let reader = UpstreamReader { upstream: self.0.clone(), next, turn: 0, caught_up: false };
        let mut opened = OpenedSource::new(Box::new(reader), Box::new(UpstreamAcker { upstream: self.0.clone() }));
        opened.starts = starts;
        Ok(opened)
    }
}

struct UpstreamReader {
    upstream: Arc<Upstream>,
    next: BTreeMap<Partition, u64>,
    turn: usize,
    caught_up: bool,
}

#[async_trait]
impl Reader for UpstreamReader {
    async fn read(&mut self, room: Room) -> Result<Read, Fault> {
        let upstream = self.upstream.clone();
        if !upstream.delay.is_zero() {
            tokio::time::sleep(upstream.delay).await;
        }
        loop {
            let changed = upstream.changed.notified();
            if let Some(fault) = locked(&upstream.read_faults).pop() {
                return Err(fault);
            }
            let found = {
                let rows = locked(&upstream.rows);
                let partitions: Vec<&Partition> = rows.keys().collect();
                let turns = (0..partitions.len()).map(|i| partitions[(self.turn + i) % partitions.len()]);
                turns
                    .map(|partition| {
                        let from = self.next.get(partition).copied().unwrap_or(0);
                        let at_most = upstream.per_read.min(room.rows);
                        let found: Vec<u64> = rows[partition].range(from..).take(at_most).copied().collect();
                        (partition.clone(), found)
                    })
                    .find(|(_, found)| !found.is_empty())
            };
            if let Some((partition, found)) = found {
                self.turn += 1;
                self.caught_up = false;
                upstream.read.fetch_add(found.len() as u64, Ordering::Relaxed);
                self.next.insert(partition.clone(), found.last().map_or(0, |last| last + 1));
                if let [row] = found[..]
                    && upstream.failing == Some(row)
                {
                    let fault = Fault::record(super::codes::BAD_ROW, "the source cannot pass it on");
                    return Ok(Read::Failed { partition, record: Box::new((upstream.make)(row)), fault });
                }
                let records = found.into_iter().map(|row| (upstream.make)(row)).collect();
                return Ok(Read::Rows { partition, records });
            }
            match upstream.at_end {
                AtEnd::End => return Ok(Read::End),
                AtEnd::CaughtUp if !self.caught_up => {
                    self.caught_up = true;
                    return Ok(Read::CaughtUp);
                }
                AtEnd::CaughtUp | AtEnd::Wait => changed.await,
            }
        }
    }

    async fn backlog(&mut self) -> Option<Backlog> {
        self.upstream.asked.fetch_add(1, Ordering::Relaxed);
        let left = |(partition, rows): (&Partition, &BTreeSet<u64>)| {
            rows.range(self.next.get(partition).copied().unwrap_or(0)..).count() as u64
        };
        let left = locked(&self.upstream.rows).iter().map(left).sum();
        self.upstream.counts.then_some(Backlog { records: Some(left), ..Backlog::default() })
    }
}

struct UpstreamAcker {
    upstream: Arc<Upstream>,
}

#[async_trait]
impl Acker for UpstreamAcker {
    async fn ack(&mut self, partition: &Partition, positions: &[Position]) -> Result<(), Fault> {
        if let Some(fault) = locked(&self.upstream.ack_faults).pop() {
            return Err(fault);
        }
        let mut rows = locked(&self.upstream.rows);
        for at in positions {
            let row = row_at(at);
            debug_assert_eq!(&position(row), at);
            if !self.upstream.rereads {
                rows.entry(partition.clone()).or_default().remove(&row);
            }
            self.upstream.journal.note(Event::Acked(partition.clone(), row));
        }
        Ok(())
    }
}
