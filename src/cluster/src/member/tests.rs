//! Members over a store of leases in memory, on the paused clock.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use tokio::time::{advance, sleep};

use super::*;
use crate::LEASE;
use crate::lease::NodeLoad;

/// The rows of nodes and units, which follow the same clock as the members.
#[derive(Default)]
struct Rows {
    nodes: BTreeMap<NodeId, (Instant, bool)>,
    units: BTreeMap<Unit, (Option<NodeId>, Option<NodeId>)>,
    last: u64,
    history: u64,
    is_silent: bool,
    planted: Option<Planted>,
}

/// A mistake of the store of leases, which the oracle must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    /// A lease that is over is renewed.
    RenewedAfterItsEnd,
    /// A unit that a node asks for is given to it at once.
    HeirBeforeDrain,
    /// A node takes units of nodes whose lease lasts.
    ForcedStealing,
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
            if rows.planted != Some(Planted::RenewedAfterItsEnd) {
                rows.nodes.retain(|_, (expires, _)| *expires > Instant::now());
            }
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
                    .map(|(unit, _, by)| HeldUnit {
                        unit: unit.clone(),
                        of: 1,
                        is_wanted: by.is_some(),
                        is_ending: false,
                    })
                    .collect(),
                units: seen.len(),
                free: seen.iter().filter(|(_, owner, _)| owner.is_none()).count(),
                labelled: 0,
                asked: seen
                    .iter()
                    .filter(|(_, owner, by)| *by == Some(id) && owner.is_some_and(|owner| owner != id))
                    .count(),
                revision: 1,
            })
        })
        .await
    }

    async fn take(&self, id: NodeId, count: usize) -> Result<usize, LeaseError> {
        self.answer(|rows| {
            let now = Instant::now();
            let mut live: Vec<NodeId> =
                rows.nodes.iter().filter(|(_, (expires, _))| *expires > now).map(|(id, _)| *id).collect();
            if rows.planted == Some(Planted::ForcedStealing) {
                live.pop();
            }
            let free = rows.units.values_mut().filter(|(owner, _)| owner.is_none_or(|id| !live.contains(&id)));
            Ok(free.take(count).map(|unit| *unit = (Some(id), None)).count())
        })
        .await
    }

    async fn ask(&self, id: NodeId, of: NodeId, count: usize) -> Result<(), LeaseError> {
        self.answer(|rows| {
            let held = rows.units.values_mut().filter(|(owner, by)| *owner == Some(of) && by.is_none());
            match rows.planted {
                Some(Planted::HeirBeforeDrain) => held.take(count).for_each(|unit| *unit = (Some(id), None)),
                _ => held.take(count).for_each(|unit| unit.1 = Some(id)),
            }
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

    async fn end(&self, id: NodeId, unit: &Unit) -> Result<(), LeaseError> {
        self.answer(|rows| {
            rows.units.retain(|row, (owner, _)| row != unit || *owner != Some(id));
            Ok(())
        })
        .await
    }

    async fn overview(&self, _: Option<&str>) -> Result<Overview, LeaseError> {
        unreachable!("members do not ask for it")
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
    assert!(standing.has_changed().unwrap(), "the receivers of the standing are notified");
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

/// A way to the store that delays requests and answers, and loses some.
struct Faulty {
    memory: Arc<Memory>,
    random: Mutex<fastrand::Rng>,
    /// One in this number of requests goes wrong; 0 = none.
    faults: AtomicU32,
}

impl Faulty {
    async fn call<T>(&self, call: impl Future<Output = Result<T, LeaseError>>) -> Result<T, LeaseError> {
        let faults = self.faults.load(Ordering::Relaxed);
        let hits = |random: &mut fastrand::Rng| faults > 0 && random.u32(..faults) == 0;
        let (before, after, lost_before, lost_after) = {
            let mut random = self.random.lock().unwrap();
            let late = |random: &mut fastrand::Rng| {
                Duration::from_millis(if hits(random) { random.u64(..3000) } else { random.u64(..30) })
            };
            (late(&mut random), late(&mut random), hits(&mut random), hits(&mut random))
        };
        sleep(before).await;
        if lost_before {
            return Err(LeaseError::Unavailable("lost".to_owned()));
        }
        let answer = call.await;
        sleep(after).await;
        if lost_after { Err(LeaseError::Unavailable("the answer is lost".to_owned())) } else { answer }
    }
}

#[async_trait]
impl LeaseStore for Faulty {
    async fn join(&self, node: &Announcement) -> Result<NodeId, LeaseError> {
        self.call(self.memory.join(node)).await
    }

    async fn renew(&self, id: NodeId, is_leaving: bool) -> Result<View, LeaseError> {
        self.call(self.memory.renew(id, is_leaving)).await
    }

    async fn take(&self, id: NodeId, count: usize) -> Result<usize, LeaseError> {
        self.call(self.memory.take(id, count)).await
    }

    async fn ask(&self, id: NodeId, of: NodeId, count: usize) -> Result<(), LeaseError> {
        self.call(self.memory.ask(id, of, count)).await
    }

    async fn release(&self, id: NodeId, unit: &Unit) -> Result<(), LeaseError> {
        self.call(self.memory.release(id, unit)).await
    }

    async fn end(&self, id: NodeId, unit: &Unit) -> Result<(), LeaseError> {
        self.call(self.memory.end(id, unit)).await
    }

    async fn overview(&self, pipeline: Option<&str>) -> Result<Overview, LeaseError> {
        self.memory.overview(pipeline).await
    }

    async fn leave(&self, id: NodeId) -> Result<(), LeaseError> {
        self.call(self.memory.leave(id)).await
    }
}

/// Runs nodes that come, leave, crash and cannot reach the store, and returns what they broke: two nodes with one unit at
/// a time, or a unit without a node long after the last fault.
async fn live_through(seed: u64, planted: Option<Planted>) -> Result<(), String> {
    let mut random = fastrand::Rng::with_seed(seed);
    let memory = Memory::with(random.usize(1..12));
    memory.rows(|rows| rows.planted = planted);
    let faults = [0, 40, 10, 4][random.usize(..4)];
    let mut nodes: Vec<(Membership, Arc<Faulty>, tokio::task::JoinHandle<()>)> = Vec::new();
    let check = |nodes: &[(Membership, Arc<Faulty>, tokio::task::JoinHandle<()>)]| {
        let mut owners: BTreeMap<Unit, usize> = BTreeMap::new();
        for (membership, ..) in nodes {
            let units: Vec<Unit> = membership.standing().borrow().units.keys().cloned().collect();
            for unit in units.into_iter().filter(|unit| membership.tenure(unit).is_some()) {
                *owners.entry(unit).or_default() += 1;
            }
        }
        match owners.iter().find(|(_, count)| **count > 1) {
            Some((unit, count)) => Err(format!("seed {seed}: {count} nodes have {unit}")),
            None => Ok(owners.len()),
        }
    };
    for step in 0..1200 {
        let is_troubled = step < 800;
        if nodes.is_empty() || is_troubled && random.u32(..60) == 0 && nodes.len() < 5 {
            let faulty = Arc::new(Faulty {
                memory: memory.clone(),
                random: Mutex::new(random.fork()),
                faults: AtomicU32::new(faults),
            });
            let (member, membership) = Member::new(faulty.clone(), Announcement::default());
            #[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the test")]
            let task = tokio::spawn(member.live());
            nodes.push((membership, faulty, task));
        }
        if is_troubled && random.u32(..150) == 0 && nodes.len() > 1 {
            let (membership, _, task) = nodes.swap_remove(random.usize(..nodes.len()));
            // A crash: the row stays until its time has passed. Or a stop, which releases what it has.
            match random.bool() {
                true => task.abort(),
                false => membership.drain(),
            }
        }
        if is_troubled && random.u32(..300) == 0 {
            memory.rows(|rows| rows.history += 1);
        }
        if step == 800 {
            nodes.iter().for_each(|(_, faulty, _)| faulty.faults.store(0, Ordering::Relaxed));
        }
        for (membership, ..) in &nodes {
            for unit in units(membership, Tenure::Wanted) {
                if random.u32(..4) == 0 {
                    membership.release(unit);
                }
            }
        }
        pass(Duration::from_millis(50)).await;
        check(&nodes)?;
    }
    let (held, all) = (check(&nodes)?, memory.rows(|rows| rows.units.len()));
    nodes.iter().for_each(|(_, _, task)| task.abort());
    if held == all { Ok(()) } else { Err(format!("seed {seed}: {held} of {all} units have a node")) }
}

fn simulated(seed: u64, planted: Option<Planted>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(live_through(seed, planted))
}

#[test]
fn a_unit_has_one_node_at_a_time_and_soon_one_again() {
    for seed in 0..40 {
        simulated(seed, None).unwrap();
    }
}

#[test]
fn mistakes_of_the_store_are_found() {
    for planted in [Planted::RenewedAfterItsEnd, Planted::HeirBeforeDrain, Planted::ForcedStealing] {
        let found = (0..60).find_map(|seed| simulated(seed, Some(planted)).err());
        assert!(found.is_some(), "{planted:?}");
    }
}

/// The server that took over gave the number of a lost change to another one.
#[tokio::test(start_paused = true)]
async fn a_configuration_of_another_history_is_read_again_whatever_its_number() {
    let memory = Memory::with(1);
    let membership = join(&memory);
    pass(TICK * 2).await;
    let configuration = || membership.standing().borrow().configuration().unwrap();
    let before = configuration();
    memory.rows(|rows| rows.history += 1);
    pass(TICK * 8).await;
    let after = configuration();
    assert_eq!(after.number, before.number);
    assert!(!before.covers(after) && after.covers(after));
}
