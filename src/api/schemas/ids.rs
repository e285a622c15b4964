//! Schemas by their numbers, and where they are used.

use anabranch_plugin::schema::{SchemaError, SchemaId};
use anabranch_record::text::Str;
use axum::extract::{Path, State};
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use super::refusal::Refusal;
use super::{Answer, Media, Registry, Shared, plain, text_for, wanted};
use crate::api::error::RegistryError;
use crate::api::query::Query;
use crate::store::{Entry, Reference};

/// Where a schema is used.
#[derive(Serialize, ToSchema)]
#[schema(as = SchemaUse)]
pub(super) struct Use {
    subject: String,
    version: u32,
}

/// A schema without where it is used.
#[derive(Serialize, ToSchema)]
#[schema(as = SchemaText)]
pub(super) struct Text {
    /// Its text.
    schema: String,
    /// What it refers to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    references: Vec<Reference>,
}

/// The kinds of schemas that are understood
#[utoipa::path(
    get, path = "/schemas/types", tag = "schema registry",
    responses((status = 200, description = "`AVRO`", body = Vec<String>, content_type = "application/vnd.schemaregistry.v1+json")),
)]
pub(super) async fn types() -> Media<[&'static str; 1]> {
    Media(["AVRO"])
}

fn id(text: &str) -> Result<SchemaId, Refusal> {
    // What is no id is the id of nothing.
    text.parse().map_err(|_| SchemaError::SchemaNotFound(format!("id {text}").into()).into())
}

/// A schema by its number
#[utoipa::path(
    get, path = "/schemas/ids/{id}", tag = "schema registry",
    params(("id" = String, Path, description = "Its number from 1"),
           ("format" = Option<String>, Query, description = "`resolved`: with the types that it refers to in it")),
    responses((status = 200, description = "It", body = Text, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 404, description = "`40403`: no such schema", body = RegistryError)),
)]
pub(super) async fn by_id(State(registry): Shared, Path(text): Path<String>, query: Query) -> Answer<Text> {
    let document = registry.store.document(id(&text)?).await?;
    Ok(Media(Text { schema: text_for(&document, &query).to_string(), references: document.references }))
}

/// The text of a schema by its number
#[utoipa::path(
    get, path = "/schemas/ids/{id}/schema", tag = "schema registry",
    params(("id" = String, Path, description = "Its number from 1")),
    responses((status = 200, description = "The schema itself", body = Value, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 404, description = "`40403`: no such schema", body = RegistryError)),
)]
pub(super) async fn text_by_id(
    State(registry): Shared,
    Path(text): Path<String>,
    query: Query,
) -> Result<Response, Refusal> {
    Ok(plain(&text_for(&registry.store.document(id(&text)?).await?, &query)))
}

/// The subjects that have a schema
#[utoipa::path(
    get, path = "/schemas/ids/{id}/subjects", tag = "schema registry",
    params(("id" = String, Path, description = "Its number from 1")),
    responses((status = 200, description = "Their names", body = Vec<String>, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 404, description = "`40403`: no such schema", body = RegistryError)),
)]
pub(super) async fn subjects_of(State(registry): Shared, Path(text): Path<String>, query: Query) -> Answer<Vec<Str>> {
    let mut subjects: Vec<Str> = registry.uses(&text, &query).await?.into_iter().map(|(subject, _)| subject).collect();
    subjects.dedup();
    Ok(Media(subjects))
}

/// The versions that have a schema
#[utoipa::path(
    get, path = "/schemas/ids/{id}/versions", tag = "schema registry",
    params(("id" = String, Path, description = "Its number from 1")),
    responses((status = 200, description = "They", body = Vec<Use>, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 404, description = "`40403`: no such schema", body = RegistryError)),
)]
pub(super) async fn versions_of(State(registry): Shared, Path(text): Path<String>, query: Query) -> Answer<Vec<Use>> {
    let uses = registry.uses(&text, &query).await?.into_iter();
    Ok(Media(uses.map(|(subject, entry)| Use { subject: subject.to_string(), version: entry.version.get() }).collect()))
}

impl Registry {
    async fn uses(&self, text: &str, query: &Query) -> Result<Vec<(Str, Entry)>, Refusal> {
        let id = id(text)?;
        self.store.document(id).await?;
        let mut uses = self.store.uses(id).await?;
        uses.retain(|(_, entry)| wanted(entry.deleted, query));
        Ok(uses)
    }
}
