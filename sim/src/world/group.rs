//! Consumer groups: committed offsets, and where the partitions of a member start.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use anabranch_graph::mutant::{Mutant, is_active};
use anabranch_plugin::source::Start;
use anabranch_record::Position;
use anabranch_record::mark::{Mark, Partition};

use super::lanes::{SourcePartition, position, row_of};
use super::{State, World};
use crate::scenario::{hits, mix};

/// A generation of the marks of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Generation {
    /// The row with which it begins.
    pub(super) base: u32,
    /// `true` if the position of its first mark is that of the row before.
    is_placed: bool,
    /// Number of the offset of others that the source follows in it.
    followed: u32,
    /// The same before the generation.
    followed_before: u32,
}

/// A committed offset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offset {
    pub(super) row: u32,
    /// Number of the offset if another member or an operator committed it.
    foreign: Option<u32>,
}

/// A partition in its consumer group.
#[derive(Default)]
pub(super) struct GroupPartition {
    pub(super) committed: Option<Offset>,
    /// Number of offsets that other members and operators committed.
    foreign: u32,
    /// The first row that still exists.
    pub(super) log_start: u32,
    /// Rows that were removed or skipped before they were delivered.
    gone: BTreeSet<u32>,
    /// Rows that are read again, because the source started elsewhere.
    again: Vec<Range<u32>>,
    /// Number of deliveries of rows by other members.
    others: BTreeMap<u32, u32>,
}

impl GroupPartition {
    /// Returns `true` if a row need not be delivered.
    pub(super) fn is_gone(&self, row: u32) -> bool {
        self.gone.contains(&row)
    }

    /// Removes or skips a row.
    pub(super) fn loses(&mut self, row: u32) {
        self.gone.insert(row);
    }

    /// Notes that another member delivered a row.
    pub(super) fn delivered_by_another(&mut self, row: u32) {
        *self.others.entry(row).or_default() += 1;
    }

    /// Returns the number of times that a transactional destination may store a row.
    pub(super) fn most_copies(&self, row: u32) -> u32 {
        let again = self.again.iter().filter(|rows| rows.contains(&row)).count() as u32;
        1 + again + self.others.get(&row).copied().unwrap_or(0)
    }

    /// Commits an offset of another member or an operator.
    pub(super) fn commits_foreign(&mut self, row: u32) {
        self.foreign += 1;
        self.committed = Some(Offset { row, foreign: Some(self.foreign) });
    }
}

impl SourcePartition {
    /// Returns the number of the offset of others that the source had followed at a mark.
    fn followed(&self, mark: &Mark) -> u32 {
        self.generations.get(&mark.generation).map_or(0, |generation| match mark.seq > 0 || generation.is_placed {
            true => generation.followed,
            false => generation.followed_before,
        })
    }

    /// Decides where a member of a group starts: after the mark, unless another member or an operator has committed
    /// another offset since, or the rows after it do not exist any more.
    fn starts(&mut self, lane: usize, mark: Option<&Mark>, is_needless: bool) -> Start {
        let known = mark.and_then(|mark| row_of(&mark.position)).map(|row| row + 1);
        let followed = mark.map_or(0, |mark| self.followed(mark));
        let foreign = self.group.committed.and_then(|offset| offset.foreign).filter(|foreign| *foreign > followed);
        let (mut from, mut is_elsewhere) = match (known, self.group.committed) {
            (Some(known), Some(offset)) if foreign.is_some() => (offset.row, known != offset.row),
            (Some(known), _) => (known, false),
            (None, Some(offset)) => (offset.row, true),
            (None, None) => (0, is_needless),
        };
        // The position is still that of an earlier generation.
        let generation = mark.and_then(|mark| self.generations.get(&mark.generation));
        is_elsewhere |= mark.is_some_and(|mark| mark.seq == 0) && generation.is_some_and(|at| !at.is_placed);
        if from < self.group.log_start {
            (from..self.group.log_start).for_each(|row| self.group.loses(row));
            (from, is_elsewhere) = (self.group.log_start, true);
        }
        (self.next, self.acked, self.elsewhere) = (from, from, None);
        let now = foreign.unwrap_or(followed);
        if !is_elsewhere {
            if let Some(generation) = mark.and_then(|mark| self.generations.get_mut(&mark.generation)) {
                generation.followed = now;
            }
            return Start::after_mark();
        }
        if from < self.high {
            self.group.again.push(from..self.high);
        }
        let is_placed = from > 0;
        self.elsewhere = Some(Generation { base: from, is_placed, followed: now, followed_before: followed });
        match is_placed {
            true => Start::elsewhere().at(position(lane, from - 1, b'r')),
            false => Start::elsewhere(),
        }
    }
}

impl World {
    fn is_member(&self, source: usize) -> bool {
        self.scenario.sources[source].group.is_some()
    }

    /// Opens a partition at its mark. Returns where it starts; `None` if it does not exist any more.
    pub fn opens_lane(&self, lane: usize, resume: &BTreeMap<Partition, Mark>) -> Option<(Partition, Start)> {
        let mut state = self.lock();
        let at = &mut state.lanes[lane];
        let partition = at.id.partition.clone();
        let mark = resume.get(&partition);
        at.assignment += 1;
        if !self.is_member(at.source) {
            let finishes = self.scenario.sources[at.source].finishes;
            return at.opens(mark, finishes).then(|| (partition, Start::after_mark()));
        }
        let start = at.starts(lane, mark, self.is_needless(lane));
        state.note(|| format!("lane {lane} is opened after {mark:?}: {start:?}"));
        Some((partition, start))
    }

