//! The world around the graph: what was read, is durable, stored and acknowledged, and the promises about it. It
//! outlives crashes.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anabranch_graph::exec::Progress;
use anabranch_graph::fault::Fault;
use anabranch_graph::record::Position;
use anabranch_graph::source::{Mark, Partition};
use anabranch_graph::state::LaneId;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::oracle::{Copy, Fate, fate};
use crate::scenario::{Interruption, Scenario, hits, mix};

/// After so many runs nothing goes wrong any more.
pub const TROUBLED_RUNS: u32 = 8;

/// No run needs as many ticks.
const MOST_TICKS: u64 = 5_000_000;

/// No processor is asked as often in a run without an answer.
const MOST_SILENCES: u32 = 5000;

/// So long after a partition was revoked at the latest nothing more of it is acknowledged: five seconds, and the time
/// of a commit and of the attempts to acknowledge it.
const REVOKED: Duration = Duration::from_secs(15);

/// Record numbers are random already: their maps need no hashing.
#[derive(Default)]
pub struct Random(u64);

impl Hasher for Random {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| mix(hash, u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

pub(crate) type HashMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<Random>>;
pub(crate) type HashSet<K> = std::collections::HashSet<K, BuildHasherDefault<Random>>;

/// What the driver is told to do with the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Drop everything where it stands.
    Kill,
    /// Stop it, within so many milliseconds or whatever it takes.
    Stop(Option<u64>),
}

/// The world. Shared by all ends of the graph.
pub struct World {
    /// What it is made from.
    pub scenario: Arc<Scenario>,
    state: Mutex<State>,
    /// Told when there is an order.
    pub orders: Notify,
}

/// A partition of a source.
pub struct Lane {
    /// Its id.
    pub id: LaneId,
    /// Index of the source.
    pub source: usize,
    /// What must become of each row.
    pub fates: Vec<Fate>,
    /// The next row to read in this run.
    pub next: u32,
    /// Rows that are stored as settled.
    pub stored: u32,
    /// Rows that the source was told of.
    pub acked: u32,
    /// Rows read in this run, with those that were read again.
    read: usize,
    /// Positions read in this run and not acknowledged.
    unacked: VecDeque<Position>,
    /// Since when the partition is somebody else's.
    revoked: Option<Instant>,
    /// It is ours again, and waits to be told where it goes on.
    returning: bool,
    /// It came back in this run, and rows are read again: those of both times may be on their way.
    again: bool,
}

impl Lane {
    /// How many rows a mark stands for; `None` where count and position do not agree.
    pub fn rows_upto(&self, mark: &Mark) -> Option<u32> {
        let row = row_of(&mark.position)?;
        let rows = mark.seq as u32;
        // Two rows may have the same position.
        (rows > 0 && (row + 1 == rows || row + 2 == rows && row.is_multiple_of(2))).then_some(rows)
    }
}

/// What arrived at a destination.
#[derive(Default)]
pub struct Shelf {
    /// Where each copy that may arrive comes from: lane, row, and place in the order of the lane.
    arrivals: HashMap<u64, (usize, u32, usize)>,
    /// How often each copy is there.
    pub durable: HashMap<u64, u32>,
    /// What its transactions stored.
    pub marks: BTreeMap<LaneId, Mark>,
    /// Accepted and not flushed: a crash may lose each.
    unsynced: Vec<u64>,
    /// How often each copy was put down in this run, and how often that was uncertain.
    put: HashMap<u64, (u32, u32)>,
    /// Latest place in the order of each lane that was given in this run, and that was put down.
    latest: BTreeMap<usize, usize>,
    latest_put: BTreeMap<usize, usize>,
    /// Calls so far, in all runs.
    pub calls: u64,
}

/// What changes.
pub struct State {
    scenario: Arc<Scenario>,
    /// Number of the run.
    pub run: u32,
    ticks: u64,
    /// The process is dead: nothing has an effect any more.
    pub dead: bool,
    /// Partitions of all sources.
    pub lanes: Vec<Lane>,
    /// Destinations, the dead letters last.
    pub shelves: Vec<Shelf>,
    /// Letters that may be written, by node and record; and the name each was given.
    letters: HashMap<u64, Option<Vec<u8>>>,
    names: HashMap<Vec<u8>, u64>,
    letters_in_run: Vec<(usize, u32)>,
    marks: BTreeMap<LaneId, Mark>,
    /// Number of the owner of the marks.
    pub epoch: u64,
    /// Calls of everything but destinations, for random numbers.
    pub calls: u64,
    /// Something never returned in this run.
    pub hung: bool,
    /// Another run claimed the pipeline during this run.
    pub fenced: bool,
    told_fenced: bool,
    /// A source or a destination, or the opening of something, panicked in this run.
    pub panicked_outside: bool,
    /// A destination gave a wrong number of verdicts in this run.
    pub miscounted: bool,
    /// How often a processor gave no answer in this run.
    silences: u32,
    /// The counters of this run.
    pub progress: Option<Arc<Progress>>,
    panicked: HashSet<u64>,
    /// Nothing panics any more, nothing is refused for good any more for being too much.
    pub repaired: bool,
    /// The first promise that was broken.
    pub broken: Option<String>,
    order: Option<Order>,
    /// What happened, where somebody wants to see it.
    pub log: Option<Vec<String>>,
}

fn letter_id(node: &str, id: u64) -> u64 {
    node.bytes().fold(mix(id, 77), |hash, byte| mix(hash, u64::from(byte)))
}

/// The position of a row, or the one after it that comes without a record.
pub fn position(lane: usize, row: u32, kind: u8) -> Position {
    let [a, b, c, d] = row.to_be_bytes();
    Position::copy_from(&[lane as u8, a, b, c, d, kind])
}

fn row_of(position: &Position) -> Option<u32> {
    let [_, a, b, c, d, _] = position.0[..] else { return None };
    Some(u32::from_be_bytes([a, b, c, d]))
}

impl World {
    /// A world in which nothing happened yet.
    pub fn new(scenario: &Arc<Scenario>, logging: bool) -> Arc<World> {
        let mut lanes = Vec::new();
        let mut shelves: Vec<Shelf> = (0..=scenario.sinks.len()).map(|_| Shelf::default()).collect();
        for (source, upstream) in scenario.sources.iter().enumerate() {
            for (i, rows) in upstream.partitions.iter().enumerate() {
                let lane = lanes.len();
                let partition = match upstream.partitions.len() {
                    1 => Partition::ONLY,
                    _ => Partition(format!("p{i}").into()),
                };
                let fates: Vec<Fate> = (0..*rows).map(|row| fate(scenario, source, first(lane, row))).collect();
                for (row, fate) in fates.iter().enumerate() {
                    expect(fate, lane, row as u32, &mut shelves);
                }
                let id = LaneId { connector: format!("s{source}").into(), partition };
                lanes.push(Lane {
                    id,
                    source,
                    fates,
                    next: 0,
                    stored: 0,
                    acked: 0,
                    read: 0,
                    unacked: VecDeque::new(),
                    revoked: None,
                    returning: false,
                    again: false,
                });
            }
        }
        let state = State {
            scenario: scenario.clone(),
            run: 0,
            ticks: 0,
            dead: false,
            lanes,
            shelves,
            letters: HashMap::default(),
            names: HashMap::default(),
            letters_in_run: Vec::new(),
            marks: BTreeMap::new(),
            epoch: 0,
            calls: 0,
            hung: false,
            fenced: false,
            told_fenced: false,
            panicked_outside: false,
            miscounted: false,
            silences: 0,
            progress: None,
            panicked: HashSet::default(),
            repaired: false,
            broken: None,
            order: None,
            log: logging.then(Vec::new),
        };
        Arc::new(World { scenario: scenario.clone(), state: Mutex::new(state), orders: Notify::new() })
    }

