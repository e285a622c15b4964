//! The return path: flushes destinations, stores the settled prefix of every lane in one commit, and then acknowledges
//! it to the sources. Always in this order, and never two at a time.

use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::backoff::Backoff;
use anabranch_plugin::source::Acker;
use anabranch_plugin::state::{Commit, StoreError};
use anabranch_record::Position;
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::mark::{LaneId, Mark, Partition};
use anabranch_record::text::Str;
use futures::future::{join_all, try_join_all};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::claims::Claims;
use super::context::Context;
use super::lanes::{Change, Due, Released, SettledPrefix};
use super::meter::StageMeters;
use super::write::gate::FlushGate;
use crate::ack::LaneIndex;
use crate::codes;

/// Time that a settled row waits for other rows to be stored with it.
const INTERVAL: Duration = Duration::from_millis(50);
/// Maximum time that a commit waits for a destination to flush. Rows that become durable later are part of the next
/// commit.
const FLUSH: Duration = Duration::from_millis(250);
/// Attempts of an acknowledgement, with waits of 10 ms doubling to 500 ms.
const ACK_ATTEMPTS: u32 = 12;
const ACK_WAITS: Backoff = Backoff::doubling(Duration::from_millis(10), Duration::from_millis(500));

/// Acknowledger of a source.
pub(super) struct Acknowledging {
    pub(super) connector: Str,
    pub(super) acker: Box<dyn Acker>,
    pub(super) meters: StageMeters,
}

pub(super) struct Drain {
    pub(super) context: Arc<Context>,
    pub(super) claims: Claims,
    pub(super) sources: Vec<Acknowledging>,
    pub(super) gates: Vec<Arc<FlushGate>>,
    /// Partitions that were not read in this run and are finished.
    pub(super) removable: Vec<LaneId>,
}

/// A generation that begins, and whom to inform when its mark is stored.
type Begun = (LaneId, Mark, oneshot::Sender<()>);

/// Converts a failure of the store to a fault of the run.
pub(super) fn store_fault(error: StoreError) -> Fault {
    match error {
        StoreError::Fenced { .. } | StoreError::Elsewhere { .. } => Fault::fatal(codes::FENCED, error),
        StoreError::Unavailable(_) => Fault::transient(codes::STORE_UNAVAILABLE, error),
        StoreError::Gone(_) => Fault::fatal(codes::STORE_GONE, error),
        StoreError::Damaged(_) => Fault::fatal(codes::STORE_DAMAGED, error),
    }
}

impl Drain {
    /// Commits and acknowledges until the run has drained or failed.
    pub(super) async fn run(mut self) {
        let result = self.commit_until_drained().await;
        if let Err(fault) = result {
            self.context.fail(fault);
            return;
        }
        let context = self.context.clone();
        if context.halt.is_set() {
            return;
        }
        let closing = self.sources.iter_mut().map(|source| async {
            if let Err(fault) = source.acker.close().await {
                context.warn(&source.connector, "could not close the source", &fault);
            }
        });
        join_all(closing).await;
    }

    async fn commit_until_drained(&mut self) -> Result<(), Fault> {
        let context = self.context.clone();
        let mut earliest = Instant::now();
        loop {
            tokio::select! {
                biased;
                () = context.halt.wait() => return self.last_commit().await,
                () = context.drained.wait() => break,
                () = wait_until_due(&context, earliest) => {}
            }
            context.lanes.begin_commit();
            tokio::select! {
                biased;
                () = context.halt.wait() => return self.last_commit().await,
                () = context.drained.wait() => {}
                () = flush(&self.gates) => {}
            }
            self.commit().await?;
            earliest = Instant::now() + INTERVAL;
        }
        if mutant!(NoLastCommit) {
            return Ok(());
        }
        // Every writer has flushed and ended, so one commit includes all settled rows. A second one removes the marks
        // of partitions that it finishes.
        context.lanes.begin_commit();
        while self.commit().await? {}
        Ok(())
    }

    /// Stores the settled rows of a failed run, so that the next run repeats fewer rows. A stage drops its rows before
    /// it reports its fault, so the fault is known only when all stages have ended.
    async fn last_commit(&mut self) -> Result<(), Fault> {
        self.context.drained.wait().await;
        if self.context.may_still_commit() { self.commit().await.map(drop) } else { Ok(()) }
    }

