//! What the engine reads from, and what it acknowledges to.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::source::{Acker, Backlog, Read, Reader, Release, Request, Requested, Room};
use anabranch_record::fault::Fault;
use anabranch_record::mark::Partition;
use anabranch_record::{Position, Record};
use async_trait::async_trait;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::acknowledged::Acknowledged;
use super::requests::Requests;
use crate::codes;

/// Longest time for the last report to the server.
const CLOSE: Duration = Duration::from_secs(5);

/// Reads what the tasks of the source pass on.
pub(super) struct EventReader {
    events: mpsc::Receiver<Result<Read, Fault>>,
    /// Records that the engine had no room for.
    left: Option<(Partition, VecDeque<Record>)>,
    acknowledged: Arc<Acknowledged>,
    /// `None` if no changes are read, beside which rows could be read again.
    requests: Option<Requests>,
}

impl EventReader {
    pub(super) fn new(
        events: mpsc::Receiver<Result<Read, Fault>>,
        acknowledged: Arc<Acknowledged>,
        requests: Option<Requests>,
    ) -> EventReader {
        EventReader { events, left: None, acknowledged, requests }
    }

    /// Returns as many records as there is room for.
    fn cut(&mut self, room: Room) -> Option<Read> {
        let (partition, left) = self.left.as_mut()?;
        let partition = partition.clone();
        let (mut count, mut bytes) = (0, 0);
        for record in left.iter() {
            bytes += record.weight();
            if count > 0 && (count >= room.rows || bytes > room.bytes) {
                break;
            }
            count += 1;
        }
        let records: Vec<Record> = match count == left.len() {
            true => self.left.take()?.1.into(),
            false => left.drain(..count).collect(),
        };
        Some(Read::Rows { partition, records })
    }
}

#[async_trait]
impl Reader for EventReader {
    async fn read(&mut self, room: Room) -> Result<Read, Fault> {
        if let Some(rows) = self.cut(room) {
            return Ok(rows);
        }
        match self.events.recv().await {
            Some(Ok(Read::Rows { partition, records })) => {
                self.left = Some((partition, records.into()));
                self.cut(room).ok_or_else(ended)
            }
            Some(event) => event,
            None => Err(ended()),
        }
    }

    async fn backlog(&mut self) -> Option<Backlog> {
        let rows = Some(self.acknowledged.rows_left()).filter(|rows| *rows > 0);
        let (bytes, retention) = (Some(self.acknowledged.bytes_left()), self.acknowledged.retention());
        Some(Backlog { records: rows, bytes, retention, ..Backlog::default() })
    }

    async fn request(&mut self, request: Request) -> Result<Requested, Fault> {
        match &self.requests {
            Some(requests) => requests.take(&request),
            None => {
                let text = "rows are read again beside changes, and this run of the source reads none (snapshotMode: \
                            only, or another node reads the changes: ask that one)";
                Err(Fault::record(codes::REQUEST_REFUSED, text))
            }
        }
    }

    async fn stop(&mut self) -> Result<(), Fault> {
        // The tasks end when they next pass something on.
        self.events.close();
        while self.events.try_recv().is_ok() {}
        Ok(())
    }
}

fn ended() -> Fault {
    Fault::fatal(codes::STREAM_UNSUPPORTED, "a task of the source ended early: this is a defect")
}

/// Receives acknowledgements, and owns the tasks of the source.
pub(super) struct Confirmations {
    pub(super) acknowledged: Arc<Acknowledged>,
    pub(super) tasks: JoinSet<()>,
}

#[async_trait]
impl Acker for Confirmations {
    async fn ack(&mut self, partition: &Partition, positions: &[Position]) -> Result<(), Fault> {
        self.acknowledged.note(partition, positions)
    }

    async fn released(&mut self, partition: &Partition, _: Release) -> Result<(), Fault> {
        self.acknowledged.forget(partition);
        Ok(())
    }

    async fn close(&mut self) -> Result<(), Fault> {
        let is_streaming = *self.acknowledged.streaming.borrow();
        self.acknowledged.close();
        if is_streaming {
            // The task of the socket reports what was acknowledged last. If it cannot, the next run does.
            let mut streaming = self.acknowledged.streaming.subscribe();
            let _ = timeout(CLOSE, streaming.wait_for(|is_streaming| !is_streaming)).await;
        }
        self.tasks.shutdown().await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::lsn::Lsn;
    use crate::source::position::CHANGES;

    #[tokio::test]
    async fn records_are_cut_to_the_room() {
        let (sender, events) = mpsc::channel(2);
        let mut reader = EventReader::new(events, Arc::new(Acknowledged::new(Lsn::ZERO)), None);
        let records: Vec<Record> = (0..5).map(|n| Record::at(Position::copy_from(&[n]))).collect();
        let weight = records[0].weight();
        sender.send(Ok(Read::Rows { partition: CHANGES, records })).await.unwrap();
        drop(sender);
        let mut counts = Vec::new();
        for room in [Room { rows: 2, bytes: 1 << 20 }, Room { rows: 9, bytes: 1 }, Room { rows: 9, bytes: 2 * weight }]
        {
            let Ok(Read::Rows { records, .. }) = reader.read(room).await else { panic!("no rows") };
            counts.push(records.iter().map(|record| record.position().0[0]).collect::<Vec<_>>());
        }
        assert_eq!(counts, [vec![0, 1], vec![2], vec![3, 4]]);
        assert!(reader.read(Room { rows: 1, bytes: 1 }).await.is_err());
    }
}
