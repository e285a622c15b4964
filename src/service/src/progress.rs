//! Progress of a run that ends when its sources end: record count, share of the input, and estimated time left.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anabranch_graph::exec::{Progress, Totals};
use anabranch_process::terminal::{age, short};
use anabranch_record::phrase::plural;
use anabranch_record::text::Str;

use crate::backlog::BacklogNumbers;
use crate::lifecycle::LifecycleState;

/// Time between two log lines about progress, without a terminal.
pub(super) const PERIOD: Duration = Duration::from_secs(5);

/// How long the last answer of a source is extrapolated: about twice the time between two answers.
const ESTIMATED: Duration = Duration::from_secs(2);

/// Progress of pipelines.
#[derive(Default)]
pub(super) struct ProgressMeter(BTreeMap<Str, Row>);

/// Progress data of one pipeline.
struct Row {
    run: u64,
    began: Instant,
    /// What is left to read, if the source reports it.
    backlog: Option<Backlog>,
    /// Records that were settled at the previous sample, and the time of that sample.
    before: (u64, Instant),
}

/// The backlog of a source. A source reports it at most once a second; between two reports it is estimated.
#[derive(Clone, Copy)]
struct Backlog {
    /// The largest backlog so far: if the input grows during the run, progress does not go backwards.
    whole: u64,
    /// The last reported backlog, and when it changed.
    left: u64,
    at: Instant,
}

impl Backlog {
    /// Returns the share that is read, from 0 to 1, and the estimated time until all of it is read.
    fn estimate(self, began: Instant, now: Instant) -> (Option<f64>, Option<Duration>) {
        let Backlog { whole, left, at } = self;
        let read = (whole - left) as f64;
        let pace = read / at.duration_since(began).as_secs_f64().max(0.001);
        let since = now.duration_since(at).min(ESTIMATED).as_secs_f64();
        let done = (whole > 0).then(|| match left {
            0 => 1.0,
            // The last part counts as read only when the source reports it.
            _ => ((read + pace * since) / whole as f64).min(0.99),
        });
        let rest = (read > 0.0).then(|| (left as f64 / pace - since).max(if left > 0 { 0.1 } else { 0.0 }));
        (done, rest.and_then(|rest| Duration::try_from_secs_f64(rest).ok()))
    }
}

/// Progress of one pipeline.
#[derive(Debug, PartialEq)]
pub(super) struct PipelineProgress {
    totals: Totals,
    /// Settled records per second.
    rate: f64,
    /// The share of the input that is read, from 0 to 1; `None` if the source does not report its backlog.
    done: Option<f64>,
    /// Estimated time until all of the input is read.
    left: Option<Duration>,
}

impl ProgressMeter {
    /// Records the backlogs, so that shares can be computed later.
    pub(super) fn look(&mut self, pipelines: &[(Str, LifecycleState)], now: Instant) {
        for (id, run, progress) in running(pipelines) {
            self.row(id, run, left(progress), now);
        }
    }

    /// Returns the progress of the running pipelines, by id.
    pub(super) fn measure(
        &mut self,
        pipelines: &[(Str, LifecycleState)],
        now: Instant,
    ) -> Vec<(Str, PipelineProgress)> {
        let measured = |(id, run, progress): (&Str, u64, &Progress)| {
            (id.clone(), self.measure_one(id, run, progress.totals(), left(progress), now))
        };
        running(pipelines).map(measured).collect()
    }

    fn row(&mut self, id: &Str, run: u64, left: Option<u64>, now: Instant) -> &mut Row {
        let fresh = || Row { run, began: now, backlog: None, before: (0, now) };
        let row = self.0.entry(id.clone()).or_insert_with(fresh);
        if row.run != run {
            *row = fresh();
        }
        if let Some(left) = left {
            let new = |whole: u64| Backlog { whole: whole.max(left), left, at: now };
            row.backlog = Some(match row.backlog {
                Some(known) if known.left == left => known,
                known => new(known.map_or(left, |known| known.whole)),
            });
        }
        row
    }

