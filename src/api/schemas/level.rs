//! The compatibility level of all subjects, and of single ones.

use anabranch_plugin::schema::SchemaError;
use anabranch_record::text::Str;
use axum::body::Bytes;
use axum::extract::{Path, State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::refusal::{self, Refusal};
use super::{Answer, Media, Shared};
use crate::api::error::RegistryError;
use crate::api::query::Query;
use crate::settings::Compatibility;
use crate::store::Store;

/// The compatibility level that was set for a subject, or for all.
pub(super) async fn set(store: &Store, subject: Option<&Str>) -> Result<Option<Compatibility>, SchemaError> {
    // One that is not understood was set by a later version of this program.
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

/// A level that somebody asks for, or that is so.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(as = CompatibilityAsked, example = json!({ "compatibility": "BACKWARD" }))]
pub(super) struct Level {
    #[serde(default)]
    compatibility: String,
}

/// A level that was taken back, in the two ways in which clients read it.
#[derive(Serialize, ToSchema)]
#[schema(as = CompatibilityDeleted)]
pub(super) struct Former {
    compatibility: &'static str,
    #[serde(rename = "compatibilityLevel")]
    level: &'static str,
}

impl Former {
    fn of(level: Compatibility) -> Media<Former> {
        Media(Former { compatibility: level.as_str(), level: level.as_str() })
    }
}

fn shown(level: Compatibility) -> Media<CompatibilityLevel> {
    Media(CompatibilityLevel { compatibility_level: level.as_str() })
}

async fn asked(store: &Store, subject: Option<&Str>, body: &Bytes) -> Answer<Level> {
    let Level { compatibility } = refusal::parse(body)?;
    let level = parse(&compatibility).ok_or_else(|| Refusal::invalid_level(&compatibility))?;
    store.set_level(subject, Some(Str::from_static(level.as_str()))).await?;
    Ok(Media(Level { compatibility: level.as_str().to_owned() }))
}

/// The compatibility level
#[utoipa::path(
    get, path = "/config", tag = "schema registry",
    responses((status = 200, description = "The level of all subjects without one of their own", body = CompatibilityLevel, content_type = "application/vnd.schemaregistry.v1+json")),
)]
pub(super) async fn level(State(registry): Shared) -> Answer<CompatibilityLevel> {
    Ok(shown(registry.level_of_all().await?))
}

/// The compatibility level of a subject
#[utoipa::path(
    get, path = "/config/{subject}", tag = "schema registry",
    params(("subject" = String, Path, description = "The subject"),
           ("defaultToGlobal" = Option<bool>, Query, description = "Where it has none, answer the level of all subjects")),
    responses((status = 200, description = "Its level", body = CompatibilityLevel, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 404, description = "`40408`: it has no level of its own", body = RegistryError)),
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
        None => Err(Refusal::no_level_of(&subject)),
    }
}

/// Set the compatibility level
#[utoipa::path(
    put, path = "/config", tag = "schema registry",
    request_body(content = Level, content_type = "application/vnd.schemaregistry.v1+json"),
    responses((status = 200, description = "It is so", body = Level, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 422, description = "`42203`: no compatibility level", body = RegistryError)),
)]
pub(super) async fn set_level(State(registry): Shared, body: Bytes) -> Answer<Level> {
    let _one_at_a_time = registry.changing.lock().await;
    asked(&registry.store, None, &body).await
}

/// Set the compatibility level of a subject
///
/// The subject need not be there yet.
#[utoipa::path(
    put, path = "/config/{subject}", tag = "schema registry",
    params(("subject" = String, Path, description = "The subject")),
    request_body(content = Level, content_type = "application/vnd.schemaregistry.v1+json"),
    responses((status = 200, description = "It is so", body = Level, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 422, description = "`42203`: no compatibility level", body = RegistryError)),
)]
pub(super) async fn set_subject_level(
    State(registry): Shared,
    Path(subject): Path<String>,
    body: Bytes,
) -> Answer<Level> {
    let _one_at_a_time = registry.changing.lock().await;
    asked(&registry.store, Some(&subject.into()), &body).await
}

/// Go back to the compatibility level of the settings
#[utoipa::path(
    delete, path = "/config", tag = "schema registry",
    responses((status = 200, description = "The level that it was", body = Former, content_type = "application/vnd.schemaregistry.v1+json")),
)]
pub(super) async fn delete_level(State(registry): Shared) -> Answer<Former> {
    let _one_at_a_time = registry.changing.lock().await;
    let former = registry.level_of_all().await?;
    registry.store.set_level(None, None).await?;
    Ok(Former::of(former))
}

/// Take back the compatibility level of a subject
#[utoipa::path(
    delete, path = "/config/{subject}", tag = "schema registry",
    params(("subject" = String, Path, description = "The subject")),
    responses((status = 200, description = "The level that it had", body = Former, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 404, description = "`40408`: it has no level of its own", body = RegistryError)),
)]
pub(super) async fn delete_subject_level(State(registry): Shared, Path(subject): Path<String>) -> Answer<Former> {
    let _one_at_a_time = registry.changing.lock().await;
    let subject = Str::from(subject);
    let former = set(&registry.store, Some(&subject)).await?.ok_or_else(|| Refusal::no_level_of(&subject))?;
    registry.store.set_level(Some(&subject), None).await?;
    Ok(Former::of(former))
}
