//! Positions of the lanes: of the changes, of the plan of a snapshot, and of the ranges of a snapshot.

use std::io::Write as _;

use anabranch_record::Position;
use anabranch_record::fault::Fault;
use anabranch_record::mark::Partition;
use anabranch_record::text::Str;
use bytes::{BufMut as _, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use super::lsn::Lsn;
use crate::codes;

/// The lane of the changes.
pub(super) const CHANGES: Partition = Partition::ONLY;
/// The lane of the plan of a snapshot. It has no records.
pub(super) const PLAN: Partition = Partition(Str::from_static("snapshot"));

/// The lane of the tables whose rows are read beside the changes. It has no records.
pub(super) const BACKFILL: Partition = Partition(Str::from_static("backfill"));

/// The lane of the columns that are accepted. It has no records.
pub(super) const COLUMNS: Partition = Partition(Str::from_static("columns"));

/// Version of the positions of this source. Those of the reference service have none, 1 or 2.
const VERSION: u32 = 3;

/// How far a source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Stage {
    /// The slot is about to be created: if it exists, it is ours.
    Intent,
    /// The slot exists, and rows of the snapshot are left.
    Snapshot,
    /// Only changes are read.
    Changes,
    /// A snapshot without changes is complete.
    Complete,
}

/// A position in the changes.
///
/// A change is identified by the place of the commit of its transaction and by its number in the transaction. The place
/// of the change itself neither increases from one change to the next, nor is it unique.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ChangePosition {
    /// Version of the form of positions.
    pub(super) version: u32,
    /// Id of the database cluster.
    pub(super) system: Str,
    /// History of the cluster in which the places are.
    pub(super) timeline: u32,
    /// Name of the slot.
    pub(super) slot: Str,
    /// How far the source is.
    pub(super) stage: Stage,
    /// The changes of all transactions that were committed before this place are read.
    pub(super) end: Lsn,
    /// The place of the commit of a transaction of which a part is read; [`Lsn::ZERO`] if there is none.
    #[serde(default)]
    pub(super) commit: Lsn,
    /// The number of changes of this transaction that are read.
    #[serde(default)]
    pub(super) ordinal: u64,
}

/// A position of the reference service: without a version, or of version 1 or 2.
#[derive(Deserialize)]
struct ForeignPosition {
    #[serde(default, rename = "type")]
    stage: u32,
    /// The place of a change in a transaction.
    #[serde(default)]
    last_lsn: String,
    /// The place of the commit of its transaction, from version 2 on.
    #[serde(default)]
    tx_commit_lsn: String,
    /// The number of the change in its transaction, counted as here.
    #[serde(default)]
    tx_seq: u64,
}

/// A stored position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StoredPosition {
    /// One of this source.
    Ours(ChangePosition),
    /// One of the reference service.
    Foreign(ForeignPlace),
}

/// What the reference service has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ForeignPlace {
    /// A part of a snapshot.
    Snapshot,
    /// All transactions that were committed before `end`, and `ordinal` changes of the one that was committed there.
    Changes {
        /// A place of the log.
        end: Lsn,
        /// A number of changes.
        ordinal: u64,
    },
}

fn unknown() -> Fault {
    Fault::fatal(codes::POSITION_UNKNOWN, "the stored position is not one of a postgres source")
}

