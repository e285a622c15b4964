//! A node: a process with a clock of its own, which can be paused and can crash.

use std::sync::Arc;
use std::time::Duration;

use anabranch_cluster::{Announcement, Member, Membership, follow_units, run_units};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{advance, sleep};

use super::run::SimulatedRuns;
use super::store::Way;
use super::world::World;

/// A node, which may be down.
pub(super) struct Node {
    world: Arc<World>,
    number: usize,
    process: Option<Process>,
}

struct Process {
    runtime: Runtime,
    membership: Membership,
    /// The tasks of the process, which end with it.
    _tasks: JoinSet<()>,
    /// Until when it is paused.
    paused: u64,
    /// Time that has passed while it was paused.
    behind: Duration,
    is_leaving: bool,
}

impl Node {
    /// Starts a node.
    ///
    /// # Errors
    /// There is no runtime.
    pub(super) fn start(world: &Arc<World>, number: usize) -> Result<Node, String> {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.map_err(|error| format!("no runtime: {error}"))?;
        let way = Way { world: world.clone(), node: number };
        let (member, membership) = Member::new(Arc::new(way.clone()), Announcement::default());
        let mut tasks = JoinSet::new();
        {
            let _inside = runtime.enter();
            tasks.spawn(member.live());
            tasks.spawn(place(way, membership.clone()));
        }
        let process =
            Process { runtime, membership, _tasks: tasks, paused: 0, behind: Duration::ZERO, is_leaving: false };
        Ok(Node { world: world.clone(), number, process: Some(process) })
    }

    pub(super) fn is_down(&self) -> bool {
        self.process.is_none()
    }

    /// Ends the process without a further step.
    pub(super) fn crashes(&mut self) {
        if let Some(process) = self.process.take() {
            process.runtime.shutdown_background();
            self.world.lock().here.retain(|_, node| *node != self.number);
        }
    }

    /// Stops the process until a time.
    pub(super) fn pauses(&mut self, until: u64) {
        if let Some(process) = &mut self.process {
            process.paused = process.paused.max(until);
        }
    }

    /// Has the node drain its units and leave the cluster.
    pub(super) fn leaves(&mut self) {
        if let Some(process) = &mut self.process {
            process.membership.drain();
            process.is_leaving = true;
        }
    }

    /// Lets time pass for the node.
    pub(super) fn lives(&mut self, step: Duration) {
        let Some(process) = &mut self.process else { return };
        if self.world.now() < process.paused {
            process.behind += step;
            self.world.lock().pauses(self.number);
            return;
        }
        let behind = std::mem::take(&mut process.behind);
        if !behind.is_zero() {
            let mut state = self.world.lock();
            let now = state.now;
            state.woken.insert(self.number, now);
        }
        process.runtime.block_on(async {
            if !behind.is_zero() {
                // All timers of the time that it has missed are due at once.
                advance(behind).await;
            }
            sleep(step).await;
        });
        let has_left = process.is_leaving && {
            let standing = process.membership.standing();
            let standing = standing.borrow();
            standing.units.is_empty()
        };
        if has_left {
            process.runtime.block_on(process.membership.leave());
            self.crashes();
        }
    }
}

/// Runs the units of the node. Never returns.
async fn place(way: Way, membership: Membership) {
    let mut tasks = JoinSet::new();
    let (_ready, is_ready) = watch::channel(Some(()));
    let of_node = membership.clone();
    let begin = move |pipeline, shares| {
        let (runs, membership) = (SimulatedRuns::new(way.clone(), of_node.clone()), of_node.clone());
        tasks.spawn(async move { run_units(&pipeline, &runs, &membership, shares).await });
        true
    };
    follow_units(&membership, is_ready, begin).await;
}