    /// Carries out what is due. Returns `false` if nothing was.
    async fn commit(&mut self) -> Result<bool, Fault> {
        let stored = self.store().await?;
        let removed = self.remove_finished().await?;
        let released = self.report_released().await?;
        Ok(stored || removed || released)
    }

    /// Stores and acknowledges settled rows, and stores the beginnings of generations.
    async fn store(&mut self) -> Result<bool, Fault> {
        let settled = self.context.lanes.advance();
        let mut begun = Vec::new();
        for change in self.context.lanes.take_changes() {
            match change {
                Change::Begin { id, mark, stored } => begun.push((id, mark, stored)),
                Change::Remove(id) => self.removable.push(id),
            }
        }
        if settled.is_empty() && begun.is_empty() {
            return Ok(false);
        }
        let lanes: Vec<_> = settled.iter().map(|settled| settled.lane).collect();
        let below: Vec<u64> = match &self.context.traces {
            Some(_) => settled.iter().map(|settled| settled.advance.mark.seq).collect(),
            None => Vec::new(),
        };
        let progress = self.context.progress.clone();
        progress.set_storing(true);
        self.store_and_tell(settled, begun).await?;
        progress.set_storing(false);
        // Must come before `told`, after which a lane may be replaced and its index reused.
        if let Some(traces) = &self.context.traces {
            lanes.iter().zip(below).for_each(|(lane, below)| traces.acknowledged(*lane, below));
        }
        self.context.lanes.told(&lanes);
        Ok(true)
    }

    /// Removes the marks of finished partitions, first at transactional destinations: a mark that is left there must
    /// not become the position of a partition with the same name.
    async fn remove_finished(&mut self) -> Result<bool, Fault> {
        let (lanes, confirmed) = (&self.context.lanes, &self.context.confirmed);
        let mut over = lanes.over();
        if over.is_empty() && self.removable.is_empty() {
            return Ok(false);
        }
        let ids = over.iter().map(|(_, id)| id).chain(&self.removable);
        let asked: Vec<LaneId> = ids.filter(|id| confirmed.removes(id)).cloned().collect();
        if !asked.is_empty() {
            let receipts = confirmed.waive(&asked);
            if !receipts.is_empty() {
                let commit = Commit::default().with_receipts(&receipts);
                self.claims.commit(&*self.context.services.store, commit).await.map_err(store_fault)?;
            }
            confirmed.ask_to_forget(&asked);
            self.gates.iter().for_each(|gate| gate.wake());
        }
        over.retain(|(_, id)| !confirmed.removes(id));
        let (left, mut ids): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.removable).into_iter().partition(|id| confirmed.removes(id));
        self.removable = left;
        let done = over.len() + ids.len();
        ids.extend(over.iter().map(|(_, id)| id.clone()));
        // A destination that keeps its mark needs one of the store beside it.
        ids.retain(|id| !confirmed.knows(id));
        if !ids.is_empty() {
            let commit = Commit::default().with_drops(&ids);
            self.claims.commit(&*self.context.services.store, commit).await.map_err(store_fault)?;
        }
        lanes.free_finished(&over);
        Ok(done > 0)
    }

    /// Informs the sources about partitions that were given up, after their last acknowledgement.
    async fn report_released(&mut self) -> Result<bool, Fault> {
        let released = self.context.lanes.take_released();
        let any = !released.is_empty();
        for Released { source, partition, release } in released {
            let source = &mut self.sources[source];
            source.acker.released(&partition, release).await.map_err(|fault| fault.at(&source.connector))?;
        }
        if any {
            self.context.lanes.end_report();
        }
        Ok(any)
    }

    async fn store_and_tell(&mut self, settled: Vec<SettledPrefix>, begun: Vec<Begun>) -> Result<(), Fault> {
        let mut moves: Vec<_> = settled.iter().map(|lane| (lane.id.clone(), lane.advance.mark.clone())).collect();
        moves.extend(begun.iter().map(|(id, mark, _)| (id.clone(), mark.clone())));
        if mutant!(RoomBeforeStored) {
            self.context.lanes.persisted(&settled);
        }
        if mutant!(AckBeforeStore) {
            return self.acknowledge(settled).await;
        }
        let receipts = self.context.confirmed.receipts(&moves);
        let commit = Commit::of(&moves).with_receipts(&receipts);
        let stored = self.claims.commit(&*self.context.services.store, commit).await;
        if !(mutant!(FencedGoesOn) && matches!(stored, Err(StoreError::Fenced { .. }))) {
            stored.map_err(store_fault)?;
        }
        if !mutant!(RoomBeforeStored) {
            self.context.lanes.persisted(&settled);
        }
        for (_, _, stored) in begun {
            // The reader may have ended meanwhile.
            let _ = stored.send(());
        }
        self.acknowledge(settled).await
    }

    /// Acknowledges stored positions to every source. Sources run concurrently, the lanes of one source sequentially.
    async fn acknowledge(&mut self, settled: Vec<SettledPrefix>) -> Result<(), Fault> {
        let mut per_source: Vec<Vec<(LaneIndex, Partition, Vec<Position>)>> =
            self.sources.iter().map(|_| Vec::new()).collect();
        for lane in settled.into_iter().filter(|lane| !lane.released || mutant!(AckAfterRelease)) {
            let source = if mutant!(AcksToFirstSource) { 0 } else { lane.source };
            per_source[source].push((lane.lane, lane.id.partition, lane.advance.positions));
        }
        let context = &self.context;
        let told = self.sources.iter_mut().zip(per_source).map(|(source, lanes)| async move {
            for (lane, partition, positions) in lanes {
                let acked = source.acknowledge(context, lane, &partition, &positions).await;
                acked.map_err(|fault| fault.at(&source.connector))?;
            }
            Ok::<(), Fault>(())
        });
        try_join_all(told).await?;
        Ok(())
    }
}

