//! Endpoints that return stored pipelines, connectors and processors with their current status. Read only.

use std::collections::BTreeMap;
use std::sync::Arc;

use anabranch_plugin::registry::Registry;
use anabranch_plugin::secret::without_passwords;
use anabranch_plugin::specification::Specification;
use anabranch_record::code::Code;
use anabranch_record::mark::{LaneId, Mark};
use anabranch_store::{Origin, Status, StopReason, StoredConnector, StoredPipeline, StoredProcessor, StoredSetting};
use axum::Json;
use axum::extract::{Path, State};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::codes;
use crate::error::{ApiError, Error, Kind};
use crate::query::Query;
use crate::shapes::{
    Connector, ConnectorConfig, ConnectorType, DeadLetterQueue, DestinationState, ParentType, Pipeline, PipelineConfig,
    PipelineState, PipelineStatus, Processor, ProcessorConfig, ProcessorParent, Settings, SourceState, StoppedReason,
};
use crate::status::{StatusNow, rfc3339};
use crate::view::View;

type Shared = State<Arc<View>>;
type Answer<T> = Result<Json<T>, ApiError>;

pub(super) fn router() -> OpenApiRouter<Arc<View>> {
    OpenApiRouter::new()
        .routes(routes!(pipelines))
        .routes(routes!(pipeline))
        .routes(routes!(dead_letter))
        .routes(routes!(connectors))
        .routes(routes!(connector))
        .routes(routes!(processors))
        .routes(routes!(processor))
}

pub(super) async fn stored(view: &View) -> Result<Vec<StoredPipeline>, ApiError> {
    Ok(view.store.pipelines().await?)
}

/// Returns the stored pipelines, and those that were never stored because their files have errors.
async fn known(view: &View) -> Result<Vec<StoredPipeline>, ApiError> {
    let mut all = stored(view).await?;
    for (id, _) in view.control.all() {
        if let Err(at) = all.binary_search_by(|pipeline| pipeline.id.cmp(&id)) {
            all.insert(at, StoredPipeline::unknown(id));
        }
    }
    Ok(all)
}

pub(super) fn missing(what: &str, id: &str, reason: Code) -> ApiError {
    ApiError::new(Kind::NotFound, reason, format!("there is no {what} {id:?}"))
}

/// List pipelines
#[utoipa::path(
    get, path = "/v1/pipelines", tag = "pipelines",
    params(("name" = Option<String>, Query, description = "A regular expression that must match the whole name")),
    responses((status = 200, description = "The matching pipelines", body = Vec<Pipeline>)),
)]
async fn pipelines(State(view): Shared, query: Query) -> Answer<Vec<Pipeline>> {
    let all = known(&view).await?;
    let matching = query.matching("name", all.iter().map(|pipeline| pipeline.name.to_string()).collect()).await?;
    let found = all.iter().zip(matching).filter(|(_, matches)| *matches);
    Ok(Json(found.map(|(pipeline, _)| shown_pipeline(&view, pipeline)).collect()))
}

/// Get a pipeline
#[utoipa::path(
    get, path = "/v1/pipelines/{id}", tag = "pipelines",
    params(("id" = String, Path, description = "Id of the pipeline")),
    responses((status = 200, description = "The pipeline", body = Pipeline),
              (status = 404, description = "`pipeline.not_found`", body = Error)),
)]
async fn pipeline(State(view): Shared, Path(id): Path<String>) -> Answer<Pipeline> {
    Ok(Json(shown_pipeline(&view, &one(&view, &id).await?)))
}

pub(super) async fn one(view: &View, id: &str) -> Result<StoredPipeline, ApiError> {
    let found = known(view).await?.into_iter().find(|pipeline| *pipeline.id == *id);
    found.ok_or_else(|| ApiError::no_pipeline(id))
}

/// Get the dead-letter queue of a pipeline
#[utoipa::path(
    get, path = "/v1/pipelines/{id}/dead-letter-queue", tag = "pipelines",
    params(("id" = String, Path, description = "Id of the pipeline")),
    responses((status = 200, description = "Its dead-letter queue", body = DeadLetterQueue),
              (status = 404, description = "`pipeline.not_found`", body = Error)),
)]
async fn dead_letter(State(view): Shared, Path(id): Path<String>) -> Answer<DeadLetterQueue> {
    Ok(Json(shown_dead_letter(&view, &one(&view, &id).await?)))
}

pub(super) fn shown_dead_letter(view: &View, pipeline: &StoredPipeline) -> DeadLetterQueue {
    let queue = &pipeline.dead_letter;
    let kind = view.registry.destination(&queue.plugin).ok();
    DeadLetterQueue {
        plugin: queue.plugin.to_string(),
        settings: settings(kind.map(|kind| kind.specification()), &queue.settings),
        window_size: queue.window_size.to_string(),
        window_nack_threshold: queue.window_nack_threshold.to_string(),
    }
}

