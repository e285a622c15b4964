//! The body of an answer that is an error: a number, a message, and a stable reason.

use axum::Json;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

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

/// The body of all errors.
#[derive(Serialize, ToSchema)]
#[schema(example = json!({
    "code": 5, "message": "there is no pipeline \"x\"",
    "details": [{
        "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "pipeline.not_found", "domain": "anabranch",
        "metadata": {},
    }],
}))]
pub(super) struct Error {
    /// The number that gRPC has for this kind of error.
    code: u8,
    /// What is wrong, for people.
    message: String,
    #[schema(min_items = 1, max_items = 1)]
    details: Vec<ErrorInfo>,
}

/// What programs may compare, and what may help.
#[derive(Serialize, ToSchema)]
struct ErrorInfo {
    #[serde(rename = "@type")]
    kind: &'static str,
    /// Stable, as the index of errors lists them.
    reason: &'static str,
    /// `anabranch`
    domain: &'static str,
    metadata: ErrorMetadata,
}

#[derive(Serialize, ToSchema)]
struct ErrorMetadata {
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    suggestion: Option<&'static str>,
}

/// The body of errors of the schema registry.
#[derive(Serialize, ToSchema)]
#[schema(example = json!({ "error_code": 40401, "message": "subject \"x\" not found" }))]
pub(super) struct RegistryError {
    /// A number of the protocol: the status, or the status and two more digits.
    pub(super) error_code: u16,
    /// What is wrong, for people.
    pub(super) message: String,
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = Error {
            code: self.kind.number(),
            message: self.message,
            details: vec![ErrorInfo {
                kind: "type.googleapis.com/google.rpc.ErrorInfo",
                reason: self.reason,
                domain: "anabranch",
                metadata: ErrorMetadata { suggestion: self.suggestion },
            }],
        };
        (self.kind.status(), Json(body)).into_response()
    }
}

pub(super) async fn no_such_path(uri: Uri) -> ApiError {
    ApiError::new(Kind::NotFound, "api.no_such_path", format!("there is nothing at {}", uri.path()))
}

pub(super) async fn no_such_method(method: Method, uri: Uri) -> ApiError {
    ApiError::new(Kind::Unimplemented, "api.no_such_method", format!("{} does not take {method}", uri.path()))
}
