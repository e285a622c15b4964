//! Records of standard input.

pub(super) mod held;

use std::io::{self, Read as _};
use std::sync::Arc;

use anabranch_plugin::source::{Read, Reader, Room};
use anabranch_record::fault::Fault;
use anabranch_record::mark::Partition;
use anabranch_record::metadata::{Metadata, key};
use anabranch_record::text::Str;
use anabranch_record::{Data, Position, Record};
use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::mpsc::{Receiver, channel};

use super::partition::{FileFormat, header};
use crate::arena::Arena;
use crate::codes;
use crate::file::compression::{Codec, Compression, Decompressor};
use crate::file::content_position::{ContentPosition, LONGEST};
use crate::file::framing::{Frame, Framer};

/// Bytes per read, and number of reads ahead of the records.
const CHUNK: usize = 128 << 10;
const AHEAD: usize = 2;

/// Maximum number of records per read.
const LONGEST_READ: usize = 4096;

/// Reader of standard input.
pub(super) struct StandardInput {
    format: Arc<FileFormat>,
    chunks: Receiver<io::Result<Vec<u8>>>,
    framer: Framer,
    /// Bytes that do not show the compression yet.
    undecided: Option<Vec<u8>>,
    decompressor: Option<(Codec, Decompressor)>,
    /// Content that was not delivered yet, from `at` on.
    buffer: Vec<u8>,
    at: usize,
    /// A record for which the last read had no room.
    held: Option<Record>,
    /// The fault after the records that were read last. No record follows it.
    failure: Option<Fault>,
    has_ended: bool,
    place: ContentPosition,
    header_due: bool,
    metadata: Metadata,
    arena: Arena,
}

impl StandardInput {
    /// Starts to read. A thread of its own reads, because a read cannot be interrupted; the end of the process ends it.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn start(format: Arc<FileFormat>) -> Result<Self, Fault> {
        let (to, chunks) = channel(AHEAD);
        let thread = std::thread::Builder::new().name("anabranch-stdin".to_owned());
        let started = thread.spawn(move || {
            let mut input = io::stdin().lock();
            loop {
                let mut chunk = vec![0; CHUNK];
                let read = match input.read(&mut chunk) {
                    Ok(0) => return,
                    Ok(got) => {
                        chunk.truncate(got);
                        Ok(chunk)
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => Err(error),
                };
                let has_failed = read.is_err();
                if to.blocking_send(read).is_err() || has_failed {
                    return;
                }
            }
        });
        started.map_err(|error| Fault::transient(codes::FILE_UNREADABLE, error))?;
        Ok(StandardInput::reading(format, chunks))
    }

    fn reading(format: Arc<FileFormat>, chunks: Receiver<io::Result<Vec<u8>>>) -> Self {
        let mut metadata = Metadata::with_capacity(4);
        metadata.insert(key::FILE_PATH, Str::from_static(super::STANDARD_INPUT));
        StandardInput {
            framer: Framer::new(format.framing.clone()),
            undecided: Some(Vec::new()),
            decompressor: None,
            chunks,
            buffer: Vec::new(),
            at: 0,
            held: None,
            failure: None,
            has_ended: false,
            place: ContentPosition::start(0, 0),
            header_due: format.has_header,
            metadata,
            arena: Arena::default(),
            format,
        }
    }

    /// Adds bytes of the input to the content.
    fn add(&mut self, bytes: &[u8], is_last: bool) -> Result<(), Fault> {
        self.buffer.drain(..self.at);
        self.at = 0;
        if let Some(mut undecided) = self.undecided.take() {
            undecided.extend_from_slice(bytes);
            let codec = match self.format.compression {
                Compression::None => None,
                Compression::Always(codec) => Some(codec),
                Compression::Auto if !is_last && Codec::may_follow(&undecided) => {
                    self.undecided = Some(undecided);
                    return Ok(());
                }
                Compression::Auto => Codec::of_start(&undecided),
            };
            let decompressor = codec.map(|codec| Ok((codec, Decompressor::new(codec)?))).transpose();
            self.decompressor = decompressor.map_err(|error: io::Error| unreadable(&error))?;
            return self.add(&undecided, is_last);
        }
        let Some((_, decompressor)) = &mut self.decompressor else {
            self.buffer.extend_from_slice(bytes);
            return Ok(());
        };
        decompressor.push(bytes);
        Ok(())
    }

