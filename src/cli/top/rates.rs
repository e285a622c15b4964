//! Rates, computed from successive counters of a service.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use anabranch_process::terminal::{age, short};

use crate::cli::answers::{LiveAnswer, LivePipeline, PartsAnswer};

/// Formats the number of copies in flight and the age of the oldest unacknowledged record.
pub(super) fn in_flight(pipeline: &LivePipeline) -> String {
    match (pipeline.in_flight, pipeline.oldest_unacknowledged_seconds) {
        (0, 0.0) => "0".to_owned(),
        (copies, seconds) => format!("{} / {}", short(copies as f64), age(seconds)),
    }
}

/// Number of samples that a rate is computed over, so that it does not flicker.
const SAMPLES: usize = 5;

/// Growth rate of a counter.
#[derive(Debug, Default)]
pub(super) struct Rate(VecDeque<(Instant, f64)>);

impl Rate {
    /// Adds a value of a counter. A value that is smaller than the previous one starts a new series.
    pub(super) fn look(&mut self, value: f64, now: Instant) {
        if self.0.back().is_some_and(|(_, before)| *before > value) {
            self.0.clear();
        }
        if self.0.len() == SAMPLES {
            self.0.pop_front();
        }
        self.0.push_back((now, value));
    }

    /// Returns the rate per second; 0 before the second sample.
    pub(super) fn per_second(&self) -> f64 {
        match (self.0.front(), self.0.back()) {
            (Some((begin, from)), Some((end, to))) if end > begin => {
                (to - from) / end.duration_since(*begin).as_secs_f64()
            }
            _ => 0.0,
        }
    }
}

/// Records read and delivered per second, by pipeline.
#[derive(Debug, Default)]
pub(super) struct Rates(HashMap<String, (u64, Rate, Rate)>);

impl Rates {
    pub(super) fn look(&mut self, live: &LiveAnswer, now: Instant) {
        self.0.retain(|id, _| live.pipelines.iter().any(|pipeline| pipeline.id == *id));
        for pipeline in &live.pipelines {
            let (run, read, delivered) = self.0.entry(pipeline.id.clone()).or_default();
            if *run != pipeline.status.run {
                (*read, *delivered) = Default::default();
                *run = pipeline.status.run;
            }
            read.look(pipeline.read as f64, now);
            delivered.look(pipeline.delivered as f64, now);
        }
    }

    pub(super) fn of(&self, id: &str) -> (f64, f64) {
        self.0.get(id).map_or((0.0, 0.0), |(_, read, delivered)| (read.per_second(), delivered.per_second()))
    }
}

/// Rates of a node.
#[derive(Debug, Default)]
pub(super) struct NodeRates {
    pub(super) rows_in: Rate,
    pub(super) rows_out: Rate,
    /// Seconds in its calls per second; more than 1 with several workers.
    pub(super) busy: Rate,
}

/// Rates of all nodes and edges of one pipeline.
#[derive(Debug, Default)]
pub(super) struct PartRates {
    run: u64,
    nodes: HashMap<usize, NodeRates>,
    edges: HashMap<(usize, usize), Rate>,
}

impl PartRates {
    pub(super) fn look(&mut self, parts: &PartsAnswer, now: Instant) {
        if self.run != parts.status.run {
            *self = PartRates { run: parts.status.run, ..PartRates::default() };
        }
        for node in &parts.nodes {
            let rates = self.nodes.entry(node.node).or_default();
            rates.rows_in.look(node.rows_in as f64, now);
            rates.rows_out.look(node.rows_out as f64, now);
            rates.busy.look(node.busy_seconds, now);
        }
        for edge in &parts.edges {
            self.edges.entry((edge.from, edge.to)).or_default().look(edge.rows as f64, now);
        }
    }

    /// Returns the rates of a node; `None` before the first sample.
    pub(super) fn of_node(&self, node: usize) -> Option<&NodeRates> {
        self.nodes.get(&node)
    }

    /// Returns the records per second along an edge.
    pub(super) fn of_edge(&self, from: usize, to: usize) -> f64 {
        self.edges.get(&(from, to)).map_or(0.0, Rate::per_second)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn rates_are_over_the_last_looks() {
        let start = Instant::now();
        let mut rate = Rate::default();
        for n in 0..20_u32 {
            rate.look(f64::from(n * 10), start + Duration::from_secs(n.into()));
        }
        assert!((rate.per_second() - 10.0).abs() < 1e-9);
        rate.look(5.0, start + Duration::from_secs(20));
        assert!(rate.per_second().abs() < 1e-9, "counters began anew");
        rate.look(9.0, start + Duration::from_secs(22));
        assert!((rate.per_second() - 2.0).abs() < 1e-9);
    }

    #[test]
    fn ages_have_one_unit() {
        let ages = [0.04, 9.5, 59.0, 300.0, 10_000.0, 400_000.0].map(age);
        assert_eq!(ages, ["0.0 s", "9.5 s", "59 s", "5 min", "3 h", "5 d"]);
    }
}
