//! The source: snapshot, changes, resuming, faults.

mod changes;
mod drift;
mod faults;
mod gaps;
mod live;
mod load;
mod login;
mod snapshot;
