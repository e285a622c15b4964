//! What outlives a run of a test, so that it can crash and start again: what its sources give, its faults, and what came to
//! its destinations and its dead-letter queue.

mod ends;
mod marks;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anabranch_plugin::destination::{Destination, Retry, WritePolicy};
use anabranch_plugin::source::Source;
use anabranch_record::Position;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{LaneId, Mark};
use anabranch_record::text::Str;
use serde_json::Value as Json;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::case::{FaultKind, FaultSpec};
use super::input::Reads;
use super::view;
use ends::{End, Letters};

pub(super) use marks::Marks;

/// Code of faults that a test injects.
const INJECTED: &str = "injected";

/// Everything that outlives a run of a test.
pub(super) struct Script {
    faults: Vec<FaultSpec>,
    rows: HashMap<Position, Row>,
    sources: BTreeMap<Str, Reads>,
    state: Mutex<State>,
    crash: Notify,
}

/// A record by its source and its number there, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) source: Str,
    pub(super) number: usize,
}

#[derive(Default)]
struct State {
    kept: Kept,
    /// How often each fault has struck.
    struck: Vec<usize>,
    /// When each destination that is down was first written.
    down_since: BTreeMap<usize, Instant>,
    marks: BTreeMap<(Str, LaneId), Mark>,
}

/// What came to the ends.
#[derive(Clone, Debug, Default)]
pub(super) struct Kept {
    /// By destination, in the order in which they were written: position and record.
    pub(super) delivered: BTreeMap<Str, Vec<(Position, Json)>>,
    /// Dead letters.
    pub(super) letters: Vec<Json>,
    /// By source, the numbers of the records it was told to be safe, in order.
    pub(super) acked: BTreeMap<Str, Vec<usize>>,
    /// By source, the most records that were read of it.
    pub(super) read: BTreeMap<Str, usize>,
    /// How often the process died.
    pub(super) crashes: usize,
    /// How often each fault of the test happened.
    pub(super) struck: Vec<usize>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a fault does to a row.
pub(super) enum Strike {
    Fail(Fault),
    Delay(Duration),
    Hang,
    Panic,
    Partial(usize),
    Crash,
}

impl Script {
    /// The ends of sources with these records. Records without position are given one.
    ///
    /// # Errors
    /// Two records with one position: which of them is acknowledged could not be told.
    pub(super) fn new(sources: BTreeMap<Str, Reads>, faults: Vec<FaultSpec>) -> Result<Arc<Self>, String> {
        let mut rows = HashMap::new();
        let mut placed = BTreeMap::new();
        for (source, reads) in sources {
            let mut number = 0;
            let mut given = Vec::with_capacity(reads.len());
            for read in reads {
                let mut records = Vec::with_capacity(read.len());
                for mut record in read {
                    number += 1;
                    if record.position().0.is_empty() {
                        record = record.with_position(Position::copy_from(format!("{source}/{number}").as_bytes()));
                    }
                    let row = Row { source: source.clone(), number };
                    if rows.insert(record.position().clone(), row).is_some() {
                        let position = view::bytes(&record.position().0);
                        return Err(format!("two records have the position {position}"));
                    }
                    records.push(record);
                }
                given.push(records);
            }
            placed.insert(source, given);
        }
        let state = State { struck: vec![0; faults.len()], ..State::default() };
        Ok(Arc::new(Script { faults, rows, sources: placed, state: Mutex::new(state), crash: Notify::new() }))
    }

    /// Waits until the process is to die.
    pub(super) async fn crashed(&self) {
        self.crash.notified().await;
    }

    /// What came to the ends so far.
    pub(super) fn kept(&self) -> Kept {
        let state = locked(&self.state);
        Kept { struck: state.struck.clone(), ..state.kept.clone() }
    }

    /// Whether anything is to go wrong at a place.
    pub(super) fn troubles(&self, at: &str) -> bool {
        self.faults.iter().any(|fault| fault.at.value == *at)
    }

    /// What goes wrong there with these records: index and fault, in the order of the test. Counts them as struck.
    pub(super) fn strikes<'r>(&self, at: &str, records: impl Iterator<Item = &'r Position>) -> Vec<(usize, Strike)> {
        let positions: Vec<&Position> = records.collect();
        let mut strikes = Vec::new();
        let mut state = locked(&self.state);
        for (number, fault) in self.faults.iter().enumerate().filter(|(_, fault)| fault.at.value == *at) {
            if let FaultKind::Down(time) = fault.kind.value {
                let now = Instant::now();
                let since = *state.down_since.entry(number).or_insert(now);
                state.struck[number] += 1;
                if now < since + time {
                    strikes.push((0, Strike::Fail(Fault::transient(INJECTED, format!("{at} is down (injected)")))));
                }
                continue;
            }
            for (index, position) in positions.iter().enumerate().filter(|(_, position)| self.is_hit(fault, position)) {
                let _ = position;
                if fault.times.is_some_and(|times| state.struck[number] >= times) {
                    break;
                }
                state.struck[number] += 1;
                strikes.push((index, strike(&fault.kind.value)));
                // These are of the write, not of the row.
                if matches!(fault.kind.value, FaultKind::Partial(_) | FaultKind::Delay(_)) {
                    break;
                }
            }
        }
        strikes
    }

    fn is_hit(&self, fault: &FaultSpec, position: &Position) -> bool {
        if fault.source.is_none() && fault.records.is_empty() {
            return true;
        }
        self.rows.get(position).is_some_and(|row| {
            fault.source.as_ref().is_none_or(|source| source.value == row.source)
                && (fault.records.is_empty() || fault.records.contains(&row.number))
        })
    }

    fn die(&self) {
        locked(&self.state).kept.crashes += 1;
        self.crash.notify_one();
    }

    /// The scripted source in the place of a connector.
    pub(super) fn source(self: &Arc<Self>, connector: &Str) -> Arc<dyn Source> {
        Arc::new(End { script: self.clone(), connector: connector.clone(), policy: None })
    }

    /// The scripted destination in the place of a connector, written as that one would be.
    pub(super) fn destination(self: &Arc<Self>, connector: &Str, policy: WritePolicy) -> Arc<dyn Destination> {
        Arc::new(End { script: self.clone(), connector: connector.clone(), policy: Some(policy) })
    }

    /// In the place of the dead-letter queue.
    pub(super) fn dead_letters(self: &Arc<Self>, policy: WritePolicy) -> Arc<dyn Destination> {
        let policy = WritePolicy { retry: Retry::Idempotent, ..policy };
        Arc::new(Letters { script: self.clone(), policy })
    }
}

fn strike(kind: &FaultKind) -> Strike {
    match kind {
        FaultKind::Fail(class, said) => Strike::Fail(Fault::new(*class, INJECTED, said.clone())),
        FaultKind::Delay(time) | FaultKind::Down(time) => Strike::Delay(*time),
        FaultKind::Hang => Strike::Hang,
        FaultKind::Panic => Strike::Panic,
        FaultKind::Partial(rows) => Strike::Partial(*rows),
        FaultKind::Crash => Strike::Crash,
    }
}

/// The numbers of the records of a source that were told to be safe, each once.
pub(super) fn distinct(acked: &[usize]) -> BTreeSet<usize> {
    acked.iter().copied().collect()
}
