//! Pipelines, connectors and processors as they are stored, with the status they have now. Read only.

use std::sync::Arc;

use anabranch_graph::registry::Registry;
use anabranch_graph::specification::Specification;
use axum::extract::{Path, State};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Map, Value, json};

use super::View;
use super::error::{ApiError, Kind};
use super::query::Query;
use super::status::PipelineStatus;
use crate::store::{Status, StopReason, StoredConnector, StoredPipeline, StoredProcessor, StoredSetting};

type Shared = State<Arc<View>>;
type Answer = Result<Json<Value>, ApiError>;

pub(super) fn router(view: Arc<View>) -> Router {
    Router::new()
        .route("/v1/pipelines", get(pipelines))
        .route("/v1/pipelines/{id}", get(pipeline))
        .route("/v1/pipelines/{id}/dead-letter-queue", get(dead_letter))
        .route("/v1/connectors", get(connectors))
        .route("/v1/connectors/{id}", get(connector))
        .route("/v1/processors", get(processors))
        .route("/v1/processors/{id}", get(processor))
        .with_state(view)
}

async fn stored(view: &View) -> Result<Vec<StoredPipeline>, ApiError> {
    Ok(view.store.pipelines().await?)
}

/// Those that are stored, and those that could never be because their files have errors.
async fn known(view: &View) -> Result<Vec<StoredPipeline>, ApiError> {
    let mut all = stored(view).await?;
    for (id, _) in view.control.all() {
        if let Err(at) = all.binary_search_by(|pipeline| pipeline.id.cmp(&id)) {
            all.insert(at, StoredPipeline::unknown(id));
        }
    }
    Ok(all)
}

fn missing(what: &str, id: &str, reason: &'static str) -> ApiError {
    ApiError::new(Kind::NotFound, reason, format!("there is no {what} {id:?}"))
}

async fn pipelines(State(view): Shared, query: Query) -> Answer {
    let name = query.pattern("name")?;
    let all = known(&view).await?;
    let found = all.iter().filter(|pipeline| name.as_ref().is_none_or(|name| name.is_match(&pipeline.name)));
    Ok(Json(found.map(|pipeline| shown_pipeline(&view, pipeline)).collect()))
}

async fn pipeline(State(view): Shared, Path(id): Path<String>) -> Answer {
    Ok(Json(shown_pipeline(&view, &one(&view, &id).await?)))
}

async fn one(view: &View, id: &str) -> Result<StoredPipeline, ApiError> {
    let found = known(view).await?.into_iter().find(|pipeline| *pipeline.id == *id);
    found.ok_or_else(|| missing("pipeline", id, "pipeline.not_found"))
}

async fn dead_letter(State(view): Shared, Path(id): Path<String>) -> Answer {
    let queue = one(&view, &id).await?.dead_letter;
    let kind = view.registry.destination(&queue.plugin).ok();
    Ok(Json(json!({
        "plugin": queue.plugin,
        "settings": settings(kind.map(|kind| kind.specification()), &queue.settings),
        "windowSize": queue.window_size.to_string(),
        "windowNackThreshold": queue.window_nack_threshold.to_string(),
    })))
}

async fn connectors(State(view): Shared, query: Query) -> Answer {
    let of = query.text("pipelineId");
    let all = stored(&view).await?;
    let asked = all.iter().filter(|pipeline| of.is_empty() || *pipeline.id == *of);
    let each = asked.flat_map(|pipeline| {
        pipeline.connectors.iter().map(|connector| shown_connector(&view.registry, pipeline, connector))
    });
    Ok(Json(each.collect()))
}

async fn connector(State(view): Shared, Path(id): Path<String>) -> Answer {
    let all = stored(&view).await?;
    let mut each = all.iter().flat_map(|pipeline| pipeline.connectors.iter().map(move |found| (pipeline, found)));
    match each.find(|(pipeline, connector)| connector_id(pipeline, connector) == id) {
        Some((pipeline, connector)) => Ok(Json(shown_connector(&view.registry, pipeline, connector))),
        None => Err(missing("connector", &id, "connector.not_found")),
    }
}

async fn processors(State(view): Shared, query: Query) -> Answer {
    let parents: Vec<&str> = query.all("parentIds").collect();
    let all = stored(&view).await?;
    let each =
        all.iter().flat_map(of_pipeline).filter(|it| parents.is_empty() || parents.contains(&it.parent.as_str()));
    Ok(Json(each.map(|it| it.shown(&view.registry)).collect()))
}

async fn processor(State(view): Shared, Path(id): Path<String>) -> Answer {
    let all = stored(&view).await?;
    let found = all.iter().flat_map(of_pipeline).find(|it| it.id() == id);
    found.map(|it| Json(it.shown(&view.registry))).ok_or_else(|| missing("processor", &id, "processor.not_found"))
}

/// A processor and where it stands.
struct Placed<'a> {
    /// Id of the pipeline, or of the connector with the one of its pipeline.
    parent: String,
    of_connector: bool,
    processor: &'a StoredProcessor,
}

