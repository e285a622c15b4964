//! Flow types of a plan: the known shape of the records on each edge, and findings derived from it.

mod extraction;
mod operations;
mod overwritten;
mod pieces;
mod repeated;

use std::collections::BTreeMap;
use std::sync::Arc;

use anabranch_plugin::destination::Destination;
use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics, Severity, Span};
use anabranch_plugin::flow::{Flow, Part, Place, RecordShape, Remark};
use anabranch_plugin::operator::Fan;
use anabranch_plugin::written::Written;
use anabranch_record::code::Code;
use petgraph::algo::toposort;
use petgraph::stable_graph::NodeIndex;

use crate::codes;
use crate::plan::graph::{Guard, Node, NodeKind, OperatorNode, PlanGraph, Port, RouteRule, predecessors};

/// Known shapes of the records that leave each node. A node without an entry emits no records or has no successor.
#[derive(Clone, Debug, Default)]
pub struct Shapes(BTreeMap<NodeIndex, Arc<RecordShape>>);

impl Shapes {
    /// Returns the shape of the records that leave a node.
    pub fn after(&self, node: NodeIndex) -> Option<&RecordShape> {
        self.0.get(&node).map(|shape| &**shape)
    }
}

/// Infers the shapes of a plan after any pass. O(nodes · fields).
pub fn shapes(plan: &PlanGraph) -> Shapes {
    Inference::of(plan).shapes
}

/// Checks a rewritten plan by the shapes of its records. Errors mean that every record would fail, warnings that the
/// pipeline is probably not what the user intended. O(nodes · fields).
pub fn check(plan: &PlanGraph) -> Diagnostics {
    let mut inference = Inference::of(plan);
    let overwritten = overwritten::find(plan, &inference);
    inference.findings.extend(overwritten);
    let repeated = repeated::find(plan, &inference);
    inference.findings.extend(repeated);
    inference.findings
}

/// State of inferring shapes over a plan in topological order.
struct Inference<'a> {
    plan: &'a PlanGraph,
    shapes: Shapes,
    /// Processors that cannot fail a record.
    safe: Vec<NodeIndex>,
    findings: Diagnostics,
}

impl<'a> Inference<'a> {
    fn of(plan: &'a PlanGraph) -> Self {
        let mut inference =
            Inference { plan, shapes: Shapes::default(), safe: Vec::new(), findings: Diagnostics::new() };
        for index in toposort(plan, None).unwrap_or_default() {
            if let Some(shape) = inference.node(index) {
                inference.shapes.0.insert(index, shape);
            }
        }
        inference.safe.sort_unstable();
        inference
    }

    /// Returns `true` if the processor itself cannot fail a record.
    fn is_safe(&self, node: NodeIndex) -> bool {
        self.safe.binary_search(&node).is_ok()
    }

    /// Returns the shape of the records that leave a node.
    fn node(&mut self, index: NodeIndex) -> Option<Arc<RecordShape>> {
        let node = &self.plan[index];
        if let NodeKind::Source(read) = &node.kind {
            let mut flow = Flow::new(read.source.shape());
            read.source.flow(&mut flow);
            let mut shape = self.remarks(node, None, flow, true);
            self.findings.extend(extraction::unused(node, &shape));
            shape.stamp_metadata();
            shape.stamp(node.span);
            return Some(Arc::new(shape));
        }
        if let NodeKind::DeadLetter(queue) = &node.kind {
            self.queue(node, &*queue.destination);
            return None;
        }
        let into = self.entering(index)?;
        match &node.kind {
            NodeKind::Operator(step) | NodeKind::Split(step) => self.step(index, node, step, &into),
            NodeKind::Branch(guard) => self.holds(node, guard, &into),
            NodeKind::Destination(write) => {
                let mut flow = seen_by(node, &into);
                write.destination.flow(&mut flow);
                self.remarks(node, None, flow, true);
                None
            }
            NodeKind::Route(route) => {
                for rule in &route.rules {
                    if let Some(guard) = &rule.guard {
                        self.holds(&rule_node(rule, guard), guard, &into);
                    }
                }
                Some(into)
            }
            NodeKind::FanOut { .. } | NodeKind::Merge => Some(into),
            NodeKind::Source(_) | NodeKind::DeadLetter(_) => None,
        }
    }

