//! The promises of a source.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::mark::{Mark, Partition};
use anabranch_record::phrase::counted;
use anabranch_record::{Position, Record};
use tokio::time::timeout;

use super::super::host;
use super::{BrokenPromise, promise};
use crate::source::{Acker, OpenedSource, Read, Reader, Room, Source};

/// Longest time of a read while records are left.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time for which a source that has caught up must not return.
const WAIT: Duration = Duration::from_millis(50);
/// Maximum number of places at which a check interrupts a source.
const PLACES: usize = 20;
/// Minimum number of records: with fewer, most mistakes cannot show.
const FEWEST: usize = 3;

/// Room for everything.
const AMPLE: Room = Room { rows: 1000, bytes: 1 << 30 };
/// Room for one record.
const ONE_ROW: Room = Room { rows: 1, bytes: 1 << 30 };
/// Room for less than a record: a source then reads a single one.
const ONE_BYTE: Room = Room { rows: 1000, bytes: 1 };

/// Checks the promises of a source, and returns the records that it reads, in order.
///
/// `fresh` prepares the external system, each time with the same three or more records, and returns the source for it.
/// The source must report that it has caught up ([`Source::catches_up`]).
///
/// * Positions: none is empty, and no two records of a partition have the same. [`Source::check`] accepts them.
/// * Order: the source reads the records of a partition in the same order, however small the [`Room`] of a read is.
/// * Room: no read returns more rows than there is room for.
/// * Resuming: a source that is opened at the mark of a record reads exactly the records after it, whether the record was
///   acknowledged before the interruption or not.
/// * Acknowledgement: a source reads records again that were not acknowledged and have no mark. If it declares
///   [`Source::rereads`], it also reads acknowledged ones again.
/// * Cancellation: a cancelled read loses nothing.
/// * Waiting: a source that has caught up waits for more records, and does not return at once.
///
/// # Errors
/// The first promise that the source does not keep, or a call that failed.
pub async fn check_source(mut fresh: impl AsyncFnMut() -> Arc<dyn Source>) -> Result<Vec<Record>, BrokenPromise> {
    let source = fresh().await;
    promise(source.catches_up(), || "the check needs a source that catches up".to_owned())?;
    let mut session = Session::open(&*source, &BTreeMap::new()).await?;
    let all = session.read(AMPLE).await?;
    session.waits().await?;
    session.end(&all).await?;
    promise(all.len() >= FEWEST, || format!("the check needs {FEWEST} records, the source reads {}", all.len()))?;
    positions(&*source, &all)?;

    for room in [ONE_ROW, ONE_BYTE] {
        let source = fresh().await;
        let read = Session::open(&*source, &BTreeMap::new()).await?.read(room).await?;
        same(&all, &read, || shown_room(room))?;
    }

    let source = fresh().await;
    let read = Session::open(&*source, &BTreeMap::new()).await?.read_interrupted().await?;
    same(&all, &read, || "with reads that are cancelled".to_owned())?;

    for settled in (0..all.len()).step_by(all.len().div_ceil(PLACES)) {
        let (before, after) = all.split_at(settled);
        for is_acknowledged in [false, true] {
            let source = fresh().await;
            let mut session = Session::open(&*source, &BTreeMap::new()).await?;
            session.read(AMPLE).await?;
            if is_acknowledged {
                session.acknowledge(before).await?;
            }
            drop(session);
            let read = Session::open(&*source, &marks(before)).await?.read(AMPLE).await?;
            let how = if is_acknowledged { "with an acknowledgement" } else { "without an acknowledgement" };
            same(after, &read, || format!("after storing {} {how}", counted(settled, "record")))?;
            if is_acknowledged && source.rereads() {
                let read = Session::open(&*source, &BTreeMap::new()).await?.read(AMPLE).await?;
                same(&all, &read, || {
                    format!("from the beginning, after acknowledging {}", counted(settled, "record"))
                })?;
            }
        }
    }
    Ok(all.into_iter().map(|(_, record)| record).collect())
}

type Records = Vec<(Partition, Record)>;

/// An opened source.
struct Session {
    reader: Box<dyn Reader>,
    acker: Box<dyn Acker>,
    resume: BTreeMap<Partition, Mark>,
    has_ended: bool,
}

impl Session {
    async fn open(source: &dyn Source, resume: &BTreeMap<Partition, Mark>) -> Result<Self, BrokenPromise> {
        let opened = source.open(resume, &host()).await;
        let opened = opened.map_err(|fault| BrokenPromise(format!("the source does not open: {fault}")))?;
        let OpenedSource { reader, acker, starts } = opened;
        let elsewhere = starts.iter().find(|(_, start)| start.is_elsewhere());
        promise(elsewhere.is_none(), || {
            format!("the source does not start after the marks that it was given, but elsewhere: {elsewhere:?}")
        })?;
        Ok(Session { reader, acker, resume: resume.clone(), has_ended: false })
    }

    /// Reads until the source has caught up.
    async fn read(&mut self, room: Room) -> Result<Records, BrokenPromise> {
        let mut records = Records::new();
        loop {
            let read = timeout(PATIENCE, self.reader.read(room)).await;
            let read = read.map_err(|_| BrokenPromise(format!("a read does not return within {PATIENCE:?}")))?;
            if self.took(read, room, &mut records).await? {
                return Ok(records);
            }
        }
    }

    /// Reads until the source has caught up, and cancels each read a few times before.
    async fn read_interrupted(&mut self) -> Result<Records, BrokenPromise> {
        let mut records = Records::new();
        let mut patience = Duration::ZERO;
        loop {
            // Drops the call of a read that does not return in time.
            let read = timeout(patience, self.reader.read(ONE_ROW)).await;
            let Ok(read) = read else {
                patience = (patience * 2).max(Duration::from_micros(100));
                promise(patience < PATIENCE, || "a read that was cancelled before does not return".to_owned())?;
                continue;
            };
            patience = Duration::ZERO;
            if self.took(read, ONE_ROW, &mut records).await? {
                return Ok(records);
            }
        }
    }

