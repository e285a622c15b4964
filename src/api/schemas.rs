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
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::query::Query;
use crate::settings::Compatibility;
use crate::store::Store;
use compatibility::compact;
use refusal::Refusal;

const MEDIA: &str = "application/vnd.schemaregistry.v1+json";

/// What the paths share.
struct Registry {
    store: Store,
    level: Compatibility,
    /// Held from the check of a schema until it is registered.
    registering: Mutex<()>,
}

type Shared = State<Arc<Registry>>;
type Answer = Result<Media, Refusal>;

/// An answer in the media type of the protocol.
struct Media(Value);

impl IntoResponse for Media {
    fn into_response(self) -> Response {
        ([(CONTENT_TYPE, MEDIA)], self.0.to_string()).into_response()
    }
}

/// All paths of the protocol.
pub(super) fn router(store: Store, compatibility: Compatibility) -> Router {
    Router::new()
        .route("/subjects", get(subjects))
        .route("/subjects/{subject}", post(look_up))
        .route("/subjects/{subject}/versions", get(versions).post(register))
        .route("/subjects/{subject}/versions/{version}", get(version))
        .route("/subjects/{subject}/versions/{version}/schema", get(version_text))
        .route("/subjects/{subject}/versions/{version}/referencedby", get(referenced_by))
        .route("/schemas/types", get(types))
        .route("/schemas/ids/{id}", get(by_id))
        .route("/schemas/ids/{id}/schema", get(text_by_id))
        .route("/schemas/ids/{id}/subjects", get(subjects_of))
        .route("/schemas/ids/{id}/versions", get(versions_of))
        .route("/compatibility/subjects/{subject}/versions", post(check_all))
        .route("/compatibility/subjects/{subject}/versions/{version}", post(check_one))
        .route("/config", get(level).put(set_level))
        .route("/config/{subject}", get(subject_level).put(set_level))
        .route("/mode", get(mode).put(set_mode))
        .route("/mode/{subject}", get(subject_mode).put(set_mode))
        .method_not_allowed_fallback(refusal::no_such_method)
        .with_state(Arc::new(Registry { store, level: compatibility, registering: Mutex::default() }))
}

/// A schema that comes in a body.
#[derive(Deserialize)]
struct Given {
    #[serde(default)]
    schema: String,
    #[serde(rename = "schemaType")]
    kind: Option<String>,
    #[serde(default)]
    references: Option<Vec<Value>>,
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

fn shown(schema: &Schema) -> Media {
    Media(json!({
        "subject": schema.subject, "version": schema.version.get(), "id": schema.id.get(), "schema": schema.text,
    }))
}

/// The text itself, which is JSON.
fn plain(text: &Str) -> Response {
    ([(CONTENT_TYPE, MEDIA)], text.to_string()).into_response()
}

async fn subjects(State(registry): Shared, query: Query) -> Answer {
    let all = registry.store.subjects().await?;
    // The default of the protocol names all contexts.
    let prefix = query.text("subjectPrefix");
    let prefix = prefix.strip_prefix(":*:").unwrap_or(prefix);
    let found = all.into_iter().filter(|subject| subject.starts_with(prefix));
    Ok(Media(query.part(found).map(|subject| json!(subject)).collect()))
}

async fn versions(State(registry): Shared, Path(subject): Path<String>, query: Query) -> Answer {
    let versions = registry.store.versions(&subject.into()).await?;
    Ok(Media(query.part(versions.into_iter()).map(|version| json!(version.get())).collect()))
}

async fn version(State(registry): Shared, Path((subject, version)): Path<(String, String)>) -> Answer {
    Ok(shown(&*registry.version(&subject.into(), &version).await?))
}

async fn version_text(
    State(registry): Shared,
    Path((subject, version)): Path<(String, String)>,
) -> Result<Response, Refusal> {
    Ok(plain(&registry.version(&subject.into(), &version).await?.text))
}

/// Schemas do not refer to each other.
async fn referenced_by(State(registry): Shared, Path((subject, version)): Path<(String, String)>) -> Answer {
    registry.version(&subject.into(), &version).await?;
    Ok(Media(json!([])))
}

async fn look_up(State(registry): Shared, Path(subject): Path<String>, body: Bytes) -> Answer {
    let (subject, text) = (Str::from(subject), given(&body)?);
    match registry.store.find(&subject, &text).await? {
        Some(schema) => Ok(shown(&schema)),
        None => {
            registry.store.versions(&subject).await?;
            Err(SchemaError::SchemaNotFound("the subject has no such schema".into()).into())
        }
    }
}

async fn register(State(registry): Shared, Path(subject): Path<String>, body: Bytes) -> Answer {
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
    Ok(Media(json!({ "id": schema.id.get(), "version": schema.version.get() })))
}

async fn types() -> Media {
    Media(json!(["AVRO"]))
}

fn id(text: &str) -> Result<SchemaId, Refusal> {
    // What is no id is the id of nothing.
    text.parse().map_err(|_| SchemaError::SchemaNotFound(format!("id {text}").into()).into())
}

async fn by_id(State(registry): Shared, Path(text): Path<String>) -> Answer {
    let definition = registry.store.by_id(id(&text)?).await?;
    Ok(Media(json!({ "schema": definition.text })))
}

async fn text_by_id(State(registry): Shared, Path(text): Path<String>) -> Result<Response, Refusal> {
    Ok(plain(&registry.store.by_id(id(&text)?).await?.text))
}

async fn subjects_of(State(registry): Shared, Path(text): Path<String>) -> Answer {
    let mut subjects: Vec<Str> = registry.uses(&text).await?.into_iter().map(|(subject, _)| subject).collect();
    subjects.dedup();
    Ok(Media(json!(subjects)))
}

async fn versions_of(State(registry): Shared, Path(text): Path<String>) -> Answer {
    let uses = registry.uses(&text).await?.into_iter();
    Ok(Media(uses.map(|(subject, version)| json!({ "subject": subject, "version": version.get() })).collect()))
}

impl Registry {
    async fn uses(&self, text: &str) -> Result<Vec<(Str, SchemaVersion)>, Refusal> {
        let id = id(text)?;
        self.store.by_id(id).await?;
        Ok(self.store.uses(id).await?)
    }

