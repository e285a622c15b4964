//! Maps the running stages and steps to the picture of the fused pass.

use petgraph::stable_graph::NodeIndex;

use anabranch_graph::plan::Compiled;
use anabranch_graph::plan::graph::{NodeKind, PlanGraph};
use anabranch_graph::plan::stage::{StageId, StageKind};
use anabranch_record::text::Str;

/// The nodes and edges of the picture of the fused pass, with the steps and flows that they stand for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// Nodes by index in the picture.
    pub nodes: Vec<NodePlace>,
    /// Edges between steps, between stages, and from stages to the dead-letter queue.
    pub edges: Vec<EdgePlace>,
}

/// A node of the picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePlace {
    /// Id of the node.
    pub id: Str,
    /// Step or queue that the node stands for.
    pub runs: NodeRuns,
}

/// Step or queue that a node stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeRuns {
    /// A step of a stage. Sources and destinations are a single step.
    Step(StageId, usize),
    /// The dead-letter queue.
    DeadLetters,
}

/// An edge of the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgePlace {
    /// Index of the start node.
    pub from: usize,
    /// Index of the end node.
    pub to: usize,
    /// Flow of records that the edge stands for.
    pub runs: EdgeRuns,
}

/// Flow of records that an edge stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeRuns {
    /// From this step of a stage to the next one, without a queue.
    Inside(StageId, usize),
    /// Through the wire with this index in [`StagePlan::wires`](anabranch_graph::plan::StagePlan::wires).
    Wire(usize),
    /// Failed records of a stage.
    Failed(StageId),
}

impl Places {
    /// Returns the places of a plan. O(nodes + wires).
    pub fn of(compiled: &Compiled) -> Places {
        let indices = fused_nodes(&compiled.rewritten);
        let members = members(compiled, &indices);
        let mut runs = vec![NodeRuns::DeadLetters; indices.len()];
        for (stage, members) in members.iter().enumerate() {
            for (step, node) in members.iter().enumerate() {
                runs[*node] = NodeRuns::Step(StageId(stage), step);
            }
        }
        let id = |node: &NodeIndex| compiled.rewritten[*node].id.clone();
        let nodes = indices.iter().zip(runs).map(|(node, runs)| NodePlace { id: id(node), runs }).collect();
        let dead_letter =
            indices.iter().position(|node| matches!(compiled.rewritten[*node].kind, NodeKind::DeadLetter(_)));
        Places { nodes, edges: edges(compiled, &members, dead_letter) }
    }
}

/// Returns the nodes in the picture of the fused pass. The index of a node in the result is its index in the picture.
pub(super) fn fused_nodes(graph: &PlanGraph) -> Vec<NodeIndex> {
    let drawn = |kind: &NodeKind| !matches!(kind, NodeKind::Merge | NodeKind::FanOut { .. } | NodeKind::Branch(_));
    graph.node_indices().filter(|node| drawn(&graph[*node].kind)).collect()
}

/// Returns the indices of the nodes of each stage, in order.
pub(super) fn members(compiled: &Compiled, indices: &[NodeIndex]) -> Vec<Vec<usize>> {
    let place = |node: &NodeIndex| indices.binary_search(node).ok();
    compiled.members.iter().map(|members| members.iter().filter_map(place).collect()).collect()
}

fn edges(compiled: &Compiled, members: &[Vec<usize>], dead_letter: Option<usize>) -> Vec<EdgePlace> {
    let mut edges = Vec::new();
    for (id, (stage, nodes)) in compiled.stages.stages.iter().zip(members).enumerate() {
        let inside = nodes.windows(2).enumerate();
        edges.extend(inside.map(|(step, pair)| EdgePlace {
            from: pair[0],
            to: pair[1],
            runs: EdgeRuns::Inside(StageId(id), step),
        }));
        if let (Some(from), Some(to), false) = (nodes.last(), dead_letter, matches!(stage.kind, StageKind::Read(_))) {
            edges.push(EdgePlace { from: *from, to, runs: EdgeRuns::Failed(StageId(id)) });
        }
    }
    for (wire, cut) in compiled.cuts.iter().enumerate() {
        let ends = (members.get(cut.wire.from.0), members.get(cut.wire.to.0));
        if let (Some(from), Some(to)) = ends
            && let (Some(from), Some(to)) = (from.last(), to.first())
        {
            edges.push(EdgePlace { from: *from, to: *to, runs: EdgeRuns::Wire(wire) });
        }
    }
    edges
}
