//! Pipelines whose id equals the last segment of a path for `POST` requests.

use axum::extract::Request;
use axum::http::{Method, Uri};
use axum::middleware::Next;
use axum::response::Response;

const PIPELINES: &str = "/v1/pipelines/";
/// Paths below [`PIPELINES`] that are for `POST` only.
pub(crate) const WORDS: [&str; 3] = ["plan", "apply", "test"];

/// Redirects requests with other methods on such a path to the pipeline with this id.
pub(super) async fn found(mut request: Request, next: Next) -> Response {
    if [Method::GET, Method::HEAD, Method::PUT, Method::DELETE].contains(request.method())
        && let Some(uri) = escaped(request.uri())
    {
        *request.uri_mut() = uri;
    }
    next.run(request).await
}

/// Returns the same path with an escaped character: it has the same meaning, but does not match the fixed path.
fn escaped(uri: &Uri) -> Option<Uri> {
    let word = uri.path().strip_prefix(PIPELINES).filter(|word| WORDS.contains(word))?;
    let (first, rest) = word.split_at_checked(1)?;
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    format!("{PIPELINES}%{:02x}{rest}{query}", first.as_bytes()[0]).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_of_paths_are_escaped() {
        let of = |uri: &str| escaped(&uri.parse().unwrap()).map(|uri| uri.to_string());
        assert_eq!(of("/v1/pipelines/plan?pretty").as_deref(), Some("/v1/pipelines/%70lan?pretty"));
        assert_eq!(of("/v1/pipelines/test").as_deref(), Some("/v1/pipelines/%74est"));
        for other in ["/v1/pipelines/plans", "/v1/pipelines/plan/start", "/v1/pipelines", "/v1/connectors/plan"] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
