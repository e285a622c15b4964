//! Endpoints that plan and apply the text of a pipeline.

use std::collections::BTreeMap;
use std::sync::Arc;

use anabranch_plugin::diagnostic::Files;
use anabranch_service::apply::{Desired, Difference, Planned};
use anabranch_service::edit::EditError;
use anabranch_service::renames::RereadSource;
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::body::Body;
use crate::edit::invalid;
use crate::error::{ApiError, Error};
use crate::status::StatusNow;
use crate::view::View;

pub(super) fn router() -> OpenApiRouter<Arc<View>> {
    OpenApiRouter::new().routes(routes!(plan)).routes(routes!(apply))
}

/// The desired pipeline: `config` or `yaml`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = PlanAsked)]
struct PlanRequest {
    #[serde(default)]
    config: Option<PipelineDocument>,
    /// The text of a pipeline file.
    #[serde(default)]
    yaml: Option<String>,
    /// The id of the pipeline, if the text has several.
    #[serde(default)]
    pipeline: Option<String>,
    /// Required to apply: the hash of the reviewed plan.
    #[serde(default)]
    hash: Option<String>,
    /// Treats warnings as errors. This is always so if the service has `pipelines.strict`.
    #[serde(default)]
    strict: bool,
}

/// A pipeline as in a pipeline file.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PipelineDocument {
    id: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    connectors: Vec<ConnectorDocument>,
    #[serde(default)]
    processors: Vec<ProcessorDocument>,
    /// What becomes of records that fulfil the condition of no destination.
    #[serde(default)]
    unmatched: String,
    /// Which nodes of a cluster may run the pipeline.
    #[serde(default)]
    placement: String,
    #[serde(default)]
    dlq: Option<DeadLetterDocument>,
}

/// A connector as in a pipeline file.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ConnectorDocument {
    id: String,
    /// `source` or `destination`
    #[serde(rename = "type")]
    role: String,
    plugin: String,
    #[serde(default)]
    name: String,
    /// Condition on the records that a destination receives.
    #[serde(default)]
    condition: String,
    #[serde(default)]
    settings: BTreeMap<String, String>,
    #[serde(default)]
    processors: Vec<ProcessorDocument>,
}

/// A processor as in a pipeline file.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ProcessorDocument {
    id: String,
    plugin: String,
    #[serde(default)]
    condition: String,
    #[serde(default)]
    settings: BTreeMap<String, String>,
    /// Number of parallel workers; 0 means one.
    #[serde(default)]
    workers: u32,
}

/// A dead-letter queue as in a pipeline file.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DeadLetterDocument {
    #[serde(default)]
    plugin: String,
    #[serde(default)]
    settings: BTreeMap<String, String>,
    #[serde(default)]
    window_size: Option<u64>,
    #[serde(default)]
    window_nack_threshold: Option<u64>,
}

impl PipelineDocument {
    /// Returns the text of a pipeline file. It is JSON, which is valid YAML.
    fn text(&self) -> String {
        let mut pipeline = Map::new();
        let mut put = |name: &str, text: &str| {
            if !text.is_empty() {
                pipeline.insert(name.to_owned(), text.into());
            }
        };
        put("id", &self.id);
        put("status", &self.status);
        put("name", &self.name);
        put("description", &self.description);
        put("unmatched", &self.unmatched);
        put("placement", &self.placement);
        let connectors = self.connectors.iter().map(|it| {
            let mut connector = json!({
                "id": it.id, "type": it.role, "plugin": it.plugin, "settings": it.settings,
                "processors": it.processors.iter().map(ProcessorDocument::shown).collect::<Vec<_>>(),
            });
            if !it.name.is_empty() {
                connector["name"] = it.name.as_str().into();
            }
            if !it.condition.is_empty() {
                connector["condition"] = it.condition.as_str().into();
            }
            connector
        });
        pipeline.insert("connectors".to_owned(), connectors.collect());
        pipeline.insert("processors".to_owned(), self.processors.iter().map(ProcessorDocument::shown).collect());
        if let Some(queue) = &self.dlq {
            let mut shown = Map::new();
            if !queue.plugin.is_empty() {
                shown.insert("plugin".to_owned(), queue.plugin.as_str().into());
            }
            if !queue.settings.is_empty() {
                shown.insert("settings".to_owned(), json!(queue.settings));
            }
            let numbers = [("window-size", queue.window_size), ("window-nack-threshold", queue.window_nack_threshold)];
            for (name, number) in numbers {
                if let Some(number) = number {
                    shown.insert(name.to_owned(), number.into());
                }
            }
            pipeline.insert("dead-letter-queue".to_owned(), shown.into());
        }
        json!({ "version": "2.2", "pipelines": [pipeline] }).to_string()
    }
}

impl ProcessorDocument {
    fn shown(&self) -> Value {
        let mut shown =
            json!({ "id": self.id, "plugin": self.plugin, "settings": self.settings, "workers": self.workers });
        if !self.condition.is_empty() {
            shown["condition"] = self.condition.as_str().into();
        }
        shown
    }
}

