//! Limits on the requests and bytes in flight.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts requests and bytes from their arrival until their records are acknowledged.
#[derive(Debug)]
pub(super) struct Admission(Mutex<AdmissionState>);

#[derive(Debug, Default)]
struct AdmissionState {
    most: RequestLoad,
    now: RequestLoad,
}

/// Numbers of requests and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestLoad {
    pub(super) requests: usize,
    pub(super) bytes: usize,
}

/// A request that was admitted. Dropping it makes room for another.
#[derive(Debug)]
pub(super) struct AdmittedRequest {
    admission: Arc<Admission>,
    bytes: usize,
}

impl Admission {
    /// Creates limits that admit nothing.
    pub(super) fn new() -> Arc<Admission> {
        Arc::new(Admission(Mutex::default()))
    }

    /// Sets the limits.
    pub(super) fn limit(&self, most: RequestLoad) {
        self.state().most = most;
    }

    /// Admits a request without its bytes; `None` if there are too many.
    pub(super) fn admit(self: &Arc<Self>) -> Option<AdmittedRequest> {
        let mut state = self.state();
        if state.now.requests >= state.most.requests {
            return None;
        }
        state.now.requests += 1;
        Some(AdmittedRequest { admission: self.clone(), bytes: 0 })
    }

    fn state(&self) -> MutexGuard<'_, AdmissionState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AdmittedRequest {
    /// Adds bytes to the request. Returns `false`, and adds nothing, if there are too many in flight.
    #[must_use]
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        let mut state = self.admission.state();
        let Some(sum) = state.now.bytes.checked_add(bytes).filter(|sum| *sum <= state.most.bytes) else {
            return false;
        };
        state.now.bytes = sum;
        self.bytes += bytes;
        true
    }
}

impl Drop for AdmittedRequest {
    fn drop(&mut self) {
        let mut state = self.admission.state();
        state.now.requests -= 1;
        state.now.bytes -= self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_makes_room() {
        let admission = Admission::new();
        assert!(admission.admit().is_none());
        admission.limit(RequestLoad { requests: 2, bytes: 10 });
        let (mut a, mut b) = (admission.admit().unwrap(), admission.admit().unwrap());
        assert!(admission.admit().is_none());
        assert!(a.grow(6) && !b.grow(5) && b.grow(4) && !a.grow(1) && !a.grow(usize::MAX));
        drop(a);
        assert_eq!(admission.state().now, RequestLoad { requests: 1, bytes: 4 });
        assert!(b.grow(6));
        drop(b);
        assert_eq!(admission.state().now, RequestLoad::default());
    }
}
