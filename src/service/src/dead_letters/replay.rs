//! Replay of dead letters in a separate run, through the rest of the graph of the pipeline.
//!
//! The run reads dead letters instead of a source, and its state store is the queue. A dead letter stays in the queue
//! until every copy of its record is delivered and durable, filtered, or failed again. Then the executor commits, as it
//! does with positions: in one transaction the dead letter is removed or replaced by the copies that failed again. So a
//! crash at any point repeats what was not committed, and loses nothing.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anabranch_graph::exec::{self, Ending, RunOptions, Services};
use anabranch_graph::plan::replay::{NoEntry, ReplayEntry, replay as plan};
use anabranch_plugin::host::{Host, LogSink, Network};
use anabranch_plugin::letter::{KeptLetters, Letter, LetterBounds, LetterStore};
use anabranch_plugin::schema::SchemaRegistry;
use anabranch_plugin::source::{Acker, OpenedSource, Read, Reader, Room, Source};
use anabranch_plugin::state::{Commit, Epoch, Receipt, StateStore, StoreError, Unit};
use anabranch_plugin::trace::{EarlierTraces, SpanContext, Tracing};
use anabranch_record::code::Code;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{LaneId, Mark, Partition};
use anabranch_record::text::Str;
use anabranch_record::{Position, Record};
use anabranch_store::letters::{ReplayedLetter, StoredLetter, key};
use anabranch_store::{Store, form};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use utoipa::ToSchema;

use super::view;
use crate::codes;
use crate::pipeline::Pipeline;

/// Number of dead letters that are read together.
const PAGE: usize = 64;
/// Maximum number of failures that are listed.
const TOLD: usize = 100;
/// How long records in flight may take to drain after the time is up.
const DRAIN: Duration = Duration::from_secs(4);

/// The node where replayed records enter: `step`, `start`, or the id of a processor or destination. `step:ID` names a
/// node even if its id is one of these words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum ReplayFrom {
    /// At the node where they failed; its condition is evaluated again.
    #[default]
    Step,
    /// Directly after the source that they were read from.
    Start,
    /// At this processor, including its condition, or at this destination.
    At(Str),
}

impl From<String> for ReplayFrom {
    fn from(text: String) -> Self {
        match text.as_str() {
            "step" => ReplayFrom::Step,
            "start" => ReplayFrom::Start,
            id => ReplayFrom::At(id.strip_prefix("step:").unwrap_or(id).into()),
        }
    }
}

impl From<ReplayFrom> for String {
    fn from(from: ReplayFrom) -> Self {
        match from {
            ReplayFrom::Step => "step".to_owned(),
            ReplayFrom::Start => "start".to_owned(),
            ReplayFrom::At(id) => format!("step:{id}"),
        }
    }
}

/// A request to replay dead letters.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The dead letters with these numbers; `None` = all current dead letters.
    pub numbers: Option<Vec<u64>>,
    /// Node where their records enter.
    pub from: ReplayFrom,
    /// The record that replaces the one in the dead letter. Requires exactly one number.
    pub record: Option<Record>,
}

/// The outcome of a replay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplayOutcome {
    /// Dead letters whose records were processed completely.
    pub replayed: u64,
    /// Number of records without a new failure, which were removed from the queue.
    pub delivered: u64,
    /// Number of records with a new failure, whose failed copies are in the queue.
    pub failed_again: u64,
    /// The first hundred failures: records that failed again or could not be tried.
    pub failures: Vec<Failure>,
    /// Numbers of requested dead letters that were not completed: the time was up, or the run failed. They are
    /// unchanged in the queue.
    pub remaining: Vec<u64>,
    /// Reason why the replay ended early, unless the time was up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
}

/// A dead letter that failed again or could not be tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplayFailure)]
pub struct Failure {
    /// Its number.
    pub number: u64,
    /// The node where its record failed.
    #[schema(value_type = String)]
    pub node: Str,
    /// The error.
    pub error: view::LetterError,
}

