//! Reads a source: no more than the graph has room for, cut into strips, each a segment of the ledger of its lane.

mod partitions;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use anabranch_plugin::source::{Read, Reader, Replay, Room, Start};
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::mark::{Mark, Partition};
use anabranch_record::metadata::{Metadata, key};
use anabranch_record::text::Str;
use anabranch_record::{Record, clock};
use tokio::time::{Instant, timeout_at};

use super::Interrupt;
use super::backlog::Questions;
use super::claims::Claims;
use super::context::Context;
use super::fan_out::Output;
use super::lanes::Lanes;
use super::meter::{RowOutcomes, timed};
use super::progress::{UnfinishedSource, UnreadSource};
use super::requests::{Asked, Inbox};
use super::tap::{NodeRole, Side, Tap};
use crate::ack::LaneIndex;
use crate::batch::{Batch, FailedRows, Lineage, STRIP_BYTES, STRIP_ROWS};
use crate::codes;
use crate::plan::stage::ReadSpec;

pub(super) use partitions::beginning;
use partitions::{Away, Finished};

/// Maximum number of rows per read, unless the connector collects more. Keeps a read in cache and its latency low.
const READ_ROWS: usize = 8 * STRIP_ROWS;
pub(super) struct Reading {
    pub(super) source: usize,
    pub(super) connector: Str,
    pub(super) batch_rows: Option<usize>,
    pub(super) batch_delay: Duration,
    pub(super) reader: Box<dyn Reader>,
    pub(super) resume: BTreeMap<Partition, Mark>,
    pub(super) output: Output,
    lanes: BTreeMap<Partition, LaneIndex>,
    away: Away,
    /// What the source said about the partitions when it was opened.
    starts: BTreeMap<Partition, Start>,
    replay: Replay,
    /// True if the source receives marks without a position.
    takes_resets: bool,
    /// The claims of the run.
    claims: Claims,
    /// Partitions that were finished in this run.
    finished: Finished,
    /// Partitions that are finished when their rows are in the graph.
    to_finish: Vec<Partition>,
    /// A partition whose rows wait for a batch of another, unless it was taken away meanwhile.
    awaiting: Option<Partition>,
    /// A partition that is revoked, and given up at this time, when the batch of it is in the graph.
    revoking: Option<(Partition, Instant)>,
    stamp: Stamp,
    /// Schedule for asking the source for its backlog.
    questions: Questions,
    /// Requests of users.
    inbox: Inbox,
    tap: Arc<Tap>,
}

/// Rows that were read and are not in the graph yet.
struct Collected {
    partition: Partition,
    records: Vec<Record>,
}

/// Whether there is more to read.
enum More {
    Yes,
    No,
    /// The source has failed for good.
    Failed(Fault),
}

impl Reading {
    pub(super) fn new(
        source: usize,
        spec: &ReadSpec,
        reader: Box<dyn Reader>,
        resume: BTreeMap<Partition, Mark>,
        starts: BTreeMap<Partition, Start>,
        claims: Claims,
        output: Output,
    ) -> Self {
        let id = format!("{}:{}", output.context.pipeline, spec.connector);
        Reading {
            source,
            connector: spec.connector.clone(),
            batch_rows: spec.batch_rows,
            batch_delay: spec.batch_delay,
            reader,
            resume,
            lanes: BTreeMap::new(),
            away: Away::default(),
            starts,
            replay: spec.source.replay(),
            takes_resets: spec.source.takes_resets(),
            claims,
            finished: Finished::default(),
            to_finish: Vec::new(),
            awaiting: None,
            revoking: None,
            stamp: Stamp { connector: id.into() },
            questions: Questions::new(),
            inbox: output.context.options.requests.open(&spec.connector),
            tap: output.tap(NodeRole::Source, &spec.connector),
            output,
        }
    }

    fn context(&self) -> &Arc<Context> {
        &self.output.context
    }

