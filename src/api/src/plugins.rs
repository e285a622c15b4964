//! Endpoints about the program and the plugins that it can use.

use std::collections::BTreeMap;
use std::sync::Arc;

use anabranch_plugin::registry::Registry;
use anabranch_plugin::specification::{self, ParameterKind, Specification};
use anabranch_process::runtime::TEXTS;
use anabranch_service::control::ControlError;
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::ApiError;
use crate::query::Query;
use crate::view::View;

type Shared = State<Arc<View>>;

pub(super) fn router() -> OpenApiRouter<Arc<View>> {
    OpenApiRouter::new()
        .routes(routes!(info))
        .routes(routes!(v1_info))
        .routes(routes!(plugins))
        .routes(routes!(connectors))
        .routes(routes!(processors))
}

/// The program.
#[derive(Serialize, ToSchema)]
struct Info {
    version: &'static str,
    /// The operating system that it was built for.
    os: &'static str,
    /// The architecture that it was built for.
    arch: &'static str,
    /// True if the service is a node of a cluster; absent otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cluster: bool,
}

/// A connector plugin.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ConnectorPlugin {
    /// The full name: `builtin:file@v0.1.0`
    name: String,
    summary: String,
    description: String,
    version: String,
    author: String,
    /// Parameters of its source; empty if it has no source.
    source_params: BTreeMap<String, Parameter>,
    /// Parameters of its destination; empty if it has no destination.
    destination_params: BTreeMap<String, Parameter>,
}

/// A processor plugin.
#[derive(Serialize, ToSchema)]
struct ProcessorPlugin {
    /// The full name: `builtin:split@v0.1.0`
    name: String,
    summary: String,
    description: String,
    version: String,
    author: String,
    parameters: BTreeMap<String, Parameter>,
}

/// A parameter of a plugin.
#[derive(Serialize, ToSchema)]
struct Parameter {
    description: String,
    /// Default value; empty: none.
    default: String,
    #[serde(rename = "type")]
    kind: ParameterType,
    validations: Vec<Validation>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[expect(clippy::enum_variant_names, reason = "as it is written")]
enum ParameterType {
    TypeString,
    TypeInt,
    TypeFloat,
    TypeBool,
    TypeDuration,
    TypeFile,
}

/// A rule for a value.
#[derive(Serialize, ToSchema)]
struct Validation {
    #[serde(rename = "type")]
    kind: ValidationType,
    /// The limit, the comma-separated values, or the regular expression.
    value: String,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[expect(clippy::enum_variant_names, reason = "as it is written")]
enum ValidationType {
    TypeRequired,
    TypeGreaterThan,
    TypeLessThan,
    TypeInclusion,
    TypeExclusion,
    TypeRegex,
}

/// Get the version of the program
#[utoipa::path(
    get, path = "/info", tag = "plugins", responses((status = 200, description = "The version", body = Info)),
)]
async fn info(State(view): State<Arc<View>>) -> Json<Info> {
    let (version, os, arch) = (env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH);
    Json(Info { version, os, arch, cluster: view.peers.is_some() })
}

/// Get the version of the program
#[utoipa::path(
    get, path = "/v1/info", tag = "plugins", responses((status = 200, description = "The version", body = Info)),
)]
async fn v1_info(view: State<Arc<View>>) -> Json<Info> {
    info(view).await
}

/// List connector plugins (deprecated path)
#[utoipa::path(
    get, path = "/v1/plugins", tag = "plugins",
    params(("name" = Option<String>, Query, description = "A regular expression that must match the whole full name")),
    responses((status = 200, description = "The matching plugins", body = Vec<ConnectorPlugin>)),
)]
async fn plugins(view: Shared, query: Query) -> Result<Json<Vec<ConnectorPlugin>>, ApiError> {
    connectors(view, query).await
}

/// List connector plugins
///
/// Includes built-in plugins and those in the directory of connectors.
#[utoipa::path(
    get, path = "/v1/connectors/plugins", tag = "plugins", operation_id = "connector_plugins",
    params(("name" = Option<String>, Query, description = "A regular expression that must match the whole full name")),
    responses((status = 200, description = "The matching plugins", body = Vec<ConnectorPlugin>)),
)]
async fn connectors(State(view): Shared, query: Query) -> Result<Json<Vec<ConnectorPlugin>>, ApiError> {
    let all = looked_for(&view, connectors_of).await?;
    let matching = query.matching("name", all.keys().cloned().collect()).await?;
    let found = all.into_values().zip(matching).filter(|(_, matches)| *matches);
    Ok(Json(found.map(|(plugin, _)| plugin).collect()))
}

