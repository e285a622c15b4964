//! The state store, which keeps marks across crashes, the memo of operators, and the active settings of connectors.

use std::collections::BTreeMap;
use std::fmt;

use anabranch_record::mark::{LaneId, Mark, Partition};
use anabranch_record::text::Str;
use async_trait::async_trait;
use bytes::Bytes;

/// A part of a pipeline that has one owner at a time: a share of its lanes. The owner has a claim of its own, which
/// fences only earlier owners of the same unit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Unit {
    /// The pipeline.
    pub pipeline: Str,
    /// Number of the share, from 0. A pipeline that is not split has only slot 0.
    pub slot: u32,
}

impl Unit {
    /// Returns the only unit of a pipeline that is not split.
    pub fn whole(pipeline: impl Into<Str>) -> Unit {
        Unit { pipeline: pipeline.into(), slot: 0 }
    }
}

/// Writes the pipeline, and the slot unless it is 0.
impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.slot {
            0 => write!(f, "{}", self.pipeline),
            slot => write!(f, "{} (slot {slot})", self.pipeline),
        }
    }
}

/// The shares of the lanes of a pipeline that a run has: some of several slots, over which the partitions of its sources are
/// distributed. A pipeline that is not split has one slot.
///
/// ```
/// use anabranch_plugin::state::Slots;
/// use anabranch_record::mark::Partition;
///
/// let (even, odd) = (Slots::none(2).with(0), Slots::none(2).with(1));
/// let partition = Partition("orders/7".into());
/// assert!(Slots::WHOLE.has(&partition) && even.has(&partition) != odd.has(&partition));
/// // Partitions with consecutive numbers have consecutive slots.
/// assert!(even.has(&partition) != even.has(&Partition("orders/8".into())));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slots {
    of: u32,
    bits: u64,
}

impl Slots {
    /// Maximum number of slots of a pipeline.
    pub const MOST: u32 = u64::BITS;

    /// What precedes the number of a group of partitions at the end of their names, see [`Slots::slot_of`].
    pub const PART: &str = "@part-";

    /// The only slot of a pipeline that is not split.
    pub const WHOLE: Slots = Slots { of: 1, bits: 1 };

    /// Returns none of `of` slots; `of` is limited to 1 to [`Slots::MOST`].
    pub fn none(of: u32) -> Slots {
        Slots { of: of.clamp(1, Slots::MOST), bits: 0 }
    }

    /// Adds a slot, if the pipeline has it.
    #[must_use]
    pub fn with(self, slot: u32) -> Slots {
        let bit = if slot < self.of { 1 << slot } else { 0 };
        Slots { bits: self.bits | bit, ..self }
    }

    /// Returns the number of slots of the pipeline.
    pub fn of(self) -> u32 {
        self.of
    }

    /// Returns the slots of the run, in order.
    pub fn iter(self) -> impl Iterator<Item = u32> {
        (0..self.of).filter(move |slot| self.bits & (1 << slot) != 0)
    }

    /// Returns `true` if the run has no slot.
    pub fn is_empty(self) -> bool {
        self.bits == 0
    }

    /// Returns `true` if the run has all of these slots.
    pub fn contains(self, others: Slots) -> bool {
        self.of == others.of && self.bits & others.bits == others.bits
    }

    /// Returns `true` if the run has the slot of a partition.
    pub fn has(self, partition: &Partition) -> bool {
        self.bits & (1 << self.slot_of(partition)) != 0
    }

    /// Returns the slot of a partition: its number, if its name ends with one, plus a hash of the rest of the name. So the
    /// numbered partitions of a topic are distributed evenly. A partition whose name ends with [`Slots::PART`] and a number
    /// has the slot of the partition with this number as its name. [`Partition::ONLY`] has the slot of the number 0. So a
    /// source can keep partitions together, whatever the number of slots.
    pub fn slot_of(self, partition: &Partition) -> u32 {
        let name = partition.0.as_str();
        let name = name.rsplit_once(Slots::PART).map_or(name, |(_, number)| match number.is_empty() {
            false if number.bytes().all(|byte| byte.is_ascii_digit()) => number,
            _ => name,
        });
        let rest = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let number = name[rest.len()..]
            .bytes()
            .fold(0u64, |number, digit| number.wrapping_mul(10).wrapping_add(u64::from(digit - b'0')));
        // FNV-1a, 64 bits (draft-eastlake-fnv). It is part of the stored form: the slot of a partition must not change.
        let hash = rest
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        (((hash ^ (hash >> 32)).wrapping_add(number)) % u64::from(self.of)) as u32
    }
}