/// Reason why nothing was replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The dead letter does not exist.
    #[error("there is no dead letter {0}")]
    NotFound(u64),
    /// An edited record requires exactly one dead letter, which it replaces.
    #[error("a record is given for {0} dead letters, but it can replace only one")]
    NotOne(usize),
    /// The requested node does not exist.
    #[error("{0}")]
    NotThere(NoEntry),
    /// The node where the dead letter failed does not exist any more.
    #[error("dead letter {number}: {error}")]
    NoEntry {
        /// The dead letter.
        number: u64,
        /// The reason.
        error: NoEntry,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ReplayError {
    /// Returns the stable code of the error.
    pub fn code(&self) -> Code {
        match self {
            ReplayError::NotFound(_) => codes::DEAD_LETTER_NOT_FOUND,
            ReplayError::NotOne(_) => codes::DEAD_LETTER_NOT_ONE,
            ReplayError::NotThere(_) | ReplayError::NoEntry { .. } => codes::DEAD_LETTER_NO_STEP,
            ReplayError::Store(_) => codes::STORE_UNAVAILABLE,
        }
    }

    /// Returns the remedy, if there is one.
    pub fn suggestion(&self) -> Option<&'static str> {
        match self {
            ReplayError::NoEntry { error: NoEntry::Gone(_) | NoEntry::Ambiguous(_), .. } => {
                Some("replay it from the start with --from start, or from another node with --from ID")
            }
            ReplayError::NotThere(NoEntry::Several(..)) => None,
            ReplayError::NotThere(_) => {
                Some("`anabranch pipelines describe` lists the connectors and processors of a pipeline")
            }
            _ => None,
        }
    }
}

/// The services that a replay uses.
#[derive(Clone)]
pub struct Tools {
    /// The state store, which contains the dead letters.
    pub store: Store,
    /// Receives the log lines of processors and destinations.
    pub log: Arc<dyn LogSink>,
    /// The schema registry.
    pub schemas: Arc<dyn SchemaRegistry>,
    /// The runtime of the replay.
    pub executor: Handle,
    /// Tracing of the replay, if configured.
    pub traces: Option<Tracing>,
}

/// Replays dead letters of a pipeline that does not run, the oldest first. Dead letters that are not done when `halt`
/// completes stay.
///
/// # Errors
/// Nothing was replayed. Later failures are part of the outcome.
pub async fn replay(
    tools: &Tools,
    pipeline: &Pipeline,
    request: Request,
    halt: impl Future<Output = ()>,
) -> Result<ReplayOutcome, ReplayError> {
    let id = &pipeline.config.id.value;
    let asked = request.numbers.as_ref().map_or(0, Vec::len);
    if request.record.is_some() && asked != 1 {
        return Err(ReplayError::NotOne(asked));
    }
    let groups = grouped(tools, id, &request).await?;
    let chosen = matches!(request.from, ReplayFrom::At(_));
    let mut outcome = ReplayOutcome::default();
    let mut refused = None;
    let mut halt = std::pin::pin!(halt);
    let mut halted = false;
    let mut groups = groups.into_iter();
    for ((entry, connector), numbers) in groups.by_ref() {
        let queue = Arc::new(ReplayRun::new(&tools.store, id, &numbers, request.record.clone()));
        let source: Arc<dyn Source> = Arc::new(ReplayedLetters(queue.clone()));
        let stages = match plan(&pipeline.compiled, &entry, &connector, source) {
            Ok(stages) => stages,
            Err(error) if chosen && outcome == ReplayOutcome::default() => return Err(ReplayError::NotThere(error)),
            Err(error) => {
                for number in &numbers {
                    let message = error.to_string().into();
                    let error = view::LetterError { code: Str::from_static("no_step"), message };
                    outcome.tell(Failure { number: *number, node: Str::default(), error });
                    outcome.remaining.push(*number);
                }
                refused = refused.or(numbers.first().map(|number| ReplayError::NoEntry { number: *number, error }));
                continue;
            }
        };
        let services = Services {
            store: queue.clone(),
            letters: Some(queue.clone()),
            log: tools.log.clone(),
            result_cache: Arc::new(tools.store.clone()),
            active: Arc::new(tools.store.clone()),
            schemas: tools.schemas.clone(),
            network: Network::Open,
            shared: None,
        };
        let mask: Arc<[Str]> = pipeline.compiled.secrets.clone().into();
        let traces = tools.traces.clone();
        let traces = traces.map(|tracing| Tracing { past: Some(queue.clone()), ..tracing });
        let options = RunOptions { once: true, mask: mask.clone(), traces, ..RunOptions::default() };
        let mut running = {
            let _on_executor = tools.executor.enter();
            exec::start(Arc::new(stages), services, options)
        };
        let ending = tokio::select! {
            ending = running.wait() => ending,
            () = &mut halt => {
                halted = true;
                running.stop(Some(DRAIN));
                running.wait().await
            }
        };
        queue.add_results(&mut outcome);
        outcome.stopped = match ending {
            Ending::Finished | Ending::Stopped => None,
            Ending::NotDrained { left } => {
                let left: Vec<&str> = left.iter().map(Str::as_str).collect();
                Some(format!("not all records were delivered in time: records remained in {}", left.join(", ")))
            }
            Ending::Faulted(fault) => Some(anabranch_plugin::secret::mask(&fault.to_string(), &mask)),
            Ending::Killed => Some("the run was killed".to_owned()),
        };
        if halted || outcome.stopped.is_some() {
            break;
        }
    }
    outcome.remaining.extend(groups.flat_map(|(_, numbers)| numbers));
    outcome.remaining.sort_unstable();
    match refused {
        Some(error) if outcome.replayed == 0 && outcome.stopped.is_none() && !halted => Err(error),
        _ => Ok(outcome),
    }
}

