//! Requests that are not accepted, and the answers to them.

use std::collections::HashMap;
use std::mem::{Discriminant, discriminant};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anabranch_plugin::source::RefusedRequests;
use anabranch_record::text::Str;
use hyper::header::{ALLOW, CONNECTION, HeaderMap, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::{Method, StatusCode};

/// Time between two log lines with the same reason.
const SAID_AGAIN: Duration = Duration::from_secs(60);
/// Maximum number of characters of a path in the log.
const SHOWN: usize = 200;

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
    /// The reasons of [`RefusedRequest::reason`].
    pub(super) const REASONS: [&str; 9] =
        ["path", "method", "authentication", "size", "format", "incomplete", "back-pressure", "timeout", "stopping"];

    /// Returns the reason as a word for metrics.
    fn reason(&self) -> &'static str {
        match self {
            RefusedRequest::Path => "path",
            RefusedRequest::Method(_) => "method",
            RefusedRequest::Credentials(_) => "authentication",
            RefusedRequest::TooLarge(_) | RefusedRequest::TooMany(_) => "size",
            RefusedRequest::Encoding | RefusedRequest::Invalid(_) => "format",
            RefusedRequest::Slow | RefusedRequest::Incomplete => "incomplete",
            RefusedRequest::Busy => "back-pressure",
            RefusedRequest::Late => "timeout",
            RefusedRequest::Stopping => "stopping",
        }
    }

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

/// Log lines about refused requests: at most one a minute for each reason, with the number of requests since the last one.
pub(super) struct RefusalLog {
    pipeline: Str,
    connector: Str,
    reasons: Mutex<HashMap<Discriminant<RefusedRequest>, CountedRefusals>>,
    /// Numbers of all refused requests, for metrics.
    numbers: RefusedRequests,
}

#[derive(Default)]
struct CountedRefusals {
    said: Option<Instant>,
    /// Number of requests that no line counts.
    unsaid: u64,
}

impl RefusalLog {
    pub(super) fn new(pipeline: Str, connector: Str, numbers: RefusedRequests) -> RefusalLog {
        RefusalLog { pipeline, connector, reasons: Mutex::default(), numbers }
    }

    /// Counts a refused request, and logs it unless a line with the reason was written a short time ago.
    pub(super) fn note(&self, refused: &RefusedRequest, path: &str) {
        self.numbers.count(refused.reason());
        let Some(requests) = self.due(refused, Instant::now()) else { return };
        let path: String = path.chars().take(SHOWN).collect();
        tracing::warn!(
            pipeline = %self.pipeline, connector = %self.connector, path, status = refused.status().as_u16(), requests,
            "requests are refused: {refused}"
        );
    }

    /// Returns the number of requests for a line that is due.
    fn due(&self, refused: &RefusedRequest, now: Instant) -> Option<u64> {
        let mut reasons = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = reasons.entry(discriminant(refused)).or_default();
        counted.unsaid += 1;
        if counted.said.is_some_and(|said| now.duration_since(said) < SAID_AGAIN) {
            return None;
        }
        counted.said = Some(now);
        Some(std::mem::take(&mut counted.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refused_request_is_counted_by_its_reason() {
        let numbers = RefusedRequests::new(&RefusedRequest::REASONS);
        let log = RefusalLog::new(Str::from("p"), Str::from("in"), numbers.clone());
        let all = [
            RefusedRequest::Path,
            RefusedRequest::Method(Vec::new()),
            RefusedRequest::TooLarge(1),
            RefusedRequest::TooMany(1),
            RefusedRequest::Encoding,
            RefusedRequest::Slow,
            RefusedRequest::Incomplete,
            RefusedRequest::Busy,
            RefusedRequest::Busy,
            RefusedRequest::Late,
            RefusedRequest::Stopping,
        ];
        all.iter().for_each(|refused| log.note(refused, "/"));
        let counted: Vec<_> = numbers.numbers().filter(|(_, number)| *number > 0).collect();
        let expected = [
            ("back-pressure", 2),
            ("format", 1),
            ("incomplete", 2),
            ("method", 1),
            ("path", 1),
            ("size", 2),
            ("stopping", 1),
            ("timeout", 1),
        ];
        assert_eq!(counted, expected);
    }

    #[test]
    fn each_reason_has_one_log_line_a_minute() {
        let log = RefusalLog::new(Str::from("p"), Str::from("in"), RefusedRequests::default());
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(log.due(&RefusedRequest::Path, at(0)), Some(1));
        for second in 1..60 {
            assert_eq!(log.due(&RefusedRequest::Path, at(second)), None);
        }
        assert_eq!(log.due(&RefusedRequest::TooLarge(1), at(30)), Some(1), "another reason");
        assert_eq!(log.due(&RefusedRequest::TooLarge(2), at(31)), None, "the same reason");
        assert_eq!(log.due(&RefusedRequest::Path, at(60)), Some(60));
    }
}
