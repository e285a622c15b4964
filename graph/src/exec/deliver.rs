//! Delivery of rows through a writer, with retries where allowed, and bisection around a record that fails the write.

mod transaction;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::backoff::Backoff;
use anabranch_plugin::destination::{Delivered, Retry, Verdicts, Write, Writer};
use anabranch_plugin::state::Slots;
use anabranch_record::Record;
use anabranch_record::fault::{Fault, FaultClass};

use super::Interrupt;
use super::context::Context;
use crate::codes;

pub(super) use transaction::{Transacted, WriterMarks};

/// Waits between attempts: 100 ms, doubling to 5 s, about 11 s in total. After that the pipeline recovers.
const WAITS: Backoff = Backoff::doubling(Duration::from_millis(100), Duration::from_secs(5));
const ATTEMPTS: u32 = 8;
/// Number of consecutive failures after which a warning is logged, 0.7 s after the first.
const WARNED_AT: u32 = 4;

/// Counts consecutive failures and waits between attempts.
pub(super) struct Attempts {
    failures: u32,
    /// The stage of the failures; `None` = the dead-letter queue.
    stage: Option<usize>,
}

impl Attempts {
    pub(super) fn new(stage: Option<usize>) -> Self {
        Attempts { failures: 0, stage }
    }

    /// Waits before the next attempt.
    ///
    /// # Errors
    /// The fault, if there were enough attempts; `GaveUp` if the run is stopping and there is no time for more.
    pub(super) async fn wait(&mut self, context: &Context, fault: Fault) -> Result<(), Interrupt> {
        self.failures += 1;
        context.progress.note_fault(self.stage, &fault);
        if self.failures >= ATTEMPTS {
            return Err(fault.into());
        }
        if context.retries_over.is_set() {
            return Err(Interrupt::GaveUp);
        }
        if self.failures == WARNED_AT {
            context.complain("the destination fails repeatedly; retries continue", &fault);
        } else {
            context.note("the attempt failed and is retried", &fault);
        }
        tokio::select! {
            () = tokio::time::sleep(WAITS.after(self.failures)) => Ok(()),
            () = context.retries_over.wait() => Err(Interrupt::GaveUp),
        }
    }
}

/// A writer with the policy of its destination.
pub(super) struct Delivery {
    pub(super) context: Arc<Context>,
    /// The writing stage; `None` = the dead-letter queue.
    pub(super) stage: Option<usize>,
    /// The slots whose rows the writer gets.
    pub(super) slots: Slots,
    pub(super) writer: Box<dyn Writer>,
    pub(super) retry: Retry,
    /// Known marks of a transactional destination.
    pub(super) known: WriterMarks,
}

/// Outcome of writing rows.
#[derive(Debug)]
pub(super) enum DeliveryOutcome {
    /// The same for all rows.
    All(Delivered),
    /// By index; one per row.
    Each(Vec<Result<Delivered, Fault>>),
}

