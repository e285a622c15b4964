//! The body of an answer that is an error: a number, a message, and a stable reason.

use axum::Json;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, json};

/// What kind of error it is. The number is the one of gRPC, which clients of this kind of service know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The request is not what it must be; with the status that says how.
    Malformed(StatusCode),
    NotFound,
    PermissionDenied,
    Unimplemented,
    Unavailable,
    DeadlineExceeded,
    Unauthenticated,
}

impl Kind {
    const fn number(self) -> u8 {
        match self {
            Kind::Malformed(_) => 3,
            Kind::DeadlineExceeded => 4,
            Kind::NotFound => 5,
            Kind::PermissionDenied => 7,
            Kind::Unimplemented => 12,
            Kind::Unavailable => 14,
            Kind::Unauthenticated => 16,
        }
    }

    pub(super) const fn status(self) -> StatusCode {
        match self {
            Kind::Malformed(status) => status,
            Kind::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
            Kind::NotFound => StatusCode::NOT_FOUND,
            Kind::PermissionDenied => StatusCode::FORBIDDEN,
            Kind::Unimplemented => StatusCode::METHOD_NOT_ALLOWED,
            Kind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Kind::Unauthenticated => StatusCode::UNAUTHORIZED,
        }
    }
}

/// An error as a client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ApiError {
    pub(super) kind: Kind,
    /// Stable: programs may compare it.
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) suggestion: Option<&'static str>,
}

impl ApiError {
    pub(super) fn new(kind: Kind, reason: &'static str, message: impl Into<String>) -> Self {
        ApiError { kind, reason, message: message.into(), suggestion: None }
    }

    pub(super) fn suggest(mut self, suggestion: &'static str) -> Self {
        self.suggestion = Some(suggestion);
        self
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut metadata = Map::new();
        if let Some(suggestion) = self.suggestion {
            metadata.insert("suggestion".to_owned(), suggestion.into());
        }
        let body = json!({
            "code": self.kind.number(),
            "message": self.message,
            "details": [{
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": self.reason,
                "domain": "anabranch",
                "metadata": metadata,
            }],
        });
        (self.kind.status(), Json(body)).into_response()
    }
}

pub(super) async fn no_such_path(uri: Uri) -> ApiError {
    ApiError::new(Kind::NotFound, "api.no_such_path", format!("there is nothing at {}", uri.path()))
}

pub(super) async fn no_such_method(method: Method, uri: Uri) -> ApiError {
    ApiError::new(Kind::Unimplemented, "api.no_such_method", format!("{} does not take {method}", uri.path()))
}
