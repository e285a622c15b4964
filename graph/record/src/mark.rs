//! Lanes and their settled positions.

use crate::record::Position;
use crate::text::Str;

/// A part of a source with its own order and position; [`Partition::ONLY`] if the source is not partitioned.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Partition(pub Str);

impl Partition {
    /// The only partition of a source that is not partitioned.
    pub const ONLY: Partition = Partition(Str::from_static(""));
}

/// The settled position of a lane. Positions are opaque: code compares only `generation` and `seq`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Increases when the lane restarts from its beginning (reset, new snapshot).
    pub generation: u64,
    /// Number of settled rows of this generation, counted by the engine.
    pub seq: u64,
    /// Position of the last settled row; empty if the lane restarts from its beginning.
    pub position: Position,
}

impl Mark {
    /// Creates the mark at the beginning of the lane, in a generation.
    pub fn beginning(generation: u64) -> Self {
        Mark { generation, seq: 0, position: Position::copy_from(b"") }
    }

    /// Returns `true` if the lane restarts from its beginning.
    pub fn is_beginning(&self) -> bool {
        self.seq == 0 && self.position.0.is_empty()
    }
}

/// A lane: one partition of one source connector. Each lane has its own ledger, order and stored mark.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneId {
    /// Id of the source connector, unique in the pipeline.
    pub connector: Str,
    /// The partition.
    pub partition: Partition,
}
