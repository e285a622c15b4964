//! Reads chunks beside a stream, one at a time, and passes their rows on.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::source::Read;
use anabranch_record::fault::Fault;
use anabranch_record::mark::Partition;
use bytes::BytesMut;
use futures::future::BoxFuture;
use tokio::time::{Instant, sleep_until};

use super::super::config::Config;
use super::super::driver::{Driver, Follower};
use super::super::events::Ended;
use super::super::position::RangePosition;
use super::super::publication::Publication;
use super::super::record::Schemas;
use super::{Chunk, ChunkReader, Looked, TableBackfill};

/// Time after which a chunk is begun again that cannot be merged with the stream yet.
const AGAIN: Duration = Duration::from_millis(200);

/// The reading of chunks beside a stream.
pub(in super::super) struct Filling {
    config: Arc<Config>,
    publication: Option<Publication>,
    schemas: Option<Arc<Schemas>>,
    state: State,
    lane: Option<OpenLane>,
}

enum State {
    /// No table is read.
    Idle,
    /// A chunk is to be begun.
    Next(ChunkReader),
    /// A chunk cannot be merged yet, and is begun again at this time.
    Again(ChunkReader, Instant),
    /// A chunk is being read.
    Reading(BoxFuture<'static, Looking>),
    /// A chunk of a table is read, and waits for the stream.
    Merging(ChunkReader, TableBackfill),
}

/// The lane of the table that is being read.
struct OpenLane {
    partition: Partition,
    /// Number of records that were passed on.
    rows: u64,
}

/// The end of a look at a table.
pub(in super::super) struct Looking {
    reader: ChunkReader,
    table: TableBackfill,
    looked: Result<Looked, Fault>,
}

impl Filling {
    pub(in super::super) fn new(
        config: &Arc<Config>,
        publication: Option<Publication>,
        schemas: Option<Arc<Schemas>>,
    ) -> Filling {
        Filling { config: config.clone(), publication, schemas, state: State::Idle, lane: None }
    }

    /// Waits until a chunk is read, or is to be begun again (`None`). Cancel-safe.
    pub(in super::super) async fn looked(&mut self) -> Option<Looking> {
        match &mut self.state {
            State::Reading(reading) => Some(reading.await),
            State::Again(_, at) => {
                sleep_until(*at).await;
                None
            }
            State::Idle | State::Next(_) | State::Merging(..) => pending().await,
        }
    }

    fn reader(&self) -> ChunkReader {
        let (publication, schemas) = (self.publication.clone(), self.schemas.clone());
        ChunkReader::new(self.config.address.clone(), publication, schemas, self.config.fetch)
    }
}

impl Driver {
    /// Begins a chunk if there is a table to read, or passes on the rows of one if the stream has come to its place.
    pub(in super::super) async fn fill(&self, follower: &mut Follower) -> Result<(), Ended> {
        loop {
            let filling = &mut follower.filling;
            match std::mem::replace(&mut filling.state, State::Idle) {
                State::Idle if self.backfills.is_pending() => filling.state = State::Next(filling.reader()),
                State::Idle => return Ok(()),
                State::Next(reader) => match self.backfills.next().await {
                    Some(table) => self.begin_chunk(reader, table, follower).await?,
                    None => {
                        self.finish_lane(follower).await?;
                        follower.changes.end_windows();
                        return Ok(());
                    }
                },
                State::Merging(reader, table) if follower.changes.is_at_chunk() => {
                    if let Some(chunk) = follower.changes.close_window() {
                        self.pass_on_chunk(chunk, &table, follower).await?;
                    }
                    follower.filling.state = State::Next(reader);
                }
                State::Again(reader, at) if at <= Instant::now() => filling.state = State::Next(reader),
                waiting @ (State::Again(..) | State::Reading(_) | State::Merging(..)) => {
                    filling.state = waiting;
                    return Ok(());
                }
            }
        }
    }

