//! Pipelines that are made, changed and deleted part by part. What a file declares is changed there, or applied.

use std::sync::Arc;

use anabranch_graph::text::Str;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::{Deserialize, Deserializer};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::View;
use super::body::Body;
use super::error::{ApiError, Error, Kind};
use super::lifecycle::Done;
use super::pipelines::{
    connector_id, missing, of_pipeline, one, shown_dead_letter, shown_pipeline, stored, the_connector,
};
use super::query::Query;
use super::shapes::{
    Connector, ConnectorConfig, ConnectorType, DeadLetterQueue, ParentType, Pipeline, PipelineConfig, Processor,
    ProcessorParent, Settings,
};
use crate::service::edit::EditError;
use crate::store::{StoredConnector, StoredPipeline, StoredProcessor, StoredSetting};

type Shared = State<Arc<View>>;
type Answer<T> = Result<Json<T>, ApiError>;

pub(super) fn router() -> OpenApiRouter<Arc<View>> {
    OpenApiRouter::new()
        .routes(routes!(create_pipeline))
        .routes(routes!(update_pipeline))
        .routes(routes!(delete_pipeline))
        .routes(routes!(update_dead_letter))
        .routes(routes!(create_connector))
        .routes(routes!(validate_connector))
        .routes(routes!(update_connector))
        .routes(routes!(delete_connector))
        .routes(routes!(create_processor))
        .routes(routes!(update_processor))
        .routes(routes!(delete_processor))
}

/// A pipeline to be made.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewPipeline {
    /// Left out: one is chosen.
    #[serde(default)]
    id: Option<String>,
    config: PipelineConfig,
}

/// What people call it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ChangedPipeline {
    config: PipelineConfig,
}

/// Where failed records go. Left out: as by default.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ChangedDeadLetter {
    #[serde(default)]
    plugin: String,
    #[serde(default)]
    settings: Settings,
    /// Over how many records failures are counted; 0: they are not.
    #[serde(default, deserialize_with = "number")]
    #[schema(value_type = Option<String>)]
    window_size: Option<u64>,
    /// How many of them may fail until the pipeline does.
    #[serde(default, deserialize_with = "number")]
    #[schema(value_type = Option<String>)]
    window_nack_threshold: Option<u64>,
}

/// A connector to be made.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NewConnector {
    /// Its id in the pipeline. Left out: one is chosen.
    #[serde(default)]
    id: Option<String>,
    #[serde(rename = "type")]
    role: ConnectorType,
    plugin: String,
    pipeline_id: String,
    config: ConnectorConfig,
}

/// A connector to be checked.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CheckedConnector {
    #[serde(rename = "type")]
    role: ConnectorType,
    plugin: String,
    config: ConnectorConfig,
}

/// What is set of a connector. A setting that is `***` stays as it is.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ChangedConnector {
    /// Left out: the plugin stays.
    #[serde(default)]
    plugin: String,
    config: ConnectorConfig,
}

/// A processor to be made; it comes after the others.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewProcessor {
    /// Its id in the pipeline or connector. Left out: one is chosen.
    #[serde(default)]
    id: Option<String>,
    plugin: String,
    #[serde(default)]
    condition: String,
    parent: ProcessorParent,
    #[serde(default)]
    config: GivenProcessor,
}

/// What is set of a processor. A setting that is `***` stays as it is.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ChangedProcessor {
    /// Left out: the plugin stays.
    #[serde(default)]
    plugin: String,
    /// For which records it is; empty: for all. Left out: it stays.
    #[serde(default)]
    condition: Option<String>,
    config: GivenProcessor,
}

#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct GivenProcessor {
    #[serde(default)]
    settings: Settings,
    /// How many run in parallel; 0: one.
    #[serde(default, deserialize_with = "number")]
    #[schema(value_type = Option<String>)]
    workers: Option<u64>,
}

