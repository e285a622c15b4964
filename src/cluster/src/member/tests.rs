//! Members over a store of leases in memory, on the paused clock.

use std::sync::Mutex;

use async_trait::async_trait;
use tokio::time::advance;

use super::*;
use crate::LEASE;

/// The rows of nodes and units, which follow the same clock as the members.
#[derive(Default)]
struct Rows {
    nodes: BTreeMap<NodeId, (Instant, bool)>,
    units: BTreeMap<Unit, (Option<NodeId>, Option<NodeId>)>,
    last: u64,
    history: u64,
    is_silent: bool,
}

impl Rows {
    fn live(&self, id: &NodeId) -> bool {
        self.nodes.get(id).is_some_and(|(expires, _)| *expires > Instant::now())
    }
}

#[derive(Default)]
struct Memory(Mutex<Rows>);

impl Memory {
    fn with(units: usize) -> Arc<Memory> {
        let memory = Memory::default();
        let unit = |number| Unit::whole(format!("p{number}"));
        memory.0.lock().unwrap().units = (0..units).map(|number| (unit(number), (None, None))).collect();
        Arc::new(memory)
    }

    fn rows<T>(&self, work: impl FnOnce(&mut Rows) -> T) -> T {
        work(&mut self.0.lock().unwrap())
    }

    /// Answers, or never.
    async fn answer<T>(&self, work: impl FnOnce(&mut Rows) -> Result<T, LeaseError>) -> Result<T, LeaseError> {
        if self.rows(|rows| rows.is_silent) {
            std::future::pending::<()>().await;
        }
        self.rows(work)
    }
}

#[async_trait]
impl LeaseStore for Memory {
    async fn join(&self, _: &Announcement) -> Result<NodeId, LeaseError> {
        self.answer(|rows| {
            rows.last += 1;
            rows.nodes.insert(NodeId(rows.last), (Instant::now() + LEASE, false));
            Ok(NodeId(rows.last))
        })
        .await
    }

    async fn renew(&self, id: NodeId, is_leaving: bool) -> Result<View, LeaseError> {
        self.answer(|rows| {
            rows.nodes.retain(|_, (expires, _)| *expires > Instant::now());
            let Some(node) = rows.nodes.get_mut(&id) else { return Err(LeaseError::Over) };
            *node = (Instant::now() + LEASE, is_leaving);
            let seen: Vec<_> = (rows.units.iter())
                .map(|(unit, (owner, by))| {
                    (unit.clone(), owner.filter(|id| rows.live(id)), by.filter(|id| rows.live(id)))
                })
                .collect();
            Ok(View {
                history: History(rows.history.to_string().into()),
                nodes: (rows.nodes.iter())
                    .map(|(id, (_, is_leaving))| NodeLoad {
                        id: *id,
                        units: seen.iter().filter(|(_, owner, by)| *owner == Some(*id) && by.is_none()).count(),
                        is_leaving: *is_leaving,
                    })
                    .collect(),
                held: (seen.iter())
                    .filter(|(_, owner, _)| *owner == Some(id))
                    .map(|(unit, _, by)| HeldUnit { unit: unit.clone(), is_wanted: by.is_some() })
                    .collect(),
                units: seen.len(),
                free: seen.iter().filter(|(_, owner, _)| owner.is_none()).count(),
                asked: seen.iter().filter(|(_, owner, by)| *by == Some(id) && *owner != Some(id)).count(),
                revision: 1,
            })
        })
        .await
    }

    async fn take(&self, id: NodeId, count: usize) -> Result<(), LeaseError> {
        self.answer(|rows| {
            let nodes = rows.nodes.clone();
            let free = rows.units.values_mut().filter(|(owner, _)| owner.is_none_or(|id| !nodes.contains_key(&id)));
            free.take(count).for_each(|unit| *unit = (Some(id), None));
            Ok(())
        })
        .await
    }

    async fn ask(&self, id: NodeId, of: NodeId, count: usize) -> Result<(), LeaseError> {
        self.answer(|rows| {
            let held = rows.units.values_mut().filter(|(owner, by)| *owner == Some(of) && by.is_none());
            held.take(count).for_each(|unit| unit.1 = Some(id));
            Ok(())
        })
        .await
    }

    async fn release(&self, id: NodeId, unit: &Unit) -> Result<(), LeaseError> {
        self.answer(|rows| {
            let heir = rows.units.get(unit).and_then(|unit| unit.1).filter(|id| rows.live(id));
            if let Some(row) = rows.units.get_mut(unit).filter(|row| row.0 == Some(id)) {
                *row = (heir, None);
            }
            Ok(())
        })
        .await
    }

