//! State of destinations: the copies that may arrive, their order and their durability; dead letters and their names.

use std::collections::{BTreeMap, BTreeSet};

use anabranch_record::Position;
use anabranch_record::mark::{LaneId, Mark};

use super::{HashMap, State, World};
use crate::coordinator::Coordinator;
use crate::oracle::RequiredOutcome;
use crate::scenario::mix;

/// The contents of a destination.
#[derive(Default)]
pub struct DestinationContents {
    /// The origin of each copy that may arrive: lane, row, and index in the order of the lane.
    pub(super) arrivals: HashMap<u64, (usize, u32, usize)>,
    /// Number of durable instances of each copy.
    pub durable: HashMap<u64, u32>,
    /// The marks that its transactions stored.
    pub marks: BTreeMap<LaneId, Mark>,
    /// Its transactions: the ids that each one stored, and the marks before it.
    pub transactions: Vec<(Vec<u64>, BTreeMap<LaneId, Mark>)>,
    /// `true` if it has lost transactions.
    pub went_back: bool,
    /// Copies that it lost and that have not arrived again.
    lost: BTreeSet<u64>,
    /// `true` if it lost transactions in this run.
    pub went_back_now: bool,
    /// Copies that are accepted and not flushed; a crash can lose each of them.
    unsynced: Vec<u64>,
    /// Number of writes of each copy in this run, and number of those with an unknown outcome.
    put: HashMap<u64, (u32, u32)>,
    /// Latest index in the order of each lane that was presented in this run, and that was written.
    latest: BTreeMap<usize, usize>,
    latest_put: BTreeMap<usize, usize>,
    /// The part of a transactional destination that outlives its writers.
    pub coordinator: Coordinator,
    /// Number of calls in all runs.
    pub calls: u64,
}

pub(super) fn letter_id(node: &str, id: u64) -> u64 {
    node.bytes().fold(mix(id, 77), |hash, byte| mix(hash, u64::from(byte)))
}

pub(super) fn expect(fate: &RequiredOutcome, lane: usize, row: u32, destinations: &mut [DestinationContents]) {
    let letters = destinations.len() - 1;
    let mut arrives = |destination: usize, id: u64| {
        let order = destinations[destination].arrivals.len();
        destinations[destination].arrivals.entry(id).or_insert((lane, row, order));
    };
    match fate {
        RequiredOutcome::Delivered(sink, id) => arrives(*sink, *id),
        RequiredOutcome::Letter(node, id, sink) => {
            if let Some(sink) = sink {
                arrives(*sink, *id);
            }
            arrives(letters, letter_id(node, *id));
        }
        RequiredOutcome::Filtered => {}
        RequiredOutcome::All(fates) => fates.iter().for_each(|fate| expect(fate, lane, row, destinations)),
        RequiredOutcome::Either(fates) => fates.iter().for_each(|fate| expect(fate, lane, row, destinations)),
    }
}

impl DestinationContents {
    /// Ends the process. Each row that was only accepted is lost or not.
    pub(super) fn end_run(&mut self, salt: u64) {
        for id in std::mem::take(&mut self.unsynced) {
            if mix(salt, id).is_multiple_of(2) {
                *self.durable.entry(id).or_default() += 1;
            }
        }
        self.went_back_now = false;
        self.put.clear();
        self.latest.clear();
        self.latest_put.clear();
    }

    fn sync(&mut self) {
        for id in std::mem::take(&mut self.unsynced) {
            *self.durable.entry(id).or_default() += 1;
        }
    }
}