/// A whole number, or its text, as clients of this kind of service write them.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Number(u64),
        Text(String),
    }
    let wrong = || serde::de::Error::custom("a whole number is expected");
    match Option::<Written>::deserialize(deserializer).map_err(|_| wrong())? {
        None => Ok(None),
        Some(Written::Number(number)) => Ok(Some(number)),
        Some(Written::Text(text)) if text.is_empty() => Ok(None),
        Some(Written::Text(text)) => text.parse().map(Some).map_err(|_| wrong()),
    }
}

/// Makes a pipeline
///
/// It has no connectors yet, and is not started.
#[utoipa::path(
    post, path = "/v1/pipelines", tag = "pipelines", request_body = NewPipeline,
    responses((status = 200, description = "It", body = Pipeline),
              (status = 409, description = "`pipeline.exists`", body = Error)),
)]
async fn create_pipeline(State(view): Shared, Body(NewPipeline { id, config }): Body<NewPipeline>) -> Answer<Pipeline> {
    if config.name.is_empty() {
        return Err(ApiError::malformed("a pipeline needs a name").at("/name"));
    }
    let id: Str = id.unwrap_or_else(new_id).into();
    view.control.create(StoredPipeline::new(id.clone(), config.name.into(), config.description.into())).await?;
    Ok(Json(shown_pipeline(&view, &one(&view, &id).await?)))
}

/// Changes the name and the description of a pipeline
#[utoipa::path(
    put, path = "/v1/pipelines/{id}", tag = "pipelines", request_body = ChangedPipeline,
    params(("id" = String, Path, description = "Its id")),
    responses((status = 200, description = "It", body = Pipeline),
              (status = 400, description = "`pipeline.running`, `pipeline.declared_in_file`", body = Error),
              (status = 404, description = "`pipeline.not_found`", body = Error)),
)]
async fn update_pipeline(
    State(view): Shared,
    Path(id): Path<String>,
    Body(ChangedPipeline { config }): Body<ChangedPipeline>,
) -> Answer<Pipeline> {
    if config.name.is_empty() {
        return Err(ApiError::malformed("a pipeline needs a name").at("/name"));
    }
    let change = move |pipeline: &mut StoredPipeline| {
        pipeline.name = config.name.into();
        pipeline.description = config.description.into();
        Ok(())
    };
    view.control.change(&id, change).await?;
    Ok(Json(shown_pipeline(&view, &one(&view, &id).await?)))
}

/// Deletes a pipeline and all that is stored of it
///
/// Of those that were made through the API, and of those that were in a file which is gone.
#[utoipa::path(
    delete, path = "/v1/pipelines/{id}", tag = "pipelines",
    params(("id" = String, Path, description = "Its id"),
           ("positions" = Option<bool>, Query, description = "Even if positions of its sources are stored"),
           ("parts" = Option<bool>, Query, description = "With its connectors and processors")),
    responses((status = 200, description = "It is gone", body = Done),
              (status = 400, description = "`pipeline.running`, `pipeline.declared_in_file`, `pipeline.has_parts`, \
                                            `pipeline.has_positions`", body = Error),
              (status = 404, description = "`pipeline.not_found`", body = Error)),
)]
async fn delete_pipeline(State(view): Shared, Path(id): Path<String>, query: Query) -> Answer<Done> {
    view.control.delete(&id, query.is_set("parts"), query.is_set("positions")).await?;
    Ok(Json(Done {}))
}

