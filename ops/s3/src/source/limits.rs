//! Limits that the partitions of a source share: listed and fetched objects that wait for delivery.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Number of pending finds of all partitions below which the next page is listed.
const FEW: usize = 1000;
/// Least such number for one partition, so that fetches do not wait for the next page.
const FEWEST: usize = 64;
/// Maximum number of partitions that hold the finds of a whole page, or wait for one.
const LISTINGS: usize = 16;
/// Bytes of one permit for memory.
const UNIT: usize = 1 << 10;

/// The limits, shared by all partitions of a run. Each is granted in the order of the requests, so that a partition with many
/// objects does not delay the others for long.
#[derive(Clone, Debug)]
pub(super) struct ReadLimits {
    listings: Arc<Semaphore>,
    fetches: Arc<Semaphore>,
    memory: Arc<Semaphore>,
    /// Permits for memory, together.
    units: u32,
    few: usize,
}

/// Permission to list a page. Its owner gives it back when few finds of the page are left.
#[derive(Debug)]
pub(super) struct ListingPermit {
    _permit: Option<OwnedSemaphorePermit>,
}

/// Permission to fetch an object, which its owner gives back when it delivers the object.
#[derive(Debug)]
pub(super) struct FetchPermit {
    _permits: [Option<OwnedSemaphorePermit>; 2],
}

impl ReadLimits {
    /// Creates the limits of `partitions`: at most `fetches` objects at the same time, with at most `bytes`.
    pub(super) fn new(partitions: usize, fetches: usize, bytes: usize) -> ReadLimits {
        let units = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX).max(1);
        ReadLimits {
            listings: Arc::new(Semaphore::new(LISTINGS)),
            fetches: Arc::new(Semaphore::new(fetches)),
            memory: Arc::new(Semaphore::new(units as usize)),
            units,
            few: (FEW / partitions.max(1)).max(FEWEST),
        }
    }

    /// Returns the number of pending finds below which a partition lists the next page.
    pub(super) fn few(&self) -> usize {
        self.few
    }

    /// Waits until another page may be listed.
    pub(super) async fn list(&self) -> ListingPermit {
        // An error means that the semaphore is closed, which it never is.
        ListingPermit { _permit: self.listings.clone().acquire_owned().await.ok() }
    }

    /// Returns a permit for an object of `bytes` if nobody waits for one and there is room.
    pub(super) fn try_fetch(&self, bytes: usize) -> Option<FetchPermit> {
        let fetch = self.fetches.clone().try_acquire_owned().ok()?;
        let memory = self.memory.clone().try_acquire_many_owned(self.units_of(bytes)).ok()?;
        Some(FetchPermit { _permits: [Some(fetch), Some(memory)] })
    }

    /// Waits until there is room for an object of `bytes`. An object that exceeds the limit waits until no other is in
    /// memory.
    ///
    /// A partition must wait for its objects in the order in which it delivers them: otherwise the objects in memory could
    /// wait for one that waits for their memory.
    pub(super) async fn fetch(self, bytes: usize) -> FetchPermit {
        let units = self.units_of(bytes);
        let fetch = self.fetches.acquire_owned().await.ok();
        FetchPermit { _permits: [fetch, self.memory.acquire_many_owned(units).await.ok()] }
    }

    fn units_of(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX).min(self.units)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn an_object_above_the_limit_is_fetched_alone_and_others_wait_behind_it() {
        let limits = ReadLimits::new(2, 10, 100 << 10);
        let small = limits.try_fetch(1).unwrap();
        assert!(limits.try_fetch(1 << 40).is_none());
        let mut large = limits.clone().fetch(1 << 40).boxed();
        assert!((&mut large).now_or_never().is_none());
        // The large object is the first, although there is room for another small one.
        assert!(limits.try_fetch(1).is_none());
        drop(small);
        let large = large.now_or_never().unwrap();
        assert!(limits.try_fetch(1).is_none());
        drop(large);
        assert!(limits.try_fetch(100 << 10).is_some());
    }

    #[test]
    fn no_more_objects_are_fetched_than_the_limit() {
        let limits = ReadLimits::new(1, 2, 1 << 20);
        let both = (limits.try_fetch(1).unwrap(), limits.try_fetch(1).unwrap());
        assert!(limits.try_fetch(1).is_none());
        drop(both.0);
        assert!(limits.try_fetch(1).is_some());
    }

    #[test]
    fn the_partitions_together_list_few_pages_ahead() {
        assert_eq!([1, 2, 16, 256].map(|partitions| ReadLimits::new(partitions, 1, 1).few()), [1000, 500, 64, 64]);
        let limits = ReadLimits::new(256, 1, 1);
        let held: Vec<_> = (0..LISTINGS).map(|_| limits.list().now_or_never().unwrap()).collect();
        assert!(limits.list().now_or_never().is_none());
        drop(held);
        assert!(limits.list().now_or_never().is_some());
    }
}
