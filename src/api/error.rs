//! The body of an answer that is an error: a number, a message, and a stable reason.

use std::borrow::Cow;

use anabranch_graph::state::StoreError;
use axum::Json;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use crate::service::control::ControlError;

/// What kind of error it is. The number is the one of gRPC, which clients of this kind of service know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The request is not what it must be; with the status that says how.
    Malformed(StatusCode),
    NotFound,
    AlreadyExists,
    PermissionDenied,
    /// There is as much of it as there may be.
    ResourceExhausted,
    /// It may be asked, but not as things are now.
    FailedPrecondition,
    /// Somebody else was faster.
    Aborted,
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
            Kind::AlreadyExists => 6,
            Kind::PermissionDenied => 7,
            Kind::ResourceExhausted => 8,
            Kind::FailedPrecondition => 9,
            Kind::Aborted => 10,
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
            Kind::AlreadyExists | Kind::Aborted => StatusCode::CONFLICT,
            Kind::PermissionDenied => StatusCode::FORBIDDEN,
            Kind::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
            // As gateways of gRPC have it.
            Kind::FailedPrecondition => StatusCode::BAD_REQUEST,
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
    pub(super) suggestion: Option<Cow<'static, str>>,
    /// The part of a configuration it is about, as a JSON pointer.
    pub(super) config_path: Option<String>,
}

impl ApiError {
    pub(super) fn new(kind: Kind, reason: &'static str, message: impl Into<String>) -> Self {
        ApiError { kind, reason, message: message.into(), suggestion: None, config_path: None }
    }

    pub(super) fn suggest(mut self, suggestion: impl Into<Cow<'static, str>>) -> Self {
        self.suggestion = Some(suggestion.into());
        self
    }

    /// About a part of a configuration, named by a JSON pointer.
    pub(super) fn at(mut self, config_path: impl Into<String>) -> Self {
        self.config_path = Some(config_path.into());
        self
    }
}

impl ApiError {
    /// As a client reads it.
    pub(super) fn body(&self) -> Value {
        let mut metadata = Map::new();
        if let Some(suggestion) = &self.suggestion {
            metadata.insert("suggestion".to_owned(), suggestion.as_ref().into());
        }
        if let Some(path) = &self.config_path {
            metadata.insert("configPath".to_owned(), path.as_str().into());
        }
        json!({
            "code": self.kind.number(),
            "message": self.message,
            "details": [{
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": self.reason,
                "domain": "anabranch",
                "metadata": metadata,
            }],
        })
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.kind.status(), Json(self.body())).into_response()
    }
}

impl From<ControlError> for ApiError {
    fn from(error: ControlError) -> Self {
        let kind = match &error {
            ControlError::NotFound(_) => Kind::NotFound,
            ControlError::Running(_)
            | ControlError::NotRunning(_)
            | ControlError::Stopping(_)
            | ControlError::Invalid { .. }
            | ControlError::Loading(_) => Kind::FailedPrecondition,
            ControlError::Busy(_) => Kind::Aborted,
            ControlError::ServiceStopping | ControlError::Store(_) => Kind::Unavailable,
        };
        let answer = ApiError::new(kind, error.code(), error.to_string());
        match error.suggestion() {
            Some(suggestion) => answer.suggest(suggestion),
            None => answer,
        }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        ApiError::new(Kind::Unavailable, "store.unavailable", error.to_string())
    }
}

pub(super) async fn no_such_path(uri: Uri) -> ApiError {
    ApiError::new(Kind::NotFound, "api.no_such_path", format!("there is nothing at {}", uri.path()))
}

pub(super) async fn no_such_method(method: Method, uri: Uri) -> ApiError {
    ApiError::new(Kind::Unimplemented, "api.no_such_method", format!("{} does not take {method}", uri.path()))
}
