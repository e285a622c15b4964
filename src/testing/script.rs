//! The ends of a pipeline in a test: sources that give what the test says, destinations that keep what they get, the
//! dead-letter queue, and the faults of all of them. They outlive a run, so that it can crash and start again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anabranch_graph::destination::{Delivered, Destination, Retry, Verdicts, WritePolicy, Writer};
use anabranch_graph::fault::{Fault, FaultClass};
use anabranch_graph::metadata::key;
use anabranch_graph::operator::Host;
use anabranch_graph::record::{Data, Position, Record};
use anabranch_graph::source::{Acker, Mark, Partition, Read, Reader, Room, Source};
use anabranch_graph::state::{Epoch, LaneId, StateStore, StoreError};
use anabranch_graph::text::Str;
use async_trait::async_trait;
use serde_json::{Value as Json, json};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::case::{FaultKind, FaultSpec};
use super::input::Reads;
use super::view;

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
        locked(&self.state).kept.clone()
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

/// A source or destination of the script.
struct End {
    script: Arc<Script>,
    connector: Str,
    policy: Option<WritePolicy>,
}

#[async_trait]
impl Source for End {
    fn catches_up(&self) -> bool {
        true
    }

    fn replays_exactly(&self) -> bool {
        true
    }

    async fn open(
        &self,
        resume: &BTreeMap<Partition, Mark>,
        _: &Host,
    ) -> Result<(Box<dyn Reader>, Box<dyn Acker>), Fault> {
        let (script, connector) = (self.script.clone(), self.connector.clone());
        let after = resume.get(&Partition::ONLY).and_then(|mark| script.rows.get(&mark.position));
        let next = after.map_or(0, |row| row.number);
        let acker = Scripted { script: script.clone(), connector: connector.clone() };
        Ok((Box::new(ScriptReader { script, connector, next }), Box::new(acker)))
    }
}

struct ScriptReader {
    script: Arc<Script>,
    connector: Str,
    /// Records before the next one.
    next: usize,
}

impl ScriptReader {
    /// The rest of the read that the next record is in.
    fn records(&self) -> &[Record] {
        let mut before = 0;
        for read in self.script.sources.get(&self.connector).into_iter().flatten() {
            if self.next < before + read.len() {
                return &read[self.next - before..];
            }
            before += read.len();
        }
        &[]
    }
}

#[async_trait]
impl Reader for ScriptReader {
    async fn read(&mut self, room: Room) -> Result<Read, Fault> {
        let mut bytes = 0;
        let fits = self.records().iter().take(room.rows.max(1)).take_while(|record| {
            bytes += record.weight();
            bytes <= room.bytes
        });
        let rows = fits.count().max(1);
        let mut records: Vec<Record> = self.records().iter().take(rows).cloned().collect();
        if records.is_empty() {
            return Ok(Read::End);
        }
        if self.script.troubles(&self.connector) {
            // One by one, so that what comes before a record that fails is read.
            records.truncate(1);
            let crashes = |strike: &Strike| matches!(strike, Strike::Crash);
            let read = records.iter().map(Record::position);
            let strikes = if self.is_about_reading() { self.script.strikes(&self.connector, read) } else { Vec::new() };
            for (_, strike) in strikes.into_iter().filter(|(_, strike)| !crashes(strike)) {
                match strike {
                    Strike::Fail(fault) => return Err(fault),
                    Strike::Delay(time) => tokio::time::sleep(time).await,
                    Strike::Hang => std::future::pending::<()>().await,
                    #[allow(clippy::panic, reason = "the test asks for it")]
                    Strike::Panic => panic!("injected by the test"),
                    Strike::Partial(_) | Strike::Crash => {}
                }
            }
        }
        self.next += records.len();
        let mut state = locked(&self.script.state);
        let read = state.kept.read.entry(self.connector.clone()).or_default();
        *read = (*read).max(self.next);
        Ok(Read::Rows { partition: Partition::ONLY, records })
    }
}

