//! Delivery guarantees for each path from a source to a destination.

use anabranch_graph::plan::graph::{NodeKind, PlanGraph, predecessors};
use anabranch_plugin::destination::Retry;
use anabranch_plugin::operator::Fan;
use anabranch_plugin::source::{Replay, Undelivered};
use anabranch_record::phrase::plural;
use petgraph::stable_graph::NodeIndex;
use serde::Serialize;

use super::{Picture, grouped};

/// A path from a source to a destination.
#[derive(Serialize)]
pub(super) struct Route<'a> {
    pub(super) source: &'a str,
    pub(super) destination: &'a str,
    pub(super) delivery: Delivery,
    /// Ordering guarantee. Order is kept per source partition; a dead-lettered record leaves a gap.
    pub(super) order: &'static str,
    /// Condition under which delivery is effectively once.
    #[serde(rename = "effectivelyOnceIf", skip_serializing_if = "Option::is_none")]
    pub(super) condition: Option<&'static str>,
    pub(super) replay: Repeats,
    /// In a cluster: what the destination does with the writes of a paused node; absent otherwise.
    #[serde(rename = "pausedNode", skip_serializing_if = "Option::is_none")]
    pub(super) paused: Option<PausedWrites>,
}

/// What a destination does with late writes of a node that has lost its lease.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum PausedWrites {
    /// It refuses them.
    Refused,
    /// It accepts what was in flight, which arrives once more.
    Accepted,
}

/// Delivery guarantee.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Delivery {
    /// Repeated after a crash or a retry.
    AtLeastOnce,
    /// Repeated after a crash only: a write with an unknown outcome is not retried, and the pipeline recovers from its
    /// stored positions.
    AtLeastOnceUnrepeated,
    /// Repeated after a crash: the destination is transactional, but there are other destinations and the source may
    /// replay different records.
    #[serde(rename = "at-least-once")]
    AtLeastOnceInexact,
    /// Not repeated: the destination stores the position with the data.
    EffectivelyOnce,
    /// Repeated after a crash or a retry. Lost if the destination fails: it confirms writes before it has them safely.
    MayLose,
    /// Lost if the service ends: the source confirms records before they are delivered.
    #[serde(rename = "may-lose")]
    MayLoseAtCrash,
}

/// Records repeated after a crash.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Repeats {
    /// Maximum number of source records per partition; absent if unlimited.
    pub(super) records: Option<usize>,
    /// The place from which all records are repeated, if their number is unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) all: Option<&'static str>,
    /// Maximum number of records that arrive per source record; absent if unlimited.
    pub(super) copies: Option<u64>,
    /// True if senders repeat the records without a confirmation, as other records; absent if not.
    #[serde(rename = "bySenders", skip_serializing_if = "std::ops::Not::not")]
    pub(super) by_senders: bool,
}

