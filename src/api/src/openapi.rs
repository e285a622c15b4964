//! The OpenAPI description of the API, collected from the declarations of the endpoints.
//!
//! Each path is declared once, by `#[utoipa::path]` on its handler, and `routes!` adds it to the router and to the
//! document: so both contain the same paths.

use std::sync::LazyLock;

use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ContentBuilder, OpenApi, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{Modify, OpenApi as _};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::{error, health};

/// Paths that need no token.
const OPEN: [&str; 3] = ["/healthz", "/readyz", "/openapi.json"];

/// The parts of the document that do not belong to a single path.
#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Anabranch",
        description = "The API of a running Anabranch service. All errors have the same form; their \
                       `reason` is stable and listed in the index of errors.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    components(schemas(error::Error)),
    tags(
        (name = "health", description = "Probes, metrics and backups. Probes need no token."),
        (name = "pipelines", description = "Pipelines and their status."),
        (name = "connectors", description = "Sources and destinations of pipelines."),
        (name = "processors", description = "Processors of pipelines and of their connectors."),
        (name = "dead letters", description = "Records that failed, in pipelines whose dead-letter queue is `store`."),
        (name = "inspect", description = "Records in flight, over websockets. Pages in a browser, which cannot set a \
                                          header, send the token as the parameter `token`."),
        (name = "cluster", description = "The nodes of a cluster. Any node answers requests for all pipelines."),
        (name = "plugins", description = "Plugins for pipelines, and the version of the program."),
        (name = "schema registry", description = "The built-in schema registry with the API of Confluent. Only with \
                                                  `schema-registry.serve`. Its errors have the form of Confluent's."),
        (name = "description", description = "This document."),
    ),
    modifiers(&Common),
)]
struct Frame;

/// Returns all paths of this build, including those that settings turn off.
pub fn document() -> OpenApi {
    let mut document = Frame::openapi();
    let mut add = |part: OpenApi| document.merge(part);
    add(health::router().into_openapi());
    add(crate::paths::paths().into_openapi());
    add(crate::metrics::router().into_openapi());
    add(router::<()>().into_openapi());
    #[cfg(feature = "avro")]
    add(crate::schemas::paths().into_openapi());
    Common.modify(&mut document);
    document
}

/// Returns the router for the document itself.
pub(super) fn router<S: Clone + Send + Sync + 'static>() -> OpenApiRouter<S> {
    OpenApiRouter::new().routes(routes!(openapi))
}

/// Get this document
#[utoipa::path(
    get, path = "/openapi.json", tag = "description",
    responses((status = 200, description = "The description of the API in OpenAPI 3.1", body = serde_json::Value)),
)]
async fn openapi() -> impl IntoResponse {
    // Created at the first request.
    static TEXT: LazyLock<Bytes> =
        LazyLock::new(|| serde_json::to_vec(&document()).map(Bytes::from).unwrap_or_default());
    ([(CONTENT_TYPE, "application/json")], TEXT.clone())
}

/// Adds what all paths have in common: authentication and errors.
struct Common;

impl Modify for Common {
    fn modify(&self, document: &mut OpenApi) {
        let components = document.components.get_or_insert_default();
        components.add_security_scheme(
            "token",
            SecurityScheme::Http(
                Http::builder()
                    .scheme(HttpAuthScheme::Bearer)
                    .description(Some("The token of the service, if it has one: `api.http.token-file`."))
                    .build(),
            ),
        );
        components.add_security_scheme(
            "password",
            SecurityScheme::Http(
                Http::builder()
                    .scheme(HttpAuthScheme::Basic)
                    .description(Some("The token as the password of any user."))
                    .build(),
            ),
        );
        for (path, item) in &mut document.paths.paths {
            for operation in operations(item) {
                let open = OPEN.contains(&path.as_str());
                complete(operation, open);
            }
        }
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem { get, put, post, delete, .. } = item;
    [get, put, post, delete].into_iter().flatten()
}

fn complete(operation: &mut Operation, open: bool) {
    if !open {
        // The last requirement is empty, for a service without a token.
        let none = || Vec::<String>::new();
        operation.security = Some(vec![
            SecurityRequirement::new("token", none()),
            SecurityRequirement::new("password", none()),
            SecurityRequirement::default(),
        ]);
    }
    let responses = &mut operation.responses.responses;
    let of_registry = operation.tags.iter().flatten().any(|tag| tag == "schema registry");
    let mut add = |status: &str, what: &str| {
        let response = || RefOr::T(if of_registry { registry_error(what) } else { own_error(what) });
        responses.entry(status.to_owned()).or_insert_with(response);
    };
    add("400", "The request is invalid");
    if !open {
        add("401", "The token is missing or wrong");
    }
    add("403", "The origin or the host is not allowed");
    if operation.request_body.is_some() {
        add("413", "The body is larger than 4 MiB");
    }
    add("default", "Any other error");
}

fn own_error(what: &str) -> Response {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Error"))).build();
    ResponseBuilder::new().description(what).content("application/json", content).build()
}

fn registry_error(what: &str) -> Response {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("RegistryError"))).build();
    ResponseBuilder::new().description(what).content("application/json", content).build()
}
