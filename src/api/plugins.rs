//! The program itself, and the plugins it can use.

use std::sync::Arc;

use anabranch_graph::registry::Registry;
use anabranch_graph::specification::{Parameter, ParameterKind, Specification, Validation};
use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Map, Value, json};

use super::View;
use super::error::ApiError;
use super::query::Query;

type Shared = State<Arc<View>>;

pub(super) fn router(view: Arc<View>) -> Router {
    Router::new()
        .route("/info", get(info))
        .route("/v1/info", get(info))
        .route("/v1/plugins", get(connectors))
        .route("/v1/connectors/plugins", get(connectors))
        .route("/v1/processors/plugins", get(processors))
        .with_state(view)
}

async fn info() -> Json<Value> {
    let (version, os, arch) = (env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH);
    Json(json!({ "version": version, "os": os, "arch": arch }))
}

async fn connectors(State(view): Shared, query: Query) -> Result<Json<Value>, ApiError> {
    let name = query.pattern("name")?;
    let all = connectors_of(&view.registry);
    Ok(Json(
        all.into_iter().filter(|(full, _)| name.as_ref().is_none_or(|n| n.is_match(full))).map(|(_, v)| v).collect(),
    ))
}

async fn processors(State(view): Shared, query: Query) -> Result<Json<Value>, ApiError> {
    let name = query.pattern("name")?;
    let all = view.registry.operators().map(|kind| kind.specification()).filter_map(|specification| {
        let full = full_name(specification);
        name.as_ref().is_none_or(|name| name.is_match(&full)).then(|| {
            let mut shown = identity(&full, specification);
            shown.insert("parameters".to_owned(), parameters(specification));
            Value::Object(shown)
        })
    });
    Ok(Json(all.collect()))
}

/// By full name, in the order of names; a plugin with both roles once.
fn connectors_of(registry: &Registry) -> Vec<(String, Value)> {
    let mut all: std::collections::BTreeMap<String, Map<String, Value>> = std::collections::BTreeMap::new();
    let sources = registry.sources().map(|kind| ("sourceParams", kind.specification()));
    let destinations = registry.destinations().map(|kind| ("destinationParams", kind.specification()));
    for (role, specification) in sources.chain(destinations) {
        let full = full_name(specification);
        let shown = all.entry(full.clone()).or_insert_with(|| {
            let mut shown = identity(&full, specification);
            shown.extend(["sourceParams", "destinationParams"].map(|role| (role.to_owned(), json!({}))));
            shown
        });
        shown.insert(role.to_owned(), parameters(specification));
    }
    all.into_iter().map(|(name, shown)| (name, Value::Object(shown))).collect()
}

fn full_name(specification: &Specification) -> String {
    format!("builtin:{}@{}", specification.name, specification.version)
}

fn identity(full: &str, specification: &Specification) -> Map<String, Value> {
    let Specification { summary, description, version, author, .. } = specification;
    let pairs = [
        ("name", full),
        ("summary", summary.as_str()),
        ("description", description.as_str()),
        ("version", version.as_str()),
        ("author", author.as_str()),
    ];
    pairs.into_iter().map(|(name, text)| (name.to_owned(), text.into())).collect()
}

fn parameters(specification: &Specification) -> Value {
    Value::Object(specification.parameters.iter().map(|it| (it.name.to_string(), parameter(it))).collect())
}

fn parameter(parameter: &Parameter) -> Value {
    let kind = match parameter.kind {
        ParameterKind::Int => "TYPE_INT",
        ParameterKind::Float => "TYPE_FLOAT",
        ParameterKind::Bool => "TYPE_BOOL",
        ParameterKind::Duration => "TYPE_DURATION",
        ParameterKind::File => "TYPE_FILE",
        ParameterKind::Text
        | ParameterKind::Bytes
        | ParameterKind::List
        | ParameterKind::Reference
        | ParameterKind::Template => "TYPE_STRING",
    };
    let validation = |validation: &Validation| {
        let (kind, value) = match validation {
            Validation::Required => ("TYPE_REQUIRED", String::new()),
            Validation::GreaterThan(bound) => ("TYPE_GREATER_THAN", bound.to_string()),
            Validation::LessThan(bound) => ("TYPE_LESS_THAN", bound.to_string()),
            Validation::OneOf(texts) => ("TYPE_INCLUSION", texts.join(",")),
            Validation::NotOneOf(texts) => ("TYPE_EXCLUSION", texts.join(",")),
            Validation::Matches(pattern) => ("TYPE_REGEX", pattern.to_string()),
            // A rule that others do not have, in the form of one that they have.
            Validation::Within(references) => {
                let escaped: Vec<String> = references.iter().map(|reference| regex::escape(reference)).collect();
                ("TYPE_REGEX", format!("^({})", escaped.join("|")))
            }
        };
        json!({ "type": kind, "value": value })
    };
    json!({
        "description": parameter.description,
        "default": parameter.default.as_deref().unwrap_or_default(),
        "type": kind,
        "validations": parameter.validations.iter().map(validation).collect::<Vec<_>>(),
    })
}