impl ScriptReader {
    /// Whether any fault of the source is one of reading: a crash is one of acknowledging.
    fn is_about_reading(&self) -> bool {
        let of_ours = |fault: &&FaultSpec| fault.at.value == self.connector;
        self.script.faults.iter().filter(of_ours).any(|fault| fault.kind.value != FaultKind::Crash)
    }
}

/// Notes what a source is told.
struct Scripted {
    script: Arc<Script>,
    connector: Str,
}

#[async_trait]
impl Acker for Scripted {
    async fn ack(&mut self, _: &Partition, positions: &[Position]) -> Result<(), Fault> {
        let crash = self
            .script
            .faults
            .iter()
            .enumerate()
            .find(|(_, fault)| fault.at.value == self.connector && fault.kind.value == FaultKind::Crash);
        for position in positions {
            let Some(row) = self.script.rows.get(position) else { continue };
            if let Some((number, fault)) = crash
                && self.script.is_hit(fault, position)
                && fault.times.is_none_or(|times| locked(&self.script.state).struck[number] < times)
            {
                locked(&self.script.state).struck[number] += 1;
                self.script.die();
                return std::future::pending().await;
            }
            locked(&self.script.state).kept.acked.entry(self.connector.clone()).or_default().push(row.number);
        }
        Ok(())
    }
}

#[async_trait]
impl Destination for End {
    async fn open(&self, _: &Host) -> Result<Box<dyn Writer>, Fault> {
        let (script, connector) = (self.script.clone(), self.connector.clone());
        Ok(Box::new(ScriptWriter { script, connector, transactional: self.policy().retry == Retry::Transactional }))
    }

    fn policy(&self) -> WritePolicy {
        const ANY: WritePolicy =
            WritePolicy { rows: 1000, bytes: 1 << 20, linger: Duration::ZERO, retry: Retry::Idempotent };
        self.policy.unwrap_or(ANY)
    }
}

struct ScriptWriter {
    script: Arc<Script>,
    connector: Str,
    transactional: bool,
}

impl ScriptWriter {
    fn keep<'r>(&self, rows: impl Iterator<Item = &'r Record>) {
        let rows: Vec<_> = rows.map(|row| (row.position().clone(), view::record(row))).collect();
        locked(&self.script.state).kept.delivered.entry(self.connector.clone()).or_default().extend(rows);
    }

    fn commit(&self, marks: &[(LaneId, Mark)]) {
        let mut state = locked(&self.script.state);
        for (lane, mark) in marks {
            state.marks.insert((self.connector.clone(), lane.clone()), mark.clone());
        }
    }
}

#[async_trait]
impl Writer for ScriptWriter {
    async fn marks(&mut self) -> Result<Vec<(LaneId, Mark)>, Fault> {
        let state = locked(&self.script.state);
        let ours = state.marks.iter().filter(|((connector, _), _)| *connector == self.connector);
        Ok(ours.map(|((_, lane), mark)| (lane.clone(), mark.clone())).collect())
    }

