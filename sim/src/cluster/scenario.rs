//! The course of a simulation of a cluster.

use std::fmt;

use fastrand::Rng;

use super::forms::ProgramVersion;
use super::tables::FileSet;

/// Time in milliseconds after which nothing goes wrong any more.
pub(super) const TROUBLE: u64 = 30_000;

/// The destination of the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SinkKind {
    /// It stores marks in the transactions of the rows.
    Transactional,
    /// It refuses rows of earlier runs.
    Fenced,
    /// It takes what it gets.
    Plain,
}

/// Something that happens to a node or to the server of the store. Times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClusterEvent {
    Crash(u32),
    /// Starts a node that is down.
    Start(u32),
    Pause(u32, u64),
    /// Stops a node in order: it drains its units first.
    Leave(u32),
    /// Stops a node in order, and starts it again.
    Restart(u32),
    /// Restarts a node with a program of this version.
    Replace(u32, ProgramVersion),
    /// Puts a set of pipeline files on the disk of a node, which reads them when it starts.
    Files(u32, FileSet),
    /// A user has the cluster import a set of files.
    Apply(FileSet),
    /// A user stops or starts the pipeline.
    Stop,
    Begin,
    /// Cuts a node off from the store.
    Cut(u32, u64),
    /// A standby takes over that lacks what was written in the last milliseconds.
    Failover(u64),
    /// The clock of the server steps.
    Clock(i64),
}

/// A scenario.
#[derive(Clone, Debug)]
pub struct ClusterScenario {
    pub(super) seed: u64,
    pub(super) nodes: u32,
    pub(super) slots: u32,
    pub(super) partitions: u32,
    /// Rows of each partition.
    pub(super) rows: u64,
    /// Time between two rows of a partition, in milliseconds.
    pub(super) period: u64,
    pub(super) sink: SinkKind,
    /// Maximum time until the destination is open, in milliseconds.
    pub(super) opening: u64,
    /// One in this number of requests to the store goes wrong, and of writes to the destination; 0 = none.
    pub(super) faults: u64,
    /// True if each slot of a run has a writer of its own.
    pub(super) has_writers_per_slot: bool,
    /// The versions of the nodes at the beginning.
    pub(super) versions: Vec<ProgramVersion>,
    /// True if nothing goes wrong: nodes come and go as planned, and users change what the cluster does.
    pub(super) is_planned: bool,
    /// The events, in order of their times.
    pub(super) events: Vec<(u64, ClusterEvent)>,
}

impl ClusterScenario {
    /// Generates the scenario of a seed.
    pub fn generate(seed: u64) -> ClusterScenario {
        let mut rng = Rng::with_seed(seed);
        let nodes = rng.u32(2..=4);
        let period = rng.u64(100..900);
        let is_planned = rng.u32(..5) == 0;
        let opening = if is_planned { 60 } else { [60, 60, 4_000][rng.usize(..3)] };
        let mut versions = vec![ProgramVersion::Newer; nodes as usize];
        let mut events = if is_planned { plans(&mut rng, nodes) } else { troubles(&mut rng, nodes, opening) };
        match rng.u32(..4) {
            0 if is_planned => events = rolling(&mut rng, &mut versions, 6_000),
            0 => events.extend(rolling(&mut rng, &mut versions, 2_000)),
            1 => versions.fill_with(|| [ProgramVersion::Older, ProgramVersion::Newer][rng.usize(..2)]),
            _ => {}
        }
        if !is_planned && rng.u32(..3) == 0 {
            events.extend(sets(&mut rng, nodes));
        }
        if !is_planned && rng.u32(..3) == 0 {
            events.extend(stops(&mut rng, nodes));
        }
        events.sort_by_key(|(at, _)| *at);
        ClusterScenario {
            seed,
            nodes,
            slots: [1, 2, 4, 8][rng.usize(..4)],
            partitions: rng.u32(1..=8),
            rows: (TROUBLE - rng.u64(2_000..10_000)) / period,
            period,
            sink: [SinkKind::Transactional, SinkKind::Fenced, SinkKind::Plain][rng.usize(..3)],
            opening,
            faults: if is_planned { 0 } else { [0, 60, 20, 8][rng.usize(..4)] },
            has_writers_per_slot: rng.bool(),
            versions,
            is_planned,
            events,
        }
    }
}

/// Events and their times, in milliseconds.
type Events = Vec<(u64, ClusterEvent)>;

/// Returns failures of all kinds.
fn troubles(rng: &mut Rng, nodes: u32, opening: u64) -> Events {
    let mut events = Vec::new();
    for _ in 0..rng.u32(1..10) {
        let (at, node) = (rng.u64(1_000..TROUBLE - 6_000), rng.u32(..nodes));
        events.push((
            at,
            match rng.u32(..8) {
                0 => ClusterEvent::Crash(node),
                1 | 2 => ClusterEvent::Pause(node, rng.u64(200..12_000)),
                3 => ClusterEvent::Leave(node),
                4 | 5 => ClusterEvent::Cut(node, rng.u64(500..10_000)),
                6 => ClusterEvent::Failover(rng.u64(..3_000)),
                _ => ClusterEvent::Clock(rng.i64(-700..700)),
            },
        ));
    }
    // Events that rarely meet by chance.
    let node = rng.u32(..nodes);
    match rng.u32(..4) {
        // A node does not hear that the server has forgotten it.
        0 => {
            let at = rng.u64(500..2_500);
            events.push((
                at - 20,
                match rng.bool() {
                    true => ClusterEvent::Cut(node, rng.u64(2_000..6_000)),
                    false => ClusterEvent::Pause(node, rng.u64(4_000..9_000)),
                },
            ));
            events.push((at, ClusterEvent::Failover(at)));
        }
        // A node is paused while it opens the destination.
        1 => events.push((rng.u64(100..opening.max(200)), ClusterEvent::Pause(node, rng.u64(6_000..12_000)))),
        _ => {}
    }
    // The clock steps rarely: two steps within a lease would be more than it allows for.
    let mut stepped = false;
    events.retain(|(_, event)| !matches!(event, ClusterEvent::Clock(_)) || !std::mem::replace(&mut stepped, true));
    for node in 0..nodes {
        for _ in 0..2 {
            events.push((rng.u64(3_000..TROUBLE - 1_000), ClusterEvent::Start(node)));
        }
    }
    events
}

