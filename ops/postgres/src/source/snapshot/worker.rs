//! A connection that reads ranges.

use std::sync::{Arc, PoisonError};

use anabranch_plugin::source::Read;
use anabranch_record::Record;
use anabranch_record::fault::Fault;
use bytes::BytesMut;

use super::super::copy::row;
use super::super::database::Database;
use super::super::events::{Ended, Events};
use super::super::fault::{ServerError, WireError};
use super::super::position::RangePosition;
use super::super::wire::Messages;
use super::plan::Item;
use super::{Queue, Reading};

/// Approximate maximum size of records that are passed on at once, in bytes.
const BYTES: usize = 512 << 10;

/// A worker, with its connection in the snapshot.
pub(super) struct Worker {
    pub(super) database: Database,
    pub(super) attempt: u32,
    pub(super) rows: usize,
    pub(super) layouts: Arc<Vec<Reading>>,
    pub(super) queue: Queue,
    pub(super) events: Events,
}

impl Worker {
    /// Reads ranges until none is left.
    pub(super) async fn run(mut self) -> Result<(), Ended> {
        while let Some(item) = self.next() {
            self.read(&item).await?;
        }
        Ok(())
    }

    fn next(&self) -> Option<Item> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    async fn read(&mut self, item: &Item) -> Result<(), Ended> {
        let Some(mut reading) = self.layouts.get(item.table).cloned() else { return Ok(()) };
        let what = format!("reading the table {}", reading.layout.table());
        let sql = reading.sql(&item.condition);
        if let Err(error) = self.database.wire.copy(&sql).await {
            return Err(self.database.fault(&what, error).into());
        }
        let (width, origin) = (reading.layout.width(), reading.origin);
        let mut positions = Positions { attempt: self.attempt, rows: 0, buffer: BytesMut::new() };
        let mut records: Vec<Record> = Vec::new();
        let mut bytes = 0;
        loop {
            let chunk = self.database.wire.chunk().await.map_err(|error| self.database.fault(&what, error))?;
            for message in Messages(chunk) {
                let error = match message.tag {
                    b'd' => match row(&message.body, width) {
                        Some(row) => {
                            bytes += message.body.len();
                            records.push(reading.layout.snapshot(positions.next(), origin, &row));
                            if records.len() >= self.rows || bytes >= BYTES {
                                self.send(item, &mut records).await?;
                                bytes = 0;
                            }
                            continue;
                        }
                        None => WireError::Protocol("a row does not have the expected columns"),
                    },
                    b'c' | b'C' | b'N' | b'S' => continue,
                    b'Z' => {
                        self.send(item, &mut records).await?;
                        let end = RangePosition::new(self.attempt, positions.rows, true).encode();
                        return self.events.send(Read::Progress(item.lane.clone(), end)).await;
                    }
                    b'E' => WireError::Server(ServerError::parse(&message.body)),
                    _ => WireError::Protocol("an unexpected message is in a copy"),
                };
                let fault: Fault = self.database.fault(&what, error);
                return Err(fault.into());
            }
        }
    }

    async fn send(&self, item: &Item, records: &mut Vec<Record>) -> Result<(), Ended> {
        if records.is_empty() {
            return Ok(());
        }
        let records = std::mem::replace(records, Vec::with_capacity(self.rows));
        self.events.send(Read::Rows { partition: item.lane.clone(), records }).await
    }
}

/// The positions of the records of a range.
struct Positions {
    attempt: u32,
    rows: u64,
    buffer: BytesMut,
}

impl Positions {
    fn next(&mut self) -> anabranch_record::Position {
        self.rows += 1;
        RangePosition::new(self.attempt, self.rows, false).encode_into(&mut self.buffer)
    }
}
