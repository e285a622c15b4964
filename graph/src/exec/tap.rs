//! Taps: inspection of records in flight.
//!
//! Every node has a tap. Without an inspection it costs one relaxed load per strip. An [`Inspection`] watches one or
//! more taps. Stages send it copies of records, which share their content with the originals. Its rate, the limit on
//! held records and its share of the time of the stages limit the number of copies; other records are only counted. A
//! stage never waits for an inspection.
//!
//! Taps belong to the pipeline and not to a run: their owner passes them to every run
//! ([`RunOptions::taps`](super::RunOptions)), and an inspection continues across restarts.

mod inspection;
mod pace;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

pub use inspection::{Inspection, InspectionParameters, TappedRecord, Unjudged};

use anabranch_record::Record;
use anabranch_record::text::Str;
use inspection::Session;

use crate::plan::graph::RouteNode;
use crate::plan::stage::{DeadLetterSpec, StageKind, StagePlan};

/// Kind of the node of a tap. A connector and a processor may have the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeRole {
    /// A source.
    Source,
    /// A processor.
    Processor,
    /// A destination.
    Destination,
    /// The dead-letter queue.
    DeadLetters,
}

impl NodeRole {
    /// All roles.
    pub const ALL: [NodeRole; 4] =
        [NodeRole::Source, NodeRole::Processor, NodeRole::Destination, NodeRole::DeadLetters];

    /// Returns the name of the role.
    pub const fn as_str(self) -> &'static str {
        match self {
            NodeRole::Source => "source",
            NodeRole::Processor => "processor",
            NodeRole::Destination => "destination",
            NodeRole::DeadLetters => "dead-letter-queue",
        }
    }
}

impl fmt::Display for NodeRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Side of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// Records that enter the node, including those that do not satisfy its condition.
    Before,
    /// Records that leave the node.
    After,
}

impl Side {
    /// Returns the name of the side.
    pub const fn as_str(self) -> &'static str {
        match self {
            Side::Before => "before",
            Side::After => "after",
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A place in a plan where records can be inspected.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TapPoint {
    /// Kind of the node.
    pub role: NodeRole,
    /// Displayed id of the node.
    pub node: Str,
    /// Side of the node.
    pub side: Side,
}

/// Returns all places of a plan: after sources, before and after processors, before destinations and the dead-letter
/// queue, in plan order.
pub fn places(plan: &StagePlan) -> Vec<TapPoint> {
    let mut places = Vec::new();
    let mut add = |role, node: &Str, sides: &[Side]| {
        places.extend(sides.iter().map(|side| TapPoint { role, node: node.clone(), side: *side }));
    };
    for stage in &plan.stages {
        match &stage.kind {
            StageKind::Read(read) => add(NodeRole::Source, &read.connector, &[Side::After]),
            StageKind::Chain(steps) | StageKind::Parallel { steps, .. } | StageKind::Isolate { steps, .. } => {
                for step in steps {
                    add(NodeRole::Processor, &step.node, &[Side::Before, Side::After]);
                }
            }
            StageKind::Async { step, .. } => add(NodeRole::Processor, &step.node, &[Side::Before, Side::After]),
            StageKind::Route(_) => {
                add(NodeRole::Processor, &Str::from_static(RouteNode::NODE), &[Side::Before, Side::After]);
            }
            StageKind::Write(write) => add(NodeRole::Destination, &write.connector, &[Side::Before]),
        }
    }
    add(NodeRole::DeadLetters, &Str::from_static(DeadLetterSpec::NODE), &[Side::Before]);
    places
}

/// The taps of a pipeline.
#[derive(Debug, Default)]
pub struct Taps {
    taps: Mutex<BTreeMap<(NodeRole, Str), Arc<Tap>>>,
    /// Number of open inspections, which share the time limit for all inspections.
    inspections: Arc<AtomicUsize>,
}

impl Taps {
    /// Opens an inspection. Dropping it closes it. A place that does not exist in the pipeline yields no records.
    pub fn inspect(&self, look: InspectionParameters) -> Inspection {
        let taps = look.places.iter().map(|place| (self.at(place.role, &place.node), place.side)).collect();
        Inspection::open(taps, look, self.inspections.clone())
    }

    /// Returns the number of open inspections.
    pub fn inspections(&self) -> usize {
        self.inspections.load(Ordering::Relaxed)
    }

    /// Returns the tap of a node, for a run or an inspection.
    pub(super) fn at(&self, role: NodeRole, node: &Str) -> Arc<Tap> {
        let mut taps = self.taps.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (role, node.clone());
        if let Some(tap) = taps.get(&key) {
            return tap.clone();
        }
        // Remove the taps of nodes that were removed from the pipeline.
        taps.retain(|_, tap| Arc::strong_count(tap) > 1);
        taps.entry(key).or_default().clone()
    }
}

/// The tap of a node.
#[derive(Debug)]
pub(super) struct Tap {
    watched: AtomicBool,
    watchers: RwLock<Arc<[TapInspection]>>,
}

impl Default for Tap {
    fn default() -> Self {
        Tap { watched: AtomicBool::new(false), watchers: RwLock::new(Arc::new([])) }
    }
}

/// An inspection of one side of a node.
#[derive(Clone, Debug)]
struct TapInspection {
    session: Arc<Session>,
    /// Index of the place in the inspection.
    place: usize,
    side: Side,
}

/// The inspections of a node.
pub(super) struct TapInspections(Arc<[TapInspection]>);

impl Tap {
    /// Returns the inspections of the node. If there are none, returns `None` at almost no cost.
    #[inline]
    pub(super) fn watchers(&self) -> Option<TapInspections> {
        if self.watched.load(Ordering::Relaxed) { Some(self.now_watching()) } else { None }
    }

    #[cold]
    fn now_watching(&self) -> TapInspections {
        // The lock is held only to copy or replace a pointer.
        TapInspections(self.watchers.read().unwrap_or_else(PoisonError::into_inner).clone())
    }

    fn change(&self, change: impl FnOnce(&mut Vec<TapInspection>)) {
        let mut watchers = self.watchers.write().unwrap_or_else(PoisonError::into_inner);
        let mut all = watchers.to_vec();
        change(&mut all);
        self.watched.store(!all.is_empty(), Ordering::Relaxed);
        *watchers = all.into();
    }
}

impl TapInspections {
    /// Shows rows of a strip to the inspections of this side.
    pub(super) fn show(&self, side: Side, records: &[Record]) {
        for watcher in self.0.iter().filter(|watcher| watcher.side == side) {
            watcher.session.show(watcher.place, records);
        }
    }
}
