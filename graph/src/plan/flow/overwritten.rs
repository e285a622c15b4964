//! Processors whose result another processor overwrites before it is read.

use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics, Span};
use anabranch_plugin::operator::Fan;
use anabranch_record::access::Access;
use anabranch_record::metadata::key;
use anabranch_record::text::Str;
use petgraph::stable_graph::NodeIndex;

use super::Inference;
use crate::codes;
use crate::plan::graph::{Node, OperatorNode, PlanGraph, predecessors, successors};

/// Maximum number of processors examined after one that sets a field.
const LOOKAHEAD: usize = 64;

/// Warns about every such processor. O(nodes · lookahead).
pub(super) fn find(plan: &PlanGraph, inference: &Inference<'_>) -> Diagnostics {
    let mut findings = Diagnostics::new();
    for first in plan.node_indices().filter(|node| inference.shapes.after(*node).is_some()) {
        let Some(path) = plan[first].kind.operator().and_then(set) else { continue };
        let Some(second) = setter_after(plan, inference, first, path) else { continue };
        let (first, second) = (&plan[first], &plan[second]);
        findings.push(
            Diagnostic::warning(
                codes::FLOW_OVERWRITTEN,
                format!("no processor reads the value that {:?} sets before {:?} replaces it", first.id, second.id),
            )
            .with_label(place(first), "this value is never used")
            .with_path(&*first.path)
            .with_related(place(second), "replaced here, in every record")
            .with_hint("remove the first processor, or set another field in the second"),
        );
    }
    findings
}

/// Returns the only path that a processor sets, if the new value does not depend on the old one.
fn set(step: &OperatorNode) -> Option<&[Str]> {
    let signature = &step.signature;
    match &signature.writes {
        Access::These(paths) if signature.fan == Fan::One && !signature.writes.overlaps(&signature.reads) => {
            let mut paths = paths.iter().filter(|path| !is_schema(path));
            paths.next().filter(|_| paths.next().is_none()).map(Vec::as_slice)
        }
        _ => None,
    }
}

/// Returns `true` for the metadata with the schema of a record, which is renewed at each processor that changes data.
fn is_schema(path: &[Str]) -> bool {
    const NAMES: [Str; 4] =
        [key::KEY_SCHEMA_SUBJECT, key::KEY_SCHEMA_VERSION, key::PAYLOAD_SCHEMA_SUBJECT, key::PAYLOAD_SCHEMA_VERSION];
    matches!(path, [metadata, name] if metadata == "Metadata" && NAMES.contains(name))
}

/// Returns the next processor that sets `path` in every record, if the value is not visible before it: no processor
/// reads it, and no record can fail on the way and show it in its dead letter.
fn setter_after(plan: &PlanGraph, inference: &Inference<'_>, first: NodeIndex, path: &[Str]) -> Option<NodeIndex> {
    let written = Access::These(vec![path.to_vec()]);
    let mut at = first;
    for _ in 0..LOOKAHEAD {
        let [(_, next)] = *successors(plan, at) else { return None };
        let step = plan[next].kind.operator()?;
        if predecessors(plan, next).len() != 1 || written.overlaps(&step.signature.reads) {
            return None;
        }
        match &step.guard {
            Some(guard) if written.overlaps(&guard.condition.reads()) => return None,
            Some(_) => {}
            None if set(step).is_some_and(|covers| path.starts_with(covers)) => return Some(next),
            None => {}
        }
        if !inference.is_safe(next) {
            return None;
        }
        at = next;
    }
    None
}

/// Returns the place of the setting with the field that a processor sets.
fn place(node: &Node) -> Span {
    node.settings.iter().find(|given| given.name == "field").map_or(node.span, |given| given.span)
}