fn of_pipeline(pipeline: &StoredPipeline) -> impl Iterator<Item = Placed<'_>> {
    let of_connectors = pipeline.connectors.iter().flat_map(move |connector| {
        let parent = connector_id(pipeline, connector);
        let placed = move |processor| Placed { parent: parent.clone(), of_connector: true, processor };
        connector.processors.iter().map(placed)
    });
    let own = pipeline.processors.iter();
    let own = own.map(|processor| Placed { parent: pipeline.id.to_string(), of_connector: false, processor });
    of_connectors.chain(own)
}

impl Placed<'_> {
    fn id(&self) -> String {
        format!("{}:{}", self.parent, self.processor.id)
    }

    fn shown(&self, registry: &Registry) -> Value {
        let StoredProcessor { plugin, condition, settings: given, workers, .. } = self.processor;
        let kind = registry.operator(plugin).ok();
        json!({
            "id": self.id(),
            "plugin": plugin,
            "condition": condition.as_deref().unwrap_or_default(),
            "parent": {
                "type": if self.of_connector { "TYPE_CONNECTOR" } else { "TYPE_PIPELINE" },
                "id": self.parent,
            },
            "config": {
                "settings": settings(kind.map(|kind| kind.specification()), given),
                "workers": workers.to_string(),
            },
        })
    }
}

fn connector_id(pipeline: &StoredPipeline, connector: &StoredConnector) -> String {
    format!("{}:{}", pipeline.id, connector.id)
}

fn shown_pipeline(view: &View, pipeline: &StoredPipeline) -> Value {
    let seen = view.control.seen(&pipeline.id);
    let shown = match &seen {
        Some(seen) => PipelineStatus::of(seen, view.control.invalid(&pipeline.id)),
        None => PipelineStatus::stored(&pipeline.status),
    };
    let status = seen.map_or_else(|| pipeline.status.clone(), |seen| seen.status);
    // The five that clients of this kind of service know, and beside them the word for it here.
    let (name, reason) = match &status {
        Status::Starting | Status::Running => ("STATUS_RUNNING", None),
        Status::Recovering { .. } => ("STATUS_RECOVERING", None),
        Status::Degraded { .. } => ("STATUS_DEGRADED", None),
        Status::Stopped { reason: StopReason::User } => ("STATUS_STOPPED", Some("STOPPED_REASON_USER")),
        Status::Stopped { reason: StopReason::System } => ("STATUS_STOPPED", Some("STOPPED_REASON_SYSTEM")),
        Status::Finished | Status::Invalid => ("STATUS_STOPPED", None),
    };
    let connectors: Vec<String> =
        pipeline.connectors.iter().map(|connector| connector_id(pipeline, connector)).collect();
    json!({
        "id": pipeline.id,
        "state": {
            "status": name,
            "error": status.error().unwrap_or_default(),
            "stoppedReason": reason.unwrap_or("STOPPED_REASON_UNSPECIFIED"),
            "word": status.word(),
        },
        "status": shown,
        "config": { "name": pipeline.name, "description": pipeline.description },
        "connectorIds": connectors,
        "processorIds": of_pipeline(pipeline).filter(|it| !it.of_connector).map(|it| it.id()).collect::<Vec<_>>(),
        "detached": pipeline.detached,
    })
}

fn shown_connector(registry: &Registry, pipeline: &StoredPipeline, connector: &StoredConnector) -> Value {
    let is_source = *connector.role == *"source";
    let specification = if is_source {
        registry.source(&connector.plugin).ok().map(|kind| kind.specification())
    } else {
        registry.destination(&connector.plugin).ok().map(|kind| kind.specification())
    };
    let id = connector_id(pipeline, connector);
    let processors: Vec<String> = connector.processors.iter().map(|it| format!("{id}:{}", it.id)).collect();
    json!({
        "id": id,
        "type": if is_source { "TYPE_SOURCE" } else { "TYPE_DESTINATION" },
        "plugin": connector.plugin,
        "pipelineId": pipeline.id,
        "processorIds": processors,
        "config": { "name": connector.name, "settings": settings(specification, &connector.settings) },
    })
}

/// Settings as they stand in the file. What may be a credential is hidden: all of a plugin that is not known.
fn settings(specification: Option<&Specification>, given: &[StoredSetting]) -> Map<String, Value> {
    let shown = |setting: &StoredSetting| {
        let parameter = specification.and_then(|specification| specification.parameter(setting.name.trim()));
        let open = parameter.is_some_and(|parameter| !parameter.secret) || is_variable(&setting.written);
        let text = if open { setting.written.to_string() } else { "***".to_owned() };
        (setting.name.to_string(), Value::from(text))
    };
    given.iter().map(shown).collect()
}

/// Whether the whole text is one `${…}`, which holds no secret itself.
fn is_variable(text: &str) -> bool {
    let inner = text.trim().strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    inner.is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_variable_is_shown_of_a_credential() {
        for open in ["${PASSWORD}", " ${A_1} "] {
            assert!(is_variable(open), "{open}");
        }
        for hidden in ["${PASSWORD:-hunter2}", "hunter2", "a${B}", "${A}${B}", "${A", ""] {
            assert!(!is_variable(hidden), "{hidden}");
        }
    }
}