/// The node where dead letters enter, and the source that they were read from.
type ReplayGroup = (ReplayEntry, Str);

/// Groups the dead letters by where they enter. Groups are in the order of their first dead letters, and dead letters
/// within a group from old to new.
async fn grouped(tools: &Tools, id: &Str, request: &Request) -> Result<Vec<(ReplayGroup, Vec<u64>)>, ReplayError> {
    let mut numbers = match &request.numbers {
        Some(numbers) => numbers.clone(),
        None => view::numbers(&tools.store, id).await?,
    };
    numbers.sort_unstable();
    numbers.dedup();
    let mut groups: Vec<(ReplayGroup, Vec<u64>)> = Vec::new();
    let mut left = &numbers[..];
    while let Some(first) = left.first() {
        let wanted = &left[..left.len().min(PAGE)];
        let found = tools.store.letters_numbered(id, wanted.to_vec()).await?;
        let Some((last, _)) = found.last() else {
            // If all dead letters are replayed, some may have been removed meanwhile.
            if request.numbers.is_some() {
                return Err(ReplayError::NotFound(*first));
            }
            left = &left[wanted.len()..];
            continue;
        };
        let passed = wanted.iter().take_while(|number| *number <= last).count();
        if request.numbers.is_some()
            && let Some(missing) =
                wanted[..passed].iter().find(|number| found.binary_search_by_key(*number, |(n, _)| *n).is_err())
        {
            return Err(ReplayError::NotFound(*missing));
        }
        for (number, stored) in &found {
            let letter = form::decode(&stored.content)?;
            let entry = match request.from {
                // A dead letter without a known node, or of the source itself, enters at the start.
                ReplayFrom::At(ref id) => ReplayEntry::Step(id.clone()),
                ReplayFrom::Step if !letter.node.is_empty() && letter.node != letter.lane.connector => {
                    ReplayEntry::Step(letter.node)
                }
                ReplayFrom::Step | ReplayFrom::Start => ReplayEntry::Start,
            };
            let group = (entry, letter.lane.connector);
            match groups.iter_mut().find(|(known, _)| *known == group) {
                Some((_, numbers)) => numbers.push(*number),
                None => groups.push((group, vec![*number])),
            }
        }
        left = &left[passed..];
    }
    Ok(groups)
}

