//! Presentation of responses: the id of their request, and indentation on request.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::Body as _;
use serde_json::Value;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Maximum length of an id from a client.
const ID_BYTES: usize = 128;
/// Maximum size in bytes of a response that is indented.
const INDENTED: usize = 16 << 20;

/// Adds the id of the request, or a new one, to each response. Indents JSON for `?pretty`, or if
/// `application/json+pretty` is accepted.
pub(super) async fn presented(request: Request, next: Next) -> Response {
    let id = id(request.headers());
    let pretty = request.uri().query().is_some_and(asks_for_pretty)
        || request.headers().get(ACCEPT).is_some_and(|accepted| accepted.as_bytes() == b"application/json+pretty");
    let mut response = next.run(request).await;
    if pretty && response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes() == b"application/json") {
        response = indented(response).await;
    }
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

fn asks_for_pretty(query: &str) -> bool {
    query.split('&').any(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        name == "pretty" && value != "false"
    })
}

fn id(headers: &HeaderMap) -> HeaderValue {
    let given = headers.get(REQUEST_ID).filter(|id| id.len() <= ID_BYTES && id.to_str().is_ok_and(|id| !id.is_empty()));
    given.cloned().unwrap_or_else(|| {
        let made = format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
        HeaderValue::try_from(made).unwrap_or(HeaderValue::from_static("0"))
    })
}

async fn indented(response: Response) -> Response {
    let (mut head, body) = response.into_parts();
    // Larger bodies stay as they are. Bodies in memory have a known length.
    if body.size_hint().upper().is_none_or(|size| size > INDENTED as u64) {
        return Response::from_parts(head, body);
    }
    let Ok(bytes) = to_bytes(body, INDENTED).await else { return Response::from_parts(head, Body::empty()) };
    let pretty = serde_json::from_slice::<Value>(&bytes).and_then(|value| serde_json::to_vec_pretty(&value));
    head.headers.remove(CONTENT_LENGTH);
    Response::from_parts(head, pretty.map_or_else(|_| Body::from(bytes), Body::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pretty_is_asked_for() {
        for yes in ["pretty", "pretty=true", "name=x&pretty", "pretty="] {
            assert!(asks_for_pretty(yes), "{yes}");
        }
        for no in ["", "pretty=false", "prettyx", "name=pretty"] {
            assert!(!asks_for_pretty(no), "{no}");
        }
    }
}
