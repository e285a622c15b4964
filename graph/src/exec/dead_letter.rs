//! The dead-letter queue: the failure threshold and the dead letters.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use anabranch_plugin::destination::Delivered;
use anabranch_plugin::host::LogLevel;
use anabranch_plugin::letter::{FullQueue, KeptLetters, Letter, LetterBounds, LetterForm};
use anabranch_plugin::trace::{SpanContext, SpanKind};
use anabranch_record::fault::Fault;
use anabranch_record::metadata::key;
use anabranch_record::phrase::plural;
use anabranch_record::text::Str;
use anabranch_record::{Record, clock};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::Interrupt;
use super::claims::Claims;
use super::context::Context;
use super::deliver::{Delivery, DeliveryOutcome};
use super::drain::store_fault;
use super::failures::Failures;
use super::idle::Idle;
use super::lanes::CopyOrigin;
use super::tap::{NodeRole, Side, Tap};
use super::trace::{Interval, NodeTracer};
use crate::ack::LaneIndex;
use crate::batch::{Batch, FailedRows};
use crate::codes;
use crate::plan::stage::{DeadLetterSpec, StagePlan};

/// The latest failures of a lane. The order is that of row numbers in the lane, not of the times of failure or
/// delivery, so that the same rows fail the same way in every run. O(threshold) memory; successes use none.
#[derive(Default)]
struct Window {
    /// Identifies the lane, see [`CopyOrigin::opened`].
    opened: u64,
    latest: u64,
    /// Number of failed copies by row, and their sum.
    failures: BTreeMap<u64, u64>,
    failed: u64,
    /// Number of failures of a row under the same name, to distinguish pieces that are otherwise indistinguishable.
    ordinals: HashMap<Str, (u64, u32)>,
    /// Number of names at which those of old rows are removed.
    most_names: usize,
    /// Total number of names visited when removing old ones.
    #[cfg(test)]
    visited: usize,
}

impl Window {
    /// Notes the failure of a copy of a row. Returns `true` if more than `threshold` of the latest `size` rows have
    /// failed. O(log threshold), amortized.
    fn exceeded(&mut self, row: u64, size: u64, threshold: u64) -> bool {
        if size == 0 {
            return false;
        }
        self.latest = self.latest.max(row);
        *self.failures.entry(row).or_default() += 1;
        self.failed += 1;
        while let Some(oldest) = self.failures.first_entry()
            && oldest.key().saturating_add(size) <= self.latest
        {
            self.failed -= oldest.remove();
        }
        self.failed > threshold + u64::from(mutant!(ThresholdOffByOne))
    }

    /// Returns the number of earlier calls with this name. Names of rows outside of the replay window are removed
    /// whenever the number of names has doubled since the last removal: O(1) amortized, however many copies of one row
    /// fail.
    fn ordinal(&mut self, name: &Str, seq: u64, replay_rows: usize) -> u32 {
        if self.ordinals.len() >= self.most_names.max(2 * replay_rows.max(1024)) {
            #[cfg(test)]
            {
                self.visited += self.ordinals.len();
            }
            self.ordinals.retain(|_, (row, _)| *row + replay_rows as u64 >= seq);
            self.most_names = 2 * self.ordinals.len();
        }
        let (_, count) = self.ordinals.entry(name.clone()).or_insert((seq, 0));
        *count += u32::from(!mutant!(LettersShareNames));
        count.saturating_sub(1)
    }
}

/// Rows that failed together.
struct FailureGroup {
    batch: Batch,
    /// Indices of traced rows with their spans, and the start time of writing.
    spans: Option<(Vec<(usize, SpanContext)>, Instant)>,
    /// Index of the dead letter of the first row.
    first: usize,
}

/// Target of dead letters.
pub(super) enum Outlet {
    /// A destination, which gets dead letters as records.
    Destination(Delivery),
    /// The state store.
    Store { claims: Claims, bounds: LetterBounds },
    /// The log only; dead letters are not stored.
    Log,
}

/// Returns the fault for a failed dead-letter queue. It is fatal, since the rows are neither delivered nor stored.
fn failed(node: &Str, fault: &Fault) -> Fault {
    let what = format!("the dead-letter queue failed: {}", fault.message());
    Fault::fatal(codes::DEAD_LETTER_FAILED, what).at(node)
}

pub(super) struct DeadLetters {
    context: Arc<Context>,
    node: Str,
    window_size: u64,
    threshold: u64,
    outlet: Outlet,
    form: LetterForm,
    most_rows: usize,
    failures: Failures,
    tap: Arc<Tap>,
    tracer: Option<NodeTracer>,
    /// Windows by lane. After a partition is lost and assigned again, its rows are read in another lane, with the same
    /// names.
    windows: BTreeMap<LaneIndex, Window>,
}

