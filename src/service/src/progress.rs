//! Progress of a run that ends when its sources end: record count, share of the input, and estimated time left.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::time::{Duration, Instant, SystemTime};

use anabranch_graph::exec::{Progress, Totals};
use anabranch_process::terminal::{age, short};
use anabranch_record::phrase::plural;
use anabranch_record::text::Str;
use anabranch_store::Status;

use crate::backlog::BacklogNumbers;
use crate::lifecycle::LifecycleState;

/// Time between two log lines about progress, without a terminal.
pub(super) const PERIOD: Duration = Duration::from_secs(5);

/// Minimum time that rates are computed over, so that they do not flicker on a terminal.
const WINDOW: Duration = Duration::from_secs(3);

/// Progress of pipelines.
#[derive(Default)]
pub(super) struct ProgressMeter(BTreeMap<Str, ProgressRow>);

/// Progress data of one pipeline.
struct ProgressRow {
    run: u64,
    began: Instant,
    /// The largest backlog so far, in this or an earlier run: if the input grows during the run, progress does not go
    /// backwards.
    whole: u64,
    /// The backlog, if the source reports it.
    backlog: Option<Backlog>,
    /// Numbers of settled records of this run, oldest first. The first one is older than [`WINDOW`], if there is one.
    history: VecDeque<(Instant, u64)>,
}

/// The backlog of the sources of one run, in the unit in which they report it: records, objects or bytes.
#[derive(Clone, Copy)]
struct Backlog {
    /// The largest backlog in this run.
    first: u64,
    /// The last reported backlog, and how many records were read when it changed. A source reports at most once a
    /// second.
    left: u64,
    read: u64,
}

impl Backlog {
    /// Returns the share of the input `whole` that is settled, from 0 to 1, and the part of this run's backlog that is
    /// settled and that is not.
    fn settled(self, whole: u64, totals: &Totals) -> (Option<f64>, f64, f64) {
        let Backlog { first, left, read } = self;
        let all = left == 0 && totals.settled >= totals.read;
        let settled = match () {
            () if all => first as f64,
            () if read == 0 => 0.0,
            // All records count as equally large.
            () => (totals.settled as f64 * (first - left) as f64 / read as f64).min(first as f64),
        };
        let open = first as f64 - settled;
        // The last part counts only when all of it is settled.
        let done = (whole > 0).then(|| if all { 1.0 } else { (1.0 - open / whole as f64).min(0.99) });
        (done, settled, open)
    }
}

/// Progress of one pipeline.
#[derive(Debug, PartialEq)]
pub(super) enum PipelineProgress {
    /// It runs.
    Running {
        /// Counters of this run.
        totals: Totals,
        /// Settled records per second.
        rate: f64,
        /// The share of the input that is settled, from 0 to 1; `None` if the source does not report its backlog.
        done: Option<f64>,
        /// Estimated time until all of the input is settled; `None` if it is unknown, or if nothing is settled at
        /// present.
        left: Option<Duration>,
    },
    /// It failed and waits.
    Waiting {
        /// Time until it restarts; `None` if it waits for something else than a time.
        restarts: Option<Duration>,
    },
}

impl ProgressMeter {
    /// Records the backlogs, so that shares can be computed later.
    pub(super) fn look(&mut self, pipelines: &[(Str, LifecycleState)], now: Instant) {
        for (id, seen) in pipelines {
            if let Some(progress) = &seen.progress {
                self.row(id, seen.run, progress.totals().read, left(progress), now);
            }
        }
    }

    /// Returns the progress of the pipelines that run or wait for their restart, by id.
    pub(super) fn measure(
        &mut self,
        pipelines: &[(Str, LifecycleState)],
        now: Instant,
    ) -> Vec<(Str, PipelineProgress)> {
        let measured = |(id, seen): &(Str, LifecycleState)| {
            let progress = match &seen.progress {
                Some(progress) => self.measure_one(id, seen.run, progress.totals(), left(progress), now),
                None => waiting(seen)?,
            };
            Some((id.clone(), progress))
        };
        pipelines.iter().filter_map(measured).collect()
    }