/// List processor plugins
///
/// Includes built-in plugins and those in the directory of processors.
#[utoipa::path(
    get, path = "/v1/processors/plugins", tag = "plugins", operation_id = "processor_plugins",
    params(("name" = Option<String>, Query, description = "A regular expression that must match the whole full name")),
    responses((status = 200, description = "The matching plugins", body = Vec<ProcessorPlugin>)),
)]
async fn processors(State(view): Shared, query: Query) -> Result<Json<Vec<ProcessorPlugin>>, ApiError> {
    let all = looked_for(&view, processors_of).await?;
    let matching = query.matching("name", all.iter().map(|plugin| plugin.name.clone()).collect()).await?;
    Ok(Json(all.into_iter().zip(matching).filter(|(_, matches)| *matches).map(|(plugin, _)| plugin).collect()))
}

/// Runs `find` on another thread: plugins that are files may have to be started or compiled.
async fn looked_for<T: Send + 'static>(
    view: &View,
    find: impl FnOnce(&Registry) -> T + Send + 'static,
) -> Result<T, ApiError> {
    let registry = view.registry.clone();
    TEXTS.run(move || find(&registry)).await.ok_or_else(|| ControlError::ServiceStopping.into())
}

fn processors_of(registry: &Registry) -> Vec<ProcessorPlugin> {
    let builtin = registry.operators().map(|kind| ("builtin", kind.specification()));
    let files = registry.standalone_operators().iter().map(|kind| ("standalone", kind.specification()));
    let plugin = |(place, specification): (&str, &Specification)| ProcessorPlugin {
        name: full_name(place, specification),
        summary: specification.summary.to_string(),
        description: specification.description.to_string(),
        version: specification.version.to_string(),
        author: specification.author.to_string(),
        parameters: parameters(specification),
    };
    builtin.chain(files).map(plugin).collect()
}

/// Returns connector plugins by full name, sorted by name; a plugin with both roles appears once.
fn connectors_of(registry: &Registry) -> BTreeMap<String, ConnectorPlugin> {
    let mut all = BTreeMap::new();
    let sources = registry.sources().map(|kind| ("builtin", true, kind.specification()));
    let destinations = registry.destinations().map(|kind| ("builtin", false, kind.specification()));
    let files = registry.standalone_connectors().iter().flat_map(|connector| {
        let source = connector.source.iter().map(|kind| ("standalone", true, kind.specification()));
        source.chain(connector.destination.iter().map(|kind| ("standalone", false, kind.specification())))
    });
    for (place, is_source, specification) in sources.chain(destinations).chain(files) {
        let name = full_name(place, specification);
        let Specification { summary, description, version, author, .. } = specification;
        let plugin = all.entry(name.clone()).or_insert_with(|| ConnectorPlugin {
            name,
            summary: summary.to_string(),
            description: description.to_string(),
            version: version.to_string(),
            author: author.to_string(),
            source_params: BTreeMap::new(),
            destination_params: BTreeMap::new(),
        });
        let role = if is_source { &mut plugin.source_params } else { &mut plugin.destination_params };
        *role = parameters(specification);
    }
    all
}

fn full_name(place: &str, specification: &Specification) -> String {
    format!("{place}:{}@{}", specification.name, specification.version)
}

fn parameters(specification: &Specification) -> BTreeMap<String, Parameter> {
    specification.parameters.iter().map(|it| (it.name.to_string(), parameter(it))).collect()
}

fn parameter(parameter: &specification::Parameter) -> Parameter {
    let kind = match parameter.kind {
        ParameterKind::Int => ParameterType::TypeInt,
        ParameterKind::Float => ParameterType::TypeFloat,
        ParameterKind::Bool => ParameterType::TypeBool,
        ParameterKind::Duration => ParameterType::TypeDuration,
        ParameterKind::File => ParameterType::TypeFile,
        ParameterKind::Text
        | ParameterKind::Bytes
        | ParameterKind::List
        | ParameterKind::Reference
        | ParameterKind::Template => ParameterType::TypeString,
    };
    Parameter {
        description: parameter.description.to_string(),
        default: parameter.default.as_deref().unwrap_or_default().to_owned(),
        kind,
        validations: parameter.validations.iter().map(validation).collect(),
    }
}

fn validation(validation: &specification::Validation) -> Validation {
    use specification::Validation as Rule;
    let (kind, value) = match validation {
        Rule::Required => (ValidationType::TypeRequired, String::new()),
        Rule::GreaterThan(bound) => (ValidationType::TypeGreaterThan, bound.to_string()),
        Rule::LessThan(bound) => (ValidationType::TypeLessThan, bound.to_string()),
        Rule::OneOf(texts) => (ValidationType::TypeInclusion, texts.join(",")),
        Rule::NotOneOf(texts) => (ValidationType::TypeExclusion, texts.join(",")),
        Rule::Matches(pattern) => (ValidationType::TypeRegex, pattern.to_string()),
        // The protocol does not have this rule, so it is expressed as a regular expression.
        Rule::Within(references) => {
            let escaped: Vec<String> = references.iter().map(|reference| regex::escape(reference)).collect();
            (ValidationType::TypeRegex, format!("^({})", escaped.join("|")))
        }
    };
    Validation { kind, value }
}
