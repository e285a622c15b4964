//! Taps: records on their way, shown to whoever looks.
//!
//! Every node has a tap. While nobody looks it costs one relaxed load per strip. An [`Inspection`] watches one or more
//! taps: the stage gives it copies of records, which share what they hold, as often as its pace, its bound on what is
//! held and its share of the stages' time allow, and counts the others. A stage never waits for an inspection.
//!
//! Taps belong to the pipeline and not to a run of it: who owns them gives them to every run
//! ([`RunOptions::taps`](super::RunOptions)), and an inspection goes on over restarts.

mod inspection;
mod pace;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

pub use inspection::{Glimpse, Inspection, Look, Unjudged};

use anabranch_record::Record;
use anabranch_record::text::Str;
use inspection::Session;

use crate::plan::stage::{DeadLetterSpec, StageKind, StagePlan};

/// What kind of node a tap sits at: a connector and a processor may have the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Station {
    /// A source.
    Source,
    /// A processor.
    Processor,
    /// A destination.
    Destination,
    /// The dead-letter queue.
    DeadLetters,
}

impl Station {
    /// All of them.
    pub const ALL: [Station; 4] = [Station::Source, Station::Processor, Station::Destination, Station::DeadLetters];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Station::Source => "source",
            Station::Processor => "processor",
            Station::Destination => "destination",
            Station::DeadLetters => "dead-letter-queue",
        }
    }
}

impl fmt::Display for Station {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// On which side of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// Records as they come to the node; with a condition, also those that it does not hold for.
    Before,
    /// Records as they leave it.
    After,
}

impl Side {
    /// Its name.
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

/// A place of a graph where records can be looked at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The kind of the node.
    pub station: Station,
    /// Id of the node, as plans show it.
    pub node: Str,
    /// Before or after it.
    pub side: Side,
}

/// All places of a plan: behind sources, before and behind processors, before destinations and the dead-letter queue,
/// in the order of the plan.
pub fn places(plan: &StagePlan) -> Vec<Place> {
    let mut places = Vec::new();
    let mut add = |station, node: &Str, sides: &[Side]| {
        places.extend(sides.iter().map(|side| Place { station, node: node.clone(), side: *side }));
    };
    for stage in &plan.stages {
        match &stage.kind {
            StageKind::Read(read) => add(Station::Source, &read.connector, &[Side::After]),
            StageKind::Chain(steps) | StageKind::Parallel { steps, .. } | StageKind::Isolate { steps, .. } => {
                for step in steps {
                    add(Station::Processor, &step.node, &[Side::Before, Side::After]);
                }
            }
            StageKind::Async { step, .. } => add(Station::Processor, &step.node, &[Side::Before, Side::After]),
            StageKind::Write(write) => add(Station::Destination, &write.connector, &[Side::Before]),
        }
    }
    add(Station::DeadLetters, &Str::from_static(DeadLetterSpec::NODE), &[Side::Before]);
    places
}

/// The taps of a pipeline.
#[derive(Debug, Default)]
pub struct Taps {
    taps: Mutex<BTreeMap<(Station, Str), Arc<Tap>>>,
    /// Inspections that are open: they share the time that all of them may take.
    inspections: Arc<AtomicUsize>,
}

impl Taps {
    /// Starts to look. Dropping the inspection ends it. A place that the pipeline does not have shows nothing.
    pub fn inspect(&self, look: Look) -> Inspection {
        let taps = look.places.iter().map(|place| (self.at(place.station, &place.node), place.side)).collect();
        Inspection::open(taps, look, self.inspections.clone())
    }

    /// Number of inspections that are open.
    pub fn inspections(&self) -> usize {
        self.inspections.load(Ordering::Relaxed)
    }

    /// The tap of a node, for a run or an inspection.
    pub(super) fn at(&self, station: Station, node: &Str) -> Arc<Tap> {
        let mut taps = self.taps.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (station, node.clone());
        if let Some(tap) = taps.get(&key) {
            return tap.clone();
        }
        // Nodes that a change of the pipeline took away are not kept for ever.
        taps.retain(|_, tap| Arc::strong_count(tap) > 1);
        taps.entry(key).or_default().clone()
    }
}

/// The tap of one node.
#[derive(Debug)]
pub(super) struct Tap {
    watched: AtomicBool,
    watchers: RwLock<Arc<[Watcher]>>,
}

impl Default for Tap {
    fn default() -> Self {
        Tap { watched: AtomicBool::new(false), watchers: RwLock::new(Arc::new([])) }
    }
}

/// An inspection that watches one side of a node.
#[derive(Clone, Debug)]
struct Watcher {
    session: Arc<Session>,
    /// Which of the places of the inspection it is.
    place: usize,
    side: Side,
}

/// Those who watch a node.
pub(super) struct Watchers(Arc<[Watcher]>);

impl Tap {
    /// Who watches; `None` at next to no cost while nobody does.
    #[inline]
    pub(super) fn watchers(&self) -> Option<Watchers> {
        if self.watched.load(Ordering::Relaxed) { Some(self.now_watching()) } else { None }
    }

    #[cold]
    fn now_watching(&self) -> Watchers {
        // Held to copy or to replace a pointer, never longer.
        Watchers(self.watchers.read().unwrap_or_else(PoisonError::into_inner).clone())
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Watcher>)) {
        let mut watchers = self.watchers.write().unwrap_or_else(PoisonError::into_inner);
        let mut all = watchers.to_vec();
        change(&mut all);
        self.watched.store(!all.is_empty(), Ordering::Relaxed);
        *watchers = all.into();
    }
}

impl Watchers {
    /// Shows rows of a strip to those who watch this side.
    pub(super) fn show(&self, side: Side, records: &[Record]) {
        for watcher in self.0.iter().filter(|watcher| watcher.side == side) {
            watcher.session.show(watcher.place, records);
        }
    }
}
