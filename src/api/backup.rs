//! A copy of the store, for backups.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use futures::stream::try_unfold;
use tokio::fs::File;
use tokio::io::AsyncReadExt as _;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::View;
use super::error::{ApiError, Error, Kind};

pub(super) fn router() -> OpenApiRouter<Arc<View>> {
    OpenApiRouter::new().routes(routes!(backup))
}

/// Bytes of the copy that are sent together.
const PART: usize = 256 << 10;

/// A copy of the store
///
/// The whole file of an embedded store, consistent, while the service runs. It holds everything that the store holds.
#[utoipa::path(
    post, path = "/v1/backup", tag = "health",
    responses((status = 200, description = "The file", body = Vec<u8>, content_type = "application/octet-stream"),
              (status = 503, description = "`store.unavailable`: it cannot be copied, or is not a file", body = Error)),
)]
async fn backup(State(view): State<Arc<View>>) -> Result<Response, ApiError> {
    let failed = |error: &dyn std::fmt::Display| {
        ApiError::new(Kind::Unavailable, "store.unavailable", format!("the store cannot be copied: {error}"))
    };
    let store = view.store.clone();
    let copied = tokio::task::spawn_blocking(move || {
        // Removed when it was sent, or when nobody takes it: it never has a name that is left.
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let path = directory.path().join("copy.db");
        store.copy_to(&path).map_err(|error| error.to_string())?;
        let file = std::fs::File::open(&path).map_err(|error| error.to_string())?;
        Ok::<_, String>(file)
    });
    let file = copied.await.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
    let parts = try_unfold(File::from_std(file), |mut file| async move {
        let mut part = Vec::with_capacity(PART);
        let read = (&mut file).take(PART as u64).read_to_end(&mut part).await?;
        Ok::<_, std::io::Error>((read > 0).then(|| (Bytes::from(part), file)))
    });
    Ok(([(CONTENT_TYPE, "application/octet-stream")], Body::from_stream(parts)).into_response())
}
