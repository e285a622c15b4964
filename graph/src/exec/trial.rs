//! Trial of a plan: runs its real sources and processors on a limited number of records, without lasting effects on
//! sources.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anabranch_plugin::destination::{Delivered, Destination, Retry, Verdicts, Write, WritePolicy, Writer};
use anabranch_plugin::host::{Host, LogSink, Network};
use anabranch_plugin::schema::SchemaRegistry;
use anabranch_plugin::source::{Acker, Backlog, OpenedSource, Read, Reader, Room, Source, Start};
use anabranch_plugin::state::{Commit, DiscardingState, Epoch, Receipt, StateStore, StoreError, Unit};
use anabranch_record::Position;
use anabranch_record::fault::Fault;
use anabranch_record::mark::{LaneId, Mark, Partition};
use anabranch_record::text::Str;
use async_trait::async_trait;
use tokio::time::timeout;

use super::{Ending, RunOptions, Services, start};
use crate::plan::Measured;
use crate::plan::stage::{StageKind, StagePlan};

/// Parameters of a trial.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    /// Maximum number of records read from each source.
    pub records: usize,
    /// True if destinations and the dead-letter queue are written. Otherwise their records are discarded, and the
    /// number of failures is not limited.
    pub write: bool,
    /// Time limit. A source with fewer records that never ends would wait forever.
    pub patience: Duration,
}

/// Time limit for draining after the time limit of the trial.
const DRAIN: Duration = Duration::from_secs(10);

/// Runs a plan from the beginning of its sources and returns measurements. Positions are not stored or acknowledged, so
/// the next run reads the same records.
///
/// # Errors
/// A source, processor or destination cannot be opened. Later failures are part of the measurements.
pub async fn try_out(
    plan: &StagePlan,
    trial: Trial,
    log: Arc<dyn LogSink>,
    mask: Arc<[Str]>,
    schemas: Arc<dyn SchemaRegistry>,
) -> Result<Measured, Fault> {
    let plan = Arc::new(on_trial(plan, trial));
    let options = RunOptions { once: true, mask, ..RunOptions::default() };
    let begin = Instant::now();
    let (result_cache, active) = (Arc::new(DiscardingState), Arc::new(DiscardingState));
    let (store, network) = (Arc::new(DiscardingStateStore), Network::Open);
    let shared = None;
    let services = Services { store, letters: None, log, result_cache, active, schemas, network, shared };
    let mut running = start(plan, services, options);
    let progress = running.progress();
    running.opened().await?;
    let (ending, late) = match timeout(trial.patience, running.wait()).await {
        Ok(ending) => (ending, None),
        Err(_) => {
            running.stop(Some(DRAIN));
            (running.wait().await, Some(format!("the time limit of {} s was reached", trial.patience.as_secs())))
        }
    };
    let said: Vec<String> = late.into_iter().chain(told(&ending)).collect();
    let totals = progress.totals();
    Ok(Measured {
        stages: progress.stages().iter().map(|stage| stage.nodes.iter().map(|node| node.count).collect()).collect(),
        elapsed: begin.elapsed(),
        read: totals.read,
        delivered: totals.delivered,
        failed: totals.failed,
        written: trial.write,
        cut_short: (!said.is_empty()).then(|| said.join(", and ")),
        broken: matches!(ending, Ending::Faulted(_) | Ending::Killed),
    })
}

/// Describes the outcome, unless it is a success.
fn told(ending: &Ending) -> Option<String> {
    match ending {
        Ending::Finished | Ending::Stopped => None,
        Ending::NotDrained { left } => {
            let left: Vec<&str> = left.iter().map(Str::as_str).collect();
            Some(format!("records remained in {}", left.join(", ")))
        }
        Ending::Faulted(fault) => Some(format!("it failed: {fault}")),
        Ending::Killed => Some("it was killed".to_owned()),
    }
}

