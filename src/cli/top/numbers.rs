//! What a service says of its pipelines, and how fast they are.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use serde::Deserialize;

use crate::client::escaped;
use crate::terminal::short;

/// Where all pipelines are.
pub(super) const LIVE: &str = "/v1/live";

/// Where one is.
pub(super) fn live_path(id: &str) -> String {
    format!("/v1/pipelines/{}/live", escaped(id))
}

/// All pipelines at one moment.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Live {
    pub(super) version: String,
    pub(super) uptime_seconds: f64,
    pub(super) pipelines: Vec<Pipeline>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pipeline {
    pub(super) id: String,
    pub(super) status: Status,
    pub(super) read: u64,
    pub(super) delivered: u64,
    pub(super) failed: u64,
    pub(super) dead_lettered: u64,
    pub(super) in_flight: u64,
    pub(super) lag_rows: u64,
    pub(super) lag_seconds: f64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Status {
    pub(super) word: String,
    #[serde(default)]
    pub(super) error: Option<String>,
    #[serde(default, rename = "where")]
    pub(super) place: Option<String>,
    #[serde(default)]
    pub(super) attempt: Option<u64>,
    #[serde(default)]
    pub(super) stalled: Option<Stalled>,
    pub(super) run: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Stalled {
    pub(super) node: String,
}

impl Status {
    /// The word, and what makes it less than good.
    pub(super) fn sentence(&self) -> String {
        match (&self.stalled, self.attempt) {
            (Some(stalled), _) => format!("stalled at {}", stalled.node),
            (None, Some(attempt)) => format!("{}, attempt {attempt}", self.word),
            (None, None) => self.word.clone(),
        }
    }

    /// What went wrong, and where.
    pub(super) fn complaint(&self) -> Option<String> {
        let error = self.error.as_ref()?;
        Some(match &self.place {
            Some(place) => format!("{place}: {error}"),
            None => error.clone(),
        })
    }

    /// Whether it was started and has not ended.
    pub(super) fn is_live(&self) -> bool {
        matches!(self.word.as_str(), "starting" | "running" | "idle" | "recovering")
    }
}

/// Records that are on their way, and how old the oldest is.
pub(super) fn lag(pipeline: &Pipeline) -> String {
    match pipeline.lag_rows {
        0 => "0".to_owned(),
        rows => format!("{} / {}", short(rows as f64), age(pipeline.lag_seconds)),
    }
}

/// A time in one unit: `0.3 s`, `12 s`, `5 min`, `3 h`, `4 d`.
pub(super) fn age(seconds: f64) -> String {
    match seconds {
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.0} h", s / 3600.0),
        s => format!("{:.0} d", s / 86_400.0),
    }
}

/// One pipeline in all its parts at one moment.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Detail {
    pub(super) id: String,
    pub(super) status: Status,
    pub(super) nodes: Vec<Node>,
    pub(super) edges: Vec<Edge>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Node {
    pub(super) node: usize,
    pub(super) id: String,
    pub(super) rows_in: u64,
    pub(super) rows_out: u64,
    pub(super) failed: u64,
    pub(super) held: u64,
    pub(super) busy_seconds: f64,
    #[serde(default)]
    pub(super) last_error: Option<LastError>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct LastError {
    pub(super) message: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Edge {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) queued_rows: u64,
    pub(super) queued_bytes: u64,
    pub(super) bound_rows: u64,
    pub(super) bound_bytes: u64,
    pub(super) full: bool,
}

impl Edge {
    /// How full its queue is, from 0 to 1; `None` where it has none.
    pub(super) fn fill(&self) -> Option<f64> {
        let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        let fullest = share(self.queued_rows, self.bound_rows).max(share(self.queued_bytes, self.bound_bytes));
        (self.bound_rows > 0).then_some(if self.full { 1.0 } else { fullest.min(1.0) })
    }
}

/// Rates are over this many looks: one alone would flicker.
const SAMPLES: usize = 5;

/// How fast something grows.
#[derive(Debug, Default)]
pub(super) struct Rate(VecDeque<(Instant, f64)>);

impl Rate {
    /// Notes a value of something that only grows; one that is smaller than before counts from anew.
    pub(super) fn look(&mut self, value: f64, now: Instant) {
        if self.0.back().is_some_and(|(_, before)| *before > value) {
            self.0.clear();
        }
        if self.0.len() == SAMPLES {
            self.0.pop_front();
        }
        self.0.push_back((now, value));
    }

    /// Per second; 0 before the second look.
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
    pub(super) fn look(&mut self, live: &Live, now: Instant) {
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
