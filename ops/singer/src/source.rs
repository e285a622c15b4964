//! The source: runs the tap again and again, and reads what it writes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anabranch_ops_program::log::ProgramOwner;
use anabranch_plugin::flow::{Fields, Keys, Operations, RecordShape, Shape, Uses};
use anabranch_plugin::host::Host;
use anabranch_plugin::source::{Acker, OfferedStream, OpenedSource, Read, Reader, Room, Source, Start, Undelivered};
use anabranch_record::fault::Fault;
use anabranch_record::mark::{Mark, Partition};
use anabranch_record::metadata::key;
use anabranch_record::text::Str;
use anabranch_record::{Operation, Position};
use async_trait::async_trait;
use futures::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::codes;
use crate::decoder::{MessageDecoder, RecordRules, Subjects};
use crate::place::StatePlace;
use crate::settings::SingerSettings;
use crate::tap::{RunningTap, Tap};

/// A configured source.
pub(crate) struct SingerSource {
    tap: Arc<Tap>,
    decoding: RecordRules,
    interval: Duration,
    has_schemas: bool,
    context: Option<Str>,
}

impl SingerSource {
    pub(crate) fn new(configured: SingerSettings) -> SingerSource {
        let SingerSettings { tap, decoding, interval, has_schemas, context } = configured;
        SingerSource { tap: Arc::new(tap), decoding, interval, has_schemas, context }
    }
}

#[async_trait]
impl Source for SingerSource {
    fn catches_up(&self) -> bool {
        true
    }

    fn is_partitioned(&self) -> bool {
        false
    }

    fn undelivered(&self) -> Undelivered {
        Undelivered::ReadAgainFrom("after the last STATE message of the tap")
    }

    fn shape(&self) -> RecordShape {
        let mut metadata = Keys::any();
        metadata.insert(key::COLLECTION);
        let fields = || Shape::structured(Fields::any());
        let mut operations = Operations::only(self.decoding.operation);
        let (mut before, mut after) = (Shape::ABSENT, fields());
        if self.decoding.deleted_at.is_some() {
            operations = operations.union(Operations::only(Operation::Delete));
            (before, after) = (before.join(&fields()), after.join(&Shape::ABSENT));
        }
        let key = Shape::ABSENT.join(&fields());
        RecordShape { operations, metadata, key, before, after, pieces: None, uses: Uses::default() }
    }

    fn check(&self, position: &Position) -> Option<Result<(), Fault>> {
        Some(StatePlace::decode(position).map(drop))
    }

    async fn examine(&self) -> Result<Vec<String>, Fault> {
        self.tap.check(&ProgramOwner::task("discover")).await.map(|()| Vec::new())
    }

    async fn discover(&self) -> Result<Option<Vec<OfferedStream>>, Fault> {
        self.tap.offered(&ProgramOwner::task("discover")).await.map(Some)
    }

    async fn open(&self, resume: &BTreeMap<Partition, Mark>, host: &Host) -> Result<OpenedSource, Fault> {
        let (place, is_partial) = match resume.get(&Partition::ONLY) {
            Some(mark) => StatePlace::decode(&mark.position)?,
            None => (StatePlace::new(None), false),
        };
        let context = match &self.context {
            Some(name) if name.is_empty() => String::new(),
            Some(name) => format!("{name}:"),
            None => format!("{}:{}:", host.pipeline, host.node),
        };
        let subjects = self.has_schemas.then(|| Subjects { registry: host.schemas.clone(), context });
        let (settling, settled) = watch::channel(place.exact().clone());
        let start = match is_partial {
            // The tap writes the records after the state again.
            true => Start::elsewhere().at(place.exact().clone()),
            false => Start::after_mark(),
        };
        let reader = TapReader {
            tap: self.tap.clone(),
            origin: ProgramOwner::of(host),
            interval: self.interval,
            decoder: MessageDecoder::new(self.tap.clone(), self.decoding.clone(), subjects, place),
            settled,
            stage: SyncStage::Waiting(Instant::now()),
            syncs: 0,
            is_in_flight: false,
        };
        let opened = OpenedSource::new(Box::new(reader), Box::new(SettledPlaces(settling)));
        Ok(opened.start(Partition::ONLY, start))
    }
}

