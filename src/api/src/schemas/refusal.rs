//! Errors of the registry, with the error codes of the protocol.

use anabranch_plugin::schema::{SchemaError, SchemaId, SchemaVersion};
use anabranch_record::text::Str;
use anabranch_settings::Compatibility;
use axum::Json;
use axum::body::Bytes;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;

use crate::error::RegistryError;
use crate::query::InvalidParameter;

/// An error response.
#[derive(Debug)]
pub(super) struct SchemaRefusal {
    status: StatusCode,
    code: u16,
    message: String,
}

impl SchemaRefusal {
    pub(super) fn new(status: StatusCode, code: u16, message: impl Into<String>) -> Self {
        SchemaRefusal { status, code, message: message.into() }
    }

    pub(super) fn invalid(what: impl std::fmt::Display) -> Self {
        SchemaRefusal::new(StatusCode::UNPROCESSABLE_ENTITY, 42201, format!("invalid schema: {what}"))
    }

    pub(super) fn invalid_version(text: &str) -> Self {
        let what = format!("{text:?} is not a version: a version is a number from 1 to 2147483647, or \"latest\"");
        SchemaRefusal::new(StatusCode::UNPROCESSABLE_ENTITY, 42202, what)
    }

    pub(super) fn failed(what: impl Into<String>) -> Self {
        SchemaRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, 50001, what)
    }

    pub(super) fn incompatible(subject: &Str, level: Compatibility, misfits: &[String]) -> Self {
        let what = format!(
            "the schema is incompatible with an earlier one of subject {subject:?}, whose compatibility level is {}: {}",
            level.as_str(),
            misfits.join("; ")
        );
        SchemaRefusal::new(StatusCode::CONFLICT, 409, what)
    }

    pub(super) fn no_level_of(subject: &str) -> Self {
        let what = format!("subject {subject:?} has no compatibility level of its own");
        SchemaRefusal::new(StatusCode::NOT_FOUND, 40408, what)
    }

    pub(super) fn no_mode_of(subject: &str) -> Self {
        SchemaRefusal::new(StatusCode::NOT_FOUND, 40409, format!("subject {subject:?} has no mode of its own"))
    }

    pub(super) fn invalid_level(text: &str) -> Self {
        let all: Vec<&str> = Compatibility::ALL.iter().map(|level| level.as_str()).collect();
        let what = format!("{text:?} is not a compatibility level; the levels are {}", all.join(", "));
        SchemaRefusal::new(StatusCode::UNPROCESSABLE_ENTITY, 42203, what)
    }

    pub(super) fn referred_to(subject: &Str, version: SchemaVersion, id: SchemaId) -> Self {
        let what = format!("the schema with id {id} refers to version {version} of subject {subject:?}");
        SchemaRefusal::new(StatusCode::UNPROCESSABLE_ENTITY, 42206, what)
    }

    pub(super) fn subject_deleted(subject: &Str) -> Self {
        let what = format!("subject {subject:?} is already soft-deleted; add permanent=true to delete it permanently");
        SchemaRefusal::new(StatusCode::NOT_FOUND, 40404, what)
    }

    pub(super) fn subject_not_deleted(subject: &Str) -> Self {
        let what = format!("subject {subject:?} must be soft-deleted before it can be deleted permanently");
        SchemaRefusal::new(StatusCode::NOT_FOUND, 40405, what)
    }

    pub(super) fn version_deleted(subject: &Str, version: SchemaVersion) -> Self {
        let what = format!(
            "version {version} of subject {subject:?} is already soft-deleted; add permanent=true to delete it \
             permanently"
        );
        SchemaRefusal::new(StatusCode::NOT_FOUND, 40406, what)
    }

    pub(super) fn version_not_deleted(subject: &Str, version: SchemaVersion) -> Self {
        let what = format!(
            "version {version} of subject {subject:?} must be soft-deleted before it can be deleted permanently"
        );
        SchemaRefusal::new(StatusCode::NOT_FOUND, 40407, what)
    }
}

impl From<SchemaError> for SchemaRefusal {
    fn from(error: SchemaError) -> Self {
        match &error {
            SchemaError::SubjectNotFound(subject) => {
                SchemaRefusal::new(StatusCode::NOT_FOUND, 40401, format!("subject {subject:?} not found"))
            }
            SchemaError::VersionNotFound { .. } => SchemaRefusal::new(StatusCode::NOT_FOUND, 40402, error.to_string()),
            SchemaError::SchemaNotFound(_) => SchemaRefusal::new(StatusCode::NOT_FOUND, 40403, error.to_string()),
            SchemaError::Invalid(what) => SchemaRefusal::invalid(what),
            SchemaError::Incompatible { .. } => SchemaRefusal::new(StatusCode::CONFLICT, 409, error.to_string()),
            SchemaError::Denied(_) | SchemaError::Unusable(_) | SchemaError::Unavailable(_) => {
                SchemaRefusal::failed(error.to_string())
            }
        }
    }
}

impl From<InvalidParameter> for SchemaRefusal {
    fn from(invalid: InvalidParameter) -> Self {
        SchemaRefusal::new(StatusCode::BAD_REQUEST, 400, invalid.to_string())
    }
}

impl IntoResponse for SchemaRefusal {
    fn into_response(self) -> Response {
        let body = RegistryError { error_code: self.code, message: self.message };
        (self.status, Json(body)).into_response()
    }
}

/// Parses a JSON body of any content type.
pub(super) fn parse<T: DeserializeOwned>(body: &Bytes) -> Result<T, SchemaRefusal> {
    serde_json::from_slice(body).map_err(|error| {
        let what = format!("the body of the request is invalid: {error}");
        SchemaRefusal::new(StatusCode::BAD_REQUEST, 400, what)
    })
}

pub(super) async fn no_such_method(method: Method, uri: Uri) -> SchemaRefusal {
    let what = format!("{} does not support {method}", uri.path());
    SchemaRefusal::new(StatusCode::METHOD_NOT_ALLOWED, 405, what)
}