    /// Its state.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something happens, unless the process is dead; then nothing ever happens again.
    pub async fn tick(&self) {
        if !self.lives() {
            std::future::pending::<()>().await;
        }
    }

    /// As [`World::tick`], for who cannot wait: says whether the process lives.
    pub fn lives(&self) -> bool {
        let mut state = self.lock();
        if state.dead {
            return false;
        }
        let at = state.ticks;
        state.ticks += 1;
        if at > MOST_TICKS {
            self.broken(&mut state, || "it goes round in circles".to_owned());
            return false;
        }
        let order = match state.interruption() {
            Interruption::Crash(tick) if tick == at => Order::Kill,
            Interruption::Stop(tick, budget) if tick == at => Order::Stop(budget),
            Interruption::Fence(tick) if tick == at => {
                state.note(|| "another run claims the pipeline".to_owned());
                state.epoch += 1;
                state.fenced = true;
                return true;
            }
            _ => return true,
        };
        state.note(|| format!("{order:?}"));
        self.give(&mut state, order);
        !state.dead
    }

    fn give(&self, state: &mut State, order: Order) {
        state.dead |= order == Order::Kill;
        state.order = Some(order);
        self.orders.notify_one();
    }

    /// Something never returns.
    pub async fn hang(&self) {
        self.hangs();
        std::future::pending::<()>().await;
    }

