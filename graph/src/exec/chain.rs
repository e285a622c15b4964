//! A chain: steps fused into one future.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::operator::{Decision, Operator, OperatorContext, Rows, arrange};
use anabranch_plugin::trace::SpanKind;
use anabranch_record::fault::Fault;
use anabranch_record::mask::Mask;
use anabranch_record::text::Str;
use anabranch_template::condition::Condition;
use tokio::time::Instant;

use super::Interrupt;
use super::context::Context;
use super::fan_out::Output;
use super::meter::{StageMeters, StripBefore};
use super::panic;
use super::queue::Receiver;
use super::tap::{NodeRole, Side, Tap};
use super::trace::{Interval, NodeTracer, Passage, RowOutcome};
use crate::batch::{Batch, BatchPart, Leftover, TopUp, Unfolding};
use crate::codes;
use crate::plan::stage::{StepCondition, StepSpec};

/// Maximum working time of a chain before it yields to other tasks.
const SLICE: Duration = Duration::from_micros(500);
/// Duration from which a call is logged.
const SLOW: Duration = Duration::from_millis(5);

/// Rows that a step is applied to.
enum Selection {
    All,
    If(Box<dyn Condition>),
    AsBefore,
}

struct ChainStep<O: ?Sized> {
    node: Str,
    selection: Selection,
    multiplies: bool,
    /// True if the operator may change records or make several of one.
    changes: bool,
    operator: Box<O>,
    context: OperatorContext,
    panicked: bool,
    tap: Arc<Tap>,
    tracer: Option<NodeTracer>,
}

/// The steps of a chain. A row that was split continues in parts no larger than a strip; each part passes the whole
/// chain before the next one. If the operator leaves the making of pieces to the chain, the chain makes the next strip
/// after the previous one has left.
pub(super) struct Steps<O: ?Sized> {
    steps: Vec<ChainStep<O>>,
    /// Parts in flight, with the index of the step that they enter next; the last one continues first.
    waiting: Vec<(usize, BatchPart)>,
    mask: Mask,
    /// True if `mask` holds the selection of the step before; otherwise all rows were selected.
    masked: bool,
    decisions: Vec<(usize, Decision)>,
    condition_failed: Vec<(usize, Fault)>,
    /// True if a step that may change records was applied to rows of the strip.
    changed: bool,
    /// True if the chain can be rebuilt after a panic. Otherwise a second panic ends it.
    repairable: bool,
    /// Counters of the steps.
    meters: StageMeters,
}

impl<O: Operator + ?Sized> Steps<O> {
    pub(super) fn new<'a>(
        steps: impl IntoIterator<Item = (&'a StepSpec, Box<O>, OperatorContext)>,
        repairable: bool,
        output: &Output,
    ) -> Self {
        let step = |(spec, operator, context): (&StepSpec, _, _)| ChainStep {
            node: spec.node.clone(),
            selection: match &spec.condition {
                StepCondition::Always => Selection::All,
                StepCondition::If(condition) => Selection::If(condition.instantiate()),
                StepCondition::AsBefore => Selection::AsBefore,
            },
            multiplies: spec.multiplies,
            changes: spec.changes(),
            operator,
            context,
            panicked: false,
            tap: output.tap(NodeRole::Processor, &spec.node),
            tracer: output.tracer(&spec.node, &spec.plugin, SpanKind::Step),
        };
        Steps {
            steps: steps.into_iter().map(step).collect(),
            waiting: Vec::new(),
            mask: Mask::default(),
            masked: false,
            decisions: Vec::new(),
            condition_failed: Vec::new(),
            changed: false,
            repairable,
            meters: output.meters(),
        }
    }

    /// Returns `true` if a step panicked, so that its state cannot be trusted.
    pub(super) fn panicked(&self) -> bool {
        self.steps.iter().any(|step| step.panicked)
    }

    /// Adds a strip.
    pub(super) fn push(&mut self, batch: Batch) {
        self.changed = false;
        self.waiting.push((0, BatchPart::Rows(batch)));
    }