/// Changes where failed records of a pipeline go
#[utoipa::path(
    put, path = "/v1/pipelines/{id}/dead-letter-queue", tag = "pipelines", request_body = ChangedDeadLetter,
    params(("id" = String, Path, description = "Id of the pipeline")),
    responses((status = 200, description = "Its dead-letter queue", body = DeadLetterQueue),
              (status = 400, description = "`pipeline.running`, `pipeline.declared_in_file`", body = Error),
              (status = 404, description = "`pipeline.not_found`", body = Error)),
)]
async fn update_dead_letter(
    State(view): Shared,
    Path(id): Path<String>,
    Body(given): Body<ChangedDeadLetter>,
) -> Answer<DeadLetterQueue> {
    let change = move |pipeline: &mut StoredPipeline| {
        let usual = StoredPipeline::new(Str::default(), Str::default(), Str::default()).dead_letter;
        let queue = &mut pipeline.dead_letter;
        let same = given.plugin.is_empty() || given.plugin == *queue.plugin;
        queue.settings = match same {
            true => merged(&queue.settings, given.settings),
            false => merged(&[], given.settings),
        };
        if !given.plugin.is_empty() {
            queue.plugin = given.plugin.into();
        }
        queue.window_size = given.window_size.unwrap_or(usual.window_size);
        queue.window_nack_threshold = given.window_nack_threshold.unwrap_or(usual.window_nack_threshold);
        Ok(())
    };
    view.control.change(&id, change).await?;
    Ok(Json(shown_dead_letter(&view, &one(&view, &id).await?)))
}

/// Makes a connector
#[utoipa::path(
    post, path = "/v1/connectors", tag = "connectors", request_body = NewConnector,
    responses((status = 200, description = "It", body = Connector),
              (status = 400, description = "`pipeline.running`, `pipeline.declared_in_file`, or it has errors",
               body = Error),
              (status = 404, description = "`pipeline.not_found`", body = Error),
              (status = 409, description = "`connector.exists`", body = Error)),
)]
async fn create_connector(State(view): Shared, Body(given): Body<NewConnector>) -> Answer<Connector> {
    let NewConnector { id, role, plugin, pipeline_id, config } = given;
    let id: Str = id.unwrap_or_else(new_id).into();
    let connector = made(id.clone(), role, plugin, config);
    let change = move |pipeline: &mut StoredPipeline| {
        if pipeline.connectors.iter().any(|other| other.id == connector.id) {
            return Err(EditError::Exists { what: "connector", id: connector_id(pipeline, &connector).into() });
        }
        pipeline.connectors.push(connector);
        Ok(())
    };
    view.control.change(&pipeline_id, change).await?;
    the_connector(&view, &format!("{pipeline_id}:{id}")).await.map(Json)
}

/// Checks a connector
///
/// Its plugin and its settings are looked at; nothing is opened.
#[utoipa::path(
    post, path = "/v1/connectors/validate", tag = "connectors", request_body = CheckedConnector,
    responses((status = 200, description = "Nothing is wrong with it", body = Done),
              (status = 400, description = "What is wrong with it", body = Error)),
)]
async fn validate_connector(State(view): Shared, Body(given): Body<CheckedConnector>) -> Answer<Done> {
    let CheckedConnector { role, plugin, config } = given;
    let mut pipeline = StoredPipeline::new("checked".into(), "checked".into(), Str::default());
    pipeline.connectors.push(made("connector".into(), role, plugin, config));
    view.control.check(&pipeline).await?;
    Ok(Json(Done {}))
}

/// Changes a connector
#[utoipa::path(
    put, path = "/v1/connectors/{id}", tag = "connectors", request_body = ChangedConnector,
    params(("id" = String, Path, description = "`pipeline:connector`")),
    responses((status = 200, description = "It", body = Connector),
              (status = 400, description = "`pipeline.running`, `pipeline.declared_in_file`, or it has errors",
               body = Error),
              (status = 404, description = "`connector.not_found`", body = Error)),
)]
async fn update_connector(
    State(view): Shared,
    Path(id): Path<String>,
    Body(ChangedConnector { plugin, config }): Body<ChangedConnector>,
) -> Answer<Connector> {
    let pipeline = pipeline_of_connector(&view, &id).await?;
    let wanted = id.clone();
    let change = move |pipeline: &mut StoredPipeline| {
        let connector = connector_in(pipeline, &wanted)?;
        if !plugin.is_empty() {
            connector.plugin = plugin.into();
        }
        if !config.name.is_empty() {
            connector.name = config.name.into();
        }
        connector.settings = merged(&connector.settings, config.settings);
        Ok(())
    };
    view.control.change(&pipeline, change).await?;
    the_connector(&view, &id).await.map(Json)
}