    fn row(&mut self, id: &Str, run: u64, read: u64, left: Option<u64>, now: Instant) -> &mut ProgressRow {
        let fresh = |whole| ProgressRow { run, began: now, whole, backlog: None, history: [(now, 0)].into() };
        let row = self.0.entry(id.clone()).or_insert_with(|| fresh(0));
        if row.run != run {
            *row = fresh(row.whole);
        }
        if let Some(left) = left {
            row.whole = row.whole.max(left);
            row.backlog = Some(match row.backlog {
                Some(known) if known.left == left => known,
                known => Backlog { first: known.map_or(left, |known| known.first.max(left)), left, read },
            });
        }
        row
    }

    fn measure_one(&mut self, id: &Str, run: u64, totals: Totals, left: Option<u64>, now: Instant) -> PipelineProgress {
        let row = self.row(id, run, totals.read, left, now);
        let rate = row.rate(totals.settled, now);
        let elapsed = now.duration_since(row.began).as_secs_f64();
        let Some(backlog) = row.backlog.filter(|_| left.is_some()) else {
            return PipelineProgress::Running { totals, rate, done: None, left: None };
        };
        let (done, settled, open) = backlog.settled(row.whole, &totals);
        let left = match settled > 0.0 && rate > 0.0 {
            true => Duration::try_from_secs_f64(open * elapsed / settled).ok(),
            false => None,
        };
        PipelineProgress::Running { totals, rate, done, left }
    }
}

impl ProgressRow {
    /// Returns settled records per second since the sample before [`WINDOW`], or since the beginning of the run.
    fn rate(&mut self, settled: u64, now: Instant) -> f64 {
        if self.history.back().is_some_and(|(at, _)| *at == now) {
            self.history.pop_back();
        }
        self.history.push_back((now, settled));
        while self.history.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= WINDOW) {
            self.history.pop_front();
        }
        let since = self.history.front().copied().unwrap_or((now, settled));
        let elapsed = now.duration_since(since.0).as_secs_f64();
        if elapsed > 0.0 { settled.saturating_sub(since.1) as f64 / elapsed } else { 0.0 }
    }
}

/// Returns the progress of a pipeline that has no run at present; `None` if it does not wait for one.
fn waiting(seen: &LifecycleState) -> Option<PipelineProgress> {
    let in_future = |at: SystemTime| at.duration_since(SystemTime::now()).unwrap_or_default();
    matches!(seen.status, Status::Recovering { .. })
        .then(|| PipelineProgress::Waiting { restarts: seen.retry.map(|retry| in_future(retry.at)) })
}

fn left(progress: &Progress) -> Option<u64> {
    BacklogNumbers::of_all(&progress.backlogs()).and_then(|backlog| backlog.count())
}

impl PipelineProgress {
    /// Formats the progress in one line: `1.2M records read, 26 %, 300.0k records/s, about 11 s left`. Without a time
    /// it has the records in flight, if there are any.
    pub(super) fn shown(&self) -> String {
        let (totals, rate, done, left) = match self {
            PipelineProgress::Running { totals, rate, done, left } => (totals, rate, done, left),
            PipelineProgress::Waiting { restarts: Some(wait) } => {
                return format!("failed; restarts in {}", age(wait.as_secs_f64()));
            }
            PipelineProgress::Waiting { restarts: None } => return "failed; waits for its restart".to_owned(),
        };
        let mut text = format!("{} {} read", short(totals.read as f64), plural(totals.read, "record"));
        if let Some(done) = done {
            let _ = write!(text, ", {:.0} %", percent(*done));
        }
        let _ = write!(text, ", {} records/s", short(*rate));
        let open = totals.read.saturating_sub(totals.settled);
        match left {
            Some(left) if !left.is_zero() => {
                let _ = write!(text, ", about {} left", age(left.as_secs_f64()));
            }
            None if open > 0 => {
                let _ = write!(text, ", {} in flight", short(open as f64));
            }
            _ => {}
        }
        text
    }

    /// Writes the progress to the log.
    pub(super) fn log(&self, id: &Str) {
        match self {
            PipelineProgress::Running { totals, done, left, .. } => tracing::info!(
                pipeline = %id, read = totals.read, settled = totals.settled, percent = done.map(percent),
                seconds_left = left.map(|left| left.as_secs_f64().round()),
                "{}", self.shown()
            ),
            PipelineProgress::Waiting { restarts } => tracing::info!(
                pipeline = %id, restarts_in_seconds = restarts.map(|wait| wait.as_secs_f64().round()),
                "{}", self.shown()
            ),
        }
    }
}