/// List connectors
#[utoipa::path(
    get, path = "/v1/connectors", tag = "connectors",
    params(("pipelineId" = Option<String>, Query, description = "Only connectors of this pipeline")),
    responses((status = 200, description = "In the order of pipelines and of their files", body = Vec<Connector>)),
)]
async fn connectors(State(view): Shared, query: Query) -> Answer<Vec<Connector>> {
    let of = query.text("pipelineId");
    let all = stored(&view).await?;
    let mut shown = Vec::new();
    for pipeline in all.iter().filter(|pipeline| of.is_empty() || *pipeline.id == *of) {
        let marks = view.store.positions(&pipeline.id).await?;
        let connectors = pipeline.connectors.iter();
        shown.extend(connectors.map(|connector| shown_connector(&view.registry, pipeline, connector, &marks)));
    }
    Ok(Json(shown))
}

/// Get a connector
#[utoipa::path(
    get, path = "/v1/connectors/{id}", tag = "connectors",
    params(("id" = String, Path, description = "`pipeline:connector`")),
    responses((status = 200, description = "The connector", body = Connector),
              (status = 404, description = "`connector.not_found`", body = Error)),
)]
async fn connector(State(view): Shared, Path(id): Path<String>) -> Answer<Connector> {
    the_connector(&view, &id).await.map(Json)
}

pub(super) async fn the_connector(view: &View, id: &str) -> Result<Connector, ApiError> {
    let all = stored(view).await?;
    let place = |pipeline: &StoredPipeline| pipeline.connectors.iter().position(|it| connector_id(pipeline, it) == id);
    let found = all.into_iter().find_map(|pipeline| place(&pipeline).map(|at| (pipeline, at)));
    let (pipeline, at) = found.ok_or_else(|| missing("connector", id, codes::CONNECTOR_NOT_FOUND))?;
    let marks = view.store.positions(&pipeline.id).await?;
    Ok(shown_connector(&view.registry, &pipeline, &pipeline.connectors[at], &marks))
}

/// List processors
#[utoipa::path(
    get, path = "/v1/processors", tag = "processors",
    params(("parentIds" = Option<Vec<String>>, Query,
            description = "Only processors of these pipelines and connectors; may be repeated")),
    responses((status = 200, description = "In the order of pipelines and of their files", body = Vec<Processor>)),
)]
async fn processors(State(view): Shared, query: Query) -> Answer<Vec<Processor>> {
    let parents: Vec<&str> = query.all("parentIds").collect();
    let all = stored(&view).await?;
    let each =
        all.iter().flat_map(of_pipeline).filter(|it| parents.is_empty() || parents.contains(&it.parent.as_str()));
    Ok(Json(each.map(|it| it.shown(&view.registry)).collect()))
}

/// Get a processor
#[utoipa::path(
    get, path = "/v1/processors/{id}", tag = "processors",
    params(("id" = String, Path, description = "`pipeline:processor`, or `pipeline:connector:processor`")),
    responses((status = 200, description = "The processor", body = Processor),
              (status = 404, description = "`processor.not_found`", body = Error)),
)]
async fn processor(State(view): Shared, Path(id): Path<String>) -> Answer<Processor> {
    let all = stored(&view).await?;
    let found = all.iter().flat_map(of_pipeline).find(|it| it.id() == id);
    found.map(|it| Json(it.shown(&view.registry))).ok_or_else(|| missing("processor", &id, codes::PROCESSOR_NOT_FOUND))
}

/// A processor with its parent.
pub(super) struct ProcessorEntry<'a> {
    /// Id of the pipeline, or `pipeline:connector`.
    parent: String,
    of_connector: bool,
    processor: &'a StoredProcessor,
}

pub(super) fn of_pipeline(pipeline: &StoredPipeline) -> impl Iterator<Item = ProcessorEntry<'_>> {
    let of_connectors = pipeline.connectors.iter().flat_map(move |connector| {
        let parent = connector_id(pipeline, connector);
        let placed = move |processor| ProcessorEntry { parent: parent.clone(), of_connector: true, processor };
        connector.processors.iter().map(placed)
    });
    let own = pipeline.processors.iter();
    let own = own.map(|processor| ProcessorEntry { parent: pipeline.id.to_string(), of_connector: false, processor });
    of_connectors.chain(own)
}

impl ProcessorEntry<'_> {
    pub(super) fn id(&self) -> String {
        format!("{}:{}", self.parent, self.processor.id)
    }

    pub(super) fn shown(&self, registry: &Registry) -> Processor {
        let StoredProcessor { plugin, condition, settings: given, workers, .. } = self.processor;
        let kind = registry.operator(plugin).ok();
        Processor {
            id: self.id(),
            plugin: plugin.to_string(),
            condition: condition.as_deref().unwrap_or_default().to_owned(),
            parent: ProcessorParent {
                kind: if self.of_connector { ParentType::TypeConnector } else { ParentType::TypePipeline },
                id: self.parent.clone(),
            },
            config: ProcessorConfig {
                settings: settings(kind.map(|kind| kind.specification()), given),
                workers: workers.to_string(),
            },
        }
    }
}

