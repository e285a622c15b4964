//! Probes of liveness and readiness. They need no token; without it the response does not describe single pipelines.

use std::sync::Arc;

use anabranch_store::Status;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Access;
use crate::codes;
use crate::error::{ApiError, Kind};
use crate::view::View;

/// Components of the service that a probe may name.
const SERVICES: [&str; 5] =
    ["PipelineService", "ConnectorService", "ProcessorService", "ConnectorPluginService", "ProcessorPluginService"];

/// State of the probes.
pub(super) type ProbeState = (Arc<View>, Arc<Access>);

pub(super) fn router() -> OpenApiRouter<ProbeState> {
    OpenApiRouter::new().routes(routes!(healthz)).routes(routes!(readyz))
}

/// State of the probes while the service waits for its store: the reason, and the access rules.
pub(super) type WaitingState = (watch::Receiver<String>, Arc<Access>);

/// Returns the probes of a service that waits for its store. Other requests are refused with the reason.
pub(super) fn waiting() -> Router<WaitingState> {
    Router::new().fallback(wait)
}

async fn wait(State((why, access)): State<WaitingState>, uri: Uri, headers: HeaderMap) -> Response {
    if uri.path() == "/healthz" {
        return Json(Health { status: "SERVING" }).into_response();
    }
    // The reason names machines and processes.
    let known = access.knows_token(&headers).then(|| why.borrow().clone());
    if uri.path() != "/readyz" {
        let message = match known {
            Some(why) => format!("the service is waiting for its state store: {why}"),
            None => "the service is waiting for its state store".to_owned(),
        };
        let refused = ApiError::new(Kind::Unavailable, codes::SERVICE_WAITING, message);
        return refused.suggest("try again when /readyz reports `ready`").into_response();
    }
    let reason = known.unwrap_or_else(|| "the service is waiting for its state store".to_owned());
    let body = Json(Readiness { status: "waiting", reason: Some(reason), pipelines: None });
    (StatusCode::SERVICE_UNAVAILABLE, body).into_response()
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct HealthQuery {
    /// A component of the service. All components live as long as the process.
    #[serde(default)]
    #[param(example = "PipelineService")]
    service: String,
}

/// Liveness of the process.
#[derive(Serialize, ToSchema)]
struct Health {
    /// `SERVING`
    status: &'static str,
}

/// Readiness of the service.
#[derive(Serialize, ToSchema)]
struct Readiness {
    /// `ready`, `waiting` for the state store, `starting`, `stopping` or `unavailable`
    status: &'static str,
    /// Why it is unavailable.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Only for authenticated callers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pipelines: Option<PipelineCounts>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct PipelineCounts {
    total: usize,
    running: usize,
    degraded: usize,
    degraded_pipelines: Vec<DegradedPipeline>,
}

/// A pipeline that failed permanently.
#[derive(Serialize, ToSchema)]
struct DegradedPipeline {
    id: String,
    /// `degraded`
    status: &'static str,
    error: String,
}

/// Check liveness
#[utoipa::path(
    get, path = "/healthz", tag = "health", params(HealthQuery),
    responses((status = 200, description = "The process is alive", body = Health),
              (status = 404, description = "No such component", body = crate::error::Error)),
)]
async fn healthz(Query(asked): Query<HealthQuery>) -> Result<Json<Health>, ApiError> {
    if asked.service.is_empty() || SERVICES.contains(&asked.service.as_str()) {
        return Ok(Json(Health { status: "SERVING" }));
    }
    let what = format!("there is no service {:?}", asked.service);
    Err(ApiError::new(Kind::NotFound, codes::API_NO_SUCH_SERVICE, what))
}

/// Check readiness
///
/// Degraded pipelines do not make the service unready, because a restart would not fix them.
#[utoipa::path(
    get, path = "/readyz", tag = "health",
    responses((status = 200, description = "The service is ready", body = Readiness),
              (status = 503, description = "The service is starting or stopping, or its state store does not answer or cannot be written", body = Readiness)),
)]
async fn readyz(State((view, access)): State<ProbeState>, headers: HeaderMap) -> Response {
    let told = |status, reason, pipelines| Json(Readiness { status, reason, pipelines });
    let unready = |status, reason| (StatusCode::SERVICE_UNAVAILABLE, told(status, reason, None)).into_response();
    if view.control.is_stopping() {
        return unready("stopping", None);
    }
    if !view.control.is_ready() {
        return unready("starting", None);
    }
    let knows = access.knows_token(&headers);
    if let Err(error) = view.store.check().await {
        let reason = if knows { error.to_string() } else { "the state store is not available".to_owned() };
        return unready("unavailable", Some(reason));
    }
    if !knows {
        return told("ready", None, None).into_response();
    }
    let seen = view.control.all();
    let degraded: Vec<DegradedPipeline> = seen
        .iter()
        .filter_map(|(id, seen)| match &seen.status {
            Status::Degraded { error } => {
                Some(DegradedPipeline { id: id.to_string(), status: "degraded", error: error.clone() })
            }
            _ => None,
        })
        .collect();
    let running = seen.iter().filter(|(_, seen)| matches!(seen.status, Status::Running)).count();
    let counts = PipelineCounts { total: seen.len(), running, degraded: degraded.len(), degraded_pipelines: degraded };
    told("ready", None, Some(counts)).into_response()
}