    /// Reads until the source ends, has failed for good, or the run is stopping. In all cases, rows that were read
    /// continue through the graph.
    pub(super) async fn run(mut self) -> Result<(), Interrupt> {
        let context = self.context().clone();
        let meters = self.output.meters();
        let mut has_failed = false;
        loop {
            for partition in std::mem::take(&mut self.to_finish) {
                self.finish(partition).await?;
            }
            if self.questions.is_due() {
                self.questions.ask(&mut *self.reader, &meters).await;
            }
            let room = tokio::select! {
                biased;
                () = context.stopping.wait() => break,
                room = self.wait_for(context.lanes.room(self.source)) => room?,
            };
            let ask = self.ask(room, 0);
            let read = tokio::select! {
                biased;
                () = context.stopping.wait() => break,
                returned = self.away.next() => {
                    self.resume_returned(returned?).await?;
                    continue;
                }
                asked = self.inbox.next() => {
                    self.ask_source(asked).await;
                    continue;
                }
                read = timed(self.reader.read(ask), &meters) => read,
                () = self.questions.beside_read() => continue,
            };
            let more = match self.read_of(read)? {
                Ok(read) => self.take(read, room).await?,
                Err(fault) => More::Failed(fault),
            };
            match more {
                More::Yes => {}
                More::No => {
                    self.note_end();
                    break;
                }
                More::Failed(fault) => {
                    has_failed = true;
                    context.fail_drained(fault);
                    break;
                }
            }
        }
        let stopped = self.reader.stop().await;
        // The fault of a failed source is known.
        if !has_failed {
            self.named(stopped)?;
        }
        // No more rows arrive. After draining, no further rows will be settled.
        context.lanes.caught_up(self.source);
        Ok(())
    }

    /// Passes a request on to the source.
    pub(super) async fn ask_source(&mut self, Asked { request, answer }: Asked) {
        let taken = self.reader.request(request).await.map_err(|fault| fault.at(&self.connector));
        // The caller may not wait any more. The source has the request.
        let _ = answer.send(taken);
    }

    fn named<T>(&self, result: Result<T, Fault>) -> Result<T, Fault> {
        result.map_err(|fault| fault.at(&self.connector))
    }

    /// Returns the result of a read, or a fault that is not transient. The rows that were read before it are delivered: the
    /// next run may meet the fault again before it delivers them, and some sources cannot read them again.
    ///
    /// # Errors
    /// A transient fault, which ends the run at once.
    fn read_of(&self, read: Result<Read, Fault>) -> Result<Result<Read, Fault>, Fault> {
        match self.named(read) {
            Err(fault) if fault.class() == FaultClass::Transient => Err(fault),
            read => Ok(read),
        }
    }

    /// Returns the amount to request from the source if `have` rows are already collected.
    fn ask(&self, room: Room, have: usize) -> Room {
        let most = self.batch_rows.unwrap_or(0).max(READ_ROWS);
        Room { rows: room.rows.min(most).saturating_sub(have).max(1), bytes: room.bytes }
    }

    async fn take(&mut self, read: Read, room: Room) -> Result<More, Interrupt> {
        match read {
            Read::Rows { partition, records } if records.is_empty() => {
                tracing::debug!(
                    connector = %self.connector, partition = %partition.0, "the source returned no records"
                );
                tokio::task::yield_now().await;
            }
            Read::Rows { partition, records } => {
                self.questions.reopen();
                let collected = Collected { partition, records };
                let wanted = self.batch_rows.unwrap_or(0).min(room.rows);
                if collected.records.len() >= wanted || self.batch_delay.is_zero() {
                    self.send(collected).await?;
                } else {
                    return self.collect(collected, wanted, room).await;
                }
            }
            Read::Failed { partition, record, fault } => {
                self.questions.reopen();
                self.fail(&partition, *record, fault).await?;
            }
            Read::Progress(partition, position) => {
                if position.0.is_empty() {
                    return Err(self.empty_position().into());
                }
                if let Some(lane) = self.lane_with_room(&partition, 1).await? {
                    self.context().lanes.progress(lane, position);
                }
            }
            Read::CaughtUp => {
                self.questions.caught_up(&self.output.meters());
                if self.reader.left().is_some() {
                    self.questions.reopen();
                }
                self.context().lanes.caught_up(self.source);
                if self.context().options.once && !self.resume_all_returned().await? {
                    return Ok(More::No);
                }
                tokio::task::yield_now().await;
            }
            Read::End if self.resume_all_returned().await? => {}
            Read::End => return Ok(More::No),
            change => self.note_change(change).await?,
        }
        Ok(More::Yes)
    }

    /// Notes that the source has ended, and whether it was ever read from.
    fn note_end(&self) {
        let missing = self.reader.missing();
        // A position that was copied or rewound to belongs to records that were read.
        let was_read = self.resume.values().any(|mark| mark.seq > 0 || !mark.position.0.is_empty());
        if missing.is_some() || !was_read {
            self.context().progress.note_unread(UnreadSource { connector: self.connector.clone(), missing });
        }
        if let Some(what) = self.reader.left() {
            self.context().progress.note_left(UnfinishedSource { connector: self.connector.clone(), what });
        }
    }

