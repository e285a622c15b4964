//! The body of an error response: a number, a message, and a stable reason.

use std::borrow::Cow;

use anabranch_plugin::state::StoreError;
use anabranch_record::code::Code;
use axum::Json;
use axum::extract::Request;
use axum::http::header::{ALLOW, CONTENT_LENGTH};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use anabranch_service::control::ControlError;

use crate::codes;

/// The kind of an error. Its number is the gRPC code, which clients of this API know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The request is not valid; the HTTP status says in which way.
    Malformed(StatusCode),
    NotFound,
    AlreadyExists,
    PermissionDenied,
    /// A limit is reached.
    ResourceExhausted,
    /// The request is valid, but not in the current state.
    FailedPrecondition,
    /// A concurrent request came first.
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
            // The mapping of gRPC gateways.
            Kind::FailedPrecondition => StatusCode::BAD_REQUEST,
            Kind::Unimplemented => StatusCode::METHOD_NOT_ALLOWED,
            Kind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Kind::Unauthenticated => StatusCode::UNAUTHORIZED,
        }
    }
}

/// An error as it is sent to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ApiError {
    pub(super) kind: Kind,
    /// Stable code for programs.
    pub(super) reason: Code,
    pub(super) message: String,
    pub(super) suggestion: Option<Cow<'static, str>>,
    /// JSON pointer to the place in a configuration.
    pub(super) config_path: Option<String>,
    /// Line and column of a text that the client sent, from 1.
    pub(super) place: Option<Box<(u32, u32)>>,
    /// Further errors of the same configuration.
    pub(super) further: Box<[ApiError]>,
}

impl ApiError {
    pub(super) fn new(kind: Kind, reason: Code, message: impl Into<String>) -> Self {
        let message = message.into();
        ApiError { kind, reason, message, suggestion: None, config_path: None, place: None, further: Box::default() }
    }

    /// Creates the error of an invalid request.
    pub(super) fn malformed(what: impl Into<String>) -> Self {
        ApiError::new(Kind::Malformed(StatusCode::BAD_REQUEST), codes::API_MALFORMED_REQUEST, what)
    }

    /// Creates the error of an unknown pipeline.
    pub(super) fn no_pipeline(id: &str) -> Self {
        ApiError::new(Kind::NotFound, codes::PIPELINE_NOT_FOUND, format!("there is no pipeline {id:?}"))
    }

    pub(super) fn suggest(mut self, suggestion: impl Into<Cow<'static, str>>) -> Self {
        self.suggestion = Some(suggestion.into());
        self
    }

    /// Adds a JSON pointer to the place in a configuration.
    pub(super) fn at(mut self, config_path: impl Into<String>) -> Self {
        self.config_path = Some(config_path.into());
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
    /// The gRPC code of the error.
    code: u8,
    /// Description of the error for people.
    message: String,
    /// First the details of the message, then further errors of the same configuration.
    #[schema(min_items = 1)]
    details: Vec<ErrorInfo>,
}

/// Stable values for programs, and a suggestion.
#[derive(Serialize, ToSchema)]
struct ErrorInfo {
    #[serde(rename = "@type")]
    kind: &'static str,
    /// Stable code, as listed in the index of errors.
    reason: &'static str,
    /// `anabranch`
    domain: &'static str,
    metadata: ErrorMetadata,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ErrorMetadata {
    /// How to fix the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    suggestion: Option<Cow<'static, str>>,
    /// JSON pointer to the place in the pipeline: `/connectors/0/settings/path`.
    #[serde(skip_serializing_if = "Option::is_none")]
    config_path: Option<String>,
    /// Line of the text in the request, from 1. It is a string, like all metadata values in gRPC.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<String>,
    /// Column in that line, in characters from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<String>,
    /// Description of the error, if it differs from the message of the body.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

/// The body of errors of the schema registry.
#[derive(Serialize, ToSchema)]
#[schema(example = json!({ "error_code": 40401, "message": "subject \"x\" not found" }))]
pub(super) struct RegistryError {
    /// Error code of the protocol: the HTTP status, or the status and two more digits.
    pub(super) error_code: u16,
    /// Description of the error for people.
    pub(super) message: String,
}

impl ErrorInfo {
    fn of(error: ApiError, message: Option<String>) -> Self {
        let ApiError { reason, suggestion, config_path, place, .. } = error;
        let (line, column) = place.map(|place| (place.0.to_string(), place.1.to_string())).unzip();
        let metadata = ErrorMetadata { suggestion, config_path, line, column, message };
        ErrorInfo {
            kind: "type.googleapis.com/google.rpc.ErrorInfo",
            reason: reason.name(),
            domain: "anabranch",
            metadata,
        }
    }
}

impl Error {
    pub(super) fn of(mut error: ApiError) -> Self {
        let (code, message) = (error.kind.number(), std::mem::take(&mut error.message));
        let further = std::mem::take(&mut error.further);
        let mut details = vec![ErrorInfo::of(error, None)];
        details.extend(further.into_iter().map(|mut error| {
            let message = std::mem::take(&mut error.message);
            ErrorInfo::of(error, Some(message))
        }));
        Error { code, message, details }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.kind.status(), Json(Error::of(self))).into_response()
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
            | ControlError::NoSource { .. }
            | ControlError::Refused(..)
            | ControlError::Elsewhere(_)
            | ControlError::Loading(_) => Kind::FailedPrecondition,
            ControlError::Late => Kind::Unavailable,
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
        ApiError::new(Kind::Unavailable, codes::STORE_UNAVAILABLE, error.to_string())
    }
}

pub(super) async fn no_such_path(uri: Uri) -> ApiError {
    ApiError::new(Kind::NotFound, codes::API_NO_SUCH_PATH, format!("the path {} does not exist", uri.path()))
}

/// Adds the methods that a path accepts to the error for another method.
pub(super) async fn naming_methods(request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = next.run(request).await;
    let allowed = response.headers().get(ALLOW).and_then(|methods| methods.to_str().ok()).map(str::to_owned);
    let Some(allowed) = allowed.filter(|_| response.extensions().get::<OtherMethod>().is_some()) else {
        return response;
    };
    let methods: Vec<&str> = allowed.split(',').map(str::trim).filter(|name| *name != "HEAD").collect();
    let message = format!("{path} does not support {method}: it supports {}", methods.join(", "));
    let error = ApiError::new(Kind::Unimplemented, codes::API_NO_SUCH_METHOD, message)
        .suggest(format!("use {}", methods.join(" or ")));
    let (mut parts, body) = error.into_response().into_parts();
    for (name, value) in response.headers() {
        if !parts.headers.contains_key(name) && *name != CONTENT_LENGTH {
            parts.headers.insert(name.clone(), value.clone());
        }
    }
    Response::from_parts(parts, body)
}

/// Marks the response to a request with a method that the path does not accept.
#[derive(Clone, Copy)]
struct OtherMethod;

pub(super) async fn no_such_method(method: Method, uri: Uri) -> Response {
    let message = format!("{} does not support {method}", uri.path());
    let mut response = ApiError::new(Kind::Unimplemented, codes::API_NO_SUCH_METHOD, message).into_response();
    response.extensions_mut().insert(OtherMethod);
    response
}
