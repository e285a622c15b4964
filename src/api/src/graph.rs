//! The endpoint that returns the graph of a pipeline, as `pipelines plan` prints it.

use std::sync::Arc;

use anabranch_picture::{Format, Pass, TextStyle};
use anabranch_process::runtime::TEXTS;
use anabranch_service::control::ControlError;
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::codes;
use crate::error::{ApiError, Error, Kind};
use crate::query::Query;
use crate::view::View;

pub(super) fn router() -> OpenApiRouter<Arc<View>> {
    OpenApiRouter::new().routes(routes!(graph))
}

/// Get the compiled graph of a pipeline
///
/// Its nodes have numbers (`index`), which the metrics of the running pipeline refer to.
#[utoipa::path(
    get, path = "/v1/pipelines/{id}/graph", tag = "pipelines",
    params(
        ("id" = String, Path, description = "Id of the pipeline"),
        ("pass" = Option<String>, Query, description = "`fused` (default): as it runs; `lowered`: as in the \
                                                        file; `rewritten`: after the rewrites"),
        ("format" = Option<String>, Query, description = "`json` (default), `svg`, `text`, `dot`, `mermaid`, \
                                                          `html`; `live`: a drawing with room for numbers; \
                                                          `outline`: the lines of the text, each with its subject"),
    ),
    responses(
        (status = 200, description = "The graph", content(
            (serde_json::Value = "application/json"), (String = "image/svg+xml"), (String = "text/plain"),
            (String = "text/html"),
        )),
        (status = 404, description = "`pipeline.not_found`", body = Error),
    ),
)]
async fn graph(State(view): State<Arc<View>>, Path(id): Path<String>, query: Query) -> Result<Response, ApiError> {
    if view.control.seen(&id).is_none() {
        return Err(ApiError::no_pipeline(&id));
    }
    let Some(pipeline) = view.control.compiled(&id) else {
        let what = match view.control.invalid(&id) {
            Some(what) => format!("there is no graph of pipeline {id:?}: {what}"),
            None => format!("there is no graph of pipeline {id:?} yet: its plugins are still being loaded"),
        };
        return Err(ApiError::new(Kind::FailedPrecondition, codes::PIPELINE_INVALID, what));
    };
    let pass = match query.text("pass") {
        "" | "fused" => Pass::Fused,
        "lowered" => Pass::Lowered,
        "rewritten" => Pass::Rewritten,
        other => return Err(unknown("pass", other, "lowered, rewritten or fused")),
    };
    let (format, media) = match query.text("format") {
        "" | "json" => (Format::Json, "application/json"),
        "svg" => (Format::Svg, "image/svg+xml"),
        "live" => (Format::Live, "image/svg+xml"),
        "text" => (Format::Text, "text/plain; charset=utf-8"),
        "outline" => (Format::Outline, "application/json"),
        "dot" => (Format::Dot, "text/plain; charset=utf-8"),
        "mermaid" => (Format::Mermaid, "text/plain; charset=utf-8"),
        "html" => (Format::Html, "text/html; charset=utf-8"),
        other => return Err(unknown("format", other, "json, svg, live, text, outline, dot, mermaid or html")),
    };
    let style = TextStyle { unicode: true, color: false };
    // A pipeline may have thousands of nodes.
    let drawn = TEXTS.run(move || anabranch_picture::explain(&pipeline.compiled, pass, format, style)).await;
    let drawn = drawn.ok_or(ApiError::from(ControlError::ServiceStopping))?;
    Ok(([(CONTENT_TYPE, media)], drawn).into_response())
}

fn unknown(name: &str, given: &str, known: &str) -> ApiError {
    ApiError::malformed(format!("{name}: {given:?} is not one of {known}"))
}
