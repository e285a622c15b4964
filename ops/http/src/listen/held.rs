//! Requests that were confirmed before their records were delivered (`respond: accepted`). They outlive a run: the next run
//! of the connector in this process reads them first.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anabranch_record::Data;
use anabranch_record::metadata::Metadata;
use anabranch_record::text::Str;

use super::admission::{Admission, AdmittedRequest};
use super::position::Numbering;

/// The requests of all connectors of this process. The source is another object after its credentials have changed.
static HELD: Mutex<BTreeMap<Str, Arc<HeldRequests>>> = Mutex::new(BTreeMap::new());

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the requests of a connector.
pub(super) fn of(connector: &Str) -> Arc<HeldRequests> {
    locked(&HELD).entry(connector.clone()).or_insert_with(HeldRequests::new).clone()
}

/// The confirmed requests of a connector, with the numbers of its records and the limits on what is in flight.
#[derive(Debug)]
pub(super) struct HeldRequests {
    pub(super) numbering: Numbering,
    pub(super) admission: Arc<Admission>,
    between_runs: Mutex<Vec<HeldRequest>>,
    /// Number of records of confirmed requests that are not delivered.
    undelivered: AtomicU64,
}

/// A confirmed request between two runs.
#[derive(Debug)]
pub(super) struct HeldRequest {
    /// Number of the first record.
    pub(super) first: u64,
    pub(super) records: Vec<Data>,
    pub(super) metadata: Metadata,
    pub(super) admitted: AdmittedRequest,
}

impl HeldRequests {
    pub(super) fn new() -> Arc<HeldRequests> {
        Arc::new(HeldRequests {
            numbering: Numbering::begin(),
            admission: Admission::new(),
            between_runs: Mutex::default(),
            undelivered: AtomicU64::new(0),
        })
    }

    /// Counts records that are confirmed.
    pub(super) fn confirm(&self, records: usize) {
        self.undelivered.fetch_add(records as u64, Ordering::Relaxed);
    }

    /// Counts confirmed records that are delivered.
    pub(super) fn deliver(&self, records: usize) {
        self.undelivered.fetch_sub(records as u64, Ordering::Relaxed);
    }

    /// Returns the number of confirmed records that are not delivered.
    pub(super) fn undelivered(&self) -> u64 {
        self.undelivered.load(Ordering::Relaxed)
    }

    /// Keeps the requests that a run did not deliver, for the next one.
    pub(super) fn keep(&self, requests: impl IntoIterator<Item = HeldRequest>) {
        let mut kept = locked(&self.between_runs);
        kept.extend(requests);
        kept.sort_by_key(|request| request.first);
    }

    /// Returns the kept requests, without the records up to the number of a stored position, which are delivered.
    pub(super) fn take_after(&self, stored: u64) -> Vec<HeldRequest> {
        let mut kept = std::mem::take(&mut *locked(&self.between_runs));
        for request in &mut kept {
            let delivered =
                usize::try_from(stored.saturating_add(1).saturating_sub(request.first)).unwrap_or(usize::MAX);
            self.deliver(request.forget(delivered));
        }
        kept.retain(|request| !request.records.is_empty());
        kept
    }
}

impl HeldRequest {
    /// Removes the first records, and returns their number.
    pub(super) fn forget(&mut self, records: usize) -> usize {
        let records = records.min(self.records.len());
        self.records.drain(..records);
        self.first += records as u64;
        records
    }
}
