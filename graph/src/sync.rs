//! Synchronization primitives of a run: those of `std` and `tokio`, or their models in unit tests that check all
//! interleavings (feature `loom`). The code that uses them is the same.

#[cfg(not(all(test, feature = "loom")))]
mod shipped {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
    pub(crate) use std::sync::{Mutex, MutexGuard};

    pub(crate) use tokio::sync::Notify;
    pub(crate) use tokio::sync::futures::Notified;
}

#[cfg(all(test, feature = "loom"))]
mod modelled;

#[cfg(all(test, feature = "loom"))]
pub(crate) use modelled::{AtomicBool, AtomicU64, AtomicUsize, Mutex, MutexGuard, Notified, Notify};
#[cfg(not(all(test, feature = "loom")))]
pub(crate) use shipped::{AtomicBool, AtomicU64, AtomicUsize, Mutex, MutexGuard, Notified, Notify};
