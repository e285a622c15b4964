//! Records of the content that was read.

use std::ops::Range;

use anabranch_plugin::source::Room;
use anabranch_record::fault::Fault;
use anabranch_record::metadata::key;
use anabranch_record::{Data, Position, Record};
use bytes::Bytes;

use super::opening::header;
use super::{FilePartition, PartitionStep};
use crate::file::content_position::{After, ContentPosition, LONGEST, TRAIL};
use crate::file::framing::{Framer, Framing};

/// Maximum number of records per read.
const LONGEST_READ: usize = 4096;

impl FilePartition {
    /// Returns the records that are complete, up to the limits of `room`.
    pub(super) fn records(&mut self, room: Room) -> Result<Vec<Record>, Fault> {
        let (most, mut bytes) = (room.rows.clamp(1, LONGEST_READ), 0);
        // The places after the records, and their bytes in the buffer.
        let mut found: Vec<(ContentPosition, Range<usize>)> = Vec::new();
        while found.len() < most {
            let content = &self.buffer[self.at..];
            let Some(frame) = self.framer.next(content) else {
                if content.len() > self.format.limit && found.is_empty() {
                    return Err(self.too_long());
                }
                break;
            };
            let Some(payload) = frame.payload else {
                self.advance(frame.len, false);
                continue;
            };
            if payload.len() > self.format.limit {
                if found.is_empty() {
                    return Err(self.too_long());
                }
                self.frame_again();
                break;
            }
            if std::mem::take(&mut self.header_due) {
                self.metadata.insert(key::FILE_HEADER, header(&content[payload]));
                self.advance(frame.len, false);
                continue;
            }
            if let After::Rest(rest) = self.place.after
                && (payload.end as u64..=frame.len as u64).contains(&rest)
            {
                // It was delivered before its end was there.
                self.advance(frame.len, true);
                continue;
            }
            let weight = size_of::<Record>() + self.metadata.weight() + LONGEST + payload.len();
            if bytes + weight > room.bytes && !found.is_empty() {
                self.frame_again();
                break;
            }
            bytes += weight;
            let payload = self.at + payload.start..self.at + payload.end;
            self.advance(frame.len, true);
            found.push((self.place, payload));
        }
        let (Some((_, first)), Some((_, last))) = (found.first(), found.last()) else { return Ok(Vec::new()) };
        // The records of a read share a copy of the content.
        let start = first.start;
        let copy = Bytes::copy_from_slice(&self.buffer[start..last.end]);
        let mut records = Vec::with_capacity(found.len());
        for (place, payload) in found {
            records.push(self.record(
                &place,
                place.record,
                Data::Raw(copy.slice(payload.start - start..payload.end - start)),
            ));
        }
        self.delivered = records.last().map(|last| last.position().clone());
        Ok(records)
    }

    /// Lets the framer find the record at the place once more.
    pub(super) fn frame_again(&mut self) {
        let is_first = self.place.offset == 0;
        match is_first {
            true => self.framer = Framer::new(self.format.framing.clone()),
            false => self.framer.resume(self.place.in_array),
        }
    }

    /// Moves past a piece of the buffer.
    pub(super) fn advance(&mut self, len: usize, is_record: bool) {
        self.at += len;
        let seen = &self.buffer[self.at.saturating_sub(len.max(TRAIL))..self.at];
        self.place.advance(seen, len, is_record);
        self.place.in_array = self.framer.is_in_array();
    }

    /// Builds the record that ends at `place`.
    pub(super) fn record(&mut self, place: &ContentPosition, number: u64, payload: Data) -> Record {
        let mut room = [0; LONGEST + 20];
        let end = place.encode(&mut room);
        if matches!(self.format.framing, Framing::Whole) {
            let position = Position(self.arena.copy(&room[..end]));
            let key = Data::text(self.shown.as_str());
            return self.with_metadata(Record::create(position, key, payload));
        }
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(number).as_bytes();
        room[end..end + digits.len()].copy_from_slice(digits);
        let mut position = self.arena.copy(&room[..end + digits.len()]);
        let key = position.split_off(end);
        self.with_metadata(Record::create(Position(position), Data::Raw(key), payload))
    }

    pub(super) fn with_metadata(&self, mut record: Record) -> Record {
        record.metadata = self.metadata.clone();
        record
    }

    /// Delivers the rest of the file.
    pub(super) fn last(&mut self, rest: usize) -> Result<PartitionStep, Fault> {
        if rest > self.format.limit {
            return Err(self.too_long());
        }
        let Some(frame) = self.framer.last(&self.buffer[self.at..]) else { return Ok(PartitionStep::Busy) };
        let Some(payload) = frame.payload else {
            self.advance(frame.len, false);
            return Ok(PartitionStep::Busy);
        };
        let bytes = Data::Raw(Bytes::copy_from_slice(&self.buffer[self.at..][payload]));
        let record = if frame.len < rest {
            self.advance(frame.len, true);
            let place = self.place;
            self.record(&place, place.record, bytes)
        } else {
            let place = self.place.with_rest(&self.buffer, rest);
            self.place.after = place.after;
            self.frame_again();
            self.record(&place, place.record + 1, bytes)
        };
        self.delivered = Some(record.position().clone());
        Ok(PartitionStep::Records(vec![record]))
    }
}