/// Returns events that are all planned, far enough from each other that each move ends before the next one.
fn plans(rng: &mut Rng, nodes: u32) -> Events {
    let mut events = Vec::new();
    let mut down = None;
    let mut at = 5_000;
    while at < TROUBLE - 4_000 {
        let node = rng.u32(..nodes);
        let event = match (down, rng.u32(..6)) {
            (Some(node), _) => ClusterEvent::Start(node),
            (None, 0 | 1) => ClusterEvent::Leave(node),
            (None, 2 | 3) => ClusterEvent::Restart(node),
            (None, 4) => ClusterEvent::Apply(rng.u32(1..4)),
            (None, _) => ClusterEvent::Stop,
        };
        down = if let ClusterEvent::Leave(node) = event { Some(node) } else { None };
        events.push((at, event));
        if event == ClusterEvent::Stop {
            events.push((at + rng.u64(100..4_000), ClusterEvent::Begin));
        }
        at += rng.u64(6_000..8_000);
    }
    events
}

/// Returns the replacement of all nodes by those of the newer version, one after the other, `apart` milliseconds at least. Some
/// go back meanwhile.
fn rolling(rng: &mut Rng, versions: &mut [ProgramVersion], apart: u64) -> Events {
    versions.fill(ProgramVersion::Older);
    let mut order: Vec<u32> = (0..versions.len() as u32).collect();
    rng.shuffle(&mut order);
    let mut events = Vec::new();
    let mut at = rng.u64(2_000..5_000);
    for node in &order {
        events.push((at, ClusterEvent::Replace(*node, ProgramVersion::Newer)));
        at += rng.u64(apart..apart + 2_000);
        if rng.u32(..4) == 0 {
            events.push((at, ClusterEvent::Replace(*node, ProgramVersion::Older)));
            at += rng.u64(apart..apart + 2_000);
            events.push((at, ClusterEvent::Replace(*node, ProgramVersion::Newer)));
        }
    }
    events.retain(|(at, _)| *at < TROUBLE - 1_000);
    events
}

/// Returns changes of the pipeline files of nodes, which some nodes get later than others or never.
fn sets(rng: &mut Rng, nodes: u32) -> Events {
    let mut events = Vec::new();
    for set in 2..rng.u32(3..6) {
        let at = rng.u64(2_000..TROUBLE - 5_000);
        match rng.u32(..4) {
            0 => events.push((at, ClusterEvent::Apply(rng.u32(1..=set)))),
            _ => {
                let node = rng.u32(..nodes);
                events.push((at, ClusterEvent::Files(node, set)));
                events.push((at + 10, ClusterEvent::Restart(node)));
            }
        }
    }
    for _ in 0..rng.u32(1..4) {
        events.push((rng.u64(2_000..TROUBLE - 2_000), ClusterEvent::Restart(rng.u32(..nodes))));
    }
    events
}

/// Returns stops and starts of the pipeline. Some fall together with the crash of a node.
fn stops(rng: &mut Rng, nodes: u32) -> Events {
    let mut events = Vec::new();
    let mut at = rng.u64(2_000..10_000);
    while at < TROUBLE - 2_000 {
        events.push((at, ClusterEvent::Stop));
        match rng.u32(..4) {
            0 => events.push((at + rng.u64(..1_000), ClusterEvent::Crash(rng.u32(..nodes)))),
            1 => events.push((at.saturating_sub(rng.u64(..1_500)), ClusterEvent::Restart(rng.u32(..nodes)))),
            _ => {}
        }
        at += rng.u64(50..10_000);
        events.push((at, ClusterEvent::Begin));
        at += rng.u64(500..12_000);
    }
    // Some pipelines stay stopped.
    events.retain(|(at, _)| *at < TROUBLE - 1_000);
    events
}

impl fmt::Display for ClusterScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ClusterScenario { seed, nodes, slots, partitions, rows, period, sink, opening, faults, .. } = self;
        let writers = if self.has_writers_per_slot { "one writer per slot" } else { "one writer" };
        writeln!(
            f,
            "seed {seed}: {nodes} nodes ({:?}), {slots} slots, {partitions} partitions of {rows} rows, one each {period} ms, \
             {sink:?}, {writers} (open within {opening} ms), one fault in {faults} requests",
            self.versions
        )?;
        self.events.iter().try_for_each(|(at, event)| writeln!(f, "  {at:>6} ms {event:?}"))
    }
}