impl ReplayOutcome {
    fn tell(&mut self, failure: Failure) {
        if self.failures.len() < TOLD {
            self.failures.push(failure);
        }
    }
}

/// The dead letters of a run: its input, and the state store that it commits to.
struct ReplayRun {
    store: Store,
    pipeline: Str,
    /// Replaces the record of the only dead letter.
    record: Option<Record>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Numbers of dead letters that were not read yet.
    waiting: VecDeque<u64>,
    /// Dead letters that were read, in order: the rows of the run's lane.
    read: Vec<OriginalLetter>,
    /// Number of leading rows that are settled.
    settled: usize,
    /// Copies that failed again, by row.
    failed: BTreeMap<u64, Vec<Letter>>,
    replayed: u64,
    failures: Vec<Failure>,
    failed_again: u64,
}

/// The values of a dead letter before it was replayed.
#[derive(Clone)]
struct OriginalLetter {
    number: u64,
    first: u64,
    attempts: u32,
    name: Str,
    slot: u32,
    lane: LaneId,
    generation: u64,
    seq: u64,
    trace: Option<SpanContext>,
}

impl OriginalLetter {
    /// Returns the stored dead letter of a copy that failed again. The first copy keeps the name of the dead letter and
    /// gets the new failure; the names of others are derived from it.
    fn again(&self, index: usize, copy: &Letter) -> Result<StoredLetter, StoreError> {
        let name = if index == 0 { self.name.clone() } else { Str::from(format!("{}>{}", self.name, copy.name)) };
        let letter = Letter {
            name: name.clone(),
            slot: self.slot,
            lane: self.lane.clone(),
            generation: self.generation,
            seq: self.seq,
            ..copy.clone()
        };
        let content = form::encode(&letter)?;
        Ok(StoredLetter { first: self.first, attempts: self.attempts.saturating_add(1), key: key(&name), content })
    }
}

