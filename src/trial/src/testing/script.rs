//! State of a test that survives crashes and restarts of the pipeline: the records of its sources, its faults, and the
//! contents of its destinations and its dead-letter queue.

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
use crate::codes;
use ends::{Letters, ScriptedEnd};

pub(super) use marks::Marks;

/// State that survives restarts.
pub(super) struct Script {
    faults: Vec<FaultSpec>,
    rows: HashMap<Position, Row>,
    sources: BTreeMap<Str, Reads>,
    state: Mutex<State>,
    crash: Notify,
}

/// Identifies a record by its source and its number there, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) source: Str,
    pub(super) number: usize,
}

#[derive(Default)]
struct State {
    kept: EndContents,
    /// Number of occurrences of each fault.
    struck: Vec<usize>,
    /// Time of the first write to each destination that is down.
    down_since: BTreeMap<usize, Instant>,
    marks: BTreeMap<(Str, LaneId), Mark>,
}

/// The contents of the ends.
#[derive(Clone, Debug, Default)]
pub(super) struct EndContents {
    /// Position and record of each write, by destination, in order.
    pub(super) delivered: BTreeMap<Str, Vec<(Position, Json)>>,
    /// Dead letters.
    pub(super) letters: Vec<Json>,
    /// Numbers of the acknowledged records by source, in order.
    pub(super) acked: BTreeMap<Str, Vec<usize>>,
    /// Maximum number of records that a run read, by source.
    pub(super) read: BTreeMap<Str, usize>,
    /// Number of crashes.
    pub(super) crashes: usize,
    /// Number of occurrences of each fault.
    pub(super) struck: Vec<usize>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The effect of a fault on a record.
pub(super) enum FaultEffect {
    Fail(Fault),
    Delay(Duration),
    Hang,
    Panic,
    Partial(usize),
    Crash,
}

impl Script {
    /// Creates the state for sources with these records. Records without a position get one.
    ///
    /// # Errors
    /// Two records have the same position, so their acknowledgements would be ambiguous.
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

    /// Waits until a fault requests a crash.
    pub(super) async fn crashed(&self) {
        self.crash.notified().await;
    }

    /// Returns the current contents of the ends.
    pub(super) fn kept(&self) -> EndContents {
        let state = locked(&self.state);
        EndContents { struck: state.struck.clone(), ..state.kept.clone() }
    }

    /// Returns `true` if there are faults for a node.
    pub(super) fn troubles(&self, at: &str) -> bool {
        self.faults.iter().any(|fault| fault.at.value == *at)
    }

    /// Returns the faults at a node for these records, as index and fault, in the order of the test. Counts them.
    pub(super) fn strikes<'r>(
        &self,
        at: &str,
        records: impl Iterator<Item = &'r Position>,
    ) -> Vec<(usize, FaultEffect)> {
        let positions: Vec<&Position> = records.collect();
        let mut strikes = Vec::new();
        let mut state = locked(&self.state);
        for (number, fault) in self.faults.iter().enumerate().filter(|(_, fault)| fault.at.value == *at) {
            if let FaultKind::Down(time) = fault.kind.value {
                let now = Instant::now();
                let since = *state.down_since.entry(number).or_insert(now);
                state.struck[number] += 1;
                if now < since + time {
                    strikes.push((
                        0,
                        FaultEffect::Fail(Fault::transient(codes::INJECTED, format!("{at} is down (injected)"))),
                    ));
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
                // These faults affect the whole write, not the record.
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

    /// Returns the scripted source for a connector.
    pub(super) fn source(self: &Arc<Self>, connector: &Str) -> Arc<dyn Source> {
        Arc::new(ScriptedEnd { script: self.clone(), connector: connector.clone(), policy: None })
    }

    /// Returns the scripted destination for a connector, with the write policy of the real one.
    pub(super) fn destination(self: &Arc<Self>, connector: &Str, policy: WritePolicy) -> Arc<dyn Destination> {
        Arc::new(ScriptedEnd { script: self.clone(), connector: connector.clone(), policy: Some(policy) })
    }

    /// Returns the scripted dead-letter queue.
    pub(super) fn dead_letters(self: &Arc<Self>, policy: WritePolicy) -> Arc<dyn Destination> {
        let policy = WritePolicy { retry: Retry::Idempotent, ..policy };
        Arc::new(Letters { script: self.clone(), policy })
    }
}

fn strike(kind: &FaultKind) -> FaultEffect {
    match kind {
        FaultKind::Fail(class, said) => FaultEffect::Fail(Fault::new(*class, codes::INJECTED, said.clone())),
        FaultKind::Delay(time) | FaultKind::Down(time) => FaultEffect::Delay(*time),
        FaultKind::Hang => FaultEffect::Hang,
        FaultKind::Panic => FaultEffect::Panic,
        FaultKind::Partial(rows) => FaultEffect::Partial(*rows),
        FaultKind::Crash => FaultEffect::Crash,
    }
}

/// Returns the numbers of the acknowledged records of a source, without duplicates.
pub(super) fn distinct(acked: &[usize]) -> BTreeSet<usize> {
    acked.iter().copied().collect()
}
