//! A source of JSON records, one per line.
//!
//! A thread reads the stream and parses complete lines. At most a few blocks of lines wait, so memory is bounded for
//! streams of any length. A line that is not a valid record becomes a dead letter, and reading continues.

use std::collections::{BTreeMap, VecDeque};
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, PoisonError};

use anabranch_plugin::host::Host;
use anabranch_plugin::source::{Acker, OpenedSource, Read, Reader, Room, Source};
use anabranch_process::files::system;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{Mark, Partition};
use anabranch_record::metadata::key;
use anabranch_record::text::Str;
use anabranch_record::{Data, Position, Record};
use async_trait::async_trait;
use tokio::sync::mpsc;

use crate::codes;
use crate::output::DeadLetterOutput;
use crate::stamp::Stamp;

/// Bytes of one read of the stream.
const READ_BYTES: usize = 64 << 10;
/// Maximum bytes of a line; a longer one is an error and skipped.
const MAX_LINE_BYTES: usize = 32 << 20;
/// Maximum number of blocks of lines that wait for the graph.
const WAITING: usize = 4;

/// A stream of lines.
pub type Stream = Box<dyn std::io::Read + Send>;

/// The source. It can be opened only once: a stream has no positions.
pub struct StreamLines {
    stream: Mutex<Option<Stream>>,
    stamp: Stamp,
    letters: Arc<DeadLetterOutput>,
}

impl StreamLines {
    /// Creates a source from a stream; invalid lines go to `letters`.
    pub fn new(stream: Stream, stamp: Stamp, letters: Arc<DeadLetterOutput>) -> Self {
        StreamLines { stream: Mutex::new(Some(stream)), stamp, letters }
    }
}

#[async_trait]
impl Source for StreamLines {
    fn catches_up(&self) -> bool {
        true
    }

    async fn open(&self, _: &BTreeMap<Partition, Mark>, _: &Host) -> Result<OpenedSource, Fault> {
        let stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(stream) = stream else {
            return Err(Fault::fatal(codes::STREAM_USED, "the input can be read only once"));
        };
        let (sender, blocks) = mpsc::channel(WAITING);
        let stamp = self.stamp.clone();
        // Not joined: it may wait for input that never comes. It ends with the stream, or with the process.
        std::thread::Builder::new()
            .name("input".into())
            .spawn(move || pump(stream, &stamp, &sender))
            .map_err(|error| Fault::fatal(codes::NO_THREAD, system(&error)))?;
        let reader = LineReader { blocks, waiting: VecDeque::new(), letters: self.letters.clone() };
        Ok(OpenedSource::new(Box::new(reader), Box::new(Unacknowledged)))
    }
}

/// Ignores acknowledgements.
pub(super) struct Unacknowledged;

#[async_trait]
impl Acker for Unacknowledged {
    async fn ack(&mut self, _: &Partition, _: &[Position]) -> Result<(), Fault> {
        Ok(())
    }
}

type Block = Result<Vec<Line>, std::io::Error>;

enum Line {
    Record(Record),
    Letter(Box<Record>),
}

struct LineReader {
    blocks: mpsc::Receiver<Block>,
    waiting: VecDeque<Line>,
    letters: Arc<DeadLetterOutput>,
}

#[async_trait]
impl Reader for LineReader {
    async fn read(&mut self, room: Room) -> Result<Read, Fault> {
        loop {
            let mut records = Vec::new();
            let mut bytes = 0;
            while let Some(line) = self.waiting.pop_front() {
                match line {
                    Line::Letter(letter) => self.letters.write(&[*letter])?,
                    Line::Record(record) => {
                        bytes += record.weight();
                        if !records.is_empty() && (records.len() >= room.rows || bytes > room.bytes) {
                            self.waiting.push_front(Line::Record(record));
                            break;
                        }
                        records.push(record);
                    }
                }
            }
            if !records.is_empty() {
                return Ok(Read::Rows { partition: Partition::ONLY, records });
            }
            match self.blocks.recv().await {
                None => return Ok(Read::End),
                Some(Ok(lines)) => self.waiting = lines.into(),
                Some(Err(error)) => {
                    return Err(Fault::fatal(
                        codes::INPUT_FAILED,
                        format!("cannot read the input: {}", system(&error)),
                    ));
                }
            }
        }
    }
}

