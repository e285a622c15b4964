//! Destinations that store rows and marks in one transaction.
//!
//! Like a transactional producer, a writer takes over when it reads the marks: that ends the transactions of earlier
//! writers, and fences these. An answer may be missing, and the transaction is committed later, or never.

use std::collections::BTreeMap;

use anabranch_graph::mutant::{Mutant, is_active};
use anabranch_plugin::destination::{Delivered, Verdicts};
use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{LaneId, Mark};

use crate::codes;
use crate::coordinator::Transaction;
use crate::record::copy;
use crate::scenario::{Sink, hits, mix};
use crate::world::{State, World};

/// Maximum number of events until an unanswered transaction ends.
const LATE: u64 = 60;

/// State of a writer.
#[derive(Default)]
pub struct Session {
    /// The stored marks, as the writer last read or wrote them.
    known: BTreeMap<LaneId, Mark>,
    /// Number of its takeover.
    epoch: Option<u64>,
    /// `true` if the outcome of its last transaction is unknown.
    unknown: bool,
}

fn passing(what: &'static str) -> Fault {
    Fault::transient(codes::SIM_PASSING, what)
}

impl Session {
    /// Checks that the outcome of the last transaction is known, and that no later writer has taken over.
    fn begin(&self, world: &World, destination: usize) -> Result<u64, Fault> {
        if self.unknown {
            world.breaks(|| format!("d{destination} is given a transaction after one with an unknown outcome"));
        }
        let epoch = world.lock().destinations[destination].coordinator.epoch;
        match self.epoch {
            Some(ours) if ours == epoch || is_active(Mutant::ZombieWrites) => Ok(epoch),
            _ => Err(Fault::fatal(codes::FENCED, "a later writer has taken over")),
        }
    }

    /// Notes that the outcome of the last transaction is unknown.
    fn unknown(&mut self, what: &'static str) -> Fault {
        self.unknown = true;
        passing(what)
    }
}

/// Takes over, and returns the stored marks.
pub async fn marks(
    world: &World,
    destination: usize,
    spec: &Sink,
    session: &mut Session,
) -> Result<Vec<(LaneId, Mark)>, Fault> {
    let (call, troubled) = {
        let mut state = world.lock();
        (state.next_call(), state.is_troubled())
    };
    world.tick().await;
    let fails = troubled && hits(spec.salt ^ 5, call, spec.fails);
    let failed = || passing("the marks cannot be read");
    // A call that fails may have taken over.
    if fails && (spec.late == 0 || mix(call, 9).is_multiple_of(2)) {
        return Err(failed());
    }
    let mut state = world.lock();
    let epoch = state.destinations[destination].coordinator.epoch;
    if !spec.reinitialises && session.epoch.is_some_and(|ours| ours != epoch) {
        return Err(Fault::fatal(codes::FENCED, "a later writer has taken over"));
    }
    let before = state.destinations[destination].marks.clone();
    if let Err(broken) = state.takes_over(destination) {
        world.broken(&mut state, || broken);
    }
    let at = &state.destinations[destination];
    session.epoch = Some(at.coordinator.epoch);
    if fails {
        return Err(failed());
    }
    session.known = if is_active(Mutant::MarksReadTooSoon) { before } else { at.marks.clone() };
    session.unknown = false;
    Ok(session.known.clone().into_iter().collect())
}

/// Writes one transaction, which is call number `call` of the destination.
pub async fn write(
    world: &World,
    destination: usize,
    spec: &Sink,
    session: &mut Session,
    rows: &[Record],
    marks: &[(LaneId, Mark)],
) -> Result<Verdicts, Fault> {
    let (call, troubled) = {
        let state = world.lock();
        (state.destinations[destination].calls, state.is_troubled())
    };
    {
        let _busy = world.busy();
        tokio::time::sleep(spec.takes_time(call)).await;
    }
    world.tick().await;
    if troubled && hits(spec.salt ^ 1, call, spec.hangs) {
        world.hang().await;
    }
    let refusal = || Fault::record(anabranch_plugin::testing::codes::REFUSED, "the destination does not want it");
    let unwanted = |(i, row): (usize, &Record)| hits(spec.salt, copy(row).id, spec.refuses).then(|| (i, refusal()));
    let refused: Vec<(usize, Fault)> = rows.iter().enumerate().filter_map(unwanted).collect();
    if let Some((first, _)) = refused.first() {
        // It refuses one row, all rows, or only reports that there are some. The result is the same for all pieces of a
        // source row.
        return match () {
            () if spec.whole => Ok(Verdicts::Refused(vec![(*first, refusal())])),
            () => Ok(Verdicts::Refused(refused)),
        };
    }
    let epoch = session.begin(world, destination)?;
    if troubled && hits(spec.salt ^ 7, call, spec.goes_back) {
        world.goes_back(destination, 1 + mix(call, 8) % 4);
    }
    let fails = troubled && hits(spec.salt ^ 2, call, spec.fails);
    if fails && !(spec.ambiguous && mix(call, 9).is_multiple_of(2)) {
        return Err(session.unknown("the destination is away"));
    }
    let (moved, went_back) = {
        let destination = &world.lock().destinations[destination];
        (destination.marks != session.known, destination.went_back_now)
    };
    if moved && went_back {
        session.unknown = true;
        return Err(Fault::transient(codes::MARKS_MOVED, "the destination lost what it had confirmed"));
    }
    if moved {
        world.breaks(|| format!("d{destination} has marks that its writer does not know"));
    }
    let ids = rows.iter().map(|row| copy(row).id).collect();
    let transaction = Transaction { epoch, ids, marks: marks.to_vec(), forgotten: Vec::new() };
    if troubled && !fails && hits(spec.salt ^ 9, call, spec.late) {
        world.lock().leaves_open(destination, call, transaction);
        return Err(session.unknown("the destination does not answer"));
    }
    for id in &transaction.ids {
        let checked = world.lock().check_copies(destination, *id);
        if let Err(broken) = checked {
            world.breaks(|| broken);
        }
        world.put(destination, *id, true, fails);
    }
    world.lock().stores_marks(destination, transaction);
    // A crash can happen before the writer returns.
    world.tick().await;
    if fails {
        return Err(session.unknown("the connection was lost"));
    }
    session.known.extend(marks.iter().cloned());
    Ok(Verdicts::All(Delivered::Durable))
}