fn percent(done: f64) -> f64 {
    (done * 100.0).floor()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::Retry;

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
        // Another run resumes where the one before ended, if what it settled is stored.
        assert_eq!(shown(6, 2, 0, None), "0 records read, 0 records/s");
        assert_eq!(shown(6, 2, 0, Some(3_000_000)), "0 records read, 25 %, 0 records/s");
        assert_eq!(shown(8, 2, 3_000_000, Some(0)), "3.0M records read, 100 %, 1.5M records/s");
        assert_eq!(shown(9, 3, 70, None), "70 records read, 0 records/s");
        assert_eq!(shown(10, 3, 100, None), "100 records read, 30 records/s");
        // Between two answers of the source the share grows with the settled records.
        let mut meter = ProgressMeter::default();
        let mut shown = |seconds, settled, left| {
            let totals = Totals { read: settled, settled, ..Totals::default() };
            meter.measure_one(&id, 4, totals, left, start + Duration::from_secs(seconds)).shown()
        };
        assert_eq!(shown(20, 0, Some(700)), "0 records read, 0 %, 0 records/s");
        assert_eq!(shown(21, 100, Some(600)), "100 records read, 14 %, 100 records/s, about 6.0 s left");
        assert_eq!(shown(22, 200, Some(600)), "200 records read, 28 %, 100 records/s, about 5.0 s left");
        assert_eq!(shown(23, 300, Some(400)), "300 records read, 42 %, 100 records/s, about 4.0 s left");
        // Without progress, the share stays, and no time is estimated.
        assert_eq!(shown(50, 300, Some(400)), "300 records read, 42 %, 0 records/s");
    }

    /// A destination that accepts nothing: for 12 minutes, the line showed 6 %, then 4 %, and 46 s left.
    #[test]
    fn what_is_only_read_is_no_progress() {
        let mut meter = ProgressMeter::default();
        let (id, start) = (Str::from("p"), Instant::now());
        let mut shown = |seconds, run, read, settled, left| {
            let totals = Totals { read, settled, ..Totals::default() };
            meter.measure_one(&id, run, totals, Some(left), start + Duration::from_secs(seconds))
        };
        for (run, at) in [(1, 0), (2, 20), (3, 40)] {
            assert_eq!(shown(at, run, 0, 0, 100_000).shown(), "0 records read, 0 %, 0 records/s", "{run}");
            let blocked = "2.0k records read, 0 %, 0 records/s, 2.0k in flight";
            // The source has read ahead.
            for (after, left) in [(1, 97_952), (5, 94_000), (10, 94_000)] {
                assert_eq!(shown(at + after, run, 2048, 0, left).shown(), blocked, "{run}");
            }
        }
        // Everything is read and half of it is settled: the destination takes the rest of the time.
        assert_eq!(shown(60, 4, 0, 0, 100_000).shown(), "0 records read, 0 %, 0 records/s");
        let half = "100.0k records read, 50 %, 5.0k records/s, about 10 s left";
        assert_eq!(shown(70, 4, 100_000, 50_000, 0).shown(), half);
        let stuck = "100.0k records read, 50 %, 0 records/s, 50.0k in flight";
        assert_eq!(shown(80, 4, 100_000, 50_000, 0).shown(), stuck);
        assert_eq!(shown(90, 4, 100_000, 100_000, 0).shown(), "100.0k records read, 100 %, 5.0k records/s");
    }

    #[test]
    fn a_pipeline_that_failed_says_when_it_restarts() {
        let mut meter = ProgressMeter::default();
        let (id, now) = (Str::from("p"), Instant::now());
        let mut seen = LifecycleState::new(Status::Recovering { error: "disk full".into() });
        seen.retry = Some(Retry { attempt: 1, at: SystemTime::now() + Duration::from_secs(3600) });
        let mut shown = |seen: &LifecycleState| {
            let all = meter.measure(&[(id.clone(), seen.clone())], now);
            all.into_iter().map(|(_, progress)| progress.shown()).collect::<Vec<_>>()
        };
        assert_eq!(shown(&seen), ["failed; restarts in 60 min"]);
        seen.retry = None;
        assert_eq!(shown(&seen), ["failed; waits for its restart"]);
        seen.status = Status::Running;
        assert_eq!(shown(&seen), [""; 0]);
    }
}
