//! Endpoints of dead letters in `store` queues: list, show, replay and remove.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anabranch_plugin::secret::mask;
use anabranch_record::Record;
use anabranch_record::text::Str;
use anabranch_service::dead_letters::filter::{ConditionError, Filter, condition_of_client};
use anabranch_service::dead_letters::replay::{ReplayError, ReplayFrom, ReplayOutcome, Request};
use anabranch_service::dead_letters::view::{self, LetterPage, LetterView, PageError};
use anabranch_service::replay::ReplayRequestError;
use anabranch_store::letters::{LetterSelection, nanos};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::body::Body;
use crate::codes;
use crate::error::{ApiError, Error, Kind};
use crate::query::Query;
use crate::view::View;

type Shared = State<Arc<View>>;
type Answer<T> = Result<Json<T>, ApiError>;

/// Default and maximum number of dead letters in a page.
const LIMIT: usize = 50;
const MOST: usize = 1000;

pub(super) fn router() -> OpenApiRouter<Arc<View>> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(show)).routes(routes!(replay)).routes(routes!(purge))
}

/// The dead letters to replay: `numbers`, or `all: true`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Replay {
    /// The dead letters with these numbers.
    #[serde(default)]
    numbers: Option<Vec<u64>>,
    /// All dead letters of the pipeline.
    #[serde(default)]
    all: Option<bool>,
    /// Where their records enter the pipeline: at the node where they failed (`step`), directly after their source
    /// (`start`), or at a processor or destination (`step:ID`), which may be one that was added before the node where
    /// they failed.
    #[serde(default)]
    #[schema(value_type = String, default = "step", example = "step:decode")]
    from: ReplayFrom,
    /// The JSON form of a record that replaces the one in the dead letter. Requires exactly one number.
    #[serde(default)]
    record: Option<serde_json::Value>,
}

/// Selection of letters: exactly one of the fields.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Purge {
    /// The dead letters with these numbers.
    #[serde(default)]
    numbers: Option<Vec<u64>>,
    /// All dead letters of the pipeline.
    #[serde(default)]
    all: Option<bool>,
    /// The dead letters whose record first failed longer ago than this.
    #[serde(default)]
    older_than_seconds: Option<f64>,
}

#[derive(Debug, Serialize, ToSchema)]
struct Purged {
    /// Number of dead letters that were removed.
    purged: u64,
}

/// Returns the id if the pipeline exists, or dead letters of a deleted one do.
async fn known(view: &View, id: String) -> Result<Str, ApiError> {
    let id = Str::from(id);
    let pipelines = view.store.pipelines().await?;
    let there = pipelines.iter().any(|pipeline| pipeline.id == id);
    if there || view.store.letter_totals(&id).await?.count > 0 {
        return Ok(id);
    }
    Err(ApiError::no_pipeline(&id))
}

/// List dead letters of a pipeline
///
/// The newest come first. `count`, `bytes` and `oldest` describe all its dead letters. Dead letters for which the
/// condition fails are not listed, but counted as `unjudged`.
#[utoipa::path(
    get, path = "/v1/pipelines/{id}/dead-letters", tag = "dead letters",
    params(("id" = String, Path, description = "Id of the pipeline"),
           ("limit" = Option<usize>, Query, description = "Maximum number of dead letters: 50 by default, at most 1000"),
           ("before" = Option<u64>, Query, description = "Only dead letters with a lower number, to get the next page"),
           ("node" = Option<String>, Query, description = "Only dead letters that failed at this processor or destination"),
           ("sinceNanos" = Option<u64>, Query, description = "Only failures since then, in nanoseconds since 1970"),
           ("where" = Option<String>, Query, description = "Only dead letters whose record fulfils this condition")),
    responses((status = 200, description = "A page of dead letters", body = LetterPage),
              (status = 400, description = "`api.malformed_request`: a parameter is invalid, or the condition \
                                            does not compile; `plan.condition_fails`: it fails for every record; \
                                            `dlq.condition_too_costly`: it needs too many steps or too much time",
               body = Error),
              (status = 404, description = "`pipeline.not_found`", body = Error)),
)]
async fn list(State(view): Shared, Path(id): Path<String>, query: Query) -> Answer<LetterPage> {
    let text = |name| Some(query.text(name)).filter(|text| !text.trim().is_empty());
    let condition = match text("where") {
        Some(text) => Some(condition_of_client(text).await.map_err(|error| refused(&error))?),
        None => None,
    };
    let filter = Filter { node: text("node").map(str::to_owned), since: query.number("sinceNanos")?, condition };
    let before = query.number("before")?;
    let limit = query.number("limit")?.map_or(LIMIT, |limit| usize::try_from(limit).unwrap_or(MOST).min(MOST));
    let id = known(&view, id).await?;
    let mut page = view::page(&view.store, &id, &filter, before, limit).await.map_err(|error| not_listed(&error))?;
    if let (Some(unjudged), Some(pipeline)) = (&mut page.unjudged, view.control.compiled(&id)) {
        unjudged.error.message = mask(&unjudged.error.message, &pipeline.compiled.secrets).into();
    }
    Ok(Json(page))
}

fn not_listed(error: &PageError) -> ApiError {
    let kind = match error {
        PageError::Store(_) => Kind::Unavailable,
        PageError::TooCostly { .. } => Kind::Malformed(StatusCode::BAD_REQUEST),
    };
    let answer = ApiError::new(kind, error.code(), error.to_string());
    match error.suggestion() {
        Some(suggestion) => answer.suggest(suggestion),
        None => answer,
    }
}

