//! Endpoints that start and stop pipelines.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::body::Body;
use crate::error::{ApiError, Error};
use crate::view::View;

pub(super) fn router() -> OpenApiRouter<Arc<View>> {
    OpenApiRouter::new().routes(routes!(start)).routes(routes!(stop))
}

/// An empty result.
#[derive(Serialize, ToSchema)]
pub(super) struct Done {}

/// Options of a start.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Start {}

/// Options of a stop.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Stop {
    /// Drops records in flight; they are read again at the next start.
    #[serde(default)]
    force: bool,
}

/// Start a pipeline
///
/// Returns immediately: the status of the pipeline shows the progress.
#[utoipa::path(
    post, path = "/v1/pipelines/{id}/start", tag = "pipelines",
    params(("id" = String, Path, description = "Id of the pipeline")),
    request_body = Option<Start>,
    responses((status = 200, description = "The pipeline is starting", body = Done),
              (status = 400, description = "`pipeline.running`, `pipeline.invalid`", body = Error),
              (status = 404, description = "`pipeline.not_found`", body = Error)),
)]
async fn start(
    State(view): State<Arc<View>>,
    Path(id): Path<String>,
    Body(Start {}): Body<Start>,
) -> Result<Json<Done>, ApiError> {
    view.control.start(&id).await?;
    Ok(Json(Done {}))
}

/// Stop a pipeline
///
/// The pipeline stops reading and delivers what it has read. Returns immediately: the status of the pipeline shows when
/// it has stopped.
#[utoipa::path(
    post, path = "/v1/pipelines/{id}/stop", tag = "pipelines",
    params(("id" = String, Path, description = "Id of the pipeline")),
    request_body = Option<Stop>,
    responses((status = 200, description = "The pipeline is stopping", body = Done),
              (status = 400, description = "`pipeline.not_running`, `pipeline.stopping`", body = Error),
              (status = 404, description = "`pipeline.not_found`", body = Error)),
)]
async fn stop(
    State(view): State<Arc<View>>,
    Path(id): Path<String>,
    Body(Stop { force }): Body<Stop>,
) -> Result<Json<Done>, ApiError> {
    view.control.stop(&id, force, false).await?;
    Ok(Json(Done {}))
}