    fn measure_one(&mut self, id: &Str, run: u64, totals: Totals, left: Option<u64>, now: Instant) -> PipelineProgress {
        let row = self.row(id, run, left, now);
        let (settled, at) = std::mem::replace(&mut row.before, (totals.settled, now));
        let elapsed = now.duration_since(at).as_secs_f64();
        let rate = if elapsed > 0.0 { totals.settled.saturating_sub(settled) as f64 / elapsed } else { 0.0 };
        let began = row.began;
        let backlog = row.backlog.filter(|_| left.is_some());
        let (done, left) = backlog.map_or((None, None), |backlog| backlog.estimate(began, now));
        PipelineProgress { totals, rate, done, left }
    }
}

/// Returns the pipelines that run: id, number of the run, counters.
fn running(pipelines: &[(Str, LifecycleState)]) -> impl Iterator<Item = (&Str, u64, &Progress)> {
    pipelines.iter().filter_map(|(id, seen)| Some((id, seen.run, seen.progress.as_deref()?)))
}

fn left(progress: &Progress) -> Option<u64> {
    BacklogNumbers::of_all(&progress.backlogs()).and_then(|backlog| backlog.count())
}

impl PipelineProgress {
    /// Formats the progress in one line: `1.2M records read, 26 %, 300.0k records/s, about 11 s left`.
    pub(super) fn shown(&self) -> String {
        let PipelineProgress { totals, rate, done, left } = self;
        let mut text = format!("{} {} read", short(totals.read as f64), plural(totals.read, "record"));
        if let Some(done) = done {
            let _ = write!(text, ", {:.0} %", (done * 100.0).floor());
        }
        let _ = write!(text, ", {} records/s", short(*rate));
        let open = totals.read.saturating_sub(totals.settled);
        match left {
            Some(Duration::ZERO) if open > 0 => {
                let _ = write!(text, ", {} in flight", short(open as f64));
            }
            Some(left) if !left.is_zero() => {
                let _ = write!(text, ", about {} left", age(left.as_secs_f64()));
            }
            _ => {}
        }
        text
    }

    /// Writes the progress to the log.
    pub(super) fn log(&self, id: &Str) {
        let percent = self.done.map(|done| (done * 100.0).floor());
        let seconds = self.left.map(|left| left.as_secs_f64().round());
        tracing::info!(
            pipeline = %id, read = self.totals.read, settled = self.totals.settled, percent, seconds_left = seconds,
            "{}", self.shown()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_and_time_left_come_from_what_is_left() {
        let mut meter = ProgressMeter::default();
        let (id, start) = (Str::from("p"), Instant::now());
        let mut shown = |seconds, run, settled, left| {
            let totals = Totals { read: settled, settled, ..Totals::default() };
            meter.measure_one(&id, run, totals, left, start + Duration::from_secs(seconds)).shown()
        };
        assert_eq!(shown(0, 1, 0, Some(4_000_000)), "0 records read, 0 %, 0 records/s");
        assert_eq!(
            shown(5, 1, 1_000_000, Some(3_000_000)),
            "1.0M records read, 25 %, 200.0k records/s, about 15 s left"
        );
        // Another run begins at its own start.
        assert_eq!(shown(6, 2, 0, Some(3_000_000)), "0 records read, 0 %, 0 records/s");
        assert_eq!(shown(8, 2, 3_000_000, Some(0)), "3.0M records read, 100 %, 1.5M records/s");
        assert_eq!(shown(9, 3, 70, None), "70 records read, 0 records/s");
        assert_eq!(shown(10, 3, 100, None), "100 records read, 30 records/s");
        // Between two answers of the source the time goes on, and so does the share.
        assert_eq!(shown(20, 4, 0, Some(700)), "0 records read, 0 %, 0 records/s");
        assert_eq!(shown(21, 4, 100, Some(600)), "100 records read, 14 %, 100 records/s, about 6.0 s left");
        assert_eq!(shown(22, 4, 200, Some(600)), "200 records read, 28 %, 100 records/s, about 5.0 s left");
        assert_eq!(shown(23, 4, 300, Some(400)), "300 records read, 42 %, 100 records/s, about 4.0 s left");
        assert_eq!(shown(50, 4, 300, Some(400)), "300 records read, 71 %, 0 records/s, about 2.0 s left");
    }
}
