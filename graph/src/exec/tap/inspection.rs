//! An inspection session: filter, buffer and drop counter.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anabranch_record::fault::Fault;
use anabranch_record::{Data, Record};
use anabranch_template::condition::{Budget, CompiledCondition, Judgement};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::pace::Pace;
use super::{Side, Tap, TapInspection, TapPoint};
use crate::codes;
use crate::exec::panic;

const SECOND: u64 = 1_000_000_000;
/// Maximum number of records held for an inspection that does not fetch them.
const HELD_ROWS: usize = 1000;
/// Number of bytes from which no more records are held.
const HELD_BYTES: usize = 4 << 20;
/// All inspections of a pipeline together use at most 1/50 of the time of a thread.
const SHARE: u64 = 50;
/// Period whose share may be used at once, in nanoseconds, since a strip is examined without interruption.
const AT_ONCE: u64 = SECOND;
/// Maximum time without new records because of the cost of one examination, in nanoseconds.
const LONGEST_WAIT: u64 = 5 * SECOND;
/// Charge per byte of a copied record in nanoseconds, because a processor may have to copy shared data.
const PER_BYTE: u64 = 1;
/// Number of rows between two reads of the clock, for conditions that take almost no time.
const GLANCE: usize = 16;
/// Maximum size of a slice in bytes to be copied; otherwise it would keep the larger buffer that it is part of.
const SLICE: usize = 64 << 10;

/// Budget for the condition on one record, since conditions of inspections run on the threads of the pipeline.
const VERDICT: Budget = Budget { bytes: 1 << 20, steps: 100_000, time: Duration::from_millis(20) };

/// Parameters of an inspection.
#[derive(Clone, Debug)]
pub struct InspectionParameters {
    /// Places to inspect.
    pub places: Vec<TapPoint>,
    /// Condition for records; `None` = all records.
    pub condition: Option<Arc<CompiledCondition>>,
    /// Maximum records per second, at least 1; also the maximum at once.
    pub per_second: u32,
}

/// An inspected record.
#[derive(Clone, Debug, PartialEq)]
pub struct TappedRecord {
    /// Index of the place in [`InspectionParameters::places`].
    pub place: usize,
    /// Copy of the record at that place.
    pub record: Record,
}

/// Records on which the condition failed.
#[derive(Clone, Debug)]
pub struct Unjudged {
    /// Number of records.
    pub rows: u64,
    /// Fault of the latest record. Not masked: conditions can quote records and settings.
    pub fault: Fault,
}

/// An inspection of records in flight, until it is dropped. It outlives runs.
#[derive(Debug)]
pub struct Inspection {
    session: Arc<Session>,
    tapped: mpsc::UnboundedReceiver<(TappedRecord, usize)>,
    taps: Vec<Arc<Tap>>,
}

/// State shared by the stages and the inspection. Passing records takes no lock.
#[derive(Debug)]
pub(super) struct Session {
    since: Instant,
    condition: Option<Arc<CompiledCondition>>,
    pace: Pace,
    /// Cost of one record in `pace`.
    each: u64,
    time: Pace,
    inspections: Arc<AtomicUsize>,
    held_rows: AtomicUsize,
    held_bytes: AtomicUsize,
    left_out: AtomicU64,
    unjudged: Mutex<Option<Unjudged>>,
    tapped: mpsc::UnboundedSender<(TappedRecord, usize)>,
}

impl Inspection {
    pub(super) fn open(taps: Vec<(Arc<Tap>, Side)>, look: InspectionParameters, inspections: Arc<AtomicUsize>) -> Self {
        let (sender, tapped) = mpsc::unbounded_channel();
        inspections.fetch_add(1, Ordering::Relaxed);
        let each = SECOND / u64::from(look.per_second.max(1));
        let session = Arc::new(Session {
            since: Instant::now(),
            condition: look.condition,
            pace: Pace::new(SECOND - each, u64::MAX),
            each,
            time: Pace::new(AT_ONCE, AT_ONCE + LONGEST_WAIT),
            inspections,
            held_rows: AtomicUsize::new(0),
            held_bytes: AtomicUsize::new(0),
            left_out: AtomicU64::new(0),
            unjudged: Mutex::default(),
            tapped: sender,
        });
        for (place, (tap, side)) in taps.iter().enumerate() {
            tap.change(|watchers| watchers.push(TapInspection { session: session.clone(), place, side: *side }));
        }
        Inspection { session, tapped, taps: taps.into_iter().map(|(tap, _)| tap).collect() }
    }

