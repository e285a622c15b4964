//! Checks of a plan against real records: problems in templates and fields that only data can show.
//!
//! Few sources declare their fields. For the others, the compiler accepts a template that prints `<no value>` for
//! every record, and no record fails. A trial or a test passes its records to an [`Observer`] and reads its findings at
//! the end.

mod json;
mod keys;
mod named;
mod results;
mod steps;
mod verdicts;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use anabranch_plugin::diagnostic::{Diagnostic, Span};
use anabranch_plugin::flow::{Flow, Place, RecordShape, TrialCheck};
use anabranch_plugin::secret::mask;
use anabranch_record::code::Code;
use anabranch_record::near::did_you_mean;
use anabranch_record::reference::{Reference, Target, push_part};
use anabranch_record::text::Str;
use anabranch_record::value::Value;
use anabranch_record::{Data, Record};
use anabranch_template::Doubt;
use petgraph::stable_graph::NodeIndex;

use crate::codes;
use crate::plan::Compiled;
use crate::plan::flow::{entering, located};
use crate::plan::graph::{Guard, Node, NodeKind};
use crate::plan::stage::StageId;
use json::not_json;
use named::lacking;
use verdicts::Verdicts;

/// Checks the records that reach the processors and destinations of a plan. Costs about two renderings of each template
/// per record.
pub struct Observer {
    /// Indexed by stage and step.
    steps: Vec<Vec<ObservedNode>>,
    /// Values to mask in messages, which quote templates.
    secrets: Vec<Str>,
    seen: Mutex<ObservedProblems>,
}

struct ObservedNode {
    node: Node,
    /// Parts of the settings that are checked.
    looks: Vec<(Place, TrialCheck)>,
    /// Inferred shape of the records that enter the step, if the step also checks observed shapes.
    known: Option<RecordShape>,
}

#[derive(Default)]
struct ObservedProblems {
    /// Number of records by step and part; the condition has the index after the last part.
    records: BTreeMap<(StageId, usize, usize), u64>,
    doubts: BTreeMap<ObservationKey, ObservationCount>,
    verdicts: BTreeMap<(StageId, usize), Verdicts>,
    /// Observed shape and number of the records that entered each step that checks it.
    shapes: BTreeMap<(StageId, usize), (RecordShape, u64)>,
    /// Keys by destination that keeps one record per key.
    keyed: BTreeMap<(StageId, usize), keys::Keyed>,
}

/// Identifies the same problem in several records, whose hints may differ.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ObservationKey {
    stage: StageId,
    step: usize,
    part: usize,
    start: usize,
    end: usize,
    code: Code,
}

#[derive(Default)]
struct ObservationCount {
    records: u64,
    message: String,
    hint: Option<String>,
}

/// A probable mistake.
#[derive(Clone, Debug)]
pub struct ProbableMistake {
    /// Id of the processor or destination.
    pub node: Str,
    /// Name of the plugin.
    pub plugin: Str,
    /// JSON pointer within the pipeline, for example `/processors/0/settings/value`.
    pub path: String,
    /// Place in the file.
    pub span: Span,
    /// Stable code of the problem.
    pub code: Code,
    /// Description of the problem.
    pub message: String,
    /// Remedy.
    pub hint: Option<String>,
    /// Number of affected records.
    pub records: u64,
    /// Number of records that were checked.
    pub of: u64,
}

impl ProbableMistake {
    /// Returns `true` if every record is affected and the mistake is certain.
    pub fn is_of_all(&self) -> bool {
        // A missing field may be optional, unless the hint names a similar field. A shared key may be intended, to keep
        // the last state.
        let sure = (self.code != codes::FLOW_NO_FIELD || self.hint.is_some()) && self.code != codes::FLOW_KEY_SHARED;
        self.records == self.of && sure && !self.is_of_few()
    }

    /// Returns `true` if more records could show that there is no mistake.
    fn is_of_few(&self) -> bool {
        matches!(
            self.code,
            codes::CONDITION_NEVER_HELD
                | codes::CONDITION_ALWAYS_HELD
                | codes::CONDITION_ALL_DROPPED
                | codes::FLOW_KEY_CONSTANT
        )
    }

    /// Returns the problem as a finding in the file.
    pub fn finding(&self) -> Diagnostic {
        let ProbableMistake { node, message, records, of, .. } = self;
        let many = if *of == 1 { "record" } else { "records" };
        let message = match self.is_of_few() {
            true => format!("{node}: {message}"),
            false => format!("{node}: {message}, for {records} of {of} {many}"),
        };
        let finding = Diagnostic::warning(self.code, message).with_span(self.span).with_path(self.path.clone());
        match &self.hint {
            Some(hint) => finding.with_hint(hint.clone()),
            None => finding,
        }
    }
}

