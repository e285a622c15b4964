//! Simulation of a cluster: nodes that share the units of a pipeline over one store, through everything that can happen to
//! them.
//!
//! Each node is a runtime of its own, with a clock that stands still while the node is paused. In it run the member of the
//! cluster ([`Member`](anabranch_cluster::Member)), the placement of units ([`run_units`](anabranch_cluster::run_units)) and the
//! executor, as in the service. The tables of the store, the destination and the network between them are models
//! ([`tables`], [`sink`]): requests and answers are delayed and lost, some arrive when nobody waits for them any more, the
//! server takes over from one that had less, and its clock steps. Nodes crash, pause for longer than their lease, lose the
//! network, leave and join. The guarantees:
//!
//! * only the run that claimed a unit last stores its positions, and only of rows that the destination has;
//! * a destination with marks has each row once; one with a fence gets nothing of an earlier run after a later one;
//! * without a fence, only a node that was paused writes after another one has claimed the unit;
//! * when the faults are over, every row arrives and is stored within [`SETTLED`].

mod ends;
mod node;
mod run;
mod scenario;
mod sink;
mod store;
mod tables;
mod world;

use std::sync::Arc;
use std::time::Duration;

use anabranch_graph::mutant::set_credit;

pub use scenario::ClusterScenario;

use crate::run::Failure;
use node::Node;
use scenario::{ClusterEvent, TROUBLE};
use world::World;

/// Time in which everything is delivered and stored after the last fault.
pub const SETTLED: Duration = Duration::from_secs(40);

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
    let mut nodes: Vec<Node> = Vec::new();
    for _ in 0..world.scenario.nodes {
        nodes.push(Node::start(world, nodes.len())?);
    }
    let mut events = world.scenario.events.iter().peekable();
    loop {
        let now = world.passes(STEP);
        while let Some((_, event)) = events.next_if(|(at, _)| *at <= now) {
            world.note(|| format!("{event:?}"));
            happens(world, &mut nodes, *event)?;
        }
        for at in world.order(nodes.len()) {
            nodes[at].lives(STEP);
        }
        let state = world.lock();
        if state.broken.is_some() {
            return Ok(());
        }
        if now < TROUBLE {
            continue;
        }
        match state.missing(&world.scenario) {
            None => return Ok(()),
            Some(missing) if now > TROUBLE + SETTLED.as_millis() as u64 => {
                let (places, here) = (state.tables.places(), &state.here);
                let what = format!(
                    "{missing}, {} s after the last fault; units {places}; runs and nodes {here:?}",
                    SETTLED.as_secs()
                );
                return Err(what);
            }
            Some(_) => {}
        }
    }
}

/// Has something happen to the nodes or to the server.
fn happens(world: &Arc<World>, nodes: &mut [Node], event: ClusterEvent) -> Result<(), String> {
    let of = |node: u32| node as usize % world.scenario.nodes as usize;
    match event {
        ClusterEvent::Crash(node) => nodes[of(node)].crashes(),
        ClusterEvent::Start(node) if nodes[of(node)].is_down() => nodes[of(node)] = Node::start(world, of(node))?,
        ClusterEvent::Start(_) => {}
        ClusterEvent::Pause(node, millis) => nodes[of(node)].pauses(world.now() + millis),
        ClusterEvent::Leave(node) => nodes[of(node)].leaves(),
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