    async fn begin_chunk(
        &self,
        mut reader: ChunkReader,
        table: TableBackfill,
        follower: &mut Follower,
    ) -> Result<(), Ended> {
        let partition = self.lanes.rows(&table);
        if follower.filling.lane.as_ref().is_none_or(|open| open.partition != partition) {
            self.finish_lane(follower).await?;
            follower.filling.lane = Some(OpenLane { partition, rows: 0 });
        }
        follower.changes.open_window(&table);
        follower.filling.state = State::Reading(Box::pin(async move {
            let looked = reader.look(&table).await;
            Looking { reader, table, looked }
        }));
        Ok(())
    }

    /// Takes what [`Filling::looked`] returned.
    pub(in super::super) async fn take_look(
        &mut self,
        looking: Option<Looking>,
        follower: &mut Follower,
    ) -> Result<(), Ended> {
        let Some(Looking { reader, table, looked }) = looking else { return Ok(()) };
        follower.filling.state = match looked? {
            Looked::Chunk(mut chunk) => {
                if let Some((described, columns)) = reader.described() {
                    chunk.fault = self.check_columns(&described, &columns).await?.map(Box::new);
                }
                match follower.changes.merge(chunk) {
                    true => State::Merging(reader, table),
                    false => State::Again(reader, Instant::now() + AGAIN),
                }
            }
            Looked::Waits => {
                follower.changes.drop_window();
                State::Again(reader, Instant::now() + AGAIN)
            }
            Looked::Gone => {
                follower.changes.drop_window();
                tracing::warn!(
                    table = table.title.as_str(),
                    "the table or its key is another one, so its rows are not read"
                );
                self.backfills.remove(&table).await?;
                State::Next(reader)
            }
        };
        Ok(())
    }

    /// Passes on the rows of a chunk, after all changes before it are delivered and stored, and returns when its rows are.
    async fn pass_on_chunk(&self, chunk: Chunk, table: &TableBackfill, follower: &mut Follower) -> Result<(), Ended> {
        self.send(follower).await?;
        // A place without records needs not be stored before.
        let before = follower.changes.recorded();
        self.settled(self.acknowledged.when(|| (self.acknowledged.confirmed() >= before).then_some(()))).await?;
        let read = chunk.rows.len() as u64;
        if let Some(open) = &mut follower.filling.lane {
            let mut buffer = BytesMut::new();
            let records: Vec<_> = chunk
                .rows
                .into_iter()
                .filter_map(|(_, record)| {
                    open.rows += 1;
                    let position = RangePosition::new(table.attempt, open.rows, false).encode_into(&mut buffer);
                    Some(record?.with_position(position))
                })
                .collect();
            if let Some(last) = records.last().map(|record| record.position().clone()) {
                let partition = open.partition.clone();
                let failed =
                    chunk.fault.map(|fault| (0..records.len()).map(|place| (place, Fault::clone(&fault))).collect());
                self.pass_records(partition.clone(), records, failed.unwrap_or_default()).await?;
                self.settled(self.acknowledged.reaches(&partition, &last)).await?;
            }
        }
        if self.backfills.note(table, chunk.part, read, chunk.again).await? {
            tracing::info!(
                table = table.title.as_str(),
                rows = table.rows + read,
                "read the rows of a table beside its changes"
            );
            self.finish_lane(follower).await?;
        }
        Ok(())
    }

    /// Waits for acknowledgements.
    async fn settled(&self, acknowledged: impl Future<Output = ()>) -> Result<(), Ended> {
        tokio::select! {
            () = acknowledged => Ok(()),
            () = self.events.0.closed() => Err(Ended::Stopped),
        }
    }

    async fn finish_lane(&self, follower: &mut Follower) -> Result<(), Ended> {
        let Some(open) = follower.filling.lane.take().filter(|open| open.rows > 0) else { return Ok(()) };
        self.acknowledged.forget(&open.partition);
        self.events.send(Read::Finished(open.partition)).await
    }
}
