//! A destination that does what a script says.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;

use super::{Event, Journal, locked, row_at};
use crate::destination::{Delivered, Destination, Retry, Verdicts, WritePolicy, Writer};
use crate::fault::Fault;
use crate::operator::Host;
use crate::record::Record;
use crate::source::Mark;
use crate::state::LaneId;
use crate::text::Str;

/// What a destination does with one write.
#[derive(Debug)]
pub enum Reaction {
    /// All rows are durable.
    Durable,
    /// All rows are accepted; durable when flushed, lost if that never happens.
    Accepted,
    /// A verdict for each row.
    Each(Vec<Result<Delivered, Fault>>),
    /// The call fails.
    Fail(Fault),
    /// The call never returns.
    Hang,
}

type Script = Arc<dyn Fn(&[Record], usize) -> Reaction + Send + Sync>;

/// Where a destination puts rows. It survives runs and crashes.
pub struct Shelf {
    name: Str,
    journal: Journal,
    script: Script,
    policy: WritePolicy,
    delay: Duration,
    durable: Mutex<Vec<Record>>,
    calls: Mutex<Vec<usize>>,
    flush_faults: Mutex<Vec<Fault>>,
}

impl Shelf {
    /// A shelf on which every row is durable at once.
    pub fn new(name: &str, journal: &Journal) -> Self {
        Shelf {
            name: name.into(),
            journal: journal.clone(),
            script: Arc::new(|_, _| Reaction::Durable),
            policy: WritePolicy { rows: 1000, bytes: 1 << 20, linger: Duration::ZERO, retry: Retry::Idempotent },
            delay: Duration::ZERO,
            durable: Mutex::default(),
            calls: Mutex::default(),
            flush_faults: Mutex::default(),
        }
    }

    /// Reacts as `script` says to the rows and the number of the call, counted from 0.
    #[must_use]
    pub fn script(mut self, script: impl Fn(&[Record], usize) -> Reaction + Send + Sync + 'static) -> Self {
        self.script = Arc::new(script);
        self
    }

    /// Rows are accepted, and durable when flushed.
    #[must_use]
    pub fn accepting(self) -> Self {
        self.script(|_, _| Reaction::Accepted)
    }

    /// Rows of these numbers fail, the others are durable.
    #[must_use]
    pub fn rejecting(self, bad: impl Fn(u64) -> bool + Send + Sync + 'static) -> Self {
        self.script(move |rows, _| {
            let verdict = |record: &Record| match bad(row_at(record.position())) {
                true => Err(Fault::record("rejected", "the destination does not want it")),
                false => Ok(Delivered::Durable),
            };
            Reaction::Each(rows.iter().map(verdict).collect())
        })
    }

    /// Every write takes so long.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// With another policy.
    #[must_use]
    pub fn policy(mut self, change: impl FnOnce(&mut WritePolicy)) -> Self {
        change(&mut self.policy);
        self
    }

    /// The next flush fails with this.
    pub fn fail_flush(&self, fault: Fault) {
        locked(&self.flush_faults).push(fault);
    }

    /// What is durable, in the order in which it was written.
    pub fn durable(&self) -> Vec<Record> {
        locked(&self.durable).clone()
    }

    /// Numbers of the rows that are durable.
    pub fn rows(&self) -> Vec<u64> {
        super::rows(&locked(&self.durable))
    }

    /// Number of rows of each write.
    pub fn calls(&self) -> Vec<usize> {
        locked(&self.calls).clone()
    }

    fn keep(&self, records: impl IntoIterator<Item = Record>) {
        let mut durable = locked(&self.durable);
        for record in records {
            self.journal.note(Event::Durable { shelf: self.name.clone(), row: row_at(record.position()) });
            durable.push(record);
        }
    }
}

/// The shelf as a destination of a plan.
pub(super) struct ShelfDestination(pub(super) Arc<Shelf>);

#[async_trait]
impl Destination for ShelfDestination {
    async fn open(&self, _: &Host) -> Result<Box<dyn Writer>, Fault> {
        Ok(Box::new(ShelfWriter { shelf: self.0.clone(), accepted: Vec::new() }))
    }

    fn policy(&self) -> WritePolicy {
        self.0.policy
    }
}

struct ShelfWriter {
    shelf: Arc<Shelf>,
    accepted: Vec<Record>,
}

#[async_trait]
impl Writer for ShelfWriter {
    async fn write(&mut self, rows: &[Record], _: &[(LaneId, Mark)]) -> Result<Verdicts, Fault> {
        let shelf = self.shelf.clone();
        let call = {
            let mut calls = locked(&shelf.calls);
            calls.push(rows.len());
            calls.len() - 1
        };
        if !shelf.delay.is_zero() {
            tokio::time::sleep(shelf.delay).await;
        }
        match (shelf.script)(rows, call) {
            Reaction::Durable => {
                shelf.keep(rows.iter().cloned());
                Ok(Verdicts::All(Delivered::Durable))
            }
            Reaction::Accepted => {
                self.accepted.extend(rows.iter().cloned());
                Ok(Verdicts::All(Delivered::Accepted))
            }
            Reaction::Each(verdicts) => {
                for (record, verdict) in rows.iter().zip(&verdicts) {
                    match verdict {
                        Ok(Delivered::Durable) => shelf.keep([record.clone()]),
                        Ok(Delivered::Accepted) => self.accepted.push(record.clone()),
                        Err(_) => {}
                    }
                }
                Ok(Verdicts::Each(verdicts))
            }
            Reaction::Fail(fault) => Err(fault),
            Reaction::Hang => std::future::pending().await,
        }
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        if let Some(fault) = locked(&self.shelf.flush_faults).pop() {
            return Err(fault);
        }
        self.shelf.keep(self.accepted.drain(..));
        Ok(())
    }
}
