//! A transaction of rows and marks, repeated only if the destination does not have them.

use std::collections::BTreeMap;

use anabranch_plugin::destination::{Delivered, Verdicts, Write};
use anabranch_record::Record;
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::mark::{LaneId, Mark};

use super::{Attempts, Delivery, checked};
use crate::codes;
use crate::exec::Interrupt;
use crate::plan::stage::StageId;

/// Marks of a destination, as far as its writer has read or stored them.
pub(in crate::exec) type WriterMarks = BTreeMap<LaneId, Mark>;

/// Outcome of a transaction.
pub(in crate::exec) enum Transacted {
    /// It is committed with its marks.
    Written,
    /// Nothing was written, because of these rows: at least one, by index, in order.
    Refused(Vec<(usize, Fault)>),
    /// Nothing was written, because of an unknown row.
    Unfit(Fault),
}

/// State of a transaction whose outcome was unknown.
#[derive(Debug, PartialEq, Eq)]
enum TransactionState {
    /// All of it is committed.
    Written,
    /// Nothing of it is committed.
    Nothing,
    /// The destination has marks that this run did not store.
    Strange,
}

impl Delivery {
    /// Writes rows with the marks that they complete. After a failure with an unknown outcome, reads the marks of the
    /// destination: it has the rows if it has the marks.
    pub(in crate::exec) async fn transact(
        &mut self,
        rows: &[Record],
        marks: &[(LaneId, Mark)],
    ) -> Result<Transacted, Interrupt> {
        let mut attempts = Attempts::new(self.stage);
        loop {
            match self.writer.write(Write::new(rows).marks(marks)).await {
                Ok(Verdicts::All(Delivered::Durable)) => return Ok(self.written(marks)),
                Ok(Verdicts::Refused(refused)) => return Ok(Transacted::Refused(checked(refused, rows.len())?)),
                Ok(Verdicts::All(Delivered::Accepted) | Verdicts::Each(_)) => {
                    let what = "the destination promised transactions, but answered for single records or without \
                                storing them";
                    return Err(Fault::fatal(codes::VERDICT_KIND, what).into());
                }
                Err(fault) => match fault.class() {
                    FaultClass::Fatal => return Err(fault.into()),
                    FaultClass::Record => return Ok(Transacted::Unfit(fault)),
                    FaultClass::Transient => attempts.wait(&self.context, fault).await?,
                },
            }
            if mutant!(OutcomeNotAsked) {
                continue;
            }
            let stored = self.stored(&mut attempts).await?;
            match compare(marks, &self.known, &stored) {
                TransactionState::Written => return Ok(self.written(marks)),
                TransactionState::Nothing => {}
                TransactionState::Strange => return Err(strange().into()),
            }
        }
    }

    /// Removes the marks of finished lanes, if the destination is asked to.
    pub(in crate::exec) async fn forget_finished(&mut self) -> Result<(), Interrupt> {
        let Some(stage) = self.stage.map(StageId) else { return Ok(()) };
        let lanes = self.context.confirmed.asked_to_forget(stage, self.slots);
        if lanes.is_empty() {
            return Ok(());
        }
        let mut attempts = Attempts::new(self.stage);
        let removed = loop {
            match self.writer.forget(&lanes).await {
                Ok(removed) => break removed,
                Err(fault) if fault.class() == FaultClass::Transient => attempts.wait(&self.context, fault).await?,
                Err(fault) => return Err(fault.into()),
            }
            let stored = self.stored(&mut attempts).await?;
            match forgotten(&lanes, &self.known, &stored) {
                TransactionState::Written => break true,
                TransactionState::Nothing => {}
                TransactionState::Strange => return Err(strange().into()),
            }
        };
        if removed {
            lanes.iter().for_each(|lane| drop(self.known.remove(lane)));
        }
        self.context.confirmed.forgot(stage, &lanes, removed);
        self.context.lanes.commit_soon();
        Ok(())
    }

    fn written(&mut self, marks: &[(LaneId, Mark)]) -> Transacted {
        self.known.extend(marks.iter().cloned());
        if let Some(stage) = self.stage {
            self.context.confirmed.note(StageId(stage), marks);
        }
        Transacted::Written
    }

    /// Reads the marks after a transaction with an unknown outcome.
    async fn stored(&mut self, attempts: &mut Attempts) -> Result<WriterMarks, Interrupt> {
        loop {
            match self.writer.marks().await {
                Ok(stored) => return Ok(stored.into_iter().collect()),
                Err(fault) if fault.class() == FaultClass::Transient => attempts.wait(&self.context, fault).await?,
                Err(fault) => return Err(fault.into()),
            }
        }
    }
}

fn strange() -> Fault {
    let what = "the destination does not have the positions that this run stored there: it lost records that it had \
                confirmed, or another run writes there";
    Fault::transient(codes::MARKS_MOVED, what)
}

/// Like [`compare`], for a transaction that removes the marks of lanes.
fn forgotten(lanes: &[LaneId], known: &WriterMarks, stored: &WriterMarks) -> TransactionState {
    let mut others = known.iter().filter(|(lane, _)| !lanes.contains(lane));
    match () {
        () if others.any(|(lane, mark)| stored.get(lane) != Some(mark)) => TransactionState::Strange,
        () if lanes.iter().all(|lane| !stored.contains_key(lane)) => TransactionState::Written,
        () if lanes.iter().all(|lane| stored.get(lane) == known.get(lane)) => TransactionState::Nothing,
        () => TransactionState::Strange,
    }
}

fn compare(marks: &[(LaneId, Mark)], known: &WriterMarks, stored: &WriterMarks) -> TransactionState {
    let others = known.iter().filter(|(lane, _)| marks.iter().all(|(of, _)| of != *lane));
    if others.into_iter().any(|(lane, mark)| stored.get(lane) != Some(mark)) {
        return TransactionState::Strange;
    }
    // Compare with the known marks first: a replay that is not exact writes below the marks, which then do not change.
    if marks.iter().all(|(lane, _)| stored.get(lane) == known.get(lane)) {
        TransactionState::Nothing
    } else if marks.iter().all(|(lane, mark)| stored.get(lane) == Some(mark)) {
        TransactionState::Written
    } else {
        TransactionState::Strange
    }
}
