//! The built-in schema registry in the way of Confluent's REST protocol, so that other tools can use it.
//!
//! It registers and reads; nothing is ever removed, because records name what there is. The compatibility level and
//! the mode are settings of the service and only read here.

mod compatibility;
mod refusal;

use std::sync::Arc;

use anabranch_graph::schema::{Schema, SchemaError, SchemaId, SchemaKind, SchemaRegistry as _, SchemaVersion};
use anabranch_graph::text::Str;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::Mutex;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::error::RegistryError;
use super::query::Query;
use crate::settings::Compatibility;
use crate::store::Store;
use compatibility::compact;
use refusal::Refusal;

const MEDIA: &str = "application/vnd.schemaregistry.v1+json";

/// What the paths share.
pub(super) struct Registry {
    store: Store,
    level: Compatibility,
    /// Held from the check of a schema until it is registered.
    registering: Mutex<()>,
}

type Shared = State<Arc<Registry>>;
type Answer<T> = Result<Media<T>, Refusal>;

/// An answer in the media type of the protocol.
struct Media<T>(T);

impl<T: Serialize> IntoResponse for Media<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(body) => ([(CONTENT_TYPE, MEDIA)], body).into_response(),
            Err(error) => Refusal::failed(error.to_string()).into_response(),
        }
    }
}

/// All paths of the protocol.
pub(super) fn router(store: Store, compatibility: Compatibility) -> Router {
    Router::from(paths()).method_not_allowed_fallback(refusal::no_such_method).with_state(Arc::new(Registry {
        store,
        level: compatibility,
        registering: Mutex::default(),
    }))
}

pub(super) fn paths() -> OpenApiRouter<Arc<Registry>> {
    OpenApiRouter::new()
        .routes(routes!(subjects))
        .routes(routes!(look_up))
        .routes(routes!(versions, register))
        .routes(routes!(version))
        .routes(routes!(version_text))
        .routes(routes!(referenced_by))
        .routes(routes!(types))
        .routes(routes!(by_id))
        .routes(routes!(text_by_id))
        .routes(routes!(subjects_of))
        .routes(routes!(versions_of))
        .routes(routes!(check_all))
        .routes(routes!(check_one))
        .routes(routes!(level, set_level))
        .routes(routes!(subject_level, set_subject_level))
        .routes(routes!(mode, set_mode))
        .routes(routes!(subject_mode, set_subject_mode))
}

/// A schema that comes in a body.
#[derive(Deserialize, ToSchema)]
#[schema(as = SchemaGiven, example = json!({ "schema": "{\"type\":\"string\"}", "schemaType": "AVRO" }))]
struct Given {
    /// Its text.
    #[serde(default)]
    schema: String,
    /// `AVRO`, which it also is where nothing is said.
    #[serde(rename = "schemaType")]
    kind: Option<String>,
    /// Must be empty: schemas do not refer to each other here.
    #[serde(default)]
    references: Option<Vec<Value>>,
}

/// A version of a subject.
#[derive(Serialize, ToSchema)]
#[schema(as = SchemaVersion)]
struct Shown {
    subject: String,
    version: u32,
    id: u32,
    /// Its text.
    schema: String,
}

/// A schema that is registered.
#[derive(Serialize, ToSchema)]
#[schema(as = SchemaRegistered)]
struct Registered {
    id: u32,
    version: u32,
}

/// A schema without where it is used.
#[derive(Serialize, ToSchema)]
#[schema(as = SchemaText)]
struct Text {
    /// Its text.
    schema: String,
}

/// Where a schema is used.
#[derive(Serialize, ToSchema)]
#[schema(as = SchemaUse)]
struct Use {
    subject: String,
    version: u32,
}

/// Whether a schema can stand beside earlier ones.
#[derive(Serialize, ToSchema)]
struct Comparison {
    is_compatible: bool,
    /// Why not, with `verbose`.
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<Vec<String>>,
}

/// The text of the schema in a body.
fn given(body: &Bytes) -> Result<Str, Refusal> {
    let given: Given = refusal::parse(body)?;
    if let Some(kind) = given.kind.filter(|kind| !kind.eq_ignore_ascii_case("AVRO")) {
        return Err(Refusal::invalid(format!("schema type {kind:?}: only AVRO is understood")));
    }
    if given.references.is_some_and(|references| !references.is_empty()) {
        return Err(Refusal::invalid("references to other schemas are not supported"));
    }
    if given.schema.trim().is_empty() {
        return Err(Refusal::invalid("empty schema"));
    }
    Ok(compact(&given.schema).into())
}