pub(super) fn connector_id(pipeline: &StoredPipeline, connector: &StoredConnector) -> String {
    format!("{}:{}", pipeline.id, connector.id)
}

pub(super) fn shown_pipeline(view: &View, pipeline: &StoredPipeline) -> Pipeline {
    let seen = view.control.seen(&pipeline.id);
    let now = match &seen {
        Some(seen) => StatusNow::of(seen, view.control.invalid(&pipeline.id)),
        None => StatusNow::stored(&pipeline.status),
    };
    let status = seen.map_or_else(|| pipeline.status.clone(), |seen| seen.status);
    let name = match &status {
        Status::Starting | Status::Running => PipelineStatus::StatusRunning,
        Status::Recovering { .. } => PipelineStatus::StatusRecovering,
        Status::Degraded { .. } => PipelineStatus::StatusDegraded,
        Status::Stopped { .. } | Status::Finished | Status::Invalid => PipelineStatus::StatusStopped,
    };
    let stopped_reason = match &status {
        Status::Stopped { reason: StopReason::User } => StoppedReason::StoppedReasonUser,
        Status::Stopped { reason: StopReason::System } => StoppedReason::StoppedReasonSystem,
        _ => StoppedReason::StoppedReasonUnspecified,
    };
    Pipeline {
        id: pipeline.id.to_string(),
        state: PipelineState {
            status: name,
            error: status.error().unwrap_or_default().to_owned(),
            stopped_reason,
            word: status.word(),
        },
        status: now,
        config: PipelineConfig {
            name: pipeline.name.to_string(),
            description: pipeline.description.to_string(),
            unmatched: pipeline.unmatched.as_deref().map(str::to_owned),
            placement: pipeline.placement.as_deref().map(str::to_owned),
        },
        connector_ids: pipeline.connectors.iter().map(|connector| connector_id(pipeline, connector)).collect(),
        processor_ids: of_pipeline(pipeline).filter(|it| !it.of_connector).map(|it| it.id()).collect(),
        detached: pipeline.detached,
        origin: match pipeline.origin {
            Origin::File => "file",
            Origin::Api => "api",
        },
        created_at: pipeline.created.map(|at| rfc3339(at.into())),
        updated_at: pipeline.updated.map(|at| rfc3339(at.into())),
    }
}

fn shown_connector(
    registry: &Registry,
    pipeline: &StoredPipeline,
    connector: &StoredConnector,
    marks: &BTreeMap<LaneId, Mark>,
) -> Connector {
    let is_source = *connector.role == *"source";
    let specification = if is_source {
        registry.source(&connector.plugin).ok().map(|kind| kind.specification())
    } else {
        registry.destination(&connector.plugin).ok().map(|kind| kind.specification())
    };
    let id = connector_id(pipeline, connector);
    let encoded = |mark: &Mark| STANDARD.encode(&mark.position.0);
    let own = marks.iter().filter(|(lane, _)| lane.connector == connector.id);
    let source_state = own.map(|(_, mark)| SourceState { position: encoded(mark) }).next().filter(|_| is_source);
    // A stored position of a source is delivered to all destinations.
    let delivered = marks.iter().map(|(lane, mark)| (format!("{}:{}", pipeline.id, lane.connector), encoded(mark)));
    let destination_state =
        (!is_source && !marks.is_empty()).then(|| DestinationState { positions: delivered.collect() });
    Connector {
        source_state,
        destination_state,
        role: if is_source { ConnectorType::TypeSource } else { ConnectorType::TypeDestination },
        plugin: connector.plugin.to_string(),
        pipeline_id: pipeline.id.to_string(),
        processor_ids: connector.processors.iter().map(|it| format!("{id}:{}", it.id)).collect(),
        config: ConnectorConfig {
            name: connector.name.to_string(),
            condition: connector.condition.as_deref().map(str::to_owned),
            settings: settings(specification, &connector.settings),
        },
        id,
    }
}

/// Returns settings as written in the file. Masks possible credentials: passwords in URLs, and all settings of an
/// unknown plugin.
fn settings(specification: Option<&Specification>, given: &[StoredSetting]) -> Settings {
    let shown = |setting: &StoredSetting| {
        let parameter = specification.and_then(|specification| specification.parameter(setting.name.trim()));
        let open =
            parameter.is_some_and(|parameter| !parameter.is_secret(&setting.name)) || is_variable(&setting.written);
        let text = if open { without_passwords(&setting.written).into_owned() } else { "***".to_owned() };
        (setting.name.to_string(), text)
    };
    given.iter().map(shown).collect()
}

/// Returns `true` if the whole text is one `${…}`, which does not contain a secret itself.
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
