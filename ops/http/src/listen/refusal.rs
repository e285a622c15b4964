//! Requests that are not accepted, and the answers to them.

use std::time::Duration;

use hyper::header::{ALLOW, CONNECTION, HeaderMap, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::{Method, StatusCode};

/// Reason why a request is not accepted, or not confirmed. Its text is the answer: it quotes no secret.
#[derive(Debug, thiserror::Error)]
pub(super) enum RefusedRequest {
    /// The path is none of the settings.
    #[error("no records are accepted at this path")]
    Path,
    /// The method is none of the settings.
    #[error("the method is not accepted")]
    Method(Vec<Method>),
    /// The request has no valid credentials.
    #[error(transparent)]
    Credentials(#[from] super::authentication::Denied),
    /// The body, or what it is decompressed to, is too large.
    #[error("the body has more than {0} bytes")]
    TooLarge(usize),
    /// The body has too many records.
    #[error("the body has more than {0} records")]
    TooMany(usize),
    /// The encoding of the body is unknown.
    #[error("the Content-Encoding is neither gzip nor identity")]
    Encoding,
    /// The body did not arrive in time.
    #[error("the body did not arrive in time")]
    Slow,
    /// The body did not arrive completely.
    #[error("the body is incomplete")]
    Incomplete,
    /// The body is not in the format.
    #[error("{0}")]
    Invalid(#[from] super::body::InvalidBody),
    /// Too much is in flight.
    #[error("too many requests or bytes are in flight: repeat the request later")]
    Busy,
    /// The records were not delivered in time.
    #[error("the records are not delivered yet: repeat the request")]
    Late,
    /// The source stops, or the pipeline recovers from an error.
    #[error("the pipeline is stopping: repeat the request later")]
    Stopping,
}

impl RefusedRequest {
    /// Returns the status of the answer.
    pub(super) fn status(&self) -> StatusCode {
        match self {
            RefusedRequest::Path => StatusCode::NOT_FOUND,
            RefusedRequest::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
            RefusedRequest::Credentials(_) => StatusCode::UNAUTHORIZED,
            RefusedRequest::TooLarge(_) | RefusedRequest::TooMany(_) => StatusCode::PAYLOAD_TOO_LARGE,
            RefusedRequest::Encoding => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            RefusedRequest::Slow => StatusCode::REQUEST_TIMEOUT,
            RefusedRequest::Incomplete | RefusedRequest::Invalid(_) => StatusCode::BAD_REQUEST,
            RefusedRequest::Busy => StatusCode::TOO_MANY_REQUESTS,
            RefusedRequest::Late | RefusedRequest::Stopping => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Adds the headers of the answer. `retry_after` is the delay after which a client may repeat the request.
    pub(super) fn add_headers(&self, headers: &mut HeaderMap, retry_after: Duration) {
        match self {
            RefusedRequest::Method(accepted) => {
                let names: Vec<&str> = accepted.iter().map(Method::as_str).collect();
                if let Ok(value) = HeaderValue::try_from(names.join(", ")) {
                    headers.insert(ALLOW, value);
                }
            }
            RefusedRequest::Credentials(denied) => {
                if let Some(scheme) = denied.scheme() {
                    headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(scheme));
                }
            }
            RefusedRequest::Busy | RefusedRequest::Late | RefusedRequest::Stopping => {
                let seconds = retry_after.as_secs() + u64::from(retry_after.subsec_nanos() > 0);
                headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
            }
            // The rest of the body is not read, so the connection cannot be used again.
            RefusedRequest::TooLarge(_) | RefusedRequest::Slow => {
                headers.insert(CONNECTION, HeaderValue::from_static("close"));
            }
            RefusedRequest::Path
            | RefusedRequest::TooMany(_)
            | RefusedRequest::Encoding
            | RefusedRequest::Incomplete
            | RefusedRequest::Invalid(_) => {}
        }
    }
}