impl Registry {
    /// The version that a path names: a number, or the latest.
    async fn version(&self, subject: &Str, text: &str) -> Result<Arc<Schema>, Refusal> {
        let version = match text {
            "latest" | "-1" => self.latest(subject).await?,
            number => number.parse().map_err(|_| Refusal::invalid_version(number))?,
        };
        Ok(self.store.get(subject, version).await?)
    }

    async fn latest(&self, subject: &Str) -> Result<SchemaVersion, SchemaError> {
        let versions = self.store.versions(subject).await?;
        versions.last().copied().ok_or_else(|| SchemaError::SubjectNotFound(subject.clone()))
    }

    /// What keeps a schema from being read as the level asks, next to these versions; empty: nothing.
    async fn misfits(&self, text: &Str, subject: &Str, versions: &[SchemaVersion]) -> Result<Vec<String>, Refusal> {
        let mut earlier = Vec::with_capacity(versions.len());
        for version in versions {
            earlier.push(self.store.get(subject, *version).await?);
        }
        let level = self.level;
        // Parsing and comparing takes as long as the schemas are large.
        let (text, earlier) = (text.clone(), earlier);
        let compared = tokio::task::spawn_blocking(move || compatibility::misfits(level, &text, &earlier)).await;
        compared.map_err(|_| Refusal::failed("the comparison of schemas panicked"))
    }
}

fn shown(schema: &Schema) -> Media<Shown> {
    Media(Shown {
        subject: schema.subject.to_string(),
        version: schema.version.get(),
        id: schema.id.get(),
        schema: schema.text.to_string(),
    })
}

/// The text itself, which is JSON.
fn plain(text: &Str) -> Response {
    ([(CONTENT_TYPE, MEDIA)], text.to_string()).into_response()
}

/// All subjects
#[utoipa::path(
    get, path = "/subjects", tag = "schema registry",
    params(("subjectPrefix" = Option<String>, Query, description = "How they begin"),
           ("offset" = Option<u64>, Query, description = "How many to leave out"), ("limit" = Option<i64>, Query, description = "How many at most; negative: all")),
    responses((status = 200, description = "Their names", body = Vec<String>, content_type = "application/vnd.schemaregistry.v1+json")),
)]
async fn subjects(State(registry): Shared, query: Query) -> Answer<Vec<Str>> {
    let all = registry.store.subjects().await?;
    // The default of the protocol names all contexts.
    let prefix = query.text("subjectPrefix");
    let prefix = prefix.strip_prefix(":*:").unwrap_or(prefix);
    let found = all.into_iter().filter(|subject| subject.starts_with(prefix));
    Ok(Media(query.part(found).collect()))
}

/// The versions of a subject
#[utoipa::path(
    get, path = "/subjects/{subject}/versions", tag = "schema registry",
    params(("subject" = String, Path, description = "The subject"),
           ("offset" = Option<u64>, Query, description = "How many to leave out"), ("limit" = Option<i64>, Query, description = "How many at most; negative: all")),
    responses((status = 200, description = "Their numbers", body = Vec<u32>, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 404, description = "`40401`: no such subject", body = RegistryError)),
)]
async fn versions(State(registry): Shared, Path(subject): Path<String>, query: Query) -> Answer<Vec<u32>> {
    let versions = registry.store.versions(&subject.into()).await?;
    Ok(Media(query.part(versions.into_iter()).map(SchemaVersion::get).collect()))
}

/// A version of a subject
#[utoipa::path(
    get, path = "/subjects/{subject}/versions/{version}", tag = "schema registry",
    params(("subject" = String, Path, description = "The subject"),
           ("version" = String, Path, description = "A number from 1, or `latest`")),
    responses((status = 200, description = "It", body = Shown, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 404, description = "`40401`: no such subject; `40402`: no such version", body = RegistryError),
              (status = 422, description = "`42202`: no version", body = RegistryError)),
)]
async fn version(State(registry): Shared, Path((subject, version)): Path<(String, String)>) -> Answer<Shown> {
    Ok(shown(&*registry.version(&subject.into(), &version).await?))
}

/// The text of a version
#[utoipa::path(
    get, path = "/subjects/{subject}/versions/{version}/schema", tag = "schema registry",
    params(("subject" = String, Path, description = "The subject"),
           ("version" = String, Path, description = "A number from 1, or `latest`")),
    responses((status = 200, description = "The schema itself", body = Value, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 404, description = "`40401`: no such subject; `40402`: no such version", body = RegistryError),
              (status = 422, description = "`42202`: no version", body = RegistryError)),
)]
async fn version_text(
    State(registry): Shared,
    Path((subject, version)): Path<(String, String)>,
) -> Result<Response, Refusal> {
    Ok(plain(&registry.version(&subject.into(), &version).await?.text))
}

