//! Whether the rows that a call cannot write are at fault, or their table.

use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::text::Str;

use crate::table::{Lack, Unfit};

/// From so many rows on, a call of which every row fails for the same want of its table fails for the table: with fewer,
/// it could be a few odd records that came together.
const UNIFORM: usize = 8;

/// What a row fails for.
#[derive(PartialEq, Eq)]
enum Want {
    /// A part of a table.
    Part(Str, Lack),
    /// What PostgreSQL says is missing, as a table that a trigger writes.
    Message(Str),
}

/// Parts of the table that the refused rows of one call need.
#[derive(Default)]
pub(super) struct Shortfall {
    rows: usize,
    first: Option<(Want, Fault)>,
    /// All rows so far lack the same.
    mixed: bool,
    /// What the table had before, or must have for any row.
    lost: Option<Fault>,
}

impl Shortfall {
    /// Notes a refused row; `lost`: the table had what the row lacks, or no row could be written without it.
    pub(super) fn note(&mut self, table: &Str, unfit: &Unfit, lost: bool) {
        self.rows += 1;
        self.compare(unfit.lack.clone().map(|lack| Want::Part(table.clone(), lack)), &unfit.fault);
        if lost {
            self.lost.get_or_insert_with(|| unfit.fault.clone());
        }
    }

    /// Notes a row that PostgreSQL refuses; `is_of_table`: not for its values.
    pub(super) fn note_refusal(&mut self, fault: &Fault, is_of_table: bool) {
        self.rows += 1;
        self.compare(is_of_table.then(|| Want::Message(fault.message().into())), fault);
    }

    fn compare(&mut self, want: Option<Want>, fault: &Fault) {
        match (&self.first, want) {
            (None, Some(want)) if self.rows == 1 => self.first = Some((want, fault.clone())),
            (Some((first, _)), Some(want)) if *first == want => {}
            _ => self.mixed = true,
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
        self.first.as_ref().filter(|_| all).map(|(_, fault)| of_table(fault, "every record of this write fails for it"))
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