    /// Returns `true` if a source says of a new partition that it starts elsewhere.
    fn is_needless(&self, lane: usize) -> bool {
        hits(self.scenario.seed ^ 46, lane as u64, 3)
    }

    /// Resumes a returned partition after a mark. Returns where it starts.
    pub fn resumes(&self, lane: usize, mark: Option<&Mark>) -> Start {
        let mut state = self.lock();
        state.note(|| format!("lane {lane} resumes after {mark:?}"));
        let stored = state.marks.get(&state.lanes[lane].id).filter(|mark| !mark.position.0.is_empty()).cloned();
        let is_fenced = state.fenced;
        let at = &mut state.lanes[lane];
        if at.release_due {
            self.broken(&mut state, || {
                format!("lane {lane} resumes, and the source does not know that it was given up")
            });
            return Start::after_mark();
        }
        let from = mark.map_or(Some(0), |mark| at.rows_upto(mark));
        // What is stored after the partition was given up is not acknowledged.
        let is_before = !self.is_member(at.source) && from.is_none_or(|from| from < at.acked);
        if !at.returning || mark != stored.as_ref() && !is_fenced || is_before {
            let acked = at.acked;
            self.broken(&mut state, || {
                format!("lane {lane} resumes after {mark:?}, {stored:?} is stored, {acked} rows are acknowledged")
            });
            return Start::after_mark();
        }
        let read = at.next;
        let start = match self.is_member(at.source) {
            true => at.starts(lane, mark, self.is_needless(lane)),
            false => {
                at.next = from.unwrap_or(0);
                at.acked = at.next;
                Start::after_mark()
            }
        };
        at.again |= read > at.next || start.is_elsewhere();
        (at.revoked, at.returning, at.lost, at.let_go) = (None, false, false, false);
        at.assignment += 1;
        at.unacked.clear();
        start
    }

    /// Acknowledges as a source does that counts acknowledgements: so many positions of any partition, in the order of
    /// reading.
    pub(super) fn acks_counted(&self, state: &mut State, source: usize, count: usize) {
        for _ in 0..count {
            let Some((lane, position)) = state.read_order[source].pop_front() else { return };
            let at = &mut state.lanes[lane];
            if at.unacked.front() == Some(&position) {
                at.unacked.pop_front();
            }
            let (upto, stored) = (row_of(&position).map_or(0, |row| row + 1), at.stored);
            let committed = state.commits_offset(lane, upto);
            if upto > stored {
                return self.broken(state, || {
                    format!("{position:?} is acknowledged, and {stored} rows of its lane are stored")
                });
            }
            if let Err(broken) = committed {
                return self.broken(state, || broken);
            }
        }
    }
}

impl State {
    /// Returns the number of the current assignment of a partition.
    pub fn assignment(&self, source: usize, partition: &Partition) -> u64 {
        self.lane_of(source, partition).map_or(0, |lane| self.lanes[lane].assignment)
    }

    /// Notes the order of reading, if a planted fault needs it.
    pub(super) fn counts_read(&mut self, lane: usize, positions: &[Position]) {
        if is_active(Mutant::AcksCounted) {
            let source = self.lanes[lane].source;
            self.read_order[source].extend(positions.iter().map(|position| (lane, position.clone())));
        }
    }

    /// Begins a generation with its first mark.
    pub(super) fn begins(&mut self, lane: usize, mark: &Mark) -> Result<(), String> {
        let at = &self.lanes[lane];
        let Some(generation) = at.elsewhere else {
            return Err(format!("lane {lane} begins a generation with {mark:?}, and the source starts after its mark"));
        };
        let at_destinations = self
            .destinations
            .iter()
            .filter_map(|destination| destination.marks.get(&at.id))
            .map(|mark| mark.generation);
        let is_later = at.generations.keys().copied().chain(at_destinations).all(|earlier| earlier < mark.generation);
        if mark.seq != 0 || !is_later {
            return Err(format!("lane {lane} begins a generation with {mark:?}, after {:?}", at.generations.keys()));
        }
        let (stored, base) = (at.stored, generation.base);
        if let Some(row) = (stored..base).find(|row| !self.is_safe(lane, *row, &[])) {
            return Err(format!("row {row} of lane {lane} is lost: reading starts at row {base}, and it is not safe"));
        }
        let at = &mut self.lanes[lane];
        at.generations.insert(mark.generation, generation);
        (at.elsewhere, at.stored, at.stored_before) = (None, base, at.stored_before.max(stored));
        let id = at.id.clone();
        self.note(|| format!("lane {lane} begins a generation with {mark:?} at row {base}"));
        self.marks.insert(id, mark.clone());
        Ok(())
    }

    /// Commits an offset of this process to the group.
    pub(super) fn commits_offset(&mut self, lane: usize, row: u32) -> Result<(), String> {
        let at = &mut self.lanes[lane];
        if self.scenario.sources[at.source].group.is_none() {
            return Ok(());
        }
        match at.group.committed {
            Some(offset) if offset.row > row => {
                Err(format!("an acknowledgement moves the offset of lane {lane} from {} back to {row}", offset.row))
            }
            _ => {
                at.group.committed = Some(Offset { row, foreign: None });
                Ok(())
            }
        }
    }

    /// Returns the number of times that a transactional destination may store a copy.
    pub(crate) fn most_copies(&self, destination: usize, id: u64) -> u32 {
        let arrival = self.destinations[destination].arrivals.get(&id);
        arrival.map_or(1, |(lane, row, _)| self.lanes[*lane].group.most_copies(*row))
    }

    /// Returns a number that depends on the run.
    pub(super) fn salt(&self, number: u64) -> u64 {
        mix(mix(self.scenario.seed, u64::from(self.run)), number)
    }
}
