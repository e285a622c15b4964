//! Memory limits of pipelines, which settings of the service determine.

/// Memory limits of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Maximum rows of a lane that are read and not yet stored as settled. MemoryLimits duplicates after a crash.
    pub replay_rows: usize,
    /// Maximum bytes of records in the whole pipeline.
    pub held_bytes: usize,
    /// Maximum bytes of a queue between stages.
    pub queue_bytes: usize,
    /// Maximum strips of a queue between stages.
    pub queue_strips: usize,
}

impl Default for MemoryLimits {
    fn default() -> Self {
        MemoryLimits { replay_rows: 16_384, held_bytes: 64 << 20, queue_bytes: 8 << 20, queue_strips: 4 }
    }
}
