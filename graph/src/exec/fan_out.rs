//! The output of a stage: strips go to its successors, filtered rows to the ledger, failed rows to the dead-letter
//! queue.

use std::sync::Arc;

use anabranch_plugin::trace::SpanKind;
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::text::Str;
use tokio::sync::mpsc;

use super::Interrupt;
use super::context::Context;
use super::meter::StageMeters;
use super::queue::Sender;
use super::tap::{NodeRole, Tap, Taps};
use super::trace::NodeTracer;
use crate::ack::{Overdrawn, Run};
use crate::batch::{Batch, FailedRows, Leftover};

/// The outputs of a stage.
#[derive(Clone)]
pub(super) struct Output {
    pub(super) context: Arc<Context>,
    pub(super) stage: usize,
    next: Vec<Sender>,
    dead: mpsc::Sender<FailedRows>,
}

impl Output {
    pub(super) fn new(context: &Arc<Context>, stage: usize, next: Vec<Sender>, dead: mpsc::Sender<FailedRows>) -> Self {
        Output { context: context.clone(), stage, next, dead }
    }

    /// Returns the outputs for a worker of the stage, which lends and counts, but does not emit.
    pub(super) fn for_worker(&self) -> Self {
        Output { next: Vec::new(), ..self.clone() }
    }

    /// Returns the meters of the stage.
    pub(super) fn meters(&self) -> StageMeters {
        StageMeters::new(self.context.progress.clone(), self.stage)
    }

    /// Returns the taps of the pipeline.
    pub(super) fn taps(&self) -> &Taps {
        &self.context.options.taps
    }

    /// Returns the tap of a node of the stage.
    pub(super) fn tap(&self, role: NodeRole, node: &Str) -> Arc<Tap> {
        self.taps().at(role, node)
    }

    /// Returns the tracer of a node of the stage, if the run is traced.
    pub(super) fn tracer(&self, node: &Str, plugin: &Str, kind: SpanKind) -> Option<NodeTracer> {
        self.context.traces.as_ref().map(|traces| NodeTracer::new(traces, node, plugin, kind))
    }

    /// Returns a function that tops up the credit of a run.
    pub(super) fn lend(&self) -> impl FnMut(&mut Run) -> Result<(), Overdrawn> + '_ {
        |run| self.context.lanes.lend(run)
    }

    /// Returns an empty leftover.
    pub(super) fn leftover(&self) -> Leftover {
        Leftover::new(&self.context.alarm)
    }

    /// Adds the growth of the records of a batch to the bytes held.
    pub(super) fn count(&self, batch: &mut Batch) -> Result<(), Fault> {
        match batch.count() {
            0 => Ok(()),
            grown => self.context.lanes.grow(batch.lineage(), grown),
        }
    }

    /// Sends every row to every successor, in strips. Payloads are shared.
    pub(super) async fn emit(&self, batch: Batch) -> Result<(), Interrupt> {
        for strip in batch.strips() {
            if let [only] = &self.next[..] {
                only.send(strip).await?;
                continue;
            }
            let rows = strip.rows();
            let copies = strip.fan_out(self.next.len(), &mut self.lend())?;
            self.context.progress.add_born(rows * (copies.len() - 1));
            for (copy, next) in copies.into_iter().zip(&self.next) {
                next.send(copy).await?;
            }
        }
        Ok(())
    }

    /// Sends each batch to its successor, in strips; one batch per successor.
    pub(super) async fn emit_each(&self, batches: Vec<Batch>) -> Result<(), Interrupt> {
        debug_assert_eq!(batches.len(), self.next.len());
        for (batch, next) in batches.into_iter().zip(&self.next) {
            for strip in batch.strips() {
                next.send(strip).await?;
            }
        }
        Ok(())
    }

    /// Settles filtered rows, and sends failed rows to the dead-letter queue. Faults that are not caused by a record
    /// end the run.
    pub(super) async fn put_aside(&self, left: Leftover) -> Result<(), Interrupt> {
        let Leftover { filtered, failed, born } = left;
        self.context.progress.add_born(born);
        self.context.progress.add_filtered(filtered.rows());
        if mutant!(FilteredUnsettled) {
            self.context.alarm.disarm();
        } else {
            self.context.lanes.settle(filtered)?;
        }
        self.fail(failed).await
    }

    /// Sends rows to the dead-letter queue. Faults that are not caused by a record end the run.
    pub(super) async fn fail(&self, failed: FailedRows) -> Result<(), Interrupt> {
        if failed.faults.is_empty() {
            return Ok(());
        }
        if let Some(fault) = failed.faults.iter().find(|fault| fault.class() != FaultClass::Record) {
            return Err(fault.clone().into());
        }
        self.context.progress.add_failed(self.stage, &failed.faults);
        self.dead.send(failed).await.map_err(|_| Interrupt::Gone)
    }
}