impl Default for Slots {
    fn default() -> Self {
        Slots::WHOLE
    }
}

/// Proof that this run is the latest owner of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// The unit.
    pub unit: Unit,
    /// Increases with each claim of the unit.
    pub number: u64,
}

/// The position that a transactional destination had confirmed when a position of the lane was stored.
///
/// A position is stored only after every destination has received the records before it. A destination that later has
/// less than its receipt has lost confirmed records, for example after a failover or because of a restored backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Id of the destination connector.
    pub destination: Str,
    /// The lane.
    pub lane: LaneId,
    /// The lowest mark at which the destination has received all its records before the stored position. A `seq`
    /// of 0 is no requirement.
    pub mark: Mark,
}

/// A failure of the state store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another run has claimed the unit: this one must stop and acknowledge nothing more.
    #[error("pipeline {unit} was claimed by another run (epoch {theirs}, ours is {ours})")]
    Fenced {
        /// The unit.
        unit: Unit,
        /// Epoch of this run.
        ours: u64,
        /// Epoch of the other run.
        theirs: u64,
    },
    /// The unit belongs to another node of the cluster.
    #[error("pipeline {unit} belongs to node {node}")]
    Elsewhere {
        /// The unit.
        unit: Unit,
        /// Name of the node.
        node: String,
    },
    /// The store cannot be read or written.
    #[error("state store: {0}")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The file of the store was removed or replaced: nothing is written until the user restores it.
    #[error("{0}")]
    Gone(String),
    /// The content of the store is invalid.
    #[error("state store is damaged: {0}")]
    Damaged(String),
}

/// Changes of a unit's marks and receipts, stored together.
///
/// ```
/// use anabranch_plugin::state::Commit;
/// use anabranch_record::mark::{LaneId, Mark, Partition};
///
/// let lane = LaneId { connector: "in".into(), partition: Partition::ONLY };
/// let moves = [(lane.clone(), Mark::beginning(1))];
/// let commit = Commit::of(&moves).with_drops(std::slice::from_ref(&lane));
/// assert_eq!((commit.moves.len(), commit.receipts.len(), commit.drops.len()), (1, 0, 1));
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Commit<'a> {
    /// New marks of lanes. Of two marks of a lane, the later one in the slice is stored.
    pub moves: &'a [(LaneId, Mark)],
    /// New receipts. A receipt replaces the earlier one of the same destination and lane.
    pub receipts: &'a [Receipt],
    /// Lanes whose partition has ended: their marks and receipts are removed, also those of this commit. A lane that
    /// comes back later has no position.
    pub drops: &'a [LaneId],
}

