//! Finds the changes in a listing of the bucket that were not delivered yet.
//!
//! While the source runs, the listing is compared with that of the previous sweep ([`SeenObjects`]). After a restart,
//! keys that no sweep of this run has covered are compared by time ([`Horizon`]).

use std::collections::{HashMap, VecDeque};

use anabranch_record::Operation;
use anabranch_record::fault::Fault;
use anabranch_record::value::timestamp_text;
use chrono::DateTime;

use super::known::{KnownKeys, PreviousKeys};
use super::listing::Version;
use super::position::{Cursor, Horizon, Purpose};
use crate::codes;
use crate::fingerprint::fingerprint;

/// Number of checks after which an object that changed before each of them is delivered, although its second is not
/// over. After a restart it may be delivered again.
const RESTLESS: u8 = 3;

/// Maximum number of seconds that an object may be dated ahead of the server's clock for the source to wait for it
/// before it is caught up.
const NEAR: i64 = 60;

/// Number of checks that found an object changed, and its last version.
#[derive(Clone, Copy, Debug)]
struct ChangeChecks {
    times: u8,
    last: u64,
}

/// Objects that earlier sweeps of this run saw.
#[derive(Debug, Default)]
pub(super) struct SeenObjects {
    known: KnownKeys,
    /// The sweeps covered all keys from this one on.
    from: Option<String>,
    restless: HashMap<u64, ChangeChecks>,
    /// Keys whose last version was gone before it could be fetched, and whether an earlier version was delivered.
    missed: HashMap<String, bool>,
}

impl SeenObjects {
    /// Records that a found version was gone before it could be fetched.
    pub(super) fn miss(&mut self, key: String, delivered_before: bool) {
        self.missed.insert(key, delivered_before);
    }
}

/// A change to deliver.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Find {
    pub(super) key: String,
    pub(super) operation: Operation,
    /// The version; `None` for a deletion that was inferred from a missing key.
    pub(super) version: Option<Version>,
    /// True if newer versions of the key follow in this sweep.
    pub(super) more: bool,
}

/// A sweep in progress.
pub(super) struct Sweep {
    pub(super) purpose: Purpose,
    pub(super) since: Option<Horizon>,
    pub(super) until: Horizon,
    versioned: bool,
    past: PreviousKeys,
    from: Option<String>,
    restless: HashMap<u64, ChangeChecks>,
    missed: HashMap<String, bool>,
    /// Progress at which it was resumed.
    start: Option<Cursor>,
    last: Option<String>,
    next: SeenObjects,
    deferred: Option<i64>,
    /// The server's clock at the time of the current page.
    pub(super) now: i64,
    ahead: Ahead,
    /// Latest second with a change that is left to the next sweep and is near enough to wait for.
    latest: Option<i64>,
}

/// Objects dated ahead of the server's clock. Clocks of a store's servers differ.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Ahead {
    pub(super) objects: u64,
    pub(super) bytes: u64,
    /// Key and time of the earliest one, and the server's clock.
    pub(super) first: Option<(String, i64, i64)>,
}

impl Ahead {
    fn note(&mut self, key: &str, version: &Version, now: i64) {
        self.objects += 1;
        self.bytes = self.bytes.saturating_add(version.size);
        let at = version.modified.seconds;
        if self.first.as_ref().is_none_or(|(_, first, _)| at < *first) {
            self.first = Some((key.to_owned(), at, now));
        }
    }

    /// Adds those of another partition.
    pub(super) fn add(&mut self, other: &Ahead) {
        self.objects = self.objects.saturating_add(other.objects);
        self.bytes = self.bytes.saturating_add(other.bytes);
        let firsts = [self.first.take(), other.first.clone()];
        self.first = firsts.into_iter().flatten().min_by_key(|(_, at, _)| *at);
    }

    /// Describes them for messages; `None` if there are none.
    pub(super) fn words(&self) -> Option<String> {
        let (key, at, now) = self.first.as_ref()?;
        let shown = |second| DateTime::from_timestamp(second, 0).map(|time| timestamp_text(&time)).unwrap_or_default();
        let objects = if self.objects == 1 { "object is" } else { "objects are" };
        Some(format!(
            "{} {objects} dated ahead of the server's clock, which shows {}: the first, {key:?}, has the date {}",
            self.objects,
            shown(*now),
            shown(*at)
        ))
    }
}

impl Sweep {
    pub(super) fn new(
        purpose: Purpose,
        (since, until): (Option<Horizon>, Horizon),
        start: Option<Cursor>,
        versioned: bool,
        memory: SeenObjects,
    ) -> Self {
        let from = match &start {
            None => String::new(),
            Some(Cursor { key, version: Some(_) }) => key.clone(),
            // The first key above it.
            Some(Cursor { key, version: None }) => format!("{key}\0"),
        };
        Sweep {
            purpose,
            since,
            until,
            versioned,
            past: memory.known.into_past(),
            from: memory.from,
            restless: memory.restless,
            missed: memory.missed,
            start,
            last: None,
            next: SeenObjects { from: Some(from), ..SeenObjects::default() },
            deferred: None,
            now: i64::MAX,
            ahead: Ahead::default(),
            latest: None,
        }
    }

