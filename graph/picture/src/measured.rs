//! Measurements of a run, displayed next to the nodes.

use std::time::Duration;

use petgraph::stable_graph::NodeIndex;
use serde::Serialize;

use super::{PictureNode, grouped};
use anabranch_graph::plan::measure::{Measured, StepCount};

/// Counters and times of a node.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Cost {
    rows_in: u64,
    selected: u64,
    rows_out: u64,
    failed: u64,
    /// Ratio of records out to records in.
    selectivity: Option<f64>,
    /// Time spent, in nanoseconds.
    busy_ns: u64,
    /// Share of the time of all nodes, from 0 to 1.
    pub(super) share: f64,
}

/// Totals of a run.
#[derive(Serialize)]
pub(super) struct Totals<'a> {
    read: u64,
    delivered: u64,
    failed: u64,
    elapsed_ns: u64,
    /// True if destinations were written.
    written: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    cut_short: Option<&'a str>,
}

/// Adds measurements to the nodes of a picture.
pub(super) fn note(
    nodes: &mut [PictureNode<'_>],
    measured: &Measured,
    members: &[Vec<NodeIndex>],
    place: impl Fn(NodeIndex) -> Option<usize>,
) {
    let all: Duration = measured.stages.iter().flatten().map(|count| count.busy).sum();
    for (counts, members) in measured.stages.iter().zip(members) {
        for (count, member) in counts.iter().zip(members) {
            if let Some(node) = place(*member).and_then(|at| nodes.get_mut(at)) {
                node.measured = Some(Cost::of(count, all));
            }
        }
    }
}

impl Cost {
    fn of(count: &StepCount, all: Duration) -> Self {
        let StepCount { rows_in, selected, rows_out, failed, busy, filtered: _, held: _ } = *count;
        Cost {
            rows_in,
            selected,
            rows_out,
            failed,
            selectivity: (rows_in > 0).then(|| round(rows_out as f64 / rows_in as f64)),
            busy_ns: nanos(busy),
            share: if all.is_zero() { 0.0 } else { round(busy.as_secs_f64() / all.as_secs_f64()) },
        }
    }

    /// Formats records in and out: `10,000 → 3,333 (33.3 %)`, or `10,000 → 10,000`.
    pub(super) fn rows(&self) -> String {
        let mut text = format!("{} → {}", grouped(self.rows_in), grouped(self.rows_out));
        if let Some(selectivity) = self.selectivity
            && self.rows_in != self.rows_out
        {
            text.push_str(&format!(" ({:.1} %)", selectivity * 100.0));
        }
        if self.failed > 0 {
            text.push_str(&format!(", {} failed", grouped(self.failed)));
        }
        text
    }

    /// Formats time and share: `1.2 ms · 12.0 %`.
    pub(super) fn cost(&self) -> String {
        let mut text = format!("{} · {:.1} %", time(self.busy_ns), self.share * 100.0);
        if self.selected < self.rows_in {
            text.push_str(&format!(" · applied to {}", grouped(self.selected)));
        }
        text
    }
}

impl<'a> Totals<'a> {
    pub(super) fn of(measured: &'a Measured) -> Self {
        Totals {
            read: measured.read,
            delivered: measured.delivered,
            failed: measured.failed,
            elapsed_ns: nanos(measured.elapsed),
            written: measured.written,
            cut_short: measured.cut_short.as_deref(),
        }
    }

    /// Describes the run in one or two clauses.
    pub(super) fn sentence(&self) -> String {
        let mut text = format!(
            "{} records read, {} {}, {} failed, in {}",
            grouped(self.read),
            grouped(self.delivered),
            if self.written { "delivered" } else { "brought to destinations that wrote nothing" },
            grouped(self.failed),
            time(self.elapsed_ns)
        );
        if let Some(reason) = self.cut_short {
            text.push_str("; ");
            text.push_str(reason);
        }
        text
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Rounds to four digits; more would suggest a precision that the measurement does not have.
fn round(ratio: f64) -> f64 {
    (ratio * 1e4).round() / 1e4
}

/// Formats a time with three digits and a unit.
fn time(nanos: u64) -> String {
    let n = nanos as f64;
    let (n, unit) = match nanos {
        0..1_000 => (n, "ns"),
        1_000..1_000_000 => (n / 1e3, "µs"),
        1_000_000..1_000_000_000 => (n / 1e6, "ms"),
        _ => (n / 1e9, "s"),
    };
    let digits = if n < 10.0 && unit != "ns" {
        2
    } else if n < 100.0 && unit != "ns" {
        1
    } else {
        0
    };
    format!("{n:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        let times = [0, 999, 1_000, 12_340, 1_500_000, 123_400_000, 2_000_000_000].map(time);
        assert_eq!(times, ["0 ns", "999 ns", "1.00 µs", "12.3 µs", "1.50 ms", "123 ms", "2.00 s"]);
    }

    #[test]
    fn a_node_without_records_has_no_selectivity() {
        let cost = Cost::of(&StepCount::default(), Duration::ZERO);
        assert_eq!((cost.rows().as_str(), cost.cost().as_str()), ("0 → 0", "0 ns · 0.0 %"));
    }

    #[test]
    fn a_filter_shows_what_it_lets_through() {
        let count = StepCount {
            rows_in: 1200,
            selected: 600,
            rows_out: 300,
            failed: 2,
            busy: Duration::from_millis(1),
            ..StepCount::default()
        };
        let cost = Cost::of(&count, Duration::from_millis(4));
        assert_eq!(cost.rows(), "1,200 → 300 (25.0 %), 2 failed");
        assert_eq!(cost.cost(), "1.00 ms · 25.0 % · applied to 600");
    }
}
