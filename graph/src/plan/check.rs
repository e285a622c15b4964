//! Checks of a lowered plan.

mod routes;

use std::sync::Arc;

use anabranch_plugin::destination::{Destination, Retry};
use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics, Span};
use anabranch_plugin::operator::Fan;
use anabranch_plugin::source::Source;
use anabranch_record::access::Access;
use anabranch_record::extent::{CollectionSpace, Extent};
use anabranch_record::metadata::key;
use anabranch_record::phrase::counted;
use anabranch_template::condition::CompiledCondition;
use petgraph::algo::toposort;
use petgraph::stable_graph::NodeIndex;

use crate::codes;
use crate::plan::graph::{Node, NodeKind, PlanGraph, Port, predecessors, successors};
use anabranch_config::limits::MemoryLimits;

/// Checks a lowered plan. O(nodes + edges).
pub fn check(plan: &PlanGraph, limits: &MemoryLimits) -> Diagnostics {
    let mut findings = Diagnostics::new();
    let Ok(order) = toposort(plan, None) else {
        findings.push(defect("the plan has a cycle"));
        return findings;
    };
    conditions(plan, &mut findings);
    routes::check(plan, &mut findings);
    two_filters(plan, &mut findings);
    feedback(plan, &mut findings);
    queue(plan, &mut findings);
    reachability(plan, &order, &mut findings);
    batches(plan, &order, limits, &mut findings);
    findings
}

/// Checks that every node has the edges that its kind requires. This holds for every graph that is lowered without
/// errors, and after every rewrite.
///
/// # Errors
/// `plan.internal`: a defect of the compiler, not an error in the pipeline.
pub fn arity(plan: &PlanGraph) -> Result<(), Diagnostics> {
    let mut findings = Diagnostics::new();
    for index in plan.node_indices() {
        let ports: Vec<Port> = successors(plan, index).into_iter().map(|(port, _)| port).collect();
        let into = predecessors(plan, index).len();
        let node = &plan[index];
        let sound = match &node.kind {
            NodeKind::Source(_) => into == 0 && ports == [Port::Out],
            NodeKind::Operator(_) | NodeKind::Split(_) => into == 1 && ports == [Port::Out],
            NodeKind::Branch(_) => into == 1 && ports == [Port::Taken, Port::Skipped],
            NodeKind::FanOut { copies } => into == 1 && ports.len() == *copies && ports.iter().all(|p| *p == Port::Out),
            NodeKind::Route(route) => {
                into == 1 && ports.len() == route.rules.len() && ports.iter().all(|p| *p == Port::Out)
            }
            NodeKind::Merge => into > 1 && ports == [Port::Out],
            NodeKind::Destination(_) => into == 1 && ports.is_empty(),
            NodeKind::DeadLetter(_) => into == 0 && ports.is_empty(),
        };
        if !sound {
            findings.push(defect(&format!("node {:?} has {into} inputs and outputs {ports:?}", node.id)));
        }
    }
    if findings.is_empty() { Ok(()) } else { Err(findings) }
}

/// Returns a finding about a defect of the compiler.
pub fn defect(what: &str) -> Diagnostic {
    Diagnostic::error(codes::PLAN_INTERNAL, format!("the compiler created an unsound plan: {what}"))
        .with_hint("this is a defect of Anabranch: please report it with the pipeline")
}

/// Finds conditions that have the same result for every record.
fn conditions(plan: &PlanGraph, findings: &mut Diagnostics) {
    for node in plan.node_weights() {
        let NodeKind::Branch(guard) = &node.kind else { continue };
        let verdict = match (guard.condition.constant(), guard.condition.settled()) {
            (Some(verdict), _) => (verdict, false),
            (None, Some(verdict)) => (verdict, true),
            (None, None) => continue,
        };
        let (code, message, hint) = match verdict {
            (true, true) => (
                codes::PLAN_CONDITION_ALWAYS_TRUE,
                "the condition excludes no value: it holds for every record",
                "join its parts with `and`, or correct one of them",
            ),
            (false, true) => (
                codes::PLAN_CONDITION_ALWAYS_FALSE,
                "the parts of the condition contradict each other: it holds for no record",
                "join them with `or`, or correct one of them",
            ),
            (true, false) => (
                codes::PLAN_CONDITION_ALWAYS_TRUE,
                "the condition holds for every record",
                "remove it: the processor is always applied",
            ),
            (false, false) => (
                codes::PLAN_CONDITION_ALWAYS_FALSE,
                "the condition holds for no record: the processor is never applied",
                "correct it, or remove the processor",
            ),
        };
        findings.push(Diagnostic::warning(code, message).with_span(node.span).with_path(&*node.path).with_hint(hint));
    }
}

