//! The way out of a stage: strips to its successors, filtered rows to the ledger, failed rows to the dead letters.

use std::sync::Arc;

use anabranch_plugin::trace::SpanKind;
use anabranch_record::fault::{Fault, FaultClass};
use anabranch_record::text::Str;
use tokio::sync::mpsc;

use super::Interrupt;
use super::context::Context;
use super::meter::StageMeters;
use super::queue::Sender;
use super::tap::{Station, Tap, Taps};
use super::trace::NodeTracer;
use crate::ack::{Overdrawn, Run};
use crate::batch::{Batch, Failed, Leftover};

/// The outputs of one stage.
#[derive(Clone)]
pub(super) struct Output {
    pub(super) context: Arc<Context>,
    pub(super) stage: usize,
    next: Vec<Sender>,
    dead: mpsc::Sender<Failed>,
}

impl Output {
    pub(super) fn new(context: &Arc<Context>, stage: usize, next: Vec<Sender>, dead: mpsc::Sender<Failed>) -> Self {
        Output { context: context.clone(), stage, next, dead }
    }

    /// The same for a worker of the stage: it lends and counts, but sends nothing on.
    pub(super) fn for_worker(&self) -> Self {
        Output { next: Vec::new(), ..self.clone() }
    }

    /// Where the stage is measured.
    pub(super) fn meters(&self) -> StageMeters {
        StageMeters::new(self.context.progress.clone(), self.stage)
    }

    /// The taps of the pipeline.
    pub(super) fn taps(&self) -> &Taps {
        &self.context.options.taps
    }

    /// The tap of a node of the stage.
    pub(super) fn tap(&self, station: Station, node: &Str) -> Arc<Tap> {
        self.taps().at(station, node)
    }

    /// Who makes the spans of a node of the stage, where the run is traced.
    pub(super) fn tracer(&self, node: &Str, plugin: &Str, kind: SpanKind) -> Option<NodeTracer> {
        self.context.traces.as_ref().map(|traces| NodeTracer::new(traces, node, plugin, kind))
    }

    /// Tops up the credit of a run.
    pub(super) fn lend(&self) -> impl FnMut(&mut Run) -> Result<(), Overdrawn> + '_ {
        |run| self.context.lanes.lend(run)
    }

    /// Nothing left over yet.
    pub(super) fn leftover(&self) -> Leftover {
        Leftover::new(&self.context.alarm)
    }

    /// Counts what the records of a batch weigh more than what counts already among the bytes that are held.
    pub(super) fn count(&self, batch: &mut Batch) -> Result<(), Fault> {
        match batch.count() {
            0 => Ok(()),
            grown => self.context.lanes.grow(batch.lineage(), grown),
        }
    }

    /// Gives every row to every successor, in pieces no larger than a strip. Payloads are shared.
    pub(super) async fn emit(&self, batch: Batch) -> Result<(), Interrupt> {
        for strip in batch.strips() {
            if let [only] = &self.next[..] {
                only.send(strip).await?;
                continue;
            }
            let rows = strip.rows();
            let copies = strip.fan_out(self.next.len(), &mut self.lend()).map_err(overdrawn)?;
            self.context.progress.add_born(rows * (copies.len() - 1));
            for (copy, next) in copies.into_iter().zip(&self.next) {
                next.send(copy).await?;
            }
        }
        Ok(())
    }

    /// Settles what was filtered, and sends what failed to the dead letters. Failures that are not of their
    /// records end the run.
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

    /// Sends rows to the dead letters. Failures that are not of their records end the run.
    pub(super) async fn fail(&self, failed: Failed) -> Result<(), Interrupt> {
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

pub(super) fn overdrawn(cause: Overdrawn) -> Fault {
    Fault::fatal("credit_overdrawn", cause)
}
