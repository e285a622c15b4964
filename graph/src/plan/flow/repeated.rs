//! Transactional destinations that may nevertheless write records twice.

use anabranch_plugin::destination::Retry;
use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics};
use anabranch_plugin::source::Replay;
use petgraph::stable_graph::NodeIndex;
use petgraph::visit::{Dfs, Walker as _};

use super::Inference;
use crate::codes;
use crate::plan::check::place_of;
use crate::plan::graph::{NodeKind, PlanGraph};

/// The setting that makes a destination transactional.
const SETTING: &str = "exactlyOnce";

/// Warns about every transactional destination of records without a key whose source also delivers to another
/// destination. After a crash, such a source resumes at the position of the slowest destination, and rows without a key
/// do not replace each other. O(sources · nodes).
pub(super) fn find(plan: &PlanGraph, inference: &Inference<'_>) -> Diagnostics {
    let mut findings = Diagnostics::new();
    let mut warned: Vec<NodeIndex> = Vec::new();
    for source in plan.node_indices() {
        let NodeKind::Source(read) = &plan[source].kind else { continue };
        let condition = match read.source.replay() {
            Replay::Exactly => continue,
            Replay::ExactlyIf(condition) => format!(". It does not if {condition}"),
            Replay::NotExactly => String::new(),
        };
        let mut ends: Vec<NodeIndex> = Dfs::new(plan, source)
            .iter(plan)
            .filter(|node| matches!(plan[*node].kind, NodeKind::Destination(_)))
            .filter(|node| inference.entering(*node).is_some())
            .collect();
        ends.sort_unstable();
        for &end in &ends {
            let Some(other) = ends.iter().find(|other| **other != end) else { break };
            let NodeKind::Destination(write) = &plan[end].kind else { continue };
            let has_no_key = inference.entering(end).is_some_and(|records| records.key.is_absent());
            if write.destination.policy().retry != Retry::Transactional || !has_no_key || warned.contains(&end) {
                continue;
            }
            warned.push(end);
            let (node, from, to) = (&plan[end], &plan[source].id, &plan[*other].id);
            let message = format!(
                "{:?} may write rows twice after a crash, although {SETTING} is set: the records have no key, and \
                 {from:?} also delivers to {to:?}{condition}",
                node.id
            );
            findings.push(
                Diagnostic::warning(codes::PLAN_NOT_EXACTLY_ONCE, message)
                    .with_span(place_of(node, SETTING))
                    .with_path(format!("{}/settings/{SETTING}", node.path))
                    .with_hint("give the records a key, or move one of the destinations to a pipeline of its own"),
            );
        }
    }
    findings
}
