//! Acknowledgement: which rows of a source are settled, and how far its watermark may move.
//!
//! Every strip read from a source opens a *segment* in the ledger of its lane, and every row of it starts with
//! one unit of credit. Splitting, cloning and fanning out divide a row's credit among the copies; nobody is told.
//! A copy that reaches the end of its path (delivered and durable, filtered, dead-lettered) gives its credit back.
//! A row is settled when its whole credit is back, whatever ways its copies took and in whatever order they
//! arrived: addition commutes. The *watermark* is the first row that is not settled; the positions below it may be
//! stored, and then acknowledged to the source.
//!
//! This is weighted reference counting (Bevan; Watson and Watson, 1987) and Mattern's credit recovery (1989).
//! Credit that is dropped is never returned: the watermark stops, and nothing is lost.

mod credit;
mod ledger;
#[cfg(test)]
mod tests;

pub use credit::{LaneIndex, Run};
pub use ledger::{Advance, Ledger, Overdrawn, Settlement};