/// Returns all paths, by source, then by destination. O(sources × nodes).
pub(super) fn all(plan: &PlanGraph, replay_rows: usize, cluster: bool) -> Vec<Route<'_>> {
    let indices: Vec<NodeIndex> = plan.node_indices().collect();
    let mut routes = Vec::new();
    for &source in indices.iter().filter(|n| matches!(plan[**n].kind, NodeKind::Source(_))) {
        let arriving = copies(plan, &indices, source);
        let is_end = |(index, copies): &(&NodeIndex, &Option<Copies>)| {
            copies.is_some() && matches!(plan[**index].kind, NodeKind::Destination(_))
        };
        let destinations = indices.iter().zip(&arriving).filter(is_end).count();
        let NodeKind::Source(read) = &plan[source].kind else { continue };
        let (replayed, alone_if, undelivered) =
            (read.source.replay(), read.source.alone_if(), read.source.undelivered());
        let all = match undelivered {
            Undelivered::ReadAgainFrom(place) => Some(place),
            Undelivered::ReadAgain | Undelivered::SentAgain | Undelivered::Lost(_) => None,
        };
        for (&index, copies) in indices.iter().zip(arriving) {
            let (NodeKind::Destination(write), Some(copies)) = (&plan[index].kind, copies) else { continue };
            let delivery = match write.destination.policy().retry {
                _ if undelivered.is_lost() => Delivery::MayLoseAtCrash,
                _ if write.destination.confirms_early() => Delivery::MayLose,
                Retry::Idempotent => Delivery::AtLeastOnce,
                Retry::AtMostOnce => Delivery::AtLeastOnceUnrepeated,
                // With several destinations, the run resumes at the position of the slowest. Only row numbers show what
                // the others already have.
                Retry::Transactional if all.is_some() => Delivery::AtLeastOnce,
                Retry::Transactional if destinations > 1 && replayed != Replay::Exactly => Delivery::AtLeastOnceInexact,
                Retry::Transactional => Delivery::EffectivelyOnce,
            };
            let records = match undelivered {
                Undelivered::ReadAgainFrom(_) => None,
                Undelivered::ReadAgain if delivery != Delivery::EffectivelyOnce => Some(replay_rows),
                Undelivered::ReadAgain | Undelivered::SentAgain | Undelivered::Lost(_) => Some(0),
            };
            let condition = match (delivery, replayed) {
                (Delivery::AtLeastOnceInexact, Replay::ExactlyIf(condition)) => Some(condition),
                (Delivery::EffectivelyOnce, _) => alone_if,
                _ => None,
            };
            routes.push(Route {
                source: &plan[source].id,
                destination: &plan[index].id,
                delivery,
                order: "kept-per-partition",
                condition,
                replay: Repeats { records, all, copies: copies.0, by_senders: undelivered == Undelivered::SentAgain },
                paused: cluster.then(|| match write.destination.refuses_earlier_runs() {
                    true => PausedWrites::Refused,
                    false => PausedWrites::Accepted,
                }),
            });
        }
    }
    routes
}

/// Maximum number of records made of one source record; `None` = unlimited.
#[derive(Clone, Copy)]
struct Copies(Option<u64>);

/// Returns, for each node, the maximum number of records that one source record becomes; `None` if none arrives.
/// Indices are in topological order, because lowering adds a node after its predecessors.
fn copies(plan: &PlanGraph, indices: &[NodeIndex], source: NodeIndex) -> Vec<Option<Copies>> {
    let mut emitted: Vec<Option<Copies>> = Vec::with_capacity(indices.len());
    for &index in indices {
        let arriving = predecessors(plan, index)
            .into_iter()
            .filter_map(|(_, from)| indices.binary_search(&from).ok().and_then(|at| emitted.get(at).copied().flatten()))
            .reduce(|a, b| Copies(a.0.zip(b.0).map(|(a, b)| a.max(b))));
        let arriving = if index == source { Some(Copies(Some(1))) } else { arriving };
        let fan = plan[index].kind.operator().map(|operator| operator.signature.fan);
        emitted.push(arriving.map(|copies| match fan {
            Some(Fan::Many) => Copies(None),
            Some(Fan::Copies(n)) => Copies(copies.0.and_then(|c| c.checked_mul(u64::from(n.max(1))))),
            _ => copies,
        }));
    }
    emitted
}