    async fn leave(&self, id: NodeId) -> Result<(), LeaseError> {
        self.answer(|rows| {
            rows.nodes.remove(&id);
            Ok(())
        })
        .await
    }
}

fn join(memory: &Arc<Memory>) -> Membership {
    let (member, membership) = Member::new(memory.clone(), Announcement::default());
    #[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the test")]
    tokio::spawn(member.live());
    membership
}

fn units(membership: &Membership, tenure: Tenure) -> Vec<Unit> {
    let standing = membership.standing();
    let units: Vec<Unit> = standing.borrow().units.keys().cloned().collect();
    units.into_iter().filter(|unit| membership.tenure(unit) == Some(tenure)).collect()
}

/// Lets time pass in small steps, so that each timer fires at its time.
async fn pass(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        advance(Duration::from_millis(50)).await;
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_joins_gets_its_share_when_the_others_release_it() {
    let memory = Memory::with(10);
    let a = join(&memory);
    pass(TICK * 2).await;
    assert_eq!(units(&a, Tenure::Held).len(), 10);
    let b = join(&memory);
    pass(TICK * 3).await;
    let wanted = units(&a, Tenure::Wanted);
    assert_eq!((wanted.len(), units(&b, Tenure::Held).len()), (5, 0), "nothing is taken from a node that lives");
    wanted.into_iter().for_each(|unit| a.release(unit));
    pass(TICK * 2).await;
    assert_eq!((units(&a, Tenure::Held).len(), units(&b, Tenure::Held).len()), (5, 5));

    b.drain();
    pass(TICK * 2).await;
    let wanted = units(&b, Tenure::Wanted);
    assert_eq!(wanted.len(), 5, "a node that leaves gives everything away");
    wanted.into_iter().for_each(|unit| b.release(unit));
    pass(TICK * 2).await;
    assert_eq!((units(&a, Tenure::Held).len(), units(&b, Tenure::Held).len()), (10, 0));
    b.leave().await;
    assert_eq!(memory.rows(|rows| rows.nodes.len()), 1);
}

#[tokio::test(start_paused = true)]
async fn a_node_without_an_answer_has_nothing_before_its_lease_is_over() {
    let memory = Memory::with(3);
    let a = join(&memory);
    pass(TICK * 2).await;
    assert_eq!(units(&a, Tenure::Held).len(), 3);
    memory.rows(|rows| rows.is_silent = true);
    let mut standing = a.standing();
    standing.mark_unchanged();
    let begun = Instant::now();
    pass(SAFE - TICK - Duration::from_millis(100)).await;
    assert_eq!(units(&a, Tenure::Held).len(), 3, "a short silence stops nothing");
    pass(TICK + Duration::from_millis(200)).await;
    assert_eq!(units(&a, Tenure::Held).len(), 0);
    assert!(standing.has_changed().unwrap(), "whoever runs a unit learns it");
    assert!(standing.borrow().lost.is_some());
    let expires = memory.rows(|rows| rows.nodes.values().map(|(expires, _)| *expires).max().unwrap());
    assert!(Instant::now() + TICK / 2 < expires, "{:?} before the end of the lease", expires - begun);
    // The lease lasts: the units come back.
    memory.rows(|rows| rows.is_silent = false);
    pass(TICK * 2).await;
    assert_eq!(units(&a, Tenure::Held).len(), 3);
    // It does not: others may have had them.
    memory.rows(|rows| rows.is_silent = true);
    pass(LEASE * 2).await;
    let before = a.standing().borrow().id;
    memory.rows(|rows| rows.is_silent = false);
    pass(TICK * 4).await;
    assert_eq!(units(&a, Tenure::Held).len(), 3);
    assert_ne!(a.standing().borrow().id, before);
}

#[tokio::test(start_paused = true)]
async fn a_store_with_another_history_is_joined_anew() {
    let memory = Memory::with(3);
    let a = join(&memory);
    pass(TICK * 2).await;
    let (before, mut standing) = (a.standing().borrow().id, a.standing());
    // The standby knows the node, but not that it has the latest unit.
    memory.rows(|rows| {
        rows.history += 1;
        rows.units.values_mut().for_each(|unit| unit.0 = None);
    });
    standing.wait_for(|standing| standing.id != before && standing.units.len() == 3).await.unwrap();
    assert_eq!(memory.rows(|rows| rows.nodes.len()), 1, "the earlier row of the node is gone");
}
