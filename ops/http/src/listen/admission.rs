//! Limits on the requests and bytes in flight.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts requests and bytes from their arrival until their records are acknowledged.
#[derive(Debug)]
pub(super) struct Admission {
    most: RequestLoad,
    now: Mutex<RequestLoad>,
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
    /// Creates the limits.
    pub(super) fn new(most: RequestLoad) -> Arc<Admission> {
        Arc::new(Admission { most, now: Mutex::default() })
    }

    /// Admits a request without its bytes; `None` if there are too many.
    pub(super) fn admit(self: &Arc<Self>) -> Option<AdmittedRequest> {
        let mut now = self.now();
        if now.requests >= self.most.requests {
            return None;
        }
        now.requests += 1;
        Some(AdmittedRequest { admission: self.clone(), bytes: 0 })
    }

    fn now(&self) -> MutexGuard<'_, RequestLoad> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AdmittedRequest {
    /// Adds bytes to the request. Returns `false`, and adds nothing, if there are too many in flight.
    #[must_use]
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        let mut now = self.admission.now();
        let Some(sum) = now.bytes.checked_add(bytes).filter(|sum| *sum <= self.admission.most.bytes) else {
            return false;
        };
        now.bytes = sum;
        self.bytes += bytes;
        true
    }
}

impl Drop for AdmittedRequest {
    fn drop(&mut self) {
        let mut now = self.admission.now();
        now.requests -= 1;
        now.bytes -= self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_makes_room() {
        let admission = Admission::new(RequestLoad { requests: 2, bytes: 10 });
        let (mut a, mut b) = (admission.admit().unwrap(), admission.admit().unwrap());
        assert!(admission.admit().is_none());
        assert!(a.grow(6) && !b.grow(5) && b.grow(4) && !a.grow(1) && !a.grow(usize::MAX));
        drop(a);
        assert_eq!(*admission.now(), RequestLoad { requests: 1, bytes: 4 });
        assert!(b.grow(6));
        drop(b);
        assert_eq!(*admission.now(), RequestLoad::default());
    }
}
