//! Fuses a graph into stages: processors that can share a future run in one.

use anabranch_config::limits::MemoryLimits;
use std::collections::HashMap;
use std::fmt;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::operator::Class;
use anabranch_record::text::Str;
use petgraph::algo::toposort;
use petgraph::stable_graph::NodeIndex;

use crate::plan::check;
use crate::plan::graph::{NodeKind, OperatorNode, PlanGraph, RouteRule, predecessors, successors};
use crate::plan::stage::{
    RouteSpec, StageId, StageKind, StagePlan, StageRule, StageSpec, StepCondition, StepSpec, Wire,
};

/// Strips in flight in an asynchronous step whose number of workers is not configured.
const ASYNC_IN_FLIGHT: u32 = 4;

/// The fused plan, and the reasons for its stage boundaries.
pub struct Fused {
    /// The stages.
    pub plan: StagePlan,
    /// One entry per wire, in the order of the wires.
    pub cuts: Vec<StageBoundary>,
    /// The nodes of each stage, in order.
    pub members: Vec<Vec<NodeIndex>>,
}

/// A boundary between two stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct StageBoundary {
    /// The stages on both sides.
    pub wire: Wire,
    /// The reason for the boundary.
    pub reason: CutReason,
}

/// Reason why a chain of processors ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum CutReason {
    /// Several sources are merged.
    Merge,
    /// Every successor gets a copy.
    FanOut,
    /// Records go to the destinations whose conditions they fulfil.
    Route,
    /// Reading overlaps with the processing that follows.
    Source,
    /// Writing overlaps with the processing before it.
    Destination,
    /// The processor is asynchronous.
    Async,
    /// The processor runs on a thread of its own.
    Isolate,
    /// The neighbours have different numbers of workers.
    Workers {
        /// Number of workers before the boundary.
        before: u32,
        /// Number of workers after the boundary.
        after: u32,
    },
}

impl fmt::Display for CutReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CutReason::Merge => f.write_str("sources merge here"),
            CutReason::FanOut => f.write_str("every destination gets a copy"),
            CutReason::Route => f.write_str("each destination gets the records of its condition"),
            CutReason::Source => f.write_str("reading overlaps with the rest"),
            CutReason::Destination => f.write_str("writing overlaps with the rest"),
            CutReason::Async => f.write_str("a waiting batch must not block the chain"),
            CutReason::Isolate => f.write_str("a processor needs its own thread"),
            CutReason::Workers { before, after } => write!(f, "workers differ: {before} before, {after} after"),
        }
    }
}

/// Fuses a rewritten plan. O(nodes + edges).
///
/// # Errors
/// `plan.internal`: the plan is unsound, a defect of the compiler.
pub fn fuse(pipeline: &Str, plan: &PlanGraph, limits: MemoryLimits) -> Result<Fused, Diagnostics> {
    check::arity(plan)?;
    let order = toposort(plan, None).map_err(|_| check::defect("the rewritten plan has a cycle"))?;
    let mut fusion =
        Fusion { plan, stages: Vec::new(), members: Vec::new(), stage_of: HashMap::new(), cut_before: HashMap::new() };
    fusion.reads();
    fusion.chains(&order);
    fusion.writes();
    let (wires, cuts) = fusion.wires(&order);
    fusion.rules()?;
    let dead_letter = plan.node_weights().find_map(|node| match &node.kind {
        NodeKind::DeadLetter(spec) => Some(spec.clone()),
        _ => None,
    });
    let Some(dead_letter) = dead_letter else {
        return Err(check::defect("the plan has no dead-letter queue").into());
    };
    let plan = StagePlan {
        pipeline: pipeline.clone(),
        stages: fusion.stages,
        wires,
        dead_letter,
        limits,
        files_are_shared: false,
        located: None,
    };
    Ok(Fused { plan, cuts, members: fusion.members })
}

struct Fusion<'a> {
    plan: &'a PlanGraph,
    stages: Vec<StageSpec>,
    members: Vec<Vec<NodeIndex>>,
    stage_of: HashMap<NodeIndex, StageId>,
    /// Reason for a boundary directly before an operator.
    cut_before: HashMap<NodeIndex, CutReason>,
}

