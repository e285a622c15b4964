//! The built-in schema registry with the REST protocol of Confluent, so that other tools can use it.
//!
//! A soft-deleted version is not listed, but records that name it still find it; a permanently deleted version is gone.
//! The mode cannot be changed.

mod compatibility;
mod deletion;
mod ids;
mod level;
mod mode;
mod refusal;

use std::sync::Arc;

use anabranch_plugin::schema::{SchemaError, SchemaId, SchemaVersion};
use anabranch_process::runtime::TEXTS;
use anabranch_record::text::Str;
use anabranch_settings::Compatibility;
use anabranch_store::{Reference, SchemaDocument, SchemaEntry, Store};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::RegistryError;
use crate::query::Query;
use compatibility::compact;
use refusal::SchemaRefusal;

const MEDIA: &str = "application/vnd.schemaregistry.v1+json";

/// The state that the handlers share.
pub(super) struct Registry {
    store: Store,
    /// The level if none was set.
    level: Compatibility,
    /// Held from the check of a change until it is stored.
    changing: Mutex<()>,
}

type Shared = State<Arc<Registry>>;
type Answer<T> = Result<Media<T>, SchemaRefusal>;

/// A response in the media type of the protocol.
struct Media<T>(T);

impl<T: Serialize> IntoResponse for Media<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(body) => ([(CONTENT_TYPE, MEDIA)], body).into_response(),
            Err(error) => SchemaRefusal::failed(error.to_string()).into_response(),
        }
    }
}

/// Creates the router with all paths of the protocol.
pub(super) fn router(store: Store, compatibility: Compatibility) -> Router {
    Router::from(paths()).method_not_allowed_fallback(refusal::no_such_method).with_state(Arc::new(Registry {
        store,
        level: compatibility,
        changing: Mutex::default(),
    }))
}

pub(super) fn paths() -> OpenApiRouter<Arc<Registry>> {
    OpenApiRouter::new()
        .routes(routes!(subjects))
        .routes(routes!(look_up, deletion::delete_subject))
        .routes(routes!(versions, register))
        .routes(routes!(version, deletion::delete_version))
        .routes(routes!(version_text))
        .routes(routes!(referenced_by))
        .routes(routes!(ids::types))
        .routes(routes!(ids::by_id))
        .routes(routes!(ids::text_by_id))
        .routes(routes!(ids::subjects_of))
        .routes(routes!(ids::versions_of))
        .routes(routes!(check_all))
        .routes(routes!(check_one))
        .routes(routes!(level::level, level::set_level, level::delete_level))
        .routes(routes!(level::subject_level, level::set_subject_level, level::delete_subject_level))
        .routes(routes!(mode::mode, mode::set_mode))
        .routes(routes!(mode::subject_mode, mode::set_subject_mode))
}

/// A schema in a request body.
#[derive(Deserialize, ToSchema)]
#[schema(as = SchemaGiven, example = json!({ "schema": "{\"type\":\"string\"}", "schemaType": "AVRO" }))]
struct SchemaRequest {
    /// Its text.
    #[serde(default)]
    schema: String,
    /// `AVRO`, which is also the default.
    #[serde(rename = "schemaType")]
    kind: Option<String>,
    /// The schemas whose types it uses.
    #[serde(default)]
    references: Option<Vec<Reference>>,
}

/// A version of a subject.
#[derive(Serialize, ToSchema)]
#[schema(as = SchemaVersion)]
struct SchemaVersionAnswer {
    subject: String,
    version: u32,
    id: u32,
    /// Its text.
    schema: String,
    /// Its references.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    references: Vec<Reference>,
}

/// A registered schema.
#[derive(Serialize, ToSchema)]
#[schema(as = SchemaRegistered)]
struct Registered {
    id: u32,
    version: u32,
}

/// Result of a compatibility check.
#[derive(Serialize, ToSchema)]
struct Comparison {
    is_compatible: bool,
    /// Why it is not compatible, with `verbose`.
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<Vec<String>>,
}

/// A schema of a subject.
struct SubjectSchema {
    entry: SchemaEntry,
    document: SchemaDocument,
}