impl<'a> Commit<'a> {
    /// Creates a commit that moves lanes.
    pub fn of(moves: &'a [(LaneId, Mark)]) -> Commit<'a> {
        Commit { moves, ..Commit::default() }
    }

    /// Replaces the receipts.
    #[must_use]
    pub fn with_receipts(self, receipts: &'a [Receipt]) -> Commit<'a> {
        Commit { receipts, ..self }
    }

    /// Replaces the lanes to remove.
    #[must_use]
    pub fn with_drops(self, drops: &'a [LaneId]) -> Commit<'a> {
        Commit { drops, ..self }
    }
}

/// Stores the mark of every lane. Implementations are fenced by unit: a commit with an old epoch of a unit fails, and a
/// claim of one unit does not affect the others of the pipeline.
#[async_trait]
pub trait StateStore: Send + Sync {
    /// Makes the caller the owner of the unit.
    async fn claim(&self, unit: &Unit) -> Result<Epoch, StoreError>;

    /// Returns all marks of the unit.
    async fn load(&self, epoch: &Epoch) -> Result<BTreeMap<LaneId, Mark>, StoreError>;

    /// Returns the receipts of the transactional destinations for lanes of the unit, in any order.
    async fn receipts(&self, epoch: &Epoch) -> Result<Vec<Receipt>, StoreError>;

    /// Stores the changes, all or none; durable when it returns.
    async fn commit(&self, epoch: &Epoch, commit: Commit<'_>) -> Result<(), StoreError>;

    /// Returns the marks of all units of a pipeline, also of those that other runs own. All marks are of the same time, and
    /// may be older than those that are being stored. By default it fails: the store does not know other units.
    async fn survey(&self, _pipeline: &Str) -> Result<BTreeMap<LaneId, Mark>, StoreError> {
        Err(StoreError::Unavailable("this store has no marks of other runs".into()))
    }
}

/// The marks of a connector in all units of its pipeline. With them, the units of a source that splits learn how far the
/// others are: a mark that is stored once was delivered before.
#[async_trait]
pub trait SiblingMarks: Send + Sync {
    /// Returns the marks, all of the same time. They may be older than those that are being stored.
    ///
    /// # Errors
    /// The store cannot be read.
    async fn marks(&self) -> Result<BTreeMap<Partition, Mark>, StoreError>;
}

/// Results that operators keep across runs, such as the embedding of a text. A result depends only on the data whose
/// hash is its key. Losing entries costs time, never correctness; an implementation may discard them at any time.
#[async_trait]
pub trait ResultCache: Send + Sync {
    /// Returns the results under the given keys of a space, in the order of the keys.
    ///
    /// # Errors
    /// The store cannot be read.
    async fn recall(&self, space: &str, keys: &[ResultKey]) -> Result<Vec<Option<Bytes>>, StoreError>;

    /// Stores results; they become durable some time later.
    ///
    /// # Errors
    /// The store cannot be written.
    async fn keep(&self, space: &str, entries: Vec<(ResultKey, Bytes)>) -> Result<(), StoreError>;
}

/// The settings with which connectors were last active, so that a plugin can be notified of changes. Unlike results of a
/// [`ResultCache`], they are never discarded.
#[async_trait]
pub trait ActiveSettings: Send + Sync {
    /// Returns the last value of [`ActiveSettings::set_active`] for a connector.
    ///
    /// # Errors
    /// The store cannot be read.
    async fn active(&self, pipeline: &Str, connector: &Str) -> Result<Option<Bytes>, StoreError>;

    /// Stores the settings with which a connector is active. Durable when it returns.
    ///
    /// # Errors
    /// The store cannot be written.
    async fn set_active(&self, pipeline: &Str, connector: &Str, settings: Bytes) -> Result<(), StoreError>;
}

/// SHA-256 of everything that a stored result depends on.
pub type ResultKey = [u8; 32];

/// A store of results and active settings that keeps neither.
pub struct DiscardingState;

#[async_trait]
impl ResultCache for DiscardingState {
    async fn recall(&self, _space: &str, keys: &[ResultKey]) -> Result<Vec<Option<Bytes>>, StoreError> {
        Ok(vec![None; keys.len()])
    }

    async fn keep(&self, _space: &str, _entries: Vec<(ResultKey, Bytes)>) -> Result<(), StoreError> {
        Ok(())
    }
}

#[async_trait]
impl SiblingMarks for DiscardingState {
    async fn marks(&self) -> Result<BTreeMap<Partition, Mark>, StoreError> {
        Ok(BTreeMap::new())
    }
}

#[async_trait]
impl ActiveSettings for DiscardingState {
    async fn active(&self, _pipeline: &Str, _connector: &Str) -> Result<Option<Bytes>, StoreError> {
        Ok(None)
    }

    async fn set_active(&self, _pipeline: &Str, _connector: &Str, _settings: Bytes) -> Result<(), StoreError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_of_a_part_have_one_slot() {
        for of in 1..=Slots::MOST {
            let slot = |name: &'static str| Slots::none(of).slot_of(&Partition(name.into()));
            assert_eq!([slot("backfill@part-0"), slot("a/17.2@part-0"), slot("0")], [slot(""); 3]);
            assert_eq!([slot("b@part-7"), slot("@part-7")], [slot("7"); 2]);
            assert_eq!(slot("b@part-7"), (slot("") + 7) % of);
        }
        // Other names keep their slots.
        let slot = |name: &'static str| Slots::none(64).slot_of(&Partition(name.into()));
        assert!(slot("b@part-") != slot("") && slot("b@part-x1") != slot("1"));
    }

    #[test]
    fn a_slot_is_shown_only_if_the_pipeline_is_split() {
        let fenced = |slot| StoreError::Fenced { unit: Unit { pipeline: "p".into(), slot }, ours: 1, theirs: 2 };
        let rest = "was claimed by another run (epoch 2, ours is 1)";
        assert_eq!(fenced(0).to_string(), format!("pipeline p {rest}"));
        assert_eq!(fenced(3).to_string(), format!("pipeline p (slot 3) {rest}"));
    }
}