/// Finds two consecutive filters where the second drops all records that the first one keeps.
fn two_filters(plan: &PlanGraph, findings: &mut Diagnostics) {
    let guard = |index: NodeIndex| match &plan[index].kind {
        NodeKind::Branch(guard) => Some(guard),
        _ => None,
    };
    let filter = |index: NodeIndex| {
        let mut taken = successors(plan, index).into_iter().filter(|(port, _)| *port == Port::Taken);
        let node = taken.next().map(|(_, node)| node)?;
        let step = plan[node].kind.operator()?;
        (step.signature.fan == Fan::Never && *step.plugin == *"filter").then_some(node)
    };
    for first in plan.node_indices() {
        let (Some(ours), Some(dropper)) = (guard(first), filter(first)) else { continue };
        let left = successors(plan, first).into_iter().find(|(port, _)| *port == Port::Skipped);
        let Some((_, mut next)) = left else { continue };
        let only = |index: NodeIndex| predecessors(plan, index).iter().all(|(_, from)| [first, dropper].contains(from));
        if matches!(plan[next].kind, NodeKind::Merge) && only(next) {
            let Some((_, behind)) = successors(plan, next).into_iter().next() else { continue };
            next = behind;
        } else if !only(next) {
            continue;
        }
        let (Some(theirs), Some(second)) = (guard(next), filter(next)) else { continue };
        if ours.condition.holds_where_not(&theirs.condition) {
            let (a, b) = (&plan[dropper].id, &plan[second].id);
            let message = format!("every record is dropped: {b:?} drops all records that {a:?} keeps");
            let finding = Diagnostic::warning(codes::PLAN_ALL_DROPPED, message)
                .with_label(plan[next].span, "the other records are dropped here")
                .with_path(&*plan[next].path)
                .with_related(plan[first].span, "some records are dropped here")
                .with_hint("a filter drops the records for which its condition holds; invert it with `not`");
            findings.push(finding);
        }
    }
}

/// The records that two destinations of a pipeline have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedRecords {
    /// No record is shared: each destination's filters drop the records of the other.
    Nothing,
    /// Possibly some.
    Some,
    /// All of them.
    All,
}

/// Returns which records reach both of two destinations. The destinations are given by their node ids in a lowered
/// plan. O(processors before them).
pub fn shared(plan: &PlanGraph, one: &str, other: &str) -> SharedRecords {
    let of = |id: &str| {
        let is_end = |node: &NodeIndex| matches!(plan[*node].kind, NodeKind::Destination(_)) && *plan[*node].id == *id;
        plan.node_indices().find(is_end).map(|end| own_steps(plan, end)).unwrap_or_default()
    };
    let (ours, theirs) = (of(one), of(other));
    let guards = |steps: &[NodeIndex]| -> Vec<Arc<CompiledCondition>> {
        // Only filters that receive the record before it differs between the two.
        let first = steps.iter().rev().map_while(|node| filtered_by(plan, *node));
        first.flatten().collect()
    };
    let excluded = |a: &Arc<CompiledCondition>| guards(&theirs).iter().any(|b| a.holds_where_not(b));
    let loses = |steps: &[NodeIndex]| {
        steps.iter().any(|node| plan[*node].kind.operator().is_some_and(|step| step.signature.fan != Fan::One))
    };
    match () {
        () if routes::exclusive(plan, one, other) => SharedRecords::Nothing,
        () if guards(&ours).iter().any(excluded) => SharedRecords::Nothing,
        () if loses(&ours) || loses(&theirs) || routes::divide(plan) => SharedRecords::Some,
        () => SharedRecords::All,
    }
}

