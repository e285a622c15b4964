//! MCP over HTTP: each message is the body of a request and is answered with JSON. There are no streams and no
//! sessions.

use std::sync::Arc;

use anabranch_api::access::{Access, ErrorBody, guard, same_site};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::{ALLOW, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use base64::Engine as _;

use super::{MESSAGE, McpAnswer, MirroredHeaders, Server};

/// Returns the router with the only path, behind access control.
pub(crate) fn router(server: Arc<Server>, access: Arc<Access>) -> Router {
    let refuse = async || (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "POST")]);
    Router::new()
        .route("/mcp", post(message).fallback(refuse))
        .with_state(server)
        .layer(from_fn_with_state((access.clone(), ErrorBody::Own), guard))
        .layer(from_fn_with_state(access, same_site))
        .layer(DefaultBodyLimit::max(MESSAGE))
}

async fn message(State(server): State<Arc<Server>>, headers: HeaderMap, body: Bytes) -> Response {
    let mirrored = mirrored(&headers);
    // Tools block.
    let answered = tokio::task::spawn_blocking(move || server.answer(&body, Some(&mirrored))).await;
    let Ok(McpAnswer { status, body }) = answered else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    match body {
        Some(body) => (status, [(CONTENT_TYPE, "application/json")], body.to_string()).into_response(),
        None => status.into_response(),
    }
}

fn mirrored(headers: &HeaderMap) -> MirroredHeaders {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    MirroredHeaders {
        version: text("mcp-protocol-version"),
        method: text("mcp-method"),
        name: text("mcp-name").map(decoded),
    }
}

/// Decodes a header value. Values with characters that a header cannot contain are in base64 and marked.
fn decoded(text: String) -> String {
    let inner = text.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?="));
    let bytes = inner.and_then(|inner| base64::engine::general_purpose::STANDARD.decode(inner).ok());
    bytes.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_values_are_decoded() {
        assert_eq!(decoded("=?base64?SGVsbG8=?=".to_owned()), "Hello");
        assert_eq!(decoded("plan".to_owned()), "plan");
        assert_eq!(decoded("=?base64?%?=".to_owned()), "=?base64?%?=");
    }
}
