//! Endpoints for the global compatibility level, and for the levels of subjects.

use anabranch_plugin::schema::SchemaError;
use anabranch_record::text::Str;
use anabranch_settings::Compatibility;
use anabranch_store::Store;
use axum::body::Bytes;
use axum::extract::{Path, State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::refusal::{self, SchemaRefusal};
use super::{Answer, Media, Shared};
use crate::error::RegistryError;
use crate::query::Query;

/// Returns the compatibility level that was set for a subject, or the global level that was set.
pub(super) async fn set(store: &Store, subject: Option<&Str>) -> Result<Option<Compatibility>, SchemaError> {
    // An unknown level was set by a later version of this program.
    Ok(store.level(subject).await?.and_then(|level| parse(&level)))
}

fn parse(text: &str) -> Option<Compatibility> {
    Compatibility::ALL.into_iter().find(|level| level.as_str().eq_ignore_ascii_case(text))
}

/// A compatibility level.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct CompatibilityLevel {
    compatibility_level: &'static str,
}

/// A compatibility level in a request or response.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(as = CompatibilityAsked, example = json!({ "compatibility": "BACKWARD" }))]
pub(super) struct LevelDocument {
    #[serde(default)]
    compatibility: String,
}

/// The level before its removal, under both names that clients read.
#[derive(Serialize, ToSchema)]
#[schema(as = CompatibilityDeleted)]
pub(super) struct DeletedLevel {
    compatibility: &'static str,
    #[serde(rename = "compatibilityLevel")]
    level: &'static str,
}

impl DeletedLevel {
    fn of(level: Compatibility) -> Media<DeletedLevel> {
        Media(DeletedLevel { compatibility: level.as_str(), level: level.as_str() })
    }
}

fn shown(level: Compatibility) -> Media<CompatibilityLevel> {
    Media(CompatibilityLevel { compatibility_level: level.as_str() })
}

async fn asked(store: &Store, subject: Option<&Str>, body: &Bytes) -> Answer<LevelDocument> {
    let LevelDocument { compatibility } = refusal::parse(body)?;
    let level = parse(&compatibility).ok_or_else(|| SchemaRefusal::invalid_level(&compatibility))?;
    store.set_level(subject, Some(Str::from_static(level.as_str()))).await?;
    Ok(Media(LevelDocument { compatibility: level.as_str().to_owned() }))
}

/// Get the global compatibility level
#[utoipa::path(
    get, path = "/config", tag = "schema registry",
    responses((status = 200, description = "The level of all subjects without their own level", body = CompatibilityLevel, content_type = "application/vnd.schemaregistry.v1+json")),
)]
pub(super) async fn level(State(registry): Shared) -> Answer<CompatibilityLevel> {
    Ok(shown(registry.level_of_all().await?))
}

/// Get the compatibility level of a subject
#[utoipa::path(
    get, path = "/config/{subject}", tag = "schema registry",
    params(("subject" = String, Path, description = "The subject"),
           ("defaultToGlobal" = Option<bool>, Query, description = "Return the global level if none is set for the subject")),
    responses((status = 200, description = "The level of the subject", body = CompatibilityLevel, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 404, description = "`40408`: no level is set for the subject", body = RegistryError)),
)]
pub(super) async fn subject_level(
    State(registry): Shared,
    Path(subject): Path<String>,
    query: Query,
) -> Answer<CompatibilityLevel> {
    let subject = Str::from(subject);
    match set(&registry.store, Some(&subject)).await? {
        Some(level) => Ok(shown(level)),
        None if query.is_set("defaultToGlobal") => Ok(shown(registry.level_of_all().await?)),
        None => Err(SchemaRefusal::no_level_of(&subject)),
    }
}

/// Set the global compatibility level
#[utoipa::path(
    put, path = "/config", tag = "schema registry",
    request_body(content = LevelDocument, content_type = "application/vnd.schemaregistry.v1+json"),
    responses((status = 200, description = "The new level", body = LevelDocument, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 422, description = "`42203`: invalid compatibility level", body = RegistryError)),
)]
pub(super) async fn set_level(State(registry): Shared, body: Bytes) -> Answer<LevelDocument> {
    let _one_at_a_time = registry.changing.lock().await;
    asked(&registry.store, None, &body).await
}

/// Set the compatibility level of a subject
///
/// The subject does not have to exist yet.
#[utoipa::path(
    put, path = "/config/{subject}", tag = "schema registry",
    params(("subject" = String, Path, description = "The subject")),
    request_body(content = LevelDocument, content_type = "application/vnd.schemaregistry.v1+json"),
    responses((status = 200, description = "The new level", body = LevelDocument, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 422, description = "`42203`: invalid compatibility level", body = RegistryError)),
)]
pub(super) async fn set_subject_level(
    State(registry): Shared,
    Path(subject): Path<String>,
    body: Bytes,
) -> Answer<LevelDocument> {
    let _one_at_a_time = registry.changing.lock().await;
    asked(&registry.store, Some(&subject.into()), &body).await
}

/// Reset the global compatibility level to that of the settings
#[utoipa::path(
    delete, path = "/config", tag = "schema registry",
    responses((status = 200, description = "The level before the reset", body = DeletedLevel, content_type = "application/vnd.schemaregistry.v1+json")),
)]
pub(super) async fn delete_level(State(registry): Shared) -> Answer<DeletedLevel> {
    let _one_at_a_time = registry.changing.lock().await;
    let former = registry.level_of_all().await?;
    registry.store.set_level(None, None).await?;
    Ok(DeletedLevel::of(former))
}

/// Remove the compatibility level of a subject
#[utoipa::path(
    delete, path = "/config/{subject}", tag = "schema registry",
    params(("subject" = String, Path, description = "The subject")),
    responses((status = 200, description = "The level before its removal", body = DeletedLevel, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 404, description = "`40408`: no level is set for the subject", body = RegistryError)),
)]
pub(super) async fn delete_subject_level(State(registry): Shared, Path(subject): Path<String>) -> Answer<DeletedLevel> {
    let _one_at_a_time = registry.changing.lock().await;
    let subject = Str::from(subject);
    let former = set(&registry.store, Some(&subject)).await?.ok_or_else(|| SchemaRefusal::no_level_of(&subject))?;
    registry.store.set_level(Some(&subject), None).await?;
    Ok(DeletedLevel::of(former))
}