/// Returns the nodes before one destination that no other destination shares, the last node first.
fn own_steps(plan: &PlanGraph, end: NodeIndex) -> Vec<NodeIndex> {
    let mut steps = Vec::new();
    let mut waiting = vec![end];
    while let Some(node) = waiting.pop() {
        for (_, from) in predecessors(plan, node) {
            if matches!(plan[from].kind, NodeKind::FanOut { .. } | NodeKind::Route(_) | NodeKind::Source(_))
                || steps.contains(&from)
            {
                continue;
            }
            steps.push(from);
            waiting.push(from);
        }
    }
    steps
}

/// Returns the condition of the filter that a node is part of. `Some(None)` if the node is part of a filter but is not
/// its condition; `None` if it is not part of a filter.
fn filtered_by(plan: &PlanGraph, node: NodeIndex) -> Option<Option<Arc<CompiledCondition>>> {
    let is_filter = |node: NodeIndex| {
        plan[node].kind.operator().is_some_and(|step| step.signature.fan == Fan::Never && *step.plugin == *"filter")
    };
    match &plan[node].kind {
        NodeKind::Branch(guard) => {
            let filters = successors(plan, node).iter().any(|(port, next)| *port == Port::Taken && is_filter(*next));
            filters.then(|| Some(guard.condition.clone()))
        }
        NodeKind::Merge => Some(None),
        _ => is_filter(node).then_some(None),
    }
}

/// Finds destinations that write the data that a source reads: records would repeat until the disk is full.
fn feedback(plan: &PlanGraph, findings: &mut Diagnostics) {
    let read: Vec<(&Node, Arc<dyn Source>)> = plan
        .node_weights()
        .filter_map(|node| match &node.kind {
            NodeKind::Source(read) => Some((node, read.source.clone())),
            _ => None,
        })
        .collect();
    for end in plan.node_indices() {
        let node = &plan[end];
        let destination = match &node.kind {
            NodeKind::Destination(write) => &write.destination,
            NodeKind::DeadLetter(queue) => &queue.destination,
            _ => continue,
        };
        for start in plan.node_indices() {
            let source = &plan[start];
            let NodeKind::Source(read) = &source.kind else { continue };
            if let Some(written) = feeds(&**destination, &*read.source) {
                findings.push(feeds_back_by_name(node, source, &written));
            } else if let Some(place) = shared_collections(&**destination, &*read.source)
                && keeps_collection(plan, start, end)
            {
                findings.push(feeds_back_by_collection(node, source, &place));
            }
        }
        if let Some(directory) = destination.directory() {
            // The name of a file is known only with its record. A pattern with an ending may match none of them.
            let file = plain_path(&format!("{}/record", directory.trim_end_matches('/')));
            let reads = read.iter().filter(|(_, source)| source.reads_file(&file));
            reads.for_each(|(source, _)| findings.push(may_feed_back(node, source, directory)));
        }
        let written = destination.file();
        let Some(written) = written.map(plain_path) else { continue };
        let feeds = |source: &dyn Source| {
            source.file().is_some_and(|path| plain_path(path) == written) || source.reads_file(&written)
        };
        for (source, _) in read.iter().filter(|(_, source)| feeds(&**source)) {
            findings.push(feeds_back(node, source));
        }
    }
}

/// Returns the data that the destination writes and the source reads, judged by name. Files are compared by path
/// instead.
pub fn feeds(destination: &dyn Destination, source: &dyn Source) -> Option<Extent> {
    destination.writes().into_iter().find(|written| source.reads_all_of(written))
}

/// Returns the place in which both the source and the destination choose resources by the collection of a record.
fn shared_collections(destination: &dyn Destination, source: &dyn Source) -> Option<CollectionSpace> {
    let (written, read) = (destination.collections()?, source.collections()?);
    (written.what == read.what && written.space == read.space).then_some(written)
}

/// Returns `true` if records of a source reach a destination with the collection that the source gave them.
fn keeps_collection(plan: &PlanGraph, source: NodeIndex, end: NodeIndex) -> bool {
    let collection = Access::metadata(key::COLLECTION);
    let changes = |node: NodeIndex| {
        plan[node].kind.operator().is_some_and(|step| {
            step.signature.fan == Fan::Never && step.guard.is_none() || step.signature.writes.overlaps(&collection)
        })
    };
    let (mut waiting, mut seen) = (vec![end], Vec::new());
    while let Some(node) = waiting.pop() {
        for (_, from) in predecessors(plan, node) {
            if from == source {
                return true;
            }
            if !changes(from) && !seen.contains(&from) {
                seen.push(from);
                waiting.push(from);
            }
        }
    }
    false
}