impl World {
    /// Checks the rows that a destination receives, before it handles them. `destination` is its index.
    pub fn check_rows<'a>(&self, destination: usize, ids: &[u64], positions: impl Iterator<Item = &'a Position>) {
        let mut state = self.lock();
        for (id, at_position) in ids.iter().zip(positions) {
            let Some((lane, row, order)) = state.destinations[destination].arrivals.get(id).copied() else {
                return self
                    .broken(&mut state, || format!("d{destination} is given record {id:x}, which must not exist"));
            };
            let source = state.lanes[lane].source;
            if *at_position != state.scenario.sources[source].position(lane, row) {
                return self.broken(&mut state, || format!("record {id:x} arrives with position {at_position:?}"));
            }
            let at = &mut state.destinations[destination];
            if !at.put.contains_key(id) {
                at.put.insert(*id, (0, 0));
                let latest = at.latest.insert(lane, order);
                if latest.is_some_and(|latest| latest >= order) && !state.lanes[lane].again {
                    return self.broken(&mut state, || {
                        format!(
                            "d{destination} is given row {row} of lane {lane} after a later one ({order} after {latest:?})"
                        )
                    });
                }
            }
            let stored = state.lanes[lane].stored.max(state.lanes[lane].stored_before);
            let most = state.scenario.replay_rows;
            if (row + 1).saturating_sub(stored) as usize > most {
                return self.broken(&mut state, || {
                    format!("row {row} of lane {lane} is in flight, {stored} are stored, and {most} may be open")
                });
            }
        }
    }

    /// Writes a copy to a destination: durable, or only accepted. `uncertain`: the caller does not learn the outcome.
    pub fn put(&self, destination: usize, id: u64, durable: bool, uncertain: bool) {
        let mut state = self.lock();
        let at = &mut state.destinations[destination];
        let (times, uncertainly) = at.put.entry(id).or_default();
        let first = *times == 0;
        *times += 1;
        *uncertainly += u32::from(uncertain);
        let twice = *times > *uncertainly + 1;
        // Only a call that fails for some of its rows may write them after later rows.
        let known = state.destinations[destination].arrivals.get(&id).copied();
        let again = known.is_some_and(|(lane, ..)| state.lanes[lane].again);
        let ordered = state.scenario.sinks[destination].partial == 0 && !again;
        let at = &mut state.destinations[destination];
        if let Some((lane, row, order)) = known.filter(|_| first && ordered) {
            let latest = at.latest_put.insert(lane, order);
            if latest.is_some_and(|latest| latest >= order) {
                return self
                    .broken(&mut state, || format!("d{destination} gets row {row} of lane {lane} after a later one"));
            }
        }
        let at = &mut state.destinations[destination];
        match durable {
            true => *at.durable.entry(id).or_default() += 1,
            false => at.unsynced.push(id),
        }
        if twice && !again {
            self.broken(&mut state, || format!("d{destination} is given record {id:x} twice in a run"));
        }
    }

    /// Makes a transactional destination lose at most `most` of its latest transactions. Each lane keeps a mark.
    pub fn goes_back(&self, destination: usize, most: u64) {
        let mut state = self.lock();
        let at = &mut state.destinations[destination];
        let mut lost = 0;
        while lost < most && at.transactions.last().is_some_and(|(_, before)| before.len() == at.marks.len()) {
            let Some((ids, before)) = at.transactions.pop() else { break };
            for id in ids {
                at.durable.remove(&id);
                at.lost.insert(id);
            }
            at.marks = before;
            lost += 1;
        }
        if lost > 0 {
            (at.went_back, at.went_back_now) = (true, true);
            state.note(|| format!("d{destination} loses {lost} transactions"));
        }
    }

    /// Flushes a destination.
    pub fn flushed(&self, destination: usize) {
        self.lock().destinations[destination].sync();
    }

    /// Writes a dead letter.
    pub fn put_letter(&self, node: &str, id: u64, key: &[u8], durable: bool) {
        let mut state = self.lock();
        let letters = state.scenario.sinks.len();
        let id_of_letter = letter_id(node, id);
        let Some((lane, row, _)) = state.destinations[letters].arrivals.get(&id_of_letter).copied() else {
            return self
                .broken(&mut state, || format!("a dead letter from {node} for record {id:x}, which must not fail"));
        };
        if durable {
            *state.destinations[letters].durable.entry(id_of_letter).or_default() += 1;
        } else {
            state.destinations[letters].unsynced.push(id_of_letter);
        }
        state.letters_in_run.push((lane, row));
        let panics = state.scenario.panics();
        let other = state.names.insert(key.to_vec(), id_of_letter);
        if other.is_some_and(|other| other != id_of_letter) && !panics {
            let key = String::from_utf8_lossy(key).to_string();
            self.broken(&mut state, || format!("two dead letters are named {key}"));
        }
        // Rows of another generation have other numbers, which are part of the name.
        let generation = String::from_utf8_lossy(key).split('/').nth(2).and_then(|text| text.parse().ok());
        let named = state.letters.entry(mix(id_of_letter, generation.unwrap_or(0))).or_default();
        let before = named.get_or_insert_with(|| key.to_vec()).clone();
        if before != key && !panics {
            let [before, now] = [&before[..], key].map(String::from_utf8_lossy).map(|text| text.to_string());
            self.broken(&mut state, || format!("a dead letter is named {now}, and was named {before} before"));
        }
    }

    /// Checks the marks that a transactional destination receives together with rows.
    pub fn check_marks(&self, destination: usize, ids: &[u64], marks: &[(LaneId, Mark)]) {
        let mut state = self.lock();
        let state = &mut *state;
        let given: Vec<(usize, u64)> = ids.iter().map(|id| (destination, *id)).collect();
        for (id, mark) in marks {
            let Some(lane) = state.lanes.iter().find(|lane| lane.id == *id) else { continue };
            let upto = lane.rows_upto(mark).map_or(0, |rows| rows as usize).min(lane.fates.len());
            let mut rows = (lane.stored as usize).min(upto)..upto;
            let is_open = |row: usize| {
                !lane.group.is_gone(row as u32) && !state.is_complete_at(destination, &lane.fates[row], &given)
            };
            if rows.any(is_open) {
                return self
                    .broken(state, || format!("d{destination} receives {mark:?}, and rows before are not safe"));
            }
        }
    }
}