fn refused(error: &ConditionError) -> ApiError {
    let message = format!("where: {error}");
    let answer = match error {
        ConditionError::Template(_) | ConditionError::Interrupted => ApiError::malformed(message),
        ConditionError::Fails(..) => ApiError::new(Kind::Malformed(StatusCode::BAD_REQUEST), error.code(), message),
    };
    match error.suggestion() {
        Some(suggestion) => answer.suggest(suggestion.to_owned()),
        None => answer,
    }
}

/// Get a dead letter
///
/// Includes the whole record, as it was when it entered the node where it failed.
#[utoipa::path(
    get, path = "/v1/pipelines/{id}/dead-letters/{number}", tag = "dead letters",
    params(("id" = String, Path, description = "Id of the pipeline"),
           ("number" = u64, Path, description = "Number of the dead letter")),
    responses((status = 200, description = "The dead letter", body = LetterView),
              (status = 400, description = "`api.malformed_request`: invalid number", body = Error),
              (status = 404, description = "`pipeline.not_found`, `dead_letter.not_found`", body = Error)),
)]
async fn show(State(view): Shared, Path((id, number)): Path<(String, String)>) -> Answer<LetterView> {
    let id = known(&view, id).await?;
    let number: u64 = number.parse().map_err(|_| {
        ApiError::malformed(format!(
            "{number:?} is not the number of a dead letter: it must be a whole number up to {}",
            u64::MAX
        ))
    })?;
    let letter = view::one(&view.store, &id, number).await?;
    let missing = || {
        let what = format!("pipeline {:?} has no dead letter {number}", id.as_str());
        ApiError::new(Kind::NotFound, codes::DEAD_LETTER_NOT_FOUND, what)
    };
    letter.map(Json).ok_or_else(missing)
}

/// Replay dead letters
///
/// Sends their records through the rest of the pipeline. The pipeline is drained before and resumes after. Dead letters
/// that are not done after a few seconds are in `remaining`: send another request for those.
#[utoipa::path(
    post, path = "/v1/pipelines/{id}/dead-letters/replay", tag = "dead letters",
    params(("id" = String, Path, description = "Id of the pipeline")),
    request_body = Replay,
    responses((status = 200, description = "The outcome", body = ReplayOutcome),
              (status = 400, description = "`api.malformed_request`, `dead_letter.invalid_record`, \
                                            `dead_letter.not_one`, `dead_letter.no_step`", body = Error),
              (status = 404, description = "`pipeline.not_found`, `dead_letter.not_found`", body = Error)),
)]
async fn replay(State(view): Shared, Path(id): Path<String>, Body(asked): Body<Replay>) -> Answer<ReplayOutcome> {
    let numbers = match asked {
        Replay { numbers: Some(ref numbers), all: None | Some(false), .. } => Some(numbers.clone()),
        Replay { numbers: None, all: Some(true), .. } => None,
        _ => return Err(ApiError::malformed("give either `numbers` or `all: true`")),
    };
    let record = asked.record.map(|record| Record::from_json(record.to_string().as_bytes())).transpose();
    let record = record.map_err(|error| {
        let kind = Kind::Malformed(StatusCode::BAD_REQUEST);
        ApiError::new(kind, codes::DEAD_LETTER_INVALID_RECORD, format!("record: {}", error.message))
    })?;
    let request = Request { numbers, from: asked.from, record };
    view.control.replay(&id, request).await.map(Json).map_err(|error| match error {
        ReplayRequestError::Control(error) => error.into(),
        ReplayRequestError::Replay(error) => {
            let kind = match error {
                ReplayError::NotFound(_) => Kind::NotFound,
                ReplayError::Store(_) => Kind::Unavailable,
                ReplayError::NotOne(_) | ReplayError::NotThere(_) | ReplayError::NoEntry { .. } => {
                    Kind::Malformed(StatusCode::BAD_REQUEST)
                }
            };
            let answer = ApiError::new(kind, error.code(), error.to_string());
            match error.suggestion() {
                Some(_) if matches!(error, ReplayError::NoEntry { .. }) => {
                    answer.suggest("replay it with `from: start` or `from: step:ID`")
                }
                Some(suggestion) => answer.suggest(suggestion),
                None => answer,
            }
        }
    })
}

/// Remove dead letters
///
/// Their records are lost permanently. Numbers without a dead letter are ignored.
#[utoipa::path(
    post, path = "/v1/pipelines/{id}/dead-letters/purge", tag = "dead letters",
    params(("id" = String, Path, description = "Id of the pipeline")),
    request_body = Purge,
    responses((status = 200, description = "Number of removed dead letters", body = Purged),
              (status = 400, description = "`api.malformed_request`", body = Error),
              (status = 404, description = "`pipeline.not_found`", body = Error)),
)]
async fn purge(State(view): Shared, Path(id): Path<String>, Body(asked): Body<Purge>) -> Answer<Purged> {
    let which = match asked {
        Purge { numbers: Some(numbers), all: None | Some(false), older_than_seconds: None } => {
            LetterSelection::Numbers(numbers)
        }
        Purge { numbers: None, all: Some(true), older_than_seconds: None } => LetterSelection::All,
        Purge { numbers: None, all: None | Some(false), older_than_seconds: Some(seconds) } => {
            let age = Duration::try_from_secs_f64(seconds);
            let age = age.map_err(|_| ApiError::malformed("`olderThanSeconds` is not a valid duration"))?;
            LetterSelection::Before(SystemTime::now().checked_sub(age).map_or(0, nanos))
        }
        _ => return Err(ApiError::malformed("give exactly one of `numbers`, `all: true` and `olderThanSeconds`")),
    };
    let id = known(&view, id).await?;
    let purged = view.store.remove_letters(&id, which).await?;
    Ok(Json(Purged { purged }))
}
