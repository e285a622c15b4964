//! Endpoints for the mode of the registry, which is always `READWRITE`.

use axum::body::Bytes;
use axum::extract::Path;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::refusal::{self, SchemaRefusal};
use super::{Answer, Media};
use crate::error::RegistryError;
use crate::query::Query;

/// The mode of the registry.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(as = RegistryMode)]
pub(super) struct Mode {
    /// `READWRITE`
    #[serde(default)]
    mode: String,
}

impl Mode {
    fn only() -> Media<Mode> {
        Media(Mode { mode: "READWRITE".to_owned() })
    }
}

/// Get the mode of the registry
#[utoipa::path(
    get, path = "/mode", tag = "schema registry",
    responses((status = 200, description = "The mode", body = Mode, content_type = "application/vnd.schemaregistry.v1+json")),
)]
pub(super) async fn mode() -> Media<Mode> {
    Mode::only()
}

/// Get the mode of a subject
#[utoipa::path(
    get, path = "/mode/{subject}", tag = "schema registry",
    params(("subject" = String, Path, description = "The subject"),
           ("defaultToGlobal" = Option<bool>, Query, description = "Return the mode of the registry")),
    responses((status = 200, description = "The mode", body = Mode, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 404, description = "`40409`: no mode is set for the subject", body = RegistryError)),
)]
pub(super) async fn subject_mode(Path(subject): Path<String>, query: Query) -> Answer<Mode> {
    if query.is_set("defaultToGlobal") {
        return Ok(mode().await);
    }
    Err(SchemaRefusal::no_mode_of(&subject))
}

/// Set the mode of the registry
#[utoipa::path(
    put, path = "/mode", tag = "schema registry",
    request_body(content = Mode, content_type = "application/vnd.schemaregistry.v1+json"),
    responses((status = 200, description = "The mode", body = Mode, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 422, description = "`42204`: the mode is always `READWRITE`", body = RegistryError)),
)]
pub(super) async fn set_mode(body: Bytes) -> Answer<Mode> {
    let Mode { mode } = refusal::parse(&body)?;
    if mode.eq_ignore_ascii_case("READWRITE") {
        return Ok(Mode::only());
    }
    Err(SchemaRefusal::new(StatusCode::UNPROCESSABLE_ENTITY, 42204, "the mode of this registry is always READWRITE"))
}

/// Set the mode of a subject
#[utoipa::path(
    put, path = "/mode/{subject}", tag = "schema registry",
    params(("subject" = String, Path, description = "The subject")),
    request_body(content = Mode, content_type = "application/vnd.schemaregistry.v1+json"),
    responses((status = 200, description = "The mode", body = Mode, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 422, description = "`42204`: the mode is always `READWRITE`", body = RegistryError)),
)]
pub(super) async fn set_subject_mode(body: Bytes) -> Answer<Mode> {
    set_mode(body).await
}