/// The state of a reader.
enum SyncStage {
    /// The next sync starts at this time, when everything before the last state is settled.
    Waiting(Instant),
    /// The tap discovers its streams and starts.
    Starting(BoxFuture<'static, Result<RunningTap, Fault>>),
    Syncing(RunningTap),
    /// The sync failed. The fault is reported when all records before it are settled, so that a tap that always fails after a
    /// state is not started from an earlier one for ever.
    Failed(SyncFailure),
}

/// Why a sync failed, and what is left to do.
struct SyncFailure {
    fault: Fault,
    /// Position after all that may be in flight; `None` if nothing is.
    end: Option<Position>,
    /// True if the engine has the position.
    is_reported: bool,
}

struct TapReader {
    tap: Arc<Tap>,
    origin: ProgramOwner,
    interval: Duration,
    decoder: MessageDecoder,
    settled: watch::Receiver<Position>,
    stage: SyncStage,
    /// Number of syncs so far.
    syncs: u64,
    /// True if records or positions may be in flight.
    is_in_flight: bool,
}

impl TapReader {
    /// Reads on. `None` = ask again.
    async fn step(&mut self, room: Room) -> Result<Option<Read>, Fault> {
        self.decoder.register().await?;
        if let Some(read) = self.decoder.reported(Vec::new())? {
            return Ok(Some(read));
        }
        match &mut self.stage {
            SyncStage::Waiting(until) => {
                sleep_until(*until).await;
                // The tap may remove what is before the state.
                let place = self.decoder.place();
                self.settled.wait_for(|position| place.is_at(position)).await.map_err(closed)?;
                let state = place.state().map(ToOwned::to_owned);
                self.syncs += 1;
                let starting = self.tap.clone().sync(state, self.origin.clone());
                self.stage = SyncStage::Starting(Box::pin(starting));
            }
            SyncStage::Starting(starting) => {
                let started = starting.await?;
                self.stage = SyncStage::Syncing(started);
            }
            SyncStage::Syncing(running) => {
                if let Some(read) = decode(running, &mut self.decoder, room)? {
                    return Ok(Some(read));
                }
                if self.decoder.is_blocked()
                    || running.output.fill().await.map_err(|error| self.tap.unreadable(&error))?
                {
                    return Ok(None);
                }
                self.tap.finished(running).await?;
                // A tap that ends well may omit the last line end.
                let number = running.output.count() + 1;
                if let Some(rest) = running.output.rest() {
                    let mut records = Vec::new();
                    self.decoder.line(&rest, number, &mut records);
                    return self.decoder.reported(records);
                }
                self.stage = SyncStage::Waiting(Instant::now() + self.interval);
                return Ok(Some(Read::CaughtUp));
            }
            // See `TapReader::end`.
            SyncStage::Failed(failure) => return Err(failure.fault.clone()),
        }
        Ok(None)
    }

    /// Returns the position after a failed sync, once, or its fault when that position is settled.
    async fn end(settled: &mut watch::Receiver<Position>, failure: &mut SyncFailure) -> Result<Read, Fault> {
        let SyncFailure { fault, end, is_reported } = failure;
        if let Some(end) = end {
            if !std::mem::replace(is_reported, true) {
                return Ok(Read::Progress(Partition::ONLY, end.clone()));
            }
            settled.wait_for(|position| position == end).await.map_err(closed)?;
        }
        Err(fault.clone())
    }
}

fn closed(_: watch::error::RecvError) -> Fault {
    Fault::transient(codes::TAP_FAILED, "the source is closed")
}

#[async_trait]
impl Reader for TapReader {
    async fn read(&mut self, room: Room) -> Result<Read, Fault> {
        loop {
            if let SyncStage::Failed(failure) = &mut self.stage {
                return TapReader::end(&mut self.settled, failure).await;
            }
            match self.step(room).await {
                Ok(Some(read)) => {
                    self.is_in_flight |= !matches!(read, Read::CaughtUp);
                    return Ok(read);
                }
                Ok(None) => {}
                Err(fault) => {
                    let end = self.is_in_flight.then(|| self.decoder.place().end_of(self.syncs));
                    self.stage = SyncStage::Failed(SyncFailure { fault, end, is_reported: false });
                }
            }
        }
    }

    async fn stop(&mut self) -> Result<(), Fault> {
        if let SyncStage::Syncing(running) = &mut self.stage {
            self.tap.stop(running).await;
        }
        self.stage = SyncStage::Waiting(Instant::now());
        Ok(())
    }
}

/// Decodes the lines that were read, as far as there is room for their records.
fn decode(running: &mut RunningTap, decoder: &mut MessageDecoder, room: Room) -> Result<Option<Read>, Fault> {
    let (mut records, mut bytes) = (Vec::new(), 0);
    while records.len() < room.rows.max(1) && bytes < room.bytes.max(1) && !decoder.is_blocked() {
        let number = running.output.count() + 1;
        let Some(line) = running.output.line() else { break };
        let known = records.len();
        decoder.line(&line, number, &mut records);
        bytes += records.get(known).map_or(0, anabranch_record::Record::weight);
    }
    decoder.reported(records)
}

/// Notes the positions that are stored.
struct SettledPlaces(watch::Sender<Position>);

#[async_trait]
impl Acker for SettledPlaces {
    async fn ack(&mut self, _: &Partition, positions: &[Position]) -> Result<(), Fault> {
        if let Some(last) = positions.last() {
            self.0.send_replace(last.clone());
        }
        Ok(())
    }
}
