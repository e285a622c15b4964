//! Decides whether rejected rows or their table are at fault.

use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::text::Str;

use crate::table::{MissingPart, RowFault};

/// Number of rows from which a call fails as a whole if every row lacks the same part of its table. With fewer rows, it
/// could be a few odd records that came together.
const UNIFORM: usize = 8;

/// The missing part for which a row fails.
#[derive(PartialEq, Eq)]
enum Cause {
    /// A part of a table.
    Part(Str, MissingPart),
    /// A missing object in PostgreSQL's message, for example a table that a trigger writes to.
    Message(Str),
}

/// Parts of the tables that the rejected rows of one call need.
#[derive(Default)]
pub(super) struct RejectedRows {
    rows: usize,
    first: Option<(Cause, Fault)>,
    /// True if the rows so far do not all lack the same part.
    mixed: bool,
    /// The fault of a part that the table had before, or that every row needs.
    lost: Option<Fault>,
}

impl RejectedRows {
    /// Adds a rejected row. `lost` is true if the table had the missing part before, or every row needs it.
    pub(super) fn note(&mut self, table: &Str, row_fault: &RowFault, lost: bool) {
        self.rows += 1;
        self.compare(row_fault.missing.clone().map(|missing| Cause::Part(table.clone(), missing)), &row_fault.fault);
        if lost {
            self.lost.get_or_insert_with(|| row_fault.fault.clone());
        }
    }

    /// Adds a row that PostgreSQL rejects. `is_of_table` is true if its values are not the reason.
    pub(super) fn note_refusal(&mut self, fault: &Fault, is_of_table: bool) {
        self.rows += 1;
        self.compare(is_of_table.then(|| Cause::Message(fault.message().into())), fault);
    }

    fn compare(&mut self, cause: Option<Cause>, fault: &Fault) {
        match (&self.first, cause) {
            (None, Some(cause)) if self.rows == 1 => self.first = Some((cause, fault.clone())),
            (Some((first, _)), Some(cause)) if *first == cause => {}
            _ => self.mixed = true,
        }
    }

    /// Adds a rejected row that lacks no part of a table.
    pub(super) fn note_other(&mut self) {
        self.rows += 1;
        self.mixed = true;
    }

    /// Returns the fault of the destination if the rejected rows of a call with `rows` rows are not at fault
    /// themselves.
    pub(super) fn fault(&self, rows: usize) -> Option<Fault> {
        if let Some(fault) = &self.lost {
            return Some(of_table(fault, LOST));
        }
        let all = rows >= UNIFORM && self.rows == rows && !self.mixed;
        self.first
            .as_ref()
            .filter(|_| all)
            .map(|(_, fault)| of_table(fault, "every record of this write fails for this reason"))
    }
}

/// Explanation why the table is at fault.
pub(super) const LOST: &str = "the table accepted such records before, or accepts no records without this part";

/// Converts the fault of a row to one of its table.
pub(super) fn of_table(fault: &Fault, why: &str) -> Fault {
    let text = format!(
        "{}; {why}: nothing is dead-lettered, and the pipeline retries until the table fits. Correct the table, or \
         change the pipeline and apply it",
        fault.message()
    );
    Fault::new(FaultClass::Transient, fault.code(), text)
}
