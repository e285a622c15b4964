//! The page that shows the OpenAPI description and sends requests. All its assets are in the binary.

use axum::Router;
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;

/// The page may load only resources of this origin.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route("/openapi", get(async || Redirect::permanent("/openapi/")))
        .route("/openapi/", get(async || file("text/html; charset=utf-8", include_str!("viewer/index.html"))))
        .route("/openapi/viewer.css", get(async || file("text/css; charset=utf-8", include_str!("viewer/viewer.css"))))
        .route(
            "/openapi/viewer.js",
            get(async || file("text/javascript; charset=utf-8", include_str!("viewer/viewer.js"))),
        )
}

fn file(kind: &'static str, text: &'static str) -> Response {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(kind)),
        (CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        // Another version of the program has other pages at the same path.
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    (headers, text).into_response()
}