/// Waits for the first settled row, and then for others to join it.
async fn wait_until_due(context: &Context, earliest: Instant) {
    let lanes = &context.lanes;
    let mut due = lanes.due(Due::Never).await;
    if mutant!(IdleNotStored) && due == Due::Idle {
        std::future::pending::<()>().await;
    }
    let soon = (Instant::now() + INTERVAL).max(earliest);
    loop {
        let until = match due {
            Due::Now => return,
            Due::Idle => earliest,
            Due::Never | Due::Soon => soon,
        };
        tokio::select! {
            biased;
            () = sleep_until(until) => return,
            more = lanes.due(due) => due = more,
        }
    }
}

/// Flushes every destination that has rows to flush.
async fn flush(gates: &[Arc<FlushGate>]) {
    if mutant!(CommitWithoutFlush) {
        return;
    }
    let asked: Vec<&Arc<FlushGate>> = gates.iter().filter(|gate| gate.request()).collect();
    if !asked.is_empty() {
        // A slower destination does not delay the others.
        let _ = timeout(FLUSH, join_all(asked.into_iter().map(|gate| gate.finished()))).await;
    }
}

impl Acknowledging {
    async fn acknowledge(
        &mut self,
        context: &Context,
        lane: LaneIndex,
        partition: &Partition,
        positions: &[Position],
    ) -> Result<(), Fault> {
        self.meters.step(0).set_acknowledging(true);
        for attempt in 1.. {
            if !context.lanes.may_acknowledge(lane) {
                break;
            }
            match self.acker.ack(partition, positions).await {
                Ok(()) => break,
                Err(_) if mutant!(AckDropped) => break,
                Err(fault) if fault.class() != FaultClass::Transient || attempt == ACK_ATTEMPTS => return Err(fault),
                Err(fault) => {
                    context.note("the acknowledgement failed and is retried", &fault);
                    tokio::select! {
                        () = sleep(ACK_WAITS.after(attempt)) => {}
                        // The position is stored, and the source reads it on the next start. Nothing after it is
                        // acknowledged.
                        () = context.halt.wait() => return Err(fault),
                    }
                }
            }
        }
        self.meters.step(0).set_acknowledging(false);
        Ok(())
    }
}
