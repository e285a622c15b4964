//! Scripted ends and an in-memory store, for tests of plugins and of what runs them.
//!
//! Rows are numbers: the position of row 7 is the text `7`, and so is its payload unless a test makes another one.
//! Everything that becomes durable, is committed or is acknowledged is written in one [`Journal`], so that a test can
//! check the order of it.

mod destination;
mod operator;
mod registry;
mod source;
mod store;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anabranch_record::mark::{LaneId, Mark, Partition};
use anabranch_record::text::Str;
use anabranch_record::{Data, Position, Record};

pub use destination::{Reaction, Shelf, ShelfDestination};
pub use operator::{asynchronous, inline, isolated};
pub use registry::{add_destination, add_operator, add_source};
pub use source::{AtEnd, Upstream, UpstreamSource};
pub use store::MemoryStore;

/// Something that happened at an end of the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A destination made a row durable.
    Durable {
        /// Name of the shelf.
        shelf: Str,
        /// The row.
        row: u64,
    },
    /// A destination made a transaction with these marks, after its rows.
    Transacted {
        /// Name of the shelf.
        shelf: Str,
        /// The marks.
        marks: Vec<(LaneId, Mark)>,
    },
    /// The store committed a mark.
    Committed(LaneId, Mark),
    /// The source was told that a row is safe.
    Acked(Partition, u64),
}

/// What happened, in the order in which it happened. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Journal(Arc<Mutex<Vec<Event>>>);

impl Journal {
    /// Everything so far.
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

/// The position of a row.
pub fn position(row: u64) -> Position {
    Position::copy_from(row.to_string().as_bytes())
}

/// The row at a position; `u64::MAX` where it is no position of these sources.
pub fn row_at(position: &Position) -> u64 {
    std::str::from_utf8(&position.0).ok().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX)
}

/// The record of a row: its number is its payload.
pub fn record(row: u64) -> Record {
    Record::create(position(row), Data::Absent, Data::text(row.to_string()))
}

/// The numbers of rows.
pub fn rows(records: &[Record]) -> Vec<u64> {
    records.iter().map(|record| row_at(record.position())).collect()
}