impl DeadLetters {
    pub(super) fn new(context: &Arc<Context>, plan: &StagePlan, node: Str, outlet: Outlet) -> Self {
        let spec = &plan.dead_letter;
        let in_queue = || (LogLevel::Warn, Str::from_static("a record failed and goes to the dead-letter queue"));
        let (level, message) = spec.destination.logs().unwrap_or_else(in_queue);
        let id = Str::from_static(DeadLetterSpec::NODE);
        let tap = context.options.taps.at(NodeRole::DeadLetters, &id);
        let traces = context.traces.as_ref();
        DeadLetters {
            context: context.clone(),
            node,
            failures: Failures::new(plan, level, message),
            tap,
            tracer: traces.map(|traces| NodeTracer::new(traces, &id, &spec.plugin, SpanKind::Write)),
            window_size: spec.window_size,
            threshold: spec.threshold,
            most_rows: spec.destination.policy().rows.max(1),
            form: spec.destination.letter_form(),
            outlet,
            windows: BTreeMap::new(),
        }
    }

    fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Writes dead letters until the last stage has ended. Waiting dead letters are written together.
    pub(super) async fn run(mut self, mut failures: mpsc::Receiver<FailedRows>, idle: Idle) -> Result<(), Interrupt> {
        let ended = self.write_all(&mut failures, &idle).await;
        self.failures.count(&self.context, true);
        ended?;
        if let Outlet::Destination(delivery) = &mut self.outlet {
            let closed = delivery.writer.close().await;
            closed.map_err(|fault| failed(&self.node, &fault))?;
        }
        Ok(())
    }

    async fn write_all(&mut self, failures: &mut mpsc::Receiver<FailedRows>, idle: &Idle) -> Result<(), Interrupt> {
        loop {
            let due = self.failures.due();
            let next = async {
                match due {
                    Some(due) => timeout_at(due, failures.recv()).await,
                    None => Ok(failures.recv().await),
                }
            };
            match idle.wait(next).await {
                Ok(Some(first)) => {
                    let mut rows = first.batch.rows();
                    let mut failed = vec![first];
                    while rows < self.most_rows
                        && let Ok(next) = failures.try_recv()
                    {
                        rows += next.batch.rows();
                        failed.push(next);
                    }
                    self.write(failed).await?;
                }
                Ok(None) => return Ok(()),
                Err(_) => {}
            }
            if due.is_some_and(|due| due <= Instant::now()) {
                self.failures.count(&self.context, false);
            }
        }
    }

    /// Writes the dead letters of failed rows and settles the rows. If one exceeds the threshold or does not fit into
    /// the queue, the ones before it are still written and settled.
    async fn write(&mut self, failed: Vec<FailedRows>) -> Result<(), Interrupt> {
        let mut letters = Vec::new();
        let mut parts = Vec::with_capacity(failed.len());
        let mut too_many = None;
        // Rows after the one that exceeds the threshold are held until the fault is recorded. If their lineage were
        // dropped earlier, the rows would count as lost.
        let mut failed = failed.into_iter();
        for failed in failed.by_ref() {
            let (part, stop) = self.letters(failed, &mut letters);
            parts.push(part);
            too_many = stop;
            if too_many.is_some() {
                break;
            }
        }
        if let Some(watchers) = self.tap.watchers() {
            let pipeline = &self.context.pipeline;
            let records: Vec<Record> = letters.iter().map(|letter| letter.to_record(pipeline)).collect();
            watchers.show(Side::Before, &records);
        }
        let mut durable = 0;
        let mut full = None;
        for chunk in letters.chunks(self.most_rows) {
            let kept = match self.make_durable(chunk).await {
                Err(_) if mutant!(LetterFailureIgnored) => KeptLetters { kept: chunk.len(), ..KeptLetters::default() },
                kept => kept?,
            };
            self.context.progress.add_letters_evicted(kept.evicted);
            durable += kept.kept;
            full = kept.full;
            if full.is_some() {
                break;
            }
        }
        let refused = letters.get(durable).map(|letter| letter.message.clone());
        letters.truncate(durable);
        for FailureGroup { batch, spans, first } in parts {
            let letters = letters.get(first..).unwrap_or_default();
            if let (Some(tracer), Some((spans, since))) = (&self.tracer, &spans) {
                let name = |row: usize| letters.get(row).map(|letter| letter.name.clone());
                tracer.kept(spans, batch.lineage(), batch.records(), Interval::since(*since), name);
            }
            let rows = letters.len().min(batch.rows());
            let (written, _rest) = batch.into_parts().1.cut(rows);
            self.context().progress.add_dead_lettered(written.rows());
            self.context().lanes.settle(written)?;
        }
        match full.map(|full| self.full(full, refused.as_deref())).or(too_many) {
            None => Ok(()),
            Some(stop) => Err(Interrupt::Fault(stop)),
        }
    }

