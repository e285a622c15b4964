//! The promises of a destination.

use std::fmt::Debug;
use std::sync::Arc;

use anabranch_record::Record;
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::mark::{LaneId, Mark, Partition};
use anabranch_record::phrase::counted;

use super::super::host;
use super::{BrokenPromise, promise};
use crate::destination::{Delivered, Destination, Retry, Verdicts, Write, Writer};

/// Checks the promises of a destination, and returns what it stores for `rows`.
///
/// `fresh` empties the external system and returns the destination for it. `stored` returns what the external system has,
/// in a form that can be compared. The destination must accept all of `rows`, at least two.
///
/// * Verdicts: there is one for each row, and every row is delivered.
/// * Durability: what is [`Delivered::Durable`] is stored without a flush, and what is [`Delivered::Accepted`] after one.
/// * Order: the same is stored however many rows each write has.
/// * Opening: a destination that is opened again keeps what it stored, and adds to it.
/// * Repetition: rows that are written again, because the outcome of a write was unknown, remove nothing. Compare what is
///   stored after two writes yourself if they must have the same result as one.
/// * Transactions ([`Retry::Transactional`]): marks are stored with the rows, and a writer that was opened earlier is
///   fenced, also before the first mark, and if a write has none.
///
/// The check cannot see whether what is stored survives a power failure.
///
/// # Errors
/// The first promise that the destination does not keep, or a call that failed.
pub async fn check_destination<T: PartialEq + Debug>(
    mut fresh: impl AsyncFnMut() -> Arc<dyn Destination>,
    mut stored: impl AsyncFnMut() -> Vec<T>,
    rows: &[Record],
) -> Result<Vec<T>, BrokenPromise> {
    promise(rows.len() >= 2, || format!("the check needs at least 2 rows, not {}", rows.len()))?;

    let destination = fresh().await;
    let policy = destination.policy();
    promise(policy.rows > 0 && policy.bytes > 0, || "the policy has no room for a row".to_owned())?;
    promise(stored().await.is_empty(), || "the check needs an external system without data".to_owned())?;
    let mut session = Session::open(&*destination).await?;
    let is_durable = session.write(rows, policy.rows).await?;
    let early = stored().await;
    session.flush().await?;
    drop(session);
    let all = stored().await;
    promise(!all.is_empty(), || "after a flush, nothing is stored".to_owned())?;
    promise(!is_durable || early == all, || format!("rows are durable, but without a flush only {early:?} is stored"))?;

    let destination = fresh().await;
    let mut session = Session::open(&*destination).await?;
    session.write(rows, 1).await?;
    session.end().await?;
    let single = stored().await;
    promise(single == all, || format!("single rows are stored as {single:?}, several at once as {all:?}"))?;

    let destination = fresh().await;
    let (first, second) = rows.split_at(rows.len() / 2);
    for (from, rows) in [(0, first), (first.len(), second)] {
        let mut session = Session::open(&*destination).await?;
        session.written = from;
        session.write(rows, policy.rows).await?;
        session.end().await?;
    }
    let resumed = stored().await;
    promise(resumed == all, || format!("a destination that is opened again stores {resumed:?}, not {all:?}"))?;

    match policy.retry {
        Retry::AtMostOnce => {}
        Retry::Idempotent => {
            let destination = fresh().await;
            let mut session = Session::open(&*destination).await?;
            session.write(rows, policy.rows).await?;
            session.write(rows, policy.rows).await?;
            session.end().await?;
            let repeated = stored().await;
            let lost = all.iter().find(|item| !repeated.contains(item));
            promise(lost.is_none(), || format!("rows that are written twice remove {lost:?}"))?;
        }
        Retry::Transactional => check_transactions(&*fresh().await, &mut stored, rows).await?,
    }
    Ok(all)
}

/// Checks that a destination fails the row `bad` alone: the row has a fault of [`FaultClass::Record`], and `rows` are
/// delivered. Returns the fault. `fresh` and `stored` are those of [`check_destination`].
///
/// # Errors
/// The promise that the destination does not keep, or a call that failed.
pub async fn check_refusal<T: PartialEq + Debug>(
    mut fresh: impl AsyncFnMut() -> Arc<dyn Destination>,
    mut stored: impl AsyncFnMut() -> Vec<T>,
    rows: &[Record],
    bad: &Record,
) -> Result<Fault, BrokenPromise> {
    let destination = fresh().await;
    let mut session = Session::open(&*destination).await?;
    session.write(rows, rows.len()).await?;
    session.end().await?;
    let wanted = stored().await;

    let destination = fresh().await;
    let mut session = Session::open(&*destination).await?;
    let middle = rows.len() / 2;
    let mut mixed = rows.to_vec();
    mixed.insert(middle, bad.clone());
    let is_transactional = destination.policy().retry == Retry::Transactional;
    let marks = session.marks(mixed.len());
    let (fault, has_written) = match session.writer.write(Write::new(&mixed).marks(&marks)).await {
        Ok(Verdicts::All(_)) => return Err(BrokenPromise("the destination does not refuse the row".to_owned())),
        Ok(Verdicts::Each(_)) if is_transactional => {
            return Err(BrokenPromise("a transactional destination refuses rows only with `Refused`".to_owned()));
        }
        Ok(Verdicts::Each(mut verdicts)) => {
            promise(verdicts.len() == mixed.len(), || count(mixed.len(), verdicts.len()))?;
            let verdict = verdicts.remove(middle);
            let other = verdicts.into_iter().find_map(Result::err);
            promise(other.is_none(), || format!("another row than the refused one fails: {other:?}"))?;
            (verdict.err(), true)
        }
        Ok(Verdicts::Refused(mut refused)) => {
            let is_alone = refused.len() == 1 && refused[0].0 == middle;
            promise(is_alone, || format!("the row {middle} is to be refused, not {refused:?}"))?;
            (refused.pop().map(|(_, fault)| fault), false)
        }
        Err(fault) => (Some(fault), false),
    };
    let fault = fault.ok_or_else(|| BrokenPromise("the destination does not refuse the row".to_owned()))?;
    promise(fault.class() == FaultClass::Record, || {
        format!("a row is refused with a {:?} fault, which stops other rows too: {fault}", fault.class())
    })?;
    if !has_written {
        let early = stored().await;
        promise(early.is_empty(), || format!("the destination reports that it wrote nothing, but stores {early:?}"))?;
        session.write(rows, rows.len()).await?;
    }
    session.end().await?;
    let found = stored().await;
    promise(found == wanted, || format!("with a refused row, the destination stores {found:?}, not {wanted:?}"))?;
    Ok(fault)
}