impl Fusion<'_> {
    fn push(&mut self, nodes: &[NodeIndex], kind: StageKind) {
        let id = StageId(self.stages.len());
        self.stage_of.extend(nodes.iter().map(|node| (*node, id)));
        self.members.push(nodes.to_vec());
        self.stages.push(StageSpec { name: self.name(nodes), kind });
    }

    /// Returns the joined ids of the nodes, or the first and the last id if there are many.
    fn name(&self, nodes: &[NodeIndex]) -> Str {
        let id = |node: &NodeIndex| &*self.plan[*node].id;
        match nodes {
            [first, .., last] if nodes.len() > 3 => format!("{}..{}", id(first), id(last)).into(),
            _ => nodes.iter().map(id).collect::<Vec<_>>().join("+").into(),
        }
    }

    fn reads(&mut self) {
        for index in self.plan.node_indices() {
            if let NodeKind::Source(read) = &self.plan[index].kind {
                self.push(&[index], StageKind::Read(read.clone()));
            }
        }
    }

    fn writes(&mut self) {
        for index in self.plan.node_indices() {
            if let NodeKind::Destination(write) = &self.plan[index].kind {
                self.push(&[index], StageKind::Write(write.clone()));
            }
        }
    }

    /// Cuts each linear run of operators between two junctions into stages.
    fn chains(&mut self, order: &[NodeIndex]) {
        let plan = self.plan;
        let operator = |index: NodeIndex| Some((index, plan[index].kind.operator()?));
        let only = |ends: Vec<(_, NodeIndex)>| match *ends {
            [(_, end)] => Some(end),
            _ => None,
        };
        for &start in order {
            if let NodeKind::Route(route) = &plan[start].kind {
                // The successors become stages after this one.
                self.push(&[start], StageKind::Route(RouteSpec { rules: Vec::new(), unmatched: route.unmatched }));
            }
            let Some(first) = operator(start) else { continue };
            if only(predecessors(plan, start)).and_then(operator).is_some() {
                continue;
            }
            let next = |(index, _): &(NodeIndex, _)| only(successors(plan, *index)).and_then(operator);
            let run: Vec<_> = std::iter::successors(Some(first), next).collect();
            let (nodes, operators): (Vec<_>, Vec<_>) = run.into_iter().unzip();
            let steps = placed(&operators);
            let mut begin = 0;
            for end in 1..=steps.len() {
                let reason = match steps.get(end) {
                    None => None,
                    Some(step) => match cut(&steps[end - 1], step) {
                        None => continue,
                        reason => reason,
                    },
                };
                self.push(&nodes[begin..end], self.stage(&nodes[begin..end], &steps[begin..end]));
                self.cut_before.extend(nodes.get(end).copied().zip(reason));
                begin = end;
            }
        }
    }

    fn stage(&self, nodes: &[NodeIndex], placed: &[PlacedOperator<'_>]) -> StageKind {
        let mut steps: Vec<_> = nodes
            .iter()
            .zip(placed)
            .enumerate()
            .map(|(i, (node, step))| StepSpec {
                node: self.plan[*node].id.clone(),
                plugin: step.operator.plugin.clone(),
                operator: step.operator.operator.clone(),
                condition: match &step.operator.guard {
                    None => StepCondition::Always,
                    // The first step of a stage has no step before it whose result it could share.
                    Some(guard) if guard.as_before && i > 0 => StepCondition::AsBefore,
                    Some(guard) => StepCondition::If(guard.condition.clone()),
                },
                multiplies: step.operator.signature.fan.multiplies(),
            })
            .collect();
        let (place, workers) = (placed[0].place, placed[0].operator.workers);
        match place {
            ExecutionSite::Waiting => {
                let most = placed[0].operator.signature.max_workers.unwrap_or(u32::MAX);
                let in_flight = if workers > 1 { workers } else { ASYNC_IN_FLIGHT.min(most) };
                StageKind::Async { step: steps.remove(0), in_flight }
            }
            ExecutionSite::Thread => StageKind::Isolate { steps, workers },
            ExecutionSite::Task if workers > 1 => StageKind::Parallel { steps, workers },
            ExecutionSite::Task => StageKind::Chain(steps),
        }
    }

    /// Sets the rules of routes, once all stages are known.
    ///
    /// # Errors
    /// A successor of a route is in no stage.
    fn rules(&mut self) -> Result<(), Diagnostics> {
        for index in self.plan.node_indices() {
            let NodeKind::Route(route) = &self.plan[index].kind else { continue };
            let to = successors(self.plan, index).into_iter().map(|(_, next)| self.stage_of.get(&next).copied());
            let rule = |(rule, to): (&RouteRule, Option<StageId>)| {
                let condition = rule.guard.as_ref().map(|guard| guard.condition.clone());
                Some(StageRule { to: to?, node: rule.node(), condition, otherwise: rule.otherwise })
            };
            let rules: Option<Vec<StageRule>> = route.rules.iter().zip(to).map(rule).collect();
            let stage = self.stage_of.get(&index).and_then(|stage| self.stages.get_mut(stage.0));
            match (rules, stage.map(|stage| &mut stage.kind)) {
                (Some(rules), Some(StageKind::Route(spec))) => spec.rules = rules,
                _ => return Err(check::defect("a route leads to no stage").into()),
            }
        }
        Ok(())
    }

    /// Returns one wire per path between two stages. Merges and fan-outs become several wires.
    fn wires(&self, order: &[NodeIndex]) -> (Vec<Wire>, Vec<StageBoundary>) {
        let mut wires = Vec::new();
        for &node in order {
            let Some(&from) = self.stage_of.get(&node) else { continue };
            let mut open = vec![(node, false, false)];
            while let Some((at, merged, fanned)) = open.pop() {
                for (_, next) in successors(self.plan, at) {
                    match (self.stage_of.get(&next), &self.plan[next].kind) {
                        (Some(&to), _) if to == from => {}
                        (Some(&to), _) => {
                            let wire = Wire { from, to };
                            wires.push(StageBoundary { wire, reason: self.reason(node, next, merged, fanned) });
                        }
                        (None, NodeKind::Merge) => open.push((next, true, fanned)),
                        (None, _) => open.push((next, merged, true)),
                    }
                }
            }
        }
        wires.sort_unstable_by_key(|cut| (cut.wire.from, cut.wire.to));
        (wires.iter().map(|cut| cut.wire).collect(), wires)
    }

    fn reason(&self, from: NodeIndex, to: NodeIndex, merged: bool, fanned: bool) -> CutReason {
        let is_operator = |index: NodeIndex| self.plan[index].kind.operator().is_some();
        let routes = |index: NodeIndex| matches!(self.plan[index].kind, NodeKind::Route(_));
        match self.cut_before.get(&to) {
            _ if routes(to) => CutReason::Route,
            _ if routes(from) && !is_operator(to) => CutReason::Destination,
            _ if routes(from) => CutReason::Route,
            _ if fanned => CutReason::FanOut,
            _ if merged => CutReason::Merge,
            _ if !is_operator(from) => CutReason::Source,
            Some(reason) if is_operator(to) => *reason,
            _ => CutReason::Destination,
        }
    }
}