    /// Collects rows of one partition until there are enough or the delay since the first has passed.
    async fn collect(&mut self, mut collected: Collected, wanted: usize, room: Room) -> Result<More, Interrupt> {
        let context = self.context().clone();
        let meters = self.output.meters();
        let until = Instant::now() + self.batch_delay;
        let weight = |records: &[Record]| records.iter().map(Record::weight).sum::<usize>();
        let mut bytes = weight(&collected.records);
        while collected.records.len() < wanted && (bytes < room.bytes || mutant!(CollectsTooMuch)) {
            let left = Room { bytes: room.bytes.saturating_sub(bytes), ..room };
            let ask = self.ask(left, collected.records.len());
            let read = tokio::select! {
                biased;
                () = context.stopping.wait() => {
                    if mutant!(CollectedForgotten) {
                        return Ok(More::Yes);
                    }
                    break;
                }
                read = timeout_at(until, timed(self.reader.read(ask), &meters)) => match read {
                    Ok(read) => read,
                    Err(_) => break,
                },
            };
            let read = match self.read_of(read)? {
                Ok(read) => read,
                Err(fault) => {
                    self.send(collected).await?;
                    return Ok(More::Failed(fault));
                }
            };
            match read {
                Read::Rows { partition, records } if partition == collected.partition => {
                    bytes += weight(&records);
                    collected.records.extend(records);
                }
                // Nothing of a lost partition is delivered, and what was sent before is not stored while the rest waits.
                lost @ Read::Lost(_) => {
                    let is_lost = matches!(&lost, Read::Lost(partition) if *partition == collected.partition);
                    self.note_change(lost).await?;
                    if !is_lost {
                        self.send(collected).await?;
                    }
                    return Ok(More::Yes);
                }
                // Its rows are delivered like those that were sent before.
                Read::Revoked { partition, within } if partition == collected.partition => {
                    self.revoking = Some((partition, Instant::now() + within));
                    self.send(collected).await?;
                    self.revoke_pending();
                    return Ok(More::Yes);
                }
                // A change that is reported while the batch waits for room comes after this one.
                change @ (Read::Revoked { .. } | Read::Assigned(_)) => {
                    self.note_change(change).await?;
                    self.send(collected).await?;
                    return Ok(More::Yes);
                }
                other => {
                    self.awaiting = self.owned_partition(&other);
                    let is_owned = self.awaiting.is_some();
                    self.send(collected).await?;
                    // It may have been taken away while the batch waited for room.
                    if is_owned && self.awaiting.take().is_none() {
                        return Ok(More::Yes);
                    }
                    // A batch of another partition is sent without collecting, so that it does not wait for the delay
                    // twice.
                    return match other {
                        Read::Rows { partition, records } => {
                            self.send(Collected { partition, records }).await?;
                            Ok(More::Yes)
                        }
                        other => Box::pin(self.take(other, room)).await,
                    };
                }
            }
        }
        self.send(collected).await?;
        Ok(More::Yes)
    }

    fn empty_position(&self) -> Fault {
        let what = "the source returned an empty position: storing it would restart the source from the beginning";
        Fault::fatal(codes::EMPTY_POSITION, what).at(&self.connector)
    }

    fn misused(&self, partition: &Partition, what: &str, whose: &str) -> Fault {
        let what = format!("the source {what} partition {:?}, which it had reported as {whose}", partition.0);
        Fault::fatal(codes::PARTITION_UNEXPECTED, what).at(&self.connector)
    }

    /// Sends a record that the source cannot pass on to the dead-letter queue.
    async fn fail(&mut self, partition: &Partition, record: Record, fault: Fault) -> Result<(), Interrupt> {
        if record.position().0.is_empty() {
            return Err(self.empty_position().into());
        }
        let Some(lane) = self.lane_with_room(partition, 1).await? else { return Ok(()) };
        let mut records = vec![record];
        self.stamp.apply(&mut records);
        let bytes = records.iter().map(Record::weight).sum();
        let mut strips = vec![(records, bytes)];
        let runs = self.open(partition, lane, &strips);
        let meters = self.output.meters();
        meters.step(0).leave(RowOutcomes { failed: 1, ..RowOutcomes::default() }, meters.now());
        for ((records, bytes), lineage) in strips.drain(..).zip(runs) {
            let failed = FailedRows {
                batch: Batch::new(records, lineage, bytes),
                faults: vec![fault.clone().at(&self.connector)],
            };
            let output = self.output.clone();
            self.wait_for(async move { output.fail(failed).await }).await??;
        }
        Ok(())
    }

