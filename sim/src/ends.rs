//! The ends of the graph: sources, destinations and the store, which do to the world what the scenario says.

mod destination;
mod source;
mod store;

use std::time::Duration;

use anabranch_graph::fault::Fault;
use anabranch_graph::record::{Data, Position, Record};

use crate::oracle::Copy;
use crate::scenario::mix;

pub use destination::SimDestination;
pub use source::SimSource;
pub use store::SimStore;

/// The metadata that holds the mark.
pub const MARK: &str = "mark";

/// The record of a copy.
pub fn record(copy: Copy, at: Position) -> Record {
    let mut record = Record::create(at, Data::Absent, payload(copy.id));
    record.metadata.insert(MARK, [b'0' + copy.mark].map(char::from).iter().collect::<String>());
    record
}

/// The payload of a number.
pub fn payload(id: u64) -> Data {
    Data::Raw(bytes::Bytes::copy_from_slice(&id.to_le_bytes()))
}

fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// The copy of a record.
pub fn copy(record: &Record) -> Copy {
    let id = match &record.payload.after {
        Data::Raw(bytes) => number(bytes),
        _ => 0,
    };
    let mark = record.metadata.get(MARK).and_then(|mark| mark.as_str().parse().ok()).unwrap_or(9);
    Copy { id, mark }
}

/// A fault that goes away by itself.
fn passing(what: &'static str) -> Fault {
    Fault::transient("sim_passing", what)
}

async fn sleep_up_to(millis: u64, number: u64) {
    if millis > 0 {
        tokio::time::sleep(Duration::from_millis(mix(number, 5) % (millis + 1))).await;
    }
}
