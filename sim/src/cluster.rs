//! Simulation of a cluster: nodes that share the units of a pipeline over one store, through everything that can happen to
//! them.
//!
//! Each node is a runtime of its own, with a clock that stands still while the node is paused. In it run the member of the
//! cluster ([`Member`](anabranch_cluster::Member)), the placement of units ([`run_units`](anabranch_cluster::run_units)) and the
//! executor, as in the service. The tables of the store, the destination and the network between them are models
//! ([`tables`], [`sink`]): requests and answers are delayed and lost, some arrive when nobody waits for them any more, the
//! server takes over from one that had less, and its clock steps. Nodes crash, pause for longer than their lease, lose the
//! network, leave and join. They have programs of two versions, of which the newer one writes fields that the older one does
//! not know ([`forms`]), and sets of pipeline files of different age. A user stops and starts the pipeline ([`user`]). The
//! guarantees:
//!
//! * only the run that claimed a unit last stores its positions, and only of rows that the destination has;
//! * a destination with marks has each row once; one with a fence gets nothing of an earlier run after a later one;
//! * without a fence, only a node that has just been woken up writes after another one has claimed the unit;
//! * a planned move takes at most 2 s and repeats no row, if nothing else goes wrong;
//! * a node resumes where the store says, and no node erases fields that it does not know;
//! * a set of files is imported again only if a user asks for it, and all nodes run the set that was imported last;
//! * a pipeline that was stopped runs nowhere 10 s after the last fault, and 15 s after the stop on nodes that were not
//!   paused;
//! * 10 s after the last fault each unit of a pipeline that is to run is owned and run, and every row arrives and is stored
//!   within [`SETTLED`].
//!
//! The last fault is over when no request is late, no node is paused, cut off or leaving, and all nodes have started.

mod ends;
mod forms;
mod node;
mod oracle;
mod requests;
mod run;
mod scenario;
mod sink;
mod store;
mod tables;
mod user;
mod world;

use std::sync::Arc;
use std::time::Duration;

use anabranch_graph::mutant::set_credit;

pub use scenario::ClusterScenario;

use crate::run::Failure;
use node::Node;
use scenario::{ClusterEvent, TROUBLE};
use world::World;

/// Time in which everything is delivered and stored after the last fault, or after the last start of the pipeline.
pub const SETTLED: Duration = Duration::from_secs(25);

/// Time in which the last fault ends.
const CALMED: Duration = Duration::from_secs(40);

/// Time that passes at once. Within it, a node does what it has to do in the order of its timers.
const STEP: Duration = Duration::from_millis(20);

/// A planted fault of the parts around the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedFault {
    /// A node that has lost its units still runs them for a while.
    NoLocalDeadline,
    /// A lease that is over is renewed.
    RenewedAfterItsEnd,
    /// A unit is given to the node that asks for it while its owner still drains it.
    HeirBeforeDrain,
    /// Units are taken from a node whose lease lasts.
    ForcedStealing,
    /// A server that has just taken over gives units away although their owners may not know it yet.
    TakenAfterFailover,
    /// After the server has lost the latest claims, their numbers are given again.
    EpochReused,
    /// A claim of one unit fences the other units of the pipeline.
    SiblingsFenced,
    /// A destination without marks does not refuse earlier runs.
    FencedOnlyWithMarks,
    /// A set of files that another one has replaced is imported by a node that restarts.
    OldSetImported,
    /// A unit that was asked for is kept for the node that asked, also if that one is gone.
    KeptForTheGone,
    /// The runs of units that move end without draining.
    KilledInsteadOfDrained,
    /// A node gives a unit away some time after it has drained it.
    DrainedLate,
    /// The units of a node that is gone lose the mark of a stop.
    StopForgotten,
    /// An older node writes the row of a unit without the field that it does not know.
    NewerUnitErased,
    /// An older node writes the rows of other nodes without the field that it does not know.
    NewerNodeErased,
    /// An older node cannot read positions with fields that it does not know.
    NewerPositionMisread,
}

impl PlantedFault {
    /// All planted faults.
    pub const ALL: &[PlantedFault] = &[
        PlantedFault::NoLocalDeadline,
        PlantedFault::RenewedAfterItsEnd,
        PlantedFault::HeirBeforeDrain,
        PlantedFault::ForcedStealing,
        PlantedFault::TakenAfterFailover,
        PlantedFault::EpochReused,
        PlantedFault::SiblingsFenced,
        PlantedFault::FencedOnlyWithMarks,
        PlantedFault::OldSetImported,
        PlantedFault::KeptForTheGone,
        PlantedFault::KilledInsteadOfDrained,
        PlantedFault::DrainedLate,
        PlantedFault::StopForgotten,
        PlantedFault::NewerUnitErased,
        PlantedFault::NewerNodeErased,
        PlantedFault::NewerPositionMisread,
    ];
}