impl ReplayRun {
    fn new(store: &Store, pipeline: &Str, numbers: &[u64], record: Option<Record>) -> Self {
        let state = State { waiting: numbers.iter().copied().collect(), ..State::default() };
        ReplayRun { store: store.clone(), pipeline: pipeline.clone(), record, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the results of the run to the outcome.
    fn add_results(&self, outcome: &mut ReplayOutcome) {
        let mut state = self.state();
        outcome.replayed += state.replayed;
        outcome.failed_again += state.failed_again;
        outcome.delivered += state.replayed - state.failed_again;
        std::mem::take(&mut state.failures).into_iter().for_each(|failure| outcome.tell(failure));
        let open = state.read[state.settled..].iter().map(|original| original.number);
        outcome.remaining.extend(open.chain(state.waiting.iter().copied()));
    }
}

#[async_trait]
impl StateStore for ReplayRun {
    async fn claim(&self, unit: &Unit) -> Result<Epoch, StoreError> {
        Ok(Epoch { unit: unit.clone(), number: 1 })
    }

    async fn load(&self, _: &Epoch) -> Result<BTreeMap<LaneId, Mark>, StoreError> {
        Ok(BTreeMap::new())
    }

    async fn receipts(&self, _: &Epoch) -> Result<Vec<Receipt>, StoreError> {
        Ok(Vec::new())
    }

    async fn commit(&self, _: &Epoch, commit: Commit<'_>) -> Result<(), StoreError> {
        let Some(seq) = commit.moves.iter().map(|(_, mark)| mark.seq).max() else { return Ok(()) };
        let (rows, to) = {
            let state = self.state();
            let to = usize::try_from(seq).unwrap_or(usize::MAX).min(state.read.len());
            let rows: Vec<(OriginalLetter, Vec<Letter>)> = (state.settled..to)
                .map(|row| (state.read[row].clone(), state.failed.get(&(row as u64)).cloned().unwrap_or_default()))
                .collect();
            (rows, to)
        };
        let mut settled = Vec::with_capacity(rows.len());
        for (original, copies) in &rows {
            let copies = copies.iter().enumerate().map(|(index, copy)| original.again(index, copy));
            settled.push(ReplayedLetter { number: original.number, copies: copies.collect::<Result<_, _>>()? });
        }
        self.store.settle_letters(&self.pipeline, settled).await?;
        let mut state = self.state();
        for (original, copies) in rows {
            state.replayed += 1;
            state.failed_again += u64::from(!copies.is_empty());
            for copy in copies.into_iter().take(TOLD.saturating_sub(state.failures.len())) {
                let error = view::LetterError { code: copy.code, message: copy.message };
                state.failures.push(Failure { number: original.number, node: copy.node, error });
            }
        }
        state.settled = to;
        state.failed.retain(|row, _| *row >= to as u64);
        Ok(())
    }
}

#[async_trait]
impl LetterStore for ReplayRun {
    /// Collects the copies. Until the row is settled, the original dead letter preserves the record.
    async fn keep_letters(&self, _: &Epoch, letters: Vec<Letter>, _: &LetterBounds) -> Result<KeptLetters, StoreError> {
        let kept = letters.len();
        let mut state = self.state();
        for letter in letters {
            state.failed.entry(letter.seq).or_default().push(letter);
        }
        Ok(KeptLetters { kept, ..KeptLetters::default() })
    }
}

impl EarlierTraces for ReplayRun {
    fn failed_in(&self, row: u64) -> Option<SpanContext> {
        self.state().read.get(usize::try_from(row).ok()?)?.trace
    }
}

/// The dead letters as a source.
struct ReplayedLetters(Arc<ReplayRun>);

#[async_trait]
impl Source for ReplayedLetters {
    fn catches_up(&self) -> bool {
        true
    }

    async fn open(&self, _: &BTreeMap<Partition, Mark>, _: &Host) -> Result<OpenedSource, Fault> {
        Ok(OpenedSource::new(Box::new(LetterReader(self.0.clone())), Box::new(DiscardingAcker)))
    }
}

struct LetterReader(Arc<ReplayRun>);

#[async_trait]
impl Reader for LetterReader {
    async fn read(&mut self, room: Room) -> Result<Read, Fault> {
        let queue = &self.0;
        loop {
            let wanted: Vec<u64> = queue.state().waiting.iter().copied().take(room.rows.clamp(1, PAGE)).collect();
            if wanted.is_empty() {
                return Ok(Read::End);
            }
            let found = queue.store.letters_numbered(&queue.pipeline, wanted.clone()).await.map_err(unread)?;
            // There is no await point after this: numbers leave the queue only together with the read of their dead
            // letters.
            let last = found.last().map_or(u64::MAX, |(number, _)| *number);
            let passed = wanted.iter().take_while(|number| **number <= last).count();
            let mut originals = Vec::with_capacity(found.len());
            let mut records = Vec::with_capacity(found.len());
            for (number, stored) in found {
                let Letter { name, slot, lane, generation, seq, record, trace, .. } =
                    form::decode(&stored.content).map_err(unread)?;
                let StoredLetter { first, attempts, .. } = stored;
                let position = record.position().clone();
                let record = queue.record.clone().unwrap_or(record);
                // The position from the source; a dead letter without one uses its number.
                let numbered = || Position::copy_from(number.to_string().as_bytes());
                let position = if position.0.is_empty() { numbered() } else { position };
                records.push(record.with_position(position));
                originals.push(OriginalLetter { number, first, attempts, name, slot, lane, generation, seq, trace });
            }
            let mut state = queue.state();
            state.waiting.drain(..passed);
            state.read.append(&mut originals);
            if !records.is_empty() {
                return Ok(Read::Rows { partition: Partition::ONLY, records });
            }
        }
    }
}

fn unread(error: StoreError) -> Fault {
    Fault::fatal(codes::LETTERS_UNREADABLE, error)
}

/// Ignores acknowledgements: the source was acknowledged when the dead letters were stored.
struct DiscardingAcker;

#[async_trait]
impl Acker for DiscardingAcker {
    async fn ack(&mut self, _: &Partition, _: &[Position]) -> Result<(), Fault> {
        Ok(())
    }
}
