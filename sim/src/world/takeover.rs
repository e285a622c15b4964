//! Others that read the same sources: members of a consumer group that take partitions over, operators that move their
//! offsets, and another run of the pipeline. They deliver what they take at once.

use anabranch_plugin::state::Receipt;
use anabranch_record::mark::Mark;

use super::destinations::letter_id;
use super::{State, World};
use crate::oracle::RequiredOutcome;
use crate::scenario::{ConsumerGroup, WriteRetry, hits, mix};

/// Maximum number of rows of each partition that another run delivers.
const OTHER_RUN: u64 = 6;

impl World {
    /// Lets others read a partition that this process does not own.
    pub(super) fn is_away(&self, state: &mut State, lane: usize) {
        let Some(group) = self.scenario.sources[state.lanes[lane].source].group else { return };
        if !state.is_troubled() {
            return;
        }
        let call = state.next_call();
        if let Err(broken) = state.is_taken_over(lane, group, call) {
            self.broken(state, || broken);
        }
    }

    /// Lets other members of groups read while this process does not run.
    pub fn between_runs(&self, state: &mut State) {
        for lane in 0..state.lanes.len() {
            if hits(state.salt(48), lane as u64, 3) {
                self.is_away(state, lane);
            }
        }
    }

    /// Another run claims the pipeline while this one still works. It takes over the transactional destinations, and
    /// delivers some rows.
    pub(super) fn other_run(&self, state: &mut State) {
        let sinks: Vec<usize> = (0..self.scenario.sinks.len())
            .filter(|sink| self.scenario.sinks[*sink].retry == WriteRetry::Transactional)
            .collect();
        for sink in &sinks {
            if let Err(broken) = state.takes_over(*sink) {
                return self.broken(state, || broken);
            }
        }
        let rows = state.salt(49) % OTHER_RUN;
        // A destination that goes back changes what the other run would have to deliver.
        if self.scenario.sinks.iter().any(|sink| sink.goes_back > 0) {
            return;
        }
        for lane in 0..state.lanes.len() {
            let source = &self.scenario.sources[state.lanes[lane].source];
            if source.group.is_none()
                && !source.finishes
                && let Err(broken) = state.delivers_in_other_run(lane, &sinks, rows as u32)
            {
                return self.broken(state, || broken);
            }
        }
    }
}

impl State {
    /// Another member takes a partition over and delivers rows; then an operator may move the offset.
    fn is_taken_over(&mut self, lane: usize, group: ConsumerGroup, call: u64) -> Result<(), String> {
        let at = &self.lanes[lane];
        let (committed, rows) = (at.group.committed.map_or(0, |offset| offset.row), at.fates.len() as u32);
        if let Some(row) = (0..committed).find(|row| !self.is_safe(lane, *row, &[])) {
            return Err(format!("row {row} of lane {lane} is lost: the offset {committed} is committed"));
        }
        let from = committed.max(self.lanes[lane].group.log_start);
        let upto = (from + mix(call, 21) as u32 % (group.takes + 1)).min(rows);
        for row in from..upto {
            let fate = self.lanes[lane].fates[row as usize].clone();
            self.delivers(&fate, &|_| true)?;
            self.lanes[lane].group.delivered_by_another(row);
        }
        // It may crash before it commits.
        if upto > committed && !mix(call, 22).is_multiple_of(4) {
            self.note(|| format!("another member delivers the rows {from}..{upto} of lane {lane}"));
            self.skips(lane, committed, from);
            self.lanes[lane].group.commits_foreign(upto);
        }
        let committed = self.lanes[lane].group.committed.map_or(0, |offset| offset.row);
        if hits(23, call, group.resets) {
            let row = mix(call, 24) as u32 % (rows + 1);
            self.note(|| format!("an operator moves the offset of lane {lane} from {committed} to {row}"));
            self.skips(lane, committed, row);
            self.lanes[lane].group.commits_foreign(row);
        }
        if hits(25, call, group.gaps) {
            let at = &mut self.lanes[lane].group;
            at.log_start = at.log_start.max(committed + mix(call, 26) as u32 % 4).min(rows);
            self.note(|| format!("the oldest records of lane {lane} are removed"));
        }
        Ok(())
    }

    /// Skips rows that are not delivered yet.
    fn skips(&mut self, lane: usize, from: u32, upto: u32) {
        for row in from..upto {
            if !self.is_safe(lane, row, &[]) {
                self.lanes[lane].group.loses(row);
            }
        }
    }

    /// Delivers a record without the engine, to the destinations for which `is_missing` is true.
    fn delivers(&mut self, fate: &RequiredOutcome, is_missing: &dyn Fn(usize) -> bool) -> Result<(), String> {
        match fate {
            RequiredOutcome::Delivered(sink, id) if is_missing(*sink) => {
                *self.destinations[*sink].durable.entry(*id).or_default() += 1;
            }
            RequiredOutcome::Letter(node, id, _) => {
                if let Some(letters) = self.destinations.last_mut() {
                    *letters.durable.entry(letter_id(node, *id)).or_default() += 1;
                }
            }
            RequiredOutcome::Delivered(..) | RequiredOutcome::Filtered => {}
            RequiredOutcome::All(fates) => {
                fates.iter().try_for_each(|fate| self.delivers(fate, is_missing))?;
            }
            RequiredOutcome::Either(fates) => self.delivers(&fates[1], is_missing)?,
        }
        Ok(())
    }

    /// Delivers the next rows of a partition, stores its mark, and its marks at the transactional destinations.
    fn delivers_in_other_run(&mut self, lane: usize, transactional: &[usize], rows: u32) -> Result<(), String> {
        let at = &self.lanes[lane];
        let id = at.id.clone();
        let upto_of = |mark: Option<&Mark>| mark.and_then(|mark| at.rows_upto(mark)).unwrap_or(0);
        let had: Vec<(usize, u32)> =
            transactional.iter().map(|sink| (*sink, upto_of(self.destinations[*sink].marks.get(&id)))).collect();
        let stored = upto_of(self.marks.get(&id));
        let from = match &had[..] {
            [(_, had)] if self.scenario.sinks.len() == 1 => stored.max(*had),
            _ => stored,
        };
        let upto = (from + rows).min(at.fates.len() as u32);
        if upto <= from {
            return Ok(());
        }
        for row in from..upto {
            let fate = self.lanes[lane].fates[row as usize].clone();
            self.delivers(&fate, &|sink| had.iter().all(|(other, had)| *other != sink || row >= *had))?;
        }
        let generation = self.marks.get(&id).map_or(1, |mark| mark.generation);
        let position = self.scenario.sources[self.lanes[lane].source].position(lane, upto - 1);
        let mark = Mark { generation, seq: u64::from(upto), position };
        self.note(|| format!("another run delivers the rows {from}..{upto} of lane {lane}"));
        self.others_delivered = true;
        for (sink, had) in had {
            let destination = &mut self.destinations[sink];
            if upto > had {
                destination.marks.insert(id.clone(), mark.clone());
            }
            let receipt = Receipt { destination: format!("d{sink}").into(), lane: id.clone(), mark: mark.clone() };
            self.receipts.retain(|old| (&old.destination, &old.lane) != (&receipt.destination, &receipt.lane));
            self.receipts.push(receipt);
        }
        self.lanes[lane].stored = self.lanes[lane].stored.max(upto);
        self.marks.insert(id, mark);
        Ok(())
    }
}
