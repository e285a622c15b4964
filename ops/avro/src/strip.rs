//! Rows of a strip that are changed for a processor and restored if it fails them.

use anabranch_plugin::operator::{Decision, Operator, OperatorContext, Rows};
use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_record::mask::Mask;

/// Rows before and after a processor. It is reused between strips for its lists; it does not keep records.
pub(crate) struct PreparedRows {
    /// The changed rows, in their original state.
    before: Vec<(usize, Record)>,
    /// Rows that failed, were filtered or were replaced by others.
    gone: Mask,
}

impl PreparedRows {
    pub(crate) fn new() -> PreparedRows {
        PreparedRows { before: Vec::new(), gone: Mask::none(0) }
    }

    /// Applies `change` to the rows for which `concerns` returns `true`, and passes all rows to the processor except
    /// those for which it failed. `change` returns whether it changed the row. Its changes are undone if it fails, and
    /// if the processor fails the row. `note` is called with the rows as the processor sees them.
    pub(crate) fn process<O: Operator + ?Sized>(
        &mut self,
        (inner, context): (&mut O, &OperatorContext),
        rows: &mut Rows<'_>,
        concerns: impl Fn(&Record) -> bool,
        mut change: impl FnMut(&mut Record) -> Result<bool, Fault>,
        mut note: impl FnMut(usize, &Record),
    ) {
        self.before.clear();
        let mut unprepared = Vec::new();
        for (row, record) in rows.iter_mut() {
            if concerns(record) {
                let before = record.clone();
                match change(record) {
                    Ok(true) => self.before.push((row, before)),
                    Ok(false) => {}
                    Err(fault) => {
                        *record = before;
                        unprepared.push((row, fault));
                        continue;
                    }
                }
            }
            note(row, record);
        }
        if unprepared.is_empty() {
            inner.process(rows, context);
        } else {
            let mut others = Mask::none(rows.width());
            rows.iter_mut().for_each(|(row, _)| others.set(row));
            unprepared.iter().for_each(|(row, _)| others.clear(*row));
            inner.process(&mut rows.among(&others), context);
            unprepared.into_iter().for_each(|(row, fault)| rows.decide(row, Decision::Fail(fault)));
        }
        if !self.before.is_empty() {
            self.give_back(rows);
        }
    }

    fn give_back(&self, rows: &mut Rows<'_>) {
        let mut failed = Mask::none(rows.width());
        rows.failed().for_each(|row| failed.set(row));
        let mut before = self.before.iter().peekable();
        for (row, record) in rows.iter_mut() {
            let Some((_, before)) = before.next_if(|(at, _)| *at == row) else { continue };
            if failed.get(row) {
                *record = before.clone();
            }
        }
    }

    /// Visits the records that leave the processor: kept rows and their replacements, except pieces that are built
    /// later. `visit` receives the row, whether it was changed for the processor, and the record. An error fails the
    /// row, which is not restored. Call it once per strip.
    pub(crate) fn finish(
        &mut self,
        rows: &mut Rows<'_>,
        mut visit: impl FnMut(usize, bool, &mut Record) -> Result<(), Fault>,
    ) {
        self.gone.reset(rows.width());
        let changed = |row| self.before.binary_search_by_key(&row, |(at, _)| *at).is_ok();
        for (row, decision) in rows.decisions_mut() {
            if !matches!(decision, Decision::Keep) {
                self.gone.set(row);
            }
            if let Decision::Split(records) = decision
                && let Err(fault) = records.iter_mut().try_for_each(|record| visit(row, changed(row), record))
            {
                *decision = Decision::Fail(fault);
            }
        }
        let mut failed = Vec::new();
        for (row, record) in rows.iter_mut().filter(|(row, _)| !self.gone.get(*row)) {
            if let Err(fault) = visit(row, changed(row), record) {
                failed.push((row, fault));
            }
        }
        failed.into_iter().for_each(|(row, fault)| rows.decide(row, Decision::Fail(fault)));
        self.before.clear();
    }
}
