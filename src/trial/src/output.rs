//! Destinations that write JSON, one value per line: of records, and of dead letters.

use std::io::{self, ErrorKind, Write as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anabranch_plugin::destination::{Delivered, Destination, Retry, Verdicts, Write, WritePolicy, Writer};
use anabranch_plugin::host::Host;
use anabranch_process::files::system;
use anabranch_record::fault::Fault;
use anabranch_record::json::write_record;
use anabranch_record::{Data, Record};
use async_trait::async_trait;

use crate::codes;
use crate::stamp::Stamp;

/// A stream that lines are written to.
pub type Sink = Box<dyn io::Write + Send>;

/// Maximum rows and bytes of one write: large enough for few system calls, small enough for output to follow input
/// closely.
const WRITE_ROWS: usize = 1000;
const WRITE_BYTES: usize = 1 << 20;

/// Writes available records immediately: output pauses only when input does.
const POLICY: WritePolicy =
    WritePolicy { rows: WRITE_ROWS, bytes: WRITE_BYTES, linger: Duration::ZERO, retry: Retry::AtMostOnce };

/// The output of records.
pub struct Records {
    sink: Mutex<Sink>,
    stamp: Stamp,
    closed: AtomicBool,
}

impl Records {
    /// Creates an output that writes records to a stream without `stamp`.
    pub fn new(sink: Sink, stamp: Stamp) -> Self {
        Records { sink: Mutex::new(sink), stamp, closed: AtomicBool::new(false) }
    }

    /// Returns `true` if the reader of the stream is gone.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
}

/// [`Records`] as a destination.
pub struct RecordsDestination(pub Arc<Records>);

#[async_trait]
impl Destination for RecordsDestination {
    async fn open(&self, _: &Host) -> Result<Box<dyn Writer>, Fault> {
        Ok(Box::new(RecordsWriter { records: self.0.clone(), buffer: Vec::new() }))
    }

    fn policy(&self) -> WritePolicy {
        POLICY
    }
}

struct RecordsWriter {
    records: Arc<Records>,
    buffer: Vec<u8>,
}

#[async_trait]
impl Writer for RecordsWriter {
    async fn write(&mut self, Write { rows, .. }: Write<'_>) -> Result<Verdicts, Fault> {
        self.buffer.clear();
        let mut verdicts = Vec::with_capacity(rows.len());
        for row in rows {
            let mut row = row.clone();
            self.records.stamp.remove(&mut row.metadata);
            verdicts.push(write_record(&row, &mut self.buffer).map(|()| {
                self.buffer.push(b'\n');
                Delivered::Durable
            }));
        }
        let mut sink = self.records.sink.lock().unwrap_or_else(PoisonError::into_inner);
        sink.write_all(&self.buffer).and_then(|()| sink.flush()).map_err(|error| {
            if error.kind() == ErrorKind::BrokenPipe {
                self.records.closed.store(true, Ordering::Relaxed);
            }
            Fault::fatal(codes::OUTPUT_FAILED, format!("cannot write the output: {}", system(&error)))
        })?;
        Ok(Verdicts::Each(verdicts))
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

/// The output of dead letters.
pub struct DeadLetterOutput {
    sink: Mutex<Sink>,
    written: AtomicU64,
}

impl DeadLetterOutput {
    /// Creates an output that writes dead letters to a stream.
    pub fn new(sink: Sink) -> Self {
        DeadLetterOutput { sink: Mutex::new(sink), written: AtomicU64::new(0) }
    }

    /// Returns the number of dead letters so far.
    pub fn count(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Writes dead letters. If the reader is gone, failures are still counted and the trial continues.
    ///
    /// # Errors
    /// The stream cannot be written.
    pub fn write(&self, letters: &[Record]) -> Result<(), Fault> {
        let mut text = Vec::new();
        for letter in letters {
            if let Err(fault) = write_record(letter, &mut text) {
                // A record that cannot be written is replaced, so that the dead letter itself is written.
                let mut letter = letter.clone();
                letter.payload.after = Data::text(format!("the record cannot be shown: {}", fault.message()));
                write_record(&letter, &mut text)?;
            }
            text.push(b'\n');
        }
        self.written.fetch_add(letters.len() as u64, Ordering::Relaxed);
        let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        match sink.write_all(&text).and_then(|()| sink.flush()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(Fault::fatal(codes::OUTPUT_FAILED, format!("cannot write the errors: {}", system(&error))))
            }
            _ => Ok(()),
        }
    }
}

/// [`DeadLetterOutput`] as a destination.
pub struct LettersDestination(pub Arc<DeadLetterOutput>);

#[async_trait]
impl Destination for LettersDestination {
    async fn open(&self, _: &Host) -> Result<Box<dyn Writer>, Fault> {
        Ok(Box::new(LettersWriter(self.0.clone())))
    }

    fn policy(&self) -> WritePolicy {
        POLICY
    }
}

struct LettersWriter(Arc<DeadLetterOutput>);

#[async_trait]
impl Writer for LettersWriter {
    async fn write(&mut self, Write { rows, .. }: Write<'_>) -> Result<Verdicts, Fault> {
        self.0.write(rows)?;
        Ok(Verdicts::All(Delivered::Durable))
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}