/// The schemas that refer to a version
#[utoipa::path(
    get, path = "/subjects/{subject}/versions/{version}/referencedby", tag = "schema registry",
    params(("subject" = String, Path, description = "The subject"),
           ("version" = String, Path, description = "A number from 1, or `latest`")),
    responses((status = 200, description = "None: schemas do not refer to each other", body = Vec<u32>, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 404, description = "`40401`: no such subject; `40402`: no such version", body = RegistryError),
              (status = 422, description = "`42202`: no version", body = RegistryError)),
)]
async fn referenced_by(State(registry): Shared, Path((subject, version)): Path<(String, String)>) -> Answer<[u32; 0]> {
    registry.version(&subject.into(), &version).await?;
    Ok(Media([]))
}

/// The version of a subject that has this schema
#[utoipa::path(
    post, path = "/subjects/{subject}", tag = "schema registry",
    params(("subject" = String, Path, description = "The subject")),
    request_body(content = Given, content_type = "application/vnd.schemaregistry.v1+json"),
    responses((status = 200, description = "It", body = Shown, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 404, description = "`40401`: no such subject; `40403`: it has no such schema", body = RegistryError),
              (status = 422, description = "`42201`: no schema that is understood", body = RegistryError)),
)]
async fn look_up(State(registry): Shared, Path(subject): Path<String>, body: Bytes) -> Answer<Shown> {
    let (subject, text) = (Str::from(subject), given(&body)?);
    match registry.store.find(&subject, &text).await? {
        Some(schema) => Ok(shown(&schema)),
        None => {
            registry.store.versions(&subject).await?;
            Err(SchemaError::SchemaNotFound("the subject has no such schema".into()).into())
        }
    }
}

/// Register a schema
#[utoipa::path(
    post, path = "/subjects/{subject}/versions", tag = "schema registry",
    params(("subject" = String, Path, description = "The subject")),
    request_body(content = Given, content_type = "application/vnd.schemaregistry.v1+json"),
    responses((status = 200, description = "What it is known by, also if it was registered before", body = Registered, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 409, description = "`409`: it does not go with earlier versions", body = RegistryError),
              (status = 422, description = "`42201`: no schema that is understood", body = RegistryError)),
)]
async fn register(State(registry): Shared, Path(subject): Path<String>, body: Bytes) -> Answer<Registered> {
    let (subject, text) = (Str::from(subject), given(&body)?);
    let _one_at_a_time = registry.registering.lock().await;
    let known = registry.store.find(&subject, &text).await?;
    if known.is_none() && registry.level != Compatibility::None {
        anabranch_ops_avro::check(&text).map_err(Refusal::invalid)?;
        let earlier = match registry.store.versions(&subject).await {
            Ok(versions) => compatibility::concerned(registry.level, versions),
            Err(SchemaError::SubjectNotFound(_)) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        let misfits = registry.misfits(&text, &subject, &earlier).await?;
        if !misfits.is_empty() {
            return Err(Refusal::incompatible(&subject, registry.level, &misfits));
        }
    }
    let schema = match known {
        Some(schema) => schema,
        None => registry.store.create(&subject, SchemaKind::Avro, &text).await?,
    };
    Ok(Media(Registered { id: schema.id.get(), version: schema.version.get() }))
}

/// The kinds of schemas that are understood
#[utoipa::path(
    get, path = "/schemas/types", tag = "schema registry",
    responses((status = 200, description = "`AVRO`", body = Vec<String>, content_type = "application/vnd.schemaregistry.v1+json")),
)]
async fn types() -> Media<[&'static str; 1]> {
    Media(["AVRO"])
}

fn id(text: &str) -> Result<SchemaId, Refusal> {
    // What is no id is the id of nothing.
    text.parse().map_err(|_| SchemaError::SchemaNotFound(format!("id {text}").into()).into())
}

/// A schema by its number
#[utoipa::path(
    get, path = "/schemas/ids/{id}", tag = "schema registry",
    params(("id" = String, Path, description = "Its number from 1")),
    responses((status = 200, description = "It", body = Text, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 404, description = "`40403`: no such schema", body = RegistryError)),
)]
async fn by_id(State(registry): Shared, Path(text): Path<String>) -> Answer<Text> {
    let definition = registry.store.by_id(id(&text)?).await?;
    Ok(Media(Text { schema: definition.text.to_string() }))
}

