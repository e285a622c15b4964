//! Acknowledgement: which rows of a source are settled, and how far the watermark may move.
//!
//! Every strip read from a source opens a *segment* in the ledger of its lane. Each of its rows starts with one unit of
//! credit. Splitting, cloning and fanning out divide the credit of a row among the copies, without access to the
//! ledger. A copy that reaches the end of its path (delivered and durable, filtered, dead-lettered) returns its credit.
//! A row is settled when all of its credit is returned. The paths of the copies and the order of the returns do not
//! matter, since addition commutes. The *watermark* is the first row that is not settled. Positions below it may be
//! stored, and then acknowledged to the source.
//!
//! The method is weighted reference counting (Bevan; Watson and Watson, 1987) and Mattern's credit recovery (1989).
//! Dropped credit is never returned: the watermark stops, and no row is lost.

mod credit;
mod ledger;
#[cfg(test)]
mod tests;

pub use credit::{LaneIndex, Run};
pub use ledger::{Advance, Ledger, Overdrawn, Settlement};
