//! The real sources of a trial, with a limit of records and without acknowledgements.

use std::collections::BTreeMap;
use std::sync::Arc;

use anabranch_plugin::host::Host;
use anabranch_plugin::source::{Acker, Backlog, OpenedSource, Read, Reader, Room, Source, Start};
use anabranch_record::fault::Fault;
use anabranch_record::mark::{Mark, Partition};
use anabranch_record::text::Str;
use anabranch_record::{Position, Record};
use async_trait::async_trait;

use crate::trace::Trace;

/// A source that ends after a number of records.
pub(super) struct LimitedSource {
    pub(super) source: Arc<dyn Source>,
    pub(super) connector: Str,
    pub(super) records: usize,
    pub(super) trace: Arc<Trace>,
}

#[async_trait]
impl Source for LimitedSource {
    fn catches_up(&self) -> bool {
        self.source.catches_up()
    }

    async fn open(&self, resume: &BTreeMap<Partition, Mark>, host: &Host) -> Result<OpenedSource, Fault> {
        let mut opened = self.source.open(resume, host).await?;
        let (connector, trace) = (self.connector.clone(), self.trace.clone());
        opened.reader = Box::new(LimitedReader { reader: opened.reader, connector, left: self.records, trace });
        opened.acker = Box::new(DiscardingAcker(opened.acker));
        Ok(opened)
    }
}

struct LimitedReader {
    reader: Box<dyn Reader>,
    connector: Str,
    left: usize,
    trace: Arc<Trace>,
}

impl LimitedReader {
    fn count(&mut self, record: &mut Record) {
        self.left -= 1;
        // A copy of the bytes, whose address identifies the record from here on.
        let position = Position::copy_from(&record.position().0);
        *record = std::mem::take(record).with_position(position);
        self.trace.read(&self.connector, record);
    }
}

#[async_trait]
impl Reader for LimitedReader {
    async fn read(&mut self, room: Room) -> Result<Read, Fault> {
        if self.left == 0 {
            return Ok(Read::End);
        }
        let read = self.reader.read(Room { rows: room.rows.min(self.left), ..room }).await?;
        Ok(match read {
            Read::Rows { partition, mut records } => {
                records.truncate(self.left);
                records.iter_mut().for_each(|record| self.count(record));
                Read::Rows { partition, records }
            }
            Read::Failed { partition, mut record, fault } => {
                self.count(&mut record);
                Read::Failed { partition, record, fault }
            }
            other => other,
        })
    }

    async fn change(&mut self) -> Result<Read, Fault> {
        self.reader.change().await
    }

    async fn go_on(&mut self, partition: &Partition, mark: Option<&Mark>) -> Result<Start, Fault> {
        self.reader.go_on(partition, mark).await
    }

    async fn backlog(&mut self) -> Option<Backlog> {
        self.reader.backlog().await
    }

    async fn stop(&mut self) -> Result<(), Fault> {
        self.reader.stop().await
    }
}

/// Ignores acknowledgements: the source would discard the records.
struct DiscardingAcker(Box<dyn Acker>);

#[async_trait]
impl Acker for DiscardingAcker {
    async fn ack(&mut self, _: &Partition, _: &[Position]) -> Result<(), Fault> {
        Ok(())
    }

    async fn close(&mut self) -> Result<(), Fault> {
        self.0.close().await
    }
}
