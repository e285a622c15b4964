//! The test kit, for tests of plugins and of the executor.
//!
//! A plugin under test is configured as a pipeline file would do it ([`configured`]). [`check_source`] and
//! [`check_destination`] drive it as the executor does, and report the first promise that it does not keep;
//! [`process`](configured::process) calls a processor.
//!
//! The other items are scripted sources and destinations and an in-memory store. Rows are numbers: the position of row 7 is the text `7`, and so is its payload unless a test replaces it.
//! One [`Journal`] records everything that becomes durable, is committed or is acknowledged, so that a test can
//! check the order.

pub mod codes;
pub mod configured;
mod destination;
pub mod json;
mod operator;
mod promises;
mod registry;
mod source;
mod store;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anabranch_record::mark::{LaneId, Mark, Partition};
use anabranch_record::text::Str;
use anabranch_record::{Data, Position, Record};

pub use configured::host;
pub use destination::{Downstream, DownstreamDestination, Reaction};
pub use operator::{asynchronous, inline, isolated, kept, of_class};
pub use promises::{BrokenPromise, check_destination, check_refusal, check_source};
pub use registry::{add_destination, add_operator, add_source};
pub use source::{AtEnd, Upstream, UpstreamSource};
pub use store::MemoryStore;

/// An event in a scripted source, destination or store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A destination made a row durable.
    Durable {
        /// Name of the shelf.
        shelf: Str,
        /// The row.
        row: u64,
    },
    /// A destination committed a transaction with these marks, after its rows.
    Transacted {
        /// Name of the shelf.
        shelf: Str,
        /// The marks.
        marks: Vec<(LaneId, Mark)>,
    },
    /// The store committed a mark.
    Committed(LaneId, Mark),
    /// The store removed the mark of a lane.
    Forgotten(LaneId),
    /// The source received the acknowledgement of a row.
    Acked(Partition, u64),
}

/// The events in the order in which they happened. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Journal(Arc<Mutex<Vec<Event>>>);

impl Journal {
    /// Returns all events so far.
    pub fn events(&self) -> Vec<Event> {
        locked(&self.0).clone()
    }

    fn note(&self, event: Event) {
        locked(&self.0).push(event);
    }
}

fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the position of a row.
pub fn position(row: u64) -> Position {
    Position::copy_from(row.to_string().as_bytes())
}

/// Returns the row at a position; `u64::MAX` if the position is not from these sources.
pub fn row_at(position: &Position) -> u64 {
    std::str::from_utf8(&position.0).ok().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX)
}

/// Returns the record of a row: its number is its payload.
pub fn record(row: u64) -> Record {
    Record::create(position(row), Data::Absent, Data::text(row.to_string()))
}

/// Returns the numbers of rows.
pub fn rows(records: &[Record]) -> Vec<u64> {
    records.iter().map(|record| row_at(record.position())).collect()
}
