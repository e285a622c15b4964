//! How a pipeline is, as every answer has it.

use std::time::SystemTime;

use anabranch_graph::exec::{Activity, Progress, Station};
use anabranch_record::text::Str;
use serde::Serialize;
use utoipa::ToSchema;

use crate::service::lifecycle::{Failed, Seen};
use crate::store::Status;

/// How a pipeline is.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct StatusNow {
    /// `starting`, `running`, `idle`, `recovering`, `degraded`, `stopped`, `finished` or `invalid`.
    pub(super) word: &'static str,
    /// Since when; left out where it was so before the service was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// The connector or processor where it went wrong.
    #[serde(rename = "where", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    place: Option<Str>,
    /// While recovering: number of the next attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<usize>,
    /// While recovering: when it is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_try: Option<String>,
    /// While starting or running: the latest failure after which it started again by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_failure: Option<LastFailure>,
    /// While running: where records are held up that none has moved for long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stalled: Option<Stalled>,
    /// Number of the current run, or the last one, of this process; 0 = none yet. Counters begin anew with each.
    run: u64,
}

/// A failure after which a pipeline started again by itself.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct LastFailure {
    /// When.
    at: String,
    /// What it failed of.
    error: String,
    /// How many attempts to recover counted then.
    attempts: usize,
}

impl LastFailure {
    fn of(failed: &Failed) -> Self {
        LastFailure { at: rfc3339(failed.at), error: failed.error.clone(), attempts: failed.attempts }
    }
}

/// Where a running pipeline is held up.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Stalled {
    /// The connector or processor that holds the records; `dead-letter-queue`, or `state-store` where positions cannot
    /// be stored.
    #[schema(value_type = String)]
    node: Str,
    /// `source`, `processor`, `destination` or `dead-letter-queue`: a connector and a processor may have the same id.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    /// When records moved last.
    since: String,
    /// What failed there last, since records moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl StatusNow {
    /// All words.
    pub(super) const WORDS: [&'static str; 8] =
        ["starting", "running", "idle", "recovering", "degraded", "stopped", "finished", "invalid"];

    /// Of a pipeline of this service. `invalid`: what is wrong with its configuration.
    pub(super) fn of(seen: &Seen, invalid: Option<Str>) -> Self {
        let activity = match (&seen.status, &seen.progress) {
            (Status::Running, Some(progress)) => progress.activity(),
            _ => Activity::Moving,
        };
        let (word, since, stalled) = match activity {
            Activity::Idle { since } => ("idle", since, None),
            Activity::Stalled { node, station, since } => {
                let kind = station.map(Station::as_str);
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

    /// Of a pipeline that only the store knows.
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

/// What failed in a node last, where that was after `since`.
fn last_error(progress: &Progress, node: &Str, since: SystemTime) -> Option<String> {
    let stages = progress.stages();
    let nodes = stages.iter().flat_map(|stage| &stage.nodes);
    let letters = progress.dead_letters();
    let errors =
        nodes.chain([&letters]).filter(|counted| counted.node == *node).filter_map(|it| it.last_error.as_ref());
    errors.filter(|error| error.at >= since).max_by_key(|error| error.at).map(|error| error.message.clone())
}

/// A moment in UTC, to the millisecond.
pub(super) fn rfc3339(at: SystemTime) -> String {
    chrono::DateTime::<chrono::Utc>::from(at).to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
}