/// Reads and parses until the stream ends or the receiver is gone.
fn pump(mut stream: Stream, stamp: &Stamp, blocks: &mpsc::Sender<Block>) {
    let mut parser = Parser { stamp, number: 0, skipping: false };
    let mut buffer = Vec::with_capacity(READ_BYTES);
    loop {
        let before = buffer.len();
        match read_more(&mut *stream, &mut buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => {
                let _ = blocks.blocking_send(Err(error));
                return;
            }
            Ok(0) => {
                let mut lines = Vec::new();
                parser.line(&buffer, &mut lines);
                if !lines.is_empty() {
                    let _ = blocks.blocking_send(Ok(lines));
                }
                return;
            }
            Ok(_) => {}
        }
        let mut lines = Vec::new();
        let end = buffer[before..].iter().rposition(|byte| *byte == b'\n').map(|at| before + at);
        if let Some(end) = end {
            buffer[..end].split(|byte| *byte == b'\n').for_each(|line| parser.line(line, &mut lines));
            buffer.drain(..=end);
        }
        if buffer.len() > MAX_LINE_BYTES {
            parser.too_long(&mut lines);
            buffer = Vec::with_capacity(READ_BYTES);
        }
        if !lines.is_empty() && blocks.blocking_send(Ok(lines)).is_err() {
            return;
        }
    }
}

/// Reads once, and appends to a vector.
fn read_more(stream: &mut dyn std::io::Read, buffer: &mut Vec<u8>) -> std::io::Result<usize> {
    let before = buffer.len();
    buffer.resize(before + READ_BYTES, 0);
    let read = stream.read(&mut buffer[before..]);
    buffer.truncate(before + read.as_ref().copied().unwrap_or(0));
    read
}

struct Parser<'a> {
    stamp: &'a Stamp,
    number: u64,
    /// True within a line that is too long.
    skipping: bool,
}

impl Parser<'_> {
    fn line(&mut self, text: &[u8], lines: &mut Vec<Line>) {
        if std::mem::take(&mut self.skipping) {
            return;
        }
        self.number += 1;
        if text.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        lines.push(match Record::from_json(text) {
            Ok(record) => Line::Record(self.given(record)),
            Err(error) => self.letter(&error.to_string(), text),
        });
    }

    /// Completes a record; without a position it gets its line number.
    fn given(&self, mut record: Record) -> Record {
        self.stamp.put(&mut record.metadata);
        match record.position().0.is_empty() {
            true => record.with_position(self.position()),
            false => record,
        }
    }

    fn position(&self) -> Position {
        Position::copy_from(self.number.to_string().as_bytes())
    }

    fn too_long(&mut self, lines: &mut Vec<Line>) {
        if !std::mem::replace(&mut self.skipping, true) {
            self.number += 1;
            let error = format!("it is longer than {} MiB", MAX_LINE_BYTES >> 20);
            lines.push(self.letter(&error, b""));
        }
    }

    fn letter(&self, error: &str, text: &[u8]) -> Line {
        let after = if text.is_empty() { Data::Absent } else { Data::Raw(bytes::Bytes::copy_from_slice(text)) };
        let name = format!("{}/line {}", self.stamp.connector, self.number);
        let mut letter = Record::create(self.position(), Data::text(name), after);
        let message = format!("line {} is not a record: {error}", self.number);
        letter.metadata.insert(key::DLQ_NACK_ERROR, message);
        letter.metadata.insert(key::DLQ_NACK_CODE, Str::from_static(codes::INVALID_LINE.name()));
        letter.metadata.insert(key::SOURCE_CONNECTOR_ID, self.stamp.connector.clone());
        Line::Letter(Box::new(letter))
    }
}
