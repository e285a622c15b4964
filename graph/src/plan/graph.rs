//! The plan as a graph: one node per connector, processor, condition and junction.

use std::sync::Arc;

use anabranch_plugin::diagnostic::Span;
use anabranch_plugin::operator::{Configured, Signature};
use anabranch_plugin::written::Written;
use anabranch_record::text::Str;
use anabranch_template::condition::CompiledCondition;
use petgraph::Direction;
use petgraph::stable_graph::{NodeIndex, StableDiGraph};
use petgraph::visit::EdgeRef;

use crate::plan::stage::{DeadLetterSpec, ReadSpec, Unmatched, WriteSpec};

/// A plan. Node indices stay valid across rewrites.
pub type PlanGraph = StableDiGraph<Node, Edge>;

/// A node and its place in the file.
#[derive(Clone)]
pub struct Node {
    /// Displayed id. For a connector or processor, the configured id (`connector:processor` for the processors of a
    /// connector). For a condition, the id of the processor followed by `?`.
    pub id: Str,
    /// Kind of the node.
    pub kind: NodeKind,
    /// The configured settings.
    pub settings: Vec<ConfiguredSetting>,
    /// Place in the file: the plugin name, or the condition.
    pub span: Span,
    /// JSON pointer of the node within the pipeline, for example `/processors/0`.
    pub path: Str,
}

/// A configured setting.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ConfiguredSetting {
    /// Name of the setting.
    pub name: Str,
    /// Displayable value: variables by name, credentials masked.
    pub shown: Str,
    /// Place of the value in the file.
    #[serde(skip)]
    pub span: Span,
    /// The value, for locating positions inside it. Never displayed.
    #[serde(skip)]
    pub value: Written,
}

/// Kind of a node.
#[derive(Clone)]
pub enum NodeKind {
    /// Reads records.
    Source(ReadSpec),
    /// Makes at most one record of each record.
    Operator(OperatorNode),
    /// Sends a record to port `Taken` or `Skipped`.
    Branch(Guard),
    /// Sends a copy of each record to every successor.
    FanOut {
        /// Number of successors.
        copies: usize,
    },
    /// Sends a copy of each record to every successor whose rule it fulfils.
    Route(RouteNode),
    /// Makes any number of records of each record, all on one port: `split`, `clone`.
    Split(OperatorNode),
    /// Merges records in order of arrival: from both ports of a branch, or from several sources.
    Merge,
    /// Delivers records.
    Destination(WriteSpec),
    /// Delivers dead letters.
    DeadLetter(DeadLetterSpec),
}

/// A processor in the plan.
#[derive(Clone)]
pub struct OperatorNode {
    /// Name of the plugin.
    pub plugin: Str,
    /// The operator.
    pub operator: Configured,
    /// Signature of the operator.
    pub signature: Signature,
    /// Number of workers, at least 1.
    pub workers: u32,
    /// Condition for rows; `None` if all rows are processed, or if a [`NodeKind::Branch`] before the node holds the
    /// condition.
    pub guard: Option<Guard>,
}

/// A condition in the plan.
#[derive(Clone)]
pub struct Guard {
    /// The condition.
    pub condition: Arc<CompiledCondition>,
    /// Source text. Only the text in the file may be displayed.
    pub written: Written,
    /// True if the node before has the same condition and changes nothing that the condition reads.
    pub as_before: bool,
}

/// The rules by which records reach destinations.
#[derive(Clone)]
pub struct RouteNode {
    /// One rule per successor, in the order of the successors.
    pub rules: Vec<RouteRule>,
    /// What becomes of a record that fulfils no rule.
    pub unmatched: Unmatched,
}

impl RouteNode {
    /// Id of the node. Ids of processors have no question mark.
    pub const NODE: &str = "route?";
}

/// The records that a destination receives.
#[derive(Clone)]
pub struct RouteRule {
    /// Id of the destination.
    pub destination: Str,
    /// The condition of the destination.
    pub guard: Option<Guard>,
    /// True if the destination receives the records that fulfil no condition. A rule with neither is fulfilled by every
    /// record.
    pub otherwise: bool,
    /// JSON pointer of the condition within the pipeline.
    pub path: Str,
}

