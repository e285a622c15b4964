//! What is shown on a terminal while the service runs.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anabranch_graph::text::Str;
use tokio::sync::watch;

use crate::log::Output;
use crate::service::lifecycle::Seen;

/// One line: each pipeline with its state, records per second and lag.
pub struct StatusLine {
    output: Arc<Output>,
    pipelines: Vec<Row>,
}

struct Row {
    id: Str,
    seen: watch::Receiver<Seen>,
    /// When the line was drawn and how many rows were settled then, of this run; the oldest first.
    history: VecDeque<(Instant, u64)>,
}

/// Rates are over this many redraws: one alone would flicker.
const SAMPLES: usize = 6;

impl Row {
    /// Rows per second over the last redraws.
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
    /// How often it is redrawn.
    pub const PERIOD: Duration = Duration::from_millis(500);

    /// A line about these pipelines.
    pub fn new(output: Arc<Output>, pipelines: Vec<(Str, watch::Receiver<Seen>)>) -> Self {
        let mut line = StatusLine { output, pipelines: Vec::with_capacity(pipelines.len()) };
        pipelines.into_iter().for_each(|(id, seen)| line.watch(id, seen));
        line
    }

    /// Adds a pipeline.
    pub fn watch(&mut self, id: Str, seen: watch::Receiver<Seen>) {
        self.pipelines.push(Row { id, seen, history: VecDeque::with_capacity(SAMPLES) });
    }

    /// Whether anybody can see it.
    pub fn is_live(&self) -> bool {
        self.output.is_live()
    }

    /// Draws it anew.
    pub fn draw(&mut self) {
        let now = Instant::now();
        let mut text = String::new();
        for row in &mut self.pipelines {
            let seen = row.seen.borrow().clone();
            if !text.is_empty() {
                text.push_str("  |  ");
            }
            let _ = write!(text, "{} {}", row.id, seen.status.word());
            if let Some(totals) = seen.progress.map(|progress| progress.totals()) {
                let rate = row.rate(now, totals.settled);
                let lag = totals.read.saturating_sub(totals.settled) as f64;
                let _ = write!(text, " {} records/s, lag {}", short(rate), short(lag));
            }
        }
        self.output.set_status(text);
    }

    /// Removes it.
    pub fn clear(&self) {
        self.output.set_status(String::new());
    }

    /// The pipelines it was about.
    pub fn into_watched(self) -> impl Iterator<Item = (Str, watch::Receiver<Seen>)> {
        self.pipelines.into_iter().map(|row| (row.id, row.seen))
    }
}

/// A number in a few characters: `999`, `12.3k`, `4.0M`.
fn short(n: f64) -> String {
    match n {
        n if n < 10.0 && n.fract() != 0.0 => format!("{n:.1}"),
        n if n < 1e3 => format!("{n:.0}"),
        n if n < 1e6 => format!("{:.1}k", n / 1e3),
        n => format!("{:.1}M", n / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Status;

    #[test]
    fn rates_are_over_several_redraws() {
        let (_, seen) = watch::channel(Seen { status: Status::Running, progress: None });
        let mut row = Row { id: "p".into(), seen, history: VecDeque::new() };
        let start = Instant::now();
        let at = |n: u32| start + StatusLine::PERIOD * n;
        let rates: Vec<f64> = (0..10).map(|n| row.rate(at(n), u64::from(n / 2))).collect();
        assert_eq!(rates[0], 0.0);
        assert!(rates[4..].iter().all(|rate| (0.7..=1.3).contains(rate)), "{rates:?}");
        assert_eq!(row.rate(at(11), 0), 0.0, "a new run counts from 0");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.0, 1.5, 999.4, 12_345.0, 4_000_000.0].map(short), ["0", "1.5", "999", "12.3k", "4.0M"]);
    }
}