    /// Decompresses the next bytes that are there. Returns `false` if more input is needed.
    fn decompress(&mut self) -> Result<bool, Fault> {
        let Some((codec, decompressor)) = &mut self.decompressor else { return Ok(false) };
        self.buffer.drain(..self.at);
        self.at = 0;
        let is_more = decompressor.pull(&mut self.buffer, CHUNK).map_err(|error| {
            let what = format!("standard input: the {codec} data is damaged: {error}");
            Fault::fatal(codes::FILE_CORRUPT, what)
        })?;
        if !is_more && self.has_ended && decompressor.is_inside() {
            let what = format!("standard input ends in the middle of {codec} data: the rest is missing");
            return Err(Fault::fatal(codes::FILE_TRUNCATED, what));
        }
        Ok(is_more)
    }

    /// Returns the records that are there, up to the limits of `room`.
    fn records(&mut self, room: Room) -> Result<Vec<Record>, Fault> {
        let mut records: Vec<Record> = self.held.take().into_iter().collect();
        let mut bytes = records.first().map_or(0, Record::weight);
        while records.len() < room.rows.clamp(1, LONGEST_READ) {
            let content = &self.buffer[self.at..];
            let is_drained = self.has_ended && self.undecided.is_none();
            let frame = match self.framer.next(content) {
                None if is_drained && self.decompressor.is_none() => self.framer.last(content),
                frame => frame,
            };
            let Some(Frame { payload, len }) = frame else {
                if content.len() > self.format.limit && records.is_empty() {
                    return Err(self.too_long(self.place.record + 1));
                }
                break;
            };
            let is_header = payload.is_some() && std::mem::take(&mut self.header_due);
            let payload = payload.map(|payload| self.at + payload.start..self.at + payload.end);
            self.at += len;
            self.place.advance(&self.buffer[..self.at], len, payload.is_some() && !is_header);
            let Some(payload) = payload.map(|payload| &self.buffer[payload]) else { continue };
            if payload.len() > self.format.limit {
                let fault = self.too_long(self.place.record.max(1));
                if records.is_empty() {
                    return Err(fault);
                }
                // First the records before it.
                self.failure = Some(fault);
                break;
            }
            if is_header {
                self.metadata.insert(key::FILE_HEADER, header(payload));
                continue;
            }
            let payload = Bytes::copy_from_slice(payload);
            let mut encoded = [0; LONGEST];
            let end = self.place.encode(&mut encoded);
            let position = Position(self.arena.copy(&encoded[..end]));
            let number = self.arena.copy(itoa::Buffer::new().format(self.place.record).as_bytes());
            let mut record = Record::create(position, Data::Raw(number), Data::Raw(payload));
            record.metadata = self.metadata.clone();
            bytes += record.weight();
            if bytes > room.bytes && !records.is_empty() {
                self.held = Some(record);
                break;
            }
            records.push(record);
        }
        Ok(records)
    }

    /// Returns the next records.
    async fn next(&mut self, room: Room) -> Result<Read, Fault> {
        loop {
            let records = self.records(room)?;
            if !records.is_empty() {
                return Ok(Read::Rows { partition: Partition::ONLY, records });
            }
            if self.decompress()? {
                continue;
            }
            if self.has_ended {
                if self.decompressor.take().is_some() {
                    // The rest of the content is a record.
                    continue;
                }
                return Ok(Read::End);
            }
            match self.chunks.recv().await {
                Some(Ok(chunk)) => self.add(&chunk, false)?,
                Some(Err(error)) => return Err(unreadable(&error)),
                None => {
                    self.has_ended = true;
                    self.add(&[], true)?;
                }
            }
        }
    }

    fn too_long(&self, record: u64) -> Fault {
        let what = format!(
            "record {record} of standard input is longer than {} bytes; raise maxLineBytes to read it",
            self.format.limit
        );
        Fault::fatal(codes::LINE_TOO_LONG, what)
    }
}

fn unreadable(error: &io::Error) -> Fault {
    Fault::fatal(codes::FILE_UNREADABLE, format!("cannot read standard input: {error}"))
}

#[async_trait]
impl Reader for StandardInput {
    async fn read(&mut self, room: Room) -> Result<Read, Fault> {
        if let Some(fault) = self.failure.clone() {
            return Err(fault);
        }
        let read = self.next(room).await;
        if let Err(fault) = &read {
            self.failure = Some(fault.clone());
        }
        read
    }
}

#[cfg(test)]
mod tests;