/// Place where an operator runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExecutionSite {
    /// In the future of its stage.
    Task,
    /// In a future of its own.
    Waiting,
    /// On the thread of its stage.
    Thread,
}

/// An operator and where it runs.
struct PlacedOperator<'a> {
    operator: &'a OperatorNode,
    place: ExecutionSite,
}

/// Places the operators of a run. An inline operator between two isolated ones with the same number of workers runs on
/// their thread. This saves one hop to the thread and back.
fn placed<'a>(operators: &[&'a OperatorNode]) -> Vec<PlacedOperator<'a>> {
    let mut placed: Vec<PlacedOperator<'a>> = Vec::with_capacity(operators.len());
    // The last isolated operator, as long as only inline operators with the same number of workers follow it.
    let mut thread: Option<usize> = None;
    for (i, &operator) in operators.iter().enumerate() {
        let place = match operator.operator.class() {
            Class::Inline => ExecutionSite::Task,
            Class::Async => ExecutionSite::Waiting,
            Class::Isolate => ExecutionSite::Thread,
        };
        placed.push(PlacedOperator { operator, place });
        let same_workers = thread.is_some_and(|t| operators[t].workers == operator.workers);
        match place {
            ExecutionSite::Thread => {
                if let Some(begin) = thread.filter(|_| same_workers) {
                    placed[begin..i].iter_mut().for_each(|step| step.place = ExecutionSite::Thread);
                }
                thread = Some(i);
            }
            ExecutionSite::Task if same_workers => {}
            ExecutionSite::Task | ExecutionSite::Waiting => thread = None,
        }
    }
    placed
}

/// Returns the reason why an operator cannot join the stage of the one before it; `None` if it can.
fn cut(before: &PlacedOperator<'_>, after: &PlacedOperator<'_>) -> Option<CutReason> {
    // A waiting batch would block the steps around it. A stage of its own keeps several batches in flight.
    if before.place == ExecutionSite::Waiting || after.place == ExecutionSite::Waiting {
        return Some(CutReason::Async);
    }
    // The state of an isolated operator cannot leave its thread, and other operators should not occupy the thread.
    if before.place != after.place {
        return Some(CutReason::Isolate);
    }
    // Strips are distributed over the copies of a whole stage, so the number of workers must be equal.
    let (before, after) = (before.operator.workers, after.operator.workers);
    if before != after {
        return Some(CutReason::Workers { before, after });
    }
    // Sources, destinations and nodes with several predecessors or successors have already ended the run.
    None
}
