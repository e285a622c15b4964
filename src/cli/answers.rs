//! Answers of the HTTP API about pipelines: the fields that commands show.

use anabranch_record::phrase::counted;
use anabranch_service::backlog::{BacklogNumbers, RetentionNumbers};
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::client::escaped;

/// Path of the counters of all pipelines.
pub(super) const LIVE: &str = "/v1/live";

/// Returns the path of the counters of each node of a pipeline.
pub(super) fn live_path(id: &str) -> String {
    format!("/v1/pipelines/{}/live", escaped(id))
}

/// A point in time, as RFC 3339 in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment(pub(super) DateTime<Utc>);

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        DateTime::parse_from_rfc3339(&text).map(|at| Moment(at.to_utc())).map_err(D::Error::custom)
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.to_rfc3339_opts(SecondsFormat::Millis, true))
    }
}

/// A pipeline.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PipelineAnswer {
    pub(super) id: String,
    #[serde(default)]
    pub(super) config: ConfigAnswer,
    pub(super) status: StatusAnswer,
    #[serde(default)]
    pub(super) processor_ids: Vec<String>,
    #[serde(default)]
    pub(super) detached: bool,
    #[serde(default)]
    pub(super) created_at: Option<Moment>,
    #[serde(default)]
    pub(super) updated_at: Option<Moment>,
}

impl PipelineAnswer {
    /// Builds an answer from the live counters, which lack the name, description and times of a pipeline.
    pub(super) fn of_live(live: &LivePipeline) -> Self {
        PipelineAnswer {
            id: live.id.clone(),
            config: ConfigAnswer::default(),
            status: live.status.clone(),
            processor_ids: Vec::new(),
            detached: false,
            created_at: None,
            updated_at: None,
        }
    }
}

/// Name and description of a pipeline.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct ConfigAnswer {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) description: String,
}

/// Status of a pipeline.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StatusAnswer {
    pub(super) word: String,
    #[serde(default)]
    pub(super) since: Option<Moment>,
    #[serde(default)]
    pub(super) error: Option<String>,
    #[serde(default, rename = "where")]
    pub(super) place: Option<String>,
    #[serde(default)]
    pub(super) attempt: Option<u64>,
    #[serde(default)]
    pub(super) next_try: Option<Moment>,
    #[serde(default)]
    pub(super) last_failure: Option<LastFailure>,
    #[serde(default)]
    pub(super) stalled: Option<Stalled>,
    #[serde(default)]
    pub(super) run: u64,
}

/// The latest failure after which the pipeline restarted by itself.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LastFailure {
    pub(super) at: Moment,
    pub(super) error: String,
    pub(super) attempts: u64,
}

/// Describes a pipeline that makes no progress.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Stalled {
    #[serde(default)]
    pub(super) node: String,
    #[serde(default)]
    pub(super) since: Option<Moment>,
    #[serde(default)]
    pub(super) error: Option<String>,
}

/// A connector or a processor.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PartAnswer {
    pub(super) id: String,
    #[serde(default, rename = "type")]
    pub(super) kind: String,
    pub(super) plugin: String,
    #[serde(default)]
    pub(super) condition: String,
    #[serde(default)]
    pub(super) processor_ids: Vec<String>,
    #[serde(default)]
    pub(super) config: PartConfig,
}

/// Settings of a connector or a processor.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct PartConfig {
    #[serde(default)]
    pub(super) settings: Map<String, Value>,
}

/// Counters of all pipelines.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LiveAnswer {
    #[serde(default)]
    pub(super) at: Option<Moment>,
    #[serde(default)]
    pub(super) version: String,
    #[serde(default)]
    pub(super) uptime_seconds: f64,
    #[serde(default)]
    pub(super) pipelines: Vec<LivePipeline>,
}

/// Counters of the current run of a pipeline.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct LivePipeline {
    pub(super) id: String,
    pub(super) status: StatusAnswer,
    pub(super) read: u64,
    pub(super) delivered: u64,
    pub(super) filtered: u64,
    pub(super) failed: u64,
    pub(super) dead_lettered: u64,
    pub(super) in_flight: u64,
    pub(super) unacknowledged: u64,
    pub(super) oldest_unacknowledged_seconds: f64,
    pub(super) backlog: Option<BacklogNumbers>,
}

