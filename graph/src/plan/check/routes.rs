//! Checks of the conditions of destinations.

use std::sync::Arc;

use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics};
use anabranch_template::condition::CompiledCondition;
use petgraph::stable_graph::NodeIndex;

use super::filtered_by;
use crate::codes;
use crate::plan::graph::{NodeKind, PlanGraph, RouteNode, RouteRule, predecessors};

/// Finds destinations that receive no record, and conditions without effect.
pub(super) fn check(plan: &PlanGraph, findings: &mut Diagnostics) {
    let Some((index, route)) = route(plan) else { return };
    let dropped = filters_before(plan, index);
    for RouteRule { guard, otherwise, path, destination } in &route.rules {
        let Some(guard) = guard else { continue };
        let settled = guard.condition.constant().or_else(|| guard.condition.settled());
        let by_filter = dropped.iter().find(|filter| guard.condition.implies(filter));
        let (code, message, hint) = match (settled, by_filter) {
            (Some(true), _) => (
                codes::PLAN_CONDITION_ALWAYS_TRUE,
                format!("the condition holds for every record: {destination:?} receives all of them"),
                "remove it, or correct it",
            ),
            (Some(false), _) if *otherwise => continue,
            (Some(false), _) => (
                codes::PLAN_CONDITION_ALWAYS_FALSE,
                format!("the condition holds for no record: {destination:?} receives none"),
                "correct it, or remove the destination",
            ),
            (None, Some(_)) => (
                codes::PLAN_CONDITION_ALWAYS_FALSE,
                format!("{destination:?} receives no record: a filter before it drops all records of its condition"),
                "a filter drops the records for which its condition holds: invert one of the two with `not`",
            ),
            (None, None) => continue,
        };
        let finding = Diagnostic::warning(code, message).with_span(guard.written.span());
        findings.push(finding.with_path(&**path).with_hint(hint));
    }
}

fn route(plan: &PlanGraph) -> Option<(NodeIndex, &RouteNode)> {
    plan.node_indices().find_map(|index| match &plan[index].kind {
        NodeKind::Route(route) => Some((index, route)),
        _ => None,
    })
}

/// Returns the conditions of the filters directly before a node.
fn filters_before(plan: &PlanGraph, node: NodeIndex) -> Vec<Arc<CompiledCondition>> {
    let (mut found, mut waiting, mut seen) = (Vec::new(), vec![node], Vec::new());
    while let Some(node) = waiting.pop() {
        for (_, from) in predecessors(plan, node) {
            if seen.contains(&from) {
                continue;
            }
            seen.push(from);
            // Behind the merge of several sources, a filter sees the records of one of them only.
            if let Some(condition) = filtered_by(plan, from).filter(|_| !merges_sources(plan, from)) {
                found.extend(condition);
                waiting.push(from);
            }
        }
    }
    found
}

fn merges_sources(plan: &PlanGraph, node: NodeIndex) -> bool {
    let is_branch = |from: NodeIndex| matches!(plan[from].kind, NodeKind::Branch(_));
    matches!(plan[node].kind, NodeKind::Merge) && !predecessors(plan, node).iter().any(|(_, from)| is_branch(*from))
}

/// Returns `true` if the conditions of two destinations hold for no record both.
pub(super) fn exclusive(plan: &PlanGraph, one: &str, other: &str) -> bool {
    let Some((_, route)) = route(plan) else { return false };
    let rule = |id: &str| route.rules.iter().find(|rule| *rule.destination == *id);
    let (Some(one), Some(other)) = (rule(one), rule(other)) else { return false };
    match (&one.guard, &other.guard) {
        (Some(a), Some(b)) => !one.otherwise && !other.otherwise && a.condition.excludes(&b.condition),
        (Some(_), None) => other.otherwise && !one.otherwise,
        (None, Some(_)) => one.otherwise && !other.otherwise,
        (None, None) => false,
    }
}

/// Returns `true` if not every destination receives every record.
pub(super) fn divide(plan: &PlanGraph) -> bool {
    route(plan).is_some_and(|(_, route)| !route.rules.iter().all(RouteRule::takes_all))
}