/// Removes the marks of lanes in one transaction.
pub async fn forget(
    world: &World,
    destination: usize,
    spec: &Sink,
    session: &mut Session,
    lanes: &[LaneId],
) -> Result<bool, Fault> {
    let (call, troubled) = {
        let mut state = world.lock();
        (state.next_call(), state.is_troubled())
    };
    world.tick().await;
    let epoch = session.begin(world, destination)?;
    let fails = troubled && hits(spec.salt ^ 3, call, spec.fails);
    if fails && !(spec.ambiguous && mix(call, 9).is_multiple_of(2)) {
        return Err(session.unknown("the destination is away"));
    }
    let transaction = Transaction { epoch, ids: Vec::new(), marks: Vec::new(), forgotten: lanes.to_vec() };
    if troubled && !fails && hits(spec.salt ^ 10, call, spec.late) {
        world.lock().leaves_open(destination, call, transaction);
        return Err(session.unknown("the destination does not answer"));
    }
    {
        let mut state = world.lock();
        state.note(|| format!("d{destination} forgets {lanes:?}"));
        state.stores_marks(destination, transaction);
    }
    world.tick().await;
    if fails {
        return Err(session.unknown("the connection was lost"));
    }
    lanes.iter().for_each(|lane| drop(session.known.remove(lane)));
    Ok(true)
}

impl State {
    /// Lets a writer take over: ends the transactions of earlier writers, and fences these.
    pub(crate) fn takes_over(&mut self, destination: usize) -> Result<(), String> {
        let open = std::mem::take(&mut self.destinations[destination].coordinator.open);
        for (left, transaction) in open {
            // The coordinator had decided to commit it, or aborts it.
            if left.is_multiple_of(2) {
                self.commits(destination, transaction)?;
            }
        }
        self.destinations[destination].coordinator.epoch += 1;
        Ok(())
    }

    /// Leaves a transaction open, and its writer without an answer.
    fn leaves_open(&mut self, destination: usize, call: u64, transaction: Transaction) {
        self.note(|| format!("d{destination} does not answer a transaction"));
        self.destinations[destination].coordinator.open.push((1 + mix(call, 13) % LATE, transaction));
    }

    /// Counts an event. Commits unanswered transactions whose time has come.
    pub(crate) fn transactions_end_late(&mut self) -> Result<(), String> {
        for destination in 0..self.destinations.len() {
            let coordinator = &mut self.destinations[destination].coordinator;
            if coordinator.open.is_empty() {
                continue;
            }
            coordinator.open.iter_mut().for_each(|(left, _)| *left -= 1);
            let ended = coordinator.open.extract_if(.., |(left, _)| *left == 0).collect::<Vec<_>>();
            for (_, transaction) in ended {
                self.commits(destination, transaction)?;
            }
        }
        Ok(())
    }

    /// Commits a transaction that was not answered, unless its writer is fenced.
    fn commits(&mut self, destination: usize, transaction: Transaction) -> Result<(), String> {
        if transaction.epoch != self.destinations[destination].coordinator.epoch {
            return Ok(());
        }
        self.note(|| format!("d{destination} commits {transaction:x?}, which it did not answer"));
        for id in &transaction.ids {
            self.check_copies(destination, *id)?;
            *self.destinations[destination].durable.entry(*id).or_default() += 1;
        }
        self.stores_marks(destination, transaction);
        Ok(())
    }

    /// Checks that a transactional destination may store a copy.
    fn check_copies(&self, destination: usize, id: u64) -> Result<(), String> {
        let stored = self.destinations[destination].durable.get(&id).copied().unwrap_or(0);
        match stored < self.most_copies(destination, id) {
            true => Ok(()),
            false => Err(format!("d{destination} stores record {id:x} again, after {stored} times")),
        }
    }

    /// Stores and removes the marks of a transaction.
    fn stores_marks(&mut self, destination: usize, transaction: Transaction) {
        let destination = &mut self.destinations[destination];
        if !transaction.marks.is_empty() || !transaction.ids.is_empty() {
            destination.transactions.push((transaction.ids, destination.marks.clone()));
        }
        destination.marks.extend(transaction.marks);
        transaction.forgotten.iter().for_each(|lane| drop(destination.marks.remove(lane)));
    }
}