/// Deletes a connector
///
/// The position of a source is set aside: it is deleted with the pipeline.
#[utoipa::path(
    delete, path = "/v1/connectors/{id}", tag = "connectors",
    params(("id" = String, Path, description = "`pipeline:connector`")),
    responses((status = 200, description = "It is gone", body = Done),
              (status = 400, description = "`pipeline.running`, `pipeline.declared_in_file`, `connector.has_parts`",
               body = Error),
              (status = 404, description = "`connector.not_found`", body = Error)),
)]
async fn delete_connector(State(view): Shared, Path(id): Path<String>) -> Answer<Done> {
    let pipeline = pipeline_of_connector(&view, &id).await?;
    let change = move |pipeline: &mut StoredPipeline| {
        let connector = connector_in(pipeline, &id)?;
        if !connector.processors.is_empty() {
            return Err(EditError::HasParts { what: "connector", id: id.into(), children: "processors" });
        }
        let gone = connector.id.clone();
        pipeline.connectors.retain(|connector| connector.id != gone);
        Ok(())
    };
    view.control.change(&pipeline, change).await?;
    Ok(Json(Done {}))
}

/// Makes a processor
#[utoipa::path(
    post, path = "/v1/processors", tag = "processors", request_body = NewProcessor,
    responses((status = 200, description = "It", body = Processor),
              (status = 400, description = "`pipeline.running`, `pipeline.declared_in_file`, or it has errors",
               body = Error),
              (status = 404, description = "`pipeline.not_found`, `connector.not_found`", body = Error),
              (status = 409, description = "`processor.exists`", body = Error)),
)]
async fn create_processor(State(view): Shared, Body(given): Body<NewProcessor>) -> Answer<Processor> {
    let NewProcessor { id, plugin, condition, parent, config } = given;
    let pipeline = match parent.kind {
        ParentType::TypePipeline => parent.id.clone(),
        ParentType::TypeConnector => pipeline_of_connector(&view, &parent.id).await?,
    };
    let processor = StoredProcessor {
        id: id.unwrap_or_else(new_id).into(),
        plugin: plugin.into(),
        condition: (!condition.is_empty()).then(|| condition.into()),
        settings: merged(&[], config.settings),
        workers: workers(config.workers)?,
    };
    let id = format!("{}:{}", parent.id, processor.id);
    let full = id.clone();
    let change = move |pipeline: &mut StoredPipeline| {
        let siblings = match parent.kind {
            ParentType::TypePipeline => &mut pipeline.processors,
            ParentType::TypeConnector => &mut connector_in(pipeline, &parent.id)?.processors,
        };
        if siblings.iter().any(|other| other.id == processor.id) {
            return Err(EditError::Exists { what: "processor", id: full.into() });
        }
        siblings.push(processor);
        Ok(())
    };
    view.control.change(&pipeline, change).await?;
    the_processor(&view, &id).await
}

/// Changes a processor
#[utoipa::path(
    put, path = "/v1/processors/{id}", tag = "processors", request_body = ChangedProcessor,
    params(("id" = String, Path, description = "`pipeline:processor`, or `pipeline:connector:processor`")),
    responses((status = 200, description = "It", body = Processor),
              (status = 400, description = "`pipeline.running`, `pipeline.declared_in_file`, or it has errors",
               body = Error),
              (status = 404, description = "`processor.not_found`", body = Error)),
)]
async fn update_processor(
    State(view): Shared,
    Path(id): Path<String>,
    Body(given): Body<ChangedProcessor>,
) -> Answer<Processor> {
    let pipeline = pipeline_of_processor(&view, &id).await?;
    let ChangedProcessor { plugin, condition, config } = given;
    let workers = workers(config.workers)?;
    let wanted = id.clone();
    let change = move |pipeline: &mut StoredPipeline| {
        let (siblings, at) = processor_in(pipeline, &wanted)?;
        let processor = &mut siblings[at];
        if !plugin.is_empty() {
            processor.plugin = plugin.into();
        }
        if let Some(condition) = condition {
            processor.condition = (!condition.is_empty()).then(|| condition.into());
        }
        processor.settings = merged(&processor.settings, config.settings);
        processor.workers = workers;
        Ok(())
    };
    view.control.change(&pipeline, change).await?;
    the_processor(&view, &id).await
}