    /// Processes the next key of the listing, with its versions from newest to oldest.
    ///
    /// # Errors
    /// Fatal if the server does not list in order.
    pub(super) fn see(&mut self, key: String, versions: Vec<Version>, finds: &mut VecDeque<Find>) -> Result<(), Fault> {
        if self.last.as_ref().is_some_and(|last| *last >= key) {
            return Err(Fault::fatal(
                codes::LISTING_UNORDERED,
                format!("the server does not list keys in the order of their bytes: {key:?} is out of order"),
            ));
        }
        self.gone_before(Some(&key), finds);
        let covered = self.from.as_ref().is_some_and(|from| *from <= key);
        let mut seen = self.past.take(&key);
        let missed = self.missed.remove(&key);
        let was_there = missed.unwrap_or(!seen.is_empty());
        if missed.is_some() && !self.versioned {
            seen.clear();
        }
        let delivered = |version: &Version| match covered {
            true => seen.contains(&version.fingerprint),
            false => self.since.as_ref().is_some_and(|since| since.covers(&key, version)),
        };
        let sum = fingerprint(&[key.as_bytes()]);
        let newest = versions.first().map_or(0, |version| version.fingerprint);
        let looks = match self.restless.get(&sum) {
            Some(looks) if looks.last == newest => *looks,
            Some(looks) => ChangeChecks { times: looks.times.saturating_add(1), last: newest },
            None => ChangeChecks { times: 1, last: newest },
        };
        // With versions, waiting loses none of them.
        let restless = !self.versioned && looks.times >= RESTLESS;
        let ripe = |version: &Version| version.modified.seconds < self.until.time || restless;

        // Oldest first.
        let mut found: Vec<usize> = (0..versions.len()).rev().filter(|i| !delivered(&versions[*i])).collect();
        let mut deferred = None;
        found.retain(|i| {
            let ripe = ripe(&versions[*i]);
            if !ripe {
                let at = versions[*i].modified.seconds;
                deferred = Some(deferred.map_or(at, |other: i64| other.min(at)));
                if at > self.now {
                    self.ahead.note(&key, &versions[*i], self.now);
                }
                if at <= self.now.saturating_add(NEAR) {
                    self.latest = self.latest.max(Some(at));
                }
            }
            ripe
        });
        let left = |i: usize| !delivered(&versions[i]) && !ripe(&versions[i]);
        let mut kept: Vec<u64> = (0..versions.len()).filter(|i| !left(*i)).map(|i| versions[i].fingerprint).collect();
        if let Some(at) = deferred {
            self.deferred = Some(self.deferred.map_or(at, |other| other.min(at)));
            self.next.restless.insert(sum, looks);
            if !self.versioned {
                // It counts as present in its old version.
                kept = seen.clone();
                if let Some(delivered_before) = missed {
                    self.next.missed.insert(key.clone(), delivered_before);
                    kept = vec![0];
                }
            }
        }
        // An upload whose object was seen is complete, even if it was in progress when the sweep began.
        self.until.uploads.retain(|upload| !versions.iter().any(|version| upload.made(&key, version)));
        if !kept.is_empty() {
            self.next.known.push(&key, &kept);
        }

        if let Some(Cursor { key: at, version: Some(version) }) = &self.start
            && *at == key
            && let Some(done) = found.iter().position(|i| versions[*i].fingerprint == *version)
        {
            found.drain(..=done);
        } else if self.since.is_none() && !covered {
            // Of the objects that existed before, deliver only the current version.
            found.drain(..found.len().saturating_sub(1));
            found.retain(|i| !versions[*i].marker);
        }
        let operation = |i: usize| {
            let older = versions.get(i + 1);
            match (versions[i].marker, self.purpose) {
                (true, _) => Operation::Delete,
                (false, Purpose::Snapshot) => Operation::Snapshot,
                _ if older.is_some_and(|older| !older.marker) => Operation::Update,
                _ if !self.versioned && was_there => Operation::Update,
                _ => Operation::Create,
            }
        };
        let operations: Vec<Operation> = found.iter().map(|i| operation(*i)).collect();
        let last = found.last().copied();
        let mut versions: Vec<Option<Version>> = versions.into_iter().map(Some).collect();
        for (i, operation) in found.into_iter().zip(operations) {
            let version = versions[i].take();
            finds.push_back(Find { key: key.clone(), operation, version, more: Some(i) != last });
        }
        self.last = Some(key);
        Ok(())
    }

    /// Ends the sweep at the end of the listing.
    pub(super) fn end(mut self, finds: &mut VecDeque<Find>) -> CompletedSweep {
        self.gone_before(None, finds);
        CompletedSweep {
            purpose: self.purpose,
            until: self.until,
            resumed: self.start.is_some(),
            deferred: self.deferred,
            latest: self.latest,
            ahead: self.ahead,
            memory: self.next,
        }
    }

    /// Finds keys that existed before and are not in the listing. With versions, deletions are delete markers.
    fn gone_before(&mut self, key: Option<&str>, finds: &mut VecDeque<Find>) {
        while let Some(past) = self.past.key() {
            if key.is_some_and(|key| past >= key) {
                return;
            }
            if !self.versioned && self.missed.remove(past) != Some(false) {
                finds.push_back(Find {
                    key: past.to_owned(),
                    operation: Operation::Delete,
                    version: None,
                    more: false,
                });
            }
            self.past.advance();
        }
    }
}

/// A completed sweep.
#[derive(Debug)]
pub(super) struct CompletedSweep {
    pub(super) purpose: Purpose,
    pub(super) until: Horizon,
    /// True if it covered only a part of the keys, up to a horizon of an earlier run.
    pub(super) resumed: bool,
    /// Earliest second with a change that is left to the next sweep.
    pub(super) deferred: Option<i64>,
    /// Latest such second that is not far ahead of the server's clock.
    pub(super) latest: Option<i64>,
    pub(super) ahead: Ahead,
    pub(super) memory: SeenObjects,
}

#[cfg(test)]
mod tests;
