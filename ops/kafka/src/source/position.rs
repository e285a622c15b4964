//! Positions: the partition and offset of a record, with what identifies the log that it came from.
//!
//! The JSON text is a superset of the positions of the reference service: `GroupID`, `Topic`, `Partition`, `Offset`.

use anabranch_record::Position;
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use crate::codes;
use crate::group::TopicPartition;

/// Where a partition is, without an offset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LogPosition {
    /// Id of the consumer group.
    #[serde(rename = "GroupID", default)]
    pub(super) group: Str,
    /// Name of the topic.
    #[serde(rename = "Topic", default)]
    pub(super) topic: Str,
    /// Number of the partition.
    #[serde(rename = "Partition", default)]
    pub(super) partition: i32,
    /// Id of the topic in hexadecimal; empty if unknown. A topic that is created again has another one.
    #[serde(rename = "TopicID", default, skip_serializing_if = "is_unknown")]
    pub(super) topic_id: Str,
    /// Id of the source that made the position; empty in a position of the reference service.
    #[serde(rename = "Source", default, skip_serializing_if = "is_unknown")]
    pub(super) source: Str,
    /// Epoch of the leader that wrote the record; -1 if unknown. A log that has another epoch there lost the record.
    #[serde(rename = "LeaderEpoch", default = "no_epoch", skip_serializing_if = "is_no_epoch")]
    pub(super) leader_epoch: i32,
    /// Offset of the last record that was read; -1 before the first.
    #[serde(rename = "Offset", default)]
    pub(super) offset: i64,
}

fn is_unknown(text: &Str) -> bool {
    text.is_empty()
}

fn no_epoch() -> i32 {
    -1
}

fn is_no_epoch(epoch: &i32) -> bool {
    *epoch < 0
}

impl LogPosition {
    /// Reads a position.
    ///
    /// # Errors
    /// It is not a position of this source.
    pub(super) fn decode(position: &Position) -> Result<LogPosition, Fault> {
        serde_json::from_slice(&position.0).map_err(|_| {
            let text = "the stored position is not one of a kafka source";
            Fault::fatal(codes::POSITION_UNKNOWN, text)
        })
    }

    /// Returns the partition.
    pub(super) fn at(&self) -> TopicPartition {
        TopicPartition { topic: self.topic.clone(), partition: self.partition }
    }

    /// Returns `true` if this source made the position, so that its offset counts.
    pub(super) fn is_of(&self, source: &str) -> bool {
        self.source == source
    }
}

/// Encodes the positions of a partition.
#[derive(Clone, Debug)]
pub(super) struct PositionEncoder {
    position: LogPosition,
    /// The text before the offset.
    head: Bytes,
}

impl PositionEncoder {
    /// Returns the encoder for positions like `position`, with other offsets.
    pub(super) fn new(position: LogPosition) -> PositionEncoder {
        let position = LogPosition { offset: 0, ..position };
        let text = serde_json::to_string(&position).unwrap_or_default();
        // The offset is the last field.
        PositionEncoder { position, head: Bytes::copy_from_slice(text.trim_end_matches("0}").as_bytes()) }
    }

    /// Sets the epoch of the positions that follow.
    pub(super) fn set_epoch(&mut self, epoch: i32) {
        if self.position.leader_epoch != epoch {
            *self = PositionEncoder::new(LogPosition { leader_epoch: epoch, ..self.position.clone() });
        }
    }

    /// Returns the position of an offset. Positions that are made one after the other share one allocation.
    pub(super) fn encode(&self, offset: i64, buffer: &mut BytesMut) -> Position {
        buffer.extend_from_slice(&self.head);
        buffer.extend_from_slice(itoa::Buffer::new().format(offset).as_bytes());
        buffer.extend_from_slice(b"}");
        Position(buffer.split().freeze())
    }

    /// Returns the position of an offset.
    pub(super) fn one(&self, offset: i64) -> Position {
        self.encode(offset, &mut BytesMut::with_capacity(self.head.len() + 24))
    }

    /// Returns the room that `count` positions take.
    pub(super) fn room(&self, count: usize) -> usize {
        (self.head.len() + 20) * count
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn positions_survive(
            (group, topic, source) in (".*", ".*", ".+"),
            (partition, epoch, offset) in (0i32.., -1i32.., -1i64..),
        ) {
            let position = LogPosition {
                group: group.into(),
                topic: topic.into(),
                partition,
                topic_id: "00ff".into(),
                source: source.as_str().into(),
                leader_epoch: epoch,
                offset,
            };
            let mut positions = PositionEncoder::new(LogPosition { leader_epoch: -1, ..position.clone() });
            positions.set_epoch(epoch);
            prop_assert_eq!(LogPosition::decode(&positions.one(offset)).unwrap(), position.clone());
            prop_assert!(position.is_of(&source));
        }
    }

    #[test]
    fn positions_of_the_reference_service_are_understood() {
        let text = br#"{"GroupID":"g","Topic":"t","Partition":3,"Offset":17}"#;
        let position = LogPosition::decode(&Position::copy_from(text)).unwrap();
        assert_eq!((position.group.as_str(), position.at().to_string().as_str(), position.offset), ("g", "t/3", 17));
        assert_eq!(position.leader_epoch, -1);
        assert!(!position.is_of("p/c"));
        assert!(LogPosition::decode(&Position::copy_from(b"17")).is_err());
    }
}
