//! Connections between the parts of a pipeline.

use anabranch_plugin::registry::Role;
use anabranch_record::text::Str;
use petgraph::stable_graph::NodeIndex;

use super::{LoweredConnector, LoweredProcessor};
use crate::plan::graph::{Edge, Node, NodeKind, PlanGraph, Port, wire_failures};

/// An open end: the node and the port for the next edge.
type OpenEnd = (NodeIndex, Port);

/// Connects resolved parts: sources with their processors, the processors of the pipeline, destinations with their
/// processors.
pub(super) fn connect(
    connectors: Vec<LoweredConnector>,
    processors: Vec<LoweredProcessor>,
    route: Option<Node>,
    dead_letter: Option<Node>,
) -> PlanGraph {
    let mut graph = PlanGraph::new();
    let (sources, destinations): (Vec<_>, Vec<_>) = connectors.into_iter().partition(|c| c.role == Role::Source);
    let mut ends = Vec::new();
    for source in sources {
        let start = source.node.map(|node| (graph.add_node(node), Port::Out));
        ends.extend(chain(&mut graph, start, source.processors));
    }
    let mut end = match ends.len() {
        0 | 1 => ends.pop(),
        _ => {
            let merge = graph.add_node(junction("merge".into(), NodeKind::Merge));
            ends.into_iter().for_each(|end| link(&mut graph, Some(end), merge));
            Some((merge, Port::Out))
        }
    };
    end = chain(&mut graph, end, processors);
    if let Some(route) = route {
        let route = graph.add_node(route);
        link(&mut graph, end, route);
        end = Some((route, Port::Out));
    } else if destinations.len() > 1 {
        let kind = NodeKind::FanOut { copies: destinations.len() };
        let fan_out = graph.add_node(junction("fan-out".into(), kind));
        link(&mut graph, end, fan_out);
        end = Some((fan_out, Port::Out));
    }
    for destination in destinations {
        let last = chain(&mut graph, end, destination.processors);
        if let Some(node) = destination.node {
            let node = graph.add_node(node);
            link(&mut graph, last, node);
        }
    }
    if let Some(node) = dead_letter {
        graph.add_node(node);
        wire_failures(&mut graph);
    }
    graph
}

/// Appends processors to an end. A condition becomes a branch around its processor.
fn chain(graph: &mut PlanGraph, mut end: Option<OpenEnd>, processors: Vec<LoweredProcessor>) -> Option<OpenEnd> {
    for LoweredProcessor { node, condition } in processors {
        let id = node.id.clone();
        let Some(condition) = condition else {
            let node = graph.add_node(node);
            link(graph, end, node);
            end = Some((node, Port::Out));
            continue;
        };
        let branch = graph.add_node(condition);
        link(graph, end, branch);
        let node = graph.add_node(node);
        let merge = graph.add_node(junction(format!("{id}.").into(), NodeKind::Merge));
        link(graph, Some((branch, Port::Taken)), node);
        link(graph, Some((node, Port::Out)), merge);
        link(graph, Some((branch, Port::Skipped)), merge);
        end = Some((merge, Port::Out));
    }
    end
}

fn link(graph: &mut PlanGraph, from: Option<OpenEnd>, to: NodeIndex) {
    if let Some((from, port)) = from {
        graph.add_edge(from, to, Edge { port });
    }
}

/// Returns a node without a place in a file.
fn junction(id: Str, kind: NodeKind) -> Node {
    Node { id, kind, settings: Vec::new(), span: Default::default(), path: Str::default() }
}
