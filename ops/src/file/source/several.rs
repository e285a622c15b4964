//! The reader of the files of a source.

use anabranch_plugin::source::{Backlog, Read, Reader, Room};
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use async_trait::async_trait;
use tokio::time::{Instant, sleep_until};

use super::partitions::{FilePartitions, SetStep};
use crate::codes;
use crate::offload::Offload;

/// Reads the partitions of a source on a blocking thread.
pub(super) struct SeveralFiles {
    path: Str,
    input: Offload<FilePartitions, Result<Option<SetStep>, Fault>>,
    /// Records for which the last call had no room.
    waiting: Option<Read>,
    /// True if `CaughtUp` was returned since the last record.
    said: bool,
    /// The unread part at the last call, which is the answer while a thread reads.
    backlog: Backlog,
    is_empty: bool,
    left: Option<String>,
}

impl SeveralFiles {
    pub(super) fn new(path: Str, files: FilePartitions) -> Self {
        SeveralFiles {
            path,
            input: Offload::Here(files),
            waiting: None,
            said: false,
            backlog: Backlog::default(),
            is_empty: true,
            left: None,
        }
    }

    /// Searches for the files, so that an unreadable one is reported when the source is opened.
    pub(super) async fn begin(&mut self) -> Result<(), Fault> {
        self.run(|files| files.begin().map(|()| None)).await.map(drop)
    }

    async fn run(
        &mut self,
        work: impl FnOnce(&mut FilePartitions) -> Result<Option<SetStep>, Fault> + Send + 'static,
    ) -> Result<Option<SetStep>, Fault> {
        let step = self.input.run(work).await.map_err(|e| Fault::fatal(codes::FILE_UNREADABLE, e))?;
        if let Some(files) = self.input.here() {
            self.backlog = files.backlog();
            (self.is_empty, self.left) = (files.is_empty(), files.left());
        }
        step
    }

    /// Returns as many records as there is room for. The others wait for the next call: a call that was dropped may have
    /// had more room.
    fn fitting(&mut self, read: Read, room: Room) -> Read {
        let Read::Rows { partition, mut records } = read else { return read };
        let mut bytes = 0;
        let fits = records.iter().take(room.rows).take_while(|record| {
            bytes += record.weight();
            bytes <= room.bytes
        });
        let rest = records.split_off(fits.count().max(1));
        if !rest.is_empty() {
            self.waiting = Some(Read::Rows { partition: partition.clone(), records: rest });
        }
        Read::Rows { partition, records }
    }
}

#[async_trait]
impl Reader for SeveralFiles {
    async fn read(&mut self, room: Room) -> Result<Read, Fault> {
        if let Some(read) = self.waiting.take() {
            return Ok(self.fitting(read, room));
        }
        loop {
            match self.run(move |files| files.step(room).map(Some)).await? {
                Some(SetStep::Read(read)) => {
                    self.said = false;
                    return Ok(self.fitting(read, room));
                }
                Some(SetStep::Idle { caught_up: true, .. }) if !self.said => {
                    self.said = true;
                    return Ok(Read::CaughtUp);
                }
                Some(SetStep::Idle { until, .. }) => sleep_until(Instant::from_std(until)).await,
                None => {}
            }
        }
    }

    fn missing(&self) -> Option<String> {
        self.is_empty.then(|| format!("no file is at {}", self.path))
    }

    fn left(&self) -> Option<String> {
        self.left.clone()
    }

    async fn backlog(&mut self) -> Option<Backlog> {
        Some(self.backlog.clone())
    }
}