impl State {
    /// Returns what destinations confirmed and lost. Until a run notices the loss, it counts as present.
    pub(super) fn confirmed(&self) -> Vec<(usize, u64)> {
        let lost = |(at, destination): (usize, &DestinationContents)| {
            destination.lost.iter().map(|id| (at, *id)).collect::<Vec<_>>()
        };
        self.destinations.iter().enumerate().flat_map(lost).collect()
    }

    /// Returns `true` if the outcome of a row has come true, or the row does not exist any more; `given` counts as
    /// delivered.
    pub(super) fn is_safe(&self, lane: usize, row: u32, given: &[(usize, u64)]) -> bool {
        let at = &self.lanes[lane];
        at.group.is_gone(row) || self.is_durable(&at.fates[row as usize], given)
    }

    /// Returns `true` if an outcome has come true; `given` counts as delivered.
    pub(super) fn is_durable(&self, fate: &RequiredOutcome, given: &[(usize, u64)]) -> bool {
        match fate {
            RequiredOutcome::Delivered(sink, id) => {
                self.destinations[*sink].durable.contains_key(id) || given.contains(&(*sink, *id))
            }
            // The destination refuses this row, and the marks are valid for the rows that it accepts.
            RequiredOutcome::Letter(_, id, Some(sink)) if given.contains(&(*sink, *id)) => true,
            RequiredOutcome::Letter(node, id, _) => {
                self.destinations.last().is_some_and(|letters| letters.durable.contains_key(&letter_id(node, *id)))
            }
            RequiredOutcome::Filtered => true,
            RequiredOutcome::All(fates) => fates.iter().all(|fate| self.is_durable(fate, given)),
            RequiredOutcome::Either(fates) => fates.iter().any(|fate| self.is_durable(fate, given)),
        }
    }

    /// Like [`State::is_durable`], but only for one destination and for what reaches no destination: with several
    /// destinations, the marks of one say nothing about the others.
    fn is_complete_at(&self, destination: usize, fate: &RequiredOutcome, given: &[(usize, u64)]) -> bool {
        match fate {
            RequiredOutcome::Delivered(sink, _) | RequiredOutcome::Letter(_, _, Some(sink)) if *sink != destination => {
                true
            }
            RequiredOutcome::All(fates) => fates.iter().all(|fate| self.is_complete_at(destination, fate, given)),
            RequiredOutcome::Either(fates) => fates.iter().any(|fate| self.is_complete_at(destination, fate, given)),
            fate => self.is_durable(fate, given),
        }
    }

    /// Returns `true` if a window of a lane can have more dead letters than the threshold.
    pub fn may_exceed(&self, window: u64, threshold: u64) -> bool {
        self.lanes.iter().any(|lane| {
            let letters: Vec<u64> = lane.fates.iter().map(most_letters).collect();
            letters.windows((window as usize).clamp(1, letters.len().max(1))).any(|w| w.iter().sum::<u64>() > threshold)
        })
    }

    /// Returns `true` if more dead letters than the threshold were written within a window of a lane in this run.
    pub fn exceeded(&self, window: u64, threshold: u64) -> bool {
        self.letters_in_run.iter().any(|(lane, row)| {
            let within =
                |(other, at): &&(usize, u32)| other == lane && *at <= *row && u64::from(*row) < u64::from(*at) + window;
            self.letters_in_run.iter().filter(within).count() as u64 > threshold
        })
    }
}

fn most_letters(fate: &RequiredOutcome) -> u64 {
    match fate {
        RequiredOutcome::Letter(..) => 1,
        RequiredOutcome::Delivered(..) | RequiredOutcome::Filtered => 0,
        RequiredOutcome::All(fates) => fates.iter().map(most_letters).sum(),
        RequiredOutcome::Either(fates) => fates.iter().map(most_letters).max().unwrap_or(0),
    }
}

/// Returns the numbers of copies that end delivered, dead-lettered, and filtered; `None` if they are not certain.
pub fn result_counts(fate: &RequiredOutcome) -> Option<[u64; 3]> {
    match fate {
        RequiredOutcome::Delivered(..) => Some([1, 0, 0]),
        RequiredOutcome::Letter(..) => Some([0, 1, 0]),
        RequiredOutcome::Filtered => Some([0, 0, 1]),
        RequiredOutcome::All(fates) if fates.is_empty() => Some([0, 0, 1]),
        RequiredOutcome::All(fates) => fates.iter().try_fold([0; 3], |sum, fate| {
            let one = result_counts(fate)?;
            Some([0, 1, 2].map(|i| sum[i] + one[i]))
        }),
        RequiredOutcome::Either(_) => None,
    }
}