    fn hangs(&self) {
        let mut state = self.lock();
        state.hung = true;
        state.note(|| "a call hangs".to_owned());
    }

    /// Something is opened, by who can wait.
    ///
    /// # Errors
    /// As [`World::opens`].
    pub async fn opening(&self) -> Result<(), Fault> {
        self.tick().await;
        let hangs = {
            let mut state = self.lock();
            let call = state.next_call();
            state.is_troubled() && hits(8, call, self.scenario.open_hangs)
        };
        if hangs {
            self.hang().await;
        }
        self.opens()
    }

    /// Something is opened.
    ///
    /// # Errors
    /// It cannot be: for the time being or for good.
    pub fn opens(&self) -> Result<(), Fault> {
        let mut state = self.lock();
        let call = state.next_call();
        if !state.is_troubled() || !hits(9, call, self.scenario.open_fails) {
            return Ok(());
        }
        match mix(call, 3) % 4 {
            0 if !state.repaired => {
                state.panicked_outside = true;
                drop(state);
                panic!("simulated")
            }
            1 if !state.repaired => Err(Fault::fatal("sim_broken", "it cannot be opened")),
            _ => Err(Fault::transient("sim_passing", "it cannot be opened")),
        }
    }

    /// A call of a source or a destination panics, or not.
    pub fn may_panic(&self) {
        let mut state = self.lock();
        let call = state.next_call();
        if state.is_troubled() && !state.repaired && hits(10, call, self.scenario.panics) {
            state.panicked_outside = true;
            state.note(|| "a panic".to_owned());
            drop(state);
            panic!("simulated");
        }
    }

    /// A destination is to give a wrong number of verdicts; says whether it may still do so.
    pub fn miscounts(&self) -> bool {
        let mut state = self.lock();
        state.miscounted |= !state.repaired;
        !state.repaired
    }

    /// A processor gives no answer at all.
    pub fn silent(&self) {
        let mut state = self.lock();
        state.silences += 1;
        if state.silences > MOST_SILENCES {
            self.broken(&mut state, || "a processor that does not answer is asked again and again".to_owned());
        }
    }

    /// The number of the run that owns the marks, if it is not this one.
    pub fn refuses(&self, epoch: u64) -> Option<u64> {
        let mut state = self.lock();
        if epoch == state.epoch {
            return None;
        }
        if !state.fenced || state.told_fenced {
            self.broken(&mut state, || "a run stores marks that are another one's".to_owned());
        }
        state.told_fenced = true;
        Some(state.epoch)
    }

    /// A partition is somebody else's.
    pub fn revoked(&self, lane: usize) -> Partition {
        let mut state = self.lock();
        state.note(|| format!("lane {lane} is somebody else's"));
        let lane = &mut state.lanes[lane];
        lane.revoked = Some(Instant::now());
        let partition = lane.id.partition.clone();
        if state.nothing_to_do() {
            self.orders.notify_one();
        }
        partition
    }

    /// So many rows more of a lane are read, of this weight each.
    pub fn holds(&self, lane: usize, rows: usize, weight: usize) {
        let mut state = self.lock();
        state.lanes[lane].read += rows;
        let scenario = state.scenario.clone();
        let Some(progress) = state.progress.clone().filter(|_| scenario.held_bytes < 1 << 20) else { return };
        let settled: u64 = progress.lanes().iter().map(|lane| lane.settled).sum();
        let open = state.lanes.iter().map(|lane| lane.read).sum::<usize>() - settled as usize;
        // Each source may fill what is free, with a last row that is larger.
        let most = scenario.sources.len() * (scenario.held_bytes + weight);
        if open * weight > most {
            self.broken(&mut state, || format!("{open} rows of {weight} bytes are held, {most} bytes may be"));
        }
    }

    /// As [`World::broken`], for who does not hold the state.
    pub fn breaks(&self, what: impl FnOnce() -> String) {
        self.broken(&mut self.lock(), what);
    }

