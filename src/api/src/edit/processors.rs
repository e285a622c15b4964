//! Endpoints that create, change and delete processors.

use std::sync::Arc;

use anabranch_service::edit::EditError;
use anabranch_store::{StoredPipeline, StoredProcessor};
use axum::Json;
use axum::extract::{Path, State};
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::connectors::{connector_in, pipeline_of_connector};
use super::{Answer, Shared, merged, new_id, number};
use crate::body::Body;
use crate::codes;
use crate::error::{ApiError, Error};
use crate::lifecycle::Done;
use crate::pipelines::{missing, of_pipeline, stored};
use crate::shapes::{ParentType, Processor, ProcessorParent, Settings};
use crate::view::View;

pub(super) fn router() -> OpenApiRouter<Arc<View>> {
    OpenApiRouter::new()
        .routes(routes!(create_processor))
        .routes(routes!(update_processor))
        .routes(routes!(delete_processor))
}

/// A processor to create. It is appended to the others.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewProcessor {
    /// Its id in the pipeline or connector. Absent: the service chooses one.
    #[serde(default)]
    id: Option<String>,
    plugin: String,
    #[serde(default)]
    condition: String,
    parent: ProcessorParent,
    #[serde(default)]
    config: ProcessorRequest,
}

/// The new configuration of a processor. A setting with the value `***` keeps its value.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ChangedProcessor {
    /// Absent: the plugin stays.
    #[serde(default)]
    plugin: String,
    /// Condition on records; empty: all records. Absent: it stays.
    #[serde(default)]
    condition: Option<String>,
    config: ProcessorRequest,
}

#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = GivenProcessor)]
struct ProcessorRequest {
    #[serde(default)]
    settings: Settings,
    /// Number of parallel workers; 0 means one.
    #[serde(default, deserialize_with = "number")]
    #[schema(value_type = Option<String>)]
    workers: Option<u64>,
}

/// Create a processor
#[utoipa::path(
    post, path = "/v1/processors", tag = "processors", request_body = NewProcessor,
    responses((status = 200, description = "The processor", body = Processor),
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

/// Change a processor
#[utoipa::path(
    put, path = "/v1/processors/{id}", tag = "processors", request_body = ChangedProcessor,
    params(("id" = String, Path, description = "`pipeline:processor`, or `pipeline:connector:processor`")),
    responses((status = 200, description = "The processor", body = Processor),
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

/// Delete a processor
#[utoipa::path(
    delete, path = "/v1/processors/{id}", tag = "processors",
    params(("id" = String, Path, description = "`pipeline:processor`, or `pipeline:connector:processor`")),
    responses((status = 200, description = "It is deleted", body = Done),
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

fn workers(given: Option<u64>) -> Result<u32, ApiError> {
    let workers =
        u32::try_from(given.unwrap_or(1)).map_err(|_| ApiError::malformed("the number of workers is too large"))?;
    Ok(workers.max(1))
}

async fn pipeline_of_processor(view: &View, id: &str) -> Result<String, ApiError> {
    let all = stored(view).await?;
    let found = all.iter().find(|pipeline| of_pipeline(pipeline).any(|it| it.id() == id));
    found.map(|pipeline| pipeline.id.to_string()).ok_or_else(|| missing("processor", id, codes::PROCESSOR_NOT_FOUND))
}

/// Returns the list that contains the processor, and its index.
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
    let found = found.ok_or_else(|| missing("processor", id, codes::PROCESSOR_NOT_FOUND))?;
    Ok(Json(found.shown(&view.registry)))
}