impl Registry {
    /// Parses the schema in a body and loads its references.
    async fn given(&self, body: &Bytes) -> Result<SchemaDocument, SchemaRefusal> {
        let given: SchemaRequest = refusal::parse(body)?;
        if let Some(kind) = given.kind.filter(|kind| !kind.eq_ignore_ascii_case("AVRO")) {
            return Err(SchemaRefusal::invalid(format!("schema type {kind:?} is not supported: only AVRO is")));
        }
        if given.schema.trim().is_empty() {
            return Err(SchemaRefusal::invalid("empty schema"));
        }
        let text = Str::from(compact(&given.schema));
        let references = given.references.unwrap_or_default();
        if references.is_empty() {
            return Ok(SchemaDocument::alone(text));
        }
        if references.len() > MOST_REFERENCES {
            return Err(SchemaRefusal::invalid(format!("the schema refers to more than {MOST_REFERENCES} schemas")));
        }
        let mut others = Vec::with_capacity(references.len());
        for Reference { name, subject, version } in &references {
            let missing = || {
                let what = format!(
                    "the schema refers to version {version} of subject {subject:?} ({name}), which does not exist"
                );
                SchemaRefusal::invalid(what)
            };
            let version = SchemaVersion::new(*version).ok_or_else(missing)?;
            let entry = self.entry(&subject.as_str().into(), version).await?.filter(|entry| !entry.deleted);
            others.push(self.store.document(entry.ok_or_else(missing)?.id).await?.whole);
        }
        // The time of parsing grows with the size of the schemas.
        let inlined = TEXTS.run(move || {
            let others: Vec<&str> = others.iter().map(Str::as_str).collect();
            anabranch_ops_avro::inline::inline(&text, &others).map(|whole| (text, whole))
        });
        let inlined = inlined.await.ok_or_else(|| SchemaRefusal::failed("the parser of schemas panicked"))?;
        let (text, whole) = inlined.map_err(SchemaRefusal::invalid)?;
        Ok(SchemaDocument { text, references, whole: whole.into() })
    }

    /// Returns a version of a subject, even if it is deleted.
    async fn entry(&self, subject: &Str, version: SchemaVersion) -> Result<Option<SchemaEntry>, SchemaError> {
        Ok(self.store.entries(subject).await?.into_iter().find(|entry| entry.version == version))
    }

    /// Returns the versions of a subject that the query selects.
    async fn entries(&self, subject: &Str, query: &Query) -> Result<Vec<SchemaEntry>, SchemaRefusal> {
        let mut entries = self.store.entries(subject).await?;
        entries.retain(|entry| wanted(entry.deleted, query));
        if entries.is_empty() { Err(SchemaError::SubjectNotFound(subject.clone()).into()) } else { Ok(entries) }
    }

    /// Returns the version that a path names: a number, or the latest.
    async fn version(&self, subject: &Str, text: &str, query: &Query) -> Result<SubjectSchema, SchemaRefusal> {
        let entries = match text {
            "latest" | "-1" => self.entries(subject, query).await.map(|mut entries| entries.pop()),
            number => {
                let version = number.parse().map_err(|_| SchemaRefusal::invalid_version(number))?;
                let entries = self.entries(subject, query).await;
                entries.map(|entries| entries.into_iter().find(|entry| entry.version == version))
            }
        };
        let entry = entries?.ok_or_else(|| match text.parse() {
            Ok(version) => SchemaError::VersionNotFound { subject: subject.clone(), version }.into(),
            Err(_) => SchemaRefusal::from(SchemaError::SubjectNotFound(subject.clone())),
        })?;
        Ok(SubjectSchema { entry, document: self.store.document(entry.id).await? })
    }

    /// Returns the version of a subject with this schema.
    async fn find(
        &self,
        subject: &Str,
        document: &SchemaDocument,
        query: &Query,
    ) -> Result<Option<SchemaEntry>, SchemaRefusal> {
        let Some(id) = self.store.identify(document).await? else { return Ok(None) };
        let entries = self.store.entries(subject).await?;
        Ok(entries.into_iter().find(|entry| entry.id == id && wanted(entry.deleted, query)))
    }

    /// Returns the compatibility level of a subject.
    async fn level_of(&self, subject: &Str) -> Result<Compatibility, SchemaRefusal> {
        match level::set(&self.store, Some(subject)).await? {
            Some(level) => Ok(level),
            None => self.level_of_all().await,
        }
    }