    /// Returns the next part that reached the end of the chain; rows that did not reach it are in `left`. An empty part
    /// means that no row of a strip reached the end; the caller may then yield. A part that may have changed is weighed
    /// again.
    pub(super) fn next(&mut self, left: &mut Leftover, lend: TopUp<'_>) -> Result<Option<Batch>, Fault> {
        while let Some((step, part)) = self.waiting.pop() {
            let mut batch = match part {
                BatchPart::Rows(batch) => batch,
                BatchPart::Pieces(unfolding) => self.make(step, unfolding),
            };
            if batch.rows() == 0 || step == self.steps.len() {
                if self.changed {
                    batch.weigh();
                }
                return Ok(Some(batch));
            }
            match self.step(step, &mut batch, left, lend) {
                Ok(None) => {}
                Ok(Some(parts)) => {
                    self.put_off(step + 1, parts);
                    continue;
                }
                Err(fault) => {
                    // It is dropped with the chain, after the run has recorded the fault.
                    self.waiting.push((step, BatchPart::Rows(batch)));
                    return Err(fault);
                }
            }
            let shared = self.steps.get(step + 1).is_some_and(|next| matches!(next.selection, Selection::AsBefore));
            if batch.is_strip() || shared {
                self.waiting.push((step + 1, BatchPart::Rows(batch)));
            } else {
                let first = self.waiting.len();
                self.waiting.extend(batch.strips().map(|strip| (step + 1, BatchPart::Rows(strip))));
                self.waiting[first..].reverse();
                if mutant!(StripsForgotten) {
                    self.waiting.drain(first..first + 1);
                }
            }
        }
        Ok(None)
    }

    /// Makes the next strip of pieces, which enters `step`. The remaining pieces stay in `waiting`, below it.
    fn make(&mut self, step: usize, mut unfolding: Unfolding) -> Batch {
        let batch = unfolding.strip();
        let made_by = step.checked_sub(1).and_then(|at| self.steps.get(at));
        if let Some(watchers) = made_by.and_then(|step| step.tap.watchers()) {
            watchers.show(Side::After, batch.records());
        }
        if !unfolding.is_done() {
            self.waiting.push((step, BatchPart::Pieces(unfolding)));
        }
        batch
    }

    /// Adds the output of a step to `waiting` for `step`, the first part on top.
    fn put_off(&mut self, step: usize, parts: Vec<BatchPart>) {
        for part in parts.into_iter().rev() {
            match part {
                BatchPart::Rows(batch) => {
                    let first = self.waiting.len();
                    self.waiting.extend(batch.strips().map(|strip| (step, BatchPart::Rows(strip))));
                    self.waiting[first..].reverse();
                }
                BatchPart::Pieces(unfolding) => self.waiting.push((step, BatchPart::Pieces(unfolding))),
            }
        }
    }

