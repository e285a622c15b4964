//! Lanes, and how far each of them is settled.

use crate::record::Position;
use crate::text::Str;

/// A part of a source with its own order and position; [`Partition::ONLY`] where there are none.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Partition(pub Str);

impl Partition {
    /// The partition of a source that has none.
    pub const ONLY: Partition = Partition(Str::from_static(""));
}

/// How far a lane is settled. Positions are opaque: only `generation` and `seq` are ever compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Rises when the lane starts anew (reset, new snapshot).
    pub generation: u64,
    /// Number of rows of this generation that are settled: the engine's own count.
    pub seq: u64,
    /// Position of the last of them; empty where the lane is to be read from its beginning.
    pub position: Position,
}

impl Mark {
    /// The beginning of the lane, in a generation.
    pub fn beginning(generation: u64) -> Self {
        Mark { generation, seq: 0, position: Position::copy_from(b"") }
    }

    /// Whether the lane is to be read from its beginning.
    pub fn is_beginning(&self) -> bool {
        self.seq == 0 && self.position.0.is_empty()
    }
}

/// A lane: one partition of one source connector. Its ledger, order and stored mark are its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneId {
    /// Id of the source connector, unique in the pipeline.
    pub connector: Str,
    /// The partition.
    pub partition: Partition,
}