    /// Checks the use of dead letters by the dead-letter queue. The log and the store accept any dead letter.
    fn queue(&mut self, node: &Node, destination: &dyn Destination) {
        if destination.logs().is_none() && destination.keeps_letters().is_none() {
            let mut flow = Flow::new(destination.letter_form().shape());
            destination.flow(&mut flow);
            self.remarks(node, None, flow, true);
        }
    }

    /// Returns the shape of the records that enter a node; `None` if no record does.
    fn entering(&self, index: NodeIndex) -> Option<Arc<RecordShape>> {
        let taken = |port: &Port, from: &NodeIndex| match (&self.plan[*from].kind, port) {
            (NodeKind::Branch(guard), Port::Taken) => guard.condition.constant() != Some(false),
            (NodeKind::Branch(guard), Port::Skipped) => guard.condition.constant() != Some(true),
            _ => true,
        };
        let ways = predecessors(self.plan, index);
        let shapes =
            ways.iter().filter(|(port, from)| taken(port, from)).filter_map(|(_, from)| self.shapes.0.get(from));
        shapes.cloned().reduce(|a, b| if a == b { a } else { Arc::new(a.join(&b)) })
    }

    fn step(
        &mut self,
        index: NodeIndex,
        node: &Node,
        step: &OperatorNode,
        into: &Arc<RecordShape>,
    ) -> Option<Arc<RecordShape>> {
        // Not every record takes a branch. A rewritten plan has no branches.
        let branched =
            predecessors(self.plan, index).iter().any(|(_, from)| matches!(self.plan[*from].kind, NodeKind::Branch(_)));
        let decided = match &step.guard {
            Some(guard) if !guard.as_before => Some(self.holds(node, guard, into)?),
            _ => None,
        };
        let into = decided.as_ref().unwrap_or(into);
        let mut flow = seen_by(node, into);
        flow.guarded = step.guard.is_some() || branched;
        step.operator.flow(&mut flow);
        flow.record.uses.forget(&step.signature.writes);
        flow.record.forget_texts(into, &step.signature.writes);
        if flow.is_safe() {
            self.safe.push(index);
        }
        let passes = !flow.fails() && step.signature.fan != Fan::Never;
        let mut after = self.remarks(node, None, flow, step.guard.is_none() && !branched);
        let pieces = pieces::after(node, step, into);
        after.pieces = pieces.clone();
        let left = || match pieces == into.pieces {
            true => into.clone(),
            false => Arc::new(RecordShape { pieces: pieces.clone(), ..RecordShape::clone(into) }),
        };
        after.stamp(node.span);
        match (passes, &step.guard) {
            (true, None) => Some(Arc::new(after)),
            (true, Some(_)) => Some(Arc::new(into.join(&after))),
            (false, None) => None,
            (false, Some(_)) => Some(left()),
        }
    }

    /// Checks a condition. Returns the shape of the records for which it has a result; `None` if it fails for every
    /// record.
    fn holds(&mut self, node: &Node, guard: &Guard, into: &Arc<RecordShape>) -> Option<Arc<RecordShape>> {
        if guard.condition.constant().is_some() {
            return Some(into.clone());
        }
        let mut flow = seen(into);
        flow.substituted = !guard.written.is_verbatim();
        flow.condition(&guard.condition);
        let decides = !flow.fails();
        operations::judge(&mut flow, node, guard);
        let mut uses = self.remarks(node, Some(guard), flow, true).uses;
        uses.stamp(guard.written.span());
        decides.then(|| match uses == into.uses {
            true => into.clone(),
            false => Arc::new(RecordShape { uses, ..RecordShape::clone(into) }),
        })
    }

    /// Converts the remarks of a flow into findings.
    fn remarks(&mut self, node: &Node, guard: Option<&Guard>, flow: Flow, always: bool) -> RecordShape {
        let (record, remarks) = flow.into_parts();
        for remark in remarks {
            let Remark { severity, code, message, place, related, hint, correction } = remark;
            // A part that no record can have is an error, whatever the records hold.
            let severity = if always || code == codes::FLOW_NO_PART { severity } else { Severity::Warning };
            let (span, path) = located(node, guard, &place);
            let finding = match severity {
                Severity::Error => Diagnostic::error(code, message),
                Severity::Warning => Diagnostic::warning(code, message),
            };
            let finding = finding.with_span(span).with_path(path);
            let finding = match related {
                Some((since, text)) if since != span => finding.with_related(since, text),
                _ => finding,
            };
            let finding = match correction {
                Some((place, becomes)) => corrected(node, guard, finding, &place, &becomes),
                None => finding,
            };
            self.findings.push(match hint {
                Some(hint) => finding.with_hint(hint),
                None => finding,
            });
        }
        record
    }
}

