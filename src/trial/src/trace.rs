//! The history of each record in a trial.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use anabranch_graph::codes;
use anabranch_graph::plan::graph::RouteNode;
use anabranch_graph::plan::stage::{StageId, StageKind, StagePlan, StepCondition, Unmatched};
use anabranch_record::Record;
use anabranch_record::metadata::key;
use anabranch_record::text::Str;

/// Id of a step: a processor or a destination of the plan. Ids are ordered as records pass them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StepId {
    /// The stage.
    pub stage: StageId,
    /// Index of the step in the stage.
    pub step: usize,
}

/// Description of a step: a processor or a destination.
#[derive(Clone, Debug)]
pub struct StepInfo {
    /// Its id.
    pub id: StepId,
    /// Id of the processor or connector.
    pub node: Str,
    /// Name of its plugin.
    pub plugin: Str,
    /// True if it has a condition.
    pub conditional: bool,
    /// What becomes of records for no destination, if the step routes records to destinations.
    pub routes: Option<Unmatched>,
}

/// Event of a record at a node.
#[derive(Clone, Debug)]
pub enum StepOutcome {
    /// It continued, changed or not.
    Kept(Record),
    /// It was replaced by these records.
    Split(Vec<Record>),
    /// It was filtered.
    Dropped,
    /// It failed and goes to the dead-letter queue.
    Failed {
        /// Stable code.
        code: Str,
        /// The reason, without secrets.
        message: Str,
    },
    /// The condition of the processor did not match.
    NotApplied,
    /// It reached a destination. If the destination writes records one by one, this is what it would write.
    Delivered(Option<Vec<u8>>),
}

/// An event of a record, or of a piece of it.
#[derive(Clone, Debug)]
pub struct Event {
    /// The step.
    pub step: StepId,
    /// The record as it entered the step; `None` if unknown.
    pub before: Option<Record>,
    /// The event.
    pub outcome: StepOutcome,
}

/// A record that was read, and all events of it and of its pieces, in the order of the steps.
#[derive(Clone, Debug)]
pub struct History {
    /// Id of the source.
    pub source: Str,
    /// The record.
    pub record: Record,
    /// The events.
    pub events: Vec<Event>,
}

/// Collects events. Memory grows with the records of the trial and their pieces.
#[derive(Default)]
pub struct Trace {
    state: Mutex<State>,
}

/// A record is identified by its position, which all its pieces share: by the address of the bytes if they are shared,
/// or by their content if a processor created a new record. The histories keep the bytes alive.
#[derive(Default)]
struct State {
    histories: Vec<History>,
    by_address: HashMap<usize, usize>,
    by_bytes: HashMap<bytes::Bytes, usize>,
}

impl State {
    fn of(&mut self, record: &Record) -> Option<&mut History> {
        let position = &record.position().0;
        let found = self.by_address.get(&(position.as_ptr() as usize)).or_else(|| self.by_bytes.get(position));
        found.and_then(|index| self.histories.get_mut(*index))
    }
}

impl Trace {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a record was read. Its position must not share bytes with another record.
    pub(super) fn read(&self, source: &Str, record: &Record) {
        let mut state = self.state();
        let index = state.histories.len();
        let position = &record.position().0;
        state.by_address.insert(position.as_ptr() as usize, index);
        state.by_bytes.entry(position.clone()).or_insert(index);
        state.histories.push(History { source: source.clone(), record: record.clone(), events: Vec::new() });
    }

    /// Records an event.
    pub(super) fn note(&self, step: StepId, before: Record, outcome: StepOutcome) {
        if let Some(history) = self.state().of(&before) {
            history.events.push(Event { step, before: Some(before), outcome });
        }
    }

