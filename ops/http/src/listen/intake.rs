//! The way of records from requests to the reader, and of acknowledgements back to the requests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anabranch_plugin::source::Room;
use anabranch_record::metadata::Metadata;
use anabranch_record::{Data, Position, Record};
use tokio::sync::{Notify, oneshot};

use super::admission::AdmittedRequest;
use super::position::Numbering;

/// The accepted requests of a source, in order of arrival.
pub(super) struct Intake {
    state: Mutex<IntakeState>,
    arrived: Notify,
}

struct IntakeState {
    numbering: Numbering,
    /// Number of the requests that arrived.
    requests: u64,
    /// Requests with records that are not read yet.
    waiting: VecDeque<WaitingRequest>,
    /// Requests whose records are read and not all acknowledged.
    delivering: VecDeque<Delivering>,
    /// Number of records that are read, and of those that are acknowledged.
    read: u64,
    acknowledged: u64,
    is_closed: bool,
}

struct WaitingRequest {
    request: u64,
    records: std::vec::IntoIter<Data>,
    metadata: Metadata,
    /// True if a record was read.
    is_begun: bool,
    confirmation: Confirmation,
}

/// Confirms a request when it is dropped by [`Intake::acknowledge`]; its bytes count until then.
struct Confirmation {
    delivered: oneshot::Sender<()>,
    _admitted: AdmittedRequest,
}

struct Delivering {
    /// Number of the last record of the request.
    last: u64,
    confirmation: Confirmation,
}

/// A request whose records are accepted. Dropping it withdraws the records if none of them was read.
pub(super) struct AcceptedRequest {
    intake: Arc<Intake>,
    request: u64,
    delivered: oneshot::Receiver<()>,
    is_kept: bool,
}

impl Intake {
    /// Creates an empty intake that numbers the records.
    pub(super) fn new(numbering: Numbering) -> Arc<Intake> {
        let state = IntakeState {
            numbering,
            requests: 0,
            waiting: VecDeque::new(),
            delivering: VecDeque::new(),
            read: 0,
            acknowledged: 0,
            is_closed: false,
        };
        Arc::new(Intake { state: Mutex::new(state), arrived: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, IntakeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts the records of a request, at least one. Returns `None` if the source is stopping.
    pub(super) fn accept(
        self: &Arc<Self>,
        records: Vec<Data>,
        metadata: Metadata,
        admitted: AdmittedRequest,
    ) -> Option<AcceptedRequest> {
        let (delivered, receiver) = oneshot::channel();
        let mut state = self.state();
        if state.is_closed {
            return None;
        }
        state.requests += 1;
        let request = state.requests;
        let confirmation = Confirmation { delivered, _admitted: admitted };
        let arrival = WaitingRequest { request, records: records.into_iter(), metadata, is_begun: false, confirmation };
        state.waiting.push_back(arrival);
        drop(state);
        self.arrived.notify_one();
        Some(AcceptedRequest { intake: self.clone(), request, delivered: receiver, is_kept: false })
    }

    /// Returns `true` if the source accepts no more requests.
    pub(super) fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    /// Takes the next records; empty if there are none.
    pub(super) fn take(&self, room: Room) -> Vec<Record> {
        let mut state = self.state();
        let state = &mut *state;
        let (mut records, mut bytes) = (Vec::new(), 0);
        while let Some(arrival) = state.waiting.front_mut() {
            while let Some(data) = arrival.records.as_slice().first() {
                let mut record = Record::create(Position::default(), Data::Absent, data.clone());
                record.metadata = arrival.metadata.clone();
                bytes += record.weight();
                if !records.is_empty() && (records.len() >= room.rows || bytes > room.bytes) {
                    return records;
                }
                records.push(record.with_position(state.numbering.next()));
                arrival.records.next();
                arrival.is_begun = true;
                state.read += 1;
            }
            if let Some(WaitingRequest { confirmation, .. }) = state.waiting.pop_front() {
                state.delivering.push_back(Delivering { last: state.read, confirmation });
            }
        }
        records
    }

    /// Returns the number of records that are not read yet.
    pub(super) fn waiting(&self) -> u64 {
        self.state().waiting.iter().map(|request| request.records.len() as u64).sum()
    }

    /// Waits until a request is accepted.
    pub(super) async fn arrival(&self) {
        self.arrived.notified().await;
    }

    /// Confirms the requests whose records are acknowledged: `records` is the number of those since the last call.
    pub(super) fn acknowledge(&self, records: usize) {
        let mut state = self.state();
        state.acknowledged += records as u64;
        while state.delivering.front().is_some_and(|first| first.last <= state.acknowledged) {
            if let Some(Delivering { confirmation, .. }) = state.delivering.pop_front() {
                // The client may not wait any more.
                let _ = confirmation.delivered.send(());
            }
        }
    }

    /// Accepts no more requests, and refuses those with records that are not read.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.waiting.clear();
    }

    /// Refuses the requests that are not confirmed. No more acknowledgements arrive.
    pub(super) fn end(&self) {
        self.close();
        self.state().delivering.clear();
    }

    fn withdraw(&self, request: u64) {
        let mut state = self.state();
        // The numbers of waiting requests ascend.
        if let Ok(place) = state.waiting.binary_search_by_key(&request, |arrival| arrival.request)
            && !state.waiting[place].is_begun
        {
            state.waiting.remove(place);
        }
    }
}

impl AcceptedRequest {
    /// Leaves the records with the source, without waiting for their delivery.
    pub(super) fn keep(mut self) {
        self.is_kept = true;
    }

    /// Waits until the records are delivered. Returns `false` if the source stops before.
    pub(super) async fn delivered(&mut self) -> bool {
        (&mut self.delivered).await.is_ok()
    }
}

impl Drop for AcceptedRequest {
    fn drop(&mut self) {
        if !self.is_kept {
            self.intake.withdraw(self.request);
        }
    }
}

#[cfg(test)]
mod tests;