impl Delivery {
    /// Writes rows in order and returns the outcome of each. Transient failures are retried and do not appear in the
    /// outcome.
    pub(super) async fn write(&mut self, rows: &[Record]) -> Result<DeliveryOutcome, Interrupt> {
        let mut attempts = Attempts::new(self.stage);
        let mut verdicts: Vec<Option<Result<Delivered, Fault>>> = Vec::new();
        // Ranges that are not written yet, the next one last.
        let all = 0..rows.len();
        let mut todo: Vec<Range<usize>> = Vec::from([all]);
        while let Some(range) = todo.pop() {
            let whole = range.len() == rows.len();
            match self.writer.write(Write::new(&rows[range.clone()])).await {
                Ok(Verdicts::All(delivered)) if whole => return Ok(DeliveryOutcome::All(delivered)),
                Ok(Verdicts::All(delivered)) => {
                    verdicts.resize_with(rows.len(), || None);
                    range.for_each(|row| verdicts[row] = Some(Ok(delivered)));
                    attempts = Attempts::new(self.stage);
                }
                Ok(Verdicts::Refused(refused)) => {
                    verdicts.resize_with(rows.len(), || None);
                    for (row, fault) in checked(refused, range.len())? {
                        verdicts[range.start + row] = Some(Err(fault));
                    }
                    // The other rows are written again, each contiguous range in one call.
                    let mut rest: Vec<Range<usize>> = Vec::new();
                    for row in range.filter(|row| verdicts[*row].is_none()) {
                        match rest.last_mut().filter(|stretch| stretch.end == row) {
                            Some(stretch) => stretch.end += 1,
                            None => rest.push(row..row + 1),
                        }
                    }
                    todo.extend(rest.into_iter().rev());
                }
                Ok(Verdicts::Each(each)) if each.len() != range.len() && !mutant!(VerdictsMadeUp) => {
                    let what = format!("the destination returned {} verdicts for {} records", each.len(), range.len());
                    return Err(Fault::fatal(codes::VERDICT_COUNT, what).into());
                }
                Ok(Verdicts::Each(mut each)) => {
                    if mutant!(VerdictsByCompletion) {
                        each.sort_by_key(Result::is_err);
                    }
                    verdicts.resize_with(rows.len(), || None);
                    let mut again = Vec::new();
                    for (row, verdict) in range.zip(each) {
                        match verdict {
                            Err(fault) if fault.class() == FaultClass::Fatal => return Err(fault.into()),
                            Err(fault) if fault.class() == FaultClass::Transient && mutant!(TransientIsFinal) => {
                                verdicts[row] = Some(Err(fault.with_class(FaultClass::Record)));
                            }
                            Err(fault) if fault.class() == FaultClass::Transient => again.push((row, fault)),
                            verdict => verdicts[row] = Some(verdict),
                        }
                    }
                    if let Some((_, fault)) = again.first() {
                        self.may_repeat(fault)?;
                        attempts.wait(&self.context, fault.clone()).await?;
                        todo.extend(again.into_iter().rev().map(|(row, _)| row..row + 1));
                    }
                }
                Err(fault) => match fault.class() {
                    FaultClass::Fatal => return Err(fault.into()),
                    FaultClass::Transient => {
                        self.may_repeat(&fault)?;
                        attempts.wait(&self.context, fault).await?;
                        match mutant!(RetryReorders) {
                            true => todo.insert(0, range),
                            false => todo.push(range),
                        }
                    }
                    FaultClass::Record if range.len() == 1 => {
                        verdicts.resize_with(rows.len(), || None);
                        verdicts[range.start] = Some(Err(fault));
                    }
                    FaultClass::Record => {
                        let middle = range.start + range.len() / 2;
                        todo.push(middle..range.end);
                        todo.push(range.start..middle);
                        if mutant!(BisectionRepeats) {
                            todo.push(middle..range.end);
                        }
                    }
                },
            }
        }
        let missing = || match mutant!(VerdictsMadeUp) {
            true => Ok(Delivered::Durable),
            false => Err(Fault::fatal(codes::VERDICT_COUNT, "the destination returned no verdict for a record")),
        };
        Ok(DeliveryOutcome::Each(verdicts.into_iter().map(|verdict| verdict.unwrap_or_else(missing)).collect()))
    }

    fn may_repeat(&self, fault: &Fault) -> Result<(), Interrupt> {
        match self.retry {
            Retry::AtMostOnce if mutant!(AtMostOnceRepeats) => Ok(()),
            Retry::AtMostOnce => Err(fault.clone().into()),
            Retry::Idempotent | Retry::Transactional => Ok(()),
        }
    }
}

/// Checks the rejections of a call: at least one, each of a row of the call, each row once, and each caused by the
/// record. Returns them in row order.
fn checked(mut refused: Vec<(usize, Fault)>, rows: usize) -> Result<Vec<(usize, Fault)>, Fault> {
    if let Some((_, fault)) = refused.iter().find(|(_, fault)| fault.class() != FaultClass::Record) {
        return Err(fault.clone());
    }
    refused.sort_by_key(|(row, _)| *row);
    let sound = refused.last().is_some_and(|(last, _)| *last < rows) && refused.is_sorted_by(|a, b| a.0 < b.0);
    if !sound {
        let rows_refused: Vec<usize> = refused.iter().map(|(row, _)| *row).collect();
        let what = format!("the destination refused records {rows_refused:?} of {rows}");
        return Err(Fault::fatal(codes::VERDICT_COUNT, what));
    }
    Ok(refused)
}