/// The text of a schema by its number
#[utoipa::path(
    get, path = "/schemas/ids/{id}/schema", tag = "schema registry",
    params(("id" = String, Path, description = "Its number from 1")),
    responses((status = 200, description = "The schema itself", body = Value, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 404, description = "`40403`: no such schema", body = RegistryError)),
)]
async fn text_by_id(State(registry): Shared, Path(text): Path<String>) -> Result<Response, Refusal> {
    Ok(plain(&registry.store.by_id(id(&text)?).await?.text))
}

/// The subjects that have a schema
#[utoipa::path(
    get, path = "/schemas/ids/{id}/subjects", tag = "schema registry",
    params(("id" = String, Path, description = "Its number from 1")),
    responses((status = 200, description = "Their names", body = Vec<String>, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 404, description = "`40403`: no such schema", body = RegistryError)),
)]
async fn subjects_of(State(registry): Shared, Path(text): Path<String>) -> Answer<Vec<Str>> {
    let mut subjects: Vec<Str> = registry.uses(&text).await?.into_iter().map(|(subject, _)| subject).collect();
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
async fn versions_of(State(registry): Shared, Path(text): Path<String>) -> Answer<Vec<Use>> {
    let uses = registry.uses(&text).await?.into_iter();
    Ok(Media(uses.map(|(subject, version)| Use { subject: subject.to_string(), version: version.get() }).collect()))
}

impl Registry {
    async fn uses(&self, text: &str) -> Result<Vec<(Str, SchemaVersion)>, Refusal> {
        let id = id(text)?;
        self.store.by_id(id).await?;
        Ok(self.store.uses(id).await?)
    }

    async fn checked(
        &self,
        subject: &Str,
        versions: &[SchemaVersion],
        body: &Bytes,
        query: &Query,
    ) -> Answer<Comparison> {
        let text = given(body)?;
        anabranch_ops_avro::check(&text).map_err(Refusal::invalid)?;
        let misfits = self.misfits(&text, subject, versions).await?;
        let is_compatible = misfits.is_empty();
        Ok(Media(Comparison { is_compatible, messages: query.is_set("verbose").then_some(misfits) }))
    }
}

/// Whether a schema goes with the versions that the level is about
#[utoipa::path(
    post, path = "/compatibility/subjects/{subject}/versions", tag = "schema registry",
    params(("subject" = String, Path, description = "The subject"),
           ("verbose" = Option<bool>, Query, description = "Say why not")),
    request_body(content = Given, content_type = "application/vnd.schemaregistry.v1+json"),
    responses((status = 200, description = "Whether it does", body = Comparison, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 422, description = "`42201`: no schema that is understood", body = RegistryError)),
)]
async fn check_all(
    State(registry): Shared,
    Path(subject): Path<String>,
    query: Query,
    body: Bytes,
) -> Answer<Comparison> {
    let subject = Str::from(subject);
    let versions = match registry.store.versions(&subject).await {
        Ok(versions) => compatibility::concerned(registry.level, versions),
        // Anything goes with nothing.
        Err(SchemaError::SubjectNotFound(_)) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    registry.checked(&subject, &versions, &body, &query).await
}

/// Whether a schema goes with a version
#[utoipa::path(
    post, path = "/compatibility/subjects/{subject}/versions/{version}", tag = "schema registry",
    params(("subject" = String, Path, description = "The subject"),
           ("version" = String, Path, description = "A number from 1, or `latest`"),
           ("verbose" = Option<bool>, Query, description = "Say why not")),
    request_body(content = Given, content_type = "application/vnd.schemaregistry.v1+json"),
    responses((status = 200, description = "Whether it does", body = Comparison, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 404, description = "`40401`: no such subject; `40402`: no such version", body = RegistryError),
              (status = 422, description = "`42201`: no schema that is understood; `42202`: no version", body = RegistryError)),
)]
async fn check_one(
    State(registry): Shared,
    Path((subject, version)): Path<(String, String)>,
    query: Query,
    body: Bytes,
) -> Answer<Comparison> {
    let subject = Str::from(subject);
    let version = registry.version(&subject, &version).await?.version;
    registry.checked(&subject, &[version], &body, &query).await
}

/// The compatibility level of all subjects.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct CompatibilityLevel {
    compatibility_level: &'static str,
}

/// A level that somebody asks for, or that is so.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(as = CompatibilityAsked)]
struct Level {
    #[serde(default)]
    compatibility: String,
}

/// Whether the registry can be written.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(as = RegistryMode)]
struct Mode {
    /// `READWRITE`
    #[serde(default)]
    mode: String,
}

impl Mode {
    fn only() -> Media<Mode> {
        Media(Mode { mode: "READWRITE".to_owned() })
    }
}

