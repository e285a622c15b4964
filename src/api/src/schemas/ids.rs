//! Endpoints for schemas by id, and for the subjects that use them.

use anabranch_plugin::schema::{SchemaError, SchemaId};
use anabranch_record::text::Str;
use anabranch_store::{Reference, SchemaEntry};
use axum::extract::{Path, State};
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use super::refusal::SchemaRefusal;
use super::{Answer, Media, Registry, Shared, plain, text_for, wanted};
use crate::error::RegistryError;
use crate::query::Query;

/// A subject and version that use a schema.
#[derive(Serialize, ToSchema)]
#[schema(as = SchemaUse)]
pub(super) struct Use {
    subject: String,
    version: u32,
}

/// A schema without its subjects.
#[derive(Serialize, ToSchema)]
#[schema(as = SchemaText)]
pub(super) struct Text {
    /// Its text.
    schema: String,
    /// Its references.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    references: Vec<Reference>,
}

/// List the supported types of schemas
#[utoipa::path(
    get, path = "/schemas/types", tag = "schema registry",
    responses((status = 200, description = "`AVRO`", body = Vec<String>, content_type = "application/vnd.schemaregistry.v1+json")),
)]
pub(super) async fn types() -> Media<[&'static str; 1]> {
    Media(["AVRO"])
}

fn id(text: &str) -> Result<SchemaId, SchemaRefusal> {
    // A text that is not a valid id belongs to no schema.
    text.parse().map_err(|_| SchemaError::SchemaNotFound(format!("id {text}").into()).into())
}

/// Get a schema by id
#[utoipa::path(
    get, path = "/schemas/ids/{id}", tag = "schema registry",
    params(("id" = String, Path, description = "Id of the schema, from 1"),
           ("format" = Option<String>, Query, description = "`resolved`: with references resolved")),
    responses((status = 200, description = "The schema", body = Text, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 404, description = "`40403`: no such schema", body = RegistryError)),
)]
pub(super) async fn by_id(State(registry): Shared, Path(text): Path<String>, query: Query) -> Answer<Text> {
    let document = registry.store.document(id(&text)?).await?;
    Ok(Media(Text { schema: text_for(&document, &query).to_string(), references: document.references }))
}

/// Get the text of a schema by id
#[utoipa::path(
    get, path = "/schemas/ids/{id}/schema", tag = "schema registry",
    params(("id" = String, Path, description = "Id of the schema, from 1")),
    responses((status = 200, description = "The text of the schema", body = Value, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 404, description = "`40403`: no such schema", body = RegistryError)),
)]
pub(super) async fn text_by_id(
    State(registry): Shared,
    Path(text): Path<String>,
    query: Query,
) -> Result<Response, SchemaRefusal> {
    Ok(plain(&text_for(&registry.store.document(id(&text)?).await?, &query)))
}

/// List the subjects with a schema
#[utoipa::path(
    get, path = "/schemas/ids/{id}/subjects", tag = "schema registry",
    params(("id" = String, Path, description = "Id of the schema, from 1")),
    responses((status = 200, description = "Names of the subjects", body = Vec<String>, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 404, description = "`40403`: no such schema", body = RegistryError)),
)]
pub(super) async fn subjects_of(State(registry): Shared, Path(text): Path<String>, query: Query) -> Answer<Vec<Str>> {
    let mut subjects: Vec<Str> = registry.uses(&text, &query).await?.into_iter().map(|(subject, _)| subject).collect();
    subjects.dedup();
    Ok(Media(subjects))
}

/// List the versions with a schema
#[utoipa::path(
    get, path = "/schemas/ids/{id}/versions", tag = "schema registry",
    params(("id" = String, Path, description = "Id of the schema, from 1")),
    responses((status = 200, description = "The versions", body = Vec<Use>, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 404, description = "`40403`: no such schema", body = RegistryError)),
)]
pub(super) async fn versions_of(State(registry): Shared, Path(text): Path<String>, query: Query) -> Answer<Vec<Use>> {
    let uses = registry.uses(&text, &query).await?.into_iter();
    Ok(Media(uses.map(|(subject, entry)| Use { subject: subject.to_string(), version: entry.version.get() }).collect()))
}

impl Registry {
    async fn uses(&self, text: &str, query: &Query) -> Result<Vec<(Str, SchemaEntry)>, SchemaRefusal> {
        let id = id(text)?;
        self.store.document(id).await?;
        let mut uses = self.store.uses(id).await?;
        uses.retain(|(_, entry)| wanted(entry.deleted, query));
        Ok(uses)
    }
}
