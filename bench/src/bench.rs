//! What is measured.

use std::path::PathBuf;

/// The binary, and how much is asked of it.
pub(crate) struct Bench {
    pub(crate) binary: PathBuf,
    pub(crate) against: Option<PathBuf>,
    pub(crate) records: u64,
    pub(crate) repeat: u64,
    /// Whether instructions are counted.
    pub(crate) counting: bool,
}