/// The compatibility level
#[utoipa::path(
    get, path = "/config", tag = "schema registry",
    responses((status = 200, description = "The level of all subjects", body = CompatibilityLevel, content_type = "application/vnd.schemaregistry.v1+json")),
)]
async fn level(State(registry): Shared) -> Media<CompatibilityLevel> {
    Media(CompatibilityLevel { compatibility_level: registry.level.as_str() })
}

/// The compatibility level of a subject
#[utoipa::path(
    get, path = "/config/{subject}", tag = "schema registry",
    params(("subject" = String, Path, description = "The subject"),
           ("defaultToGlobal" = Option<bool>, Query, description = "Answer the level of all subjects")),
    responses((status = 200, description = "The level of all subjects", body = CompatibilityLevel, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 404, description = "`40408`: no subject has a level of its own", body = RegistryError)),
)]
async fn subject_level(
    State(registry): Shared,
    Path(subject): Path<String>,
    query: Query,
) -> Answer<CompatibilityLevel> {
    if query.is_set("defaultToGlobal") {
        return Ok(level(State(registry)).await);
    }
    Err(Refusal::no_level_of(&subject))
}

/// Whether the registry can be written
#[utoipa::path(
    get, path = "/mode", tag = "schema registry",
    responses((status = 200, description = "It can", body = Mode, content_type = "application/vnd.schemaregistry.v1+json")),
)]
async fn mode() -> Media<Mode> {
    Mode::only()
}

/// Whether a subject can be written
#[utoipa::path(
    get, path = "/mode/{subject}", tag = "schema registry",
    params(("subject" = String, Path, description = "The subject"),
           ("defaultToGlobal" = Option<bool>, Query, description = "Answer for all subjects")),
    responses((status = 200, description = "It can", body = Mode, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 404, description = "`40409`: no subject has a mode of its own", body = RegistryError)),
)]
async fn subject_mode(Path(subject): Path<String>, query: Query) -> Answer<Mode> {
    if query.is_set("defaultToGlobal") {
        return Ok(mode().await);
    }
    Err(Refusal::no_mode_of(&subject))
}

/// Set the compatibility level
///
/// Says yes to who asks for what is so: clients do when they make a subject.
#[utoipa::path(
    put, path = "/config", tag = "schema registry",
    request_body(content = Level, content_type = "application/vnd.schemaregistry.v1+json"),
    responses((status = 200, description = "It is so", body = Level, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 422, description = "`42203`: it is another one, which is a setting of the service", body = RegistryError)),
)]
async fn set_level(State(registry): Shared, body: Bytes) -> Answer<Level> {
    let Level { compatibility } = refusal::parse(&body)?;
    if compatibility.eq_ignore_ascii_case(registry.level.as_str()) {
        return Ok(Media(Level { compatibility: registry.level.as_str().to_owned() }));
    }
    Err(Refusal::fixed_level(registry.level))
}

/// Set the compatibility level of a subject
#[utoipa::path(
    put, path = "/config/{subject}", tag = "schema registry",
    params(("subject" = String, Path, description = "The subject")),
    request_body(content = Level, content_type = "application/vnd.schemaregistry.v1+json"),
    responses((status = 200, description = "It is so", body = Level, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 422, description = "`42203`: it is another one, which is a setting of the service", body = RegistryError)),
)]
async fn set_subject_level(registry: Shared, body: Bytes) -> Answer<Level> {
    set_level(registry, body).await
}

/// Set whether the registry can be written
#[utoipa::path(
    put, path = "/mode", tag = "schema registry",
    request_body(content = Mode, content_type = "application/vnd.schemaregistry.v1+json"),
    responses((status = 200, description = "It is so", body = Mode, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 422, description = "`42204`: it always can", body = RegistryError)),
)]
async fn set_mode(body: Bytes) -> Answer<Mode> {
    let Mode { mode } = refusal::parse(&body)?;
    if mode.eq_ignore_ascii_case("READWRITE") {
        return Ok(Mode::only());
    }
    Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, 42204, "the mode of this registry is always READWRITE"))
}

/// Set whether a subject can be written
#[utoipa::path(
    put, path = "/mode/{subject}", tag = "schema registry",
    params(("subject" = String, Path, description = "The subject")),
    request_body(content = Mode, content_type = "application/vnd.schemaregistry.v1+json"),
    responses((status = 200, description = "It is so", body = Mode, content_type = "application/vnd.schemaregistry.v1+json"),
              (status = 422, description = "`42204`: it always can", body = RegistryError)),
)]
async fn set_subject_mode(body: Bytes) -> Answer<Mode> {
    set_mode(body).await
}
