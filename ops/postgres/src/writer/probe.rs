//! Finds the rows of a batch that PostgreSQL rejects.

use std::ops::Range;

use anabranch_plugin::destination::{Delivered, Verdicts};
use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{LaneId, Mark};

use super::rejected::{self, RejectedRows};
use super::{RefusedRows, TableWriter, changed, enter, verdicts};
use crate::batch::plan;
use crate::codes;
use crate::fault::Failure;
use crate::marks::{TransactionWork, Work};
use crate::session::Session;

impl TableWriter {
    /// Writes the valid rows and finds the invalid ones, by bisection with savepoints. In a transaction with marks,
    /// nothing is kept if any row is rejected.
    pub(super) async fn probe(
        &mut self,
        session: &mut Session,
        records: &[Record],
        marks: &[(LaneId, Mark)],
        mut refused: RefusedRows,
    ) -> Result<Verdicts, Failure> {
        session.begin().await?;
        let mut entered = TransactionWork::Write;
        let done: Result<(), Failure> = async {
            entered = enter(self.guard.as_ref(), self.fence.as_mut(), session, Work::Write(records, marks)).await?;
            if entered == TransactionWork::Write {
                // A check at the end of the transaction could not be attributed to a row.
                session.execute("SET CONSTRAINTS ALL IMMEDIATE").await?;
                self.bisect(session, &mut refused).await?;
                if !self.is_current(session).await? {
                    return Err(changed());
                }
            }
            Ok(())
        }
        .await;
        let all_or_none = self.fence.is_some() && !refused.is_empty();
        let keep = entered == TransactionWork::Write && !all_or_none;
        self.end(session, Work::Write(records, marks), done, keep).await?;
        match entered {
            TransactionWork::Written => Ok(Verdicts::All(Delivered::Durable)),
            TransactionWork::Write if all_or_none => Ok(Verdicts::Refused(refused)),
            TransactionWork::Write => Ok(verdicts(records.len(), refused)),
        }
    }

    /// Bisects the rows in the order of the records, so that every row that PostgreSQL accepts row by row is accepted.
    async fn bisect(&self, session: &mut Session, refused: &mut RefusedRows) -> Result<(), Failure> {
        let mut stack: Vec<Range<usize>> = Vec::new();
        let mut server = RejectedRows::default();
        stack.push(0..self.batch.rows.len());
        while let Some(range) = stack.pop().filter(|range| !range.is_empty()) {
            match self.try_rows(session, range.clone()).await? {
                Ok(()) => {}
                Err(refusal) if range.len() == 1 => {
                    let fault = self.fault_of_row(range.start, &refusal.fault);
                    if self.is_altered(range.start, &refusal.fault) {
                        return Err(Failure::Retry(rejected::of_table(&fault, rejected::LOST)));
                    }
                    server.note_refusal(&fault, refusal.is_of_table);
                    refused.push((self.batch.rows[range.start].record, fault));
                }
                Err(_) => {
                    let middle = range.start + range.len() / 2;
                    stack.push(middle..range.end);
                    stack.push(range.start..middle);
                }
            }
        }
        if let Some(fault) = server.fault(self.batch.rows.len()) {
            return Err(Failure::Retry(fault));
        }
        refused.sort_by_key(|(record, _)| *record);
        Ok(())
    }

    /// Returns `true` if PostgreSQL rejects a row because its table was altered since similar rows were written.
    fn is_altered(&self, row: usize, fault: &Fault) -> bool {
        let row = &self.batch.rows[row];
        let table = &self.known.tables[row.table];
        matches!(fault.code(), codes::VALUE_REJECTED | codes::NOT_NULL_VIOLATION | codes::ROW_REJECTED)
            && self.settings.history.refuses_since(table, table.shape(row.shape))
    }

    /// Writes some rows of the batch, or none of them.
    async fn try_rows(&self, session: &mut Session, range: Range<usize>) -> Result<Result<(), Rejection>, Failure> {
        let tables = &self.known.tables;
        session.execute("SAVEPOINT anabranch").await?;
        let mut outcome = Ok(());
        for step in plan(&self.batch.rows[range], tables, &self.batch.bytes) {
            outcome = session.run(&step, tables, &self.batch.bytes).await.map(drop);
            if outcome.is_err() {
                break;
            }
        }
        let refusal = match outcome {
            Ok(()) => {
                session.execute("RELEASE anabranch").await?;
                return Ok(Ok(()));
            }
            Err(Failure::Row(fault)) => Rejection { fault, is_of_table: false },
            Err(Failure::Stale(fault)) => Rejection { fault, is_of_table: true },
            Err(other) => return Err(other),
        };
        session.execute("ROLLBACK TO anabranch; RELEASE anabranch").await?;
        Ok(Err(refusal))
    }

    /// Returns the fault of a row, with the columns that PostgreSQL may have meant.
    fn fault_of_row(&self, row: usize, fault: &Fault) -> Fault {
        let row = &self.batch.rows[row];
        let table = &self.known.tables[row.table];
        let columns = match fault.code() {
            codes::VALUE_REJECTED => {
                table.refused_columns(row.shape, &self.batch.bytes[row.values.clone()], &fault.message())
            }
            _ => String::new(),
        };
        Fault::record(fault.code(), format!("{}: {}{columns}", table.name, fault.message()))
    }
}

/// Reason why PostgreSQL does not write some rows.
struct Rejection {
    fault: Fault,
    /// True if the reason is not the rows' values: something that their table, its triggers or its functions need is
    /// missing.
    is_of_table: bool,
}
