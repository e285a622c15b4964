//! Endpoints that start and stop pipelines, and have sources read again.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use futures::future::join_all;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::FORWARDED;
use crate::body::Body;
use crate::error::{ApiError, Error};
use crate::view::View;

pub(super) fn router() -> OpenApiRouter<Arc<View>> {
    OpenApiRouter::new().routes(routes!(start)).routes(routes!(stop)).routes(routes!(backfill))
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

/// What a source reads again.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Backfill {
    /// Id of the source in the pipeline.
    connector: String,
    /// What it reads again, as its settings name it: the name of a table.
    #[schema(example = "public.orders")]
    part: String,
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
/// it has stopped. Every node of a cluster that runs units of the pipeline stops them.
#[utoipa::path(
    post, path = "/v1/pipelines/{id}/stop", tag = "pipelines",
    params(("id" = String, Path, description = "Id of the pipeline")),
    request_body = Option<Stop>,
    responses((status = 200, description = "The pipeline is stopping", body = Done),
              (status = 400, description = "`pipeline.not_running`, `pipeline.stopping`", body = Error),
              (status = 404, description = "`pipeline.not_found`", body = Error),
              (status = 503, description = "`cluster.node_unreachable`", body = Error)),
)]
async fn stop(
    State(view): State<Arc<View>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    Body(Stop { force }): Body<Stop>,
) -> Result<Json<Done>, ApiError> {
    view.control.stop(&id, force, false).await?;
    // The others see in the store that they are to stop their units, but not that they are not to wait for records.
    if let Some(peers) = view.peers.as_ref().filter(|_| force && !headers.contains_key(FORWARDED)) {
        let path = format!("/v1/pipelines/{}/stop", utf8_percent_encode(&id, NON_ALPHANUMERIC));
        let body = json!({ "force": true });
        let owners = peers.owners(&id).await;
        let forced = join_all(owners.iter().map(|peer| peers.post(peer, &path, &body))).await;
        forced.into_iter().collect::<Result<Vec<_>, _>>().map_err(ApiError::from)?;
    }
    Ok(Json(Done {}))
}

/// Read a part of a source again
///
/// A source of a running pipeline reads all records of a part, such as a table, beside those that arrive. Returns when the
/// source has stored the request, which it carries out even if the service ends meanwhile.
#[utoipa::path(
    post, path = "/v1/pipelines/{id}/backfill", tag = "pipelines",
    params(("id" = String, Path, description = "Id of the pipeline")),
    request_body = Backfill,
    responses((status = 200, description = "The source reads the part again", body = Done),
              (status = 400, description = "`pipeline.not_running`, `pipeline.no_source`, `request_unsupported`, or the \
                                            reason of the source", body = Error),
              (status = 404, description = "`pipeline.not_found`", body = Error),
              (status = 409, description = "`pipeline.busy`", body = Error),
              (status = 503, description = "`pipeline.request_late`", body = Error)),
)]
async fn backfill(
    State(view): State<Arc<View>>,
    Path(id): Path<String>,
    Body(Backfill { connector, part }): Body<Backfill>,
) -> Result<Json<Done>, ApiError> {
    view.control.backfill(&id, &connector, part.into()).await?;
    Ok(Json(Done {}))
}
