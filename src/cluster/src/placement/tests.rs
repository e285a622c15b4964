//! The runs of a pipeline on the paused clock.

use std::sync::{Arc, Mutex};

use tokio::time::Instant;

use super::*;
use crate::lease::{Announcement, LeaseError, LeaseStore, NodeId, Overview, View};
use crate::member::Member;

/// A store that cannot be reached.
struct Away;

fn away<T>() -> Result<T, LeaseError> {
    Err(LeaseError::Unavailable("away".to_owned()))
}

#[async_trait]
impl LeaseStore for Away {
    async fn join(&self, _: &Announcement) -> Result<NodeId, LeaseError> {
        away()
    }
    async fn renew(&self, _: NodeId, _: bool) -> Result<View, LeaseError> {
        away()
    }
    async fn take(&self, _: NodeId, _: usize) -> Result<usize, LeaseError> {
        away()
    }
    async fn ask(&self, _: NodeId, _: NodeId, _: usize) -> Result<(), LeaseError> {
        away()
    }
    async fn release(&self, _: NodeId, _: &Unit) -> Result<(), LeaseError> {
        away()
    }
    async fn end(&self, _: NodeId, _: &Unit) -> Result<(), LeaseError> {
        away()
    }
    async fn leave(&self, _: NodeId) -> Result<(), LeaseError> {
        away()
    }
    async fn overview(&self, _: Option<&str>) -> Result<Overview, LeaseError> {
        away()
    }
}

/// Runs that begin and end at once, and the times at which they began.
struct Begun {
    began: Mutex<Vec<(Instant, Slots)>>,
    runs: watch::Sender<bool>,
}

#[async_trait]
impl UnitRuns for Begun {
    async fn ended(&self) {
        let _ = self.runs.subscribe().wait_for(|runs| !runs).await;
    }

    async fn may_begin(&self, _: &Shares) -> bool {
        true
    }

    fn begin(&self, slots: Slots) -> bool {
        self.began.lock().unwrap().push((Instant::now(), slots));
        self.runs.send_replace(true);
        true
    }

    fn drain(&self, _: DrainReason) {
        self.runs.send_replace(false);
    }

    async fn abandon(&self) {
        self.runs.send_replace(false);
    }

    fn put_down(&self) {}

    async fn end(&self) -> RunEnd {
        RunEnd::Released
    }

    async fn unwant(&self, _: bool) -> bool {
        true
    }
}

fn come(tell: &watch::Sender<Shares>, slot: u32, hold: Hold) {
    tell.send_modify(|shares| {
        shares.0.insert(slot, hold);
    });
}

/// A planned move takes at most 2 s: the node may see the unit a tick after it was released.
#[tokio::test(start_paused = true)]
async fn a_unit_that_comes_runs_within_a_second_together_with_those_that_follow_soon() {
    let (_member, membership) = Member::new(Arc::new(Away), Announcement::default());
    let hold = |number| Hold { tenure: Tenure::Held, of: 4, number };
    let (tell, shares) = watch::channel(Shares([(0, hold(1))].into()));
    let runs = Arc::new(Begun { began: Mutex::default(), runs: watch::Sender::new(false) });
    let its_runs = runs.clone();
    #[expect(clippy::disallowed_methods, reason = "the test ends it")]
    let placed = tokio::spawn(async move { run_units(&"p".into(), &*its_runs, &membership, shares).await });
    sleep(Duration::from_secs(10)).await;
    let came = Instant::now();
    come(&tell, 1, hold(2));
    sleep(Duration::from_millis(100)).await;
    come(&tell, 2, hold(3));
    sleep(Duration::from_secs(10)).await;
    let began = runs.began.lock().unwrap().clone();
    assert_eq!(began.len(), 2, "{began:?}");
    let (at, slots) = began[1];
    assert_eq!(slots.iter().collect::<Vec<_>>(), [0, 1, 2]);
    let waited = at - came;
    assert!(waited < TICK * 3 / 4, "{waited:?}");
    placed.abort();
}