/// Runs the scenario of a seed, with a planted fault if there is one.
///
/// # Errors
/// The first broken guarantee.
pub fn simulate(seed: u64, planted: Option<PlantedFault>, logging: bool) -> Result<(), Failure> {
    set_credit(1 << 31);
    let world = World::new(ClusterScenario::generate(seed), planted, logging);
    let result = run_to_end(&world);
    let mut state = world.lock();
    let log = state.log.take().unwrap_or_default();
    state.broken.take().map_or(result, Err).map_err(|what| Failure { what, log })
}

fn run_to_end(world: &Arc<World>) -> Result<(), String> {
    let scenario = &world.scenario;
    world.lock().moves.are_planned = scenario.is_planned;
    let mut nodes: Vec<Node> =
        scenario.versions.iter().zip(0..).map(|(version, number)| Node::new(world, number, *version, 1)).collect();
    nodes.iter_mut().try_for_each(Node::start)?;
    let mut events = scenario.events.iter().peekable();
    loop {
        let now = world.passes(STEP);
        while let Some((_, event)) = events.next_if(|(at, _)| *at <= now) {
            world.note(|| format!("{event:?}"));
            happens(world, &mut nodes, *event)?;
        }
        world.lock().user_acts();
        for at in world.order(nodes.len()) {
            nodes[at].lives(STEP)?;
        }
        let mut state = world.lock();
        state.check_stop();
        if state.broken.is_some() {
            return Ok(());
        }
        let Some(since) = state.quiet else {
            let is_calm = now >= TROUBLE && state.is_calm();
            drop(state);
            if is_calm && nodes.iter().all(Node::is_settled) {
                world.note(|| "the last fault is over".to_owned());
                nodes.iter_mut().try_for_each(Node::start)?;
                world.lock().quiet = Some(now);
            } else if now > TROUBLE + CALMED.as_millis() as u64 {
                return Err(format!("the faults are not over after {} s", CALMED.as_secs()));
            }
            continue;
        };
        if !state.user.wants_it() {
            if state.has_stayed_stopped(since) {
                state.user.wants(true);
                state.quiet = Some(now);
            }
            continue;
        }
        let is_owned = state.check_owned(scenario, since);
        match state.missing(scenario) {
            None if is_owned => return Ok(()),
            Some(missing) if now > since + SETTLED.as_millis() as u64 => {
                let (places, here) = (state.tables.places(), &state.here);
                let what =
                    format!("{missing}, {} s after the last fault; units {places}; runs {here:?}", SETTLED.as_secs());
                return Err(what);
            }
            _ => {}
        }
    }
}

/// Has something happen to the nodes, to the server or to the wishes of the user.
fn happens(world: &Arc<World>, nodes: &mut [Node], event: ClusterEvent) -> Result<(), String> {
    let of = |node: u32| node as usize % world.scenario.nodes as usize;
    match event {
        ClusterEvent::Crash(node) => nodes[of(node)].crashes(),
        ClusterEvent::Start(node) => nodes[of(node)].start()?,
        ClusterEvent::Pause(node, millis) => nodes[of(node)].pauses(world.now() + millis),
        ClusterEvent::Leave(node) => nodes[of(node)].leaves(),
        ClusterEvent::Restart(node) => nodes[of(node)].restarts(),
        ClusterEvent::Replace(node, version) => {
            nodes[of(node)].version = version;
            nodes[of(node)].restarts();
        }
        ClusterEvent::Files(node, set) => nodes[of(node)].files = set,
        ClusterEvent::Apply(set) => world.lock().import(set, true),
        ClusterEvent::Stop => world.lock().user.wants(false),
        ClusterEvent::Begin => world.lock().user.wants(true),
        ClusterEvent::Cut(node, millis) => {
            let mut state = world.lock();
            let until = state.now + millis;
            state.cut.insert(of(node), until);
        }
        ClusterEvent::Failover(forgotten) => world.lock().fails_over(forgotten),
        ClusterEvent::Clock(step) => world.lock().skew += step,
    }
    Ok(())
}
