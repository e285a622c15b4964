//! Where the stages and steps that run are in the picture of the fused pass.

use petgraph::stable_graph::NodeIndex;

use anabranch_graph::plan::Compiled;
use anabranch_graph::plan::graph::{NodeKind, PlanGraph};
use anabranch_graph::plan::stage::{StageId, StageKind};
use anabranch_record::text::Str;

/// The nodes and edges of the picture of the fused pass, each with what runs there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// By the number in the picture.
    pub nodes: Vec<NodePlace>,
    /// From step to step, from stage to stage, and from stages to the dead-letter queue.
    pub edges: Vec<EdgePlace>,
}

/// A node of the picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePlace {
    /// Its id.
    pub id: Str,
    /// What runs there.
    pub runs: NodeRuns,
}

/// What runs at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeRuns {
    /// A step of a stage; reading and writing are one step.
    Step(StageId, usize),
    /// The dead-letter queue.
    DeadLetters,
}

/// An edge of the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgePlace {
    /// Number of the node that records come from.
    pub from: usize,
    /// Number of the node that they go to.
    pub to: usize,
    /// What it stands for.
    pub runs: EdgeRuns,
}

/// What an edge stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeRuns {
    /// What this step of a stage gives to the next one, without a queue.
    Inside(StageId, usize),
    /// The wire of this number, in the order of [`StagePlan::wires`](anabranch_graph::plan::StagePlan::wires).
    Wire(usize),
    /// Records that failed in a stage.
    Failed(StageId),
}

impl Places {
    /// Where stages and steps are in the picture of the fused pass. O(nodes + wires).
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

/// The nodes that the picture of the fused pass shows; a node's number is its place in them.
pub(super) fn fused_nodes(graph: &PlanGraph) -> Vec<NodeIndex> {
    let drawn = |kind: &NodeKind| !matches!(kind, NodeKind::Merge | NodeKind::FanOut { .. } | NodeKind::Branch(_));
    graph.node_indices().filter(|node| drawn(&graph[*node].kind)).collect()
}

/// The numbers of the nodes of each stage, in order.
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