    /// Adds the result of a read. Returns `true` if the source has caught up.
    async fn took(
        &mut self,
        read: Result<Read, Fault>,
        room: Room,
        records: &mut Records,
    ) -> Result<bool, BrokenPromise> {
        match read.map_err(|fault| BrokenPromise(format!("a read fails: {fault}")))? {
            Read::Rows { partition, records: read } => {
                promise(!read.is_empty(), || "a read returns no rows".to_owned())?;
                let most = if room.bytes == 1 { 1 } else { room.rows };
                promise(read.len() <= most, || {
                    format!("a read returns {}, {}", counted(read.len(), "row"), shown_room(room))
                })?;
                records.extend(read.into_iter().map(|record| (partition.clone(), record)));
            }
            Read::Failed { partition, record, fault } => {
                promise(fault.class() == FaultClass::Record, || {
                    format!("a record fails with {fault}, which ends runs")
                })?;
                records.push((partition, *record));
            }
            Read::Assigned(partition) => {
                let went_on = self.reader.go_on(&partition, self.resume.get(&partition)).await;
                went_on.map_err(|fault| BrokenPromise(format!("an assigned partition does not resume: {fault}")))?;
            }
            Read::Progress(..) | Read::Finished(_) => {}
            Read::Revoked { partition, .. } | Read::Lost(partition) => {
                return Err(BrokenPromise(format!("the partition {:?} is revoked", partition.0)));
            }
            Read::CaughtUp => return Ok(true),
            Read::End => {
                self.has_ended = true;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Checks that a source that has caught up waits.
    async fn waits(&mut self) -> Result<(), BrokenPromise> {
        if self.has_ended {
            return Ok(());
        }
        match timeout(WAIT, self.reader.read(AMPLE)).await {
            Err(_) => Ok(()),
            Ok(Err(fault)) => Err(BrokenPromise(format!("a read fails: {fault}"))),
            Ok(Ok(read)) => Err(BrokenPromise(format!(
                "after it has caught up, the source does not wait for more records: it returns {read:?}"
            ))),
        }
    }

    async fn acknowledge(&mut self, records: &[(Partition, Record)]) -> Result<(), BrokenPromise> {
        for (partition, record) in records {
            let acked = self.acker.ack(partition, std::slice::from_ref(record.position())).await;
            acked.map_err(|fault| BrokenPromise(format!("an acknowledgement fails: {fault}")))?;
        }
        Ok(())
    }

    /// Acknowledges everything and closes the source.
    async fn end(mut self, records: &Records) -> Result<(), BrokenPromise> {
        self.acknowledge(records).await?;
        let stopped = self.reader.stop().await;
        let closed = self.acker.close().await;
        stopped.and(closed).map_err(|fault| BrokenPromise(format!("the source does not close: {fault}")))
    }
}

fn positions(source: &dyn Source, records: &Records) -> Result<(), BrokenPromise> {
    let mut seen = BTreeSet::new();
    for (partition, record) in records {
        let position = record.position();
        let shown = || shown(position);
        promise(!position.0.is_empty(), || "a record has an empty position".to_owned())?;
        promise(seen.insert((partition, &*position.0)), || format!("two records have the position {}", shown()))?;
        if let Some(Err(fault)) = source.check(position) {
            return Err(BrokenPromise(format!("the source does not accept its own position {}: {fault}", shown())));
        }
    }
    Ok(())
}

fn shown_room(room: Room) -> String {
    match room {
        ONE_ROW => "with room for 1 row".to_owned(),
        ONE_BYTE => "with room for 1 byte".to_owned(),
        _ => format!("with room for {}", counted(room.rows, "row")),
    }
}

fn shown(position: &Position) -> String {
    format!("{:?}", String::from_utf8_lossy(&position.0))
}

/// Returns the marks of the last records of each partition.
fn marks(records: &[(Partition, Record)]) -> BTreeMap<Partition, Mark> {
    let mut marks: BTreeMap<Partition, Mark> = BTreeMap::new();
    for (partition, record) in records {
        let mark = marks.entry(partition.clone()).or_insert_with(|| Mark::beginning(0));
        *mark = Mark { seq: mark.seq + 1, position: record.position().clone(), ..*mark };
    }
    marks
}

/// Checks that the partitions of two reads have the same records in the same order. Metadata is not compared: it may
/// contain the time of the read.
fn same(
    wanted: &[(Partition, Record)],
    read: &[(Partition, Record)],
    how: impl FnOnce() -> String,
) -> Result<(), BrokenPromise> {
    let (wanted, read) = (by_partition(wanted), by_partition(read));
    promise(wanted == read, || {
        let positions = |records: &BTreeMap<&Partition, Vec<Record>>| {
            let positions: Vec<String> = records.values().flatten().map(|record| shown(record.position())).collect();
            format!("[{}]", positions.join(", "))
        };
        let (wanted, read) = (positions(&wanted), positions(&read));
        let other = if wanted == read { " with other content" } else { "" };
        format!("{}, the source reads {read}{other}, not {wanted}", how())
    })
}

fn by_partition(records: &[(Partition, Record)]) -> BTreeMap<&Partition, Vec<Record>> {
    let mut partitions: BTreeMap<&Partition, Vec<Record>> = BTreeMap::new();
    for (partition, record) in records {
        let mut record = record.clone();
        record.metadata = Default::default();
        partitions.entry(partition).or_default().push(record);
    }
    partitions
}

#[cfg(test)]
mod tests;