/// Counters of every partition, node and edge of a pipeline.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct PartsAnswer {
    pub(super) id: String,
    pub(super) status: StatusAnswer,
    #[serde(default)]
    pub(super) lanes: Vec<LaneAnswer>,
    #[serde(default)]
    pub(super) backlogs: Vec<SourceAnswer>,
    pub(super) nodes: Vec<NodeAnswer>,
    pub(super) edges: Vec<EdgeAnswer>,
}

/// The backlog of a source.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SourceAnswer {
    pub(super) connector: String,
    #[serde(default)]
    pub(super) retention: Option<RetentionNumbers>,
}

impl SourceAnswer {
    /// Returns what the external system keeps for the source, for programs; `None` if it keeps nothing.
    pub(super) fn shown(&self) -> Option<Value> {
        let mut shown = json!(self.retention.as_ref()?);
        shown["connector"] = json!(self.connector);
        Some(shown)
    }

    /// Returns what the external system keeps for the source, as a phrase; `None` if it keeps nothing.
    pub(super) fn kept(&self) -> Option<String> {
        let kept = self.retention.as_ref()?.shown();
        Some(format!("{}: {kept}", self.connector))
    }
}

/// Counters of a partition of a source.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LaneAnswer {
    pub(super) connector: String,
    #[serde(default)]
    pub(super) partition: String,
    pub(super) backlog_records: Option<u64>,
}

/// Counters of a node of the pipeline's graph.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeAnswer {
    pub(super) node: usize,
    pub(super) id: String,
    pub(super) rows_in: u64,
    pub(super) selected: u64,
    pub(super) rows_out: u64,
    pub(super) filtered: u64,
    pub(super) failed: u64,
    pub(super) held: u64,
    pub(super) busy_seconds: f64,
    #[serde(default)]
    pub(super) last_error: Option<LastError>,
}

/// The latest error of a node.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LastError {
    pub(super) message: String,
    pub(super) code: String,
    pub(super) at: Moment,
}

/// Counters of an edge of the pipeline's graph, and of its queue.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EdgeAnswer {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) rows: u64,
    pub(super) queued_rows: u64,
    pub(super) queued_bytes: u64,
    pub(super) bound_rows: u64,
    pub(super) bound_bytes: u64,
    pub(super) full: bool,
}

impl EdgeAnswer {
    /// Returns how full the queue of the edge is, from 0 to 1; `None` if the edge has no queue.
    pub(super) fn fill(&self) -> Option<f64> {
        let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        let fullest = share(self.queued_rows, self.bound_rows).max(share(self.queued_bytes, self.bound_bytes));
        (self.bound_rows > 0).then_some(if self.full { 1.0 } else { fullest.min(1.0) })
    }
}

impl LiveAnswer {
    /// Returns the counters of a pipeline.
    pub(super) fn of(&self, id: &str) -> Option<&LivePipeline> {
        self.pipelines.iter().find(|pipeline| pipeline.id == id)
    }
}

impl StatusAnswer {
    /// Returns `true` if the pipeline runs, or will run without a command.
    pub(super) fn is_live(&self) -> bool {
        ["starting", "running", "idle", "recovering"].contains(&self.word.as_str())
    }

    /// Returns the status as a word, marked if the pipeline is stalled.
    pub(super) fn shown(&self) -> String {
        match &self.stalled {
            Some(_) => format!("{} (stalled)", self.word),
            None => self.word.clone(),
        }
    }

    /// Returns the status in words, with the stalled node or the number of the attempt.
    pub(super) fn sentence(&self) -> String {
        match (&self.stalled, self.attempt) {
            (Some(stalled), _) => format!("stalled at {}", stalled.node),
            (None, Some(attempt)) => format!("{}, attempt {attempt}", self.word),
            (None, None) => self.word.clone(),
        }
    }

    /// Returns the error and the node in which it occurred.
    pub(super) fn cause(&self) -> Option<String> {
        let error = self.error.as_ref()?;
        Some(match &self.place {
            Some(place) if !error.contains(place.as_str()) => format!("{place}: {error}"),
            _ => error.clone(),
        })
    }

