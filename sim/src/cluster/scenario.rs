//! The course of a simulation of a cluster.

use std::fmt;

use fastrand::Rng;

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
    /// The events, in order of their times.
    pub(super) events: Vec<(u64, ClusterEvent)>,
}

impl ClusterScenario {
    /// Generates the scenario of a seed.
    pub fn generate(seed: u64) -> ClusterScenario {
        let mut rng = Rng::with_seed(seed);
        let nodes = rng.u32(2..=4);
        let period = rng.u64(100..900);
        let opening = [60, 60, 4_000][rng.usize(..3)];
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
            events.push((TROUBLE - 500, ClusterEvent::Start(node)));
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
            faults: [0, 60, 20, 8][rng.usize(..4)],
            has_writers_per_slot: rng.bool(),
            events,
        }
    }
}

impl fmt::Display for ClusterScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ClusterScenario { seed, nodes, slots, partitions, rows, period, sink, opening, faults, .. } = self;
        let writers = if self.has_writers_per_slot { "one writer per slot" } else { "one writer" };
        writeln!(
            f,
            "seed {seed}: {nodes} nodes, {slots} slots, {partitions} partitions of {rows} rows, one each {period} ms, {sink:?}, \
             {writers} (open within {opening} ms), one fault in {faults} requests"
        )?;
        self.events.iter().try_for_each(|(at, event)| writeln!(f, "  {at:>6} ms {event:?}"))
    }
}