    /// Records a dead letter.
    pub(super) fn failed(&self, letter: &Record, steps: &[StepInfo]) {
        let entry = |key: &Str| letter.metadata.get(key).cloned().unwrap_or_default();
        let node = entry(&key::DLQ_NACK_NODE_ID);
        // The conditions of destinations have names of their own.
        let is_rule = |step: &&StepInfo| step.routes.is_some() && node.ends_with('?');
        let step = steps.iter().find(|step| step.node == node).or_else(|| steps.iter().find(is_rule));
        let Some(step) = step else { return };
        let code = entry(&key::DLQ_NACK_CODE);
        let outcome = match step.routes {
            Some(Unmatched::Drop) if code == *codes::UNMATCHED.name() => StepOutcome::Dropped,
            _ => StepOutcome::Failed { code, message: entry(&key::DLQ_NACK_ERROR) },
        };
        if let Some(history) = self.state().of(letter) {
            history.events.push(Event { step: step.id, before: None, outcome });
        }
    }

    /// Returns the histories so far, in the order in which records were read.
    pub fn histories(&self, plan: &StagePlan, steps: &[StepInfo]) -> Vec<History> {
        let reach = Reachability::of(plan);
        let mut histories = self.state().histories.clone();
        for history in &mut histories {
            let passed = |step: &&StepInfo| {
                let later = |event: &Event| event.step > step.id && reach.leads(step.id.stage, event.step.stage);
                step.conditional
                    && reach.starts(&history.source, step.id.stage)
                    && history.events.iter().any(later)
                    && !history.events.iter().any(|event| event.step == step.id)
            };
            let not_applied: Vec<Event> = steps
                .iter()
                .filter(passed)
                .map(|step| Event { step: step.id, before: None, outcome: StepOutcome::NotApplied })
                .collect();
            history.events.extend(not_applied);
            history.events.sort_by_key(|event| event.step);
        }
        histories
    }
}

/// The stages that each stage leads to.
struct Reachability {
    pairs: BTreeSet<(StageId, StageId)>,
    sources: HashMap<Str, StageId>,
}

impl Reachability {
    fn of(plan: &StagePlan) -> Self {
        let mut pairs: BTreeSet<(StageId, StageId)> =
            (0..plan.stages.len()).map(|stage| (StageId(stage), StageId(stage))).collect();
        // Stages precede their successors, so one pass in the order of the wire ends finds all pairs.
        let mut wires = plan.wires.clone();
        wires.sort_by_key(|wire| wire.to);
        for wire in wires {
            let before: Vec<StageId> = pairs.iter().filter(|(_, to)| *to == wire.from).map(|(from, _)| *from).collect();
            pairs.extend(before.into_iter().map(|from| (from, wire.to)));
        }
        let sources = plan.stages.iter().enumerate().filter_map(|(index, stage)| match &stage.kind {
            StageKind::Read(read) => Some((read.connector.clone(), StageId(index))),
            _ => None,
        });
        Reachability { pairs, sources: sources.collect() }
    }

    fn leads(&self, from: StageId, to: StageId) -> bool {
        self.pairs.contains(&(from, to))
    }

    fn starts(&self, source: &Str, at: StageId) -> bool {
        self.sources.get(source).is_some_and(|stage| self.leads(*stage, at))
    }
}

/// Returns the processors and destinations of a plan, in the order of their ids.
pub fn steps(plan: &StagePlan) -> Vec<StepInfo> {
    let mut steps = Vec::new();
    for (index, stage) in plan.stages.iter().enumerate() {
        let id = |step| StepId { stage: StageId(index), step };
        let of = match &stage.kind {
            StageKind::Chain(steps) | StageKind::Parallel { steps, .. } | StageKind::Isolate { steps, .. } => {
                steps.as_slice()
            }
            StageKind::Async { step, .. } => std::slice::from_ref(step),
            StageKind::Write(write) => {
                let (node, plugin) = (write.connector.clone(), write.plugin.clone());
                steps.push(StepInfo { id: id(0), node, plugin, conditional: false, routes: None });
                continue;
            }
            StageKind::Route(route) => {
                let (node, plugin) = (Str::from_static(RouteNode::NODE), Str::from_static("route"));
                steps.push(StepInfo { id: id(0), node, plugin, conditional: false, routes: Some(route.unmatched) });
                continue;
            }
            StageKind::Read(_) => continue,
        };
        steps.extend(of.iter().enumerate().map(|(at, step)| StepInfo {
            id: id(at),
            node: step.node.clone(),
            plugin: step.plugin.clone(),
            conditional: !matches!(step.condition, StepCondition::Always),
            routes: None,
        }));
    }
    steps
}
