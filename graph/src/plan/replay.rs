//! The part of a plan through which records go that failed once: from the step where they failed, or from right behind
//! the source that they were read from, to the destinations.
//!
//! It is surgery on the rewritten graph, before stages are cut: what the entry does not lead to is taken away, and a
//! source that has the records is put in front. Everything else is what the pipeline runs, compiled by the same passes.

use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::destination::{Destination, Retry, WritePolicy, Writer};
use anabranch_plugin::host::Host;
use anabranch_plugin::letter::LetterBounds;
use anabranch_plugin::source::Source;
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use async_trait::async_trait;
use petgraph::stable_graph::NodeIndex;

use super::Compiled;
use super::fuse::fuse;
use super::graph::{Edge, Node, NodeKind, PlanGraph, Port, predecessors, unwire_failures};
use super::rewrite::rewrite;
use super::stage::{ReadSpec, StagePlan};

/// Where records enter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Entry {
    /// At a processor, its condition included, or at a destination; by its id. That of a processor of a connector is
    /// `connector:processor`; the part behind the colon will do where it is the only such processor.
    Step(Str),
    /// Behind this source: its own processors come first.
    Start,
}

/// Why records cannot enter there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoEntry {
    /// The pipeline has no such step any more.
    #[error("the pipeline has no processor or destination {0:?} that records come to")]
    Gone(Str),
    /// A processor and a destination have one id.
    #[error("the pipeline has a processor and a destination {0:?}: at which of them it failed cannot be told")]
    Ambiguous(Str),
    /// Several connectors have a processor of this id.
    #[error("several connectors of the pipeline have a processor {0:?}: write {1}")]
    Several(Str, String),
    /// The pipeline has no such source any more.
    #[error("the pipeline has no source {0:?}")]
    NoSource(Str),
    /// A defect.
    #[error("{0}")]
    Unsound(String),
}

/// The plan for records that were read from the source connector `connector` and now come from `source`.
///
/// Failures are never too many in it, and their letters go to the state store of the run. Destinations write without
/// marks: no position is touched, neither in the store nor in a transactional destination. O(nodes × rewrites that apply).
///
/// # Errors
/// There is no such place to enter.
pub fn replay(
    compiled: &Compiled,
    entry: &Entry,
    connector: &Str,
    source: Arc<dyn Source>,
) -> Result<StagePlan, NoEntry> {
    let mut plan = compiled.rewritten.clone();
    // They are wired again by the rewrites.
    unwire_failures(&mut plan);
    let first = match entry {
        Entry::Step(id) => {
            let id = &whole_id(&compiled.lowered, id)?;
            match step(&plan, id) {
                Err(NoEntry::Gone(_)) => {
                    // A step whose condition never holds is not in the rewritten plan; before the rewrites it has a place.
                    plan = compiled.lowered.clone();
                    unwire_failures(&mut plan);
                    before_unapplied(&plan, step(&plan, id)?)
                }
                found => found?,
            }
        }
        Entry::Start => behind(&plan, connector)?,
    };
    let sources: Vec<NodeIndex> =
        plan.node_indices().filter(|node| matches!(plan[*node].kind, NodeKind::Source(_))).collect();
    sources.into_iter().for_each(|source| drop(plan.remove_node(source)));
    for (_, before) in predecessors(&plan, first) {
        if let Some(edge) = plan.find_edge(before, first) {
            plan.remove_edge(edge);
        }
    }
    // Nobody is before it to take the verdicts over from.
    if let Some(guard) = plan[first].kind.operator_mut().and_then(|operator| operator.guard.as_mut()) {
        guard.as_before = false;
    }
    let read = ReadSpec {
        connector: connector.clone(),
        plugin: Str::from_static("replay"),
        source,
        batch_rows: None,
        batch_delay: Duration::ZERO,
    };
    let source = plan.add_node(Node {
        id: connector.clone(),
        kind: NodeKind::Source(read),
        settings: Vec::new(),
        span: Default::default(),
        path: Str::default(),
    });
    plan.add_edge(source, first, Edge { port: Port::Out });
    for node in plan.node_weights_mut() {
        match &mut node.kind {
            NodeKind::Destination(write) => write.destination = Unmarked::around(&write.destination),
            NodeKind::DeadLetter(queue) => {
                queue.destination = Arc::new(Kept);
                (queue.window_size, queue.threshold) = (0, 0);
            }
            _ => {}
        }
    }
    rewrite(&mut plan);
    let unsound = |findings: anabranch_plugin::diagnostic::Diagnostics| {
        NoEntry::Unsound(findings.iter().map(|finding| finding.message.clone()).collect::<Vec<_>>().join("; "))
    };
    Ok(fuse(&compiled.stages.pipeline, &plan, compiled.stages.limits).map_err(unsound)?.plan)
}