impl StoredPosition {
    /// Reads a position of the lane of the changes.
    ///
    /// # Errors
    /// It is not a position of this source or of the reference service.
    pub(super) fn decode(position: &Position) -> Result<StoredPosition, Fault> {
        if let Ok(ours) = serde_json::from_slice::<ChangePosition>(&position.0) {
            return if ours.version == VERSION { Ok(StoredPosition::Ours(ours)) } else { Err(unknown()) };
        }
        let foreign: ForeignPosition = serde_json::from_slice(&position.0).map_err(|_| unknown())?;
        let place = |text: &str| text.parse::<Lsn>().ok().filter(|place| *place != Lsn::ZERO);
        let place = match (foreign.stage, place(&foreign.tx_commit_lsn), place(&foreign.last_lsn)) {
            (0 | 1, ..) => ForeignPlace::Snapshot,
            (2, Some(end), _) => ForeignPlace::Changes { end, ordinal: foreign.tx_seq },
            // A transaction that was committed before the change has been read: transactions arrive in the order of their
            // commits. The transaction of the change is read again.
            (2, None, Some(end)) => ForeignPlace::Changes { end, ordinal: 0 },
            _ => return Err(unknown()),
        };
        Ok(StoredPosition::Foreign(place))
    }
}

impl ChangePosition {
    /// Creates a position before which all transactions are read.
    pub(super) fn at(server: &Server, slot: &str, stage: Stage, end: Lsn) -> ChangePosition {
        ChangePosition {
            version: VERSION,
            system: server.system.clone(),
            timeline: server.timeline,
            slot: slot.into(),
            stage,
            end,
            commit: Lsn::ZERO,
            ordinal: 0,
        }
    }

    /// Encodes the position.
    pub(super) fn encode(&self) -> Position {
        // A struct of texts and numbers always has a JSON text.
        Position(Bytes::from(serde_json::to_vec(self).unwrap_or_default()))
    }
}

/// The identity of a database cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    /// Id of the cluster, which copies of it share.
    pub(super) system: Str,
    /// Number of its history: a standby that becomes the primary begins another.
    pub(super) timeline: u32,
}

/// Encodes the positions of changes.
pub(super) struct PositionEncoder {
    /// The text before the end.
    prefix: Vec<u8>,
    /// The text before the ordinal.
    head: Vec<u8>,
    buffer: BytesMut,
}

impl PositionEncoder {
    /// Creates an encoder for positions like `template`, with other places.
    pub(super) fn new(template: &ChangePosition) -> PositionEncoder {
        let mut prefix = template.encode().0.to_vec();
        // The places and the ordinal are the last fields, and the names before them contain no quotes.
        let mark = br#""end":""#;
        let end = prefix.windows(mark.len()).rposition(|window| window == mark);
        prefix.truncate(end.map_or(0, |at| at + mark.len()));
        let mut encoder = PositionEncoder { prefix, head: Vec::new(), buffer: BytesMut::new() };
        encoder.begin(template.end, Lsn::ZERO);
        encoder
    }

    /// Sets the end of the previous transaction, and the commit of the next one.
    pub(super) fn begin(&mut self, end: Lsn, commit: Lsn) {
        self.head.clear();
        self.head.extend_from_slice(&self.prefix);
        // Writing to memory does not fail.
        let _ = write!(self.head, r#"{end}","commit":"{commit}","ordinal":"#);
    }

    /// Returns the position of a change of the transaction. Positions that are made one after the other share memory.
    pub(super) fn change(&mut self, ordinal: u64) -> Position {
        if self.buffer.capacity() < self.head.len() + 24 {
            self.buffer.reserve(64 * (self.head.len() + 24));
        }
        self.buffer.extend_from_slice(&self.head);
        self.buffer.extend_from_slice(itoa::Buffer::new().format(ordinal).as_bytes());
        self.buffer.extend_from_slice(b"}");
        Position(self.buffer.split().freeze())
    }

    /// Returns the position before which all transactions are read.
    pub(super) fn end(&mut self, end: Lsn) -> Position {
        self.begin(end, Lsn::ZERO);
        self.change(0)
    }
}

/// A position in a range of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RangePosition {
    version: u32,
    /// Number of the attempt to read the snapshot.
    pub(super) attempt: u32,
    /// Number of records of the range that are read.
    pub(super) rows: u64,
    /// True if there are no more.
    #[serde(default)]
    pub(super) complete: bool,
}