    /// Runs one step on a batch. Returns the batch in parts if pieces of rows are to be made later.
    fn step(
        &mut self,
        at: usize,
        batch: &mut Batch,
        left: &mut Leftover,
        lend: TopUp<'_>,
    ) -> Result<Option<Vec<BatchPart>>, Fault> {
        let Self { steps, mask, masked, decisions, condition_failed, changed, repairable, meters, .. } = self;
        let shared = steps.get(at + 1).is_some_and(|next| matches!(next.selection, Selection::AsBefore));
        let meter = meters.step(at);
        meter.enter(batch.rows());
        let step = &mut steps[at];
        let watchers = step.tap.watchers();
        if let Some(watchers) = &watchers {
            watchers.show(Side::Before, batch.records());
        }
        let started = Instant::now();
        match &mut step.selection {
            Selection::All => *masked = false,
            Selection::AsBefore => {}
            Selection::If(condition) => {
                *masked = true;
                mask.reset(batch.rows());
                select(&mut **condition, batch, mask, condition_failed);
            }
        }
        let selected = if *masked { mask.count() } else { batch.rows() };
        if selected < batch.rows() {
            meter.skip(batch.rows() - selected);
        }
        *changed |= step.changes && selected > 0;
        call(step, batch, masked.then_some(&*mask), decisions, *repairable)?;
        if mutant!(FailedConditionPasses) {
            condition_failed.clear();
        }
        decisions.extend(condition_failed.drain(..).map(|(row, fault)| (row, Decision::Fail(fault))));
        let mut unfolds = false;
        for (_, decision) in decisions.iter_mut() {
            if !step.multiplies {
                refuse_copies(decision);
            }
            match decision {
                Decision::Fail(fault) => *fault = fault.clone().at(&step.node),
                // A mask is carried over to the whole strip at once. The compiler shares no mask after a step that
                // multiplies rows.
                Decision::Pieces(_) => unfolds = !shared,
                Decision::Keep | Decision::Split(_) | Decision::Filter => {}
            }
        }
        let ended = Instant::now();
        let took = ended - started;
        if took > SLOW {
            tracing::debug!(node = %step.node, rows = batch.rows(), ?took, "a call blocked its thread for a long time");
        }
        meter.took(took);
        if let Some(tracer) = &step.tracer {
            arrange(decisions);
            tracer.passed(batch.lineage(), batch.records(), Interval { from: started, to: ended }, |row| {
                let decision = decisions.binary_search_by_key(&row, |(row, _)| *row).ok().map(|at| &decisions[at].1);
                Some(Passage { condition: masked.then(|| mask.get(row)), fate: RowOutcome::from(decision) })
            });
        }
        if shared && *masked && !decisions.is_empty() && !mutant!(MaskNotCarried) {
            let before = std::mem::take(mask);
            carry(&before, decisions, mask);
        }
        let before = StripBefore::of(batch.rows(), left);
        if unfolds {
            let parts = batch.take().unfold(decisions, left, lend)?;
            let out = parts.iter().map(BatchPart::rows).sum();
            meter.leave(before.passed(out, left), meters.at(ended));
            if let Some(watchers) = &watchers {
                for part in &parts {
                    if let BatchPart::Rows(batch) = part {
                        watchers.show(Side::After, batch.records());
                    }
                }
            }
            return Ok(Some(parts));
        }
        batch.apply(decisions, left, lend)?;
        meter.leave(before.passed(batch.rows(), left), meters.at(ended));
        if let Some(watchers) = &watchers {
            watchers.show(Side::After, batch.records());
        }
        Ok(None)
    }

    /// Closes the operators. Failures are logged.
    pub(super) fn close(&mut self, context: &Context) {
        for step in &mut self.steps {
            let closed = catch_unwind(AssertUnwindSafe(|| step.operator.close()));
            let closed = closed.unwrap_or_else(|panic| {
                Err(Fault::record(codes::OPERATOR_PANICKED, panic::message(&*panic).to_owned()))
            });
            if let Err(fault) = closed {
                context.warn(&step.node, "could not close the processor", &fault);
            }
        }
    }
}

/// Processes the selected rows with a step. If the step panics at a known row, that row fails, earlier rows keep their
/// results, and another call processes the rows after it; if the operator is to be rebuilt, these rows fail too. If the
/// row is unknown, all rows of the call fail.
fn call<O: Operator + ?Sized>(
    step: &mut ChainStep<O>,
    batch: &mut Batch,
    selected: Option<&Mask>,
    decisions: &mut Vec<(usize, Decision)>,
    repairable: bool,
) -> Result<(), Fault> {
    let rows = batch.rows();
    let mut rest: Option<Mask> = None;
    let mut from = 0;
    loop {
        let mut view = Rows::new(batch.records_mut(), rest.as_ref().or(selected), decisions);
        let result = catch_unwind(AssertUnwindSafe(|| step.operator.process(&mut view, &step.context)));
        let current = view.current();
        let Err(panic) = result else { break };
        let at = current.map_or_else(String::new, |row| format!(" at record {row} of {rows}"));
        let message = format!("the processor panicked{at}: {}", panic::message(&*panic));
        if step.panicked && !repairable {
            return Err(
                Fault::fatal(codes::OPERATOR_PANICKED, format!("{message}, for the second time")).at(&step.node)
            );
        }
        step.panicked = true;
        let fault = Fault::record(codes::OPERATOR_PANICKED, message);
        let first = current.unwrap_or(from);
        decisions.retain(|(row, _)| *row < first);
        let is_selected = |row: &usize| selected.is_none_or(|mask| mask.get(*row));
        let fail = |row| (row, Decision::Fail(fault.clone()));
        let Some(row) = current.filter(|_| !repairable) else {
            decisions.extend((first..rows).filter(is_selected).map(fail));
            break;
        };
        if !mutant!(PanicForgotten) {
            decisions.push(fail(row));
        }
        from = row + 1;
        let mut after = Mask::none(rows);
        (from..rows).filter(is_selected).for_each(|row| after.set(row));
        if after.count() == 0 {
            break;
        }
        rest = Some(after);
    }
    Ok(())
}