fn feeds_back_by_collection(node: &Node, source: &Node, place: &CollectionSpace) -> Diagnostic {
    let CollectionSpace { what, setting, .. } = place;
    Diagnostic::error(
        codes::PLAN_FEEDBACK,
        format!(
            "{:?} writes each record to where {:?} reads it, among the same {what}: every record would be read again, \
             endlessly",
            node.id, source.id
        ),
    )
    .with_label(place_of(node, setting), "written to the collection of the record")
    .with_related(source.span, "read here")
    .with_path(format!("{}/settings/{setting}", node.path))
    .with_hint(format!("set {setting}, or change the metadata {} in a processor", key::COLLECTION))
}

/// Returns the place of a setting in the file, or that of the node if the setting is not given.
pub fn place_of(node: &Node, setting: &str) -> Span {
    node.settings.iter().find(|given| given.name == *setting).map_or(node.span, |given| given.span)
}

fn feeds_back_by_name(node: &Node, source: &Node, Extent { what, setting, .. }: &Extent) -> Diagnostic {
    Diagnostic::error(
        codes::PLAN_FEEDBACK,
        format!("{:?} writes {what} that {:?} reads: every record would be read again, endlessly", node.id, source.id),
    )
    .with_label(place_of(node, setting), "written here")
    .with_related(place_of(source, setting), "read here")
    .with_path(format!("{}/settings/{setting}", node.path))
    .with_hint(format!("set another {setting} for one of them, so that the source does not read the written records"))
}

/// Returns the finding for a node that writes the file that a source reads.
pub fn feeds_back(node: &Node, source: &Node) -> Diagnostic {
    Diagnostic::error(
        codes::PLAN_FEEDBACK,
        format!(
            "{:?} writes the file that {:?} reads: every record would be read again, endlessly",
            node.id, source.id
        ),
    )
    .with_label(place_of(node, "path"), "written here")
    .with_related(place_of(source, "path"), "read here")
    .with_path(format!("{}/settings/path", node.path))
    .with_hint("set another path for it")
}

fn may_feed_back(node: &Node, source: &Node, directory: &str) -> Diagnostic {
    Diagnostic::warning(
        codes::PLAN_FEEDBACK,
        format!(
            "{:?} writes files into {directory}, where {:?} reads every file: a record that is written there is read \
             again, endlessly",
            node.id, source.id
        ),
    )
    .with_label(place_of(node, "path"), "written here")
    .with_related(place_of(source, "path"), "read here")
    .with_path(format!("{}/settings/path", node.path))
    .with_hint("write into another directory")
}

/// Finds a dead-letter queue that would store positions with its dead letters, which have none.
fn queue(plan: &PlanGraph, findings: &mut Diagnostics) {
    for node in plan.node_weights() {
        let NodeKind::DeadLetter(queue) = &node.kind else { continue };
        if queue.destination.policy().retry == Retry::Transactional {
            let message =
                "a dead-letter queue does not store positions of the source, so exactlyOnce is not possible here";
            let hint = "remove exactlyOnce: a dead letter that is written again replaces the previous one";
            let place = place_of(node, "exactlyOnce");
            let path = format!("{}/settings/exactlyOnce", node.path);
            let finding = Diagnostic::error(codes::PLAN_QUEUE_TRANSACTIONAL, message).with_span(place).with_path(path);
            findings.push(finding.with_hint(hint));
        }
    }
}

/// Normalizes a path: removes empty parts, `.`, and `..` with the part before it.
fn plain_path(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("{}{}", if path.starts_with('/') { "/" } else { "" }, parts.join("/"))
}

