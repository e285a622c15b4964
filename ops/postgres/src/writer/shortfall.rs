//! Whether the rows that a call cannot write are at fault, or their table.

use anabranch_graph::fault::{Fault, FaultClass};
use anabranch_graph::text::Str;

use crate::table::{Lack, Unfit};

/// From so many rows on, a call of which every row fails for the same want of its table fails for the table: with fewer,
/// it could be a few odd records that came together.
const UNIFORM: usize = 8;

/// Parts of the table that the refused rows of one call need.
#[derive(Default)]
pub(super) struct Shortfall {
    rows: usize,
    first: Option<(Str, Lack, Fault)>,
    /// All rows so far lack the same.
    mixed: bool,
    /// What the table had before, or must have for any row.
    lost: Option<Fault>,
}

impl Shortfall {
    /// Notes a refused row; `lost`: the table had what the row lacks, or no row could be written without it.
    pub(super) fn note(&mut self, table: &Str, unfit: &Unfit, lost: bool) {
        self.rows += 1;
        match (&self.first, &unfit.lack) {
            (None, Some(lack)) if self.rows == 1 => {
                self.first = Some((table.clone(), lack.clone(), unfit.fault.clone()));
            }
            (Some((name, first, _)), Some(lack)) if name == table && first == lack => {}
            _ => self.mixed = true,
        }
        if lost {
            self.lost.get_or_insert_with(|| unfit.fault.clone());
        }
    }

    /// Notes a refused row that lacks nothing of a table.
    pub(super) fn note_other(&mut self) {
        self.rows += 1;
        self.mixed = true;
    }

    /// The fault of the destination, if the refused rows of a call with so many rows are not at fault themselves.
    pub(super) fn fault(&self, rows: usize) -> Option<Fault> {
        if let Some(fault) = &self.lost {
            return Some(of_table(fault, LOST));
        }
        let all = rows >= UNIFORM && self.rows == rows && !self.mixed;
        self.first
            .as_ref()
            .filter(|_| all)
            .map(|(_, _, fault)| of_table(fault, "every record of this write fails for it"))
    }
}

/// Why a row shows that its table is at fault.
pub(super) const LOST: &str = "the table took such records before, or takes none without it";

/// The fault of a row as one of its table.
pub(super) fn of_table(fault: &Fault, why: &str) -> Fault {
    let text = format!(
        "{}; {why}: nothing is dead-lettered, and the pipeline retries until the table fits. Correct the table, or \
         change the pipeline and apply it",
        fault.message()
    );
    Fault::new(FaultClass::Transient, fault.code(), text)
}
