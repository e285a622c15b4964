//! Rows of a Parquet file. The end of such a file says where its rows are, so a file is read when it is complete.

use std::collections::VecDeque;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Instant;

use anabranch_plugin::source::Room;
use anabranch_record::fault::Fault;
use anabranch_record::value::Object;
use anabranch_record::{Data, Record};

use super::{Begin, FilePartition, GRACE, PartitionStep, unreadable};
use crate::codes;
use crate::file::compression::Compression;
use crate::file::content::{Content, ContentError};
use crate::file::content_position::{After, ContentPosition, TRAIL};
use crate::file::position::{HEAD, born, identity};
use crate::file::table::{MAGIC, SHORTEST_END, TableError, TableReader};

/// Maximum number of records per read.
const LONGEST_READ: usize = 4096;

/// A table that is open.
pub(super) struct OpenTable {
    reader: TableReader,
    /// Rows that were decoded and not delivered.
    decoded: VecDeque<Object>,
    /// Length of the file.
    len: u64,
}

impl FilePartition {
    /// Reads further in a table.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn step_rows(&mut self, room: Room, now: Instant) -> Result<PartitionStep, Fault> {
        if self.table.is_none()
            && let Some(step) = self.open_table(now)?
        {
            return Ok(step);
        }
        let Some(table) = &mut self.table else { return Ok(PartitionStep::Busy) };
        if table.decoded.is_empty() {
            match table.reader.next_rows() {
                Ok(rows) => table.decoded = rows.into(),
                Err(error) => return self.undecodable(error),
            }
        }
        if table.decoded.is_empty() {
            return Ok(self.table_end());
        }
        Ok(PartitionStep::Records(self.row_records(room)))
    }

    /// Returns the decoded rows as records, up to the limits of `room`.
    fn row_records(&mut self, room: Room) -> Vec<Record> {
        let (most, mut bytes, mut records) = (room.rows.clamp(1, LONGEST_READ), 0, Vec::new());
        while records.len() < most {
            let Some(row) = self.table.as_mut().and_then(|table| table.decoded.pop_front()) else { break };
            let mut place = self.place;
            place.record += 1;
            let record = self.record(&place, place.record, Data::Structured(Arc::new(row)));
            bytes += record.weight();
            if bytes > room.bytes && !records.is_empty() {
                if let (Data::Structured(row), Some(table)) = (record.payload.after, &mut self.table) {
                    table.decoded.push_front(Arc::unwrap_or_clone(row));
                }
                break;
            }
            self.place = place;
            records.push(record);
        }
        if let Some(table) = &self.table {
            let read = u128::from(table.len) * u128::from(self.place.record) / u128::from(table.reader.rows().max(1));
            self.passed = u64::try_from(read).unwrap_or(table.len).min(table.len);
        }
        self.delivered = records.last().map(|last| last.position().clone());
        records
    }

    /// Handles the end of a table. A complete file does not grow.
    fn table_end(&mut self) -> PartitionStep {
        if let Some(table) = self.table.take() {
            self.passed = table.len;
        }
        if self.replaced.is_some() { self.leave() } else { PartitionStep::AtEnd }
    }

    /// Opens the table at the place of the last record. Returns `None` if its rows can be read.
    fn open_table(&mut self, now: Instant) -> Result<Option<PartitionStep>, Fault> {
        let shown = self.shown.clone();
        let failed = |error: io::Error| unreadable(&shown, &error);
        let file = match self.file.clone() {
            Some(file) => file,
            None => match self.find(now).map_err(failed)? {
                Some(file) => file,
                None => return Ok(Some(PartitionStep::Gone)),
            },
        };
        let metadata = file.metadata().map_err(failed)?;
        self.file = Some(file.clone());
        let of = (identity(&metadata), born(&metadata));
        let resume = self.resume().filter(|resume| !(resume.is_at_start() && resume.is_of(of.0, of.1)));
        if resume.is_none() {
            // A table that was damaged before its first row may be another one.
            (self.resume, self.place) = (None, ContentPosition::start(of.0, of.1));
        }
        if let Some(resume) = resume {
            let is_same = resume.is_of(of.0, of.1);
            let opened = match metadata.len() == resume.offset && !resume.is_at_start() {
                true => Content::resume(file.clone(), Compression::None, &resume, 0),
                false => Ok(None),
            };
            match opened {
                Ok(Some(opened)) => {
                    self.place = opened.place;
                    self.place.after = After::Nothing;
                }
                Ok(None) => {
                    if is_same {
                        self.warn_once("cut", "was rewritten since it was read: reading it from its start");
                    } else {
                        self.missed += 1;
                        self.warnings.push(format!(
                            "{} was replaced since it was read, and the file that was read is gone: if it had records \
                             after number {}, they are lost; reading the new file from its start",
                            self.shown, resume.record
                        ));
                    }
                    self.start_over();
                    self.file = Some(file.clone());
                }
                Err(ContentError::Io(error) | ContentError::Corrupt { error, .. }) => return Err(failed(error)),
            }
        }
        // Every place in a table is at its end.
        if self.place.offset == 0 {
            if let Some(step) = self.unfinished(&file, &metadata, now).map_err(failed)? {
                return Ok(Some(step));
            }
            self.place = start_of(&file, &metadata).map_err(failed)?;
        }
        self.is_unfinished = false;
        let input = file.try_clone().map_err(failed)?;
        let reader = match TableReader::open(input, self.place.record) {
            Ok(reader) => reader,
            Err(error) => return self.undecodable(error).map(Some),
        };
        self.resume = None;
        if self.begin == Begin::End && self.delivered.is_none() {
            self.begin = Begin::Beginning;
            self.place.record = reader.rows();
            self.passed = metadata.len();
            let position = self.place.position();
            self.delivered = Some(position.clone());
            return Ok(Some(PartitionStep::Moved(position)));
        }
        self.table = Some(OpenTable { reader, decoded: VecDeque::new(), len: metadata.len() });
        Ok(None)
    }

    /// Returns what to do if the file does not end like a table, because it is still written.
    fn unfinished(&mut self, file: &File, metadata: &Metadata, now: Instant) -> io::Result<Option<PartitionStep>> {
        let length = metadata.len();
        if length == 0 {
            // The path may lead to another file when there is more.
            self.file = None;
            return Ok(Some(PartitionStep::AtEnd));
        }
        let mut end = [0; 4];
        if length >= SHORTEST_END {
            file.read_exact_at(&mut end, length - 4)?;
        }
        // The end of an encrypted file has another last letter.
        if end[..3] == MAGIC[..3] {
            return Ok(None);
        }
        self.place = ContentPosition::start(identity(metadata), born(metadata));
        let since = self.quiet_since(length, now);
        if self.replaced.is_some_and(|replaced| now.duration_since(replaced.max(since)) >= GRACE) {
            self.missed += 1;
            self.warnings.push(format!("{} was not a complete Parquet file, and was replaced: it is lost", self.shown));
            return Ok(Some(self.leave()));
        }
        Ok(Some(match since + self.format.settling > now {
            true => PartitionStep::Waiting(since + self.format.settling),
            false => {
                self.is_unfinished = true;
                self.warn_once("incomplete", "does not end like a Parquet file: waiting for the rest of it");
                PartitionStep::Incomplete
            }
        }))
    }

    /// Handles rows that cannot be decoded.
    fn undecodable(&mut self, error: TableError) -> Result<PartitionStep, Fault> {
        let (code, error) = match error {
            TableError::Io(error) => return Err(unreadable(&self.shown, &error)),
            TableError::Corrupt(why) => (codes::FILE_CORRUPT, why),
            TableError::Unsupported(why) => (codes::FILE_UNSUPPORTED, why),
        };
        if self.replaced.is_some() {
            self.missed += 1;
            self.warnings.push(format!("{}: {error}, and the file was replaced: the rest is lost", self.shown));
            return Ok(self.leave());
        }
        let message = format!(
            "{}: {error}; the {} records before it were read; replace the file with a good copy, and reading continues there",
            self.shown, self.place.record
        );
        Ok(self.damaged(code, message))
    }
}

/// Returns the place before the first row of a table.
fn start_of(file: &File, metadata: &Metadata) -> io::Result<ContentPosition> {
    let len = metadata.len();
    let mut start = vec![0; usize::try_from(len).unwrap_or(HEAD).min(HEAD)];
    file.read_exact_at(&mut start, 0)?;
    let mut end = vec![0; usize::try_from(len).unwrap_or(TRAIL).min(TRAIL)];
    let last = len - end.len() as u64;
    file.read_exact_at(&mut end, last)?;
    Ok(ContentPosition::of_table((identity(metadata), born(metadata)), len, &start, &end))
}
