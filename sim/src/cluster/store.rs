//! The way of a node to the store: requests and answers take time, and some are lost or late.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anabranch_cluster::{Announcement, LeaseError, LeaseStore, Membership, NodeId, Overview, View};
use anabranch_plugin::state::{Commit, Epoch, Receipt, StateStore, StoreError, Unit};
use anabranch_record::mark::{LaneId, Mark};
use async_trait::async_trait;
use tokio::time::{Duration, sleep};

use super::forms::ProgramVersion;
use super::requests::{Answer, Request};
use super::tables::FileSet;
use super::world::{Fate, Passage, RunId, World};

/// How long a client of the store waits before it gives a request up.
const PATIENCE: Duration = Duration::from_secs(5);

/// The way of a node to the store.
#[derive(Clone)]
pub(super) struct Way {
    pub(super) world: Arc<World>,
    pub(super) node: usize,
    pub(super) version: ProgramVersion,
}

impl Way {
    /// Sends a request and returns the answer; `None` if there is none within [`PATIENCE`].
    async fn ask(&self, request: Request) -> Option<Answer> {
        let Passage { there, back, fate } = self.world.passage(self.node);
        sleep(there).await;
        match fate {
            Fate::Answered => {
                let answer = self.world.lock().handle(&request, self.version);
                sleep(back).await;
                return Some(answer);
            }
            Fate::Unanswered => drop(self.world.lock().handle(&request, self.version)),
            Fate::Late => self.world.delay(request, self.version),
            Fate::Lost => {}
        }
        sleep(PATIENCE).await;
        None
    }

    /// Has the store import a set of files, unless it had it before. Returns `false` if it does not answer.
    pub(super) async fn import(&self, set: FileSet) -> bool {
        self.ask(Request::Import(set)).await.is_some()
    }

    /// Returns the set of files that the store has; `None` if it does not answer.
    pub(super) async fn configuration(&self) -> Option<FileSet> {
        match self.ask(Request::Configuration).await? {
            Answer::Configuration(set) => Some(set),
            _ => None,
        }
    }

    async fn of_leases(&self, request: Request) -> Result<Answer, LeaseError> {
        match self.ask(request).await {
            Some(answer) => Ok(answer),
            // The caller has a shorter time limit of its own.
            None => pending().await,
        }
    }
}

#[async_trait]
impl LeaseStore for Way {
    async fn join(&self, _: &Announcement) -> Result<NodeId, LeaseError> {
        // 48 random bits.
        let id = NodeId(self.world.lock().random.u64(1..1 << 48));
        self.of_leases(Request::Join(id, self.node)).await?;
        Ok(id)
    }

    async fn renew(&self, id: NodeId, is_leaving: bool) -> Result<View, LeaseError> {
        match self.of_leases(Request::Renew(id, is_leaving)).await? {
            Answer::Lease(view) => *view,
            _ => Err(LeaseError::Over),
        }
    }

    async fn take(&self, id: NodeId, count: usize) -> Result<usize, LeaseError> {
        match self.of_leases(Request::Take(id, count)).await? {
            Answer::Taken(count) => Ok(count),
            _ => Err(LeaseError::Over),
        }
    }

    async fn ask(&self, id: NodeId, of: NodeId, count: usize) -> Result<(), LeaseError> {
        self.of_leases(Request::Ask { by: id, of, count }).await.map(drop)
    }

    async fn release(&self, id: NodeId, unit: &Unit) -> Result<(), LeaseError> {
        self.of_leases(Request::Release(id, unit.clone())).await.map(drop)
    }

    async fn end(&self, id: NodeId, unit: &Unit) -> Result<(), LeaseError> {
        self.of_leases(Request::End(id, unit.clone())).await.map(drop)
    }

    async fn leave(&self, id: NodeId) -> Result<(), LeaseError> {
        self.of_leases(Request::Leave(id)).await.map(drop)
    }

    async fn overview(&self, _: Option<&str>) -> Result<Overview, LeaseError> {
        Ok(Overview::default())
    }
}

/// The store as a run uses it.
pub(super) struct RunStore {
    pub(super) way: Way,
    pub(super) membership: Membership,
    pub(super) run: RunId,
    /// True once the node has lost a unit of the run.
    pub(super) is_lost: Arc<AtomicBool>,
}

impl RunStore {
    async fn ask(&self, request: Request) -> Result<Answer, StoreError> {
        let silent = || StoreError::Unavailable("it does not answer".into());
        if self.is_lost.load(Ordering::Relaxed) {
            return Err(StoreError::Unavailable("this node has lost the pipeline".into()));
        }
        self.way.ask(request).await.ok_or_else(silent)
    }

    async fn load_all(&self, epoch: &Epoch) -> Result<(BTreeMap<LaneId, Mark>, Vec<Receipt>), StoreError> {
        match self.ask(Request::Load(epoch.clone())).await? {
            Answer::Marks(marks) => marks,
            _ => Err(StoreError::Damaged("another answer".to_owned())),
        }
    }
}

#[async_trait]
impl StateStore for RunStore {
    async fn claim(&self, unit: &Unit) -> Result<Epoch, StoreError> {
        let by = self.membership.standing().borrow().id;
        let by = by.ok_or_else(|| StoreError::Unavailable("this node is not a member of its cluster".into()))?;
        match self.ask(Request::Claim { unit: unit.clone(), by, run: self.run }).await? {
            Answer::Claimed(claimed) => claimed,
            _ => Err(StoreError::Damaged("another answer".to_owned())),
        }
    }

    async fn load(&self, epoch: &Epoch) -> Result<BTreeMap<LaneId, Mark>, StoreError> {
        self.load_all(epoch).await.map(|(marks, _)| marks)
    }

    async fn receipts(&self, epoch: &Epoch) -> Result<Vec<Receipt>, StoreError> {
        self.load_all(epoch).await.map(|(_, receipts)| receipts)
    }

    async fn commit(&self, epoch: &Epoch, commit: Commit<'_>) -> Result<(), StoreError> {
        let (epoch, run) = (epoch.clone(), self.run);
        let (moves, receipts, drops) = (commit.moves.to_vec(), commit.receipts.to_vec(), commit.drops.to_vec());
        match self.ask(Request::Commit { epoch, run, moves, receipts, drops }).await? {
            Answer::Committed(committed) => committed,
            _ => Err(StoreError::Damaged("another answer".to_owned())),
        }
    }
}
