//! The required outcome of a row, computed one record at a time, without batches, credit or time.

use anabranch_graph::plan::graph::RouteNode;

use crate::scenario::{AppliesTo, Execution, ProcessorAction, Scenario, ScenarioProcessor, hits, mix};

/// The part of a record that the simulation looks at. Its id encodes all changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Changes with every processor that is applied.
    pub id: u64,
    /// The value that conditions test.
    pub mark: u8,
}

/// The result of a processor for a record.
pub enum ProcessorOutput {
    /// The record stays.
    Keep(Copy),
    /// These records replace it.
    Pieces(Vec<Copy>),
    /// The record is dropped.
    Filter,
    /// The record fails.
    Fail,
    /// The processor panics.
    Panic,
}

/// The required outcome of a record.
#[derive(Clone, Debug, PartialEq)]
pub enum RequiredOutcome {
    /// It is delivered to a destination and durable there.
    Delivered(usize, u64),
    /// A dead letter exists, from this node and for this record; `Some` = the record had reached this destination.
    Letter(String, u64, Option<usize>),
    /// The record has no output.
    Filtered,
    /// All of these outcomes.
    All(Vec<RequiredOutcome>),
    /// One of these outcomes.
    Either(Box<[RequiredOutcome; 2]>),
}

impl AppliesTo {
    /// Returns `true` if the condition holds for the record; `None` if it fails.
    fn holds(self, copy: Copy) -> Option<bool> {
        match self {
            AppliesTo::Always => Some(true),
            AppliesTo::Never => Some(false),
            AppliesTo::Is(mark) => Some(copy.mark == mark),
            AppliesTo::Text => [Some(false), Some(true), None][usize::from(copy.mark.min(2))],
        }
    }
}

impl ScenarioProcessor {
    /// Returns `true` if the processor is applied to the record; `None` if the condition fails.
    pub fn holds(&self, copy: Copy) -> Option<bool> {
        self.when.holds(copy)
    }

    /// Returns the result for a record that the processor is applied to.
    pub fn apply(&self, copy: Copy) -> ProcessorOutput {
        let tagged = |n: u64| Copy { id: mix(mix(copy.id, self.salt), n), ..copy };
        if !hits(self.salt, copy.id, self.one_in) {
            return ProcessorOutput::Keep(tagged(0));
        }
        match self.action {
            ProcessorAction::Tag => ProcessorOutput::Keep(tagged(1)),
            ProcessorAction::Set(mark) => ProcessorOutput::Keep(Copy { mark, ..tagged(1) }),
            ProcessorAction::Filter => ProcessorOutput::Filter,
            ProcessorAction::Fail => ProcessorOutput::Fail,
            ProcessorAction::Panic => ProcessorOutput::Panic,
            ProcessorAction::Split { most, .. } => {
                let pieces = mix(copy.id, self.salt ^ 7) % u64::from(most + 1);
                ProcessorOutput::Pieces((1..=pieces).map(tagged).collect())
            }
            ProcessorAction::Clone(copies) => ProcessorOutput::Pieces((1..=u64::from(copies)).map(tagged).collect()),
        }
    }

    /// Returns the result if the processor does not panic.
    pub fn unharmed(&self, copy: Copy) -> Copy {
        Copy { id: mix(mix(copy.id, self.salt), 0), ..copy }
    }
}

/// Returns the required outcome of a row of a source.
pub fn fate(scenario: &Scenario, source: usize, row: Copy) -> RequiredOutcome {
    if scenario.sources[source].fails(row) {
        return RequiredOutcome::Letter(format!("s{source}"), row.id, None);
    }
    let own = named(&format!("s{source}:p"), &scenario.sources[source].processors);
    let processors: Vec<_> = own.into_iter().chain(named("p", &scenario.processors)).collect();
    through(&processors, row, &|copy| {
        let deliver = |(i, sink): (usize, &crate::scenario::Sink)| {
            through(&named(&format!("d{i}:p"), &sink.processors), copy, &|copy| match hits(
                sink.salt,
                copy.id,
                sink.refuses,
            ) {
                true => RequiredOutcome::Letter(format!("d{i}"), copy.id, Some(i)),
                false => RequiredOutcome::Delivered(i, copy.id),
            })
        };
        let receivers = match receivers(scenario, copy) {
            Ok(receivers) => receivers,
            Err(node) => return RequiredOutcome::Letter(node, copy.id, None),
        };
        if receivers.is_empty() {
            return match scenario.unmatched_fails {
                true => RequiredOutcome::Letter(RouteNode::NODE.to_owned(), copy.id, None),
                false => RequiredOutcome::Filtered,
            };
        }
        RequiredOutcome::All(receivers.into_iter().map(|i| deliver((i, &scenario.sinks[i]))).collect())
    })
}

/// Returns the destinations that receive a record, or the condition that fails for it.
fn receivers(scenario: &Scenario, copy: Copy) -> Result<Vec<usize>, String> {
    let sinks = &scenario.sinks;
    if sinks.iter().all(|sink| sink.when == AppliesTo::Always) {
        return Ok((0..sinks.len()).collect());
    }
    let mut holds = Vec::new();
    for (i, sink) in sinks.iter().enumerate() {
        let only_others = sink.when == AppliesTo::Always && sink.otherwise;
        holds.push(!only_others && sink.when.holds(copy).ok_or_else(|| format!("d{i}?"))?);
    }
    let none = !holds.contains(&true);
    Ok((0..sinks.len()).filter(|i| holds[*i] || (none && sinks[*i].otherwise)).collect())
}

fn named<'a>(prefix: &str, processors: &'a [ScenarioProcessor]) -> Vec<(String, &'a ScenarioProcessor)> {
    processors.iter().enumerate().map(|(i, processor)| (format!("{prefix}{i}"), processor)).collect()
}

fn through(
    processors: &[(String, &ScenarioProcessor)],
    copy: Copy,
    then: &dyn Fn(Copy) -> RequiredOutcome,
) -> RequiredOutcome {
    let Some(((node, processor), rest)) = processors.split_first() else { return then(copy) };
    let letter = || RequiredOutcome::Letter(node.clone(), copy.id, None);
    let go_on = |copy| through(rest, copy, then);
    if processor.holds(copy) == Some(false) {
        return go_on(copy);
    }
    let (may_panic, after) = match processor.holds(copy).map(|_| processor.apply(copy)) {
        None | Some(ProcessorOutput::Fail) => return letter(),
        Some(ProcessorOutput::Filter) => (false, RequiredOutcome::Filtered),
        Some(ProcessorOutput::Keep(copy)) => (false, go_on(copy)),
        Some(ProcessorOutput::Pieces(pieces)) => (false, RequiredOutcome::All(pieces.into_iter().map(go_on).collect())),
        Some(ProcessorOutput::Panic) => (true, go_on(processor.unharmed(copy))),
    };
    // An asynchronous or isolated call that panics fails other rows too.
    let takes_others = processor.action == ProcessorAction::Panic && processor.execution != Execution::Inline;
    if may_panic || takes_others { RequiredOutcome::Either(Box::new([letter(), after])) } else { after }
}
