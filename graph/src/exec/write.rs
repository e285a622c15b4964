//! Writes a destination: batching, linger, rate limit, and the outcome of every row.

pub(super) mod gate;
pub(super) mod shares;
mod transaction;

use std::sync::Arc;

use anabranch_plugin::destination::{Delivered, Retry, WritePolicy, Writer};
use anabranch_plugin::operator::Decision;
use anabranch_plugin::state::Slots;
use anabranch_plugin::trace::SpanKind;
use anabranch_record::fault::Fault;
use anabranch_record::text::Str;
use tokio::time::{Instant, sleep_until};

use super::Interrupt;
use super::deliver::{Delivery, DeliveryOutcome, WriterMarks};
use super::fan_out::Output;
use super::meter::{RowOutcomes, StageMeters, timed};
use super::parallel::receive;
use super::queue::Receiver;
use super::rate::SharedBucket;
use super::tap::{NodeRole, Side, Tap};
use super::trace::{Interval, NodeTracer, Passage, RowOutcome};
use crate::batch::{Batch, FailedRows, Lineage};
use crate::plan::stage::WriteSpec;

use gate::{FlushGate, GateWriter};

pub(super) struct Writing {
    connector: Str,
    delivery: Delivery,
    policy: WritePolicy,
    bucket: Option<SharedBucket>,
    gate: GateWriter,
    accepted: Lineage,
    tap: Arc<Tap>,
    tracer: Option<NodeTracer>,
    output: Output,
    meters: StageMeters,
}

/// A writer that is open, and the marks that it has.
pub(super) struct OpenedWriter {
    /// The slots whose rows it gets.
    pub(super) slots: Slots,
    pub(super) writer: Box<dyn Writer>,
    pub(super) known: WriterMarks,
}

impl Writing {
    fn new(
        spec: &WriteSpec,
        OpenedWriter { slots, writer, known }: OpenedWriter,
        gate: Arc<FlushGate>,
        bucket: Option<SharedBucket>,
        output: Output,
    ) -> Self {
        let mut policy = spec.destination.policy();
        policy.rows = spec.batch_rows.unwrap_or(policy.rows).max(1);
        policy.linger = spec.batch_delay.unwrap_or(policy.linger);
        if let Some(bucket) = &bucket {
            policy.rows = policy.rows.min(bucket.burst()).max(1);
        }
        let accepted = Lineage::none(&output.context.alarm);
        let (context, stage) = (output.context.clone(), Some(output.stage));
        let delivery = Delivery { context, stage, slots, writer, retry: policy.retry, known };
        let connector = spec.connector.clone();
        let meters = output.meters();
        let tap = output.tap(NodeRole::Destination, &connector);
        let tracer = output.tracer(&connector, &spec.plugin, SpanKind::Write);
        Writing {
            connector,
            delivery,
            policy,
            bucket,
            gate: GateWriter::new(gate),
            accepted,
            tap,
            tracer,
            output,
            meters,
        }
    }

    /// Writes until the input ends, then flushes and closes.
    pub(super) async fn run(mut self, mut input: Receiver) -> Result<(), Interrupt> {
        let result = match self.policy.retry {
            Retry::Idempotent | Retry::AtMostOnce => self.write_all(&mut input).await,
            Retry::Transactional => self.transact_all(&mut input).await,
        };
        result.map_err(|interrupt| match interrupt {
            Interrupt::Fault(fault) => Interrupt::Fault(fault.at(&self.connector)),
            other => other,
        })
    }

    async fn write_all(&mut self, input: &mut Receiver) -> Result<(), Interrupt> {
        let mut pending: Option<Batch> = None;
        let mut ripe = Instant::now();
        loop {
            let next = tokio::select! {
                biased;
                () = self.gate.asked() => {
                    input.idle().busy();
                    self.flush().await?;
                    continue;
                }
                next = receive(input, pending.is_none()) => next,
                () = sleep_until(ripe), if pending.is_some() && !mutant!(LingerForever) => {
                    if let Some(batch) = pending.take() {
                        self.write(batch).await?;
                    }
                    continue;
                }
            };
            let Some(batch) = next else { break };
            self.arrived(&batch)?;
            if pending.is_none() {
                ripe = Instant::now() + self.policy.linger;
            }
            let mut more = Some(batch);
            while let Some(batch) = more {
                let full = pending.as_ref().is_some_and(|pending| !self.fits(pending, &batch));
                if full && let Some(pending) = pending.take() {
                    self.write(pending).await?;
                    ripe = Instant::now() + self.policy.linger;
                }
                match &mut pending {
                    Some(pending) => pending.merge(batch),
                    None => pending = Some(batch),
                }
                more = input.try_recv();
                if let Some(batch) = &more {
                    self.arrived(batch)?;
                }
            }
            let due = self.policy.linger.is_zero() || pending.as_ref().is_some_and(|batch| self.is_full(batch));
            if due && let Some(batch) = pending.take() {
                self.write(batch).await?;
            }
        }
        if let Some(batch) = pending.take() {
            match mutant!(TailForgotten) {
                true => self.delivered(batch.into_parts().1)?,
                false => self.write(batch).await?,
            }
        }
        self.flush().await?;
        self.delivery.writer.close().await?;
        Ok(())
    }