    /// Waits for the next record, across the ends of runs. Cancel-safe.
    pub async fn next(&mut self) -> TappedRecord {
        match self.tapped.recv().await {
            Some((tapped, bytes)) => self.released(tapped, bytes),
            // The session holds the sender, so this does not occur.
            None => std::future::pending().await,
        }
    }

    /// Returns the next record if one is available.
    pub fn try_next(&mut self) -> Option<TappedRecord> {
        let (tapped, bytes) = self.tapped.try_recv().ok()?;
        Some(self.released(tapped, bytes))
    }

    fn released(&self, tapped: TappedRecord, bytes: usize) -> TappedRecord {
        self.session.held_rows.fetch_sub(1, Ordering::Relaxed);
        self.session.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
        tapped
    }

    /// Returns and resets the number of records that were neither shown nor rejected by the condition.
    pub fn take_left_out(&self) -> u64 {
        self.session.left_out.swap(0, Ordering::Relaxed)
    }

    /// Returns and resets the records on which the condition failed.
    pub fn take_unjudged(&self) -> Option<Unjudged> {
        self.session.unjudged.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Inspection {
    fn drop(&mut self) {
        for tap in &self.taps {
            tap.change(|watchers| watchers.retain(|watcher| !Arc::ptr_eq(&watcher.session, &self.session)));
        }
        self.session.inspections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Session {
    fn now(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Examines records and copies those that satisfy the condition.
    pub(super) fn show(&self, place: usize, records: &[Record]) {
        let glance = if self.condition.as_ref().is_none_or(|condition| condition.is_native()) { GLANCE } else { 1 };
        let mut rest = records;
        let mut left_out = 0;
        let mut begun = self.now();
        while !rest.is_empty() && self.pace.has_room(begun) && self.time.has_room(begun) && self.has_space() {
            let (some, more) = rest.split_at(rest.len().min(glance));
            rest = more;
            let mut bytes = 0;
            for record in some.iter().filter(|record| self.wants(record)) {
                match self.take(place, record, begun) {
                    Some(weight) => bytes += weight as u64,
                    None => left_out += 1,
                }
            }
            let now = self.now();
            let took = (now - begun).saturating_add(bytes.saturating_mul(PER_BYTE));
            let rivals = self.inspections.load(Ordering::Relaxed).max(1) as u64;
            self.time.spend(now, took.saturating_mul(SHARE * rivals));
            begun = now;
        }
        left_out += rest.len() as u64;
        if left_out > 0 {
            self.left_out.fetch_add(left_out, Ordering::Relaxed);
        }
    }

    fn has_space(&self) -> bool {
        self.held_rows.load(Ordering::Relaxed) < HELD_ROWS && self.held_bytes.load(Ordering::Relaxed) < HELD_BYTES
    }

    fn wants(&self, record: &Record) -> bool {
        let Some(condition) = &self.condition else { return true };
        let judged = catch_unwind(AssertUnwindSafe(|| condition.evaluate_within(record, &mut { VERDICT })));
        let fault = match judged {
            Ok(Judgement::Verdict(verdict)) => return verdict,
            Ok(Judgement::Failed(fault) | Judgement::TooCostly(fault)) => fault,
            Err(panic) => {
                Fault::record(codes::CONDITION_PANICKED, format!("the condition panicked: {}", panic::message(&*panic)))
            }
        };
        let mut unjudged = self.unjudged.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = unjudged.as_ref().map_or(0, |unjudged| unjudged.rows) + 1;
        *unjudged = Some(Unjudged { rows, fault });
        false
    }

    /// Copies a record if the limits permit it, and returns its weight in bytes.
    fn take(&self, place: usize, record: &Record, now: u64) -> Option<usize> {
        if !self.has_space() || !self.pace.take(now, self.each) {
            return None;
        }
        let weight = record.weight();
        let mut record = record.clone();
        for data in [&mut record.key, &mut record.payload.before, &mut record.payload.after] {
            if matches!(data, Data::Raw(bytes) if bytes.len() <= SLICE) {
                data.compact();
            }
        }
        self.held_rows.fetch_add(1, Ordering::Relaxed);
        self.held_bytes.fetch_add(weight, Ordering::Relaxed);
        // The receiver is dropped only after the inspection has ended.
        let _ = self.tapped.send((TappedRecord { place, record }, weight));
        Some(weight)
    }
}