impl Observer {
    /// Creates an observer of a pipeline. O(nodes · settings).
    pub fn of(compiled: &Compiled) -> Observer {
        let plan = &compiled.rewritten;
        let asks = |index: &NodeIndex| {
            looks(&plan[*index]).iter().any(|(_, look)| matches!(look, TrialCheck::Step | TrialCheck::Identity(_)))
        };
        let asking: Vec<NodeIndex> = compiled.members.iter().flatten().copied().filter(asks).collect();
        let mut known = entering(plan, &asking);
        let mut step = |index: &NodeIndex| {
            let node: &Node = &plan[*index];
            ObservedNode { node: node.clone(), looks: looks(node), known: known.remove(index) }
        };
        let steps = compiled.members.iter().map(|nodes| nodes.iter().map(&mut step).collect()).collect();
        Observer { steps, secrets: compiled.secrets.clone(), seen: Mutex::default() }
    }

    /// Checks a record that enters a processor or a destination (step 0 of its stage).
    pub fn look(&self, stage: StageId, step: usize, record: &Record) {
        let Some(ObservedNode { looks, .. }) = self.step(stage, step) else { return };
        for (part, (_, look)) in looks.iter().enumerate() {
            let doubts = match look {
                TrialCheck::Template(template) => template.doubts(record),
                TrialCheck::Field(reference) => {
                    let missing = missing(reference, record);
                    self.note(
                        stage,
                        step,
                        part,
                        missing.map(|(message, hint)| (0..0, codes::FLOW_NO_FIELD, message, hint)),
                    );
                    continue;
                }
                TrialCheck::Identity(identity) => {
                    self.note_identity(stage, step, identity, record);
                    continue;
                }
                TrialCheck::Json(template) => {
                    let broken = not_json(template, record);
                    self.note(
                        stage,
                        step,
                        part,
                        broken.map(|(message, hint)| (0..0, codes::TEMPLATE_NOT_JSON, message, Some(hint))),
                    );
                    continue;
                }
                TrialCheck::Named(named) => {
                    let lacking = lacking(named, record);
                    self.note(
                        stage,
                        step,
                        part,
                        lacking.map(|(message, hint)| (0..0, codes::FLOW_NO_FIELD, message, hint)),
                    );
                    continue;
                }
                TrialCheck::Step => {
                    self.note_shape(stage, step, record);
                    continue;
                }
            };
            self.note(stage, step, part, doubts.into_iter().map(doubted));
        }
    }

    /// Checks a record that the condition of a step is evaluated on.
    pub fn look_at_condition(&self, stage: StageId, step: usize, record: &Record) {
        let Some(ObservedNode { node, looks, .. }) = self.step(stage, step) else { return };
        let Some(guard) = guard(node) else { return };
        let doubts = guard.condition.template().doubts(record);
        self.note(stage, step, looks.len(), doubts.into_iter().map(doubted));
        self.decide(stage, step, &guard.condition, record);
    }

    /// Checks the records that a processor created from one record.
    pub fn look_at_pieces(&self, stage: StageId, step: usize, pieces: &[Record]) {
        let Some(ObservedNode { looks, .. }) = self.step(stage, step) else { return };
        let [first, others @ ..] = pieces else { return };
        if others.is_empty() {
            return;
        }
        let same = others.iter().all(|piece| piece == first).then(|| {
            let message = "the processor creates several records from one, and all are the same".to_owned();
            let hint = "a script that returns one object several times returns its last state each time: create a \
                        record for each, for example with const out = Record(), and put the data into it";
            (0..0, codes::FLOW_SAME_PIECES, message, Some(hint.to_owned()))
        });
        // The part index after that of the condition.
        self.note(stage, step, looks.len() + 1, same);
    }

    fn step(&self, stage: StageId, step: usize) -> Option<&ObservedNode> {
        self.steps.get(stage.0)?.get(step)
    }

