//! Starting and stopping pipelines.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::routing::post;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};

use super::View;
use super::body::Body;
use super::error::ApiError;

pub(super) fn router(view: Arc<View>) -> Router {
    Router::new()
        .route("/v1/pipelines/{id}/start", post(start))
        .route("/v1/pipelines/{id}/stop", post(stop))
        .with_state(view)
}

/// Nothing more to say.
#[derive(Serialize)]
struct Done {}

/// How a pipeline is started.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Start {}

/// How a pipeline is stopped.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stop {
    /// Drops what is on its way; it is read again at the next start.
    #[serde(default)]
    force: bool,
}

async fn start(
    State(view): State<Arc<View>>,
    Path(id): Path<String>,
    Body(Start {}): Body<Start>,
) -> Result<Json<Done>, ApiError> {
    view.control.start(&id).await?;
    Ok(Json(Done {}))
}

async fn stop(
    State(view): State<Arc<View>>,
    Path(id): Path<String>,
    Body(Stop { force }): Body<Stop>,
) -> Result<Json<Done>, ApiError> {
    view.control.stop(&id, force, false).await?;
    Ok(Json(Done {}))
}
