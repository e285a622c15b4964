//! The status of a pipeline in responses.

use std::time::SystemTime;

use anabranch_graph::exec::{Activity, NodeRole, Progress};
use anabranch_record::text::Str;
use anabranch_store::Status;
use serde::Serialize;
use utoipa::ToSchema;

use anabranch_service::lifecycle::{LifecycleState, RestartCause};

/// The current status of a pipeline.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct StatusNow {
    /// `starting`, `running`, `idle`, `recovering`, `degraded`, `stopped`, `finished` or `invalid`.
    pub(super) word: &'static str,
    /// When it entered this status; absent if that was before the service started.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    /// The error.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// The connector or processor that failed.
    #[serde(rename = "where", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    place: Option<Str>,
    /// While recovering: number of the next attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<usize>,
    /// While recovering: time of the next attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_try: Option<String>,
    /// While starting or running: the latest failure that it recovered from by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_failure: Option<LastFailure>,
    /// While running: where records have not moved for long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stalled: Option<Stalled>,
    /// Number of the current or last run in this process; 0 = none yet. Counters restart with each run.
    run: u64,
}

/// A failure after which a pipeline restarted by itself.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct LastFailure {
    /// Time of the failure.
    at: String,
    /// The error.
    error: String,
    /// Number of attempts to recover that counted at that time.
    attempts: usize,
}

impl LastFailure {
    fn of(failed: &RestartCause) -> Self {
        LastFailure { at: rfc3339(failed.at), error: failed.error.clone(), attempts: failed.attempts }
    }
}

/// Where a running pipeline is stalled.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Stalled {
    /// The connector or processor that holds the records; `dead-letter-queue`, or `state-store` if positions cannot be
    /// stored.
    #[schema(value_type = String)]
    node: Str,
    /// `source`, `processor`, `destination` or `dead-letter-queue`: a connector and a processor may have the same id.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    /// When records last moved.
    since: String,
    /// The last failure there since records moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl StatusNow {
    /// All words.
    pub(super) const WORDS: [&'static str; 8] =
        ["starting", "running", "idle", "recovering", "degraded", "stopped", "finished", "invalid"];

    /// Returns the status of a pipeline of this service. `invalid` is the error of its configuration.
    pub(super) fn of(seen: &LifecycleState, invalid: Option<Str>) -> Self {
        let activity = match (&seen.status, &seen.progress) {
            (Status::Running, Some(progress)) => progress.activity(),
            _ => Activity::Moving,
        };
        let (word, since, stalled) = match activity {
            Activity::Idle { since } => ("idle", since, None),
            Activity::Stalled { node, role, since } => {
                let kind = role.map(NodeRole::as_str);
                let error = seen.progress.as_ref().and_then(|progress| last_error(progress, &node, since));
                (seen.status.word(), seen.since, Some(Stalled { node, kind, since: rfc3339(since), error }))
            }
            Activity::Opening | Activity::Moving => (seen.status.word(), seen.since, None),
        };
        StatusNow {
            word,
            since: Some(rfc3339(since)),
            stalled,
            error: seen.status.error().map(str::to_owned).or_else(|| invalid.map(|what| what.to_string())),
            place: seen.place.clone(),
            attempt: seen.retry.map(|retry| retry.attempt),
            next_try: seen.retry.map(|retry| rfc3339(retry.at)),
            last_failure: match seen.status {
                Status::Starting | Status::Running => seen.failed.as_ref().map(LastFailure::of),
                _ => None,
            },
            run: seen.run,
        }
    }

    /// Returns the status of a pipeline that only the store has.
    pub(super) fn stored(status: &Status) -> Self {
        StatusNow {
            word: status.word(),
            since: None,
            error: status.error().map(str::to_owned),
            place: None,
            attempt: None,
            next_try: None,
            last_failure: None,
            stalled: None,
            run: 0,
        }
    }
}

/// Returns the last failure in a node, if it happened after `since`.
fn last_error(progress: &Progress, node: &Str, since: SystemTime) -> Option<String> {
    let stages = progress.stages();
    let nodes = stages.iter().flat_map(|stage| &stage.nodes);
    let letters = progress.dead_letters();
    let errors =
        nodes.chain([&letters]).filter(|counted| counted.node == *node).filter_map(|it| it.last_error.as_ref());
    errors.filter(|error| error.at >= since).max_by_key(|error| error.at).map(|error| error.message.clone())
}

/// Formats a time in UTC with milliseconds.
pub(super) fn rfc3339(at: SystemTime) -> String {
    chrono::DateTime::<chrono::Utc>::from(at).to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
}
