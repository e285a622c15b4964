//! Rewrites of a plan: each leaves its meaning as it was.

use std::collections::BTreeSet;

use anabranch_plugin::operator::Fan;
use anabranch_record::access::Access;
use petgraph::stable_graph::NodeIndex;
use petgraph::visit::{EdgeRef, IntoEdgeReferences};

use crate::plan::graph::{Edge, NodeKind, PlanGraph, Port, predecessors, successors, unwire_failures, wire_failures};

/// One kind of rewrite.
pub trait Rewrite {
    /// Its name.
    fn name(&self) -> &'static str;

    /// Applies it wherever it fits, in one sweep; says whether it fitted anywhere.
    fn apply_once(&self, plan: &mut PlanGraph) -> bool;
}

/// All rewrites, in the order in which they are tried.
pub const ALL: [&dyn Rewrite; 5] =
    [&FoldConstantConditions, &RemoveDeadBranches, &RemoveIdleJunctions, &MaskDiamonds, &ShareConditions];

/// Applies all rewrites until none fits. Every rewrite removes an edge or a node, or marks a condition as
/// shared, so this ends; each sweep is O(nodes + edges).
pub fn rewrite(plan: &mut PlanGraph) {
    // Rewrites are about the ways of good records. With every node's failures wired to one queue, removing a
    // node would cost as much as there are nodes.
    unwire_failures(plan);
    while let Some(applied) = ALL.iter().find(|rewrite| rewrite.apply_once(plan)) {
        tracing::trace!(rewrite = applied.name(), nodes = plan.node_count(), "rewrote the plan");
    }
    wire_failures(plan);
}

/// A branch whose condition is constant loses the edge that no record takes.
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

/// A node that nothing leads to any more goes, and what followed only it.
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

/// A branch with one way out and a merge with one way in do nothing.
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

/// A branch around one operator becomes a condition of that operator: a mask over rows that stay in place,
/// instead of a second way that has to be merged in order.
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

/// Branch ─taken─► operator ─► merge ◄─skipped─ branch, and nothing else leads in or out between.
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

/// A step with the condition of the step before takes over its verdicts, if that step keeps every row and
/// writes nothing that the condition reads. A step whose writes are unknown never shares, and neither does
/// a condition whose reads are: it may depend on the time, or on chance.
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
