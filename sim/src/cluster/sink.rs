//! The destination of the pipeline: what it has, and whom it refuses.

use std::collections::{BTreeMap, BTreeSet};

use anabranch_plugin::state::{Slots, Unit};
use anabranch_record::mark::{LaneId, Mark, Partition};
use anabranch_record::text::Str;

use super::ends::Row;
use super::forms::row_number;
use super::scenario::SinkKind;
use super::tables::PIPELINE;
use super::world::{RunId, State};

/// The contents of the destination.
pub(super) struct Sink {
    pub(super) kind: SinkKind,
    /// Rows of each partition.
    rows: BTreeMap<Str, BTreeSet<u64>>,
    /// Marks of lanes.
    pub(super) marks: BTreeMap<LaneId, Mark>,
    /// The opening that may write rows of a slot.
    epochs: BTreeMap<u32, u64>,
    /// The run that wrote the latest row of a slot.
    writers: BTreeMap<u32, RunId>,
    opened: u64,
}

/// Why a write is refused.
pub(super) struct Refused;

/// The run that writes.
pub(super) struct SinkWriter {
    pub(super) run: RunId,
    pub(super) slots: Slots,
    /// The number of its opening.
    pub(super) epoch: u64,
}

impl Sink {
    pub(super) fn new(kind: SinkKind) -> Sink {
        Sink {
            kind,
            rows: BTreeMap::new(),
            marks: BTreeMap::new(),
            epochs: BTreeMap::new(),
            writers: BTreeMap::new(),
            opened: 0,
        }
    }

    /// Lets a run write the rows of its slots, and earlier ones no more. Returns the number of the opening.
    pub(super) fn opens(&mut self, slots: Slots) -> u64 {
        self.opened += 1;
        self.epochs.extend(slots.iter().map(|slot| (slot, self.opened)));
        self.opened
    }

    /// Fails if a later run has opened the destination for a slot of this one.
    pub(super) fn check(&self, writer: &SinkWriter) -> Result<(), Refused> {
        let is_latest = |slot: u32| self.epochs.get(&slot) == Some(&writer.epoch);
        if writer.slots.iter().all(is_latest) { Ok(()) } else { Err(Refused) }
    }

    /// Returns the number of rows at the beginning of a partition of which none is missing.
    pub(super) fn prefix(&self, partition: &Partition) -> u64 {
        let Some(rows) = self.rows.get(&partition.0) else { return 0 };
        rows.iter().zip(1..).take_while(|(row, number)| *row == number).count() as u64
    }
}

impl State {
    /// Writes rows, and marks.
    pub(super) fn write(&mut self, writer: &SinkWriter, rows: &[Row], marks: &[(LaneId, Mark)]) {
        let run = writer.run;
        for Row { partition, number } in rows {
            let slot = writer.slots.slot_of(partition);
            if !writer.slots.has(partition) {
                self.breaks(format!("run {run} writes a row of slot {slot}, which it does not have"));
            }
            let claimant = self.tables.claimant(&Unit { pipeline: PIPELINE.into(), slot });
            let is_new = self.sink.rows.entry(partition.0.clone()).or_default().insert(*number);
            match self.sink.kind {
                SinkKind::Transactional | SinkKind::Fenced | SinkKind::Plain if !is_new && self.moves.are_planned => {
                    self.breaks(format!("run {run} writes row {number} of {} again without a fault", partition.0));
                }
                SinkKind::Transactional if !is_new => {
                    self.breaks(format!("run {run} writes row {number} of {} again", partition.0));
                }
                SinkKind::Fenced => {
                    let before = self.sink.writers.get(&slot).copied().unwrap_or_default();
                    if before > run {
                        self.breaks(format!("run {run} writes row {number} of {} after run {before}", partition.0));
                    }
                }
                SinkKind::Plain if claimant > Some(run) && !self.is_drowsy(run) => {
                    self.breaks(format!(
                        "run {run} writes row {number} of {} after {claimant:?} has claimed it, and is not just woken up",
                        partition.0
                    ));
                }
                SinkKind::Transactional | SinkKind::Plain => {}
            }
            self.sink.writers.insert(slot, run);
        }
        self.sink.marks.extend(marks.iter().cloned());
        self.note(|| {
            let rows: Vec<String> = rows.iter().map(|row| format!("{}:{}", row.partition.0, row.number)).collect();
            let marks: Vec<u64> = marks.iter().map(|(_, mark)| row_number(&mark.position)).collect();
            format!("run {run} writes {} with marks {marks:?}", rows.join(" "))
        });
    }
}