/// Returns the condition of a destination as a node, for findings about it.
fn rule_node(rule: &RouteRule, guard: &Guard) -> Node {
    Node {
        id: rule.node(),
        kind: NodeKind::Branch(guard.clone()),
        settings: Vec::new(),
        span: guard.written.span(),
        path: rule.path.clone(),
    }
}

/// Returns a flow of records as the node itself sees them, that is, decoded.
fn seen(into: &RecordShape) -> Flow {
    Flow::new(decoded(into))
}

/// Like [`seen`], for a node with settings. Values of variables may differ elsewhere, so the flow notes their use.
fn seen_by(node: &Node, into: &RecordShape) -> Flow {
    let mut flow = seen(into);
    flow.substituted = node.settings.iter().any(|given| !given.value.is_verbatim());
    flow
}

fn decoded(into: &RecordShape) -> RecordShape {
    let mut record = into.clone();
    record.decode_by_schema();
    record
}

/// Returns the shape of the records that enter each of these nodes; nodes that no record reaches are left out. O(nodes
/// · fields).
pub(super) fn entering(plan: &PlanGraph, nodes: &[NodeIndex]) -> BTreeMap<NodeIndex, RecordShape> {
    if nodes.is_empty() {
        return BTreeMap::new();
    }
    let inference = Inference::of(plan);
    nodes.iter().filter_map(|node| Some((*node, (*inference.entering(*node)?).clone()))).collect()
}

/// Returns the remarks of a node on records of the observed shape `came` that it does not make on the inferred shape
/// `known`.
pub(super) fn remarks_on(node: &Node, known: &RecordShape, came: &RecordShape) -> Vec<Remark> {
    let (NodeKind::Operator(step) | NodeKind::Split(step)) = &node.kind else { return Vec::new() };
    let mut before = seen(known);
    step.operator.flow(&mut before);
    let mut flow = Flow::observed(decoded(came));
    step.operator.flow(&mut flow);
    let (_, remarks) = flow.into_parts();
    remarks.into_iter().filter(|remark| !before.says(remark)).collect()
}

/// Returns the remarks of a node on the records of a flow.
pub(super) fn remarks_of(node: &Node, mut flow: Flow) -> Vec<Remark> {
    match &node.kind {
        NodeKind::Operator(step) | NodeKind::Split(step) => step.operator.flow(&mut flow),
        NodeKind::Destination(write) => write.destination.flow(&mut flow),
        _ => {}
    }
    flow.into_parts().1
}

/// Returns `true` if a node has a remark with this code on records of the shape `known`.
pub(super) fn says(node: &Node, known: &RecordShape, code: Code) -> bool {
    remarks_of(node, seen(known)).iter().any(|remark| remark.code == code)
}

/// Adds the correction of a place in a node to a finding.
fn corrected(node: &Node, guard: Option<&Guard>, finding: Diagnostic, place: &Place, becomes: &str) -> Diagnostic {
    let written = match (&place.part, guard) {
        (Part::Condition, Some(guard)) => Some(&guard.written),
        (Part::Setting(name), _) => node.settings.iter().find(|given| given.name == *name).map(|given| &given.value),
        _ => None,
    };
    match (written, &place.range) {
        (Some(written), Some(range)) => written.corrected(finding, range.start, range.len(), becomes),
        _ => finding,
    }
}

/// Returns the span in the file and the path of a place in a node.
pub(super) fn located(node: &Node, guard: Option<&Guard>, place: &Place) -> (Span, String) {
    let within = |written: &Written| match &place.range {
        Some(range) => written.place(range.start, range.len()),
        None => written.span(),
    };
    match (&place.part, guard) {
        (Part::Condition, Some(guard)) if matches!(node.kind, NodeKind::Branch(_)) => {
            (within(&guard.written), node.path.to_string())
        }
        (Part::Condition, Some(guard)) => (within(&guard.written), format!("{}/condition", node.path)),
        (Part::Condition, None) | (Part::Node, _) => (node.span, node.path.to_string()),
        (Part::Setting(name), _) => match node.settings.iter().find(|given| given.name == *name) {
            Some(given) => (within(&given.value), format!("{}/settings/{name}", node.path)),
            None => (node.span, node.path.to_string()),
        },
    }
}
