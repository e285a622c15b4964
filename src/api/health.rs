//! Whether the service lives, and whether it does its work. Probes need no token; without it they are told nothing about
//! single pipelines.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::View;
use super::access::Access;
use super::error::{ApiError, Kind};
use crate::store::Status;

/// How long the state store may take to answer.
const STORE: Duration = Duration::from_secs(5);

/// Parts of the service that a probe may name.
const SERVICES: [&str; 5] =
    ["PipelineService", "ConnectorService", "ProcessorService", "ConnectorPluginService", "ProcessorPluginService"];

#[derive(Deserialize)]
pub(super) struct Asked {
    #[serde(default)]
    service: String,
}

pub(super) async fn healthz(Query(asked): Query<Asked>) -> Result<Json<Value>, ApiError> {
    if asked.service.is_empty() || SERVICES.contains(&asked.service.as_str()) {
        return Ok(Json(json!({ "status": "SERVING" })));
    }
    let what = format!("there is no service {:?}", asked.service);
    Err(ApiError::new(Kind::NotFound, "api.no_such_service", what))
}

pub(super) async fn readyz(State((view, access)): State<(Arc<View>, Arc<Access>)>, headers: HeaderMap) -> Response {
    let unready = |body: Value| (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response();
    if view.control.is_stopping() {
        return unready(json!({ "status": "stopping" }));
    }
    if !view.control.is_ready() {
        return unready(json!({ "status": "starting" }));
    }
    let reason = match timeout(STORE, view.store.pipelines()).await {
        Ok(Ok(_)) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some("the state store does not answer".to_owned()),
    };
    let knows = access.knows_token(&headers);
    if let Some(reason) = reason {
        let reason = if knows { reason } else { "the state store is not available".to_owned() };
        return unready(json!({ "status": "unavailable", "reason": reason }));
    }
    if !knows {
        return Json(json!({ "status": "ready" })).into_response();
    }
    let seen = view.control.all();
    let degraded: Vec<Value> = seen
        .iter()
        .filter_map(|(id, seen)| match &seen.status {
            Status::Degraded { error } => Some(json!({ "id": id, "status": "degraded", "error": error })),
            _ => None,
        })
        .collect();
    let running = seen.iter().filter(|(_, seen)| matches!(seen.status, Status::Running)).count();
    let counts = json!({
        "total": seen.len(), "running": running, "degraded": degraded.len(), "degradedPipelines": degraded,
    });
    Json(json!({ "status": "ready", "pipelines": counts })).into_response()
}
