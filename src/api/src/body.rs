//! Request bodies.

use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, Request};
use axum::response::IntoResponse as _;
use bytes::Bytes;
use serde::de::DeserializeOwned;

use crate::codes;
use crate::error::{ApiError, Kind};

/// A JSON body of any content type; an empty body counts as `{}`.
pub(super) struct Body<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let bytes = Bytes::from_request(request, state).await.map_err(unread)?;
        let text = if bytes.trim_ascii().is_empty() { b"{}" } else { &bytes[..] };
        serde_json::from_slice(text)
            .map(Body)
            .map_err(|error| ApiError::malformed(format!("the body of the request is invalid: {error}")))
    }
}

fn unread(rejection: BytesRejection) -> ApiError {
    let text = rejection.body_text();
    ApiError::new(Kind::Malformed(rejection.into_response().status()), codes::API_MALFORMED_REQUEST, text)
}
