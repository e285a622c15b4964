//! Endpoints that plan and import a set of pipeline files.

use std::sync::Arc;

use anabranch_plugin::diagnostic::Files;
use anabranch_service::apply::{DesiredSet, PlannedSet};
use anabranch_service::edit::EditError;
use axum::Json;
use axum::extract::{DefaultBodyLimit, State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::overview::no_cluster;
use crate::apply::Plan;
use crate::body::Body;
use crate::edit::invalid;
use crate::error::{ApiError, Error};
use crate::view::View;

pub(crate) fn router() -> OpenApiRouter<Arc<View>> {
    OpenApiRouter::new().routes(routes!(plan_set)).routes(routes!(apply_set)).layer(DefaultBodyLimit::max(SET))
}

/// Maximum size of a request, in bytes: it has all pipeline files of the cluster.
const SET: usize = 64 << 20;

/// All pipeline files of the cluster.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SetRequest {
    files: Vec<SetFile>,
    /// Required to apply: the hash of the reviewed plan.
    #[serde(default)]
    hash: Option<String>,
    /// Treats warnings as errors. This is always so if the node has `pipelines.strict`.
    #[serde(default)]
    strict: bool,
}

/// A pipeline file.
#[derive(Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SetFile {
    /// Its name in findings.
    name: String,
    /// Its text.
    yaml: String,
}

/// The plan of importing a set of files.
#[derive(Serialize, ToSchema)]
struct SetPlan {
    /// The plan of each pipeline of the files.
    pipelines: Vec<Plan>,
    /// Ids of pipelines that the files do not declare any more: the nodes drain them, and their positions are kept.
    #[schema(value_type = Vec<String>)]
    detached: Vec<anabranch_record::text::Str>,
    /// Hash of all of this.
    hash: String,
}

impl SetPlan {
    fn of(view: &View, planned: PlannedSet) -> SetPlan {
        let PlannedSet { pipelines, detached, hash, .. } = planned;
        // The files are the set: there is no other one to change.
        let plan = |planned| Plan::of(view, planned).without_note();
        SetPlan { pipelines: pipelines.into_iter().map(plan).collect(), detached, hash }
    }
}

/// Plan the import of pipeline files
///
/// Compares all pipeline files of the cluster with its stored configuration. Opens nothing and changes nothing.
#[utoipa::path(
    post, path = "/v1/cluster/plan", tag = "cluster", request_body = SetRequest,
    responses((status = 200, description = "The plan", body = SetPlan),
              (status = 400, description = "A file has errors", body = Error),
              (status = 404, description = "`cluster.none`", body = Error)),
)]
async fn plan_set(State(view): State<Arc<View>>, Body(asked): Body<SetRequest>) -> Result<Json<SetPlan>, ApiError> {
    view.peers.as_ref().ok_or_else(no_cluster)?;
    let files = asked.files.clone();
    let planned = view.control.plan_set(desired(asked)).await.map_err(|error| refused(error, files))?;
    Ok(Json(SetPlan::of(&view, planned)))
}

/// Import pipeline files
///
/// Stores what the files declare in one transaction; pipelines that they do not declare are drained and set aside. Each node
/// applies the changes of the pipelines that it runs. Nodes that start with files that were imported before do not import
/// them again.
#[utoipa::path(
    post, path = "/v1/cluster/apply", tag = "cluster", request_body = SetRequest,
    responses((status = 200, description = "The plan, which was applied", body = SetPlan),
              (status = 400, description = "A file has errors", body = Error),
              (status = 404, description = "`cluster.none`", body = Error),
              (status = 409, description = "`pipelines.plan_stale`: the plan is outdated", body = Error)),
)]
async fn apply_set(State(view): State<Arc<View>>, Body(asked): Body<SetRequest>) -> Result<Json<SetPlan>, ApiError> {
    view.peers.as_ref().ok_or_else(no_cluster)?;
    let Some(hash) = asked.hash.clone() else {
        return Err(ApiError::malformed("`hash` is missing: send the hash of the plan to apply")
            .suggest("POST /v1/cluster/plan"));
    };
    let files = asked.files.clone();
    let planned = view.control.apply_set(desired(asked), hash).await.map_err(|error| refused(error, files))?;
    Ok(Json(SetPlan::of(&view, planned)))
}

fn desired(SetRequest { files, strict, .. }: SetRequest) -> DesiredSet {
    DesiredSet { files: files.into_iter().map(|file| (file.name, file.yaml)).collect(), strict }
}

/// Converts an error. Places refer to the files of the client, in their order.
fn refused(error: EditError, texts: Vec<SetFile>) -> ApiError {
    match error {
        EditError::Invalid(findings) => {
            let mut files = Files::new();
            for SetFile { name, yaml } in texts {
                files.add(name, yaml);
            }
            invalid(findings, &files)
        }
        error => error.into(),
    }
}