    fn note(
        &self,
        stage: StageId,
        step: usize,
        part: usize,
        doubts: impl IntoIterator<Item = (std::ops::Range<usize>, Code, String, Option<String>)>,
    ) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        *seen.records.entry((stage, step, part)).or_default() += 1;
        for (at, code, message, hint) in doubts {
            let key = ObservationKey { stage, step, part, start: at.start, end: at.end, code };
            let counted = seen.doubts.entry(key).or_default();
            counted.records += 1;
            if counted.message.is_empty() || (counted.hint.is_none() && hint.is_some()) {
                (counted.message, counted.hint) = (message, hint);
            }
        }
    }

    /// Returns the problems found so far, in step order. A field that is missing from only some records is not
    /// reported, since it may be optional.
    pub fn doubts(&self) -> Vec<ProbableMistake> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut told = BTreeSet::new();
        let mut found = Vec::new();
        for (key, counted) in &seen.doubts {
            let Some(ObservedNode { node, looks, .. }) = self.step(key.stage, key.step) else { continue };
            let of = seen.records.get(&(key.stage, key.step, key.part)).copied().unwrap_or_default();
            if key.code == codes::FLOW_NO_FIELD && counted.records < of {
                continue;
            }
            // If the step reports the object with its place in the script, leave this one out.
            if key.part == looks.len() + 2 && self.is_said(&seen, key.stage, key.step, results::OF_OBJECT) {
                continue;
            }
            if let Some((place, TrialCheck::Named(named))) = looks.get(key.part)
                && (of < named::ENOUGH || !counted.is_worth_a_word(named) || self.is_doubted(&seen, key, place))
            {
                continue;
            }
            // The cause, a missing field or a printed map, is already reported.
            if let (codes::TEMPLATE_NOT_JSON, Some((place, _))) = (key.code, looks.get(key.part))
                && self.is_doubted(&seen, key, place)
            {
                continue;
            }
            let (guard, place) = match looks.get(key.part) {
                Some((place, _)) => (None, place),
                None if key.part > looks.len() => (None, &Place::NODE),
                None => (guard(node), &Place::CONDITION),
            };
            let place = if key.start == key.end { place.clone() } else { place.at(key.start..key.end) };
            let (span, path) = located(node, guard, &place);
            // Report a field once if two parts of a step, or both branches of a template, name it.
            if !told.insert((key.stage, key.step, span.start, span.end, key.code)) {
                continue;
            }
            found.push(ProbableMistake {
                node: node.id.clone(),
                plugin: plugin(node),
                path,
                span,
                code: key.code,
                message: mask(&counted.message, &self.secrets),
                hint: counted.hint.as_deref().map(|hint| mask(hint, &self.secrets)),
                records: counted.records,
                of,
            });
        }
        found.extend(self.of_steps(&seen));
        found
    }
}

fn doubted(doubt: Doubt) -> (std::ops::Range<usize>, Code, String, Option<String>) {
    let Doubt { at, kind, message, hint } = doubt;
    (at, kind.code(), message, hint)
}

/// Returns the parts of the settings of a node that can be checked against real records.
pub(super) fn looks(node: &Node) -> Vec<(Place, TrialCheck)> {
    let mut flow = Flow::gathering();
    match &node.kind {
        NodeKind::Operator(step) | NodeKind::Split(step) => step.operator.flow(&mut flow),
        NodeKind::Destination(write) => write.destination.flow(&mut flow),
        _ => {}
    }
    flow.into_looks()
}

fn guard(node: &Node) -> Option<&Guard> {
    node.kind.operator().and_then(|step| step.guard.as_ref())
}

fn plugin(node: &Node) -> Str {
    match &node.kind {
        NodeKind::Operator(step) | NodeKind::Split(step) => step.plugin.clone(),
        NodeKind::Destination(write) => write.plugin.clone(),
        _ => Str::default(),
    }
}

/// Describes the first missing field of a reference, if the map that should hold it exists.
fn missing(reference: &Reference, record: &Record) -> Option<(String, Option<String>)> {
    let told = |parent: &str, name: &str, names: &[&str]| {
        let hint = did_you_mean(name, names.iter().copied()).map(|near| {
            let mut meant = parent.to_owned();
            push_part(near, &mut meant);
            format!("did you mean {meant}?")
        });
        (format!("the record has no {reference}, so there is nothing to process"), hint)
    };
    match reference.target() {
        Target::Entry(key) if record.metadata.get(key).is_none() => {
            let names: Vec<&str> = record.metadata.iter().map(|(key, _)| key.as_str()).collect();
            Some(told(".Metadata", key, &names))
        }
        Target::Field(side, path) => {
            let Data::Structured(object) = side.of(record) else { return None };
            let mut object = object;
            let mut parent = side.as_str().to_owned();
            for name in path.parents().iter().chain([path.last()]) {
                match object.get(name) {
                    None => {
                        let names: Vec<&str> = object.iter().map(|(name, _)| name.as_str()).collect();
                        return Some(told(&parent, name, &names));
                    }
                    Some(Value::Map(inner)) => object = inner,
                    // Another value in the path fails the record, or is the field itself.
                    Some(_) => return None,
                }
                push_part(name, &mut parent);
            }
            None
        }
        _ => None,
    }
}
