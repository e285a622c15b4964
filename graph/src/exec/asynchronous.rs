//! An asynchronous step: several strips in flight, with output in the order of the input.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use anabranch_plugin::operator::{AsyncOperator, Decision, OperatorContext, arrange};
use anabranch_record::Record;
use anabranch_record::fault::Fault;
use anabranch_record::mask::Mask;
use anabranch_record::text::Str;
use anabranch_template::condition::Condition;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;

use super::Interrupt;
use super::chain::{refuse_copies, select};
use super::fan_out::Output;
use super::meter::{StripBefore, timed};
use super::panic;
use super::parallel::receive;
use super::queue::Receiver;
use super::tap::{Side, Tap};
use super::trace::{Interval, NodeTracer, Passage, RowOutcome};
use crate::batch::{Batch, Leftover, STRIP_BYTES, STRIP_ROWS};
use crate::codes;

/// Number of consecutive calls without any decision after which the run fails.
const STALLS: u32 = 3;

pub(super) struct Asynchronous {
    pub(super) node: Str,
    pub(super) condition: Option<Box<dyn Condition>>,
    pub(super) operator: Arc<dyn AsyncOperator>,
    pub(super) context: Arc<OperatorContext>,
    /// True if the operator may change records or make several of one.
    pub(super) changes: bool,
    /// True if it may make several records of one.
    pub(super) multiplies: bool,
    /// Maximum number of strips in flight. If it is not 1, more are allowed as long as their total is less than a full
    /// strip.
    pub(super) in_flight: usize,
    pub(super) tap: Arc<Tap>,
    pub(super) tracer: Option<NodeTracer>,
}

/// A strip whose call is running.
struct InFlight {
    batch: Batch,
    selected: Vec<usize>,
    condition_failed: Vec<(usize, Fault)>,
    call: Option<Call>,
    /// Times of the call, if a row of the strip is traced.
    timing: Option<Timing>,
}

/// Times of the start and the answer of a call. The strip may wait for others before it leaves the stage.
struct Timing {
    /// True if the step has a condition.
    conditional: bool,
    from: Instant,
    answered: Arc<OnceLock<Instant>>,
}

impl Timing {
    fn interval(&self) -> Interval {
        Interval { from: self.from, to: self.answered.get().copied().unwrap_or_else(Instant::now) }
    }
}

/// A running call. It continues while the stage waits for room downstream; dropping it aborts it.
struct Call(JoinHandle<Result<Vec<Answer>, Fault>>);

/// A row as the operator left it, and the decision on it.
type Answer = (Record, Decision);

impl Drop for Call {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl InFlight {
    async fn finished(&mut self) -> Result<Result<Vec<Answer>, Fault>, JoinError> {
        match &mut self.call {
            Some(call) => (&mut call.0).await,
            None => Ok(Ok(Vec::new())),
        }
    }
}

impl Asynchronous {
    pub(super) async fn run(mut self, mut input: Receiver, output: Output) -> Result<(), Interrupt> {
        let mut flying: VecDeque<InFlight> = VecDeque::new();
        let mut open = true;
        loop {
            let (room, idle) = (self.has_room(&flying), flying.is_empty());
            tokio::select! {
                biased;
                Some(answers) = front(&mut flying) => {
                    let flown = if mutant!(CallsLandInReverse) { flying.pop_back() } else { flying.pop_front() };
                    if let Some(flown) = flown {
                        let (batch, left) = self.land(flown, answers, &output)?;
                        output.put_aside(left).await?;
                        if let Some(watchers) = self.tap.watchers() {
                            watchers.show(Side::After, batch.records());
                        }
                        output.emit(batch).await?;
                    }
                }
                batch = receive(&mut input, idle), if open && room => match batch {
                    Some(batch) => {
                        flying.push_back(self.start(batch, &output));
                    }
                    None => open = false,
                },
                else => break,
            }
        }
        if let Err(fault) = self.operator.close().await {
            output.context.warn(&self.node, "could not close the processor", &fault);
        }
        Ok(())
    }

    /// Returns `true` if another strip can start. A slow source makes strips of one row; a few of those must not block
    /// all others.
    fn has_room(&self, flying: &VecDeque<InFlight>) -> bool {
        let total = |of: fn(&Batch) -> usize| flying.iter().map(|flown| of(&flown.batch)).sum::<usize>();
        flying.len() < self.in_flight.max(1)
            || self.in_flight > 1 && total(Batch::rows) < STRIP_ROWS && total(Batch::bytes) < STRIP_BYTES
    }

    fn start(&mut self, batch: Batch, output: &Output) -> InFlight {
        if let Some(watchers) = self.tap.watchers() {
            watchers.show(Side::Before, batch.records());
        }
        let meters = output.meters();
        let meter = meters.step(0);
        meter.enter(batch.rows());
        let mut condition_failed = Vec::new();
        let selected: Vec<usize> = match &mut self.condition {
            None => (0..batch.rows()).collect(),
            Some(condition) => {
                let since = Instant::now();
                let mut mask = Mask::none(batch.rows());
                select(&mut **condition, &batch, &mut mask, &mut condition_failed);
                meter.took(since.elapsed());
                meter.skip(batch.rows() - mask.count());
                mask.rows().collect()
            }
        };
        let traced = self.tracer.is_some() && batch.lineage().is_traced();
        let timing = traced.then(|| Timing {
            conditional: self.condition.is_some(),
            from: Instant::now(),
            answered: Arc::default(),
        });
        let call = (!selected.is_empty()).then(|| {
            let rows: Vec<Record> = selected.iter().map(|row| batch.records()[*row].clone()).collect();
            let call = converge(self.operator.clone(), self.context.clone(), rows);
            let answered = timing.as_ref().map(|timing| timing.answered.clone());
            Call(output.context.spawn(async move {
                let answers = timed(call, &meters).await;
                if let Some(answered) = answered {
                    let _ = answered.set(Instant::now());
                }
                answers
            }))
        });
        InFlight { batch, selected, condition_failed, call, timing }
    }

