//! What is shown on a terminal while the service runs.

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
    drawn: Instant,
}

struct Row {
    id: Str,
    seen: watch::Receiver<Seen>,
    /// Rows that were settled when the line was last drawn.
    settled: u64,
}

impl StatusLine {
    /// How often it is redrawn.
    pub const PERIOD: Duration = Duration::from_millis(500);

    /// A line about these pipelines.
    pub fn new(output: Arc<Output>, pipelines: Vec<(Str, watch::Receiver<Seen>)>) -> Self {
        let pipelines = pipelines.into_iter().map(|(id, seen)| Row { id, seen, settled: 0 }).collect();
        StatusLine { output, pipelines, drawn: Instant::now() }
    }

    /// Whether anybody can see it.
    pub fn is_live(&self) -> bool {
        self.output.is_live()
    }

    /// Draws it anew.
    pub fn draw(&mut self) {
        let elapsed = self.drawn.elapsed().as_secs_f64().max(0.001);
        self.drawn = Instant::now();
        let mut text = String::new();
        for row in &mut self.pipelines {
            let seen = row.seen.borrow();
            if !text.is_empty() {
                text.push_str("  |  ");
            }
            let _ = write!(text, "{} {}", row.id, seen.status.word());
            if let Some((read, settled)) = seen.progress.as_deref().map(counts) {
                let rate = settled.saturating_sub(row.settled) as f64 / elapsed;
                row.settled = settled;
                let _ = write!(text, " {}/s lag {}", short(rate), short(read.saturating_sub(settled) as f64));
            } else {
                row.settled = 0;
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

/// Rows read and rows settled.
fn counts(progress: &anabranch_graph::exec::Progress) -> (u64, u64) {
    let totals = progress.totals();
    (totals.read, totals.settled)
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
    use super::short;

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.0, 1.5, 999.4, 12_345.0, 4_000_000.0].map(short), ["0", "1.5", "999", "12.3k", "4.0M"]);
    }
}