    /// A promise was broken: the simulation ends.
    pub fn broken(&self, state: &mut State, what: impl FnOnce() -> String) {
        if state.broken.is_none() {
            let what = what();
            state.note(|| what.clone());
            state.broken = Some(what);
        }
        self.give(state, Order::Kill);
    }

    /// The rows that a destination is given, before anything becomes of them. `shelf` is the number of the
    /// destination.
    pub fn presented<'a>(&self, shelf: usize, ids: &[u64], positions: impl Iterator<Item = &'a Position>) {
        let mut state = self.lock();
        for (id, at_position) in ids.iter().zip(positions) {
            let Some((lane, row, place)) = state.shelves[shelf].arrivals.get(id).copied() else {
                return self.broken(&mut state, || format!("d{shelf} is given record {id:x}, which must not exist"));
            };
            let source = state.lanes[lane].source;
            if *at_position != state.scenario.sources[source].position(lane, row) {
                return self.broken(&mut state, || format!("record {id:x} arrives with position {at_position:?}"));
            }
            let at = &mut state.shelves[shelf];
            if !at.put.contains_key(id) {
                at.put.insert(*id, (0, 0));
                let latest = at.latest.insert(lane, place);
                if latest.is_some_and(|latest| latest >= place) && !state.lanes[lane].again {
                    return self.broken(&mut state, || {
                        format!(
                            "d{shelf} is given row {row} of lane {lane} after a later one ({place} after {latest:?})"
                        )
                    });
                }
            }
            let stored = state.lanes[lane].stored;
            let most = state.scenario.replay_rows;
            if (row + 1).saturating_sub(stored) as usize > most {
                return self.broken(&mut state, || {
                    format!("row {row} of lane {lane} is in flight, {stored} are stored, and {most} may be open")
                });
            }
        }
    }

    /// A destination puts a copy down: durable, or only accepted. `uncertain`: nobody is told.
    pub fn put(&self, shelf: usize, id: u64, durable: bool, uncertain: bool) {
        let mut state = self.lock();
        let at = &mut state.shelves[shelf];
        let (times, uncertainly) = at.put.entry(id).or_default();
        let first = *times == 0;
        *times += 1;
        *uncertainly += u32::from(uncertain);
        let twice = *times > *uncertainly + 1;
        // Only a call that fails on some of its rows may leave them behind those that follow.
        let known = state.shelves[shelf].arrivals.get(&id).copied();
        let again = known.is_some_and(|(lane, ..)| state.lanes[lane].again);
        let ordered = state.scenario.sinks[shelf].partial == 0 && !again;
        let at = &mut state.shelves[shelf];
        if let Some((lane, row, place)) = known.filter(|_| first && ordered) {
            let latest = at.latest_put.insert(lane, place);
            if latest.is_some_and(|latest| latest >= place) {
                return self.broken(&mut state, || format!("d{shelf} gets row {row} of lane {lane} after a later one"));
            }
        }
        let at = &mut state.shelves[shelf];
        match durable {
            true => *at.durable.entry(id).or_default() += 1,
            false => at.unsynced.push(id),
        }
        if twice && !again {
            self.broken(&mut state, || format!("d{shelf} is given record {id:x} twice in a run"));
        }
    }

    /// A destination was flushed.
    pub fn flushed(&self, shelf: usize) {
        self.lock().shelves[shelf].sync();
    }

    /// A letter is put down.
    pub fn put_letter(&self, node: &str, id: u64, key: &[u8], durable: bool) {
        let mut state = self.lock();
        let letters = state.scenario.sinks.len();
        let id_of_letter = letter_id(node, id);
        let Some((lane, row, _)) = state.shelves[letters].arrivals.get(&id_of_letter).copied() else {
            return self.broken(&mut state, || format!("a letter from {node} on record {id:x}, which must not fail"));
        };
        if durable {
            *state.shelves[letters].durable.entry(id_of_letter).or_default() += 1;
        } else {
            state.shelves[letters].unsynced.push(id_of_letter);
        }
        state.letters_in_run.push((lane, row));
        let panics = state.scenario.panics();
        let other = state.names.insert(key.to_vec(), id_of_letter);
        if other.is_some_and(|other| other != id_of_letter) && !panics {
            let key = String::from_utf8_lossy(key).to_string();
            self.broken(&mut state, || format!("two letters are named {key}"));
        }
        let named = state.letters.entry(id_of_letter).or_default();
        let before = named.get_or_insert_with(|| key.to_vec()).clone();
        if before != key && !panics {
            let [before, now] = [&before[..], key].map(String::from_utf8_lossy).map(|text| text.to_string());
            self.broken(&mut state, || format!("a letter is named {now}, and was named {before} before"));
        }
    }

