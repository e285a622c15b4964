//! The status line on a terminal while the service runs.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anabranch_process::log::Output;
use anabranch_process::terminal::short;
use anabranch_record::text::Str;

use crate::backlog::BacklogNumbers;
use crate::lifecycle::LifecycleState;

/// A line with the state, records per second, records in flight and backlog of each pipeline.
pub(super) struct StatusLine {
    output: Arc<Output>,
    /// The state of each pipeline at earlier redraws.
    rows: BTreeMap<Str, StatusRow>,
}

#[derive(Default)]
struct StatusRow {
    /// Times of redraws and numbers of settled records of this run, oldest first.
    history: VecDeque<(Instant, u64)>,
}

/// Number of redraws that rates are computed over, so that they do not flicker.
const SAMPLES: usize = 6;

impl StatusRow {
    /// Returns records per second over the last redraws.
    fn rate(&mut self, now: Instant, settled: u64) -> f64 {
        if self.history.back().is_some_and(|(_, before)| *before > settled) {
            self.history.clear();
        }
        if self.history.len() == SAMPLES {
            self.history.pop_front();
        }
        let rate = self
            .history
            .front()
            .map_or(0.0, |(at, before)| (settled - before) as f64 / now.duration_since(*at).as_secs_f64().max(0.001));
        self.history.push_back((now, settled));
        rate
    }
}

impl StatusLine {
    /// Time between two redraws.
    pub(super) const PERIOD: Duration = Duration::from_millis(500);

    /// Creates an empty line.
    pub(super) fn new(output: Arc<Output>) -> Self {
        StatusLine { output, rows: BTreeMap::new() }
    }

    /// Returns `true` if the output is a terminal.
    pub(super) fn is_live(&self) -> bool {
        self.output.is_live()
    }

    /// Redraws the line with those pipelines that have been started.
    pub(super) fn draw(&mut self, pipelines: Vec<(Str, LifecycleState)>) {
        let now = Instant::now();
        let mut text = String::new();
        for (id, seen) in pipelines.into_iter().filter(|(_, seen)| seen.run > 0 || seen.status.is_live()) {
            if !text.is_empty() {
                text.push_str("  |  ");
            }
            let _ = write!(text, "{id} {}", seen.status.word());
            let row = self.rows.entry(id).or_default();
            if let Some(progress) = seen.progress {
                let totals = progress.totals();
                let rate = row.rate(now, totals.settled);
                let open = totals.read.saturating_sub(totals.settled) as f64;
                let _ = write!(text, " {} records/s, {} in flight", short(rate), short(open));
                if let Some(amount) = BacklogNumbers::of_all(&progress.backlogs()).and_then(|it| it.amount()) {
                    let _ = write!(text, ", backlog {amount}");
                }
            }
        }
        self.output.set_status(&text);
    }

    /// Shows these texts, one per pipeline.
    pub(super) fn show(&self, texts: impl Iterator<Item = String>) {
        self.output.set_status(&texts.collect::<Vec<_>>().join("  |  "));
    }

    /// Removes the line.
    pub(super) fn clear(&self) {
        self.output.set_status("");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_over_several_redraws() {
        let mut row = StatusRow::default();
        let start = Instant::now();
        let at = |n: u32| start + StatusLine::PERIOD * n;
        let rates: Vec<f64> = (0..10).map(|n| row.rate(at(n), u64::from(n / 2))).collect();
        assert_eq!(rates[0], 0.0);
        assert!(rates[4..].iter().all(|rate| (0.7..=1.3).contains(rate)), "{rates:?}");
        assert_eq!(row.rate(at(11), 0), 0.0, "a new run counts from 0");
    }
}
