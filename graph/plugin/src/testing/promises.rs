//! The promises of sources and destinations, checked against a real external system or one on the test's disk.
//!
//! A check drives the plugin as the executor does: it stops in the middle, resumes, repeats and cancels calls.

mod destination;
mod source;

use std::fmt;

pub use destination::{check_destination, check_refusal};
pub use source::check_source;

/// The promise that a plugin does not keep. Its debug output is its text, so that `unwrap` prints it.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BrokenPromise(String);

impl fmt::Debug for BrokenPromise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns an error unless a promise is kept.
fn promise(is_kept: bool, otherwise: impl FnOnce() -> String) -> Result<(), BrokenPromise> {
    match is_kept {
        true => Ok(()),
        false => Err(BrokenPromise(otherwise())),
    }
}