    /// The marks of all lanes.
    pub fn marks(&self) -> BTreeMap<LaneId, Mark> {
        self.lock().marks.clone()
    }

    /// Marks are stored.
    pub fn store(&self, moves: &[(LaneId, Mark)]) {
        let mut state = self.lock();
        let state = &mut *state;
        for (id, mark) in moves {
            let Some(lane) = state.lanes.iter().position(|lane| lane.id == *id) else {
                return self.broken(state, || format!("a mark of lane {id:?}, which there is not"));
            };
            let before = state.lanes[lane].stored;
            let Some(upto) = state.lanes[lane].rows_upto(mark).filter(|upto| *upto >= before) else {
                return self.broken(state, || format!("lane {lane}: stored {mark:?} after {before} rows"));
            };
            let missing = (before..upto).find(|row| !state.is_durable(&state.lanes[lane].fates[*row as usize], &[]));
            if let Some(row) = missing {
                return self.broken(state, || format!("row {row} of lane {lane} is stored as settled and is not safe"));
            }
            state.lanes[lane].stored = upto;
            state.marks.insert(id.clone(), mark.clone());
        }
    }

    /// What a transactional destination is told along with rows.
    pub fn told(&self, shelf: usize, ids: &[u64], marks: &[(LaneId, Mark)]) {
        let mut state = self.lock();
        let state = &mut *state;
        let given: Vec<(usize, u64)> = ids.iter().map(|id| (shelf, *id)).collect();
        for (id, mark) in marks {
            let Some(lane) = state.lanes.iter().find(|lane| lane.id == *id) else { continue };
            let upto = lane.rows_upto(mark).map_or(0, |rows| rows as usize).min(lane.fates.len());
            let rows = (lane.stored as usize).min(upto)..upto;
            if rows.clone().any(|row| !state.is_complete_at(shelf, &lane.fates[row], &given)) {
                return self.broken(state, || format!("d{shelf} is told {mark:?}, and rows before are not safe"));
            }
        }
    }

    /// Positions are read.
    pub fn read(&self, lane: usize, positions: impl IntoIterator<Item = Position>) {
        self.lock().lanes[lane].unacked.extend(positions);
    }

    /// A partition that came back goes on after a mark.
    pub fn goes_on(&self, lane: usize, mark: Option<&Mark>) {
        let mut state = self.lock();
        state.note(|| format!("lane {lane} goes on after {mark:?}"));
        let stored = state.marks.get(&state.lanes[lane].id).cloned();
        let at = &mut state.lanes[lane];
        let from = mark.map_or(Some(0), |mark| at.rows_upto(mark));
        if !at.returning || mark != stored.as_ref() || from != Some(at.acked) {
            let acked = at.acked;
            return self.broken(&mut state, || {
                format!("lane {lane} goes on after {mark:?}, {stored:?} is stored, {acked} rows are acknowledged")
            });
        }
        at.again |= at.next > at.acked;
        (at.next, at.revoked, at.returning) = (at.acked, None, false);
        at.unacked.clear();
    }

    /// A source is told that positions are safe.
    pub fn acked(&self, source: usize, partition: &Partition, positions: &[Position]) {
        let mut state = self.lock();
        if state.told_fenced {
            return self.broken(&mut state, || "a run that is not the owner any more acknowledges".to_owned());
        }
        let lanes = &mut state.lanes;
        let Some(lane) = lanes.iter_mut().find(|lane| lane.source == source && lane.id.partition == *partition) else {
            return self.broken(&mut state, || format!("an acknowledgement for partition {partition:?}"));
        };
        if lane.revoked.is_some_and(|since| since.elapsed() > REVOKED) && !lane.returning {
            return self.broken(&mut state, || format!("{positions:?} are somebody else's for long"));
        }
        for position in positions {
            let expected = lane.unacked.pop_front();
            let stored = lane.stored;
            lane.acked = lane.acked.max(row_of(position).map_or(0, |row| row + 1));
            if expected.as_ref() != Some(position) {
                return self.broken(&mut state, || format!("{position:?} is acknowledged instead of {expected:?}"));
            }
            if row_of(position).is_none_or(|row| row >= stored) {
                return self
                    .broken(&mut state, || format!("{position:?} is acknowledged, and {stored} rows are stored"));
            }
        }
        if state.nothing_to_do() && !state.dead {
            self.orders.notify_one();
        }
    }