/// Finds nodes that no record reaches because an operator before them drops or fails all records.
fn reachability(plan: &PlanGraph, order: &[NodeIndex], findings: &mut Diagnostics) {
    // Per node: whether a record may reach it, and if not, the operator at which all records end.
    let bound = plan.node_indices().map(|n| n.index() + 1).max().unwrap_or(0);
    let mut reached = vec![false; bound];
    let mut ended_by: Vec<Option<NodeIndex>> = vec![None; bound];
    let mut unreached: Vec<(NodeIndex, NodeIndex)> = Vec::new();
    for &index in order {
        let node = &plan[index];
        let into = predecessors(plan, index);
        reached[index.index()] = into.is_empty()
            || into.iter().any(|(port, from)| {
                reached[from.index()]
                    && match (&plan[*from].kind, port) {
                        (NodeKind::Branch(guard), Port::Taken) => guard.condition.constant() != Some(false),
                        (NodeKind::Branch(guard), Port::Skipped) => guard.condition.constant() != Some(true),
                        (kind, _) => kind.operator().is_none_or(|o| o.signature.fan != Fan::Never),
                    }
            });
        if reached[index.index()] {
            continue;
        }
        let end = into.iter().find_map(|(_, from)| match &plan[*from].kind {
            kind if reached[from.index()] && kind.operator().is_some() => Some(*from),
            _ => ended_by[from.index()],
        });
        ended_by[index.index()] = end;
        if let Some(end) = end
            && (node.kind.operator().is_some() || matches!(node.kind, NodeKind::Destination(_)))
        {
            unreached.push((end, index));
        }
    }
    unreached.sort_unstable();
    for group in unreached.chunk_by(|a, b| a.0 == b.0) {
        let end = &plan[group[0].0];
        let mut finding = Diagnostic::warning(
            codes::PLAN_UNREACHABLE,
            format!(
                "no record passes {:?}: {} after it never {}",
                end.id,
                names(plan, group),
                match group.len() {
                    1 => "receives one",
                    _ => "receive one",
                }
            ),
        )
        .with_label(end.span, "every record ends here")
        .with_path(&*end.path)
        .with_hint("add a condition to it, or move it");
        for (_, index) in group.iter().take(MOST_NAMED) {
            finding = finding.with_related(plan[*index].span, "never receives a record");
        }
        findings.push(finding);
    }
}

/// Maximum number of nodes that one finding names.
const MOST_NAMED: usize = 3;

fn names(plan: &PlanGraph, group: &[(NodeIndex, NodeIndex)]) -> String {
    let named: Vec<String> = group.iter().take(MOST_NAMED).map(|(_, index)| format!("{:?}", plan[*index].id)).collect();
    match group.len() - named.len() {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

/// Finds batches larger than the number of rows that may be in flight.
fn batches(plan: &PlanGraph, order: &[NodeIndex], limits: &MemoryLimits, findings: &mut Diagnostics) {
    let most = limits.replay_rows;
    let single_source = plan.node_weights().filter(|n| matches!(n.kind, NodeKind::Source(_))).count() == 1;
    let multiplied = order.iter().any(|index| matches!(plan[*index].kind, NodeKind::Split(_)));
    for node in plan.node_weights() {
        let never_fills = |size: usize| {
            let (size, most) = (counted(size, "record"), counted(most, "record"));
            format!("batches of {size} never fill: at most {most} of {:?} are in flight", node.id)
        };
        let hint = format!("set sdk.batch.size to {most} or less, or raise engine.replay-rows");
        let finding = match &node.kind {
            NodeKind::Source(read) => {
                let Some(size) = read.batch_rows.filter(|size| *size > most) else { continue };
                match read.batch_delay.is_zero() {
                    true => Diagnostic::error(codes::PLAN_BATCH_NEVER_FILLS, never_fills(size)),
                    false => Diagnostic::warning(codes::PLAN_BATCH_NEVER_FILLS, never_fills(size)),
                }
            }
            // Several sources, or copies of records, can fill a larger batch.
            NodeKind::Destination(write) if single_source && !multiplied => {
                let Some(size) = write.batch_rows.filter(|size| *size > most) else { continue };
                let (size, most) = (counted(size, "record"), counted(most, "record"));
                let message =
                    format!("writes of {size} may never fill: at most {most} of a source partition are in flight");
                Diagnostic::warning(codes::PLAN_BATCH_NEVER_FILLS, message)
            }
            _ => continue,
        };
        let span = node.settings.iter().find(|s| s.name == "sdk.batch.size").map_or(node.span, |s| s.span);
        let path = format!("{}/settings/sdk.batch.size", node.path);
        findings.push(finding.with_span(span).with_path(path).with_hint(hint));
    }
}