    async fn write(&mut self, rows: &[Record], marks: &[(LaneId, Mark)]) -> Result<Verdicts, Fault> {
        let strikes = match self.script.troubles(&self.connector) {
            true => self.script.strikes(&self.connector, rows.iter().map(Record::position)),
            false => Vec::new(),
        };
        let mut failed: BTreeMap<usize, Fault> = BTreeMap::new();
        let mut dies_after = None;
        for (row, strike) in strikes {
            match strike {
                Strike::Fail(fault) if fault.class() == FaultClass::Record => drop(failed.insert(row, fault)),
                Strike::Fail(fault) => return Err(fault),
                Strike::Delay(time) => tokio::time::sleep(time).await,
                Strike::Hang => return std::future::pending().await,
                #[allow(clippy::panic, reason = "the test asks for it")]
                Strike::Panic => panic!("injected by the test"),
                Strike::Partial(taken) => {
                    if !self.transactional {
                        self.keep(rows.iter().take(taken));
                    }
                    return Err(Fault::transient(INJECTED, "the connection was lost during a write (injected)"));
                }
                Strike::Crash => dies_after = Some(row),
            }
        }
        if self.transactional && !failed.is_empty() {
            return Ok(Verdicts::Refused(failed.into_iter().collect()));
        }
        let last = match dies_after {
            Some(row) if !self.transactional => row,
            _ => rows.len(),
        };
        self.keep(rows.iter().enumerate().filter(|(row, _)| *row <= last && !failed.contains_key(row)).map(|(_, r)| r));
        self.commit(marks);
        if dies_after.is_some() {
            self.script.die();
            return std::future::pending().await;
        }
        if failed.is_empty() {
            return Ok(Verdicts::All(Delivered::Durable));
        }
        Ok(Verdicts::Each((0..rows.len()).map(|row| failed.remove(&row).map_or(Ok(Delivered::Durable), Err)).collect()))
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

/// In the place of the dead-letter queue.
struct Letters {
    script: Arc<Script>,
    policy: WritePolicy,
}

#[async_trait]
impl Destination for Letters {
    async fn open(&self, _: &Host) -> Result<Box<dyn Writer>, Fault> {
        Ok(Box::new(Letters { script: self.script.clone(), policy: self.policy }))
    }

    fn policy(&self) -> WritePolicy {
        self.policy
    }
}

#[async_trait]
impl Writer for Letters {
    async fn write(&mut self, rows: &[Record], _: &[(LaneId, Mark)]) -> Result<Verdicts, Fault> {
        let letters: Vec<Json> = rows.iter().map(|row| self.letter(row)).collect();
        let kept = &mut locked(&self.script.state).kept.letters;
        for letter in letters {
            // A replay overwrites the letter of the same name.
            match kept.iter_mut().find(|other| other["name"] == letter["name"]) {
                Some(other) => *other = letter,
                None => kept.push(letter),
            }
        }
        Ok(Verdicts::All(Delivered::Durable))
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

impl Letters {
    fn letter(&self, letter: &Record) -> Json {
        let said = |key: &Str| letter.metadata.get(key).map_or("", |text| text.as_str());
        let fields = letter.payload.after.fields();
        let part = |name: &str| fields.and_then(|fields| fields.get(name)).map_or(Json::Null, view::value);
        let payload = part("payload");
        let row = self.script.rows.get(letter.position());
        let name = match &letter.key {
            Data::Raw(name) => view::bytes(name),
            Data::Absent | Data::Structured(_) => Json::Null,
        };
        json!({
            "name": name,
            "step": said(&key::DLQ_NACK_NODE_ID),
            "code": said(&key::DLQ_NACK_CODE),
            "error": said(&key::DLQ_NACK_ERROR),
            "source": row.map(|row| row.source.as_str()),
            "number": row.map(|row| row.number),
            "record": {
                "operation": part("operation"),
                "metadata": part("metadata"),
                "key": part("key"),
                "before": payload["before"],
                "after": payload["after"],
            },
        })
    }
}

/// Marks in memory. They survive runs.
#[derive(Default)]
pub(super) struct Marks(Mutex<(u64, BTreeMap<LaneId, Mark>)>);

#[async_trait]
impl StateStore for Marks {
    async fn claim(&self, pipeline: &Str) -> Result<Epoch, StoreError> {
        let mut marks = locked(&self.0);
        marks.0 += 1;
        Ok(Epoch { pipeline: pipeline.clone(), number: marks.0 })
    }

    async fn load(&self, _: &Epoch) -> Result<BTreeMap<LaneId, Mark>, StoreError> {
        Ok(locked(&self.0).1.clone())
    }

    async fn commit(&self, epoch: &Epoch, moves: &[(LaneId, Mark)]) -> Result<(), StoreError> {
        let mut marks = locked(&self.0);
        if marks.0 != epoch.number {
            let (pipeline, theirs) = (epoch.pipeline.clone(), marks.0);
            return Err(StoreError::Fenced { pipeline, ours: epoch.number, theirs });
        }
        marks.1.extend(moves.iter().cloned());
        Ok(())
    }
}

/// The numbers of the records of a source that were told to be safe, each once.
pub(super) fn distinct(acked: &[usize]) -> BTreeSet<usize> {
    acked.iter().copied().collect()
}