    /// What to do with the run, if there is something.
    pub fn take_order(&self) -> Option<Order> {
        self.lock().order.take()
    }
}

/// The record of a row.
pub fn first(lane: usize, row: u32) -> Copy {
    let id = mix(lane as u64 + 1, u64::from(row) + 1);
    Copy { id, mark: (id % 3) as u8 }
}

fn expect(fate: &Fate, lane: usize, row: u32, shelves: &mut [Shelf]) {
    let letters = shelves.len() - 1;
    let mut arrives = |shelf: usize, id: u64| {
        let place = shelves[shelf].arrivals.len();
        shelves[shelf].arrivals.entry(id).or_insert((lane, row, place));
    };
    match fate {
        Fate::Delivered(sink, id) => arrives(*sink, *id),
        Fate::Letter(node, id, sink) => {
            if let Some(sink) = sink {
                arrives(*sink, *id);
            }
            arrives(letters, letter_id(node, *id));
        }
        Fate::Filtered => {}
        Fate::All(fates) => fates.iter().for_each(|fate| expect(fate, lane, row, shelves)),
        Fate::Either(fates) => fates.iter().for_each(|fate| expect(fate, lane, row, shelves)),
    }
}

impl Shelf {
    fn sync(&mut self) {
        for id in std::mem::take(&mut self.unsynced) {
            *self.durable.entry(id).or_default() += 1;
        }
    }
}