/// Deletes a processor
#[utoipa::path(
    delete, path = "/v1/processors/{id}", tag = "processors",
    params(("id" = String, Path, description = "`pipeline:processor`, or `pipeline:connector:processor`")),
    responses((status = 200, description = "It is gone", body = Done),
              (status = 400, description = "`pipeline.running`, `pipeline.declared_in_file`", body = Error),
              (status = 404, description = "`processor.not_found`", body = Error)),
)]
async fn delete_processor(State(view): Shared, Path(id): Path<String>) -> Answer<Done> {
    let pipeline = pipeline_of_processor(&view, &id).await?;
    let change = move |pipeline: &mut StoredPipeline| {
        let (siblings, at) = processor_in(pipeline, &id)?;
        siblings.remove(at);
        Ok(())
    };
    view.control.change(&pipeline, change).await?;
    Ok(Json(Done {}))
}

fn made(id: Str, role: ConnectorType, plugin: String, config: ConnectorConfig) -> StoredConnector {
    StoredConnector {
        name: if config.name.is_empty() { id.clone() } else { config.name.into() },
        id,
        role: Str::from_static(match role {
            ConnectorType::TypeSource => "source",
            ConnectorType::TypeDestination => "destination",
        }),
        plugin: plugin.into(),
        settings: merged(&[], config.settings),
        processors: Vec::new(),
    }
}

fn workers(given: Option<u64>) -> Result<u32, ApiError> {
    let workers =
        u32::try_from(given.unwrap_or(1)).map_err(|_| ApiError::malformed("that many workers are too many"))?;
    Ok(workers.max(1))
}

/// Settings as they are given, sorted. What a client was shown as hidden, and gives back so, stays what it was.
fn merged(before: &[StoredSetting], given: Settings) -> Vec<StoredSetting> {
    let setting = |(name, written): (String, String)| {
        let kept = before.iter().find(|setting| written == "***" && *setting.name == *name);
        StoredSetting {
            written: kept.map_or_else(|| written.into(), |setting| setting.written.clone()),
            name: name.into(),
        }
    };
    let mut settings: Vec<_> = given.into_iter().map(setting).collect();
    settings.sort();
    settings
}

/// A random id in the form of a UUID of version 4.
fn new_id() -> String {
    let id = fastrand::u128(..) & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let digits = format!("{id:032x}");
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}

async fn pipeline_of_connector(view: &View, id: &str) -> Result<String, ApiError> {
    let all = stored(view).await?;
    let has = |pipeline: &&StoredPipeline| pipeline.connectors.iter().any(|it| connector_id(pipeline, it) == id);
    let found = all.iter().find(has).map(|pipeline| pipeline.id.to_string());
    found.ok_or_else(|| missing("connector", id, "connector.not_found"))
}

async fn pipeline_of_processor(view: &View, id: &str) -> Result<String, ApiError> {
    let all = stored(view).await?;
    let found = all.iter().find(|pipeline| of_pipeline(pipeline).any(|it| it.id() == id));
    found.map(|pipeline| pipeline.id.to_string()).ok_or_else(|| missing("processor", id, "processor.not_found"))
}

fn connector_in<'a>(pipeline: &'a mut StoredPipeline, id: &str) -> Result<&'a mut StoredConnector, EditError> {
    let of = pipeline.id.clone();
    let found = pipeline.connectors.iter_mut().find(|connector| format!("{of}:{}", connector.id) == id);
    found.ok_or_else(|| EditError::NoPart { what: "connector", id: id.into() })
}