impl RouteRule {
    /// Id of the condition in faults.
    pub fn node(&self) -> Str {
        format!("{}?", self.destination).into()
    }

    /// Returns `true` if every record fulfils the rule.
    pub fn takes_all(&self) -> bool {
        self.guard.is_none() && !self.otherwise
    }
}

/// An edge of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Output port of the start node.
    pub port: Port,
}

/// Output port of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Port {
    /// Emitted records.
    Out,
    /// Records that satisfy a condition.
    Taken,
    /// Records that do not satisfy a condition.
    Skipped,
    /// Failed records.
    Failed,
}

impl Port {
    /// Returns the name used in printed plans.
    pub const fn as_str(self) -> &'static str {
        match self {
            Port::Out => "out",
            Port::Taken => "taken",
            Port::Skipped => "skipped",
            Port::Failed => "failed",
        }
    }
}

impl NodeKind {
    /// Returns the processor of this node, if the node is one.
    pub fn operator(&self) -> Option<&OperatorNode> {
        match self {
            NodeKind::Operator(operator) | NodeKind::Split(operator) => Some(operator),
            _ => None,
        }
    }

    /// Returns the processor of this node, if the node is one.
    pub fn operator_mut(&mut self) -> Option<&mut OperatorNode> {
        match self {
            NodeKind::Operator(operator) | NodeKind::Split(operator) => Some(operator),
            _ => None,
        }
    }
}

/// Connects every node that can fail to the dead-letter queue, if there is one.
pub fn wire_failures(plan: &mut PlanGraph) {
    let Some(dead_letter) = plan.node_indices().find(|n| matches!(plan[*n].kind, NodeKind::DeadLetter(_))) else {
        return;
    };
    let can_fail = |kind: &NodeKind| match kind {
        NodeKind::Operator(_)
        | NodeKind::Split(_)
        | NodeKind::Branch(_)
        | NodeKind::Route(_)
        | NodeKind::Destination(_) => true,
        NodeKind::Source(_) | NodeKind::FanOut { .. } | NodeKind::Merge | NodeKind::DeadLetter(_) => false,
    };
    let failing: Vec<_> = plan.node_indices().filter(|n| can_fail(&plan[*n].kind)).collect();
    for node in failing {
        plan.add_edge(node, dead_letter, Edge { port: Port::Failed });
    }
}

/// Removes the edges added by [`wire_failures`].
pub fn unwire_failures(plan: &mut PlanGraph) {
    let failures = plan.edge_indices().filter(|e| plan[*e].port == Port::Failed);
    // Last edge first: it is at the head of the edge list of the dead-letter queue, so each removal is O(1).
    for edge in failures.collect::<Vec<_>>().into_iter().rev() {
        plan.remove_edge(edge);
    }
}

/// Returns the successors that records flow to, without failure edges: sorted by port, then in configuration order. O(e
/// log e) for e edges of the node.
pub fn successors(plan: &PlanGraph, node: NodeIndex) -> Vec<(Port, NodeIndex)> {
    neighbours(plan, node, Direction::Outgoing)
}

/// Returns the predecessors that records flow from, with their output ports; sorted as in [`successors`].
pub fn predecessors(plan: &PlanGraph, node: NodeIndex) -> Vec<(Port, NodeIndex)> {
    neighbours(plan, node, Direction::Incoming)
}

fn neighbours(plan: &PlanGraph, node: NodeIndex, direction: Direction) -> Vec<(Port, NodeIndex)> {
    let other = |edge: &petgraph::stable_graph::EdgeReference<'_, Edge>| match direction {
        Direction::Outgoing => edge.target(),
        Direction::Incoming => edge.source(),
    };
    let mut found: Vec<_> = plan
        .edges_directed(node, direction)
        .filter(|edge| edge.weight().port != Port::Failed)
        .map(|edge| (edge.weight().port, other(&edge)))
        .collect();
    // Nodes are added in configuration order, and rewrites add none.
    found.sort_unstable();
    found
}
