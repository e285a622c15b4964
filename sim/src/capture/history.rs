//! What a destination received, and the guarantees about it.

use std::collections::{BTreeMap, BTreeSet};

use super::database::{Change, Database};

/// A record that was stored.
#[derive(Clone, Debug)]
struct Delivery {
    change: Change,
    lane: String,
    run: u32,
}

/// What the destination received.
#[derive(Default)]
pub(super) struct History {
    /// In the order of arrival, by key, with the number of each arrival.
    keys: BTreeMap<u32, Vec<(u64, Delivery)>>,
    /// Changes that arrived in the lane of the changes.
    streamed: BTreeSet<Change>,
    arrivals: u64,
    /// Rows that existed when a request was made that the source has confirmed since, and the arrivals before it.
    requested: Vec<(u64, Vec<u32>)>,
}

impl History {
    /// Notes that a record is stored.
    ///
    /// # Errors
    /// It is older than what the destination has, and no repetition after a crash.
    pub(super) fn receive(&mut self, change: Change, lane: &str, run: u32) -> Result<(), String> {
        self.arrivals += 1;
        let earlier = self.keys.entry(change.key).or_default();
        // A crash repeats what was not stored, and only in the lane that had it.
        let overtaken = earlier.iter().find(|(_, earlier)| {
            earlier.change.version > change.version && (earlier.lane != lane || earlier.run == run)
        });
        if let Some((_, newer)) = overtaken {
            return Err(format!("{change:?} of lane {lane:?} arrives after {newer:?}"));
        }
        earlier.push((self.arrivals, Delivery { change, lane: lane.to_owned(), run }));
        if lane.is_empty() {
            self.streamed.insert(change);
        }
        Ok(())
    }

    /// Returns the number of records that arrived.
    pub(super) fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// Notes that the source has confirmed a request, which was made before so many arrivals, when these rows existed.
    pub(super) fn confirmed(&mut self, arrivals: u64, keys: Vec<u32>) {
        self.requested.push((arrivals, keys));
    }

    /// Returns what is missing; `None` if the destination has everything.
    ///
    /// # Errors
    /// It has something that the database never had.
    pub(super) fn missing(&self, database: &Database) -> Result<Option<String>, String> {
        let published = database.log().iter().filter(|logged| logged.commit >= database.slot_from);
        let lost = published.flat_map(|logged| &logged.changes).find(|change| !self.streamed.contains(change));
        if let Some(lost) = lost {
            return Ok(Some(format!("{lost:?} did not arrive")));
        }
        let committed: BTreeSet<Change> =
            database.log().iter().flat_map(|logged| logged.changes.iter().copied()).collect();
        let arrived = self.keys.values().flatten().map(|(_, delivery)| delivery.change);
        if let Some(invented) = arrived.into_iter().find(|change| !committed.contains(change)) {
            return Err(format!("{invented:?} arrived, and was never committed"));
        }
        let committed = database.committed();
        for (key, last) in &committed {
            let has = self.keys.get(key).and_then(|deliveries| deliveries.last()).map(|(_, last)| last.change);
            if has != Some(*last) && (has.is_some() || last.exists) {
                return Ok(Some(format!("row {key} is {has:?} at the destination, and {last:?} in the database")));
            }
        }
        for (before, keys) in &self.requested {
            let has_arrived = |key: &u32| match self.keys.get(key) {
                Some(all) => all.iter().any(|(number, _)| number > before),
                // It was deleted before the source began to read.
                None => committed.get(key).is_some_and(|last| !last.exists),
            };
            if let Some(key) = keys.iter().find(|key| !has_arrived(key)) {
                return Ok(Some(format!("row {key} did not arrive again, as a request asks")));
            }
        }
        Ok(None)
    }
}