fn on_trial(plan: &StagePlan, trial: Trial) -> StagePlan {
    let mut plan = plan.clone();
    for stage in &mut plan.stages {
        match &mut stage.kind {
            StageKind::Read(read) => {
                read.source = Arc::new(Bounded { source: read.source.clone(), records: trial.records });
            }
            StageKind::Write(write) if !trial.write => {
                write.destination = Discard::instead_of(&*write.destination);
                write.rate = None;
            }
            _ => {}
        }
    }
    // The store of a trial stores nothing.
    if !trial.write || plan.dead_letter.destination.keeps_letters().is_some() {
        plan.dead_letter.destination = Discard::instead_of(&*plan.dead_letter.destination);
        plan.dead_letter.window_size = 0;
    }
    plan
}

/// A source that ends after a number of records.
struct Bounded {
    source: Arc<dyn Source>,
    records: usize,
}

struct BoundedReader {
    reader: Box<dyn Reader>,
    left: usize,
}

/// Holds an acknowledger without using it.
struct UnusedAcker {
    _acker: Box<dyn Acker>,
}

#[async_trait]
impl Source for Bounded {
    fn catches_up(&self) -> bool {
        true
    }

    async fn open(&self, resume: &BTreeMap<Partition, Mark>, host: &Host) -> Result<OpenedSource, Fault> {
        let mut opened = self.source.open(resume, host).await?;
        opened.reader = Box::new(BoundedReader { reader: opened.reader, left: self.records });
        opened.acker = Box::new(UnusedAcker { _acker: opened.acker });
        Ok(opened)
    }
}

#[async_trait]
impl Reader for BoundedReader {
    async fn read(&mut self, room: Room) -> Result<Read, Fault> {
        if self.left == 0 {
            return Ok(Read::End);
        }
        let room = Room { rows: room.rows.min(self.left), ..room };
        Ok(match self.reader.read(room).await? {
            Read::Rows { partition, mut records } => {
                records.truncate(self.left);
                self.left -= records.len();
                Read::Rows { partition, records }
            }
            failed @ Read::Failed { .. } => {
                self.left -= 1;
                failed
            }
            other => other,
        })
    }

    async fn change(&mut self) -> Result<Read, Fault> {
        self.reader.change().await
    }

    async fn go_on(&mut self, partition: &Partition, mark: Option<&Mark>) -> Result<Start, Fault> {
        self.reader.go_on(partition, mark).await
    }

    async fn backlog(&mut self) -> Option<Backlog> {
        self.reader.backlog().await
    }

    async fn stop(&mut self) -> Result<(), Fault> {
        self.reader.stop().await
    }
}

#[async_trait]
impl Acker for UnusedAcker {
    async fn ack(&mut self, _: &Partition, _: &[Position]) -> Result<(), Fault> {
        Ok(())
    }
}

/// A destination that discards records, with the policy of the destination that it replaces.
struct Discard(WritePolicy);

impl Discard {
    fn instead_of(destination: &dyn Destination) -> Arc<dyn Destination> {
        Arc::new(Discard(WritePolicy { retry: Retry::Idempotent, ..destination.policy() }))
    }
}

#[async_trait]
impl Destination for Discard {
    async fn open(&self, _: &Host) -> Result<Box<dyn Writer>, Fault> {
        Ok(Box::new(Discard(self.0)))
    }

    fn policy(&self) -> WritePolicy {
        self.0
    }
}

#[async_trait]
impl Writer for Discard {
    async fn write(&mut self, _: Write<'_>) -> Result<Verdicts, Fault> {
        Ok(Verdicts::All(Delivered::Durable))
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

/// A store that discards everything.
struct DiscardingStateStore;

#[async_trait]
impl StateStore for DiscardingStateStore {
    async fn claim(&self, unit: &Unit) -> Result<Epoch, StoreError> {
        Ok(Epoch { unit: unit.clone(), number: 1 })
    }

    async fn load(&self, _: &Epoch) -> Result<BTreeMap<LaneId, Mark>, StoreError> {
        Ok(BTreeMap::new())
    }

    async fn receipts(&self, _: &Epoch) -> Result<Vec<Receipt>, StoreError> {
        Ok(Vec::new())
    }

    async fn commit(&self, _: &Epoch, _: Commit<'_>) -> Result<(), StoreError> {
        Ok(())
    }
}