    /// Adds the dead letters of failed rows to `letters`, up to the row that exceeds the threshold.
    fn letters(&mut self, failed: FailedRows, letters: &mut Vec<Letter>) -> (FailureGroup, Option<Fault>) {
        let FailedRows { batch, faults } = failed;
        let origins = self.context().lanes.origins(batch.lineage());
        let spans = self.tracer.as_ref().map(|tracer| (tracer.announce(batch.lineage()), Instant::now()));
        let first = letters.len();
        let mut too_many = None;
        for ((record, origin), fault) in batch.records().iter().zip(origins).zip(&faults) {
            if let Err(stop) = self.check(&origin, fault) {
                self.failures.note_last(&self.context, record, &origin, fault);
                too_many = Some(stop);
                break;
            }
            self.failures.note(&self.context, record, &origin, fault);
            letters.push(self.letter(record, &origin, fault));
        }
        for (row, context) in spans.iter().flat_map(|(spans, _)| spans) {
            if let Some(letter) = letters.get_mut(first + *row) {
                letter.trace = Some(*context);
            }
        }
        (FailureGroup { batch, spans, first }, too_many)
    }

    /// Returns the fault for a full queue. The rows stay unsettled, so that they are read again when there is room.
    fn full(&self, FullQueue { bound, count, bytes }: FullQueue, failure: Option<&str>) -> Fault {
        let pipeline = &self.context.pipeline;
        let letters = format!("{count} {}", plural(count, "letter"));
        let cause = failure.map(|failure| format!("; the record that did not fit failed with: {failure}"));
        Fault::fatal(
            codes::DEAD_LETTERS_FULL,
            format!(
                "the dead-letter queue of pipeline {pipeline} is full: {bound}, and it contains {letters} ({bytes} \
                 bytes). No dead letter is lost: the pipeline stops, and reads the record again when it starts. \
                 Replay or remove letters (`anabranch dlq list {pipeline}`), raise the bound, or set `when-full: \
                 drop-oldest` to remove the oldest letters{}",
                cause.unwrap_or_default()
            ),
        )
        .at(&self.node)
    }

    async fn make_durable(&mut self, letters: &[Letter]) -> Result<KeptLetters, Interrupt> {
        let pipeline = &self.context.pipeline;
        let delivery = match &mut self.outlet {
            Outlet::Store { claims, bounds } => {
                let mut all = KeptLetters::default();
                for part in letters.chunk_by(|one, next| one.slot == next.slot) {
                    let epoch = claims.of_slot(part[0].slot);
                    let kept = self.context.services.keep_letters(epoch, part.to_vec(), bounds).await;
                    // If the store is unavailable, the fault is transient, as for marks: the pipeline recovers.
                    let kept = kept.map_err(|error| store_fault(error).at(&self.node))?;
                    all = KeptLetters {
                        kept: all.kept + kept.kept,
                        evicted: all.evicted + kept.evicted,
                        full: kept.full,
                    };
                    if all.full.is_some() {
                        break;
                    }
                }
                return Ok(all);
            }
            Outlet::Destination(delivery) => delivery,
            Outlet::Log => return Ok(KeptLetters { kept: letters.len(), ..KeptLetters::default() }),
        };
        let node = &self.node;
        let records: Vec<Record> = letters.iter().map(|letter| self.form.record(letter, pipeline)).collect();
        let verdicts = delivery.write(&records).await.map_err(|interrupt| match interrupt {
            Interrupt::Fault(fault) => Interrupt::Fault(failed(node, &fault)),
            other => other,
        })?;
        let durable = match verdicts {
            DeliveryOutcome::All(delivered) => delivered == Delivered::Durable,
            DeliveryOutcome::Each(each) => {
                let mut durable = true;
                for verdict in each {
                    durable &= verdict.map_err(|fault| failed(node, &fault))? == Delivered::Durable;
                }
                durable
            }
        };
        if !durable && !mutant!(LetterNotFlushed) {
            delivery.writer.flush().await.map_err(|fault| failed(node, &fault))?;
        }
        Ok(KeptLetters { kept: letters.len(), ..KeptLetters::default() })
    }

