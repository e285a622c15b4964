//! A node: a process with a clock of its own, which can be paused and can crash.

use std::sync::Arc;
use std::time::Duration;

use anabranch_cluster::{Announcement, Member, Membership, TICK, follow_units, run_units};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{advance, sleep};

use super::forms::ProgramVersion;
use super::run::{Configuration, SimulatedRuns};
use super::store::Way;
use super::tables::FileSet;
use super::world::World;

/// A node, which may be down.
pub(super) struct Node {
    world: Arc<World>,
    number: usize,
    /// The program that its next process has.
    pub(super) version: ProgramVersion,
    /// The pipeline files on its disk.
    pub(super) files: FileSet,
    /// True if another process follows when this one has left the cluster.
    restarts: bool,
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
    /// Returns a node that is down.
    pub(super) fn new(world: &Arc<World>, number: usize, version: ProgramVersion, files: FileSet) -> Node {
        Node { world: world.clone(), number, version, files, restarts: false, process: None }
    }

    /// Starts its process, unless it has one.
    ///
    /// # Errors
    /// There is no runtime.
    pub(super) fn start(&mut self) -> Result<(), String> {
        if self.process.is_some() {
            return Ok(());
        }
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.map_err(|error| format!("no runtime: {error}"))?;
        let way = Way { world: self.world.clone(), node: self.number, version: self.version };
        let (member, membership) = Member::new(Arc::new(way.clone()), Announcement::default());
        let mut tasks = JoinSet::new();
        {
            let _inside = runtime.enter();
            tasks.spawn(member.live());
            tasks.spawn(place(way, membership.clone(), self.files));
        }
        (self.restarts, self.process) = (
            false,
            Some(Process { runtime, membership, _tasks: tasks, paused: 0, behind: Duration::ZERO, is_leaving: false }),
        );
        Ok(())
    }

    /// Ends the process without a further step.
    pub(super) fn crashes(&mut self) {
        if let Some(process) = self.process.take() {
            process.runtime.shutdown_background();
            self.world.lock().here.retain(|_, run| run.node != self.number);
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

    /// Has the node leave the cluster, and another process follow.
    pub(super) fn restarts(&mut self) {
        self.leaves();
        self.restarts = true;
    }

    /// Returns `true` if the node is neither paused nor leaving.
    pub(super) fn is_settled(&self) -> bool {
        let now = self.world.now();
        self.process.as_ref().is_none_or(|process| !process.is_leaving && process.paused <= now)
    }

    /// Lets time pass for the node.
    ///
    /// # Errors
    /// There is no runtime for the next process.
    pub(super) fn lives(&mut self, step: Duration) -> Result<(), String> {
        if self.process.is_none() && self.restarts {
            self.start()?;
        }
        let Some(process) = &mut self.process else { return Ok(()) };
        let is_paused = {
            let mut state = self.world.lock();
            let now = state.now;
            let is_paused = now < process.paused;
            if is_paused || !process.behind.is_zero() {
                state.woken.insert(self.number, now);
            }
            is_paused
        };
        if is_paused {
            process.behind += step;
            return Ok(());
        }
        let behind = std::mem::take(&mut process.behind);
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
        Ok(())
    }
}

/// Has the store import the files of the node, and runs the units of the node. Never returns.
async fn place(way: Way, membership: Membership, files: FileSet) {
    while files != 0 && !way.import(files).await {
        sleep(TICK).await;
    }
    let (tell, known) = watch::channel(None);
    let mut tasks = JoinSet::new();
    let (of_runs, of_node, configured) = (way.clone(), membership.clone(), known.clone());
    let begin = move |pipeline, shares| {
        let membership = of_node.clone();
        let runs = SimulatedRuns::new(of_runs.clone(), membership.clone(), configured.clone());
        tasks.spawn(async move { run_units(&pipeline, &runs, &membership, shares).await });
        true
    };
    tokio::join!(follow_units(&membership, known, begin), follow_configuration(&way, &membership, tell));
}

/// Reads the stored configuration at the start and after each change. Never returns.
async fn follow_configuration(way: &Way, membership: &Membership, known: watch::Sender<Option<Configuration>>) {
    let mut standing = membership.standing();
    let mut revision = None;
    loop {
        let latest = standing.borrow_and_update().configuration();
        match latest {
            Some(latest) if revision != Some(latest) => match way.configuration().await {
                Some(set) => {
                    revision = Some(latest);
                    known.send_replace(Some(Configuration { revision: latest, set }));
                }
                None => sleep(TICK).await,
            },
            // The sender lives as long as the membership.
            _ => drop(standing.changed().await),
        }
    }
}
