//! Endpoints that create, change and delete pipelines resource by resource. A pipeline of a file is changed in the
//! file, or applied.

mod connectors;
mod processors;

use std::borrow::Cow;
use std::sync::Arc;

use anabranch_plugin::diagnostic::{Diagnostics, Files};
use anabranch_plugin::secret::without_passwords;
use anabranch_record::text::Str;
use anabranch_service::edit::EditError;
use anabranch_store::{StoredPipeline, StoredSetting};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::body::Body;
use crate::codes;
use crate::error::{ApiError, Error, Kind};
use crate::pipelines::{one, shown_dead_letter, shown_pipeline};
use crate::query::Query;
use crate::shapes::{DeadLetterQueue, Pipeline, PipelineConfig, Settings};
use crate::view::View;

type Shared = State<Arc<View>>;
type Answer<T> = Result<Json<T>, ApiError>;

pub(super) fn router() -> OpenApiRouter<Arc<View>> {
    OpenApiRouter::new()
        .routes(routes!(create_pipeline))
        .routes(routes!(update_pipeline))
        .routes(routes!(delete_pipeline))
        .routes(routes!(update_dead_letter))
        .merge(connectors::router())
        .merge(processors::router())
}

/// A pipeline to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewPipeline {
    /// Absent: the service chooses an id.
    #[serde(default)]
    id: Option<String>,
    config: PipelineConfig,
}

/// The new name, description and routing.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ChangedPipeline {
    config: PipelineConfig,
}

/// The dead-letter queue. Absent fields have their defaults.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ChangedDeadLetter {
    #[serde(default)]
    plugin: String,
    #[serde(default)]
    settings: Settings,
    /// Number of records over which failures are counted; 0 turns the count off.
    #[serde(default, deserialize_with = "number")]
    #[schema(value_type = Option<String>)]
    window_size: Option<u64>,
    /// Number of failures within the window that the pipeline tolerates.
    #[serde(default, deserialize_with = "number")]
    #[schema(value_type = Option<String>)]
    window_nack_threshold: Option<u64>,
}

/// Deserializes a whole number or its text, which clients with gRPC JSON encoding send.
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

/// Create a pipeline
///
/// It has no connectors yet, and is not started.
#[utoipa::path(
    post, path = "/v1/pipelines", tag = "pipelines", request_body = NewPipeline,
    responses((status = 200, description = "The pipeline", body = Pipeline),
              (status = 409, description = "`pipeline.exists`", body = Error)),
)]
async fn create_pipeline(State(view): Shared, Body(NewPipeline { id, config }): Body<NewPipeline>) -> Answer<Pipeline> {
    if config.name.is_empty() {
        return Err(ApiError::malformed("a pipeline needs a name").at("/name"));
    }
    let id: Str = id.unwrap_or_else(new_id).into();
    let pipeline = StoredPipeline {
        unmatched: config.unmatched.filter(|unmatched| !unmatched.is_empty()).map(Str::from),
        placement: config.placement.filter(|placement| !placement.is_empty()).map(Str::from),
        ..StoredPipeline::new(id.clone(), config.name.into(), config.description.into())
    };
    view.control.create(pipeline).await?;
    Ok(Json(shown_pipeline(&view, &one(&view, &id).await?)))
}

/// Change the name, the description, the routing and the placement of a pipeline
#[utoipa::path(
    put, path = "/v1/pipelines/{id}", tag = "pipelines", request_body = ChangedPipeline,
    params(("id" = String, Path, description = "Id of the pipeline")),
    responses((status = 200, description = "The pipeline", body = Pipeline),
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
        if let Some(unmatched) = config.unmatched {
            pipeline.unmatched = (!unmatched.is_empty()).then(|| unmatched.into());
        }
        if let Some(placement) = config.placement {
            pipeline.placement = (!placement.is_empty()).then(|| placement.into());
        }
        Ok(())
    };
    view.control.change(&id, change).await?;
    Ok(Json(shown_pipeline(&view, &one(&view, &id).await?)))
}

/// Result of deleting a pipeline.
#[derive(Serialize, ToSchema)]
struct Deleted {
    /// Plugins that could not be notified of the deletion of their connectors, with reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// Delete a pipeline and everything that is stored for it
///
/// For pipelines that were created through the API, and pipelines whose file is gone. Connector programs are notified.
#[utoipa::path(
    delete, path = "/v1/pipelines/{id}", tag = "pipelines",
    params(("id" = String, Path, description = "Id of the pipeline"),
           ("positions" = Option<bool>, Query, description = "Delete it even if positions of its sources are stored"),
           ("parts" = Option<bool>, Query, description = "Delete its connectors and processors too")),
    responses((status = 200, description = "It is deleted", body = Deleted),
              (status = 400, description = "`api.malformed_request`: a parameter is not a boolean; \
                                            `pipeline.running`, `pipeline.declared_in_file`, `pipeline.has_parts`, \
                                            `pipeline.has_positions`", body = Error),
              (status = 404, description = "`pipeline.not_found`", body = Error)),
)]
async fn delete_pipeline(State(view): Shared, Path(id): Path<String>, query: Query) -> Answer<Deleted> {
    let warnings = view.control.delete(&id, query.flag("parts")?, query.flag("positions")?).await?;
    Ok(Json(Deleted { warnings }))
}

/// Change the dead-letter queue of a pipeline
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