    /// Returns the latest failure after which the pipeline restarted by itself, and its age. Returns `None` if it is
    /// older than [`RECENT`]. A pipeline that fails repeatedly can run for seconds between its failures.
    pub(super) fn recent_failure(&self, now: DateTime<Utc>) -> Option<(&LastFailure, TimeDelta)> {
        let failure = self.last_failure.as_ref()?;
        let ago = (now - failure.at.0).max(TimeDelta::zero());
        (ago < RECENT).then_some((failure, ago))
    }

    /// Returns `true` if the pipeline makes no progress because of a stall or a failure.
    pub(super) fn is_held_up(&self) -> bool {
        self.stalled.is_some() || ["recovering", "degraded", "invalid"].contains(&self.word.as_str())
    }

    /// Returns the details of the status: the cause, and what happens next.
    pub(super) fn detail(&self, now: DateTime<Utc>) -> String {
        let mut parts = Vec::new();
        if let Some(stalled) = &self.stalled {
            let node = if stalled.node.is_empty() { String::new() } else { format!(" at {}", stalled.node) };
            let since = stalled.since.map(|since| format!(" for {}", short(now - since.0))).unwrap_or_default();
            parts.push(format!("no record has moved{node}{since}"));
            parts.extend(stalled.error.clone());
        }
        parts.extend(self.cause());
        if let Some(next) = self.next_try {
            let attempt = self.attempt.map(|attempt| format!("attempt {attempt} ")).unwrap_or_default();
            parts.push(format!("{attempt}in {}", short(next.0 - now)));
        }
        if let (false, Some((failure, ago))) = (self.is_held_up(), self.recent_failure(now)) {
            let attempts = counted(usize::try_from(failure.attempts).unwrap_or(usize::MAX), "attempt");
            parts.push(format!("failed {} ago ({attempts} to recover): {}", short(ago), failure.error));
        }
        parts.join("; ")
    }
}

/// For how long a failure is shown after a restart. Equal to the default time after which the service resets the count
/// of attempts.
const RECENT: TimeDelta = TimeDelta::seconds(300);

/// Formats a duration in a few characters: `12s`, `5m`, `3h`, `8d`.
pub(super) fn short(span: chrono::TimeDelta) -> String {
    match span.num_seconds() {
        ..0 => "0s".to_owned(),
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7200 => format!("{}m", seconds / 60),
        seconds @ 7200..172_800 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_short() {
        let spans = [-5, 0, 119, 120, 7199, 7200, 172_799, 172_800].map(TimeDelta::seconds);
        assert_eq!(spans.map(short), ["0s", "0s", "119s", "2m", "119m", "2h", "47h", "2d"]);
    }

    #[test]
    fn the_cause_is_said_once() {
        let now = DateTime::from_timestamp(1_000_000, 0).unwrap();
        let status = |text: &str| serde_json::from_str::<StatusAnswer>(text).unwrap().detail(now);
        assert_eq!(status(r#"{"word":"running"}"#), "");
        assert_eq!(status(r#"{"word":"degraded","error":"no file","where":"out"}"#), "out: no file");
        assert_eq!(status(r#"{"word":"degraded","error":"out: no file","where":"out"}"#), "out: no file");
        let stalled =
            r#"{"word":"running","stalled":{"node":"out","since":"1970-01-12T13:46:35.000Z","error":"disk full"}}"#;
        assert_eq!(status(stalled), "no record has moved at out for 5s; disk full");
        let again =
            r#"{"word":"running","lastFailure":{"at":"1970-01-12T13:46:30.000Z","error":"disk full","attempts":2}}"#;
        assert_eq!(status(again), "failed 10s ago (2 attempts to recover): disk full");
        let past =
            r#"{"word":"running","lastFailure":{"at":"1970-01-12T13:00:00.000Z","error":"disk full","attempts":2}}"#;
        assert_eq!(status(past), "");
        let recovering = r#"{"word":"recovering","error":"x","attempt":3,"nextTry":"1970-01-12T13:46:45.000Z"}"#;
        assert_eq!(status(recovering), "x; attempt 3 in 5s");
    }
}