    async fn level_of_all(&self) -> Result<Compatibility, SchemaRefusal> {
        Ok(level::set(&self.store, None).await?.unwrap_or(self.level))
    }

    /// Returns the violations of a compatibility level by a schema, compared with the given versions; empty if there
    /// are none.
    async fn misfits(
        &self,
        level: Compatibility,
        document: &SchemaDocument,
        entries: &[SchemaEntry],
    ) -> Result<Vec<String>, SchemaRefusal> {
        let mut earlier = Vec::with_capacity(entries.len());
        for entry in entries {
            earlier.push((entry.version, self.store.document(entry.id).await?.whole));
        }
        // The time of parsing and comparing grows with the size of the schemas.
        let whole = document.whole.clone();
        let compared = TEXTS.run(move || compatibility::misfits(level, &whole, &earlier)).await;
        compared.ok_or_else(|| SchemaRefusal::failed("the comparison of schemas panicked"))
    }
}

/// Maximum number of schemas that one may refer to.
const MOST_REFERENCES: usize = 1000;

/// Returns `true` if the query selects a version, depending on whether it is deleted.
fn wanted(deleted: bool, query: &Query) -> bool {
    let only = query.is_set("deletedOnly") || query.is_set("deleted_only");
    if only { deleted } else { !deleted || query.is_set("deleted") }
}

/// Returns the text in the requested format.
fn text_for(document: &SchemaDocument, query: &Query) -> Str {
    if query.text("format") == "resolved" { document.whole.clone() } else { document.text.clone() }
}

fn shown(subject: &Str, SubjectSchema { entry, document }: SubjectSchema, query: &Query) -> Media<SchemaVersionAnswer> {
    Media(SchemaVersionAnswer {
        subject: subject.to_string(),
        version: entry.version.get(),
        id: entry.id.get(),
        schema: text_for(&document, query).to_string(),
        references: document.references,
    })
}

/// Returns a response with the text itself, which is JSON.
fn plain(text: &Str) -> Response {
    ([(CONTENT_TYPE, MEDIA)], text.to_string()).into_response()
}

/// List subjects
#[utoipa::path(
    get, path = "/subjects", tag = "schema registry",
    params(("subjectPrefix" = Option<String>, Query, description = "Prefix of the names"),
           ("deleted" = Option<bool>, Query, description = "Include soft-deleted ones"),
           ("offset" = Option<u64>, Query, description = "Number of items to skip"), ("limit" = Option<i64>, Query, description = "Maximum number of items; negative: all")),
    responses((status = 200, description = "Names of the subjects", body = Vec<String>, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 400, description = "`400`: `offset` or `limit` is invalid", body = RegistryError)),
)]
async fn subjects(State(registry): Shared, query: Query) -> Answer<Vec<Str>> {
    let all = registry.store.subjects().await?;
    // The default of the protocol includes all contexts.
    let prefix = query.text("subjectPrefix");
    let prefix = prefix.strip_prefix(":*:").unwrap_or(prefix);
    let found = all.into_iter().filter(|(subject, deleted)| subject.starts_with(prefix) && wanted(*deleted, &query));
    Ok(Media(query.part(found)?.map(|(subject, _)| subject).collect()))
}

/// List the versions of a subject
#[utoipa::path(
    get, path = "/subjects/{subject}/versions", tag = "schema registry",
    params(("subject" = String, Path, description = "The subject"),
           ("deleted" = Option<bool>, Query, description = "Include soft-deleted ones"),
           ("offset" = Option<u64>, Query, description = "Number of items to skip"), ("limit" = Option<i64>, Query, description = "Maximum number of items; negative: all")),
    responses((status = 200, description = "Version numbers", body = Vec<u32>, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 400, description = "`400`: `offset` or `limit` is invalid", body = RegistryError),
              (status = 404, description = "`40401`: no such subject", body = RegistryError)),
)]
async fn versions(State(registry): Shared, Path(subject): Path<String>, query: Query) -> Answer<Vec<u32>> {
    let entries = registry.entries(&subject.into(), &query).await?;
    Ok(Media(query.part(entries.into_iter())?.map(|entry| entry.version.get()).collect()))
}

