//! The endpoint that copies the store, for backups.

use std::sync::Arc;

use anabranch_process::files::system;
use anabranch_store::{Store, path_of};
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use futures::stream::try_unfold;
use tokio::fs::File;
use tokio::io::AsyncReadExt as _;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::codes;
use crate::error::{ApiError, Error, Kind};
use crate::view::View;

pub(super) fn router() -> OpenApiRouter<Arc<View>> {
    OpenApiRouter::new().routes(routes!(backup))
}

/// Bytes of the copy that are sent in one piece.
const PART: usize = 256 << 10;

/// Download a copy of the store
///
/// Returns the whole file of an embedded store in a consistent state while the service runs. It contains everything in
/// the store.
#[utoipa::path(
    post, path = "/v1/backup", tag = "health",
    responses((status = 200, description = "The file", body = Vec<u8>, content_type = "application/octet-stream"),
              (status = 503, description = "`store.unavailable`: the copy failed, or the store is not a file", body = Error)),
)]
async fn backup(State(view): State<Arc<View>>) -> Result<Response, ApiError> {
    let failed = |error: &dyn std::fmt::Display| {
        ApiError::new(Kind::Unavailable, codes::STORE_UNAVAILABLE, format!("the store cannot be copied: {error}"))
    };
    let store = view.store.clone();
    let copied = tokio::task::spawn_blocking(move || copy_of(&store));
    let file = copied.await.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
    let parts = try_unfold(File::from_std(file), |mut file| async move {
        let mut part = Vec::with_capacity(PART);
        let read = (&mut file).take(PART as u64).read_to_end(&mut part).await?;
        Ok::<_, std::io::Error>((read > 0).then(|| (Bytes::from(part), file)))
    });
    Ok(([(CONTENT_TYPE, "application/octet-stream")], Body::from_stream(parts)).into_response())
}

/// Copies the store into an unnamed file, which disappears after it is sent or when this process is killed.
#[cfg(target_os = "linux")]
fn copy_of(store: &Store) -> Result<std::fs::File, String> {
    let file = tempfile::tempfile().map_err(|error| system(&error))?;
    store.copy_to(&path_of(&file)).map_err(|error| error.to_string())?;
    Ok(file)
}

/// Copies the store into a temporary file, which is unlinked after it is written. For systems where an open file does
/// not have a path.
#[cfg(not(target_os = "linux"))]
fn copy_of(store: &Store) -> Result<std::fs::File, String> {
    let file = tempfile::NamedTempFile::new().map_err(|error| system(&error))?;
    store.copy_to(file.path()).map_err(|error| error.to_string())?;
    file.reopen().map_err(|error| system(&error))
}
