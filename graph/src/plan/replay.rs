//! The part of a plan that replayed records pass through: from the processor in which they failed, or from directly
//! after their source, to the destinations.
//!
//! The rewritten graph is changed before it is fused into stages. Nodes that cannot be reached from the entry are
//! removed, and a source of the replayed records is put in front. The rest is what the pipeline runs, compiled by the
//! same passes.

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
use super::graph::{Edge, Node, NodeKind, PlanGraph, Port, RouteNode, predecessors, unwire_failures};
use super::rewrite::rewrite;
use super::stage::{ReadSpec, StagePlan};
use crate::codes;

/// Place where replayed records enter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReplayEntry {
    /// A processor (condition included) or a destination, by id. The id of a connector's processor is
    /// `connector:processor`; the part after the colon is enough if only one such processor exists.
    Step(Str),
    /// Directly after this source, before its own processors.
    Start,
}

/// Reason why records cannot enter at a place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoEntry {
    /// The pipeline does not have this processor or destination.
    #[error("the pipeline has no processor or destination {0:?} that records reach")]
    Gone(Str),
    /// A processor and a destination have the same id.
    #[error(
        "the pipeline has a processor and a destination {0:?}: the dead letter does not identify which of them failed"
    )]
    Ambiguous(Str),
    /// Several connectors have a processor with this id.
    #[error("several connectors of the pipeline have a processor {0:?}: write {1}")]
    Several(Str, String),
    /// The pipeline does not have this source.
    #[error("the pipeline has no source {0:?}")]
    NoSource(Str),
    /// A defect of the compiler.
    #[error("{0}")]
    Unsound(String),
}

/// Returns the plan for replaying records that were read from connector `connector` and are provided by `source`.
///
/// The number of failures is not limited, and dead letters go to the state store of the run. Destinations write without
/// marks, so positions stay unchanged in the store and in transactional destinations. O(nodes × applied rewrites).
///
/// # Errors
/// The entry does not exist.
pub fn replay(
    compiled: &Compiled,
    entry: &ReplayEntry,
    connector: &Str,
    source: Arc<dyn Source>,
) -> Result<StagePlan, NoEntry> {
    let mut plan = compiled.rewritten.clone();
    // The rewrites connect failures again.
    unwire_failures(&mut plan);
    let first = match entry {
        ReplayEntry::Step(id) => {
            let id = &whole_id(&compiled.lowered, id)?;
            match step(&plan, id) {
                Err(NoEntry::Gone(_)) => {
                    // The rewritten plan lacks a processor whose condition never holds; the lowered plan has it.
                    plan = compiled.lowered.clone();
                    unwire_failures(&mut plan);
                    before_unapplied(&plan, step(&plan, id)?)
                }
                found => found?,
            }
        }
        ReplayEntry::Start => behind(&plan, connector)?,
    };
    let sources: Vec<NodeIndex> =
        plan.node_indices().filter(|node| matches!(plan[*node].kind, NodeKind::Source(_))).collect();
    sources.into_iter().for_each(|source| drop(plan.remove_node(source)));
    for (_, before) in predecessors(&plan, first) {
        if let Some(edge) = plan.find_edge(before, first) {
            plan.remove_edge(edge);
        }
    }
    // No step before it has verdicts to share.
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
                queue.destination = Arc::new(ReplayQueue);
                (queue.window_size, queue.threshold) = (0, 0);
            }
            _ => {}
        }
    }
    rewrite(&mut plan);
    let unsound = |findings: anabranch_plugin::diagnostic::Diagnostics| {
        NoEntry::Unsound(findings.iter().map(|finding| finding.message.clone()).collect::<Vec<_>>().join("; "))
    };
    let fused = fuse(&compiled.stages.pipeline, &plan, compiled.stages.limits).map_err(unsound)?;
    Ok(StagePlan { files_are_shared: compiled.stages.files_are_shared, ..fused.plan })
}

fn is_step(kind: &NodeKind) -> bool {
    kind.operator().is_some() || matches!(kind, NodeKind::Destination(_) | NodeKind::Route(_))
}

/// Returns `true` if a fault with this id came from the node. The conditions of a route have ids of their own.
fn has_id(node: &Node, id: &Str) -> bool {
    let is_rule = |route: &RouteNode| route.rules.iter().any(|rule| rule.node() == *id);
    node.id == *id || matches!(&node.kind, NodeKind::Route(route) if is_rule(route))
}

/// Returns the full id of a step that is given by its full id or by the part after the colon.
fn whole_id(plan: &PlanGraph, id: &Str) -> Result<Str, NoEntry> {
    let steps = || plan.node_weights().filter(|node| is_step(&node.kind)).map(|node| &node.id);
    if steps().any(|step| step == id) || plan.node_weights().any(|node| has_id(node, id)) {
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
    let mut found = plan.node_indices().filter(|node| has_id(&plan[*node], id) && is_step(&plan[*node].kind));
    match (found.next(), found.next()) {
        (Some(only), None) => Ok(only),
        (Some(_), Some(_)) => Err(NoEntry::Ambiguous(id.clone())),
        (None, _) => Err(NoEntry::Gone(id.clone())),
    }
}

/// Returns the condition of a processor that is never applied. Records enter there and continue after the processor.
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

/// A destination that writes without marks in its transactions, since replayed rows must not move the marks of the
/// lane.
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

    // Without marks, a write whose outcome is unknown may be repeated.
    fn policy(&self) -> WritePolicy {
        WritePolicy { retry: Retry::Idempotent, ..self.0.policy() }
    }
}

/// The dead-letter queue of a replay. The state store of the run identifies the dead letters that are replayed.
struct ReplayQueue;

#[async_trait]
impl Destination for ReplayQueue {
    async fn open(&self, _: &Host) -> Result<Box<dyn Writer>, Fault> {
        Err(Fault::fatal(codes::PLAN_BROKEN, "the queue of a replay is not opened"))
    }

    fn policy(&self) -> WritePolicy {
        WritePolicy { rows: 1024, bytes: 1 << 20, linger: Duration::ZERO, retry: Retry::Idempotent }
    }

    fn keeps_letters(&self) -> Option<LetterBounds> {
        Some(LetterBounds::NONE)
    }
}