/// Fails a row that becomes several records, for an operator that may not make several of one.
pub(super) fn refuse_copies(decision: &mut Decision) {
    if let Some(records) = decision.split().filter(|records| *records > 1) {
        *decision = Decision::Fail(multiplied(records));
    }
}

#[cold]
fn multiplied(records: usize) -> Fault {
    let text = format!(
        "the processor made {records} records of one, which is only in the newer pipeline architecture: allow it with \
         preview.pipeline-arch-v2: true in anabranch.yaml, or --preview.pipeline-arch-v2 on the command line"
    );
    Fault::record(codes::NEEDS_ARCH_V2, text)
}

/// Computes the selection of the remaining rows after decisions on them.
pub(super) fn carry(before: &Mask, decisions: &[(usize, Decision)], after: &mut Mask) {
    let mut counts = vec![1usize; before.len()];
    for (row, decision) in decisions {
        let Some(count) = counts.get_mut(*row) else { continue };
        *count = match decision {
            Decision::Keep => *count,
            Decision::Split(_) | Decision::Pieces(_) => (*count).min(1) * decision.split().unwrap_or_default(),
            Decision::Filter | Decision::Fail(_) => 0,
        };
    }
    after.reset(counts.iter().sum());
    let mut to = 0;
    for (row, count) in counts.into_iter().enumerate() {
        if before.get(row) {
            (to..to + count).for_each(|row| after.set(row));
        }
        to += count;
    }
}

/// Selects rows of a batch. If the condition panics, all rows fail.
pub(super) fn select(condition: &mut dyn Condition, batch: &Batch, mask: &mut Mask, failed: &mut Vec<(usize, Fault)>) {
    let selected = catch_unwind(AssertUnwindSafe(|| condition.select(batch.records(), mask, failed)));
    if let Err(panic) = selected {
        mask.reset(batch.rows());
        failed.clear();
        let fault =
            Fault::record(codes::CONDITION_PANICKED, format!("the condition panicked: {}", panic::message(&*panic)));
        failed.extend((0..batch.rows()).map(|row| (row, fault.clone())));
    }
}

/// Runs a chain as one future until its input ends.
pub(super) async fn run(
    mut steps: Steps<dyn Operator + Send>,
    mut input: Receiver,
    output: Output,
) -> Result<(), Interrupt> {
    let mut since = Instant::now();
    while let Some(batch) = input.recv_idle().await {
        steps.push(batch);
        loop {
            let mut left = output.leftover();
            let mut piece = steps.next(&mut left, &mut output.lend())?;
            if let Some(piece) = &mut piece {
                output.count(piece)?;
            }
            if mutant!(EmptiedForgotten) && piece.as_ref().is_some_and(|piece| piece.rows() == 0) {
                output.context.alarm.disarm();
            } else if !left.is_empty() {
                output.put_aside(left).await?;
            }
            let Some(piece) = piece else { break };
            output.emit(piece).await?;
            if since.elapsed() > SLICE {
                tokio::task::yield_now().await;
                since = Instant::now();
            }
        }
    }
    steps.close(&output.context);
    Ok(())
}
