use std::sync::Mutex;

use async_trait::async_trait;

use super::*;
use crate::destination::{Write, WritePolicy};
use crate::host::Host;
use crate::testing::codes;
use crate::testing::{Downstream, DownstreamDestination, Journal, Reaction, record, row_at};

/// A mistake of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    TooFewVerdicts,
    FailsEverySecond,
    DurableTooEarly,
    ForgetsAccepted,
    ReversesRows,
    TruncatesWhenOpened,
    RemovesRepeated,
    RefusesAsFatal,
    RefusesAfterWriting,
    DoesNotRefuse,
}

/// A list; rows are durable after a flush. It refuses the row 13.
struct List {
    mistake: Mistake,
    rows: Arc<Mutex<Vec<u64>>>,
}

#[async_trait]
impl Destination for List {
    async fn open(&self, _: &Host) -> Result<Box<dyn Writer>, Fault> {
        if self.mistake == Mistake::TruncatesWhenOpened {
            self.rows.lock().unwrap().clear();
        }
        Ok(Box::new(ListWriter { mistake: self.mistake, rows: self.rows.clone(), accepted: Vec::new() }))
    }

    fn policy(&self) -> WritePolicy {
        WritePolicy { rows: 3, bytes: 1 << 20, linger: Default::default(), retry: Retry::Idempotent }
    }
}

struct ListWriter {
    mistake: Mistake,
    rows: Arc<Mutex<Vec<u64>>>,
    accepted: Vec<u64>,
}

#[async_trait]
impl Writer for ListWriter {
    async fn write(&mut self, Write { rows, .. }: Write<'_>) -> Result<Verdicts, Fault> {
        let mut numbers: Vec<u64> = rows.iter().map(|record| row_at(record.position())).collect();
        let refused = numbers.iter().position(|row| *row == 13);
        if let Some(refused) = refused.filter(|_| self.mistake != Mistake::DoesNotRefuse) {
            let fault = Fault::record(codes::BAD, "it is 13");
            return match self.mistake {
                Mistake::RefusesAsFatal => Err(Fault::fatal(codes::BAD, "it is 13")),
                Mistake::RefusesAfterWriting => {
                    self.rows.lock().unwrap().extend(&numbers[..refused]);
                    Err(fault)
                }
                _ => {
                    self.accepted.extend(numbers.iter().filter(|row| **row != 13));
                    let verdict = |row: &u64| if *row == 13 { Err(fault.clone()) } else { Ok(Delivered::Accepted) };
                    Ok(Verdicts::Each(numbers.iter().map(verdict).collect()))
                }
            };
        }
        match self.mistake {
            Mistake::TooFewVerdicts => return Ok(Verdicts::Each(Vec::new())),
            Mistake::FailsEverySecond if numbers[0] == 3 => return Err(Fault::transient(codes::AWAY, "it is busy")),
            Mistake::ReversesRows => numbers.reverse(),
            Mistake::RemovesRepeated if self.accepted.contains(&numbers[0]) => self.accepted.clear(),
            _ => self.accepted.extend(&numbers),
        }
        if self.mistake == Mistake::ReversesRows {
            self.accepted.extend(&numbers);
        }
        let is_durable = self.mistake == Mistake::DurableTooEarly;
        Ok(Verdicts::All(if is_durable { Delivered::Durable } else { Delivered::Accepted }))
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        let accepted = std::mem::take(&mut self.accepted);
        if self.mistake != Mistake::ForgetsAccepted {
            self.rows.lock().unwrap().extend(accepted);
        }
        Ok(())
    }
}

/// Returns the message of a broken promise to deliver rows, or to refuse the row 13.
async fn checked(mistake: Mistake) -> Option<String> {
    let rows = Arc::new(Mutex::new(Vec::new()));
    let fresh = async || {
        rows.lock().unwrap().clear();
        Arc::new(List { mistake, rows: rows.clone() }) as Arc<dyn Destination>
    };
    let stored = async || rows.lock().unwrap().clone();
    let records: Vec<Record> = (0..8).map(record).collect();
    match check_destination(fresh, stored, &records).await {
        Err(broken) => return Some(broken.to_string()),
        Ok(stored) => assert_eq!(stored, [0, 1, 2, 3, 4, 5, 6, 7]),
    }
    match check_refusal(fresh, stored, &records, &record(13)).await {
        Err(broken) => Some(broken.to_string()),
        Ok(fault) => {
            assert_eq!(fault.code(), codes::BAD);
            None
        }
    }
}

#[tokio::test]
async fn a_destination_that_keeps_its_promises_passes() {
    assert_eq!(checked(Mistake::None).await, None);
}

#[tokio::test]
async fn each_mistake_is_found() {
    for (mistake, message) in [
        (Mistake::TooFewVerdicts, "a write of 3 rows returns 0 verdicts"),
        (Mistake::FailsEverySecond, "a write fails: it is busy"),
        (Mistake::DurableTooEarly, "rows are durable, but without a flush only [] is stored"),
        (Mistake::ForgetsAccepted, "after a flush, nothing is stored"),
        (Mistake::ReversesRows, "single rows are stored as [0, 1, 2, 3, 4, 5, 6, 7], several at once as [2, 1, 0, 5,"),
        (Mistake::TruncatesWhenOpened, "a destination that is opened again stores [4, 5, 6, 7], not [0, 1,"),
        (Mistake::RemovesRepeated, "rows that are written twice remove Some(0)"),
        (Mistake::RefusesAsFatal, "a row is refused with a Fatal fault, which stops other rows too: it is 13"),
        (Mistake::RefusesAfterWriting, "the destination reports that it wrote nothing, but stores [0, 1, 2, 3]"),
        (Mistake::DoesNotRefuse, "the destination does not refuse the row"),
    ] {
        let found = checked(mistake).await.unwrap_or_default();
        assert!(found.starts_with(message), "{mistake:?}: {found}");
    }
}

/// Checks shelves with rows and marks in one transaction.
async fn transactional(make: impl Fn(Downstream) -> Downstream) -> Result<Vec<u64>, String> {
    let shelf = Mutex::new(Arc::new(Downstream::new("shelf", &Journal::default())));
    let fresh = async || {
        let new = Arc::new(make(Downstream::new("shelf", &Journal::default()).transactional()));
        *shelf.lock().unwrap() = new.clone();
        Arc::new(DownstreamDestination(new)) as Arc<dyn Destination>
    };
    let stored = async || shelf.lock().unwrap().rows();
    let records: Vec<Record> = (0..4).map(record).collect();
    check_destination(fresh, stored, &records).await.map_err(|broken| broken.to_string())
}

#[tokio::test]
async fn transactions_store_marks_and_are_fenced() {
    assert_eq!(transactional(|shelf| shelf).await, Ok(vec![0, 1, 2, 3]));
    // Accepted rows have no transaction, and so no marks.
    let found = transactional(|shelf| shelf.script(|_, _| Reaction::Accepted)).await.unwrap_err();
    assert!(found.starts_with("a later writer reads the marks [], not [(LaneId"), "{found}");
}
