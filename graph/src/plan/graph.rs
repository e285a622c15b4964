//! The plan as a graph: one node per connector, processor, condition and junction.

use std::sync::Arc;

use anabranch_plugin::diagnostic::Span;
use anabranch_plugin::operator::{ConfiguredOperator, Signature};
use anabranch_plugin::written::Written;
use anabranch_record::text::Str;
use anabranch_template::condition::CompiledCondition;
use petgraph::Direction;
use petgraph::stable_graph::{NodeIndex, StableDiGraph};
use petgraph::visit::EdgeRef;

use crate::plan::stage::{DeadLetterSpec, ReadSpec, WriteSpec};

/// A plan. Indices of nodes survive rewrites.
pub type PlanGraph = StableDiGraph<Node, Edge>;

/// A node with the place it comes from.
#[derive(Clone)]
pub struct Node {
    /// Shown id: of a connector or processor as the user knows it (`connector:processor` for the processors
    /// of a connector); of a condition the processor's with `?`.
    pub id: Str,
    /// What it does.
    pub kind: NodeKind,
    /// The settings that were given, as they may be shown.
    pub settings: Vec<Given>,
    /// Where it stands in the file: the plugin's name, the condition.
    pub span: Span,
    /// JSON pointer of it inside the pipeline: `/processors/0`.
    pub path: Str,
}

/// A setting that the file gives.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Given {
    /// Its name.
    pub name: Str,
    /// Its value as it may be shown: variables by name, credentials masked.
    pub shown: Str,
    /// Where the value stands.
    #[serde(skip)]
    pub span: Span,
    /// The value, for places inside of it; never shown.
    #[serde(skip)]
    pub value: Written,
}

/// What a node does.
#[derive(Clone)]
pub enum NodeKind {
    /// Records come from here.
    Source(ReadSpec),
    /// Makes at most one record of each.
    Operator(OperatorNode),
    /// Sends a record to port `Taken` or `Skipped`.
    Branch(Guard),
    /// Gives every successor a copy.
    FanOut {
        /// Number of successors.
        copies: usize,
    },
    /// Makes any number of records of each, all on one port: `split`, `clone`.
    Split(OperatorNode),
    /// Takes records as they come: the ports of a branch, or several sources.
    Merge,
    /// Records are delivered here.
    Destination(WriteSpec),
    /// Failed records are delivered here.
    DeadLetter(DeadLetterSpec),
}

/// A processor.
#[derive(Clone)]
pub struct OperatorNode {
    /// Name of its plugin.
    pub plugin: Str,
    /// The operator.
    pub operator: Arc<dyn ConfiguredOperator>,
    /// What it says of itself.
    pub signature: Signature,
    /// Number of workers, at least 1.
    pub workers: u32,
    /// For which rows; `None` = all, or as a [`NodeKind::Branch`] before it says.
    pub guard: Option<Guard>,
}

/// A condition in the plan.
#[derive(Clone)]
pub struct Guard {
    /// The condition.
    pub condition: Arc<CompiledCondition>,
    /// Its text; what may be shown of it is what the file has.
    pub written: Written,
    /// Whether the node before has the same condition and changes nothing that it reads.
    pub as_before: bool,
}

/// An edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Where it leaves its node.
    pub port: Port,
}

/// Where an edge leaves a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Port {
    /// The records a node emits.
    Out,
    /// Those a condition holds for.
    Taken,
    /// Those it does not hold for.
    Skipped,
    /// Those that failed.
    Failed,
}

impl Port {
    /// Its name, as plans print it.
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
    /// The processor of this node, if it is one.
    pub fn operator(&self) -> Option<&OperatorNode> {
        match self {
            NodeKind::Operator(operator) | NodeKind::Split(operator) => Some(operator),
            _ => None,
        }
    }

    /// The processor of this node, if it is one.
    pub fn operator_mut(&mut self) -> Option<&mut OperatorNode> {
        match self {
            NodeKind::Operator(operator) | NodeKind::Split(operator) => Some(operator),
            _ => None,
        }
    }
}

/// Leads the failures of every node that can fail to the dead-letter queue, if there is one.
pub fn wire_failures(plan: &mut PlanGraph) {
    let Some(dead_letter) = plan.node_indices().find(|n| matches!(plan[*n].kind, NodeKind::DeadLetter(_))) else {
        return;
    };
    let can_fail = |kind: &NodeKind| match kind {
        NodeKind::Operator(_) | NodeKind::Split(_) | NodeKind::Branch(_) | NodeKind::Destination(_) => true,
        NodeKind::Source(_) | NodeKind::FanOut { .. } | NodeKind::Merge | NodeKind::DeadLetter(_) => false,
    };
    let failing: Vec<_> = plan.node_indices().filter(|n| can_fail(&plan[*n].kind)).collect();
    for node in failing {
        plan.add_edge(node, dead_letter, Edge { port: Port::Failed });
    }
}

/// Takes away what [`wire_failures`] adds.
pub fn unwire_failures(plan: &mut PlanGraph) {
    let failures = plan.edge_indices().filter(|e| plan[*e].port == Port::Failed);
    // The last first: it is at the head of the dead-letter queue's list of edges, so each takes O(1).
    for edge in failures.collect::<Vec<_>>().into_iter().rev() {
        plan.remove_edge(edge);
    }
}

/// Successors that records flow to, failures left out: by port, then in the order of the configuration.
/// O(e log e) for e edges of the node.
pub fn successors(plan: &PlanGraph, node: NodeIndex) -> Vec<(Port, NodeIndex)> {
    neighbours(plan, node, Direction::Outgoing)
}

/// Predecessors that records flow from, with the port by which they leave them; ordered as [`successors`].
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
    // Nodes are added in the order of the configuration, and rewrites add none.
    found.sort_unstable();
    found
}