async fn check_transactions<T: PartialEq + Debug>(
    destination: &dyn Destination,
    stored: &mut impl AsyncFnMut() -> Vec<T>,
    rows: &[Record],
) -> Result<(), BrokenPromise> {
    let mut fenced = Session::open(destination).await?;
    let mut earlier = Session::open(destination).await?;
    for marks in [Vec::new(), fenced.marks(1)] {
        match fenced.writer.write(Write::new(&rows[..1]).marks(&marks)).await {
            Err(fault) if fault.class() != FaultClass::Record => {}
            other => {
                return Err(BrokenPromise(format!(
                    "before the first mark, a transaction of an earlier writer with the marks {marks:?} does not fail: \
                     {other:?}"
                )));
            }
        }
    }
    drop(fenced);
    earlier.write(&rows[..1], 1).await?;
    let wanted = earlier.marks(0);
    let mut later = Session::open(destination).await?;
    promise(later.known == wanted, || format!("a later writer reads the marks {:?}, not {wanted:?}", later.known))?;
    later.write(&rows[1..], rows.len()).await?;
    let before = stored().await;
    let marks = earlier.marks(1);
    match earlier.writer.write(Write::new(&rows[1..2]).marks(&marks)).await {
        Err(fault) if fault.class() != FaultClass::Record => {}
        other => return Err(BrokenPromise(format!("a transaction of an earlier writer does not fail: {other:?}"))),
    }
    let after = stored().await;
    promise(before == after, || format!("a transaction of an earlier writer stores {after:?} in place of {before:?}"))
}

/// An opened destination.
struct Session {
    writer: Box<dyn Writer>,
    /// The marks that the writer returned when it was opened.
    known: Vec<(LaneId, Mark)>,
    is_transactional: bool,
    /// Rows written so far.
    written: usize,
}

impl Session {
    async fn open(destination: &dyn Destination) -> Result<Self, BrokenPromise> {
        let opened = destination.open(&host()).await;
        let mut writer = opened.map_err(|fault| BrokenPromise(format!("the destination does not open: {fault}")))?;
        let known = writer.marks().await;
        let known = known.map_err(|fault| BrokenPromise(format!("the marks cannot be read: {fault}")))?;
        let is_transactional = destination.policy().retry == Retry::Transactional;
        Ok(Session { writer, known, is_transactional, written: 0 })
    }

    /// Returns the marks of a write of further rows.
    fn marks(&self, rows: usize) -> Vec<(LaneId, Mark)> {
        let lane = LaneId { connector: "source".into(), partition: Partition::ONLY };
        let seq = (self.written + rows) as u64;
        let mark = Mark { generation: 0, seq, position: super::super::position(seq) };
        if self.is_transactional { vec![(lane, mark)] } else { Vec::new() }
    }

    /// Writes rows, at most some at once. Returns `true` if all of them are durable.
    async fn write(&mut self, rows: &[Record], at_once: usize) -> Result<bool, BrokenPromise> {
        let mut is_durable = true;
        for rows in rows.chunks(at_once) {
            let marks = self.marks(rows.len());
            let written = self.writer.write(Write::new(rows).marks(&marks)).await;
            let verdicts = written.map_err(|fault| BrokenPromise(format!("a write fails: {fault}")))?;
            let delivered = match verdicts {
                Verdicts::All(delivered) => vec![delivered],
                Verdicts::Each(verdicts) => {
                    promise(verdicts.len() == rows.len(), || count(rows.len(), verdicts.len()))?;
                    verdicts.into_iter().collect::<Result<_, Fault>>().map_err(|fault| refused(&fault))?
                }
                Verdicts::Refused(rows) => {
                    return Err(rows.first().map_or_else(
                        || BrokenPromise("the destination refuses rows, but names none".to_owned()),
                        |(_, fault)| refused(fault),
                    ));
                }
            };
            is_durable &= delivered.iter().all(|delivered| *delivered == Delivered::Durable);
            self.written += rows.len();
        }
        Ok(is_durable)
    }

    async fn flush(&mut self) -> Result<(), BrokenPromise> {
        self.writer.flush().await.map_err(|fault| BrokenPromise(format!("a flush fails: {fault}")))
    }

    /// Flushes and closes the destination.
    async fn end(mut self) -> Result<(), BrokenPromise> {
        self.flush().await?;
        self.writer.close().await.map_err(|fault| BrokenPromise(format!("the destination does not close: {fault}")))
    }
}

fn count(rows: usize, verdicts: usize) -> String {
    format!("a write of {} returns {}", counted(rows, "row"), counted(verdicts, "verdict"))
}

fn refused(fault: &Fault) -> BrokenPromise {
    BrokenPromise(format!("the destination refuses a row: {fault}"))
}

#[cfg(test)]
mod tests;