    /// Opens a segment of a lane per strip.
    fn open(&mut self, partition: &Partition, lane: LaneIndex, strips: &[(Vec<Record>, usize)]) -> Vec<Lineage> {
        let context = self.context().clone();
        let mut runs = Vec::with_capacity(strips.len());
        let positions = |strip: &Vec<Record>| strip.iter().map(|record| record.position().clone()).collect();
        context.lanes.open(lane, strips.iter().map(|(strip, bytes)| (positions(strip), *bytes)), |run| {
            runs.push(Lineage::of(run, &context.alarm));
        });
        // The rows are part of what is delivered in the time of a revocation.
        self.revoke_pending();
        self.output.meters().step(0).enter(strips.iter().map(|(strip, _)| strip.len()).sum());
        // Before the first strip is sent, because the partition can be taken away while a strip waits for a queue.
        if let Some(traces) = &context.traces {
            let id = Lanes::lane_id(&self.connector, partition);
            for ((records, _), lineage) in strips.iter().zip(&mut runs) {
                traces.begin(&id, context.lanes.first_row(lineage), lineage, records);
            }
        }
        runs
    }

    /// Opens a segment per strip and emits the strips.
    async fn send(&mut self, collected: Collected) -> Result<(), Interrupt> {
        let Collected { partition, mut records } = collected;
        if records.is_empty() {
            return Ok(());
        }
        if records.iter().any(|record| record.position().0.is_empty()) {
            return Err(self.empty_position().into());
        }
        let total = records.len();
        let Some(lane) = self.lane_with_room(&partition, total).await? else { return Ok(()) };
        self.stamp.apply(&mut records);
        // Cut first: a strip that is a whole segment settles in O(1).
        let mut strips: Vec<(Vec<Record>, usize)> = Vec::with_capacity(records.len() / STRIP_ROWS + 1);
        let mut records = records.into_iter();
        if total <= STRIP_ROWS {
            let all: Vec<Record> = records.collect();
            let bytes = all.iter().map(Record::weight).sum();
            if bytes <= STRIP_BYTES || total == 1 {
                strips.push((all, bytes));
                records = Vec::new().into_iter();
            } else {
                records = all.into_iter();
            }
        }
        for record in records {
            let weight = record.weight();
            match strips.last_mut() {
                Some((strip, bytes)) if strip.len() < STRIP_ROWS && *bytes + weight <= STRIP_BYTES => {
                    strip.push(record);
                    *bytes += weight;
                }
                _ => {
                    let mut strip = Vec::with_capacity(STRIP_ROWS.min(total));
                    strip.push(record);
                    strips.push((strip, weight));
                }
            }
        }
        let runs = self.open(&partition, lane, &strips);
        let meters = self.output.meters();
        meters.step(0).leave(RowOutcomes { out: total, ..RowOutcomes::default() }, meters.now());
        let output = self.output.clone();
        for ((records, bytes), lineage) in strips.into_iter().zip(runs) {
            if let Some(watchers) = self.tap.watchers() {
                watchers.show(Side::After, &records);
            }
            self.wait_for(output.emit(Batch::new(records, lineage, bytes))).await??;
        }
        Ok(())
    }
}

/// Metadata that the engine adds to every record without it.
struct Stamp {
    connector: Str,
}

impl Stamp {
    /// Adds the metadata, with one clock read per call. Records that share their metadata still share it afterwards.
    fn apply(&self, records: &mut [Record]) {
        let nanos = clock::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let read_at = Str::from(itoa::Buffer::new().format(nanos));
        let mut from = 0;
        while from < records.len() {
            let (first, rest) = records[from..].split_at_mut(1);
            let same = rest.iter().take_while(|record| record.metadata.shares(&first[0].metadata)).count();
            let rest = &mut rest[..same];
            rest.iter_mut().for_each(|record| record.metadata = Metadata::new());
            let metadata = &mut first[0].metadata;
            for (key, value) in [(key::READ_AT, &read_at), (key::SOURCE_CONNECTOR_ID, &self.connector)] {
                if metadata.get(&key).is_none() {
                    metadata.insert(key, value.clone());
                }
            }
            rest.iter_mut().for_each(|record| record.metadata = first[0].metadata.clone());
            from += same + 1;
        }
    }
}
