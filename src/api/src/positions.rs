//! Endpoints for the positions from which the sources of a pipeline resume.

use std::collections::BTreeMap;
use std::sync::Arc;

use anabranch_record::Position;
use anabranch_record::mark::{LaneId, Mark, Partition};
use anabranch_record::text::Str;
use anabranch_service::positions::{
    MoveError, Moved, PositionFilter, check, go_on_after, parse, parse_shown, resume_from, shown,
};
use axum::Json;
use axum::extract::{Path, State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::body::Body;
use crate::codes;
use crate::error::{ApiError, Error, Kind};
use crate::pipelines::one;
use crate::view::View;

pub(super) fn router() -> OpenApiRouter<Arc<View>> {
    OpenApiRouter::new()
        .routes(routes!(positions))
        .routes(routes!(reset))
        .routes(routes!(rewind))
        .routes(routes!(import))
}

/// The positions of the sources of a pipeline.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Positions {
    positions: Vec<Lane>,
    /// Positions of sources that the pipeline does not have. They are used again when a source with this id returns.
    set_aside: Vec<Lane>,
}

/// The position of a source, or of a partition of it.
#[derive(Serialize, ToSchema)]
struct Lane {
    connector: String,
    partition: String,
    /// Number of the generation. A reset or rewind begins a new one.
    generation: u64,
    /// Records of this generation that are delivered and acknowledged.
    records: u64,
    /// Position of the last of them: its text, or `base64:` and its bytes.
    position: String,
}

/// The sources to reset or rewind.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = PositionsAsked)]
struct MoveRequest {
    /// Only this source.
    #[serde(default)]
    connector: Option<String>,
    /// Only this partition of it.
    #[serde(default)]
    partition: Option<String>,
    /// The position to rewind to, in the format of the source. The source resumes after it.
    #[serde(default)]
    to: Option<String>,
    /// If false, the response only says what would be done.
    #[serde(default)]
    yes: bool,
}

/// The positions that changed, or would change.
#[derive(Serialize, ToSchema)]
struct Moves {
    positions: Vec<Moved>,
    /// True if the change was made.
    done: bool,
}

/// List the positions of a pipeline
#[utoipa::path(
    get, path = "/v1/pipelines/{id}/positions", tag = "pipelines",
    params(("id" = String, Path, description = "Id of the pipeline")),
    responses((status = 200, description = "The stored positions", body = Positions),
              (status = 404, description = "`pipeline.not_found`", body = Error)),
)]
async fn positions(State(view): State<Arc<View>>, Path(id): Path<String>) -> Result<Json<Positions>, ApiError> {
    let id = match one(&view, &id).await {
        Ok(known) => known.id,
        // Positions may exist before their pipeline: they can be imported or copied for it.
        Err(unknown) => match Str::from(id) {
            id if view.store.positions(&id).await?.values().all(Mark::is_beginning) => return Err(unknown),
            id => id,
        },
    };
    let lane = |(lane, mark): (&LaneId, &Mark)| Lane {
        connector: lane.connector.to_string(),
        partition: lane.partition.0.to_string(),
        generation: mark.generation,
        records: mark.seq,
        position: shown(&mark.position),
    };
    let lanes = |marks: BTreeMap<LaneId, Mark>| marks.iter().map(lane).collect();
    Ok(Json(Positions {
        positions: lanes(view.store.positions(&id).await?),
        set_aside: lanes(view.store.detached_marks(&id).await?),
    }))
}

/// Reset the sources of a pipeline to their beginning
///
/// Records that were delivered are delivered again. A running pipeline is drained before and resumes after.
#[utoipa::path(
    post, path = "/v1/pipelines/{id}/positions/reset", tag = "pipelines",
    params(("id" = String, Path, description = "Id of the pipeline")),
    request_body = Option<MoveRequest>,
    responses((status = 200, description = "The changes, made or planned", body = Moves),
              (status = 404, description = "`pipeline.not_found`, `positions.none`", body = Error)),
)]
async fn reset(
    State(view): State<Arc<View>>,
    Path(id): Path<String>,
    Body(asked): Body<MoveRequest>,
) -> Result<Json<Moves>, ApiError> {
    if asked.to.is_some() {
        return Err(ApiError::malformed("a reset does not accept `to`: it always moves to the beginning"));
    }
    moved(&view, &id, asked, Position::copy_from(b"")).await
}

/// Rewind a source of a pipeline to another position
///
/// A position that the source cannot read is refused. Some sources cannot check positions, such as those of plugin
/// programs: they read the position when they are opened. A running pipeline is drained before and resumes after.
#[utoipa::path(
    post, path = "/v1/pipelines/{id}/positions/rewind", tag = "pipelines",
    params(("id" = String, Path, description = "Id of the pipeline")),
    request_body = MoveRequest,
    responses((status = 200, description = "The changes, made or planned", body = Moves),
              (status = 400, description = "`positions.ambiguous`, `positions.refused`", body = Error),
              (status = 404, description = "`pipeline.not_found`, `positions.none`", body = Error)),
)]
async fn rewind(
    State(view): State<Arc<View>>,
    Path(id): Path<String>,
    Body(asked): Body<MoveRequest>,
) -> Result<Json<Moves>, ApiError> {
    let Some(to) = &asked.to else {
        return Err(ApiError::malformed("`to` is missing: give the position after which the source resumes"));
    };
    let to = parse(to).map_err(|error| ApiError::malformed(format!("to: {error}")))?;
    moved(&view, &id, asked, to).await
}