impl RangePosition {
    /// Creates a position in a range.
    pub(super) fn new(attempt: u32, rows: u64, complete: bool) -> RangePosition {
        RangePosition { version: VERSION, attempt, rows, complete }
    }

    /// Reads a position.
    ///
    /// # Errors
    /// It is not a position of this source.
    pub(super) fn decode(position: &Position) -> Result<RangePosition, Fault> {
        let found: RangePosition = serde_json::from_slice(&position.0).map_err(|_| unknown())?;
        if found.version == VERSION { Ok(found) } else { Err(unknown()) }
    }

    /// Encodes the position.
    pub(super) fn encode(&self) -> Position {
        self.encode_into(&mut BytesMut::new())
    }

    /// Encodes the position. Positions with the same buffer share memory.
    pub(super) fn encode_into(&self, buffer: &mut BytesMut) -> Position {
        if buffer.capacity() < 96 {
            buffer.reserve(96 * 64);
        }
        let RangePosition { version, attempt, rows, complete } = self;
        // Writing to memory does not fail.
        let _ = write!(
            buffer.writer(),
            r#"{{"version":{version},"attempt":{attempt},"rows":{rows},"complete":{complete}}}"#
        );
        Position(buffer.split().freeze())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn server() -> Server {
        Server { system: "7301".into(), timeline: 2 }
    }

    proptest! {
        #[test]
        fn positions_survive(
            (slot, end, commit, ordinal) in ("[a-z0-9_]{1,63}", any::<u64>(), any::<u64>(), any::<u64>()),
        ) {
            let at = ChangePosition::at(&server(), &slot, Stage::Changes, Lsn(5));
            let expected = ChangePosition { end: Lsn(end), commit: Lsn(commit), ordinal, ..at.clone() };
            let mut encoder = PositionEncoder::new(&at);
            encoder.begin(Lsn(end), Lsn(commit));
            let position = encoder.change(ordinal);
            prop_assert_eq!(&position, &expected.encode());
            prop_assert_eq!(StoredPosition::decode(&position).unwrap(), StoredPosition::Ours(expected.clone()));
            let end = ChangePosition { commit: Lsn::ZERO, ordinal: 0, ..expected };
            prop_assert_eq!(encoder.end(end.end), end.encode());
        }
    }

    #[test]
    fn positions_of_ranges_survive() {
        for position in [RangePosition::new(1, 0, false), RangePosition::new(u32::MAX, u64::MAX, true)] {
            assert_eq!(RangePosition::decode(&position.encode()).unwrap(), position);
        }
        assert!(RangePosition::decode(&Position::copy_from(b"{}")).is_err());
    }

    #[test]
    fn positions_of_the_reference_service_repeat_and_never_skip() {
        let decode = |text: &str| StoredPosition::decode(&Position::copy_from(text.as_bytes())).ok();
        let changes = |end, ordinal| Some(StoredPosition::Foreign(ForeignPlace::Changes { end: Lsn(end), ordinal }));
        assert_eq!(decode(r#"{"type":2,"snapshots":{},"last_lsn":"0/10"}"#), changes(0x10, 0));
        assert_eq!(decode(r#"{"version":1,"type":2,"last_lsn":"0/10"}"#), changes(0x10, 0));
        let second = r#"{"version":2,"type":2,"last_lsn":"0/10","tx_commit_lsn":"0/11","tx_seq":4}"#;
        assert_eq!(decode(second), changes(0x11, 4));
        let snapshot = r#"{"type":1,"snapshots":{"t":{"last_read":5,"snapshot_end":9}},"last_lsn":"0/10"}"#;
        assert_eq!(decode(snapshot), Some(StoredPosition::Foreign(ForeignPlace::Snapshot)));
        for other in ["", "17", r#"{"type":2}"#, r#"{"type":7,"last_lsn":"0/10"}"#, r#"{"version":4,"type":9}"#] {
            assert_eq!(decode(other), None, "{other}");
        }
    }
}