    /// Applies the decisions on a strip. Returns the rows to emit, and the rows to put aside before that.
    fn land(
        &self,
        flown: InFlight,
        answers: Result<Result<Vec<Answer>, Fault>, JoinError>,
        output: &Output,
    ) -> Result<(Batch, Leftover), Fault> {
        let node = &self.node;
        let InFlight { mut batch, selected, condition_failed, call, timing } = flown;
        let asked = call.is_some();
        drop(call);
        let chosen = timing.as_ref().map(|_| selected.clone());
        let mut decisions: Vec<(usize, Decision)> = Vec::new();
        match answers {
            Ok(answers) => {
                let answers = answers.map_err(|fault| fault.at(node))?;
                for (row, (record, mut decision)) in selected.into_iter().zip(answers) {
                    if !self.multiplies {
                        refuse_copies(&mut decision);
                    }
                    match decision {
                        Decision::Keep => {
                            let place = &mut batch.records_mut()[row];
                            *place = record.with_position(place.position().clone());
                        }
                        Decision::Fail(fault) => decisions.push((row, Decision::Fail(fault.at(node)))),
                        Decision::Split(_) | Decision::Pieces(_) | Decision::Filter => decisions.push((row, decision)),
                    }
                }
                if self.changes && asked {
                    batch.weigh();
                }
            }
            // The rows fail with their original content, since the call has copies of them.
            Err(error) => {
                let what = match error.try_into_panic() {
                    Ok(panic) => format!("the processor panicked: {}", panic::message(&*panic)),
                    Err(_) => "the call was aborted".to_owned(),
                };
                let fault = Fault::record(codes::OPERATOR_PANICKED, what).at(node);
                decisions.extend(selected.into_iter().map(|row| (row, Decision::Fail(fault.clone()))));
            }
        }
        let failed = condition_failed.into_iter().map(|(row, fault)| (row, Decision::Fail(fault.at(node))));
        decisions.extend(failed);
        if let (Some(tracer), Some(timing), Some(chosen)) = (&self.tracer, timing, chosen) {
            arrange(&mut decisions);
            tracer.passed(batch.lineage(), batch.records(), timing.interval(), |row| {
                let decision = decisions.binary_search_by_key(&row, |(row, _)| *row).ok().map(|at| &decisions[at].1);
                let condition = timing.conditional.then(|| chosen.binary_search(&row).is_ok());
                Some(Passage { condition, fate: RowOutcome::from(decision) })
            });
        }
        let mut left = output.leftover();
        let before = StripBefore::of(batch.rows(), &left);
        batch.apply(&mut decisions, &mut left, &mut output.lend())?;
        let meters = output.meters();
        meters.step(0).leave(before.passed(batch.rows(), &left), meters.now());
        output.count(&mut batch)?;
        Ok((batch, left))
    }
}

/// Returns the outcome of the oldest call; `None` if there is no call.
async fn front(flying: &mut VecDeque<InFlight>) -> Option<Result<Result<Vec<Answer>, Fault>, JoinError>> {
    let next = if mutant!(CallsLandInReverse) { flying.back_mut() } else { flying.front_mut() };
    Some(next?.finished().await)
}

/// Repeats the call until there is a decision on every row.
async fn converge(
    operator: Arc<dyn AsyncOperator>,
    context: Arc<OperatorContext>,
    mut rows: Vec<Record>,
) -> Result<Vec<Answer>, Fault> {
    let mut answers = Vec::with_capacity(rows.len());
    let mut stalls = 0;
    loop {
        // Copies: rows without a decision are passed again as they were.
        let mut given = rows.clone();
        let some = operator.call(&mut given, &context).await;
        if some.len() > given.len() {
            let what = format!("the processor returned {} decisions on {} records", some.len(), given.len());
            return Err(Fault::fatal(codes::TOO_MANY_VERDICTS, what));
        }
        stalls = if some.is_empty() { stalls + 1 } else { 0 };
        let more = usize::from(mutant!(PartialResultSkips) && !some.is_empty() && some.len() < given.len());
        rows.drain(..some.len() + more);
        answers.extend(given.into_iter().zip(some));
        if mutant!(PartialResultFilters) {
            answers.extend(rows.drain(..).map(|record| (record, Decision::Filter)));
        }
        if rows.is_empty() {
            return Ok(answers);
        }
        if stalls == STALLS && !mutant!(AskedForEver) {
            let what = format!("the processor returned no decision on {} records, {STALLS} times in a row", rows.len());
            return Err(Fault::fatal(codes::NOT_CONVERGING, what));
        }
    }
}