/// Get a version of a subject
#[utoipa::path(
    get, path = "/subjects/{subject}/versions/{version}", tag = "schema registry",
    params(("subject" = String, Path, description = "The subject"),
           ("version" = String, Path, description = "A number from 1, or `latest`"),
           ("deleted" = Option<bool>, Query, description = "Include soft-deleted ones"),
           ("format" = Option<String>, Query, description = "`resolved`: with references resolved")),
    responses((status = 200, description = "The version", body = SchemaVersionAnswer, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 404, description = "`40401`: no such subject; `40402`: no such version", body = RegistryError),
              (status = 422, description = "`42202`: invalid version", body = RegistryError)),
)]
async fn version(
    State(registry): Shared,
    Path((subject, version)): Path<(String, String)>,
    query: Query,
) -> Answer<SchemaVersionAnswer> {
    let subject = Str::from(subject);
    Ok(shown(&subject, registry.version(&subject, &version, &query).await?, &query))
}

/// Get the text of a version
#[utoipa::path(
    get, path = "/subjects/{subject}/versions/{version}/schema", tag = "schema registry",
    params(("subject" = String, Path, description = "The subject"),
           ("version" = String, Path, description = "A number from 1, or `latest`"),
           ("deleted" = Option<bool>, Query, description = "Include soft-deleted ones")),
    responses((status = 200, description = "The text of the schema", body = Value, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 404, description = "`40401`: no such subject; `40402`: no such version", body = RegistryError),
              (status = 422, description = "`42202`: invalid version", body = RegistryError)),
)]
async fn version_text(
    State(registry): Shared,
    Path((subject, version)): Path<(String, String)>,
    query: Query,
) -> Result<Response, SchemaRefusal> {
    let found = registry.version(&subject.into(), &version, &query).await?;
    Ok(plain(&text_for(&found.document, &query)))
}

/// List the schemas that refer to a version
#[utoipa::path(
    get, path = "/subjects/{subject}/versions/{version}/referencedby", tag = "schema registry",
    params(("subject" = String, Path, description = "The subject"),
           ("version" = String, Path, description = "A number from 1, or `latest`")),
    responses((status = 200, description = "Ids of the schemas", body = Vec<u32>, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 404, description = "`40401`: no such subject; `40402`: no such version", body = RegistryError),
              (status = 422, description = "`42202`: invalid version", body = RegistryError)),
)]
async fn referenced_by(
    State(registry): Shared,
    Path((subject, version)): Path<(String, String)>,
    query: Query,
) -> Answer<Vec<u32>> {
    let subject = Str::from(subject);
    let found = registry.version(&subject, &version, &query).await?;
    let ids = registry.store.referring(&subject, found.entry.version).await?;
    Ok(Media(ids.into_iter().map(SchemaId::get).collect()))
}

/// Find the version of a subject with this schema
#[utoipa::path(
    post, path = "/subjects/{subject}", tag = "schema registry",
    params(("subject" = String, Path, description = "The subject"),
           ("deleted" = Option<bool>, Query, description = "Include soft-deleted ones")),
    request_body(content = SchemaRequest, content_type = "application/vnd.schemaregistry.v1+json"),
    responses((status = 200, description = "The version", body = SchemaVersionAnswer, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 404, description = "`40401`: no such subject; `40403`: the subject does not have this schema", body = RegistryError),
              (status = 422, description = "`42201`: invalid schema", body = RegistryError)),
)]
async fn look_up(
    State(registry): Shared,
    Path(subject): Path<String>,
    query: Query,
    body: Bytes,
) -> Answer<SchemaVersionAnswer> {
    let (subject, document) = (Str::from(subject), registry.given(&body).await?);
    match registry.find(&subject, &document, &query).await? {
        Some(entry) => Ok(shown(&subject, SubjectSchema { entry, document }, &query)),
        None => {
            registry.entries(&subject, &query).await?;
            Err(SchemaError::SchemaNotFound("the subject does not have this schema".into()).into())
        }
    }
}