impl Route<'_> {
    /// Returns `true` if two paths have the same guarantees.
    fn promises_as(&self, other: &Route<'_>) -> bool {
        self.delivery == other.delivery
            && self.condition == other.condition
            && self.replay == other.replay
            && self.paused == other.paused
    }

    /// Describes delivery and order.
    pub(super) fn guarantee(&self) -> String {
        let guarantee = match self.delivery {
            Delivery::AtLeastOnce => "at least once, in the order of each source partition",
            Delivery::AtLeastOnceUnrepeated => {
                "at least once, in the order of each source partition; a write whose outcome is unknown is \
                 repeated only by recovery"
            }
            Delivery::AtLeastOnceInexact => {
                if let Some(condition) = self.condition {
                    let kept = "at least once, in the order of each source partition";
                    return format!("{kept}; effectively once if {condition}");
                }
                "at least once, in the order of each source partition; transactions make it effectively once only if \
                 the source has no other destination, or replays exactly"
            }
            Delivery::MayLose => {
                "records may be lost, because the destination confirms writes early; otherwise at least once, in the order of \
                 each source partition"
            }
            Delivery::MayLoseAtCrash => {
                "a crash or a stop may lose records, because the source confirms them before they are delivered; otherwise at least \
                 once, in the order of each source partition"
            }
            Delivery::EffectivelyOnce => {
                let kept = "effectively once, in the order of each source partition";
                return self.condition.map_or_else(|| kept.to_owned(), |condition| format!("{kept}, if {condition}"));
            }
        };
        guarantee.to_owned()
    }

    /// Describes the records repeated after a crash, and those of a paused node.
    pub(super) fn duplicates(&self) -> String {
        let after_crash = self.after_crash();
        match self.paused {
            None => after_crash,
            Some(PausedWrites::Refused) => format!("{after_crash}; what a node writes that was paused is refused"),
            Some(PausedWrites::Accepted) => {
                format!(
                    "{after_crash}; a node that was paused for more than 4 s may deliver once more what it had in flight"
                )
            }
        }
    }

    fn after_crash(&self) -> String {
        let Some(records) = self.replay.records else {
            let place = self.replay.all.unwrap_or_default();
            let copies = if self.replay.copies == Some(1) { "" } else { ", with all their copies" };
            return format!("a crash repeats all records {place}{copies}");
        };
        let records = records as u64;
        let rows = format!("{} {}", grouped(records), plural(records, "record"));
        match self.replay.copies {
            _ if self.replay.by_senders => {
                "a crash repeats no record, but senders repeat those that were not confirmed".to_owned()
            }
            _ if records == 0 => "a crash repeats no record".to_owned(),
            Some(1) => format!("a crash repeats at most {rows} of a partition"),
            Some(copies) => format!(
                "a crash repeats at most {rows} of a partition, {} copies of each: {} in all",
                grouped(copies),
                grouped(records.saturating_mul(copies))
            ),
            None => format!(
                "a crash repeats at most {rows} of a partition, each with all its pieces: the number of copies is \
                 unlimited"
            ),
        }
    }
}

/// A guarantee, as a row of a table.
pub(super) struct Guarantee {
    pub(super) way: String,
    pub(super) guarantee: String,
    pub(super) duplicates: String,
}

impl Picture<'_> {
    /// Returns one row per guarantee, with the paths that have it. The last row describes failed records, with the mark
    /// of nodes that they leave from. O(routes²) for routes that differ.
    pub(super) fn promises(&self) -> Vec<Guarantee> {
        // Group destinations of a source with equal guarantees first, then sources with equal destinations.
        let mut ways: Vec<(Vec<&str>, Vec<&str>, &Route<'_>)> = Vec::new();
        for route in &self.routes {
            let same =
                ways.iter_mut().find(|(sources, _, other)| sources[..] == [route.source] && other.promises_as(route));
            match same {
                Some((_, destinations, _)) => destinations.push(route.destination),
                None => ways.push((vec![route.source], vec![route.destination], route)),
            }
        }
        let mut rows: Vec<(Vec<&str>, Vec<&str>, &Route<'_>)> = Vec::new();
        for (sources, destinations, route) in ways {
            let same = rows.iter_mut().find(|(_, others, other)| *others == destinations && other.promises_as(route));
            match same {
                Some((all, ..)) => all.extend(sources),
                None => rows.push((sources, destinations, route)),
            }
        }
        let promise = |(sources, destinations, route): (Vec<&str>, Vec<&str>, &Route<'_>)| Guarantee {
            way: format!("{} → {}", sources.join(", "), destinations.join(", ")),
            guarantee: route.guarantee(),
            duplicates: route.duplicates(),
        };
        let mut promises: Vec<Guarantee> = rows.into_iter().map(promise).collect();
        promises.push(Guarantee {
            way: format!("○ failed records → {}", self.dead_letter_queue.plugin),
            guarantee: self.dead_letter_queue.rule(),
            duplicates: String::new(),
        });
        promises
    }
}
