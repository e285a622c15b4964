//! The source: snapshot, changes, resuming, faults.

mod changes;
mod faults;
mod gaps;
mod load;
mod login;
mod snapshot;