/// Returns the given settings, sorted. A value that was shown masked and is sent back unchanged keeps its old value.
fn merged(before: &[StoredSetting], given: Settings) -> Vec<StoredSetting> {
    let setting = |(name, written): (String, String)| {
        let before = before.iter().find(|setting| *setting.name == *name);
        let kept = before.filter(|setting| written == "***" || without_passwords(&setting.written) == written);
        StoredSetting {
            written: kept.map_or_else(|| written.into(), |setting| setting.written.clone()),
            name: name.into(),
        }
    };
    let mut settings: Vec<_> = given.into_iter().map(setting).collect();
    settings.sort();
    settings
}

/// Returns a random id in the form of a UUID of version 4.
fn new_id() -> String {
    let id = fastrand::u128(..) & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let digits = format!("{id:032x}");
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}

impl From<EditError> for ApiError {
    fn from(error: EditError) -> Self {
        let text = error.to_string();
        let answer = |kind, reason| ApiError::new(kind, reason, text.clone());
        match error {
            EditError::Control(error) => error.into(),
            EditError::FromFile(_) => answer(Kind::FailedPrecondition, codes::PIPELINE_DECLARED_IN_FILE).suggest(
                "edit its file, or apply another text (POST /v1/pipelines/plan, then /apply); if the file is gone, \
                     restart the service, which reads its files at startup",
            ),
            EditError::Exists { what: "connector", .. } => answer(Kind::AlreadyExists, codes::CONNECTOR_EXISTS),
            EditError::Exists { what: "processor", .. } => answer(Kind::AlreadyExists, codes::PROCESSOR_EXISTS),
            EditError::Exists { .. } => answer(Kind::AlreadyExists, codes::PIPELINE_EXISTS),
            EditError::NoPart { what: "connector", .. } => answer(Kind::NotFound, codes::CONNECTOR_NOT_FOUND),
            EditError::NoPart { .. } => answer(Kind::NotFound, codes::PROCESSOR_NOT_FOUND),
            EditError::HasParts { what: "connector", .. } => {
                answer(Kind::FailedPrecondition, codes::CONNECTOR_HAS_PARTS).suggest("delete them first")
            }
            EditError::HasParts { .. } => answer(Kind::FailedPrecondition, codes::PIPELINE_HAS_PARTS)
                .suggest("delete them first, or delete the pipeline and all its parts with `?parts=true`"),
            EditError::HasPositions(_) => answer(Kind::FailedPrecondition, codes::PIPELINE_HAS_POSITIONS)
                .suggest("add `?positions=true` to delete the positions too"),
            EditError::NotOne(_) => answer(Kind::Malformed(StatusCode::BAD_REQUEST), codes::PIPELINES_ONE_EXPECTED),
            EditError::Stale(_) | EditError::StaleSet => {
                answer(Kind::Aborted, codes::PIPELINES_PLAN_STALE).suggest("request a new plan, and check it")
            }
            EditError::RunsOn(_) => answer(Kind::FailedPrecondition, codes::PIPELINES_RESTART_NOT_ALLOWED)
                .suggest("stop the pipeline, apply the change, and start it"),
            EditError::SwitchFailed { .. } => answer(Kind::FailedPrecondition, codes::PIPELINES_SWITCH_FAILED),
            // A configuration that was sent resource by resource has no lines.
            EditError::Invalid(findings) => invalid(findings, &Files::new()),
        }
    }
}

/// Converts the errors of a configuration, with their places in the text of the client.
pub(super) fn invalid(findings: Diagnostics, text: &Files) -> ApiError {
    let mut wrong = findings.0.into_iter().map(|finding| {
        let place = finding.label.as_ref().and_then(|label| text.locate(label.span));
        let error = ApiError::new(Kind::Malformed(StatusCode::BAD_REQUEST), finding.code, finding.message);
        ApiError {
            suggestion: finding.hint.map(Cow::Owned),
            config_path: finding.path,
            place: place.map(|place| Box::new((place.line, place.column))),
            ..error
        }
    });
    let first = wrong.next().unwrap_or_else(|| ApiError::malformed("the configuration has errors"));
    ApiError { further: wrong.collect(), ..first }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(name: &str, written: &str) -> StoredSetting {
        StoredSetting { name: name.into(), written: written.into() }
    }

    #[test]
    fn what_was_hidden_stays_what_it_was() {
        let before = [setting("password", "hunter2"), setting("path", "a"), setting("url", "http://me:hunter2@host/")];
        let merged_url = |url: &str| {
            let given = [("path", "b"), ("password", "***"), ("new", "***"), ("url", url)];
            merged(&before, given.map(|(name, text)| (name.to_owned(), text.to_owned())).into())
        };
        let [new, password, path] =
            [("new", "***"), ("password", "hunter2"), ("path", "b")].map(|(n, w)| setting(n, w));
        for (given, kept) in [
            ("http://me:***@host/", "http://me:hunter2@host/"),
            // A password goes nowhere else.
            ("http://me:***@other/", "http://me:***@other/"),
        ] {
            let expected = [new.clone(), password.clone(), path.clone(), setting("url", kept)];
            assert_eq!(merged_url(given), expected);
        }
    }

    #[test]
    fn ids_are_uuids() {
        let id = new_id();
        let lengths: Vec<usize> = id.split('-').map(str::len).collect();
        assert_eq!((lengths, &id[14..15]), (vec![8, 4, 4, 4, 12], "4"), "{id}");
        assert!("89ab".contains(&id[19..20]), "{id}");
    }
}
