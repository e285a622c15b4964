//! Options of a measurement.

use std::path::PathBuf;

/// The binaries and the amount of work.
pub(crate) struct Bench {
    pub(crate) binary: PathBuf,
    pub(crate) against: Option<PathBuf>,
    pub(crate) records: u64,
    pub(crate) repeat: u64,
    /// True if instructions are counted.
    pub(crate) counting: bool,
}
