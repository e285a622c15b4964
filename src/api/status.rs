//! How a pipeline is, as every answer has it.

use std::time::SystemTime;

use anabranch_graph::text::Str;
use serde::Serialize;
use utoipa::ToSchema;

use crate::service::lifecycle::Seen;
use crate::store::Status;

/// How a pipeline is.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct StatusNow {
    /// `starting`, `running`, `recovering`, `degraded`, `stopped`, `finished` or `invalid`.
    word: &'static str,
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
    /// Number of the current run, or the last one, of this process; 0 = none yet. Counters begin anew with each.
    run: u64,
}

impl StatusNow {
    /// Of a pipeline of this service. `invalid`: what is wrong with its configuration.
    pub(super) fn of(seen: &Seen, invalid: Option<Str>) -> Self {
        StatusNow {
            word: seen.status.word(),
            since: Some(rfc3339(seen.since)),
            error: seen.status.error().map(str::to_owned).or_else(|| invalid.map(|what| what.to_string())),
            place: seen.place.clone(),
            attempt: seen.retry.map(|retry| retry.attempt),
            next_try: seen.retry.map(|retry| rfc3339(retry.at)),
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
            run: 0,
        }
    }
}

/// A moment in UTC, to the millisecond.
pub(super) fn rfc3339(at: SystemTime) -> String {
    chrono::DateTime::<chrono::Utc>::from(at).to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
}