/// The plan of applying a pipeline.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Plan {
    pipeline_id: String,
    changes: Vec<Change>,
    /// True if the pipeline runs and is drained and restarted.
    restart: bool,
    /// Sources that read from their beginning although they seem to replace others, for example after a rename. Their
    /// records are delivered again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rereads: Vec<Repeat>,
    /// The effect of the changes on stored positions, for example if a source will read another file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    /// Hash of the changes and of the whole text.
    hash: String,
    /// Additional notes.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
    /// Failures after the change was applied, such as plugins that could not be notified of the deletion of a
    /// connector.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    /// Status of the pipeline; absent if it does not exist yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<StatusNow>,
}

/// A source that reads from its beginning.
#[derive(Serialize, ToSchema)]
struct Repeat {
    /// The source, as `pipeline:connector`.
    source: String,
    /// The source with a position that it seems to replace, as `pipeline:connector`.
    replaces: String,
    /// Number of records that are delivered again.
    records: u64,
    /// Message with all of this and the remedy.
    message: String,
}

/// One difference, without values.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Change {
    /// `pipeline`, `connector` or `processor`
    resource: &'static str,
    id: String,
    /// `create`, `update` or `delete`
    action: &'static str,
    /// JSON pointers into the pipeline of the text to what is new or different.
    config_paths: Vec<String>,
}

impl Plan {
    pub(crate) fn of(view: &View, planned: Planned) -> Self {
        let Planned { id, changes, restart, rereads, notes, hash, from_file, warnings } = planned;
        let seen = view.control.seen(&id);
        let repeat = |reread: RereadSource| {
            let message = reread.to_string();
            let RereadSource { source, replaces, records } = reread;
            Repeat { source, replaces, records, message }
        };
        let change = |Difference { resource, id, action, config_paths }| Change { resource, id, action, config_paths };
        Plan {
            status: seen.map(|seen| StatusNow::of(&seen, view.control.invalid(&id))),
            pipeline_id: id.to_string(),
            changes: changes.into_iter().map(change).collect(),
            restart,
            rereads: rereads.into_iter().map(repeat).collect(),
            notes,
            hash,
            warnings,
            note: from_file.then_some(
                "a file declares this pipeline: the change is lost when the service restarts; change the \
                 file too",
            ),
        }
    }

    /// Leaves the note about the file out.
    pub(crate) fn without_note(self) -> Self {
        Plan { note: None, ..self }
    }
}

/// Plan a change of a pipeline
///
/// Opens nothing and changes nothing.
#[utoipa::path(
    post, path = "/v1/pipelines/plan", tag = "pipelines", request_body = PlanRequest,
    responses((status = 200, description = "The plan", body = Plan),
              (status = 400, description = "It has errors; `line` and `column` locate them in `yaml`", body = Error)),
)]
async fn plan(State(view): State<Arc<View>>, Body(asked): Body<PlanRequest>) -> Result<Json<Plan>, ApiError> {
    let planned = view.control.plan(desired(&asked)?).await.map_err(|error| refused(error, asked.yaml))?;
    Ok(Json(Plan::of(&view, planned)))
}

/// Apply a pipeline
///
/// Replaces the pipeline, or creates it. A running pipeline is drained, switched and resumed. If the new pipeline
/// cannot be opened, the old one is restored. Sources that exist in both resume from their positions.
#[utoipa::path(
    post, path = "/v1/pipelines/apply", tag = "pipelines", request_body = PlanRequest,
    responses((status = 200, description = "The plan, which was applied", body = Plan),
              (status = 400, description = "It has errors (`line` and `column` locate them in `yaml`), or \
                                            `pipelines.switch_failed`", body = Error),
              (status = 409, description = "`pipelines.plan_stale`: the plan is outdated", body = Error)),
)]
async fn apply(State(view): State<Arc<View>>, Body(asked): Body<PlanRequest>) -> Result<Json<Plan>, ApiError> {
    let desired = desired(&asked)?;
    let Some(hash) = asked.hash else {
        return Err(ApiError::malformed("`hash` is missing: send the hash of the plan to apply")
            .suggest("POST /v1/pipelines/plan"));
    };
    let planned = view.control.apply(desired, hash).await.map_err(|error| refused(error, asked.yaml))?;
    Ok(Json(Plan::of(&view, planned)))
}

/// Converts an error. Places refer to the YAML of the client, which is the first and only file that was read.
fn refused(error: EditError, yaml: Option<String>) -> ApiError {
    match (error, yaml) {
        (EditError::Invalid(findings), Some(yaml)) => {
            let mut files = Files::new();
            files.add("the text", yaml);
            invalid(findings, &files)
        }
        (error, _) => error.into(),
    }
}

fn desired(asked: &PlanRequest) -> Result<Desired, ApiError> {
    let text = match (&asked.config, &asked.yaml) {
        (Some(config), None) => config.text(),
        (None, Some(yaml)) => yaml.clone(),
        (None, None) | (Some(_), Some(_)) => {
            return Err(ApiError::malformed("give either `config` or `yaml`"));
        }
    };
    Ok(Desired { text, pipeline: asked.pipeline.clone(), strict: asked.strict })
}
