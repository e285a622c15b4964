//! Origin of the rows of a batch, and the alarm for a lost origin.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use super::TopUp;
use crate::ack::{Overdrawn, Run};
use crate::sync::{AtomicBool, AtomicU64, Notify};

/// Signals that a lineage was dropped unsettled, since its rows would never be acknowledged.
#[derive(Debug, Default)]
pub struct Alarm {
    disarmed: AtomicBool,
    lost: AtomicU64,
    rung: Notify,
}

impl Alarm {
    /// Permits dropping lineages: the run has failed, was killed, or gives up the remaining rows.
    pub fn disarm(&self) {
        self.disarmed.store(true, Ordering::Release);
    }

    /// Returns the number of lost rows.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Acquire)
    }

    /// Waits until rows are lost.
    pub async fn rung(&self) {
        while self.lost() == 0 {
            self.rung.notified().await;
        }
    }

    fn ring(&self, rows: usize) {
        if !self.disarmed.load(Ordering::Acquire) {
            self.lost.fetch_add(rows as u64, Ordering::AcqRel);
            self.rung.notify_one();
        }
    }
}

/// The runs that the rows of a batch belong to, in the order of the rows.
///
/// Not `Copy` or `Clone`: the holder must settle it. Dropping it unsettled rings the [`Alarm`].
#[derive(Debug)]
#[must_use]
pub struct Lineage {
    runs: SmallVec<[Run; 1]>,
    alarm: Arc<Alarm>,
}

impl Drop for Lineage {
    fn drop(&mut self) {
        if !self.runs.is_empty() {
            self.alarm.ring(self.rows());
        }
    }
}

impl Lineage {
    /// Creates a lineage without rows.
    pub fn none(alarm: &Arc<Alarm>) -> Self {
        Lineage { runs: SmallVec::new(), alarm: alarm.clone() }
    }

    /// Creates a lineage with the rows of one run.
    pub fn of(run: Run, alarm: &Arc<Alarm>) -> Self {
        Lineage { runs: SmallVec::from_buf([run]), alarm: alarm.clone() }
    }

    /// Returns the number of rows. O(runs).
    pub fn rows(&self) -> usize {
        self.runs.iter().map(Run::rows).sum()
    }

    /// Returns `true` if there are no rows. O(1).
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the runs, in the order of the rows.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Returns `true` if a row is traced in a segment that the lineage has rows of. O(runs).
    #[inline]
    pub(crate) fn is_traced(&self) -> bool {
        self.runs.iter().any(Run::is_traced)
    }

    /// Marks a row of the lineage as traced.
    pub(crate) fn set_traced(&mut self) {
        self.runs.iter_mut().for_each(Run::set_traced);
    }

    /// Creates a lineage without rows that has the same alarm.
    pub fn sibling(&self) -> Lineage {
        Lineage::none(&self.alarm)
    }

    /// Returns the alarm that rings if the lineage is dropped.
    #[cfg(all(test, feature = "loom"))]
    pub(crate) fn alarm(&self) -> Arc<Alarm> {
        self.alarm.clone()
    }

    /// Moves all rows out and leaves an empty lineage.
    pub fn take(&mut self) -> Lineage {
        Lineage { runs: std::mem::take(&mut self.runs), alarm: self.alarm.clone() }
    }

    /// Returns the runs; the caller must settle them.
    pub(crate) fn settle_runs(mut self) -> SmallVec<[Run; 1]> {
        std::mem::take(&mut self.runs)
    }

    /// Appends another lineage and joins adjacent runs. O(appended runs).
    pub fn append(&mut self, mut other: Lineage) {
        for run in std::mem::take(&mut other.runs) {
            self.push(run);
        }
    }

    pub(super) fn push(&mut self, run: Run) {
        match self.runs.last_mut() {
            None => self.runs.push(run),
            Some(last) => {
                if let Err(run) = last.join(run) {
                    self.runs.push(run);
                }
            }
        }
    }

    /// Divides the credit of every row among `n` copies: `self` becomes one, the others are returned. O(n × runs).
    pub(super) fn divide(&mut self, n: usize, lend: TopUp<'_>) -> Result<SmallVec<[Lineage; 1]>, Overdrawn> {
        let mut others: SmallVec<[Lineage; 1]> = (1..n).map(|_| Lineage::none(&self.alarm)).collect();
        if others.is_empty() {
            return Ok(others);
        }
        for run in &mut self.runs {
            let parts = match run.divide(n as u32) {
                Some(parts) => parts,
                None => {
                    lend(run)?;
                    run.divide(n as u32).unwrap_or_default()
                }
            };
            debug_assert_eq!(parts.len(), others.len());
            for (other, part) in others.iter_mut().zip(parts) {
                other.push(part);
            }
        }
        Ok(others)
    }

    /// Splits the lineage into the first `rows` rows and the rest.
    pub(crate) fn cut(self, rows: usize) -> (Lineage, Lineage) {
        let rest = self.rows().saturating_sub(rows);
        let mut feed = self.feed();
        (feed.next(rows), feed.next(rest))
    }

    /// Converts the lineage to one that can be consumed from the front.
    pub(super) fn feed(mut self) -> Feed {
        self.runs.reverse();
        Feed { reversed: self }
    }
}

/// A lineage that is consumed from the front. Dropping the rest rings the alarm, as for the lineage itself.
#[derive(Debug)]
pub(super) struct Feed {
    reversed: Lineage,
}

impl Feed {
    /// Moves the next `rows` rows to the end of `to`. O(runs moved).
    pub(super) fn move_to(&mut self, mut rows: usize, to: &mut Lineage) {
        while rows > 0 {
            let Some(mut run) = self.reversed.runs.pop() else { return };
            if run.rows() > rows {
                let head = run.cut(rows);
                self.reversed.runs.push(run);
                run = head;
            }
            rows -= run.rows();
            to.push(run);
        }
    }

    /// Moves the next row to the end of `to` as `n` pieces.
    pub(super) fn split_to(&mut self, n: usize, to: &mut Lineage, lend: TopUp<'_>) -> Result<(), Overdrawn> {
        let Some(mut run) = self.reversed.runs.pop() else { return Ok(()) };
        if run.rows() > 1 {
            let head = run.cut(1);
            self.reversed.runs.push(run);
            run = head;
        }
        let n = u32::try_from(n).unwrap_or(u32::MAX);
        let (first, rest) = match run.pieces(n) {
            Ok(pieces) => pieces,
            Err(mut run) => {
                lend(&mut run)?;
                match run.pieces(n) {
                    Ok(pieces) => pieces,
                    Err(run) => (run, None),
                }
            }
        };
        to.push(first);
        if let Some(rest) = rest {
            to.push(rest);
        }
        Ok(())
    }

    /// Removes and returns the next `rows` rows.
    pub(super) fn next(&mut self, rows: usize) -> Lineage {
        let mut lineage = Lineage::none(&self.reversed.alarm);
        self.move_to(rows, &mut lineage);
        lineage
    }
}