    async fn checked(&self, subject: &Str, versions: &[SchemaVersion], body: &Bytes, query: &Query) -> Answer {
        let text = given(body)?;
        anabranch_ops_avro::check(&text).map_err(Refusal::invalid)?;
        let misfits = self.misfits(&text, subject, versions).await?;
        let mut answer = json!({ "is_compatible": misfits.is_empty() });
        if query.is_set("verbose") {
            answer["messages"] = json!(misfits);
        }
        Ok(Media(answer))
    }
}

/// With those versions that the level is about.
async fn check_all(State(registry): Shared, Path(subject): Path<String>, query: Query, body: Bytes) -> Answer {
    let subject = Str::from(subject);
    let versions = match registry.store.versions(&subject).await {
        Ok(versions) => compatibility::concerned(registry.level, versions),
        // Anything goes with nothing.
        Err(SchemaError::SubjectNotFound(_)) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    registry.checked(&subject, &versions, &body, &query).await
}

async fn check_one(
    State(registry): Shared,
    Path((subject, version)): Path<(String, String)>,
    query: Query,
    body: Bytes,
) -> Answer {
    let subject = Str::from(subject);
    let version = registry.version(&subject, &version).await?.version;
    registry.checked(&subject, &[version], &body, &query).await
}

async fn level(State(registry): Shared) -> Media {
    Media(json!({ "compatibilityLevel": registry.level.as_str() }))
}

async fn subject_level(State(registry): Shared, Path(subject): Path<String>, query: Query) -> Answer {
    if query.is_set("defaultToGlobal") {
        return Ok(level(State(registry)).await);
    }
    Err(Refusal::no_level_of(&subject))
}

async fn mode() -> Media {
    Media(json!({ "mode": "READWRITE" }))
}

async fn subject_mode(Path(subject): Path<String>, query: Query) -> Answer {
    if query.is_set("defaultToGlobal") {
        return Ok(mode().await);
    }
    Err(Refusal::no_mode_of(&subject))
}

#[derive(Deserialize)]
struct Level {
    #[serde(default)]
    compatibility: String,
}

/// Says yes to who asks for what is so: clients do when they make a subject.
async fn set_level(State(registry): Shared, body: Bytes) -> Answer {
    let Level { compatibility } = refusal::parse(&body)?;
    if compatibility.eq_ignore_ascii_case(registry.level.as_str()) {
        return Ok(Media(json!({ "compatibility": registry.level.as_str() })));
    }
    Err(Refusal::fixed_level(registry.level))
}

#[derive(Deserialize)]
struct Mode {
    #[serde(default)]
    mode: String,
}

async fn set_mode(body: Bytes) -> Answer {
    let Mode { mode } = refusal::parse(&body)?;
    if mode.eq_ignore_ascii_case("READWRITE") {
        return Ok(Media(json!({ "mode": "READWRITE" })));
    }
    Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, 42204, "the mode of this registry is always READWRITE"))
}