/// The processors among which it stands, and where.
fn processor_in<'a>(
    pipeline: &'a mut StoredPipeline,
    id: &str,
) -> Result<(&'a mut Vec<StoredProcessor>, usize), EditError> {
    let of = pipeline.id.clone();
    let own = (of.to_string(), &mut pipeline.processors);
    let of_connectors = pipeline.connectors.iter_mut().map(|it| (format!("{of}:{}", it.id), &mut it.processors));
    for (parent, siblings) in of_connectors.chain([own]) {
        if let Some(at) = siblings.iter().position(|processor| format!("{parent}:{}", processor.id) == id) {
            return Ok((siblings, at));
        }
    }
    Err(EditError::NoPart { what: "processor", id: id.into() })
}

async fn the_processor(view: &View, id: &str) -> Answer<Processor> {
    let all = stored(view).await?;
    let found = all.iter().flat_map(of_pipeline).find(|it| it.id() == id);
    let found = found.ok_or_else(|| missing("processor", id, "processor.not_found"))?;
    Ok(Json(found.shown(&view.registry)))
}

impl From<EditError> for ApiError {
    fn from(error: EditError) -> Self {
        let text = error.to_string();
        let answer = |kind, reason| ApiError::new(kind, reason, text.clone());
        match error {
            EditError::Control(error) => error.into(),
            EditError::FromFile(_) => answer(Kind::FailedPrecondition, "pipeline.declared_in_file")
                .suggest("edit its file, or apply another text (POST /v1/pipelines/plan, then /apply)"),
            EditError::Exists { what: "connector", .. } => answer(Kind::AlreadyExists, "connector.exists"),
            EditError::Exists { what: "processor", .. } => answer(Kind::AlreadyExists, "processor.exists"),
            EditError::Exists { .. } => answer(Kind::AlreadyExists, "pipeline.exists"),
            EditError::NoPart { what: "connector", .. } => answer(Kind::NotFound, "connector.not_found"),
            EditError::NoPart { .. } => answer(Kind::NotFound, "processor.not_found"),
            EditError::HasParts { what: "connector", .. } => {
                answer(Kind::FailedPrecondition, "connector.has_parts").suggest("delete them first")
            }
            EditError::HasParts { .. } => answer(Kind::FailedPrecondition, "pipeline.has_parts")
                .suggest("delete them first, or all of it with `?parts=true`"),
            EditError::HasPositions(_) => answer(Kind::FailedPrecondition, "pipeline.has_positions")
                .suggest("with `?positions=true` they are deleted too"),
            EditError::NotOne(_) => answer(Kind::Malformed(StatusCode::BAD_REQUEST), "pipelines.one_expected"),
            EditError::Stale(_) => {
                answer(Kind::Aborted, "pipelines.plan_stale").suggest("make the plan again, and look at it")
            }
            EditError::SwitchFailed { .. } => answer(Kind::FailedPrecondition, "pipelines.switch_failed"),
            EditError::Invalid(findings) => {
                let mut wrong = findings.0.into_iter().map(|finding| {
                    let error = ApiError::new(Kind::Malformed(StatusCode::BAD_REQUEST), finding.code, finding.message);
                    let error = match finding.hint {
                        Some(hint) => error.suggest(hint),
                        None => error,
                    };
                    match finding.path {
                        Some(path) => error.at(path),
                        None => error,
                    }
                });
                let first = wrong.next().unwrap_or_else(|| ApiError::malformed(&text));
                ApiError { further: wrong.collect(), ..first }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(name: &str, written: &str) -> StoredSetting {
        StoredSetting { name: name.into(), written: written.into() }
    }

    #[test]
    fn what_was_hidden_stays_what_it_was() {
        let before = [setting("password", "hunter2"), setting("path", "a")];
        let given = [("path", "b"), ("password", "***"), ("new", "***")];
        let given = given.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
        assert_eq!(
            merged(&before, given),
            [setting("new", "***"), setting("password", "hunter2"), setting("path", "b")]
        );
    }

    #[test]
    fn ids_are_uuids() {
        let id = new_id();
        let lengths: Vec<usize> = id.split('-').map(str::len).collect();
        assert_eq!((lengths, &id[14..15]), (vec![8, 4, 4, 4, 12], "4"), "{id}");
        assert!("89ab".contains(&id[19..20]), "{id}");
    }
}
