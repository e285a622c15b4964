//! The way of records from requests to the reader, and of acknowledgements back to the requests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anabranch_plugin::source::Room;
use anabranch_record::metadata::Metadata;
use anabranch_record::{Data, Position, Record};
use tokio::sync::{Notify, oneshot};

use super::admission::AdmittedRequest;
use super::held::{HeldRequest, HeldRequests};

/// The accepted requests of a run, in order of arrival.
pub(super) struct Intake {
    /// The confirmed requests, which outlive this intake.
    held: Arc<HeldRequests>,
    state: Mutex<IntakeState>,
    arrived: Notify,
}

struct IntakeState {
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
    /// Number of the first record.
    first: u64,
    /// All records. Those that were read are absent, unless the request is held.
    records: Vec<Data>,
    /// Number of records that were read.
    read: usize,
    metadata: Metadata,
    confirmation: Confirmation,
}

/// Confirms a request when it is dropped by [`Intake::acknowledge`]; its bytes count until then.
struct Confirmation {
    /// `None` if the request was confirmed before: it is held until its records are delivered.
    delivered: Option<oneshot::Sender<()>>,
    admitted: AdmittedRequest,
}

struct Delivering {
    /// Number of the reads up to the last record of the request.
    last: u64,
    request: WaitingRequest,
}

impl WaitingRequest {
    fn is_held(&self) -> bool {
        self.confirmation.delivered.is_none()
    }

    /// Returns the number of records that are not read.
    fn left(&self) -> usize {
        self.records.len() - self.read
    }

    /// Returns the request for the next run, without its first records, which are delivered.
    fn into_held(self, delivered: usize) -> (HeldRequest, usize) {
        let WaitingRequest { first, records, metadata, confirmation, .. } = self;
        let mut held = HeldRequest { first, records, metadata, admitted: confirmation.admitted };
        let forgotten = held.forget(delivered);
        (held, forgotten)
    }
}

/// A request whose records are accepted. Dropping it withdraws the records if none of them was read.
pub(super) struct AcceptedRequest {
    intake: Arc<Intake>,
    request: u64,
    delivered: oneshot::Receiver<()>,
}

impl Intake {
    /// Creates the intake of a run, which begins with the requests that an earlier run has confirmed and not delivered:
    /// those after the number of the stored position.
    pub(super) fn new(held: Arc<HeldRequests>, stored: u64) -> Arc<Intake> {
        let kept = held.take_after(stored).into_iter().zip(1..);
        let kept = kept.map(|(HeldRequest { first, records, metadata, admitted }, request)| {
            let confirmation = Confirmation { delivered: None, admitted };
            WaitingRequest { request, first, records, read: 0, metadata, confirmation }
        });
        let waiting: VecDeque<WaitingRequest> = kept.collect();
        let state = IntakeState {
            requests: waiting.len() as u64,
            waiting,
            delivering: VecDeque::new(),
            read: 0,
            acknowledged: 0,
            is_closed: false,
        };
        Arc::new(Intake { held, state: Mutex::new(state), arrived: Notify::new() })
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
        let request = self.add(records, metadata, Confirmation { delivered: Some(delivered), admitted })?;
        Some(AcceptedRequest { intake: self.clone(), request, delivered: receiver })
    }

    /// Accepts the records of a request that is confirmed at once, and holds them until they are delivered. Returns `None` if
    /// the source is stopping.
    pub(super) fn hold(&self, records: Vec<Data>, metadata: Metadata, admitted: AdmittedRequest) -> Option<()> {
        self.add(records, metadata, Confirmation { delivered: None, admitted }).map(drop)
    }

    /// Adds a request, and returns its number.
    fn add(&self, records: Vec<Data>, metadata: Metadata, confirmation: Confirmation) -> Option<u64> {
        let mut state = self.state();
        if state.is_closed {
            return None;
        }
        if confirmation.delivered.is_none() {
            self.held.confirm(records.len());
        }
        state.requests += 1;
        let request = state.requests;
        let first = self.held.numbering.reserve(records.len());
        state.waiting.push_back(WaitingRequest { request, first, records, read: 0, metadata, confirmation });
        drop(state);
        self.arrived.notify_one();
        Some(request)
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
            let is_held = arrival.is_held();
            while let Some(data) = arrival.records.get_mut(arrival.read) {
                let mut record = Record::create(Position::default(), Data::Absent, data.clone());
                record.metadata = arrival.metadata.clone();
                bytes += record.weight();
                if !records.is_empty() && (records.len() >= room.rows || bytes > room.bytes) {
                    return records;
                }
                if !is_held {
                    *data = Data::Absent;
                }
                records.push(record.with_position(self.held.numbering.position(arrival.first + arrival.read as u64)));
                arrival.read += 1;
                state.read += 1;
            }
            if let Some(mut request) = state.waiting.pop_front() {
                if !is_held {
                    (request.records, request.metadata) = (Vec::new(), Metadata::new());
                }
                state.delivering.push_back(Delivering { last: state.read, request });
            }
        }
        records
    }

    /// Returns the number of records that are not read yet.
    pub(super) fn waiting(&self) -> u64 {
        self.state().waiting.iter().map(|request| request.left() as u64).sum()
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
            let Some(Delivering { request, .. }) = state.delivering.pop_front() else { continue };
            match request.confirmation.delivered {
                // The client may not wait any more.
                Some(delivered) => {
                    let _ = delivered.send(());
                }
                None => self.held.deliver(request.records.len()),
            }
        }
    }

    /// Accepts no more requests, and refuses those with records that are not read.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.waiting.retain(WaitingRequest::is_held);
    }

    /// Refuses the requests that are not confirmed, and keeps the others for the next run. No more acknowledgements arrive.
    pub(super) fn end(&self) {
        self.close();
        let mut state = self.state();
        let state = &mut *state;
        let acknowledged = state.acknowledged;
        // Records are acknowledged in the order in which they were read.
        let begun = |request: &WaitingRequest, last: u64| {
            usize::try_from(acknowledged.saturating_sub(last - request.read as u64)).unwrap_or(usize::MAX)
        };
        let mut left: Vec<(WaitingRequest, usize)> = Vec::new();
        for Delivering { last, request } in state.delivering.drain(..).filter(|read| read.request.is_held()) {
            let delivered = begun(&request, last);
            left.push((request, delivered));
        }
        for request in state.waiting.drain(..) {
            let delivered = if request.read > 0 { begun(&request, state.read) } else { 0 };
            left.push((request, delivered));
        }
        self.held.keep(left.into_iter().map(|(request, delivered)| {
            let (held, forgotten) = request.into_held(delivered);
            self.held.deliver(forgotten);
            held
        }));
    }

    fn withdraw(&self, request: u64) {
        let mut state = self.state();
        // The numbers of waiting requests ascend.
        if let Ok(place) = state.waiting.binary_search_by_key(&request, |arrival| arrival.request)
            && state.waiting[place].read == 0
        {
            state.waiting.remove(place);
        }
    }
}

impl AcceptedRequest {
    /// Waits until the records are delivered. Returns `false` if the source stops before.
    pub(super) async fn delivered(&mut self) -> bool {
        (&mut self.delivered).await.is_ok()
    }
}

impl Drop for AcceptedRequest {
    fn drop(&mut self) {
        self.intake.withdraw(self.request);
    }
}

#[cfg(test)]
mod tests;