    /// Shows rows that are about to be written to inspections.
    fn show(&self, batch: &Batch) {
        if let Some(watchers) = self.tap.watchers() {
            watchers.show(Side::Before, batch.records());
        }
    }

    /// Makes the spans of rows that were written.
    fn trace<'a>(&self, batch: &Batch, since: Option<Instant>, fate: impl Fn(usize) -> Option<RowOutcome<'a>>) {
        if let (Some(tracer), Some(since)) = (&self.tracer, since) {
            let passage = |row| Some(Passage { condition: None, fate: fate(row)? });
            tracer.passed(batch.lineage(), batch.records(), Interval::since(since), passage);
        }
    }

    fn arrived(&self, batch: &Batch) -> Result<(), Fault> {
        self.meters.step(0).enter(batch.rows());
        self.output.context.lanes.land(batch.lineage())
    }

    fn fits(&self, pending: &Batch, next: &Batch) -> bool {
        pending.rows() + next.rows() <= self.policy.rows && pending.bytes() + next.bytes() <= self.policy.bytes
    }

    fn is_full(&self, batch: &Batch) -> bool {
        batch.rows() >= self.policy.rows || batch.bytes() >= self.policy.bytes
    }

    async fn write(&mut self, batch: Batch) -> Result<(), Interrupt> {
        for chunk in batch.chunks(self.policy.rows, self.policy.bytes) {
            if let Some(bucket) = &self.bucket {
                bucket.take(chunk.rows()).await;
            }
            self.show(&chunk);
            let since = self.tracer.as_ref().map(|_| Instant::now());
            let outcome = timed(self.delivery.write(chunk.records()), &self.meters).await?;
            self.trace(&chunk, since, |row| match &outcome {
                DeliveryOutcome::All(delivered) => Some(RowOutcome::Delivered(*delivered)),
                DeliveryOutcome::Each(each) => each.get(row).map(|verdict| match verdict {
                    Ok(delivered) => RowOutcome::Delivered(*delivered),
                    Err(fault) => RowOutcome::Failed(fault),
                }),
            });
            self.settle(chunk, outcome).await?;
            // A commit does not wait for the end of a batch that is slowed down by a rate limit.
            if self.gate.is_wanted() {
                self.flush().await?;
            }
        }
        Ok(())
    }

    async fn settle(&mut self, mut batch: Batch, outcome: DeliveryOutcome) -> Result<(), Interrupt> {
        match outcome {
            DeliveryOutcome::All(Delivered::Durable) => {
                self.delivered(batch.into_parts().1)?;
            }
            DeliveryOutcome::All(Delivered::Accepted) if mutant!(AcceptedIsDurable) => {
                self.delivered(batch.into_parts().1)?;
            }
            DeliveryOutcome::All(Delivered::Accepted) => {
                self.accept(batch.into_parts().1);
            }
            DeliveryOutcome::Each(each) => {
                // Durable rows leave like filtered ones, failed rows like failed ones; accepted rows stay.
                let decide = |(row, verdict)| match verdict {
                    Ok(Delivered::Accepted) => None,
                    Ok(Delivered::Durable) => Some((row, Decision::Filter)),
                    Err(fault) => Some((row, Decision::Fail(Fault::at(fault, &self.connector)))),
                };
                let rows = each.len();
                let place = |row| if mutant!(VerdictsShift) { (row + 1) % rows } else { row };
                let mut decisions = each
                    .into_iter()
                    .enumerate()
                    .map(|(row, verdict)| (place(row), verdict))
                    .filter_map(decide)
                    .collect();
                let mut left = self.output.leftover();
                batch.apply(&mut decisions, &mut left, &mut self.output.lend())?;
                self.delivered(left.filtered)?;
                self.accept(batch.into_parts().1);
                self.fail(left.failed).await?;
            }
        }
        Ok(())
    }

    /// Sends rows that the destination rejected to the dead-letter queue.
    async fn fail(&mut self, failed: FailedRows) -> Result<(), Interrupt> {
        if !failed.faults.is_empty() {
            let passed = RowOutcomes { failed: failed.faults.len(), ..RowOutcomes::default() };
            self.meters.step(0).leave(passed, self.meters.now());
        }
        self.output.context.lanes.take_off(failed.batch.lineage())?;
        self.output.fail(failed).await
    }

    fn delivered(&self, lineage: Lineage) -> Result<(), Fault> {
        if !lineage.is_empty() {
            let passed = RowOutcomes { out: lineage.rows(), ..RowOutcomes::default() };
            self.meters.step(0).leave(passed, self.meters.now());
        }
        self.output.context.lanes.deliver(lineage)
    }

    fn accept(&mut self, lineage: Lineage) {
        if !lineage.is_empty() {
            self.gate.accepted();
            self.output.context.lanes.accepted(&lineage);
            self.accepted.append(lineage);
        }
    }

    /// Flushes the accepted rows and settles them.
    async fn flush(&mut self) -> Result<(), Interrupt> {
        let request = self.gate.begin();
        if !self.accepted.is_empty() {
            let flushed = timed(self.delivery.writer.flush(), &self.meters).await;
            if !mutant!(FlushFailureIgnored) {
                flushed?;
            }
            self.gate.flushed();
            let accepted = self.accepted.take();
            self.delivered(accepted)?;
        }
        self.gate.done(request);
        Ok(())
    }
}