impl State {
    /// A line of what happened.
    pub fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(format!("run {} tick {}: {}", self.run, self.ticks, what()));
        }
    }

    /// How much happened in this run, writes and reads that are under way included.
    pub fn ticks_in_all(&self) -> u64 {
        self.ticks + self.calls + self.shelves.iter().map(|shelf| shelf.calls).sum::<u64>()
    }

    /// Whether things go wrong in this run.
    pub fn is_troubled(&self) -> bool {
        self.run < TROUBLED_RUNS
    }

    /// Counts a call of anything but a destination.
    pub fn next_call(&mut self) -> u64 {
        self.calls += 1;
        self.calls
    }

    /// What happens in this run.
    pub fn interruption(&self) -> Interruption {
        self.scenario.interruptions.get(self.run as usize).copied().unwrap_or(Interruption::None)
    }

    /// Whether everything that was read was acknowledged, and no source has more.
    pub fn all_told(&self) -> bool {
        self.lanes.iter().all(|lane| lane.stored as usize == lane.fates.len() && lane.unacked.is_empty())
    }

    /// As [`State::all_told`], without the partitions that are somebody else's.
    pub fn nothing_to_do(&self) -> bool {
        let mut ours = self.lanes.iter().filter(|lane| lane.revoked.is_none());
        ours.all(|lane| lane.stored as usize == lane.fates.len() && lane.unacked.is_empty())
    }

    /// Lanes with positions that were read and not acknowledged.
    pub fn untold(&self) -> Vec<usize> {
        let untold = |lane: &usize| !self.lanes[*lane].unacked.is_empty() && self.lanes[*lane].revoked.is_none();
        (0..self.lanes.len()).filter(untold).collect()
    }

    /// Whether rows were read more than once in this run.
    pub fn reads_again(&self) -> bool {
        self.lanes.iter().any(|lane| lane.again)
    }

    /// A partition that was somebody else's is ours again.
    pub fn returns(&mut self, lane: usize) -> Partition {
        self.note(|| format!("lane {lane} comes back"));
        let lane = &mut self.lanes[lane];
        lane.returning = true;
        lane.id.partition.clone()
    }

    /// Whether a processor that would panic does so: the first time only.
    pub fn panics(&mut self, salt: u64, id: u64) -> bool {
        !self.repaired && self.panicked.insert(mix(salt, id))
    }

    /// The process is gone; each row that was only accepted is lost or not.
    pub fn end_run(&mut self) {
        self.run += 1;
        self.ticks = 0;
        self.dead = false;
        self.hung = false;
        self.fenced = false;
        self.told_fenced = false;
        self.panicked_outside = false;
        self.miscounted = false;
        self.silences = 0;
        self.progress = None;
        self.order = None;
        self.letters_in_run.clear();
        let salt = mix(self.scenario.seed, u64::from(self.run));
        for shelf in &mut self.shelves {
            for id in std::mem::take(&mut shelf.unsynced) {
                if mix(salt, id).is_multiple_of(2) {
                    *shelf.durable.entry(id).or_default() += 1;
                }
            }
            shelf.put.clear();
            shelf.latest.clear();
            shelf.latest_put.clear();
        }
        for lane in &mut self.lanes {
            lane.unacked.clear();
            (lane.revoked, lane.returning, lane.again, lane.read) = (None, false, false, 0);
        }
    }

    /// Whether a fate has come true, `given` counting as delivered.
    fn is_durable(&self, fate: &Fate, given: &[(usize, u64)]) -> bool {
        match fate {
            Fate::Delivered(sink, id) => self.shelves[*sink].durable.contains_key(id) || given.contains(&(*sink, *id)),
            // It refuses the row when it sees it, and what it is told holds for the rows that it takes.
            Fate::Letter(_, id, Some(sink)) if given.contains(&(*sink, *id)) => true,
            Fate::Letter(node, id, _) => {
                self.shelves.last().is_some_and(|letters| letters.durable.contains_key(&letter_id(node, *id)))
            }
            Fate::Filtered => true,
            Fate::All(fates) => fates.iter().all(|fate| self.is_durable(fate, given)),
            Fate::Either(fates) => fates.iter().any(|fate| self.is_durable(fate, given)),
        }
    }

    /// As [`State::is_durable`], but only for what concerns one destination and what never came to any: where there are
    /// several, its marks say nothing about the others.
    fn is_complete_at(&self, shelf: usize, fate: &Fate, given: &[(usize, u64)]) -> bool {
        match fate {
            Fate::Delivered(sink, _) | Fate::Letter(_, _, Some(sink)) if *sink != shelf => true,
            Fate::All(fates) => fates.iter().all(|fate| self.is_complete_at(shelf, fate, given)),
            Fate::Either(fates) => fates.iter().any(|fate| self.is_complete_at(shelf, fate, given)),
            fate => self.is_durable(fate, given),
        }
    }

    /// Whether so many letters may be due within a window of a lane.
    pub fn may_exceed(&self, window: u64, threshold: u64) -> bool {
        // A row that is read again fails again.
        let threshold = if self.reads_again() { 0 } else { threshold };
        self.lanes.iter().any(|lane| {
            let letters: Vec<u64> = lane.fates.iter().map(most_letters).collect();
            letters.windows((window as usize).clamp(1, letters.len().max(1))).any(|w| w.iter().sum::<u64>() > threshold)
        })
    }

    /// Whether more letters were written in this run within a window of a lane.
    pub fn exceeded(&self, window: u64, threshold: u64) -> bool {
        self.letters_in_run.iter().any(|(lane, row)| {
            let within =
                |(other, at): &&(usize, u32)| other == lane && *at <= *row && u64::from(*row) < u64::from(*at) + window;
            self.letters_in_run.iter().filter(within).count() as u64 > threshold
        })
    }
}

fn most_letters(fate: &Fate) -> u64 {
    match fate {
        Fate::Letter(..) => 1,
        Fate::Delivered(..) | Fate::Filtered => 0,
        Fate::All(fates) => fates.iter().map(most_letters).sum(),
        Fate::Either(fates) => fates.iter().map(most_letters).max().unwrap_or(0),
    }
}

/// How many copies end delivered, in a letter, filtered; `None` where that is not certain.
pub fn leaves(fate: &Fate) -> Option<[u64; 3]> {
    match fate {
        Fate::Delivered(..) => Some([1, 0, 0]),
        Fate::Letter(..) => Some([0, 1, 0]),
        Fate::Filtered => Some([0, 0, 1]),
        Fate::All(fates) if fates.is_empty() => Some([0, 0, 1]),
        Fate::All(fates) => fates.iter().try_fold([0; 3], |sum, fate| {
            let one = leaves(fate)?;
            Some([0, 1, 2].map(|i| sum[i] + one[i]))
        }),
        Fate::Either(_) => None,
    }
}