    /// Returns the window of a lane. If the index is reused for another lane, its window starts empty.
    fn window(&mut self, origin: &CopyOrigin) -> &mut Window {
        let window = self.windows.entry(origin.lane).or_default();
        if window.opened != origin.opened {
            *window = Window { opened: origin.opened, ..Window::default() };
        }
        window
    }

    /// Counts a failure in the window of its lane. Returns the fault that stops the run if the threshold is exceeded.
    fn check(&mut self, origin: &CopyOrigin, fault: &Fault) -> Result<(), Fault> {
        let (size, threshold) = (self.window_size, self.threshold);
        let window = self.window(origin);
        if !window.exceeded(origin.seq, size, threshold) {
            return Ok(());
        }
        let (code, what) = if threshold == 0 {
            (fault.code(), self.failures.said(fault))
        } else {
            let what = format!(
                "more than {threshold} of the latest {size} {} failed, which is the threshold of the dead-letter \
                 queue; the last failure: {}",
                plural(size, "record"),
                self.failures.said(fault)
            );
            (codes::DEAD_LETTER_THRESHOLD, what)
        };
        let stop = Fault::fatal(code, what);
        Err(fault.node().map_or(stop.clone(), |node| stop.at(node)))
    }

    /// Returns the dead letter of a record as it entered the failed step, with the reason. Its name identifies the
    /// copy, so that a repeated failure overwrites the dead letter instead of duplicating it.
    fn letter(&mut self, record: &Record, origin: &CopyOrigin, fault: &Fault) -> Letter {
        let node = fault.node().cloned().unwrap_or_default();
        let path =
            [key::SPLIT_INDEX, key::CLONE_INDEX].map(|key| record.metadata.get(&key).cloned().unwrap_or_default());
        let CopyOrigin { id, generation, seq, .. } = origin;
        let mut name = format!("{}:{}", self.context().pipeline, id.connector);
        for part in [&*id.partition.0, &generation.to_string(), &seq.to_string(), &path[0], &path[1], &node] {
            name.push('/');
            name.push_str(part);
        }
        let name = Str::from(name);
        let replay_rows = self.context().limits.replay_rows;
        let ordinal = self.window(origin).ordinal(&name, *seq, replay_rows);
        Letter {
            name: if ordinal == 0 { name } else { format!("{name}#{ordinal}").into() },
            at: clock::now(),
            slot: self.context().options.slots.slot_of(&id.partition),
            lane: id.clone(),
            generation: *generation,
            seq: *seq,
            node,
            code: Str::from_static(fault.code().name()),
            message: self.context().mask(&self.failures.said(fault)).into(),
            record: record.clone(),
            trace: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_count_only_while_they_are_in_the_window() {
        let mut window = Window::default();
        assert!(window.exceeded(1, 1, 0), "the defaults stop at the first failure");
        let mut window = Window::default();
        assert!((1..100).all(|row| !window.exceeded(row, 0, 0)), "no window, never too many");
        let mut window = Window::default();
        // The two copies of row 1 have left the window when row 12 fails; row 5 is late, and counts.
        let exceeded: Vec<bool> = [1, 1, 12, 13, 2, 5].map(|row| window.exceeded(row, 10, 2)).into();
        assert_eq!(exceeded, [false, false, false, false, false, true]);
    }

    /// A record that is split into many pieces, all of which fail: each failure costs the same.
    #[test]
    fn the_cost_of_a_failure_does_not_grow_with_their_number() {
        const FAILURES: usize = 100_000;
        let mut window = Window::default();
        for piece in 0..FAILURES {
            let name = Str::from(format!("p:in/0/1/1/{piece}"));
            assert_eq!(window.ordinal(&name, 1, 1024), 0);
        }
        assert!(window.visited <= 2 * FAILURES, "{} names were visited", window.visited);
        // Names of rows that left the replay window go all the same.
        for row in 5_000..10_000u64 {
            window.ordinal(&Str::from(format!("p:in/0/1/{row}")), row, 1024);
        }
        for row in 10_000..400_000u64 {
            window.ordinal(&Str::from(format!("p:in/0/1/{row}")), row, 1024);
        }
        assert!(window.ordinals.len() <= 8 * 1024, "{} names are kept", window.ordinals.len());

        let mut window = Window::default();
        assert!((0..100_000).all(|row| !window.exceeded(row, 1 << 20, 1 << 20)));
        assert_eq!((window.failures.len(), window.failed), (100_000, 100_000));
        assert!(!window.exceeded(1 << 22, 1 << 20, 1 << 20));
        assert_eq!((window.failures.len(), window.failed), (1, 1), "all others left the window");
    }
}