/// Register a schema
#[utoipa::path(
    post, path = "/subjects/{subject}/versions", tag = "schema registry",
    params(("subject" = String, Path, description = "The subject")),
    request_body(content = SchemaRequest, content_type = "application/vnd.schemaregistry.v1+json"),
    responses((status = 200, description = "Its id and version, also if it was registered before", body = Registered, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 409, description = "`409`: not compatible with earlier versions", body = RegistryError),
              (status = 422, description = "`42201`: invalid schema", body = RegistryError)),
)]
async fn register(
    State(registry): Shared,
    Path(subject): Path<String>,
    query: Query,
    body: Bytes,
) -> Answer<Registered> {
    let (subject, document) = (Str::from(subject), registry.given(&body).await?);
    let _one_at_a_time = registry.changing.lock().await;
    if let Some(known) = registry.find(&subject, &document, &query).await? {
        return Ok(Media(Registered { id: known.id.get(), version: known.version.get() }));
    }
    let level = registry.level_of(&subject).await?;
    if level != Compatibility::None {
        anabranch_ops_avro::check(&document.whole).map_err(SchemaRefusal::invalid)?;
        let mut entries = registry.store.entries(&subject).await?;
        entries.retain(|entry| !entry.deleted);
        let earlier = compatibility::concerned(level, entries);
        let misfits = registry.misfits(level, &document, &earlier).await?;
        if !misfits.is_empty() {
            return Err(SchemaRefusal::incompatible(&subject, level, &misfits));
        }
    }
    let schema = registry.store.register(&subject, &document).await?;
    Ok(Media(Registered { id: schema.id.get(), version: schema.version.get() }))
}

impl Registry {
    async fn checked(
        &self,
        level: Compatibility,
        document: &SchemaDocument,
        entries: &[SchemaEntry],
        query: &Query,
    ) -> Answer<Comparison> {
        anabranch_ops_avro::check(&document.whole).map_err(SchemaRefusal::invalid)?;
        let misfits = self.misfits(level, document, entries).await?;
        let is_compatible = misfits.is_empty();
        Ok(Media(Comparison { is_compatible, messages: query.is_set("verbose").then_some(misfits) }))
    }
}

/// Check the compatibility of a schema with the versions that the level covers
#[utoipa::path(
    post, path = "/compatibility/subjects/{subject}/versions", tag = "schema registry",
    params(("subject" = String, Path, description = "The subject"),
           ("verbose" = Option<bool>, Query, description = "Include the reasons")),
    request_body(content = SchemaRequest, content_type = "application/vnd.schemaregistry.v1+json"),
    responses((status = 200, description = "The result", body = Comparison, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 422, description = "`42201`: invalid schema", body = RegistryError)),
)]
async fn check_all(
    State(registry): Shared,
    Path(subject): Path<String>,
    query: Query,
    body: Bytes,
) -> Answer<Comparison> {
    let (subject, document) = (Str::from(subject), registry.given(&body).await?);
    // Every schema is compatible with an empty subject.
    let mut entries = registry.store.entries(&subject).await?;
    entries.retain(|entry| !entry.deleted);
    let level = registry.level_of(&subject).await?;
    registry.checked(level, &document, &compatibility::concerned(level, entries), &query).await
}

/// Check the compatibility of a schema with a version
#[utoipa::path(
    post, path = "/compatibility/subjects/{subject}/versions/{version}", tag = "schema registry",
    params(("subject" = String, Path, description = "The subject"),
           ("version" = String, Path, description = "A number from 1, or `latest`"),
           ("verbose" = Option<bool>, Query, description = "Include the reasons")),
    request_body(content = SchemaRequest, content_type = "application/vnd.schemaregistry.v1+json"),
    responses((status = 200, description = "The result", body = Comparison, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 404, description = "`40401`: no such subject; `40402`: no such version", body = RegistryError),
              (status = 422, description = "`42201`: invalid schema; `42202`: invalid version", body = RegistryError)),
)]
async fn check_one(
    State(registry): Shared,
    Path((subject, version)): Path<(String, String)>,
    query: Query,
    body: Bytes,
) -> Answer<Comparison> {
    let subject = Str::from(subject);
    let found = registry.version(&subject, &version, &query).await?;
    let document = registry.given(&body).await?;
    let level = registry.level_of(&subject).await?;
    registry.checked(level, &document, &[found.entry], &query).await
}