fn is_step(kind: &NodeKind) -> bool {
    kind.operator().is_some() || matches!(kind, NodeKind::Destination(_))
}

/// The id of a step that is named by the whole of it, or by its last part.
fn whole_id(plan: &PlanGraph, id: &Str) -> Result<Str, NoEntry> {
    let steps = || plan.node_weights().filter(|node| is_step(&node.kind)).map(|node| &node.id);
    if steps().any(|step| step == id) {
        return Ok(id.clone());
    }
    let found: Vec<&Str> =
        steps().filter(|step| step.rsplit_once(':').is_some_and(|(_, last)| *last == **id)).collect();
    match found.as_slice() {
        [] => Ok(id.clone()),
        [only] => Ok((*only).clone()),
        several => {
            let all: Vec<&str> = several.iter().map(|step| step.as_str()).collect();
            Err(NoEntry::Several(id.clone(), all.join(" or ")))
        }
    }
}

fn step(plan: &PlanGraph, id: &Str) -> Result<NodeIndex, NoEntry> {
    let mut found = plan.node_indices().filter(|node| plan[*node].id == *id && is_step(&plan[*node].kind));
    match (found.next(), found.next()) {
        (Some(only), None) => Ok(only),
        (Some(_), Some(_)) => Err(NoEntry::Ambiguous(id.clone())),
        (None, _) => Err(NoEntry::Gone(id.clone())),
    }
}

/// The condition of a step that is never applied: records that come to it go on behind the step.
fn before_unapplied(plan: &PlanGraph, step: NodeIndex) -> NodeIndex {
    let is_condition =
        |(port, node): &(Port, NodeIndex)| *port == Port::Taken && matches!(plan[*node].kind, NodeKind::Branch(_));
    predecessors(plan, step).into_iter().find(is_condition).map_or(step, |(_, condition)| condition)
}

fn behind(plan: &PlanGraph, connector: &Str) -> Result<NodeIndex, NoEntry> {
    let is_it = |node: &NodeIndex| plan[*node].id == *connector && matches!(plan[*node].kind, NodeKind::Source(_));
    let source = plan.node_indices().find(is_it);
    let first = source.and_then(|source| super::graph::successors(plan, source).into_iter().next());
    first.map(|(_, node)| node).ok_or_else(|| NoEntry::NoSource(connector.clone()))
}

/// A destination whose transactions store no marks: rows that come from elsewhere than the lane must not move them.
struct Unmarked(Arc<dyn Destination>);

impl Unmarked {
    fn around(destination: &Arc<dyn Destination>) -> Arc<dyn Destination> {
        match destination.policy().retry {
            Retry::Transactional => Arc::new(Unmarked(destination.clone())),
            Retry::Idempotent | Retry::AtMostOnce => destination.clone(),
        }
    }
}

#[async_trait]
impl Destination for Unmarked {
    async fn open(&self, host: &Host) -> Result<Box<dyn Writer>, Fault> {
        self.0.open(host).await
    }

    // Without marks, a write whose outcome is unknown may come twice.
    fn policy(&self) -> WritePolicy {
        WritePolicy { retry: Retry::Idempotent, ..self.0.policy() }
    }
}

/// The queue of a replay: the store of the run knows which letters are tried again.
struct Kept;

#[async_trait]
impl Destination for Kept {
    async fn open(&self, _: &Host) -> Result<Box<dyn Writer>, Fault> {
        Err(Fault::fatal("plan_broken", "the queue of a replay is not opened"))
    }

    fn policy(&self) -> WritePolicy {
        WritePolicy { rows: 1024, bytes: 1 << 20, linger: Duration::ZERO, retry: Retry::Idempotent }
    }

    fn keeps_letters(&self) -> Option<LetterBounds> {
        Some(LetterBounds::NONE)
    }
}
