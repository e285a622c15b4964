//! Endpoints that create, change and delete connectors.

use std::sync::Arc;

use anabranch_record::text::Str;
use anabranch_service::edit::EditError;
use anabranch_store::{StoredConnector, StoredPipeline};
use axum::Json;
use axum::extract::{Path, State};
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Answer, Shared, merged, new_id};
use crate::body::Body;
use crate::codes;
use crate::error::{ApiError, Error};
use crate::lifecycle::Done;
use crate::pipelines::{connector_id, missing, stored, the_connector};
use crate::shapes::{Connector, ConnectorConfig, ConnectorType};
use crate::view::View;

pub(super) fn router() -> OpenApiRouter<Arc<View>> {
    OpenApiRouter::new()
        .routes(routes!(create_connector))
        .routes(routes!(validate_connector))
        .routes(routes!(update_connector))
        .routes(routes!(delete_connector))
}

/// A connector to create.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NewConnector {
    /// Its id in the pipeline. Absent: the service chooses one.
    #[serde(default)]
    id: Option<String>,
    #[serde(rename = "type")]
    role: ConnectorType,
    plugin: String,
    pipeline_id: String,
    config: ConnectorConfig,
}

/// A connector to validate.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CheckedConnector {
    #[serde(rename = "type")]
    role: ConnectorType,
    plugin: String,
    config: ConnectorConfig,
}

/// The new configuration of a connector. A setting with the value `***` keeps its value.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ChangedConnector {
    /// Absent: the plugin stays.
    #[serde(default)]
    plugin: String,
    config: ConnectorConfig,
}

/// Create a connector
#[utoipa::path(
    post, path = "/v1/connectors", tag = "connectors", request_body = NewConnector,
    responses((status = 200, description = "The connector", body = Connector),
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

/// Validate a connector
///
/// Checks its plugin and its settings. Opens nothing.
#[utoipa::path(
    post, path = "/v1/connectors/validate", tag = "connectors", request_body = CheckedConnector,
    responses((status = 200, description = "It has no errors", body = Done),
              (status = 400, description = "It has errors", body = Error)),
)]
async fn validate_connector(State(view): Shared, Body(given): Body<CheckedConnector>) -> Answer<Done> {
    let CheckedConnector { role, plugin, config } = given;
    let mut pipeline = StoredPipeline::new("checked".into(), "checked".into(), Str::default());
    pipeline.connectors.push(made("connector".into(), role, plugin, config));
    view.control.check(&pipeline).await?;
    Ok(Json(Done {}))
}

/// Change a connector
#[utoipa::path(
    put, path = "/v1/connectors/{id}", tag = "connectors", request_body = ChangedConnector,
    params(("id" = String, Path, description = "`pipeline:connector`")),
    responses((status = 200, description = "The connector", body = Connector),
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
        if let Some(condition) = config.condition {
            connector.condition = (!condition.is_empty()).then(|| condition.into());
        }
        connector.settings = merged(&connector.settings, config.settings);
        Ok(())
    };
    view.control.change(&pipeline, change).await?;
    the_connector(&view, &id).await.map(Json)
}

/// Delete a connector
///
/// The position of a source is set aside until the pipeline is deleted.
#[utoipa::path(
    delete, path = "/v1/connectors/{id}", tag = "connectors",
    params(("id" = String, Path, description = "`pipeline:connector`")),
    responses((status = 200, description = "It is deleted", body = Done),
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

fn made(id: Str, role: ConnectorType, plugin: String, config: ConnectorConfig) -> StoredConnector {
    StoredConnector {
        name: if config.name.is_empty() { id.clone() } else { config.name.into() },
        id,
        role: Str::from_static(match role {
            ConnectorType::TypeSource => "source",
            ConnectorType::TypeDestination => "destination",
        }),
        plugin: plugin.into(),
        condition: config.condition.filter(|condition| !condition.is_empty()).map(Str::from),
        settings: merged(&[], config.settings),
        processors: Vec::new(),
    }
}

pub(super) async fn pipeline_of_connector(view: &View, id: &str) -> Result<String, ApiError> {
    let all = stored(view).await?;
    let has = |pipeline: &&StoredPipeline| pipeline.connectors.iter().any(|it| connector_id(pipeline, it) == id);
    let found = all.iter().find(has).map(|pipeline| pipeline.id.to_string());
    found.ok_or_else(|| missing("connector", id, codes::CONNECTOR_NOT_FOUND))
}

pub(super) fn connector_in<'a>(
    pipeline: &'a mut StoredPipeline,
    id: &str,
) -> Result<&'a mut StoredConnector, EditError> {
    let of = pipeline.id.clone();
    let found = pipeline.connectors.iter_mut().find(|connector| format!("{of}:{}", connector.id) == id);
    found.ok_or_else(|| EditError::NoPart { what: "connector", id: id.into() })
}
