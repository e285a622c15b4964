//! Rewrites of a plan that preserve its meaning.

use std::collections::BTreeSet;

use anabranch_plugin::operator::Fan;
use anabranch_record::access::Access;
use petgraph::stable_graph::NodeIndex;
use petgraph::visit::{EdgeRef, IntoEdgeReferences};

use crate::plan::graph::{Edge, NodeKind, PlanGraph, Port, predecessors, successors, unwire_failures, wire_failures};

/// A kind of rewrite.
pub trait Rewrite {
    /// Returns the name of the rewrite.
    fn name(&self) -> &'static str;

    /// Applies the rewrite wherever possible, in one sweep. Returns `true` if the plan changed.
    fn apply_once(&self, plan: &mut PlanGraph) -> bool;
}

/// All rewrites, in the order in which they are tried.
pub const ALL: [&dyn Rewrite; 5] =
    [&FoldConstantConditions, &RemoveDeadBranches, &RemoveIdleJunctions, &MaskDiamonds, &ShareConditions];

/// Applies all rewrites until none changes the plan. Terminates because every rewrite removes an edge or a node, or
/// marks a condition as shared. Each sweep is O(nodes + edges).
pub fn rewrite(plan: &mut PlanGraph) {
    // Rewrites concern successful records only. With failure edges from every node to one queue, removing a node would
    // be O(nodes).
    unwire_failures(plan);
    while let Some(applied) = ALL.iter().find(|rewrite| rewrite.apply_once(plan)) {
        tracing::trace!(rewrite = applied.name(), nodes = plan.node_count(), "rewrote the plan");
    }
    wire_failures(plan);
}

/// Removes the edge of a constant branch that no record takes.
pub struct FoldConstantConditions;

impl Rewrite for FoldConstantConditions {
    fn name(&self) -> &'static str {
        "fold constant conditions"
    }

    fn apply_once(&self, plan: &mut PlanGraph) -> bool {
        let dead: Vec<_> = plan
            .edge_references()
            .filter(|edge| {
                let NodeKind::Branch(guard) = &plan[edge.source()].kind else { return false };
                match guard.condition.constant() {
                    Some(true) => edge.weight().port == Port::Skipped,
                    Some(false) => edge.weight().port == Port::Taken,
                    None => false,
                }
            })
            .map(|edge| edge.id())
            .collect();
        dead.iter().for_each(|edge| {
            plan.remove_edge(*edge);
        });
        !dead.is_empty()
    }
}

/// Removes nodes that no record can reach.
pub struct RemoveDeadBranches;

impl Rewrite for RemoveDeadBranches {
    fn name(&self) -> &'static str {
        "remove dead branches"
    }

    fn apply_once(&self, plan: &mut PlanGraph) -> bool {
        let is_root = |kind: &NodeKind| matches!(kind, NodeKind::Source(_) | NodeKind::DeadLetter(_));
        let mut open: Vec<_> = plan.node_indices().filter(|n| is_root(&plan[*n].kind)).collect();
        let mut live: BTreeSet<NodeIndex> = open.iter().copied().collect();
        while let Some(node) = open.pop() {
            open.extend(successors(plan, node).into_iter().map(|(_, to)| to).filter(|to| live.insert(*to)));
        }
        let before = plan.node_count();
        plan.retain_nodes(|_, node| live.contains(&node));
        plan.node_count() < before
    }
}

/// Removes branches with one output and merges with one input.
pub struct RemoveIdleJunctions;

impl Rewrite for RemoveIdleJunctions {
    fn name(&self) -> &'static str {
        "remove idle junctions"
    }

    fn apply_once(&self, plan: &mut PlanGraph) -> bool {
        let mut changed = false;
        for node in plan.node_indices().collect::<Vec<_>>() {
            if !matches!(plan[node].kind, NodeKind::Branch(_) | NodeKind::Merge) {
                continue;
            }
            if let ([(port, from)], [(_, to)]) = (&*predecessors(plan, node), &*successors(plan, node)) {
                plan.add_edge(*from, *to, Edge { port: *port });
                plan.remove_node(node);
                changed = true;
            }
        }
        changed
    }
}

/// Turns a branch around one operator into a condition of the operator. The condition is a mask over rows that stay in
/// place, so no second path has to be merged in order.
pub struct MaskDiamonds;

impl Rewrite for MaskDiamonds {
    fn name(&self) -> &'static str {
        "mask diamonds"
    }

    fn apply_once(&self, plan: &mut PlanGraph) -> bool {
        let mut changed = false;
        let is_branch = |node: &NodeIndex| matches!(plan[*node].kind, NodeKind::Branch(_));
        for branch in plan.node_indices().filter(is_branch).collect::<Vec<_>>() {
            let Some(diamond) = Diamond::at(plan, branch) else { continue };
            let NodeKind::Branch(guard) = plan[branch].kind.clone() else { continue };
            if let Some(operator) = plan[diamond.operator].kind.operator_mut() {
                operator.guard = Some(guard);
            }
            for (port, from) in predecessors(plan, branch) {
                plan.add_edge(from, diamond.operator, Edge { port });
            }
            for (_, to) in successors(plan, diamond.merge) {
                plan.add_edge(diamond.operator, to, Edge { port: Port::Out });
            }
            plan.remove_node(branch);
            plan.remove_node(diamond.merge);
            changed = true;
        }
        changed
    }
}

/// Branch ─taken─► operator ─► merge ◄─skipped─ branch, without other edges into or out of the middle.
struct Diamond {
    operator: NodeIndex,
    merge: NodeIndex,
}

impl Diamond {
    fn at(plan: &PlanGraph, branch: NodeIndex) -> Option<Diamond> {
        let [(Port::Taken, operator), (Port::Skipped, merge)] = *successors(plan, branch) else { return None };
        let unguarded = plan[operator].kind.operator().is_some_and(|o| o.guard.is_none());
        let joins = predecessors(plan, operator).len() == 1
            && successors(plan, operator).iter().all(|(_, to)| *to == merge)
            && predecessors(plan, merge).len() == 2
            && matches!(plan[merge].kind, NodeKind::Merge);
        (unguarded && joins).then_some(Diamond { operator, merge })
    }
}

/// Lets a processor with the same condition as the processor before it reuse the results of the condition. The
/// processor before must keep every row and write nothing that the condition reads. If the writes of the processor or
/// the reads of the condition are unknown, results are not shared: the condition may depend on time or randomness.
pub struct ShareConditions;

impl Rewrite for ShareConditions {
    fn name(&self) -> &'static str {
        "share conditions"
    }

    fn apply_once(&self, plan: &mut PlanGraph) -> bool {
        let sharing: Vec<_> = plan.node_indices().filter(|second| shares(plan, *second)).collect();
        for second in &sharing {
            if let Some(guard) = plan[*second].kind.operator_mut().and_then(|o| o.guard.as_mut()) {
                guard.as_before = true;
            }
        }
        !sharing.is_empty()
    }
}

fn shares(plan: &PlanGraph, second: NodeIndex) -> bool {
    let Some(guard) = plan[second].kind.operator().and_then(|o| o.guard.as_ref()) else { return false };
    let [(_, first)] = *predecessors(plan, second) else { return false };
    let Some(first) = plan[first].kind.operator() else { return false };
    let Some(before) = &first.guard else { return false };
    let (writes, reads) = (&first.signature.writes, guard.condition.reads());
    !guard.as_before
        && guard.condition.source() == before.condition.source()
        && first.signature.fan == Fan::One
        && *writes != Access::Everything
        && reads != Access::Everything
        && (!writes.overlaps(&reads) || mutant!(SharesTooMuch))
}