/// Positions from which sources are to resume.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Import {
    positions: Vec<Imported>,
    /// Allows a pipeline or source that does not exist yet, for example before a rename.
    #[serde(default)]
    new: bool,
    /// If false, the response only says what would be done.
    #[serde(default)]
    yes: bool,
}

/// The position of a source, or of a partition of it.
#[derive(Deserialize, ToSchema)]
struct Imported {
    connector: String,
    #[serde(default)]
    partition: String,
    /// Its text, or `base64:` and its bytes; `(the beginning)` for none.
    position: String,
    /// The generation that it was exported from.
    #[serde(default)]
    generation: u64,
}

/// Import the positions from which sources of a pipeline resume
///
/// Takes the response of `GET …/positions` of this pipeline or of another one. A position that its source cannot read
/// is refused. Some sources cannot check positions, such as those of plugin programs or with `new`: they read the
/// position when they are opened. A running pipeline is drained before and resumes after.
#[utoipa::path(
    post, path = "/v1/pipelines/{id}/positions/import", tag = "pipelines",
    params(("id" = String, Path, description = "Id of the pipeline")),
    request_body = Import,
    responses((status = 200, description = "The changes, made or planned", body = Moves),
              (status = 400, description = "`positions.no_source`, `positions.refused`", body = Error),
              (status = 404, description = "`pipeline.not_found`", body = Error)),
)]
async fn import(
    State(view): State<Arc<View>>,
    Path(id): Path<String>,
    Body(asked): Body<Import>,
) -> Result<Json<Moves>, ApiError> {
    let sources = if asked.new { None } else { Some(one(&view, &id).await?.sources()) };
    let mut given = Vec::with_capacity(asked.positions.len());
    for Imported { connector, partition, position, generation } in asked.positions {
        let position =
            parse_shown(&position).map_err(|error| ApiError::malformed(format!("position of {connector}: {error}")))?;
        let lane = LaneId { connector: connector.into(), partition: Partition(partition.into()) };
        given.push((lane, position, generation));
    }
    let id = &Str::from(id);
    // Errors are found before anything is drained.
    let mut moves = resume_from(&view.store, id, sources.as_deref(), &given, false).await?;
    let plan = view.control.compiled(id);
    let unasked = check(plan.as_deref(), id, given.iter().map(|(lane, position, _)| (lane, position)))?;
    if asked.yes {
        let importing = resume_from(&view.store, id, sources.as_deref(), &given, true);
        moves = match view.control.seen(id) {
            Some(_) => view.control.held(id, importing).await??,
            None => importing.await?,
        };
    }
    Ok(Json(Moves { positions: Moved::checked(moves, &unasked), done: asked.yes }))
}

async fn moved(view: &View, id: &str, asked: MoveRequest, to: Position) -> Result<Json<Moves>, ApiError> {
    let MoveRequest { connector, partition, yes, .. } = asked;
    let chosen = PositionFilter { connector, partition };
    let id: Str = one(view, id).await?.id;
    // A dry run does not disturb the pipeline, and finds errors.
    let mut moves = go_on_after(&view.store, &id, &chosen, &to, false).await?;
    let plan = view.control.compiled(&id);
    let unasked = check(plan.as_deref(), &id, moves.keys().map(|lane| (lane, &to)))?;
    if yes {
        moves = match view.control.seen(&id) {
            Some(_) => view.control.held(&id, go_on_after(&view.store, &id, &chosen, &to, true)).await??,
            None => go_on_after(&view.store, &id, &chosen, &to, true).await?,
        };
    }
    Ok(Json(Moves { positions: Moved::checked(Moved::all(&moves, &to), &unasked), done: yes }))
}

impl From<MoveError> for ApiError {
    fn from(error: MoveError) -> Self {
        let text = error.to_string();
        match error {
            MoveError::None { known, .. } => {
                let answer = ApiError::new(Kind::NotFound, codes::POSITIONS_NONE, text);
                if known.is_empty() {
                    answer
                        .suggest("no position is stored: the sources of the pipeline start from their beginning anyway")
                } else {
                    answer.suggest(format!("positions are stored for {}", known.join(", ")))
                }
            }
            MoveError::Ambiguous(_) => {
                let answer = ApiError::new(Kind::FailedPrecondition, codes::POSITIONS_AMBIGUOUS, text);
                answer.suggest("choose one with `connector` and `partition`")
            }
            MoveError::NoSource { known, .. } => {
                ApiError::new(Kind::FailedPrecondition, codes::POSITIONS_NO_SOURCE, text)
                    .suggest(format!("the sources of the pipeline are {}", known.join(", ")))
            }
            MoveError::NoPartition { .. } => {
                ApiError::new(Kind::FailedPrecondition, codes::POSITIONS_NO_PARTITION, text)
                    .suggest("remove this position from the request: it belongs to another source")
            }
            MoveError::Refused { .. } => ApiError::new(Kind::FailedPrecondition, codes::POSITIONS_REFUSED, text),
            MoveError::Store(error) => error.into(),
        }
    }
}
